"""Which vector instructions the transforms become on this machine; the arithmetic is the same with all of them."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from numba.core import config

#: Name → features of the processor that it takes.
KERNELS = {"avx512": ("avx512f", "avx512dq"), "avx2": ("avx2", "fma"), "neon": ("neon",)}
PLAIN = "plain"


@cache
def kernel_name() -> str:
    """Return the best kernel that numba compiles for: the host's, or that of ``NUMBA_CPU_FEATURES``."""
    features = _features()
    return next((name for name, needs in KERNELS.items() if set(needs) <= features), PLAIN)


def _features() -> set[str]:
    asked: str | None = getattr(config, "CPU_FEATURES", None)
    if asked is not None:
        return {each[1:] for each in asked.split(",") if each.startswith("+")}
    return {name for name, has in llvm.get_host_cpu_features().items() if has}
