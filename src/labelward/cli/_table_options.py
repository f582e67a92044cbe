"""Tables as they are given on the command line: one with all parties' columns, or each party's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from labelward.errors import InputError, unknown_name

__all__ = ["model_parties", "resolve_tables"]


def model_parties(run: Path) -> tuple[str, ...]:
    """Return the parties of a training, the active one first; :class:`InputError` where a folder is none of one."""
    if not run.is_dir():
        raise InputError("no such folder", code="not-found", field=str(run))
    if not any(folder.is_dir() for folder in run.glob("*/model")):
        raise InputError(f"{run} holds no model: there is no PARTY/model in it", code="foreign", value=str(run))
    from labelward.federation.model_shares import trained_job

    return tuple(party.name for party in trained_job(run).parties)


def resolve_tables(
    parties: Sequence[str],
    table: Path | None,
    given: Sequence[str],
    options: tuple[str, str] = ("--table", "--party"),
) -> dict[str, Path]:
    """Return each party's table.

    Args:
        parties: all parties.
        table: one with all columns.
        given: each party's own, as ``NAME=TABLE``.
        options: what the two are called.

    Raises:
        InputError: both or none are given, or the second not once for every party.
    """
    common, own = options
    if (table is None) == (not given):
        raise InputError(f"give either {common}, or {own} NAME=TABLE for every party", code="conflict")
    if table is not None:
        return dict.fromkeys(parties, table)
    found: dict[str, Path] = {}
    for one in given:
        name, equals, path = one.partition("=")
        if not equals or not path:
            raise InputError(f"must be NAME=TABLE but got {one!r}", code="type", field=own, value=one)
        if name not in parties:
            raise InputError(unknown_name("party", name, parties), code="unknown", field=own, value=name)
        if name in found:
            raise InputError(f"{name!r} is given twice", code="duplicate", field=own, value=name)
        found[name] = Path(path)
    missing = [name for name in parties if name not in found]
    if missing:
        raise InputError(
            f"no table for {', '.join(map(repr, missing))}", code="missing", field=own, value=tuple(missing)
        )
    return found
