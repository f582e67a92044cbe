"""Output: tables and JSON on stdout, warnings and a writer that does not block on stderr."""

from __future__ import annotations

import contextlib
import json
import queue
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

import typer

from labelward.errors import quoted

if TYPE_CHECKING:
    from rich.table import Table

_LONGEST_WARNING = 10_000  # characters
_PIPE_WIDTH = 200
_NARROWEST = 20  # columns of a terminal
_MAX_WORDS = (24, 8)  # longer ones may be broken, such as paths; the second on a narrow terminal


def pluralize(number: int, noun: str) -> str:
    """Return a count with its noun, such as ``1 row`` or ``2 rows``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def warn(message: str, kind: Literal["warning", "note"] = "warning") -> None:
    """Print one line of warning, or of what else should be seen, on stderr."""
    complain(quoted(f"{kind}: {message}", _LONGEST_WARNING))


def complain(line: str) -> None:
    """Print one line on stderr; on a terminal, it is broken between words."""
    typer.echo(_fitted(line, sys.stderr), err=True)


def warn_insecure(reasons: Sequence[str], *, ahead: bool = False) -> None:
    """Warn about an insecure run, or ahead of one; no output for a secure one."""
    from labelward.report.narrative import insecure_warning

    text = insecure_warning(reasons, ahead=ahead)
    if text is not None:
        warn(text)


def say(text: str) -> None:
    """Print sentences on stdout; on a terminal, lines end between words."""
    typer.echo(_fitted(text, sys.stdout))


def _fitted(text: str, stream: TextIO) -> str:
    """Return text as lines that fit a terminal, without breaking a word; as it is for a file or a pipe."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return textwrap.fill(text, max(width, _NARROWEST), break_long_words=False, break_on_hyphens=False)


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
        lines = [[row[each] for each in kept] for row in (header, *cells)]
        if _total(natural := _natural_widths(lines)) <= console.width:
            break
    widths = _fitting_widths(natural, lines, words, console.width)
    console.print(_table(title, lines, widths, words), crop=False)


def _total(widths: Sequence[int]) -> int:
    """Return the width of a table: a space at each edge, two between columns."""
    return sum(widths) + 2 * len(widths)


def _natural_widths(lines: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    return [max(map(cell_len, column)) for column in zip(*lines, strict=True)]


def _fitting_widths(natural: Sequence[int], lines: Sequence[Sequence[str]], words: int, available: int) -> list[int]:
    """Return narrower widths, the widest columns first; numbers stay whole, and words while there is room for them."""
    from rich.cells import cell_len

    widths = list(natural)
    columns = list(zip(*lines, strict=True))
    for unbroken in _MAX_WORDS:
        least = []
        for position, (name, *cells) in enumerate(columns):
            unit = [word for cell in (name, *(cells if position < words else ())) for word in cell.split()]
            longest = max(map(cell_len, unit), default=1)
            numbers = 0 if position < words else max(map(cell_len, cells), default=0)
            least.append(max(min(longest, unbroken), numbers))
        while _total(widths) > available:
            excess = [width - bound for width, bound in zip(widths, least, strict=True)]
            if max(excess) <= 0:
                break
            widest = max((width, at) for at, width in enumerate(widths) if excess[at] > 0)[1]
            widths[widest] -= 1
    return widths


def _table(title: str, lines: Sequence[Sequence[str]], widths: Sequence[int], words: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    heading = Text(title) if title else None
    table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for position, (name, width) in enumerate(zip(lines[0], widths, strict=True)):
        table.add_column(Text(name), justify="left" if position < words else "right", width=width, overflow="fold")
    for row in lines[1:]:
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
