"""Defenses where labels lie on several parties: the noise that is stated, where it is stated, and its account."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from labelward.data import load_dataset
from labelward.defenses.label_dp_sums import LabelDPSums
from labelward.defenses.partial_dp import PartialDP
from labelward.errors import PolicyError
from labelward.federation.components import make_engine, with_defaults
from labelward.federation.simulation import simulate_job
from labelward.job import parse_job
from labelward.party.context import no_progress
from labelward.policy.base import PolicyContext
from labelward.policy.chain import PolicyChain
from labelward.policy.holder_points import HolderSums, LeafRelease
from labelward.privacy.gaussian import epsilon_of
from labelward.rng import SecureRandom
from refusals import refused

SETUP = PolicyContext(model="pivodl", classes=2, passive=("b", "c", "d"), trees=5, depth=3, columns=23, holders=4)


def release(weights: np.ndarray, *, owner: bool, tree: int = 0) -> LeafRelease:
    return LeafRelease(party="b", owner=owner, tree=tree, nodes=tuple(range(len(weights))), weights=weights)


def test_partial_dp_states_both_epsilons() -> None:
    """Nominal 2 to 10 of five trees, as two independent computations have them."""
    tight = [PartialDP(epsilon=epsilon).tight_epsilon(5) for epsilon in (2.0, 4.0, 6.0, 8.0, 10.0)]
    np.testing.assert_allclose(tight, [2.40, 5.30, 8.60, 12.27, 16.30], atol=0.01)
    policy = PartialDP()
    policy.begin(SETUP, SecureRandom(1))
    account = policy.account()
    assert (account["epsilon_of_the_paper"], round(account["epsilon_of_leaf_weights"], 2)) == (8.0, 12.27)
    assert account["not_covered"]


def test_the_source_gets_noise_of_the_stated_size_and_others_none() -> None:
    policy = PartialDP()
    policy.begin(SETUP, SecureRandom(1))
    weights = np.linspace(-3, 3, 2000).reshape(-1, 2)
    clean = policy.on_leaf_release(release(weights, owner=False))
    np.testing.assert_array_equal(clean, weights)
    noise = policy.on_leaf_release(release(weights, owner=True)) - np.clip(weights, -2, 2)
    assert noise.std() == pytest.approx(2 * 2 * policy.sigma(5), rel=0.05)
    assert abs(noise.mean()) < 4 * noise.std() / math.sqrt(noise.size)
    again = policy.on_leaf_release(release(weights, owner=True)) - np.clip(weights, -2, 2)
    np.testing.assert_array_equal(again, noise)
    assert (policy.on_leaf_release(release(weights, owner=True, tree=1)) != np.clip(weights, -2, 2) + noise).any()


def test_noise_of_sums_is_on_gradients_alone_and_adds_up() -> None:
    """All holders but one together reach the deviation that the account needs."""
    one, sums = 2.0**30, np.zeros((4000, 3), dtype=np.int64)
    parts = []
    for seed in range(3):
        policy = LabelDPSums(epsilon=8.0)
        policy.begin(SETUP, SecureRandom(seed))
        noisy = policy.on_own_sums(HolderSums(tree=0, depth=0, part=0, values=sums, one=one))
        assert not noisy[:, 1:].any()
        parts.append(noisy[:, 0] / one)
    total = sum(parts)
    account = policy.account()
    assert account["sums_a_label_moves"] == 5 * (23 * 3 + 1)
    assert total.std() == pytest.approx(account["deviation_of_a_sum"], rel=0.05)
    ratio = math.sqrt(account["sums_a_label_moves"]) / account["deviation_of_a_sum"]
    assert epsilon_of(1e-5, ratio) == pytest.approx(8.0, abs=1e-3)
    other = policy.on_own_sums(HolderSums(tree=0, depth=1, part=0, values=sums, one=one))[:, 0] / one
    assert abs(np.corrcoef(other, parts[-1])[0, 1]) < 0.1


def composed_numerically(deviation: float, releases: int, delta: float) -> float:
    """Return epsilon of many Gaussian releases that move by 1, from their privacy losses alone, folded on a grid."""
    step, points, ratio = 4e-4, 1 << 18, 1 / deviation
    grid = (np.arange(points) - points // 2) * step
    edges = np.append(grid - step / 2, grid[-1] + step / 2)
    one = np.diff(norm.cdf(edges, loc=ratio**2 / 2, scale=ratio))
    folded = np.fft.irfft(np.fft.rfft(np.fft.ifftshift(one)) ** releases, points)
    losses = np.fft.fftshift(folded).clip(min=0)

    def beyond(epsilon: float) -> float:
        return math.log((losses * -np.expm1(np.minimum(epsilon - grid, 0))).sum() / delta)

    return float(brentq(beyond, 0.1, 20, xtol=1e-6))


@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_the_account_is_that_of_a_numeric_composition(epsilon: float) -> None:
    policy = LabelDPSums(epsilon=epsilon)
    policy.begin(SETUP, SecureRandom(1))
    account = policy.account()
    found = composed_numerically(account["deviation_of_a_sum"], account["sums_a_label_moves"], 1e-5)
    assert found == pytest.approx(epsilon, abs=1e-3)
    assert account["spent"] == policy.promise == epsilon


def test_all_know_the_noise_of_all() -> None:
    policy = LabelDPSums(epsilon=8.0)
    policy.begin(SETUP, SecureRandom(1))
    assert policy.sum_noise(SETUP) == pytest.approx(policy.account()["deviation_of_a_sum"] * math.sqrt(4 / 3))
    assert PolicyChain([policy, PartialDP()]).sum_noise(SETUP) == policy.sum_noise(SETUP)


@pytest.mark.parametrize(
    ("engine", "aggregation"),
    [
        ({"engine": "plain", "insecure": True}, "paillier"),
        ({"engine": "plain", "insecure": True}, "masks"),
        ({"engine": "paillier", "bits": 512, "insecure": True}, "paillier"),
    ],
    ids=["plain", "masks", "paillier"],
)
@pytest.mark.parametrize("epsilon", [0.01, 0.5])
def test_sums_have_room_for_the_noise(epsilon: float, engine: dict[str, Any], aggregation: str) -> None:
    """However much of it there is, no honest party is blamed for a sum beyond its bound."""
    model = {"kind": "pivodl", "trees": 2, "depth": 2, "bins": 4, "aggregation": aggregation}
    section = {"table": "breast_cancer", "labels": {"active": 0.4, "telco": 0.6}}
    parties = {"active": 0.4, "telco": 0.3, "shop": 0.3}
    defense = {"kind": "label-dp-sums", "epsilon": epsilon}
    job = with_defaults(
        parse_job({"data": section, "parties": parties, "model": model, "encryption": engine, "defense": [defense]})
    )
    made = make_engine(job.encryption)
    try:
        ended = simulate_job(job, load_dataset(job, 1), job.variants()[-1], made, None, seed=1, progress=no_progress)
    finally:
        made.close()
    (account, *_) = (each for each in ended.views["telco"].applied() if each["kind"] == "label-dp-sums")
    assert account["changed_values"] > 0
    assert account["spent"] == epsilon


def test_they_need_a_run_and_several_holders() -> None:
    with refused(PolicyError, "cannot-act"):
        PartialDP().on_leaf_release(release(np.zeros((1, 2)), owner=True))
    with refused(PolicyError, "cannot-act"):
        LabelDPSums(epsilon=1.0).on_own_sums(HolderSums(tree=0, depth=0, part=0, values=np.zeros((1, 3), int), one=1.0))
    with refused(PolicyError, "inapplicable"):
        LabelDPSums(epsilon=1.0).begin(PolicyContext(model="pivodl", classes=2, passive=("b",)), SecureRandom(1))
