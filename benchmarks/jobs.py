"""The four jobs under Paillier 2048, two parties in one process on all cores, by phase and kernel.

Usage: python benchmarks/jobs.py [a] [b] [c] [d] [--kernels NAME ...] [--linear] [--peers] [--json FILE]
       python benchmarks/jobs.py --engines a b c d [--only lattice plain] [--reencrypt auto] [--json FILE]
       python benchmarks/jobs.py --end-to-end a d [--reencrypt auto] [--json FILE]

========  ===================  =====  =====  =======  ==============================
job       rows × columns       depth  trees  classes  limits
========  ===================  =====  =====  =======  ==============================
a         30,000 × (12 + 11)   3      5      2        8 s and 18 MB a tree
b         30,000 × (12 + 11)   5      20     2        40 s
c         100,000 × (30 + 30)  5      5      11
d         1,000,000 × (10+10)  4      1      2        300 s and 6 GB, both parties
========  ===================  =====  =====  =======  ==============================

Without a choice job a with every kernel, then b and d with the fastest one. Each training has a process of its own, and
so its own peak of memory; loops are compiled before. Its trees are compared with those of the plain engine and
its AUC, on new rows, with XGBoost's on the same bins. ``aggregate over its products`` is the seconds of that phase over
products × the measured price of one ÷ cores; merging two cells counts as the products that it takes the time of. In a
rehearsal the phase shares the cores with the other party. So the same calls are also made again, alone, several times,
and the price is measured after each of them: ``alone``, with the least and the most that was found, by the price on one
core and by that on all cores at once, which is what cores that share a power budget and caches can do.

``--engines``: these jobs under the lattice engine, Paillier and none, in one process and in processor seconds.
``--end-to-end``: wall time of these jobs under the lattice engine, both parties in a process, with two threads each.
``--linear``: job a's shape with 10,000 to 300,000 rows, and exponents in the rows, of each phase alone, too.
``--peers``: job a's operations at the prices of python-paillier and of sf-heu, where these are installed: nothing is
trained, the prices are those of a sample.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import xgboost
from _machine import gigabytes, load
from _price import PRODUCTS, Price, chained
from _wiring import Run, columns_of, labels_of, megabytes, report, train
from encryption import histogram, median
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.metrics import roc_auc_score

from labelward.he import benchmark_engines, engine
from labelward.he.base import Engine
from labelward.he.paillier import PaillierEngine, ciphertexts, column_merging
from labelward.he.paillier.backends.base import BACKENDS, select_backend, unavailable_reason
from labelward.he.paillier.column_merging import MergePlan
from labelward.kernels.binning import bin_codes, bin_columns
from labelward.protocols.secureboost import passive
from labelward.protocols.secureboost.histogram_message import CellMask
from labelward.protocols.secureboost.params import SecureBoost

Floats = NDArray[np.float64]
BITS, WORKERS, TEST, ROUNDS = 2048, 2, 10_000, 7
ENGINES = ("lattice", "paillier", "plain")
#: Work on ciphertexts.
PHASES = ("encrypt", "prepare rows", "aggregate", "seal", "decrypt")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is trained: rows, columns of either party, depth, rounds, classes; and what it may cost."""

    rows: int
    active: int
    passive: int
    depth: int
    trees: int
    classes: int = 2
    seconds: float = math.inf
    megabytes: float = math.inf
    gigabytes: float = math.inf

    def table(self) -> tuple[Floats, NDArray[np.int64]]:
        """Return the table of this shape, with rows to test on at its end."""
        columns, test = self.active + self.passive, TEST
        if self.classes == 2:
            x, y = make_classification(
                self.rows + test, columns, n_informative=10, n_redundant=4, class_sep=0.8, flip_y=0.05, random_state=0
            )
        else:
            x, y = make_classification(
                self.rows + test,
                columns,
                n_informative=20,
                n_redundant=10,
                n_classes=self.classes,
                n_clusters_per_class=1,
                random_state=0,
            )
        return x, y.astype(np.int64)

    def smaller(self, rows: int, depth: int) -> Job:
        """Return a job of one tree that compiles the loops which this one runs."""
        return replace(self, rows=rows, depth=depth, trees=1, seconds=math.inf, megabytes=math.inf, gigabytes=math.inf)

    def params(self) -> SecureBoost:
        """Return the model's parameters; all others are the defaults."""
        return SecureBoost(trees=self.trees, depth=self.depth)


