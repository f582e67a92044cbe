"""Figures that a study is compared with: those printed in a paper and those of an independent implementation.

They are data: TOML files in ``studies/figures``. A file holds blocks ``[[printed]]`` (what the paper prints) and
``[[reference]]`` (what an independent implementation gives: written from the paper with its errors corrected, sharing
no code with this package, run on the same rows and columns with as many seeds as the study has). A block is a table::

    [[printed]]
    part = "table 2"                  # printed figures only
    model = "forest"
    columns = ["CL", "ID2Graph"]
    [printed.rows]
    breast_cancer = ["0.554 ± 0.084", 0.751]

Rows are datasets (under no defense, or the block's ``defense``); of a block with a ``dataset`` they are defenses. A
figure is a mean, or a string of a mean, ``± standard deviation`` and ``within tolerance``; ``"–"`` is no figure.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

from labelward.errors import FileFormatError

NO_DEFENSE = "none"
UTILITY, SUMS, NUMBERS, TIME, TRAFFIC = "utility", "sums", "numbers", "seconds", "megabytes"
"""Columns that every study has: utility of the model; logical encrypted sums, these and the numbers of encrypted rows,
wall time and traffic of its training."""
COUNTED = {SUMS: "encrypted sums", NUMBERS: "encrypted sums and rows"}
"""What is counted as the cost of a defense, and its words."""

_FIGURE = re.compile(r"(?P<mean>[\d.]+)(?: ± (?P<std>[\d.]+))?(?: within (?P<within>[\d.]+))?")
_NO_FIGURE = "–"


class FigureKey(NamedTuple):
    """What a figure is of.

    Attributes:
        dataset: name of a dataset, or of one of its further metrics (:meth:`StudyDataset.metrics`); ``""`` for a mean
            over all of them.
        defense: :attr:`DefenseSpec.name`, or :data:`NO_DEFENSE`.
        column: title of a column, :data:`UTILITY`, :data:`SUMS`, :data:`NUMBERS`, :data:`TIME` or
            :data:`TRAFFIC`.
    """

    dataset: str
    model: str
    defense: str
    column: str


@dataclass(frozen=True, kw_only=True)
class ReferenceFigure:
    """A figure to compare with."""

    mean: float
    std: float | None = None  # standard deviation over seeds; None if unknown
    within: float | None = None  # how far a mean over the study's seeds may deviate; None if that is not judged


class PublishedFigures(NamedTuple):
    """Figures of one file: of the paper by part and key, of the independent implementation by key."""

    printed: Mapping[tuple[str, FigureKey], ReferenceFigure] = {}
    reference: Mapping[FigureKey, ReferenceFigure] = {}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """An order of figures that must come out, judged when all seeds of the study are present.

    Attributes:
        groups: each figure of a group must exceed all figures of the next group; those of a single group must exceed 0.
        margin: by how much at least.
        every_seed: whether it must hold for each seed; otherwise for the means.
    """

    part: str
    text: str
    groups: tuple[tuple[FigureKey, ...], ...]
    margin: float = 0.0
    every_seed: bool = False


def load_figures(name: str) -> PublishedFigures:
    """Return the figures of ``studies/figures/NAME.toml``.

    Raises:
        FileFormatError: a figure cannot be read, or a row has too many or too few; names the place.
    """
    file = resources.files("labelward.studies") / "figures" / f"{name}.toml"
    blocks = tomllib.loads(file.read_text(encoding="utf-8"))
    printed, reference = (
        [(block.get("part", ""), *each) for block in blocks.get(kind, ()) for each in _figures(block, file.name)]
        for kind in ("printed", "reference")
    )
    return PublishedFigures(
        {(part, key): figure for part, key, figure in printed}, {key: figure for _, key, figure in reference}
    )


def _figures(block: Mapping[str, Any], file: str) -> Iterator[tuple[FigureKey, ReferenceFigure]]:
    for row, cells in block["rows"].items():
        dataset = block.get("dataset", row)
        defense = row if "dataset" in block else block.get("defense", NO_DEFENSE)
        if len(cells) != len(block["columns"]):
            reason = f"must have {len(block['columns'])} figures but has {len(cells)}"
            raise FileFormatError(reason, code="damaged", field=f"{file}, row {row!r}", value=len(cells))
        for column, cell in zip(block["columns"], cells, strict=True):
            if cell != _NO_FIGURE:
                yield FigureKey(dataset, block["model"], defense, column), _parse(cell, f"{file}, {row}, {column}")


def _parse(cell: str | float, place: str) -> ReferenceFigure:
    found = _FIGURE.fullmatch(str(cell))
    if found is None:
        reason = 'must be a number or "mean ± std within tolerance"'
        raise FileFormatError(reason, code="damaged", field=place, value=cell)
    mean, std, within = (None if text is None else float(text) for text in found.group("mean", "std", "within"))
    assert mean is not None
    return ReferenceFigure(mean=mean, std=std, within=within)
