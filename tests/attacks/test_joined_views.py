"""What a coalition sees together: against the view of one party with the columns of all, and made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.coalition import joined_data
from labelward.attacks.gradient_sign import GradientSign
from labelward.attacks.instance_spaces import observed_leaves
from labelward.defenses.id_lmid import IdLmid
from labelward.errors import DataError
from labelward.messages.tree import OwnSplit
from labelward.metrics.information import leakage_bounds
from labelward.party.joined_view import JoinedView
from labelward.party.view import View
from labelward.policy.base import Policy, Schedule
from labelward.protocols.secureboost.family import TreeFamily
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel
from labelward.testing.attacks import planted_view
from labelward.testing.label_attacks import gradient_view, gradients_of
from refusals import refused
from wiring import Run, Setting, column_names, make_labels, make_parts

WIDTHS = {"active": 1, "left": 2, "right": 3}


def own_of(party: str, x: NDArray[np.float64]) -> AttackerData:
    return AttackerData(features=x, columns=column_names(party, x))


def together(run: Run, parts: dict[str, Any], members: Sequence[str] = ("left", "right")) -> tuple[View, AttackerData]:
    view = JoinedView([run.views[member] for member in members])
    return view, joined_data(members, [own_of(member, parts[member]) for member in members])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "params",
    [
        SecureBoost(trees=3, depth=3, bins=8),
        SecureBoost(trees=3, depth=4, bins=8, row_fraction=0.5),
        FederatedForest(trees=3, depth=3, bins=8),
    ],
    ids=["boosted", "sampled", "forest"],
)
@pytest.mark.parametrize("policies", [(), (IdLmid(xi=0.25, sampled=True),)], ids=["open", "lmid"])
def test_two_parties_know_what_one_with_the_columns_of_both_would(
    seed: int, params: TreeModel, policies: tuple[Policy, ...]
) -> None:
    """Without a defense the trees are the same, and so is every leaf, rows out of the sample included.

    Behind a defense the trees differ, since a party is shown fewer nodes than one that holds the columns of both; what
    two know is then at least what each knows.
    """
    if policies and params.kind == "forest":
        pytest.skip("drawn with replacement")
    parts = make_parts(seed, 90, WIDTHS)
    labels = make_labels(seed, parts)
    run = Setting(parts, labels, params, policies=policies, seed=seed).run()
    view, own = together(run, parts)
    leaves = observed_leaves(view, own)
    if not policies:
        one = {"active": parts["active"], "both": np.hstack([parts["left"], parts["right"]])}
        alone = Setting(one, labels, params, seed=seed).run().views["both"]
        expected = observed_leaves(alone, own_of("both", one["both"]))
        placed = expected >= 0
        np.testing.assert_array_equal(leaves[placed], expected[placed])
        assert placed.all() or params.kind == "forest" or params.row_fraction < 1
    joint = TreeFamily(params).visibility(view, own, labels).joint_information
    assert joint is not None
    for party in ("left", "right"):
        mine = observed_leaves(run.views[party], own_of(party, parts[party]))
        assert len(mine) == len(leaves)
        assert leakage_bounds(mine, labels).joint_information <= joint + 1e-12
        assert ((leaves >= 0) | (mine < 0)).all()
        inside = observed_leaves(run.views[party])
        for ours, theirs in zip(observed_leaves(view), inside, strict=True):
            for leaf in np.unique(ours[ours >= 0]):
                assert len(np.unique(theirs[ours == leaf])) == 1  # a finer partition of the sample


def test_columns_and_splits_carry_the_name_of_their_party() -> None:
    parts = make_parts(1, 60, WIDTHS)
    run = Setting(parts, make_labels(1, parts), SecureBoost(trees=3, depth=3)).run()
    view, own = together(run, parts)
    assert (view.party, view.rows, view.ended) == ("left+right", 60, "complete")
    assert view.header.columns == tuple(own.columns)
    assert {split.column for split in view.observed(OwnSplit)} <= set(own.columns)
    assert {name.partition(".")[0] for name in own.columns} == {"left", "right"}
    np.testing.assert_array_equal(own.features, np.hstack([parts["left"], parts["right"]]))
    empty = view.without_records()
    assert not len(observed_leaves(empty))
    assert [member.party for member in empty.members] == ["left", "right"]
    assert [member.party for member in run.views["left"].members] == ["left"]


class Apart(Policy):
    """One party takes part in the first tree, the other in all."""

    kind = "apart"

    def schedule(self, schedule: Schedule) -> Schedule:
        both = frozenset({"left", "right"})
        return Schedule(participants=(both, *(frozenset({"right"}),) * (len(schedule.participants) - 1)))


def test_trees_in_which_a_member_took_no_part_stand_side_by_side() -> None:
    parts = make_parts(2, 80, WIDTHS)
    labels = make_labels(2, parts)
    run = Setting(parts, labels, SecureBoost(trees=3, depth=3), policies=(Apart(),)).run()
    view, own = together(run, parts)
    leaves, alone = observed_leaves(view, own), [observed_leaves(run.views[party]) for party in ("left", "right")]
    assert [len(each) for each in alone] == [1, 3]
    for number, expected in enumerate((alone[0][0], alone[1][0], alone[1][1], alone[1][2])):
        np.testing.assert_array_equal(leaves[number], expected)


def test_three_members_and_their_order() -> None:
    widths = {"active": 1, "a": 1, "b": 2, "c": 1}
    parts = make_parts(3, 70, widths)
    run = Setting(parts, make_labels(3, parts), SecureBoost(trees=2, depth=3)).run()
    view, own = together(run, parts, ("a", "b", "c"))
    again, other = together(run, parts, ("c", "a", "b"))
    np.testing.assert_array_equal(observed_leaves(view, own), observed_leaves(again, other))
    assert view.header.peers == ("active",)


def test_gradients_with_noise_of_their_own_are_averaged() -> None:
    """Two copies of the gradients of the same logits, each with independent noise, tell more than one."""
    truth = np.random.default_rng(3).integers(3, size=400)
    exact, views = gradients_of(truth, 3, 4), []
    for number, party in enumerate(("telco", "shop")):
        noise = np.random.default_rng(number).normal(scale=np.abs(exact).max() * 3, size=exact.shape)
        made = gradient_view(exact + noise)
        views.append(View(msgspec.structs.replace(made.header, party=party), made.entries()))
    aux, empty = AuxiliaryKnowledge(classes=3), AttackerData(features=np.empty((400, 0)), columns=())

    def right(view: View) -> float:
        own = joined_data(["telco", "shop"], [empty, empty]) if len(view.members) > 1 else empty
        guess = GradientSign(epochs=4)(view, own, aux, rng=np.random.default_rng(1))
        return float((guess.values == truth).mean())

    alone = [right(view) for view in views]
    assert right(JoinedView(views)) > max(alone) + 0.02
    same = JoinedView([views[0], View(msgspec.structs.replace(views[0].header, party="x"), views[0].entries())])
    assert right(same) == alone[0]


def test_bottom_models_stand_side_by_side() -> None:
    torch = pytest.importorskip("torch")
    first, second = torch.nn.Linear(2, 3), torch.nn.Linear(1, 4)
    rows = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    data = [
        AttackerData(features=rows[:, :2], columns=("a", "b"), bottom=lambda: first, untrained=lambda: first),
        AttackerData(features=rows[:, 2:], columns=("a",), bottom=lambda: second),
    ]
    own = joined_data(["telco", "shop"], data)
    assert own.columns == ("telco.a", "telco.b", "shop.a")
    assert own.untrained is None  # one member has none
    assert own.bottom is not None
    x = torch.from_numpy(rows)
    assert torch.equal(own.bottom()(x), torch.cat([first(x[:, :2]), second(x[:, 2:])], 1))


def test_coalitions_that_cannot_be() -> None:
    leaves = np.zeros((1, 6), np.int32)
    view = planted_view(leaves, party="telco")

    def changed(**changes: Any) -> View:
        return View(msgspec.structs.replace(view.header, **{"party": "shop", **changes}), view.entries())

    JoinedView([view, changed()])
    for members in ([], [view], [view, view]):
        with refused(DataError, "duplicate"):
            JoinedView(members)
    with refused(DataError, "unsupported", value="bank"):
        JoinedView([view, changed(party="bank", role="active")])
    for changes in ({"rows": (7, 0)}, {"ids": "other"}, {"job": {"run.seed": "2"}}):
        with refused(DataError, "other-run", value=("telco", "shop")):
            JoinedView([view, changed(**changes)])
    with refused(DataError, "unsupported", value="shop"):
        pictures = AttackerData(features=np.zeros((6, 1, 2, 2)), columns=())
        joined_data(["telco", "shop"], [own_of("telco", np.zeros((6, 1))), pictures])
