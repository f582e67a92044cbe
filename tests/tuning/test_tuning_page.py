"""The page of searches has the figures that are stored."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_tables_are_those_of_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from _tuning_page import TABLES, rewritten

    page = (ROOT / "docs/ref-tuning.md").read_text()
    stored = json.loads((ROOT / "benchmarks/results/tuning.json").read_text())
    assert rewritten(page, stored) == page
    stored["fidelity"][0]["all rows"] += 0.1
    assert rewritten(page, stored) != page
    for name in set(TABLES) - {"limits"}:  # of which no figures are stored
        assert f"<!-- table: {name} -->" in page
    sys.modules.pop("_tuning_page")
