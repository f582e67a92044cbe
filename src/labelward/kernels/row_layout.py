"""Layout of a row's integers for encrypted sums: gradients, hessians, a one, and class flags.

Not all of it needs to be stored. Where the gradients of all outputs are known to add up to nothing (softmax), or to
minus one (class shares), the last of them follows from the others; where the hessian is 1 for all rows, the count
stands for it. What is not stored is neither encrypted nor sent. Real numbers become integers with a fixed binary point,
so that sums are exact, and the same under every engine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError
from labelward.jit import jit
from labelward.kernels.class_counts import counts_of_flags, counts_of_gradients

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Implied = Literal["", "zero", "count", "weight"]

_LIMIT = 2.0**63
_MOST_SHIFT = 1000  # a scale stays a finite float64


def to_fixed_point(values: NDArray[np.float64], scale: float) -> NDArray[np.int64]:
    """Return ``values * scale`` rounded half to even; int64 of the same shape.

    Args:
        values: float64 of any shape.
        scale: what stands for 1: a power of two, so that nothing is rounded but the last step. The error of one
            value is at most ``1 / (2 scale)``.

    Raises:
        ValueError: the scale is not a power of two, or a value is not finite or does not fit 63 bits and a
            sign; the message says where the value stands, not what it is, since it may be private.
    """
    if not (math.isfinite(scale) and scale > 0 and math.frexp(scale)[0] == 0.5):
        raise ValueError(f"scale must be a power of two but got {scale}")
    values = np.ascontiguousarray(values, dtype=np.float64)
    out = np.empty(values.shape, dtype=np.int64)
    bad = _encode(values.reshape(-1), float(scale), out.reshape(-1))
    if bad >= 0:
        problem = "does not fit 64 bits" if np.isfinite(values.reshape(-1)[bad]) else "is not finite (NaN or infinite)"
        raise ValueError(f"value at position {bad} {problem} at scale {scale:g}")
    return out


@jit
def _encode(values: NDArray[np.float64], scale: float, out: NDArray[np.int64]) -> int:
    """Fill ``out``; return the first position that cannot be encoded, or -1."""
    for i in range(values.size):
        scaled = np.rint(values[i] * scale)
        if not abs(scaled) < _LIMIT:  # also true of NaN
            return i
        out[i] = np.int64(scaled)
    return -1


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """Meaning of the ``k`` integers of a row (and of sums of rows), in order.

    1. the stored gradients: one for each output, but the last where it is implied;
    2. the hessians: none, one for all outputs, or one for each;
    3. a one, so that sums count rows;
    4. flags of class 1, 2, …, where class counts are needed.

    Attributes:
        implied: what the gradients of all outputs add up to, where that is known: ``"zero"``, or minus the
            ``"count"`` (the gradients' unit is then 1), or minus the ``"weight"``, which is the one hessian (both then
            have one unit). The last gradient is not stored then. ``""``: all are stored.

    Raises:
        ValueError: the values contradict each other.
    """

    outputs: int  # margins of a row, K; at least 1
    hessians: int  # 0 (the count replaces it), 1, or ``outputs``
    implied: Implied = ""
    classes: int = 0  # number of classes C, of which all but the first have flags; 0: no flags

    def __post_init__(self) -> None:
        if self.outputs < 1 or (self.implied and self.outputs < 2):
            raise ValueError(f"outputs must be at least {2 if self.implied else 1} but got {self.outputs}")
        if self.hessians not in (0, 1, self.outputs):
            raise ValueError(f"hessians must be 0, 1 or {self.outputs} but got {self.hessians}")
        if self.implied not in ("", "zero", "count", "weight") or (self.implied == "weight" and self.hessians != 1):
            raise ValueError(f"implied {self.implied!r} does not go with {self.hessians} hessians")
        if self.classes < 0 or self.classes == 1:
            raise ValueError(f"classes must be 0 or at least 2 but got {self.classes}")

    @cached_property
    def stored(self) -> int:
        """Number of stored gradients."""
        return self.outputs - bool(self.implied)

    @cached_property
    def count(self) -> int:
        """Position of the count."""
        return self.stored + self.hessians

    @cached_property
    def first_class(self) -> int:
        """Position of the flag of class 1, present or not."""
        return self.count + 1

    @property
    def flags(self) -> int:
        """Number of classes with flags."""
        return max(0, self.classes - 1)

    @cached_property
    def k(self) -> int:
        """Number of integers per row."""
        return self.first_class + self.flags

    def full(self, sums: Integers) -> tuple[Integers, Integers]:
        """Return gradients int64 [..., K] and hessians int64 [..., max(1, hessians)] of sums int64 [..., k]."""
        self._check(sums)
        gradients, count = sums[..., : self.stored], sums[..., self.count : self.first_class]
        hessians = sums[..., self.stored : self.count] if self.hessians else count
        if self.implied:
            last = -gradients.sum(axis=-1, keepdims=True)
            if self.implied != "zero":
                last -= count if self.implied == "count" else hessians
            gradients = np.concatenate([gradients, last], axis=-1)
        return gradients, hessians

    def class_counts(self, sums: Integers) -> Integers:
        """Return the number of rows of each class: int64 [..., C] of sums int64 [..., k].

        They follow from the flags, or, where there are none, from gradients that are minus the flags.

        Raises:
            ValueError: neither is there.
        """
        self._check(sums)
        if self.classes:
            counts = counts_of_flags(np.ascontiguousarray(sums).reshape(-1, self.k), self.count)
        elif self.implied == "count":
            counts = counts_of_gradients(np.ascontiguousarray(sums).reshape(-1, self.k), self.stored, self.count)
        else:
            raise ValueError("there are no class counts without flags")
        return counts.reshape(*sums.shape[:-1], -1)

    def _check(self, sums: Integers) -> None:
        if sums.shape[-1:] != (self.k,):
            raise ValueError(f"sums must end in {self.k} numbers but have shape {sums.shape}")


@dataclass(frozen=True)
class FixedPointScales:
    """Fixed-point values of 1 in gradients (``g``) and in hessians (``h``): powers of two.

    Raises:
        ValueError: one is not a positive, finite power of two; the message names it.
    """

    g: float
    h: float

    def __post_init__(self) -> None:
        for name, value in (("g", self.g), ("h", self.h)):
            if not (math.isfinite(value) and value > 0 and math.frexp(value)[0] == 0.5):
                raise ValueError(f"scale {name} must be a power of two but got {value}")


def choose_scales(g: Floats, h: Floats, precision: int, *, bounded: bool, implied: Implied = "") -> FixedPointScales:
    """Choose the fixed-point scales, so that the largest value takes ``precision`` bits.

    Args:
        g: float64 [n, K], the gradients of a round.
        h: float64 [n, Q], the hessians; where there are none (Q = 0) the count stands for them, in units of 1.
        precision: bits of a value of 1 where values are bounded by 1, else of the least power of two that no value
            exceeds; 0 to 62.
        bounded: whether all values are known to be at most 1, so that the scale need not depend on them.
        implied: as in :class:`RowLayout`: with ``"count"`` gradients are whole numbers and stand for themselves, with
            ``"weight"`` they share the scale of the hessian.

    Raises:
        DataError: a value is not finite, which means that training diverged.
        ValueError: the precision is out of range.
    """
    if not 0 <= precision <= 62:
        raise ValueError(f"precision must be from 0 to 62 but got {precision}")
    if implied == "count":
        return FixedPointScales(1.0, 1.0)
    least = precision - (0 if bounded else _exponent(g))
    if not h.shape[1]:
        return FixedPointScales(math.ldexp(1.0, least), 1.0)
    shift = precision - (0 if bounded else _exponent(h))
    if implied == "weight":
        least = shift = min(least, shift)
    return FixedPointScales(math.ldexp(1.0, least), math.ldexp(1.0, shift))


def _exponent(values: Floats) -> int:
    """Return the least whole e with all values at most ``2**e`` in size; 0 where all are 0."""
    most = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if not math.isfinite(most):
        reason = (
            "training diverged: a gradient is not finite; a smaller learning_rate or max_delta_step, or a larger "
            "reg_lambda, may help"
        )
        raise DataError(reason, code="diverged", value=most)
    mantissa, exponent = math.frexp(most)
    return max(exponent - (mantissa == 0.5), 62 - _MOST_SHIFT) if most else 0


def encode_rows(numbers: RowLayout, g: Floats, h: Floats, flags: Integers | None, scales: FixedPointScales) -> Integers:
    """Return the integers of each row, int64 [n, k].

    Args:
        g: float64 [n, K]; the last gradient is not encoded where it is implied.
        h: float64 [n, ``numbers.hessians``].
        flags: int64 [n, C - 1]: one-hot classes but the first; None where there are no flags.

    Raises:
        ValueError: shapes do not fit, or a value is not finite or does not fit 64 bits.
    """
    n, columns = len(g), 0 if flags is None else flags.shape[1]
    if g.shape != (n, numbers.outputs) or h.shape != (n, numbers.hessians) or columns != numbers.flags:
        raise ValueError(f"gradients {g.shape}, hessians {h.shape} and {columns} flags do not fit {numbers}")
    rows = np.empty((n, numbers.k), dtype=np.int64)
    rows[:, : numbers.stored] = to_fixed_point(g[:, : numbers.stored], scales.g)
    rows[:, numbers.stored : numbers.count] = to_fixed_point(h, scales.h)
    rows[:, numbers.count] = 1
    if flags is not None:
        rows[:, numbers.first_class :] = flags
    return rows


def number_bounds(numbers: RowLayout, scales: FixedPointScales, g_most: float, h_most: float) -> tuple[int, ...]:
    """Return for each of the k integers of a row the largest size that it can have.

    Args:
        g_most: largest size of a gradient.
        h_most: largest hessian.
    """
    gradient, hessian = math.ceil(g_most * scales.g), math.ceil(h_most * scales.h)
    return (gradient,) * numbers.stored + (hessian,) * numbers.hessians + (1,) * (1 + numbers.flags)
