"""The lattice engine: exact sums of many shapes, its noise, what it refuses, and the same bits on other processors."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he import engine, threads
from labelward.he.base import Integers, Layout
from labelward.he.lattice import LatticeEngine, loops
from labelward.he.lattice.digits import LEAST_FLOOD, PACKED, digits_of, known_noise, noise_deviation, places
from labelward.he.lattice.draws import SEED_BYTES, Stream, signs
from labelward.he.lattice.key_material import material_size
from labelward.he.lattice.keys import LatticePrivateKey
from labelward.he.lattice.ring import ERROR_VARIANCE, PRIMES, Q1, SECURE_DEGREE, balanced, ring
from labelward.he.lattice.row_data import HEAD_BYTES
from labelward.he.lattice.transform_ir import _Arithmetic
from labelward.he.lattice.words import packed_size, unpack
from labelward.job import EncryptionSection
from labelward.rng import SecureRandom
from labelward.testing.strategies import SumCase
from refusals import refused

ROWS = (1, 2, 4095, 4096, 4097, 20_000)


@pytest.fixture(scope="module")
def key() -> LatticePrivateKey:
    made = engine("lattice").generate(SECURE_DEGREE, protection=SecureRandom())
    assert isinstance(made, LatticePrivateKey)
    return made


def fast_sums(case: SumCase) -> Integers:
    """Integer sums, column by column."""
    sums = np.zeros((case.groups.shape[1], case.n_groups, case.values.shape[1]), dtype=np.int64)
    for column, own in enumerate(sums):
        present = case.groups[:, column] >= 0
        np.add.at(own, case.groups[present, column], case.values[present])
    return sums


@st.composite
def shapes(draw: st.DrawFn) -> SumCase:
    """Rows about the ends of polynomials; groups of one row, of all, and between; one to twenty digits a row."""
    n, columns = draw(st.sampled_from(ROWS)), draw(st.integers(1, 2))
    n_groups = draw(st.sampled_from([1, 2, 33, 70]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    bounds = tuple(draw(st.lists(st.sampled_from([0, 1, 2**15, 2**30, 2**45]), min_size=1, max_size=9)))
    values = np.stack([rng.integers(-bound, bound + 1, n) for bound in bounds], axis=1)
    kind = draw(st.sampled_from(["all", "few", "any"]))
    groups = rng.integers(-1, n_groups, size=(n, columns)).astype(np.int32)
    if kind == "all":
        groups[:] = n_groups - 1
    elif kind == "few":
        groups[rng.random(n) > 40 / n] = -1
    return SumCase(Layout(bounds, n, len(bounds)), values, groups, n_groups)


def assert_exact(key: LatticePrivateKey, case: SumCase) -> None:
    public = key.public
    sums = public.rows(key.encrypt(case.values, case.layout).block()).group_sums(case.groups, case.n_groups)
    np.testing.assert_array_equal(key.decrypt(sums.rerandomize()), fast_sums(case))


@given(case=shapes(), dense=st.sampled_from([1, 13, 5000]))
@settings(max_examples=40, deadline=None)
def test_sums_of_many_shapes(key: LatticePrivateKey, case: SumCase, dense: int) -> None:
    """Only transforms, both, and only shifted additions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "DENSE", dense)
        assert_exact(key, case)


@pytest.mark.slow
@given(case=shapes(), dense=st.sampled_from([1, 13, 5000]))
@settings(max_examples=2000, deadline=None)
def test_sums_of_two_thousand_shapes(key: LatticePrivateKey, case: SumCase, dense: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "DENSE", dense)
        assert_exact(key, case)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("rows", [4097, 20_000])
def test_all_rows_at_the_bound(key: LatticePrivateKey, rows: int, sign: int) -> None:
    bounds = (2**30, 2**30 - 1, 1, 2**40)
    values = np.tile(sign * np.array(bounds, dtype=np.int64), (rows, 1))
    assert_exact(key, SumCase(Layout(bounds, rows, 4), values, np.zeros((rows, 1), np.int32), 1))


