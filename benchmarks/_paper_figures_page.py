"""The page of ``paper_figures.py``: tables of what is stored, the papers' figures beside ours.

Figures come from what is stored. What they are of, what the papers print and why ours differ is read from the
definitions of the studies, so that none of it is written twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from _page_cells import Series, markdown_table, mean_of, seeds_text, short_number, spread_cell

from labelward.metrics.registry import find_metric
from labelward.studies import find_study
from labelward.studies.references import COUNTED, NO_DEFENSE, NUMBERS, SUMS, UTILITY, FigureKey, ReferenceFigure
from labelward.studies.spec import PartForm, Study, StudyDataset, StudyPart, StudySetting

TREES = (1, 2, 3, 5, 10, 20, 30, 40, 50)
"""Trees whose information is stored and shown."""

_HEAD = """# Figures of three papers

Written by `benchmarks/paper_figures.py` from `benchmarks/results/paper-figures.json`, which has the figure of each
seed; not to be edited. Titles, the papers' figures and reasons are those of [the studies](how-to-studies.md).

Most figures of these papers are plots without numbers, so that most tables have ours only. A cell is the mean over the
seeds, and the least and the largest in brackets; fewer than five seeds are stated. Honest trainings that a defense
made diverge have no figure, and are counted. A dash is what was not run. What the paper prints is in italics.
"""
PAPERS = {
    "id2graph": "Leakage is the V-measure of the attacker's clusters; CL uses the attacker's own columns only.",
    "ica": "The attack is that of the CMOSB paper. Leakage is its accuracy on as many rows of each class.",
    "label-inference": "Leakage is the accuracy on the training rows whose labels the attacker does not know, unless a "
    "row or a column names another metric.",
}
"""What the page says of each study that it shows."""
_TRIED = {
    ("id2graph", "table 2"): "why-figures-differ-by-more-than-05",
    ("id2graph", "table 3"): "table-3-of-the-id2graph-paper-what-defenses-cost",
    ("label-inference", "table 2"): "the-active-attack-at-its-best-rate",
    ("label-inference", "table 3"): "the-active-attack-at-its-best-rate",
    ("label-inference", "table 4"): "the-active-attack-at-its-best-rate",
    ("label-inference", "table 6"): "table-6-defenses-against-the-direct-attack",
    ("label-inference", "ten parties"): "figures-2-3-and-5",
    ("label-inference", "overlap"): "figures-2-3-and-5",
    ("label-inference", "appendix e"): "appendix-e-breast-cancer",
    ("label-inference", "second step"): "appendix-e-breast-cancer",
}
"""Where docs/ref-studies.md says what was tried, by study and part."""
_FAR = 0.05
"""A difference from the paper that is listed."""


def tree_column(number: int) -> str:
    """Return the column that has the information of a tree, counted from 1."""
    return f"tree {number}"


def page_of(stored: Mapping[str, Any]) -> str:
    """Return the page in Markdown."""
    papers = [_Paper.of(find_study(name), stored["figures"].get(name, {})) for name in PAPERS]
    return "\n".join([_HEAD, *(section for paper in papers for section in _sections(paper)), *_differences(papers)])


class _Paper(NamedTuple):
    """A study, and its figures by setting and key."""

    study: Study
    found: Mapping[tuple[str, FigureKey], Series]
    diverged: Mapping[tuple[str, FigureKey], int]  # trainings that a defense broke, which have no figure

    @classmethod
    def of(cls, study: Study, stored: Mapping[str, Any]) -> _Paper:
        """Return a study with its stored figures, which are nested by setting and by what a key has."""
        given = {
            (setting, FigureKey(dataset, model, defense, column)): series
            for setting, by_dataset in stored.items()
            for dataset, by_model in by_dataset.items()
            for model, by_defense in by_model.items()
            for defense, by_column in by_defense.items()
            for column, series in by_column.items()
        }
        found = {
            place: {seed: value for seed, value in series.items() if value is not None}
            for place, series in given.items()
        }
        lost = {place: len(series) - len(found[place]) for place, series in given.items()}
        return cls(
            study,
            {place: series for place, series in found.items() if series},
            {place: count for place, count in lost.items() if count},
        )

    @property
    def title(self) -> str:
        return self.study.title.partition(":")[0]

    def setting(self, name: str) -> StudySetting:
        return next(each for each in self.study.settings if each.name == name)

    def rows(self, part: StudyPart) -> Iterator[tuple[str, str]]:
        """Yield the dataset's name in keys, and its title, once for each metric of a dataset."""
        for dataset in self.study.datasets_of(part, self.study.datasets):
            for name, utility, _ in dataset.metrics():
                metric = f", {find_metric(utility).title}" if dataset.extra_metrics else ""
                yield name, _name(dataset) + metric

    def defenses(self, part: StudyPart, model: str) -> list[str]:
        """Return the names of the defenses that a part shows."""
        defenses = self.setting(part.settings[0]).defenses.get(model, ())
        return [each.name for each in defenses if not part.defenses or each.family in part.defenses]

    def models(self, part: StudyPart) -> dict[str, str]:
        """Return titles of models by name; they are empty where a part has one model."""
        names = self.study.models_of(part)
        return {name: self.study.models[name].title if len(names) > 1 else "" for name in names}

    def defended(self, part: StudyPart) -> Iterator[tuple[StudyDataset, str, str]]:
        """Yield dataset, model and the title of both."""
        for dataset in _shown(self, part):
            for model, title in self.models(part).items():
                yield dataset, model, ", ".join(filter(None, (_name(dataset), title)))


