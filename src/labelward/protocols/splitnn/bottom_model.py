"""A party's bottom model: forward and backward pass, the same at every party."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError, JobError
from labelward.protocols.splitnn._torch import nn, torch
from labelward.protocols.splitnn.behavior import Behavior, Honest
from labelward.protocols.splitnn.inputs import NetInputs
from labelward.protocols.splitnn.models.presets import ModelSpec, build
from labelward.protocols.splitnn.models.tabular import ScaledColumns
from labelward.protocols.splitnn.params import MODULE, SplitNet
from labelward.protocols.splitnn.tensors import as_tensor
from labelward.rng import PrivateSeed, keyed, learning

_LEAST_PIECE = 1024


def device_of(params: SplitNet) -> torch.device:
    """Return the device; :class:`JobError` if this machine has none of the kind."""
    device = torch.device(params.device)
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise JobError(
            f"{params.device!r} is not there: torch finds {found} CUDA devices here",
            code="unsupported",
            field="[model] device",
            value=params.device,
        )
    return device


def attack_device(params: SplitNet) -> torch.device:
    """Return the device of the training where this machine has it, else the CPU: views are attacked anywhere."""
    try:
        return device_of(params)
    except JobError:
        return torch.device("cpu")


def torch_generator(seed: int, party: str, purpose: str) -> torch.Generator:
    """Return the generator that version 0.1.0 drew initial weights from; all parties can repeat it."""
    return torch.Generator().manual_seed(int(learning(seed, party, 0, purpose).integers(1 << 62)))


def start_key(private: PrivateSeed, seed: int, party: str, part: Literal["bottom", "top", "local", "between"]) -> bytes:
    """Return the key of the draws of a party's initial weights, which no other party can repeat.

    Whoever can repeat them inverts first embeddings to columns, and names the classes behind returned gradients.
    """
    return private.key(seed, 0, f"{part} of {party}")


def prediction_batches(rows: int, params: SplitNet) -> list[slice]:
    """Return batches of rows for embedding without training."""
    size = max(params.batch_size, _LEAST_PIECE)
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def copy_user_module(given: object, what: str, params: SplitNet, *, party: str = "") -> nn.Module:
    """Return a copy of a user's module, in the model's dtype.

    Args:
        given: the user's module; None: not supplied.
        what: the parameter that asks for it.
        party: whose it is, where several hand one in.

    Raises:
        JobError: there is none, it is no module, or it has no weights to train.
    """
    from copy import deepcopy

    whose = f" of party {party!r}" if party else ""
    if given is None:
        raise JobError(
            f"'module' needs a torch.nn.Module to be handed in, and there is none{whose}",
            code="missing",
            field=f"[model] {what}",
        )
    if not isinstance(given, nn.Module):
        raise JobError(
            f"must be a torch.nn.Module, but got {given!r}{whose}", code="type", field=f"[model] {what}", value=given
        )
    if not any(weight.requires_grad for weight in given.parameters()):
        raise JobError(
            f"the module {type(given).__name__}{whose} has no trainable weights",
            code="unsupported",
            field=f"[model] {what}",
            value=given,
        )
    return deepcopy(given).to(getattr(torch, params.dtype))


class TrainableModule:
    """A module on its device, with its optimizer.

    Attributes:
        spec: its description.
        start: key of the draws of its initial weights; empty for a user's module.
        best: the best weights so far, by name.
    """

    def __init__(
        self,
        module: nn.Module,
        spec: ModelSpec,
        params: SplitNet,
        behavior: Behavior | None = None,
        *,
        start: bytes = b"",
    ) -> None:
        self.spec, self.start = spec, start
        self.params, self.device = params, device_of(params)
        self.module = module.to(self.device)
        self._weights = [weight for weight in module.parameters() if weight.requires_grad]
        self.optimizer = (behavior or Honest()).optimizer(self._weights, params)
        self.best: dict[str, torch.Tensor] = {}

    def begin(self, epoch: int) -> None:
        """Set the learning rate of an epoch."""
        self.module.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.params.rate(epoch)

    def forget(self) -> None:
        """Reset the gradients."""
        for weight in self._weights:
            weight.grad = None

    @property
    def finite(self) -> bool:
        """Whether all weights, and what the optimizer keeps of them, are finite."""
        states = (value for state in self.optimizer.state.values() for value in state.values())
        tensors = (*self._weights, *(value for value in states if isinstance(value, torch.Tensor)))
        return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)

    def keep(self) -> None:
        """Store the current weights as the best so far."""
        self.best = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}

    def finish(self) -> None:
        """Restore the best weights, if any were stored."""
        if self.best:
            self.module.load_state_dict(self.best)
        self.module.eval()


class BottomModel(TrainableModule):
    """A party's bottom model with its rows.

    Attributes:
        outputs: numbers a row.
    """

    def __init__(
        self,
        module: nn.Module,
        spec: ModelSpec,
        inputs: NetInputs,
        params: SplitNet,
        behavior: Behavior | None = None,
        *,
        start: bytes = b"",
    ) -> None:
        super().__init__(module, spec, params, behavior, start=start)
        self.outputs = spec.outputs
        self._rows = inputs.rows
        self._x = as_tensor(inputs.train, params, self.device)
        self._out: torch.Tensor | None = None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the detached embeddings of a batch; their graph is stored for :meth:`update`."""
        self._out = self.module(self._x.index_select(0, rows))
        return self._out.detach()

    def update(self, gradient: torch.Tensor) -> None:
        """Backpropagate the gradient of the last batch's embeddings, and take a step."""
        assert self._out is not None
        self.forget()
        self._out.backward(gradient)  # type: ignore[no-untyped-call]
        self._out = None
        self.optimizer.step()

    def embed(self, x: NDArray[Any]) -> torch.Tensor:
        """Return the embeddings of some rows, without training."""
        return torch.cat(list(embed_batches(self.module, as_tensor(x, self.params, self.device), self.params)))

    def training(self) -> torch.Tensor:
        """Return the embeddings of the training rows, without training."""
        return torch.cat(list(embed_batches(self.module, self._x[: self._rows], self.params)))

    def validation(self) -> Iterator[torch.Tensor]:
        """Yield the embeddings of the validation rows in batches."""
        return embed_batches(self.module, self._x[self._rows :], self.params)


