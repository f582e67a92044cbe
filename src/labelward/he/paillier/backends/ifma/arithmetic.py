"""Numbers in limbs, moduli with their constants, tables of powers (``fixed_base``), and threads, for ``backend``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import accumulate

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he.paillier.backends.ifma import loops, sums
from labelward.he.paillier.backends.ifma.limbs import Limbs, OddModulus, pack_rows, unpack_rows
from labelward.he.paillier.backends.ifma.montgomery_ir import LANES, LEAST, LIMB_BITS
from labelward.he.paillier.fixed_base import digit_width
from labelward.he.threads import run_in_threads

_BLOCK = 1024  # rows that share an inversion, and whose intermediate results stay in the second-level cache
_MEMORY = 80 << 20  # bytes of one base's tables
_WIDEST = 10  # bits of a digit: a table then fits the second-level cache
_ENTRY = 12  # what making an entry costs, in products of a power


def limbs_for(bits: int) -> int:
    """How many limbs hold so many bits; even, and no fewer than the products need."""
    count = -(-bits // LIMB_BITS)
    return max(LEAST, count + count % 2)


def aligned(*shape: int) -> Limbs:
    """Return an empty array on 64 bytes."""
    size = int(np.prod(shape))
    raw = np.empty(size + LANES, dtype=np.uint64)
    start = -raw.ctypes.data % 64 // 8
    return raw[start : start + size].reshape(shape)


def limb_rows(data: bytes | NDArray[np.uint8], size: int, limbs: int) -> Limbs:
    """Split big-endian numbers of ``size`` bytes into rows."""
    array = np.frombuffer(data, dtype=np.uint8) if isinstance(data, bytes) else data
    array = array.reshape(-1, size)
    rows = np.empty((len(array), limbs), dtype=np.uint64)
    unpack_rows(array, rows)
    return rows


def row_bytes(rows: Limbs, size: int) -> bytes:
    """Join settled rows as big-endian numbers of ``size`` bytes."""
    data = np.empty((len(rows), size), dtype=np.uint8)
    pack_rows(rows, data)
    return data.tobytes()


def from_rows(rows: Limbs) -> list[mpz]:
    """Return settled rows as integers."""
    size = rows.shape[1] * LIMB_BITS // 8 + 1
    data = row_bytes(rows, size)
    return [mpz.from_bytes(data[i : i + size], "big") for i in range(0, len(data), size)]


def to_limbs(number: mpz, limbs: int) -> Limbs:
    """Return one number as a row."""
    size = limbs * LIMB_BITS // 8
    row: Limbs = limb_rows(number.to_bytes(size, "big"), size, limbs)[0]
    return row


def to_lanes(rows: Limbs) -> Limbs:
    """Return rows [n, limbs] as lanes [groups, limbs, 8], the last ones padded with zeros."""
    groups = -(-len(rows) // LANES)
    lanes = aligned(groups, rows.shape[1], LANES)
    lanes[-1:] = 0
    for lane in range(LANES):
        part = rows[lane::LANES]
        lanes[: len(part), :, lane] = part
    return lanes


def broadcast(number: mpz, limbs: int) -> Limbs:
    """Return one number in all lanes."""
    lanes: Limbs = to_lanes(np.repeat(to_limbs(number, limbs)[None], LANES, axis=0))[0]
    return lanes


def lane_chunks(count: int, threads: int, most: int = 1 << 30) -> list[slice]:
    """Cut range(count) into stretches for threads: multiples of eight, none longer than ``most``."""
    length = min(most, -(-count // (LANES * threads)) * LANES)
    return [slice(start, min(start + length, count)) for start in range(0, count, length or 1)]


class MontgomeryModulus:
    """An odd modulus: ``limbs`` of it, and ``rows`` of a factor (that is ``limbs`` made even).

    Results of products are below a few times the modulus, for which it has three spare bits.
    """

    def __init__(self, value: mpz, limbs: int | None = None) -> None:
        self.value = value
        self.limbs = limbs or max(LEAST, -(-(value.bit_length() + 3) // LIMB_BITS))
        self.rows = self.limbs + self.limbs % 2
        self.radix = mpz(1) << (LIMB_BITS * self.rows)
        inverse = -gmpy2.invert(value, 1 << LIMB_BITS) % (1 << LIMB_BITS)
        self.odd = OddModulus(to_limbs(value, self.limbs), np.uint64(int(inverse)))

    @cached_property
    def one(self) -> Limbs:
        """1 in Montgomery's form, in all lanes."""
        return broadcast(self.radix % self.value, self.limbs)

    @cached_property
    def squared(self) -> Limbs:
        """What brings a number into Montgomery's form, as a factor."""
        return broadcast(self.radix**2 % self.value, self.rows)


