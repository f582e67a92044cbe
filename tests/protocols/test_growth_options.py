"""What limits growth: leaves, hessians, steps, directions, samples of rows and columns."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from equivalence import GOSS, NAMES, as_reference, assert_lossless, assert_same, encrypted, rich_setting
from hypothesis import given, settings
from hypothesis import strategies as st

from crossing import crossed
from labelward.errors import DataError
from labelward.messages.tree import TreeStart
from labelward.protocols.secureboost.params import SecureBoost
from refusals import refused
from wiring import Setting, make_labels, make_parts, make_targets, with_missing


def setting(seed: int, kind: str = "binary", rows: int = 120, **params: object) -> Setting:
    parts = make_parts(seed, rows, dict.fromkeys(NAMES, 2))
    classes = {"binary": ("0", "1"), "classes": ("0", "1", "2")}.get(kind, ())
    labels = make_targets(seed, parts, "classes" if classes else kind, len(classes) or 3)
    given_params = {"trees": 2, "depth": 4, "bins": 8} | params
    return Setting(parts, labels, SecureBoost(**given_params), classes=classes)  # type: ignore[arg-type]


# -- leaves ------------------------------------------------------------------------------------------------------------


@crossed("kind,most", ["binary", "classes", "quantities"], [2, 3, 6, 100])
def test_most_leaves(kind: str, most: int) -> None:
    run = assert_lossless(setting(81, kind, max_leaves=most))
    assert all(len(tree.leaves) <= most for tree in run.active.share.trees)
    if most == 100:
        assert run.shares == setting(81, kind).run().shares
    elif most > 1:
        assert any(len(tree.leaves) == most for tree in run.active.share.trees)


def test_few_leaves_save_messages() -> None:
    """A full tree asks for the sums of its last leaves, so that nobody is told that it is full, and for no more."""
    run = setting(81, max_leaves=2, trees=1).run()
    assert run.meters["left"].messages["LevelSums"] == 2


# -- least hessian, rows, gain -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["binary", "classes", "quantities", "counts"])
def test_leaves_hold_what_they_must(kind: str) -> None:
    objective = {"counts": "count:poisson"}.get(kind, "auto")
    given_setting = setting(82, kind, min_child_weight=4.0, min_rows=9, gamma=0.05, objective=objective)
    run = assert_lossless(given_setting)
    for shape in run.active.share.trees:
        assert all(cover >= 4.0 for cover in shape.covers)
        assert all(gain > 0 for gain in shape.gains)
        assert len(shape.covers) == len(shape.nodes) + len(shape.leaves)
    smallest = min(np.bincount(leaf_numbers(run, given_setting)).tolist())
    assert smallest >= 9
    free = setting(82, kind, objective=objective).run()
    assert len(free.active.share.trees[0].nodes) > len(run.active.share.trees[0].nodes)


def leaf_numbers(run: object, given_setting: Setting) -> np.ndarray:
    import reference

    tree = as_reference(run)[0]  # type: ignore[arg-type]
    found = [reference.leaf_of(tree, dict(given_setting.parts), row) for row in range(len(given_setting.labels))]
    return np.unique(found, return_inverse=True)[1]


def test_covers_add_up() -> None:
    """A split's rows are those of its children: sums of hessians, exact in fixed point."""
    for kind in ("binary", "quantities"):
        for shape in setting(83, kind).run().active.share.trees:
            cover = dict(zip((*shape.nodes, *shape.leaves), shape.covers, strict=True))
            for node in shape.nodes:
                assert cover[node] == cover[2 * node + 1] + cover[2 * node + 2]


# -- largest step ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["binary", "quantities", "counts"])
def test_no_leaf_weighs_more_than_the_largest_step(kind: str) -> None:
    objective = {"counts": "count:poisson"}.get(kind, "auto")
    run = assert_lossless(setting(84, kind, max_delta_step=0.2, learning_rate=0.5, objective=objective))
    weights = np.abs([weight for shape in run.active.share.trees for weight in shape.weights])
    assert weights.max() == 0.5 * 0.2


# -- directions --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**16),
    kind=st.sampled_from(["binary", "quantities", "counts"]),
    candidates=st.sampled_from(["global", "node"]),
    missing=st.sampled_from([0.0, 0.2]),
    step=st.sampled_from([0.0, 0.4]),
)
@settings(max_examples=15)
def test_predictions_rise_and_fall_as_told(seed: int, kind: str, candidates: str, missing: float, step: float) -> None:
    """Moving one value and nothing else; on tables where the truth is the other way round, too."""
    objective = {"counts": "count:poisson"}.get(kind, "auto")
    given_setting = setting(
        seed, kind, rows=60, candidates=candidates, objective=objective, trees=3, max_delta_step=step
    )
    monotone = {"active": {0: 1}, "left": {0: -1, 1: 1}}
    parts = with_missing(seed, given_setting.parts, missing)
    run = assert_lossless(replace(given_setting, parts=parts, monotone=monotone))
    rng = np.random.default_rng(seed)
    for party, columns in monotone.items():
        for column, direction in columns.items():
            for row in rng.integers(0, 60, 3):
                rows = {name: np.repeat(x[[row]], 12, axis=0) for name, x in parts.items()}
                rows[party][:, column] = np.linspace(-3, 3, 12)
                margins = margins_of(run, rows)
                assert all(direction * (after - before) >= -1e-12 for before, after in pairwise(margins))


