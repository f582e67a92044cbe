"""Checkpoints of split networks: the state from which each party resumes an interrupted training.

A checkpoint's number is the number of finished epochs. Its state contains weights and optimizer state, completely: it
costs as much after the last epoch as after the first. A party's checkpoint 0, before anything leaves, holds what its
policies drew.
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
from labelward.protocols.splitnn.share import LocalFit, NetTargets
from labelward.protocols.splitnn.tensors import as_array, pack_state, unpack_state


class TrainedState(msgspec.Struct, frozen=True):
    """A module in the middle of its training.

    Attributes:
        weights: its tensors by name.
        optimizer: optimizer state of each weight, as ``"number.name"``.
        best: the weights of the best epoch, where early stopping wants them.
    """

    weights: dict[str, Array]
    optimizer: dict[str, Array]
    best: dict[str, Array]


class PassiveStart(msgspec.Struct, frozen=True, kw_only=True):
    """A passive party before the first epoch.

    Attributes:
        policies: state of those that drew something; None where none did.
    """

    policies: ChainState | None = None


class PassiveState(msgspec.Struct, frozen=True, kw_only=True):
    """A passive party between two epochs.

    Attributes:
        last: whether no further one follows.
        policies: state of the policies.
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
        policies: state of the policies.
        between: what policies put between embeddings and top model.
        targets: what policies have the labels replaced by; None: nothing.
        local: how the active party's own columns are joined in the best epoch, where a model of them is added.
    """

    model: str
    bottom: TrainedState | None
    top: TrainedState | None
    history: tuple[EpochRecord, ...]
    best: int
    last: bool
    policies: ChainState
    between: TrainedState | None = None
    targets: NetTargets | None = None
    local: LocalFit = LocalFit()


def snapshot_weights(trained: TrainableModule) -> TrainedState:
    """Return the state of a module and its optimizer."""
    optimizer_state: dict[int, dict[str, Any]] = trained.optimizer.state_dict()["state"]
    return TrainedState(
        weights=pack_state(trained.module.state_dict()),
        optimizer={
            f"{number}.{name}": Array.pack(as_array(value))
            for number, values in optimizer_state.items()
            for name, value in values.items()
            if value is not None
        },
        best=pack_state(trained.best),
    )


def restore(trained: TrainableModule, state: TrainedState) -> None:
    """Restore a snapshot; :class:`FileFormatError` if it does not fit the module."""
    if state.best:
        unpack_state(state.best, trained.module, "a checkpoint")
        trained.keep()
    unpack_state(state.weights, trained.module, "a checkpoint")
    optimizer_state: dict[int, dict[str, torch.Tensor]] = {}
    try:
        for key, array in state.optimizer.items():
            number, _, name = key.partition(".")
            optimizer_state.setdefault(int(number), {})[name] = torch.from_numpy(array.unpack().copy())
        groups = trained.optimizer.state_dict()["param_groups"]
        trained.optimizer.load_state_dict({"state": optimizer_state, "param_groups": groups})
    except (CodecError, ValueError) as error:
        raise FileFormatError(
            f"the optimizer state does not fit the model: {error}", code="damaged", field="a checkpoint"
        ) from error
