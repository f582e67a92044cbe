"""A small job whose settings train in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelward.job import Job, parse_job

VARIABLES = [
    {"name": "model.trees", "low": 1, "high": 4},
    {"name": "model.depth", "low": 1, "high": 3},
    {"name": "local-trees.count", "low": 0, "high": 3},
    {"name": "purity-threshold.threshold", "low": 0.5, "high": 1.0},
]


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 240 rows, 6 columns and 2 classes."""
    rng = np.random.default_rng(3)
    columns = rng.normal(size=(240, 6))
    label = (columns @ np.array([1.0, -1.0, 0.5, 1.0, 0.0, 0.5]) + 0.5 * rng.normal(size=240) > 0).astype(np.int64)
    path = tmp_path_factory.mktemp("tables") / "small.parquet"
    pq.write_table(pa.table({**{f"f{at}": columns[:, at] for at in range(6)}, "label": label}), path)
    return path


@pytest.fixture(scope="session")
def small(table: Path) -> Callable[..., Job]:
    """Make the job, with keys of ``[tune]`` as arguments, and other sections in ``sections``."""

    def make(sections: dict[str, Any] | None = None, variables: list[dict[str, Any]] = VARIABLES, **keys: Any) -> Job:
        tune = {"evaluations": 6, "confirm": 0, "units": {"encrypt": 1e-3, "decrypt": 1e-2, "add": 1e-5}, **keys}
        chosen: dict[str, Any] = {
            "data": {"table": str(table), "label": "label"},
            "parties": {"active": 0.5, "telco": 0.5},
            "model": {"bins": 8, "candidates": "node"},
            "encryption": {"engine": "plain", "insecure": True},
            "attack": [{"kind": "instance-clustering"}],
            "tune": {**tune, "variable": variables},
            **(sections or {}),
        }
        return parse_job({name: section for name, section in chosen.items() if section is not None})

    return make
