"""Moduli with their constants, numbers as limbs, and threads, for ``backend``."""

from __future__ import annotations

from collections.abc import Callable

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he.paillier.backends.gmp import loops
from labelward.he.paillier.backends.gmp.digits import CellModulus, Limbs, scratch_for
from labelward.he.paillier.backends.gmp.load import mpn_functions
from labelward.he.paillier.fixed_base import digit_width, split_digits
from labelward.he.threads import even_chunks, run_in_threads

_BLOCK = 512  # rows that share an inversion, and whose cells stay in the second-level cache
_MEMORY = 48 << 20  # bytes of one base's tables
_ENTRY = 6  # what making an entry costs, in products of a power
_WIDEST = 10


def to_words(number: mpz, limbs: int) -> Limbs:
    """Return a number in so many limbs."""
    return np.frombuffer(number.to_bytes(8 * limbs, "little"), dtype=np.uint64).copy()


def from_words(limbs: Limbs) -> mpz:
    """Return limbs as a number."""
    return mpz.from_bytes(limbs.tobytes(), "little")


def to_word_rows(data: bytes | NDArray[np.uint8], size: int, limbs: int) -> Limbs:
    """Split big-endian numbers of ``size`` bytes into rows of limbs."""
    array = (np.frombuffer(data, dtype=np.uint8) if isinstance(data, bytes) else data).reshape(-1, size)
    rows = np.zeros((len(array), 8 * limbs), dtype=np.uint8)
    rows[:, :size] = array[:, ::-1]
    return rows.view(np.uint64)


def word_row_bytes(rows: Limbs, size: int) -> NDArray[np.uint8]:
    """Return rows as big-endian numbers [n, size]."""
    data: NDArray[np.uint8] = rows.view(np.uint8).reshape(len(rows), -1)[:, size - 1 :: -1]
    return data


