"""Defenses of returned gradients that read classes: heads, noise by class, distance correlation; by slow references."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from labelward.defenses._perceptron import Adam, cross_entropy_gradients, drawn_perceptron
from labelward.defenses.adversarial import Adversarial
from labelward.defenses.distance_correlation import DistanceCorrelation, distance_correlation
from labelward.defenses.label_dp import RandomizedLabels
from labelward.defenses.marvell import ClassSpread, Marvell, divergence, least_divergence
from labelward.defenses.noisy_gradients import NoisyGradients
from labelward.errors import PolicyError
from labelward.policy.base import Policy, PolicyContext
from labelward.policy.chain import PolicyChain, check_hooks
from labelward.policy.net_points import ReturnedGradient
from labelward.rng import SecureRandom, learning
from refusals import refused

SETUP = PolicyContext(model="splitnn", classes=2, passive=("telco",), epochs=3, batches=2, active_columns=1)
POINTS = frozenset({"before_targets", "on_returned_gradient"})


def asked(seed: int, rows: int = 40, width: int = 3, classes: int = 2, **changes: Any) -> ReturnedGradient:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    embeddings = rng.normal(size=(rows, width)) + labels[:, None]
    values = rng.normal(size=(rows, width)) / rows + (labels[:, None] - 0.5) * rng.normal(size=width) / rows
    given = ReturnedGradient(
        party="telco",
        epoch=0,
        batch=seed,
        values=values,
        embeddings=embeddings,
        targets=labels.astype(np.float64),
        classes=classes,
        draw=lambda purpose: learning(1, "bank", 0, purpose),
        protection=SecureRandom(1),
    )
    return replace(given, **changes)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("width", [1, 3])
def test_heads_learn_as_torch_does(classes: int, width: int) -> None:
    """Gradients by embeddings and weights, and three steps of Adam; two hidden numbers are constant at first."""
    head = Adam(drawn_perceptron(width, 6, classes, np.random.default_rng(0)))
    head.weights[0][:, :2], head.weights[1][:2] = 0.0, (0.3, -0.3)
    module = nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, classes)).double()
    with torch.no_grad():
        for weight, given in zip(module.parameters(), head.weights, strict=True):
            weight.copy_(torch.from_numpy(given.T.copy()))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for step in range(3):
        question = asked(step, width=width, classes=classes)
        labels = question.targets.astype(np.int64)
        x = torch.from_numpy(question.embeddings).requires_grad_()
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), torch.from_numpy(labels)).backward()
        gradient, own = cross_entropy_gradients(head.weights, question.embeddings, labels)
        assert x.grad is not None
        assert np.abs(gradient - x.grad.numpy()).max() < 1e-12
        head.step(own, 0.01)
        optimizer.step()
        for weight, ours in zip(module.parameters(), head.weights, strict=True):
            assert np.abs(weight.detach().numpy().T - ours).max() < 1e-9


@pytest.mark.parametrize("policy", [Adversarial(beta=0.0), DistanceCorrelation(weight=0.0)], ids=lambda each: each.kind)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_weight_of_0_changes_no_bit(policy: Policy, dtype: str) -> None:
    for batch in range(3):
        question = asked(batch)
        question = replace(question, values=question.values.astype(dtype), embeddings=question.embeddings.astype(dtype))
        assert policy.on_returned_gradient(question).tobytes() == question.values.tobytes()


def test_what_hides_labels_is_taken_off_before_the_head_learns() -> None:
    policy, question = Adversarial(beta=2.0, width=4), asked(0)
    start = drawn_perceptron(3, 4, 2, question.draw("adversarial head of telco"))
    gradient, _ = cross_entropy_gradients(start, question.embeddings, question.targets.astype(np.int64))
    assert policy.on_returned_gradient(question) == pytest.approx(question.values - 2 * gradient, abs=1e-15)
    again = policy.on_returned_gradient(question)
    assert not np.allclose(again, question.values - 2 * gradient)


def slow_correlation(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the distance correlation by its definition (Székely and others, 2007)."""

    def centered(distances: torch.Tensor) -> torch.Tensor:
        n = len(distances)
        unit = torch.eye(n).double() - torch.ones(n, n).double() / n
        return unit @ distances @ unit

    away = ~torch.eye(len(x), dtype=torch.bool)
    distances = torch.zeros(len(x), len(x)).double()
    distances[away] = (x[:, None] - x[None])[away].square().sum(1).sqrt()
    a, b = centered(distances), centered((labels[:, None] != labels).double())
    return ((a * b).mean() / ((a * a).mean() * (b * b).mean()).sqrt()).sqrt()


