"""Random shares that a dealer deals: of products, of bits and of zero.

Every party expands its shares from a seed that the dealer drew for it. These are independent and uniform, so that they
do not yet fit; the dealer, which knows all seeds, sends the coordinator one *correction* for each, in the place of its
last share. A correction is what it must be given all other shares: uniform to whoever lacks one of these.

Arithmetic shares add up modulo 2^64, binary ones are added without carry, bit by bit.

Reference: Beaver, Efficient multiparty protocols using circuit randomization (1991); seeds and corrections after Boyle
et al., Efficient two-round OT extension (2019), Section 2, where a dealer is trusted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from labelward.privacy.noise import KeyedDraws

Words = NDArray[np.uint64]

KINDS: dict[str, int] = {"products": 3, "ands": 3, "words": 2, "bits": 2, "zeros": 1, "blanks": 1}
"""Kind of share → how many arrays a party gets of it; the last one is corrected at the coordinator.

``products``: a, b and a·b. ``ands``: the same of bits. ``words``: a word in binary shares, and in arithmetic ones.
``bits``: a bit likewise, of which the lowest place of the binary share counts. ``zeros``, ``blanks``: zero in
arithmetic and in binary shares.
"""
MOST = 1 << 24
"""The most shares of one kind that are asked for at once."""


def drawn(seed: bytes, kind: str, number: int, count: int) -> Words:
    """Return a party's own shares, uint64 [arrays, count]; ``number`` is that of the request, and never recurs."""
    draws = KeyedDraws(seed, kind.encode(), number.to_bytes(8, "little"))
    return draws.words(KINDS[kind] * count).reshape(KINDS[kind], count)


def corrections(seeds: Sequence[bytes], kind: str, number: int, count: int) -> Words:
    """Return the coordinator's last share, uint64 [count]; its seed is the first."""
    parts = [drawn(seed, kind, number, count) for seed in seeds]
    rest, xor = [part[-1] for part in parts[1:]], kind in ("ands", "blanks")
    if kind in ("zeros", "blanks"):
        whole = np.zeros(count, np.uint64)
    elif kind in ("products", "ands"):
        a, b = (mixed([part[at] for part in parts]) if xor else added([part[at] for part in parts]) for at in (0, 1))
        whole = a & b if xor else a * b
    else:
        whole = mixed([part[0] for part in parts])
        whole = whole & np.uint64(1) if kind == "bits" else whole
    return whole ^ mixed(rest) if xor else whole - added(rest)


def added(shares: Sequence[Words]) -> Words:
    """Return the value of arithmetic shares."""
    total: Words = np.sum(shares, axis=0, dtype=np.uint64)
    return total


def mixed(shares: Sequence[Words]) -> Words:
    """Return the value of binary shares."""
    total: Words = np.bitwise_xor.reduce(shares)
    return total
