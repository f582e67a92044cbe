"""Where compiled code is kept, and when it goes stale."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numba
import pytest

from labelward.errors import LabelwardWarning
from labelward.jit import _is_own, compiled, jit, watching_compilation


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


@pytest.mark.slow
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


def _triple(x: int) -> int:
    return 3 * x


class _Bomb:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _explode, ()


def _explode() -> NoReturn:
    raise AssertionError("code of somebody else was run")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for compiled code, in which a kernel was compiled while everybody could write what is new."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    before = os.umask(0)
    try:
        assert compiled(_triple)(2) == 6
    finally:
        os.umask(before)
    _is_own.cache_clear()
    (folder,) = tmp_path.iterdir()
    return folder


def test_only_the_owner_can_write_compiled_code(kept: Path) -> None:
    modes = {path.name[-4:]: path.stat().st_mode & 0o777 for path in (kept, *kept.iterdir())}
    assert {modes.pop(".nbi"), modes.pop(".nbc")} == {0o644}
    assert [mode & 0o022 for mode in modes.values()] == [0]


@pytest.mark.parametrize("planted", ["mode", "link"])
def test_compiled_code_that_others_could_write_is_not_read(kept: Path, tmp_path: Path, planted: str) -> None:
    (index,) = kept.glob("*.nbi")
    bomb = tmp_path / "bomb"
    bomb.write_bytes(pickle.dumps(_Bomb()))
    if planted == "mode":
        index.write_bytes(bomb.read_bytes())
        index.chmod(0o666)
    else:
        index.unlink()
        index.symlink_to(bomb)
    assert compiled(_triple)(3) == 9
    assert index.stat().st_mode & 0o022 == 0


def test_a_folder_of_somebody_else_is_not_used(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (index,) = kept.glob("*.nbi")
    index.write_bytes(pickle.dumps(_Bomb()))
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    if kept.stat().st_uid == 0:
        os.chown(kept, 4712, -1)
    with pytest.warns(LabelwardWarning, match="NUMBA_CACHE_DIR"):
        kernel = jit(_triple)
    assert kernel(4) == 12
    with pytest.raises(RuntimeError):
        compiled(_triple)


def test_compilation_is_told_once_for_a_kernel() -> None:
    told: list[tuple[int, bool]] = []
    made = numba.njit(lambda x: x + 1)
    with watching_compilation(lambda done, running: told.append((done, running))):
        assert made(1) == 2
        assert made(2) == 3  # compiled already
    assert told == [(0, True), (1, False)]
    made(1.5)
    assert len(told) == 2  # nobody listens any more
