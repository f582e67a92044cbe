"""Figures of a study as text, tables of them, and sections of its page."""

from collections.abc import Sequence
from dataclasses import dataclass

from labelward.report.formatting import decimals
from labelward.report.plots import Image
from labelward.report.summary import Spread
from labelward.studies.references import ReferenceFigure
from labelward.studies.spec import StudyPart

NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class FigureCell:
    """One figure as text, and what it is compared with."""

    ours: str  # mean and standard deviation over the seeds
    paper: str = ""  # as printed; empty if the paper prints none
    reference: str = ""  # of the independent implementation; empty if there is none
    within: str = ""  # the condition that ours must meet, in words; empty if it is not judged
    met: bool | None = None  # whether it is met; None if that cannot be decided


@dataclass(frozen=True, kw_only=True)
class FigureTable:
    """A table of cells; each row begins with its name."""

    caption: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, Sequence[FigureCell]]]


@dataclass(frozen=True, kw_only=True)
class StudySection:
    """A table or a figure of the paper, with verdicts and differences as sentences."""

    part: StudyPart
    tables: Sequence[FigureTable]
    images: Sequence[Image] = ()
    verdicts: Sequence[str] = ()
    differences: Sequence[str] = ()


def spread_figure(spread: Spread | ReferenceFigure | None, missing: str = "") -> str:
    """Return a mean, with its standard deviation if there is one; ``missing`` for None."""
    if spread is None:
        return missing
    return decimals(spread.mean, 3) + ("" if spread.std is None else f" ± {decimals(spread.std, 3)}")


def signed(value: float) -> str:
    """Return a number with its sign and three decimals."""
    return f"{'+' if value > 0 else ''}{decimals(value, 3)}"


def signed_spread(difference: Spread) -> str:
    """Return a mean difference with its sign, and its standard deviation if there is one."""
    return signed(difference.mean) + ("" if difference.std is None else f" ± {decimals(difference.std, 3)}")