class CellArithmetic:
    """An odd N, for numbers modulo N² as cells and rows (``digits``)."""

    def __init__(self, value: mpz) -> None:
        self.value, self.square, self.limbs = value, value**2, -(-value.bit_length() // 64)
        self.mpn, self.radix = mpn_functions(self.limbs), mpz(1) << (64 * self.limbs)
        self._inverse = gmpy2.invert(value, self.radix)
        constants = [value, self._inverse, -self.radix % value, mpz(1), *self._factor(self.radix**3)]
        self._constants = np.stack([to_words(number, self.limbs) for number in constants])
        n, inverse, minus, one, cube, cube_inverse = (row.ctypes.data for row in self._constants)
        self.odd = CellModulus(
            self.limbs, n, inverse, minus, one, cube, cube_inverse, int(self._constants[0, -1]) * 2.0**-64
        )
        self.one, self._cube = self.cell(mpz(1)), self.cell(self.radix**2)

    def cell(self, number: mpz, total: mpz | None = None) -> Limbs:
        """Return the cell of ``number`` · (1 + N · ``total``)."""
        high, low = divmod(number * self.radix % self.square, self.value)
        parts = [to_words(each, self.limbs) for each in (low, high * self.radix % self.value)]
        return np.concatenate([*parts, to_words((total or mpz(0)) % self.value, self.limbs + 1)])

    def factors(self, number: mpz, limbs: int) -> Limbs:
        """Return what plaintexts of so many limbs are multiplied by to add ``number`` times them to an L."""
        pairs = [self._factor(number * self.radix**i) for i in range(1, -(-limbs // self.limbs) + 1)]
        return np.stack([np.stack([to_words(part, self.limbs) for part in pair]) for pair in pairs])

    def cells(self, numbers: Limbs) -> Limbs:
        """Return numbers [n, 2k] below N² as cells."""
        cells = np.empty((len(numbers), 3 * self.limbs + 1), dtype=np.uint64)
        loops.enter_cells(self.mpn, self.odd, self.work(), numbers, self._cube, cells)
        return cells

    def values(self, cells: Limbs) -> Limbs:
        """Return what cells stand for [n, 2k]; the cells are lost."""
        numbers = np.empty((len(cells), 2 * self.limbs), dtype=np.uint64)
        loops.cell_values(self.mpn, self.odd, self.work(), cells, numbers)
        return numbers

    def power(self, cells: Limbs, exponent: mpz) -> Limbs:
        """Return what cells stand for, raised [n, 2k]; the cells are lost."""
        digits = np.array([int(exponent >> i & 31) for i in range(0, exponent.bit_length(), 5)][::-1], dtype=np.uint8)
        table = np.empty((32, cells.shape[1]), dtype=np.uint64)
        table[0] = self.one
        loops.power_cells(self.mpn, self.odd, self.work(), cells, digits, table)
        return self.values(cells)

    def split(self, cells: Callable[[slice], Limbs], into: Limbs, threads: int) -> None:
        """Split cells, of which ``cells`` gives any stretch, into rows ``into`` [n, 3, k].

        Raises:
            EncryptionError: a row has a factor in common with N.
        """

        run_in_threads(
            threads, lambda part: self._split(cells(part), into[part]), even_chunks(len(into), threads, _BLOCK)
        )

    def work(self) -> Limbs:
        """Return room for a thread's loops."""
        return scratch_for(self.limbs)

    def _split(self, cells: Limbs, into: Limbs) -> None:
        product, work = to_words(self.radix % self.value, self.limbs), self.work()
        prefixes = np.empty((len(cells), self.limbs), dtype=np.uint64)
        loops.begin_split_cells(self.mpn, self.odd, work, cells, into, prefixes, product)
        try:
            inverse = to_words(gmpy2.invert(from_words(product), self.value), self.limbs)
        except ZeroDivisionError as error:
            raise EncryptionError("a ciphertext has a factor in common with n", code="ciphertext") from error
        loops.finish_split_cells(self.mpn, self.odd, work, into, prefixes, inverse)

    def _factor(self, number: mpz) -> tuple[mpz, mpz]:
        return number % self.value, number % self.value * self._inverse % self.radix


class CellPowerTable:
    """Tables of powers as rows [tables, width, 3, k], for exponents of at most ``bits`` bits.

    Args:
        base: what is raised, a unit modulo N².
        root: N.
        bits: of the longest exponent.
        uses: how many powers are expected; more of them pay for wider digits.
    """

    def __init__(self, base: mpz, root: CellArithmetic, bits: int, *, uses: int, threads: int) -> None:
        self._root, self._bits = root, bits
        self._digit = digit_width(bits, uses, widest=_WIDEST, making=_ENTRY, most=_MEMORY // (24 * root.limbs))
        tables, width = -(-bits // self._digit), 1 << self._digit
        self._table = np.empty((tables, width, 3, root.limbs), dtype=np.uint64)
        units = [base]
        for _ in range(tables - 1):
            units.append(gmpy2.powmod(units[-1], width, root.square))

        def build(table: int) -> None:
            cells = np.empty((width, 3 * root.limbs + 1), dtype=np.uint64)
            cells[0] = root.one
            loops.tabulate_cells(root.mpn, root.odd, root.work(), root.cell(units[table]), cells)
            root.split(cells.__getitem__, self._table[table], 1)

        run_in_threads(threads, build, range(tables))

    def powers(self, exponents: NDArray[np.uint8], start: Limbs) -> Limbs:
        """Raise to big-endian ``exponents`` [n, size]; returns cells, each times the cell ``start``."""
        cells = np.empty((len(exponents), 3 * self._root.limbs + 1), dtype=np.uint64)
        digits = split_digits(exponents[:, ::-1], len(self._table), self._digit)
        loops.table_power_cells(self._root.mpn, self._root.odd, self._root.work(), self._table, digits, start, cells)
        return cells
