"""Checks that name section, key and value; shared by the sections of the job file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from labelward.errors import JobError
from labelward.job._frozen import Frozen

__all__ = ["boolean", "byte_number", "choice", "directions", "name", "name_list", "number", "string", "whole"]

_UNITS = ("", "K", "M", "G", "T")
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:([KMGT])(i?))?B", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def boolean(place: str, value: Any) -> None:
    """Refuse what is not true or false."""
    if not isinstance(value, bool):
        raise JobError(f"must be true or false but got {value!r}", code="type", field=place, value=value)


def name(place: str, value: Any) -> None:
    """Refuse what is no name of a party or relay: names are folders, files and parts of certificates."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise JobError(
            f"a name must be a letter, then letters, digits, '_' or '-', at most 64 in all, but got {value!r}",
            code="type",
            field=place,
            value=value,
        )


def string(place: str, value: Any) -> None:
    """Refuse what is not a text of at least one character."""
    if not isinstance(value, str) or not value.strip():
        raise JobError(f"must be a text that is not empty but got {value!r}", code="type", field=place, value=value)


def whole(place: str, value: Any, low: int, high: int) -> None:
    """Refuse what is not a whole number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise JobError(f"must be a whole number but got {value!r}", code="type", field=place, value=value)
    if not low <= value <= high:
        raise JobError(f"must lie between {low} and {high} but got {value}", code="range", field=place, value=value)


def byte_number(place: str, value: Any) -> int:
    """Return a number of bytes, given as such or as a text such as "4 GB" or "512 MiB"; refuse what is none."""
    if isinstance(value, str):
        written = _BYTES.fullmatch(value.strip())
        if not written:
            raise JobError(
                f"must be a number of bytes, or a text such as '4 GB', but got {value!r}",
                code="type",
                field=place,
                value=value,
            )
        power, base = _UNITS.index((written[2] or "").upper()), 1024 if written[3] else 1000
        value = round(float(written[1]) * base**power)
    whole(place, value, 0, 1 << 62)
    return int(value)


def number(place: str, value: Any) -> None:
    """Refuse what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise JobError(f"must be a number but got {value!r}", code="type", field=place, value=value)


def choice(place: str, value: Any, known: Iterable[str]) -> None:
    """Refuse what is not one of a few words."""
    names = list(known)
    if value in names:
        return
    near = get_close_matches(value, names, n=1) if isinstance(value, str) else []
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise JobError(
        f"must be one of {', '.join(map(repr, names))} but got {value!r}{hint}", code="choice", field=place, value=value
    )


def name_list(place: str, value: Any) -> tuple[str, ...]:
    """Return a list of distinct column names as a tuple."""
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise JobError(f"must be a list of column names but got {value!r}", code="type", field=place, value=value)
    for name in value:
        string(place, name)
    names = tuple(value)
    for name in names:
        if names.count(name) > 1:
            raise JobError(f"column {name!r} is listed twice", code="duplicate", field=place, value=name)
    return names


def directions(place: str, value: Any) -> Frozen[int]:
    """Return a table of 1 or -1 by column name as a mapping that cannot change."""
    if not isinstance(value, Mapping):
        raise JobError(
            f"must be a table such as {{income = 1}} but got {value!r}", code="type", field=place, value=value
        )
    for column, direction in value.items():
        string(place, column)
        if isinstance(direction, bool) or not isinstance(direction, int) or direction not in (1, -1):
            raise JobError(
                f"must be 1 or -1 for column {column!r} but got {direction!r}",
                code="choice",
                field=place,
                value=direction,
            )
    return Frozen(value)
