"""Error handling: one line on stderr, and the exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from labelward.cli._output import complain, warn
from labelward.errors import (
    DataNote,
    EncryptionError,
    InputError,
    LabelwardError,
    LabelwardWarning,
    OutputError,
    PolicyError,
    quoted,
    whole_interrupts,
)

DEBUG_VARIABLE = "LABELWARD_DEBUG"
MAX_SEED = 2**32 - 1
"""Largest seed in a job file."""


_LONGEST = 10_000  # characters of an error: what is quoted in it is shorter


def fail(message: str, code: int, label: str = "error") -> NoReturn:
    """Print a message on stderr and exit with a code: one line, but on a terminal as many as the message has."""
    lines = [" ".join(line.split()) for line in f"{label}: {message}".splitlines()]
    for line in lines if sys.stderr.isatty() else ["; ".join(lines)]:
        complain(quoted(line, _LONGEST))
    raise typer.Exit(code)


def check_output_file(path: Path, *, force: bool, ending: str | tuple[str, ...] = "") -> None:
    """Check that an output file can be written, before any work is done.

    Args:
        ending: required ending of its name, or several to choose from.

    Raises:
        OutputError: it exists already, or cannot be written.
    """
    if path.exists() and not force:
        raise OutputError(
            "exists already; use --force to overwrite it", code="exists", field=str(path), value=str(path)
        )
    if path.is_dir():
        raise OutputError("is a folder; give the name of a file", code="exists", field=str(path), value=str(path))
    if not path.name.endswith(ending):
        wanted = ending if isinstance(ending, str) else " or ".join(ending)
        raise OutputError(f"the file name must end in {wanted}", code="choice", field=str(path), value=path.name)
    if not path.parent.is_dir():
        reason = f"cannot be written: the folder {path.parent} does not exist"
        raise OutputError(reason, code="not-found", field=str(path), value=str(path.parent))
    if not os.access(path.parent, os.W_OK):
        reason = f"cannot be written: the folder {path.parent} is read-only"
        raise OutputError(reason, code="unwritable", field=str(path), value=str(path.parent))


@contextlib.contextmanager
def prefix_job_file(job_file: Path) -> Iterator[None]:
    """Prefix errors about a section of the job file, or one of its defenses, with the name of the file."""
    try:
        yield
    except (InputError, PolicyError, EncryptionError) as error:
        if not error.field.startswith("[") and not isinstance(error, PolicyError):
            raise
        raise error.within(str(job_file)) from error


class ErrorHandlingGroup(TyperGroup):
    """Root group: reports errors of all commands, without a traceback unless ``--debug`` is given."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse the command line; interrupts are handled as in :meth:`invoke`."""
        try:
            return super().make_context(*args, **extra)
        except KeyboardInterrupt:
            fail("nothing was started", 2, "interrupted")

    def invoke(self, ctx: Any) -> Any:
        """Run the command and report errors."""
        try:
            with whole_interrupts(), warnings.catch_warnings():
                warnings.showwarning = partial(_show_warning, warnings.showwarning if _debugs(ctx) else None)
                return super().invoke(ctx)
        except KeyboardInterrupt:
            fail("no partial files were left behind", 2, "interrupted")
        except (LabelwardError, MemoryError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise  # the reader of stdout closed the pipe; typer exits silently
            if _debugs(ctx):
                traceback.print_exc()
            fail(*_describe(error))


def _debugs(ctx: Any) -> bool:
    return bool(ctx.params.get("debug")) or os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0")


def _show_warning(
    show: Callable[..., None] | None, message: Warning | str, category: type[Warning], *place: Any, **options: Any
) -> None:
    """Print a warning of this package as commands do, and that of a library, if at all, as Python does."""
    if issubclass(category, LabelwardWarning):
        warn(str(message), "note" if issubclass(category, DataNote) else "warning")
    elif show is not None:
        show(message, category, *place, **options)


def _describe(error: LabelwardError | MemoryError | OSError) -> tuple[str, int]:
    if isinstance(error, LabelwardError):
        return str(error), error.exit_code
    if isinstance(error, MemoryError):
        return "out of memory; use fewer rows, a smaller depth or fewer workers", 1
    place = f": {error.filename}" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"the disk is full{place}; finished results are kept; free some space and run the same command again", 2
    return f"{error.strerror or error}{place}", 2