class LaneArithmetic:
    """N with N², and how to split numbers modulo N² (``sums``)."""

    def __init__(self, value: mpz) -> None:
        # 14 spare bits: sums of 500 l stay within t limbs
        self.rows = limbs_for(value.bit_length() + 14)
        self.value, self.modulus, self.square = value, MontgomeryModulus(value, self.rows), MontgomeryModulus(value**2)
        self.radix = self.modulus.radix

    def split(self, rows: Callable[[slice], Limbs], out: Limbs, threads: int) -> None:
        """Split rows, of which ``rows`` gives any stretch as [n, limbs of N²], into ``out`` [count, 2, t].

        Raises:
            EncryptionError: a row has a factor in common with N.
        """

        run_in_threads(threads, lambda part: self._split(rows(part), out[part]), lane_chunks(len(out), threads, _BLOCK))

    def _split(self, rows: Limbs, out: Limbs) -> None:
        root = self.modulus
        found = aligned(-(-len(rows) // LANES), 3, self.rows, LANES)
        total = sums.begin_split_rows(rows, root.odd, root.one, found)
        totals = from_rows(np.ascontiguousarray(total.T))
        prefixes = list(accumulate(totals, lambda x, y: x * y % self.value, initial=mpz(1)))
        try:
            inverse = self.value - gmpy2.invert(prefixes.pop(), self.value)
        except ZeroDivisionError as error:
            raise EncryptionError("a ciphertext has a factor in common with n", code="ciphertext") from error
        inverted = []
        for number in reversed(totals):
            inverted.append(to_limbs(inverse * prefixes.pop() % self.value, self.rows))
            inverse = inverse * number % self.value
        lanes = to_lanes(np.stack(inverted[::-1]))[0]
        sums.finish_split_rows(found, lanes, root.odd, out)


class PowerTable:
    """Tables of split powers [tables, width, 2, t] for exponents of at most ``bits`` bits.

    Args:
        base: what is raised, a unit modulo N².
        root: N.
        bits: of the longest exponent.
        uses: how many powers are expected; more of them pay for wider digits.
    """

    def __init__(self, base: mpz, root: LaneArithmetic, bits: int, *, uses: int, threads: int) -> None:
        self._root = root
        self._digit = digit_width(bits, uses, widest=_WIDEST, making=_ENTRY, most=_MEMORY // (16 * root.rows))
        tables, width = -(-bits // self._digit), 1 << self._digit
        square, units = root.square, [base]
        for _ in range(tables - 1):
            units.append(gmpy2.powmod(units[-1], width, square.value))
        scaled = np.stack([to_limbs(unit * square.radix % square.value, square.rows) for unit in units])
        lanes = to_lanes(scaled)
        # R² makes up for the R that splitting takes away, and for that which a product divides by
        start = broadcast(root.radix**2 % square.value, square.limbs)
        full = np.empty((len(lanes) * LANES, width, square.limbs), dtype=np.uint64)

        def build(group: int) -> None:
            into = full[group * LANES : (group + 1) * LANES]
            loops.tabulate_lanes(lanes[group], start, square.odd, width, into)

        run_in_threads(threads, build, range(len(lanes)))
        entries = full[:tables].reshape(-1, square.limbs)
        self._table = np.empty((tables, width, 2, root.rows), dtype=np.uint64)
        root.split(entries.__getitem__, self._table.reshape(-1, 2, root.rows), threads)

    def powers(self, exponents: NDArray[np.uint8]) -> tuple[Limbs, Limbs]:
        """Raise to big-endian ``exponents`` [n, size]: products [groups, k, 8] and totals [groups, 8, t].

        A power is product · (1 + N·total); the totals are not settled.
        """
        groups, square = -(-len(exponents) // LANES), self._root.square
        products, totals = aligned(groups, square.limbs, LANES), np.empty((groups, LANES, self._root.rows), np.uint64)
        digits = np.empty((len(self._table), len(exponents)), dtype=np.uint16)
        loops.cut_digits(exponents, self._digit, digits)
        loops.table_power_lanes(self._table, digits, square.odd, products, totals)
        return products, totals
