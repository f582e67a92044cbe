"""Each defense of returned gradients against the property it is named for, on gradients made up for it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from blames import refused_about
from labelward.defenses._keyed_noise import KeyedGradientDefense
from labelward.defenses.discrete_sgd import DiscreteSgd
from labelward.defenses.gradient_compression import GradientCompression
from labelward.defenses.local_trees import LocalTrees
from labelward.defenses.noisy_gradients import NoisyGradients, _clipped
from labelward.defenses.ppdl import Ppdl
from labelward.defenses.sign_sgd import SignSgd
from labelward.errors import Code, JobError, PolicyError
from labelward.policy.base import NET_POINTS, TREE_POINTS, Policy, PolicyContext
from labelward.policy.chain import PolicyChain, check_hooks
from labelward.policy.net_points import ReturnedGradient
from labelward.privacy.gaussian import delta_of
from labelward.rng import SecureRandom, learning
from refusals import refused

SETUP = PolicyContext(model="splitnn", classes=4, passive=("left", "right"), epochs=3, batches=5)


def gradient(rows: int = 64, classes: int = 10, seed: int = 1, **changes: Any) -> ReturnedGradient:
    """Return the gradient of cross-entropy's mean at random logits."""
    rng = np.random.default_rng(seed)
    odds = np.exp(2 * rng.normal(size=(rows, classes)))
    targets = rng.integers(0, classes, rows)
    values = (odds / odds.sum(1, keepdims=True) - np.eye(classes)[targets]) / rows
    asked: dict[str, Any] = {
        "party": "left",
        "epoch": 0,
        "batch": 0,
        "values": values.astype(np.float32),
        "targets": targets.astype(np.float64),
        "classes": classes,
        "draw": lambda purpose: learning(seed, "active", 0, purpose),
        "protection": SecureRandom(seed),
    }
    return ReturnedGradient(**asked | changes)


def begun(policy: Policy, setup: PolicyContext = SETUP, seed: int = 1) -> Any:
    policy.begin(setup, SecureRandom(seed))
    return policy


# -- noisy gradients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("distribution", "factor"), [("laplace", math.sqrt(2)), ("gaussian", 1.0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_has_its_scale_whatever_the_gradient(distribution: Any, factor: float, dtype: Any) -> None:
    """Measured on 40,000 numbers: the deviation's own deviation is 1.1 % for Laplace noise; 5 of these."""
    asked = gradient(4000, values=np.linspace(-1, 1, 40_000).reshape(4000, 10).astype(dtype))
    left = begun(NoisyGradients(distribution=distribution, scale=0.02)).on_returned_gradient(asked)
    noise = left.astype(np.float64) - asked.values
    assert noise.std() == pytest.approx(0.02 * factor, rel=0.06)
    assert abs(noise.mean()) < 5 * noise.std() / 200
    assert abs(np.corrcoef(noise.ravel(), asked.values.ravel())[0, 1]) < 5 / 200
    assert (left != asked.values).mean() > 0.999  # noise that is rounded away leaves one in thousands


def test_noise_is_the_same_for_the_same_gradient_only() -> None:
    """What a cut-off run sends again is what it sent; any other gradient or step gets other noise.

    Another party's equal gradient, as there is without a top model, gets the same: two draws would have a mean.
    """
    policy = begun(NoisyGradients(scale=1.0))
    asked = gradient()
    noise = policy.on_returned_gradient(asked) - asked.values
    assert np.array_equal(policy.on_returned_gradient(asked) - asked.values, noise)
    moved = asked.values.copy()
    moved[0, 0] += np.float32(1e-4)
    assert np.array_equal(policy.on_returned_gradient(replace(asked, party="right")) - asked.values, noise)
    for other in (
        replace(asked, epoch=1),
        replace(asked, batch=1),
        replace(asked, values=moved),
    ):
        apart = (policy.on_returned_gradient(other) - other.values) - noise
        assert np.abs(apart).mean() > 0.5  # of two independent ones it is 1.5
    assert not np.array_equal(begun(NoisyGradients(scale=1.0), seed=2).on_returned_gradient(asked), noise)


def test_no_noise_without_a_key() -> None:
    for policy in (NoisyGradients(scale=1.0), Ppdl(theta=0.5, epsilon=1.0)):
        with refused_about(repr(policy.kind), PolicyError, "cannot-act"):
            policy.on_returned_gradient(gradient())


