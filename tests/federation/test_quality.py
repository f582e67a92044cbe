"""Federated trees are as good as joined ones: ``benchmarks/quality.py``, whose limits are those that docs state.

AUC within .003 of XGBoost's and .01 of scikit-learn's bagged trees, RMSE within 1% of either; means over seeds,
though few of them here.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def quality() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield importlib.import_module("quality")


def compared(quality: ModuleType, dataset: str, seeds: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """Return the summary by model, every limit met."""
    found = quality.summary([one for seed in seeds for one in quality.compare(dataset, seed)])
    print(*quality.lines(found), sep="\n")
    for one in found:
        assert abs(one["difference"]) <= one["limit"], one
    return {one["model"]: one for one in found}


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["breast_cancer", "digits", "diabetes"])
def test_small_tables(quality: ModuleType, dataset: str) -> None:
    found = compared(quality, dataset, (1, 2))
    boosted = [one for model, one in found.items() if model.startswith("boosted")]
    assert len(boosted) == (2 if dataset == "digits" else 1)
    if dataset == "diabetes":  # no node of one class, where ours stop: the same trees
        assert boosted[0]["same"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "dataset", ["credit_default", "bank_marketing", "phishing", "avila", "obesity", "appliances_energy"]
)
def test_real_tables(quality: ModuleType, dataset: str) -> None:
    """One seed, to be quick; the benchmark takes five."""
    if "LABELWARD_DATA" not in os.environ:
        pytest.skip(f"LABELWARD_DATA names no folder with the {dataset} table")
    compared(quality, dataset, (1,))
