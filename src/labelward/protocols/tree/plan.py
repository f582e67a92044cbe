"""What a tree that grows is given: what all trees of a run share, and what one tree is told."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from labelward.he.base import Layout, PrivateKey
from labelward.party.context import Context
from labelward.protocols.tree.columns import TreeSplitter
from labelward.protocols.tree.exposure import Exposure
from labelward.protocols.tree.level import Judge
from labelward.protocols.tree.params import TreeModel
from labelward.protocols.tree.records import RecordBook

__all__ = ["Ensemble", "Plan", "begin"]

Integers = NDArray[np.int64]


@dataclass
class Ensemble:
    """What all trees of a run share at the active party.

    Attributes:
        blocks: names of the blocks of own columns.
        labels: int64 [rows], the true classes; policies see counts of them. None for quantities.
        class_totals: int64 [C] of all training rows; of quantities, where a policy cuts them into bins, of these.
        exposure: what each peer knows of the rows.
        owners: all that may own a split, in party order.
        records: how many splits each owner has.
        own: own splits, by block.
    """

    ctx: Context
    params: TreeModel
    blocks: tuple[str, ...]
    private: PrivateKey | None
    labels: Integers | None
    class_totals: Integers
    own: dict[str, RecordBook]
    exposure: Exposure
    owners: tuple[str, ...] = field(init=False)
    records: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.owners = (*self.blocks, *self.ctx.peers)
        self.records = {name: len(book) for name, book in self.own.items()} | dict.fromkeys(self.ctx.peers, 0)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One tree that is to be grown.

    Attributes:
        tree: its number.
        values: int64 [training rows, k]: what is summed; rows that were drawn several times count so often.
        classes: float64 [training rows], as the tree is fitted to them (a node of one class is not split); None for
            quantities.
        counts: int64 [training rows]: how often each row was drawn.
        judge: how candidates are compared.
        learning_rate: factor of leaf weights.
        output: the output that the tree adds to; -1: all.
        splitters: for each block of own columns its candidates.
        layout: of the encrypted values; None where nobody takes part.
        seen_as: the tree's number at each peer that takes part.
        turns: for each level, from the root, who may own its splits; the last entry holds for all further levels.
    """

    tree: int
    values: Integers
    classes: NDArray[np.float64] | None
    counts: Integers
    judge: Judge
    learning_rate: float
    output: int
    splitters: dict[str, TreeSplitter]
    layout: Layout | None
    seen_as: dict[str, int]
    turns: tuple[frozenset[str], ...]

    def may_own(self, owner: str, depth: int) -> bool:
        """Whether a party's columns may split nodes of a level."""
        return owner in self.turns[min(depth, len(self.turns) - 1)]


def begin(
    ensemble: Ensemble, tree: int, turn: str, participants: frozenset[str], sample: NDArray[np.bool_]
) -> tuple[frozenset[str], ...]:
    """Return who may own the splits of each level of a tree, of those for which the policies let it begin.

    Args:
        turn: who owns the whole tree in the mixed mode.
        participants: the peers that take part.
        sample: bool [training rows], those that the tree grows on.
    """
    turns = _turns(ensemble, turn, participants)
    asked = frozenset(ensemble.ctx.peers) & frozenset[str]().union(*turns)
    begun = ensemble.exposure.may_begin(tree, asked, sample)
    return turns if begun == asked else _turns(ensemble, turn, begun)


def _turns(ensemble: Ensemble, turn: str, participants: frozenset[str]) -> tuple[frozenset[str], ...]:
    params, (active, *others) = ensemble.params, ensemble.blocks
    passive = frozenset(others) | (participants & frozenset(ensemble.ctx.peers))
    if params.mode == "mixed":
        return (frozenset({turn if turn in passive else active}),)
    if params.mode == "layered" and passive:
        return (passive,) * params.passive_depth + (frozenset({active}),)
    return (passive | {active},)
