"""The k numbers of a row as one signed plaintext, and the sums of several groups in one ciphertext.

A row is m = Σ v_j · 2^(offset_j), a signed total; slot j is wide enough for its largest sum and its sign
(:meth:`Layout.widths`), so that sums never carry into a neighbor and no row count is needed to decode them. Where the
slots of one row exceed a plaintext, the row is split into *parts* of consecutive slots, each a ciphertext of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he.base import Integers, Layout

_WORD = (1 << 32) - 1
_OUTSIDE = "a decrypted plaintext holds digits outside its slots"


@dataclass(frozen=True, kw_only=True)
class PackedPart:
    """Consecutive slots that share a ciphertext."""

    start: int  # the first of its numbers; it holds as many as there are ``widths``
    widths: tuple[int, ...]  # bits of each slot, lowest first
    fit: int  # how many rows or sums one plaintext can hold, one beside the other

    @property
    def width(self) -> int:
        """Bits of one row."""
        return sum(self.widths)

    @property
    def offsets(self) -> list[int]:
        """The lowest bit of each slot."""
        return [sum(self.widths[:j]) for j in range(len(self.widths))]

    def encode(self, values: Integers, size: int) -> bytes:
        """Return the plaintext of each row of ``values[n, k]`` in ``size`` bytes, big-endian and signed."""
        words = -(-8 * size // 32)
        sums = np.zeros((words + 3, len(values)), dtype=np.int64)  # in words of 32 bits, lowest first, unsettled
        for j, offset in enumerate(self.offsets):
            value, (word, shift) = values[:, self.start + j], divmod(offset, 32)
            low, high = (value & _WORD) << shift, (value >> 32) << shift
            # the low part, as a number without sign, may reach the highest bit
            sums[word] += low & _WORD
            sums[word + 1] += (low >> 32 & _WORD) + (high & _WORD)
            sums[word + 2] += high >> 32
        for word in range(words):
            sums[word + 1] += sums[word] >> 32
        settled = (sums[:words] & _WORD).astype(">u4")[::-1].T
        return np.ascontiguousarray(settled).view(np.uint8).reshape(len(values), 4 * words)[:, -size:].tobytes()

    def encode_sums(self, values: Integers, size: int) -> bytes:
        """Return plaintexts of :attr:`fit` sums each, the first one lowest, as :meth:`encode` of one long row."""
        own = values[:, self.start : self.start + len(self.widths)]
        beside = np.zeros((-(-len(own) // self.fit) * self.fit, len(self.widths)), dtype=np.int64)
        beside[: len(own)] = own
        row = PackedPart(start=0, widths=self.widths * self.fit, fit=1)
        return row.encode(beside.reshape(-1, len(row.widths)), size)

    def decode(self, plaintexts: Sequence[mpz], entries: int, fit: int) -> Integers:
        """Return int64 [entries, slots] of signed plaintexts that hold ``fit`` entries each, the first one lowest.

        Raises:
            EncryptionError: a plaintext holds more than its entries.
        """
        halves = [1 << (width - 1) for width in self.widths]
        # lifting every slot by half its range makes all digits positive: no borrow runs between them
        lift = sum(half << offset for half, offset in zip(halves, self.offsets, strict=True))
        lifts, size = sum(lift << (self.width * j) for j in range(fit)), -(-self.width * fit // 8)
        try:
            data = b"".join((number + lifts).to_bytes(size + 8, "little") for number in plaintexts)
        except OverflowError as error:
            raise EncryptionError(_OUTSIDE, code="capacity") from error
        rows = np.frombuffer(data, dtype=np.uint8).reshape(len(plaintexts), size + 8)
        found = np.empty((len(plaintexts), fit, len(halves)), dtype=np.int64)
        for j in range(fit):
            for slot, (offset, width) in enumerate(zip(self.offsets, self.widths, strict=True)):
                found[:, j, slot] = _digits(rows, self.width * j + offset, width)
        found -= np.array(halves, dtype=np.int64)
        flat = found.reshape(-1, len(halves))
        last, above = divmod(self.width * fit, 8)
        if (rows[:, last] >> above).any() or rows[:, last + 1 :].any() or flat[entries:].any():
            raise EncryptionError(_OUTSIDE, code="capacity")
        return np.ascontiguousarray(flat[:entries])


def _digits(rows: NDArray[np.uint8], offset: int, width: int) -> Integers:
    """Return ``width`` bits, 63 at most, of each little-endian row from bit ``offset`` on."""
    byte, shift = divmod(offset, 8)
    words = np.ascontiguousarray(rows[:, byte : byte + 8]).view("<u8")[:, 0] >> np.uint64(shift)
    if shift + width > 64:
        words |= rows[:, byte + 8].astype(np.uint64) << np.uint64(64 - shift)
    return (words & np.uint64((1 << width) - 1)).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Packing:
    """How a layout lies in plaintexts of a key; both sides derive it, and it never travels."""

    parts: tuple[PackedPart, ...]

    @staticmethod
    @lru_cache(maxsize=256)
    def of(layout: Layout, bits: int) -> Packing:
        """Return the packing for keys of ``bits`` bits: signed totals below 2^(bits-2), thus below n/2."""
        capacity, widths = bits - 2, layout.widths()
        parts, start = [], 0
        while start < len(widths):
            stop = start + 1
            while stop < len(widths) and sum(widths[start : stop + 1]) <= capacity:
                stop += 1
            chosen = widths[start:stop]
            parts.append(PackedPart(start=start, widths=chosen, fit=capacity // sum(chosen)))
            start = stop
        return Packing(parts=tuple(parts))
