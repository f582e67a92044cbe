"""What encrypted sums cost.

    python benchmarks/encryption.py [--bits 2048 3072] [--kernels ifma gmpy2] [--workers N] [--rows 30000]
                                    [--compare 1000000] [--json PATH]

For each kernel first the price of one operation on one core (milliseconds of this process; the median of several runs),
then one root histogram with all workers (seconds of wall time, and of this process): 30,000 rows with two numbers each,
11 columns, 32 bins. ``prepare`` is what each row takes once, before its first sum. The least that aggregation can take
is its products × the measured price of one ÷ cores, where a merge of two joint cells counts as two (both factors are of
full length); ``aggregate by that`` is how many times that it took, in processor time. ``products by plain`` are the
products with joint cells by those without. Last, if asked for, products of random and of edge numbers against integers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _price import PRODUCTS, chained
from _wiring import processor
from gmpy2 import mpz

from labelward.he import Layout, PrivateKey, PublicKey
from labelward.he.paillier import PaillierEngine
from labelward.he.paillier.backends.base import BACKENDS, select_backend, unavailable_reason
from labelward.he.paillier.column_merging import plan_merging, present_rows
from labelward.he.paillier.int_bytes import read_ints, write_ints
from labelward.he.row_store import RowStore
from labelward.rng import SecureRandom

COLUMNS, BINS, RUNS = 11, 32, 5
Figures = dict[str, float]


def draw(rows: int) -> tuple[np.ndarray, np.ndarray, Layout]:
    """Return values [rows, 2], bins [rows, COLUMNS] and their layout."""
    rng = np.random.default_rng(0)
    values = rng.integers(-(2**30), 2**30, size=(rows, 2))
    bins = rng.integers(0, BINS, size=(rows, COLUMNS)).astype(np.int32)
    return values, bins, Layout((2**30, 2**30), rows, 2)


def keys(engine: PaillierEngine, bits: int) -> tuple[PrivateKey, PublicKey]:
    """Make a key, and what a peer makes of it."""
    private = engine.generate(bits, protection=SecureRandom())
    return private, engine.public(private.public.material(), protection=SecureRandom())


def median(action: Callable[[], object], operations: int) -> float:
    """Return milliseconds of processor time for one of ``operations``, after a run that builds tables."""
    action()
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return statistics.median(times) / operations * 1000


def product(bits: int) -> float:
    """Return milliseconds of one of IFMA's products of a number below n² with one below n."""
    return median(chained("ifma", bits), PRODUCTS)


def square(bits: int) -> float:
    """Return milliseconds of one of IFMA's squares of a number below n², which :func:`product` would take two for."""
    from labelward.he.paillier.backends.ifma import loops
    from labelward.he.paillier.backends.ifma.arithmetic import LaneArithmetic, aligned

    modulus = LaneArithmetic(mpz(secrets.randbits(bits) | 1 | 1 << (bits - 1))).square
    start, out = aligned(modulus.rows, 8), aligned(256, modulus.limbs, 8)
    start[:] = 0
    start[0] = 1
    return median(lambda: loops.square_chain(start, modulus.odd, out), 256 * 8)


def compare(bits: int, count: int) -> int:
    """Check ``count`` of IFMA's products against gmpy2, half of the factors at the edges of their limbs."""
    from labelward.he.paillier.backends.ifma import loops
    from labelward.he.paillier.backends.ifma.arithmetic import LaneArithmetic, aligned, from_rows

    rng, done, batch = np.random.default_rng(0), 0, 512
    while done < count:
        near_top = done // (8 * batch) % 2
        n = mpz(2**bits - 1 - done if near_top else secrets.randbits(bits) | 1 | 1 << (bits - 1))
        root = LaneArithmetic(n)
        square, start = root.square, aligned(root.square.limbs, 8)
        start[:] = rng.integers(0, 2**52, start.shape, dtype=np.uint64)
        start[-2:] = 0
        factors, out = aligned(batch, root.rows, 8), aligned(batch, square.limbs, 8)
        factors[:] = rng.integers(0, 2**52, factors.shape, dtype=np.uint64)
        edges = rng.choice(np.array([0, 1, 2**51, 2**52 - 2, 2**52 - 1], dtype=np.uint64), factors.shape)
        factors[::2] = edges[::2]
        factors[:, -1] &= np.uint64(2**16 - 1)
        loops.product_chain(start, factors, square.odd, out)
        before = from_rows(np.ascontiguousarray(start.T))
        radix = root.radix % square.value
        for factor, made in zip(factors, out, strict=True):
            now = from_rows(np.ascontiguousarray(made.T))
            for x, y, z in zip(before, from_rows(np.ascontiguousarray(factor.T)), now, strict=True):
                if z * radix % square.value != x * y % square.value:
                    raise SystemExit(f"{bits} bits: {x} · {y} modulo {n}² gave {z}")
            before = now
        done += batch * 8
    return done


