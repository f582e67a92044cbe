"""Where compiled code is kept, and when it goes stale."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest

from labelward.jit import compiled, jit


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


def test_where_it_must_be_cached_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    with pytest.raises(RuntimeError, match="cache"):

        @compiled
        def double(x: int) -> int:
            return 2 * x


def test_compiled_code_goes_stale_with_what_it_calls(tmp_path: Path) -> None:
    """Numba itself looks at the caller's file only, and would go on with the old callee."""
    caller = "from labelward.jit import jit\nfrom callee import two\n\n@jit\ndef double(x):\n    return two() * x\n"
    (tmp_path / "caller.py").write_text(caller)

    def doubled(factor: int) -> int:
        callee = f"from labelward.jit import jit\n\n@jit\ndef two():\n    return {factor}\n"
        (tmp_path / "callee.py").write_text(callee)
        code = "from caller import double; print(double(1))"
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert doubled(2) == 2
    assert doubled(20) == 20
