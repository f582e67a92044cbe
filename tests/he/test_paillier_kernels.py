"""All kernels give the same bytes, and which one runs is told and can be chosen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import cache
from math import gcd
from pathlib import Path

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from blames import refused_about
from labelward.errors import EncryptionError, InputError
from labelward.he.paillier import PaillierEngine
from labelward.he.paillier.backends.base import BACKENDS, VARIABLE, Backend, select_backend, unavailable_reason
from labelward.he.paillier.backends.processes import ProcessBackend
from labelward.he.paillier.column_merging import present_rows
from labelward.he.paillier.int_bytes import byte_length, write_ints
from labelward.he.paillier.primes import generate_primes, subgroup_generator
from labelward.he.paillier.scheme import PublicEncryptor, public_bases, random_exponents
from labelward.he.row_store import RowStore
from labelward.he.threads import run_in_threads
from labelward.rng import SecureRandom

#: What runs where there is no IFMA.
NEXT = next(name for name in BACKENDS if name != "ifma" and not unavailable_reason(name))
needs_ifma = pytest.mark.skipif(bool(unavailable_reason("ifma")), reason=f"no IFMA here: {unavailable_reason('ifma')}")
fast_kernels = pytest.mark.parametrize(
    "fast",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                bool(unavailable_reason(name)), reason=f"no {name} here: {unavailable_reason(name)}"
            ),
        )
        for name in BACKENDS
        if name != "gmpy2"
    ],
)
LIMB, WORD = 2**52, 2**64
# one less or more than a limb's end, the ends themselves, and a carry through all limbs
EDGES = [0, 1, 2, LIMB - 1, LIMB, LIMB + 1, LIMB**2 - 1, LIMB**3, LIMB**5 - 1, LIMB**5 - LIMB]
WORDS = [WORD - 1, WORD, WORD + 1, WORD**2 - 1, WORD**3 - WORD, WORD**4 - 1]


def moduli(bits: int) -> list[int]:
    """Odd numbers of so many bits: the least, the largest, all limbs but one zero, and others."""
    rng = np.random.default_rng(bits)
    drawn = int.from_bytes(rng.bytes(bits // 8), "big") | 1 | 1 << (bits - 1)
    return [2 ** (bits - 1) + 1, 2**bits - 1, 2**bits - LIMB + 1, 2**bits - 2 ** (bits // 2) - 1, drawn]


def summed(kernel: Backend, n: mpz, data: bytes, groups: np.ndarray, n_groups: int) -> bytes:
    """Sum in one go, each column by itself."""
    rows = kernel.prepared_rows(n, len(groups), RowStore().allocate)
    rows.add(data)
    return rows.sums(present_rows(groups, n_groups), n_groups, tuple((f,) for f in range(groups.shape[1])))


@needs_ifma
@pytest.mark.parametrize("bits", [104, 256, 512, 2048, 3072, 4096])
def test_products_are_those_of_integers(bits: int) -> None:
    """Edges and random numbers against integer arithmetic: congruent, and below the bound that is promised."""
    from labelward.he.paillier.backends.ifma import loops
    from labelward.he.paillier.backends.ifma.arithmetic import LaneArithmetic, from_rows, to_lanes, to_limbs

    rng = np.random.default_rng(bits)
    for value in moduli(bits):
        root = LaneArithmetic(mpz(value))
        for modulus, rows in ((root.square, root.rows), (root.square, root.square.rows), (root.modulus, root.rows)):
            m, radix, size = int(modulus.value), 2 ** (52 * rows), byte_length(modulus.value)
            largest = min(2 * m, radix // 8) - 1
            edges = [edge for edge in [*EDGES, value - 1, value, m - 1, m, largest] if edge <= largest]
            factors = edges + [
                int.from_bytes(rng.bytes(size), "big") % (largest + 1) for _ in range(8 - len(edges) % 8)
            ]
            starts = [edge for edge in [*EDGES, value - 1, m - 1, m, 2 * m - 1] if edge < 2 * m][-8:]
            start = to_lanes(np.stack([to_limbs(mpz(x), modulus.limbs) for x in starts]))[0]
            lanes = to_lanes(np.stack([to_limbs(mpz(x), rows) for x in factors]))
            out = np.empty((len(lanes), modulus.limbs, 8), np.uint64)
            loops.product_chain(start, lanes, modulus.odd, out)
            before = starts + [0] * (8 - len(starts))
            for group, made in enumerate(out):
                now = [int(x) for x in from_rows(np.ascontiguousarray(made.T))]
                for x, y, z in zip(before, factors[group * 8 :], now, strict=False):
                    assert (z * radix - x * y) % m == 0
                    assert z * radix < x * y + m * radix
                before = now


@needs_ifma
@pytest.mark.parametrize("bits", [104, 256, 512, 520, 1040, 2048, 3072, 4096])
def test_squares_are_those_of_integers(bits: int) -> None:
    """As for products; one after the other, from edges and random numbers."""
    from labelward.he.paillier.backends.ifma import loops
    from labelward.he.paillier.backends.ifma.arithmetic import LaneArithmetic, from_rows, to_lanes, to_limbs

    rng = np.random.default_rng(bits)
    for value in moduli(bits):
        for modulus in (LaneArithmetic(mpz(value)).square, LaneArithmetic(mpz(value)).modulus):
            m, limbs = int(modulus.value), modulus.limbs
            edges = [edge for edge in [0, LIMB - 1, LIMB**5 - 1, m - 1, m, 2 * m - 1, LIMB**limbs - 1] if edge < 2 * m]
            drawn = [int.from_bytes(rng.bytes(byte_length(modulus.value)), "big") % (2 * m) for _ in range(8)]
            before = (edges + drawn)[:8]
            start = to_lanes(np.stack([to_limbs(mpz(x), modulus.rows) for x in before]))[0]
            out = np.empty((3, limbs, 8), np.uint64)
            loops.square_chain(start, modulus.odd, out)
            for made in out:
                now = [int(x) for x in from_rows(np.ascontiguousarray(made.T))]
                for x, z in zip(before, now, strict=True):
                    assert (z * int(modulus.radix) - x * x) % m == 0
                    assert z * int(modulus.radix) < x * x + m * int(modulus.radix)
                before = now


@cache
def secrets(bits: int) -> tuple[mpz, mpz, mpz, mpz]:
    """Return p, q and the bases of a key that is the same in each run."""
    protection = SecureRandom(seed=bits)
    first, second = generate_primes(bits, protection)
    return first.p, second.p, subgroup_generator(first, protection), subgroup_generator(second, protection)


@fast_kernels
@given(
    bits=st.sampled_from([256, 272, 512, 1024]),
    count=st.integers(1, 40),
    size=st.sampled_from([1, 7, 14, 31]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=30)
def test_encrypting_and_decrypting(fast: str, bits: int, count: int, size: int, threads: int, seed: int) -> None:
    """Plaintexts and exponents at their ends and within."""
    p, q, *_ = numbers = secrets(bits)
    rng, protection, limit = np.random.default_rng(seed), SecureRandom(seed), 1 << (8 * size - 1)
    drawn = [int.from_bytes(rng.bytes(size), "big", signed=True) for _ in range(count)]
    plaintexts = [0, 1, -1, limit - 1, -limit, *drawn][-count:] if seed % 2 else drawn
    x, y = (random_exponents(int(prime) - 1, count, protection) for prime in (p, q))
    if count > 2:
        x = write_ints([0, p - 2], byte_length(p)) + x[2 * byte_length(p) :]
    data, made = write_ints(plaintexts, size, signed=True), []
    for kernel in (select_backend("gmpy2"), select_backend(fast, threads=threads)):
        owner = kernel.private_ops(*numbers, uses=10)
        ciphertexts = owner.encrypt(data, size, x, y)
        completed = owner.complete(owner.encrypt(bytes(count), 1, x, y), data, size)
        made.append((ciphertexts, completed, owner.decrypt(ciphertexts)))
    assert made[0] == made[1]
    assert made[0][0] == made[0][1]


@fast_kernels
@given(
    bits=st.sampled_from([256, 512, 1040]),
    n=st.integers(1, 30),
    columns=st.integers(1, 3),
    n_groups=st.integers(1, 6),
    threads=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=40)
def test_sums_and_seals(fast: str, bits: int, n: int, columns: int, n_groups: int, threads: int, seed: int) -> None:
    """Ciphertexts at the ends of their range and of limbs, for moduli at the ends of theirs."""
    rng = np.random.default_rng(seed)
    value = moduli(bits)[seed % 5]
    square, size = value**2, byte_length(mpz(value) ** 2)
    candidates = [*EDGES, *WORDS, value - 1, value + 1, square - 1, square - value - 1, square // 2]
    candidates += [int.from_bytes(rng.bytes(size), "big") % square for _ in range(n)]
    units = [c for c in candidates if gcd(c, value) == 1]
    data = write_ints([mpz(units[i]) for i in rng.integers(0, len(units), n)], size)
    groups = rng.integers(-1, n_groups, size=(n, columns)).astype(np.int32)
    outputs = -(-columns * n_groups // 3)
    random = rng.bytes(outputs * PublicEncryptor.random_size(mpz(value))[1])
    # any two units serve as bases here: the kernels are compared, not their randomness
    bases, made = (mpz(units[0]), mpz(units[-1])), []
    for kernel in (select_backend("gmpy2"), select_backend(fast, threads=threads)):
        sums = summed(kernel, mpz(value), data, groups, n_groups)
        public = kernel.public_ops(mpz(value), *bases, uses=10)
        encrypted = public.encrypt(write_ints([-5] * outputs, 2, signed=True), 2, random)
        made.append((sums, public.rerandomize(sums, 3, 70, random), encrypted))
    assert made[0] == made[1]


@fast_kernels
@pytest.mark.parametrize("bits", [2048, *(pytest.param(bits, marks=pytest.mark.slow) for bits in (3072, 4096))])
def test_the_sizes_that_are_offered(fast: str, bits: int) -> None:
    """Each operation once at full size; small plaintexts of both signs."""
    numbers = secrets(bits)
    n, protection = numbers[0] * numbers[1], SecureRandom(seed=1)
    count = 60
    x, y = (random_exponents(int(prime) - 1, count, protection) for prime in numbers[:2])
    data = write_ints(range(-30, 30), 14, signed=True)
    bases, random = public_bases(n, protection), protection.bytes(4 * PublicEncryptor.random_size(n)[1])
    groups = np.random.default_rng(0).integers(-1, 7, size=(count, 2)).astype(np.int32)
    made = []
    for kernel in (select_backend("gmpy2"), select_backend(fast, threads=2)):
        owner, public = kernel.private_ops(*numbers, uses=10), kernel.public_ops(n, *bases, uses=10)
        ciphertexts = owner.encrypt(data, 14, x, y)
        sums = summed(kernel, n, ciphertexts, groups, 7)
        made.append((ciphertexts, sums, (sealed := public.rerandomize(sums, 4, 104, random)), owner.decrypt(sealed)))
    assert made[0] == made[1]


@fast_kernels
def test_long_cells(fast: str) -> None:
    """Sums of more rows than a word takes without settling, over several stretches of the lanes."""
    value, n = moduli(256)[1], 40_000
    data = write_ints([mpz(LIMB**9 - LIMB + 1), mpz(value - 1)] * (n // 2), 64)
    groups = np.zeros((n, 1), np.int32)
    assert gcd(LIMB**9 - LIMB + 1, value) == 1
    first, second = (
        summed(kernel, mpz(value), data, groups, 2) for kernel in (select_backend("gmpy2"), select_backend(fast))
    )
    assert first == second


@fast_kernels
def test_a_row_that_shares_a_factor(fast: str) -> None:
    data = write_ints([mpz(1), mpz(5)], 64)
    with refused_about("factor", EncryptionError, "ciphertext"):
        select_backend(fast).prepared_rows(mpz(5 * (2**253 + 1) | 1), 2, RowStore().allocate).add(data)


@pytest.mark.parametrize(
    ("name", "variable"), [(None, ""), (None, "gmpy2"), (None, NEXT), ("gmpy2", ""), ("gmpy2", "ifma"), (NEXT, "gmpy2")]
)
def test_switching_kernels_off(monkeypatch: pytest.MonkeyPatch, name: str | None, variable: str) -> None:
    monkeypatch.setenv(VARIABLE, variable)
    engine = PaillierEngine(workers=2, kernel=name)
    fastest = next(each for each in BACKENDS if not unavailable_reason(each))
    assert engine.describe()["kernel"] == (name or variable or fastest)
    assert isinstance(engine.backend, ProcessBackend) == (engine.describe()["kernel"] == "gmpy2")
    engine.close()


def test_a_kernel_that_cannot_run_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the variable asks for it; code that names a kernel gets it or an error."""
    monkeypatch.setitem(BACKENDS, "ifma", "labelward.he.paillier.no_such_module")
    assert "no_such_module" in unavailable_reason("ifma")
    assert select_backend().name == NEXT
    monkeypatch.setenv(VARIABLE, "ifma")
    assert select_backend().name == NEXT
    monkeypatch.setitem(BACKENDS, "libgmp", "labelward.he.paillier.no_such_module")
    assert select_backend().name == "gmpy2"
    with refused_about("no_such_module", InputError, "dependency", value="ifma"):
        select_backend("ifma")


