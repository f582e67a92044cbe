"""Encrypting and decrypting numbers: with the secret, and without it.

**With the secret.** Encryption multiplies 1 + m·n by r^n for a uniform r of Z_n*. Modulo p² these r^n fill the
cyclic subgroup of order p-1 uniformly: r ↦ r^p maps onto it, and raising to q permutes it, since gcd(q, p-1) = 1.
Likewise modulo q², independently. So tau_p^x and tau_q^y with x uniform in [0, p-1) and y in [0, q-1) have *exactly*
the distribution of r^n, if tau_p and tau_q generate these subgroups, which key generation checks
(:func:`~labelward.he.paillier.primes.has_full_order`). No assumption on short exponents enters.

**Without it.** An obfuscator is h^x · w^a · (-1)^b, where h = r^n for one secret uniform r, w = y^n for the least y
whose Jacobi symbol modulo n is -1, a and b are random bits, and x is 128 bits longer than n. With the primes of
:mod:`~labelward.he.paillier.primes` the n-th residues are C_2 × C_2 × C_m, where m is a product of four large primes:
h generates C_m unless r hits one of four subgroups of index 2^127 or more, w and -1 span C_2 × C_2 (p = q = 3 mod 4),
and x modulo m is within 2^-128 of uniform. So obfuscators are within about 2^-124 of uniform n-th residues. (One base
alone would show the key owner a coset, such as the Jacobi symbol, of what is re-randomized.) Keys under 768 bits, all
of them insecure, have smaller factors and correspondingly weaker bounds.
"""

from collections.abc import Iterable, Iterator, Sequence

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.he.paillier.fixed_base import FixedBase
from labelward.he.paillier.int_bytes import read_ints, write_ints
from labelward.rng import SecureRandom

_OWNER_WIDEST, _PUBLIC_WIDEST = 9, 8  # about 45 and 50 MB of tables at 2048 bits
_SLACK = 16  # bytes of x beyond those of n


