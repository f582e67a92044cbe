"""Messages of the tree protocols, and what each party observes while a tree grows.

One tree, as a passive party sees it::

    active  → TreeStart(rows, gradients)          step (tree,)
    active  → Level(splits, build)                step (tree, depth)     nothing to build: the tree is done
    passive → LevelSums(sums)                     step (tree, depth)
    active  → ChosenSplits(splits)                step (tree, depth)
    passive → SplitRows(splits)                   step (tree, depth)     if any was chosen
    ...
    active  → TrainingEnd()                       step (tree,)

``tree`` counts the trees in which this party takes part, from 0, so that a party does not learn of the others.
``node`` is the position in the tree: the root is 0, the children of i are 2i+1 (left) and 2i+2 (right).
Rows of a node are the party's training rows in ascending order; a :class:`RowMask` speaks of the parent's rows.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from labelward.he.contract import CipherBlock
from labelward.messages.base import Array, CipherDigest, Message, Observation, RowMask

__all__ = [
    "ChosenSplit",
    "ChosenSplits",
    "DecryptedSums",
    "InstanceSpaces",
    "Level",
    "LevelSums",
    "NodeSplit",
    "OwnSplit",
    "PredictAnswers",
    "PredictRequest",
    "SplitRows",
    "TrainingEnd",
    "TreeStart",
]


class NodeSplit(msgspec.Struct, frozen=True):
    """How a node was split: which of its rows go left."""

    node: int
    left: RowMask


class ChosenSplit(msgspec.Struct, frozen=True):
    """A candidate that won: a column among those sampled for this tree, and a bin; left is code ≤ ``code``.

    Attributes:
        record: the number under which the owner keeps the threshold.
    """

    node: int
    column: int
    code: int
    record: int


class TreeStart(Message, frozen=True):
    """A tree begins: its training rows and their encrypted numbers (gradient, hessian, one, classes)."""

    tree: int
    rows: RowMask
    gradients: CipherBlock | CipherDigest


class Level(Message, frozen=True):
    """A level begins: instance spaces of the last level's splits that this party needs, and the nodes to sum."""

    tree: int
    depth: int
    splits: tuple[NodeSplit, ...]
    build: tuple[int, ...]


class LevelSums(Message, frozen=True):
    """Sealed sums for each (sampled column, slot × bins + bin); slots are the positions in ``Level.build``."""

    tree: int
    depth: int
    bins: int
    sums: CipherBlock | CipherDigest


class ChosenSplits(Message, frozen=True):
    """The splits of this level that this party owns."""

    tree: int
    depth: int
    splits: tuple[ChosenSplit, ...]


class SplitRows(Message, frozen=True):
    """The owner's answer: which rows of each chosen node go left."""

    tree: int
    depth: int
    splits: tuple[NodeSplit, ...]


class TrainingEnd(Message, frozen=True):
    """No further tree follows for this party."""

    trees: int


class PredictRequest(Message, frozen=True):
    """Rows ``start`` to ``stop`` of the prediction table are to be routed; empty: no further request follows."""

    model: str
    start: int
    stop: int
    volatile: ClassVar[tuple[str, ...]] = ("model",)


class PredictAnswers(Message, frozen=True):
    """For each of the owner's records and each row, whether the row goes left: packed bits, record by record."""

    records: int
    rows: int
    bits: bytes


class OwnSplit(Observation, frozen=True):
    """A split that this party owns, with the rows that its own column sends left."""

    tree: int
    node: int
    column: str
    threshold: float
    record: int
    left: RowMask


class DecryptedSums(Observation, frozen=True):
    """What the active party decrypted of a peer's level: int64 [columns, slots × bins, numbers]."""

    tree: int
    depth: int
    party: str
    nodes: tuple[int, ...]
    sums: Array


class InstanceSpaces(Observation, frozen=True):
    """Splits of a level as the active party knows them all, with their owners in the same order."""

    tree: int
    depth: int
    splits: tuple[NodeSplit, ...]
    owners: tuple[str, ...]
