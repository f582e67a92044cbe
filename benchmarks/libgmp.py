"""The products of the libgmp kernel: beside those of gmpy2, in bits and in time.

::

    python benchmarks/libgmp.py [--bits 2048 3072] [--compare 1000000] [--json FILE]

A product is that of a number modulo n² with one below n, which is what summing one row takes. Times are processor time
of one core, the least of several turns that both take one after the other, so that both have the same machine.
"""

from __future__ import annotations

import argparse
import secrets
import time
from pathlib import Path

import gmpy2
import numpy as np
from _wiring import report
from gmpy2 import mpz

from labelward.he.paillier.backends.gmp.arithmetic import CellArithmetic, from_words, to_words
from labelward.he.paillier.backends.gmp.calls import at
from labelward.he.paillier.backends.gmp.digits import CellModulus, Limbs, copy_words, multiply_digit
from labelward.he.paillier.backends.gmp.load import Mpn
from labelward.jit import compiled as jit

BATCH, TURNS = 512, 25


@jit
def chain(mpn: Mpn, m: CellModulus, work: Limbs, cell: Limbs, digits: Limbs, out: Limbs) -> None:
    """Multiply a cell by ``digits`` [n, 2, k], one after the other; ``out`` [n, 3k+1] is what it is after each."""
    size = 8 * m.limbs
    for i in range(len(digits)):
        digit = at(digits) + 2 * size * i
        multiply_digit(mpn, m, at(work), at(cell), digit, digit + size)
        copy_words(at(out) + 8 * out.shape[1] * i, at(cell), out.shape[1])


def prepared(root: CellArithmetic, digits: list[mpz]) -> Limbs:
    """Return digits as the loops take them."""
    inverse = gmpy2.invert(root.value, root.radix)
    pairs = [(to_words(b, root.limbs), to_words(b * inverse % root.radix, root.limbs)) for b in digits]
    return np.stack([np.stack(pair) for pair in pairs])


def compare(bits: int, count: int) -> int:
    """Check ``count`` products against gmpy2: n drawn or near the top, every other digit at the edges of limbs."""
    rng, done = np.random.default_rng(0), 0
    few = np.array([0, 1, 2**63, 2**64 - 2, 2**64 - 1], dtype=np.uint64)
    while done < count:
        near_top = done // BATCH % 2
        root = CellArithmetic(mpz(2**bits - 1 - done if near_top else secrets.randbits(bits) | 1 | 1 << (bits - 1)))
        k, n, n2 = root.limbs, root.value, root.square
        edges = [from_words(rng.choice(few, k)) % n for _ in range(BATCH // 2)]
        drawn = [mpz(secrets.randbelow(int(n))) for _ in range(BATCH // 2)]
        digits = [digit for pair in zip(edges, drawn, strict=True) for digit in pair]
        cell, out = root.cell(mpz(secrets.randbelow(int(n2)))), np.empty((BATCH, 3 * k + 1), dtype=np.uint64)
        before = from_words(cell[:k]) * root.radix + n * from_words(cell[k : 2 * k])
        chain(root.mpn, root.odd, root.work(), cell, prepared(root, digits), out)
        for digit, made in zip(digits, out, strict=True):
            low, high = from_words(made[:k]), from_words(made[k : 2 * k])
            now = low * root.radix + n * high
            if low > n or (now * root.radix - before * digit) % n2:
                raise SystemExit(f"{bits} bits: {before} · {digit} modulo {n}² gave {low}, {high}")
            before = now
            if now % n == 0:
                break
            done += 1
    return done


def products(bits: int) -> tuple[float, float]:
    """Return microseconds of one product: of this kernel, and of gmpy2."""
    root = CellArithmetic(mpz(secrets.randbits(bits) | 1 | 1 << (bits - 1)))
    digits = [mpz(secrets.randbelow(int(root.value))) for _ in range(BATCH)]
    given, out = prepared(root, digits), np.empty((BATCH, 3 * root.limbs + 1), dtype=np.uint64)
    first, second, n2 = float("inf"), float("inf"), root.square
    for _ in range(TURNS):
        cell, product = root.cell(digits[0]), digits[0]
        start = time.process_time()
        chain(root.mpn, root.odd, root.work(), cell, given, out)
        middle = time.process_time()
        for digit in digits:
            product = product * digit % n2
        first, second = min(first, middle - start), min(second, time.process_time() - middle)
    return first / BATCH * 1e6, second / BATCH * 1e6


def main() -> None:
    """Measure, print, and store if asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bits", type=int, nargs="+", default=[2048, 3072, 4096])
    parser.add_argument("--compare", type=int, default=0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for bits in asked.bits:
        mine, other = products(bits)
        found[str(bits)] = {"libgmp": round(mine, 3), "gmpy2": round(other, 3), "ratio": round(mine / other, 3)}
        if asked.compare:
            found[str(bits)]["products that are those of integers"] = compare(bits, asked.compare)
    report("libgmp", {"limit": 0.9, "microseconds of a product": found}, asked.json)


if __name__ == "__main__":
    main()
