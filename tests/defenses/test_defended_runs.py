"""What defenses promise, checked on the views of whole runs with the true labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bounded import assert_bounded, assert_nothing_else_is_named, known_splits, setting
from hypothesis import given, settings
from hypothesis import strategies as st

from blames import refused_about
from labelward.defenses.id_lmid import IdLmid
from labelward.defenses.local_trees import LocalTrees
from labelward.errors import PolicyError
from labelward.messages.tree import LevelRequest, OwnSplit, TrainingEnd, TreeStart
from labelward.policy.base import CandidateSplits, Policy, Schedule
from labelward.policy.chain import TALLIES
from labelward.protocols.secureboost.params import SecureBoost
from wiring import Setting, joined, readable_content

# -- ID-LMID ----------------------------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**20),
    parties=st.integers(2, 3),
    xi=st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.3, 0.7]),
    candidates=st.sampled_from(["global", "node"]),
    active_columns=st.sampled_from([0, 2]),
)
@settings(max_examples=40)
def test_no_visible_node_exceeds_the_bound(
    seed: int, parties: int, xi: float, candidates: str, active_columns: int
) -> None:
    params = SecureBoost(trees=2, depth=4, bins=8, candidates=candidates)  # type: ignore[arg-type]
    given_setting = setting(seed, parties, params, active_columns=active_columns)
    run = given_setting.run(policies=(IdLmid(xi=xi),))
    assert_bounded(run, given_setting.labels, xi)
    for party in run.passive:
        assert_nothing_else_is_named(run.views[party])


@pytest.mark.parametrize("parties", [2, 3])
def test_the_bound_binds(parties: int) -> None:
    """Undefended, the same data show nodes beyond it; defended, some are seen, some hidden, and the model learns."""
    given_setting = setting(5, parties, SecureBoost(trees=3, depth=4, bins=16), rows=400)
    with pytest.raises(AssertionError):
        assert_bounded(given_setting.run(), given_setting.labels, 0.2)
    run = given_setting.run(policies=(IdLmid(xi=0.2),))
    assert assert_bounded(run, given_setting.labels, 0.2) >= 4
    tally = run.active.tally
    assert tally["refused_candidates"] > 0
    assert tally["hidden_splits"] > 0
    assert tally["given_up_splits"] == 0  # a passive party's candidate is refused before it can win
    correct = float(np.mean((run.active.margins[:, 0] > 0) == given_setting.labels))
    assert correct > 0.75  # half would be a guess


def test_a_candidate_is_refused_for_either_child() -> None:
    """Of 8 + 8 rows: 4 + 4 left tell nothing; 1 + 0 left are pure, log 2 = 0.693 nats; 8 + 7 leave a pure right."""
    left = np.array([[4, 4], [1, 0], [8, 7]])
    candidates = CandidateSplits(
        tree=0,
        depth=0,
        owner="left",
        owner_is_active=False,
        nodes=(0,),
        left=left[None, None],
        node=np.array([[8, 8]]),
        totals=np.array([8, 8]),
    )
    assert IdLmid(xi=0.69).split_candidates(candidates).tolist() == [[[True, False, False]]]
    assert IdLmid(xi=0.70).split_candidates(candidates).tolist() == [[[True, True, True]]]
    active = replace(candidates, owner="active", owner_is_active=True)
    assert IdLmid(xi=0.0).split_candidates(active).all()


def test_hidden_subtrees_appear_nowhere_in_a_view() -> None:
    """Splits below a hidden one are the active party's own, and no passive party is told a word of them."""
    given_setting = setting(6, 3, SecureBoost(trees=3, depth=4, bins=16), rows=400)
    run = given_setting.run(policies=(IdLmid(xi=0.15),))
    share, hidden = run.active.share, 0
    for party in run.passive:
        view = run.views[party]
        assert_nothing_else_is_named(view)
        for tree, shape in enumerate(share.trees):
            known = known_splits(view, tree)
            built = {n for each in view.received(LevelRequest) if each.message.tree == tree for n in each.message.build}
            for node, owner in zip(shape.nodes, shape.owners, strict=True):
                if node and (node - 1) // 2 not in known:  # the party does not know this node's rows
                    assert owner == 0
                    assert node not in known
                    assert node not in built
                    hidden += 1
    assert hidden > 0


def test_a_bound_of_nothing_shows_nothing() -> None:
    """At 0 nats every split that tells anything is hidden: no rows travel but the sample."""
    given_setting = setting(7, 2, SecureBoost(trees=2, depth=3, bins=8))
    run = given_setting.run(policies=(IdLmid(xi=0.0),))
    assert assert_bounded(run, given_setting.labels, 0.0) == 0
    assert run.passive["left"].share.own.columns == ()
    assert {owner for tree in run.active.share.trees for owner in tree.owners} <= {0}


@pytest.mark.parametrize("candidates", ["global", "node"])
def test_a_bound_beyond_all_changes_nothing(candidates: str) -> None:
    """The class counts that travel besides change no tree, and no part of a view but the active party's sums."""
    params = SecureBoost(trees=2, depth=4, bins=8, candidates=candidates)  # type: ignore[arg-type]
    given_setting = setting(8, 3, params)
    plain, defended = given_setting.run(), given_setting.run(policies=(IdLmid(xi=1e6),))
    assert defended.active.share == plain.active.share
    assert defended.active.margins.tobytes() == plain.active.margins.tobytes()
    assert defended.active.tally == dict.fromkeys(TALLIES, 0)
    for party, out in plain.passive.items():
        assert defended.passive[party].share == out.share
        assert readable_content(defended.views[party]) == readable_content(plain.views[party])