def _name(dataset: StudyDataset) -> str:
    """Return the paper's title; of a substitute the name of what it is."""
    return f"`{dataset.name}`" if dataset.substitute else dataset.title


def _place(part: StudyPart) -> str:
    return _capitalized(part.name)


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _printed(figure: ReferenceFigure | None) -> str:
    """Return what a paper prints as text; empty where it prints nothing."""
    if figure is None:
        return ""
    spread = "" if figure.std is None else f"±{short_number(figure.std)}"
    return f"*{short_number(figure.mean)}{spread}*"


# -- sections ----------------------------------------------------------------------------------------------------------


def _sections(paper: _Paper) -> list[str]:
    """Return the head of a paper and its parts with figures; nothing where none is stored."""
    parts = [text for part in paper.study.parts if (text := _part(paper, part))]
    return [_introduction(paper), *parts] if parts else []


def _introduction(paper: _Paper) -> str:
    study, present = paper.study, {key.dataset for _, key in paper.found}
    sentences = [
        f"`labelward study {study.name}`: {seeds_text([len(series) for series in paper.found.values()])}.",
        PAPERS[study.name],
        study.remarks,
        *(
            f"`{each.name}` is a substitute for {each.title}: {each.substitute}."
            for each in study.datasets
            if each.substitute and each.name in present
        ),
    ]
    return f"## {paper.title}\n\n{' '.join(filter(None, sentences))}\n"


def _part(paper: _Paper, part: StudyPart) -> str:
    """Return the section of a table or figure; empty without stored figures."""
    tables = "\n".join(_FORMS[part.form](paper, part))
    if not tables:
        return ""
    head = f"### {paper.title}, {_place(part)}: {part.title[0].lower()}{part.title[1:]}"
    return "\n\n".join(filter(None, (head, part.about, tables)))


