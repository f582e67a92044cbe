"""How a party updates its bottom model: as agreed, or as an active attacker would (Algorithm 1).

An active attack changes the attacker's own training and nothing else: it is declared in the run, and the view that the
run leaves goes to an ordinary attack function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol, overload

from labelward.errors import JobError, number_code
from labelward.protocols.splitnn._torch import torch
from labelward.protocols.splitnn.params import SplitNet

__all__ = ["Behavior", "Honest", "MaliciousOptimizer", "MaliciousSGD"]

Weights = Iterable[torch.nn.Parameter]


class Behavior(Protocol):
    """A replaceable local update.

    Attributes:
        kind: its name, as the transcript of its party tells it.
    """

    kind: ClassVar[str]

    def optimizer(self, weights: Weights, params: SplitNet) -> torch.optim.Optimizer:
        """Return what updates these weights; its ``lr`` follows the schedule."""
        ...

    def parameters(self) -> dict[str, Any]:
        """Return the parameters as the transcript keeps them."""
        ...


@dataclass(frozen=True, kw_only=True)
class Honest:
    """The optimizer of the job, each step in one operation: parties of one process share the interpreter's lock."""

    kind: ClassVar[str] = "honest"

    def optimizer(self, weights: Weights, params: SplitNet) -> torch.optim.Optimizer:
        """Return SGD with momentum, or Adam."""
        rate, decay = params.learning_rate, params.weight_decay
        if params.optimizer == "adam":
            return torch.optim.Adam(weights, lr=rate, weight_decay=decay, fused=True)
        return torch.optim.SGD(weights, lr=rate, momentum=params.momentum, weight_decay=decay, fused=True)

    def parameters(self) -> dict[str, Any]:
        """Return nothing: all stands in the job."""
        return {}


@dataclass(frozen=True, kw_only=True)
class MaliciousOptimizer:
    """The malicious local optimizer: each weight's step is scaled up while it goes on in one direction.

    Setting: one passive party, which scales its own updates so that the top model comes to rely on its embeddings.
    It sends and receives what an honest party does.

    Attributes:
        beta: share of the velocity that stays at each step.
        gamma: how much the ratio of two steps counts.
        least, most: bounds of the scaling factor.
        reading: ``"velocity"``: the scaling applies to each step anew, and never to the velocity itself, so that steps
            cannot compound. ``"published"``: the velocity without the factor 1 − beta, scaled in place, as the
            published code does it; steps compound until they leave the numbers.

    Reference: Algorithm 1 and Table 7b of the label inference paper. Difference: its line 10 reads v = r · v_last, with
    which a velocity could never change its sign.
    """

    kind: ClassVar[str] = "malicious-optimizer"

    beta: float = 0.9
    gamma: float = 1.0
    least: float = 1.0
    most: float = 5.0
    reading: Literal["velocity", "published"] = "velocity"

    def __post_init__(self) -> None:
        for name in ("beta", "gamma", "least", "most"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise JobError(
                    f"must be a number of at least 0 but got {value!r}",
                    code=number_code(value),
                    field=f"{self.kind} {name}",
                    value=value,
                )
        if self.beta >= 1:
            raise JobError(
                f"must be below 1 but got {self.beta!r}", code="range", field=f"{self.kind} beta", value=self.beta
            )
        if self.least > self.most:
            raise JobError(
                f"must be at most {self.most:g} (most) but got {self.least!r}",
                code="conflict",
                field=f"{self.kind} least",
                value=self.least,
            )
        if self.reading not in ("velocity", "published"):
            raise JobError(
                f"must be 'velocity' or 'published' but got {self.reading!r}",
                code="choice",
                field=f"{self.kind} reading",
                value=self.reading,
            )

    def optimizer(self, weights: Weights, params: SplitNet) -> torch.optim.Optimizer:
        """Return the optimizer, with learning rate and weight decay of the job."""
        return MaliciousSGD(weights, self, rate=params.learning_rate, weight_decay=params.weight_decay)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters."""
        return asdict(self)


class MaliciousSGD(torch.optim.Optimizer):
    """What :class:`MaliciousOptimizer` trains with; keeps velocity and last step of each weight."""

    def __init__(self, weights: Weights, how: MaliciousOptimizer, *, rate: float, weight_decay: float = 0.0) -> None:
        super().__init__(weights, {"lr": rate, "weight_decay": weight_decay})
        self.how = how

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step with the gradients as they are; ``closure``, where given, works them out anew."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for weight in group["params"]:
                    if weight.grad is not None:
                        gradient = weight.grad.add(weight, alpha=group["weight_decay"])
                        weight.sub_(group["lr"] * self._next(self.state[weight], gradient))
        return loss

    def _next(self, state: dict[str, Any], gradient: torch.Tensor) -> torch.Tensor:
        """Return the step of one weight, before the learning rate."""
        how = self.how
        published = how.reading == "published"
        fresh = gradient if published else (1 - how.beta) * gradient
        velocity = how.beta * state["velocity"] + fresh if state else fresh
        step = velocity
        if state:
            ratio = velocity / (state["last"] + (1e-7 if published else 0.0))
            factor = 1 + how.gamma * ratio.nan_to_num(nan=1.0, posinf=None, neginf=None)
            step = velocity * factor.clamp(how.least, how.most)
        state["velocity"], state["last"] = (step if published else velocity), step
        return step
