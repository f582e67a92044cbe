"""Benchmarks of the engines on this machine, for ``labelward doctor``."""

from collections.abc import Mapping
from typing import Any

from labelward.he import ENGINES, engine
from labelward.he.base import KernelBenchmark


def benchmark_engines(
    bits: int = 2048, only: str | None = None, parameters: Mapping[str, Any] | None = None
) -> dict[str, list[KernelBenchmark]]:
    """Measure the implementations of each engine that has a benchmark; takes a few seconds.

    Args:
        only: name of one engine; None for all.

    Raises:
        InputError: no such engine or parameter; ``LABELWARD_KERNEL`` names no kernel.
    """
    found: dict[str, list[KernelBenchmark]] = {}
    for name in ENGINES if only is None else (only,):
        made = engine(name, parameters=parameters)
        try:
            results = made.benchmark(bits)
        finally:
            made.close()
        if results:
            found[name] = results
    return found
