"""Tables and JSON on stdout, warnings on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer

__all__ = ["insecure_warning", "print_json", "print_table", "warn"]

_PIPE_WIDTH = 200


def warn(message: str) -> None:
    """Say one line on stderr."""
    typer.echo(f"warning: {message}", err=True)


def insecure_warning(reasons: Sequence[str]) -> None:
    """Say on stderr that a run protects nothing; nothing for a secure one."""
    from labelward.report.sentences import insecure_warning as sentence

    text = sentence(reasons)
    if text is not None:
        warn(text)


def print_json(value: Any) -> None:
    """Print one JSON object, and nothing else, on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, words: int) -> None:
    """Print a table on stdout; the first ``words`` columns are text, the others numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title) if title else None, box=box.SIMPLE_HEAD, title_justify="left")
    for position, name in enumerate(header):
        text = position < words
        table.add_column(Text(name), justify="left" if text else "right", no_wrap=not text)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    console.print(table)
