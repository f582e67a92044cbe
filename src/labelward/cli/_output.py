"""Output: tables and JSON on stdout, warnings and a writer that does not block on stderr."""

from __future__ import annotations

import contextlib
import json
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from labelward.errors import quoted

if TYPE_CHECKING:
    from rich.table import Table

_LONGEST_WARNING = 10_000  # characters
_PIPE_WIDTH = 200
_MIN_TEXT_WIDTH = 8


def pluralize(number: int, noun: str) -> str:
    """Return a count with its noun, such as ``1 row`` or ``2 rows``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def warn(message: str, kind: Literal["warning", "note"] = "warning") -> None:
    """Print one line of warning, or of what else should be seen, on stderr."""
    typer.echo(quoted(f"{kind}: {message}", _LONGEST_WARNING), err=True)


def warn_insecure(reasons: Sequence[str], *, ahead: bool = False) -> None:
    """Warn about an insecure run, or ahead of one; no output for a secure one."""
    from labelward.report.narrative import insecure_warning

    text = insecure_warning(reasons, ahead=ahead)
    if text is not None:
        warn(text)


def print_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, words: int, spare: Sequence[str] = ()
) -> None:
    """Print a table on stdout.

    Args:
        words: number of leading columns that are text; the others are numbers.
        spare: headings of columns that are dropped, in this order, if the terminal is too narrow.
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
        narrowest = min(width, _MIN_TEXT_WIDTH) if text else width
        table.add_column(Text(name), justify="left" if text else "right", min_width=narrowest, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


_MAX_LINES: Final = 10_000
_TIMEOUT: Final = 2.0  # seconds
_TO_STDERR: Final = partial(typer.echo, err=True)


class StderrWriter:
    """Writes lines in order without blocking the caller, such as a network thread that must send heartbeats.

    At most 10,000 lines wait to be written; further ones are dropped.

    Args:
        write: writes one line; after an error, such as a closed pipe, nothing more is written.
    """

    def __init__(self, write: Callable[[str], None] = _TO_STDERR) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(_MAX_LINES)
        self._write = write
        self._thread = threading.Thread(target=self._run, daemon=True, name="labelward-stderr")
        self._thread.start()

    def __call__(self, line: str) -> None:
        """Schedule a line."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(line)

    def close(self) -> None:
        """Wait until all lines are written, for two seconds at most."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(_TIMEOUT)

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: closed file
            while (line := self._lines.get()) is not None:
                self._write(line)
