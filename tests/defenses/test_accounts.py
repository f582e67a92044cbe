"""What the accounts of private defenses assume, measured on neighbors: data that differ in one label."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from exactly import Paths, largest_ratio
from labelward.defenses import DEFENSES
from labelward.defenses.adversarial import Adversarial
from labelward.defenses.discrete_sgd import DiscreteSgd
from labelward.defenses.distance_correlation import DistanceCorrelation
from labelward.defenses.gradient_compression import GradientCompression
from labelward.defenses.label_dp import LpMst, RandomizedLabels
from labelward.defenses.marvell import Marvell
from labelward.defenses.noisy_gradients import NoisyGradients, _clipped
from labelward.defenses.ppdl import Ppdl
from labelward.defenses.sign_sgd import SignSgd
from labelward.errors import PolicyError
from labelward.policy.base import NET_POINTS, POINTS, Policy, PolicyContext, TrainingTargets
from labelward.policy.chain import PolicyChain, check_hooks
from labelward.policy.net_points import ReturnedGradient
from labelward.privacy import mechanisms
from labelward.privacy.draws import Odds
from labelward.rng import SecureRandom, learning
from refusals import refused

CLIP, ROWS, CLASSES, BATCHES = 2**0.5 / 32, 32, 10, 45
ALONE = PolicyContext(model="splitnn", classes=CLASSES, passive=("telco",), epochs=1, batches=BATCHES, separate=True)
TREES = PolicyContext(model="secureboost", trees=2, classes=2, active_columns=2, passive=("telco",))
ROW_LOCAL = (SignSgd(), DiscreteSgd(form="published"), NoisyGradients(scale=0.01))
MIXING = (
    DiscreteSgd(),
    DiscreteSgd(outliers="clip", levels=6),
    GradientCompression(keep=0.25),
    Ppdl(theta=0.5, epsilon=1.0),
    Ppdl(theta=0.5, epsilon=1.0, form="published"),
)
READING = (Marvell(s=4.0), Adversarial(), DistanceCorrelation(weight=1.0))


def accounted() -> NoisyGradients:
    return NoisyGradients(distribution="gaussian", epsilon=8.0, delta=1e-5, clip=CLIP)


def batch(number: int, flipped: int | None = None, seed: int = 1) -> ReturnedGradient:
    """Return a batch's gradient of cross-entropy without a top model; the label of one row is another if asked."""
    rng = np.random.default_rng([seed, number])
    odds, targets = np.exp(3 * rng.normal(size=(ROWS, CLASSES))), rng.integers(0, CLASSES, ROWS)
    if flipped is not None:
        targets[flipped] = (targets[flipped] + 1) % CLASSES
    return ReturnedGradient(
        party="telco",
        epoch=0,
        batch=number,
        values=(odds / odds.sum(1, keepdims=True) - np.eye(CLASSES)[targets]) / ROWS,
        targets=targets.astype(np.float64),
        classes=CLASSES,
        draw=lambda purpose: learning(seed, "active", 0, purpose),
        protection=SecureRandom(seed),
    )


def moved(before: tuple[Policy, ...], second: float | None = None) -> list[float]:
    """Return by batch how far one other label, of the first batch, moves what gets noise; 1: as far as is assumed.

    Args:
        second: of a second epoch: every number of all of its batches; None: the first epoch.
    """
    runs = []
    for flipped in (0, None):
        chain = PolicyChain(before)
        chain.begin(ALONE, SecureRandom(5))
        asked = [batch(number, flipped if number == 0 else None) for number in range(BATCHES)]
        left = [chain.on_returned_gradient(each).value for each in asked]
        if second is not None:
            again = [replace(each, epoch=1, values=np.full_like(each.values, second)) for each in asked]
            left = [chain.on_returned_gradient(each).value for each in again]
        runs.append([_clipped(each, CLIP) for each in left])
    return [float(np.linalg.norm(one - other)) / (2 * CLIP) for one, other in zip(*runs, strict=True)]


