"""Binned columns: a source's own, and those of others as far as a label holder knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyDataset
from labelward.errors import wrong_message
from labelward.kernels.binning import Binned, bin_columns, threshold_of
from labelward.kernels.histogram import level_sums
from labelward.kernels.split_search import CATEGORICAL
from labelward.messages.pivodl import MISSING, Candidate, ColumnCodes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Codes = NDArray[np.uint16]


class OwnRecord(msgspec.Struct, frozen=True):
    """One of the party's own splits.

    Attributes:
        column: position among the party's columns.
        threshold: a row goes left where x ≤ threshold, all known values where it is the largest float; unused for
            categories.
        missing_left: whether missing values and unseen categories go left.
        categories: of a categorical column the codes that go left.
    """

    column: int
    threshold: float
    missing_left: bool
    categories: tuple[int, ...] = ()

    def goes_left(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return bool [rows]: whether each row of the party's columns goes left."""
        values = x[:, self.column]
        left: NDArray[np.bool_]
        if self.categories:
            known, left = values >= 0, np.isin(values, self.categories)
        else:
            known, left = ~np.isnan(values), values <= self.threshold
        return np.where(known, left, self.missing_left)


class SourceColumns(NamedTuple):
    """A source's binned columns, in the order that it drew, as far as a party knows them.

    Attributes:
        sizes: int32 [columns].
        kinds: int8 [columns].
        codes: uint16 [rows that the party labels, columns].
    """

    sizes: NDArray[np.int32]
    kinds: NDArray[np.int8]
    codes: Codes

    @property
    def cells(self) -> NDArray[np.bool_]:
        """bool [columns, bins]: which bins exist."""
        cells: NDArray[np.bool_] = np.arange(int(self.sizes.max(initial=1))) < self.sizes[:, None]
        return cells

    def sums(self, slot: NDArray[np.int32], values: Integers, nodes: int) -> Integers:
        """Return the sums of the party's rows by node and existing cell: int64 [nodes, cells, k]."""
        cells = self.cells
        whole = level_sums(self.codes, slot, values, nodes, cells.shape[1])
        return whole.transpose(1, 0, 2, 3)[:, cells]

    def laid_out(self, sums: Integers) -> Integers:
        """Return sums by node and cell as int64 [columns, nodes, bins, k]."""
        cells = self.cells
        whole = np.zeros((len(sums), *cells.shape, sums.shape[2]), dtype=np.int64)
        whole[:, cells] = sums
        return whole.transpose(1, 0, 2, 3)


class OwnColumns:
    """A source's own columns: their bins, and the order in which others know them.

    Args:
        x: float64 [training rows, columns].
        categories: number of categories of each categorical column.
        order: int64 [columns]: position of each shuffled column among the source's.
        edges: where the buckets of some columns end, whatever their rows are.
    """

    def __init__(
        self,
        x: Floats,
        categories: Mapping[int, int],
        bins: int | None,
        order: Integers,
        edges: Mapping[int, Sequence[float]] = MappingProxyType({}),
    ) -> None:
        self.stated = frozenset(edges)
        self.binned: Binned = bin_columns(x, bins, categories, edges)
        kinds = np.zeros(len(order), dtype=np.int8)
        kinds[list(categories)] = CATEGORICAL
        self.order, self.codes = order, np.ascontiguousarray(self.binned.wide_codes()[:, order])
        self.sizes, self.kinds = self.binned.sizes[order].astype(np.int32), kinds[order]

    @classmethod
    def of(cls, data: PartyDataset, bins: int | None, order: Integers | None = None) -> OwnColumns:
        """Return the columns of a party's training rows, in its own order by default."""
        sizes = {position: len(names) for position, names in data.categories.items()}
        return cls(data.train, sizes, bins, np.arange(len(data.columns)) if order is None else order, data.edges)

    def offers(self, each: Candidate) -> bool:
        """Return whether a candidate of an existing column exists."""
        size = int(self.sizes[each.column])
        if self.kinds[each.column] == CATEGORICAL:
            return bool(each.categories) and min(each.categories) >= 0 and max(each.categories) < size
        return not each.categories and 0 <= each.code < size

    def record(self, chosen: Candidate) -> OwnRecord:
        """Return a candidate as a split of the party."""
        column = int(self.order[chosen.column])
        threshold = 0.0 if chosen.categories else threshold_of(self.binned.edges[column], chosen.code)
        return OwnRecord(column, threshold, chosen.missing_left, chosen.categories)

    def first(self, tied: Sequence[Candidate]) -> Candidate:
        """Return of candidates with the same gain that of the source's first column."""
        return min(tied, key=lambda each: int(self.order[each.column]))


def received_columns(message: ColumnCodes, peer: str, rows: int, bins: int | None) -> SourceColumns:
    """Return a peer's columns as it sent them; PeerError where they are none.

    Args:
        rows: how many the message must speak of.
        bins: the most bins of a column without categories; None: any number.
    """
    sizes, kinds = np.array(message.sizes, dtype=np.int32), np.array(message.kinds, dtype=np.int8)
    codes = np.frombuffer(message.codes, dtype="<u2").astype(np.uint16)
    limit = max(bins or MISSING, 1000)
    fits = len(sizes) == len(kinds) and codes.size == rows * len(sizes)
    if not fits or not np.isin(kinds, (0, CATEGORICAL)).all() or ((sizes < 1) | (sizes > limit)).any():
        raise wrong_message(peer, "ColumnCodes", "sent no binned columns")
    codes = codes.reshape(rows, len(sizes))
    if ((codes >= sizes) & (codes != MISSING)).any():
        raise wrong_message(peer, "ColumnCodes", "sent a bin that its column lacks")
    return SourceColumns(sizes, kinds, codes)