def compare_sums(bits: int, kernel: str, count: int) -> int:
    """Check as many products of a kernel's sums against integers: edges and random numbers, moduli near the top."""
    rng, n_rows, columns, n_groups, done, turn = np.random.default_rng(0), 2000, 5, 16, 0, 0
    while done < count:
        n = 2**bits - 1 - 2 * turn if turn % 2 else secrets.randbits(bits) | 1 | 1 << (bits - 1)
        size, square = bits // 4, n * n
        ends = [1, 2, n - 1, n + 1, square - 1, square - n - 1, 2**52 - 1, 2**64 - 1, 2 ** (bits - 64) - 1, 2**bits + 1]
        numbers = [secrets.randbelow(square) for _ in range(n_rows)]
        numbers[::2] = (ends * n_rows)[: n_rows // 2]
        numbers = [number if math.gcd(number, n) == 1 else 1 for number in numbers]
        groups = rng.integers(-1, n_groups, size=(n_rows, columns)).astype(np.int32)
        rows = select_backend(kernel).prepared_rows(mpz(n), n_rows, RowStore().allocate)
        rows.add(write_ints(map(mpz, numbers), size))
        made = read_ints(rows.sums(present_rows(groups, n_groups), n_groups, ((0,), (1, 3), (2,), (4,))), size)
        expected = [mpz(1)] * (columns * n_groups)
        for number, row in zip(numbers, groups.tolist(), strict=True):
            for column, group in enumerate(row):
                if group >= 0:
                    expected[column * n_groups + group] = expected[column * n_groups + group] * number % square
        if made != expected:
            raise SystemExit(f"{kernel}, {bits} bits: sums modulo {n}² are not those of integers")
        done, turn = done + int(np.count_nonzero(groups >= 0)) - columns * n_groups, turn + 1
    return done


def operations(bits: int, kernel: str) -> Figures:
    """Measure single operations in this process."""
    rows = 1000
    values, bins, layout = draw(rows)
    engine = PaillierEngine(kernel=kernel)
    start = time.process_time()
    private, public = keys(engine, bits)
    made = (time.process_time() - start) * 1000
    block = private.encrypt(values, layout).block()
    opened = public.rows(block)
    products = plan_merging(present_rows(bins, BINS).groups, BINS, select_backend(kernel).merge_cost).products
    sums = opened.group_sums(bins, BINS)
    sealed = sums.rerandomize()
    return ({"one product": product(bits), "one square": square(bits)} if kernel == "ifma" else {}) | {
        "make a key": made,
        "encrypt, with the secret": median(lambda: private.encrypt(values, layout), rows),
        "encrypt, without it": median(lambda: public.encrypt(values[:100], layout), 100),
        "prepare": median(lambda: public.rows(block), rows),
        "add": median(lambda: opened.group_sums(bins, BINS), products),
        "seal, per sum": median(sums.rerandomize, COLUMNS * BINS),
        "decrypt, per ciphertext": median(lambda: private.decrypt(sealed), sealed.count),
    }


def histogram(bits: int, workers: int, rows: int, kernel: str, single: Figures) -> Figures:
    """Measure one root histogram; worker processes run and tables are built before the second, measured time."""
    values, bins, layout = draw(rows)
    engine = PaillierEngine(workers=workers, kernel=kernel)
    private, public = keys(engine, bits)
    for _ in range(2):
        marks = [times()]
        block = private.encrypt(values, layout).block()
        marks.append(times())
        opened = public.rows(block)
        marks.append(times())
        sums = opened.group_sums(bins, BINS)
        marks.append(times())
        sealed = sums.rerandomize()
        marks.append(times())
        private.decrypt(sealed)
        marks.append(times())
    engine.close()
    names, figures = ("encrypt", "prepare", "aggregate", "seal", "decrypt"), dict[str, float]()
    for name, (wall, used) in zip(names, np.diff(marks, axis=0).tolist(), strict=True):
        figures |= {name: wall, f"{name}, processor": used}
    figures["total"] = float((marks[-1] - marks[0])[0])
    chosen = plan_merging(present_rows(bins, BINS).groups, BINS, select_backend(kernel).merge_cost)
    figures["products by plain"] = (chosen.products) / (rows * COLUMNS - COLUMNS * BINS)
    if "one product" in single:
        least = (chosen.rows + 2 * chosen.merges) * single["one product"] / 1000
        figures["aggregate by that"] = figures["aggregate, processor"] / least
    return figures | {"bytes there": float(len(block.data)), "bytes back": float(len(sealed.data))}


def times() -> np.ndarray:
    """Return wall time and processor time of this process, in seconds; gmpy2's worker processes are not in it."""
    return np.array([time.perf_counter(), time.process_time()])


def main() -> None:
    """Measure, print, and store if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bits", type=int, nargs="+", default=[2048, 3072])
    parser.add_argument("--kernels", nargs="+", default=[name for name in BACKENDS if not unavailable_reason(name)])
    parser.add_argument("--compare", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    result = {"processor": processor(), "workers": asked.workers, "rows": asked.rows, "kernels": {}}
    print(f"{result['processor']}, {asked.workers} workers")
    for kernel in asked.kernels:
        described = PaillierEngine(workers=asked.workers, kernel=kernel).describe()
        result["kernels"][kernel] = {"engine": described, "bits": {}}
        for bits in asked.bits:
            single = operations(bits, kernel)
            root = histogram(bits, asked.workers, asked.rows, kernel, single)
            result["kernels"][kernel]["bits"][str(bits)] = {"milliseconds": single, "histogram": root}
            print(f"\n{kernel}, {bits} bits: milliseconds of one core")
            print("\n".join(f"  {name:28}{value:10.5f}" for name, value in single.items()))
            print(f"{kernel}, {bits} bits: a root histogram of {asked.rows} rows × {COLUMNS} columns × {BINS} bins")
            print("\n".join(f"  {name:28}{value:10.3f}" for name, value in root.items()))
    if asked.compare:
        result["compared"] = {
            kernel: {str(bits): compare_sums(bits, kernel, asked.compare) for bits in asked.bits}
            for kernel in asked.kernels
        }
        if "ifma" in asked.kernels:
            result["compared"]["ifma, each product"] = {str(bits): compare(bits, asked.compare) for bits in asked.bits}
        print(f"\nproducts that are those of integers, by bits: {result['compared']}")
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
