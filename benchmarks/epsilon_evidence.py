"""The lower bound of epsilon on mechanisms whose epsilon is known: how often it exceeds epsilon, and how near it comes.

Usage: python benchmarks/epsilon_evidence.py [--repetitions N] [--classes N] [--json FILE]

Each repetition has labels, fitted label model, noise and game of its own. At most 5 % of the bounds may exceed epsilon;
the benchmark fails if more do than happens once in 1,000 times at that rate.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _wiring import report
from scipy.stats import binom
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "leakage"))
from label_worlds import (  # type: ignore[import-not-found]
    MECHANISMS,
    as_labels,
    learned,
    measured,
    with_exact_probabilities,
)

EPSILONS = (0.1, 1.0, 2.0, 4.0)
ROWS, ROWS_EXACT = 1000, 5000
CASES = ((2, as_labels), (2, learned), (4, as_labels))


def repeated(bound_of: Callable[[int], float], repetitions: int, epsilon: float) -> dict[str, float]:
    """Return mean, deviation and maximum of the bounds of all seeds, and how many exceed epsilon."""
    found = np.array([bound_of(seed) for seed in range(repetitions)])
    return {
        "mean": round(float(found.mean()), 3),
        "deviation": round(float(found.std(ddof=1)), 3),
        "most": round(float(found.max()), 4),
        "above": int((found > epsilon).sum()),
    }


def measure(repetitions: int, only: int | None) -> dict[str, dict[str, dict[str, float]]]:
    """Return the figures of all cases, or of those with a number of classes, by epsilon."""
    result: dict[str, dict[str, dict[str, float]]] = {}
    for classes, attack in [case for case in CASES if only in (None, case[0])]:
        for mechanism in MECHANISMS:
            name = f"{mechanism.__name__}, {classes} classes, {attack.__name__}"
            for epsilon in EPSILONS:

                def bound(
                    seed: int, case: tuple[Any, ...] = (classes, epsilon), by: tuple[Any, ...] = (mechanism, attack)
                ) -> float:
                    return float(measured(ROWS, *case, seed, *by).bound())

                result.setdefault(name, {})[str(epsilon)] = repeated(bound, repetitions, epsilon)
            print(name, result[name], file=sys.stderr)
    if only not in (None, 2):
        return result
    exact = {
        str(epsilon): repeated(
            lambda seed, epsilon=epsilon: with_exact_probabilities(ROWS_EXACT, epsilon, seed).bound(),  # type: ignore[misc]
            repetitions,
            epsilon,
        )
        for epsilon in EPSILONS
    }
    return {**result, "randomized_response, 2 classes, exact probabilities": exact}


def main() -> None:
    """Measure, print, store if asked; exit with 1 if too many bounds exceed epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--classes", type=int, choices=(2, 4), help="default: both")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    begin = time.process_time()
    with threadpool_limits(1):
        figures = measure(asked.repetitions, asked.classes)
    most = int(binom.isf(1e-3, asked.repetitions, 0.05))
    about = {"repetitions": asked.repetitions, "processor seconds": round(time.process_time() - begin)}
    report("epsilon evidence", {**about, "most above": most, "bounds": figures}, asked.json)
    sys.exit(int(any(each["above"] > most for of in figures.values() for each in of.values())))


if __name__ == "__main__":
    main()
