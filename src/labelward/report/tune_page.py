"""The page of a search: its front, how far that can be trusted, and what each variable does. Nothing is run again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelward.job import TuneSection
from labelward.report.formatting import decimals, percentage_points
from labelward.report.plots import Image, curves, point_plot
from labelward.report.summary import Spread
from labelward.report.tables import ReportTable
from labelward.report.templates import render, write_page
from labelward.runs.directory import stored_job
from labelward.tuning import ledger
from labelward.tuning.ledger import Evaluation, FrontPoint, SearchRecord, SearchSummary

PAGE_FILE = "tune.html"
_WITHIN = 0.01
"""Utility that may be given up for less leakage, in the sentence that names one setting."""
_NO_BREAK = "\u00a0"
_PLACES = 40
"""Places of the hypervolume's history that are drawn, at most."""
_CELLS = 30
"""Places of a plot along each axis; in each at most one of the settings compared is drawn."""
_TITLES = {"utility": "loss of utility", "cost": "cost in seconds"}


@dataclass(frozen=True, kw_only=True)
class StoredSearch:
    """The files of a search."""

    record: SearchRecord
    summary: SearchSummary
    front: Sequence[FrontPoint]
    evaluations: Sequence[Evaluation]
    cost: str = TuneSection.cost
    """What ``[tune] cost`` says."""

    def title(self, objective: str) -> str:
        """Return an objective as tables name it."""
        return objective_title(objective, self.cost)


def read_search(folder: Path) -> StoredSearch:
    """Read a search that came to its end.

    Raises:
        FileFormatError: a file is missing, damaged or of another format version.
    """
    job = stored_job(folder)
    return StoredSearch(
        cost=((job and job.tune) or TuneSection()).cost,
        record=ledger.read_one(folder / ledger.SEARCH_FILE, SearchRecord),
        summary=ledger.read_one(folder / ledger.RESULT_FILE, SearchSummary),
        front=ledger.read_lines(folder / ledger.FRONT_FILE, FrontPoint),
        evaluations=ledger.read_evaluations(folder),
    )


def objective_title(name: str, cost: str) -> str:
    """Return an objective as tables name it, with its unit; ``cost`` is what ``[tune] cost`` says."""
    return "cost in bytes" if name == "cost" and cost == "bytes" else _TITLES.get(name, name)


def setting_text(setting: Mapping[str, Any]) -> str:
    """Return a setting in words."""
    texts = {name: f"{value:.3g}" if isinstance(value, float) else str(value) for name, value in setting.items()}
    return ", ".join(f"{name} {text}" for name, text in texts.items())


def spread_of(point: FrontPoint, objective: int) -> str:
    """Return an objective as it was found, on test rows, and its mean and standard deviation on further seeds."""
    found = decimals(point.found[objective], 3)
    if point.tested is not None:
        found += f"; tests {decimals(point.tested[objective], 3)}"
    if not point.confirmed:
        return found
    again = confirmed(point, objective)
    return f"{found}; again {decimals(again.mean, 3)}" + ("" if again.std is None else f" ± {decimals(again.std, 3)}")


def confirmed(point: FrontPoint, objective: int) -> Spread:
    """Return mean and standard deviation of an objective over the further seeds."""
    return Spread.of([each[objective] for each in point.confirmed])


def expected(point: FrontPoint, objective: int) -> float:
    """Return the mean on further seeds, or without any what was found."""
    return confirmed(point, objective).mean if point.confirmed else point.found[objective]


def holds(point: FrontPoint, record: SearchRecord) -> bool:
    """Return whether a point stays within all limits by the margin of standard errors that the search asks for."""
    for name, limit in record.constraints.items():
        at = record.objectives.index(name)
        again = confirmed(point, at) if point.confirmed else None
        error = 0.0 if again is None or again.std is None else again.std / math.sqrt(len(point.confirmed))
        if expected(point, at) + record.margin * error > limit:
            return False
    return point.feasible


