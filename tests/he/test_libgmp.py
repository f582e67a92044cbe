"""libgmp's functions: found, tried before they are trusted, and multiplying as integers do."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from math import gcd
from pathlib import Path

import numpy as np
import pytest
from gmpy2 import invert, mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.errors import InputError
from labelward.he.paillier.backends.base import BACKENDS, VARIABLE, select_backend, unavailable_reason
from labelward.he.paillier.column_merging import present_rows
from labelward.he.paillier.int_bytes import byte_length, write_ints
from labelward.he.row_store import RowStore
from refusals import refused

needs_libgmp = pytest.mark.skipif(
    bool(unavailable_reason("libgmp")), reason=f"no libgmp here: {unavailable_reason('libgmp')}"
)
WORD = 2**64
# sizes in limbs below and above that from which products are taken modulo 2^(64·k) - 1, odd ones too
SIZES = [1, 2, 3, 16, 19, 20, 21, 32, 33, 64]


def moduli(limbs: int) -> list[int]:
    """Odd numbers: the largest of so many limbs, a small one, one whose highest limb is small, others."""
    bits, rng = 64 * limbs, np.random.default_rng(limbs)
    drawn = int.from_bytes(rng.bytes(bits // 8), "big") | 1
    half = 2 ** (32 * limbs)
    least = 2 ** (bits - 64) | 3
    return [2**bits - 1, least, 2 ** (bits - 40) + drawn % 2**20 * 2 + 1, 2**bits - half - 1, drawn]


def numbers_below(bound: int, rng: np.random.Generator, count: int) -> list[int]:
    """Return edges of limbs and of the range, and numbers whose limbs are drawn from few values."""
    limbs = -(-bound.bit_length() // 64)
    edges = [0, 1, WORD - 1, WORD, WORD**2 - WORD, 2 ** (64 * limbs - 1), bound - 1, bound // 2, WORD ** (limbs - 1)]
    few = np.array([0, 1, 2**63, WORD - 2, WORD - 1], dtype=np.uint64)
    drawn = [int.from_bytes(rng.choice(few, limbs).tobytes(), "little") for _ in range(count // 2)]
    drawn += [int.from_bytes(rng.bytes(8 * limbs), "little") for _ in range(count - count // 2)]
    return [number % bound for number in [*edges, *drawn]]


class Cells:
    """Cells of one modulus beside what they stand for, as integers."""

    def __init__(self, value: int) -> None:
        from labelward.he.paillier.backends.gmp.arithmetic import CellArithmetic

        self.root = CellArithmetic(mpz(value))
        self.value, self.radix, self.limbs = value, 2 ** (64 * self.root.limbs), self.root.limbs
        self.work = self.root.work()

    def make(self, low: int, high: int, total: int = 0) -> np.ndarray:
        from labelward.he.paillier.backends.gmp.arithmetic import to_words

        sizes = (self.limbs, self.limbs, self.limbs + 1)
        return np.concatenate([to_words(mpz(x), size) for x, size in zip((low, high, total), sizes, strict=True)])

    def parts(self, cell: np.ndarray) -> list[int]:
        from labelward.he.paillier.backends.gmp.arithmetic import from_words

        return [int(from_words(part)) for part in np.split(cell, [self.limbs, 2 * self.limbs])]

    def meaning(self, cell: np.ndarray) -> int:
        """Return A + N·X/R modulo N²; A and X are where they should be."""
        low, high, _ = self.parts(cell)
        assert low <= self.value
        return (low + self.value * (high * int(invert(self.radix, self.value)) % self.value)) % self.value**2

    def over_radix(self, number: int) -> int:
        return number * int(invert(self.radix, self.value**2)) % self.value**2


@needs_libgmp
@pytest.mark.parametrize("limbs", SIZES)
def test_products_are_those_of_integers(limbs: int) -> None:
    """Digits and cells at the edges of limbs, one product after the other, so that all states of A and X occur."""
    from labelward.he.paillier.backends.gmp import digits as libgmp_limbs

    rng = np.random.default_rng(limbs)
    for value in moduli(limbs):
        cells = Cells(value)
        odd, mpn, work = cells.root.odd, cells.root.mpn, cells.work.ctypes.data
        inverse = int(invert(value, cells.radix))
        lows, highs = numbers_below(value, rng, 12), numbers_below(cells.radix, rng, 12)
        cell, other = cells.make(lows[-1], highs[-1]), cells.make(0, 0)
        for low, high in zip(lows, highs, strict=True):
            before = cells.meaning(cell)
            digit = cells.make(low, low * inverse % cells.radix)
            libgmp_limbs.multiply_digit(mpn, odd, work, cell.ctypes.data, digit.ctypes.data, digit[limbs:].ctypes.data)
            assert cells.meaning(cell) == cells.over_radix(before * low)
            before, other[:] = cells.meaning(cell), cells.make(low, high, low)
            total = cells.parts(cell)[2]
            libgmp_limbs.multiply_cell(mpn, odd, work, cell.ctypes.data, other.ctypes.data)
            assert cells.meaning(cell) == cells.over_radix(before * cells.meaning(other))
            assert cells.parts(cell)[2] == total + low
            other[2 * limbs :] = 0
            before = cells.meaning(other)
            libgmp_limbs.square_cell(mpn, odd, work, other.ctypes.data)
            assert cells.meaning(other) == cells.over_radix(before * before)
            if low in (0, value):
                cell[:] = cells.make(lows[-2], highs[-2])


@needs_libgmp
@pytest.mark.parametrize("limbs", SIZES)
def test_numbers_become_cells_and_cells_numbers(limbs: int) -> None:
    rng = np.random.default_rng(limbs)
    for value in moduli(limbs):
        cells = Cells(value)
        numbers = numbers_below(value**2, rng, 20)
        data = np.frombuffer(b"".join(x.to_bytes(16 * limbs, "little") for x in numbers), dtype=np.uint64)
        made = cells.root.cells(data.reshape(-1, 2 * limbs).copy())
        assert [cells.meaning(cell) for cell in made] == [x * cells.radix % value**2 for x in numbers]
        totals = [*numbers_below(cells.radix, rng, len(numbers)), WORD * cells.radix - 1][-len(numbers) :]
        for cell, total in zip(made, totals, strict=True):
            cell[2 * limbs :] = cells.make(0, 0, total)[2 * limbs :]
        found = cells.root.values(made)
        expected = [x * (1 + value * total) % value**2 for x, total in zip(numbers, totals, strict=True)]
        assert [int.from_bytes(row.tobytes(), "little") for row in found] == expected


@needs_libgmp
@given(
    bits=st.sampled_from([256, 272, 1280]),
    n=st.integers(1, 60),
    n_groups=st.integers(1, 5),
    joined=st.sampled_from([((0,), (1,), (2,)), ((0, 1), (2,)), ((0, 2), (1,)), ((0, 1, 2),)]),
    threads=st.integers(1, 3),
    start=st.integers(0, 20),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=40)
def test_joint_cells(
    bits: int, n: int, n_groups: int, joined: tuple[tuple[int, ...], ...], threads: int, start: int, seed: int
) -> None:
    """Rows that come in two blocks and lie in a file, columns summed together, absent rows, empty cells."""
    rng = np.random.default_rng(seed)
    value = mpz(moduli(-(-bits // 64))[seed % 5] % 2**bits | 1 | 1 << (bits - 1))
    units = [x for x in numbers_below(int(value) ** 2, rng, n) if gcd(x, int(value)) == 1][-n:]
    start = min(start, len(units))
    groups = rng.integers(-1, n_groups, size=(len(units) - start, 3)).astype(np.int32)
    made = []
    for kernel, room in (
        (select_backend("gmpy2"), RowStore()),
        (select_backend("libgmp", threads=threads), RowStore(0)),
    ):
        rows = kernel.prepared_rows(value, len(units), room.allocate)
        for part in (units[: n // 3], units[n // 3 :]):
            rows.add(write_ints([mpz(x) for x in part], byte_length(value**2)))
        made.append(rows.sums(present_rows(groups, n_groups, start), n_groups, joined))
    assert made[0] == made[1]


@needs_libgmp
@pytest.mark.parametrize("threads", [1, 3])
def test_cells_that_several_stretches_share(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """Stretches that end within cells, at their ends, and cells of many stretches."""
    from labelward.he.paillier.backends.gmp import backend as libgmp

    monkeypatch.setattr(libgmp, "_STRETCH", 7)
    value, rng = mpz(2**521 - 1), np.random.default_rng(0)
    data = write_ints([mpz(x) for x in rng.integers(1, 2**40, size=150)], 131)
    groups = np.stack([np.repeat([0, 1, 2], [7, 100, 43]), np.zeros(150), rng.integers(-1, 3, size=150)], axis=1)
    made = []
    for kernel in (select_backend("gmpy2"), select_backend("libgmp", threads=threads)):
        rows = kernel.prepared_rows(value, 150, RowStore().allocate)
        rows.add(data)
        made.append(rows.sums(present_rows(groups.astype(np.int32), 3), 3, ((0,), (1, 2))))
    assert made[0] == made[1]


@needs_libgmp
@pytest.mark.parametrize("size", [1, 5, 31, 40])
def test_encryptions_of_zero_are_completed(size: int) -> None:
    """Plaintexts shorter and longer than the modulus, numbers at the ends of their range."""
    p, q = mpz(2**127 - 1), mpz(2**89 - 1) << 38 | 115
    while gcd(int(p * q), int((p - 1) * (q - 1))) != 1 or q % 2 == 0:
        q += 1
    square, limit = (p * q) ** 2, mpz(1) << (8 * size - 1)
    zeros = write_ints([mpz(1), square - 1, square - p * q + 1, *map(mpz, range(2, 87))], byte_length(square))
    plaintexts = write_ints([limit - 1, -limit, limit - 1, *map(mpz, range(-42, 43))], size, signed=True)
    first, second = (
        kernel.private_ops(p, q, mpz(2), mpz(3), 1).complete(zeros, plaintexts, size)
        for kernel in (select_backend("gmpy2"), select_backend("libgmp", threads=2))
    )
    assert first == second


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """The module that looks for libgmp, which looks anew in the test and after it."""
    from labelward.he.paillier.backends.gmp import load as libgmp_load

    libgmp_load.forget_library()
    yield libgmp_load
    monkeypatch.undo()
    libgmp_load.forget_library()


def check_it_stands_aside(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """Another kernel runs, also where the variable asks for this one; code that names it is told why."""
    assert why in unavailable_reason("libgmp")
    assert select_backend().name != "libgmp"
    monkeypatch.setenv(VARIABLE, "libgmp")
    assert select_backend().name == next(name for name in BACKENDS if not unavailable_reason(name))
    assert select_backend().name != "libgmp"
    with refused(InputError, "dependency", value="libgmp"):
        select_backend("libgmp")


def test_without_a_library(monkeypatch: pytest.MonkeyPatch, load: object) -> None:
    monkeypatch.setattr(load, "gmp_libraries", list)
    check_it_stands_aside(monkeypatch, "no libgmp was found")


def test_a_file_that_is_no_library(monkeypatch: pytest.MonkeyPatch, load: object, tmp_path: Path) -> None:
    (tmp_path / "libgmp.so").write_bytes(b"nothing of the kind")
    monkeypatch.setattr(load, "gmp_libraries", lambda: [("one", lambda: ctypes.CDLL(str(tmp_path / "libgmp.so")))])
    check_it_stands_aside(monkeypatch, "one: ")


def test_a_library_without_the_functions(monkeypatch: pytest.MonkeyPatch, load: object) -> None:
    monkeypatch.setattr(load, "gmp_libraries", lambda: [("other", lambda: ctypes.CDLL(np.random.mtrand.__file__))])
    check_it_stands_aside(monkeypatch, "other: ")


@needs_libgmp
@pytest.mark.parametrize(("constants", "why"), [(("6.3.0", 32), "32 bits"), (("4.3.2", 64), "older than 5")])
def test_other_limbs_and_versions(
    monkeypatch: pytest.MonkeyPatch, load: object, constants: tuple[str, int], why: str
) -> None:
    monkeypatch.setattr(load, "_constants", lambda library: constants)
    check_it_stands_aside(monkeypatch, why)


@needs_libgmp
def test_functions_that_do_something_else(monkeypatch: pytest.MonkeyPatch, load: object) -> None:
    """As if a version gave these names to other functions of the same shape."""
    right = load._choose  # type: ignore[attr-defined]

    def wrong(library: ctypes.CDLL, size: int) -> object:
        mpn = right(library, size)
        return mpn._replace(add=mpn.subtract, subtract=mpn.add)

    monkeypatch.setattr(load, "_choose", wrong)
    check_it_stands_aside(monkeypatch, "is wrong")


@needs_libgmp
def test_the_second_place_is_tried(monkeypatch: pytest.MonkeyPatch, load: object) -> None:
    def missing() -> ctypes.CDLL:
        raise OSError("not here")

    places = list(load.gmp_libraries())  # type: ignore[attr-defined]
    monkeypatch.setattr(load, "gmp_libraries", lambda: [("nowhere", missing), *places])
    assert unavailable_reason("libgmp") == ""


@needs_libgmp
@pytest.mark.parametrize("features", [{}, {"adx": True, "bmi2": True}])
def test_code_for_a_processor(monkeypatch: pytest.MonkeyPatch, load: object, features: dict[str, bool]) -> None:
    """Functions for some processors only are taken where it has what they need, and left where it has not."""
    host = load.binding.get_host_cpu_features()  # type: ignore[attr-defined]
    if any(not host.get(name) for name in features):
        pytest.skip("the processor lacks these instructions")
    monkeypatch.setattr(load.binding, "get_host_cpu_features", lambda: features)  # type: ignore[attr-defined]
    assert unavailable_reason("libgmp") == ""


@needs_libgmp
@pytest.mark.slow
def test_compiled_code_of_another_process(tmp_path: Path) -> None:
    """A second process, in which libraries lie elsewhere, takes the code from disk and finds the same sums."""
    code = (
        "import numpy as np, sys\n"
        "from gmpy2 import mpz\n"
        "from labelward.he.paillier.backends.gmp import loops\n"
        "from labelward.he.paillier.column_merging import PresentRows\n"
        "from labelward.he.paillier.backends.base import select_backend\n"
        "rows = select_backend('libgmp').prepared_rows(mpz(2**1279 - 1), 3, lambda shape: np.empty(shape, np.uint64))\n"
        "rows.add(b''.join((3**i).to_bytes(320, 'big') for i in range(3)))\n"
        "inside = PresentRows(np.arange(3, dtype=np.int32), np.zeros((1, 3), np.int32))\n"
        "print(rows.sums(inside, 1, ((0,),)).hex())\n"
        "print(sum(loops.multiply_by_group.stats.cache_misses.values()))\n"
    )
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PATH": "", "HOME": str(tmp_path)}
    printed = [
        subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=300
        ).stdout.split()
        for _ in range(2)
    ]
    assert printed == [[(27).to_bytes(320, "big").hex(), misses] for misses in ("1", "0")]
