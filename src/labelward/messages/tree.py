"""Messages of the tree protocols, and what each party observes while a tree grows.

One tree, as a passive party sees it::

    active  → TreeStart(rows)                     step (tree,)
    active  → Level(splits, build)                step (tree, depth)     nothing to build: the tree is done
    active  → TreeRows(gradients)                 step (tree, part)      after the first level, if it asks for sums
    active  → ForestRows(gradients)               step (part,)           of a forest in their place, with the first tree
    active  → LevelRows(gradients)                step (tree, depth, part)  at a later level, if it says so
    passive → LevelSums(sums)                     step (tree, depth, part)
    active  → ChosenSplits(splits)                step (tree, depth)
    passive → SplitRows(splits)                   step (tree, depth)     if any was chosen
    ...
    passive → PredictAnswers(bits)                step (tree,)           if the tree asks for the other rows' sides
    active  → TrainingEnd()                       step (tree,)

``tree`` counts the trees in which this party takes part, from 0, so that a party does not learn of the others.
``node`` is the position in the tree: the root is 0, the children of i are 2i+1 (left) and 2i+2 (right).
Rows of a node are the party's training rows in ascending order; a :class:`RowMask` speaks of the parent's rows.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.he.base import CipherBlock
from labelward.messages.base import Array, CipherDigest, Message, ModelId, Observation, Released, RowMask, exempt

_OWN_COLUMNS = "of the sender's own columns, which hold no label"


class NodeSplit(msgspec.Struct, frozen=True):
    """How a node was split: which of its rows go left."""

    node: int
    left: RowMask


class WinningSplit(msgspec.Struct, frozen=True):
    """A candidate that won: a column among those sampled for this tree, and a bin; left is code ≤ ``code``.

    Attributes:
        record: the number under which the owner keeps the threshold.
        missing_left: whether rows go left whose value is missing.
        categories: of a categorical column the codes that go left; ``code`` is then 0.
    """

    node: int
    column: int
    code: int
    record: int
    missing_left: bool = False
    categories: tuple[int, ...] = ()


class EncryptedForestRows(Message, frozen=True, tag="ForestRows"):
    """Encrypted numbers of the next training rows, for all trees of a forest; sent anew where a run goes on.

    Attributes:
        part: number of this block among ``parts``.
    """

    gradients: CipherBlock | CipherDigest
    part: int = 0
    parts: int = 1
    later: ClassVar[tuple[str, ...]] = ("part", "parts")


class TreeStart(Message, frozen=True):
    """A tree begins.

    Attributes:
        rows: its training rows.
        gradients: of these rows, in older views; None since they travel in blocks of their own
        (:class:`EncryptedTreeRows`).
        together: how many trees grow side by side, of which this is the first; 0 for one of the others.
        route: whether the party is asked, at the end of the tree, on which side of its splits the rows lie that the
            tree does not grow on (validation rows included).
        repeats: how often each of ``rows`` was drawn, as uint8, where rows are drawn with replacement.
    """

    tree: int
    rows: Released[RowMask]
    gradients: CipherDigest | None = None
    together: int = 1
    route: bool = False
    repeats: Annotated[bytes, exempt("drawn from the shared seed of learning draws")] = b""


class EncryptedTreeRows(Message, frozen=True, tag="TreeRows"):
    """Encrypted numbers (gradients, hessians, one, classes) of the next rows of a tree, in ascending order.

    Attributes:
        part: number of this block among ``parts``.
    """

    tree: int
    part: int
    parts: int
    gradients: CipherBlock | CipherDigest


class LevelRequest(Message, frozen=True, tag="Level", omit_defaults=True):
    """A level begins: instance spaces of the last level's splits that this party needs, and the nodes to sum.

    Attributes:
        spacing: of the rows of these nodes, which follow encrypted again (:class:`EncryptedLevelRows`); 0: the party
            sums those that it has. It follows from the sizes of the nodes and the party's own columns.
    """

    tree: int
    depth: int
    splits: Released[tuple[NodeSplit, ...]]
    build: Annotated[tuple[int, ...], exempt("the shape of the tree, which all its parties learn")]
    spacing: int = 0
    later: ClassVar[tuple[str, ...]] = ("spacing",)


class EncryptedLevelRows(Message, frozen=True, tag="LevelRows"):
    """Encrypted numbers of the next rows of the nodes in :attr:`LevelRequest.build`, in their order.

    Within a node rows ascend, so that the order tells nothing that the nodes do not. They are encrypted afresh.

    Attributes:
        part: number of this block among ``parts``.
    """

    tree: int
    depth: int
    part: int
    parts: int
    gradients: CipherBlock | CipherDigest


class LevelHistograms(Message, frozen=True, tag="LevelSums"):
    """Sealed sums of cells (column, slot, bin); slots are the positions in ``LevelRequest.build``.

    Rows whose value is missing are in no bin. Cells without rows do not travel, nor does one cell of each column and
    slot whose cells hold all rows of the node: it follows. Columns of like size travel together, and wide tables in
    several messages.

    Attributes:
        part: number of this message among the ``parts`` of the level.
        columns: positions among the columns that the party drew for this tree.
        sizes: bins of each of ``columns``; the largest is the number of bins of the whole message.
        sums: of the cells that travel, in the order of ``cells``: shape (1, how many). An older view
            has all cells here, as (columns, slots × bins), and nothing in ``cells`` and ``implied``.
        kinds: one byte for each of ``columns``: 0 ordered, 1 categorical, 2 predictions may only rise with it, 3 only
            fall; empty where all are ordered.
        cells: which cells hold rows, as bits: by column, slot and bin, little-endian within a byte. Where bins were
            summed together, as many bytes follow that mark the lowest bin of each such cell, at which its sums stand.
            Bin 0 is not marked where its cell includes the rows without a value.
        implied: for each column and slot the bin that does not travel since it follows from the node's total, as
            uint16 (little-endian); 65535 for none.
    """

    tree: int
    depth: int
    part: int
    parts: int
    columns: Annotated[tuple[int, ...], exempt(_OWN_COLUMNS)]
    sizes: Annotated[tuple[int, ...], exempt(_OWN_COLUMNS)]
    sums: CipherBlock | CipherDigest
    kinds: Annotated[bytes, exempt(_OWN_COLUMNS)] = b""
    cells: Annotated[bytes, exempt(_OWN_COLUMNS)] = b""
    implied: Annotated[bytes, exempt(_OWN_COLUMNS)] = b""
    later: ClassVar[tuple[str, ...]] = ("cells", "implied")

    def starts(self, slots: int) -> NDArray[np.bool_] | None:
        """Return bool [columns, slots, bins]: the marks of the lowest bins; None where each bin is a cell."""
        shape = (len(self.sizes), slots, max(self.sizes, default=1))
        half = (math.prod(shape) + 7) // 8
        if len(self.cells) != 2 * half:
            return None
        bits = np.unpackbits(np.frombuffer(self.cells[half:], np.uint8), bitorder="little")
        return bits[: math.prod(shape)].astype(np.bool_).reshape(shape)


class WinningSplits(Message, frozen=True, tag="ChosenSplits"):
    """The splits of this level that this party owns."""

    tree: int
    depth: int
    splits: Released[tuple[WinningSplit, ...]]


class SplitMasks(Message, frozen=True, tag="SplitRows"):
    """The owner's answer: which rows of each chosen node go left."""

    tree: int
    depth: int
    splits: Released[tuple[NodeSplit, ...]]


