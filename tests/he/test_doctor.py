"""The doctor tells which kernel runs and why."""

from __future__ import annotations

import pytest

from labelward.he import KernelBenchmark, benchmark_engines
from labelward.he.paillier import PaillierEngine
from labelward.he.paillier.backends.base import BACKENDS, VARIABLE, unavailable_reason


def examine(bits: int) -> list[KernelBenchmark]:
    return benchmark_engines(bits)["paillier"]


OPERATIONS = {"encrypt", "split", "add", "seal", "decrypt"}


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["", *(name for name in BACKENDS if not unavailable_reason(name))])
def test_what_is_told_is_what_an_engine_does(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(VARIABLE, variable)
    examined = examine(bits=512)
    assert [found.kernel for found in examined] == list(BACKENDS)
    (chosen,) = (found for found in examined if found.chosen)
    assert chosen.kernel == PaillierEngine().describe()["kernel"]
    assert (VARIABLE in chosen.why) == bool(variable)
    for found in examined:
        assert found.available == (not unavailable_reason(found.kernel))
        assert set(found.microseconds) == (OPERATIONS if found.available else set())
        assert all(0 < value < 1e6 for value in found.microseconds.values())


def test_what_is_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "ifma", "labelward.he.paillier.no_such_module")
    first, *others = examine(bits=256)
    assert (first.available, first.chosen, first.microseconds) == (False, False, {})
    assert "no_such_module" in first.why
    second = next(found for found in others if found.available)
    assert second.chosen
    assert "fastest" in second.why
    assert {found.why for found in others if found.available and found is not second} <= {"slower"}


def test_what_is_in_the_way_of_libgmp(monkeypatch: pytest.MonkeyPatch) -> None:
    load = pytest.importorskip("labelward.he.paillier.backends.gmp.load")
    monkeypatch.setattr(load, "gmp_libraries", list)
    load.forget_library()
    try:
        found = next(each for each in examine(bits=256) if each.kernel == "libgmp")
    finally:
        monkeypatch.undo()
        load.forget_library()
    assert (found.available, found.chosen, found.microseconds) == (False, False, {})
    assert "no libgmp" in found.why
