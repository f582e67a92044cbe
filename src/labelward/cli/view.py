"""``labelward view``: inspect and purge stored views."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from labelward.cli._errors import fail
from labelward.cli._options import example
from labelward.cli._output import pluralize, print_table, say, warn, warn_insecure
from labelward.errors import FileFormatError

if TYPE_CHECKING:
    from labelward.party.view import View

_MAX_ENTRIES = 8
_KINDS = ("received", "observed", "sent", "applied")

view = typer.Typer(help="Inspect stored views, or purge them.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a stored view.")]


@view.command("show", epilog=example("labelward view show model/telco/view --messages 3"))
def show_command(
    folder: Folder, messages: Annotated[int, typer.Option(min=0, help="Also print this number of records.")] = 0
) -> None:
    """Print the header of a view, and its records by type."""
    from labelward.party.view import View

    opened = View.load(folder)
    header = opened.header
    if header.insecure:
        say(f"INSECURE: {', '.join(header.insecure)}; do not use this setting between companies")
    typer.echo(f"view of {header.party!r} ({header.role}), with {', '.join(map(repr, header.peers)) or 'no peers'}")
    typer.echo(f"labelward {header.version}, format {header.format}; engine {header.engine}, {header.bits} bits")
    typer.echo(f"{header.rows[0]} training rows, {header.rows[1]} prediction rows")
    for key, value in sorted(header.job.items()):
        typer.echo(f"  {key} = {value}")
    _print_counts(opened)
    _print_queries(folder)
    for kind, peer, step, record in islice(opened.records(), min(messages, sys.maxsize)):
        origin = f" from {peer}" if peer else ""
        typer.echo(f"{kind}{origin}: {type(record).__name__} {list(step)} {_fields(record)}")


@view.command("digest", epilog=example("labelward view digest model/telco/view"))
def digest_command(folder: Folder) -> None:
    """Print a SHA-256 digest of the view content; it is equal for equal runs, independent of keys and machine."""
    from labelward.party.view import View

    typer.echo(View.load(folder).digest())


@view.command("verify", epilog=example("labelward view verify model/telco/view"))
def verify_command(
    folder: Folder,
    peer: Annotated[
        Path | None, typer.Option("--peer", metavar="SHARE", help="Share of another party, to compare with.")
    ] = None,
) -> None:
    """Check the hash chain and all records, also against model shares; exit code 2 if anything is damaged or missing.

    The party's own share lies beside its view. A peer's share cannot be changed by the owner of the view.
    """
    from labelward.federation.view_evidence import verify_evidence
    from labelward.party.view import View

    opened = View.load(folder)
    warn_insecure(opened.header.insecure)
    readable = sum(1 for _ in opened.content())
    records = sum(number for number, _ in opened.counts().values())
    if opened.ended == "cut off":
        reason = "truncated: no closing record; the run was killed, or the file was cut"
        raise FileFormatError(reason, code="incomplete", field=str(folder))
    evidence = verify_evidence(folder, peer)
    exchanges = opened.exchanges()
    _warn_of_leaks(opened)
    typer.echo(f"intact: {records} records of {opened.party!r}, {readable} of them view content; run {opened.ended}")
    for name, (exchange, stated) in exchanges.items():
        also = f"; {name!r} stated the same" if stated else ""
        typer.echo(f"{sum(exchange.frames)} messages with {name!r}, digest {exchange.digest.hex()[:16]}{also}")
    if evidence is None and peer is None:
        typer.echo("no share was compared, so records may be missing at the end")


@view.command("purge", epilog=example("labelward view purge audit --views"))
def purge_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run, of a party in it, or of a view.")],
    views: Annotated[bool, typer.Option("--views", help="Views only.")] = False,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Checkpoints only.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete views and checkpoints permanently; models, results and tables are kept."""
    from labelward.runs.purge import find_purgeable, purge_targets

    kinds: list[Literal["view", "checkpoint"]] = ["view"] if views or not checkpoints else []
    if checkpoints or not views:
        kinds.append("checkpoint")
    found = find_purgeable(folder, kinds)
    if not found:
        typer.echo(f"{folder}: nothing to delete; no {' and no '.join(f'{kind}s' for kind in kinds)} found")
        return
    rows = [(each.kind, str(each.folder), f"{len(each.files):,}", f"{each.size:,}") for each in found]
    print_table("", ("kind", "folder", "files", "bytes"), rows, words=2)
    say(
        "Models, results and tables are kept. Attacks on deleted views cannot be repeated, and an unfinished run "
        "cannot be resumed without its view and checkpoints."
    )
    if not yes and not _confirmed():
        fail("nothing was deleted", 2, "stopped")
    purge_targets(found)
    typer.echo(
        f"deleted {pluralize(sum(len(each.files) for each in found), 'file')}; purged.json in each folder lists them"
    )
    say("Backups, snapshots and copies are not deleted, and a disk may still contain the data.")


