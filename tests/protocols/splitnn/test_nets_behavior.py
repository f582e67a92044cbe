"""The malicious local optimizer: the test vectors of its two readings, and what it is not allowed to change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from splitnets import Net, blobs

from labelward.errors import Code, JobError
from labelward.protocols.splitnn.behavior import MaliciousOptimizer, MaliciousSGD
from labelward.protocols.splitnn.params import SplitNet
from refusals import refused


def steps(how: MaliciousOptimizer, gradients: list[float]) -> list[float]:
    """Return the steps of one weight, before the learning rate."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = MaliciousSGD([weight], how, rate=1.0)
    found, before = [], 0.0
    for gradient in gradients:
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        found.append(before - weight.item())
        before = weight.item()
    return found


def test_steps_do_not_compound() -> None:
    """Velocities .1, .19, .271, .3439, .40951; each scaled by 1 + velocity / step before, within 1 and 5."""
    found = steps(MaliciousOptimizer(), [1.0] * 5)
    np.testing.assert_allclose(found, [0.1, 0.551, 0.4043, 0.6364, 0.6730], atol=5e-5)  # four digits are given


def test_the_published_code_compounds() -> None:
    found = steps(MaliciousOptimizer(reading="published"), [1.0] * 5)
    np.testing.assert_allclose(found, [1.0, 5.51, 12.404, 24.091, 44.037], rtol=1e-4)  # 1, 5.5, 12.4, 24, 44


def test_a_change_of_direction_is_not_scaled() -> None:
    """A negative ratio gives a factor below 1, which the least one lifts."""
    found = steps(MaliciousOptimizer(beta=0.0), [1.0, -1.0, -1.0])
    assert found == pytest.approx([1.0, -1.0, -2.0])


def test_a_gradient_of_zero_stays_zero() -> None:
    assert steps(MaliciousOptimizer(), [0.0, 0.0, 1.0])[:2] == [0.0, 0.0]


def test_without_scaling_its_adam_is_adam() -> None:
    """Torch's own, step by step, after any gradients; with a rate of its own that follows the job's schedule."""
    how = MaliciousOptimizer(least=1.0, most=1.0, base="adam", rate=0.03)
    rng = np.random.default_rng(0)
    one, other = (torch.nn.Parameter(torch.ones(3, dtype=torch.float64)) for _ in range(2))
    own = how.optimizer([one], SplitNet(learning_rate=0.2))
    plain = torch.optim.Adam([other], lr=0.03)
    for _ in range(20):
        one.grad = torch.from_numpy(rng.normal(size=3))
        other.grad = one.grad.clone()
        own.step()
        plain.step()
        np.testing.assert_allclose(one.detach(), other.detach(), rtol=1e-12)


def test_steps_of_adam_are_scaled_as_velocities_are() -> None:
    """Of a constant gradient they are 1: twice 1, then 1 + 1 / 2, then 1 + 1 / 1.5 of it."""
    found = steps(MaliciousOptimizer(base="adam"), [1.0] * 4)
    np.testing.assert_allclose(found, [1.0, 2.0, 1.5, 5 / 3], rtol=1e-6)  # Adam's own 1e-8


def test_a_rate_of_its_own_scales_all_steps() -> None:
    params = SplitNet(learning_rate=0.2)
    found = []
    for how in (MaliciousOptimizer(), MaliciousOptimizer(rate=0.8)):
        weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = how.optimizer([weight], params)
        for _ in range(3):
            weight.grad = torch.ones(1, dtype=torch.float64)
            optimizer.step()
        found.append(weight.item())
    assert found[1] == pytest.approx(4 * found[0], rel=1e-12)


def test_parameters_that_came_later_are_stored_where_they_are_given() -> None:
    assert not {"rate", "base"} & MaliciousOptimizer().parameters().keys()
    assert MaliciousOptimizer(rate=0.5, base="adam").parameters().items() >= {("rate", 0.5), ("base", "adam")}
    with refused(JobError, "conflict", field="malicious-optimizer base", value="adam"):
        MaliciousOptimizer(base="adam", reading="published")


def test_without_scaling_it_is_plain_momentum() -> None:
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=20).tolist()
    found = steps(MaliciousOptimizer(least=1.0, most=1.0), gradients)
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    plain = torch.optim.SGD([weight], lr=0.1, momentum=0.9)  # torch keeps velocity / (1 - momentum)
    before = 0.0
    for gradient, step in zip(gradients, found, strict=True):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        plain.step()
        assert step == pytest.approx(before - weight.item(), abs=1e-13)
        before = weight.item()


def test_a_party_that_cheats_changes_its_own_steps_only() -> None:
    """Without scaling the run is the honest one at a tenth of the rate; with it, the view says what was done."""
    parts, y = blobs(0, 80, {"bank": 3, "telco": 3})
    params = SplitNet(epochs=3, batch_size=16, dtype="float64", top=False, bottom="linear")
    net = Net(parts=parts, labels=y, params=params, behaviors={"telco": MaliciousOptimizer()})
    run = net.run()
    told = list(run.views["telco"].applied())
    assert told == [
        {
            "stage": "behavior",
            "kind": "malicious-optimizer",
            "parameters": {"beta": 0.9, "gamma": 1.0, "least": 1.0, "most": 5.0, "reading": "velocity"},
        }
    ]
    assert run.passive["telco"].share.behavior["kind"] == "malicious-optimizer"
    honest = net.run(behaviors={})
    assert not list(honest.views["telco"].applied())
    ours, theirs = (
        [record for record in each.views["bank"].records() if record[2] == (0, 0)][:1] for each in (run, honest)
    )
    assert ours == theirs  # the first embeddings are those of the same weights
    assert run.views["bank"].digest() != honest.views["bank"].digest()


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"beta": 1.0}, "range"),
        ({"beta": -0.1}, "range"),
        ({"least": 6.0}, "conflict"),
        ({"most": float("inf")}, "range"),
        ({"reading": "literal"}, "choice"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(bad: dict[str, Any], code: Code) -> None:
    (name,) = bad
    with refused(JobError, code, field=f"malicious-optimizer {name}", value=bad[name]):
        MaliciousOptimizer(**bad)