def test_the_key_comes_from_the_system_in_a_run() -> None:
    first, second = NoisyGradients(scale=1.0), NoisyGradients(scale=1.0)
    for policy in (first, second):
        policy.begin(SETUP, SecureRandom())
    assert not np.array_equal(first.on_returned_gradient(gradient()), second.on_returned_gradient(gradient()))


# -- an account --------------------------------------------------------------------------------------------------------


def accounted(**changes: Any) -> NoisyGradients:
    given: dict[str, Any] = {"distribution": "gaussian", "epsilon": 3.0, "delta": 1e-6, "clip": 0.02}
    return NoisyGradients(**given | changes)


@pytest.mark.parametrize("separate", [True, False])
def test_the_run_spends_epsilon_and_no_more(separate: bool) -> None:
    """All releases of the run, each of its own ratio, are together what epsilon and delta allow."""
    setup = replace(SETUP, separate=separate)
    policy = begun(accounted(), setup)
    ratios = []
    for epoch in range(3):
        for party in setup.passive:
            for batch in range(5):
                rows = 64 if batch < 4 else 9
                policy.on_returned_gradient(gradient(rows, epoch=epoch, batch=batch, party=party))
                if not separate or batch == 0:  # of a row's own label one batch of an epoch tells
                    ratios.append(2 * 0.02 * (1 if separate else math.sqrt(rows)) / policy.deviation(rows))
    assert len(ratios) == (6 if separate else 30)
    assert delta_of(3.0, math.sqrt(sum(ratio**2 for ratio in ratios))) == pytest.approx(1e-6, rel=1e-4)
    account = policy.account()
    assert account["spent"] == pytest.approx(3.0, rel=1e-4)
    assert (account["releases"], account["gradients"]) == (len(ratios), 30)


def test_rows_are_clipped_before_noise() -> None:
    """At a huge epsilon noise is small: what is left is rows of at most the norm, in their directions."""
    asked = gradient()
    policy = begun(accounted(epsilon=1e9, delta=0.5, clip=0.01), replace(SETUP, separate=True))
    left = policy.on_returned_gradient(asked).astype(np.float64)
    norms = np.linalg.norm(asked.values, axis=1)
    assert (norms > 0.01).any()
    assert policy.deviation(64) < 1e-5
    expected = asked.values * np.minimum(1, 0.01 / norms)[:, None]
    assert np.abs(left - expected).max() < 5e-5


@pytest.mark.parametrize("separate", [True, False])
def test_a_change_moves_what_is_released_by_no_more_than_is_accounted(separate: bool) -> None:
    """Of one row, or of all rows of a batch at once."""
    policy, rng = begun(accounted(), replace(SETUP, separate=separate)), np.random.default_rng(3)
    ratio = policy._plan["ratio"]
    for _ in range(200):
        one = rng.normal(size=(16, 4)) * rng.choice([0.001, 0.1])
        other = one.copy()
        rows = slice(0, 1) if separate else slice(None)
        other[rows] = -other[rows] + rng.normal(size=other[rows].shape) * 0.01
        moved = np.linalg.norm(_clipped(one, 0.02) - _clipped(other, 0.02))
        assert moved <= ratio * policy.deviation(16) * (1 + 1e-12)


def test_an_account_refuses_what_it_does_not_cover() -> None:
    with refused_about("patience", PolicyError, "inapplicable"):
        check_hooks([accounted()], frozenset(NET_POINTS), replace(SETUP, stops_early=True))
    with refused_about("earlier training", PolicyError, "inapplicable"):
        check_hooks([accounted()], frozenset(NET_POINTS), replace(SETUP, continues=True))
    with refused(PolicyError, "inapplicable", field="defense 'noisy-gradients'"):
        begun(accounted(), replace(SETUP, passive=()))
    check_hooks([NoisyGradients(scale=1.0)], frozenset(NET_POINTS), replace(SETUP, stops_early=True))
    for setup in (replace(SETUP, stops_early=True), replace(SETUP, continues=True)):
        with refused(PolicyError, "inapplicable"):
            check_hooks([Ppdl(theta=0.5, epsilon=1.0)], frozenset(NET_POINTS), setup)
        check_hooks([Ppdl(theta=0.5, epsilon=1.0, form="published")], frozenset(NET_POINTS), setup)


