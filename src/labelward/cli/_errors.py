"""Errors as one clear line on stderr, and the exit code that belongs to them."""

from __future__ import annotations

import contextlib
import errno
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from labelward.errors import EncryptionError, InputError, LabelwardError, OutputError, PolicyError

__all__ = ["DEBUG_VARIABLE", "LARGEST_SEED", "ErrorHandlingGroup", "check_output_file", "fail", "prefix_job_file"]

DEBUG_VARIABLE = "LABELWARD_DEBUG"
LARGEST_SEED = 2**32 - 1
"""As in a job file."""


def fail(message: str, code: int, word: str = "error") -> NoReturn:
    """Say why on stderr, in one line, and end with an exit code."""
    typer.echo(f"{word}: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)


def check_output_file(path: Path, *, force: bool, ending: str = "") -> None:
    """Raise :class:`OutputError` for a file that cannot be written as asked, before any work is done.

    Args:
        force: whether it may be there already.
        ending: what its name must end in, as that is what is written.
    """
    if path.exists() and not force:
        raise OutputError("exists already; --force overwrites it", code="exists", field=str(path), value=str(path))
    if path.is_dir():
        raise OutputError("is a folder, not a file", code="exists", field=str(path), value=str(path))
    if not path.name.endswith(ending):
        raise OutputError(
            f"the name must end in {ending}",
            code="choice",
            field=str(path),
            value=path.name,
        )
    if not path.parent.is_dir():
        raise OutputError(
            f"cannot be written: there is no folder {path.parent}",
            code="not-found",
            field=str(path),
            value=str(path.parent),
        )
    if not os.access(path.parent, os.W_OK):
        raise OutputError(
            f"cannot be written: the folder {path.parent} is read-only",
            code="unwritable",
            field=str(path),
            value=str(path.parent),
        )


@contextlib.contextmanager
def prefix_job_file(job_file: Path) -> Iterator[None]:
    """Put the job file's name before messages that begin with one of its sections, as reading the file does."""
    try:
        yield
    except (InputError, PolicyError, EncryptionError) as error:
        if not error.field.startswith("["):
            raise
        raise error.within(str(job_file)) from error


class ErrorHandlingGroup(TyperGroup):
    """The root group: every error of a command below it ends here, without a traceback unless one is asked for."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read the command line; an interrupt ends as in :meth:`invoke`."""
        try:
            return super().make_context(*args, **extra)
        except KeyboardInterrupt:
            fail("nothing was begun", 2, "interrupted")

    def invoke(self, ctx: Any) -> Any:
        """Run the command, translating what it raises."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            fail("nothing half-written is left", 2, "interrupted")
        except (LabelwardError, MemoryError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise  # whoever reads stdout has heard enough; typer ends quietly
            if ctx.params.get("debug") or os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0"):
                traceback.print_exc()
            fail(*_told(error))


def _told(error: LabelwardError | MemoryError | OSError) -> tuple[str, int]:
    if isinstance(error, LabelwardError):
        return str(error), error.exit_code
    if isinstance(error, MemoryError):
        return "out of memory; fewer rows, a smaller depth or fewer workers need less", 1
    place = f": {error.filename}" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"the disk is full{place}; what is finished stays, and the same command goes on with the rest", 2
    return f"{error.strerror or error}{place}", 2
