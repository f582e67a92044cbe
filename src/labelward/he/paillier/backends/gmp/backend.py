"""The kernel for processors without AVX-512 IFMA: libgmp's functions in compiled loops, on all cores.

Where IFMA multiplies eight numbers at a time, this kernel does one after the other, yet with less to do than dividing
by n² takes (``digits``), without a Python integer for each row, and in threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property, partial
from itertools import product

import gmpy2
import numpy as np
from gmpy2 import mpz
from numba import config
from numpy.typing import NDArray

from labelward.he.paillier.backends.base import Allocator, Backend
from labelward.he.paillier.backends.gmp import loops
from labelward.he.paillier.backends.gmp.arithmetic import (
    CellArithmetic,
    CellPowerTable,
    from_words,
    to_word_rows,
    to_words,
    word_row_bytes,
)
from labelward.he.paillier.backends.gmp.digits import Limbs
from labelward.he.paillier.backends.gmp.load import MissingError, mpn_functions
from labelward.he.paillier.column_merging import PresentRows, joint_cells
from labelward.he.paillier.int_bytes import byte_length, read_ints, to_offset, write_ints
from labelward.he.paillier.scheme import PublicEncryptor, plaintexts_of
from labelward.he.threads import even_chunks, fill_in_threads, run_in_threads

Cells = NDArray[np.uint8]

_PIECE = 2048  # rows encrypted at a time
_STRETCH = 1 << 15  # products without looking up, so that whoever interrupts is heard soon


def unavailable_reason() -> str:
    """Return what is missing for this kernel."""
    if getattr(config, "DISABLE_JIT", 0):
        return "NUMBA_DISABLE_JIT is set"
    if sys.byteorder != "little":
        return "the processor has no little-endian words"
    try:
        mpn_functions(1)
    except MissingError as error:
        return f"libgmp: {error}"
    return ""


class _Plaintexts:
    """Signed plaintexts of ``size`` bytes, to be added to the L of cells modulo N², N dividing n."""

    def __init__(self, data: bytes, size: int, root: CellArithmetic, cofactor: mpz) -> None:
        self._root, self._factors = root, root.factors(cofactor, -(-size // 8))
        self._limbs = to_word_rows(to_offset(data, size), size, len(self._factors) * root.limbs)
        self._offset = to_words(-cofactor * (mpz(1) << (8 * size - 1)) % root.value, root.limbs)

    def add(self, part: slice, cells: Limbs) -> None:
        """Multiply cells by 1 + n·m for the plaintexts of ``part``."""
        root = self._root
        loops.add_plaintexts(root.mpn, root.odd, root.work(), self._limbs[part], self._factors, self._offset, cells)

    def complete(self, part: slice, numbers: Limbs) -> None:
        """Multiply numbers below N² by 1 + N·m for the plaintexts of ``part``, where the cofactor is R²."""
        root, whole = self._root, to_words(self._root.square, 2 * self._root.limbs)
        loops.complete_ciphertexts(
            root.mpn, root.odd, root.work(), self._limbs[part], self._factors, self._offset, whole, numbers
        )  # fmt: skip


class _Side:
    """One prime of an owner: p with q the other one, or the reverse."""

    def __init__(self, root: CellArithmetic, other: mpz, tau: mpz, uses: int, threads: int) -> None:
        self.root, self.other = root, other
        self._table = CellPowerTable(tau, root, root.value.bit_length(), uses=uses, threads=threads)
        self._start = root.cell(gmpy2.invert(other * other, root.square))

    def part(self, exponents: NDArray[np.uint8], plaintexts: _Plaintexts, part: slice) -> Limbs:
        """Return ciphertexts over q² modulo p², as limbs: times q² they are a summand of the remainder modulo n²."""
        cells = self._table.powers(exponents[part], self._start)
        plaintexts.add(part, cells)
        return self.root.values(cells)


class GmpPrivateOps:
    """Encrypts by tables modulo p² and q², and joins both by Chinese remainders."""

    def __init__(self, p: mpz, q: mpz, tau_p: mpz, tau_q: mpz, uses: int, *, threads: int) -> None:
        self._p, self._q, self._taus, self._threads = p, q, (tau_p, tau_q), threads
        self._n, self._uses, self._roots = p * q, uses, (CellArithmetic(p), CellArithmetic(q))

    def encrypt(self, plaintexts: bytes, size: int, x: bytes, y: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PrivateOps`."""
        count, sides = len(plaintexts) // size, self._sides
        exponents = [np.frombuffer(part, dtype=np.uint8).reshape(count, -1) for part in (x, y)]
        added = [_Plaintexts(plaintexts, size, side.root, side.other) for side in sides]
        s = 2 * sides[0].root.limbs
        weights = np.stack([to_words(side.other**2, s) for side in sides])
        whole, mpn = to_words(self._n**2, 2 * s), sides[0].root.mpn

        def encrypt(part: slice, into: Cells) -> None:
            first, second = (
                side.part(digits, mine, part) for side, digits, mine in zip(sides, exponents, added, strict=True)
            )
            rows, room = np.empty((len(first), 2 * s), np.uint64), np.empty(2 * s, np.uint64)
            loops.join_residues(mpn, first, second, weights, whole, room, rows)
            into[:] = word_row_bytes(rows, into.shape[1])

        parts = even_chunks(count, self._threads, _PIECE)
        return fill_in_threads(self._threads, encrypt, parts, byte_length(self._n**2)).tobytes()

    def complete(self, zeros: bytes, plaintexts: bytes, size: int) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PrivateOps`."""
        root = CellArithmetic(self._n)
        added, width = _Plaintexts(plaintexts, size, root, root.radix**2), byte_length(root.square)
        data = np.frombuffer(zeros, dtype=np.uint8).reshape(-1, width)

        def complete(part: slice, into: Cells) -> None:
            numbers = to_word_rows(data[part], width, 2 * root.limbs)
            added.complete(part, numbers)
            into[:] = word_row_bytes(numbers, width)

        return fill_in_threads(self._threads, complete, even_chunks(len(data), self._threads, _PIECE), width).tobytes()

    def decrypt(self, ciphertexts: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PrivateOps`."""
        p, q, n = self._p, self._q, self._n
        numbers = read_ints(ciphertexts, byte_length(n * n))
        powers = [np.empty((len(numbers), 2 * root.limbs), dtype=np.uint64) for root in self._roots]

        def power(piece: tuple[int, slice]) -> None:
            side, part = piece
            root = self._roots[side]
            reduced = np.stack([to_words(number % root.square, 2 * root.limbs) for number in numbers[part]])
            powers[side][part] = root.power(root.cells(reduced), root.value - 1)

        run_in_threads(self._threads, power, product(range(2), even_chunks(len(numbers), self._threads)))
        found = plaintexts_of(p, q, zip(*(map(from_words, rows) for rows in powers), strict=True))
        return write_ints(found, byte_length(n) + 1, signed=True)

    @cached_property
    def _sides(self) -> list[_Side]:
        sides = zip(self._roots, (self._q, self._p), self._taus, strict=True)
        return [_Side(*side, self._uses, self._threads) for side in sides]


class GmpPublicOps:
    """Obfuscators by tables modulo n², and Horner's scheme."""

    def __init__(self, n: mpz, h: mpz, w: mpz, uses: int, *, threads: int) -> None:
        self._h, self._uses, self._threads, self._root = h, uses, threads, CellArithmetic(n)
        n2 = self._root.square
        self._signs = np.stack([self._root.cell(sign % n2) for sign in (mpz(1), w, n2 - 1, n2 - w)])
        self._table: CellPowerTable | None = None

    def encrypt(self, plaintexts: bytes, size: int, random: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PublicOps`."""
        added = _Plaintexts(plaintexts, size, self._root, mpz(1))
        return self._do(random, len(plaintexts) // size, added.add)

    def rerandomize(self, cells: bytes, fit: int, shift: int, random: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PublicOps`."""
        root, size = self._root, byte_length(self._root.square)
        data = np.frombuffer(cells, dtype=np.uint8).reshape(-1, size)

        def combine(part: slice, into: Limbs) -> None:
            mine = root.cells(to_word_rows(data[part.start * fit : part.stop * fit], size, 2 * root.limbs))
            loops.combine_cells(root.mpn, root.odd, root.work(), mine, fit, shift, into)

        return self._do(random, -(-len(data) // fit), combine)

    def _do(self, random: bytes, count: int, multiply: Callable[[slice, Limbs], None]) -> bytes:
        """Make obfuscators, have ``multiply`` multiply those of a stretch, and return them."""
        root = self._root
        size, step = PublicEncryptor.random_size(root.value)
        if self._table is None:
            self._table = CellPowerTable(self._h, root, 8 * size, uses=self._uses, threads=self._threads)
        table, drawn = self._table, np.frombuffer(random, dtype=np.uint8).reshape(count, step)

        def obfuscate(part: slice, into: Cells) -> None:
            cells, signs = table.powers(drawn[part, :size], root.one), drawn[part, size] & 3
            loops.multiply_cells(root.mpn, root.odd, root.work(), cells, self._signs, signs.astype(np.int64))
            multiply(part, cells)
            into[:] = word_row_bytes(root.values(cells), into.shape[1])

        parts = even_chunks(count, self._threads, _PIECE)
        return fill_in_threads(self._threads, obfuscate, parts, byte_length(root.square)).tobytes()


class GmpRows:
    """Rows in one block, which all threads read."""

    def __init__(self, n: mpz, count: int, allocate: Allocator, *, threads: int) -> None:
        self._root, self._threads, self._have = CellArithmetic(n), threads, 0
        self._rows: Limbs = np.asarray(allocate((count, 3, self._root.limbs)))

    def add(self, data: bytes) -> None:
        """See :class:`~labelward.he.paillier.backends.base.PreparedRows`."""
        root, size = self._root, byte_length(self._root.square)
        array = np.frombuffer(data, dtype=np.uint8).reshape(-1, size)
        into = self._rows[self._have : self._have + len(array)]
        root.split(lambda part: root.cells(to_word_rows(array[part], size, 2 * root.limbs)), into, self._threads)
        self._have += len(array)

    def sums(self, present: PresentRows, n_groups: int, joined: tuple[tuple[int, ...], ...]) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PreparedRows`."""
        size = byte_length(self._root.square)
        made = np.zeros((len(present.groups) * n_groups, size), dtype=np.uint8)
        made[:, -1] = 1
        for columns in joined:
            numbers, cells = joint_cells(present.groups, columns, n_groups)
            found = self._gather(self._rows, numbers, len(cells), present.rows)
            for column, of_cells in zip(columns, cells.T, strict=True):
                filled, ranks = np.unique(of_cells, return_inverse=True)
                absent = int(len(filled) > 0 and filled[0] < 0)
                mine = self._gather(found, ranks.astype(np.int32) - absent, len(filled) - absent, np.arange(len(found)))
                made[column * n_groups + filled[absent:]] = self._values(mine, size)
        return made.tobytes()

    def _gather(
        self, items: Limbs, numbers: NDArray[np.int32], count: int, which: NDArray[np.int32] | NDArray[np.int64]
    ) -> Limbs:
        """Multiply items, rows [n, 3, k] or cells [n, 3k+1], by number below ``count``; -1 is none.

        ``numbers`` are those of the items ``which``.
        """
        order, ranks = (np.empty(len(numbers), dtype=np.int64) for _ in range(2))
        entries = loops.sort_by_cell(numbers, np.zeros(count + 1, dtype=np.int64), order, ranks)
        order[:entries] = which[order[:entries]]
        parts = even_chunks(entries, self._threads, _STRETCH)
        places, owners = self._places(items, order, ranks, parts, count)
        used = np.flatnonzero(owners >= 0)
        if len(used) > count:  # a cell that several parts found something of
            places, owners = self._places(places, used, owners[used], [slice(0, len(used))], count)
            used = np.flatnonzero(owners >= 0)
        return places[used]

    def _places(
        self, items: Limbs, order: NDArray[np.int64], ranks: NDArray[np.int64], parts: list[slice], count: int
    ) -> tuple[Limbs, NDArray[np.int64]]:
        root = self._root
        places = np.empty((count + len(parts), 3 * root.limbs + 1), dtype=np.uint64)
        owners = np.full(len(places), -1, dtype=np.int64)

        def multiply(piece: tuple[int, slice]) -> None:
            number, part = piece
            loops.multiply_by_group(
                root.mpn, root.odd, root.work(), items.reshape(len(items), -1), items.ndim == 2, order, ranks,
                (part.start, part.stop, number), places, owners,
            )  # fmt: skip

        run_in_threads(self._threads, multiply, enumerate(parts))
        return places, owners

    def _values(self, cells: Limbs, size: int) -> Cells:
        def values(part: slice, into: Cells) -> None:
            into[:] = word_row_bytes(self._root.values(cells[part]), size)

        return fill_in_threads(self._threads, values, even_chunks(len(cells), self._threads), size)


def backend(threads: int) -> Backend:
    """Return the backend with so many threads."""
    return Backend(
        name="libgmp",
        merge_cost=1.4,
        private_ops=partial(GmpPrivateOps, threads=threads),
        public_ops=partial(GmpPublicOps, threads=threads),
        prepared_rows=partial(GmpRows, threads=threads),
    )
