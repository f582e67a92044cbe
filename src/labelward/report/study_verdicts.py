"""What the figures of a study come to, in sentences: options, claims, and which of several attacks is the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from labelward.evaluate.studies.compared import Claim
from labelward.evaluate.studies.read import Figures
from labelward.report.formatting import decimals
from labelward.report.study_cells import gain, signed
from labelward.report.summary import Spread

__all__ = ["Verdict", "claim_verdict", "contest", "contest_verdict", "judged", "rival_verdict"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """What figures say of a claim, in words, and whether it holds; None where that is not judged."""

    words: str
    met: bool | None


def judged(claim: Claim, setting: str, figures: Figures, seeds: int) -> Verdict:
    """Judge a claim on the seeds that all of its figures have.

    Args:
        claim: what is claimed.
        setting: of its figures.
        figures: of the study.
        seeds: how many are needed.

    Returns:
        No words where a figure is missing.
    """
    groups = [[figures.get((setting, place), {}) for place in group] for group in claim.groups]
    common = sorted(set.intersection(*(set(each) for group in groups for each in group)))
    if not common:
        return Verdict("", None)
    values = [np.array([[each[seed] for seed in common] for each in group]) for group in groups]
    if not claim.every:
        values = [group.mean(axis=1, keepdims=True) for group in values]
    words, met = claim_verdict(claim, values)
    if len(common) != seeds:
        return Verdict(f"{words}; not judged on {len(common)} {'seed' if len(common) == 1 else 'seeds'}.", None)
    return Verdict(f"{words}: {'yes ✓' if met else 'no ✗'}.", met)


def contest(where: str, place: tuple[str, tuple[str, str, str]], columns: Sequence[str], figures: Figures) -> str:
    """Say which of some columns is the best of a row; nothing where one is missing.

    Args:
        where: the row, in words.
        place: setting; data set, model and defense.
        columns: their titles.
        figures: of the study.
    """
    setting, row = place
    found = [figures.get((setting, (*row, column)), {}) for column in columns]
    seeds = sorted(set.intersection(*map(set, found)))
    if not seeds:
        return ""
    rivals = {name: np.array([each[seed] for seed in seeds]) for name, each in zip(columns, found, strict=True)}
    return contest_verdict(where, rivals)


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


def claim_verdict(claim: Claim, groups: Sequence[Floats]) -> tuple[str, bool]:
    """Return what figures say of a claim, in words, and whether it holds.

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
        return f"{claim.words} ({what} {decimals(float(found[0]), 3)})", bool(holds[0])
    told = f"{what} {signed(float(found.min()))} to {signed(float(found.max()))}"
    return f"{claim.words}, in {int(holds.sum())} of {len(holds)} seeds ({told})", bool(holds.all())


def contest_verdict(where: str, rivals: Mapping[str, Floats]) -> str:
    """Say which of some columns is the best of a row, and whether it is beyond chance.

    It wins where its mean lead on the next best is more than twice the standard error over the seeds.

    Args:
        where: the row.
        rivals: by column, float64 [seeds], of the same seeds; two at least.
    """
    best, second, *_ = sorted(rivals, key=lambda name: -float(rivals[name].mean()))
    lead = Spread.of((rivals[best] - rivals[second]).tolist())
    above = int((rivals[best] > rivals[second]).sum())
    means = {name: decimals(float(values.mean()), 3) for name, values in rivals.items()}
    told = (
        f"{where}: of {'; '.join(rivals)} the best is {best} ({means[best]}), before {second} ({means[second]}): "
        f"{gain(lead)} seed by seed, above in {above} of {lead.seeds}"
    )
    if lead.std is None:
        return f"{told}; one seed says nothing of others."
    verdict = "it wins" if lead.mean > 2 * lead.error else "no clear winner"
    return f"{told}; {verdict}."
