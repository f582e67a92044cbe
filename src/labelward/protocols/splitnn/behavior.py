"""Local updates of a party's bottom model: as agreed, or by an active attacker (Algorithm 1).

An active attack changes the attacker's own training and nothing else: it is declared in the run, and the view that the
run leaves goes to an ordinary attack function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, overload

from msgspec import Meta

from labelward.parameters import NonNegativeFloat, Parameters, PositiveFloat
from labelward.protocols.splitnn._torch import torch
from labelward.protocols.splitnn.params import SplitNet

Weights = Iterable[torch.nn.Parameter]

_LATER = {"rate": None, "base": "momentum"}
"""Parameters that came after views with this behavior were stored."""

_BETA_2 = 0.999


class Behavior(Protocol):
    """A replaceable local update.

    Attributes:
        kind: name in the transcript of the party.
    """

    kind: ClassVar[str]

    def optimizer(self, weights: Weights, params: SplitNet) -> torch.optim.Optimizer:
        """Return an optimizer of these weights; its ``lr`` follows the schedule."""
        ...

    def parameters(self) -> dict[str, Any]:
        """Return the parameters recorded in the transcript."""
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
        """Return an empty mapping: the job contains all parameters."""
        return {}


@dataclass(frozen=True, kw_only=True)
class MaliciousOptimizer(Parameters):
    """Malicious local optimizer: steps of a weight are scaled up as long as their direction stays the same.

    Setting: one passive party, which scales its own updates so that the top model comes to rely on its embeddings.
    It sends and receives what an honest party does.

    Reference: Algorithm 1 and Table 7b of the label inference paper. Differences: its line 10 reads v = r · v_last,
    with which a velocity could never change its sign; ``rate`` and ``base``. The velocity is a mean of gradients, while
    honest parties with momentum m take steps of up to 1 / (1 - m) gradients. So an attacker at the rate of the job is
    the slowest party.
    """

    section: ClassVar[str] = "malicious-optimizer"
    kind: ClassVar[str] = "malicious-optimizer"

    beta: Annotated[float, Meta(ge=0, lt=1, description="Momentum: fraction of the velocity kept in each step.")] = 0.9
    gamma: Annotated[NonNegativeFloat, Meta(description="Weight of the ratio of two consecutive steps.")] = 1.0
    least: Annotated[NonNegativeFloat, Meta(description="Lower bound of the scaling factor.")] = 1.0
    most: Annotated[NonNegativeFloat, Meta(description="Upper bound of the scaling factor.")] = 5.0
    rate: Annotated[
        PositiveFloat | None,
        Meta(description="Learning rate; it follows the schedule of the job. Left out: that of the job."),
    ] = None
    base: Annotated[
        Literal["momentum", "adam"],
        Meta(description="What is scaled: the velocity ('momentum'), or the steps of Adam ('adam')."),
    ] = "momentum"
    reading: Annotated[
        Literal["velocity", "published"],
        Meta(
            description="'velocity': each step is scaled anew and the velocity never, so that scaling cannot compound; "
            "'published': the velocity, without the factor 1 - beta, is scaled in place as in the published code."
        ),
    ] = "velocity"

    def check_parameters(self) -> None:
        """Refuse a lower bound above the upper one."""
        if self.least > self.most:
            raise self.error("least", f"must be at most {self.most:g} (most), not {self.least:g}")
        if self.base == "adam" and self.reading == "published":
            raise self.error("base", "is 'momentum' in the published code")

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name; ``rate`` and ``base`` only where they differ from the defaults."""
        found = super().parameters()
        return {name: value for name, value in found.items() if name not in _LATER or value != _LATER[name]}

    def optimizer(self, weights: Weights, params: SplitNet) -> torch.optim.Optimizer:
        """Return the optimizer, with the schedule and weight decay of the job."""
        scale = 1.0 if self.rate is None else self.rate / params.learning_rate
        return MaliciousSGD(weights, self, rate=params.learning_rate, scale=scale, weight_decay=params.weight_decay)


class MaliciousSGD(torch.optim.Optimizer):
    """Optimizer of :class:`MaliciousOptimizer`; stores velocity and last step of each weight, and what Adam stores.

    Args:
        rate: learning rate of the job, which its schedule changes.
        scale: this optimizer's rate as a multiple of that.
    """

    def __init__(
        self,
        weights: Weights,
        how: MaliciousOptimizer,
        *,
        rate: float,
        scale: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(weights, {"lr": rate, "scale": scale, "weight_decay": weight_decay})
        self.how = how

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step with the current gradients; ``closure``, if any, recomputes them."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for weight in group["params"]:
                    if weight.grad is not None:
                        gradient = weight.grad.add(weight, alpha=group["weight_decay"])
                        weight.sub_(group["lr"] * group["scale"] * self._next(self.state[weight], gradient))
        return loss

    def _next(self, state: dict[str, Any], gradient: torch.Tensor) -> torch.Tensor:
        """Return the step of one weight, before the learning rate."""
        how = self.how
        published = how.reading == "published"
        fresh = gradient if published else (1 - how.beta) * gradient
        velocity = how.beta * state["velocity"] + fresh if state else fresh
        kept, step = velocity, velocity
        if how.base == "adam":
            velocity = step = self._adam(state, velocity, gradient)
        if "last" in state:
            ratio = velocity / (state["last"] + (1e-7 if published else 0.0))
            factor = 1 + how.gamma * ratio.nan_to_num(nan=1.0, posinf=None, neginf=None)
            step = velocity * factor.clamp(how.least, how.most)
        state["velocity"], state["last"] = (step if published else kept), step
        return step

    def _adam(self, state: dict[str, Any], mean: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Return the step of Adam (Kingma and Ba 2015, Algorithm 1) for a mean of gradients, with β2 = .999."""
        zero = torch.zeros_like(gradient)
        state["squares"] = _BETA_2 * state.get("squares", zero) + (1 - _BETA_2) * gradient.square()
        state["steps"] = state.get("steps", zero.new_zeros(())) + 1
        squares = state["squares"] / (1 - _BETA_2 ** state["steps"])
        step: torch.Tensor = mean / (1 - self.how.beta ** state["steps"]) / (squares.sqrt() + 1e-8)
        return step
