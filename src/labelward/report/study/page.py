"""The page of a study: its parts in nine forms, and the file ``study.html``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from labelward.report.formatting import count, decimals
from labelward.report.metrics import metric_name
from labelward.report.narrative import diverged_notice
from labelward.report.plots import DefenseMark, curves, defense_plot, histograms, point_plot
from labelward.report.study.verdicts import (
    NOT_COUNTED,
    NOT_RUN,
    FigureCell,
    FigureTable,
    StudySection,
    ablation_verdict,
    judge_claim,
    ranking_verdict,
    signed,
    signed_spread,
    spread_figure,
)
from labelward.report.summary import Spread
from labelward.report.templates import render, write_page
from labelward.runs.diverged_runs import DivergedRun, diverged_runs
from labelward.studies.references import COUNTED, NO_DEFENSE, SUMS, UTILITY, FigureKey, ReferenceFigure
from labelward.studies.results import (
    Floats,
    embeddings_by_class,
    figures_by_seed,
    information_by_tree,
    study_figures,
    study_versions,
)
from labelward.studies.run import StudyResult
from labelward.studies.searches import FIXED, read_front, read_hypervolumes
from labelward.studies.spec import DefenseSpec, PartForm, StudyDataset, StudyPart, StudySetting, StudyTask

PAGE_FILE = "study.html"
NOTEWORTHY = 0.05
"""Differences from the paper above this are explained in a sentence."""
_TREES_SHOWN = (1, 2, 3, 5, 10, 20, 30, 40, 50)


class StudyReport:
    """Sections and verdict of a study.

    Raises:
        FileFormatError: a stored result or view is damaged.
        DependencyError: matplotlib is not installed.
    """

    def __init__(self, result: StudyResult, out: Path) -> None:
        self.result, self.study, self._out = result, result.study, out
        self._settings = {setting.name: setting for setting in self.study.settings}
        self._figures = study_figures(result, out)
        self._judged: dict[FigureKey | str, bool] = {}
        forms: dict[PartForm, Callable[[StudyPart], StudySection]] = {
            "grid": self._grid,
            "rates": self._rates,
            "curves": self._curves,
            "trade-off": self._trade_off,
            "information": self._information,
            "ablation": self._ablation,
            "fronts": self._fronts,
            "generations": self._generations,
            "distributions": self._distributions,
        }
        self.sections = tuple(self._with_claims(forms[part.form](part)) for part in result.parts)
        self.diverged = self._diverged()

    def cells(self) -> list[tuple[str, str, str, FigureCell]]:
        """Return part, row, column and cell of all figures that the paper or the reference has, too."""
        return [
            (section.part.name, f"{table.caption}: {name}", column, cell)
            for section in self.sections
            for table in section.tables
            for name, row in table.rows
            for column, cell in zip(table.header, row, strict=True)
            if cell.paper or cell.reference
        ]

    def _diverged(self) -> list[str]:
        """Return which defenses and attackers broke trainings, whose seeds are missing in the figures."""
        found: dict[tuple[str, str], list[DivergedRun]] = {}
        for task in self.result.jobs:
            found.setdefault((task.dataset.name, task.model), []).extend(diverged_runs(self._out / task.path))
        return [f"{', '.join(of)}: {sentence}" for of, runs in found.items() for sentence in diverged_notice(runs)]

    def verdict(self) -> str:
        """Say how many figures are within their tolerance; one that several parts show counts once."""
        judged = self._judged.values()
        if any(part.form == "ablation" for part in self.result.parts):
            return "None of these figures is printed in a paper; the verdicts state the effect of each option."
        if not judged:
            return self._unjudged()
        if not self.study.claims:
            return f"{sum(judged)} of {len(judged)} figures that have a tolerance are within it."
        return f"{sum(judged)} of {len(judged)} tolerances and claims hold."

    def _unjudged(self) -> str:
        """Return why no figure was judged."""
        compared = [cell for *_, cell in self.cells() if cell.ours != NOT_RUN]
        tolerances = any(cell.within for cell in compared)
        if (tolerances or self.study.claims) and self.result.seeds != self.study.seeds:
            return f"No figure was judged: tolerances hold for the mean of {self.study.seeds} seeds."
        if not compared:
            return "There is no figure to compare with."
        if not tolerances:
            return "No figure was judged: those that ours are compared with state no tolerance."
        return "No figure was judged."

    # -- what a part shows ---------------------------------------------------------------------------------------------

    def _setting(self, part: StudyPart) -> StudySetting:
        return self._settings[part.settings[0]]

    def _datasets(self, part: StudyPart) -> tuple[StudyDataset, ...]:
        return self.study.datasets_of(part, self.result.datasets)

    def _rows(self, part: StudyPart) -> Iterator[tuple[StudyDataset, str, str, str]]:
        """Yield dataset, the name of its figures, model and title, once for each metric of the dataset."""
        for dataset, model, title in self._pairs(part):
            for name, utility, _ in dataset.metrics():
                yield dataset, name, model, f"{title}, {metric_name(utility)}" if dataset.extra_metrics else title

    def _pairs(self, part: StudyPart) -> Iterator[tuple[StudyDataset, str, str]]:
        """Yield dataset, model and title."""
        for dataset in self._datasets(part):
            for model in self.study.models_of(part):
                yield dataset, model, f"{dataset.label}, {self.study.models[model].title}"

    def _defenses(self, part: StudyPart, model: str) -> list[DefenseSpec]:
        defenses = self._setting(part).defenses.get(model, ())
        return [each for each in defenses if not part.defenses or each.family in part.defenses]

    # -- figures -------------------------------------------------------------------------------------------------------

    def _spread(self, setting: StudySetting, key: FigureKey) -> Spread | None:
        values = self._figures.get((setting.name, key))
        return None if not values else Spread.of([values[seed] for seed in sorted(values)])

    def _cell(self, part: StudyPart, setting: StudySetting, key: FigureKey) -> FigureCell:
        ours = self._spread(setting, key)
        reference = self.study.reference.get(key) if setting.has_references else None
        within = None if reference is None else reference.within
        return FigureCell(
            ours=spread_figure(ours, NOT_RUN),
            paper=spread_figure(self.study.printed.get((part.name, key))),
            reference=spread_figure(reference),
            within="" if within is None else f"within {decimals(within, 2)}",
            met=None if ours is None else self._agrees(key, ours, reference),
        )

    def _agrees(self, key: FigureKey, ours: Spread, reference: ReferenceFigure | None) -> bool | None:
        """Return whether a mean, rounded as it is shown, is within the tolerance; None without one or all seeds."""
        if reference is None or reference.within is None or ours.seeds != self.study.seeds:
            return None
        self._judged[key] = round(abs(round(ours.mean, 3) - reference.mean), 6) <= reference.within
        return self._judged[key]

    def _with_claims(self, section: StudySection) -> StudySection:
        """Return a section with verdicts on the claims about its part."""
        verdicts = list(section.verdicts)
        for claim in self.study.claims:
            if claim.part == section.part.name:
                found = judge_claim(claim, section.part.settings[0], self._figures, self.study.seeds)
                if found is not None:
                    verdicts.append(found.text)
                    if found.met is not None:
                        self._judged[claim.text] = found.met
        return replace(section, verdicts=verdicts)

    # -- the forms -----------------------------------------------------------------------------------------------------

    def _grid(self, part: StudyPart) -> StudySection:
        """Datasets and models by columns, undefended."""
        setting, rows, differences, verdicts = self._setting(part), [], [], []
        for dataset, name, model, title in self._rows(part):
            keys = [FigureKey(name, model, NO_DEFENSE, column) for column in (UTILITY, *part.columns)]
            rows.append((title, [self._cell(part, setting, key) for key in keys]))
            differences += [self._difference(part, setting, dataset, key) for key in keys]
            for columns in part.rankings:
                rivals = [FigureKey(name, model, NO_DEFENSE, column) for column in columns]
                values = figures_by_seed(self._figures, setting.name, rivals)
                verdicts.append(ranking_verdict(name, dict(zip(columns, values, strict=True))))
        utility = " or ".join(dict.fromkeys(metric_name(each.utility_metric) for each in self._datasets(part)))
        header = (utility or UTILITY, *part.columns)
        table = FigureTable(caption=f"{self.study.metric}, undefended", header=header, rows=rows)
        return StudySection(
            part=part, tables=[table], verdicts=[*filter(None, verdicts)], differences=[*filter(None, differences)]
        )

    def _difference(self, part: StudyPart, setting: StudySetting, dataset: StudyDataset, key: FigureKey) -> str:
        """Return a sentence on a figure's difference from the printed one, with known reasons; empty if it is small."""
        ours, printed = self._spread(setting, key), self.study.printed.get((part.name, key))
        if ours is None or printed is None or abs(ours.mean - printed.mean) <= NOTEWORTHY:
            return ""
        column = next((each for each in self.study.columns if each.title == key.column), None)
        reference = self.study.reference.get(key)
        reasons = [f"a substitute for the paper's dataset ({dataset.substitute})"] if dataset.substitute else []
        reasons += [dataset.reason, part.reason, column.reason if column else ""]
        agrees = self._agrees(key, ours, reference)
        if reference is not None and agrees is not None and reference.within is not None:
            tolerance = f"{'within' if agrees else 'beyond'} the tolerance of {decimals(reference.within, 2)}"
            reasons.append(
                "an independent implementation with the paper's errors corrected gives "
                f"{decimals(reference.mean, 3)}, which is {tolerance} from ours"
            )
        elif column and (reference is None or reference.within is None):
            reasons.append(column.reason_unless_judged)
        if printed.std is not None and abs(ours.mean - printed.mean) <= printed.std:
            reasons.append("within the paper's standard deviation over its seeds")
        where = f"{dataset.title}, {self.study.models[key.model].title}, {key.column}"
        return f"{where}: {_compare(ours.mean, printed.mean)}: {'; '.join(filter(None, reasons)) or 'unexplained'}."

    def _rates(self, part: StudyPart) -> StudySection:
        """Encrypted sums by defense, without and with the encrypted rows, relative to the undefended training."""
        tables: list[FigureTable] = []
        differences: list[str] = []
        for model, counted in itertools.product(self.study.models_of(part), COUNTED):
            rows = []
            for defense in self._defenses(part, model):
                key = FigureKey("", model, defense.name, counted)
                own = [key._replace(dataset=each.name) for each in self.result.datasets]
                found = [self._rate(part, each) for each in own]
                missing = [self._no_rate(part, each) for each in own]
                means = [rate.mean for rate, _ in found if rate]
                cells = [_rate_cell(*each, other) for each, other in zip(found, missing, strict=True)]
                rows.append((defense.name, [self._mean_rate(part, key, means, missing), *cells]))
                differences += self._rate_differences(part, key, means)
            caption = f"{self.study.models[model].title}: {COUNTED[counted]}, relative to the undefended training"
            header = ("all datasets", *(dataset.label for dataset in self.result.datasets))
            tables.append(FigureTable(caption=caption, header=header, rows=rows))
        return StudySection(part=part, tables=tables, differences=differences)

    def _rate_differences(self, part: StudyPart, key: FigureKey, rates: Sequence[float]) -> Iterator[str]:
        """Yield a sentence where the mean over datasets is far from the paper's."""
        printed = self._printed_rate(part, key)
        if printed is None or not rates:
            return
        mean = Spread.of(rates).mean
        if abs(mean - printed.mean) > NOTEWORTHY:
            where = f"{self.study.models[key.model].title}, {key.defense}, {COUNTED[key.column]}"
            compared = f"{_compare(mean, printed.mean)}, mean of {len(rates)} datasets here"
            yield f"{where}: {compared}: {part.reason}."

    def _rate(self, part: StudyPart, key: FigureKey) -> tuple[Spread | None, float]:
        """Return the ratio to the undefended training's figure, seed by seed, and the mean figure."""
        keys = [key._replace(defense=each) for each in (NO_DEFENSE, key.defense)]
        undefended, defended = figures_by_seed(self._figures, part.settings[0], keys)
        if not defended.size:
            return None, 0.0
        return Spread.of((defended / undefended).tolist()), float(defended.mean())

    def _no_rate(self, part: StudyPart, key: FigureKey) -> str:
        """Return what stands in place of a rate: earlier versions counted sums, but not the rows of them."""
        return NOT_COUNTED if self._rate(part, key._replace(column=SUMS))[0] else NOT_RUN

    def _printed_rate(self, part: StudyPart, key: FigureKey) -> ReferenceFigure | None:
        """Return the paper's mean, which counts the encrypted rows; both of ours stand beside it."""
        return self.study.printed.get((part.name, key._replace(column=SUMS)))

    def _mean_rate(self, part: StudyPart, key: FigureKey, rates: Sequence[float], missing: Sequence[str]) -> FigureCell:
        """Return the mean of rates over datasets, judged by the paper's side of 1 for sums, if the study says so.

        Args:
            missing: for each dataset what stands in place of a rate.
        """
        printed = self._printed_rate(part, key)
        paper = "" if printed is None else decimals(printed.mean, 3)
        if not rates:
            return FigureCell(ours=NOT_COUNTED if NOT_COUNTED in missing else NOT_RUN, paper=paper)
        mean = Spread.of(rates).mean
        if printed is None or key.column != SUMS or key.defense not in self.study.judged_rates:
            return FigureCell(ours=decimals(mean, 3), paper=paper)
        self._judged[key] = (mean < 1) == (printed.mean < 1)
        side = f"{'below' if printed.mean < 1 else 'above'} 1"
        return FigureCell(ours=decimals(mean, 3), paper=paper, within=side, met=self._judged[key])

    def _curves(self, part: StudyPart) -> StudySection:
        """Columns over what the settings vary."""
        settings = [self._settings[name] for name in part.settings]
        model_values = next(iter(self.study.models.values())).spec.params
        values = [  # a setting without a value has what all models have
            float(model_values[part.axis]) if each.axis_value is None else each.axis_value for each in settings
        ]
        header = tuple(f"{part.axis} {value:g}" for value in values)
        tables, images = [], []
        for _, name, model, title in self._rows(part):
            defenses = (NO_DEFENSE, *(each.name for each in self._defenses(part, model)))
            keys = [FigureKey(name, model, defense, column) for column in part.columns for defense in defenses]
            named = {key: ", ".join([key.column, *([key.defense] * (key.defense != NO_DEFENSE))]) for key in keys}
            rows = [(named[key], [self._cell(part, each, key) for each in settings]) for key in keys]
            tables.append(FigureTable(caption=title, header=header, rows=rows))
            lines = {named[key]: [self._spread(each, key) for each in settings] for key in keys}
            complete = {name: [one for one in line if one] for name, line in lines.items() if None not in line}
            if complete:
                images.append(curves(title, values, complete, part.axis, self.study.metric))
        return StudySection(part=part, tables=tables, images=images)

    def _trade_off(self, part: StudyPart) -> StudySection:
        """Utility and leakage by defense."""
        setting, tables, images = self._setting(part), [], []
        # of an attack that trains the model, utility is that of the attacked training
        attacked = (each.title for each in self.study.columns if each.source == "model" and each.title in part.columns)
        utility = next(attacked, UTILITY)
        for dataset, model, title in self._pairs(part):
            defenses = self._defenses(part, model)
            rows = []
            for name in (NO_DEFENSE, *(each.name for each in defenses)):
                keys = [FigureKey(dataset.name, model, name, column) for column in (UTILITY, *part.columns)]
                cells = [self._cell(part, setting, key) for key in keys]
                rows.append(("undefended" if name == NO_DEFENSE else name, cells))
            header = (metric_name(dataset.utility_metric), *part.columns)
            tables.append(FigureTable(caption=title, header=header, rows=rows))
            for column in (each for each in part.columns if each != utility):
                axes = (utility, column)
                marks = [self._mark(setting, dataset, model, each, axes) for each in (_UNDEFENDED, *defenses)]
                if marks[0] is not None:
                    plot = defense_plot(
                        f"{title}: {column}",
                        [mark for mark in marks[1:] if mark is not None],
                        utility=metric_name(dataset.utility_metric),
                        leakage=self.study.metric,
                        undefended=marks[0],
                        floor=self._spread(setting, FigureKey(dataset.name, model, NO_DEFENSE, part.baseline)),
                    )
                    images.append(plot)
        return StudySection(part=part, tables=tables, images=images)

    def _mark(
        self, setting: StudySetting, dataset: StudyDataset, model: str, defense: DefenseSpec, axes: tuple[str, str]
    ) -> DefenseMark | None:
        """Return a defense's place in a plot of two columns, utility and leakage; None if one is missing."""
        name = NO_DEFENSE if defense is _UNDEFENDED else defense.name
        utility, leakage = (self._spread(setting, FigureKey(dataset.name, model, name, column)) for column in axes)
        if utility is None or leakage is None:
            return None
        return DefenseMark(
            family=defense.family, name=defense.name, utility=utility, leakage=leakage, budget=defense.strength
        )

    def _ablation(self, part: StudyPart) -> StudySection:
        """The first column, and the differences of the others to it, seed by seed."""
        setting, rows = self._setting(part), []
        gains: dict[str, list[Spread]] = {column: [] for column in part.columns[1:]}
        for dataset, model, title in self._pairs(part):
            base = FigureKey(dataset.name, model, NO_DEFENSE, part.columns[0])
            cells = [self._cell(part, setting, base)]
            for column, found in gains.items():
                keys = [base, base._replace(column=column)]
                without, with_option = figures_by_seed(self._figures, setting.name, keys)
                if without.size:
                    found.append(Spread.of((with_option - without).tolist()))
                cells.append(FigureCell(ours=signed_spread(found[-1]) if without.size else NOT_RUN))
            rows.append((title, cells))
        caption = f"{self.study.metric}: mean ± standard deviation over the seeds, and differences seed by seed"
        table = FigureTable(caption=caption, header=part.columns, rows=rows)
        verdicts = [f"{name}: {ablation_verdict(found)}" for name, found in gains.items() if found]
        return StudySection(part=part, tables=[table], verdicts=verdicts)

    def _fronts(self, part: StudyPart) -> StudySection:
        """Fronts of the first start in pairs of objectives."""
        images = []
        for dataset in self._datasets(part):
            found: dict[str, list[tuple[float, ...]]] = {}
            names: tuple[str, ...] = ()
            for task, job in self.result.jobs.items():
                shown = task.dataset == dataset and task.model in self.study.models_of(part)
                if shown and job.tune is not None and task.seed == self.study.first_seed:
                    names, points = job.tune.objectives, read_front(self._out / task.path)
                    found |= {self.study.models[task.model].title: points} if points else {}
            if not found:
                continue
            pairs = [(part.axis, UTILITY)] if part.axis else list(itertools.combinations(names, 2))
            for pair in pairs:
                first, second = (names.index(each) for each in pair)
                groups = {title: [(each[first], each[second]) for each in points] for title, points in found.items()}
                images.append(point_plot(f"{dataset.label}: {pair[0]} and {pair[1]}", groups, pair))
        return StudySection(part=part, tables=[], images=images)

    def _generations(self, part: StudyPart) -> StudySection:
        """Columns over the generations of searches."""
        tables, images = [], []
        for dataset in self._datasets(part):
            for column in part.columns:
                lines = self._histories(part, dataset, column)
                if not lines:
                    continue
                last = min(len(line) for line in lines.values())
                title, values = f"{dataset.label}, {column}", list(range(1, last + 1))
                images.append(
                    curves(title, values, {name: line[:last] for name, line in lines.items()}, part.axis, FIXED)
                )
                shown = sorted({1, *(round(place) for place in np.linspace(1, last, 5))})
                rows = [
                    (name, [FigureCell(ours=spread_figure(line[at - 1])) for at in shown])
                    for name, line in lines.items()
                ]
                header = tuple(f"{part.axis} {at}" for at in shown)
                tables.append(FigureTable(caption=title, header=header, rows=rows))
        return StudySection(part=part, tables=tables, images=images)

    def _histories(self, part: StudyPart, dataset: StudyDataset, column: str) -> dict[str, list[Spread]]:
        """Return by model the spread over the starts after each generation."""
        found: dict[str, list[tuple[float, ...]]] = {}
        for task in self.result.jobs:
            if task.dataset == dataset and task.model in self.study.models_of(part):
                stored = read_hypervolumes(self._out / task.path)
                if stored is not None:
                    found.setdefault(self.study.models[task.model].title, []).append(stored.history[column])
        return {name: [Spread.of(list(each)) for each in zip(*lines, strict=False)] for name, lines in found.items()}

    def _information(self, part: StudyPart) -> StudySection:
        """Mutual information of leaves and labels, tree by tree."""
        tables, images = [], []
        for dataset, model, _ in self._pairs(part):
            found = [information_by_tree(task, self._out) for task in self._trained(part, dataset, model)]
            if not found:
                continue
            by_tree = [Spread.of(values.tolist()) for values in np.array(found).T]
            title, trees = f"{dataset.label}, mean of {len(found)} models", range(1, len(by_tree) + 1)
            images.append(curves(title, list(trees), {"mutual information": by_tree}, part.axis, "nats"))
            shown = [tree for tree in _TREES_SHOWN if tree <= len(by_tree)]
            cells = [FigureCell(ours=spread_figure(by_tree[tree - 1])) for tree in shown]
            header = tuple(f"tree {tree}" for tree in shown)
            tables.append(FigureTable(caption=title, header=header, rows=[(dataset.label, cells)]))
        return StudySection(part=part, tables=tables, images=images)

    def _distributions(self, part: StudyPart) -> StudySection:
        """Embeddings of both classes at each passive party in the first seed, and how far they overlap in all."""
        tables, images = [], []
        for dataset, model, _ in self._pairs(part):
            overlaps: dict[str, dict[str, list[float]]] = {}
            for task in sorted(self._trained(part, dataset, model), key=lambda each: each.seed):
                for name, by_party in embeddings_by_class(task, self.result.jobs[task], self._out).items():
                    target = _TARGETS.get(name, name)
                    for party in part.parties or tuple(by_party):
                        pair = by_party[party]
                        edges, shares = shared_histograms(pair)
                        found = overlaps.setdefault(party, {}).setdefault(target, [])
                        found.append(float(shares.min(axis=0).sum()))
                        if len(found) == 1:
                            lines = {f"class {at}": each.tolist() for at, each in enumerate(shares)}
                            title = f"{dataset.label}, {party}, fitted to {target}"
                            images.append(histograms(title, edges.tolist(), lines, "output"))
            if not overlaps:
                continue
            header = tuple(next(iter(overlaps.values())))
            rows = [
                (party, [FigureCell(ours=spread_figure(Spread.of(found[target]))) for target in header])
                for party, found in overlaps.items()
            ]
            caption = f"{dataset.label}: overlap of the classes' histograms, 1 where they are alike"
            tables.append(FigureTable(caption=caption, header=header, rows=rows))
        return StudySection(part=part, tables=tables, images=images)

    def _trained(self, part: StudyPart, dataset: StudyDataset, model: str) -> list[StudyTask]:
        """Return the trainings of a model in the first setting of a part that did not fail."""
        wanted = (part.settings[0], dataset, model)
        tasks = [each for each in self.result.jobs if (each.setting.name, each.dataset, each.model) == wanted]
        return [each for each in tasks if each.path not in self.result.failed]