# -- gradient compression ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0.9, 0.75, 0.5, 0.25, 0.1, 0.001])
def test_the_kept_share_is_exact_and_the_rest_is_dropped(keep: float) -> None:
    asked = gradient(32)
    left = GradientCompression(keep=keep).on_returned_gradient(asked)
    kept = left != 0
    assert kept.sum() == int(keep * 320)
    assert np.array_equal(left[kept], asked.values[kept])
    if kept.any():
        assert np.abs(asked.values[kept]).min() >= np.abs(asked.values[~kept]).max()


@given(rows=st.integers(2, 5), classes=st.integers(1, 3), keep=st.floats(0.01, 0.999))
@settings(deadline=None)
def test_no_batch_is_so_small_that_all_of_it_is_kept(rows: int, classes: int, keep: float) -> None:
    asked = gradient(values=np.ones((rows, classes), np.float32))
    assert (GradientCompression(keep=keep).on_returned_gradient(asked) == 0).any()


# -- PPDL --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theta", [0.75, 0.5, 0.25, 0.1])
def test_ppdl_gathers_its_share_and_nothing_leaves_raw(theta: float) -> None:
    policy = begun(Ppdl(theta=theta, epsilon=1.8))
    for seed in range(10):
        asked = gradient(32, seed=seed)
        left = policy.on_returned_gradient(asked)
        assert (left != 0).sum() <= int(theta * 320)
        assert (left != 0).sum() >= int(theta * 320) - 3  # noise that is rounded to 0; all are gathered
        assert not np.isin(left[left != 0], asked.values).any()
        assert np.abs(left).max() <= np.float32(1e-3)
    account = policy.account()
    assert account["gathered_values"] == 10 * int(theta * 320)
    assert account["spent"] == pytest.approx(18.0)


def test_ppdl_ends_where_nothing_reaches_the_threshold() -> None:
    """At little noise a gradient below the threshold is dropped whole, and not sent as it is."""
    asked = gradient(8, values=np.full((8, 4), 1e-5, np.float32))
    for form in ("correct", "published"):
        policy = begun(Ppdl(theta=0.5, epsilon=1e9, form=form, sensitivity=2e-3))  # type: ignore[arg-type]
        left = policy.on_returned_gradient(asked)
        if form == "correct":
            assert not left.any()
        else:
            assert np.array_equal(left, asked.values)  # that is what the published code does
            assert policy.account()["raw_values"] == 32


def test_ppdl_gathers_what_is_large_where_noise_is_small() -> None:
    values = np.full((8, 4), 1e-5, np.float32)
    values[:4] = -5e-4
    policy = begun(Ppdl(theta=0.4, epsilon=1e9))
    left = policy.on_returned_gradient(gradient(values=values))
    assert (left != 0).sum() == 12  # 0.4 of 32, rounded down
    assert not left[4:].any()
    assert left[left != 0] == pytest.approx(np.full(12, -5e-4), rel=1e-3)


def test_published_ppdl_leaves_what_it_did_not_gather_raw() -> None:
    """About half of all numbers reach a threshold below the noise: three quarters are not gathered, a tenth is."""
    policy = begun(Ppdl(theta=0.75, epsilon=1.8, form="published"))
    asked = gradient(32)
    left = policy.on_returned_gradient(asked)
    raw = left == asked.values
    assert 0.3 < raw.mean() < 0.7
    assert policy.account()["raw_values"] == raw.sum()
    assert np.abs(left[~raw]).max() <= np.float32(1e-3)
    few = begun(Ppdl(theta=0.1, epsilon=1.8, form="published"))
    left = few.on_returned_gradient(asked)
    assert (left != 0).sum() <= 32
    assert few.account()["raw_values"] == 0


def test_ppdl_picks_at_random() -> None:
    """Over 400 gradients of four equal numbers each place is gathered about equally often."""
    policy = begun(Ppdl(theta=0.25, epsilon=1.0))
    places: Counter[int] = Counter()
    for batch in range(400):
        left = policy.on_returned_gradient(gradient(values=np.full((2, 2), 1e-3, np.float32), batch=batch))
        places.update(np.flatnonzero(left)[:1].tolist())
    assert sorted(places) == [0, 1, 2, 3]
    assert places.total() >= 395  # noise may leave nothing to gather
    assert all(abs(count - 100) < 5 * math.sqrt(75) for count in places.values())