def picked(search: StoredSearch) -> FrontPoint | None:
    """Return the setting with the least leakage within a point of the best utility, of those that hold all limits."""
    names = search.record.objectives
    held = [point for point in search.front if holds(point, search.record)]
    if not held or "utility" not in names or "leakage" not in names:
        return None
    utility, leakage = names.index("utility"), names.index("leakage")
    best = min(expected(point, utility) for point in held)
    near = [point for point in held if expected(point, utility) <= best + _WITHIN]
    return min(near, key=lambda point: expected(point, leakage))


def advice(search: StoredSearch) -> str:
    """Return the setting that is advised, in a sentence."""
    chosen, record = picked(search), search.record
    if not any(point.feasible for point in search.front):
        return "No setting that was tried meets the constraints. The table shows those that come nearest."
    if not any(holds(point, record) for point in search.front):
        return _nearest(search)
    if chosen is None:
        return "No setting is advised, since utility and leakage are not both objectives."
    parts = [f"{search.title(name)} {decimals(expected(chosen, at), 3)}" for at, name in enumerate(record.objectives)]
    return (
        f"Of the settings within {percentage_points(_WITHIN)} of the best utility, setting {chosen.number} leaks least "
        f"({setting_text(chosen.setting)}): {', '.join(parts)}."
    )


def _nearest(search: StoredSearch) -> str:
    """Return that no setting holds all limits on further seeds, with the figures of the one that comes nearest."""
    record = search.record
    limits = [(record.objectives.index(name), limit) for name, limit in record.constraints.items()]
    again = [point for point in search.front if point.confirmed] or list(search.front)
    near = min(again, key=lambda point: max((expected(point, at) - limit) / (limit or 1.0) for at, limit in limits))
    plural = "" if record.margin == 1 else "s"
    close = f", or comes closer to it than {record.margin:g} standard error{plural}" if record.margin else ""
    figures = []
    for at, limit in limits:
        spread = confirmed(near, at).std if near.confirmed else None
        around = "" if spread is None else f" ± {decimals(spread, 3)}"
        title = search.title(record.objectives[at])
        figures.append(f"{title} {decimals(expected(near, at), 3)}{around}, limit {limit:g}")
    return (
        f"On further seeds every setting exceeds a limit{close}. The nearest is setting {near.number}: "
        f"{'; '.join(figures)}."
    )


def trust(search: StoredSearch) -> list[str]:
    """Return how far the front can be trusted, in sentences."""
    record, front = search.record, search.front
    done, cut, refused, failed = search.summary.trainings
    found = [
        f"{done} trainings ended, {cut} were cut short, {refused} settings were refused, {failed} trainings failed. "
        f"{len(_compared(search))} settings were compared, first trees or epochs of a training among them."
    ]
    if search.summary.hypervolume:
        found.append(
            f"Hypervolume {decimals(search.summary.hypervolume[-1], 3)} between fixed bounds; "
            f"{decimals(search.summary.pooled, 3)} between the extremes of this search, which another would move."
        )
    if record.own_columns is not None:
        own = decimals(record.own_columns, 3)
        found.append(f"The same attacks without any view, on the party's own columns, reach {own}.")
    again = [point for point in front if point.confirmed]
    if not again:
        return [*found, "The front was not measured again: its figures are those of the luckiest settings."]
    still = sum(bool(point.undominated) for point in again)
    found.append(f"On further seeds {still} of {len(again)} points of the front are still undominated.")
    for at, name in enumerate(record.objectives):
        shift = float(np.mean([expected(point, at) - point.found[at] for point in again]))
        text = decimals(shift, 3)
        by = "less than 0.001" if text == "0.000" else f"+{text}" if shift > 0 else text
        found.append(f"Measured again, {search.title(name)} differs by {by} on average from what the search saw.")
    if "cost" in record.objectives:
        found.append(
            "The search sets validation rows aside, on which the further trainings train as well: more rows cost more."
        )
    return found