@pytest.mark.slow
def test_the_bound_holds_under_encryption() -> None:
    """Purities travel packed beside gradients; decisions, shares and views are those of the plain run."""
    given_setting = setting(9, 3, SecureBoost(trees=2, depth=3, bins=8))
    policies = (IdLmid(xi=0.2),)
    plain, secret = (
        given_setting.run(policies=policies),
        given_setting.run(policies=policies, engine="paillier", bits=512),
    )
    assert_bounded(secret, given_setting.labels, 0.2)
    assert secret.active.share == plain.active.share
    assert secret.active.tally == plain.active.tally
    for party in plain.views:
        assert readable_content(secret.views[party]) == readable_content(plain.views[party])


# -- local trees ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "total", "shared"), [("replace", 3, 2), ("add", 4, 3)])
def test_local_trees_are_the_active_partys_alone(mode: str, total: int, shared: int) -> None:
    given_setting = setting(12, 3, SecureBoost(trees=3, depth=3, bins=8, row_fraction=0.9))
    run = given_setting.run(policies=(LocalTrees(count=1, mode=mode),))  # type: ignore[arg-type]
    trees = run.active.share.trees
    assert len(trees) == total
    assert set(trees[0].owners) == {0}
    alone = joined(Setting({"active": given_setting.parts["active"]}, given_setting.labels, given_setting.params))
    assert trees[0] == alone.trees[0]
    for party in run.passive:
        view = run.views[party]
        assert [each.message.tree for each in view.received(TreeStart)] == list(range(shared))
        assert [each.message.trees for each in view.received(TrainingEnd)] == [shared]
        assert {each.message.tree for each in view.received(LevelRequest)} == set(range(shared))
        assert all(frame_tree < shared for frame_tree in (own.tree for own in view.observed(OwnSplit)))
        records = {
            record
            for tree in trees
            for owner, record in zip(tree.owners, tree.records, strict=True)
            if run.active.share.parties[owner] == party
        }
        assert len(records) == len(list(view.observed(OwnSplit)))


def test_all_trees_local() -> None:
    """Nothing is encrypted, and the passive party learns that it was not needed."""
    given_setting = setting(13, 2, SecureBoost(trees=2, depth=3))
    run = given_setting.run(policies=(LocalTrees(count=2),))
    received = {name for kind, name in run.views["left"].counts() if kind == "received"}
    assert received == {"Hello", "Begin", "KeyOffer", "TrainingEnd", "PredictRequest"}
    alone = joined(Setting({"active": given_setting.parts["active"]}, given_setting.labels, given_setting.params))
    assert run.active.share.trees == alone.trees
    assert run.active.counts.encryptions == 0


class OneParty(Policy):
    """Only one passive party takes part in each tree, in turn."""

    kind = "one-party"

    def schedule(self, schedule: Schedule) -> Schedule:
        turns = ("left", "right")
        return Schedule(participants=tuple(frozenset({turns[n % 2]}) for n in range(len(schedule.participants))))


def test_a_party_counts_the_trees_in_which_it_takes_part() -> None:
    """From 0 and without gaps, so that it does not learn of the others."""
    run = setting(14, 3, SecureBoost(trees=5, depth=2, bins=8)).run(policies=(OneParty(),))
    for party, number in (("left", 3), ("right", 2)):
        view = run.views[party]
        assert [each.message.tree for each in view.received(TreeStart)] == list(range(number))
        assert [each.message.trees for each in view.received(TrainingEnd)] == [number]
    for position, tree in enumerate(run.active.share.trees):
        assert set(tree.owners) <= {0, 1 + position % 2}


# -- together ---------------------------------------------------------------------------------------------------------


def test_local_trees_and_id_lmid_compose() -> None:
    given_setting = setting(15, 3, SecureBoost(trees=3, depth=4, bins=16), rows=300)
    run = given_setting.run(policies=(LocalTrees(count=1), IdLmid(xi=0.2)))
    assert len(run.active.share.trees) == 3
    assert set(run.active.share.trees[0].owners) == {0}
    assert assert_bounded(run, given_setting.labels, 0.2) > 0
    for party in run.passive:
        assert len(list(run.views[party].received(TreeStart))) == 2
    again = given_setting.run(policies=(IdLmid(xi=0.2), LocalTrees(count=1)))
    assert again.active.share == run.active.share


def test_id_lmid_refuses_row_sampling() -> None:
    """The owner of a split routes the rows out of the sample itself: spaces that no sum covers."""
    with refused_about("row_fraction", PolicyError, "inapplicable", value=0.8):
        setting(16, 2, SecureBoost(trees=1, depth=2, row_fraction=0.8)).run(policies=(IdLmid(xi=0.1),))


def test_what_was_applied_stands_in_the_active_partys_transcript() -> None:
    given_setting = setting(16, 2, SecureBoost(trees=2, depth=4, bins=16), rows=300)
    run = given_setting.run(policies=(LocalTrees(count=1, mode="add"), IdLmid(xi=0.1)))
    declared, accounts = [
        [each for each in run.views["active"].applied() if each["stage"] == stage] for stage in ("start", "end")
    ]
    assert [each["kind"] for each in declared] == ["local-trees", "id-lmid"]
    assert declared[1]["refused_candidates"] == 0
    first, second = accounts
    assert (first["kind"], first["parameters"]) == ("local-trees", {"count": 1, "mode": "add"})
    assert (second["kind"], second["parameters"]) == ("id-lmid", {"xi": 0.1, "sampled": False})
    assert first["points"] == ["schedule"]
    assert second["points"] == ["before_instance_space", "split_candidates"]
    assert {name: second[name] for name in run.active.tally} == run.active.tally
    assert second["refused_candidates"] > 0
    assert list(run.views["left"].applied()) == []
    assert list(given_setting.run().views["active"].applied()) == []
