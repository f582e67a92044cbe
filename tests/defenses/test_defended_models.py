"""Defenses with several classes, gaps, categories, modes, quantities and forests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from bounded import assert_bounded, assert_nothing_else_is_named, rich, setting
from hypothesis import given, settings
from hypothesis import strategies as st

from blames import refused_about
from labelward.defenses.id_lmid import IdLmid
from labelward.defenses.local_trees import LocalTrees
from labelward.errors import PolicyError
from labelward.messages.tree import EncryptedForestRows, TreeStart
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel
from wiring import joined, readable_content

KINDS: dict[str, Callable[[], TreeModel]] = {
    "a vector tree": lambda: SecureBoost(trees=2, depth=4, bins=8),
    "a tree for each class": lambda: SecureBoost(trees=2, depth=3, bins=8, multi_strategy="one_output_per_tree"),
    "in turns": lambda: SecureBoost(trees=4, depth=4, bins=8, mode="mixed"),
    "in layers": lambda: SecureBoost(trees=2, depth=4, bins=8, mode="layered"),
    "few leaves": lambda: SecureBoost(trees=2, depth=4, bins=8, max_leaves=6),
    "sets of categories": lambda: SecureBoost(trees=2, depth=4, bins=8, max_cat_to_onehot=1),
    "a forest": lambda: FederatedForest(trees=3, depth=4, bins=8),
    "a forest of one tree at a time": lambda: FederatedForest(trees=3, depth=4, bins=8, trees_at_once=1),
}


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**20),
    kind=st.sampled_from(sorted(KINDS)),
    classes=st.integers(2, 4),
    xi=st.sampled_from([0.0, 0.02, 0.1, 0.3, 0.7]),
    missing=st.sampled_from([0.0, 0.2]),
    candidates=st.sampled_from(["global", "node", "all"]),
    weighted=st.booleans(),
)
@settings(max_examples=60)
def test_no_visible_node_exceeds_the_bound_whatever_the_model(
    seed: int, kind: str, classes: int, xi: float, missing: float, candidates: str, weighted: bool
) -> None:
    """Class counts travel beside the gradients, or follow from them where a forest's gradients are the classes."""
    params = replace(KINDS[kind](), candidates=candidates)  # type: ignore[arg-type]
    given_setting = rich(setting(seed, 3, params, rows=100), seed, classes, missing)
    if weighted:
        given_setting.weights = np.random.default_rng(seed).uniform(0.5, 2.0, 100)
    run = given_setting.run(policies=(IdLmid(xi=xi),))
    assert_bounded(run, np.asarray(given_setting.labels), xi)
    for party in run.passive:
        assert_nothing_else_is_named(run.views[party])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_bound_binds_whatever_the_model(kind: str) -> None:
    given_setting = rich(setting(17, 3, KINDS[kind](), rows=300), 17, 3, 0.1)
    labels = np.asarray(given_setting.labels)
    with pytest.raises(AssertionError):
        assert_bounded(given_setting.run(), labels, 0.25)
    run = given_setting.run(policies=(IdLmid(xi=0.25),))
    assert assert_bounded(run, labels, 0.25) >= 2
    assert run.active.tally["refused_candidates"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a vector tree", "a forest"])
def test_bounds_of_classes_under_encryption(kind: str) -> None:
    given_setting = rich(setting(18, 3, KINDS[kind](), rows=60), 18, 3, 0.1)
    policies = (IdLmid(xi=0.25),)
    plain = given_setting.run(policies=policies)
    secret = given_setting.run(policies=policies, engine="paillier", bits=512)
    assert secret.shares == plain.shares
    assert secret.active.tally == plain.active.tally
    for party in plain.views:
        assert readable_content(secret.views[party]) == readable_content(plain.views[party])


@pytest.mark.parametrize("kind", ["a vector tree", "a tree for each class", "a forest", "sets of categories"])
def test_a_bound_beyond_all_changes_nothing_whatever_the_model(kind: str) -> None:
    given_setting = rich(setting(19, 3, KINDS[kind]()), 19, 3, 0.1)
    plain, defended = given_setting.run(), given_setting.run(policies=(IdLmid(xi=1e6),))
    assert defended.shares == plain.shares
    for party in plain.passive:
        seen = readable_content(plain.views[party])
        assert readable_content(defended.views[party]) == seen


def test_a_forest_needs_no_flags_for_its_classes() -> None:
    """Its gradients are the classes: as many numbers travel with the defense as without."""
    for weights, more in ((None, 0), (np.linspace(0.5, 1.5, 150), 2)):
        given_setting = replace(rich(setting(20, 2, KINDS["a forest"]()), 20, 3, 0.0), weights=weights)
        numbers = []
        for policies in ((), (IdLmid(xi=0.1),)):
            run = given_setting.run(policies=policies)
            rows = next(iter(run.views["left"].received(EncryptedForestRows))).message.gradients
            numbers.append(len(rows.layout.bounds))
        assert numbers[1] == numbers[0] + more


def test_bags_are_bounded_where_that_is_asked_for() -> None:
    """``sampled``: nodes of the rows that a tree grows on; the bound is over all training rows, as in the paper."""
    params = FederatedForest(trees=4, depth=4, bins=8, row_fraction=0.8)
    given_setting = rich(setting(21, 3, params, rows=200), 21, 3, 0.1)
    labels = np.asarray(given_setting.labels)
    with pytest.raises(AssertionError):
        assert_bounded(given_setting.run(), labels, 0.25)
    run = given_setting.run(policies=(IdLmid(xi=0.25, sampled=True),))
    assert assert_bounded(run, labels, 0.25) >= 4


def test_id_lmid_refuses_what_it_cannot_bound() -> None:
    bagged = FederatedForest(trees=2, depth=2, replace=True)
    with refused_about("replace", PolicyError, "inapplicable"):
        setting(22, 2, bagged).run(policies=(IdLmid(xi=0.1, sampled=True),))
    with refused_about("regression", PolicyError, "inapplicable"):
        replace(setting(22, 2, SecureBoost(trees=1)), classes=()).run(policies=(IdLmid(xi=0.1),))


@pytest.mark.parametrize("sampled", [False, True])
def test_id_lmid_refuses_rows_that_are_chosen_by_their_gradients(sampled: bool) -> None:
    """Which rows have large gradients is told before any node is: no bound on nodes covers that."""
    params = SecureBoost(trees=2, depth=2, sampling="goss")
    with refused_about("'id-lmid'", PolicyError, "inapplicable", value="goss"):
        setting(23, 2, params).run(policies=(IdLmid(xi=0.1, sampled=sampled),))


# -- local trees ----------------------------------------------------------------------------------------------------


def test_local_rounds_of_a_tree_for_each_class() -> None:
    """A round is local as a whole: the passive parties see no class's tree of it."""
    params = SecureBoost(trees=3, depth=2, bins=8, multi_strategy="one_output_per_tree")
    given_setting = rich(setting(24, 2, params), 24, 3, 0.1)
    run = given_setting.run(policies=(LocalTrees(count=1),))
    trees = run.active.share.trees
    assert all(sorted(tree.output for tree in trees[at : at + 3]) == [0, 1, 2] for at in (0, 3, 6))
    assert all(set(tree.owners) <= {0} for tree in trees[:3])
    assert [each.message.tree for each in run.views["left"].received(TreeStart)] == list(range(6))


@pytest.mark.parametrize("classes", [0, 3])
def test_local_trees_whatever_the_labels(classes: int) -> None:
    """Vector trees, and quantities with gaps."""
    given_setting = rich(setting(25, 3, SecureBoost(trees=3, depth=3, bins=8)), 25, classes or 3, 0.1)
    given_setting = given_setting if classes else replace(given_setting, classes=())
    run = given_setting.run(policies=(LocalTrees(count=2),))
    alone = replace(given_setting, parts={"active": given_setting.parts["active"]}, categories={})
    assert run.active.share.trees[:2] == joined(alone).trees[:2]
    assert [each.message.tree for each in run.views["right"].received(TreeStart)] == [0]


def test_local_trees_do_nothing_for_a_forest() -> None:
    with refused_about("forest", PolicyError, "inapplicable", field="defense 'local-trees'"):
        setting(26, 2, FederatedForest(trees=2)).run(policies=(LocalTrees(count=1),))
