"""Options shared by several commands; tables of all parties in one, or of one party each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer

from labelward.errors import InputError, unknown_name

Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Repeat = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="RUN_DIR",
        help="Reuse the private random draws of an earlier run, such as the choice of test rows. Repeatable.",
    ),
]


def refuse_unread(context: typer.Context, parameters: Collection[str], reason: str) -> None:
    """Refuse options that were given, and that nothing reads.

    Args:
        context: of the command.
        parameters: names of its parameters.
        reason: what to do about it.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in parameters and source is not None and source.name == "COMMANDLINE":
            raise InputError(reason, code="conflict", field=parameter.opts[0])


def refuse_overwriting(out: Path | None, inputs: Collection[Path | None], option: str = "--out") -> None:
    """Refuse an output file, given by an option, that is one of the inputs; None: not given."""
    for each in inputs:
        if out is not None and each is not None and out.exists() and each.exists() and out.samefile(each):
            reason = f"{out} is read by this command; name another file"
            raise InputError(reason, code="conflict", field=option, value=str(out))


def example(line: str) -> str:
    """Return the end of a command's help: a line as one would type it."""
    return f"Example: {line}"


def model_parties(run: Path) -> tuple[str, ...]:
    """Return the parties of a trained model, the active one first.

    Raises:
        InputError: the folder does not exist or holds no model.
    """
    if not run.is_dir():
        raise InputError("no such folder", code="not-found", field=str(run))
    if not any(folder.is_dir() for folder in run.glob("*/model")):
        raise InputError(f"{run} holds no model: there is no folder PARTY/model", code="foreign", value=str(run))
    from labelward.federation.model_shares import trained_job

    return tuple(party.name for party in trained_job(run).parties)


def resolve_tables(
    parties: Sequence[str],
    table: Path | None,
    party_tables: Sequence[str],
    options: tuple[str, str] = ("--table", "--party"),
) -> dict[str, Path]:
    """Return the path of each party's table.

    Args:
        table: path of one table with the columns of all parties.
        party_tables: ``NAME=TABLE`` for each party.
        options: names of these two options in messages.

    Raises:
        InputError: both or neither are given, or a party has no table or two.
    """
    common, own = options
    if (table is None) == (not party_tables):
        raise InputError(f"give either {common} TABLE, or {own} NAME=TABLE for each party", code="conflict")
    if table is not None:
        return dict.fromkeys(parties, table)
    paths: dict[str, Path] = {}
    for one in party_tables:
        name, equals, path = one.partition("=")
        if not equals or not path:
            raise InputError(f"must be NAME=TABLE but got {one!r}", code="type", field=own, value=one)
        if name not in parties:
            raise InputError(unknown_name("party", name, parties), code="unknown", field=own, value=name)
        if name in paths:
            raise InputError(f"{name!r} is given twice", code="duplicate", field=own, value=name)
        paths[name] = Path(path)
    missing = [name for name in parties if name not in paths]
    if missing:
        raise InputError(
            f"no table for {', '.join(map(repr, missing))}", code="missing", field=own, value=tuple(missing)
        )
    return paths
