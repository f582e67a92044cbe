"""Grafting: what is repaired, with what, and that passive parties see nothing of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from blames import refused_about
from fixed_seeds import FIXED
from labelward.defenses.grafting import Grafting
from labelward.defenses.label_dp import LpMst, RandomizedLabels
from labelward.errors import JobError, PolicyError
from labelward.kernels.objectives import objective
from labelward.party.in_process import standalone_context
from labelward.policy.base import POINTS, FinishedTree, Policy, PolicyContext, TreeRepair
from labelward.policy.chain import PolicyChain, check_hooks
from labelward.protocols.secureboost import predict
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel
from labelward.protocols.secureboost.predict import leaves_of, predict_active
from labelward.protocols.secureboost.row_encoding import sample_rows
from labelward.testing.policies import finished_trees
from refusals import refused
from wiring import Run, Setting, joined, make_labels, make_parts, make_targets, readable_content

KINDS = ["forest", "boosted"]


def setting(params: TreeModel, parties: int = 2, classes: int = 2, rows: int = 300, seed: int = 71) -> Setting:
    parts = make_parts(seed, rows, dict.fromkeys(("active", "left", "right")[:parties], 3))
    labels = make_labels(seed, parts) if classes == 2 else make_targets(seed, parts, "classes", classes)
    return Setting(parts, labels, params, tuple(map(str, range(classes))), noise=7)


def accuracy(run: Run, labels: NDArray[np.int64]) -> float:
    margins = run.active.margins
    guess = margins.argmax(axis=1) if margins.shape[1] > 1 else margins[:, 0] > 0
    return float(np.mean(guess == labels))


# -- which nodes -----------------------------------------------------------------------------------------------------


def by_the_book(tree: FinishedTree) -> set[int]:
    """Algorithm 4, node by node from below, on lists of single rows; what is regrown higher up swallows the rest."""
    regrown: set[int] = set()

    def rows(node: int, counts: NDArray[np.int64]) -> list[int]:
        if node in tree.leaves:
            return [c for c, n in enumerate(counts[tree.leaves.index(node)].tolist()) for _ in range(n)]
        return rows(2 * node + 1, counts) + rows(2 * node + 2, counts)

    def majority(node: int, counts: NDArray[np.int64]) -> int:
        held = rows(node, counts)
        return max(range(3), key=lambda c: (held.count(c), -c))

    def check(node: int) -> bool:
        return majority(node, tree.clean) != majority(node, tree.fitted)

    def graft(node: int) -> bool:
        if node in tree.leaves:
            return check(node)
        if any([graft(2 * node + 1), graft(2 * node + 2)]):
            if check(node):
                return True
            for below in [other for other in regrown if on_the_way(other, node)]:
                regrown.discard(below)
            regrown.add(node)
        return False

    graft(0)
    return regrown


def on_the_way(node: int, above: int) -> bool:
    while node > above:
        node = (node - 1) // 2
    return node == above


@given(tree=finished_trees())
def test_the_lowest_sound_node_above_a_contaminated_one_is_regrown(tree: FinishedTree) -> None:
    answer = PolicyChain([Grafting()]).after_tree(replace(tree, alone=True))
    assert answer == TreeRepair(regrow=frozenset(by_the_book(tree)), refit=False)
    assert Grafting(unrepaired="relabel").after_tree(replace(tree, alone=False)) == TreeRepair(refit=True)


def test_a_contaminated_root_is_left_alone() -> None:
    """Whatever lies below: no node is sound, so nothing says where to begin."""
    tree = FinishedTree(
        tree=0,
        nodes=(0,),
        leaves=(1, 2),
        clean=np.array([[3, 0], [2, 0]]),
        fitted=np.array([[1, 2], [0, 2]]),
        alone=True,
    )
    assert Grafting().after_tree(tree).regrow == frozenset()
    sound = replace(tree, fitted=np.array([[3, 0], [0, 2]]))
    assert Grafting().after_tree(sound).regrow == {0}
    tie = replace(tree, clean=np.array([[2, 2], [2, 0]]), fitted=np.array([[4, 0], [1, 1]]))
    assert Grafting().after_tree(tie).regrow == frozenset()  # ties go to the lowest class: 0 everywhere


# -- how they grow ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Anew(Policy):
    """Regrows certain nodes, whatever their labels."""

    kind: ClassVar[str] = "anew"

    nodes: frozenset[int]
    refit: bool = False

    def after_tree(self, tree: FinishedTree) -> TreeRepair:
        return TreeRepair(regrow=self.nodes & {*tree.nodes, *tree.leaves}, refit=self.refit)


def sketch(tree: Any) -> tuple[Any, ...]:
    """All of a tree but record numbers."""
    return tree.nodes, tree.owners, tree.leaves, tree.weights, tree.gains, tree.covers


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("candidates", ["global", "node"])
@pytest.mark.parametrize("most", [0, 5])
def test_a_tree_that_is_regrown_from_its_root_is_that_of_the_active_party_alone(
    classes: int, candidates: str, most: int
) -> None:
    params = FederatedForest(trees=3, depth=4, row_fraction=0.8, candidates=candidates, bins=16, max_leaves=most)  # type: ignore[arg-type]
    given_setting = setting(params, classes=classes or 2)
    if not classes:
        values = make_targets(3, given_setting.parts, "quantities")
        given_setting = replace(given_setting, labels=values, classes=())
    run = given_setting.run(policies=(Anew(nodes=frozenset({0})),))
    alone = joined(replace(given_setting, parts={"active": given_setting.parts["active"]}))
    assert [sketch(tree) for tree in run.active.share.trees] == [sketch(tree) for tree in alone.trees]
    assert readable_content(run.views["left"]) == readable_content(given_setting.run().views["left"])


def test_what_is_not_regrown_stays() -> None:
    """Node 1 is grown anew on own columns to the depth of the tree; the other half keeps splits, weights and all."""
    given_setting = setting(FederatedForest(trees=4, depth=4, trees_at_once=2))
    before = given_setting.run().active.share
    after = given_setting.run(policies=(Anew(nodes=frozenset({1, 4})),)).active.share
    for old, new in zip(before.trees, after.trees, strict=True):
        old_splits = dict(zip(old.nodes, zip(old.owners, old.gains, strict=True), strict=True))
        new_splits = dict(zip(new.nodes, zip(new.owners, new.gains, strict=True), strict=True))
        for node in {*old.nodes, *new.nodes}:
            if on_the_way(node, 1):
                assert new_splits.get(node, (0, 0.0))[0] == 0
            else:
                assert new_splits[node] == old_splits[node]
        old_leaves = dict(zip(old.leaves, np.reshape(old.weights, (-1, 2)).tolist(), strict=True))
        new_leaves = dict(zip(new.leaves, np.reshape(new.weights, (-1, 2)).tolist(), strict=True))
        assert {n: w for n, w in old_leaves.items() if not on_the_way(n, 1)} == {
            n: w for n, w in new_leaves.items() if not on_the_way(n, 1)
        }
        assert max(new.leaves) <= 30
    assert after.records_of("left") == before.records_of("left")
    assert after.records_of("active") == before.records_of("active")
    assert len(after.own.columns) > len(before.own.columns)


def answers_of(run: Run, given_setting: Setting) -> dict[str, NDArray[np.bool_]]:
    return {party: run.shares[party].own.answers(given_setting.parts[party]) for party in given_setting.parts}


def test_relabeled_leaves_hold_the_shares_of_true_classes() -> None:
    given_setting = setting(FederatedForest(trees=3, depth=4), classes=3)
    run = given_setting.run(policies=(RandomizedLabels(epsilon=0.5), Grafting(unrepaired="relabel")))
    leaves = leaves_of(run.active.share, answers_of(run, given_setting), 300)
    for tree, reached in zip(run.active.share.trees, leaves, strict=True):
        for position, weights in enumerate(np.reshape(tree.weights, (-1, 3))):
            held = given_setting.labels[reached == position]
            assert weights == pytest.approx(np.bincount(held, minlength=3) / len(held), abs=1e-12)
    assert run.active.tally["regrown_nodes"] > 0


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("strategy", ["multi_output_tree", "one_output_per_tree"])
def test_boosted_leaves_are_fitted_again_one_tree_after_the_other(classes: int, strategy: str) -> None:
    """On true labels, at the margins of the repaired trees before; the splits are those of noisy labels."""
    params = SecureBoost(trees=3, depth=3, row_fraction=0.8, multi_strategy=strategy)  # type: ignore[arg-type]
    given_setting = setting(params, classes=classes)
    noise = RandomizedLabels(epsilon=0.5)
    noisy, run = (
        given_setting.run(policies=(noise,)),
        given_setting.run(policies=(noise, Grafting(unrepaired="relabel"))),
    )
    share, labels = run.active.share, given_setting.labels.astype(np.float64)
    fitted = objective(share.objective, classes=classes)
    margins = np.tile(share.base, (300, 1))
    per_round = len(share.trees) // 3
    leaves = leaves_of(share, answers_of(run, given_setting), 300)
    for number, (tree, old, reached) in enumerate(zip(share.trees, noisy.active.share.trees, leaves, strict=True)):
        assert (tree.nodes, tree.owners, tree.records) == (old.nodes, old.owners, old.records)
        if number % per_round == 0:
            g, h = fitted.gradients(margins, labels)
        into = slice(None) if tree.output < 0 else slice(tree.output, tree.output + 1)
        drawn = sample_rows(params, np.ones(300), seed=1, party="active", tree=number, private=FIXED).counts > 0
        weights = np.reshape(tree.weights, (len(tree.leaves), -1))
        for position in range(len(tree.leaves)):
            held = (reached == position) & drawn
            expected = -0.3 * g[held, into].sum(axis=0) / (h[held, into].sum(axis=0) + 1.0)
            assert weights[position] == pytest.approx(expected, abs=1e-6)  # gradients are rounded to 2**-30
        margins[:, into] += weights[reached]
    assert margins == pytest.approx(run.active.margins, abs=1e-9)
    assert accuracy(run, given_setting.labels) > accuracy(noisy, given_setting.labels)


@pytest.mark.parametrize("params", [FederatedForest(trees=3, depth=4), SecureBoost(trees=3, depth=3)], ids=KINDS)
def test_without_noise_there_is_nothing_to_repair(params: TreeModel) -> None:
    given_setting = setting(params, parties=3)
    chain = (RandomizedLabels(epsilon=40.0), Grafting(unrepaired="relabel"))
    repaired, plain = given_setting.run(policies=chain), given_setting.run()
    assert repaired.active.share.trees == plain.active.share.trees
    assert (repaired.active.margins == plain.active.margins).all()


# -- what is seen of it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "params", [FederatedForest(trees=5, depth=4, row_fraction=0.8), SecureBoost(trees=3, depth=3)], ids=KINDS
)
def test_views_are_those_without_grafting(params: TreeModel, classes: int, stages: int, parties: int) -> None:
    """Message by message, and in what is kept of the model; so an attack finds the same."""
    given_setting = setting(params, parties, classes)
    noise = LpMst(epsilon=0.5, stages=stages)
    plain, repaired = (
        given_setting.run(policies=chain) for chain in ((noise,), (noise, Grafting(unrepaired="relabel")))
    )
    for party in plain.passive:
        assert readable_content(repaired.views[party]) == readable_content(plain.views[party])
        assert repaired.passive[party].share == plain.passive[party].share
        assert repaired.active.share.records_of(party) == plain.active.share.records_of(party)
    assert accuracy(repaired, given_setting.labels) > accuracy(plain, given_setting.labels)
    assert (repaired.active.tally["regrown_nodes"] > 0) == (params.kind == "forest")


def test_views_are_the_same_where_rows_are_predicted_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a batch follows from the number of splits: of those that the parties know of."""
    monkeypatch.setattr(predict, "ANSWERS", 2000)
    given_setting = setting(FederatedForest(trees=4, depth=4))
    noise = RandomizedLabels(epsilon=0.2)
    plain, repaired = (given_setting.run(policies=chain) for chain in ((noise,), (noise, Grafting())))
    assert readable_content(repaired.views["left"]) == readable_content(plain.views["left"])
    splits = [sum(len(tree.nodes) for tree in run.active.share.trees) for run in (plain, repaired)]
    assert splits[0] != splits[1]


