"""Rows of people with columns of every kind, held by two parties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

OPEN: dict[str, Any] = {"engine": "plain", "insecure": True, "random_state": 1}
"""No encryption, which changes no model, and the same draws each time."""

PARTIES = {"bank": ["age", "income"], "telco": ["calls", "area", "roaming", "since"]}


def people(rows: int = 300, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Return columns of every kind, with gaps, and two classes that depend on columns of both parties."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, rows),
            "income": rng.normal(40.0, 12.0, rows),
            "calls": rng.poisson(6, rows).astype(float),
            "area": pd.Categorical(rng.choice(["east", "north", "south", "west"], rows)),
            "roaming": rng.random(rows) < 0.3,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1500, rows), unit="D"),
        }
    )
    score = frame["calls"] + 5 * frame["area"].isin(["east", "west"]) + 0.2 * frame["income"] + 2 * frame["roaming"]
    frame.loc[rng.random(rows) < 0.1, "income"] = np.nan
    frame.loc[rng.random(rows) < 0.1, "area"] = None
    noisy = score + rng.normal(0, 1.5, rows)
    return frame, np.where(noisy > noisy.median(), "good", "bad")
