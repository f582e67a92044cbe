"""Blinded ids: points of Curve25519 times a secret, which two parties can compare and neither can invert.

An id's digest becomes a point by hashing, and a party multiplies points by its secret (RFC 7748, first coordinates
only). Multiplications commute, so that equal ids blinded by both parties give equal points, in whichever order. That
is the Diffie-Hellman protocol for intersections (Meadows 1986; Huberman, Franklin and Hogg 1999).

Security. Without the secret blinded points look like random ones, also to whoever can list all ids there may be, if
the decisional Diffie-Hellman problem is hard on the curve and the hash is a random oracle. Two details matter. Half of
all numbers are first coordinates of the curve's twist instead, on which products stay; a blinded point would tell
that bit of the hash, which whoever lists ids could test. So hashes are drawn until one is on the curve, and points of
others that are not are refused. And secrets are multiples of the cofactor 8, so that a product tells nothing of the
secret modulo 8 and points of small order, which give 0, are found out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final

POINT: Final = 32
"""Bytes of a point."""
_PART: Final = 256
"""Points that a process multiplies at once."""
_PRIME: Final = 2**255 - 19
_COEFFICIENT: Final = 486662  # of Montgomery's form: v² = u³ + 486662 u² + u


class IdBlinding:
    """A party's secret for one comparison of ids.

    Args:
        secret: 32 random bytes.
        pool: processes that multiply; None: this one does.
    """

    def __init__(self, secret: bytes, pool: Executor | None = None) -> None:
        self._secret, self._pool = secret, pool

    def blind(self, digests: Iterable[bytes]) -> list[bytes]:
        """Return the blinded points of ids that are given by their digests, in the same order."""
        return self._share(_blind, list(digests))

    def blind_again(self, points: bytes) -> list[bytes]:
        """Return points that another party blinded, blinded by this one too, in the same order.

        Raises:
            ValueError: a point is not on the curve, or is of small order.
        """
        return self._share(_blind_again, list(split_points(points)))

    def _share(self, work: Callable[[bytes, Sequence[bytes]], list[bytes]], items: Sequence[bytes]) -> list[bytes]:
        if self._pool is None:
            return work(self._secret, items)
        parts = [items[at : at + _PART] for at in range(0, len(items), _PART)]
        return [point for part in self._pool.map(partial(work, self._secret), parts) for point in part]


def _blind(secret: bytes, digests: Sequence[bytes]) -> list[bytes]:
    return _multiply(secret, map(_hashed, digests))


def _blind_again(secret: bytes, points: Sequence[bytes]) -> list[bytes]:
    if not all(map(_is_point, points)):
        raise ValueError("not on the curve")
    return _multiply(secret, points)


def _multiply(secret: bytes, points: Iterable[bytes]) -> list[bytes]:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    key = X25519PrivateKey.from_private_bytes(secret)
    return [key.exchange(X25519PublicKey.from_public_bytes(point)) for point in points]


def split_points(points: bytes) -> Iterator[bytes]:
    """Yield the points that stand one after the other."""
    return (points[at : at + POINT] for at in range(0, len(points), POINT))


def _hashed(digest: bytes) -> bytes:
    """Return the first hash of digest and counter that is a point."""
    counter = 0
    while True:
        hashed = bytearray(hashlib.sha256(digest + counter.to_bytes(2, "little")).digest())
        hashed[-1] &= 0x7F
        if _is_point(hashed):
            return bytes(hashed)
        counter += 1


def _is_point(coordinate: bytes | bytearray) -> bool:
    """Return whether 32 bytes are a point's first coordinate, written as RFC 7748 does; 0 is none."""
    import gmpy2

    u = gmpy2.mpz(int.from_bytes(coordinate, "little"))
    return len(coordinate) == POINT and u < _PRIME and gmpy2.legendre(u * (u * (u + _COEFFICIENT) + 1), _PRIME) == 1
