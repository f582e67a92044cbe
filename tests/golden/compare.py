"""Stored values: how they are written, and what differs between two of them.

Floats are stored as Python prints them, which is exact: two are equal if and only if their texts are. Where figures
may differ in their last digits from processor to processor, the file names the values by a pattern and says how much
and why: ``{"values": "audit/rows/*", "relative": 1e-9, "absolute": 1e-12, "why": "..."}``. A tolerance holds for floats
only; whole numbers, texts and shapes are always compared exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

__all__ = ["FORMAT", "Tolerance", "differences", "read_values", "write_values"]

FORMAT = 1
_WIDTH = 120


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far floats may be apart.

    Attributes:
        values: a pattern of keys, with slashes between; ``*`` stands for any part of it.
        relative: as a share of the larger of the two.
        absolute: in any case.
        why: what makes them differ.
    """

    values: str
    relative: float
    absolute: float
    why: str


def write_values(path: Path, job: str, values: Any, tolerances: Sequence[Tolerance]) -> None:
    """Write a file of stored values; ``job``: what they are of, in words."""
    stored = {"format": FORMAT, "job": job, "tolerances": [asdict(each) for each in tolerances], "values": values}
    path.write_text(_text(stored) + "\n", encoding="utf-8")


def read_values(path: Path) -> tuple[Any, tuple[Tolerance, ...]]:
    """Return values and tolerances of a file."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    if stored["format"] != FORMAT:
        raise ValueError(f"{path}: format {stored['format']}; this version reads format {FORMAT}")
    return stored["values"], tuple(Tolerance(**each) for each in stored["tolerances"])


def differences(stored: Any, found: Any, tolerances: Sequence[Tolerance] = (), at: str = "") -> Iterator[str]:
    """Yield for each value that differs its key, what is stored, and what was found.

    ``found`` is taken as JSON would store it; NaN and infinity are refused there.
    """
    found = json.loads(json.dumps(found, allow_nan=False))
    yield from _differences(stored, found, tuple(tolerances), at)


def _differences(stored: Any, found: Any, tolerances: tuple[Tolerance, ...], at: str) -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(found, dict):
        for key in sorted(stored.keys() | found.keys()):
            place = f"{at}/{key}" if at else key
            if key not in found:
                yield f"{place}: stored is {_short(stored[key])}, and nothing was found"
            elif key not in stored:
                yield f"{place}: nothing is stored, and found was {_short(found[key])}"
            else:
                yield from _differences(stored[key], found[key], tolerances, place)
    elif isinstance(stored, list) and isinstance(found, list):
        if len(stored) != len(found):
            yield f"{at}: stored are {len(stored)} values, and found were {len(found)}"
        for number, (one, other) in enumerate(zip(stored, found, strict=False)):
            yield from _differences(one, other, tolerances, f"{at}/{number}")
    elif not _equal(stored, found, tolerances, at):
        yield f"{at}: stored is {_short(stored)}, and found was {_short(found)}"


def _equal(stored: Any, found: Any, tolerances: tuple[Tolerance, ...], at: str) -> bool:
    if type(stored) is float and type(found) is float:
        for each in tolerances:
            if fnmatchcase(at, each.values):
                return math.isclose(stored, found, rel_tol=each.relative, abs_tol=each.absolute)
    return type(stored) is type(found) and bool(stored == found)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."


def _text(value: Any, indent: str = "") -> str:
    """Return JSON with sorted keys: what fits in a line stands in one, and scalars of a list share lines."""
    line = json.dumps(value, sort_keys=True, allow_nan=False)
    if len(indent) + len(line) <= _WIDTH or not isinstance(value, dict | list):
        return line
    inner = indent + " "
    if isinstance(value, Mapping):
        items = [f"{json.dumps(key)}: {_text(value[key], inner)}" for key in sorted(value)]
        return "{\n" + ",\n".join(inner + item for item in items) + f"\n{indent}}}"
    if any(isinstance(each, dict | list) for each in value):
        return "[\n" + ",\n".join(inner + _text(each, inner) for each in value) + f"\n{indent}]"
    lines, current = [], inner
    for number, each in enumerate(value):
        text = json.dumps(each) + ("," if number + 1 < len(value) else "")
        if len(current) + 1 + len(text) > _WIDTH and current.strip():
            lines.append(current.rstrip())
            current = inner
        current += text + " "
    return "[\n" + "\n".join([*lines, current.rstrip()]) + f"\n{indent}]"
