"""Numbers as text: significant digits, thousands separators, units."""

from __future__ import annotations

import math

NOTHING = "–"
"""A cell without a value."""
_PLAIN_FROM, _PLAIN_BELOW = 1e-4, 1e7
"""Range of numbers that are written without a power of ten."""
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def decimals(value: float, digits: int) -> str:
    """Return a number with fixed decimals, never a negative zero."""
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text.replace("-", "\N{MINUS SIGN}")


def significant(value: float, spread: float | None = None, digits: int = 4) -> str:
    """Return a number with ``digits`` significant digits, and its spread with the same decimals.

    Below 0.0001 and from 10 million it is written with a power of ten, such as ``1.234e-07``.
    """
    if not (math.isfinite(value) and math.isfinite(spread or 0.0)):
        return f"{value:g}" if spread is None else f"{value:g} ± {spread:g}"
    size = abs(value) or abs(spread or 0.0) or 1.0
    power = math.floor(math.log10(size))
    if _PLAIN_FROM <= size < _PLAIN_BELOW and (spread is None or abs(spread) < _PLAIN_BELOW):
        places = max(0, digits - 1 - power)
        return decimals(value, places) if spread is None else f"{decimals(value, places)} ± {decimals(spread, places)}"
    sign = "\N{MINUS SIGN}" if value < 0 else ""
    text = f"{sign}{abs(value):.{digits - 1}e}"
    return text if spread is None else f"{text} ± {spread:.{digits - 1}e}"


def count(value: float, spread: float | None = None) -> str:
    """Return a count with its spread: an integer, or one decimal for a fractional mean below 100."""
    digits = 0 if abs(value) >= 100 or float(value).is_integer() else 1
    suffix = "" if not spread else f" ± {decimals(spread, digits)}"
    return f"{decimals(value, digits)}{suffix}"


def data_size(size: float, spread: float | None = None) -> str:
    """Return bytes in B, kB, MB or GB (powers of 1000) with three digits, and its spread in the same unit."""
    for unit, name in _SIZES:
        if size >= 0.9995 * unit:
            return _with_unit(size / unit, None if spread is None else spread / unit, name)
    return _with_unit(size, spread, "B", whole=True)


def duration(seconds: float, spread: float | None = None) -> str:
    """Return a duration in ms or s, with its spread in the same unit, or from 100 s in minutes and hours."""
    if seconds < 0.9995:
        return _with_unit(seconds * 1000, None if spread is None else spread * 1000, "ms")
    if seconds < 99.95 or spread is not None:
        return _with_unit(seconds, spread, "s")
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours else f"{minutes} min {rest} s"


def percentage_points(difference: float) -> str:
    """Return a difference of shares in percentage points, such as ``0.3 points``."""
    text = decimals(100 * difference, 1)
    return f"{text} point" if text == "1.0" else f"{text} points"


def _with_unit(value: float, spread: float | None, unit: str, *, whole: bool = False) -> str:
    digits = 0 if whole or value >= 99.95 or value == 0 else 1 if value >= 9.995 else 2
    suffix = "" if spread is None else f" ± {decimals(spread, digits)}"
    return f"{decimals(value, digits)}{suffix} {unit}"
