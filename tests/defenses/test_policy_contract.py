"""Every defense passes the shipped suite; wrong ones do not, and a run refuses their answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from blames import refused_about
from labelward.defenses import DEFENSES
from labelward.defenses.adversarial import Adversarial
from labelward.defenses.coae import Coae
from labelward.defenses.discrete_sgd import DiscreteSgd
from labelward.defenses.distance_correlation import DistanceCorrelation
from labelward.defenses.gradient_compression import GradientCompression
from labelward.defenses.grafting import Grafting
from labelward.defenses.id_lmid import IdLmid
from labelward.defenses.label_dp import LpMst, RandomizedLabels
from labelward.defenses.local_trees import LocalTrees
from labelward.defenses.lpsc import Lpsc
from labelward.defenses.marvell import Marvell
from labelward.defenses.mid import Mid
from labelward.defenses.noisy_gradients import NoisyGradients
from labelward.defenses.ppdl import Ppdl
from labelward.defenses.purity_threshold import PurityThreshold
from labelward.defenses.sign_sgd import SignSgd
from labelward.errors import Code, JobError, PolicyError
from labelward.messages.base import wire_name
from labelward.messages.codec import decode
from labelward.policy.base import (
    POINTS,
    CandidateSplits,
    FinishedTree,
    LeafWeights,
    Policy,
    PolicyContext,
    Schedule,
    SplitReveal,
    TreeRepair,
)
from labelward.policy.chain import PolicyChain, check_hooks
from labelward.policy.net_points import ReturnedGradient
from labelward.protocols.secureboost.params import SecureBoost
from labelward.rng import SecureRandom
from labelward.testing.policies import PolicyContract
from refusals import refused
from wiring import Setting, make_labels, make_parts


class TestIdLmid(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return IdLmid(xi=0.3)


class TestLocalTrees(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return LocalTrees(count=2)


class TestPurityThreshold(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return PurityThreshold(threshold=0.7)


class TestRandomizedResponse(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return RandomizedLabels(epsilon=1.0)


class TestLpMst(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return LpMst(epsilon=0.5, stages=3)


ONE_OUTPUT = PolicyContext(model="net", classes=2, passive=("left",), active_columns=3, epochs=2, loss="logistic")


class TestLpsc(PolicyContract):
    setup = ONE_OUTPUT

    @classmethod
    def make(cls) -> Policy:
        return Lpsc(coding="l2", folds=2)


class TestAdversarial(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return Adversarial(beta=0.5, width=3)


class TestDistanceCorrelation(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return DistanceCorrelation(weight=0.5)


class TestMid(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return Mid(weight=0.5)


class TestCoae(PolicyContract):
    setup = replace(ONE_OUTPUT, loss="auto")

    @classmethod
    def make(cls) -> Policy:
        return Coae(weight=0.5, steps=20)


class TestMarvell(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return Marvell(s=1.0)

    @classmethod
    def suiting(cls, question: ReturnedGradient) -> ReturnedGradient:
        return replace(question, classes=2, targets=question.targets % 2)


class TestGrafting(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return Grafting(unrepaired="relabel")

    @classmethod
    def before(cls) -> tuple[Policy, ...]:
        return (LpMst(epsilon=1.0),)


class TestAddedTrees(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return LocalTrees(count=3, mode="add")


class TestNoisyGradients(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return NoisyGradients(scale=0.01)


class TestAccountedGradients(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return NoisyGradients(distribution="gaussian", epsilon=2.0, delta=1e-5, clip=0.1)


class TestGradientCompression(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return GradientCompression(keep=0.25)


class TestPpdl(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return Ppdl(theta=0.5, epsilon=1.8)


class TestPublishedPpdl(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return Ppdl(theta=0.75, epsilon=1.8, form="published")


class TestDiscreteSgd(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return DiscreteSgd(levels=6, outliers="clip")


class TestPublishedDiscreteSgd(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return DiscreteSgd(levels=6, form="published")


class TestSignSgd(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return SignSgd(magnitude=0.5)


@dataclass(frozen=True, kw_only=True)
class Doubled(Policy):
    """The suite accepts what halves or doubles, too."""

    kind: ClassVar[str] = "doubled"
    factor: float = 2.0

    def before_leaf_weights(self, leaves: LeafWeights) -> Any:
        return self.factor * leaves.weights

    def parameters(self) -> dict[str, Any]:
        return asdict(self)


class TestDoubled(PolicyContract):
    @classmethod
    def make(cls) -> Policy:
        return Doubled()


def test_every_listed_defense_is_tested_here() -> None:
    of_trees = (TestIdLmid, TestLocalTrees, TestPurityThreshold, TestRandomizedResponse, TestLpMst, TestGrafting)
    of_gradients = (TestNoisyGradients, TestGradientCompression, TestPpdl, TestDiscreteSgd, TestSignSgd, TestMarvell)
    of_nets = (*of_gradients, TestAdversarial, TestDistanceCorrelation, TestLpsc, TestMid, TestCoae)
    of_holders = {"partial-dp", "label-dp-sums"}  # test_holder_defenses.py
    of_passive_parties = {"min-bin-rows"}  # tests/attacks/test_bin_reconstruction.py
    tested = {case.make().kind for case in of_trees + of_nets} | of_holders | of_passive_parties
    assert set(DEFENSES.classes()) == tested


# -- wrong policies ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class OneAnswer(Doubled):
    kind: ClassVar[str] = "one-answer"

    def before_leaf_weights(self, leaves: LeafWeights) -> Any:
        return leaves.weights[:1].repeat(len(leaves.weights) + 1)


@dataclass(frozen=True, kw_only=True)
class Changing(Doubled):
    kind: ClassVar[str] = "changing"

    def before_leaf_weights(self, leaves: LeafWeights) -> Any:
        leaves.weights[0] = 0.0
        return leaves.weights


@dataclass(frozen=True, kw_only=True)
class Numbers(Doubled):
    kind: ClassVar[str] = "numbers"
    purities: ClassVar[bool] = True

    def split_candidates(self, candidates: CandidateSplits) -> Any:
        return np.ones(candidates.left.shape[:-1])


@dataclass(frozen=True, kw_only=True)
class Generous(Doubled):
    kind: ClassVar[str] = "generous"

    def before_instance_space(self, reveal: SplitReveal) -> frozenset[str]:
        return frozenset({"left", "right", "everyone"})


@dataclass(frozen=True, kw_only=True)
class Restless(Doubled):
    kind: ClassVar[str] = "restless"

    def after_tree(self, tree: FinishedTree) -> TreeRepair:
        return TreeRepair(regrow=frozenset({tree.leaves[0], 99}))


@dataclass(frozen=True, kw_only=True)
class Forgotten(Doubled):
    """Draws anew in each attempt."""

    kind: ClassVar[str] = "forgotten"

    def on_returned_gradient(self, returned: ReturnedGradient) -> Any:
        noise = SecureRandom().bytes(returned.values.size)
        drawn = np.frombuffer(noise, dtype=np.uint8).reshape(returned.values.shape)
        return (returned.values + drawn).astype(returned.values.dtype)


@dataclass(frozen=True, kw_only=True)
class Centered(Doubled):
    """Says that it keeps to a row, and looks at all."""

    kind: ClassVar[str] = "centered"
    row_local: ClassVar[bool] = True  # type: ignore[misc]

    def on_returned_gradient(self, returned: ReturnedGradient) -> Any:
        return returned.values - returned.values.mean(axis=0)


@dataclass(frozen=True, kw_only=True)
class Forgetful(Doubled):
    kind: ClassVar[str] = "forgetful"

    def parameters(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("wrong", "test"),
    [
        (OneAnswer, "test_weights"),
        (Changing, "test_weights"),
        (Numbers, "test_candidates"),
        (Generous, "test_viewers"),
        (Generous, "test_it_asks_for_the_counts_that_it_needs"),
        (Restless, "test_repairs"),
        (Forgotten, "test_gradients"),
        (Centered, "test_row_local"),
        (Forgetful, "test_its_parameters_are_frozen_and_come_back"),
    ],
)
def test_the_suite_finds_what_is_wrong(wrong: type[Policy], test: str) -> None:
    class Suite(PolicyContract):
        @classmethod
        def make(cls) -> Policy:
            return wrong()

    with pytest.raises((AssertionError, ValueError)):
        getattr(Suite(), test)()


# -- the identity ----------------------------------------------------------------------------------------------------


def test_the_default_at_every_point_is_the_identity() -> None:
    policy, chain = Policy(), PolicyChain()
    assert (policy.points, policy.purities, policy.parameters(), chain.purities) == (frozenset(), False, {}, False)
    schedule = Schedule(participants=(frozenset({"left"}),))
    left = np.zeros((1, 2, 3, 2), np.int64)
    counts = np.zeros((1, 2), np.int64)
    candidates = CandidateSplits(
        tree=0,
        depth=0,
        owner="left",
        owner_is_active=False,
        nodes=(0,),
        left=left,
        node=counts,
        totals=counts[0],
    )
    leaves = LeafWeights(tree=0, weights=np.ones(2), counts=np.ones((2, 2), np.int64))
    for each in (policy, chain):
        assert each.schedule(schedule) is schedule
        assert each.split_candidates(candidates).tolist() == np.ones((1, 2, 3), bool).tolist()
        assert each.before_leaf_weights(leaves) is leaves.weights
    check_hooks(
        [policy],
        frozenset(),
        PolicyContext(model="m", trees=1, classes=2, active_columns=0, passive=(), row_fraction=1.0),
    )
    for point in POINTS:
        assert callable(getattr(Policy, point))


# -- in a run --------------------------------------------------------------------------------------------------------


def setting(*policies: Policy, columns: int = 2) -> Setting:
    parts = make_parts(51, 60, {"active": columns, "left": 2, "right": 2})
    return Setting(parts, make_labels(51, parts), SecureBoost(trees=2, depth=3, bins=8), policies=policies)


@pytest.mark.parametrize(
    ("wrong", "about"), [(OneAnswer(), "every leaf"), (Numbers(), "every candidate"), (Restless(), "repairs nodes")]
)
def test_answers_of_a_wrong_shape_stop_the_run(wrong: Policy, about: str) -> None:
    with refused_about(about, PolicyError, "cannot-act", value=wrong.kind):
        setting(wrong).run()


def test_viewers_that_were_not_asked_for_see_nothing() -> None:
    """A chain keeps within the parties that see the node, whatever a policy answers."""
    reveal = SplitReveal(
        tree=0,
        depth=0,
        node=0,
        owner="active",
        owner_is_active=True,
        left=np.array([1, 1]),
        right=np.array([1, 1]),
        totals=np.array([2, 2]),
        participants=frozenset({"left"}),
    )
    assert PolicyChain([Generous()]).before_instance_space(reveal) == {"left"}


@dataclass(frozen=True, kw_only=True)
class Later(Policy):
    """Acts at a point that trees never reach."""

    kind: ClassVar[str] = "later"

    @property
    def points(self) -> frozenset[str]:
        return frozenset({"before_embedding"})


def sent(wires: dict[str, Any]) -> list[str]:
    """Return the types of all messages that left the active party, in order."""
    return [wire_name(type(decode(frame)[0])) for _, frame in wires["active"].sent]


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Keep the ends of a run that does not come to an end."""
    import wiring

    kept: dict[str, Any] = {}
    original = wiring.Wire

    def make(end: Any, nap: Any) -> Any:
        kept[end.party] = original(end, nap)
        return kept[end.party]

    monkeypatch.setattr(wiring, "Wire", make)
    return kept


