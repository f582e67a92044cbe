"""Keys of parts: the engines that make them pass the suite; a part of Paillier tells nothing of the exponent."""

from __future__ import annotations

import gmpy2
import numpy as np
import pytest

from labelward.he import Engine, engine
from labelward.he.paillier.key_parts import SLACK, divide_exponent
from labelward.he.paillier.primes import generate_primes
from labelward.rng import SecureRandom
from labelward.testing.key_parts import KeyPartContract


class TestPlain(KeyPartContract):
    insecure = True

    @classmethod
    def make(cls) -> Engine:
        return engine("plain")


class TestPaillier(KeyPartContract):
    bits, insecure = 512, True

    @classmethod
    def make(cls) -> Engine:
        return engine("paillier")


class TestTwoParties(KeyPartContract):
    bits, insecure, parties = 512, True, 2

    @classmethod
    def make(cls) -> Engine:
        return engine("paillier")


@pytest.mark.slow
class TestOfferedSize(KeyPartContract):
    @classmethod
    def make(cls) -> Engine:
        return engine("paillier")


def exponents(parties: int, keys: int = 1) -> tuple[gmpy2.mpz, gmpy2.mpz, list[list[int]]]:
    primes = generate_primes(512, SecureRandom())
    dealt = [divide_exponent(*primes, parties, SecureRandom()) for _ in range(keys)]
    numbers = [[int.from_bytes(part, "big", signed=True) for part in each] for each in dealt]
    return primes[0].p * primes[1].p, gmpy2.lcm(primes[0].p - 1, primes[1].p - 1), numbers


def test_parts_sum_to_an_exponent_that_decrypts() -> None:
    n, order, (parts,) = exponents(4)
    assert sum(parts) % n == 1
    assert sum(parts) % order == 0


@pytest.mark.parametrize("place", [0, 1, 2])
def test_no_part_follows_the_secret(place: int) -> None:
    """Each part alone fills its range: a part that was the exponent, or short, would show at once.

    The highest 8 bits of a uniform draw have a mean of 127.5; the last part is minus the sum of the others. Of 300 keys
    the mean of its first byte is within 4 standard errors (73.9 / sqrt(300) each).
    """
    n, _, dealt = exponents(3, keys=300)
    bits = 2 * int(n).bit_length() + SLACK
    if place < 2:
        first = np.array([parts[place] >> (bits - 8) for parts in dealt])
        assert abs(first.mean() - 127.5) < 4 * 73.9 / np.sqrt(300)
    assert len({parts[place] for parts in dealt}) == 300
    assert min(abs(parts[place]) for parts in dealt).bit_length() > bits - 16


def test_engines_without_parts_say_so() -> None:
    from labelward.he.plain import NullEngine

    assert not NullEngine.shares_keys
