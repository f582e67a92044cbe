"""Model shares of PIVODL: everybody knows the shape of the trees, and nobody all of the rest.

The owner of a split knows its column and threshold, and the split client that decided a leaf knows its weight. Shares
of FederBoost have the same form; there the active party knows all trees, and passive parties their own splits only.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.kernels.node_rows import branches
from labelward.party.evidence import Evidence
from labelward.protocols.common.columns import OwnRecord
from labelward.protocols.common.json_share import JsonShare
from labelward.protocols.pivodl.label_scale import LabelScale

PUBLIC = -1
"""Keeper of a leaf whose weight everybody knows."""

Branches = NDArray[np.int32]


class SharedTree(msgspec.Struct, frozen=True):
    """One tree as a party keeps it.

    Attributes:
        nodes: numbers of the split nodes, ascending.
        owners: for each split the position of its owner among the parties.
        records: for each split the owner's record number.
        leaves: numbers of the leaves, ascending.
        keepers: for each leaf the position of the party that keeps its weight; :data:`PUBLIC`: every party knows it.
        weights: for each leaf its weight, learning rate included, where this party keeps it; else 0.
    """

    nodes: tuple[int, ...]
    owners: tuple[int, ...]
    records: tuple[int, ...]
    leaves: tuple[int, ...]
    keepers: tuple[int, ...]
    weights: tuple[float, ...]

    def branches(self) -> tuple[Branches, Branches]:
        """Return for each split its left and its right successor: a split's position, or -1 - a leaf's position."""
        return branches(self.nodes, self.leaves)


class PivodlShare(JsonShare, frozen=True, kw_only=True):
    """One party's part of a model.

    Attributes:
        model: random identifier of the training.
        parties: all parties in party order.
        holders: those that held labels.
        columns: names of the party's columns, in the order in which prediction expects them.
        own: its splits by record number.
        trees: as the party knows them.
        classes: names of the classes, at label holders.
        scale: of quantities; margins are in its units.
        categories: for each of its categorical columns the categories, by code.
        evidence: of the training; None in a share that was not saved with a view.
    """

    format: Literal[1] = 1
    kind: Literal["pivodl", "federboost"] = "pivodl"
    model: str
    party: str
    parties: tuple[str, ...]
    holders: tuple[str, ...]
    columns: tuple[str, ...]
    own: tuple[OwnRecord, ...]
    trees: tuple[SharedTree, ...]
    classes: tuple[str, ...] = ()
    scale: LabelScale = LabelScale()
    categories: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    evidence: Evidence | None = None

    def record_count(self, owner: int) -> int:
        """Return how many splits a party owns, by its position, as the trees name them."""
        pairs = (zip(tree.owners, tree.records, strict=True) for tree in self.trees)
        return 1 + max((record for each in pairs for mine, record in each if mine == owner), default=-1)

    def sides(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return bool [records, rows]: whether each row goes left at each own split."""
        return np.array([record.goes_left(x) for record in self.own], dtype=np.bool_).reshape(len(self.own), len(x))
