"""Labels from the sides of the rows: all of them on views of version 0.1.0, none on those of this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import datasets
from sklearn.metrics import roc_auc_score

from crossing import crossed
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.split_posterior import SplitPosterior, sides_depend_on_labels
from labelward.auditing.audit import audit
from labelward.data import RawTables, VerticalDataset, as_table, load_dataset
from labelward.errors import Code, JobError
from labelward.job import Job, parse_job
from labelward.messages.base import RowMask
from labelward.messages.handshake import RowSplit
from labelward.party.view import View
from labelward.rng import PrivateSeed
from labelward.runs.schema import read_rows
from refusals import refused

STORED = Path(__file__).parent.parent / "assets" / "stratified-split"
"""Views of the passive party telco, recorded by version 0.1.0 with the seeds 1 to 5.

breast-cancer: boosted trees under Paillier 2048 and randomized-response with epsilon 0.1, no validation rows; digits: a
split network, a quarter of the training rows watched.
"""


def stored(name: str) -> tuple[list[View], Any, np.ndarray]:
    """Return the views, the table, and the labels of all rows."""
    table = getattr(datasets, f"load_{name.replace('-', '_')}")(as_frame=True)
    views = [View.load(STORED / name / str(seed)) for seed in range(1, 6)]
    return views, table.data, table.target.to_numpy()


def attack(views: list[View], table: Any, labels: np.ndarray, **params: Any) -> tuple[LabelGuess, np.ndarray]:
    """Attack the first view with the others beside it; return the guess and the true labels of its training rows."""
    (begin,) = (each.message for each in views[0].received(RowSplit))
    test = begin.test.unpack(len(labels))
    train = ~(test | begin.validation.unpack(len(labels)))
    columns = views[0].header.columns
    held = table[list(columns)].to_numpy(float)
    own = AttackerData(features=held[train], columns=columns, outside=held[test], other_runs=tuple(views[1:]))
    aux = AuxiliaryKnowledge(classes=len(set(labels)), class_counts=np.bincount(labels))
    return SplitPosterior(**params)(views[0], own, aux, rng=np.random.default_rng(0)), labels[train]


def area(guess: LabelGuess, labels: np.ndarray) -> float:
    assert guess.scores is not None
    return float(np.mean([roc_auc_score(labels == c, guess.scores[:, c]) for c in np.unique(labels)]))


@pytest.mark.parametrize(
    ("name", "seeds", "least", "right"),
    [
        pytest.param("breast-cancer", 1, 0.80, 0.97, marks=pytest.mark.slow),
        ("breast-cancer", 5, 0.99, 1.0),
        pytest.param("digits", 1, 0.58, 0.6, marks=pytest.mark.slow),
        pytest.param("digits", 2, 0.80, 0.98, marks=pytest.mark.slow),
        pytest.param("digits", 5, 0.99, 0.99, marks=pytest.mark.slow),
    ],
)
def test_views_of_the_first_version_give_the_labels_away(name: str, seeds: int, least: float, right: float) -> None:
    """Least AUC of the sides alone, and least share of labels that are right with the party's own columns."""
    views, table, labels = stored(name)
    alone, truth = attack(views[:seeds], table, labels, rounds=0)
    assert area(alone, truth) >= least
    joint, _ = attack(views[:seeds], table, labels)
    assert np.mean(joint.values == truth) >= right
    assert all(sides_depend_on_labels(view) for view in views)


def test_labels_that_have_nothing_to_do_with_the_sides_are_not_found() -> None:
    views, table, labels = stored("breast-cancer")
    shuffled = np.random.default_rng(1).permutation(labels)
    guess, truth = attack(views, table, shuffled)
    assert abs(area(guess, truth) - 0.5) < 3 * standard_error(truth)


def test_counts_that_are_not_those_of_the_rows() -> None:
    views, table, labels = stored("breast-cancer")
    for counts, value in (((10, 10), 20), ((200, 200, 169), 3)):
        with refused(JobError, "conflict", field="class_counts", value=value):
            attack(views, table, labels, class_counts=counts)


@pytest.mark.parametrize(
    ("params", "code", "field"),
    [
        ({"rounds": -1}, "range", "rounds"),
        ({"rounds": 1.5}, "type", "rounds"),
        ({"class_counts": [0, 3]}, "range", "class_counts"),
    ],
)
def test_parameters_that_cannot_be(params: dict[str, Any], code: Code, field: str) -> None:
    with refused(JobError, code, field=field):
        SplitPosterior(**params)


def test_a_view_of_nothing_gives_the_shares_of_the_classes() -> None:
    views, table, labels = stored("breast-cancer")
    own = AttackerData(features=table.to_numpy(float)[: views[0].rows], columns=tuple(table.columns))
    aux = AuxiliaryKnowledge(classes=2, class_counts=np.bincount(labels))
    guess = SplitPosterior()(views[0].without_records(), own, aux, rng=np.random.default_rng(0))
    assert np.allclose(guess.scores, np.bincount(labels) / len(labels))


def standard_error(labels: np.ndarray) -> float:
    """Of the AUC of a guess that knows nothing (Mann and Whitney 1947)."""
    positive = int(labels.sum())
    negative = len(labels) - positive
    return float(np.sqrt((len(labels) + 1) / (12 * positive * negative)))