def margins_of(run: object, rows: dict[str, np.ndarray]) -> list[float]:
    import reference

    share = run.active.share  # type: ignore[attr-defined]
    model = reference.Model(as_reference(run), list(share.base))  # type: ignore[arg-type]
    return [float(margin) for margin in reference.predict(model, rows)[:, 0]]


def test_a_direction_costs_what_it_forbids() -> None:
    """A column that falls, told to rise, is of no use."""
    x = np.arange(40.0)[:, None]
    labels = (np.arange(40) < 20).astype(np.int64)
    given_setting = Setting({"a": np.zeros((40, 1)), "b": x}, labels, SecureBoost(trees=1, depth=2))
    assert len(given_setting.run().active.share.trees[0].nodes) >= 1
    risen = assert_lossless(replace(given_setting, monotone={"b": {0: 1}}))
    assert risen.active.share.trees[0].nodes == ()


def test_directions_under_encryption() -> None:
    given_setting = replace(setting(85, "binary"), monotone={"active": {0: 1}, "left": {1: -1}})
    assert_same(*encrypted(given_setting))


def test_directions_need_one_output() -> None:
    with refused(DataError, "unsupported", field="party 'left'"):
        replace(setting(86, "classes"), monotone={"left": {0: 1}}).run()


def test_a_tree_for_each_class_keeps_no_directions() -> None:
    """Each tree has one output, but the margin of a class is not its probability."""
    given_setting = setting(87, "classes", multi_strategy="one_output_per_tree")
    with refused(DataError, "unsupported", field="party 'left'"):
        replace(given_setting, monotone={"left": {0: 1}}).run()


# -- samples -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["binary", "classes", "quantities"])
def test_samples_of_rows_and_columns(kind: str) -> None:
    run = assert_lossless(setting(88, kind, row_fraction=0.6, feature_fraction=0.5, trees=3))
    sizes = {int(each.message.rows.value.unpack(120).sum()) for each in run.views["left"].received(TreeStart)}
    assert sizes == {72}


@pytest.mark.parametrize("kind", ["binary", "classes", "quantities", "counts"])
def test_goss(kind: str) -> None:
    objective = {"counts": "count:poisson"}.get(kind, "auto")
    given_setting = setting(89, kind, trees=3, objective=objective, **GOSS)
    run = assert_lossless(given_setting)
    sizes = {int(each.message.rows.value.unpack(120).sum()) for each in run.views["left"].received(TreeStart)}
    assert sizes == {72}  # 0.3 of 120 for their gradients, and as many of the others


def test_goss_keeps_the_rows_of_the_largest_gradients() -> None:
    """In the second tree, where gradients differ."""
    given_setting = setting(90, "quantities", trees=2, **GOSS)
    run = given_setting.run()
    first = given_setting.run(params=replace(given_setting.params, trees=1))
    margins = first.active.margins[:, 0]
    g = np.abs(margins - np.asarray(given_setting.labels))
    largest = set(np.argsort(-g, kind="stable")[:36].tolist())
    drawn = [each.message.rows.value.unpack(120) for each in run.views["left"].received(TreeStart)][1]
    assert largest <= set(np.flatnonzero(drawn).tolist())


def test_goss_of_two_rows_takes_both() -> None:
    """At least one for its gradient, at least one of the others, however few that is."""
    parts = make_parts(91, 2, {"a": 1, "b": 1})
    given_setting = Setting(parts, np.array([0, 1]), SecureBoost(trees=1, depth=1, sampling="goss", top_rate=0.1))
    run = assert_lossless(given_setting)
    assert [each.message.rows.value.unpack(2).tolist() for each in run.views["b"].received(TreeStart)] == [[True, True]]


def test_rich_tables_with_everything() -> None:
    """Samples, limits and directions together with missing values, categories and weights."""
    given_setting = rich_setting(
        92, "binary", rows=90, row_fraction=0.8, feature_fraction=0.7, max_leaves=5, min_child_weight=0.5, trees=3
    )
    assert_lossless(replace(given_setting, monotone={"active": {0: 1}, "right": {0: -1}}))


def test_many_bins_and_wide_columns_take_several_messages() -> None:
    """Columns of like size travel together: two values here, hundreds there."""
    rng = np.random.default_rng(1)
    wide = np.column_stack([rng.integers(0, 2, (300, 5)).astype(float), rng.normal(size=(300, 2))])
    parts = {"a": rng.normal(size=(300, 1)), "b": wide}
    params = SecureBoost(trees=1, depth=2, candidates="all")
    run = assert_lossless(Setting(parts, make_labels(1, parts), params))
    assert run.meters["b"].messages["LevelSums"] > 2
