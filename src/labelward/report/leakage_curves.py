"""Curves of the leakage meter: agreement of each passive party's communities with the labels, tree by tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labelward.report.plots import Image, curves
from labelward.report.summary import Spread
from labelward.runs.schema import MeterReading, RunDetails


def meter_images(runs: Mapping[str, Sequence[RunDetails]]) -> list[Image]:
    """Return a plot for each passive party: V-measure over trees with a line for each defense, means over seeds.

    The last reading of a run with fewer trees is continued.

    Raises:
        DependencyError: matplotlib is not installed.
    """
    parties = dict.fromkeys(party for found in runs.values() for run in found for party in run.meter)
    return [_image(party, runs) for party in parties]


def _image(party: str, runs: Mapping[str, Sequence[RunDetails]]) -> Image:
    read = {label: [run.meter[party] for run in found if run.meter.get(party)] for label, found in runs.items()}
    read = {label: found for label, found in read.items() if found}
    trees = sorted({each.trees for found in read.values() for readings in found for each in readings})
    lines = {
        label: [Spread.of([_at(readings, number) for readings in found]) for number in trees]
        for label, found in read.items()
    }
    return curves(f"Known to {party}", trees, lines, "trees", "V-measure of the communities")


def _at(readings: Sequence[MeterReading], trees: int) -> float:
    """Return the last V-measure up to a number of trees, or the first one."""
    return next((each.v_measure for each in reversed(readings) if each.trees <= trees), readings[0].v_measure)
