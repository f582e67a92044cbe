"""Searches without trainings: settings are evaluated by a function of their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labelward.tuning.evaluate import Evaluator, Task
from labelward.tuning.ledger import Evaluation, Point
from labelward.tuning.objectives import Objectives
from labelward.tuning.search import RandomSearch, Told


def evaluation(self: Evaluator, task: Task) -> Evaluation:
    """Stand in for a training by a function of its setting."""
    numbers = np.array([float(value) for value in task.setting.values()])
    values = tuple(float(abs(np.sin(numbers @ np.arange(1, len(numbers) + 1) + at))) for at in range(3))
    return Evaluation(
        key=self.key(task),
        version=self.version,
        data=self.digest,
        setting=dict(task.setting),
        seed=task.seed,
        rows=task.rows,
        share=task.share,
        points=(Point(values),),
    )


def without_bounds(replace: Callable[[Any, str, Any], None]) -> None:
    """Have no dearest setting trained; ``replace`` is ``setattr`` or what undoes it."""
    replace(Evaluator, "dearest", lambda self: (None, None))
    replace(Objectives, "bounds", lambda *_: np.array([[0.0] * 3, [1.0] * 3]))


def without_trainings(replace: Callable[[Any, str, Any], None]) -> None:
    """Have nothing trained."""
    without_bounds(replace)
    replace(Evaluator, "__call__", evaluation)


def hearing(replace: Callable[[Any, str, Any], None]) -> list[Told]:
    """Return a list to which all is added that random searches are told; ``replace`` as in :func:`without_bounds`."""
    heard = list[Told]()
    replace(RandomSearch, "tell", lambda _, told: heard.extend(told))
    return heard
