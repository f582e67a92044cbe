"""Adversaries of Marvell: one party that looks for rows without noise, and parties that sum their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from labelward.defenses.marvell import Marvell, line_of
from labelward.policy.base import Policy, PolicyContext
from labelward.policy.net_points import ReturnedGradient
from labelward.rng import SecureRandom, learning

SETUP = PolicyContext(model="splitnn", classes=2, passive=("telco", "shop"), epochs=20, batches=13, active_columns=1)
ROWS, BATCH = 416, 32

Floats = NDArray[Any]


def asked(values: Floats, labels: NDArray[np.int64], epoch: int, batch: int, party: str = "telco") -> ReturnedGradient:
    return ReturnedGradient(
        party=party,
        epoch=epoch,
        batch=batch,
        values=values,
        embeddings=values,
        targets=labels.astype(np.float64),
        classes=2,
        draw=lambda purpose: learning(1, "bank", 0, purpose),
        protection=SecureRandom(1),
    )


def trained(policy: Policy, epochs: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Floats]]:
    """Yield rows, labels and returned gradients, float32 [rows, 2], of batches without a top model.

    A linear model of both classes' logits learns from what is returned. A few rows lie among those of the other class.
    """
    rng = np.random.default_rng(0)
    labels = (rng.random(ROWS) < 0.4).astype(np.int64)
    x = torch.from_numpy(rng.normal(size=(ROWS, 6)) + 2.2 * (labels[:, None] - 0.5)).float()
    model = torch.nn.Linear(6, 2)
    torch.nn.init.zeros_(model.weight)
    step = torch.optim.Adam(model.parameters(), lr=0.02)
    policy.begin(SETUP, SecureRandom(1))
    for epoch in range(epochs):
        order = rng.permutation(ROWS)
        for batch, rows in enumerate(order.reshape(-1, BATCH)):
            logits = model(x[rows])
            held = logits.detach().requires_grad_()
            torch.nn.functional.cross_entropy(held, torch.from_numpy(labels[rows])).backward()
            assert held.grad is not None
            noisy = policy.on_returned_gradient(asked(held.grad.numpy(), labels[rows], epoch, batch))
            step.zero_grad()
            logits.backward(torch.from_numpy(noisy))  # type: ignore[no-untyped-call]
            step.step()
            yield rows, labels[rows], noisy


def on_fine_grid(values: Floats) -> NDArray[np.bool_]:
    """Return which rows have a number that is (p - 1) / rows of float32 probabilities p, and none that is noisy."""
    units = values.astype(np.float64) * len(values) * 2**24
    fine = np.spacing(np.abs(values)).astype(np.float64) * len(values) * 2**24 < 2.0**-5
    found = ((np.abs(units - np.rint(units)) <= np.abs(units) * 2.0**-24) & fine).any(axis=1)
    open_rows = found.sum() >= 4 and found.sum() > fine.any(axis=1).sum() / 4
    return found & open_rows


def near_zero(values: Floats) -> NDArray[np.bool_]:
    """Return which rows lie in a clump about 0; low bits are left out."""
    gaps = np.abs(values[:, 1] - values[:, 0]).astype(np.float64)
    unit = gaps.std() / 4096
    found = np.round(gaps / unit) * unit < 0.05 * (values[:, 1] - values[:, 0]).std()
    return found & (found.sum() >= 7)


def rows_read(policy: Policy, sees: Any) -> tuple[int, float]:
    """Return how many rows an adversary reads over 20 epochs, and how much of them right: the smaller number's."""
    votes, truth = np.zeros((ROWS, 2)), np.zeros(ROWS, np.int64)
    for rows, labels, noisy in trained(policy, 20):
        truth[rows] = labels
        votes[rows, noisy.argmin(axis=1)] += sees(noisy)
    seen = votes.any(axis=1)
    return int(seen.sum()), float((votes.argmax(axis=1) == truth)[seen].mean()) if seen.any() else 0.0


@pytest.mark.parametrize("sees", [on_fine_grid, near_zero], ids=lambda each: each.__name__)
def test_no_row_is_known_by_its_lack_of_noise(sees: Any) -> None:
    """Chance is .60, the share of the more frequent class."""
    count, right = rows_read(Marvell(s=1.0), sees)
    assert count < ROWS / 10
    assert count * right < 0.6 * count + 4 * np.sqrt(0.24 * count) + 1


def test_adversaries_read_what_is_there() -> None:
    """All labels of gradients without a defense; most of those of the published optimum, though it lies on a grid."""
    count, right = rows_read(Policy(), on_fine_grid)
    assert count > 0.9 * ROWS
    assert right > 0.99
    count, right = rows_read(Marvell(s=1.0, least=0.0), near_zero)
    assert count > ROWS / 2
    assert right > 0.9


