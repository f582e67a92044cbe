"""The page of ``holder_study.py``: tables of what is stored, the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from _page_cells import Series, markdown_table, mean_of, seeds_text, short_number, spread_cell

Figures = Mapping[str, Any]

_HEAD = """# Figures of PIVODL

Written by `benchmarks/holder_study.py` from `benchmarks/results/holder-study.json`, which has the figure of each seed;
not to be edited. [PIVODL](explanation-what-each-party-sees.md#pivodl) says what the attacks read.

`labelward study pivodl` on the data sets of the paper with its settings: four parties, depth 3, five trees, learning
rate .3, λ 1, 32 buckets, labels dealt evenly, a fifth of the rows for tests, sums under masks. c = 1 and δ = 1e-5 are
ours, since the paper gives none; ε is the paper's, and the exact one of five trees at ε 8 is 12.27. Categories are
columns of zeros and ones, as in all studies, which is not the default of jobs. Means over the seeds, and the least and
the largest in brackets; a dash is what was not run, and fewer than five seeds are said.
"""
_TITLES = {"credit_default": "credit card", "bank_marketing": "bank marketing", "appliances_energy": "energy"}
_AXES = {
    "parties": (6, (2, 4, 6, 8, 10), "number of parties"),
    "depth": (7, (2, 3, 4, 5, 6), "depth"),
    "trees": (8, (2, 3, 4, 5, 6), "number of trees"),
}
_PRINTED_CHANGE = -0.8
"""Percent by which noise changes the test RMSE of energy in the paper, with four parties."""
_FAR = 0.05
"""A difference from the paper that is listed."""


def page_of(found: Figures) -> str:
    """Return the page in Markdown."""
    sections = (_guesses, _attacks, _systems, _curves, _energy, _costs, _far)
    return "\n".join([_HEAD, *(text for section in sections if (text := section(found)))])


def _at(found: Figures, *names: str) -> Any:
    """Return what lies at a path, or None."""
    place: Any = found
    for name in names:
        if not isinstance(place, Mapping) or name not in place:
            return None
        place = place[name]
    return place


def _seeds(place: Any) -> str:
    """Return how many seeds the figures below a place have, as text."""
    counts = {*_counts(place)}
    return seeds_text(counts) if counts else "no seeds yet"


def _counts(place: Any) -> Iterator[int]:
    if isinstance(place, Mapping):
        if place and all(str(key).isdigit() for key in place):
            yield len(place)
        else:
            for each in place.values():
                yield from _counts(each)


def _guesses(found: Figures) -> str:
    """Return Table III with what stands beside it."""
    columns = {
        "guess": "guess accuracy",
        "or its opposite": "or of the opposite",
        "most frequent class": "most frequent class",
        "balanced": "guess, balanced",
        "AUC of the guess": "guess, AUC",
        "AUC of node sums": "node sums, AUC",
        "own columns and labels": "own columns and labels, AUC",
        "AUC of the model": "AUC of the model",
    }
    parts = [
        "## Table III: guessed labels\n\nThe last party guesses the labels that others hold (`leaf-weights`); *paper* "
        "is the accuracy that it prints.\n"
    ]
    for table in ("credit_default", "bank_marketing"):
        ours = _at(found, "study", "epsilon", table, "masked") or {}
        rows = [
            [
                name,
                short_number(_at(found, "printed", "table 3", table, "masked", name, "guess accuracy")),
                *(spread_cell(of.get(column), 2) for column in columns.values()),
            ]
            for name, of in sorted(ours.items(), key=lambda each: _rank(each[0]))
        ]
        parts.append(
            f"{_TITLES[table].capitalize()}, {_seeds(ours)}:\n\n{markdown_table(('defense', 'paper', *columns), rows)}"
        )
    return "\n".join(parts)


def _rank(defense: str) -> tuple[str, float]:
    """Order defenses by name and strength; none comes first."""
    name, _, strength = defense.rpartition(" ")
    return ("", 0.0) if defense == "none" else ("~" * (not name.startswith("partial")) + name, float(strength))


def _attacks(found: Figures) -> str:
    stored = found.get("attacks")
    if not stored:
        return ""
    kinds = ("node-sums", "split-gains", "leaf-weights", "bin-bounds")
    rows = [
        [
            _TITLES[table],
            f"`{defense}`" if defense != "none" else "none",
            *(
                "; ".join(spread_cell(by_seed) for by_seed in of[kind].values()) if kind in of else "–"
                for kind in kinds
            ),
        ]
        for table, by_defense in stored.items()
        for defense, of in sorted(
            by_defense.items(),
            key=lambda each: ("none", "partial-dp").index(each[0]) if each[0] in ("none", "partial-dp") else 2,
        )
    ]
    return (
        f"## Attacks of every party\n\n{_seeds(stored).capitalize()}. "
        "The means over all four parties: AUC; balanced accuracy; for `bin-bounds` also the share of the labels that "
        "are read one by one, for which five trees are too few beside so many rows "
        "(50 trees of depth 5 are enough). ε = 8, δ = 1e-5. "
        "What everybody is told of nodes ranks the labels of others, with noise on leaf weights or without.\n\n"
        + markdown_table(("data set", "defense", *(f"`{kind}`" for kind in kinds)), rows)
    )


def _systems(found: Figures) -> str:
    """Return Table IV."""
    titles = {
        "masked": "PIVODL",
        "secureboost": "SecureBoost",
        "federboost": "FederBoost without noise, the paper's PIVODL for one label holder",
    }
    rows = []
    for model, title in titles.items():
        row = [title]
        for name in ("credit_default", "credit_default, auc"):
            row += [
                short_number(_at(found, "printed", "table 4", name, model, "none", "utility"), 4),
                spread_cell(_at(found, "study", "parties-4", name, model, "none", "utility"), 4),
            ]
        rows.append(row)
    heads = ("system", "accuracy, paper", "accuracy", "AUC, paper", "AUC")
    return (
        "## Table IV: systems on credit card\n\n"
        f"{_seeds(_at(found, 'study', 'parties-4', 'credit_default')).capitalize()}. "
        "The paper's figures of PIVODL are those of one label holder. It gives "
        "Pivot .8251 and no AUC; `pivot` grows one tree of at most 10,809 training rows here, so it is not in the "
        f"table.\n\n{markdown_table(heads, rows)}"
    )


def _curves(found: Figures) -> str:
    """Return Figures 6 to 8."""
    parts = [
        "## Figures 6 to 8: utility\n\nThe paper prints plots: accuracy of about .82 on credit card and .90 on bank "
        "marketing everywhere; on credit card .80 with noise and two parties; on energy a test RMSE that falls with "
        "depth and trees, and with noise is .8 % lower than without at four parties. "
        "The point that the three figures share is one training.\n"
    ]
    metrics = {
        "credit_default": ("accuracy", 4),
        "credit_default, auc": ("AUC", 3),
        "bank_marketing": ("accuracy", 4),
        "bank_marketing, auc": ("AUC", 3),
        "appliances_energy": ("RMSE", 2),
    }
    for axis, (number, values, title) in _AXES.items():
        rows, part = [], found.get("study" if axis == "parties" else "curves", {})
        shown = {name: part[name] for value in values if (name := f"{axis}-{value}") in part}
        for name, (metric, places) in metrics.items():
            for defense in ("none", "partial DP 8"):
                cells = [
                    spread_cell(_at(part, f"{axis}-{value}", name, "masked", defense, "utility"), places)
                    for value in values
                ]
                rows.append([f"{_TITLES[name.partition(',')[0]]}, {metric}", defense, *cells])
        parts.append(
            f"Figure {number}, by {title}, {_seeds(shown)}:\n\n"
            + markdown_table(("", "defense", *(str(value) for value in values)), rows)
        )
    return "\n".join(parts)


def _energy(found: Figures) -> str:
    stored = _at(found, "energy", "by trees")
    if not stored:
        return ""
    target = found["energy"]["printed training"]
    rows = [[trees, spread_cell(of["training"], 1), spread_cell(of["test"], 1)] for trees, of in stored.items()]
    reached = [trees for trees, of in stored.items() if mean_of(of["training"]) <= target]
    so = f"the first below that reach it are {reached[0]}" if reached else "none of those below reach it"
    first = next(iter(stored.values()))["training"]
    return (
        f"## Energy: the training RMSE of {target} is not reached\n\nThe paper prints a training RMSE of {target} "
        "without noise and 70.9 with it, at its default of five trees of depth 3. "
        f"Ours is {spread_cell(first, 1)}; {so}. "
        "The trees are those of the joined table, so that no loss in the protocol explains the gap; settings that the "
        "paper does not print may. Tried: deeper trees and more of them, all else equal.\n\n"
        + markdown_table(("trees", "training RMSE", "test RMSE"), rows)
    )


def _costs(found: Figures) -> str:
    """Return Figures 10 to 16."""
    stored = found.get("costs")
    if not stored or not any("encrypted" in setting.get("credit_default", {}) for setting in stored.values()):
        return (
            "## Figures 10 to 16: time and traffic\n\nNot run for this page; `labelward study pivodl --figure 10` runs "
            "the first of them. [Benchmarks](ref-benchmarks.md#labels-on-several-parties) have seconds, encryptions "
            "and bytes under a key of 2048 bits and with masks, beside SecureBoost, and their growth.\n"
        )
    parts = [
        "## Figures 10 to 15: time and traffic\n\nCredit card, **one seed, on a busy machine**: wall seconds; those "
        "of the processor stand in [benchmarks](ref-benchmarks.md#labels-on-several-parties). Left out: the other data "
        "sets and four seeds. Paillier has 2048 bits here and 512 in the paper, which prints plots of up to 800 s and "
        "of hundreds of megabytes.\n"
    ]
    for axis, (_, values, title) in _AXES.items():
        rows = []
        for model, name in (("masked", "masks"), ("encrypted", "Paillier")):
            for column in ("seconds", "megabytes"):
                cells = [
                    _first(_at(stored, f"{axis}-{value}", "credit_default", model, "none", column)) for value in values
                ]
                rows.append([f"{name}, {column}", *cells])
        parts.append(f"By {title}:\n\n{markdown_table(('', *(str(value) for value in values)), rows)}")
    heads = ("depth", *(str(value) for value in _AXES["depth"][1]))
    rows = [
        [
            name,
            *(
                _first(_at(stored, f"depth-{depth}", "credit_default", model, "none", "seconds"))
                for depth in _AXES["depth"][1]
            ),
        ]
        for model, name in (("encrypted-secureboost", "SecureBoost, Paillier"), ("federboost", "FederBoost"))
    ]
    parts.append(f"## Figure 16: seconds with one label holder\n\n{markdown_table(heads, rows)}")
    return "\n".join(parts)


def _first(series: Series | None) -> str:
    """Return the figure of the first seed as text."""
    return short_number(next(iter(series.values())) if series else None, 1)


def _far(found: Figures) -> str:
    """Return the printed figures that differ from ours by more than :data:`_FAR`."""
    rows = []
    for part, setting in (("table 3", "epsilon"), ("table 4", "parties-4")):
        for table, by_model in (_at(found, "printed", part) or {}).items():
            for model, by_defense in by_model.items():
                for defense, columns in by_defense.items():
                    for column, paper in columns.items():
                        ours = _at(found, "study", setting, table, model, defense, column)
                        if ours and abs(mean_of(ours) - paper) > _FAR:
                            number = "III" if part == "table 3" else "IV"
                            place = f"Table {number}, {_TITLES[table.partition(',')[0]]}, {defense}, {column}"
                            rows.append([place, short_number(paper), spread_cell(ours, 2)])
    with_noise, without = (
        _at(found, "study", "parties-4", "appliances_energy", "masked", defense, "utility")
        for defense in ("partial DP 8", "none")
    )
    if with_noise and without:
        change = {seed: 100 * (value / without[seed] - 1) for seed, value in with_noise.items() if seed in without}
        place = "Figure 6, energy, change of the test RMSE by partial DP 8, percent"
        rows.append([place, str(_PRINTED_CHANGE), spread_cell(change, 1)])
    return (
        "## Where the paper's figures are not reached\n\n"
        f"All that differ by more than {short_number(_FAR, 2)}, "
        "beside the training RMSE of energy. Two independent implementations did not reach the guess accuracies "
        "either; the paper's Table III (40.93 % at ε 10, 23.02 at 4) contradicts its text (27 and 45). An accuracy far "
        "below one half tells as much as one above, and that of the most frequent class is higher than most.\n\n"
        + markdown_table(("figure", "paper", "ours"), rows)
    )