def test_a_point_that_is_never_reached_stops_the_run_at_set_up(wires: dict[str, Any]) -> None:
    with refused_about("'later'", PolicyError, "inapplicable", value=("before_embedding",)):
        setting(Later()).run()
    assert set(sent(wires)) <= {"Hello", "Begin"}  # the greeting, which says nothing of labels


@dataclass(frozen=True, kw_only=True)
class Broken(Policy):
    """Cannot act at one of its points, from one tree on."""

    kind: ClassVar[str] = "broken"
    purities: ClassVar[bool] = True

    point: str
    tree: int = 0

    @property
    def points(self) -> frozenset[str]:
        return frozenset({self.point})

    def _fail(self, point: str, question: Any) -> None:
        if point == self.point and getattr(question, "tree", self.tree) == self.tree:
            raise PolicyError(f"defense 'broken' cannot act at {point}", code="cannot-act", value=point)

    def schedule(self, schedule: Schedule) -> Schedule:
        self._fail("schedule", schedule)
        return schedule

    def before_targets(self, targets: Any) -> Any:
        self._fail("before_targets", targets)
        return targets

    def split_candidates(self, candidates: CandidateSplits) -> Any:
        self._fail("split_candidates", candidates)
        return super().split_candidates(candidates)

    def before_instance_space(self, reveal: SplitReveal) -> frozenset[str]:
        self._fail("before_instance_space", reveal)
        return reveal.participants

    def before_leaf_weights(self, leaves: LeafWeights) -> Any:
        self._fail("before_leaf_weights", leaves)
        return leaves.weights

    def after_tree(self, tree: FinishedTree) -> TreeRepair:
        self._fail("after_tree", tree)
        return TreeRepair()


