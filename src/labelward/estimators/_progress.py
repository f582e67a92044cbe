"""Progress bar on stderr during fitting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from labelward.party.context import Progress, no_progress


@contextmanager
def progress_bar(verbose: bool) -> Iterator[Progress]:
    """Yield a progress callback: a bar, or one that does nothing."""
    if not verbose:
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, int] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total or None)
            bar.update(tasks[what], completed=done, total=total or None)  # type: ignore[arg-type]

        yield report