def test_level_by_level_a_repaired_model_does_not_predict() -> None:
    """An owner would learn which rows still reach its splits."""
    given_setting = setting(FederatedForest(trees=2, depth=3))
    run = given_setting.run(policies=(RandomizedLabels(epsilon=0.2), Grafting()))
    share = run.active.share
    with refused(PolicyError, "inapplicable", value="levels"):
        predict_active(standalone_context("active", seed=1, rows=1), share, {}, 10, mode="levels")


# -- what it brings ----------------------------------------------------------------------------------------------------


def test_grafting_brings_breast_cancer_back() -> None:
    """Published for epsilon 0.5: .756 without, .979 with it, in the mean of five splits; here one split, two noises."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.metrics import roc_auc_score

    x, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(y))
    train, test = order[:455], order[455:]
    params = FederatedForest(trees=5, depth=6, row_fraction=0.8, feature_fraction=0.8)
    given_setting = Setting(
        {"active": x[train][:, :15], "left": x[train][:, 15:]},
        y[train],
        params,
        test={"active": x[test][:, :15], "left": x[test][:, 15:]},
    )
    noise = LpMst(epsilon=0.5)

    def auc(*chain: Policy) -> float:
        runs = [given_setting.run(policies=chain, noise=number) for number in (1, 2)]
        return float(np.mean([roc_auc_score(y[test], run.active.margins[:, 1]) for run in runs]))

    plain, noisy, relabeled = auc(noise), auc(noise, Grafting()), auc(noise, Grafting(unrepaired="relabel"))
    assert noisy > plain + 0.05
    assert relabeled > plain + 0.05
    assert min(noisy, relabeled) > 0.93


# -- what is refused -------------------------------------------------------------------------------------------------


def test_grafting_goes_with_label_privacy_only() -> None:
    setup = PolicyContext(model="forest", trees=2, classes=2, active_columns=2, passive=("left",), row_fraction=1.0)
    with refused_about("label privacy", PolicyError, "inapplicable"):
        check_hooks((Grafting(),), frozenset(POINTS), setup)
    chain = (LpMst(epsilon=1.0), Grafting())
    check_hooks(chain, frozenset(POINTS), setup)
    with refused_about("'relabel'", PolicyError, "inapplicable", field="defense 'grafting'", value="noisy"):
        check_hooks(chain, frozenset(POINTS), replace(setup, model="secureboost"))


def test_boosted_trees_are_never_regrown() -> None:
    with refused_about("regrows", PolicyError, "cannot-act", value="anew"):
        setting(SecureBoost(trees=2, depth=2)).run(policies=(Anew(nodes=frozenset({0})),))


@pytest.mark.parametrize("unrepaired", ["clean", "", None, True])
def test_forms_that_are_not_there(unrepaired: Any) -> None:
    with refused(JobError, "choice", value=unrepaired, field="unrepaired"):
        Grafting(unrepaired=unrepaired)