JOBS = {
    "a": Job(rows=30_000, active=12, passive=11, depth=3, trees=5, seconds=8.0, megabytes=18.0),
    "b": Job(rows=30_000, active=12, passive=11, depth=5, trees=20, seconds=40.0),
    "c": Job(rows=100_000, active=30, passive=30, depth=5, trees=5, classes=11),
    "d": Job(rows=1_000_000, active=10, passive=10, depth=4, trees=1, seconds=300.0, gigabytes=6.0),
}


def fit(job: Job, x: Floats, y: NDArray[np.int64], encryption: Engine, bits: int) -> Run:
    """Train on the first rows, predict the last ones."""
    n, cut = len(x) - TEST, job.active
    parts = {"bank": np.ascontiguousarray(x[:, :cut]), "telco": np.ascontiguousarray(x[:, cut:])}
    test = {name: part[n:] for name, part in parts.items()}
    first = {name: part[:n] for name, part in parts.items()}
    return train(job.params(), columns_of(first), test, labels_of(y[:n], job.classes), encryption, bits)


def measure(job: Job, kernel: str) -> dict[str, Any]:
    """Train once in this process, loops compiled; figures of that training alone."""
    warm = job.smaller(2_000, 2)
    run_with(warm, kernel)
    x, y = job.table()
    started, plans = time.process_time(), watched()
    run = run_with(job, kernel, (x, y))
    used = time.process_time() - started
    price = price_of(kernel)
    units = sum(each.rows + select_backend(kernel).merge_cost * each.merges for each in plans)
    least = units * price / 1000 / WORKERS
    peak = gigabytes()
    spent = {phase: sum(meter.seconds.get(phase, 0.0) for meter in run.meters.values()) for phase in PHASES}
    sent = {name: sum(meter.bytes.values()) for name, meter in run.meters.items()}
    shares = run.active.share.trees
    plain = fit(job, x, y, engine("plain"), 0)
    found: dict[str, Any] = {
        "kernel": kernel,
        "seconds": round(run.seconds, 2),
        "processor seconds of this process": round(used, 2),
        "phases": {phase: round(value, 2) for phase, value in spent.items()},
        "megabytes a tree": round(sum(sent.values()) / 1e6 / max(1, len(shares)), 2),
        "bytes": sent,
        "operations": {
            "active": run.active.counts.as_dict(),
            "passive": run.passive["telco"].counts.as_dict(),
            "products without joint cells": plain.passive["telco"].counts.additions,
        },
        "products of rows": sum(each.rows for each in plans),
        "products of cells": sum(each.merges for each in plans),
        "microseconds of a product": round(price * 1000, 3),
        "aggregate over its products": round(spent["aggregate"] / least, 2),
        "trees equal those without encryption": shares == plain.active.share.trees,
        "peak GB": peak,
    }
    if job.classes == 2:
        n, truth = len(x) - TEST, y[len(x) - TEST :]
        found["auc"] = round(float(roc_auc_score(truth, run.active.margins)), 5)
        found["auc of XGBoost on the same bins"] = round(joined(job, x[:n], y[:n], x[n:], truth), 5)
    return found


def engines(job: Job, what: str) -> dict[str, Any]:
    """Train under several engines, one after the other, each party on one core; ``what``: engines and ``reencrypt``.

    Phases are processor seconds of the parties' threads, so that who else works on the machine hardly matters; what an
    engine does in threads of its own is in the total alone, from which that of the plain engine is to be taken.
    """
    warm = job.smaller(5_000, 3)
    *names, reencrypt = what.split()
    made: dict[str, tuple[Callable[[], Engine], int]] = {
        "lattice": (lambda: engine("lattice", parameters={"reencrypt": reencrypt}), 4096),
        "paillier": (lambda: engine("paillier"), BITS),
        "plain": (lambda: engine("plain"), 0),
    }
    small, table = warm.table(), job.table()
    found: dict[str, Any] = {}
    trees: dict[str, Any] = {}
    for name in names:
        make, bits = made[name]
        with patch("time.perf_counter", time.thread_time):
            own = make()
            fit(warm, *small, own, bits)
            started, clock = time.process_time(), time.monotonic()
            run = fit(job, *table, own, bits)
            used, wall = time.process_time() - started, time.monotonic() - clock
            own.close()
        spent = {phase: sum(meter.seconds.get(phase, 0.0) for meter in run.meters.values()) for phase in PHASES}
        trees[name] = run.active.share.trees
        found[name] = {
            "processor seconds of the process": round(used, 2),
            "wall seconds, on a machine that others use, too": round(wall, 2),
            "processor seconds on ciphertexts": round(sum(spent.values()), 2),
            "phases": {phase: round(value, 3) for phase, value in spent.items()},
            "megabytes": round(megabytes(run), 2),
            "operations": {"active": run.active.counts.as_dict(), "passive": run.passive["telco"].counts.as_dict()},
            "peak GB so far": gigabytes(),
            "load": load(),
        }
    found["trees are equal"] = all(each == trees[names[0]] for each in trees.values())
    if set(names) != set(made):
        return found
    totals = {name: found[name]["processor seconds of the process"] for name in names}
    return {
        **found,
        "paillier over lattice, whole training": round(totals["paillier"] / totals["lattice"], 2),
        "paillier over lattice, without what plain takes": round(
            (totals["paillier"] - totals["plain"]) / (totals["lattice"] - totals["plain"]), 2
        ),
    }


