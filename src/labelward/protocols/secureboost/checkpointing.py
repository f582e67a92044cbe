"""Training state of the active party between rounds, and its checkpoints.

A checkpoint's number counts batches: rounds of boosting, or groups of trees of a forest that grow side by side. Number
0 is written once the targets are drawn, before anything derived from them leaves, so that noise is never drawn twice.
What a batch adds (trees, own splits, what peers know of the rows) is a block, written once; what it changes (margins,
counts) is written whole each time. So a checkpoint costs as much after the last tree as after the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.messages.base import Array
from labelward.party.checkpoint import decode_stored
from labelward.party.context import Context
from labelward.party.noise_record import record_draws
from labelward.policy.chain import ChainState
from labelward.protocols.secureboost.column_binner import SplitLedger
from labelward.protocols.secureboost.policy_hooks import PolicyHooks
from labelward.protocols.secureboost.share import Records, TreeShape, WarmStart
from labelward.protocols.secureboost.targets import FittedTargets

Floats = NDArray[np.float64]

_TARGETS = "beginning"  # a stored name: it stays


@dataclass(kw_only=True)
class TrainingState:
    """The active party's state between batches, without what it sends its peers again in each attempt.

    Attributes:
        trees: all trees so far, those of a warm start included.
        margins: float64 [rows, K], validation rows last.
        clean: float64 [rows, K]: margins of the repaired trees; None where nothing repairs.
        own: own splits, by block of columns.
        records: number of splits of each owner.
        taken_part: in how many trees each peer, and each block of own columns, took part.
        rounds: before the first round and after each, the number of trees, and of splits of each owner.
        history: validation metric after each round.
        larger: whether a larger metric is better.
        grafted: own splits that repairs added.
        batches: number of batches of this training.
    """

    trees: list[TreeShape]
    margins: Floats
    clean: Floats | None
    own: dict[str, SplitLedger]
    records: dict[str, int]
    taken_part: dict[str, int]
    rounds: list[tuple[int, dict[str, int]]] = field(init=False)
    history: list[float] = field(default_factory=list)
    larger: bool = False
    grafted: int = 0
    batches: int = 0

    def __post_init__(self) -> None:
        self.rounds = [(len(self.trees), dict(self.records))]

    @classmethod
    def first(
        cls,
        base: Floats,
        rows: int,
        blocks: Sequence[str],
        peers: Sequence[str],
        warm: WarmStart | None,
        *,
        repairs: bool,
    ) -> Self:
        """Return the state before the first round.

        Args:
            base: float64 [K]: the margin of each output before any tree.
            rows: number of rows, validation rows included.
            blocks: names of the blocks of own columns, the active party's first.
            repairs: whether trees may be repaired.
        """
        share = warm.share if warm else None
        margins = np.tile(base, (rows, 1)) if warm is None else warm.margins.copy()
        own = {name: SplitLedger(share.own if share and name == blocks[0] else None) for name in blocks}
        records = {name: len(ledger) for name, ledger in own.items()}
        return cls(
            trees=list(share.trees) if share else [],
            margins=margins,
            clean=margins.copy() if repairs else None,
            own=own,
            records=records | {peer: share.records_of(peer) if share else 0 for peer in peers},
            taken_part=dict.fromkeys(peers, 0) | dict.fromkeys(blocks, share.grown if share else 0),
            grafted=len(share.own.columns) - share.records_of(share.party) if share else 0,
        )


class _Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch added: trees, own splits by block of columns, and the leaves that each peer knows."""

    trees: tuple[TreeShape, ...]
    own: dict[str, Records]
    leaves: dict[str, Array]


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch changes; see :class:`TrainingState`. Margins are None in a forest, where no tree changes them."""

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
class Checkpoint:
    """A checkpoint that was read."""

    number: int
    targets: FittedTargets
    snapshot: _Snapshot
    batches: tuple[_Batch, ...]


@dataclass(frozen=True, kw_only=True)
class StartPoint:
    """Where a training starts.

    Attributes:
        model: identifier of the training in its checkpoints.
        warm: an earlier training to continue.
        checkpoint: of this training, from which it resumes.
    """

    model: str = ""
    warm: WarmStart | None = None
    checkpoint: Checkpoint | None = None


def load_checkpoint(ctx: Context, number: int | None) -> Checkpoint | None:
    """Read the checkpoint from which a training resumes; None: it starts anew.

    Raises:
        FileFormatError: the checkpoint is damaged.
    """
    if number is None:
        return None
    snapshot, block = ctx.checkpoints.load(number, _Snapshot)
    place = ctx.checkpoints.folder
    targets = decode_stored(block(_TARGETS), FittedTargets, place)
    batches = tuple(decode_stored(block(_name(each + 1)), _Batch, place) for each in range(number))
    return Checkpoint(number=number, targets=targets, snapshot=snapshot, batches=batches)


class Checkpointer:
    """Writes checkpoints of a training, and restores one.

    Args:
        ctx: the active party's; where it keeps no checkpoints, nothing is written.
        hooks: with the policies' state, and what peers know.
        state: everything else; restored in place.
        boosted: whether trees change the margins.
    """

    def __init__(self, ctx: Context, hooks: PolicyHooks, state: TrainingState, *, boosted: bool) -> None:
        self._ctx, self._hooks, self._state, self._boosted = ctx, hooks, state, boosted
        self._mark_saved()

    def save_targets(self, targets: FittedTargets) -> None:
        """Write checkpoint 0."""
        if self._ctx.checkpoints.kept:
            self._save({_TARGETS: msgspec.msgpack.encode(targets)})
        self.record_noise()

    def record_noise(self) -> None:
        """Record outside the checkpoints that the targets were drawn; before anything derived from them leaves."""
        record_draws(self._hooks.policies.at("before_targets"), self._ctx.checkpoints)

    def save(self) -> None:
        """Write the checkpoint after a batch."""
        state = self._state
        if not self._ctx.checkpoints.kept:
            return
        with self._ctx.phase("checkpoint"):
            batch = _Batch(
                trees=tuple(state.trees[self._trees :]),
                own={name: ledger.since(self._own[name]) for name, ledger in state.own.items()},
                leaves=self._hooks.unsaved(),
            )
            added = {_name(state.batches): msgspec.msgpack.encode(batch)}
        self._save(added)
        self._mark_saved()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Replace the state before the first batch by that of a checkpoint."""
        state, snapshot = self._state, checkpoint.snapshot
        self._hooks.policies.resume(snapshot.policies)
        for batch in checkpoint.batches:
            state.trees += batch.trees
            for name, records in batch.own.items():
                state.own[name].extend(records)
        if snapshot.margins is not None:
            state.margins[:] = snapshot.margins.unpack()
        if snapshot.clean is not None and state.clean is not None:
            state.clean[:] = snapshot.clean.unpack()
        state.taken_part, state.grafted = dict(snapshot.taken_part), snapshot.grafted
        state.rounds, state.batches = list(snapshot.rounds), checkpoint.number
        state.history, state.larger = list(snapshot.history), snapshot.larger
        state.records = dict(snapshot.records)
        self.record_noise()
        self._hooks.resume_knowledge(len(state.trees) - 1, [batch.leaves for batch in checkpoint.batches])
        self._mark_saved()

    def _save(self, blocks: Mapping[str, bytes]) -> None:
        state = self._state
        snapshot = _Snapshot(
            margins=Array.pack(state.margins) if self._boosted else None,
            clean=Array.pack(state.clean) if self._boosted and state.clean is not None else None,
            taken_part=state.taken_part,
            rounds=tuple(state.rounds),
            history=tuple(state.history),
            larger=state.larger,
            grafted=state.grafted,
            records=state.records,
            policies=self._hooks.policies.state(),
        )
        peers = {peer: state.taken_part[peer] for peer in self._ctx.peers}
        self._ctx.save(state.batches, snapshot, peers=peers, blocks=blocks)

    def _mark_saved(self) -> None:
        """Remember how much the checkpoints hold."""
        state = self._state
        self._trees, self._own = len(state.trees), {name: len(ledger) for name, ledger in state.own.items()}


def _name(batch: int) -> str:
    return f"batch-{batch}"
