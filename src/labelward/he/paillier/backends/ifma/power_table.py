"""Powers of one base by tables, eight at a time; see ``fixed_base`` for the method."""

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.he.paillier.backends.ifma import loops
from labelward.he.paillier.backends.ifma.arithmetic import LaneArithmetic, aligned, broadcast, to_lanes, to_limbs
from labelward.he.paillier.backends.ifma.limbs import Limbs
from labelward.he.paillier.backends.ifma.montgomery_ir import LANES
from labelward.he.paillier.fixed_base import digit_width
from labelward.he.paillier.threads import run_in_threads

_MEMORY = 80 << 20  # bytes of one base's tables
_WIDEST = 10  # bits of a digit: a table then fits the second-level cache
_ENTRY = 12  # what making an entry costs, in products of a power


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