class CrtEncryptor:
    """Encrypts and decrypts modulo p² and q².

    Args:
        tau_p, tau_q: generators of the n-th residues modulo p² and q².
        uses: how many encryptions are expected of this object.
    """

    def __init__(self, p: mpz, q: mpz, tau_p: mpz, tau_q: mpz, *, uses: int) -> None:
        self.p, self.q = p, q
        self._bases, self._uses = (tau_p, tau_q), uses
        self._p2, self._q2 = p * p, q * q
        self._p2_inverse = gmpy2.invert(self._p2, self._q2)
        self._tables: tuple[FixedBase, FixedBase] | None = None

    def encrypt(self, plaintexts: Sequence[int], x: bytes, y: bytes) -> Iterator[mpz]:
        """Yield a ciphertext for each signed plaintext; ``x`` and ``y`` are exponents (:func:`random_exponents`)."""
        p, q, p2, q2, p2_inverse = self.p, self.q, self._p2, self._q2, self._p2_inverse
        size_p, size_q = ((prime.bit_length() + 7) // 8 for prime in (p, q))
        for_p, for_q = self._build()
        # 1 + m·n is 1 + p·(m·q) modulo p², and 1 + q·(m·p) modulo q²
        modulo_p = for_p.powers(x, size_p, [m * q for m in plaintexts])
        modulo_q = for_q.powers(y, size_q, [m * p for m in plaintexts])
        for a, b in zip(modulo_p, modulo_q, strict=True):
            yield a + p2 * ((b - a) * p2_inverse % q2)

    def decrypt(self, ciphertexts: Iterable[mpz]) -> Iterator[mpz]:
        """Yield the plaintext of each ciphertext, in (-n/2, n/2)."""
        p, q, p2, q2 = self.p, self.q, self._p2, self._q2
        yield from plaintexts_of(
            p, q, ((gmpy2.powmod(c % p2, p - 1, p2), gmpy2.powmod(c % q2, q - 1, q2)) for c in ciphertexts)
        )

    def _build(self) -> tuple[FixedBase, FixedBase]:
        if self._tables is None:
            tau_p, tau_q = self._bases
            self._tables = (
                FixedBase(tau_p, self.p, self.p.bit_length(), uses=self._uses, widest=_OWNER_WIDEST),
                FixedBase(tau_q, self.q, self.q.bit_length(), uses=self._uses, widest=_OWNER_WIDEST),
            )
        return self._tables


class PublicEncryptor:
    """Encrypts without the secret, zero above all.

    Args:
        h, w: as in the module's docstring (:func:`public_bases`).
        uses: how many obfuscators are expected of this object.
    """

    def __init__(self, n: mpz, h: mpz, w: mpz, *, uses: int) -> None:
        self.n, self.n2 = n, n * n
        self._signs = (mpz(1), w % self.n2, self.n2 - 1, (self.n2 - w) % self.n2)
        self._h, self._uses = h, uses
        self._table: FixedBase | None = None

    @staticmethod
    def random_size(n: mpz) -> tuple[int, int]:
        """Return the bytes of x, and those of x, a and b together."""
        size = (n.bit_length() + 7) // 8 + _SLACK
        return size, size + 1

    def encrypt(self, plaintexts: Sequence[int], random: bytes) -> Iterator[mpz]:
        """Yield a ciphertext for each signed plaintext and ``random_size(n)[1]`` uniform bytes of ``random``."""
        size, step = self.random_size(self.n)
        if self._table is None:
            self._table = FixedBase(self._h, self.n, 8 * size, uses=self._uses, widest=_PUBLIC_WIDEST)
        chunks = [random[i : i + step] for i in range(0, len(random), step)]
        powers = self._table.powers(b"".join(chunk[:size] for chunk in chunks), size, plaintexts)
        for chunk, power in zip(chunks, powers, strict=True):
            yield power * self._signs[chunk[size] & 3] % self.n2


def plaintexts_of(p: mpz, q: mpz, powers: Iterable[tuple[mpz, mpz]]) -> Iterator[mpz]:
    """Yield plaintexts in (-n/2, n/2) of ciphertexts raised to p-1 modulo p² and to q-1 modulo q²."""
    n, p_inverse = p * q, gmpy2.invert(p, q)
    # 1 / L(g^(p-1) mod p²) with g = n+1, which is 1 / ((p-1)·q) modulo p
    h_p, h_q = gmpy2.invert(-q, p), gmpy2.invert(-p, q)
    for a, b in powers:
        m_p, m_q = (a - 1) // p * h_p % p, (b - 1) // q * h_q % q
        plaintext = m_p + p * ((m_q - m_p) * p_inverse % q)
        yield plaintext - n if plaintext > n >> 1 else plaintext


def public_bases(n: mpz, protection: SecureRandom) -> tuple[mpz, mpz]:
    """Return h and w for a :class:`PublicEncryptor`."""
    least = next(y for y in range(2, 1 << 16) if gmpy2.jacobi(y, n) == -1)
    root = 1 + protection.below(int(n) - 1)
    return gmpy2.powmod(root, n, n * n), gmpy2.powmod(least, n, n * n)


def random_exponents(bound: int, count: int, protection: SecureRandom) -> bytes:
    """Return ``count`` uniform draws from ``range(bound)``, big-endian, each as long as ``bound``; by rejection."""
    size = (bound.bit_length() + 7) // 8
    limit, top = bound.to_bytes(size, "big"), 0xFF >> (-bound.bit_length() % 8)
    kept = np.empty((count, size), dtype=np.uint8)
    done = 0
    while done < count:
        drawn = np.frombuffer(protection.bytes((count - done) * size), dtype=np.uint8).reshape(-1, size).copy()
        drawn[:, 0] &= top
        below = drawn[:, 0] < limit[0]
        for row in np.flatnonzero(drawn[:, 0] == limit[0]):
            below[row] = drawn[row].tobytes() < limit
        drawn = drawn[below]
        kept[done : done + len(drawn)] = drawn
        done += len(drawn)
    return kept.tobytes()


def multiply_sums(first: NDArray[np.uint8], second: NDArray[np.uint8], n2: mpz) -> tuple[NDArray[np.uint8], int]:
    """Multiply big-endian cells [n, size] one by one, where neither is the empty cell 1; also return how many."""
    empty = [(cells[:, -1] == 1) & ~cells[:, :-1].any(axis=1) for cells in (first, second)]
    product, both = np.where(empty[0][:, None], second, first), np.flatnonzero(~(empty[0] | empty[1]))
    size = first.shape[1]
    numbers = (read_ints(cells[both].tobytes(), size) for cells in (first, second))
    products = write_ints([a * b % n2 for a, b in zip(*numbers, strict=True)], size)
    product[both] = np.frombuffer(products, dtype=np.uint8).reshape(-1, size)
    return product, len(both)