def small_job(model: dict[str, Any], split: str, defense: list[dict[str, Any]], seed: int) -> Job:
    trees = model["kind"] != "splitnn"
    watched = {} if model["kind"] == "forest" else {"validation_size": 0.25}
    encryption = {"encryption": {"engine": "plain", "insecure": True}} if trees else {}
    return parse_job(
        {
            "data": {"table": "breast_cancer", "split": split, **watched},
            "parties": {"active": 0.5, "telco": 0.5},
            "model": model,
            **encryption,
            "defense": defense,
            "attack": [{"kind": "split-posterior"}],
            "leakage": {"meter": False, "privacy": False},
            "run": {"seeds": [seed, seed + 1, seed + 2]},
        }
    )


TREES = [
    {"kind": "local-trees", "count": 1},
    {"kind": "id-lmid", "xi": 0.1},
    {"kind": "purity-threshold", "threshold": 0.9},
    {"kind": "randomized-response", "epsilon": 0.1},
    {"kind": "lp-mst", "epsilon": 1.0},
]
NETS = [
    {"kind": "noisy-gradients", "scale": 0.1},
    {"kind": "gradient-compression", "keep": 0.5},
    {"kind": "ppdl", "theta": 0.5, "epsilon": 1.0},
    {"kind": "discrete-sgd"},
    {"kind": "sign-sgd"},
]
SPLITS = ["random", "reference"]
MODELS = [
    ({"kind": "secureboost", "trees": 2, "depth": 2}, TREES),
    ({"kind": "secureboost", "trees": 2, "depth": 2, "sampling": "goss"}, []),
    ({"kind": "forest", "trees": 2, "depth": 2}, TREES[1:3]),
    ({"kind": "splitnn", "epochs": 1}, NETS),
    ({"kind": "splitnn", "epochs": 1, "top": False}, []),
]


@crossed("model,defenses,split", [pytest.param(*each, id=str(at)) for at, each in enumerate(MODELS)], SPLITS)
def test_the_sides_of_this_version_tell_nothing(
    model: dict[str, Any], defenses: list[dict[str, Any]], split: str, tmp_path: Path
) -> None:
    """Every protocol, defense and split, three seeds each, the later ones attacked with the views of the earlier."""
    job = small_job(model, split, defenses, 1 + 10 * [each for each, _ in MODELS].index(model))
    audit(job, tmp_path / "out", explained=False)
    labels = datasets.load_breast_cancer().target
    for row in read_rows(tmp_path / "out"):
        assert row.leakage is not None
        found = float(row.leakage["auc"])  # type: ignore[arg-type]
        assert abs(found - 0.5) < 3 * standard_error(labels[:341]), (row.defense, row.seed)
    views = [View.load(path.parent) for path in (tmp_path / "out").rglob("telco/view/transcript.lwt")]
    assert len(views) == 3 * (1 + len(defenses))
    assert not any(sides_depend_on_labels(view) for view in views)


def made(labels: np.ndarray, secret: PrivateSeed) -> VerticalDataset:
    """Return what the parties hold of a table with these labels."""
    columns = {"a": np.arange(len(labels)), "b": np.arange(len(labels)) % 7}
    source = RawTables(name="made", tables=(as_table({**columns, "label": labels}),))
    section = {"table": "made.csv", "label": "label", "validation_size": 0.2}
    job = parse_job({"data": section, "parties": {"active": ["a"], "telco": ["b"]}})
    return load_dataset(job, 1, source, private={"active": secret})


def begin_of(labels: np.ndarray, secret: PrivateSeed) -> RowSplit:
    """Return ``RowSplit`` for a table with these labels."""
    validation, test = made(labels, secret).split.masks()
    return RowSplit(RowMask.pack(validation), RowMask.pack(test), 0)


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_no_single_label_changes_what_is_told_of_the_sides(every: int) -> None:
    labels, secret = datasets.load_breast_cancer().target, PrivateSeed(bytes(range(32)))
    told = begin_of(labels, secret)
    for row in range(0, len(labels), every):
        changed = labels.copy()
        changed[row] = 1 - changed[row]
        assert begin_of(changed, secret) == told
    assert begin_of(labels, PrivateSeed(bytes(32))) != told


def test_what_is_told_of_the_sides_has_one_distribution_whatever_the_labels() -> None:
    """A two-sample test of the statistic that a stratified draw fixes: how many test rows have a given set of labels.

    200 private seeds for each of two tables that differ in one label; Kolmogorov-Smirnov at the level .001. With sides
    stratified by label the number is the same for all seeds of one table and varies for the other.
    """
    from scipy.stats import ks_2samp

    labels = np.arange(300) % 2
    changed = labels.copy()
    changed[7] = 1 - changed[7]
    rng = np.random.default_rng(2)
    samples = []
    for table in (labels, changed):
        numbers = []
        for _ in range(200):
            secret = PrivateSeed(rng.bytes(32))
            numbers.append(int(labels[made(table, secret).split.test].sum()))
        samples.append(numbers)
    assert ks_2samp(*samples).pvalue > 0.001
    assert all(len(set(numbers)) > 3 for numbers in samples)
