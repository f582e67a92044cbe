"""The contract suite of policies; whoever writes a defense runs it on theirs.

::

    class TestMyDefense(PolicyContract):
        @classmethod
        def make(cls) -> Policy:
            return MyDefense(strength=2.0)

Needs pytest and hypothesis. What a policy is asked is generated. A policy may refuse to act (``PolicyError``); where it
answers, the answer must fit the question. What it protects is for its own tests.
"""

from __future__ import annotations

import contextlib
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.policy.base import (
    POINTS,
    CandidateSplits,
    FinishedTree,
    LeafWeights,
    Policy,
    PolicyContext,
    Schedule,
    SplitReveal,
    TrainingTargets,
    TreeRepair,
)
from labelward.policy.chain import PolicyChain, check_hooks
from labelward.policy.net_points import ReturnedGradient
from labelward.rng import SecureRandom, learning

_PASSIVE = ("left", "right")
_SETUP = PolicyContext(model="model", trees=5, classes=2, active_columns=3, passive=_PASSIVE, row_fraction=1.0)
_NET = PolicyContext(model="net", classes=3, passive=_PASSIVE, epochs=2, batches=4)
_SEEDS = st.integers(0, 2**32 - 1)
# Several classes run the same inherited property; each draws its own examples.
_INHERITED = settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors])

Question = TypeVar("Question")


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Draw who takes part in the trees of ``PolicyContext``'s number."""
    return Schedule(participants=(frozenset(draw(st.sets(st.sampled_from(_PASSIVE)))),) * _SETUP.trees)


@dataclass(frozen=True)
class _Logits:
    logits: NDArray[np.float64]


