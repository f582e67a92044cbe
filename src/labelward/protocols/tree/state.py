"""What the active party remembers between rounds, and how checkpoints keep it.

A checkpoint's number counts the batches: rounds of boosting, or groups of a forest's trees that grew side by side.
Number 0 is written once the targets are drawn, before anything derived from them leaves, so that noise is never drawn
twice. What a batch adds (trees, own splits, what peers know of the rows) is a block, written once; what it changes
(margins, counts) is written whole each time. So a checkpoint costs as much after the last tree as after the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import FileFormatError
from labelward.messages.base import Array
from labelward.party.context import Context
from labelward.policy.chain import ChainState
from labelward.protocols.tree.beginning import Beginning
from labelward.protocols.tree.plan import Ensemble
from labelward.protocols.tree.share import Records, TreeShape
from labelward.protocols.tree.trained import Warm

__all__ = ["Keeper", "Start", "State", "Stored", "stored"]

Floats = NDArray[np.float64]

_BEGINNING = "beginning"


@dataclass(kw_only=True)
class State:
    """The active party's state between batches, beside what it tells its peers anew in each attempt.

    Attributes:
        trees: all so far, those of an earlier training included.
        margins: float64 [rows, K], validation rows last.
        clean: float64 [rows, K]: margins of the repaired trees; None where nothing repairs.
        taken_part: in how many trees each peer, and each block of own columns, took part.
        rounds: before the first round and after each, how many trees there were, and how many splits each owner had.
        history: the metric of the validation rows after each round.
        larger: whether a larger metric is better.
        grafted: own splits that repairs added.
        batches: how many there were in this training.
    """

    trees: list[TreeShape]
    margins: Floats
    clean: Floats | None
    taken_part: dict[str, int]
    rounds: list[tuple[int, dict[str, int]]]
    history: list[float] = field(default_factory=list)
    larger: bool = False
    grafted: int = 0
    batches: int = 0


class _Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch added: trees, own splits by block of columns, and the leaves that each peer knows."""

    trees: tuple[TreeShape, ...]
    own: dict[str, Records]
    leaves: dict[str, Array]


class _Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch changes; see :class:`State`. Margins are None where no tree changes them, as in a forest."""

    margins: Array | None
    clean: Array | None
    taken_part: dict[str, int]
    rounds: tuple[tuple[int, dict[str, int]], ...]
    history: tuple[float, ...]
    larger: bool
    grafted: int
    records: dict[str, int]
    policies: ChainState


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A checkpoint that was read."""

    number: int
    beginning: Beginning
    standing: _Standing
    batches: tuple[_Batch, ...]


@dataclass(frozen=True, kw_only=True)
class Start:
    """Where a training begins.

    Attributes:
        model: identifies the training in its checkpoints.
        warm: an earlier training that goes on.
        stored: the checkpoint of this training from which it goes on, after it was cut off.
    """

    model: str = ""
    warm: Warm | None = None
    stored: Stored | None = None


def stored(ctx: Context, number: int | None) -> Stored | None:
    """Read the checkpoint that a training goes on from; None: it begins.

    Raises:
        FileFormatError: the checkpoint is damaged.
    """
    if number is None:
        return None
    standing, block = ctx.checkpoints.load(number, _Standing)
    try:
        beginning = msgspec.msgpack.decode(block(_BEGINNING), type=Beginning)
        batches = [msgspec.msgpack.decode(block(_name(each + 1)), type=_Batch) for each in range(number)]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"a damaged checkpoint: {error}", code="damaged", field=str(ctx.checkpoints.folder)
        ) from error
    return Stored(number=number, beginning=beginning, standing=standing, batches=tuple(batches))


class Keeper:
    """Writes checkpoints of a training, and puts one back in place.

    Args:
        ctx: the active party's; where it keeps no checkpoints, nothing is done.
        ensemble: what all trees share; its own splits and what peers know are kept, too.
        state: the rest.
    """

    def __init__(self, ctx: Context, ensemble: Ensemble, state: State) -> None:
        self._ctx, self._ensemble, self._state = ctx, ensemble, state
        self._written(len(state.trees))

    def begin(self, beginning: Beginning) -> None:
        """Write checkpoint 0."""
        if self._ctx.checkpoints.kept:
            self._save({_BEGINNING: msgspec.msgpack.encode(beginning)})

    def save(self) -> None:
        """Write the checkpoint after a batch."""
        state, ensemble = self._state, self._ensemble
        if not self._ctx.checkpoints.kept:
            return
        with self._ctx.phase("checkpoint"):
            batch = _Batch(
                trees=tuple(state.trees[self._trees :]),
                own={name: book.since(self._own[name]) for name, book in ensemble.own.items()},
                leaves=ensemble.exposure.news(),
            )
            added = {_name(state.batches): msgspec.msgpack.encode(batch)}
        self._save(added)
        self._written(len(state.trees))

    def restore(self, kept: Stored) -> None:
        """Put a checkpoint's state in place of the present one, which is that before the first batch."""
        state, ensemble, standing = self._state, self._ensemble, kept.standing
        self._ctx.policies.resume(standing.policies)
        for batch in kept.batches:
            state.trees += batch.trees
            for name, records in batch.own.items():
                ensemble.own[name].extend(records)
        if standing.margins is not None:
            state.margins[:] = standing.margins.unpack()
        if standing.clean is not None and state.clean is not None:
            state.clean[:] = standing.clean.unpack()
        state.taken_part, state.grafted = dict(standing.taken_part), standing.grafted
        state.rounds, state.batches = list(standing.rounds), kept.number
        state.history, state.larger = list(standing.history), standing.larger
        ensemble.records = dict(standing.records)
        ensemble.exposure.resume(len(state.trees) - 1, [batch.leaves for batch in kept.batches])
        self._written(len(state.trees))

    def _save(self, blocks: Mapping[str, bytes]) -> None:
        state, boosted = self._state, self._ensemble.params.kind != "forest"
        standing = _Standing(
            margins=Array.pack(state.margins) if boosted else None,
            clean=Array.pack(state.clean) if boosted and state.clean is not None else None,
            taken_part=state.taken_part,
            rounds=tuple(state.rounds),
            history=tuple(state.history),
            larger=state.larger,
            grafted=state.grafted,
            records=self._ensemble.records,
            policies=self._ctx.policies.state(),
        )
        peers = {peer: state.taken_part[peer] for peer in self._ctx.peers}
        self._ctx.save(state.batches, standing, peers=peers, blocks=blocks)

    def _written(self, trees: int) -> None:
        """Remember how much earlier checkpoints hold."""
        self._trees, self._own = trees, {name: len(book) for name, book in self._ensemble.own.items()}


def _name(batch: int) -> str:
    return f"batch-{batch}"
