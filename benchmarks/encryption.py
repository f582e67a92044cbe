"""What encrypted sums cost.

    python benchmarks/encryption.py [--bits 2048 3072] [--workers N] [--rows 30000] [--json PATH]

First the price of one operation on one core (milliseconds of this process; the median of several runs), then one root
histogram with all workers (seconds of wall time): 30,000 rows with two numbers each, 11 columns, 32 bins.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from labelward.he import Layout, PrivateKey, PublicKey
from labelward.he.paillier import PaillierEngine
from labelward.rng import Protection

COLUMNS, BINS, RUNS = 11, 32, 5
Figures = dict[str, float]


def processor() -> str:
    """Name the processor, as the system does."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def draw(rows: int) -> tuple[np.ndarray, np.ndarray, Layout]:
    """Return values [rows, 2], bins [rows, COLUMNS] and their layout."""
    rng = np.random.default_rng(0)
    values = rng.integers(-(2**30), 2**30, size=(rows, 2))
    bins = rng.integers(0, BINS, size=(rows, COLUMNS)).astype(np.int32)
    return values, bins, Layout((2**30, 2**30), rows, 2)


def keys(engine: PaillierEngine, bits: int) -> tuple[PrivateKey, PublicKey]:
    """Make a key, and what a peer makes of it."""
    private = engine.generate(bits, protection=Protection())
    return private, engine.public(private.public.material(), protection=Protection())


def median(action: Callable[[], object], operations: int) -> float:
    """Return milliseconds of processor time for one of ``operations``, after a run that builds tables."""
    action()
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return statistics.median(times) / operations * 1000


def operations(bits: int) -> Figures:
    """Measure single operations in this process."""
    rows = 1000
    values, bins, layout = draw(rows)
    engine = PaillierEngine()
    start = time.process_time()
    private, public = keys(engine, bits)
    made = (time.process_time() - start) * 1000
    opened = public.rows(private.encrypt(values, layout).block())
    sums = opened.group_sums(bins, BINS)
    sealed = sums.seal()
    return {
        "make a key": made,
        "encrypt, with the secret": median(lambda: private.encrypt(values, layout), rows),
        "encrypt, without it": median(lambda: public.encrypt(values[:100], layout), 100),
        "add": median(lambda: opened.group_sums(bins, BINS), rows * COLUMNS - COLUMNS * BINS),
        "seal, per sum": median(sums.seal, COLUMNS * BINS),
        "decrypt, per ciphertext": median(lambda: private.decrypt(sealed), sealed.count),
    }


def histogram(bits: int, workers: int, rows: int) -> Figures:
    """Measure one root histogram; worker processes run and tables are built before the second, measured time."""
    values, bins, layout = draw(rows)
    engine = PaillierEngine(workers=workers)
    private, public = keys(engine, bits)
    figures: Figures = {}
    for _ in range(2):
        marks = [time.perf_counter()]
        block = private.encrypt(values, layout).block()
        marks.append(time.perf_counter())
        sums = public.rows(block).group_sums(bins, BINS)
        marks.append(time.perf_counter())
        sealed = sums.seal()
        marks.append(time.perf_counter())
        private.decrypt(sealed)
        marks.append(time.perf_counter())
        figures = dict(zip(("encrypt", "aggregate", "seal", "decrypt"), np.diff(marks).tolist(), strict=True))
    engine.close()
    figures["total"] = marks[-1] - marks[0]
    return figures | {"bytes there": float(len(block.data)), "bytes back": float(len(sealed.data))}


def main() -> None:
    """Measure, print, and store if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bits", type=int, nargs="+", default=[2048, 3072])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    result = {"processor": processor(), "workers": asked.workers, "rows": asked.rows, "engine": {}, "bits": {}}
    result["engine"] = PaillierEngine(workers=asked.workers).describe()
    print(f"{result['processor']}, {asked.workers} workers, {result['engine']}")
    for bits in asked.bits:
        single, root = operations(bits), histogram(bits, asked.workers, asked.rows)
        result["bits"][str(bits)] = {"milliseconds": single, "histogram": root}
        print(f"\n{bits} bits: milliseconds of one core")
        print("\n".join(f"  {name:26}{value:10.4f}" for name, value in single.items()))
        print(f"{bits} bits: a root histogram of {asked.rows} rows × {COLUMNS} columns × {BINS} bins")
        print("\n".join(f"  {name:26}{value:10.2f}" for name, value in root.items()))
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
