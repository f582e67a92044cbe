"""Key material: what the owner of a key draws, and what travels of it.

With secrets s_k and z_k (k < S), all independent and uniform in -1, 0, 1:

- *public elements* (p1_m, p0_mk = p1_m·s_k + e), for M masks that share one u;
- *packing keys* (w_j, v_jk = w_j·z_k + e + q1·(chunk j of s_k)), for r chunks. The s_k are encrypted under the z_k and
  nothing under the s_k, so no assumption on circular encryption is made.

p1 and w are uniform and follow from a seed. They travel as in ``words.py``: p0 as coefficients, v as values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labelward.errors import EncryptionError
from labelward.he.lattice import loops
from labelward.he.lattice.digits import PACKED
from labelward.he.lattice.draws import SEED_BYTES, Stream
from labelward.he.lattice.ring import PRIMES, Int64s, Reals, Ring, ring
from labelward.he.lattice.words import pack, packed_size, unpack
from labelward.rng import SecureRandom

FORMAT = 1
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
        packing: [r, 1 + S, 2, n]: w and v, as values.
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Secrets:
    """Values of the secrets; nothing here can be encoded.

    Attributes:
        rows: of the s_k [S, 2, n].
        packing: of the z_k [S, n], modulo q0.
    """

    rows: Reals
    packing: Reals


def material_size(n: int, secrets: int) -> int:
    """Return the bytes of a public key."""
    return 1 + SEED_BYTES + packed_size(MASKS * secrets * 2 * n) + packed_size(PACKED * secrets * 2 * n)


def draw_keys(n: int, secrets: int, protection: SecureRandom) -> tuple[Secrets, PublicElements]:
    """Draw secrets and public elements."""
    made, stream, seed = ring(n), Stream.secret(protection), protection.bytes(SEED_BYTES)
    s, z = stream.ternary(secrets, n)[0], stream.ternary(secrets, n)[0]
    s_values, z_values = (transformed(made, each) for each in (s, z))
    p1, w = _public_uniform(seed, n)
    errors = stream.errors((MASKS, secrets, n))
    p0 = _to_coefficients(made, _products(made, p1[:, None], s_values[None])) + errors[:, :, None]
    v = _products(made, w[:, None], z_values[None]) + transformed(made, stream.errors((PACKED, secrets, n)))
    v += _chunk_values(made, s)
    data = bytes([FORMAT]) + seed + pack(unsigned(p0)) + pack(unsigned(v))
    return Secrets(rows=s_values, packing=np.ascontiguousarray(z_values[:, 0])), open_keys(n, secrets, data)


def open_keys(n: int, secrets: int, data: bytes) -> PublicElements:
    """Return the public elements that a peer sent.

    Raises:
        EncryptionError: another format, a wrong length, or a residue that is not below its prime.
    """
    if len(data) != material_size(n, secrets):
        raise EncryptionError(
            f"a public key of degree {n} with {secrets} secrets has {material_size(n, secrets)} bytes, not {len(data)}",
            code="key",
            value=len(data),
        )
    if data[0] != FORMAT:
        raise EncryptionError(f"a public key of format {data[0]}, not {FORMAT}", code="format-version", value=data[0])
    made, view, start = ring(n), memoryview(data), 1 + SEED_BYTES
    end = start + packed_size(MASKS * secrets * 2 * n)
    p0 = balanced_residues(unpack(view[start:end], (MASKS, secrets, n, 2), key=True))
    v = balanced_residues(unpack(view[end:], (PACKED, secrets, n, 2), key=True))
    p1, w = _public_uniform(data[1:start], n)
    rotated = np.empty((MASKS, secrets, 2, n), dtype=np.int64)
    loops.rotate(p0, rotated)
    loops.to_values(made, p0)
    packing = np.ascontiguousarray(np.concatenate([w[:, None], v], axis=1))
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


def _public_uniform(seed: bytes, n: int) -> tuple[Reals, Reals]:
    """Return p1 [M, 2, n] and w [r, 2, n]."""
    return Stream.public(seed, b"masks").uniform(MASKS, n), Stream.public(seed, b"packing").uniform(PACKED, n)


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