def _warn_of_leaks(opened: View) -> None:
    """Print the leaks of a view that later versions closed."""
    from labelward.attacks import STANDING
    from labelward.attacks.gradient_directions import starts_are_shared
    from labelward.attacks.pure_leaves import PureLeaves
    from labelward.attacks.split_posterior import sides_depend_on_labels

    passive = opened.header.role == "passive"
    if sides_depend_on_labels(opened):
        warn(
            f"version {opened.header.version} drew test rows by label from a seed that all parties know. If the labels "
            f"are classes, this view reveals them (attack it with {STANDING} and --param class_counts=[...])"
        )
    unsummed = PureLeaves().pure_nodes(opened)[1] if passive else 0
    if unsummed:
        warn(
            f"no sums of {pluralize(unsummed, 'node')} were requested, since the rows of each have one label. "
            f"This view reveals which they are (attack it with {PureLeaves.kind})"
        )
    if starts_are_shared(opened):
        told, attack = ("labels", "gradient-directions") if passive else ("columns of others", "embedding-inversion")
        warn(
            "initial weights were drawn from a seed that all parties know. With them this view can reveal the "
            f"{told} (attack it with {attack})"
        )


def _confirmed() -> bool:
    """Ask for confirmation; without a terminal, the answer is no."""
    try:
        return typer.confirm("Delete them permanently?", default=False)
    except typer.Abort:
        return False


def _print_counts(opened: View) -> None:
    counts = sorted(opened.counts().items(), key=lambda item: (_KINDS.index(item[0][0]), item[0][1]))
    rows = [
        (kind, name, f"{number:,}", *((f"{size:,}", "") if kind == "sent" else ("", f"{size:,}")))
        for (kind, name), (number, size) in counts
    ]
    print_table("", ("record", "type", "number", "bytes sent", "bytes stored"), rows, words=2)
    say("Received ciphertexts are stored as digests, which are smaller than the messages.")


def _print_queries(folder: Path) -> None:
    """Print what peers asked for in predictions with the model beside the view."""
    from labelward.runs.query_record import summarize_queries

    party = folder.resolve().parent if folder.is_dir() else folder.resolve().parent.parent
    for each in summarize_queries(party):
        typer.echo(
            f"{each.asker!r} asked for {pluralize(each.answers, 'answer')} in "
            f"{pluralize(each.predictions, 'prediction')}, about {pluralize(each.rows, 'row')}: {each.repeated:,} of "
            f"them more than once, one {each.most:,} times"
            + (f"; {pluralize(each.refused, 'prediction')} refused" if each.refused else "")
        )


def _brief(value: Any) -> str:
    """Return a short form of a field: size instead of bytes, first entries of long lists."""
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, tuple | list):
        head = ", ".join(_brief(one) for one in value[:_MAX_ENTRIES])
        return f"[{head}{', …' if len(value) > _MAX_ENTRIES else ''}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_brief(one)}" for key, one in value.items()) + "}"
    if hasattr(value, "__struct_fields__"):
        return f"{type(value).__name__}({_fields(value)})"
    return repr(value)


def _fields(record: Any) -> str:
    values = ((name, getattr(record, name)) for name in record.__struct_fields__)
    return ", ".join(f"{name}={value.hex() if name == 'sha256' else _brief(value)}" for name, value in values)