def end_to_end(job: Job, reencrypt: str) -> dict[str, Any]:
    """Train several times under the lattice engine; return wall seconds, the least first."""
    warm = job.smaller(5_000, 3)
    own, seconds = engine("lattice", parameters={"reencrypt": reencrypt}, workers=WORKERS), list[float]()
    fit(warm, *warm.table(), own, 4096)
    table = job.table()
    for _ in range(ROUNDS):
        clock = time.monotonic()
        fit(job, *table, own, 4096)
        seconds.append(round(time.monotonic() - clock, 2))
    own.close()
    return {"wall seconds": sorted(seconds), "median": statistics.median(seconds), "load": load()}


def alone(job: Job, kernel: str) -> dict[str, Any]:
    """Train once, then make the calls of the passive party's phase again and again, with nothing beside them."""
    run_with(job.smaller(2_000, 2), kernel)
    calls: list[Callable[[], object]] = []

    def noted(call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any) -> Any:
            calls.append(lambda: call(*given))
            return call(*given)

        return made

    for name in ("groups", "_summed"):
        setattr(passive, name, noted(getattr(passive, name)))
    vars(passive)["CellMask"] = SimpleNamespace(of=noted(CellMask.of))
    paillier = PaillierEngine(workers=WORKERS, kernel=kernel)
    fit(job, *job.table(), paillier, BITS)
    price, plans, found = Price(kernel, BITS, 1 if kernel == "gmpy2" else WORKERS), watched(), list[NDArray[Any]]()
    for _ in range(ROUNDS):
        plans.clear()
        seconds, prices = repeated(calls, price)
        units = sum(each.rows + select_backend(kernel).merge_cost * each.merges for each in plans)
        found.append(seconds / (units * prices / 1000 / WORKERS)[:, None])
    paillier.close()
    price.close()
    return {
        where: {what: spread([float(each[i, j]) for each in found]) for j, what in enumerate(("seconds", "processor"))}
        for i, where in enumerate(("by the price on one core", "by the price on all cores at once"))
    }


def repeated(calls: list[Callable[[], object]], price: Price) -> tuple[Floats, Floats]:
    """Make the calls again: seconds, and processor seconds of a core, of all; and the mean prices meanwhile."""
    spent, prices = np.zeros(2), np.zeros(2)
    for call in calls:
        started, used = time.perf_counter(), time.process_time()
        call()
        seconds = time.perf_counter() - started
        spent += seconds, (time.process_time() - used) / WORKERS
        prices += seconds * price.now(seconds)
    return spent, prices / spent[0]


def spread(values: list[float]) -> dict[str, float]:
    """Return median, least and most."""
    found = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return {name: round(value, 2) for name, value in found.items()}


def price_of(kernel: str) -> float:
    """Return milliseconds of a product on one core."""
    return median(chained(kernel, BITS), PRODUCTS)


def watched() -> list[MergePlan]:
    """Return a list that the plan of each sum is added to from now on."""
    plans: list[MergePlan] = []

    def watched_plan(*given: Any) -> MergePlan:
        plans.append(column_merging.plan_merging(*given))
        return plans[-1]

    ciphertexts.plan_merging = watched_plan  # type: ignore[attr-defined, assignment]
    return plans