def test_a_processor_without_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    ifma = pytest.importorskip("labelward.he.paillier.backends.ifma.backend")
    monkeypatch.setattr(ifma.binding, "get_host_cpu_features", lambda: {"avx512f": True, "avx512ifma": False})
    assert "avx512ifma" in unavailable_reason("ifma")
    assert select_backend().name == NEXT


def test_each_piece_is_done_once_and_pieces_may_have_pieces() -> None:
    """However many threads are asked for, and though all helpers may be busy."""
    done: list[tuple[int, int]] = []

    def piece(index: int) -> None:
        run_in_threads(8, lambda part: done.append((index, part)), range(5))

    for threads in (1, 2, 100):
        done.clear()
        run_in_threads(threads, piece, range(40))
        assert sorted(done) == [(index, part) for index in range(40) for part in range(5)]
    run_in_threads(2, piece, [])


@needs_ifma
def test_a_failing_piece_ends_the_work_and_is_told() -> None:
    from labelward.he.paillier.backends.ifma.arithmetic import lane_chunks

    done: list[int] = []

    def piece(index: int) -> None:
        if index == 1:
            raise EncryptionError("piece 1", code="key")
        time.sleep(0.01)
        done.append(index)

    with pytest.raises(EncryptionError, match="piece 1"):
        run_in_threads(2, piece, range(100))
    assert len(done) < 99
    assert lane_chunks(0, 2) == []
    assert [(part.start, part.stop) for part in lane_chunks(30, 2)] == [(0, 16), (16, 30)]


