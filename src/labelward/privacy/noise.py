"""Keyed noise: determined by a secret key and a context, for many values at once.

A gradient that is requested again by a resumed run must get the same noise as before: two
noises on one number are less than one. So draws come from SHAKE-256 over a key, which the operating system drew, and a
context (the party, the step and the number that is to be hidden): equal contexts give equal noise, others give noise
that nobody without the key can tell from independent draws.

What floating-point numbers do not guarantee: the draws are float64 transformations of 64-bit whole numbers, so that
some sums cannot occur and the last bits of a sum tell of the number below the noise (Mironov, CCS 2012). Adding on a
grid (:func:`on_grid`) hides the last bits: neighboring sums fall together. That is a remedy against the known attack
and no proof: the bounds of :mod:`.gaussian` are those of exact arithmetic. No draw lies further out than 9.5
deviations (Gaussian) or 45 scales (Laplace), of which exact noise has a share below 1e-19.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

KEY_BYTES = 32
_FINENESS = 2.0**-12  # of a grid, against the noise that is added: its rounding adds 1e-8 of the noise's variance


class KeyedDraws:
    """Draws of one context; each call gives the next ones.

    Args:
        key: ``KEY_BYTES`` secret bytes.
        context: what the draws are for; each piece is told apart from its neighbors.
    """

    def __init__(self, key: bytes, *context: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
        self._stem = hashlib.shake_256(key)
        for piece in context:
            self._stem.update(len(piece).to_bytes(8, "little") + piece)
        self._calls = 0

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return uint64 [count], uniform."""
        stream = self._stem.copy()
        stream.update(self._calls.to_bytes(8, "little"))
        self._calls += 1
        return np.frombuffer(stream.digest(8 * count), dtype="<u8")

    def order(self, count: int) -> NDArray[np.int64]:
        """Return the numbers below ``count`` in random order, int64 [count]."""
        return np.argsort(self.words(count), kind="stable").astype(np.int64)

    def laplace(self, count: int, scale: float) -> NDArray[np.float64]:
        """Return float64 [count] of density exp(-abs(x) / scale) / (2 scale); the deviation is scale * sqrt(2)."""
        words = self.words(count)
        size = -scale * np.log(_uniform(words >> np.uint64(1), 63))
        signed: NDArray[np.float64] = np.where(words & np.uint64(1), size, -size)
        return signed

    def gaussian(self, count: int, deviation: float) -> NDArray[np.float64]:
        """Return float64 [count], normal around 0."""
        pairs = (count + 1) // 2
        radius = deviation * np.sqrt(-2 * np.log(_uniform(self.words(pairs), 64)))
        angle = 2 * math.pi * _uniform(self.words(pairs), 64)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def on_grid(values: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Return noisy values rounded to multiples of a power of two, 4,096 times or more finer than the noise.

    Args:
        noise: scale of the noise that they carry; the grid depends on nothing else.
    """
    step = 2.0 ** math.floor(math.log2(noise * _FINENESS))
    rounded: NDArray[np.float64] = np.round(values / step) * step
    return rounded


def _uniform(words: NDArray[np.uint64], bits: int) -> NDArray[np.float64]:
    """Return float64 [count] within (0, 1]: the middles of 2**bits equal pieces."""
    uniform: NDArray[np.float64] = (words.astype(np.float64) + 0.5) * 2.0**-bits
    return uniform
