"""Kernels where no folder for compiled code can be written."""

from typing import Any

import numba
import pytest

from labelward.jit import jit


def test_without_a_cache_kernels_are_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_ = numba.njit

    def njit(*args: Any, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return compile_(*args, **options)

    monkeypatch.setattr(numba, "njit", njit)

    @jit
    def double(x: int) -> int:
        return 2 * x

    assert double(21) == 42
    assert hasattr(double, "signatures")  # it was compiled
