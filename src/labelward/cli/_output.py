"""Tables and JSON on stdout, warnings on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["pluralize", "print_json", "print_table", "warn", "warn_insecure"]

_PIPE_WIDTH = 200
_LEAST_TEXT = 8


def pluralize(number: int, thing: str) -> str:
    """Return a number of things, such as ``1 row`` or ``2 rows``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def warn(message: str) -> None:
    """Say one line on stderr."""
    typer.echo(f"warning: {message}", err=True)


def warn_insecure(reasons: Sequence[str]) -> None:
    """Say on stderr that a run protects nothing; nothing for a secure one."""
    from labelward.report.narrative import insecure_warning as sentence

    text = sentence(reasons)
    if text is not None:
        warn(text)


def print_json(value: Any) -> None:
    """Print one JSON object, and nothing else, on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, words: int, spare: Sequence[str] = ()
) -> None:
    """Print a table on stdout.

    Args:
        words: how many of the first columns are text; the others are numbers.
        spare: headings of columns that are left out, in this order, where the terminal is too narrow for all.
    """
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    cells, kept = [list(row) for row in rows], list(range(len(header)))
    for left_out in (None, *spare):
        kept = [position for position in kept if header[position] != left_out]
        table = _table(title, [header[each] for each in kept], [[row[each] for each in kept] for row in cells], words)
        if console.measure(table, options=console.options.update(width=_PIPE_WIDTH)).maximum <= console.width:
            break
    console.print(table)


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    heading = Text(title) if title else None
    table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for position, name in enumerate(header):
        width = max((len(row[position]) for row in rows), default=0)
        text = position < words
        least = min(width, _LEAST_TEXT) if text else width
        table.add_column(Text(name), justify="left" if text else "right", min_width=least, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
