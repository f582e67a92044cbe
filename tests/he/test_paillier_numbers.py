"""The numbers of Paillier against textbook formulas, by enumeration where the group is small."""

from __future__ import annotations

from collections import Counter
from math import gcd, lcm

import numpy as np
import pytest
from gmpy2 import is_prime, mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.errors import EncryptionError
from labelward.he import Layout
from labelward.he.paillier.fixed_base import FixedBase, digit_width
from labelward.he.paillier.int_bytes import in_range, read_ints, write_ints
from labelward.he.paillier.packing import Packing
from labelward.he.paillier.primes import Prime, generate_primes, has_full_order, subgroup_generator
from labelward.he.paillier.scheme import CrtEncryptor, PublicEncryptor, public_bases, random_exponents
from labelward.rng import SecureRandom
from refusals import refused

P, Q = 23, 59  # 22 = 2·11 and 58 = 2·29, as the engine's primes, only smaller
N = P * Q
UNITS = [r for r in range(1, N) if gcd(r, N) == 1]
RESIDUES = Counter(pow(r, N, N * N) for r in UNITS)


def owner() -> CrtEncryptor:
    protection = SecureRandom(seed=1)
    bases = [subgroup_generator(Prime(mpz(p), (mpz(2), mpz(p // 2))), protection) for p in (P, Q)]
    return CrtEncryptor(mpz(P), mpz(Q), *bases, uses=10)


def textbook_decrypt(ciphertext: int) -> int:
    """Paillier 1999, section 3, with g = n+1: L(c^lambda) / lambda modulo n."""
    order = lcm(P - 1, Q - 1)
    plaintext = (pow(ciphertext, order, N * N) - 1) // N * pow(order, -1, N) % N
    return plaintext - N if plaintext > N // 2 else plaintext


def test_owners_encryptions_of_zero_are_all_nth_residues_each_as_often_as_the_textbooks() -> None:
    """All exponents (x, y) against all r: the same distribution, not merely the same set."""
    pairs = [(x, y) for x in range(P - 1) for y in range(Q - 1)]
    x, y = bytes(x for x, _ in pairs), bytes(y for _, y in pairs)
    assert Counter(map(int, owner().encrypt([0] * len(pairs), x, y))) == RESIDUES


def test_public_obfuscators_are_all_nth_residues_in_equal_number() -> None:
    """Over all x, a and b, whenever h generates the odd part of the group."""
    full = 0
    for seed in range(20):
        h, w = public_bases(mpz(N), SecureRandom(seed))
        size, step = PublicEncryptor.random_size(mpz(N))
        kernel = PublicEncryptor(mpz(N), h, w, uses=100)
        draws = [x.to_bytes(size, "big") + bytes([s]) for x in range(2 * 11 * 29) for s in range(4)]
        assert all(len(draw) == step for draw in draws)
        made = Counter(map(int, kernel.encrypt([0] * len(draws), b"".join(draws))))
        assert set(made) <= set(RESIDUES)
        if pow(int(h), 2 * 11, N * N) != 1 and pow(int(h), 2 * 29, N * N) != 1:
            full += 1
            assert set(made) == set(RESIDUES)
            assert len(set(made.values())) == 1
    assert full > 10  # all but about 1/11 + 1/29 of the draws


@pytest.mark.parametrize("plaintext", [0, 1, -1, 17, N // 2, -(N // 2)])
def test_both_ways_of_encrypting_agree_with_the_textbook(plaintext: int) -> None:
    kernel = owner()
    (ciphertext,) = kernel.encrypt([plaintext], bytes([13]), bytes([44]))
    assert textbook_decrypt(int(ciphertext)) == plaintext
    h, w = public_bases(mpz(N), SecureRandom(seed=2))
    (public,) = PublicEncryptor(mpz(N), h, w, uses=1).encrypt(
        [plaintext], SecureRandom(seed=3).bytes(PublicEncryptor.random_size(mpz(N))[1])
    )
    assert textbook_decrypt(int(public)) == plaintext
    by_hand = (1 + plaintext * N) * pow(7, N, N * N) % (N * N)
    assert list(kernel.decrypt([ciphertext, public, mpz(by_hand)])) == [plaintext] * 3


def test_only_bases_of_full_order_pass() -> None:
    prime = Prime(mpz(P), (mpz(2), mpz(11)))
    orders = {}
    for base in range(1, P * P):
        if base % P:
            orders[base] = next(k for k in range(1, P * P) if pow(base, k, P * P) == 1)
    assert {base for base in orders if has_full_order(mpz(base), prime)} == {
        base for base, order in orders.items() if order == P - 1
    }


@pytest.mark.parametrize("bits", [256, 512, 1024])
def test_primes_are_as_the_argument_needs_them(bits: int) -> None:
    first, second = generate_primes(bits, SecureRandom())
    assert (first.p * second.p).bit_length() == bits
    for prime in (first, second):
        assert is_prime(prime.p)
        assert prime.p % 4 == 3
        two, u, v = prime.factors
        assert two * u * v == prime.p - 1
        assert is_prime(u)
        assert is_prime(v)
        assert min(u, v).bit_length() >= min(128, bits // 6)
        assert has_full_order(subgroup_generator(prime, SecureRandom()), prime)
    assert gcd(int(first.p) - 1, int(second.p) - 1) == 2


@given(
    root=st.integers(3, 2**80),
    base=st.integers(1, 2**170),
    exponents=st.lists(st.integers(0, 2**40 - 1), max_size=5),
    shift=st.integers(-(2**90), 2**90),
    uses=st.sampled_from([0, 10, 10_000]),
)
@settings(deadline=None, max_examples=100)
def test_fixed_base_equals_pow(root: int, base: int, exponents: list[int], shift: int, uses: int) -> None:
    while gcd(base, root) != 1:
        base += 1
    table = FixedBase(mpz(base), mpz(root), 40, uses=uses, widest=6)
    made = table.powers(b"".join(x.to_bytes(5, "big") for x in exponents), 5, [shift] * len(exponents))
    square = root**2
    assert list(made) == [pow(base, x, square) * (1 + root * shift) % square for x in exponents]


def test_exponents_are_uniform_below_their_bound() -> None:
    for bound in (1, 2, 200, 256, 257):
        size = (bound.bit_length() + 7) // 8
        drawn = random_exponents(bound, 20_000, SecureRandom(seed=1))
        counts = Counter(int.from_bytes(drawn[i : i + size], "big") for i in range(0, len(drawn), size))
        assert set(counts) == set(range(bound))
        # chi-square has mean bound-1 and standard deviation sqrt(2(bound-1)): five of them
        mean = 20_000 / bound
        chi = sum((count - mean) ** 2 / mean for count in counts.values())
        assert chi <= bound - 1 + 5 * (2 * bound) ** 0.5


def test_a_pair_packs_as_the_methods_page_says() -> None:
    """g and h at 2^30 for 2^20 rows: 52 bits each, so 19 pairs in a plaintext of 2048 bits."""
    (part,) = Packing.of(Layout((2**30, 2**30), 2**20, 2), 2048).parts
    assert (part.widths, part.fit) == ((52, 52), 19)


@given(data=st.data())
@settings(deadline=None, max_examples=50)
def test_packing_returns_every_number(data: st.DataObject) -> None:
    """Parts, slots and neighbors, with all digits at their edges."""
    bounds = tuple(data.draw(st.lists(st.sampled_from([0, 1, 3, 2**30, 2**50]), min_size=1, max_size=12)))
    entries, bits = data.draw(st.integers(0, 7)), data.draw(st.sampled_from([256, 320]))
    layout = Layout(bounds, 5, 0)
    signs = np.array(
        data.draw(
            st.lists(st.sampled_from([-1, 0, 1]), min_size=entries * len(bounds), max_size=entries * len(bounds))
        ),
        dtype=np.int64,
    ).reshape(entries, len(bounds))
    sums = signs * np.array(bounds, dtype=np.int64) * 5
    decoded = []
    for part in Packing.of(layout, bits).parts:
        size = (part.width + 8) // 8
        rows = read_ints(part.encode(sums, size), size, signed=True)
        combined = [
            mpz(sum(row << (part.width * j) for j, row in enumerate(rows[i : i + part.fit])))
            for i in range(0, entries, part.fit)
        ]
        assert all(abs(number) < 2 ** (bits - 2) for number in combined)
        decoded.append(part.decode(combined, entries, part.fit))
    np.testing.assert_array_equal(np.concatenate(decoded, axis=1), sums)


@given(
    size=st.integers(1, 12),
    limit=st.integers(1, 2**96 - 1),
    numbers=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**96 - 1)), max_size=5),
    near=st.booleans(),
)
def test_ciphertexts_in_range_are_told_from_others(size: int, limit: int, numbers: list[int], near: bool) -> None:
    limit = limit % (256**size - 1) + 1
    numbers = [(limit + number % 5 - 2) % 256**size if near else number % 256**size for number in numbers]
    expected = all(0 < number < limit for number in numbers)
    assert in_range(write_ints(numbers, size), size, write_ints([limit], size)) == expected


@given(bits=st.integers(2, 4096), uses=st.integers(0, 10**7), making=st.integers(1, 20), most=st.integers(0, 10**6))
def test_digits_of_exponents_cost_least_within_their_memory(bits: int, uses: int, making: int, most: int) -> None:
    def cost(width: int) -> int:
        return -(-bits // width) * (making * 2**width + uses)

    chosen = digit_width(bits, uses, widest=10, making=making, most=most)
    allowed = [width for width in range(2, 11) if -(-bits // width) * 2**width <= most]
    assert chosen in (allowed or [2])
    assert all(cost(chosen) <= cost(width) for width in allowed)


def test_digits_beyond_the_last_entry_are_refused() -> None:
    (part,) = Packing.of(Layout((5,), 3, 1), 256).parts
    for plaintext in (1 << part.width, -(1 << part.width), 1 << 200):
        with refused(EncryptionError, "capacity"):
            part.decode([mpz(plaintext)], 1, part.fit)
