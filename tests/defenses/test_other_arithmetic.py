"""A run does not go on where the same values would come out otherwise, and get noise of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from labelward.defenses import _keyed_noise
from labelward.defenses.label_dp_sums import LabelDPSums
from labelward.defenses.noisy_gradients import NoisyGradients
from labelward.defenses.partial_dp import PartialDP
from labelward.errors import PolicyError
from labelward.policy.base import Policy, PolicyContext
from labelward.privacy.arithmetic import arithmetic
from labelward.rng import SecureRandom
from refusals import refused

NET = PolicyContext(model="splitnn", classes=2, passive=("telco",), epochs=2, batches=3, rows=64)
HOLDERS = PolicyContext(
    model="pivodl", classes=2, passive=("shop",), trees=2, depth=2, columns=4, holders=3, rows=64
)  # fmt: skip
COUNTED = NoisyGradients(distribution="gaussian", epsilon=4.0, delta=1e-5, clip=1.0)


def begun(policy: Policy, setup: PolicyContext) -> bytes:
    policy.begin(setup, SecureRandom())
    return policy.state()


@pytest.mark.parametrize(
    ("policy", "setup"),
    [(COUNTED, NET), (LabelDPSums(epsilon=8.0), HOLDERS), (PartialDP(epsilon=1.0), HOLDERS)],
    ids=lambda each: each.kind if isinstance(each, Policy) else "",
)
def test_an_account_does_not_go_on_with_other_arithmetic(
    monkeypatch: pytest.MonkeyPatch, policy: Policy, setup: PolicyContext
) -> None:
    state = begun(policy, setup)
    policy.resume(state)
    monkeypatch.setattr(_keyed_noise, "arithmetic", lambda networks: "another")
    with refused(PolicyError, "cannot-act", field=f"defense {policy.kind!r}"):
        policy.resume(state)


def test_noise_that_promises_nothing_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = NoisyGradients(distribution="laplace", scale=0.1)
    state = begun(policy, NET)
    monkeypatch.setattr(_keyed_noise, "arithmetic", lambda networks: "another")
    policy.resume(state)
    assert policy.state() == state


def test_a_digest_is_that_of_the_arithmetic() -> None:
    """Equal in another process with other threads, and different where torch calculates as on another processor."""
    pytest.importorskip("torch")
    code = "import torch; from labelward.privacy.arithmetic import arithmetic; print(arithmetic(networks=True))"

    def of(**changes: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | changes, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert of() == of(OMP_NUM_THREADS="1") == arithmetic(networks=True)
    assert of() != of(ATEN_CPU_CAPABILITY="default")
