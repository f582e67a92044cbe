"""With one objective the best setting is known: on a table where only the passive party's columns tell the label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelward.job import Job
from labelward.tuning.ledger import FrontPoint
from labelward.tuning.tune import tune

VARIABLES = [
    {"name": "local-trees.count", "low": 0, "high": 2},
    {"name": "purity-threshold.threshold", "low": 0.6, "high": 1.0},
]
FAR_APART = [
    {"name": "local-trees.count", "low": 0, "high": 2},
    {"name": "purity-threshold.threshold", "choices": [0.6, 0.7, 0.8, 1.0]},
]
"""Thresholds from .86 on have the same utility, but for the noise of a third of the rows."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,500 rows; the label follows from the last three columns, and noise."""
    rng = np.random.default_rng(3)
    columns = rng.normal(size=(1500, 6))
    label = (columns[:, 3] - columns[:, 4] + columns[:, 5] + 0.5 * rng.normal(size=1500) > 0).astype(np.int64)
    path = tmp_path_factory.mktemp("planted") / "planted.parquet"
    pq.write_table(pa.table({**{f"f{at}": columns[:, at] for at in range(6)}, "label": label}), path)
    return path


def best(
    objective: str,
    evaluations: int,
    table: Path,
    small: Callable[..., Job],
    out: Path,
    variables: Sequence[dict[str, Any]] = VARIABLES,
    **sections: Any,
) -> FrontPoint:
    """Return the setting that is best in one objective, measured on three further seeds as well."""
    sections |= {
        "data": {"table": str(table), "label": "label", "test_size": 1 / 3, "split": "reference"},
        "parties": {"active": ["f0", "f1", "f2"], "telco": ["f3", "f4", "f5"]},
        "model": {"bins": 16, "candidates": "node", "trees": 4, "depth": 3, "learning_rate": 0.3},
    }
    keys: dict[str, Any] = {"leakage": "ica", "confirm": 3, "validation": 1 / 3}
    job = small(sections=sections, variables=variables, objectives=[objective], evaluations=evaluations, **keys)
    (found,) = tune(job, out=out).front
    return found


@pytest.mark.slow
def test_for_utility_alone_both_defenses_are_off(planted: Path, small: Callable[..., Job], tmp_path: Path) -> None:
    """Local trees stand in place of federated ones, so that each costs utility; all twelve settings are tried."""
    replaced = [{"kind": "local-trees", "count": 1, "mode": "replace"}]
    found = best("utility", 12, planted, small, tmp_path / "out", FAR_APART, defense=replaced)
    assert found.setting == {"local-trees.count": 0, "purity-threshold.threshold": 1.0}


@pytest.mark.slow
def test_for_leakage_alone_nothing_is_left_to_find(planted: Path, small: Callable[..., Job], tmp_path: Path) -> None:
    found = best("leakage", 16, planted, small, tmp_path / "out")
    assert np.mean(found.confirmed) == pytest.approx(0.5, abs=0.02)
