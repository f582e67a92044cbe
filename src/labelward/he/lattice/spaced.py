"""Rows at every R-th coefficient, so that one product gives R sums.

A block holds n/R rows: b_k = a·s_k + e_k + Σ digit_i·step·q1·X^(-R·i), and all its coefficients travel that any sum
needs. With the indicator I = Σ X^v·X^(R·i) over the rows i of group v, v < R, the coefficients v of b_k·I are the sums
of the R groups: each two rows and groups else meet at a coefficient that is not v. Groups are taken R at a time, in
their order, which makes a *window*; one mask and one place among packed sums serve them together.

The order of sealing is that of :mod:`.sealing`: A += p1·u + e1, coefficient v of b_k·I += [p0_k·u]_v + f_kv with
flooding of its own, division by q1, packing. A coefficient has the errors of the rows of all R groups, so that the
flooding is drawn for R times the rows (:func:`~labelward.he.lattice.digits.digits_of`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.he._validate import check_block_fits, check_groups, check_positions
from labelward.he.base import CipherBlock, EncryptedSums, Groups, Integers, Layout
from labelward.he.lattice import loops, spaced_loops
from labelward.he.lattice.ciphertexts import PolynomialRows, overlapping, row_parts, rows_by_cell
from labelward.he.lattice.digits import Digits, digits_of, sums_together
from labelward.he.lattice.draws import SEED_BYTES, Stream
from labelward.he.lattice.key_material import MASKS, PublicElements
from labelward.he.lattice.ring import Int64s, Reals, vectors
from labelward.he.lattice.row_data import (
    FORMAT,
    HEAD_BYTES,
    PACKED_SUMS,
    SPACED,
    coefficient_count,
    expand,
    read_head,
    set_count,
    spaced_words,
)
from labelward.he.lattice.sealing import borrowed, pack_sets
from labelward.he.lattice.words import pack, unpack
from labelward.he.threads import even_chunks, run_in_threads, threads_each
from labelward.rng import SecureRandom

if TYPE_CHECKING:
    from labelward.he.lattice.keys import LatticePublicKey

_POLYNOMIALS = 2  # polynomials of packed sums that are made together
_TOGETHER = 4  # windows whose totals stay in the second-level cache


class SpacedData(NamedTuple):
    """Encrypted rows, ``spacing`` apart.

    Attributes:
        rows: how many.
        seeds: 16 bytes for each block and set.
        blocks: for each block int64 [K, count, 2], the coefficients of the b_k that any sum needs, as they travel: from
            number -(R·m - 1) to R - 1 modulo n, of m rows.
    """

    rows: int
    seeds: bytes
    blocks: tuple[Int64s, ...]

    def encode(self) -> bytes:
        """Return the data of a block."""
        words = np.concatenate([*(each.reshape(-1) for each in self.blocks), np.empty(0, np.int64)])
        return bytes([FORMAT, SPACED]) + self.seeds + pack(words)


def _rows_by_block(rows: int, spacing: int, n: int) -> list[int]:
    each = n // spacing
    return [min(each, rows - start) for start in range(0, rows, each)]


def parse_spaced(data: bytes, rows: int, n: int, secrets: int, digits: Digits) -> SpacedData:
    """Return the rows of a block's data.

    Raises:
        EncryptionError: another format, a wrong length, or a word that is not below its prime.
    """
    read_head(data, (SPACED,))
    spacing, of_block = digits.spacing, _rows_by_block(rows, digits.spacing, n)
    shared = SEED_BYTES * len(of_block) * set_count(digits, secrets)
    view = memoryview(data)[HEAD_BYTES:]
    flat = unpack(view[shared:], (spaced_words(rows, n, digits) // 2, 2))
    blocks, at = list[Int64s](), 0
    for own in of_block:
        count = coefficient_count(own, spacing, n)
        blocks.append(flat[at : at + digits.total * count].reshape(digits.total, count, 2))
        at += digits.total * count
    return SpacedData(rows, bytes(view[:shared]), tuple(blocks))


def row_words(data: SpacedData, digits: Digits, n: int) -> Int64s:
    """Return the [X^(R·i)·b_k]_0 of each row, int64 [rows, K, 2]."""
    words = np.empty((data.rows, digits.total, 2), dtype=np.int64)
    each = n // digits.spacing
    for block, coefficients in enumerate(data.blocks):
        own = words[block * each : (block + 1) * each]
        last = digits.spacing * len(own) - 1  # the place of coefficient 0, which is row 0's
        own[:] = -coefficients[:, last :: -digits.spacing].swapaxes(0, 1)  # X^n is -1
        own[0] *= -1
    loops.settle(words)
    return words


def encrypt_spaced(
    elements: PublicElements, digits: Digits, product: Reals, errors: Int64s, values: Integers, step: float
) -> Int64s:
    """Return the coefficients of a block of split values [rows, K]; ``product`` [K, 2, n]: a·s_k; errors [K, n]."""
    n, spacing = elements.ring.n, digits.spacing
    out = np.empty((digits.total, coefficient_count(len(values), spacing, n), 2), dtype=np.int64)
    spaced_loops.encrypt(elements.ring, product, errors, values, step, spacing, out)
    return out


class _Segment(NamedTuple):
    """Consecutive blocks: their ``bounds`` int64 [blocks + 1], ``a`` [blocks, sets, 2, n] as values, and coefficients.

    ``words`` [blocks, count, K, 2] are the blocks' coefficients in the order in which they travel; those of a block
    that are next to each other lie together, for all digits.
    """

    bounds: Int64s
    a: Reals
    words: Int64s


class _Term(NamedTuple):
    """Rows of each cell, as :class:`~labelward.he.lattice.ciphertexts.RowTerm` has them."""

    segments: tuple[_Segment, ...]
    order: NDArray[np.int32]
    lists: Int64s


class SpacedRows(PolynomialRows[SpacedData]):
    """Rows of a layout with spacing, as coefficients."""

    def __init__(self, key: LatticePublicKey, layout: Layout, n: int, fresh: SpacedData | None = None) -> None:
        super().__init__(key, layout, n, fresh)
        self._segments: list[_Segment] = []

    def add(self, block: CipherBlock) -> None:
        """Append rows; of a block that others follow, each polynomial is full."""
        self._key.check(block, ("rows",))
        check_block_fits(block, self.layout, self.n - self.have)
        rows = block.shape[0]
        data = parse_spaced(block.data, rows, self._key.bits, self._key.elements.secrets, self._digits)
        self._prepare(data, self.have)
        self.have += rows

    def group_sums(self, groups: Groups, n_groups: int, start: int = 0) -> EncryptedSums:
        """Note which rows each sum has."""
        checked = check_groups(groups, start, self.have, n_groups)
        if self._fresh is not None and not self._segments:
            self._prepare(self._fresh, 0)
        order, lists = rows_by_cell(checked, n_groups, start, row_parts(checked, n_groups, self._key.workers))
        self._key.count_additions(order, lists, self._digits)
        segments = overlapping(self._segments, start, start + len(checked))
        shape = (checked.shape[1], n_groups)
        return SpacedSums(self._key, self.layout, shape, (_Term(segments, order, lists),))

    def _prepare(self, data: SpacedData, first: int) -> None:
        if not data.rows:
            return
        key, n, spacing = self._key, self._key.bits, self._digits.spacing
        blocks, k = len(data.blocks), self._digits.total
        a = key.allocate((blocks, set_count(self._digits, key.elements.secrets), 2, n)).view(np.float64)
        a[:] = expand(data.seeds, n, key.workers).reshape(a.shape)
        words = key.allocate((blocks, max(own.shape[1] for own in data.blocks), k, 2)).view(np.int64)
        for own, there in zip(data.blocks, words, strict=True):
            there[: own.shape[1]] = own.swapaxes(0, 1)
        bounds = np.minimum(np.arange(blocks + 1, dtype=np.int64) * (n // spacing), data.rows) + first
        self._segments.append(_Segment(bounds, a, words))


class SpacedSums(EncryptedSums):
    """Sums of spaced rows that are not yet sealed."""

    def __init__(self, key: LatticePublicKey, layout: Layout, shape: tuple[int, int], terms: tuple[_Term, ...]) -> None:
        self.shape, self.layout, self.terms = shape, layout, terms
        self._key = key

    def __add__(self, other: EncryptedSums) -> EncryptedSums:
        self._key.check_sum(self, other)
        assert isinstance(other, SpacedSums)
        self._key.counts.additions += self.shape[0] * self.shape[1] * digits_of(self.layout, self._key.bits).total
        return SpacedSums(self._key, self.layout, self.shape, self.terms + other.terms)

    def take(self, cells: Integers) -> EncryptedSums:
        """Return the sums at flat positions."""
        chosen = check_positions(cells, self.shape[0] * self.shape[1])
        terms = tuple(term._replace(lists=term.lists[chosen]) for term in self.terms)
        return SpacedSums(self._key, self.layout, (1, len(chosen)), terms)

    def rerandomize(self) -> CipherBlock:
        """Add up, mask, flood, divide and pack."""
        key, cells = self._key, self.shape[0] * self.shape[1]
        digits = digits_of(self.layout, key.bits)
        data = seal_spaced(key.elements, digits, cells, self.terms, key.protection, key.workers)
        key.counts.logical_sums += cells * self.layout.logical
        return key.block("sums", self.shape, self.layout, cells * digits.total, data)


def seal_spaced(
    elements: PublicElements,
    digits: Digits,
    cells: int,
    terms: tuple[_Term, ...],
    protection: SecureRandom,
    workers: int,
) -> bytes:
    """Return the data of sealed sums."""
    n, together = elements.ring.n, sums_together(elements.ring.n, digits.spacing)
    sets, k = set_count(digits, elements.secrets), digits.total
    packed = np.empty((-(-cells // together), sets, n), dtype=np.int64)
    sealed = np.empty((cells, k), dtype=np.int64)
    batches = [(part, Stream.secret(protection)) for part in even_chunks(len(packed), 1, _POLYNOMIALS)]
    threads = threads_each(workers, len(batches))

    def work(batch: tuple[slice, Stream]) -> None:
        those, stream = batch
        part = slice(those.start * together, min(those.stop * together, cells))
        lists = [term.lists[part] for term in terms]
        _seal_batch(elements, digits, terms, lists, stream, threads, packed[those], sealed[part])

    run_in_threads(workers, work, batches)
    return bytes([FORMAT, PACKED_SUMS]) + pack(packed) + pack(sealed)


def _seal_batch(
    elements: PublicElements,
    digits: Digits,
    terms: tuple[_Term, ...],
    lists: list[Int64s],
    stream: Stream,
    threads: int,
    packed: Int64s,
    sealed: Int64s,
) -> None:
    """Seal sums into the polynomials ``packed`` [polynomials, sets, n] and ``sealed`` [sums, K]."""
    ring, count, spacing, k = elements.ring, len(sealed), digits.spacing, digits.total
    n, sets = ring.n, packed.shape[1]
    windows = -(-count // spacing)
    bits = stream.ternary(-(-windows * sets // MASKS), n)
    masked = vectors(len(bits), 2, n)
    loops.mask_values(ring, bits, masked)
    errors = stream.small_errors((windows, sets, n))
    flood = stream.flood(digits.flood, windows * k * spacing).reshape(windows, k, spacing)
    words, polynomials = np.zeros((windows, spacing, k, 2), dtype=np.int64), vectors(sets, windows, n)
    free = list[Reals]()

    def work(first: int) -> None:
        part = slice(first, min(first + _TOGETHER, windows))
        with borrowed(free, lambda: vectors(_TOGETHER, sets, 2, n)) as totals:
            a = totals[: part.stop - first]
            a[:] = 0.0
            for term, own in zip(terms, lists, strict=True):
                cells = own[first * spacing : part.stop * spacing]
                for held in term.segments:
                    spaced_loops.add_windows(
                        ring, term.order, cells, held.bounds, spacing, held.a, held.words, a, words[part]
                    )
            spaced_loops.seal_polynomials(ring, first, a, masked, elements.masks, errors, polynomials)

    run_in_threads(threads, work, range(0, windows, _TOGETHER))
    spaced_loops.seal_coefficients(ring, words, masked, elements.bodies, flood, sealed)
    pack_sets(elements, digits, polynomials, packed, sealed)
