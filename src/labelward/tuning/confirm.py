"""Confirmation: the front measured again, on test rows and on seeds that the search did not use.

A search picks the luckiest of many noisy figures; what it found is too good by some amount that only new draws show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from labelward.federation.progress import Watch
from labelward.job import TuneSection
from labelward.tuning.evaluate import Evaluator, Task
from labelward.tuning.ledger import Evaluation, FrontPoint
from labelward.tuning.pareto import front_of

Measure = Callable[[Sequence[Task]], Iterator[tuple[Task, Evaluation]]]
_Figures = dict[int, tuple[float, ...]]


def confirmed_seeds(section: TuneSection, seed: int) -> tuple[int, ...]:
    """Return the seeds on which a front is measured again; without confirmation that of the search."""
    return tuple((seed + 1 + each) % 2**32 for each in range(section.confirm)) or (seed,)


def confirm(evaluator: Evaluator, measured: Measure, front: Sequence[FrontPoint], watch: Watch) -> list[FrontPoint]:
    """Return the points with their figures on test rows: of the search's seed, and of further ones.

    Points that are first trees or epochs of one training are measured by one training.

    Args:
        measured: makes evaluations, or returns stored ones.
        watch: hears of evaluations as ``"runs"``.
    """
    section, seed = evaluator.section, evaluator.seed
    if not section.confirm or not front:
        return list(front)
    groups: dict[str, list[FrontPoint]] = {}
    for point in front:
        rest = {name: value for name, value in point.setting.items() if name != evaluator.length}
        groups.setdefault(repr(rest) if evaluator.keeps_prefixes(point.setting) else str(point.number), []).append(
            point
        )
    tasks = [
        task
        for points in groups.values()
        for task in _tasks(evaluator.length, points, (seed, *confirmed_seeds(section, seed)))
    ]
    figures: dict[str, _Figures] = {}
    for done, (task, evaluation) in enumerate(measured(tasks)):
        watch("runs", done, len(tasks), f"confirmation, seed {task.seed}")
        for setting, values in evaluation.compared():
            figures.setdefault(repr(setting), {})[task.seed] = values
    watch("runs", len(tasks), len(tasks), "")
    return _with_figures(front, figures, seed)


def _tasks(length: str, points: Sequence[FrontPoint], seeds: Sequence[int]) -> list[Task]:
    """Return the trainings that measure settings which differ in their length only."""
    longest = max(points, key=lambda point: int(point.setting.get(length, 0)))
    lengths = tuple(sorted(int(point.setting[length]) for point in points)) if length in longest.setting else ()
    return [Task(setting=longest.setting, seed=each, rows="test", lengths=lengths) for each in seeds]


def _with_figures(front: Sequence[FrontPoint], figures: dict[str, _Figures], seed: int) -> list[FrontPoint]:
    """Return the points with what was measured of each; one of which all trainings failed stays without."""
    again = [dict(figures.get(repr(point.setting), {})) for point in front]
    tested = [each.pop(seed, None) for each in again]
    measured = [at for at, each in enumerate(again) if each]
    means = np.array([np.mean(list(again[at].values()), axis=0) for at in measured])
    best = {measured[at] for at in front_of(means)} if measured else set[int]()
    return [
        msgspec.structs.replace(
            point,
            tested=tested[at],
            confirmed=tuple(again[at].values()),
            undominated=at in best if again[at] else None,
        )
        for at, point in enumerate(front)
    ]