def run_with(job: Job, kernel: str, table: tuple[Floats, NDArray[np.int64]] | None = None) -> Run:
    """Train with a kernel."""
    x, y = table or job.table()
    paillier = PaillierEngine(workers=WORKERS, kernel=kernel)
    try:
        return fit(job, x, y, paillier, BITS)
    finally:
        paillier.close()


def joined(job: Job, x: Floats, y: NDArray[np.int64], test: Floats, truth: NDArray[np.int64]) -> float:
    """Return the AUC of XGBoost ``hist`` on the joined table in the same bins."""
    params = job.params()
    binned = bin_columns(x, params.bins)
    same = {
        "tree_method": "hist",
        "max_bin": params.bins,
        "max_depth": params.depth,
        "eta": params.learning_rate,
        "lambda": params.reg_lambda,
        "min_child_weight": params.min_child_weight,
        "objective": "binary:logistic",
        "base_score": 0.5,
        "nthread": WORKERS,
    }
    matrix = xgboost.QuantileDMatrix(binned.codes.astype(np.float64), y, max_bin=params.bins)
    codes = xgboost.DMatrix(bin_codes(test, binned.edges).astype(np.float64))
    return float(roc_auc_score(truth, xgboost.train(same, matrix, params.trees).predict(codes, output_margin=True)))


def apart(job: Job, kernel: str, what: str = "measure") -> dict[str, Any]:
    """Measure in a process of its own."""
    shape = json.dumps({name: value for name, value in vars(job).items() if value != math.inf})
    command = [sys.executable, __file__, "--one", what, shape, kernel]
    return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))


def prices(kernel: str) -> dict[str, float]:
    """Return microseconds of one operation on one core, as ``labelward doctor`` measures them."""
    return next(
        dict(each.microseconds) for each in benchmark_engines(BITS, "paillier")["paillier"] if each.kernel == kernel
    )


def judged(name: str, kernels: list[str]) -> dict[str, Any]:
    """Run a job with the kernels, and say what its limits are."""
    job = JOBS[name]
    found: dict[str, Any] = {}
    for kernel in kernels:
        found[kernel] = figures = apart(job, kernel)
        figures["microseconds of one core"] = {each: round(value, 3) for each, value in prices(kernel).items()}
        if kernel == kernels[0]:
            figures["aggregate over its products, alone"] = apart(job, kernel, "alone")
        print(f"job {name}, {kernel}: {figures['seconds']} s", file=sys.stderr)
    limits = {each: getattr(job, each) for each in ("seconds", "megabytes", "gigabytes")}
    result: dict[str, Any] = {"limits": {each: value for each, value in limits.items() if value < math.inf}, **found}
    if "gmpy2" in found and len(found) > 1:
        first = kernels[0]
        result[f"gmpy2 over {first}"] = round(found["gmpy2"]["seconds"] / found[first]["seconds"], 2)
    return result


def linear(kernel: str) -> dict[str, Any]:
    """Measure job a's shape with more and more rows: exponents in the rows of all seconds, and of each phase.

    Phases of a job overlap and share the cores; so theirs are those of one root histogram, one phase after the other:
    medians of three.
    """
    sizes = (10_000, 30_000, 100_000, 300_000)
    whole = [apart(Job(rows=rows, active=12, passive=11, depth=3, trees=5), kernel)["seconds"] for rows in sizes]
    # all sizes, and then again: who else works on this machine would else make some of them look dear
    roots = [[histogram(BITS, WORKERS, rows, kernel, {}) for rows in sizes] for _ in range(3)]
    curves = {"all of the job": whole}
    for phase in ("encrypt", "prepare", "aggregate", "seal", "decrypt"):
        taken = [[root[f"{phase}, processor"] for root in turn] for turn in roots]
        curves[phase] = [round(statistics.median(times), 4) for times in zip(*taken, strict=True)]
    exponents = {
        phase: round(float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 0.001)), 1)[0]), 3)
        for phase, values in curves.items()
    }
    return {"rows": sizes, "seconds": curves, "exponents": exponents, "limit": 1.05}


def timed(action: Callable[[], object], operations: int) -> float:
    """Return processor seconds of one operation: the median of 5 runs after a first."""
    action()
    seconds = []
    for _ in range(5):
        start = time.process_time()
        action()
        seconds.append((time.process_time() - start) / operations)
    return statistics.median(seconds)


