"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

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