@pytest.mark.parametrize("tree", [0, 1])
@pytest.mark.parametrize(
    ("point", "last"),
    [
        ("schedule", "KeyOffer"),
        ("before_targets", "KeyOffer"),
        ("split_candidates", "TreeRows"),
        ("before_instance_space", "TreeRows"),
        ("before_leaf_weights", "Level"),
        ("after_tree", "Level"),
    ],
)
def test_a_policy_that_cannot_act_stops_the_run_before_anything_else_leaves(
    wires: dict[str, Any], point: str, last: str, tree: int
) -> None:
    with refused(PolicyError, "cannot-act", value=point):
        setting(Broken(point=point, tree=tree)).run()
    names = sent(wires)
    assert names[-1] == last
    assert names.count("TreeStart") == (0 if last == "KeyOffer" else 2 * (tree + 1))  # two passive parties
    if point in ("split_candidates", "before_instance_space"):
        in_tree = names[len(names) - names[::-1].index("TreeStart") :]
        assert in_tree == ["Level", "Level", "TreeRows", "TreeRows"]  # the root was announced; nothing was chosen


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("xi", [-0.1, float("nan"), float("inf"), True, "0.1", None])
def test_xi_that_cannot_be(xi: Any) -> None:
    with refused(JobError, "range" if type(xi) is float else "type", field="xi"):
        IdLmid(xi=xi)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_counts_that_cannot_be(count: Any) -> None:
    with refused(JobError, "range" if type(count) is int else "type", value=count, field="count"):
        LocalTrees(count=count)


