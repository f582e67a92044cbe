"""The leakage meter against stored views, and the budget at every moment."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from bounded import rich, setting

from blames import refused_about
from labelward.attacks.instance_spaces import observed_leaves
from labelward.defenses.id_lmid import IdLmid
from labelward.defenses.label_dp import RandomizedLabels
from labelward.defenses.leakage_meter import (
    LeakageBudget,
    LeakageMeter,
    MonitorConfig,
    information_gain_bound,
    measure_leakage,
)
from labelward.errors import JobError, PolicyError
from labelward.kernels.information import entropy, joint_information, v_measure, v_measure_bound
from labelward.kernels.leaf_signatures import merge_identical_rows
from labelward.messages.tree import OwnSplit
from labelward.party.joined_view import JoinedView
from labelward.party.view import View
from labelward.policy.base import KnownInstanceSpaces, Policy, Schedule
from labelward.policy.chain import PolicyChain
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel
from refusals import refused
from wiring import Run, Setting, make_targets

MODELS: list[TreeModel] = [
    SecureBoost(trees=3, depth=3),
    SecureBoost(trees=3, depth=3, row_fraction=0.7),
    SecureBoost(trees=2, depth=4, max_leaves=6, candidates="node"),
    SecureBoost(trees=4, depth=3, mode="mixed"),
    SecureBoost(trees=2, depth=4, mode="layered", passive_depth=2),
    FederatedForest(trees=4, depth=3, trees_at_once=3),
    FederatedForest(trees=3, depth=3, row_fraction=0.8),
]
PLAIN = MonitorConfig(eta=1.0, together=1, seed=1)


class Listener(Policy):
    """Keeps what the protocol says that parties know."""

    kind = "listener"

    def __init__(self) -> None:
        self.known: dict[str, np.ndarray] = {}

    def after_rows(self, rows: KnownInstanceSpaces) -> None:
        self.known[rows.party] = rows.leaves.copy()


def budgeted(base: Setting, budget: float, **changes: object) -> tuple[LeakageBudget, Run]:
    policy = LeakageBudget(np.asarray(base.labels, dtype=np.int64), PLAIN, budget=budget)
    return policy, base.run(policies=(policy,), **changes)


def moments(view: View) -> Iterator[View]:
    """Yield the view as it was after each of its records."""
    for kept in range(1, len(view._entries)):
        if view._entries[kept - 1].type in ("TreeStart", "Level", "OwnSplit"):
            yield View(view.header, view._entries[:kept])


def worst(run: Run, labels: np.ndarray, measure: MonitorConfig = PLAIN) -> tuple[float, float]:
    """Return the largest of any party at any moment: V-measure of the meter, and bound for any clustering at all."""
    most, found = float(entropy(np.bincount(labels))), [(0.0, 0.0)]
    for party in run.passive:
        for moment in moments(run.views[party]):
            leaves = observed_leaves(moment)
            told = joint_information(merge_identical_rows(leaves).group, labels)
            found.append(
                (measure_leakage(leaves, labels, party, measure).v_measure, float(v_measure_bound(told, most)))
            )
    read, bound = np.array(found).max(axis=0)
    assert read <= bound + 1e-12  # sums of a few logarithms
    return float(read), float(bound)


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("params", MODELS)
def test_the_protocol_knows_what_stands_in_each_view(params: TreeModel, parties: int) -> None:
    listener = Listener()
    base = rich(setting(3, parties, params), 3, 3, missing=0.1)
    run = base.run(policies=(listener,))
    assert set(listener.known) == set(run.passive)
    for party, leaves in listener.known.items():
        np.testing.assert_array_equal(leaves, observed_leaves(run.views[party]))


@pytest.mark.parametrize("params", [MODELS[0], MODELS[5]])
def test_it_knows_so_where_a_defense_hides_splits(params: TreeModel) -> None:
    listener = Listener()
    run = setting(5, 3, params).run(policies=(IdLmid(xi=0.3, sampled=True), listener))
    assert run.active.tally["hidden_splits"] > 0
    for party, leaves in listener.known.items():
        np.testing.assert_array_equal(leaves, observed_leaves(run.views[party]))


@pytest.mark.parametrize("params", [*MODELS, SecureBoost(trees=25, depth=2)])
def test_readings_are_those_of_the_stored_views_and_change_nothing(params: TreeModel) -> None:
    base = setting(7, 3, params)
    measure = MonitorConfig.of({"kind": params.kind}, 2, seed=9)
    meter = LeakageMeter(base.labels, measure)
    bare, run = base.run(), base.run(policies=(meter,))
    assert {party: view.digest() for party, view in run.views.items()} == {
        party: view.digest() for party, view in bare.views.items()
    }
    assert run.shares == bare.shares
    for party in run.passive:
        of_party = meter.readings[party]
        last = measure_leakage(observed_leaves(run.views[party]), base.labels, party, measure)
        assert of_party[params.trees] == last
        assert list(of_party) == sorted(of_party)
        assert last.groups >= last.communities >= 0
    end = next(each for each in run.views["active"].applied() if each["stage"] == "end")
    assert set(end["readings"]) == set(run.passive)


def test_long_trainings_are_read_ever_more_rarely() -> None:
    """Of many rows after few trees; of few rows after every one. The last tree is always read, in the account."""
    for rows, wanted in ((200_001, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]), (4, [*range(1, 36)])):
        meter = LeakageMeter(np.arange(rows) % 2, PLAIN)
        leaves = np.zeros((1, rows), dtype=np.int32)
        for tree in range(35):
            meter.after_rows(KnownInstanceSpaces(party="a", tree=tree, at=0, node=-1, leaves=leaves))
        assert list(meter.readings["a"]) == wanted
        told = meter.account()["readings"]["a"]
        assert list(told) == [str(trees) for trees in dict.fromkeys([*wanted, 35])]


def test_communities_are_those_of_the_first_trees() -> None:
    rng = np.random.default_rng(0)
    leaves = rng.integers(1, 3, (20, 50)).astype(np.int32)
    labels = rng.integers(0, 2, 50)
    whole, first = (measure_leakage(each, labels, "a", PLAIN) for each in (leaves, leaves[:16]))
    assert whole == replace(first, groups=whole.groups)
    assert whole.groups >= first.groups


@pytest.mark.parametrize("params", MODELS)
@pytest.mark.parametrize("budget", [0.0, 0.1, 0.3])
def test_the_budget_holds_at_every_moment(params: TreeModel, budget: float) -> None:
    base = setting(11, 3, params, rows=120)
    _, run = budgeted(base, budget)
    assert max(worst(run, base.labels)) <= budget


def together(run: Run, labels: np.ndarray) -> float:
    """Return the bound of the V-measure for what all passive parties know together in the end, which is the most."""
    stacked = np.vstack([observed_leaves(view) for view in (run.views[party] for party in run.passive)])
    joined = observed_leaves(JoinedView([run.views[party] for party in run.passive]))
    told = joint_information(merge_identical_rows(stacked).group, labels)
    assert joint_information(merge_identical_rows(joined).group, labels) == pytest.approx(told, abs=1e-12)
    return float(v_measure_bound(told, float(entropy(np.bincount(labels)))))


@pytest.mark.parametrize("params", MODELS)
@pytest.mark.parametrize("budget", [0.0, 0.1, 0.3])
def test_the_budget_holds_for_a_coalition(params: TreeModel, budget: float) -> None:
    base = setting(11, 3, params, rows=120)
    policy = LeakageBudget(base.labels.astype(np.int64), PLAIN, budget=budget, collude=("left", "right"))
    run = base.run(policies=(policy,))
    assert together(run, base.labels) <= budget
    assert max(worst(run, base.labels)) <= budget
    assert policy.account()["readings"].keys() == {"left", "right"}


class Alternating(Policy):
    """The passive parties take part in every other tree each."""

    kind = "alternating"

    def schedule(self, schedule: Schedule) -> Schedule:
        parties = sorted(schedule.participants[0])
        trees = range(len(schedule.participants))
        return Schedule(participants=tuple(frozenset({parties[tree % len(parties)]}) for tree in trees))


def test_a_budget_of_single_parties_does_not_hold_for_a_coalition() -> None:
    """Where they see different trees each stays within .2, and both together are beyond; not so with ``collude``."""
    found: dict[tuple[str, ...], list[float]] = {(): [], ("left", "right"): []}
    for seed in range(4):
        base = setting(seed, 3, SecureBoost(trees=6, depth=3), rows=120)
        for collude, bounds in found.items():
            budget = LeakageBudget(base.labels.astype(np.int64), PLAIN, budget=0.2, collude=collude)
            run = base.run(policies=(Alternating(), budget))
            assert max(worst(run, base.labels)) <= 0.2
            stacked = np.vstack([observed_leaves(run.views[party]) for party in run.passive])
            told = joint_information(merge_identical_rows(stacked).group, base.labels)
            bounds.append(float(v_measure_bound(told, float(entropy(np.bincount(base.labels))))))
    assert max(found["left", "right"]) <= 0.2
    assert max(found[()]) > 0.2


def test_the_undefended_run_exceeds_the_budgets() -> None:
    base = setting(11, 3, MODELS[0], rows=120)
    assert min(worst(base.run(), base.labels)) > 0.3


@pytest.mark.parametrize("seed", range(4))
def test_the_budget_holds_for_several_classes_and_gaps(seed: int) -> None:
    base = rich(setting(seed, 2, SecureBoost(trees=3, depth=4)), seed, 3, missing=0.1)
    policy, run = budgeted(base, 0.2)
    assert max(worst(run, base.labels)) <= 0.2
    assert policy.readings["left"][3].v_measure <= 0.2


def test_budget_1_changes_no_tree() -> None:
    base = setting(2, 3, MODELS[0])
    _, run = budgeted(base, 1.0)
    bare = base.run()
    assert run.active.share.trees == bare.active.share.trees


@pytest.mark.parametrize("params", MODELS)
def test_budget_0_shows_nothing(params: TreeModel) -> None:
    base = setting(13, 3, params)
    _, run = budgeted(base, 0.0)
    for party in run.passive:
        leaves = observed_leaves(run.views[party])
        assert joint_information(np.unique(leaves, axis=1, return_inverse=True)[1].ravel(), base.labels) < 1e-12
        assert not list(run.views[party].observed(OwnSplit))


def test_without_columns_of_the_active_party_the_budget_holds() -> None:
    base = setting(4, 3, MODELS[0], active_columns=0)
    _, run = budgeted(base, 0.2)
    assert max(worst(run, base.labels)) <= 0.2


def test_quantities_are_counted_by_their_bins() -> None:
    base = setting(6, 3, SecureBoost(trees=3, depth=3))
    values = np.asarray(make_targets(6, base.parts, "quantities"), dtype=np.float64)
    bins = np.searchsorted(np.quantile(values, (0.25, 0.5, 0.75)), values).astype(np.int64)
    base = replace(base, labels=values, classes=())
    policy = LeakageBudget(bins, PLAIN, budget=0.25, quantities=True)
    run = base.run(policies=(policy,))
    assert max(worst(run, bins)) <= 0.25
    assert min(worst(base.run(), bins)) > 0.25
    assert any(list(run.views[party].observed(OwnSplit)) for party in run.passive)  # the counts let some splits be


@pytest.mark.parametrize("seed", range(6))
def test_no_clustering_exceeds_the_bound(seed: int) -> None:
    """All ways to join five groups of twelve rows, so all functions of the groups."""
    rng = np.random.default_rng(seed)
    groups, labels = rng.integers(0, 5, 12), rng.integers(0, 2 + seed % 2, 12)
    labels[:2] = (0, 1)
    bound = float(v_measure_bound(joint_information(groups, labels), float(entropy(np.bincount(labels)))))
    found = [v_measure(np.array(names)[groups], labels) for names in itertools.product(range(5), repeat=5)]
    assert max(found) <= bound + 1e-12  # sums of a few logarithms


@pytest.mark.parametrize("seed", range(30))
def test_what_splits_add_is_bounded(seed: int) -> None:
    """Of two splits in flight, of nodes that overlap as those of trees side by side do, or of one group."""
    rng = np.random.default_rng(seed)
    rows, classes = 40, 2 + seed % 3
    labels, groups = rng.integers(0, classes, rows), rng.integers(0, 1 + seed % 6, rows).astype(np.int32)
    labels[:classes] = np.arange(classes)
    known = groups.astype(np.int64)
    total = joint_information(groups, labels)
    for number in range(2):
        node = np.isin(groups, rng.choice(np.unique(groups), 1 + rng.integers(len(np.unique(groups)))))
        inside, side = np.flatnonzero(node), rng.integers(0, 2, rows)
        left, right = (
            np.bincount(labels[node & (side == value)], minlength=classes).astype(np.int64) for value in (0, 1)
        )
        more = information_gain_bound(groups[inside], labels[inside], left, right, rows, exact=number == 0)
        known = known * 3 + np.where(node, side, 2)
        total += float(more)
        truth = joint_information(known, labels)
        assert truth <= total + 1e-12
        if number == 0 and len(np.unique(groups[inside])) == 1:
            assert truth == pytest.approx(total, abs=1e-12)  # for one group class counts say it all


@pytest.mark.parametrize("budget", [-0.1, 1.1, True, "0.3"])
def test_a_budget_is_a_v_measure(budget: object) -> None:
    with refused(JobError, "range" if type(budget) is float else "type", value=budget, field="budget"):
        LeakageBudget(np.arange(2), PLAIN, budget=budget)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("params", "others", "about"),
    [
        (SecureBoost(trees=1, sampling="goss"), (), "sampling"),
        (FederatedForest(trees=1, replace=True), (), "replace"),
        (SecureBoost(trees=1), (RandomizedLabels(epsilon=1.0),), "randomized-response"),
    ],
)
def test_what_the_budget_cannot_cover_is_refused(params: TreeModel, others: tuple[Policy, ...], about: str) -> None:
    base = setting(1, 2, params)
    policy = LeakageBudget(base.labels, PLAIN, budget=0.3)
    with refused_about(about, PolicyError, "inapplicable"):
        base.run(policies=(*others, policy))


def test_an_earlier_training_is_refused() -> None:
    base = setting(1, 2, SecureBoost(trees=1))
    first = base.run()
    with refused_about("earlier", PolicyError, "inapplicable", field="[leakage] budget"):
        budgeted(base, 0.3, shares=first.shares)


def test_the_meter_goes_with_noisy_labels() -> None:
    base = setting(1, 2, SecureBoost(trees=2, depth=3))
    meter = LeakageMeter(base.labels, PLAIN)
    base.run(policies=(RandomizedLabels(epsilon=1.0), meter))
    assert meter.readings["left"][2].v_measure >= 0


def test_progress_hears_of_each_reading() -> None:
    base, heard = setting(1, 3, SecureBoost(trees=2, depth=3)), []
    meter = LeakageMeter(base.labels, PLAIN, lambda *news: heard.append(news))
    base.run(policies=(meter,))
    assert [what for what, _, _ in heard] == ["leakage left", "leakage right"] * 2
    assert all(total == 1000 and 0 <= done <= 1000 for _, done, total in heard)


def test_a_chain_withholds_what_one_policy_withholds() -> None:
    class Never(Policy):
        kind = "never"

        def before_rows(self, rows: KnownInstanceSpaces) -> bool:
            return rows.node < 0

    chain = PolicyChain([Never(), Policy()])
    rows = KnownInstanceSpaces(party="a", tree=0, at=0, node=3, leaves=np.zeros((1, 2), np.int32))
    assert not chain.before_rows(rows)
    assert chain.before_rows(replace(rows, node=-1))
    assert chain.tally()["hidden_splits"] == 1
