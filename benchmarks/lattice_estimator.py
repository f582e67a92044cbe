"""Hardness of the lattice engine's parameters by the lattice-estimator of M. Albrecht and others.

Usage: PYTHONPATH=CHECKOUT python benchmarks/lattice_estimator.py [DEGREE LOG_MODULUS]

``CHECKOUT`` is a copy of https://github.com/malb/lattice-estimator, which needs SageMath (as wheels:
``pip install passagemath-standard``, in an environment of its own). Nothing of labelward is imported, so that the
environment needs nothing else. Takes some five minutes for the default, degree 4096 and the engine's two primes; with
DEGREE and LOG_MODULUS the modulus is that power of two.

Reference: M. Albrecht, R. Player, S. Scott, *On the concrete hardness of Learning with Errors*, Journal of
Mathematical Cryptology 9 (2015).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from estimator import LWE, ND, RC  # type: ignore[import-not-found]
from estimator.reduction import ADPS16  # type: ignore[import-not-found]

DEGREE, MODULUS = 4096, ((1 << 49) - 204799) * ((1 << 49) - 434175)
#: Cost models of a block size by title: the estimator's default, its earlier one, and a single sieve (core-SVP).
MODELS = {
    "MATZOV": RC.MATZOV,
    "BDGL16": RC.BDGL16,
    "core-SVP, classical": RC.ADPS16,
    "core-SVP, quantum": ADPS16(mode="quantum"),
}
ATTACKS: dict[str, Callable[..., Any]] = {
    "usvp": LWE.primal_usvp,
    "bdd": LWE.primal_bdd,
    "dual": LWE.dual,
    "dual hybrid": LWE.dual_hybrid,
}


def parameters(degree: int, modulus: int) -> Any:
    """Return the problem of a row or a mask: as many samples as the degree, a ternary secret, errors of 21 bits."""
    return LWE.Parameters(n=degree, q=modulus, Xs=ND.UniformMod(3), Xe=ND.CenteredBinomial(21), m=degree).normalize()


def main() -> None:
    """Print one line for each model and attack."""
    degree, modulus = (int(sys.argv[1]), 1 << int(sys.argv[2])) if len(sys.argv) == 3 else (DEGREE, MODULUS)
    problem = parameters(degree, modulus)
    for model, cost in MODELS.items():
        for attack, run in ATTACKS.items():
            print(f"{model:20s} {attack:12s} {run(problem, red_cost_model=cost)!r}", flush=True)


if __name__ == "__main__":
    main()