def peers(operations: dict[str, Any]) -> dict[str, Any]:
    """Return job a's operations at other libraries' prices: g and h apart in phe, together in heu; one core."""
    rows, products = operations["active"]["encryptions"], operations["products without joint cells"]
    sums = operations["passive"]["logical_sums"] // 2  # of g and of h
    found: dict[str, Any] = {}
    for name, per_row, price in (("python-paillier", 2, phe_prices), ("sf-heu ZPaillier", 1, heu_prices)):
        try:
            encrypt, add, decrypt = price()
        except ImportError as error:
            found[name] = f"is not installed: {error}"
            continue
        total = per_row * (rows * encrypt + products * add + sums * decrypt)
        found[name] = {
            "milliseconds: encrypt, add, decrypt": [round(each * 1e3, 4) for each in (encrypt, add, decrypt)],
            "processor seconds of job a, extrapolated": round(total, 1),
        }
    return found


def phe_prices() -> tuple[float, float, float]:
    """Return seconds to encrypt, add and decrypt in python-paillier, with floats as its users pass them."""
    from phe import paillier  # type: ignore[import-not-found]

    public, private = paillier.generate_paillier_keypair(n_length=BITS)
    numbers = [0.1 + 0.01 * i for i in range(20)]
    ciphertexts = [public.encrypt(number) for number in numbers]
    return (
        timed(lambda: [public.encrypt(number) for number in numbers], len(numbers)),
        timed(lambda: [a + b for a in ciphertexts for b in ciphertexts], len(numbers) ** 2),
        timed(lambda: [private.decrypt(each) for each in ciphertexts], len(numbers)),
    )


def heu_prices() -> tuple[float, float, float]:
    """Return seconds to encrypt, add and decrypt in sf-heu's ZPaillier."""
    from heu import phe as heu  # type: ignore[import-not-found]

    kit = heu.setup(heu.SchemaType.ZPaillier, BITS)
    encryptor, decryptor, evaluator = kit.encryptor(), kit.decryptor(), kit.evaluator()
    texts = [kit.plaintext(1 + i) for i in range(100)]
    ciphertexts = [encryptor.encrypt(text) for text in texts]
    return (
        timed(lambda: [encryptor.encrypt(text) for text in texts], len(texts)),
        timed(lambda: [evaluator.add(a, b) for a in ciphertexts for b in ciphertexts], len(texts) ** 2),
        timed(lambda: [decryptor.decrypt(each) for each in ciphertexts], len(texts)),
    )


def main() -> None:
    """Measure what is asked for."""
    running = [name for name in BACKENDS if not unavailable_reason(name)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", choices=[[], *JOBS])
    parser.add_argument("--kernels", nargs="+", choices=running)
    parser.add_argument("--engines", nargs="+", choices=[*JOBS], default=[])
    parser.add_argument("--end-to-end", nargs="+", choices=[*JOBS], default=[])
    parser.add_argument("--only", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--reencrypt", default="auto")
    parser.add_argument("--linear", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--one", nargs=3, metavar=("WHAT", "SHAPE", "KERNEL"), help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.one:
        what, shape, kernel = asked.one
        measures = {"measure": measure, "alone": alone, "engines": engines, "end_to_end": end_to_end}
        print(json.dumps(measures[what](Job(**json.loads(shape)), kernel)))
        return
    everything = not (asked.end_to_end or asked.engines or asked.jobs or asked.linear or asked.peers)
    result: dict[str, Any] = {"bits": BITS, "workers": WORKERS}
    for name in asked.jobs or (("a", "b", "d") if everything else ("a",) if asked.peers else ()):
        result[name] = judged(name, asked.kernels or (running if name == "a" else running[:1]))
    for name in asked.engines:
        result[f"engines, job {name}"] = apart(JOBS[name], " ".join([*asked.only, asked.reencrypt]), "engines")
        print(f"engines, job {name}", file=sys.stderr)
    for name in asked.end_to_end:
        result[f"end to end, job {name}"] = apart(JOBS[name], asked.reencrypt, "end_to_end")
    if asked.linear:
        result["linear"] = linear((asked.kernels or running)[0])
    if asked.peers or everything:
        first = next(each for each in result["a"].values() if "operations" in each)
        result["peers"] = peers(first["operations"])
    report("jobs", result, asked.json)


if __name__ == "__main__":
    main()
