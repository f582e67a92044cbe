"""Two kinds of randomness, both handed in and never global.

*Learning* draws (row and column samples, k-means starts) come from :func:`learning`: a generator that is a
pure function of seed, party, index and purpose, so that thread timing cannot change a run and a resumed run
draws what the undisturbed one drew.

*Protection* draws (keys, ciphertext randomness, noise of a privacy mechanism) come from
:class:`Protection`, which asks the operating system. A test may seed it; ``seeded`` then says so, transcripts record it
and an audit refuses it.
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np

__all__ = ["Protection", "learning"]


def learning(seed: int, party: str, index: int, purpose: str) -> np.random.Generator:
    """Return the generator for one purpose of one party at one tree, epoch or start.

    Different arguments give independent streams (the key is hashed with SHA-256).
    """
    key = f"{seed}\x1f{party}\x1f{index}\x1f{purpose}".encode()
    words = np.frombuffer(hashlib.sha256(key).digest(), dtype=np.uint32)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words.tolist())))


class Protection:
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
