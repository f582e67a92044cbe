"""Evaluations in this process, or side by side in processes of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from typing import Protocol

from labelward.runs.worker_process import worker_pool
from labelward.tuning.evaluate import Evaluator, Plan, Task
from labelward.tuning.ledger import Evaluation


class Workers(Protocol):
    """Makes evaluations."""

    def __call__(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Evaluation]]:
        """Yield them as they end."""


@contextlib.contextmanager
def workers(evaluator: Evaluator, jobs: int) -> Iterator[Workers]:
    """Open workers: this process for one, so many others for more."""
    if jobs == 1:
        yield lambda tasks: ((task, evaluator(task)) for task in tasks)
        return
    with worker_pool(jobs, _open, (evaluator.plan,)) as pool:

        def run(tasks: Sequence[Task]) -> Iterator[tuple[Task, Evaluation]]:
            running = {pool.submit(_evaluate, task): task for task in tasks}
            for each in as_completed(running):
                yield running[each], each.result()

        yield run


_own: list[Evaluator] = []
"""Of a worker process: its evaluator."""


def _open(plan: Plan) -> None:
    _own[:] = [Evaluator(plan)]


def _evaluate(task: Task) -> Evaluation:
    return _own[0](task)
