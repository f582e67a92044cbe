"""Lists of kinds: found by name, imported when asked for, refused with the known ones."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from labelward.errors import Code, InputError, JobError
from labelward.registry import Registry
from refusals import refused


@dataclass(frozen=True, kw_only=True)
class Plain:
    kind: ClassVar[str] = "plain"
    size: int
    tags: tuple[str, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError("must be at least 1", code="range", field="size", value=self.size)


@dataclass(frozen=True, kw_only=True)
class Fancy:
    kind: ClassVar[str] = "fancy"
    color: str = "red"
    memory: dict[str, str] = field(default_factory=dict, init=False)


@dataclass(frozen=True, kw_only=True)
class Twin:
    kind: ClassVar[str] = "plain"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry[Any]:
    monkeypatch.setitem(sys.modules, "things", sys.modules[__name__])
    monkeypatch.setitem(sys.modules, "things.all", sys.modules[__name__])
    return Registry("thing", "things", ["all:Plain", "all:Fancy"])


def test_kinds_in_the_order_of_the_list(registry: Registry[Any]) -> None:
    assert registry.classes() == {"plain": Plain, "fancy": Fancy}
    assert list(registry.classes()) == ["plain", "fancy"]


def test_objects_with_parameters_and_defaults(registry: Registry[Any]) -> None:
    assert registry.make("plain", {"size": 3}) == Plain(size=3)
    assert registry.make("plain", {"size": 3, "tags": ("a",)}) == Plain(size=3, tags=("a",))
    assert registry.make("fancy", {}) == Fancy()


@pytest.mark.parametrize(
    ("kind", "params", "code", "field", "value", "about"),
    [
        ("fance", {}, "unknown", "", "fance", "'fancy'?"),
        ("zzz", {}, "unknown", "", "zzz", "fancy, plain"),
        ("fancy", {"colour": "red"}, "unknown", "", "colour", "'color'?"),
        ("fancy", {"kind": "x"}, "unknown", "", "kind", "'fancy'"),
        ("plain", {}, "missing", "size", None, ""),
        ("plain", {"size": 0}, "range", "size", 0, ""),
    ],
)
def test_refusals(
    registry: Registry[Any], kind: str, params: dict[str, Any], code: Code, field: str, value: object, about: str
) -> None:
    with refused(JobError, code, field=field, value=value) as caught:
        registry.make(kind, params)
    assert about in caught.value.reason


def test_what_a_class_refuses_is_refused_with_its_kind_and_as_a_parameter_of_the_job(registry: Registry[Any]) -> None:
    with refused(JobError, "range", field="size", value=0) as caught:
        registry.make("plain", {"size": 0})
    assert str(caught.value).startswith("thing 'plain': size: ")


def test_what_an_object_remembers_is_no_parameter(registry: Registry[Any]) -> None:
    with refused(JobError, "unknown", value="memory") as caught:
        registry.make("fancy", {"memory": {}})
    assert "known: color" in caught.value.reason


def test_two_of_one_kind(registry: Registry[Any]) -> None:
    with pytest.raises(ValueError, match="things are called 'plain'"):
        Registry("thing", "things", ["all:Plain", "all:Twin"]).classes()


def test_an_empty_list() -> None:
    with refused(JobError, "unknown", value="x"):
        Registry[Any]("thing", "labelward", []).make("x", {})


def test_modules_are_imported_when_asked_for() -> None:
    code = (
        "import sys, labelward.defenses as d\n"
        "before = 'labelward.defenses.id_lmid' in sys.modules\n"
        "d.DEFENSES.classes()\n"
        "print(before, 'labelward.defenses.id_lmid' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout.strip() == "False True"
