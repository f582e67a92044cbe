"""As good as joined training: federated trees beside XGBoost and scikit-learn on the joined table.

Usage: python benchmarks/quality.py [--datasets NAME ...] [--seeds N ...] [--json FILE]

A seed draws test rows and which party holds which columns. Two parties train 20 trees of depth 5 under the plain
engine: trees, and so these figures, do not depend on the engine.

Boosted trees, learning rate 0.3, 32 bins, are compared with XGBoost ``hist`` on the joined table of the same bins, with
the same parameters, ``base_score`` and ``multi_strategy``. XGBoost 3.2 has no categories in trees of several outputs:
there, both sides learn from dummies; elsewhere from categories.

Forests, 80% of the rows and of each party's columns for each tree, every value a candidate, are compared with one
scikit-learn tree on the same rows and columns for each tree, probabilities averaged. Both learn from dummies.

The six real tables are read from the folder that LABELWARD_DATA names; without it three small ones stand for them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from _wiring import labels_of, processor, train
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from labelward.data import load_dataset
from labelward.he import engine
from labelward.job import parse_job
from labelward.kernels.binning import bin_codes, bin_columns, missing_code
from labelward.metrics.utility import class_scores, regression_scores
from labelward.protocols.secureboost.column_binner import ColumnBinner
from labelward.protocols.secureboost.inputs import Columns
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel
from labelward.protocols.secureboost.row_encoding import sample_rows
from labelward.protocols.secureboost.targets import fitted_objective
from labelward.rng import PrivateSeed

Floats = NDArray[np.float64]
Side = tuple[Floats, float]
"""Margins of the test rows, and seconds."""

REAL = ("credit_default", "bank_marketing", "phishing", "avila", "obesity", "appliances_energy")
SMALL = ("breast_cancer", "digits", "diabetes")
SEEDS = (1, 2, 3, 4, 5)
DRAWS = 1  # the seed of the learning draws with which the wiring trains
SAME = 1e-4  # margins are of order 1; XGBoost keeps gradients in 32 bits
BOOSTED = SecureBoost(trees=20, depth=5, bins=32)
FOREST = FederatedForest(trees=20, depth=5, row_fraction=0.8, feature_fraction=0.8, candidates="all")


@dataclass(frozen=True)
class Table:
    """A data set, split; the active party first, rows alike at both parties."""

    train: dict[str, Columns]
    test: dict[str, Floats]
    values: Floats
    test_values: Floats
    classes: int

    def joined(self) -> tuple[Floats, Floats, dict[int, int]]:
        """Return training and test rows of the joined table, and the number of categories of some columns."""
        categories: dict[int, int] = {}
        before = 0
        for columns in self.train.values():
            categories |= {before + place: len(names) for place, names in columns.categories.items()}
            before += len(columns.names)
        return np.hstack([one.x for one in self.train.values()]), np.hstack([*self.test.values()]), categories


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two trainings on one table.

    Attributes:
        ours, theirs: the metric on the test rows: AUC (of several classes the mean of each against the rest), RMSE for
            quantities.
        difference: what ours is worse by: of AUC, or as a share of their RMSE.
        same: share of the test rows whose margins are the same.
        seconds: of our training and theirs.
    """

    dataset: str
    model: str
    metric: str
    seed: int
    ours: float
    theirs: float
    difference: float
    same: float
    seconds: tuple[float, float]


def load(name: str, seed: int, categories: str) -> Table:
    """Return a table of the catalog, or scikit-learn's diabetes, as a seed splits it."""
    if name == "diabetes":
        return _diabetes(seed)
    job = parse_job(
        {
            "data": {"table": name, "categories": categories},
            "parties": {"active": 0.5, "passive": 0.5},
            "encryption": {"engine": "plain", "insecure": True},
        }
    )
    data = load_dataset(job, seed)
    return Table(
        train={party.name: Columns(party.columns, party.train, party.categories) for party in data.parties},
        test={party.name: party.test for party in data.parties},
        values=data.train_values,
        test_values=data.test_values,
        classes=len(data.classes),
    )


