"""``labelward view``: look into what one party received, and remove it when it is no longer needed."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from labelward.cli._errors import fail
from labelward.cli._output import pluralize, print_table, warn, warn_insecure
from labelward.errors import FileFormatError

if TYPE_CHECKING:
    from labelward.party.view import View

__all__ = ["view"]

_LONGEST_LIST = 8
_KINDS = ("received", "observed", "sent", "applied")

view = typer.Typer(help="Look into a stored view: show, digest, verify; or purge it.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a stored view.")]


@view.command("show")
def show_command(
    folder: Folder,
    messages: Annotated[int, typer.Option(min=0, help="Print the first so many records as well.")] = 0,
) -> None:
    """Print who recorded the view, and its records by type."""
    from labelward.party.view import View

    opened = View.load(folder)
    header = opened.header
    if header.insecure:
        typer.echo(f"INSECURE: {', '.join(header.insecure)}; this run protected nothing")
    typer.echo(f"view of {header.party!r} ({header.role}), with {', '.join(map(repr, header.peers)) or 'nobody'}")
    typer.echo(f"labelward {header.version}, format {header.format}; engine {header.engine}, {header.bits} bits")
    typer.echo(f"{header.rows[0]} training rows, {header.rows[1]} prediction rows")
    for key, value in sorted(header.job.items()):
        typer.echo(f"  {key} = {value}")
    _print_counts(opened)
    for kind, peer, step, record in islice(opened.records(), messages):
        whence = f" from {peer}" if peer else ""
        typer.echo(f"{kind}{whence}: {type(record).__name__} {list(step)} {_fields(record)}")


@view.command("digest")
def digest_command(folder: Folder) -> None:
    """Print a SHA-256 of the view content: equal for equal runs, whatever keys and machines."""
    from labelward.party.view import View

    typer.echo(View.load(folder).digest())


@view.command("verify")
def verify_command(folder: Folder) -> None:
    """Check the hash chain and every record; exit code 2 where anything is damaged or missing."""
    from labelward.attacks.split_posterior import sides_depend_on_labels
    from labelward.party.view import View

    opened = View.load(folder)
    warn_insecure(opened.header.insecure)
    readable = sum(1 for _ in opened.content())
    records = sum(number for number, _ in opened.counts().values())
    if opened.ended == "cut off":
        raise FileFormatError(
            "no closing record; the run was killed, or records at the end are missing",
            code="incomplete",
            field=str(folder),
        )
    if sides_depend_on_labels(opened):
        warn(
            f"version {opened.header.version} drew test rows by label, from a seed that all parties know: if these are "
            "classes, this view gives them away (attack it with split-posterior and --param class_counts=[...])"
        )
    typer.echo(f"whole: {records} records of {opened.party!r}, {readable} of them view content; run {opened.ended}")


@view.command("purge")
def purge_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a run, of one party in it, or of a view.")],
    views: Annotated[bool, typer.Option("--views", help="The views only.")] = False,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="The checkpoints only.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove views and checkpoints for good; models, results and tables stay."""
    from labelward.runs.purge import find_purgeable
    from labelward.runs.purge import purge_targets as remove

    kinds: list[Literal["view", "checkpoint"]] = ["view"] if views or not checkpoints else []
    if checkpoints or not views:
        kinds.append("checkpoint")
    found = find_purgeable(folder, kinds)
    if not found:
        typer.echo(f"{folder}: nothing to remove; it holds no {' and no '.join(f'{kind}s' for kind in kinds)}")
        return
    rows = [(each.kind, str(each.folder), f"{len(each.files):,}", f"{each.size:,}") for each in found]
    print_table("", ("what", "folder", "files", "bytes"), rows, words=2)
    typer.echo("Models, results and tables stay. Of views no attack can be repeated afterwards;")
    typer.echo("a run that is not finished cannot go on without its checkpoints.")
    if not yes and not _agreed():
        fail("nothing was removed", 2, "stopped")
    remove(found)
    typer.echo(
        f"removed {pluralize(sum(len(each.files) for each in found), 'file')}; purged.json in each folder names them"
    )
    typer.echo("Backups, snapshots and copies are out of reach, and a disk may keep what was on it.")


def _agreed() -> bool:
    """Ask on the terminal; where nobody can answer, the answer is no."""
    try:
        return typer.confirm("Remove them for good?", default=False)
    except typer.Abort:
        return False


def _print_counts(opened: View) -> None:
    counts = sorted(opened.counts().items(), key=lambda item: (_KINDS.index(item[0][0]), item[0][1]))
    rows = [
        (kind, name, f"{number:,}", *((f"{size:,}", "") if kind == "sent" else ("", f"{size:,}")))
        for (kind, name), (number, size) in counts
    ]
    print_table("", ("record", "type", "number", "bytes on the wire", "bytes kept"), rows, words=2)
    typer.echo("A received ciphertext is kept as a digest: fewer bytes than had travelled.")


def _brief(value: Any) -> str:
    """Return a field in a few characters: sizes in place of bytes, digests as hex, the head of long lists."""
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, tuple | list):
        head = ", ".join(_brief(one) for one in value[:_LONGEST_LIST])
        return f"[{head}{', …' if len(value) > _LONGEST_LIST else ''}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_brief(one)}" for key, one in value.items()) + "}"
    if hasattr(value, "__struct_fields__"):
        return f"{type(value).__name__}({_fields(value)})"
    return repr(value)


def _fields(record: Any) -> str:
    values = ((name, getattr(record, name)) for name in record.__struct_fields__)
    return ", ".join(f"{name}={value.hex() if name == 'sha256' else _brief(value)}" for name, value in values)