# -- DiscreteSGD -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outliers", ["discard", "clip"])
@pytest.mark.parametrize("levels", [24, 6, 5, 1])
def test_discrete_sgd_sends_levels_of_the_gradients_so_far(levels: int, outliers: Any) -> None:
    """Each batch of the first epoch by itself and those before; later ones by all of the first epoch."""
    policy, seen = DiscreteSgd(levels=levels, outliers=outliers), []
    for epoch in (0, 1):
        for batch in range(4):
            asked = gradient(32, seed=10 * epoch + batch, epoch=epoch, batch=batch)
            seen += [asked.values.astype(np.float64)] if epoch == 0 else []
            left = policy.on_returned_gradient(asked)
            half = 2 * np.std(seen)  # the mean of cross-entropy's gradients is 0
            ends = -half + np.arange(levels + 1) * (2 * half / levels)
            outer = np.abs(asked.values) > half
            assert outer.any()
            numbers = np.where(outer, 0.0, asked.values) if outliers == "discard" else asked.values
            rounding = 1e-7  # of float32, and of the sums that were merged
            assert np.abs(left[..., None] - ends).min(-1).max() < rounding
            assert (np.abs(left - numbers) <= np.abs(numbers[..., None] - ends).min(-1) + rounding).all()
            assert len(np.unique(left)) <= levels + 1
            assert (left == 0).any() == (levels % 2 == 0)  # the level in the middle is 0 itself, of no sign


def test_discrete_sgd_knows_each_party_by_itself_and_goes_on() -> None:
    policy, other = DiscreteSgd(levels=6), DiscreteSgd(levels=6)
    small, large = gradient(), gradient(values=100 * gradient().values, party="right")
    assert np.allclose(policy.on_returned_gradient(large), 100 * policy.on_returned_gradient(small), rtol=1e-5)
    other.resume(policy.state())
    later = gradient(seed=5, epoch=1)
    assert np.array_equal(policy.on_returned_gradient(later), other.on_returned_gradient(later))
    assert policy.account() == other.account()


def test_discrete_sgd_sends_zeros_while_it_knows_of_no_spread() -> None:
    asked = gradient(values=np.full((4, 3), 0.125, np.float32))
    assert not DiscreteSgd().on_returned_gradient(asked).any()


@pytest.mark.parametrize(("levels", "bound"), [(24, None), (6, None), (12, 1e-3)])
def test_published_discrete_sgd_rounds_to_multiples(levels: int, bound: float | None) -> None:
    asked = gradient(8)
    left = DiscreteSgd(levels=levels, form="published", bound=bound).on_returned_gradient(asked)
    steps = left / (2 * (bound or 0.03) / levels)
    assert np.abs(steps - np.round(steps)).max() < 1e-4
    assert np.abs(left - asked.values).max() <= (bound or 0.03) / levels + 1e-7
    assert np.abs(asked.values).max() > (bound or 0.03)
    assert np.abs(left).max() > (bound or 0.03)  # nothing is clipped


# -- signSGD -----------------------------------------------------------------------------------------------------------


def test_signs() -> None:
    values = np.array([[0.5, -0.25], [0.0, 1e-9]], np.float32)
    left = SignSgd(magnitude=0.5).on_returned_gradient(gradient(values=values))
    assert left.tolist() == [[0.5, -0.5], [0.0, 0.5]]


# -- chains ------------------------------------------------------------------------------------------------------------


def test_a_chain_passes_numbers_on_and_counts() -> None:
    """Each policy is asked about what the one before it answered; the receiver gets the last answer."""
    chain = PolicyChain([GradientCompression(keep=0.5), SignSgd(magnitude=2.0)])
    asked = gradient(32)
    left = chain.on_returned_gradient(asked).value
    assert sorted(np.unique(left).tolist()) == [-2.0, 0.0, 2.0]
    assert (left != 0).sum() == 160
    first, second = chain.accounts()
    assert (first["changed_values"], first["dropped_values"]) == (160, 160)
    assert (second["changed_values"], second["dropped_values"]) == (160, 0)


def test_a_chain_goes_on_where_it_was() -> None:
    def make() -> PolicyChain:
        return PolicyChain([DiscreteSgd(levels=12), NoisyGradients(scale=0.01), Ppdl(theta=0.5, epsilon=1.0)])

    chain, again = make(), make()
    chain.begin(SETUP, SecureRandom())
    for batch in range(3):
        chain.on_returned_gradient(gradient(seed=batch, batch=batch))
    again.begin(SETUP, SecureRandom())
    again.resume(chain.state())
    asked = gradient(seed=9, epoch=1)
    assert np.array_equal(chain.on_returned_gradient(asked).value, again.on_returned_gradient(asked).value)
    assert chain.accounts() == again.accounts()
    assert isinstance(chain.policies[1], KeyedGradientDefense)
    assert chain.policies[1].sent == {"left": 4}


