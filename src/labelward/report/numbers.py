"""Numbers as people read them: sensible digits, thousands separators, units."""

from __future__ import annotations

__all__ = ["count", "data_size", "decimals", "duration", "points"]

_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def decimals(value: float, digits: int) -> str:
    """Return a number with fixed decimals, never a negative zero."""
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text.replace("-", "\N{MINUS SIGN}")


def count(value: float) -> str:
    """Return a number of things: whole where it is, one decimal where a mean below 100 is not."""
    whole = abs(value) >= 100 or float(value).is_integer()
    return decimals(value, 0 if whole else 1)


def data_size(size: float) -> str:
    """Return bytes in B, kB, MB or GB (powers of 1000) with three digits."""
    for unit, name in _SIZES:
        if size >= 0.9995 * unit:
            return f"{_three_digits(size / unit)} {name}"
    return f"{size:.0f} B"


def duration(seconds: float) -> str:
    """Return a time in ms, s, min or h."""
    if seconds < 0.9995:
        return "0 s" if seconds == 0 else f"{_three_digits(seconds * 1000)} ms"
    if seconds < 99.95:
        return f"{_three_digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours else f"{minutes} min {rest} s"


def points(difference: float) -> str:
    """Return a difference of shares in points (hundredths), such as ``0.3 points``."""
    text = decimals(100 * difference, 1)
    return f"{text} point" if text == "1.0" else f"{text} points"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
