"""Speed of the lattice engine on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from labelward.he.base import KernelBenchmark, Layout
from labelward.he.lattice.kernel import KERNELS, PLAIN, kernel_name
from labelward.he.lattice.ring import SECURE_DEGREE
from labelward.rng import SecureRandom

if TYPE_CHECKING:
    from labelward.he.lattice.engine import LatticeEngine

Result = TypeVar("Result")

_BLOCKS, _COLUMNS, _GROUPS = 16, 8, 32
_ROWS = _BLOCKS * SECURE_DEGREE
#: Gradient and hessian of precision 30, and a count: five digits.
_LAYOUT = Layout((1 << 30, 1 << 30, 1), _ROWS, 2)


def benchmark_lattice(engine: LatticeEngine) -> list[KernelBenchmark]:
    """Measure the engine's kernel; takes a second.

    The operations are ``encrypt`` and ``expand`` (a row, by its owner and by who sums), ``add`` (the rows of one
    cell in one block of 4,096, from 13 rows on), ``shift`` (one row of a cell that has fewer), ``seal`` (a sum,
    masked and packed) and ``decrypt`` (a sum).
    """
    chosen = kernel_name()
    measured = _measure(engine)
    return [
        KernelBenchmark(
            kernel=name,
            available=name == chosen,
            chosen=name == chosen,
            why="what LLVM makes for this processor" if name == chosen else "LLVM compiles for another",
            microseconds=measured if name == chosen else {},
            bits=SECURE_DEGREE,
        )
        for name in (*KERNELS, PLAIN)
    ]


def _measure(engine: LatticeEngine) -> dict[str, float]:
    private = engine.generate(SECURE_DEGREE, protection=SecureRandom())
    public = engine.public(private.public.material(), protection=SecureRandom())
    rng = np.random.default_rng(0)
    values = rng.integers(-1, 2, (_ROWS, 3)).astype(np.int64)
    block, encrypt = _timed(lambda: private.encrypt(values, _LAYOUT).block(), _ROWS)
    rows, expand = _timed(lambda: public.rows(block), _ROWS)
    cells = _COLUMNS * _GROUPS
    groups = rng.integers(0, _GROUPS, (_ROWS, _COLUMNS)).astype(np.int32)
    few = np.where(np.arange(_ROWS)[:, None] % 16 == 0, groups, -1).astype(np.int32)  # 8 rows of a cell in a block
    empty = rows.group_sums(np.full((1, _COLUMNS), -1, np.int32), _GROUPS)
    sealed, seal = _timed(empty.rerandomize, cells)
    _, decrypt = _timed(lambda: private.decrypt(sealed), cells)
    _, dense = _timed(rows.group_sums(groups, _GROUPS).rerandomize, 1)
    _, sparse = _timed(rows.group_sums(few, _GROUPS).rerandomize, 1)
    counts = (dense, _BLOCKS * cells), (sparse, (few >= 0).sum())
    add, shift = ((total - seal * cells) / count for total, count in counts)
    return {"encrypt": encrypt, "expand": expand, "add": add, "shift": float(shift), "seal": seal, "decrypt": decrypt}


def _timed(action: Callable[[], Result], operations: int) -> tuple[Result, float]:
    """Return the microseconds of processor time of one of so many operations, after a first time that loads code."""
    action()
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        result = action()
        best = min(best, time.process_time() - start)
    return result, best / operations * 1e6