class Wrong(Policy):
    kind = "wrong"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def on_returned_gradient(self, returned: ReturnedGradient) -> Any:
        return self.answer(returned.values)


def overwritten(values: NDArray[Any]) -> NDArray[Any]:
    values[:] = 0
    return values


@pytest.mark.parametrize(
    ("answer", "about"),
    [
        (lambda values: values[:1], "shape and dtype"),
        (lambda values: values.astype(np.float64), "shape and dtype"),
        (lambda values: values.tolist(), "shape and dtype"),
        (lambda values: values * np.float32(np.nan), "not finite"),
    ],
)
def test_answers_that_cannot_leave(answer: Any, about: str) -> None:
    with refused_about(about, PolicyError, "cannot-act", value="wrong"):
        PolicyChain([Wrong(answer)]).on_returned_gradient(gradient())
    with pytest.raises(ValueError, match="read-only"):
        PolicyChain([Wrong(overwritten)]).on_returned_gradient(gradient())


def test_families_do_not_mix() -> None:
    gradients = (SignSgd(), NoisyGradients(scale=1.0), Ppdl(theta=0.5, epsilon=1.0), DiscreteSgd())
    for policy in (*gradients, GradientCompression(keep=0.5)):
        with refused_about("split networks", PolicyError, "inapplicable"):
            check_hooks([policy], frozenset(TREE_POINTS), replace(SETUP, model="forest"))
    with refused_about("tree models", PolicyError, "inapplicable"):
        check_hooks([LocalTrees()], frozenset(NET_POINTS), SETUP)


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "code", "value", "field"),
    [
        (lambda: NoisyGradients(), "missing", None, "scale"),
        (lambda: NoisyGradients(scale=0), "range", 0, "scale"),
        (lambda: NoisyGradients(scale=1.0, clip=1.0), "conflict", 1.0, "scale"),
        (lambda: NoisyGradients(distribution="gaussian", epsilon=1.0, delta=1e-5), "missing", None, "scale"),
        (lambda: NoisyGradients(epsilon=1.0, delta=1e-5, clip=1.0), "conflict", "laplace", "distribution"),
        (lambda: accounted(delta=1.0), "range", 1.0, "delta"),
        (lambda: accounted(epsilon=float("inf")), "range", float("inf"), "epsilon"),
        (lambda: NoisyGradients(distribution="cauchy", scale=1.0), "choice", "cauchy", "distribution"),  # type: ignore[arg-type]
        (lambda: GradientCompression(keep=1.0), "range", 1.0, "keep"),
        (lambda: GradientCompression(keep=True), "type", True, "keep"),
        (lambda: Ppdl(theta=1, epsilon=1.0), "range", 1, "theta"),
        (lambda: Ppdl(theta=0.5, epsilon=0.0), "range", 0.0, "epsilon"),
        (lambda: Ppdl(theta=0.5, epsilon=1.0, sensitivity=1e-3), "conflict", 1e-3, "sensitivity"),
        (lambda: Ppdl(theta=0.5, epsilon=1.0, form="wrong"), "choice", "wrong", "form"),  # type: ignore[arg-type]
        (lambda: DiscreteSgd(levels=0), "range", 0, "levels"),
        (lambda: DiscreteSgd(outliers="keep"), "choice", "keep", "outliers"),  # type: ignore[arg-type]
        (lambda: DiscreteSgd(form="fixed"), "choice", "fixed", "form"),  # type: ignore[arg-type]
        (lambda: DiscreteSgd(bound=0.1), "conflict", 0.1, "bound"),
        (lambda: DiscreteSgd(form="published", outliers="clip"), "conflict", "clip", "outliers"),
        (lambda: SignSgd(magnitude=-1.0), "range", -1.0, "magnitude"),
    ],
)
def test_parameters_that_cannot_be(make: Any, code: Code, value: object, field: str) -> None:
    with refused(JobError, code, field=field, value=value):
        make()


def test_a_delta_that_may_give_away_single_labels_is_refused() -> None:
    policy = accounted(delta=0.02)
    policy.check(replace(SETUP, rows=49))
    with refused(PolicyError, "range", field="defense 'noisy-gradients' delta", value=0.02):
        policy.check(replace(SETUP, rows=50))