@pytest.mark.parametrize("width", [1, 3])
def test_distance_correlation_is_that_of_a_slow_reference(width: int) -> None:
    for seed in range(3):
        question = asked(seed, rows=17, width=width, classes=3)
        x, labels = torch.from_numpy(question.embeddings).requires_grad_(), question.targets.astype(np.int64)
        expected = slow_correlation(x, torch.from_numpy(labels))
        expected.backward()
        found, gradient = distance_correlation(question.embeddings, labels)
        assert found == pytest.approx(expected.item(), abs=1e-9)
        assert x.grad is not None
        assert np.abs(gradient - x.grad.numpy()).max() < 1e-9
    assert distance_correlation(question.embeddings, np.zeros(17, np.int64))[0] == 0.0
    assert not distance_correlation(np.ones((17, width)), labels)[1].any()


def spreads(count: int) -> list[ClassSpread]:
    """Return problems of 1 to 6 numbers, whose classes have in each direction a variance of their own."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        variances = np.exp(rng.normal(size=(2, int(rng.integers(1, 7)))) * 2 - 2)
        found.append(
            ClassSpread(
                share=float(rng.uniform(0.05, 0.95)),
                along=(float(variances[0, 0]), float(variances[1, 0])),
                across=variances[:, 1:],
                distance=float(np.exp(rng.normal() - 1)),
                power=float(np.exp(rng.normal() * 2 - 1)),
            )
        )
    return found


def solved(spread: ClassSpread) -> float:
    """Return the least divergence that a general solver finds from several starts."""
    width = 1 + spread.across.shape[1]
    costs = np.repeat([1 - spread.share, spread.share], width)  # of each class along, then in each direction across

    def loss(x: np.ndarray[Any, Any]) -> float:
        noise = x.reshape(2, width)
        return float(divergence(spread, noise[:, 0], noise[:, 1:]))

    found = []
    for seed in range(6):
        start = np.random.default_rng(seed).dirichlet(np.ones(2 * width)) * spread.power / costs
        result = minimize(
            loss,
            start * min(1.0, spread.power / max(costs @ start, 1e-300)),
            method="SLSQP",
            bounds=[(0, None)] * (2 * width),
            constraints={"type": "ineq", "fun": lambda x: spread.power - costs @ x},
            options={"ftol": 1e-15, "maxiter": 2000},
        )
        feasible = np.maximum(result.x, 0)
        found.append(loss(feasible * min(1.0, spread.power / max(costs @ feasible, 1e-300))))
    return min(found)


@pytest.mark.parametrize("count", [10, pytest.param(40, marks=pytest.mark.slow)])
def test_noise_is_that_of_a_general_solver(count: int) -> None:
    """On so many problems; noise is at least 0, and uses no more power than there is."""
    for spread in spreads(count):
        along, across = least_divergence(spread)
        shares = np.array([1 - spread.share, spread.share])
        assert min(along.min(), across.min(initial=0.0)) >= 0
        assert shares @ along + shares @ across.sum(axis=1) <= spread.power * (1 + 1e-9)
        ours, theirs = float(divergence(spread, along, across)), solved(spread)
        assert ours <= theirs + 1e-6 * max(1.0, theirs)


@pytest.mark.parametrize("least", [0.25, 0.75])
def test_each_class_has_the_least_share_of_the_noise(least: float) -> None:
    """Along the difference of the power, and in each direction across of the noise there; all power is used.

    With one number the divergence is the least under this bound, by a grid of all pairs of variances.
    """
    for spread in spreads(30):
        bound = replace(spread, least=least)
        (along, across), shares = least_divergence(bound), np.array([1 - spread.share, spread.share])
        assert along.min() >= least * spread.power * (1 - 1e-9)
        assert (across >= least * (shares @ across) * (1 - 1e-9)).all()
        assert shares @ along + shares @ across.sum(axis=1) == pytest.approx(spread.power)
        line = replace(bound, across=np.zeros((2, 0)))
        first = np.linspace(least, (1 - shares[1] * least) / shares[0], 2001) * spread.power
        tried = np.stack([first, (spread.power - shares[0] * first) / shares[1]])
        found = float(divergence(line, *least_divergence(line)))
        assert found <= divergence(line, tried, np.zeros((2, 0, 2001))).min() * (1 + 1e-9)


def test_noise_has_the_power_that_was_asked_for() -> None:
    """Mean over batches, against ``s`` times the squared distance; lengths tell little of the class then."""
    policy, ratios = Marvell(s=4.0), []
    policy.begin(SETUP, SecureRandom(1))
    for batch in range(60):
        question = asked(batch, rows=200)
        labels = question.targets > 0
        noise = policy.on_returned_gradient(question) - question.values
        means = question.values[labels].mean(axis=0) - question.values[~labels].mean(axis=0)
        ratios.append(np.square(noise).sum(axis=1).mean() / np.square(means).sum())
    assert np.mean(ratios) == pytest.approx(4.0, rel=0.05)


def test_equal_gradients_of_several_parties_have_equal_noise() -> None:
    """Whoever is asked first; a run of another key, another batch or other values begins anew."""
    policy = Marvell(s=2.0)
    policy.begin(SETUP, SecureRandom(1))
    question = asked(3)
    first = policy.on_returned_gradient(question)
    assert np.array_equal(policy.on_returned_gradient(replace(question, party="shop")), first)
    assert policy.sent == {question.party: 1, "shop": 1}
    assert not np.array_equal(policy.on_returned_gradient(replace(question, batch=question.batch + 1)), first)
    assert np.array_equal(policy.on_returned_gradient(replace(question, party="shop")), first)
    policy.begin(SETUP, SecureRandom(2))
    assert not np.array_equal(policy.on_returned_gradient(question), first)


def collinear(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return which rows lie on the line that most of them are near to, through 0, up to rounding."""
    line = np.linalg.svd(values, full_matrices=False)[2][0]
    off = values - np.outer(values @ line, line)
    return np.asarray(np.linalg.norm(off, axis=1) < 1e-6 * np.linalg.norm(values, axis=1).max())