class _Shares:
    """A learner that predicts for every row the shares of the classes among the rows that it was shown."""

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def probabilities(self, values: NDArray[np.float64], rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        counts = np.bincount(values[rows].astype(np.int64), minlength=self.classes)
        return np.tile((counts + 1) / (counts + 1).sum(), (len(values), 1))

    def fitted(self, values: NDArray[np.float64], rows: NDArray[np.bool_]) -> _Logits:
        shares = self.probabilities(values, rows)
        return _Logits(np.log(shares[:, 1] / shares[:, 0]))

    def out_of_fold(self, values: NDArray[np.float64], folds: int) -> NDArray[np.float64]:
        return np.cos(np.arange(len(values), dtype=np.float64))


@st.composite
def targets(draw: st.DrawFn) -> TrainingTargets:
    """Draw targets of two to four classes with weights and an offset."""
    seed, n, classes = draw(_SEEDS), draw(st.integers(2, 12)), draw(st.integers(2, 4))
    rng = np.random.default_rng(seed)
    values = rng.integers(0, classes, n).astype(np.float64)
    given = TrainingTargets(
        values=values,
        labels=values,
        weights=rng.random(n),
        offset=rng.normal(size=n),
        loss="logistic",
        classes=classes,
        learner=_Shares(classes),
        draw=lambda purpose: learning(seed, "active", 0, purpose),
        protection=SecureRandom(seed),
    )
    return _frozen(given)


@st.composite
def candidate_splits(draw: st.DrawFn) -> CandidateSplits:
    """Draw candidates as a level has them: class counts that grow along the bins, up to the node's."""
    rng = np.random.default_rng(draw(_SEEDS))
    nodes, columns, bins, classes = (draw(st.integers(low, 3)) for low in (1, 1, 2, 2))
    cells = rng.integers(0, 4, (nodes, 1, bins, classes))
    left = np.repeat(np.cumsum(cells, axis=2), columns, axis=1)
    node = left[:, 0, -1]
    owner_is_active = draw(st.booleans())
    return _frozen(
        CandidateSplits(
            tree=draw(st.integers(0, 3)),
            depth=draw(st.integers(0, 3)),
            owner="active" if owner_is_active else _PASSIVE[0],
            owner_is_active=owner_is_active,
            nodes=tuple(range(3, 3 + nodes)),
            left=left,
            node=node,
            totals=node.sum(axis=0) + rng.integers(0, 4, classes),
        )
    )


@st.composite
def split_reveals(draw: st.DrawFn) -> SplitReveal:
    """Draw a split that would be told, of the active or of a passive party."""
    rng = np.random.default_rng(draw(_SEEDS))
    left, right, rest = rng.integers(0, 5, (3, 2))
    owner_is_active = draw(st.booleans())
    return _frozen(
        SplitReveal(
            tree=draw(st.integers(0, 3)),
            depth=draw(st.integers(0, 3)),
            node=draw(st.integers(0, 14)),
            owner="active" if owner_is_active else _PASSIVE[0],
            owner_is_active=owner_is_active,
            left=left,
            right=right,
            totals=left + right + rest,
            participants=frozenset({_PASSIVE[0], *draw(st.sets(st.sampled_from(_PASSIVE)))}),
        )
    )


@st.composite
def leaf_weight_requests(draw: st.DrawFn) -> LeafWeights:
    """Draw the leaves of a finished tree."""
    rng, leaves = np.random.default_rng(draw(_SEEDS)), draw(st.integers(1, 8))
    counts = rng.integers(0, 9, (leaves, 2))
    return _frozen(LeafWeights(tree=draw(st.integers(0, 3)), weights=rng.normal(size=leaves), counts=counts))


@st.composite
def finished_trees(draw: st.DrawFn) -> FinishedTree:
    """Draw a tree of up to three levels, with true classes and those that it was fitted to."""
    rng, splits = np.random.default_rng(draw(_SEEDS)), {0}
    for node in draw(st.sets(st.integers(1, 6))):
        splits |= {node} if (node - 1) // 2 in splits else set()
    leaves = sorted({child for node in splits for child in (2 * node + 1, 2 * node + 2)} - splits)
    clean = rng.integers(0, 9, (len(leaves), 3))
    return _frozen(
        FinishedTree(
            tree=draw(st.integers(0, 3)),
            nodes=tuple(sorted(splits)),
            leaves=tuple(leaves),
            clean=clean,
            fitted=rng.permuted(clean, axis=1),
            alone=draw(st.booleans()),
        )
    )


@st.composite
def returned_gradients(draw: st.DrawFn) -> ReturnedGradient:
    """Draw the gradient of a batch of two to nine rows, of usual size, with numbers that are 0 among them."""
    seed, rows, classes = draw(_SEEDS), draw(st.integers(2, 9)), draw(st.integers(2, 4))
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, classes)) * (rng.random((rows, classes)) < 0.8) / rows
    given = ReturnedGradient(
        party=draw(st.sampled_from(_PASSIVE)),
        epoch=draw(st.integers(0, _NET.epochs - 1)),
        batch=draw(st.integers(0, _NET.batches - 1)),
        values=values.astype(draw(st.sampled_from([np.float32, np.float64]))),
        embeddings=rng.normal(size=(rows, classes)),
        targets=rng.integers(0, classes, rows).astype(np.float64),
        classes=classes,
        draw=lambda purpose: learning(seed, "active", 0, purpose),
        protection=SecureRandom(seed),
    )
    return _frozen(given)


class _Closed(Policy):
    """One passive party sees nothing, and no first bin is chosen."""

    kind = "closed"
    purities = True

    def split_candidates(self, candidates: CandidateSplits) -> NDArray[np.bool_]:
        allowed = np.ones(candidates.left.shape[:-1], dtype=np.bool_)
        allowed[..., 0] = False
        return allowed

    def before_instance_space(self, reveal: SplitReveal) -> frozenset[str]:
        return reveal.participants - {_PASSIVE[1]}