def write_tune_page(folder: Path) -> Path:
    """Write ``tune.html`` into the folder of a search and return its path.

    The page loads nothing from elsewhere; all content of the results is escaped.

    Raises:
        FileFormatError: a stored file is missing, damaged or of another format version.
        DependencyError: Jinja or matplotlib is not installed.
        OutputError: the page cannot be written.
    """
    search = read_search(folder)
    page = render(
        "tune.html.j2",
        search=search,
        headline=advice(search),
        trust=trust(search),
        front=_front(search),
        plots=_plots(search),
        effects=_effects(search),
    )
    return write_page(folder / PAGE_FILE, page)


def _compared(search: StoredSearch) -> list[tuple[dict[str, Any], tuple[float, ...]]]:
    """Return all settings that the search compared on all training rows, with their objectives."""
    whole = [each for each in search.evaluations if each.rows == "validation" and each.share == 1.0]
    return [pair for each in whole for pair in each.compared()]


def _front(search: StoredSearch) -> ReportTable:
    """Return the settings of the front with their objectives; lines end between figures."""
    places = range(len(search.record.objectives))
    header = ("setting", "values", *(search.title(name) for name in search.record.objectives), "still undominated")
    rows = []
    for each in search.front:
        figures = (spread_of(each, at).replace(" ", _NO_BREAK).replace(f";{_NO_BREAK}", "; ") for at in places)
        still = {None: "not measured", True: "yes", False: "no"}[each.undominated]
        rows.append((str(each.number), setting_text(each.setting), *figures, still))
    return ReportTable(caption="Settings that no other beats", header=header, rows=tuple(rows), words=len(header))


def _plots(search: StoredSearch) -> list[Image]:
    """Return the front in each pair of objectives, and the history of the hypervolume."""
    names = search.record.objectives
    seen = [values for _, values in _compared(search)]
    images = []
    for first, second in itertools.combinations(range(len(names)), 2):
        groups = {
            "compared": apart([(values[first], values[second]) for values in seen]),
            "front": [(point.found[first], point.found[second]) for point in search.front],
        }
        if any(point.confirmed for point in search.front):
            again = [point for point in search.front if point.confirmed]
            groups["front, measured again"] = [(expected(each, first), expected(each, second)) for each in again]
        title = f"{search.title(names[first])} and {search.title(names[second])}"
        images.append(point_plot(title, groups, (search.title(names[first]), search.title(names[second]))))
    history = search.summary.hypervolume
    if history:
        places = sorted({round(place) for place in np.linspace(1, len(history), min(len(history), _PLACES))})
        lines = {"all settings": [Spread.of([history[place - 1]]) for place in places]}
        if search.record.constraints:
            lines["within the limits"] = [Spread.of([search.summary.feasible[place - 1]]) for place in places]
        images.append(curves("Hypervolume", places, lines, "trainings", "hypervolume"))
    return images


def apart(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points without those that would lie on an earlier one: a search compares tens of thousands."""
    if not points:
        return []
    values = np.array(points)
    low, high = values.min(axis=0), values.max(axis=0)
    cells = np.floor((values - low) / np.where(high > low, high - low, 1.0) * _CELLS)
    _, first = np.unique(cells, axis=0, return_index=True)
    return [points[at] for at in sorted(first.tolist())]


def _effects(search: StoredSearch) -> ReportTable:
    """Return for each variable its rank correlation with each objective over all settings compared."""
    from scipy.stats import spearmanr

    seen, found = _compared(search), []
    for variable in search.record.variables:
        name = variable["name"]
        values = [setting[name] for setting, _ in seen]
        if not all(isinstance(value, int | float) for value in values) or len(set(values)) < 2:
            continue
        cells = []
        for at in range(len(search.record.objectives)):
            objective = [measured[at] for _, measured in seen]
            cells.append(decimals(float(spearmanr(values, objective).statistic), 2) if len(set(objective)) > 1 else "–")
        found.append((name, *cells))
    header = ("variable", *(search.title(name) for name in search.record.objectives))
    return ReportTable(caption="Rank correlation of variables and objectives", header=header, rows=tuple(found))