class TrainingEnd(Message, frozen=True):
    """No further tree follows for this party; the model keeps the first ``records`` of its splits."""

    trees: int
    records: int


class PredictRequest(Message, frozen=True):
    """Rows ``start`` to ``stop`` of the prediction table are to be routed; empty: no further request follows."""

    model: ModelId
    start: int
    stop: int
    volatile: ClassVar[tuple[str, ...]] = ("model",)


class PredictAnswers(Message, frozen=True):
    """For each of the owner's records and each row, whether the row goes left: packed bits, record by record."""

    records: int
    rows: int
    bits: Annotated[bytes, exempt("sides of the sender's own splits, which it holds itself")]


class OwnSplit(Observation, frozen=True):
    """A split that this party owns, with the rows that its own column sends left."""

    tree: int
    node: int
    column: str
    threshold: float
    record: int
    left: RowMask
    missing_left: bool = False
    categories: tuple[int, ...] = ()


class ReadRows(Observation, frozen=True):
    """What a party that lies about its sums read: on which side of the winning split each of ``rows`` belongs."""

    tree: int
    rows: Array
    left: RowMask


class DecryptedSums(Observation, frozen=True):
    """What the active party decrypted of a part of a peer's level: int64 [columns, slots × bins, numbers]."""

    tree: int
    depth: int
    party: str
    nodes: tuple[int, ...]
    columns: tuple[int, ...]
    bins: int
    sums: Array


class InstanceSpaces(Observation, frozen=True):
    """Splits of a level as the active party knows them all, with their owners in the same order."""

    tree: int
    depth: int
    splits: tuple[NodeSplit, ...]
    owners: tuple[str, ...]
