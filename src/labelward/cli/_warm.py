"""Compilation ahead: what ``labelward doctor --warm`` does, so that no first run has to wait for it.

Kernels are compiled for the types that they are called with, so two small audits call them, each in a process of its
own: one trains under encryption, the other one attacks. Compiled code is kept by :mod:`labelward.jit`.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from labelward.job import Job

COMPILING: Final = "compiling kernels, once, about 30 s"
"""On two cores that do nothing else: 41 s of one core were measured for the demo."""

_PARTS: Final = ("encryption", "attacks")


def warm() -> None:
    """Compile the kernels of training, encryption and attacks on trees, side by side, with a bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    shown = sys.stderr.isatty()
    if not shown:
        typer.echo(COMPILING, err=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown) as bar,
        ProcessPoolExecutor(len(_PARTS), mp_context=get_context("spawn")) as pool,
    ):
        task = bar.add_task(COMPILING, total=len(_PARTS))
        for done in as_completed([pool.submit(_compile, part) for part in _PARTS]):
            done.result()
            bar.advance(task)


def _compile(part: str) -> None:
    """Run one small audit, whose results are not kept."""
    from labelward.auditing.audit import audit

    with tempfile.TemporaryDirectory(prefix="labelward-") as folder:
        audit(_job(part), Path(folder) / "audit")


def _job(part: str) -> Job:
    """Return the job of the demo with one seed, and what one process compiles: some attacks need trees that err."""
    from labelward.cli.audit import demo_job
    from labelward.job import ComponentSpec, EncryptionSection

    job = demo_job(small=True)
    if part == "encryption":
        model = ComponentSpec(job.model.kind, {**job.model.params, "trees": 1, "depth": 2})
        return replace(job, model=model, attacks=(), defenses=())
    model = demo_job(small=False).model
    return replace(job, model=model, encryption=EncryptionSection(engine="plain", insecure=True))
