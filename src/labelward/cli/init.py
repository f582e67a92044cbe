"""``labelward init``: write a job file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labelward.cli._errors import check_output_file
from labelward.cli._options import Force


def init(path: Annotated[Path, typer.Argument(help="Output file.")] = Path("job.toml"), force: Force = False) -> None:
    """Write a commented job file that is ready to run."""
    from labelward.job import template
    from labelward.runs.secure_files import write_bytes

    check_output_file(path, force=force)
    write_bytes(path, template().encode())
    typer.echo(f"wrote {path}; run it with: labelward audit {path} --out audit")