@pytest.mark.slow
@pytest.mark.parametrize("dense", [13, 5000])
def test_a_million_rows(key: LatticePrivateKey, monkeypatch: pytest.MonkeyPatch, dense: int) -> None:
    """Totals of shifted additions pass 2^53, and would pass 2^63, if they were not reduced."""
    monkeypatch.setattr(loops, "DENSE", dense)
    n, rng = 1_000_000, np.random.default_rng(0)
    layout = Layout((2**30, 2**30, 1), n, 2)
    values = np.tile(np.array(layout.bounds, dtype=np.int64), (n, 1)) * rng.choice([-1, 1], (n, 1))
    groups = np.stack([np.zeros(n, np.int32), rng.integers(0, 8, n, dtype=np.int32)], axis=1)
    rows = key.public.allocate_rows(layout, n)
    for block in key.encrypt_blocks(values, layout, 16_384):
        rows.add(block)
    np.testing.assert_array_equal(
        key.decrypt(rows.group_sums(groups, 8).rerandomize()), fast_sums(SumCase(layout, values, groups, 8))
    )


# -- digits, noise, sizes --------------------------------------------------------------------------------------------


@given(rows=st.integers(1, 2**24), bounds=st.lists(st.integers(0, 2**38), min_size=1, max_size=3))
@settings(deadline=None)
def test_digits_are_exact_and_leave_room(rows: int, bounds: list[int]) -> None:
    """Every digit sum stays within the step's room, and rows at the bound are recovered."""
    layout = Layout(tuple(bounds), rows, 1)
    if max(layout.widths()) > 63:
        return
    digits = digits_of(layout, SECURE_DEGREE)
    extremes = np.array([bounds, [-each for each in bounds], [each // 3 for each in bounds]], dtype=np.int64)
    split = digits.split(extremes)
    assert int(np.abs(split).max(initial=0)) * rows <= digits.most
    np.testing.assert_array_equal(digits.join(split * rows), extremes * rows)
    bound = 2.0**digits.flood / 2 / Q1 + 8 * noise_deviation(SECURE_DEGREE)
    assert digits.step / 2 > bound
    assert (2 * digits.most + 1) * digits.step <= PRIMES[0]
    assert 2.0 ** (digits.flood - LEAST_FLOOD) >= known_noise(rows, SECURE_DEGREE)


@pytest.mark.parametrize(("rows", "digits"), [(1 << 15, 2), (100_000, 2), (1 << 20, 2), (1 << 24, 3)])
def test_digits_of_a_number_of_31_bits(rows: int, digits: int) -> None:
    assert digits_of(Layout((1 << 30,), rows, 1), SECURE_DEGREE).counts == (digits,)


def noise_of(key: LatticePrivateKey, sums: int, rows: int) -> tuple[NDArray[np.float64], Any]:
    """Return the noise of sealed digits of random rows, and their encoding."""
    rng, layout = np.random.default_rng(0), Layout((2**30, 2**30, 1), rows, 2)
    values = np.stack([rng.integers(-bound, bound + 1, rows) for bound in layout.bounds], axis=1)
    groups = rng.integers(0, sums, (rows, 1)).astype(np.int32)
    digits = digits_of(layout, SECURE_DEGREE)
    block = key.public.rows(key.encrypt(values, layout).block()).group_sums(groups, sums).rerandomize()
    expected = fast_sums(SumCase(layout, digits.split(values), groups, sums))[0]
    view, batches = memoryview(block.data)[HEAD_BYTES:], -(-sums // PACKED)
    size = packed_size(batches * SECURE_DEGREE)
    packed = unpack(view[:size], (batches * SECURE_DEGREE,)).reshape(batches, SECURE_DEGREE)
    words = unpack(view[size:], (sums * digits.total,)).reshape(sums, digits.total)
    raw = np.empty_like(words)
    for i in range(batches):
        part = slice(i * PACKED, (i + 1) * PACKED)
        at = places(SECURE_DEGREE, 1)
        loops.open_packed(ring(SECURE_DEGREE), packed[i], words[part], key._secrets.packing, at, 1.0, raw[part])
    noise = raw - expected * digits.step
    return (noise + PRIMES[0] // 2) % PRIMES[0] - PRIMES[0] // 2.0, digits


@pytest.mark.parametrize(
    "sums", [4_000, pytest.param(200_000, marks=pytest.mark.slow)], ids=["twenty-thousand", "a-million"]
)
def test_the_noise_is_that_of_the_formula(key: LatticePrivateKey, sums: int) -> None:
    """The deviation of 20,000 numbers is known to half a percent; that of uniform flooding is added."""
    noise, digits = noise_of(key, sums, 20_000)
    flood = 2.0**digits.flood / Q1
    expected = math.hypot(noise_deviation(SECURE_DEGREE), flood / math.sqrt(12))
    assert np.sqrt(np.mean(noise**2)) == pytest.approx(expected, rel=0.03)
    assert np.abs(noise).max() < 7 * noise_deviation(SECURE_DEGREE) + flood / 2


def test_bytes_are_those_of_the_table(key: LatticePrivateKey) -> None:
    """A row, a sum back and a key, five digits each."""
    layout = Layout((1 << 30, 1 << 30, 1), 30_000, 2)
    form = LatticeEngine().ciphertext_format(layout, SECURE_DEGREE)
    assert form.parts == 5
    assert form.row_bytes(16_384) / 16_384 <= 62
    assert form.sum_bytes(352) / 352 <= 820
    assert len(key.public.material().data) == material_size(SECURE_DEGREE, 5) <= 9.1e6


# -- arithmetic and draws --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["signs", "chosen"])
@pytest.mark.parametrize("n", [512, 4096])
def test_transforms_are_negacyclic_products_at_the_extremes(n: int, kind: str) -> None:
    """All coefficients at ±q/2; or such that the first value is the sum of q/2 and of .49·q of each level."""
    rng, made = np.random.default_rng(0), ring(n)
    x = np.zeros((1, 2, n))
    for prime, (q, t) in enumerate(zip(PRIMES, made.transforms, strict=True)):
        if kind == "signs":
            x[0, prime] = (q // 2) * rng.choice([-1.0, 1.0], n)
            continue
        x[0, prime, 0] = q // 2
        passes = [t.first, *(t.later[block, :, 0] for block in (0, 1, 9) if block < len(t.later))]
        for level, factor in enumerate(own[at] for own in passes for at in (0, 1, 3)):
            x[0, prime, n >> level + 1] = balanced(int(0.49 * q) * pow(int(factor), -1, q), q)
    y = np.zeros((1, 2, n))
    y[0, :, 3] = y[0, :, n - 1] = 1.0
    values, other, product, out = x.copy(), y.copy(), np.empty_like(x), np.empty_like(x)
    loops.to_values(made, values)
    loops.to_values(made, other)
    loops.multiply_all(made, values, other, product)
    loops.to_coefficients(made, product, out)
    for prime, q in enumerate(PRIMES):
        a = [int(each) for each in x[0, prime]]
        shifted = [(-a[i - 3 + n] if i < 3 else a[i - 3]) for i in range(n)]
        back = [(-a[i + 1] if i + 1 < n else a[0]) for i in range(n)]
        expected = [balanced(s + b, q) for s, b in zip(shifted, back, strict=True)]
        assert out[0, prime].astype(np.int64).tolist() == expected


class Sizes(_Arithmetic):
    """What the code that is emitted makes of largest absolute values, which are multiples of q."""

    def __init__(self, q: int) -> None:
        self.b = self
        self.lost = (Fraction(1, 1 << 53) + abs(Fraction(1 / q) * q - 1)) * q / 2  # of a quotient, for each B

    def fadd(self, x: Fraction, y: Fraction) -> Fraction:
        return x + y

    fsub = fadd

    def reduce(self, x: Fraction) -> Fraction:
        assert x < 16
        return Fraction(1, 2)

    def by(self, x: Fraction, factor: Any = None) -> Fraction:
        assert x < 8
        return Fraction(1, 2) + x * self.lost


@pytest.mark.parametrize("q", PRIMES)
def test_no_transform_leaves_the_range_in_which_quotients_are_rounded(q: int) -> None:
    """The bounds of ``ring.py``, of the largest coefficients and of a difference of two 0/1 ones."""
    of, factors = Sizes(q), [None] * 7
    for size, passes in (
        ([Fraction(1, 2)] * 8, 4),
        (of.three_levels_of(lambda i, product: Fraction(1, 2), factors), 2),
        ([Fraction(1)] * 8, 3),
    ):
        for _ in range(passes):
            size = of.three_levels([max(size)] * 8, factors)
        assert of.by(max(size)) + Fraction(1, 2) < Fraction(13, 10)  # a sum that is rounded twice
    size = Fraction(13, 10)
    for _ in range(3):
        size = max(of.three_levels_back([size] * 8, factors))
        assert size < Fraction(14, 10)
    of.three_levels_back([size] * 8, factors, (None, None))


def test_draws_have_their_distributions() -> None:
    """Means and variances within five standard errors; uniform residues balanced and within the prime."""
    stream = Stream.secret(SecureRandom())
    errors = stream.errors((200_000,))
    assert abs(errors.mean()) < 5 * math.sqrt(ERROR_VARIANCE / 200_000)
    assert errors.var() == pytest.approx(ERROR_VARIANCE, rel=5 * math.sqrt(2 / 200_000))
    apart = stream.errors((30, 6144)).reshape(30, 3, 2048).astype(np.float64)  # one of three is made of two words
    assert np.abs(np.corrcoef(apart.swapaxes(0, 1).reshape(3, -1)) - np.eye(3)).max() < 5 / math.sqrt(30 * 2048)
    for part in apart.swapaxes(0, 1):
        assert part.var() == pytest.approx(ERROR_VARIANCE, rel=5 * math.sqrt(2 / part.size))
    assert [stream.errors((count,)).shape for count in (0, 1, 2, 5, 6145)] == [(0,), (1,), (2,), (5,), (6145,)]
    bits = stream.ternary(50, 4096)
    ternary = signs(bits)
    assert np.bincount(ternary.reshape(-1) + 1) / ternary.size == pytest.approx(
        1 / 3, abs=5 * math.sqrt(2 / 9 / 204_800)
    )
    planes = np.unpackbits(bits, axis=-1, bitorder="little").reshape(50, 2, 512, 8).transpose(0, 1, 3, 2)
    np.testing.assert_array_equal(planes.reshape(50, 2, 4096)[:, 0], ternary == 1)
    np.testing.assert_array_equal(planes.reshape(50, 2, 4096)[:, 1], ternary == -1)
    uniform = stream.uniform(10, 4096)
    for prime, q in enumerate(PRIMES):
        assert np.abs(uniform[:, prime]).max() <= q // 2
        assert abs(uniform[:, prime].mean()) < 5 * q / math.sqrt(12 * 40_960)
    flood = stream.flood(57, 10_000)
    assert -(1 << 56) <= flood.min() < flood.max() < 1 << 56
    assert abs(flood.mean()) < 5 * 2.0**57 / math.sqrt(12 * 10_000)


def test_public_and_secret_streams_differ() -> None:
    """A seed gives one stream for each purpose, and no secret one."""
    seed = bytes(16)
    streams = [Stream.public(seed, purpose).words(4).tolist() for purpose in (b"rows", b"masks", b"packing")]
    streams.append(Stream(seed + seed).words(4).tolist())
    assert len({tuple(each) for each in streams}) == 4
    assert Stream.public(seed, b"rows").words(4).tolist() == streams[0]


# -- refusals --------------------------------------------------------------------------------------------------------


def test_degrees(key: LatticePrivateKey) -> None:
    made = LatticeEngine()
    for bits in (0, 2048, 8192):
        with refused(EncryptionError, "range", value=bits):
            made.generate(bits, protection=SecureRandom(), insecure=True)
    with refused(EncryptionError, "key", value=512):
        made.generate(512, protection=SecureRandom())
    assert (made.security_level(4096), made.security_level(512)) == (128, 0)
    assert made.insecure_reason(512)
    assert not made.insecure_reason(4096)


def test_the_default_of_bits_is_the_engines() -> None:
    for name in ("paillier", "lattice"):
        assert EncryptionSection(engine=name).bits == engine(name).bits_offered[0]


def all_ones(data: bytes, start: int) -> bytes:
    """Set seven bytes, so that a whole word is 2^49 - 1, which is below no prime."""
    return data[:start] + b"\xff" * 14 + data[start + 14 :]


def test_words_that_are_not_below_their_prime(key: LatticePrivateKey) -> None:
    layout = Layout((5, 7), 40, 2)
    fresh = key.encrypt(np.ones((40, 2), np.int64), layout).block()
    sealed = key.public.rows(fresh).group_sums(np.zeros((40, 1), np.int32), 1).rerandomize()
    own = key.public.encrypt_sums(np.ones((1, 3, 2), np.int64), layout)
    explicit = key.public.encrypt(np.ones((40, 2), np.int64), layout).block()
    for block in (fresh, sealed, own, explicit):
        for start in (len(block.data) - 30, len(block.data) // 2):
            altered = msgspec.structs.replace(block, data=all_ones(block.data, start))
            with refused(EncryptionError, "ciphertext"):
                key.decrypt(altered)
    with refused(EncryptionError, "ciphertext"):
        key.public.sums(msgspec.structs.replace(own, data=all_ones(own.data, 2)))
    with refused(EncryptionError, "ciphertext"):
        key.public.rows(msgspec.structs.replace(fresh, data=all_ones(fresh.data, len(fresh.data) - 30)))


def test_blocks_of_another_format_or_form(key: LatticePrivateKey) -> None:
    layout = Layout((5, 7), 4, 2)
    fresh = key.encrypt(np.ones((4, 2), np.int64), layout).block()
    sealed = key.public.rows(fresh).group_sums(np.zeros((4, 1), np.int32), 1).rerandomize()
    for block in (fresh, sealed):
        for head in (b"\2" + block.data[1:2], block.data[:1] + b"\x09", b"\1\0"):
            with refused(EncryptionError, "ciphertext"):
                key.decrypt(msgspec.structs.replace(block, data=head + block.data[2:]))
    with refused(EncryptionError, "unsupported"):
        key.public.sums(sealed)


def test_public_keys_of_another_size_or_format(key: LatticePrivateKey) -> None:
    made, material = LatticeEngine(), key.public.material()
    for data in (material.data[:-1], material.data + b"\0", b""):
        with refused(EncryptionError, "key", value=len(data)):
            made.public(msgspec.structs.replace(material, data=data), protection=SecureRandom())
    with refused(EncryptionError, "format-version", value=9):
        made.public(msgspec.structs.replace(material, data=b"\x09" + material.data[1:]), protection=SecureRandom())
    with refused(EncryptionError, "key"):
        altered = all_ones(material.data, len(material.data) // 2)
        made.public(msgspec.structs.replace(material, data=altered), protection=SecureRandom())
    other = engine("lattice", parameters={"secrets": 4})
    with refused(EncryptionError, "key"):
        other.public(material, protection=SecureRandom())


def test_more_rows_than_digits_have_room(key: LatticePrivateKey) -> None:
    with refused(EncryptionError, "capacity"):
        key.public.allocate_rows(Layout((1,), 1 << 40, 1), 1)


def test_a_key_for_sums_alone_is_small_and_serves_no_rows(key: LatticePrivateKey) -> None:
    """Rows under it are refused at both ends, and neither kind of key opens as the other."""
    made, layout = LatticeEngine(), Layout((3,), 10, 1)
    small = made.generate_for_sums(SECURE_DEGREE, protection=SecureRandom())
    material, whole = small.public.material(), key.public.material()
    assert len(material.data) == 1 + SEED_BYTES + packed_size(2 * SECURE_DEGREE) < 60_000 < len(whole.data) / 100
    public = made.public_for_sums(material, protection=SecureRandom())
    for encrypting in (small, public):
        with refused(EncryptionError, "unsupported"):
            encrypting.encrypt(np.ones((2, 1), np.int64), layout)
    with refused(EncryptionError, "unsupported"):
        public.allocate_rows(layout, 2)
    rows = key.encrypt(np.ones((2, 1), np.int64), layout)
    sealed = rows.group_sums(np.zeros((2, 1), np.int32), 1).rerandomize()
    for block in (rows.block(), sealed):
        with refused(EncryptionError, "unsupported"):
            small.decrypt(replace_key(block, public.fingerprint))
    for opens, other in ((made.public, material), (made.public_for_sums, whole)):
        with refused(EncryptionError, "key"):
            opens(other, protection=SecureRandom())


def test_own_sums_of_too_many_parties(key: LatticePrivateKey) -> None:
    opened = key.public.sums(key.public.encrypt_sums(np.ones((1, 1, 1), np.int64), Layout((1,), 10_000, 1)))
    total = opened
    for _ in range(8):
        total = total + total
    assert key.decrypt(total.rerandomize()).tolist() == [[[256]]]
    with refused(EncryptionError, "capacity"):
        _ = total + opened


# -- other processors ------------------------------------------------------------------------------------------------

_PROGRAM = """
import hashlib, numpy as np
from labelward.he import engine
from labelward.he.base import Layout
from labelward.he.lattice.kernel import kernel_name
from labelward.rng import SecureRandom
key = engine("lattice").generate(4096, protection=SecureRandom(1))
values = np.random.default_rng(0).integers(-5, 6, (5000, 2))
rows = key.public.rows(key.encrypt(values, Layout((5, 5), 5000, 2)).block())
groups = np.random.default_rng(1).integers(-1, 300, (5000, 2)).astype(np.int32)
groups[:, 1] //= 20
print(kernel_name(), hashlib.sha256(rows.group_sums(groups, 300).rerandomize().data).hexdigest())
"""


@pytest.mark.slow
def test_other_instructions_give_the_same_bits(tmp_path: Path) -> None:
    """Without AVX-512, and without vectors of four; a seeded source makes both runs draw the same."""
    found = {}
    for features in ("", "+sse2,+avx,+avx2,+fma,+bmi2", "+sse2,+fma,+avx"):
        forced = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features} if features else {}
        env = os.environ | forced | {"NUMBA_CACHE_DIR": str(tmp_path / str(len(features)))}
        done = subprocess.run([sys.executable, "-c", _PROGRAM], env=env, capture_output=True, text=True, check=True)
        name, digest = done.stdout.split()
        found[features] = name, digest
    assert len({digest for _, digest in found.values()}) == 1
    assert found["+sse2,+avx,+avx2,+fma,+bmi2"][0] == "avx2"
    assert found["+sse2,+fma,+avx"][0] == "plain"


@pytest.mark.parametrize("n_groups", [5, 20, 200])  # a batch for several threads, parts of rows, and many batches
@pytest.mark.parametrize("spacing", [1, 4])
def test_work_in_threads_is_the_same(spacing: int, n_groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded source, one thread and three: the same bytes, the same sums and the same count of additions."""
    monkeypatch.setattr(threads, "_ENTRIES", 0)
    values = np.arange(-350, 350).reshape(-1, 1)
    layout = Layout((400,), 700, 1, spacing=spacing)
    groups = np.random.default_rng(0).integers(-1, n_groups, (700, 5)).astype(np.int32)
    found = []
    for workers in (1, 3):
        made = engine("lattice", workers=workers)
        key = made.generate(512, protection=SecureRandom(1), insecure=True)
        rows = key.public.rows(key.encrypt(values, layout).block())
        sums = rows.group_sums(groups, n_groups).rerandomize()
        found.append((sums, key.decrypt(sums), key.public.counts.additions))
    assert found[0][0] == replace_key(found[1][0], found[0][0].key)
    np.testing.assert_array_equal(found[0][1], fast_sums(SumCase(layout, values, groups, n_groups)))
    np.testing.assert_array_equal(found[1][1], found[0][1])
    assert found[0][2] == found[1][2] > 0


@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 4))
def test_pieces_of_work_are_even(count: int, workers: int, most: int) -> None:
    pieces = threads.even_chunks(count, workers, most)
    assert [i for piece in pieces for i in range(piece.start, piece.stop)] == list(range(count))
    sizes = [piece.stop - piece.start for piece in pieces]
    assert not sizes or max(sizes) <= min(most, min(sizes) + 1)
    assert len(pieces) >= min(count, workers)


def replace_key(block: Any, key: bytes) -> Any:
    """Return the block as one of another key."""
    return msgspec.structs.replace(block, key=key)
