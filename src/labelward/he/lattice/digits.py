"""From a layout to digits, step and flooding: what both sides derive, and never read from each other.

A sum is decrypted as step·(sum of digits) + noise, modulo q0. The noise is bounded by eight standard deviations of what
is nearly normal (rounding and packing) and by half the range of the flooding, which is uniform. The step is at least
twice that bound, so the digit sums of one sum have room for q0/step values.

A number is written with balanced digits of ``width`` bits, lowest first; the highest takes what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from labelward.errors import EncryptionError
from labelward.he._validate import check_layout
from labelward.he.base import Integers, Layout
from labelward.he.lattice.ring import ERROR_VARIANCE, Q0, Q1, SECRET_VARIANCE

#: Sums that share a packed polynomial.
PACKED = 32
#: Standard deviations that count as a bound.
DEVIATIONS = 8
#: log2 of flooding over the bound of what it hides: what is compulsory, and what is taken where it costs no digit.
LEAST_FLOOD, BEST_FLOOD = 40, 44


@dataclass(frozen=True, kw_only=True)
class Digits:
    """Encoding of the numbers of one layout.

    Attributes:
        width: bits of a digit.
        counts: digits of each number.
        step: distance of two digit sums modulo q0.
        most: the largest digit sum, in absolute value.
        flood: bits of the range of the flooding.
        spacing: of the layout (:mod:`.spaced`).
    """

    width: int
    counts: tuple[int, ...]
    step: int
    most: int
    flood: int
    spacing: int = 1

    @property
    def total(self) -> int:
        """Digits of a row."""
        return sum(self.counts)

    def split(self, values: Integers) -> Integers:
        """Return int64 ``values[n, k]`` as digits [n, total]."""
        out = np.empty((len(values), self.total), dtype=np.int64)
        at, half = 0, 1 << (self.width - 1)
        for column, count in enumerate(self.counts):
            left = values[:, column]
            for _ in range(count - 1):
                digit = ((left + half) & (2 * half - 1)) - half
                out[:, at] = digit
                left, at = (left - digit) >> self.width, at + 1
            out[:, at] = left
            at += 1
        return out

    def join(self, sums: Integers) -> Integers:
        """Return sums of digits [n, total] as sums of numbers [n, k].

        Raises:
            EncryptionError: digit sums that no rows of the layout have, or whose number leaves 63 bits.
        """
        if sums.size and int(np.abs(sums).max()) > self.most:
            raise EncryptionError("a decrypted digit lies beyond what the rows can give", code="capacity")
        out, at = np.empty((len(sums), len(self.counts)), dtype=np.int64), 0
        for column, count in enumerate(self.counts):
            number = sums[:, at + count - 1].copy()
            for digit in range(count - 2, -1, -1):
                if number.size and int(np.abs(number).max()) > ((1 << 62) + self.most) >> self.width:
                    raise EncryptionError("a decrypted number leaves 63 bits", code="capacity")
                number = (number << self.width) + sums[:, at + digit]
            out[:, column] = number
            at += count
        return out


def sums_together(n: int, spacing: int) -> int:
    """Return how many sums share a packed polynomial: 32, or those of as many windows of R sums as it has room for."""
    return n // (n // PACKED + spacing - 1) * spacing


@cache
def places(n: int, spacing: int) -> Integers:
    """Return the coefficients of the sums that share a packed polynomial."""
    window = np.arange(sums_together(n, spacing) // spacing, dtype=np.int64) * (n // PACKED + spacing - 1)
    return np.ascontiguousarray((window[:, None] + np.arange(spacing)).reshape(-1))


def noise_deviation(n: int) -> float:
    """Return the standard deviation of the noise of a packed sum besides its flooding.

    Two roundings reach the result times a ternary secret, and each chunk of each packed sum times an error of the keys.
    """
    roundings = 2 * (n * SECRET_VARIANCE + 1) / 12
    return math.sqrt(roundings + ERROR_VARIANCE * n * PACKED / 12)


def known_noise(rows: int, n: int) -> float:
    """Return the bound of the noise of an unsealed sum that the key owner knows, or can know in part."""
    return DEVIATIONS * math.sqrt(ERROR_VARIANCE * (rows + 2 * n * SECRET_VARIANCE))


def flood_bits(rows: int, n: int, hiding: int) -> int:
    """Return the bits of the flooding's range: a power of two, 2^``hiding`` times the bound or more."""
    return math.ceil(math.log2(known_noise(rows, n))) + hiding


def step_size(flood: int, n: int) -> int:
    """Return twice the bound of the noise of a sealed sum, rounded up."""
    return 2 * math.ceil((1 << flood) / 2 / Q1 + DEVIATIONS * noise_deviation(n)) + 2


@lru_cache(maxsize=256)  # layouts come with messages
def digits_of(layout: Layout, n: int) -> Digits:
    """Return the encoding of a layout at ring degree ``n``; :class:`EncryptionError` where the rows have no room."""
    check_layout(layout)
    found = _encoding(layout, n, LEAST_FLOOD)
    if found is None:
        raise EncryptionError(f"{layout.rows} rows leave no room for a digit", code="capacity", value=layout.rows)
    for hiding in range(BEST_FLOOD, LEAST_FLOOD, -1):
        better = _encoding(layout, n, hiding)
        if better is not None and better.total == found.total:
            return better
    return found


def _encoding(layout: Layout, n: int, hiding: int) -> Digits | None:
    """Return the encoding with 2^hiding of flooding; None where no digit of two bits fits."""
    rows = max(1, layout.rows)
    flood = flood_bits(rows * layout.spacing, n, hiding)  # a coefficient has the errors of that many rows
    step = step_size(flood, n) if flood <= 63 else Q0
    most = (Q0 // step - 1) // 2
    width = (most // rows).bit_length()  # so that rows · 2^(width - 1) ≤ most
    if width < 2:
        return None
    counts = tuple(_digit_count(bound, width, most // rows) for bound in layout.bounds)
    return Digits(width=width, counts=counts, step=step, most=most, flood=flood, spacing=layout.spacing)


def _digit_count(bound: int, width: int, most: int) -> int:
    """Return how many digits a number of at most ``bound`` takes, where the highest may be up to ``most``."""
    count, left = 1, bound
    while left > most:
        left, count = (left + (1 << (width - 1))) >> width, count + 1
    return count
