"""Primes p = 2·u·v + 1 with u and v prime, and elements that generate all n-th residues modulo p².

Knowing the factors of p-1 is what makes the order of a base checkable. u and v have at least 85 bits for a 512-bit
key and 128 bits or more from 768 bits on, p = 3 (mod 4), and gcd(p-1, q-1) = 2. These are strong primes in the
sense of RSA; what :mod:`~labelward.he.paillier.scheme` does with their structure is told there.
"""

from typing import NamedTuple

import gmpy2
from gmpy2 import mpz

from labelward.rng import SecureRandom

_COFACTOR_BITS = 128


class Prime(NamedTuple):
    """A prime and the distinct prime factors of p-1."""

    p: mpz
    factors: tuple[mpz, ...]


def generate_primes(bits: int, protection: SecureRandom) -> tuple[Prime, Prime]:
    """Return two different primes whose product has exactly ``bits`` bits (a multiple of 16)."""
    first = generate_prime(bits // 2, protection)
    while True:
        second = generate_prime(bits // 2, protection)
        shared = set(first.factors) & set(second.factors)
        n, phi = first.p * second.p, (first.p - 1) * (second.p - 1)
        if first.p != second.p and shared == {mpz(2)} and gmpy2.gcd(n, phi) == 1:
            return first, second


def generate_prime(bits: int, protection: SecureRandom) -> Prime:
    """Return a random prime of ``bits`` bits, the two highest of them set, with a factored p-1."""
    cofactor = min(_COFACTOR_BITS, bits // 3)
    u = _between(mpz(3) << (bits - cofactor - 3), mpz(1) << (bits - cofactor - 1), protection)
    low, high = (mpz(3) << (bits - 2)) // (2 * u) + 1, (mpz(1) << bits) // (2 * u)
    while True:
        v = _between(low, high, protection)
        p = 2 * u * v + 1
        if u != v and gmpy2.is_prime(p):
            return Prime(p, (mpz(2), u, v))


def has_full_order(base: mpz, prime: Prime) -> bool:
    """Whether ``base`` generates the subgroup of order p-1 modulo p², which is that of all p-th powers."""
    square = prime.p**2
    return gmpy2.powmod(base, prime.p - 1, square) == 1 and all(
        gmpy2.powmod(base, (prime.p - 1) // factor, square) != 1 for factor in prime.factors
    )


def subgroup_generator(prime: Prime, protection: SecureRandom) -> mpz:
    """Return a random generator of the subgroup of order p-1 modulo p²; its order is checked."""
    while True:
        root = 2 + protection.below(int(prime.p) - 2)
        base = gmpy2.powmod(root, prime.p, prime.p**2)
        if has_full_order(base, prime):
            return base


def _between(low: mpz, high: mpz, protection: SecureRandom) -> mpz:
    """Return a random prime in [low, high)."""
    while True:
        candidate = mpz(int(low) + protection.below(int(high - low))) | 1
        if candidate < high and gmpy2.is_prime(candidate):
            return candidate
