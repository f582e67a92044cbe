"""CMOSB: Table IV and Figures 6 to 11 of the paper: strategies of search compared.

The searches of a start have the same rows and the same number of evaluations, but for the empirical settings, of which
there are three, and ``tpe``, which has a tenth and counts the first trees of each model as settings. Utility is
measured on validation rows, a third of those that are no test rows; leakage is the accuracy of instance clustering with
one known row; cost is that of a textbook Paillier without packing. Ranges, population and seconds of an operation are
ours, since the paper's are lost; so is what its figures were normalized by.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from labelward.job import ComponentSpec, TuneSection
from labelward.studies.instance_clustering import INSTANCE_CLUSTERING
from labelward.studies.references import load_figures
from labelward.studies.searches import FIXED, POOLED, WITHIN
from labelward.studies.spec import MetricColumn, Study, StudyModel, StudyPart, StudySetting

_UNITS = {"encrypt": 0.0087, "decrypt": 0.0024, "add": 0.000037}
"""Seconds of a textbook Paillier of 2048 bits."""
_LEAKAGE, _COST = {"leakage": 0.6}, {"cost": 100.0}
_ATTACK = ComponentSpec("instance-clustering")
_BASELINES = ("empirical", "grid", "bayes", "mosb", "tpe")
_LIMITED = ("mosb", "penalty-leakage", "penalty-cost", "first-leakage", "first-cost")
_BOTH = ("mosb", "penalty-both", "first-both")


def _search(title: str, evaluations: int, search: str, *, prefixes: bool = False, **more: Any) -> StudyModel:
    """Return a strategy, as the model of a task."""
    section = TuneSection(
        search=search,  # type: ignore[arg-type]
        evaluations=evaluations,
        cost="unpacked",
        units=_UNITS,
        leakage="ica",
        validation=1 / 3,
        confirm=0,
        prefixes=prefixes,
        **more,
    )
    return StudyModel(
        title=title, spec=ComponentSpec("secureboost", {"bins": 32, "candidates": "node"}), search=section
    )


def _searches(evaluations: int) -> dict[str, StudyModel]:
    """Return all strategies, each with so many evaluations."""
    found = {
        "empirical": _search("empirical settings", evaluations, "empirical"),
        "grid": _search("grid", evaluations, "grid"),
        "bayes": _search("Bayesian optimization", evaluations, "bayes"),
        "random": _search("random", evaluations, "random"),
        "mosb": _search("NSGA-II (MOSB)", evaluations, "nsga2"),
        "tpe": _search("tpe, first trees counted, a tenth of the trainings", evaluations // 10, "tpe", prefixes=True),
    }
    for name, limits in (("leakage", _LEAKAGE), ("cost", _COST), ("both", _LEAKAGE | _COST)):
        for rule, handling in (("penalty", "penalty"), ("first", "feasible-first")):
            title = f"CMOSB, limit of {name}, {handling}"
            found[f"{rule}-{name}"] = _search(title, evaluations, "nsga2", handling=handling, constraints=limits)
    return found


def _plots(number: int, title: str, models: tuple[str, ...], axis: str = "", **more: Any) -> StudyPart:
    return StudyPart(
        name=f"figure {number}", title=title, form="fronts", settings=("searches",), models=models, axis=axis, **more
    )


SMALL = Study(
    name="cmosb",
    title="CMOSB: utility, cost and leakage of boosted trees tuned together",
    datasets=INSTANCE_CLUSTERING.datasets,
    models=_searches(200),
    columns=tuple(
        MetricColumn(title=title, attack=_ATTACK, metric="hypervolume") for title in (POOLED, FIXED, *WITHIN)
    ),
    settings=(StudySetting(name="searches"),),
    parts=(
        StudyPart(
            name="table 4",
            title="Hypervolume of each strategy",
            form="grid",
            settings=("searches",),
            columns=(POOLED, FIXED),
            models=_BASELINES,
            about="Pooled: each objective between the least and the largest value that any search of the same start "
            "found, as in the paper; it moves with what else is pooled. The other: between utility loss 0 and .5, "
            "leakage 1/C and 1, cost 0 and that of the dearest setting. The first column is the best utility found.",
            reason="the paper's ranges, budgets and normalization are not printed",
        ),
        StudyPart(
            name="random",
            title="Hypervolume of random settings",
            form="grid",
            settings=("searches",),
            columns=(POOLED, FIXED),
            models=("random", "mosb"),
            about="Not in the paper. Pooled with the other searches of the same request.",
            on_request=True,
        ),
        _plots(6, "NSGA-II and the grid", ("empirical", "grid", "mosb"), about="Three sides of the paper's plots."),
        _plots(7, "NSGA-II and Bayesian optimization", ("empirical", "bayes", "mosb")),
        _plots(8, "Cost and utility", ("empirical", "grid", "bayes", "mosb"), "cost"),
        _plots(9, "Leakage and utility", ("empirical", "grid", "bayes", "mosb"), "leakage"),
        StudyPart(
            name="figure 10",
            title="Hypervolume within one limit, by generation",
            form="generations",
            settings=("searches",),
            columns=WITHIN[:2],
            models=_LIMITED,
            datasets=("synthetic1",),
            axis="generation",
            about="Of the settings within the limit, between fixed bounds.",
        ),
        _plots(11, "Fronts under one limit", _LIMITED, datasets=("synthetic1",)),
        StudyPart(
            name="both limits",
            title="Hypervolume within both limits, by generation",
            form="generations",
            settings=("searches",),
            columns=WITHIN[2:],
            models=_BOTH,
            datasets=("synthetic1",),
            axis="generation",
            about="Not in the paper.",
            on_request=True,
        ),
    ),
    test_size=1 / 3,
    first_seed=0,
    seeds=5,
    printed=load_figures("cmosb").printed,
    metric="hypervolume",
)
"""With 200 evaluations for each search."""

CMOSB = replace(SMALL, full=replace(SMALL, models=_searches(800)))
