"""Cells and tables in Markdown, which the pages of several benchmarks have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

Series = Mapping[str, float]
"""The figure of each seed."""
ALL_SEEDS = 5
"""A cell of fewer seeds says how many they are."""
MISSING = "–"


def spread_cell(series: Series | None, places: int = 3) -> str:
    """Return a :func:`range_cell` with the number of seeds where it is small."""
    few = f", {seeds_text([len(series)])}" if series and len(series) < ALL_SEEDS else ""
    return range_cell(series, places) + few


def range_cell(series: Series | None, places: int = 3) -> str:
    """Return the mean with the least and the largest in brackets."""
    if not series:
        return MISSING
    figures = mean_of(series), min(series.values()), max(series.values())
    mean, low, high = (short_number(value, places) for value in figures)
    return mean if len(series) == 1 else f"{mean} ({low} to {high})"


def mean_of(series: Series) -> float:
    """Return the mean over the seeds."""
    return float(np.mean(list(series.values())))


def seeds_text(counts: Collection[int]) -> str:
    """Return the least and the largest of numbers of seeds."""
    least, most = min(counts), max(counts)
    return (f"{least}" if least == most else f"{least} to {most}") + " seed" + "s" * (most != 1)


def short_number(value: float | None, places: int = 3) -> str:
    """Return a number without the zero before its point."""
    if value is None:
        return MISSING
    text = f"{value:.{places}f}"
    return text[1:] if text.startswith("0.") else text


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with a line break at its end."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
