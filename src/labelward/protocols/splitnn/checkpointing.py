"""What each party must remember so that a training that was cut off goes on as if it had not been.

A checkpoint's number counts the epochs that are done. Its state holds weights and what the optimizers keep, whole: it
costs as much after the last epoch as after the first. The active party's checkpoint 0, before anything leaves, holds
what its policies drew.
"""

from __future__ import annotations

from typing import Any

import msgspec

from labelward.errors import CodecError, FileFormatError
from labelward.messages.base import Array
from labelward.policy.chain import ChainState
from labelward.protocols.splitnn._torch import torch
from labelward.protocols.splitnn.bottom_model import TrainableModule
from labelward.protocols.splitnn.losses import EpochRecord
from labelward.protocols.splitnn.tensors import as_array, pack_state, unpack_state


class TrainedState(msgspec.Struct, frozen=True):
    """A module in the middle of its training.

    Attributes:
        weights: its tensors by name.
        optimizer: what the optimizer keeps of each weight, as ``"number.name"``.
        best: the weights of the best epoch, where early stopping wants them.
    """

    weights: dict[str, Array]
    optimizer: dict[str, Array]
    best: dict[str, Array]


class PassiveState(msgspec.Struct, frozen=True, kw_only=True):
    """A passive party between two epochs.

    Attributes:
        last: whether no further one follows.
        policies: what they keep.
    """

    bottom: TrainedState
    last: bool
    policies: ChainState


class ActiveState(msgspec.Struct, frozen=True, kw_only=True):
    """The active party between two epochs.

    Attributes:
        model: the model's identifier.
        history: how each epoch went.
        best: which was the best.
        last: whether no further one follows.
        policies: what they keep.
    """

    model: str
    bottom: TrainedState | None
    top: TrainedState | None
    history: tuple[EpochRecord, ...]
    best: int
    last: bool
    policies: ChainState


def snapshot_weights(trained: TrainableModule) -> TrainedState:
    """Return what is to be remembered of a module and its optimizer."""
    kept: dict[int, dict[str, Any]] = trained.optimizer.state_dict()["state"]
    return TrainedState(
        weights=pack_state(trained.module.state_dict()),
        optimizer={
            f"{number}.{name}": Array.pack(as_array(value))
            for number, values in kept.items()
            for name, value in values.items()
            if value is not None
        },
        best=pack_state(trained.best),
    )


def restore(trained: TrainableModule, state: TrainedState) -> None:
    """Put back what was remembered; :class:`FileFormatError` where it does not fit the module."""
    if state.best:
        unpack_state(state.best, trained.module, "a checkpoint")
        trained.keep()
    unpack_state(state.weights, trained.module, "a checkpoint")
    kept: dict[int, dict[str, torch.Tensor]] = {}
    try:
        for key, array in state.optimizer.items():
            number, _, name = key.partition(".")
            kept.setdefault(int(number), {})[name] = torch.from_numpy(array.unpack().copy())
        groups = trained.optimizer.state_dict()["param_groups"]
        trained.optimizer.load_state_dict({"state": kept, "param_groups": groups})
    except (CodecError, ValueError) as error:
        raise FileFormatError(
            f"what the optimizer kept does not fit the model: {error}", code="damaged", field="a checkpoint"
        ) from error