def test_a_folder_that_cannot_be_written_to_hold_compiled_code(tmp_path: Path) -> None:
    """Numba then refuses to cache; the engine runs on gmpy2 and the doctor says why."""
    code = (
        "import numba.core.caching as caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "from labelward.he.paillier.backends.base import select_backend, unavailable_reason\n"
        "assert 'cache' in (why := unavailable_reason('ifma')) or 'processor' in why, why\n"
        "assert 'cache' in unavailable_reason('libgmp'), unavailable_reason('libgmp')\n"
        "assert select_backend().name == 'gmpy2'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_unknown_kernels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with refused_about("gmpy2", InputError, "unknown", value="gmpy"):
        select_backend("gmpy")
    monkeypatch.setenv(VARIABLE, "ifmaa")
    with refused_about("ifma", InputError, "unknown", value="ifmaa"):
        select_backend()


def test_the_plain_kernel_compiles_nothing() -> None:
    code = (
        "import sys; from labelward.he.paillier import PaillierEngine; PaillierEngine(kernel='gmpy2');"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("variable", "value", "why", "runs"),
    [
        ("NUMBA_CPU_NAME", "generic", "told to compile without", NEXT),
        ("NUMBA_ENABLE_AVX", "0", "told to compile without", NEXT),
        ("NUMBA_DISABLE_JIT", "1", "NUMBA_DISABLE_JIT is set", "gmpy2"),
    ],
)
def test_where_numba_does_not_compile_for_the_host_another_kernel_runs(
    variable: str, value: str, why: str, runs: str
) -> None:
    """LLVM would end the process at the first product, beyond the reach of any ``except``."""
    script = (
        "from labelward.he.paillier.backends.base import select_backend, unavailable_reason;"
        "print(select_backend().name); print(unavailable_reason('ifma'))"
    )
    environment = {**os.environ, variable: value}
    environment.pop("LABELWARD_KERNEL", None)
    ended = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    name, reason = ended.stdout.splitlines()
    assert name == runs
    assert why in reason or "the processor has no" in reason
