"""Lines for stderr that are said by a thread of their own, so that nobody else waits where nobody reads."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Final

import typer

__all__ = ["StderrWriter"]

_MOST: Final = 10_000
_PATIENCE: Final = 2.0


def _on_stderr(line: str) -> None:
    typer.echo(line, err=True)


class StderrWriter:
    """Says lines in order. A terminal that is held, or a full pipe, holds up no heartbeat of a network; what is more
    than so many lines is then left out.

    Args:
        say: says one line; its errors, such as of a pipe that was closed, end the talking and nothing else.
    """

    def __init__(self, say: Callable[[str], None] = _on_stderr) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(_MOST)
        self._say = say
        self._thread = threading.Thread(target=self._run, daemon=True, name="labelward-voice")
        self._thread.start()

    def __call__(self, line: str) -> None:
        """Say a line, soon."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(line)

    def close(self) -> None:
        """Wait until all is said, some seconds at most where nobody reads."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the latter of a file that was closed
            while (line := self._lines.get()) is not None:
                self._say(line)
