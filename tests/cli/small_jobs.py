"""Jobs and tables that take no time, and what a refusal looks like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from typer.testing import Result

JOB = """
[data]
table = "{table}"
label = "label"
[parties]
active = ["a0", "a1"]
telco = ["t0", "t1", "t2"]
[model]
trees = 2
depth = 3
[encryption]
engine = "plain"
insecure = true
[[defense]]
kind = "id-lmid"
xi = 0.1
[[attack]]
kind = "id2graph"
[[attack]]
kind = "clustering"
[run]
seeds = [1, 2]
"""

Call = Callable[..., Result]


def write_table(path: Path, rows: int = 120, **columns: list[object] | np.ndarray) -> Path:
    """Write a table whose label follows from the columns of both parties, with other columns or values where given."""
    rng = np.random.default_rng(7)
    table = {name: rng.normal(size=rows) for name in ("a0", "a1", "t0", "t1", "t2")}
    table["label"] = (table["a0"] + 2 * table["t0"] + table["t1"] > 0).astype(np.int64)
    pyarrow.csv.write_csv(pa.table(table | columns), path)
    return path


def write_job(folder: Path, text: str = JOB, *, changes: dict[str, str] | None = None) -> Path:
    """Write a job file beside its table; ``changes`` replaces lines, each of which must be there."""
    text = text.format(table="table.csv")
    for old, new in (changes or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(result: Result, *words: str) -> None:
    """Assert exit code 2 and one line on stderr that has all words, without a traceback; none may be a sentence."""
    assert all(len(word.split()) <= 4 for word in words), words
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    assert "Traceback" not in result.output
    for word in words:
        assert word in lines[0]
