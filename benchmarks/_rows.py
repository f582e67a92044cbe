"""Rows of a benchmark that is run piece by piece: stored as they come, and not measured again; and what it audits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


class StoredRows(list[dict[str, Any]]):
    """The rows of a JSON file, one a line; without a path they are printed alone."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(json.loads(path.read_text()) if path is not None and path.exists() else ())
        self.path = path

    def add(self, row: dict[str, Any]) -> None:
        """Print a row and store it."""
        self.append(row)
        print(json.dumps(row), flush=True)
        if self.path is not None:
            self.path.write_text("[\n" + ",\n".join(map(json.dumps, self)) + "\n]\n")


def halves(table: pa.Table, file: Path, seed: int) -> dict[str, list[str]]:
    """Store a table with a column ``label``, and deal half of its other columns to each of two parties."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, file)
    names = [each for each in table.column_names if each != "label"]
    drawn = [names[at] for at in np.random.default_rng(seed).permutation(len(names))]
    half = len(names) // 2
    return {"active": drawn[:half], "passive": drawn[half:]}
