"""Key material: what the owner of a key draws, and what travels of it.

With secrets s_k and z_k (k < S), all independent and uniform in -1, 0, 1:

- *public elements* (p1_m, p0_mk = p1_m·s_k + e), for M masks that share one u;
- *packing keys* (w_j, v_jk = w_j·z_k + e + q1·(chunk j of s_k)), for r chunks. The s_k are encrypted under the z_k and
  nothing under the s_k, so no assumption on circular encryption is made.

p1 and w are uniform and follow from a seed. They travel as in ``words.py``: p0 as coefficients, v as values.

A key that serves own sums alone (:mod:`.own_sums`) is one secret, one public element and no packing key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labelward.errors import EncryptionError
from labelward.he.lattice import loops
from labelward.he.lattice.digits import PACKED
from labelward.he.lattice.draws import SEED_BYTES, Stream, signs
from labelward.he.lattice.ring import PRIMES, Int64s, Reals, Ring, ring, vectors
from labelward.he.lattice.words import pack, packed_size, unpack
from labelward.rng import SecureRandom

#: Formats of a key that serves rows, and of one that serves own sums alone.
FORMAT, SUMS_FORMAT = 1, 2
#: Masks of one u.
MASKS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicElements:
    """What hides a sum and packs it.

    Attributes:
        ring: of all polynomials.
        masks: the p1 [M, 2, n], as values.
        bodies: the p0 [M, S, 2, n], as values.
        rotated: the p0, for their products' constant coefficients (:func:`~labelward.he.lattice.loops.rotate`).
        packing: [r, 1 + S, 2, n]: w and v, as values; none of a key that serves own sums alone.
        data: all of it, as it travels.
    """

    ring: Ring
    masks: Reals
    bodies: Reals
    rotated: Int64s
    packing: Reals
    data: bytes

    @property
    def secrets(self) -> int:
        """S."""
        return int(self.bodies.shape[1])

    def require_rows(self) -> None:
        """Refuse rows under a key that serves own sums alone; :class:`EncryptionError`."""
        if not len(self.packing):
            raise EncryptionError("this key serves sums that a party computed itself, not rows", code="unsupported")


@dataclass(frozen=True, kw_only=True, eq=False)
class Secrets:
    """Values of the secrets; nothing here can be encoded.

    Attributes:
        rows: of the s_k [S, 2, n].
        packing: of the z_k [S, n], modulo q0.
    """

    rows: Reals
    packing: Reals


class _Numbers(NamedTuple):
    """How many elements a public key has: secrets, masks and packing keys."""

    secrets: int
    masks: int
    packed: int

    @classmethod
    def of(cls, secrets: int, *, rows: bool) -> _Numbers:
        return cls(secrets, MASKS, PACKED) if rows else cls(1, 1, 0)

    def size(self, n: int) -> int:
        """Return the bytes of a public key."""
        return 1 + SEED_BYTES + sum(packed_size(each * self.secrets * 2 * n) for each in (self.masks, self.packed))


def material_size(n: int, secrets: int) -> int:
    """Return the bytes of a public key that serves rows."""
    return _Numbers.of(secrets, rows=True).size(n)


def draw_keys(n: int, secrets: int, protection: SecureRandom, *, rows: bool = True) -> tuple[Secrets, PublicElements]:
    """Draw secrets and public elements; ``rows``: whether the key serves more than own sums, which take one secret."""
    number, form = _Numbers.of(secrets, rows=rows), FORMAT if rows else SUMS_FORMAT
    secrets = number.secrets
    made, stream, seed = ring(n), Stream.secret(protection), protection.bytes(SEED_BYTES)
    s, z = (signs(stream.ternary(secrets, n)).astype(np.int64) for _ in range(2))
    s_values, z_values = (transformed(made, each) for each in (s, z))
    p1, w = _public_uniform(seed, n, number)
    errors = stream.errors((number.masks, secrets, n))
    p0 = _to_coefficients(made, _products(made, p1[:, None], s_values[None])) + errors[:, :, None]
    data = bytes([form]) + seed + pack(unsigned(p0))
    if rows:
        v = _products(made, w[:, None], z_values[None]) + transformed(made, stream.errors((PACKED, secrets, n)))
        v += _chunk_values(made, s)
        data += pack(unsigned(v))
    opened = open_keys(n, secrets, data, rows=rows)
    return Secrets(rows=s_values, packing=np.ascontiguousarray(z_values[:, 0])), opened


def open_keys(n: int, secrets: int, data: bytes, *, rows: bool = True) -> PublicElements:
    """Return the public elements that a peer sent; ``rows``: as in :func:`draw_keys`.

    Raises:
        EncryptionError: another format, a wrong length, or a residue that is not below its prime.
    """
    number, form = _Numbers.of(secrets, rows=rows), FORMAT if rows else SUMS_FORMAT
    secrets, size = number.secrets, number.size(n)
    if len(data) != size:
        raise EncryptionError(
            f"a public key of degree {n} with {secrets} secrets has {size} bytes, not {len(data)}",
            code="key",
            value=len(data),
        )
    if data[0] != form:
        raise EncryptionError(f"a public key of format {data[0]}, not {form}", code="format-version", value=data[0])
    made, view, start = ring(n), memoryview(data), 1 + SEED_BYTES
    end = start + packed_size(number.masks * secrets * 2 * n)
    p0 = balanced_residues(unpack(view[start:end], (number.masks, secrets, n, 2), key=True))
    v = balanced_residues(unpack(view[end:], (number.packed, secrets, n, 2), key=True))
    p1, w = _public_uniform(data[1:start], n, number)
    rotated = np.empty((number.masks, secrets, 2, n), dtype=np.int64)
    loops.rotate(p0, rotated)
    loops.to_values(made, p0)
    packing = vectors(number.packed, 1 + secrets, 2, n)
    packing[:, :1], packing[:, 1:] = w[:, None], v
    return PublicElements(ring=made, masks=p1, bodies=p0, rotated=rotated, packing=packing, data=data)


def transformed(made: Ring, small: Int64s) -> Reals:
    """Transform small integer polynomials [..., n] to balanced values [..., 2, n]."""
    both = np.repeat(small[..., None, :].astype(np.float64), 2, axis=-2)
    loops.to_values(made, both)
    return both


def unsigned(x: Reals) -> Int64s:
    """Return residues [..., 2, n] as [..., n, 2] that are not negative; |x| < 2^53."""
    return np.stack([x[..., p, :].astype(np.int64) % q for p, q in enumerate(PRIMES)], axis=-1)


def balanced_residues(x: Int64s) -> Reals:
    """Return residues [..., n, 2] as balanced ones [..., 2, n]."""
    q = np.array(PRIMES, dtype=np.int64)
    return np.ascontiguousarray(np.moveaxis(np.where(x > q // 2, x - q, x), -1, -2).astype(np.float64))


def _public_uniform(seed: bytes, n: int, number: _Numbers) -> tuple[Reals, Reals]:
    """Return p1 [M, 2, n] and w [r, 2, n]."""
    p1 = Stream.public(seed, b"masks").uniform(number.masks, n)
    return p1, Stream.public(seed, b"packing").uniform(number.packed, n)


def _products(made: Ring, x: Reals, w: Reals) -> Reals:
    """Multiply values [..., 2, n], where leading axes are repeated."""
    left, right = (np.ascontiguousarray(each) for each in np.broadcast_arrays(x, w))
    out = np.empty_like(left)
    loops.multiply_all(made, left, right, out)
    return out


def _to_coefficients(made: Ring, values: Reals) -> Reals:
    out = np.empty_like(values)
    loops.to_coefficients(made, values, out)
    return out


def _chunk_values(made: Ring, s: Int64s) -> Reals:
    """Return the values of q1·(chunk j of s_k), [r, S, 2, n]."""
    secrets, n = s.shape
    size = n // PACKED
    chunks = np.zeros((PACKED, secrets, 2, n), dtype=np.float64)
    for j in range(PACKED):
        part = s[:, j * size : (j + 1) * size]
        chunks[j, :, 0, :size] = part * float(PRIMES[1] - PRIMES[0])  # q1 modulo q0
    loops.to_values(made, chunks)
    return chunks
