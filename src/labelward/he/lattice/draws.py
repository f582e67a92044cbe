"""Random polynomials from streams of AES-256 in counter mode.

Two kinds of stream that are never mixed: a *public* one, whose seed travels, gives the uniform polynomials of rows and
keys; *secret* ones, each with a fresh key from :class:`~labelward.rng.SecureRandom`, give secrets, errors and masks.

Uniform residues are drawn by rejection: 49 bits, again where they are not below the prime. Errors are the difference
of two sums of 21 fair bits. Secrets and masks are uniform in -1, 0, 1: two bits, again where both are set.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from labelward.he.lattice.ring import ERROR_BITS, PRIMES, WORD_BITS, Bytes, Int8s, Int64s, Reals, vectors
from labelward.jit import jit
from labelward.rng import SecureRandom

SEED_BYTES = 16
_KEY_BYTES = 32
_ZEROS = memoryview(bytes(1 << 16))
_AT_ONCE = 3 << 11  # errors whose words are drawn together, in the nearest cache
_ROUNDS = 10  # words for 64 coefficients in -1, 0, 1, which take 7.8 on average
_SPARE = 64  # words beyond those that are wanted; a rejection has a probability of less than 2^-30


class Stream:
    """Bytes of AES-256 in counter mode under a key that is used once."""

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    @classmethod
    def secret(cls, protection: SecureRandom) -> Stream:
        """Return a new secret stream."""
        return cls(protection.bytes(_KEY_BYTES))

    @classmethod
    def public(cls, seed: bytes, purpose: bytes) -> Stream:
        """Return the stream that a seed fixes; seeds and purposes give independent ones."""
        return cls(hashlib.sha256(b"labelward lattice public " + purpose + b"\0" + seed).digest())

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return so many words of 64 bits."""
        found = np.empty(count, dtype="<u8")
        target: Any = found.view(np.uint8)
        for start in range(0, 8 * count, len(_ZEROS)):
            size = min(len(_ZEROS), 8 * count - start)
            self._cipher.update_into(_ZEROS[:size], target[start : start + size])
        return found

    def uniform(self, polynomials: int, n: int) -> Reals:
        """Return balanced uniform residues [polynomials, 2, n], modulo q0 and q1."""
        out = vectors(polynomials, 2, n)
        for each in out:
            words = self.words(2 * n + _SPARE)
            while _uniform(words, np.array(PRIMES, dtype=np.int64), each) < 0:
                words = np.concatenate([words, self.words(_SPARE)])
        return out

    def errors(self, shape: tuple[int, ...]) -> Int64s:
        """Return independent errors."""
        return self.small_errors(shape).astype(np.int64)

    def small_errors(self, shape: tuple[int, ...]) -> Int8s:
        """Return independent errors in the least memory."""
        out = np.empty(shape, dtype=np.int8)
        flat = out.reshape(-1)
        for start in range(0, len(flat), _AT_ONCE):
            part = flat[start : start + _AT_ONCE]
            _errors(self.words(2 * -(-len(part) // 3)), part)
        return out

    def ternary(self, count: int, n: int) -> Bytes:
        """Return coefficients uniform in -1, 0, 1, as the bits [count, 2, n/8] of those that are 1, -1.

        Bit l of byte i is that of coefficient i + l·n/8; n is a multiple of 64.
        """
        bits = np.empty((count, 2, n // 64), dtype=np.uint64)
        words = self.words(count * n // 64 * _ROUNDS)
        while not _ternary(words, bits):
            words = np.concatenate([words, self.words(len(words))])
        return bits.view(np.uint8)

    def flood(self, bits: int, count: int) -> Int64s:
        """Return integers uniform in [-2^(bits-1), 2^(bits-1)), each from 64 bits of its own."""
        return (self.words(count) >> np.uint64(64 - bits)).astype(np.int64) - (1 << (bits - 1))


@jit
def _uniform(words: NDArray[np.uint64], primes: Int64s, out: Reals) -> int:
    mask, at = np.uint64((1 << WORD_BITS) - 1), 0
    for prime in range(2):
        q = primes[prime]
        for i in range(out.shape[1]):
            while True:
                if at == len(words):
                    return -1
                value = np.int64(words[at] & mask)
                at += 1
                if value < q:
                    break
            out[prime, i] = np.float64(value - q if value > q // 2 else value)
    return at


@jit
def _bit_count(word: np.uint64) -> np.int64:
    w = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    w = (w & np.uint64(0x3333333333333333)) + ((w >> np.uint64(2)) & np.uint64(0x3333333333333333))
    w = (w + (w >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((w * np.uint64(0x0101010101010101)) >> np.uint64(56))


@jit
def _errors(words: NDArray[np.uint64], out: Int8s) -> None:
    """Write an error from the 42 low bits of each word, and one from the 21 next bits of each two words."""
    mask, bits, half = np.uint64((1 << ERROR_BITS) - 1), np.uint64(ERROR_BITS), len(words) // 2
    _differences(words[: len(out)], out)
    rest, low, high = out[len(words) :], words[:half], words[half:]
    for i in range(len(rest)):
        low[i] = low[i] >> (bits + bits) & mask | high[i] >> bits & (mask << bits)
    _differences(low[: len(rest)], rest)


@jit
def _differences(words: NDArray[np.uint64], out: Int8s) -> None:
    mask = np.uint64((1 << ERROR_BITS) - 1)
    for i in range(len(words)):
        plus, minus = words[i] & mask, words[i] >> np.uint64(ERROR_BITS) & mask
        out[i] = _bit_count(plus) - _bit_count(minus)


def signs(bits: Bytes) -> Int8s:
    """Return the coefficients [count, n] that :meth:`Stream.ternary` gives as bits."""
    plus, minus = (
        np.unpackbits(bits[:, which, :, None], axis=2, bitorder="little").astype(np.int8) for which in (0, 1)
    )
    return np.ascontiguousarray((plus - minus).swapaxes(1, 2)).reshape(len(bits), 8 * bits.shape[2])


@jit
def _ternary(words: NDArray[np.uint64], bits: NDArray[np.uint64]) -> bool:
    """Draw two bits for each coefficient until not both are set, 64 coefficients at a time; False: too few words."""
    used = 0
    for each in bits:
        for i in range(each.shape[1]):
            plus, minus, drawn = np.uint64(0), np.uint64(0), ~np.uint64(0)
            while drawn:
                if used == len(words):
                    return False
                plus, minus = plus | words[used] & drawn, minus | words[used + 1] & drawn
                drawn, used = plus & minus, used + 2
                plus, minus = plus & ~drawn, minus & ~drawn
            each[0, i], each[1, i] = plus, minus
    return True
