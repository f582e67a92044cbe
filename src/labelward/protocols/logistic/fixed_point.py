"""Fixed-point numbers of logistic regression, and products of encrypted residuals with a party's columns.

An encoded column has integers of 20 bits, five digits of four bits each. The product of a column with the encrypted
residuals is then a weighted sum of *sums by digit*: for each digit and each of its 15 values that count, the sum of the
residuals of the rows that have it. So an engine that sums rows by group is all that it takes, and a column costs one
addition for each digit that is not 0.

The party masks each of these sums before the owner of the key decrypts them. Where a sum has v bits, a mask of
:data:`_MASK` bits hides it but for 2^(v - _MASK). A residual is split into parts of few bits, so that this is at most
2^-:data:`STATISTICAL`. The owner weighs and adds up what it decrypted, modulo 2^64, and returns one masked number a
column: the sums by digit would tell the other party more about the residuals than the product does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from labelward.he.base import Groups, Layout
from labelward.kernels.encoded_columns import BITS, FRACTION, Codes
from labelward.rng import SecureRandom

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STATISTICAL = 40
"""Bits by which masks are longer than what they hide."""
MOST_ROWS = 1 << 15
"""Rows of the largest batch: products then fit 63 bits."""

MOST_COLUMNS = 1 << 14
"""Encoded columns of a party, at most."""

_DIGIT = 4
_DIGITS = BITS // _DIGIT
_VALUES = (1 << _DIGIT) - 1  # digit values that count
_OFFSET = 1 << (BITS - 1)
_RESIDUAL = 27  # bits of a residual behind the point
_MASK, _SLOT = 61, 62  # bits of a mask, and of a masked sum
_SCORE = 40  # bits of a score behind the point


def fixed_scores(scores: Floats) -> Integers:
    """Return scores as integers that add up modulo 2^64."""
    return np.rint(scores * 2.0**_SCORE).astype(np.int64)


def unfixed_scores(fixed: Integers) -> Floats:
    """Return the numbers that :func:`fixed_scores` encoded."""
    return fixed / 2.0**_SCORE


def fixed_residuals(residuals: Floats) -> Integers:
    """Return probabilities less labels as integers, int64 [rows]."""
    return np.rint(residuals * (1 << _RESIDUAL)).astype(np.int64)


def residual_values(fixed: Integers) -> Floats:
    """Return the numbers that :func:`fixed_residuals` encoded."""
    return fixed / np.float64(1 << _RESIDUAL)


def products(codes: Codes, residuals: Integers) -> Integers:
    """Return the exact products of a party's own columns with residuals that it knows: int64 [columns]."""
    return codes.T.astype(np.int64) @ residuals


def gradient_values(products: Integers) -> Floats:
    """Return products as numbers."""
    return products / 2.0 ** (FRACTION + _RESIDUAL)


@dataclass(frozen=True)
class BatchSums:
    """Sums by digit of one batch.

    Attributes:
        rows: of the batch.
    """

    rows: int

    @cached_property
    def part_bits(self) -> int:
        """Bits of a part of a residual: with so many rows its sums are hidden by masks."""
        return _MASK - STATISTICAL - self.rows.bit_length()

    @cached_property
    def parts(self) -> int:
        """Parts of a residual."""
        return -(-(_RESIDUAL + 1) // self.part_bits)

    @cached_property
    def layout(self) -> Layout:
        """Layout of the encrypted parts, with room for a mask beside the rows of a sum."""
        rows = self.rows + 1
        return Layout(bounds=(((1 << _SLOT) - 1) // rows,) * self.parts, rows=rows, logical=1)

    def shape(self, columns: int) -> tuple[int, int]:
        """Return the shape of the sums of so many encoded columns: columns and digits, values of a digit."""
        return columns * _DIGITS, _VALUES

    def split(self, residuals: Integers) -> Integers:
        """Return the parts of residuals, int64 [rows, parts], the lowest first; only the last can be negative."""
        shifts = self.part_bits * np.arange(self.parts)
        parts = residuals[:, None] >> shifts
        parts[:, :-1] &= (1 << self.part_bits) - 1
        return parts

    @staticmethod
    def groups(codes: Codes) -> Groups:
        """Return by row, and by column and digit, which value the digit has; -1 for 0: int32 [rows, columns·digits]."""
        digits = (codes[:, :, None] + _OFFSET) >> (_DIGIT * np.arange(_DIGITS, dtype=np.int32)) & _VALUES
        return np.ascontiguousarray(digits.reshape(len(codes), -1) - 1, dtype=np.int32)

    def masks(self, columns: int, protection: SecureRandom) -> Integers:
        """Return masks of the sums of so many encoded columns, uniform in 0 to 2^61 - 1: int64 [.., .., parts]."""
        shape = (*self.shape(columns), self.parts)
        drawn = np.frombuffer(protection.bytes(8 * int(np.prod(shape))), dtype="<u8").reshape(shape)
        return (drawn & np.uint64((1 << _MASK) - 1)).astype(np.int64)

    def weighed(self, sums: Integers) -> Integers:
        """Return the sums of each column weighed by digit, value and part, modulo 2^64: int64 [columns]."""
        places = np.uint64(1) << np.uint64(_DIGIT) * np.arange(_DIGITS, dtype=np.uint64)
        values = np.arange(1, _VALUES + 1, dtype=np.uint64)
        parts = np.uint64(1) << np.uint64(self.part_bits) * np.arange(self.parts, dtype=np.uint64)
        columns = np.ascontiguousarray(sums).view(np.uint64).reshape(-1, _DIGITS, _VALUES, self.parts)
        weighed: NDArray[np.uint64] = np.einsum("cdvp,d,v,p->c", columns, places, values, parts)
        return weighed.view(np.int64)

    def opened(self, sums: Integers, residuals: Integers) -> Integers:
        """Return a party's products under its masks from its decrypted sums, at the party that knows the residuals."""
        offset = np.array(_OFFSET * int(residuals.sum()) % (1 << 64), dtype=np.uint64)
        return (self.weighed(sums).view(np.uint64) - offset).view(np.int64)

    def unmasked(self, values: Integers, masks: Integers) -> Integers:
        """Return the products from those under masks: int64 [columns]."""
        return (values.view(np.uint64) - self.weighed(masks).view(np.uint64)).view(np.int64)
