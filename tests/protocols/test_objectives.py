"""What each objective makes of its targets, in whole runs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from equivalence import KINDS, assert_lossless, rich_setting

from labelward.errors import DataError, JobError
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost
from refusals import refused
from wiring import Setting, make_parts, make_targets


@pytest.mark.parametrize("kind", KINDS)
def test_margins_are_base_and_leaf_weights(kind: str) -> None:
    """One margin for each output; more rounds fit the training rows better."""
    targets, params = KINDS[kind]
    few, many = (rich_setting(41, targets, rows=80, **params | {"trees": trees}) for trees in (1, 6))
    for setting in (few, many):
        setting.test = None
    first, last = few.run(), many.run()
    outputs = 3 if targets == "classes" else 1
    assert first.active.margins.shape == (80, outputs)
    assert first.active.margins.dtype == np.float64
    assert first.active.share.outputs == outputs
    if params.get("kind") != "forest":
        assert error_of(targets, last.active.margins, many) < error_of(targets, first.active.margins, few)


def error_of(targets: str, margins: np.ndarray, setting: Setting) -> float:
    y = np.asarray(setting.labels, dtype=np.float64)
    if targets == "classes":
        shifted = margins - margins.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return float(-logs[np.arange(len(y)), y.astype(int)].mean())
    if targets == "binary":
        return float(np.log1p(np.exp(-(2 * y - 1) * margins[:, 0])).mean())
    found = margins[:, 0] if targets == "quantities" else np.exp(margins[:, 0])
    return float(((found - y) ** 2).mean())


def test_the_objective_follows_from_the_labels() -> None:
    for kind, expected in (
        ("binary", "binary:logistic"),
        ("classes", "multi:softprob"),
        ("quantities", "reg:squarederror"),
    ):
        run = rich_setting(42, kind, trees=1).run()
        assert run.active.share.objective == expected
        assert all(out.share.objective != expected or kind == "binary" for out in run.passive.values())


def test_one_tree_for_each_class() -> None:
    """C trees a round, each with one weight in its leaves; a passive party cannot tell them from others."""
    setting = rich_setting(43, "classes", trees=6, depth=1, multi_strategy="one_output_per_tree")
    run = assert_lossless(setting)
    outputs = [tree.output for tree in run.active.share.trees]
    rounds = {tuple(outputs[first : first + 3]) for first in range(0, 18, 3)}
    assert len(rounds) > 1  # an order that a passive party knew would name the class of each tree
    assert all(sorted(each) == [0, 1, 2] for each in rounds)
    assert all(len(tree.weights) == len(tree.leaves) for tree in run.active.share.trees)


def test_vector_leaves() -> None:
    run = rich_setting(43, "classes", trees=2).run()
    assert [tree.output for tree in run.active.share.trees] == [-1, -1]
    assert all(len(tree.weights) == 3 * len(tree.leaves) for tree in run.active.share.trees)


def test_two_classes_as_vectors_and_as_one_margin_agree() -> None:
    """Softmax of two classes with its hessian 2p(1-p) splits as the logistic loss does; margins are not compared."""
    parts = make_parts(44, 120, {"a": 2, "b": 2})
    labels = make_targets(44, parts, "classes", 2)
    one = Setting(parts, labels, SecureBoost(trees=1, depth=1)).run()
    two = Setting(parts, labels, SecureBoost(trees=1, depth=1, objective="multi:softprob")).run()
    assert two.active.share.outputs == 2
    assert one.active.share.trees[0].owners == two.active.share.trees[0].owners
    assert {p: s.own for p, s in one.shares.items()} == {p: s.own for p, s in two.shares.items()}


def test_scales_follow_the_round() -> None:
    """Quantities of any size: a factor of a power of two in the targets is one in the weights, to the last bit."""
    setting = rich_setting(45, "quantities", trees=3)
    base = setting.run()
    for factor in (2.0**-40, 2.0**30):
        run = setting.run(labels=np.asarray(setting.labels) * factor)
        assert (run.active.margins / factor).tolist() == base.active.margins.tolist()


def test_weights_of_one_change_nothing() -> None:
    for kind in ("binary", "classes", "quantities"):
        setting = rich_setting(46, kind)
        plain, weighted = setting.run(weights=None), setting.run(weights=np.ones(len(setting.labels)))
        assert weighted.shares == plain.shares


@pytest.mark.parametrize("kind", ["binary", "classes", "quantities"])
def test_a_row_of_weight_two_is_like_two_rows(kind: str) -> None:
    """Up to rounding: 31 bits behind the point instead of 30."""
    setting = rich_setting(47, kind, trees=2, candidates="all", bins=32)
    rng = np.random.default_rng(47)
    twice = rng.integers(1, 3, len(setting.labels))
    weighted = setting.run(weights=twice.astype(np.float64))
    rows = np.repeat(np.arange(len(twice)), twice)
    doubled = setting.run(
        parts={party: x[rows] for party, x in setting.parts.items()},
        labels=np.asarray(setting.labels)[rows],
        weights=None,
    )
    np.testing.assert_allclose(doubled.active.margins, weighted.active.margins, rtol=0, atol=1e-6)


def test_scale_pos_weight_is_a_weight_of_the_second_class() -> None:
    setting = rich_setting(48, "binary")
    scaled = setting.run(params=replace(setting.params, scale_pos_weight=2.5))
    factor = np.where(np.asarray(setting.labels) == 1, 2.5, 1.0)
    assert scaled.shares == setting.run(weights=setting.weights * factor).shares  # type: ignore[operator]


def test_rows_without_weight_count_for_nothing_in_the_weights() -> None:
    """They are in nodes and counts, but move no sum of gradients."""
    setting = rich_setting(49, "binary", depth=1, trees=1)
    weights = np.ones(len(setting.labels))
    weights[:20] = 0.0
    labels = np.asarray(setting.labels).copy()
    first = assert_lossless(replace(setting, weights=weights))
    labels[:20] = 1 - labels[:20]
    second = setting.run(weights=weights, labels=labels)
    assert first.active.share.trees[0].weights == second.active.share.trees[0].weights


# -- what cannot be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "value"),
    [("count:poisson", -1.0), ("reg:tweedie", -0.5), ("count:poisson", math.inf), ("reg:squarederror", math.nan)],
)
def test_labels_unfit_for_the_objective(objective: str, value: float) -> None:
    parts = make_parts(50, 30, {"a": 1, "b": 1})
    labels = make_targets(50, parts, "counts")
    labels[7] = value
    setting = Setting(parts, labels, SecureBoost(trees=1, objective=objective), classes=())
    with refused(DataError, "labels") as caught:
        setting.run()
    np.testing.assert_equal(caught.value.value, value)


@pytest.mark.parametrize(
    ("objective", "classes"),
    [
        ("binary:logistic", ("0", "1", "2")),
        ("binary:logistic", ()),
        ("multi:softprob", ()),
        ("count:poisson", ("0", "1")),
    ],
)
def test_objectives_that_do_not_fit_the_labels(objective: str, classes: tuple[str, ...]) -> None:
    parts = make_parts(51, 30, {"a": 1, "b": 1})
    labels = make_targets(51, parts, "classes", max(2, len(classes)))
    setting = Setting(parts, labels, SecureBoost(trees=1, objective=objective), classes=classes)
    with refused(JobError, "unsupported", field="[model] objective", value=objective):
        setting.run()


def test_exact_hessians_of_several_classes() -> None:
    """They double the steps of small leaves; the splits follow the pooled reference; no other parameter changes."""
    exact = rich_setting(45, "classes", trees=2, softmax_hessian="exact")
    run, doubled = assert_lossless(exact), rich_setting(45, "classes", trees=2).run()
    assert run.active.share.trees[0].weights != doubled.active.share.trees[0].weights
    size = [np.abs(each.active.share.trees[0].weights).max() for each in (run, doubled)]
    assert size[0] > size[1]


def test_exact_hessians_are_a_parameter_of_several_classes_only() -> None:
    assert "softmax_hessian" not in SecureBoost(trees=1).parameters()
    assert SecureBoost(trees=1, softmax_hessian="exact").parameters()["softmax_hessian"] == "exact"
    with refused(JobError, "conflict", field="[model] softmax_hessian", value="exact"):
        SecureBoost(trees=1, objective="count:poisson", softmax_hessian="exact")
    with refused(JobError, "unsupported", field="[model] softmax_hessian", value="exact"):
        FederatedForest(trees=1, softmax_hessian="exact")
