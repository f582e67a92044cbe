"""The page of a study: our figures beside those that the paper prints and those of an independent implementation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np

from labelward.errors import DependencyError
from labelward.evaluate.studies.compared import Place
from labelward.evaluate.studies.plan import NONE, SUMS, UTILITY, DataSet, Defended, Part, Setting
from labelward.evaluate.studies.read import Figures, figures, information_by_tree, versions
from labelward.evaluate.studies.run import Outcome
from labelward.report.formatting import count, decimals
from labelward.report.metrics import metric_name
from labelward.report.study_cells import Cell, Grid, Section, figure, gain, section, signed
from labelward.report.study_plots import Mark, curves, trade_off
from labelward.report.study_verdicts import contest, judged, rival_verdict
from labelward.report.summary import Spread
from labelward.runs.secure_files import atomic_write

__all__ = ["PAGE_FILE", "StudyReport", "write_study"]

PAGE_FILE = "study.html"
NOTHING = "–"
NOTEWORTHY = 0.05
"""Differences from the paper above this get a sentence."""

_MODELS = {
    "forest": "random forest",
    "secureboost": "XGBoost",
    "top": "top model",
    "sum": "no top model",
}
_ABSENT = "not run"
_SHOWN_TREES = (1, 2, 3, 5, 10, 20, 30, 40, 50)


class StudyReport:
    """What the results of a study come to.

    Args:
        outcome: of a run.
        out: its folder.

    Raises:
        FileFormatError: a stored result or view is damaged.
        DependencyError: matplotlib is not installed.
    """

    def __init__(self, outcome: Outcome, out: Path) -> None:
        self.outcome, self.study, self._out = outcome, outcome.study, out
        self._settings = {setting.name: setting for setting in self.study.settings}
        self._figures: Figures = figures(outcome, out)
        self._judged: dict[Place | str, bool] = {}
        forms = {
            "grid": self._grid,
            "rates": self._rates,
            "curves": self._curves,
            "trade-off": self._trade_off,
            "information": self._information,
            "rivals": self._rivals,
        }
        self.sections = tuple(self._claimed(part, forms[part.form](part)) for part in outcome.parts)

    def cells(self) -> list[tuple[str, str, str, Cell]]:
        """Return part, row, column and cell of all figures that the paper or the reference has, too."""
        return [
            (section.name, f"{grid.caption}: {name}", column, cell)
            for section in self.sections
            for grid in section.grids
            for name, row in grid.rows
            for column, cell in zip(grid.header, row, strict=True)
            if cell.paper or cell.reference
        ]

    def verdict(self) -> str:
        """Say how many figures are within their tolerance, each counted once though several parts show it."""
        judged = self._judged.values()
        if any(part.form == "rivals" for part in self.outcome.parts):
            return "None of these figures is printed in a paper: the verdicts say what each option brings."
        if not judged:
            return (
                f"No figure is compared with its tolerance, which holds for the mean of {self.study.seeds} seeds."
                if self.outcome.seeds != self.study.seeds
                else "There is no figure to be compared."
            )
        if not self.study.claims:
            return f"{sum(judged)} of {len(judged)} figures that have a tolerance are within it."
        return f"{sum(judged)} of {len(judged)} tolerances and claims hold."

    def _spread(self, setting: Setting, place: Place) -> Spread | None:
        values = self._figures.get((setting.name, place))
        return None if not values else Spread.of([values[seed] for seed in sorted(values)])

    def _cell(self, part: Part, setting: Setting, place: Place) -> Cell:
        ours = self._spread(setting, place)
        printed = self.study.printed.get((part.name, place))
        expected = self.study.expected.get(place) if setting.reference else None
        met, within = None, ""
        if expected is not None and expected.within is not None:
            within = f"within {decimals(expected.within, 2)}"
            met = None if ours is None else self._met(place, ours, expected.mean, expected.within)
        return Cell(
            ours=_ABSENT if ours is None else figure(ours.mean, ours.std),
            paper="" if printed is None else figure(printed.mean, printed.std),
            reference="" if expected is None else figure(expected.mean, expected.std),
            within=within,
            met=met,
        )

    def _met(self, place: Place, ours: Spread, mean: float, within: float) -> bool | None:
        """Return whether a mean, to three digits as it is shown, is within a tolerance; None for other seeds."""
        if ours.seeds != self.study.seeds:
            return None
        self._judged[place] = round(abs(round(ours.mean, 3) - mean), 6) <= within
        return self._judged[place]

    def _claimed(self, part: Part, shown: Section) -> Section:
        """Return a section with what is claimed of its figures, judged where all seeds are there."""
        told = []
        for claim in (each for each in self.study.claims if each.part == part.name):
            found = judged(claim, part.settings[0], self._figures, self.study.seeds)
            if found.met is not None:
                self._judged[claim.words] = found.met
            told.append(found.words)
        return replace(shown, verdicts=(*shown.verdicts, *filter(None, told)))

    def _tables(self, part: Part) -> tuple[DataSet, ...]:
        return self.study.shown(part, self.outcome.tables)

    def _measured(self, part: Part) -> list[tuple[DataSet, str, str]]:
        """Return each data set once for each metric, with the name of its figures and what follows its title."""
        return [
            (table, name, f", {metric_name(worth)}" if table.also else "")
            for table in self._tables(part)
            for name, worth, _ in table.measured_as()
        ]

    def _models(self, part: Part) -> tuple[str, ...]:
        return tuple(model for model in self.study.models if not part.models or model in part.models)

    def _defenses(self, part: Part, setting: Setting, model: str) -> list[Defended]:
        return [each for each in setting.defenses.get(model, ()) if not part.defenses or each.family in part.defenses]

    def _grid(self, part: Part) -> Section:
        setting, rows, told, verdicts = self._settings[part.settings[0]], [], [], []
        for table, name, more in self._measured(part):
            for model in self._models(part):
                cells = []
                for column in (UTILITY, *part.columns):
                    place = name, model, NONE, column
                    cells.append(self._cell(part, setting, place))
                    told += self._difference(part, setting, table, place)
                rows.append((f"{_title(table)}, {_MODELS[model]}{more}", tuple(cells)))
                verdicts += [
                    contest(f"{table.name}{more}", (setting.name, (name, model, NONE)), each, self._figures)
                    for each in part.contests
                ]
        header = (_utility(self._tables(part)), *part.columns)
        grid = Grid(caption=f"{self.study.metric}, undefended", header=header, rows=tuple(rows))
        return section(part, (grid,), differences=told, verdicts=[*filter(None, verdicts)])

    def _difference(self, part: Part, setting: Setting, table: DataSet, place: Place) -> list[str]:
        """Say where a figure differs from the printed one, and what is known of the reason."""
        ours, printed = self._spread(setting, place), self.study.printed.get((part.name, place))
        if ours is None or printed is None or abs(ours.mean - printed.mean) <= NOTEWORTHY:
            return []
        _, model, _, column = place
        expected = self.study.expected.get(place)
        reasons = []
        if table.substitute:
            reasons.append(f"another table stands in for the paper's ({table.substitute})")
        reasons += filter(None, (table.reason, part.reason))
        if column.startswith("UNI"):
            reasons.append("one leaf with rows of two parts joins them for good, so that small differences decide")
        if expected is not None and expected.within is not None:
            agrees = self._met(place, ours, expected.mean, expected.within)
            if agrees is not None:
                within = f"{'within' if agrees else 'beyond'} the tolerance of {decimals(expected.within, 2)}"
                told = f"gives {decimals(expected.mean, 3)}, which is {within} from ours"
                reasons.append(f"an independent implementation with the paper's errors mended {told}")
        elif column == "ID2Graph":
            reasons.append(
                "communities are found on the whole graph here, where the published code reads half of its matrix and "
                "stops at two communities"
            )
        if printed.std is not None and abs(ours.mean - printed.mean) <= printed.std:
            reasons.append("it is less than the paper's spread over its seeds")
        return [
            f"{table.title}, {_MODELS[model]}, {column}: {decimals(ours.mean, 3)} here, {decimals(printed.mean, 3)} in "
            f"the paper ({signed(ours.mean - printed.mean)}): {'; '.join(reasons) or 'no reason is known'}."
        ]

    def _rates(self, part: Part) -> Section:
        setting, grids, told = self._settings[part.settings[0]], [], []
        for model in self._models(part):
            rows = []
            for defense in self._defenses(part, setting, model):
                found = {table.name: self._rate(setting, table, model, defense.name) for table in self.outcome.tables}
                cells = [self._rate_cell(part, model, defense.name, [rate for rate, _ in found.values() if rate])]
                for rate, sums in found.values():
                    cells.append(
                        Cell(ours=_ABSENT if rate is None else f"{figure(rate.mean, rate.std)} ({count(sums)} sums)")
                    )
                rows.append((defense.name, tuple(cells)))
                told += self._rate_difference(part, model, defense.name, [rate for rate, _ in found.values() if rate])
            header = ("all data sets", *map(_title, self.outcome.tables))
            caption = f"{_MODELS[model]}: sums with the defense for each one without"
            grids.append(Grid(caption=caption, header=header, rows=tuple(rows)))
        return section(part, tuple(grids), differences=told)

    def _rate(self, setting: Setting, table: DataSet, model: str, defense: str) -> tuple[Spread | None, float]:
        """Return the ratio of sums, seed by seed, to those of the undefended run, and their mean number."""
        bare = self._figures.get((setting.name, (table.name, model, NONE, SUMS)), {})
        own = self._figures.get((setting.name, (table.name, model, defense, SUMS)), {})
        both = sorted(bare.keys() & own.keys())
        if not both:
            return None, 0.0
        return Spread.of([own[seed] / bare[seed] for seed in both]), float(np.mean([own[seed] for seed in both]))

    def _rate_cell(self, part: Part, model: str, defense: str, rates: Sequence[Spread]) -> Cell:
        printed = self.study.printed.get((part.name, ("", model, defense, SUMS)))
        if not rates:
            return Cell(ours=_ABSENT, paper="" if printed is None else decimals(printed.mean, 3))
        mean = Spread.of([rate.mean for rate in rates]).mean
        if printed is None or defense not in self.study.order:
            return Cell(ours=decimals(mean, 3), paper="" if printed is None else decimals(printed.mean, 3))
        same = (mean < 1) == (printed.mean < 1)
        self._judged["", model, defense, SUMS] = same
        side = f"{'below' if printed.mean < 1 else 'above'} 1"
        return Cell(ours=decimals(mean, 3), paper=decimals(printed.mean, 3), within=side, met=same)

    def _rate_difference(self, part: Part, model: str, defense: str, rates: Sequence[Spread]) -> list[str]:
        """Say where a rate differs from the printed one."""
        printed = self.study.printed.get((part.name, ("", model, defense, SUMS)))
        mean = Spread.of([rate.mean for rate in rates]).mean if rates else None
        if printed is None or mean is None or abs(mean - printed.mean) <= NOTEWORTHY:
            return []
        return [
            f"{_MODELS[model]}, {defense}: {decimals(mean, 3)} here, {decimals(printed.mean, 3)} in the paper "
            f"({signed(mean - printed.mean)}), mean of {len(rates)} data sets here: {part.reason}."
        ]

    def _curves(self, part: Part) -> Section:
        settings = [self._settings[name] for name in part.settings]
        values = [self._value(part, setting) for setting in settings]
        grids, images = [], []
        for table, name, more in self._measured(part):
            for model in self._models(part):
                places: list[Place] = [(name, model, NONE, column) for column in part.columns]
                title = f"{_title(table)}, {_MODELS[model]}{more}"
                rows = [(place[3], tuple(self._cell(part, each, place) for each in settings)) for place in places]
                header = tuple(f"{part.axis} {value:g}" for value in values)
                grids.append(Grid(caption=title, header=header, rows=tuple(rows)))
                lines = {place[3]: [self._spread(each, place) for each in settings] for place in places}
                whole = {name: [one for one in line if one] for name, line in lines.items() if None not in line}
                if whole:
                    images.append(curves(title, values, whole, part.axis, self.study.metric))
        return section(part, tuple(grids), images)

    def _value(self, part: Part, setting: Setting) -> float:
        """Return the place of a setting on the axis; of one without a value what all models have."""
        if setting.value is not None:
            return setting.value
        return float(next(iter(self.study.models.values())).params[part.axis])

    def _trade_off(self, part: Part) -> Section:
        setting, grids, images = self._settings[part.settings[0]], [], []
        of_model = (each.title for each in self.study.columns if each.of == "model" and each.title in part.columns)
        worth = next(of_model, UTILITY)  # of the training that is attacked
        for table in self._tables(part):
            utility = metric_name(table.utility)
            for model in self._models(part):
                defenses = self._defenses(part, setting, model)
                title = f"{_title(table)}, {_MODELS[model]}"
                rows = []
                for name in (NONE, *(each.name for each in defenses)):
                    places: list[Place] = [(table.name, model, name, column) for column in (UTILITY, *part.columns)]
                    row = "undefended" if name == NONE else name
                    rows.append((row, tuple(self._cell(part, setting, place) for place in places)))
                grids.append(Grid(caption=title, header=(utility, *part.columns), rows=tuple(rows)))
                floor = self._spread(setting, (table.name, model, NONE, "CL"))
                for column in (each for each in part.columns if each != worth):
                    marks = [self._mark(setting, table, model, each, (worth, column)) for each in (None, *defenses)]
                    bare, defended = marks[0], [mark for mark in marks[1:] if mark is not None]
                    if bare is not None:
                        images.append(
                            trade_off(
                                f"{title}: {column}",
                                defended,
                                utility=utility,
                                leakage=self.study.metric,
                                undefended=bare,
                                floor=floor,
                            )
                        )
        return section(part, tuple(grids), images)

    def _mark(
        self, setting: Setting, table: DataSet, model: str, defense: Defended | None, columns: tuple[str, str]
    ) -> Mark | None:
        """Return a defense's place in a plot, by the columns of utility and of leakage; None where one is missing."""
        name = NONE if defense is None else defense.name
        utility, leakage = (self._spread(setting, (table.name, model, name, column)) for column in columns)
        if utility is None or leakage is None:
            return None
        return Mark(
            family="undefended" if defense is None else defense.family,
            name="undefended" if defense is None else name,
            utility=utility,
            leakage=leakage,
            budget=None if defense is None else defense.strength,
        )

    def _rivals(self, part: Part) -> Section:
        setting, first, rows = self._settings[part.settings[0]], part.columns[0], []
        gains: dict[str, dict[str, Spread]] = {name: {} for name in part.columns[1:]}
        for table in self._tables(part):
            for model in self._models(part):
                title, cells = f"{_title(table)}, {_MODELS[model]}", []
                cells.append(self._cell(part, setting, (table.name, model, NONE, first)))
                base = self._figures.get((setting.name, (table.name, model, NONE, first)), {})
                for name, found in gains.items():
                    own = self._figures.get((setting.name, (table.name, model, NONE, name)), {})
                    both = sorted(base.keys() & own.keys())
                    if both:
                        found[title] = Spread.of([own[seed] - base[seed] for seed in both])
                    cells.append(Cell(ours=gain(found[title]) if both else _ABSENT))
                rows.append((title, tuple(cells)))
        caption = f"{self.study.metric}: mean and spread over the seeds, and differences seed by seed"
        grid = Grid(caption=caption, header=part.columns, rows=tuple(rows))
        told = [f"{name}: {rival_verdict(list(found.values()))}" for name, found in gains.items() if found]
        return section(part, (grid,), verdicts=told)

    def _information(self, part: Part) -> Section:
        grids, images = [], []
        for table in self._tables(part):
            for model in self._models(part):
                found = [
                    information_by_tree(task, job, self._out)
                    for task, job in self.outcome.jobs.items()
                    if (task.setting.name, task.table, task.model) == (part.settings[0], table, model)
                    and task.path not in self.outcome.failed
                ]
                if not found:
                    continue
                by_tree = [Spread.of(values.tolist()) for values in np.array(found).T]
                title, trees = f"{_title(table)}, mean of {len(found)} models", range(1, len(by_tree) + 1)
                images.append(curves(title, list(trees), {"mutual information": by_tree}, part.axis, "nats"))
                shown = [tree for tree in _SHOWN_TREES if tree <= len(by_tree)]
                cells = tuple(Cell(ours=figure(by_tree[t - 1].mean, by_tree[t - 1].std)) for t in shown)
                header = tuple(f"tree {tree}" for tree in shown)
                grids.append(Grid(caption=title, header=header, rows=((_title(table), cells),)))
        return section(part, tuple(grids), images)


