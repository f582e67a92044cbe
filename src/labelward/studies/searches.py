"""Figures of a study whose tasks are searches: hypervolumes, some of which depend on all searches of a start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from labelward.job import TuneSection
from labelward.party.json_file import read_versioned
from labelward.runs.secure_files import write_json
from labelward.studies.spec import StudyTask
from labelward.tuning import ledger
from labelward.tuning.constraints import feasible
from labelward.tuning.ledger import FrontPoint, SearchRecord
from labelward.tuning.pareto import Points, hypervolume, hypervolumes, pooled_bounds

POOLED, FIXED = "hypervolume, pooled", "hypervolume"
_LIMITS = ({"leakage": 0.6}, {"cost": 100.0}, {"cost": 100.0, "leakage": 0.6})
WITHIN = ("within leakage 0.6", "within cost 100", "within both")
"""Columns of hypervolumes: all between fixed bounds but the first, the last three of settings within limits."""
FORMAT, _FILE = 1, "hypervolumes.json"


class Hypervolumes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of one search, made of its ledger.

    Attributes:
        utility: the best that it found, in the metric whose complement its loss is.
        final: by column.
        history: by column after each generation, for those between fixed bounds.
    """

    format: Literal[1] = 1
    utility: float
    final: dict[str, float]
    history: dict[str, tuple[float, ...]]


def store_hypervolumes(folders: Mapping[StudyTask, Path], sections: Mapping[StudyTask, TuneSection]) -> None:
    """Write the figures of all searches that came to their end.

    Args:
        folders: of these searches.
        sections: what each was asked.
    """
    found = {task: _points(folder, sections[task]) for task, folder in folders.items()}
    points = {task: each for task, each in found.items() if any(map(len, each))}
    for task, own in points.items():
        beside = [
            np.concatenate(each)
            for other, each in points.items()
            if (other.setting.name, other.dataset, other.seed) == (task.setting.name, task.dataset, task.seed)
        ]
        folder = folders[task]
        write_json(folder / _FILE, _figures(folder, sections[task], own, pooled_bounds(beside)))


def read_hypervolumes(folder: Path) -> Hypervolumes | None:
    """Return the figures of a search; None if it has none."""
    path = folder / _FILE
    return read_versioned(path, Hypervolumes, FORMAT) if path.exists() else None


def read_front(folder: Path) -> list[tuple[float, ...]]:
    """Return the objectives of a search's front; none if it did not end."""
    return [each.found for each in ledger.read_lines(folder / ledger.FRONT_FILE, FrontPoint)]


def _points(folder: Path, section: TuneSection) -> list[Points]:
    """Return for each training its points, float64 [points, objectives]."""
    found = ledger.read_evaluations(folder)
    return [
        np.array([point.values for point in each.points]).reshape(-1, len(section.objectives))
        for each in found
        if each.rows == "validation"
    ]


def _figures(folder: Path, section: TuneSection, points: Sequence[Points], pool: Points) -> Hypervolumes:
    record = ledger.read_one(folder / ledger.SEARCH_FILE, SearchRecord)
    every, ends = np.concatenate(points), np.cumsum([len(each) for each in points])
    generations = range(section.population, len(points) + section.population, section.population)
    places = [min(end, len(points)) - 1 for end in generations]
    bounds, history = np.array(record.bounds), {}
    for title, limits in zip((FIXED, *WITHIN), ({}, *_LIMITS), strict=True):
        counted = feasible(replace(section, constraints=limits), every)
        reached, grown = np.cumsum(counted), [0.0, *hypervolumes(every[counted], bounds)]
        history[title] = tuple(grown[reached[ends[place] - 1]] if ends[place] else 0.0 for place in places)
    final = {title: line[-1] for title, line in history.items()} | {POOLED: hypervolume(every, pool)}
    best = float(every[:, section.objectives.index("utility")].min())
    return Hypervolumes(utility=1.0 - best, final=final, history=history)
