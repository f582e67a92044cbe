"""What training leaves at the active party, and what it goes on from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.protocols.tree.columns import Columns
from labelward.protocols.tree.params import Kind
from labelward.protocols.tree.share import ModelShare, Records, TreeShape

__all__ = ["Trained", "Warm"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trained:
    """What training leaves at the active party.

    Attributes:
        trees: shape and leaf weights.
        owners: names in the order of ``TreeShape.owners``.
        own: for each block of own columns the records of its splits.
        tally: how often policies acted: candidates refused, splits hidden, splits given up.
        objective: what was fitted.
        base: margin of each output before any tree.
        grown: in how many trees the first block took part.
        history: the metric of the validation rows after each round; empty without them.
        records: where trees were repaired: for each party how many splits they had of it before; see ``ModelShare``.
    """

    trees: tuple[TreeShape, ...]
    owners: tuple[str, ...]
    own: dict[str, Records]
    tally: dict[str, int]
    objective: str
    base: tuple[float, ...]
    grown: int
    history: tuple[float, ...]
    records: dict[str, int]

    def share(self, kind: Kind, columns: Columns, classes: tuple[str, ...], *, model: str = "") -> ModelShare:
        """Return the active party's part of the model.

        Args:
            columns: the party's own, the first block.
            classes: names of the classes; empty for quantities.
            model: identifies the training; empty where nobody else has a part.
        """
        return ModelShare(
            kind=kind,
            model=model,
            party=self.owners[0],
            parties=self.owners,
            columns=columns.names,
            own=self.own[self.owners[0]],
            trees=self.trees,
            classes=classes,
            objective=self.objective,
            base=self.base,
            categories=columns.category_names(),
            grown=self.grown,
            records=self.records,
        )


@dataclass(frozen=True)
class Warm:
    """An earlier training that goes on: the active party's share, and its margins of all rows: float64 [rows, K]."""

    share: ModelShare
    margins: Floats