def write_study(report: StudyReport, out: Path) -> Path:
    """Write ``study.html`` into a study's folder, replacing it in one step; return its path.

    The page has no scripts and fetches nothing; whatever stands in the results is escaped.

    Raises:
        DependencyError: Jinja is not installed.
        OutputError: the page cannot be written.
    """
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise DependencyError(
            "the page needs Jinja: pip install 'labelward[report]'", code="dependency", value="jinja2"
        ) from error
    own, outcome = resources.files("labelward.report"), report.outcome
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((own / "study.html.j2").read_text(encoding="utf-8"))
    page = template.render(
        css=Markup((own / "page.css").read_text(encoding="utf-8")),
        study=report.study,
        seeds=outcome.seeds,
        verdict=report.verdict(),
        missing=outcome.missing,
        substitutes=[table for table in outcome.tables if table.substitute],
        failed=outcome.failed,
        sections=report.sections,
        versions=versions(outcome, out),
    )
    target = out / PAGE_FILE
    with atomic_write(target) as file:
        file.write(page.encode())
    return target


def _title(table: DataSet) -> str:
    return f"{table.name}, a substitute for {table.title}" if table.substitute else table.name


def _utility(tables: Sequence[DataSet]) -> str:
    return " or ".join(dict.fromkeys(metric_name(table.utility) for table in tables)) or "utility"