def _captioned(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    table = markdown_table(heads, rows)
    return f"{_capitalized(caption)}:\n\n{table}" if caption else table


def _grid(paper: _Paper, part: StudyPart) -> Iterator[str]:
    """Yield a table for each model: datasets by columns, what the paper prints below ours."""
    utility = dict.fromkeys(find_metric(each.utility_metric).title for each in _shown(paper, part))
    heads = ("", " or ".join(utility), *part.columns)
    for model, caption in paper.models(part).items():
        rows = []
        for name, title in paper.rows(part):
            keys = [FigureKey(name, model, NO_DEFENSE, column) for column in (UTILITY, *part.columns)]
            series = [paper.found.get((part.settings[0], key)) for key in keys]
            if any(series[1:]):
                rows.append([title, *map(spread_cell, series)])
                printed = [_printed(paper.study.printed.get((part.name, key))) for key in keys]
                rows += [["*paper*", *printed]] if any(printed) else []
        if rows:
            yield _captioned(caption, heads, rows)


def _shown(paper: _Paper, part: StudyPart) -> Iterator[StudyDataset]:
    """Yield the datasets of which a part has figures."""
    for dataset in paper.study.datasets_of(part, paper.study.datasets):
        if any(place in part.settings and key.dataset == dataset.name for place, key in paper.found):
            yield dataset


def _curves(paper: _Paper, part: StudyPart) -> Iterator[str]:
    """Yield a table for each model: columns of each dataset over the axis; a single point is no curve."""
    settings = [paper.setting(name) for name in part.settings]
    metrics = {
        name: find_metric(utility).title
        for dataset in paper.study.datasets_of(part, paper.study.datasets)
        for name, utility, _ in dataset.metrics()
    }
    for model, caption in paper.models(part).items():
        common = paper.study.models[model].spec.params
        values = [common[part.axis] if each.axis_value is None else each.axis_value for each in settings]
        rows = []
        for name, title in paper.rows(part):
            heads = {UTILITY: f"{metrics[name]} of the model"}
            lines = {
                column: [paper.found.get((each.name, FigureKey(name, model, NO_DEFENSE, column))) for each in settings]
                for column in (UTILITY, *part.columns)
            }
            shown = {column: line for column, line in lines.items() if sum(map(bool, line)) > 1}
            if shown.keys() - {UTILITY}:
                rows += [[title, heads.get(column, column), *map(spread_cell, line)] for column, line in shown.items()]
        if rows:
            by_axis = ", ".join(filter(None, (caption, f"by {part.axis}")))
            yield _captioned(by_axis, ("", "", *(f"{value:g}" for value in values)), rows)


def _trade_off(paper: _Paper, part: StudyPart) -> Iterator[str]:
    """Yield a table for each dataset and model: defenses by utility and leakage, each beside what the paper prints."""
    columns = (UTILITY, *part.columns)
    for dataset, model, title in paper.defended(part):
        lines = {
            name: [FigureKey(dataset.name, model, name, column) for column in columns]
            for name in (NO_DEFENSE, *paper.defenses(part, model))
        }
        keys = [key for line in lines.values() for key in line]
        printed = {key: paper.study.printed[part.name, key] for key in keys if (part.name, key) in paper.study.printed}
        both = {key.column for key in printed}
        rows = [
            [name, *itertools.chain(*(_beside(paper, part, key, key.column in both) for key in line))]
            for name, line in lines.items()
            if any((part.settings[0], key) in paper.found for key in line)
        ]
        if rows:
            titles = zip(columns, (find_metric(dataset.utility_metric).title, *part.columns), strict=True)
            heads = [head for column, head in titles for head in (head, *(["*paper*"] * (column in both)))]
            yield _captioned(title + _baseline(paper, part, dataset, model), ("defense", *heads), rows)


def _beside(paper: _Paper, part: StudyPart, key: FigureKey, both: bool) -> list[str]:
    """Return a cell, and what the paper prints if both are asked for."""
    place = part.settings[0], key
    cell = spread_cell(paper.found.get(place))
    if count := paper.diverged.get(place):
        cell += f"; {count} diverged"
    return [cell, _printed(paper.study.printed.get((part.name, key)))] if both else [cell]


def _baseline(paper: _Paper, part: StudyPart, dataset: StudyDataset, model: str) -> str:
    """Return the undefended figure of the column that plots draw as a horizontal line, in brackets."""
    key = FigureKey(dataset.name, model, NO_DEFENSE, part.baseline)
    series = paper.found.get((part.settings[0], key))
    return f" (undefended {part.baseline} {spread_cell(series)})" if series else ""


def _rates(paper: _Paper, part: StudyPart) -> Iterator[str]:
    """Yield two tables for each model: encrypted sums by defense and dataset, relative to the undefended training's.

    The second counts the encrypted rows, too; the paper's figures, which do so, stand in both.
    """
    sides = []
    for (model, caption), counted in itertools.product(paper.models(part).items(), COUNTED):
        datasets = [each for each in _shown(paper, part) if _relative(paper, part, model, each, counted)]
        rows = []
        for defense in paper.defenses(part, model) if datasets else ():
            mean = _mean_rate(paper, part, FigureKey("", model, defense, counted))
            rates = [_relative(paper, part, model, each, counted).get(defense) for each in datasets]
            printed = paper.study.printed.get((part.name, FigureKey("", model, defense, SUMS)))
            rows.append([defense, short_number(mean), _printed(printed), *map(spread_cell, rates)])
            if printed and mean is not None and counted == SUMS and defense in paper.study.judged_rates:
                sides.append((mean < 1) == (printed.mean < 1))
        if rows:
            header = ("defense", "mean", "*paper*", *map(_name, datasets))
            yield _captioned(f"{caption}, {COUNTED[counted]}", header, rows)
    if sides:
        yield f"Sums on the paper's side of 1: {sum(sides)} of the {len(sides)} that are judged.\n"


def _relative(paper: _Paper, part: StudyPart, model: str, dataset: StudyDataset, counted: str) -> dict[str, Series]:
    """Return by defense what is counted relative to the undefended training, seed by seed."""
    names = {
        defense: paper.found.get((part.settings[0], FigureKey(dataset.name, model, defense, counted)), {})
        for defense in (NO_DEFENSE, *paper.defenses(part, model))
    }
    undefended = names.pop(NO_DEFENSE)
    rates = {
        name: {seed: value / undefended[seed] for seed, value in numbers.items() if undefended.get(seed)}
        for name, numbers in names.items()
    }
    return {name: rate for name, rate in rates.items() if rate}


def _mean_rate(paper: _Paper, part: StudyPart, key: FigureKey) -> float | None:
    """Return the mean over datasets of the means over seeds, of the model, defense and count of a key."""
    found = [_relative(paper, part, key.model, each, key.column).get(key.defense) for each in _shown(paper, part)]
    means = [mean_of(rates) for rates in found if rates]
    return float(np.mean(means)) if means else None


def _information(paper: _Paper, part: StudyPart) -> Iterator[str]:
    """Yield a table for each model: datasets by trees."""
    columns = [tree_column(number) for number in TREES]
    for model, caption in paper.models(part).items():
        rows = []
        for dataset in _shown(paper, part):
            keys = [FigureKey(dataset.name, model, NO_DEFENSE, column) for column in columns]
            line = [paper.found.get((part.settings[0], key)) for key in keys]
            if any(line):
                rows.append([_name(dataset), *map(spread_cell, line)])
        if rows:
            yield _captioned(caption, ("", *columns), rows)


_FORMS: Mapping[PartForm, Callable[[_Paper, StudyPart], Iterator[str]]] = {
    "grid": _grid,
    "curves": _curves,
    "trade-off": _trade_off,
    "rates": _rates,
    "information": _information,
}
"""Forms that parts of these studies have."""


# -- differences from the papers ---------------------------------------------------------------------------------------


def _differences(papers: Sequence[_Paper]) -> list[str]:
    """Return the section on figures that are not reached; nothing where no printed figure was run."""
    rows: list[list[str]] = []
    compared = 0
    for paper in papers:
        for part in paper.study.parts:
            for key, ours, printed in _compared(paper, part):
                compared += 1
                if round(abs(ours - printed.mean), 6) > _FAR:
                    reason = _reason(paper, part, key, ours)
                    rows.append([_what(paper, part, key), _printed(printed), short_number(ours), reason])
    if not compared:
        return []
    found = (
        f"Of the figures that a paper prints and that were run here, {len(rows)} of {compared} differ by more than "
        f"{short_number(_FAR, 2)}."
    )
    table = [markdown_table(("figure", "paper", "ours", "reason"), rows)] if rows else []
    return [f"## Where the paper's figures are not reached\n\n{found}\n", *table]


def _compared(paper: _Paper, part: StudyPart) -> Iterator[tuple[FigureKey, float, ReferenceFigure]]:
    """Yield key, our mean and the printed figure where there are both."""
    for (name, key), printed in paper.study.printed.items():
        if name != part.name:
            continue
        if part.form == "rates":
            counted = (_mean_rate(paper, part, key._replace(column=column)) for column in (NUMBERS, SUMS))
            ours = next((rate for rate in counted if rate is not None), None)
        else:
            series = paper.found.get((part.settings[0], key))
            ours = mean_of(series) if series else None
        if ours is not None:
            yield key, ours, printed


def _what(paper: _Paper, part: StudyPart, key: FigureKey) -> str:
    """Return a figure's place in words."""
    names = [_name(each) for each in paper.study.datasets if each.name == key.dataset]
    defense = "" if key.defense == NO_DEFENSE else key.defense
    column = "cost" if part.form == "rates" else key.column
    words = (paper.title, _place(part), *names, paper.models(part)[key.model], defense, column)
    return ", ".join(filter(None, words))


def _reason(paper: _Paper, part: StudyPart, key: FigureKey, ours: float) -> str:
    """Return why a figure differs from the printed one, as far as the study knows it."""
    study = paper.study
    dataset = next((each for each in study.datasets if each.name == key.dataset), None)
    column = next((each for each in study.columns if each.title == key.column), None)
    printed = study.printed[part.name, key]
    reference = study.reference.get(key) if paper.setting(part.settings[0]).has_references else None
    reasons = [f"a substitute for {dataset.title}" if dataset and dataset.substitute else ""]
    reasons += [dataset.reason if dataset else "", part.reason, column.reason if column else ""]
    if reference is not None and reference.within is not None:
        reasons.append(f"an independent implementation has {short_number(reference.mean)}")
    elif column:
        reasons.append(column.reason_unless_judged)
    if printed.std is not None and abs(ours - printed.mean) <= printed.std:
        reasons.append("within the paper's standard deviation over its seeds")
    if tried := _TRIED.get((study.name, part.name)):
        reasons.append(f"[what was tried](ref-studies.md#{tried})")
    return "; ".join(filter(None, reasons)) or "not known"