@pytest.mark.parametrize("width", [2, 10])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("positive", [0.4, 0.05])
def test_gradients_on_a_line_stay_on_it(width: int, dtype: str, positive: float) -> None:
    """Of a linear top model, or none with two outputs: noise off the line of one class would name its rows."""
    rng, policy = np.random.default_rng(0), Marvell(s=4.0)
    policy.begin(SETUP, SecureRandom(1))
    for batch in range(20):
        labels = (rng.random(64) < positive).astype(np.float64)
        residuals = 1 / (1 + np.exp(-rng.normal(size=64) - labels)) - labels
        values = np.outer(residuals, rng.normal(size=width) if width > 2 else [-1.0, 1.0]).astype(dtype)
        question = asked(batch, targets=labels, values=values, embeddings=values)
        noisy = policy.on_returned_gradient(question)
        assert collinear(noisy).all()
        assert np.linalg.norm(noisy - values) > np.linalg.norm(values) / 2


def test_across_both_classes_vary_alike() -> None:
    """With power to spare, the covariances of both classes across the difference of means are the same."""
    rng, policy = np.random.default_rng(0), Marvell(s=50.0)
    policy.begin(SETUP, SecureRandom(1))
    labels = np.repeat([0.0, 1.0], 20_000)
    shape = np.diag([1.0, 3.0, 0.2, 0.01])
    values = rng.normal(size=(40_000, 4)) @ shape
    values[labels == 1] = values[labels == 1] @ np.linalg.qr(rng.normal(size=(4, 4)))[0] * 0.7 + 2.0
    noisy = policy.on_returned_gradient(asked(0, targets=labels, values=values, embeddings=values))
    difference = noisy[labels == 1].mean(axis=0) - noisy[labels == 0].mean(axis=0)
    true = values[labels == 1].mean(axis=0) - values[labels == 0].mean(axis=0)
    across = np.eye(4) - np.outer(true, true) / (true @ true)
    before, after = (
        np.linalg.norm(across @ (np.cov(each[labels == 1].T) - np.cov(each[labels == 0].T)) @ across, 2)
        for each in (values, noisy)
    )
    assert after < 0.1 * before
    assert np.linalg.norm(difference - true) < 0.5 * np.linalg.norm(true)


def test_batches_of_one_class_have_noise_like_others() -> None:
    """Before any batch of both classes the other class is taken for the opposite."""
    policy = Marvell(s=1.0)
    policy.begin(SETUP, SecureRandom(1))
    alone = asked(0, targets=np.zeros(40))
    noise = policy.on_returned_gradient(alone) - alone.values
    assert np.square(noise).sum(axis=1).mean() == pytest.approx(4 * np.square(alone.values.mean(axis=0)).sum(), rel=0.9)
    assert np.linalg.matrix_rank(noise, tol=1e-3 * np.linalg.norm(noise)) == 1  # but for rounding to a grid
    policy.on_returned_gradient(asked(1))
    noise = policy.on_returned_gradient(alone) - alone.values
    assert noise.std() > 0
    other = Marvell(s=1.0)
    other.begin(SETUP, SecureRandom(2))
    other.resume(policy.state())
    assert np.array_equal(other.on_returned_gradient(alone), policy.on_returned_gradient(alone))


@pytest.mark.parametrize("policy", [Adversarial(), DistanceCorrelation(weight=1.0), Marvell(s=1.0)])
def test_what_is_refused(policy: Policy) -> None:
    field = f"defense {policy.kind!r}"
    with refused(PolicyError, "inapplicable", field=field, value=0):
        check_hooks([policy], POINTS, replace(SETUP, classes=0))
    account = NoisyGradients(distribution="gaussian", epsilon=1.0, delta=1e-5, clip=1.0)
    with refused(PolicyError, "inapplicable", field=field, value="noisy-gradients"):
        check_hooks([account, policy], POINTS, SETUP)
    check_hooks([RandomizedLabels(epsilon=1.0), policy, account], POINTS, SETUP)
    with refused(PolicyError, "cannot-act", value=policy.kind):
        PolicyChain([policy]).on_returned_gradient(asked(0, targets=np.full(40, np.nan)))
    if policy.kind == "marvell":
        with refused(PolicyError, "inapplicable", field=field, value=3):
            check_hooks([policy], POINTS, replace(SETUP, classes=3))
