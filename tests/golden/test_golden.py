"""What the product computes is what it computed when the golden record was made; see ``record.py`` and ``cases.py``."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import CASES, HERE, found_values
from compare import FORMAT, Tolerance, differences, read_values, write_values

pytestmark = pytest.mark.plots
torch.set_num_threads(1)  # sums of several threads round differently

VALUES = HERE / "values"
_SHOWN = 40


def stored_in(name: str) -> Path:
    return VALUES / f"{name.replace(' ', '-')}.json"


@pytest.mark.filterwarnings(
    "ignore:the order of the rows:labelward.errors.DataWarning"
)  # wine is in that of its labels
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow) if each == "noisy gradients" else each for each in CASES]
)
def test_nothing_has_changed(name: str, tmp_path: Path) -> None:
    stored, tolerances = read_values(stored_in(name))
    found = list(differences(stored, found_values(name, tmp_path), tolerances))
    if found:
        more = f"\n  ... and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        told = "\n  ".join(found[:_SHOWN])
        pytest.fail(f"golden record, job {name!r} ({CASES[name].about}): {len(found)} values differ\n  {told}{more}")


def test_each_job_has_its_values_and_no_others_are_there() -> None:
    assert {path.name for path in VALUES.iterdir()} == {stored_in(name).name for name in CASES}
    for name, case in CASES.items():
        text = stored_in(name).read_text(encoding="utf-8")
        assert json.loads(text)["format"] == FORMAT
        assert read_values(stored_in(name))[1] == case.tolerances, f"{name}: record it anew"
        assert "labelward." not in text, f"{name}: names a module, which may be renamed"


@pytest.mark.parametrize("name", ["trees", "encrypted", "net with a top"])
def test_any_changed_value_is_noticed(name: str) -> None:
    """Each stored number and text is changed, one at a time, by the least that no tolerance covers."""
    stored, tolerances = read_values(stored_in(name))
    assert not list(differences(stored, stored, tolerances))
    places = list(leaves(stored))
    assert len(places) > 100
    changed = copy.deepcopy(stored)
    for place in places[:: max(1, len(places) // 80)]:
        *above, last = place
        inner = changed
        for key in above:
            inner = inner[key]
        kept = inner[last]
        inner[last] = other(kept)
        key = "/".join(map(str, place))
        assert [each.partition(": ")[0] for each in differences(stored, changed, tolerances)] == [key]
        inner[last] = kept


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Any:
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*place, key))
    else:
        yield place


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.000001 + 1e-8
    return f"{value} "


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"a": [1.0, 2.5], "b": "x"}, []),
        ({"a": [1.0, 2.5000000000000004], "b": "x"}, ["a/1: stored is 2.5, and found was 2.5000000000000004"]),
        ({"a": [1.0], "b": "x"}, ["a: stored are 2 values, and found were 1"]),
        ({"a": [1, 2.5], "b": "x"}, ["a/0: stored is 1.0, and found was 1"]),
        ({"a": [1.0, 2.5]}, ['b: stored is "x", and nothing was found']),
        ({"a": [1.0, 2.5], "b": None, "c": 3}, ['b: stored is "x", and found was null', "c: nothing is stored"]),
        ({"a": {"0": 1.0}, "b": "x"}, ["a: stored is [1.0, 2.5], and found was"]),
    ],
)
def test_a_difference_says_where_and_what(found: Any, told: list[str]) -> None:
    said = list(differences({"a": [1.0, 2.5], "b": "x"}, found))
    assert len(said) == len(told)
    for each, words in zip(said, told, strict=True):
        assert each.startswith(words)


def test_a_tolerance_is_for_floats_of_its_pattern_only() -> None:
    near = Tolerance(values="a/*", relative=1e-6, absolute=0.0, why="a test")
    stored = {"a": {"x": 1.0, "n": 100}, "b": {"x": 1.0}}
    found = {"a": {"x": 1.0000001, "n": 101}, "b": {"x": 1.0000001}}
    assert [re.split(":", each)[0] for each in differences(stored, found, [near])] == ["a/n", "b/x"]
    assert list(differences({"a": {"x": 1.0}}, {"a": {"x": 1.00001}}, [near]))
    with pytest.raises(ValueError, match="Out of range float"):
        list(differences({"a": 1.0}, {"a": float("nan")}, [near]))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    values = {"b": [0.1 + 0.2, -0.0, 1e-320, 7] * 30, "a": {"deep": [[1], [2.0, None]], "text": "ü"}, "empty": []}
    near = Tolerance(values="a/*", relative=1e-6, absolute=0.0, why="a test")
    write_values(tmp_path / "one.json", "a job", values, [near])
    assert read_values(tmp_path / "one.json") == (values, (near,))
    lines = (tmp_path / "one.json").read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) <= 120
    (tmp_path / "two.json").write_text('{"format": 2}')
    with pytest.raises(ValueError, match="format 2"):
        read_values(tmp_path / "two.json")
