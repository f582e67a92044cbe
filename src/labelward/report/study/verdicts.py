"""Figures of a study as text, tables of them, and verdicts as sentences: claims, rankings of attacks, ablations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from labelward.report.formatting import decimals
from labelward.report.plots import Image
from labelward.report.summary import Spread
from labelward.studies.references import Claim, ReferenceFigure
from labelward.studies.results import StudyFigures, figures_by_seed
from labelward.studies.spec import StudyPart

NOT_RUN = "not run"
NOT_COUNTED = "not counted by the version that ran it"
Floats = NDArray[np.float64]


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


@dataclass(frozen=True)
class Verdict:
    """What figures say of a claim, in words, and whether it holds; None if that is not judged."""

    text: str
    met: bool | None


def judge_claim(claim: Claim, setting: str, figures: StudyFigures, seeds: int) -> Verdict | None:
    """Judge a claim on the seeds that all of its figures have; None if a figure is missing.

    Args:
        seeds: number of seeds that a judgment needs.
    """
    values = figures_by_seed(figures, setting, [key for group in claim.groups for key in group])
    count = values.shape[1]
    if not count:
        return None
    ends = np.cumsum([len(group) for group in claim.groups])[:-1]
    groups = np.split(values if claim.every_seed else values.mean(axis=1, keepdims=True), ends)
    text, met = claim_verdict(claim, groups)
    if count != seeds:
        return Verdict(f"{text}; not judged on {count} {'seed' if count == 1 else 'seeds'}.", None)
    return Verdict(f"{text}: {'yes ✓' if met else 'no ✗'}.", met)


def claim_verdict(claim: Claim, groups: Sequence[Floats]) -> tuple[str, bool]:
    """Return what figures say of a claim, in words, and whether it holds.

    Args:
        groups: float64 [figures, seeds], or [figures, 1] for means.
    """
    if len(groups) == 1:
        least = groups[0].min(axis=0)
    else:
        least = np.min([upper.min(axis=0) - lower.max(axis=0) for upper, lower in pairwise(groups)], axis=0)
    holds = (least > 0) & (np.round(least, 9) >= claim.margin)
    what = "least difference" if len(groups) > 1 else "figure"
    if not claim.every_seed:
        return f"{claim.text} ({what} {decimals(float(least[0]), 3)})", bool(holds[0])
    values = f"{what} {signed(float(least.min()))} to {signed(float(least.max()))}"
    return f"{claim.text}, in {int(holds.sum())} of {len(holds)} seeds ({values})", bool(holds.all())


def ranking_verdict(where: str, rivals: Mapping[str, Floats]) -> str:
    """Say which of some columns is the best in a row, and whether its lead exceeds chance; empty without seeds.

    It wins if its mean lead on the next best exceeds twice the standard error over the seeds.

    Args:
        where: the row, in words.
        rivals: by column, float64 [seeds], of the same seeds; at least two.
    """
    if not next(iter(rivals.values())).size:
        return ""
    best, second, *_ = sorted(rivals, key=lambda name: -float(rivals[name].mean()))
    lead = Spread.of((rivals[best] - rivals[second]).tolist())
    above = int((rivals[best] > rivals[second]).sum())
    means = {name: decimals(float(values.mean()), 3) for name, values in rivals.items()}
    text = (
        f"{where}: {best} is best ({means[best]}) among {'; '.join(rivals)}, ahead of {second} ({means[second]}) by "
        f"{signed_spread(lead)} seed by seed, higher in {above} of {lead.seeds}"
    )
    if lead.std is None:
        return f"{text}; not judged on one seed."
    return f"{text}; {'it wins' if lead.mean > 2 * lead.error else 'no clear winner'}."


def ablation_verdict(gains: Sequence[Spread]) -> str:
    """Say whether an option wins or loses, from its gain on each pair of dataset and model.

    It wins if the mean gain exceeds twice its standard error over the pairs, and loses if it is below minus that. The
    seeds of a dataset share rows and columns, so they are not independent samples.
    """
    whole = Spread.of([each.mean for each in gains])
    better = sum(each.mean > 0 for each in gains)
    text = f"{signed_spread(whole)} over {len(gains)} pairs of dataset and model, better on {better}"
    if whole.std is None:
        return f"{text}; not judged on one pair."
    bound = f"twice its standard error of {decimals(whole.error, 3)}"
    if abs(whole.mean) <= 2 * whole.error:
        return f"{text}; it neither wins nor loses: the mean is within {bound}."
    return f"{text}; it {'wins' if whole.mean > 0 else 'loses'}: the mean is beyond {bound}."
