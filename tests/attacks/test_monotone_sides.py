"""Sides of splits on columns with a monotone constraint: which rows they put above which, and when nothing is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from tree_runs import cancer, guessed, trained

from labelward.attacks import ATTACKS, fitting_attacks
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.monotone_sides import MonotoneSides
from labelward.errors import DataError, JobError
from labelward.messages.base import Released, RowMask
from labelward.messages.tree import LevelRequest, NodeSplit, OwnSplit, TreeStart
from labelward.party.joined_view import JoinedView
from labelward.party.view import View
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost
from labelward.testing.attacks import view_of
from refusals import refused
from wiring import Setting

ROWS = 6
PARAMS = SecureBoost(trees=20, depth=3)


def tree(number: int, *splits: OwnSplit | NodeSplit, sample: tuple[int, ...] = (1,) * ROWS) -> list[Any]:
    """Return what a party sees of a tree: own splits, and others of which it is told."""
    told = tuple(each for each in splits if isinstance(each, NodeSplit))
    mask = RowMask.pack(np.array(sample, dtype=np.bool_))
    records: list[Any] = [(TreeStart(number, Released.received(mask)), (number,))]
    records.append((LevelRequest(number, 1, Released.received(told), ()), (number, 1)))
    return [*records, *((each, (number, 1)) for each in splits if isinstance(each, OwnSplit))]


def own_split(number: int, node: int, column: str, *left: int) -> OwnSplit:
    return OwnSplit(number, node, column, 0.0, node, RowMask.pack(np.array(left, dtype=np.bool_)))


def by_hand(records: list[Any], monotone: dict[str, int], **more: Any) -> LabelGuess:
    own = AttackerData(features=np.zeros((ROWS, 3)), columns=["a", "b", "c"], monotone=monotone)
    return guessed(MonotoneSides(**more), view_of(records, ROWS), own, 2)


def test_each_side_gets_or_loses_a_vote() -> None:
    """A rising root, a falling split of its left child, another tree at half the weight; c has no constraint."""
    first = tree(0, own_split(0, 0, "a", 1, 1, 1, 1, 0, 0), own_split(0, 1, "b", 1, 0, 0, 0))
    second = tree(1, own_split(1, 0, "a", 1, 1, 0, 0, 0, 0))
    free = tree(2, own_split(2, 0, "c", 1, 0, 1, 0, 1, 0))
    guess = by_hand([*first, *second, *free], {"a": 1, "b": -1}, eta=0.5)
    expected = np.array([-1 + 1 - 0.5, -1 - 1 - 0.5, -1 - 1 + 0.5, -1 - 1 + 0.5, 1 + 0.5, 1 + 0.5])
    assert guess.scores is not None
    np.testing.assert_array_equal(guess.scores, np.stack([-expected, expected], axis=1))
    assert guess.values.tolist() == [0, 0, 0, 0, 1, 1]
    assert guess.notes == {"splits": 3.0}
    truth = np.array([0, 0, 0, 1, 1, 1])  # of the nine pairs, row 3 is below row 0 and level with row 2
    assert MonotoneSides().score(guess, truth) == {
        "ordered_pairs": pytest.approx(7.5 / 9)
    }  # row 3 is below row 0, beside row 2


def test_nodes_below_a_split_of_others_and_rows_out_of_a_sample_count_as_they_are_known() -> None:
    told = NodeSplit(0, RowMask.pack(np.array([1, 1, 0, 0], dtype=np.bool_)))
    records = tree(0, told, own_split(0, 2, "a", 1, 0), sample=(1, 1, 1, 1, 0, 0))
    guess = by_hand(records, {"a": 1})
    assert guess.scores is not None
    assert guess.scores[:, 1].tolist() == [0, 0, -1, 1, 0, 0]


def test_columns_without_a_constraint_say_nothing() -> None:
    records = tree(0, own_split(0, 0, "a", 1, 1, 1, 0, 0, 0))
    guess = by_hand(records, {})
    assert guess.notes == {"splits": 0.0}
    assert guess.scores is not None
    assert not guess.scores.any()
    assert MonotoneSides().score(guess, np.array([0, 1, 0, 1, 0, 1])) == {"ordered_pairs": 0.5}


def test_without_a_view_the_columns_rank_in_their_directions() -> None:
    """What the constraints tell without a training is no gain of the view; gaps lie in the middle."""
    features = np.array([[1.0, 7.0, 0.0], [2.0, np.nan, 9.0], [3.0, 5.0, 4.0]])
    own = AttackerData(features=features, columns=["a", "b", "c"], monotone={"a": 1, "b": -1})
    guess = guessed(MonotoneSides(), view_of([], 3), own, 2)
    assert guess.scores is not None
    np.testing.assert_allclose(guess.scores[:, 1], [-1 / 3 - 1 / 4, 0, 1 / 3 + 1 / 4])


def test_quantities_are_cut_into_bins_of_equal_size() -> None:
    records = tree(0, own_split(0, 0, "a", 1, 1, 1, 1, 0, 0), own_split(0, 1, "a", 1, 1, 0, 0))
    own = AttackerData(features=np.zeros((ROWS, 1)), columns=["a"], monotone={"a": 1})
    guess = guessed(MonotoneSides(), view_of(records, ROWS), own, 3)
    assert guess.values.tolist() == [0, 0, 1, 1, 2, 2]
    assert guess.scores is not None
    assert (guess.scores.argmax(axis=1) == guess.values).all()
    assert MonotoneSides().score(guess, np.array([0, 0, 1, 1, 2, 2])) == {"ordered_pairs": 1.0}
    assert MonotoneSides().score(guess, np.array([2, 2, 1, 1, 0, 0])) == {"ordered_pairs": 0.0}


def reached(view: View, own: AttackerData, truth: np.ndarray) -> float:
    attack = MonotoneSides()
    return attack.score(guessed(attack, view, own, int(truth.max()) + 1), truth)["ordered_pairs"]


def own_of(view: View, x: np.ndarray) -> AttackerData:
    return AttackerData(features=x, columns=view.header.columns, monotone=view.header.monotone)


def test_directions_drawn_at_random_name_the_classes() -> None:
    """Mean of five draws: votes .99, without the view .41, labels in another order .52."""
    parts, labels = cancer()
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        drawn = {at: int(rng.choice([-1, 1])) for at in range(parts["passive"].shape[1])}
        view = trained(parts, labels, PARAMS, monotone={"passive": drawn}).views["passive"]
        own = own_of(view, parts["passive"])
        assert own.monotone == {f"passive{at}": direction for at, direction in drawn.items()}
        blind = reached(view.without_records(), own, labels)
        found.append((reached(view, own, labels), blind, reached(view, own, rng.permutation(labels))))
    votes, blind, shuffled = np.mean(found, axis=0)
    assert votes > 0.95
    assert blind < 0.7
    assert shuffled == pytest.approx(0.5, abs=0.05)  # five AUCs of 212 and 357 rows: a deviation of .011


def test_a_coalition_reads_the_splits_of_all() -> None:
    parts, labels = cancer()
    halves = {"active": parts["active"], "left": parts["passive"][:, :7], "right": parts["passive"][:, 7:]}
    monotone = {"left": dict.fromkeys(range(7), -1), "right": dict.fromkeys(range(8), -1)}
    views = trained(halves, labels, PARAMS, monotone=monotone).views
    joined = JoinedView([views["left"], views["right"]])
    assert joined.header.monotone.keys() == set(joined.header.columns)
    own = own_of(joined, parts["passive"])
    alone = [reached(views[name], own_of(views[name], halves[name]), labels) for name in ("left", "right")]
    assert reached(joined, own, labels) > max(alone) - 0.01
    guess = guessed(MonotoneSides(), joined, own, 2)
    assert guess.notes["splits"] == sum(sum(1 for _ in views[name].observed(OwnSplit)) for name in ("left", "right"))


@pytest.mark.parametrize("params", [SecureBoost(trees=10, depth=3), FederatedForest(trees=10, depth=4)])
def test_quantities_are_ranked(params: Any) -> None:
    """Of boosted trees and of a forest: in directions that are right, more than half of all pairs are in order."""
    x, y = load_diabetes(return_X_y=True)
    parts = {"active": x[:, :5].copy(), "passive": x[:, 5:].copy()}
    monotone = {"passive": {at: 1 if np.corrcoef(x[:, 5 + at], y)[0, 1] > 0 else -1 for at in range(5)}}
    view = Setting(parts, y, params, classes=(), monotone=monotone).run().views["passive"]
    bins = np.searchsorted(np.quantile(y, [0.25, 0.5, 0.75]), y, side="right")
    assert reached(view, own_of(view, parts["passive"]), bins) > 0.65


def test_what_it_does_not_read() -> None:
    attack = MonotoneSides()
    with refused(JobError, "unsupported", value=3):
        attack.check_labels(100, 3)
    attack.check_labels(100, 2)
    attack.check_labels(100, 0)
    with refused(JobError, "unsupported", value="splitnn"):
        attack.check_model({"kind": "splitnn"})
    with refused(DataError, "rows"):
        own = AttackerData(features=np.zeros((5, 1)), columns=["a"], monotone={"a": 1})
        attack(view_of([], ROWS), own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(1))
    assert replace(attack, eta=0.5) == MonotoneSides(eta=0.5)
    assert "monotone-sides" in ATTACKS.classes()
    assert "monotone-sides" not in fitting_attacks("secureboost")
