"""The doctor tells which kernel runs and why."""

from __future__ import annotations

import pytest

from labelward.he.doctor import examine
from labelward.he.paillier import PaillierEngine
from labelward.he.paillier.kernel import KERNELS, VARIABLE, obstacle

OPERATIONS = {"encrypt", "split", "add", "seal", "decrypt"}


@pytest.mark.parametrize("variable", ["", *(name for name in KERNELS if not obstacle(name))])
def test_what_is_told_is_what_an_engine_does(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(VARIABLE, variable)
    examined = examine(bits=512)
    assert [found.kernel for found in examined] == list(KERNELS)
    (chosen,) = (found for found in examined if found.chosen)
    assert chosen.kernel == PaillierEngine().describe()["kernel"]
    assert (VARIABLE in chosen.why) == bool(variable)
    for found in examined:
        assert found.available == (not obstacle(found.kernel))
        assert set(found.microseconds) == (OPERATIONS if found.available else set())
        assert all(0 < value < 1e6 for value in found.microseconds.values())


def test_what_is_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS, "ifma", "labelward.he.paillier.no_such_module")
    first, *others = examine(bits=256)
    assert (first.available, first.chosen, first.microseconds) == (False, False, {})
    assert "no_such_module" in first.why
    second = next(found for found in others if found.available)
    assert second.chosen
    assert "fastest" in second.why
    assert {found.why for found in others if found.available and found is not second} <= {"slower"}


def test_what_is_in_the_way_of_libgmp(monkeypatch: pytest.MonkeyPatch) -> None:
    load = pytest.importorskip("labelward.he.paillier.libgmp_load")
    monkeypatch.setattr(load, "libraries", list)
    load.reset()
    try:
        found = next(each for each in examine(bits=256) if each.kernel == "libgmp")
    finally:
        monkeypatch.undo()
        load.reset()
    assert (found.available, found.chosen, found.microseconds) == (False, False, {})
    assert "no libgmp" in found.why
