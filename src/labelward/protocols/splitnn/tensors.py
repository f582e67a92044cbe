"""Conversion of tensors for messages and for files."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from labelward.errors import CodecError, FileFormatError, JobError
from labelward.messages.base import Array
from labelward.protocols.splitnn._torch import torch
from labelward.protocols.splitnn.params import SplitNet

Floats = NDArray[Any]


def as_array(values: torch.Tensor) -> Floats:
    """Return a tensor's numbers, on the CPU, as an array of the same dtype."""
    return values.detach().cpu().numpy()


def as_tensor(values: NDArray[Any], params: SplitNet, device: torch.device) -> torch.Tensor:
    """Return a copy of an array as a tensor in the model's dtype."""
    return torch.from_numpy(np.ascontiguousarray(values).astype(params.dtype)).to(device)


LARGEST: Final = 1e20
"""Above every embedding and output of a training that does not diverge, and so far below the largest number of single
precision that no loss of a class is infinite: else the end of a training would tell who made a row's embedding up which
class the row has."""


def is_finite(values: Floats) -> bool:
    """Return whether all values are finite."""
    return bool(np.isfinite(values).all())


def pack_tensor(values: Floats, params: SplitNet) -> Array:
    """Return the array to send; :class:`JobError` if it exceeds the range of half precision."""
    if params.wire_dtype == "same":
        return Array.pack(values)
    if np.abs(values).max(initial=0.0) > np.finfo(np.float16).max:
        largest = float(np.abs(values).max())
        raise JobError(
            f"{largest:.3g} is beyond the range of 'float16'", code="range", field="[model] wire_dtype", value=largest
        )
    return Array.pack(values.astype(np.float16))


def unpack_array(array: Array, params: SplitNet, shape: tuple[int, int], device: torch.device) -> torch.Tensor:
    """Return a received array in the model's dtype.

    Raises:
        CodecError: another dtype or shape than was agreed on, or a number that is not finite.
    """
    dtype = params.dtype if params.wire_dtype == "same" else params.wire_dtype
    values = array.unpack_as(dtype, *shape)
    if not is_finite(values):
        raise CodecError("sent numbers that are not finite", code="values", value=array.shape)
    return torch.from_numpy(values.astype(params.dtype, copy=False)).to(device)


def diverged(
    party: str, what: str, epoch: int, batch: int | None, params: SplitNet, *, how: str = "is not finite"
) -> JobError:
    """Return the error of a diverged training; epoch and batch are counted from 0, and reported from 1."""
    where = f"epoch {epoch + 1}" + ("" if batch is None else f", batch {batch + 1}")
    return JobError(
        f"{what} {how} in {where}: training diverged with [model] learning_rate "
        f"{params.learning_rate:g}; choose a lower one",
        code="diverged",
        field=f"party {party!r}",
        value=params.learning_rate,
    )


def pack_state(state: dict[str, torch.Tensor]) -> dict[str, Array]:
    """Return the tensors of a module by name, in stored form."""
    return {name: Array.pack(as_array(tensor)) for name, tensor in state.items()}


def unpack_state(state: dict[str, Array], module: torch.nn.Module, what: str) -> None:
    """Set a module's tensors; :class:`FileFormatError` if names, shapes or dtypes differ from the module's."""
    own = module.state_dict()
    own_shapes = {name: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for name, tensor in own.items()}
    stored = {name: (array.shape, array.dtype) for name, array in state.items()}
    if own_shapes != stored:
        name = sorted(name for name in own_shapes.keys() | stored.keys() if own_shapes.get(name) != stored.get(name))[0]
        raise FileFormatError(
            f"the stored weights do not fit the model: {name} is {stored.get(name, 'absent')} in the file and "
            f"{own_shapes.get(name, 'absent')} in the model",
            code="damaged",
            field=what,
            value=name,
        )
    try:
        module.load_state_dict({name: torch.from_numpy(array.unpack().copy()) for name, array in state.items()})
    except CodecError as error:
        raise FileFormatError(f"damaged weights: {error}", code="damaged", field=what) from error