def _diabetes(seed: int) -> Table:
    x, y = load_diabetes(return_X_y=True)
    x = x[:, np.random.default_rng(seed).permutation(x.shape[1])]
    rows, test_rows, values, test_values = train_test_split(x, y, test_size=0.2, random_state=seed)
    held = {"active": slice(0, 5), "passive": slice(5, 10)}
    return Table(
        train={
            name: Columns(tuple(f"{name}{place}" for place in range(5)), np.ascontiguousarray(rows[:, part]))
            for name, part in held.items()
        },
        test={name: np.ascontiguousarray(test_rows[:, part]) for name, part in held.items()},
        values=values,
        test_values=test_values,
        classes=0,
    )


def federated(params: TreeModel, table: Table) -> tuple[Side, tuple[float, ...]]:
    """Train two parties; return margins, seconds and the margins at which training started."""
    run = train(params, table.train, table.test, labels_of(table.values, table.classes), engine("plain"), 0)
    return (run.active.margins, run.seconds), run.active.share.base


def boosted(params: TreeModel, table: Table, base: tuple[float, ...]) -> Side:
    """Train XGBoost on the joined table, where each value is the number of its bin."""
    x, test, categories = table.joined()
    binned = bin_columns(x, params.bins, categories)
    several = table.classes > 2
    start = 0.0 if several else float(1 / (1 + np.exp(-base[0]))) if table.classes else base[0]
    given = {
        "tree_method": "hist",
        "max_bin": 256,  # more than there are codes, so that each is a bin
        "max_depth": params.depth,
        "eta": params.learning_rate,
        "lambda": params.reg_lambda,
        "gamma": params.gamma,
        "min_child_weight": params.min_child_weight,
        "max_cat_to_onehot": params.max_cat_to_onehot,
        "max_cat_threshold": params.max_cat_threshold,
        "objective": fitted_objective(params, table.classes).name,
        "base_score": start,
        "nthread": 2,
    }
    if several:
        given |= {"num_class": table.classes, "multi_strategy": params.multi_strategy}
    types = ["c" if column in categories else "q" for column in range(x.shape[1])]
    shape = {"feature_types": types, "enable_categorical": bool(categories)}
    begun = time.perf_counter()
    model = xgboost.train(given, xgboost.DMatrix(_numbers(binned.codes), table.values, **shape), params.trees)
    seconds = time.perf_counter() - begun
    new = xgboost.DMatrix(_numbers(bin_codes(test, binned.edges, categories)), **shape)
    margins = model.predict(new, output_margin=True, strict_shape=True)
    return margins.astype(np.float64), seconds


def _numbers(codes: NDArray[Any]) -> Floats:
    return np.where(codes == missing_code(codes.dtype), np.nan, codes.astype(np.float64))


def bagged(params: TreeModel, table: Table) -> Side:
    """Grow scikit-learn's trees on the rows and columns that our forest draws; return the mean of their answers."""
    x, test, _ = table.joined()
    splitters = [ColumnBinner(name, columns.first(1), params, DRAWS) for name, columns in table.train.items()]
    starts = np.cumsum([0, *(len(columns.names) for columns in table.train.values())])
    answers = np.zeros((len(test), max(1, table.classes)))
    begun = time.perf_counter()
    for tree in range(params.trees):
        party, private = next(iter(table.train)), PrivateSeed(bytes(PrivateSeed.SIZE))
        drawn = sample_rows(params, np.ones(len(x)), seed=DRAWS, party=party, tree=tree, private=private)
        rows = np.flatnonzero(drawn.counts)
        drawn_columns = [start + one.for_tree(tree).sample for start, one in zip(starts, splitters, strict=False)]
        columns = np.concatenate(drawn_columns)
        kind = DecisionTreeClassifier if table.classes else DecisionTreeRegressor
        grown = kind(max_depth=params.depth, random_state=tree)
        grown.fit(x[np.ix_(rows, columns)], table.values[rows], sample_weight=drawn.counts[rows].astype(np.float64))
        if table.classes:
            answers[:, grown.classes_.astype(np.int64)] += grown.predict_proba(test[:, columns])
        else:
            answers[:, 0] += grown.predict(test[:, columns])
    return answers / params.trees, time.perf_counter() - begun


def score(params: TreeModel, table: Table, margins: Floats) -> float:
    """Return AUC, or RMSE of quantities."""
    predicted = fitted_objective(params, table.classes).predicted(margins)
    if table.classes:
        ranks = margins if margins.shape[1] == 1 else predicted
        return class_scores(ranks, predicted, table.test_values.astype(np.int64))["auc"]
    return regression_scores(predicted, table.test_values)["rmse"]


