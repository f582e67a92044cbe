"""A passive party that lies about its sums, to read labels exactly (an active attack).

A passive party is told which of its candidates won. One that chooses the sums of its candidates as it likes chooses
what this answer tells. It lies at the root of a tree, and behaves as agreed below.

``"sums"``: the party adds up numbers of its own and one row's ciphertext. Of two candidates, one wins if the gradient
of the row is positive, the other if it is negative: one label. No rows have such sums, and the active party refuses
them.

``"columns"``: the party makes up columns, and its sums are those that rows would have if the columns were its own: no
check of sums finds that out. It takes a split of its own that won before and puts k rows on either side of it, in all
2^k ways, as chains of nested sets in C(k, k/2) columns. The way with the largest gain has each of the k rows on the
side of its label. The next tree builds on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.he.base import EncryptedRows, EncryptedSums, PublicKey
from labelward.messages.base import Array, RowMask
from labelward.messages.tree import ReadRows, WinningSplit
from labelward.parameters import Parameters
from labelward.party.context import Context
from labelward.protocols.secureboost.column_binner import LevelBins, TreeBinner

Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SumLies(Parameters):
    """What a lying party lies about."""

    section: ClassVar[str] = "lying-sums"
    kind: ClassVar[str] = "lying-sums"

    about: Annotated[
        Literal["columns", "sums"],
        Meta(
            description="'columns': sums of rows as columns that the party made up have them; 'sums': sums of no rows, "
            "which the active party finds out."
        ),
    ] = "columns"


class Liar:
    """The lies of one training, and what they tell.

    Args:
        ctx: the party's.
        how: what it lies about.
        rows: number of training rows.
        width: how many columns the party has.
    """

    def __init__(self, ctx: Context, how: SumLies, rows: int, width: int) -> None:
        self._ctx, self._sums = ctx, how.about == "sums"
        self._most = max(k for k in range(1, 20) if comb(k, k // 2) <= max(1, width))
        self._unread = np.ones(rows, dtype=np.bool_)
        self._left: NDArray[np.bool_] | None = None  # the split that won last, over all rows
        self._within = np.arange(rows, dtype=np.int32)  # the rows of the node that it split
        self._record = (0, 0.0)  # column and threshold by which later predictions route
        self._asked = np.empty(0, dtype=np.int64)  # the rows whose labels this tree is to tell
        self._chains: list[list[frozenset[int]]] = []  # by column, which of them each candidate sends left
        self._won = False  # whether any of the candidates did
        ctx.applied({"stage": "behavior", "kind": how.kind, "parameters": how.parameters()})

    def columns(self, honest: TreeBinner, counts: NDArray[np.uint8]) -> TreeBinner:
        """Return what the party claims to have in one tree: its own columns until one of their splits wins."""
        if not self._won:
            self._left = None
        self._won, self._chains, drawn = False, [], np.flatnonzero(counts)
        if self._sums:
            codes = self._thirds(drawn)
        elif self._left is None:
            return honest
        else:
            codes = self._both_sides(drawn, self._left)
        return _MadeUp(codes, *self._record)

    def _thirds(self, drawn: Integers) -> NDArray[np.uint8]:
        """Return uint8 [rows, 1]: two quarters of the rows at random, and the others, at which nothing is claimed."""
        self._asked, self._chains = drawn[self._unread[drawn]][:1], [[frozenset(), frozenset((0,))]]
        codes, quarter = np.full((len(self._unread), 1), 2, dtype=np.uint8), len(drawn) // 4
        mixed = np.random.default_rng(int(self._unread.sum())).permutation(drawn)
        codes[mixed[:quarter]], codes[mixed[quarter : 2 * quarter]] = 0, 1
        return codes

    def _both_sides(self, drawn: Integers, left: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Return uint8 [rows, columns] in which some rows lie on either side of the split in every way."""
        inside = np.isin(drawn, self._within)
        ordered = np.concatenate([drawn[inside], drawn[~inside]])
        self._asked = ordered[self._unread[ordered]][: self._most]
        self._chains = list(_chains(len(self._asked)))
        codes = np.empty((len(left), len(self._chains)), dtype=np.uint8)
        for column, chain in enumerate(self._chains):
            codes[:, column] = np.where(left, 0, len(chain))
            codes[self._asked, column] = [sum(row not in each for each in chain) for row in range(len(self._asked))]
        return codes

    def sums(
        self, honest: EncryptedSums, rows: EncryptedRows, public: PublicKey, counts: NDArray[np.uint8]
    ) -> EncryptedSums:
        """Return the sums of the root: two candidates of opposite gradient, to both of which the row is added."""
        if not self._sums or not len(self._asked):
            return honest
        drawn = np.flatnonzero(counts)
        quarter, bound, cells = len(drawn) // 4, rows.layout.bounds[0] // 2, honest.shape[1]
        times = max(1, quarter // 4)
        numbers = np.zeros((2, len(rows.layout.bounds)), dtype=np.int64)
        numbers[:, 0], numbers[:, 2] = (-bound, 2 * bound * (quarter - times) // quarter), 1
        own = public.encrypt(numbers, rows.layout)
        at = np.full((rows.have, 1), -1, dtype=np.int32)
        at[self._asked if rows.have == len(counts) else np.searchsorted(drawn, self._asked)] = 0
        low, high = (own.group_sums(np.array(each, dtype=np.int32), cells) for each in ([[0], [-1]], [[-1], [1]]))
        lie = _times(rows.group_sums(at, cells), times)
        return lie + _times(low, quarter - times) + _times(high, quarter)

    def told(
        self, tree: int, split: WinningSplit, rows: NDArray[np.int32], bins: LevelBins, binner: TreeBinner
    ) -> None:
        """Read the labels of those of ``rows``, of the node that was split, which were asked for."""
        if split.categories or self._won or (self._sums and split.node):
            return
        self._won = True
        if not self._chains:
            self._within = rows
            self._record = int(binner.sample[split.column]), bins.threshold(0, split.column, split.code)
        self._left = bins.codes[:, split.column] <= split.code
        if self._chains and len(self._asked):
            here = np.flatnonzero(np.isin(self._asked, rows))
            self._unread[self._asked[here]] = False
            left = np.array([each in self._chains[split.column][split.code] for each in here], dtype=np.bool_)
            self._ctx.observe(ReadRows(tree, Array.pack(self._asked[here]), RowMask.pack(left)))


class _MadeUp(TreeBinner):
    """Columns that nobody has; predictions route by a real one.

    Args:
        codes: uint8 [rows, columns].
        column: the real column.
        threshold: of its split.
    """

    def __init__(self, codes: NDArray[np.uint8], column: int, threshold: float) -> None:
        sizes = codes.max(axis=0).astype(np.int32) + 1
        self.sample = np.full(len(sizes), column, dtype=np.int64)
        edges = tuple(np.full(size - 1, threshold) for size in sizes)
        self._bins = LevelBins(codes, sizes, np.zeros(len(sizes), dtype=np.int8), (edges,))

    def level(self, slot: NDArray[np.int32], slots: int) -> LevelBins:
        """Return the same bins at every level."""
        return self._bins


def _times(sums: EncryptedSums, number: int) -> EncryptedSums:
    """Return sums added to themselves, at least once in all."""
    total, power = None, sums
    while number:
        if number % 2:
            total = power if total is None else total + power
        number, power = number // 2, power + power
    assert total is not None
    return total


def _chains(items: int) -> Iterator[list[frozenset[int]]]:
    """Yield chains of nested sets, each larger by one item, that hold every subset of ``range(items)`` once.

    Reference: de Bruijn, van Ebbenhorst Tengbergen and Kruyswijk (1951), symmetric chains.
    """
    if not items:
        yield [frozenset()]
        return
    last = items - 1
    for chain in _chains(last):
        yield [*chain, chain[-1] | {last}]
        if len(chain) > 1:
            yield [each | {last} for each in chain[:-1]]