class PolicyContract:
    """What every policy keeps: it says what it needs, what it is, and answers what it was asked."""

    @classmethod
    def suiting(cls, question: ReturnedGradient) -> ReturnedGradient:
        """Return a gradient as the policy can be asked about it, such as of two classes."""
        return question

    setup: ClassVar[PolicyContext] = _SETUP
    """A set-up that suits it."""

    @classmethod
    def make(cls) -> Policy:
        """Return the policy under test; called anew for each test."""
        raise NotImplementedError

    @classmethod
    def before(cls) -> tuple[Policy, ...]:
        """Return the policies without which it is refused in a chain; none where it stands by itself."""
        return ()

    # -- what it is ------------------------------------------------------------------------------------------------

    def test_it_has_a_kind(self) -> None:
        """The name in a job file: lower case, words joined by hyphens."""
        kind = type(self.make()).kind
        assert kind
        assert kind != Policy.kind
        assert kind == "-".join(kind.lower().split())

    def test_no_parameter_takes_a_key_of_the_job_file(self) -> None:
        """``kind`` and ``party`` stand beside the parameters, and ``chain`` in their place."""
        assert not {"kind", "party", "chain"} & set(self.make().parameters())

    def test_its_points_exist(self) -> None:
        """It acts somewhere; and a method that is meant as a point is not misspelled."""
        policy = self.make()
        assert policy.points
        assert policy.points <= set(POINTS)
        own = {name for name in vars(type(policy)) if name.startswith(("before_", "after_", "on_"))}
        assert own <= set(POINTS)

    def test_it_asks_for_the_counts_that_it_needs(self) -> None:
        """Class counts at an instance space exist only where they traveled."""
        policy = self.make()
        assert policy.purities or "before_instance_space" not in policy.points

    def test_its_parameters_are_frozen_and_come_back(self) -> None:
        """As a file keeps them: plain values, of which an equal policy can be made."""
        policy: Any = self.make()
        assert hasattr(policy, "__dataclass_fields__")
        kept = msgspec.msgpack.decode(msgspec.msgpack.encode(policy.parameters()))
        names = {field.name for field in fields(policy) if field.init}
        assert kept.keys() == names
        assert type(policy)(**kept) == policy
        for name in names:
            with pytest.raises(FrozenInstanceError):
                setattr(policy, name, kept[name])

    def test_an_unvisited_point_is_refused(self) -> None:
        """A protocol that does not reach each of its points cannot run it."""
        policy = self.make()
        check_hooks([*self.before(), policy], frozenset(POINTS), self.setup)
        for point in policy.points:
            with pytest.raises(PolicyError) as caught:
                check_hooks([policy], frozenset(POINTS) - {point}, self.setup)
            assert (caught.value.code, caught.value.value) == ("inapplicable", (point,))
            assert repr(policy.kind) in caught.value.reason

    def test_what_it_remembers_comes_back(self) -> None:
        """As where a run is cut off and goes on in a new process: bytes, and the same bytes from who took them in."""
        policy, other = self.make(), self.make()
        state = policy.state()
        assert isinstance(state, bytes)
        other.resume(state)
        assert other.state() == state
        assert other.account() == policy.account()

    # -- what it answers -------------------------------------------------------------------------------------------

    @given(question=schedules())
    @settings(_INHERITED, max_examples=25)
    def test_schedule(self, question: Schedule) -> None:
        """At least one tree, each with passive parties that exist."""
        answer = self._ask("schedule", question)
        if answer is not None:
            assert answer.participants
            for participants in answer.participants:
                assert isinstance(participants, frozenset)
                assert participants <= set(_PASSIVE)

    @given(question=targets())
    @settings(_INHERITED, max_examples=25)
    def test_targets(self, question: TrainingTargets) -> None:
        """As many of each as before, finite, no weight below 0."""
        answer = self._ask("before_targets", question)
        if answer is not None:
            for name in ("values", "labels", "weights", "offset"):
                got = getattr(answer, name)
                rows = got.shape[:1] if name == "values" else got.shape
                assert (got.dtype, rows) == (np.float64, question.weights.shape)
                assert np.isfinite(got).all()
            assert (answer.weights >= 0).all()
            assert answer.loss in (question.loss, "residuals")
            msgspec.msgpack.encode(answer.account)

    @given(question=candidate_splits())
    @settings(_INHERITED, max_examples=50)
    def test_candidates(self, question: CandidateSplits) -> None:
        """A yes or no for each candidate."""
        answer = self._ask("split_candidates", question)
        if answer is not None:
            assert (answer.dtype, answer.shape) == (np.bool_, question.left.shape[:-1])

    @given(question=split_reveals())
    @settings(_INHERITED, max_examples=50)
    def test_viewers(self, question: SplitReveal) -> None:
        """Nobody sees a child who did not see its parent."""
        answer = self._ask("before_instance_space", question)
        if answer is not None:
            assert isinstance(answer, frozenset)
            assert answer <= question.participants

    @given(question=leaf_weight_requests())
    @settings(_INHERITED, max_examples=25)
    def test_weights(self, question: LeafWeights) -> None:
        """A finite weight for each leaf."""
        answer = self._ask("before_leaf_weights", question)
        if answer is not None:
            assert (answer.dtype, answer.shape) == (np.float64, question.weights.shape)
            assert np.isfinite(answer).all()

    @given(question=finished_trees())
    @settings(_INHERITED, max_examples=50)
    def test_repairs(self, question: FinishedTree) -> None:
        """Nodes that the tree has, and none where later trees were fitted to what it left over."""
        answer = self._ask("after_tree", question)
        if answer is not None:
            assert isinstance(answer, TreeRepair)
            assert answer.regrow <= {*question.nodes, *question.leaves}
            assert question.alone or not answer.regrow

    @given(question=returned_gradients())
    @settings(_INHERITED, max_examples=50)
    def test_gradients(self, question: ReturnedGradient) -> None:
        """Numbers of the same shape and dtype, finite; and the same ones in another attempt of the run."""
        question = self.suiting(question)
        policy, again = self.make(), self.make()
        policy.begin(_NET, SecureRandom(1))
        again.begin(_NET, SecureRandom(2))
        again.resume(policy.state())
        answers = [each.on_returned_gradient(question) for each in (policy, again)]
        for answer in answers:
            assert (answer.dtype, answer.shape) == (question.values.dtype, question.values.shape)
            assert np.isfinite(answer).all()
        assert np.array_equal(answers[0], answers[1])
        msgspec.msgpack.encode(policy.account())

    @given(question=returned_gradients(), earlier=returned_gradients())
    @settings(_INHERITED, max_examples=25)
    def test_row_local(self, question: ReturnedGradient, earlier: ReturnedGradient) -> None:
        """If it declares so, no other row and nothing asked before changes a row; drawn noise is for its own tests."""
        policy, fresh = self.make(), self.make()
        if not policy.row_local or type(policy).begin is not Policy.begin:
            return
        other = question.values.copy()
        other[0] = 3 * other[0] + 1
        policy.on_returned_gradient(earlier)
        answers = [policy.on_returned_gradient(replace(question, values=other)), fresh.on_returned_gradient(question)]
        assert np.array_equal(answers[0][1:], answers[1][1:])

    @given(reveal=split_reveals(), candidates=candidate_splits())
    @settings(_INHERITED, max_examples=25)
    def test_in_a_chain(self, reveal: SplitReveal, candidates: CandidateSplits) -> None:
        """Beside another policy it can only forbid more."""
        policy, chain = self.make(), PolicyChain([_Closed(), self.make()])
        with contextlib.suppress(PolicyError):
            assert chain.before_instance_space(reveal) <= policy.before_instance_space(reveal) - {_PASSIVE[1]}
        with contextlib.suppress(PolicyError):
            assert not (chain.split_candidates(candidates) & ~policy.split_candidates(candidates)).any()

    def _ask(self, point: str, question: Any) -> Any:
        """Return the answer, or None where the policy refuses to act; the question is read-only."""
        try:
            return getattr(self.make(), point)(question)
        except PolicyError:
            return None


def _frozen(question: Question) -> Question:
    """Make every array of a question read-only, so that a policy that changes it fails."""
    for field in fields(question):  # type: ignore[arg-type]
        value = getattr(question, field.name)
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    return replace(question)  # type: ignore[type-var]