def compare(dataset: str, seed: int) -> list[Compared]:
    """Return all comparisons on one data set for one seed."""
    native = load(dataset, seed, "native")
    plain = load(dataset, seed, "dummies") if any(one.categories for one in native.train.values()) else native
    found = []

    def add(model: str, params: TreeModel, table: Table, beside: Callable[[tuple[float, ...]], Side]) -> None:
        (ours, our_seconds), base = federated(params, table)
        theirs, their_seconds = beside(base)
        values = score(params, table, ours), score(params, table, theirs)
        worse = values[1] - values[0] if table.classes else values[0] / values[1] - 1
        found.append(
            Compared(
                dataset=dataset,
                model=model,
                metric="AUC" if table.classes else "RMSE",
                seed=seed,
                ours=values[0],
                theirs=values[1],
                difference=worse,
                same=float(np.isclose(ours, theirs, rtol=SAME, atol=SAME).all(axis=1).mean()),
                seconds=(our_seconds, their_seconds),
            )
        )

    if native.classes > 2:
        apart = SecureBoost(trees=BOOSTED.trees, depth=BOOSTED.depth, multi_strategy="one_output_per_tree")
        add("boosted, one vector tree", BOOSTED, plain, lambda base: boosted(BOOSTED, plain, base))
        add("boosted, a tree per class", apart, native, lambda base: boosted(apart, native, base))
    else:
        add("boosted", BOOSTED, native, lambda base: boosted(BOOSTED, native, base))
    add("forest", FOREST, plain, lambda base: bagged(FOREST, plain))
    return found


def limit(one: Compared) -> float:
    """Return by how much ours may be worse."""
    return 0.01 if one.metric == "RMSE" or one.model == "forest" else 0.003


def summary(runs: Iterable[Compared]) -> list[dict[str, Any]]:
    """Return mean and spread over the seeds, one entry for each data set and model."""
    groups: dict[tuple[str, str], list[Compared]] = {}
    for one in runs:
        groups.setdefault((one.dataset, one.model), []).append(one)
    return [
        {
            "dataset": dataset,
            "model": model,
            "metric": group[0].metric,
            "ours": _spread([one.ours for one in group]),
            "theirs": _spread([one.theirs for one in group]),
            "difference": statistics.mean(one.difference for one in group),
            "most": max(group, key=lambda one: abs(one.difference)).difference,
            "limit": limit(group[0]),
            "same": statistics.mean(one.same for one in group),
            "seconds": [round(statistics.mean(one.seconds[side] for one in group), 2) for side in (0, 1)],
        }
        for (dataset, model), group in groups.items()
    ]


def _spread(values: list[float]) -> tuple[float, float]:
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def lines(entries: Iterable[dict[str, Any]]) -> Iterable[str]:
    """Return the summary as a table."""
    yield "| data | model | metric | ours | joined | worse by, mean | worst seed | limit | same rows | seconds |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for one in entries:
        share = one["metric"] == "RMSE"
        shown = [f"{mean:.2f}±{std:.2f}" if share else f"{mean:.4f}±{std:.4f}" for mean, std in _pairs(one)]
        off = [f"{100 * one[key]:+.2f}%" if share else f"{one[key]:+.4f}" for key in ("difference", "most")]
        most = f"{100 * one['limit']:g}%" if share else f"{one['limit']:g}"
        missed = "" if abs(one["difference"]) <= one["limit"] else " missed"
        cells = [one["dataset"], one["model"], one["metric"], *shown, *off, most + missed, f"{one['same']:.1%}"]
        yield f"| {' | '.join(cells)} | {one['seconds'][0]:.2f}, {one['seconds'][1]:.2f} |"


def _pairs(one: dict[str, Any]) -> tuple[tuple[float, float], tuple[float, float]]:
    return one["ours"], one["theirs"]


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", choices=REAL + SMALL)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    names = chosen.datasets or (REAL if os.environ.get("LABELWARD_DATA") else SMALL)
    runs = []
    for name in names:
        for seed in chosen.seeds:
            runs += compare(name, seed)
            print(f"{name}, seed {seed}: done", file=sys.stderr)
    found = summary(runs)
    print("\n".join(lines(found)))
    if chosen.json is not None:
        figures = {
            "benchmark": "quality",
            "processor": processor(),
            "summary": found,
            "runs": [vars(one) for one in runs],
        }
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
