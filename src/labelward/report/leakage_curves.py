"""The leakage meter's curves: what each passive party's communities say of the labels, tree by tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labelward.report.plots import Image, curves
from labelward.report.summary import Spread
from labelward.runs.schema import MeterReading, RunDetails

__all__ = ["meter_images"]


def meter_images(runs: Mapping[str, Sequence[RunDetails]]) -> list[Image]:
    """Return for each passive party a plot of the V-measure over trees, with a line for each defense; means over seeds.

    Where a training ended before others its last reading goes on.

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
    """Return the last V-measure that was read by then, or the first of all."""
    return next((each.v_measure for each in reversed(readings) if each.trees <= trees), readings[0].v_measure)