@pytest.fixture
def noise_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw equal noise at equal places, as a proof couples two runs; otherwise it follows from the gradient, too."""
    draws = NoisyGradients._draws

    def coupled(self: NoisyGradients, returned: ReturnedGradient) -> Any:
        return draws(self, replace(returned, values=np.zeros_like(returned.values)))

    monkeypatch.setattr(NoisyGradients, "_draws", coupled)


# -- chains ------------------------------------------------------------------------------------------------------------


def test_a_label_moves_all_batches_through_a_policy_that_looks_beyond_a_row() -> None:
    """Levels follow from all gradients of the first epoch, and so from one label of 1,440.

    In the next epoch numbers that lie where two levels meet change sides, in every row of every batch; the account
    counts on one row of one batch. Neighbors are any data, so the account must hold for these numbers.
    """
    far = moved((DiscreteSgd(levels=6),))
    assert sum(each > 0 for each in far) == BATCHES
    ends = []
    for flipped in (0, None):
        policy = DiscreteSgd(levels=6)
        for number in range(BATCHES):
            policy.on_returned_gradient(batch(number, flipped if number == 0 else None))
        ends.append(policy.account()["steps"]["telco"] / 2)  # where the levels next to 0 meet
    assert ends[0] != ends[1]
    far = moved((DiscreteSgd(levels=6),), second=sum(ends) / 2)
    assert sum(each > 1 for each in far) == BATCHES
    alone = moved(())
    assert sum(each > 0 for each in alone) == 1
    assert max(alone) <= 1


@pytest.mark.parametrize("before", MIXING, ids=repr)
def test_such_a_chain_is_refused(before: Policy) -> None:
    for chain in ([before, accounted()], [before, SignSgd(), accounted()]):
        with refused(PolicyError, "inapplicable", field="defense 'noisy-gradients'", value=before.kind):
            check_hooks(chain, frozenset(NET_POINTS), ALONE)
        check_hooks(chain, frozenset(NET_POINTS), replace(ALONE, separate=False))  # all rows of a batch count there
    check_hooks([accounted(), before], frozenset(NET_POINTS), ALONE)
    check_hooks([before, NoisyGradients(scale=0.01)], frozenset(NET_POINTS), ALONE)  # nothing is promised


@pytest.mark.parametrize("reading", READING, ids=repr)
def test_what_reads_labels_stands_on_neither_side_of_an_account(reading: Policy) -> None:
    for chain in ([reading, accounted()], [accounted(), reading]):
        with pytest.raises(PolicyError) as caught:
            check_hooks(chain, frozenset(NET_POINTS), replace(ALONE, classes=2))
        assert caught.value.code == "inapplicable"
    check_hooks([reading, NoisyGradients(scale=0.01)], frozenset(NET_POINTS), replace(ALONE, classes=2))


@pytest.mark.usefixtures("noise_by_place")
@pytest.mark.parametrize("before", ROW_LOCAL, ids=repr)
def test_what_may_stand_before_an_account_moves_no_more_than_it_assumes(before: Policy) -> None:
    check_hooks([before, accounted()], frozenset(NET_POINTS), ALONE)
    far = moved((before,))
    assert sum(each > 0 for each in far) <= 1
    assert max(far) <= 1 + 1e-12


def test_every_registered_policy_of_gradients_is_among_those_above() -> None:
    kinds = {kind for kind, made in DEFENSES.classes().items() if vars(made).get("on_returned_gradient")}
    assert kinds == {policy.kind for policy in (*ROW_LOCAL, *MIXING, *READING)}
    assert all(policy.row_local for policy in ROW_LOCAL)
    assert not any(policy.row_local for policy in (*MIXING, *READING))


@dataclass(frozen=True, kw_only=True)
class Undeclared(Policy):
    """Reads the label of each row, where it may."""

    kind: ClassVar[str] = "undeclared"

    def on_returned_gradient(self, returned: ReturnedGradient) -> Any:
        return returned.values + returned.targets[:, None]


def test_a_policy_that_declares_nothing_is_refused_before_and_reads_no_label_behind() -> None:
    with refused(PolicyError, "inapplicable", field="defense 'noisy-gradients'", value="undeclared"):
        check_hooks([Undeclared(), accounted()], frozenset(NET_POINTS), ALONE)
    for private in (accounted(), Ppdl(theta=0.5, epsilon=1.0)):
        chain = PolicyChain([private, Undeclared()])
        chain.begin(ALONE, SecureRandom(1))
        with refused(PolicyError, "cannot-act", value="undeclared"):
            chain.on_returned_gradient(batch(0))
    open_chain = PolicyChain([SignSgd(), Undeclared()])
    assert np.isfinite(open_chain.on_returned_gradient(batch(0)).value).all()


@dataclass(frozen=True, kw_only=True)
class PrivateLeaves(Policy):
    """Stands for noise on leaf weights whose account counts on one leaf to move."""

    kind: ClassVar[str] = "private-leaves"

    def before_leaf_weights(self, leaves: Any) -> Any:
        return leaves.weights

    def counts_rows(self, setup: PolicyContext) -> frozenset[str]:
        return frozenset({"before_leaf_weights", "before_targets"})


@dataclass(frozen=True, kw_only=True)
class Smoothed(Policy):
    kind: ClassVar[str] = "smoothed"

    def before_leaf_weights(self, leaves: Any) -> Any:
        return np.full_like(leaves.weights, leaves.weights.mean())


@dataclass(frozen=True, kw_only=True)
class Averaged(Policy):
    kind: ClassVar[str] = "averaged"

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        return replace(targets, values=np.full_like(targets.values, targets.values.mean()))


def test_leaves_and_targets_count_too() -> None:
    for chain in ([Smoothed(), PrivateLeaves()], [Averaged(), PrivateLeaves()], [PrivateLeaves(), Averaged()]):
        with refused(PolicyError, "inapplicable", field="defense 'private-leaves'"):
            check_hooks(chain, frozenset(POINTS), TREES)
    check_hooks([PrivateLeaves(), Smoothed()], frozenset(POINTS), TREES)
    for private in (RandomizedLabels(epsilon=1.0), LpMst(epsilon=1.0)):
        with refused(PolicyError, "inapplicable", field=f"defense {private.kind!r}", value="averaged"):
            check_hooks([Averaged(), private], frozenset(POINTS), TREES)
        check_hooks([private, Averaged()], frozenset(POINTS), TREES)


# -- each account on its own -------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([1e-3, 1e-1, 10.0]), separate=st.booleans())
@settings(deadline=None, max_examples=50)
def test_noisy_gradients_assume_no_less_than_the_worst_neighbors(seed: int, size: float, separate: bool) -> None:
    """One row where gradients are separate, else all rows of a batch; the worst are opposite rows of full length."""
    policy, rng = accounted(), np.random.default_rng(seed)
    policy.begin(replace(ALONE, separate=separate), SecureRandom(1))
    one = size * rng.normal(size=(ROWS, CLASSES))
    other = one.copy()
    rows = slice(0, 1) if separate else slice(None)
    other[rows] = -one[rows]
    assumed = policy.deviation(ROWS) * policy._plan["ratio"]
    apart = float(np.linalg.norm(_clipped(one, CLIP) - _clipped(other, CLIP)))
    assert apart <= assumed * (1 + 1e-12)
    if size == 10.0:  # all rows are clipped: the bound is reached, so that no smaller one would do
        assert apart == pytest.approx(assumed)


@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([1e-4, 1e-3, 10.0]))
@settings(deadline=None, max_examples=50)
def test_ppdl_assumes_no_less_than_any_batch_can_move(seed: int, size: float) -> None:
    """Every number, both where it is compared (absolute) and where it is answered (signed), whatever else changes."""
    policy, rng = Ppdl(theta=0.5, epsilon=1.0), np.random.default_rng(seed)
    one, other = (np.clip(size * rng.normal(size=640), -policy.clip, policy.clip) for _ in range(2))
    assumed = policy._scale(1.0, 1) * policy.epsilon / 2
    assert assumed == pytest.approx(2 * policy.clip)
    assert np.abs(one - other).max() <= assumed
    assert np.abs(np.abs(one) - np.abs(other)).max() <= assumed


class Shares:
    """A learner that finds the classes of all rows as likely as they are among those that it was shown."""

    def probabilities(self, values: NDArray[np.float64], rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        counts = np.bincount(values[rows].astype(np.int64), minlength=2) + 1.0
        return np.tile(counts / counts.sum(), (len(values), 1))


@pytest.mark.parametrize(
    "policy",
    [
        RandomizedLabels(epsilon=1.0),
        LpMst(epsilon=1.0),
        pytest.param(LpMst(epsilon=1.0, stages=3), marks=pytest.mark.slow),
    ],
)
def test_noisy_labels_of_neighbors_are_as_likely_up_to_epsilon(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every path of the code that draws, with odds of 3 to 1 for e^epsilon, and every pair of neighbors of 3 labels."""
    monkeypatch.setattr(mechanisms, "odds", lambda epsilon: Odds(3, 1))

    def chances(labels: tuple[int, ...]) -> list[Fraction]:
        paths, found = Paths(), [Fraction(0)] * 8
        monkeypatch.setattr(mechanisms, "draw_below", paths.below)
        asked = TrainingTargets(
            values=np.array(labels, dtype=np.float64),
            labels=np.array(labels, dtype=np.float64),
            weights=np.ones(3),
            offset=np.zeros(3),
            loss="logistic",
            classes=2,
            learner=Shares(),
            draw=lambda purpose: learning(3, "active", 0, purpose),
            protection=SecureRandom(),
        )
        for _ in paths:
            found[int(policy.before_targets(asked).values @ [1, 2, 4])] += paths.chance()
        assert sum(found) == 1
        return found

    known = {labels: chances(labels) for labels in product(range(2), repeat=3)}
    for row, (one, other) in product(range(3), product(range(2), repeat=2)):
        neighbors = [(*(one, other)[:row], label, *(one, other)[row:]) for label in range(2)]
        assert largest_ratio([known[each] for each in neighbors]) <= 3
