"""What the page of a study is made of: cells, tables of them, and sections; and how figures are put in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from labelward.evaluate.studies.plan import Claim, Part
from labelward.report.numbers import decimals
from labelward.report.study_plots import Image
from labelward.report.summary import Spread

__all__ = [
    "Cell",
    "Grid",
    "Section",
    "Verdict",
    "claim_verdict",
    "figure",
    "gain",
    "rival_verdict",
    "section",
    "signed",
]


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


def rival_verdict(gains: Sequence[Spread]) -> str:
    """Say what an option brings, from its gain on each data set and model: wins, loses, or neither.

    It wins where the mean gain is more than twice its standard error over data sets and models, and loses where it is
    less than minus that: seeds of one data set have columns and rows in common, so that they do not count as so many
    witnesses.
    """
    whole = Spread.of([each.mean for each in gains])
    better = sum(each.mean > 0 for each in gains)
    told = f"{gain(whole)} over {len(gains)} pairs of data set and model, better on {better} of them"
    if whole.std is None:
        return f"{told}; one pair says nothing of others."
    error = whole.error
    if abs(whole.mean) <= 2 * error:
        return (
            f"{told}; it neither wins nor loses: the mean is within twice its standard error of {decimals(error, 3)}."
        )
    outcome = "wins" if whole.mean > 0 else "loses"
    return f"{told}; it {outcome}: the mean is beyond twice its standard error of {decimals(error, 3)}."


@dataclass(frozen=True)
class Verdict:
    """What figures say of a claim, in words, and whether it holds."""

    words: str
    met: bool


def claim_verdict(claim: Claim, groups: Sequence[NDArray[np.float64]]) -> Verdict:
    """Judge a claim.

    Args:
        claim: what is claimed.
        groups: float64 [places, seeds], or [places, 1] of means.
    """
    if len(groups) == 1:
        found = groups[0].min(axis=0)
    else:
        found = np.min([upper.min(axis=0) - lower.max(axis=0) for upper, lower in pairwise(groups)], axis=0)
    holds = (found > 0) & (np.round(found, 9) >= claim.least)
    what = "least difference" if len(groups) > 1 else "figure"
    if not claim.every:
        return Verdict(f"{claim.words} ({what} {decimals(float(found[0]), 3)})", bool(holds[0]))
    told = f"{what} {signed(float(found.min()))} to {signed(float(found.max()))}"
    return Verdict(f"{claim.words}, in {int(holds.sum())} of {len(holds)} seeds ({told})", bool(holds.all()))


def gain(difference: Spread) -> str:
    """Return a difference with its sign and spread."""
    if difference.std is None:
        return signed(difference.mean)
    return f"{signed(difference.mean)} ± {decimals(difference.std, 3)}"
