"""Messages of PIVODL: keys, binned columns, sums of a level, the winners, and predictions.

Steps are ``(tree, depth)`` or, where several messages of a kind go the same way, ``(tree, depth, number)``.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

import msgspec

from labelward.he.base import CipherBlock, PublicMaterial
from labelward.messages.base import (
    KEYS,
    Array,
    CipherDigest,
    Limits,
    Message,
    ModelId,
    Observation,
    Released,
    RowMask,
    exempt,
)


class OfferedColumns(NamedTuple):
    """How many columns a party has, how many bins these have together, and the widest one."""

    columns: int = 0
    bins: int = 0
    widest: int = 0


class PartyKeys(Message, frozen=True):
    """A party's public keys of this run, and how much it will tell.

    Attributes:
        model: the identifier that the coordinator drew; empty from all others.
        sums: under which sums are encrypted for it; None where sums are masked.
        masks: its X25519 key, of which every two label holders make the masks of their sums.
        offered: its columns, in a training; all parties are told their sizes a moment later.
    """

    model: ModelId
    sums: PublicMaterial | None
    masks: Annotated[bytes, exempt("a public key")]
    offered: Annotated[OfferedColumns, exempt("numbers of the sender's own columns")] = OfferedColumns()
    volatile: ClassVar[tuple[str, ...]] = ("model", "sums", "masks")
    later: ClassVar[tuple[str, ...]] = ("offered",)
    limits: ClassVar[Limits | None] = KEYS


class HeldRows(Message, frozen=True):
    """Which training rows a party labels; everybody learns it (Section III-A). A party without labels says none."""

    rows: Annotated[RowMask, exempt("who holds a label, not which label")]


MISSING = 0xFFFF
"""Code of a value that is not there."""


class ColumnCodes(Message, frozen=True):
    """A source's binned columns in an order that it drew, of the rows that the receiver labels.

    Attributes:
        sizes: number of bins of each column.
        kinds: of each column (:mod:`labelward.kernels.split_search`).
        codes: uint16 little-endian [rows, columns], row by row, with :data:`MISSING`.
    """

    sizes: Annotated[tuple[int, ...], exempt("bins of the sender's own columns")]
    kinds: Annotated[tuple[int, ...], exempt("kinds of the sender's own columns")]
    codes: Annotated[bytes, exempt("bins of the sender's own columns")]


class NodeBins(Message, frozen=True):
    """For each node of a level, column and bin of the sender, which of the receiver's rows there lie in the bin."""

    bins: Annotated[tuple[RowMask, ...], exempt("bins of the sender's own columns")]


class AllowedCandidates(Message, frozen=True):
    """Which candidates of the sender leave every label holder enough rows, to the split client of these nodes.

    Attributes:
        bits: [nodes, columns, 2, bins], packed little-endian: missing values on the right, then on the left.
    """

    bits: Annotated[bytes, exempt("follows from the sender's columns and from who labels which rows")]


class OfferedCandidates(Observation, frozen=True):
    """How many candidates a source had at a level, and how many of these a label holder's threshold refused."""

    tree: int
    depth: int
    offered: int
    refused: int


class MaskedSums(Message, frozen=True):
    """Sums of a holder's own rows under pairwise masks modulo 2^64, which cancel in the total over all holders."""

    sums: Annotated[Array, exempt("uniform but for the total over all holders")]
    volatile: ClassVar[tuple[str, ...]] = ("sums",)


class OwnSums(Message, frozen=True):
    """Sums of a holder's own rows, encrypted for the party that opens the total, to the one that adds them up."""

    sums: CipherBlock | CipherDigest


class TotalSums(Message, frozen=True):
    """The total of all holders' sums, to the party that opens it."""

    sums: CipherBlock | CipherDigest


class LabelTotal(Message, frozen=True):
    """A sum over all labels that are quantities, or over squares, from who opened it to all.

    Attributes:
        limbs: int64 [limbs] of 40 bits and one sign, lowest first: of the total alone, not sums of holders' limbs.
    """

    limbs: Released[Array]


