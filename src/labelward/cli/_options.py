"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Repeat"]

Repeat = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="RUN_DIR",
        help="Repeat private draws of an earlier run, such as which rows are tested on. May be given several times.",
    ),
]
