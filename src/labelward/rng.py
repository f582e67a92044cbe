"""Three kinds of randomness, all handed in and never global.

*Learning* draws (row and column samples, k-means starts) come from :func:`learning`: a generator that is a
pure function of seed, party, index and purpose, so that thread timing cannot change a run and a resumed run
draws what the undisturbed one drew. Every party can repeat them, so none may depend on labels or on a party's
data, but where a rehearsal deals out columns by importance.

*Private* learning draws (which rows are set aside for testing, rows sampled by their gradients, initial weights of a
network) come from a
:class:`PrivateSeed`: a secret that one party keeps for as long as it keeps the run, so that it can repeat the draws and
nobody else can.

*Protection* draws (keys, ciphertext randomness, noise of a privacy mechanism) come from
:class:`SecureRandom`, which asks the operating system. A test may seed it; ``seeded`` then says so, transcripts record
it and an audit refuses it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


def learning(seed: int, party: str, index: int, purpose: str) -> np.random.Generator:
    """Return the generator for one purpose of one party at one tree, epoch or start.

    Different arguments give independent streams (the key is hashed with SHA-256).
    """
    return keyed(hashlib.sha256(f"{seed}\x1f{party}\x1f{index}\x1f{purpose}".encode()).digest())


def column_sample(seed: int, party: str, tree: int, columns: int, fraction: float) -> NDArray[np.int64]:
    """Return the positions of the columns that a party with columns draws for one tree, ascending; at least one."""
    draws = learning(seed, party, tree, "columns")
    return np.sort(draws.choice(columns, max(1, int(fraction * columns)), replace=False))


def keyed(key: bytes) -> np.random.Generator:
    """Return the generator that 32 bytes fix."""
    words = np.frombuffer(key, dtype=np.uint32)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words.tolist())))


class PrivateSeed:
    """A secret of 32 bytes from which one party draws what others must not be able to repeat.

    Args:
        secret: 32 bytes from the system (:meth:`drawn`), or those of an earlier run that is to be repeated.
    """

    SIZE: ClassVar[int] = 32

    def __init__(self, secret: bytes) -> None:
        if len(secret) != self.SIZE:
            raise ValueError(f"a private seed has {self.SIZE} bytes, not {len(secret)}")
        self._secret = secret

    @classmethod
    def drawn(cls, protection: SecureRandom | None = None) -> PrivateSeed:
        """Return a new one from the operating system, or from ``protection``."""
        return cls((protection or SecureRandom()).bytes(cls.SIZE))

    @classmethod
    def from_hex(cls, text: str) -> PrivateSeed:
        """Return what :meth:`hex` gave; ValueError for anything else."""
        return cls(bytes.fromhex(text))

    def hex(self) -> str:
        """Return the secret as text, for its owner's files only."""
        return self._secret.hex()

    def keyed(self, digest: bytes) -> bytes:
        """Return a digest keyed with the secret, which nobody else can test guesses against."""
        return hmac.digest(self._secret, b"digest" + digest, "sha256")

    def learning(self, seed: int, index: int, purpose: str) -> np.random.Generator:
        """Return the generator for one purpose at one tree, epoch or start of the run with a seed."""
        return keyed(self.key(seed, index, purpose))

    def key(self, seed: int, index: int, purpose: str) -> bytes:
        """Return the 32 bytes that fix :meth:`learning`; they reveal nothing about the secret or other keys."""
        key = hashlib.sha256(f"{seed}\x1f{index}\x1f{purpose}".encode()).digest()
        return hmac.digest(self._secret, key, "sha256")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrivateSeed) and hmac.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return hash(self._secret)

    def __repr__(self) -> str:
        return "PrivateSeed(...)"  # a log must not hold the secret


class SecureRandom:
    """A source of randomness that protects something.

    Args:
        seed: for tests only. Without it every draw comes from the operating system.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._test_stream = None if seed is None else learning(seed, "", 0, "protection (test)")

    @property
    def seeded(self) -> bool:
        """Whether a test seeded this source; such a run protects nothing."""
        return self._test_stream is not None

    def bytes(self, count: int) -> bytes:
        """Return ``count`` random bytes."""
        if self._test_stream is None:
            return secrets.token_bytes(count)
        return self._test_stream.bytes(count)

    def below(self, bound: int) -> int:
        """Return an integer drawn uniformly from ``range(bound)``; ``bound`` must be positive."""
        if bound <= 0:
            raise ValueError(f"bound must be positive but got {bound}")
        size, excess = (bound.bit_length() + 7) // 8, -bound.bit_length() % 8
        while True:  # rejection keeps the draw exactly uniform; two rounds on average at most
            draw = int.from_bytes(self.bytes(size), "little") >> excess
            if draw < bound:
                return draw
