"""Written values: numbers, dates and durations that a text file writes otherwise than Arrow reads them.

Arrow reads ``1234.5``, ``2024-03-31`` and ``18:00:00``. A column of texts is turned into numbers or times where *all*
its values are of one of these forms; a column in which some are not stays text
(:func:`~labelward.data.mistyped_values.check_mistyped` looks for typos later).

- Numbers: a decimal comma; marks between thousands (point, comma, apostrophe, space); spaces around them.
- Dates: ``31.3.2024``, ``3/31/2024``, ``31/3/2024``, ``31-03-2024``, ``2024/3/31``, ``31 Mar 2024``,
  ``March 31, 2024``, with or without a time.
- Durations: ``36:15:00``, ``2 days 04:00:00``, ``P1DT2H``, in seconds.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from labelward.errors import DataError

DateOrder = Literal["day-first", "month-first"]

NULL_WORDS = frozenset(csv.ConvertOptions().null_values)
"""Words for a missing number; those that Arrow takes for it."""

_SPACES = "\u00a0\u202f "
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_MARKED = {
    mark: re.compile(
        rf"[+-]?(\d+|[1-9]\d{{0,2}}([{re.escape(other)}'’{_SPACES}]\d{{3}})+)?({re.escape(mark)}\d*)?([eE][+-]?\d+)?"
    )
    for mark, other in ((".", ","), (",", "."))
}

_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_DAY_FIRST = ("%d.%m.%Y", "%d/%m/%Y", "%d-%m-%Y", "%d.%m.%y", "%d/%m/%y")
_MONTH_FIRST = ("%m/%d/%Y", "%m-%d-%Y", "%m/%d/%y")
_ORDERED = {"day-first": _DAY_FIRST, "month-first": _MONTH_FIRST}
_NAMED = ("%Y/%m/%d", "%Y.%m.%d", "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y")
LOOKS_DATED = r"^(\d{1,4}[./ -](\d{1,2}|[A-Za-z]{3,9})[./ -]\d{1,4}|[A-Za-z]{3,9} \d{1,2}, \d{4})( .*)?$"
"""Pattern of the texts that may be dates."""
_LOOKS_DATED = re.compile(LOOKS_DATED)

_CLOCK = re.compile(r"(-)?()(?:(\d+) days?,? ?)?(?:(\d+):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?)?")
_ISO_DURATION = re.compile(r"(-)?P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


@dataclass(frozen=True)
class Recognized:
    """A column of texts read as another type."""

    values: Any  # Arrow array: float64 or int64 numbers, timestamps, or durations in seconds
    form: str  # what was seen, in a phrase such as "decimal comma"; empty: nothing that can be mistaken


def recognize(column: Any, *, decimal: str, dates: DateOrder | None, place: str) -> Recognized | None:
    """Return a column of texts as numbers, dates or durations, if all its values are; None if it is text.

    Args:
        column: Arrow array of texts, in which missing ones are null.
        decimal: the decimal mark of the file.
        dates: the order of day and month; None: found from values of which only one order is a date.
        place: of the column, for the error.

    Raises:
        DataError: all values are dates by both orders, and not the same ones.
    """
    encoded = pc.dictionary_encode(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    texts = [text.strip(_SPACES) for text in encoded.dictionary.to_pylist()]
    known = [text for text in texts if text not in NULL_WORDS]
    if not known:
        return None
    found = _numbers(known, decimal) or _dates(known, dates, place) or _durations(known)
    if found is None:
        return None
    read = dict(zip(known, found.values, strict=True))
    distinct = pa.array([read.get(text) for text in texts], found.values.type)
    return Recognized(distinct.take(encoded.indices), found.form)


def has_commas(texts: Iterable[str]) -> bool:
    """Return whether all texts are numbers in which a comma is a decimal mark or stands between thousands."""
    known = _known(texts)
    return any("," in text for text in known) and (_all_marked(known, ",") or _all_marked(known, "."))


def decimal_mark(commas: Mapping[str, Iterable[str]], points: Mapping[str, Iterable[str]], place: str) -> str:
    """Return the decimal mark of a file.

    Args:
        commas: texts by column, of the columns that pass :func:`has_commas`.
        points: texts by column, of the columns of fractional numbers if the mark is a point.
        place: of the table, for errors.

    Raises:
        DataError: some columns have a decimal comma and others a point, or each mark may stand between thousands.
    """
    comma = next((name for name, texts in commas.items() if not _all_marked(_known(texts), ".")), None)
    numbers = {**points, **commas}
    point = next((name for name, texts in numbers.items() if not _all_marked(_known(texts), ",")), None)
    if comma is not None and point is not None:
        reason = (
            f"writes numbers with a decimal comma, and column {point!r} with a decimal point; write all in the same "
            "way, or write decimal in the format of the table (what is written otherwise stays text)"
        )
        raise DataError(reason, code="values", field=f"{place}, column {comma!r}", value=comma)
    if comma is not None or point is not None or not commas:
        return "." if comma is None else ","
    name = next(iter(commas))
    text = next(text for text in _known(commas[name]) if "," in text)
    reason = (
        f'{text!r} may be {text.replace(",", ".")} or {text.replace(",", "")}; write decimal = "," or decimal = "." '
        "in the format of the table"
    )
    raise DataError(reason, code="values", field=f"{place}, column {name!r}", value=text)


def _known(texts: Iterable[str]) -> list[str]:
    stripped = (text.strip(_SPACES) for text in texts)
    return [text for text in stripped if text not in NULL_WORDS]


def _all_marked(texts: Sequence[str], mark: str) -> bool:
    return all(_is_marked(text, mark) for text in texts)


def is_written_date(text: str) -> bool:
    """Return whether a text is a date in one of the forms of the module."""
    if not _LOOKS_DATED.fullmatch(text):
        return False
    return any(_parsed([text], forms) is not None for forms in (_DAY_FIRST, _MONTH_FIRST, _NAMED))


def _is_marked(text: str, mark: str) -> bool:
    return bool(_MARKED[mark].fullmatch(text)) and any(character.isdigit() for character in text)


def _numbers(known: list[str], decimal: str) -> Recognized | None:
    if not _all_marked(known, decimal):
        return None
    dropped = dict.fromkeys(map(ord, f"{',' if decimal == '.' else '.'}'’{_SPACES}"))
    values = np.array([float(text.translate(dropped).replace(decimal, ".")) for text in known])
    grouped = any(not _PLAIN.fullmatch(text.replace(decimal, ".")) for text in known)
    whole = bool((np.floor(values) == values).all() and (np.abs(values) < 2**53).all())
    return Recognized(
        pa.array(values).cast(pa.int64() if whole else pa.float64()), "marks between thousands" if grouped else ""
    )


def _dates(known: list[str], dates: DateOrder | None, place: str) -> Recognized | None:
    if not all(_LOOKS_DATED.fullmatch(text) for text in known):
        return None
    orders = [order for order in ("day-first", "month-first") if dates in (None, order)]
    read = {order: values for order in orders if (values := _parsed(known, _ORDERED[order])) is not None}
    if len(read) > 1 and read["day-first"] != read["month-first"]:
        reason = (
            f'{known[0]!r} may have the day or the month first; write dates = "day-first" or dates = "month-first" '
            "in the format of the table"
        )
        raise DataError(reason, code="values", field=place, value=known[0])
    for order, values in read.items():
        return Recognized(pa.array(values, pa.timestamp("s")), f"dates with the {order.replace('-', ' ')}")
    values = _parsed(known, _NAMED)
    return None if values is None else Recognized(pa.array(values, pa.timestamp("s")), "written dates")


def _parsed(known: list[str], forms: Sequence[str]) -> list[dt.datetime] | None:
    """Return texts as dates, by the first form and kind of time that fit all of them; None if none does."""
    for form in (day + time for day in forms for time in _TIMES):
        try:
            return [dt.datetime.strptime(text, form) for text in known]
        except ValueError:
            continue
    return None


def _durations(known: list[str]) -> Recognized | None:
    for pattern in (_CLOCK, _ISO_DURATION):
        matches = [pattern.fullmatch(text) for text in known]
        if all(match is not None and any(match.groups()[1:]) for match in matches):
            seconds = [_seconds(match) for match in matches if match is not None]
            return Recognized(pa.array(seconds, pa.float64()), "durations in seconds")
    return None


def _seconds(match: re.Match[str]) -> float:
    """Return what the groups of a duration say: sign, weeks, days, hours, minutes and seconds."""
    weeks, days, hours, minutes, seconds = (float(part or 0) for part in match.groups()[1:])
    size = (((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60 + seconds
    return -size if match[1] else size