def test_modes_that_cannot_be() -> None:
    with refused(JobError, "choice", value="swap", field="mode"):
        LocalTrees(mode="swap")  # type: ignore[arg-type]


def test_the_registry_makes_and_refuses() -> None:
    assert DEFENSES.make("id-lmid", {"xi": 0.5}) == IdLmid(xi=0.5)
    assert DEFENSES.make("local-trees", {}) == LocalTrees(count=1, mode="replace")
    wrong: list[tuple[str, dict[str, Any], Code, str, str | None, str]] = [
        ("id-lmit", {}, "unknown", "", "id-lmit", "'id-lmid'"),
        ("id-lmid", {}, "missing", "xi", None, ""),
        ("id-lmid", {"xi": 1, "psi": 2}, "unknown", "", "psi", "'id-lmid'"),
        ("local-trees", {"counts": 2}, "unknown", "", "counts", "'count'"),
    ]
    for kind, params, code, field, value, about in wrong:
        with refused_about(about, JobError, code, field=field, value=value):
            DEFENSES.make(kind, params)


def test_local_trees_need_columns_and_trees_to_replace() -> None:
    with refused(PolicyError, "inapplicable", field="defense 'local-trees'", value=None):
        setting(LocalTrees(), columns=0).run()
    with refused_about("2", PolicyError, "inapplicable", field="defense 'local-trees'", value=3):
        setting(LocalTrees(count=3)).run()