def shared_histograms(pair: tuple[Floats, Floats], bins: int = 40) -> tuple[Floats, Floats]:
    """Return the edges of bins [bins + 1] over both groups, and the share of each group in every bin [2, bins].

    Bins reach from the .5 to the 99.5 percent quantile of all; what lies beyond is in the outermost ones.
    """
    low, high = np.quantile(np.concatenate(pair), [0.005, 0.995])
    edges = np.linspace(low, max(high, low + 1e-9), bins + 1)
    counts = [np.histogram(np.clip(each, edges[0], edges[-1]), edges)[0] for each in pair]
    return edges, np.array([each / max(each.sum(), 1) for each in counts])


_TARGETS = {NO_DEFENSE: "labels"}
_UNDEFENDED = DefenseSpec(family="undefended", chain=())


def _rate_cell(rate: Spread | None, counted: float, missing: str) -> FigureCell:
    """Return a rate, and in brackets how many numbers were counted; ``missing`` without one."""
    return FigureCell(ours=f"{spread_figure(rate)} ({count(counted)})" if rate else missing)


def _compare(ours: float, paper: float) -> str:
    return f"{decimals(ours, 3)} here, {decimals(paper, 3)} in the paper ({signed(ours - paper)})"


def write_study(report: StudyReport, out: Path) -> Path:
    """Write ``study.html`` into a study's folder, replacing it atomically; return its path.

    The page has no scripts and loads nothing; whatever results contain is escaped.

    Raises:
        DependencyError: Jinja is not installed.
        OutputError: the page cannot be written.
    """
    result = report.result
    page = render(
        "study/page.html.j2",
        study=report.study,
        result=result,
        verdict=report.verdict(),
        sections=report.sections,
        diverged=report.diverged,
        versions=study_versions(result, out),
    )
    return write_page(out / PAGE_FILE, page)
