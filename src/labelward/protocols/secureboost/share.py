"""Model shares: each party's part of a trained model, in memory and on disk.

The active party keeps shape, leaf weights and the owner of each split; every party keeps column and threshold of its
own splits under record numbers. No share alone is a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.kernels.node_rows import branches
from labelward.party.evidence import Evidence
from labelward.protocols.common.json_share import FORMAT, JsonShare
from labelward.protocols.secureboost.inputs import Columns
from labelward.protocols.secureboost.params import Kind

Floats = NDArray[np.float64]
Branches = NDArray[np.int32]


class TreeShape(msgspec.Struct, frozen=True):
    """One tree as the active party keeps it.

    Attributes:
        weights: for each leaf its weights, learning rate included: one for each of the tree's outputs, leaf by leaf.
    """

    nodes: tuple[int, ...]  # numbers of the split nodes, ascending
    owners: tuple[int, ...]  # for each split the position of its owner in ``ModelShare.parties``
    records: tuple[int, ...]  # for each split the owner's record number
    leaves: tuple[int, ...]  # numbers of the leaves, ascending
    weights: tuple[float, ...]
    output: int = -1  # the one output that the tree adds to; -1: all of them
    gains: tuple[float, ...] = ()  # for each split its gain
    covers: tuple[float, ...] = ()  # sum of hessians (in a forest: of row weights) of each split, then of each leaf

    def leaf_values(self) -> Floats:
        """Return the weights as float64 [leaves, outputs of the tree]."""
        return np.array(self.weights, dtype=np.float64).reshape(len(self.leaves), -1)

    def branches(self) -> tuple[Branches, Branches]:
        """Return for each split its left and its right successor: a split's position, or -1 - a leaf's position."""
        return branches(self.nodes, self.leaves)


class Records(msgspec.Struct, frozen=True):
    """A party's own splits by record number.

    Attributes:
        columns: position of each split's column.
        thresholds: a row goes left where x ≤ threshold; :data:`~labelward.kernels.binning.EVERYTHING` where all known
            values go left; 0 and unused for a set of categories.
        missing_left: the records that send missing values (NaN) and unseen categories left; the others send them
            right.
        categories: for the records of categorical columns the codes that go left.
    """

    columns: tuple[int, ...] = ()
    thresholds: tuple[float, ...] = ()
    missing_left: tuple[int, ...] = ()
    categories: dict[int, tuple[int, ...]] = {}

    def answers(self, x: Floats) -> NDArray[np.bool_]:
        """Return bool [records, rows]: whether each row goes left.

        Args:
            x: float64 [rows, columns]; codes of categories, -1 for an unseen category, NaN for missing.
        """
        left = np.empty((len(self.columns), len(x)), dtype=np.bool_)
        missing_left = frozenset(self.missing_left)
        for record, (column, out) in enumerate(zip(self.columns, left, strict=True)):
            values, chosen = x[:, column], self.categories.get(record)
            if chosen is None:
                np.less_equal(values, self.thresholds[record], out=out)
            else:
                out[:] = np.isin(values, chosen)
            if record in missing_left:
                out |= np.isnan(values) if chosen is None else ~(values >= 0)
        return left

    def first(self, count: int) -> Records:
        """Return the first ``count`` records."""
        return Records(
            self.columns[:count],
            self.thresholds[:count],
            tuple(record for record in self.missing_left if record < count),
            {record: codes for record, codes in self.categories.items() if record < count},
        )


class ModelShare(JsonShare, frozen=True, kw_only=True):
    """One party's part of a model. What is marked (active) is empty or at its default in a passive party's share.

    Attributes:
        categories: for each of the party's categorical columns its categories, by code.
        objective: (active) such as ``"binary:logistic"``; ``"gini"`` or ``"variance"`` in a forest.
        records: (active) only where trees were repaired: for each party the number of splits that the trees had of it
            before. Some are no longer in use, and no party learns which.
        evidence: of the training; None in a share that was not saved with a view.
    """

    format: int = FORMAT
    kind: Literal["secureboost", "forest"] = "secureboost"
    model: str  # random identifier of the training; shares of different trainings do not fit together
    party: str
    parties: tuple[str, ...]  # all parties in party order, the active one first
    columns: tuple[str, ...]  # names of the party's columns, in the order in which prediction expects them
    own: Records
    trees: tuple[TreeShape, ...] = ()  # (active) shapes and leaf weights
    classes: tuple[str, ...] = ()  # (active) class names; empty for regression
    objective: str = "binary:logistic"
    base: tuple[float, ...] = (0.0,)  # (active) margin of each output before any tree
    categories: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    grown: int = 0  # number of trees in which the party took part; a warm start continues from there
    records: dict[str, int] = msgspec.field(default_factory=dict)
    evidence: Evidence | None = None

    @property
    def outputs(self) -> int:
        """Margins of a row."""
        return len(self.base)

    def records_of(self, party: str) -> int:
        """Return the number of a party's splits, according to the active party's share."""
        if self.records:
            return self.records[party]
        owner = self.parties.index(party)
        return sum(tree.owners.count(owner) for tree in self.trees)


@dataclass(frozen=True)
class TrainingResult:
    """What training returns at the active party."""

    trees: tuple[TreeShape, ...]
    owners: tuple[str, ...]  # party names in the order of ``TreeShape.owners``
    own: dict[str, Records]  # for each block of own columns the records of its splits
    tally: dict[str, int]  # how often policies acted: candidates refused, splits hidden, splits given up
    objective: str  # name of the fitted objective
    base: tuple[float, ...]  # margin of each output before any tree
    grown: int  # number of trees in which the first block took part
    history: tuple[float, ...]  # validation metric after each round; empty without validation rows
    records: dict[str, int]  # see :class:`ModelShare`

    def share(self, kind: Kind, columns: Columns, classes: tuple[str, ...], *, model: str = "") -> ModelShare:
        """Return the active party's share.

        Args:
            columns: the first block of own columns.
            model: identifier of the training; empty where there is no other party.
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
class WarmStart:
    """An earlier training to continue: the active party's share, and its margins of all rows: float64 [rows, K]."""

    share: ModelShare
    margins: Floats
