"""Rows at every R-th coefficient: exact sums, their noise, sizes, refusals, and what hides one sum from another."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he import engine
from labelward.he.base import SPACINGS, CipherBlock, EncryptedSums, Integers, Layout, LevelWork
from labelward.he.lattice import loops, spaced_loops
from labelward.he.lattice.digits import (
    LEAST_FLOOD,
    PACKED,
    digits_of,
    known_noise,
    noise_deviation,
    places,
    sums_together,
)
from labelward.he.lattice.draws import Stream
from labelward.he.lattice.keys import LatticePrivateKey
from labelward.he.lattice.levels import LevelChoice, best_spacing
from labelward.he.lattice.ring import PRIMES, Q1, SMALL_DEGREE, balanced
from labelward.he.lattice.row_data import HEAD_BYTES
from labelward.he.lattice.spaced import SpacedSums
from labelward.he.lattice.words import packed_size, unpack
from labelward.rng import SecureRandom
from refusals import refused

SPACED = SPACINGS[1:]


@pytest.fixture(scope="module")
def key() -> LatticePrivateKey:
    """Return a key of the small ring, of which the algebra is the same."""
    made = engine("lattice").generate(SMALL_DEGREE, protection=SecureRandom(), insecure=True)
    assert isinstance(made, LatticePrivateKey)
    return made


def expected(values: Integers, groups: NDArray[np.int32], n_groups: int) -> Integers:
    sums = np.zeros((groups.shape[1], n_groups, values.shape[1]), dtype=np.int64)
    for column, own in enumerate(sums):
        present = groups[:, column] >= 0
        np.add.at(own, groups[present, column], values[present])
    return sums


def arrived(key: LatticePrivateKey, values: Integers, layout: Layout, size: int) -> Any:
    rows = key.public.allocate_rows(layout, len(values))
    for block in key.encrypt_blocks(values, layout, size):
        np.testing.assert_array_equal(key.decrypt(block)[0], values[rows.have : rows.have + block.shape[0]])
        rows.add(block)
    return rows


@given(
    spacing=st.sampled_from(SPACED),
    rows=st.sampled_from([1, 2, 31, 32, 33, 64, 255, 256, 257, 700]),
    n_groups=st.sampled_from([1, 2, 15, 17, 40]),
    bounds=st.lists(st.sampled_from([0, 1, 2**15, 2**30, 2**45]), min_size=1, max_size=6),
    size=st.sampled_from([32, 50, 1000]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=30, deadline=None)
def test_sums_of_many_shapes(
    key: LatticePrivateKey, spacing: int, rows: int, n_groups: int, bounds: list[int], size: int, seed: int
) -> None:
    """Rows about the ends of polynomials and of blocks, windows that are not full, one to many digits; sums of sums."""
    rng, layout = np.random.default_rng(seed), Layout(tuple(bounds), 2 * rows, len(bounds), spacing)
    values = np.stack([rng.integers(-bound, bound + 1, rows) for bound in bounds], axis=1)
    groups = rng.integers(-1, n_groups, size=(rows, 2)).astype(np.int32)
    held = arrived(key, values, layout, size)
    sums = held.group_sums(groups, n_groups)
    np.testing.assert_array_equal(key.decrypt(sums.rerandomize()), expected(values, groups, n_groups))
    half = rows // 2
    parts: EncryptedSums = held.group_sums(groups[:half], n_groups) + held.group_sums(groups[half:], n_groups, half)
    chosen = rng.integers(0, 2 * n_groups, 5)
    flat = expected(values, groups, n_groups).reshape(-1, len(bounds))
    np.testing.assert_array_equal(key.decrypt((parts + sums).take(chosen).rerandomize())[0], 2 * flat[chosen])


@pytest.mark.parametrize("spacing", SPACED)
def test_all_rows_at_the_bound_of_the_real_ring(spacing: int) -> None:
    real = engine("lattice").generate(4096, protection=SecureRandom())
    assert isinstance(real, LatticePrivateKey)
    layout = Layout((2**30, 1, 2**40), 3000, 3, spacing)
    values = np.tile(np.array(layout.bounds, dtype=np.int64), (3000, 1))
    values[::2] *= -1
    groups = np.stack([np.zeros(3000, np.int32), np.arange(3000, dtype=np.int32) % 2], axis=1)
    sums = arrived(real, values, layout, 16_384 // spacing).group_sums(groups, 2)
    np.testing.assert_array_equal(real.decrypt(sums.rerandomize()), expected(values, groups, 2))


@pytest.mark.parametrize("spacing", SPACINGS)
def test_bytes_are_those_of_the_formula(key: LatticePrivateKey, spacing: int) -> None:
    made, layout = engine("lattice"), Layout((2**30, 2**30, 1), 700, 2, spacing)
    form = made.ciphertext_format(layout, SMALL_DEGREE)
    for rows in (1, 31, 32, 33, 700):
        block = key.encrypt(np.zeros((rows, 3), np.int64), layout).block()
        assert len(block.data) == form.row_bytes(rows)
    held = arrived(key, np.zeros((700, 3), np.int64), layout, 700)
    for sums in (1, 31, 32, 500):
        sealed = held.group_sums(np.zeros((700, 1), np.int32), sums).rerandomize()
        assert len(sealed.data) == form.sum_bytes(sums)


def opened(key: LatticePrivateKey, block: CipherBlock) -> NDArray[np.int64]:
    """Return what the sums decrypt to, without the division by the step, modulo q0: int64 [sums, K]."""
    n, digits = SMALL_DEGREE, digits_of(block.layout, SMALL_DEGREE)
    at, count = places(n, block.layout.spacing), block.shape[0] * block.shape[1]
    batches = -(-count // len(at))
    view, size = memoryview(block.data)[HEAD_BYTES:], packed_size(batches * n)
    packed = unpack(view[:size], (batches * n,)).reshape(batches, n)
    words = unpack(view[size:], (count * digits.total,)).reshape(count, digits.total)
    raw = np.empty_like(words)
    for i in range(batches):
        part = slice(i * len(at), (i + 1) * len(at))
        loops.open_packed(key.public.elements.ring, packed[i], words[part], key._secrets.packing, at, 1.0, raw[part])
    return raw


@pytest.mark.parametrize("spacing", SPACED)
def test_the_noise_is_that_of_the_formula(key: LatticePrivateKey, spacing: int) -> None:
    """Of 15,000 numbers the deviation is known to a percent; and the flooding covers the errors of all R groups.

    The packing's noise comes of the coefficients that windows take up, which is not all of a polynomial. All are full.
    """
    layout = Layout((1, 1, 1, 1, 1), 500, 5, spacing)
    held = arrived(key, np.zeros((500, 5), np.int64), layout, 500)
    together = sums_together(SMALL_DEGREE, spacing)
    sums = 3000 // together * together
    groups = np.random.default_rng(0).integers(0, sums, (500, 1)).astype(np.int32)
    noise = opened(key, held.group_sums(groups, sums).rerandomize()).astype(np.float64)
    digits = digits_of(layout, SMALL_DEGREE)
    flood = 2.0**digits.flood / Q1
    taken = together // spacing * (SMALL_DEGREE // PACKED + spacing - 1) / SMALL_DEGREE
    rounding = 2 * (SMALL_DEGREE * 2 / 3 + 1) / 12
    of_packing = noise_deviation(SMALL_DEGREE) ** 2 - rounding
    wanted = math.sqrt(rounding + taken * of_packing + flood**2 / 12)
    assert np.sqrt(np.mean(noise**2)) == pytest.approx(wanted, rel=0.03)
    assert np.abs(noise).max() < 7 * noise_deviation(SMALL_DEGREE) + flood / 2
    assert 2.0 ** (digits.flood - LEAST_FLOOD) >= known_noise(500 * spacing, SMALL_DEGREE)


# -- what hides the rows of a sum --------------------------------------------------------------------------------------


def test_other_coefficients_do_not_travel(key: LatticePrivateKey) -> None:
    """The product has sums of other rows at its other coefficients: of each sum R words travel, and no more."""
    layout = Layout((1000,), 64, 1, 4)
    held = arrived(key, np.arange(64, dtype=np.int64)[:, None], layout, 64)
    for sums in (1, 3, 4, 5):
        data = held.group_sums(np.zeros((64, 1), np.int32), sums).rerandomize().data
        digits = digits_of(layout, SMALL_DEGREE)
        assert len(data) == HEAD_BYTES + packed_size(SMALL_DEGREE) + packed_size(sums * digits.total)


def test_each_sum_of_a_window_has_flooding_of_its_own(key: LatticePrivateKey, monkeypatch: pytest.MonkeyPatch) -> None:
    """One range for each word, and one mask for each window: what the streams are asked for."""
    asked: dict[str, list[int]] = {"flood": [], "ternary": []}
    flood, ternary = Stream.flood, Stream.ternary
    monkeypatch.setattr(Stream, "flood", lambda s, b, c: (asked["flood"].append(c), flood(s, b, c))[1])
    monkeypatch.setattr(Stream, "ternary", lambda s, c, n: (asked["ternary"].append(c), ternary(s, c, n))[1])
    layout = Layout((1000, 2**30), 64, 2, 4)
    held = arrived(key, np.zeros((64, 2), np.int64), layout, 64)
    held.group_sums(np.zeros((64, 1), np.int32), 16).rerandomize()
    digits = digits_of(layout, SMALL_DEGREE).total
    assert asked == {"flood": [16 * digits], "ternary": [1]}  # four windows, of one u and four public elements


def test_without_a_mask_a_window_tells_its_rows(key: LatticePrivateKey) -> None:
    """The attack that masks prevent: one division by a gives every row of all R groups."""
    layout = Layout((1,), 64, 1, 4)
    held = arrived(key, np.zeros((64, 1), np.int64), layout, 64)
    members = np.random.default_rng(0).integers(0, 4, 64).astype(np.int32)[:, None]
    sums = held.group_sums(members, 4)
    assert isinstance(sums, SpacedSums)
    ring, (term,) = key.public.elements.ring, sums.terms
    segment = term.segments[0]
    a = np.zeros((1, 1, 2, SMALL_DEGREE))
    words = np.zeros((1, 4, digits_of(layout, SMALL_DEGREE).total, 2), dtype=np.int64)
    spaced_loops.add_windows(ring, term.order, term.lists, segment.bounds, 4, segment.a, segment.words, a, words)
    quotient = np.empty((1, 2, SMALL_DEGREE))
    for prime, q in enumerate(PRIMES):
        pairs = zip(a[0, 0, prime], segment.a[0, 0, prime], strict=True)
        quotient[0, prime] = [balanced(int(x) * pow(int(y), -1, q), q) for x, y in pairs]
    found = np.empty_like(quotient)
    loops.to_coefficients(ring, quotient, found)
    wanted = np.zeros(SMALL_DEGREE)
    wanted[np.arange(64) * 4 + members[:, 0]] = 1
    np.testing.assert_array_equal(found[0, 0], wanted)
    sealed = opened(key, sums.rerandomize())
    assert np.abs(sealed).max() < digits_of(layout, SMALL_DEGREE).step / 2  # zeros: what is left is noise


def test_two_seals_share_no_word(key: LatticePrivateKey) -> None:
    layout = Layout((1,), 600, 1, 8)
    sums = arrived(key, np.ones((600, 1), np.int64), layout, 600).group_sums(np.zeros((600, 1), np.int32), 64)
    one, other = (sums.rerandomize().data[HEAD_BYTES:] for _ in range(2))
    words = [set(unpack(each[: packed_size(SMALL_DEGREE)], (SMALL_DEGREE,)).tolist()) for each in (one, other)]
    assert not words[0] & words[1]


# -- refusals and choice -----------------------------------------------------------------------------------------------


def test_refusals(key: LatticePrivateKey) -> None:
    layout = Layout((5, 7), 40, 2, 4)
    block = key.encrypt(np.ones((40, 2), np.int64), layout).block()
    for spacing in (0, 3, 32, -4):
        with refused(EncryptionError, "range", value=spacing):
            key.encrypt(np.ones((1, 2), np.int64), msgspec.structs.replace(layout, spacing=spacing))
    with refused(EncryptionError, "unsupported"):
        key.public.encrypt(np.ones((1, 2), np.int64), layout)
    changed = [
        msgspec.structs.replace(block, data=block.data[:-1]),
        msgspec.structs.replace(block, data=block.data + b"\0"),
        msgspec.structs.replace(block, data=b"\1\1" + block.data[2:]),
        msgspec.structs.replace(block, data=block.data[:-20] + b"\xff" * 20),
        msgspec.structs.replace(block, layout=msgspec.structs.replace(layout, spacing=2)),
        msgspec.structs.replace(block, layout=msgspec.structs.replace(layout, spacing=1)),
    ]
    for each in changed:
        with refused(EncryptionError, "ciphertext"):
            key.public.rows(each)
        with refused(EncryptionError, "ciphertext"):
            key.decrypt(each)
    held = key.public.rows(block)
    with refused(EncryptionError, "range"):
        held.group_sums(np.full((40, 1), 3, np.int32), 3)
    with refused(EncryptionError, "not-sendable"):
        held.block()
    dense = key.public.rows(key.encrypt(np.ones((40, 2), np.int64), msgspec.structs.replace(layout, spacing=1)).block())
    groups = np.zeros((40, 1), np.int32)
    with refused(EncryptionError, "ciphertext"):
        held.group_sums(groups, 1) + dense.group_sums(groups, 1)


LAYOUT = Layout((2**30, 2**30, 1), 30_000, 2)


def chosen(rows: int, nodes: tuple[int, ...], bandwidth: float = 1e9, reencrypt: str = "auto") -> int:
    work = LevelWork(rows, nodes, (32,) * 11)
    layout = msgspec.structs.replace(LAYOUT, rows=rows)
    return best_spacing(layout, work, 4096, 5, LevelChoice(reencrypt, bandwidth))


def test_the_choice_follows_the_cost() -> None:
    """Large nodes: in their order; small ones: spaced, the more so the deeper; a slow line: what the peer has."""
    assert chosen(1_000_000, (450_000,)) == 1
    deep = [chosen(30_000, (13_500 // 2**depth,) * 2**depth) for depth in range(6)]
    assert deep == sorted(deep)
    assert deep[0] == 4 < 8 <= deep[3]
    assert chosen(30_000, (13_500,), bandwidth=1.0) == 0
    assert [chosen(30_000, (13_500,), reencrypt=each) for each in ("never", "1", "16")] == [0, 1, 16]


def test_memory_bounds_the_spacing() -> None:
    """The rows of a level take 100 bytes a coefficient."""
    nodes = (450_000 // 64,) * 64
    assert chosen(1_000_000, nodes) * sum(nodes) <= 1 << 20
    assert PACKED == 32
