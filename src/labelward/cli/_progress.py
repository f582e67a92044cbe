"""Progress display on stderr: finished runs, current phase, estimated time left."""

from __future__ import annotations

import contextlib
import sys
import time
from types import TracebackType
from typing import Self

import typer

from labelward.cli._warm import COMPILING

_RUNS, _LEAKAGE = "runs", "leakage "
_ROUNDS = ("trees", "epochs")
_FEW = 3  # kernels; a new type of a table may need one or two more
_MINUTES_FROM = 100.0  # seconds


class ProgressDisplay:
    """Receives the progress of an audit; see :data:`labelward.federation.progress.Watch`.

    On a terminal, a bar with the current phase; otherwise one line for each run.

    Args:
        what: description until the first run starts.
    """

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self._quiet, self._live = quiet, not quiet and sys.stderr.isatty()
        self._began = 0.0
        self._first: int | None = None
        self._start = self._done = self._total = 0
        self._part, self._known, self._what = 0.0, False, what
        self._read: dict[str, float] = {}
        self._phase = ""
        self._watching = contextlib.ExitStack()
        self._bar = None
        if self._live:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

            columns = (SpinnerColumn(), TextColumn("{task.fields[what]}", markup=False), BarColumn())
            left = TextColumn("{task.fields[left]}", markup=False)
            self._bar = Progress(*columns, MofNCompleteColumn(), left, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("runs", total=None, what=what, left="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        if not self._quiet:
            from labelward.jit import watching_compilation

            self._watching.enter_context(watching_compilation(self._compile))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.close()
        if self._bar is not None:
            self._bar.stop()

    def _compile(self, done: int, running: bool) -> None:
        """Say that kernels are being compiled: in the bar at once, else in a line where it is more than a few."""
        if self._bar is not None:
            what = f"{COMPILING} · {done} done" if running else self._what
            self._bar.update(self._task, what=what)
        elif running and done == _FEW:
            typer.echo(COMPILING, err=True)

    def __call__(self, event: str, done: int, total: int, detail: str) -> None:
        """Show one event."""
        if self._quiet:
            return
        if event == _RUNS:
            self._run(done, total, detail)
            self._phase = ""
            self._read.clear()
        elif event.startswith(_LEAKAGE):
            self._read[event.removeprefix(_LEAKAGE)] = done / total
        else:
            if event in _ROUNDS and total:
                self._part = done / total
            self._phase = f" · {event} {done}/{total}" if total else f" · {event}"
        if self._bar is not None:
            what = f"{self._what}{self._phase}{self.leakage()}"
            self._bar.update(
                self._task, completed=self._done, total=self._total or None, what=what, left=self.time_left()
            )

    def leakage(self) -> str:
        """Return the last V-measure of each passive party from the leakage meter; empty before the first reading."""
        read = ", ".join(f"{party} {value:.2f}" for party, value in self._read.items())
        return f" · V-measure {read}" if read else ""

    def _run(self, done: int, total: int, detail: str) -> None:
        if not self._known:
            self._start, self._known = done, True
        if (
            self._first is None and done > self._start
        ):  # the first run compiles kernels, so its time is not representative
            self._first, self._began = done, time.monotonic()
        new = detail and (done, detail) != (self._done, self._what)
        self._done, self._total, self._part, self._what = done, total, 0.0, detail
        if self._bar is None and new and done < total:
            left = self.time_left()
            typer.echo(f"run {done + 1} of {total}: {detail}{', ' + left if left else ''}", err=True)

    def time_left(self) -> str:
        """Return the estimated time left; empty before the second run is done, as the first one also compiles."""
        if self._first is None or self._done == self._first:
            return ""
        worked = self._done - self._first + self._part
        rest = self._total - self._done - self._part
        if rest <= 0:
            return ""
        seconds = (time.monotonic() - self._began) / worked * rest
        return f"about {seconds:.0f} s left" if seconds < _MINUTES_FROM else f"about {seconds / 60:.0f} min left"