class RootTotals(Message, frozen=True):
    """Sums over all training rows, int64 [k], from the encryption client to all."""

    totals: Released[Array]


class BestGains(Message, frozen=True):
    """For each node and source of which the sender is the split client the largest gain; minus infinity for none."""

    gains: Released[Array]


class Candidate(msgspec.Struct, frozen=True):
    """One candidate split.

    Attributes:
        column: in the order that the source drew.
        code: rows up to this bin go left.
        missing_left: whether rows without a value go left.
        categories: of a categorical column those that go left.
    """

    column: int
    code: int
    missing_left: bool
    categories: tuple[int, ...]


class WinningCandidates(Message, frozen=True):
    """For each node that the source has won the candidates of the largest gain, one for each column that has any."""

    candidates: Released[tuple[tuple[Candidate, ...], ...]]


class ChosenCandidates(Message, frozen=True):
    """For each node that the source has won which of the named candidates it takes, to the split client."""

    places: Annotated[tuple[int, ...], exempt("the first of the named columns, in the source's own order")]


class ChildRows(Message, frozen=True):
    """For each node that the source has won: which children are leaves, and which rows go left.

    Attributes:
        leaves: for each node whether the left and the right child are leaves.
        left: of the node's rows; where both children are leaves, of those among them that the receiver labels.
    """

    leaves: Annotated[tuple[tuple[bool, bool], ...], exempt("follows from depth and number of rows")]
    left: Released[tuple[RowMask, ...]]


class ChildTotals(Message, frozen=True):
    """What the split client tells of the children of the nodes that it has decided.

    Attributes:
        left: int64 [nodes that have a child which is no leaf, k]: sums of the left child.
        weights: float64 [other nodes of which the receiver labels rows, 2]: weights of both children.
    """

    left: Released[Array]
    weights: Released[Array]


class ColumnOrder(Observation, frozen=True):
    """The order that a source drew: for each shuffled column its position among the source's."""

    order: tuple[int, ...]


class TreeEnd(Message, frozen=True):
    """The sender has ended a tree; to all others."""

    ends: ClassVar[bool] = True


class RootSums(Observation, frozen=True):
    """Sums over all training rows at the root of a tree, int64 [k], as every party knows them."""

    tree: int
    totals: Array


class OpenedSums(Observation, frozen=True):
    """Sums that a party opened as split client, int64 [nodes, cells, k]; cells by shuffled column and bin."""

    tree: int
    depth: int
    source: str
    nodes: tuple[int, ...]
    sums: Array


class LevelOutcome(Observation, frozen=True):
    """What a party knows of the nodes that a level has split.

    Attributes:
        owners: for each node the owner of its split.
        left: which rows go left: of all rows of the node where it knows them, else of those that it labels.
        whole: for each node whether ``left`` is of all rows.
        totals: int64 [nodes, k]: sums of the left child; zeros where it was not told.
        told: for each node whether it was told these sums.
        weights: float64 [nodes, 2]: weights of both children; NaN where it was not told.
        gains: float64 [nodes]: of the splits, as everybody is told; None in views of earlier versions.
    """

    tree: int
    depth: int
    nodes: tuple[int, ...]
    owners: tuple[str, ...]
    left: tuple[RowMask, ...]
    whole: tuple[bool, ...]
    totals: Array
    told: tuple[bool, ...]
    weights: Array
    gains: Array | None = None


class SplitSides(Message, frozen=True):
    """On which side of each of the sender's splits every row lies, to the party that asks for predictions."""

    records: int
    rows: int
    bits: Annotated[bytes, exempt("sides of the sender's own splits")]


class ReachedLeaves(Message, frozen=True):
    """Which of the receiver's leaves each row reaches in each tree, int32 [trees, rows]; -1 for none of them."""

    leaves: Released[Array]


class MaskedMargins(Message, frozen=True):
    """The sum of the leaf weights that each row reaches at the sender, in fixed point, under pairwise masks."""

    margins: Annotated[Array, exempt("uniform but for the total over all parties")]
    volatile: ClassVar[tuple[str, ...]] = ("margins",)
