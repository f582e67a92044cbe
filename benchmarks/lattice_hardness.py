"""Hardness of the lattice engine's parameters: an own estimate of the primal attack, under two cost models.

Usage: python benchmarks/lattice_hardness.py

It is independent of the lattice-estimator, which ``lattice_estimator.py`` runs. What is estimated is the primal
attack (unique shortest vector, embedding of Bai and Galbraith) by the condition of Alkim, Ducas, Pöppelmann and
Schwabe, *Post-quantum key exchange*, USENIX Security 2016, section 6.3: block size b succeeds if

    sqrt(b) · sd ≤ delta^(2b - d - 1) · (q^m · v^n)^(1/d),    d = m + n + 1,

with the geometric series assumption and delta of Chen (2013). The secret is scaled by v = sd / sd_s, and the number m
of samples is chosen best for the attacker. Left out are dual and hybrid attacks, and the ring's structure, of which no
attack at these parameters is known to gain.

Cost models of a block size b in dimension d:

- *core-SVP*: one call of a sieve, 2^(0.292 b) classical and 2^(0.265 b) quantum. The most cautious: all else is free.
- *BDGL with repetitions*: 8 d calls of 2^(0.292 b + 16.4) operations (0.265 for quantum), as the lattice-estimator's
  default for classical sieving counted for long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: The engine's parameters: degree, log2 of the modulus, deviations of error and of a ternary secret.
DEGREE, LOG_MODULUS, ERROR, SECRET = 4096, 98.0, math.sqrt(10.5), math.sqrt(2 / 3)


@dataclass(frozen=True)
class Estimate:
    """What an attack takes: block size, dimension, and log2 of the operations of each model."""

    block: int
    dimension: int
    core_classical: float
    core_quantum: float
    classical: float
    quantum: float


def log_delta(block: float) -> float:
    """Return log2 of the root Hermite factor of a block size above 50."""
    return math.log2((math.pi * block) ** (1 / block) * block / (2 * math.pi * math.e)) / (2 * (block - 1))


def succeeds(block: int, samples: int, degree: int, log_q: float) -> bool:
    """Return whether the condition holds."""
    d = samples + degree + 1
    volume = (samples * log_q + degree * math.log2(ERROR / SECRET)) / d
    return 0.5 * math.log2(block) + math.log2(ERROR) <= (2 * block - d - 1) * log_delta(block) + volume


def estimate(degree: int, log_q: float) -> Estimate:
    """Return the cheapest primal attack."""
    low, high = 60, degree * 2
    while low < high:  # a larger block succeeds where a smaller one does
        middle = (low + high) // 2
        if any(succeeds(middle, m, degree, log_q) for m in range(degree // 4, 2 * degree, 16)):
            high = middle
        else:
            low = middle + 1
    d = min(m for m in range(degree // 4, 2 * degree, 16) if succeeds(low, m, degree, log_q)) + degree + 1
    more = 16.4 + math.log2(8 * d)
    return Estimate(low, d, 0.292 * low, 0.265 * low, 0.292 * low + more, 0.265 * low + more)


def table() -> list[str]:
    """Return the lines of the table: the engine's parameters, the bound of the standard, and half the degree."""
    lines = [
        "| degree | log2 Q | block size | core-SVP, classical / quantum | BDGL with repetitions, classical / quantum |",
        "|---|---|---|---|---|",
    ]
    for degree, log_q in ((DEGREE, LOG_MODULUS), (DEGREE, 109.0), (512, LOG_MODULUS)):
        found = estimate(degree, log_q)
        lines.append(
            f"| {degree} | {log_q:.0f} | {found.block} | {found.core_classical:.0f} / {found.core_quantum:.0f} | "
            f"{found.classical:.0f} / {found.quantum:.0f} |"
        )
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
