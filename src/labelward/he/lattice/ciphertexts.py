"""Encrypted rows and their sums, by ring-LWE.

*Rows.* Each block of up to n rows has one uniform polynomial a for a set of S digits; b_k = a·s_k + e_k, and row r
keeps the scalars [X^r·b_k]_0 + digit·step·q1. *Sums* are lazy: the scalars are added at once, but the polynomials, of
which each sum would take 16 n bytes, only by :meth:`LatticeSums.rerandomize`, a few sums at a time.

Data of rows: a byte for the format, one for the form, then for each block and set 16 bytes of seed (or, of rows that
were encrypted with the public key, the polynomial), then all scalars. Data of sums: for each set and each
:data:`~labelward.he.lattice.digits.PACKED` sums one polynomial modulo q0, then all scalars modulo q0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from labelward.errors import EncryptionError
from labelward.he._validate import check_block_fits, check_groups, check_positions
from labelward.he.base import CipherBlock, EncryptedRows, EncryptedSums, Groups, Integers, Layout
from labelward.he.lattice import loops
from labelward.he.lattice.digits import Digits, digits_of
from labelward.he.lattice.loops import Int32s
from labelward.he.lattice.ring import Int64s, Reals
from labelward.he.lattice.row_data import RowData, parse_row_data
from labelward.he.lattice.sealing import seal
from labelward.he.threads import even_chunks, run_in_threads, worthwhile_threads

if TYPE_CHECKING:
    from labelward.he.lattice.keys import LatticePublicKey


_ENTRIES = 8  # of a part for each cell, so that sums of parts take no more memory than what is summed


class Segment(NamedTuple):
    """Polynomials of consecutive blocks of rows.

    Attributes:
        bounds: int64 [blocks + 1]: the first row of each block, and the end.
        a: [blocks, sets, 2, n], as values.
        shifted: int64 [blocks, sets, 2, 2·n] (:func:`~labelward.he.lattice.loops.doubled`).
    """

    bounds: Int64s
    a: Reals
    shifted: Int64s


class RowTerm(NamedTuple):
    """Rows of each cell of some sums.

    Attributes:
        segments: where their polynomials are.
        order: int32: rows, those of a cell one after the other and ascending.
        lists: int64 [cells, 2]: where those of a cell begin and end.
    """

    segments: tuple[Segment, ...]
    order: Int32s
    lists: Int64s


def overlapping(segments: Sequence[S], start: int, stop: int) -> tuple[S, ...]:
    """Return the segments that have any of the rows from ``start`` to ``stop``; all would be quadratic in the rows."""
    return tuple(each for each in segments if each.bounds[0] < stop and start < each.bounds[-1])


def row_parts(groups: Groups, n_groups: int, workers: int) -> list[slice]:
    """Return a part of the rows for each thread that so many entries are worth, though all have sums of all cells."""
    cells = groups.shape[1] * n_groups
    threads = min(worthwhile_threads(workers, groups.size), max(1, groups.size // (_ENTRIES * max(1, cells))))
    return even_chunks(len(groups), threads)


def rows_by_cell(groups: Groups, n_groups: int, start: int, parts: Sequence[slice]) -> tuple[Int32s, Int64s]:
    """Return ``order`` and ``lists`` of the cells [columns, n_groups], as :class:`RowTerm` has them.

    Args:
        groups: int32 [m, columns].
        start: number of the first of the m rows.
        parts: see :func:`row_parts`.

    Raises:
        EncryptionError: an entry is no group and not -1.
    """
    counts = np.zeros((len(parts), groups.shape[1], n_groups), dtype=np.int64)

    def count(part: int) -> None:
        if not loops.count_by_cell(groups[parts[part]], counts[part]):
            raise EncryptionError(f"a group lies outside range({n_groups}) and is not -1", code="range")

    run_in_threads(len(parts), count, range(len(parts)))
    of_cell = counts.sum(axis=0)
    ends = np.cumsum(of_cell, dtype=np.int64).reshape(of_cell.shape)
    lists = np.stack([ends - of_cell, ends], axis=-1).reshape(-1, 2)
    free = lists[:, 0].reshape(of_cell.shape) + np.cumsum(counts, axis=0) - counts
    order = np.empty(int(of_cell.sum()), dtype=np.int32)

    def place(part: int) -> None:
        loops.list_by_cell(groups[parts[part]], start + parts[part].start, free[part], order)

    run_in_threads(len(parts), place, range(len(parts)))
    return order, lists


class FreshRows(Protocol):
    """Rows that this party encrypted, as they travel."""

    def encode(self) -> bytes:
        """Return the data of a block."""


class Bounded(Protocol):
    """Polynomials of consecutive rows."""

    @property
    def bounds(self) -> Int64s:
        """The first row of each block, and the end."""


F = TypeVar("F", bound=FreshRows)
S = TypeVar("S", bound=Bounded)


class PolynomialRows(EncryptedRows, Generic[F]):
    """Rows of ``n`` times K digits, in polynomials.

    Args:
        fresh: rows that this party encrypted; None for rows to come from a peer.
    """

    def __init__(self, key: LatticePublicKey, layout: Layout, n: int, fresh: F | None = None) -> None:
        self.n, self.layout, self.have = n, layout, 0 if fresh is None else n
        self._key, self._fresh = key, fresh
        self._digits = digits_of(layout, key.bits)

    def block(self) -> CipherBlock:
        """Return fresh rows as they travel."""
        if self._fresh is None:
            raise EncryptionError("rows that a peer encrypted do not travel again", code="not-sendable")
        return self._key.block("rows", (self.n,), self.layout, self.n * self._digits.total, self._fresh.encode())


class LatticeRows(PolynomialRows[RowData]):
    """Rows whose scalars travel, one for each digit; see :class:`PolynomialRows`."""

    def __init__(self, key: LatticePublicKey, layout: Layout, n: int, fresh: RowData | None = None) -> None:
        super().__init__(key, layout, n, fresh)
        self._segments: list[Segment] = []
        self._words: Int64s | None = None

    def add(self, block: CipherBlock) -> None:
        """Append rows, and expand their polynomials."""
        self._key.check(block, ("rows",))
        check_block_fits(block, self.layout, self.n - self.have)
        data = parse_row_data(block.data, block.shape[0], self._key.bits, self._key.elements.secrets, self._digits)
        self._prepare(data, self.have)
        self.have += block.shape[0]

    def group_sums(self, groups: Groups, n_groups: int, start: int = 0) -> EncryptedSums:
        """Sum the scalars by group, and note which rows each sum has."""
        checked = check_groups(groups, start, self.have, n_groups)
        if self._fresh is not None and not self._segments and self.n:
            self._prepare(self._fresh, 0)
        columns, own, parts = checked.shape[1], self._rows()[start:], row_parts(checked, n_groups, self._key.workers)
        order, lists = rows_by_cell(checked, n_groups, start, parts)
        sums = np.zeros((len(parts), columns, n_groups, self._digits.total, 2), dtype=np.int64)

        def add(part: int) -> None:
            loops.add_scalars(own[parts[part]], checked[parts[part]], sums[part])

        run_in_threads(len(parts), add, range(len(parts)))
        words = sums.sum(axis=0)
        loops.settle(words)
        self._key.count_additions(order, lists, self._digits)
        segments = overlapping(self._segments, start, start + len(checked))
        terms = (RowTerm(segments, order, lists),) if len(order) else ()
        return LatticeSums(self._key, self.layout, (columns, n_groups), words.reshape(-1, *words.shape[2:]), terms)

    def _rows(self) -> Int64s:
        """Return the scalars int64 [n, k, 2]; room is made for them when the first come."""
        if self._words is None:
            shape = (self.n, self._digits.total, 2)
            self._words = self._key.allocate(shape).view(np.int64)
        return self._words

    def _prepare(self, data: RowData, first: int) -> None:
        rows = data.rows
        if not rows:
            return
        self._rows()[first : first + rows] = data.words
        n, a = self._key.bits, data.polynomials(self._key.bits, self._key.workers)
        blocks, sets = a.shape[:2]
        held = self._key.allocate((blocks, sets, 2, n)).view(np.float64)
        shifted = self._key.allocate((blocks, sets, 2, 2 * n)).view(np.int64)

        def prepare(block: int) -> None:
            held[block], plain = a[block], np.empty_like(a[block])
            loops.to_coefficients(self._key.elements.ring, a[block], plain)
            loops.doubled(plain, shifted[block])

        run_in_threads(self._key.workers, prepare, range(blocks))
        bounds = np.minimum(np.arange(blocks + 1, dtype=np.int64) * n, rows) + first
        self._segments.append(Segment(bounds, held, shifted))


class LatticeSums(EncryptedSums):
    """Sums that are not yet sealed.

    Args:
        words: int64 [cells, k, 2]: the sums of the scalars.
        terms: which rows they hold.
    """

    def __init__(
        self,
        key: LatticePublicKey,
        layout: Layout,
        shape: tuple[int, int],
        words: Int64s,
        terms: tuple[RowTerm, ...],
    ) -> None:
        self.shape, self.layout = shape, layout
        self.words, self.terms = words, terms
        self._key = key

    @property
    def digits(self) -> Digits:
        """Encoding of the numbers."""
        return digits_of(self.layout, self._key.bits)

    def __add__(self, other: EncryptedSums) -> EncryptedSums:
        self._key.check_sum(self, other)
        assert isinstance(other, LatticeSums)
        words = self.words + other.words
        loops.settle(words)
        self._key.counts.additions += len(words) * self.digits.total
        return LatticeSums(self._key, self.layout, self.shape, words, self.terms + other.terms)

    def take(self, cells: Integers) -> EncryptedSums:
        """Return the sums at flat positions."""
        chosen = check_positions(cells, self.shape[0] * self.shape[1])
        terms = tuple(term._replace(lists=term.lists[chosen]) for term in self.terms)
        return LatticeSums(self._key, self.layout, (1, len(chosen)), self.words[chosen], terms)

    def rerandomize(self) -> CipherBlock:
        """Add up the polynomials, mask and flood each sum, divide by q1, and pack."""
        key, cells = self._key, self.shape[0] * self.shape[1]
        data = seal(key.elements, self.digits, self.words, self.terms, key.protection, key.workers)
        key.counts.logical_sums += cells * self.layout.logical
        return key.block("sums", self.shape, self.layout, cells * self.digits.total, data)
