"""Model shares of Pivot: everybody knows the tree; only the owner of a split knows its threshold."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.kernels.node_rows import children
from labelward.party.evidence import Evidence
from labelward.protocols.common.columns import OwnRecord
from labelward.protocols.common.json_share import JsonShare


class PivotShare(JsonShare, frozen=True, kw_only=True):
    """One party's part of a model.

    Attributes:
        model: random identifier of the training.
        parties: all parties in party order, the dealer among them.
        dealer: who deals shares in predictions.
        columns: names of the party's columns, in the order in which prediction expects them.
        own: the splits that the party owns, by node.
        nodes, owners: the nodes that split, ascending, and the position of the owner of each among the parties.
        leaves, labels: the leaves, ascending, and the class number of each; the dealer knows neither nodes nor leaves.
        outputs: number of classes.
        classes: their names, at the label holder.
        categories: for each of its categorical columns the categories, by code.
        evidence: of the training; None in a share that was not saved with a view.
    """

    format: Literal[1] = 1
    kind: Literal["pivot"] = "pivot"
    model: str
    party: str
    parties: tuple[str, ...]
    dealer: str
    columns: tuple[str, ...] = ()
    own: dict[int, OwnRecord] = msgspec.field(default_factory=dict)
    nodes: tuple[int, ...] = ()
    owners: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()
    labels: tuple[int, ...] = ()
    outputs: int = 0
    classes: tuple[str, ...] = ()
    categories: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    evidence: Evidence | None = None

    @property
    def sharing(self) -> tuple[str, ...]:
        """The parties that hold shares, in party order."""
        return tuple(party for party in self.parties if party != self.dealer)

    def conditions(self, x: NDArray[np.float64], owner: str) -> NDArray[np.bool_]:
        """Return bool [leaves, rows]: whether a row is on the side of each leaf at all splits of an owner above it.

        Only the owner itself can ask.
        """
        at, met = self.parties.index(owner), np.ones((len(self.leaves), len(x)), dtype=np.bool_)
        owned = [node for node, each in zip(self.nodes, self.owners, strict=True) if each == at]
        sides = {node: self.own[node].goes_left(x) for node in owned}
        for place, leaf in enumerate(self.leaves):
            node = leaf
            while node:
                above = (node - 1) // 2
                if above in sides:
                    met[place] &= sides[above] == (node == children(above)[0])
                node = above
        return met