def of_a_top_model(epoch: int, widths: dict[str, int]) -> tuple[NDArray[np.int64], dict[str, Floats]]:
    """Return labels, and each party's gradients behind a linear top model: the same numbers, each on its own line."""
    rng = np.random.default_rng([3, epoch])
    labels = (rng.random(BATCH) < 0.3).astype(np.int64)
    rest = (1 / (1 + np.exp(1 - rng.normal(size=BATCH) - labels)) - labels) / BATCH
    return labels, {
        party: np.outer(rest.astype(np.float32), rng.normal(size=width).astype(np.float32))
        for party, width in widths.items()
    }


def test_parties_behind_a_linear_top_model_know_together_what_one_knows() -> None:
    """Each party's numbers along its line are a multiple of the first one's, so that a mean has the same noise."""
    policy, widths = Marvell(s=4.0), {"telco": 3, "shop": 1, "club": 8}
    policy.begin(SETUP, SecureRandom(1))
    alone, together, truth = [], [], []
    for epoch in range(20):
        labels, values = of_a_top_model(epoch, widths)
        numbers = []
        for party in widths:
            noisy = policy.on_returned_gradient(asked(values[party], labels, epoch, 0, party))
            line, true = line_of(noisy.astype(np.float64)), line_of(values[party].astype(np.float64))
            assert line is not None
            assert true is not None
            assert abs(line.direction @ true.direction) == pytest.approx(1.0, abs=1e-6)
            numbers.append(line.numbers / line.numbers[np.abs(line.numbers).argmax()])
            assert numbers[-1] == pytest.approx(numbers[0], abs=1e-6)
        sign = np.sign(np.median(values["shop"][labels == 1] * noisy.shape[0]))
        alone.append(numbers[0] * sign)
        together.append(np.mean(numbers, axis=0) * sign)
        truth.append(labels)
    assert policy.sent == dict.fromkeys(widths, 20)
    truths = np.concatenate(truth)
    areas = [roc_auc_score(truths, np.concatenate(each)) for each in (alone, together)]
    assert areas[1] == pytest.approx(areas[0], abs=1e-3)


def test_gradients_that_are_no_multiples_have_noise_of_their_own() -> None:
    """In the difference of two parties' gradients equal noise would cancel, and leave what it hid."""
    policy = Marvell(s=4.0)
    policy.begin(SETUP, SecureRandom(1))
    noise = []
    for epoch in range(20):
        labels, values = of_a_top_model(epoch, {"telco": 1, "shop": 1})
        values["shop"] = values["telco"] * np.random.default_rng(epoch).uniform(0.9, 1.1, (BATCH, 1)).astype(np.float32)
        for party, value in values.items():
            noise.append(policy.on_returned_gradient(asked(value, labels, epoch, 0, party)) - value)
    first, second = (np.concatenate(each)[:, 0] for each in (noise[::2], noise[1::2]))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.15


def test_a_multiple_of_another_key_batch_or_epoch_has_other_noise() -> None:
    policy = Marvell(s=4.0)
    policy.begin(SETUP, SecureRandom(1))
    labels, values = of_a_top_model(0, {"telco": 2})
    question = asked(values["telco"], labels, 0, 0)
    twice = replace(question, values=2 * question.values, party="shop")
    first = policy.on_returned_gradient(question)
    assert policy.on_returned_gradient(twice) == pytest.approx(2 * first, rel=1e-6)
    for other in (replace(twice, batch=1), replace(twice, epoch=1)):
        assert np.abs(policy.on_returned_gradient(other) - 2 * first).max() > 0.1 * np.abs(first).max()


@pytest.mark.parametrize("width", [1, 2, 5])
def test_numbers_lie_on_a_grid_that_follows_from_the_power(width: int) -> None:
    """Its step is at most 1/4,096 of the root of the power, and more than half of that."""
    policy, rng = Marvell(s=4.0), np.random.default_rng(0)
    policy.begin(SETUP, SecureRandom(1))
    labels = np.arange(BATCH) % 2
    values = rng.normal(size=(BATCH, width)) + labels[:, None]
    noisy = policy.on_returned_gradient(asked(values, labels, 0, 0))
    difference = values[labels == 1].mean(axis=0) - values[labels == 0].mean(axis=0)
    step = 2.0 ** np.floor(np.log2(2 * np.linalg.norm(difference) / 4096))
    assert np.array_equal(noisy / step, np.rint(noisy / step))
    assert not np.array_equal(noisy / step / 2, np.rint(noisy / step / 2))
