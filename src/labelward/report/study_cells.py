"""What the page of a study is made of: cells, tables of them, and sections; and how figures are put in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labelward.evaluate.studies.plan import Part
from labelward.report.formatting import decimals
from labelward.report.study_plots import Image
from labelward.report.summary import Spread

__all__ = ["Cell", "Grid", "Section", "figure", "gain", "section", "signed"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One figure as text, and what it is compared with.

    Attributes:
        ours: mean and spread over the seeds.
        paper: as printed; empty where the paper prints none.
        reference: of the independent implementation; empty where there is none.
        within: how far ours may be off, in words; empty where that is not judged.
        met: whether ours is within the tolerance; None where that cannot be said.
    """

    ours: str
    paper: str = ""
    reference: str = ""
    within: str = ""
    met: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of cells; each row begins with its name."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table or a figure of the paper."""

    name: str
    title: str
    about: str
    grids: tuple[Grid, ...]
    images: tuple[Image, ...] = ()
    differences: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()


def section(
    part: Part,
    grids: tuple[Grid, ...],
    images: Sequence[Image] = (),
    differences: Sequence[str] = (),
    verdicts: Sequence[str] = (),
) -> Section:
    """Return the section of a part."""
    return Section(
        name=part.name,
        title=part.title,
        about=part.about,
        grids=grids,
        images=tuple(images),
        differences=tuple(differences),
        verdicts=tuple(verdicts),
    )


def figure(mean: float, std: float | None) -> str:
    """Return a mean, with its spread where there is one."""
    return decimals(mean, 3) if std is None else f"{decimals(mean, 3)} ± {decimals(std, 3)}"


def signed(value: float) -> str:
    """Return a number with its sign, three digits."""
    return f"{'+' if value > 0 else ''}{decimals(value, 3)}"


def gain(difference: Spread) -> str:
    """Return a difference with its sign and spread."""
    if difference.std is None:
        return signed(difference.mean)
    return f"{signed(difference.mean)} ± {decimals(difference.std, 3)}"