def embed_batches(module: nn.Module, x: torch.Tensor, params: SplitNet) -> Iterator[torch.Tensor]:
    """Yield embeddings of rows in batches, without training."""
    module.eval()
    for piece in prediction_batches(len(x), params):
        with torch.no_grad():
            yield module(x[piece])


def make_bottom(
    party: str, inputs: NetInputs, params: SplitNet, outputs: int, *, start: bytes, behavior: Behavior | None = None
) -> BottomModel:
    """Return a party's bottom model, built from its preset or copied from the user's module.

    Args:
        outputs: required embedding size; 0: any.
        start: key of the draws of a preset's weights (:func:`start_key`).

    Raises:
        JobError: rows, module and outputs do not fit each other, or the device is not there.
    """
    spec = ModelSpec(
        preset=params.preset(party),
        inputs=inputs.shape,
        outputs=outputs,
        width=params.width,
        buckets=params.buckets,
        vocabulary=params.vocabulary,
        image=(params.channels, params.height) if params.height else (),
        categories=dict(inputs.categories),
    )
    device_of(params)
    if params.bottom == MODULE:
        module = copy_user_module(inputs.bottom, "bottom", params, party=party)
        width = _probe(module, inputs, params, party)
        if outputs and width != outputs:
            raise JobError(
                f"the module of party {party!r} gives {width} numbers a row; {outputs} are needed",
                code="unsupported",
                field="[model] bottom",
                value=width,
            )
        spec, start = ModelSpec(preset=MODULE, inputs=inputs.shape, outputs=width), b""
    else:
        module = build(spec, keyed(start), getattr(torch, params.dtype))
    table = next((part for part in module.modules() if isinstance(part, ScaledColumns)), None)
    if table is not None:
        if params.standardize:
            table.fit(torch.from_numpy(inputs.train[: inputs.rows].astype(np.float64)))
    elif np.isnan(inputs.train).any() or np.isnan(inputs.test).any():
        raise DataError(
            f"bottom model {spec.preset!r} takes no missing values",
            code="values",
            field=f"party {party!r}",
            value=spec.preset,
        )
    return BottomModel(module, spec, inputs, params, behavior, start=start)


def _probe(module: nn.Module, inputs: NetInputs, params: SplitNet, party: str) -> int:
    """Return the embedding size of a module."""
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            out = module(as_tensor(inputs.train[:2], params, torch.device("cpu")))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise JobError(
            f"the module of party {party!r} does not take rows of shape {inputs.shape}: {error}",
            code="unsupported",
            field="[model] bottom",
            value=inputs.shape,
        ) from error
    module.train(training)
    if not isinstance(out, torch.Tensor) or out.ndim != 2 or len(out) != len(inputs.train[:2]):
        told = list(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        raise JobError(
            f"the module of party {party!r} must give [rows, numbers] but gave {told}",
            code="unsupported",
            field="[model] bottom",
            value=told,
        )
    return int(out.shape[1])
