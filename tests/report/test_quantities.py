"""Reports of regression models: lower errors are better, and figures have no unit scale."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from stored_audit import JOB, lmid, make_run, regression_rows

from labelward.report.metrics import format_metric, metric_of, spread_text
from labelward.report.page import write_report
from labelward.report.summary import Spread
from labelward.runs.schema import append_row, write_run

LEAK = regression_rows([0.31, 0.33])


@pytest.mark.parametrize(
    ("name", "value", "spread", "text"),
    [
        ("rmse", 91234.5678, 12.3, "91,235 ± 12"),
        ("rmse", 86.412, 2.591, "86.41 ± 2.59"),
        ("mae", 0.0123456, None, "0.01235"),
        ("deviance", 0.0, 0.0, "0.000 ± 0.000"),
        ("rmse", 1.2346e-7, None, "1.235e-07"),
        ("rmse", 1.2346e-7, 2.1e-9, "1.235e-07 ± 2.100e-09"),
        ("mae", 9.87654e140, None, "9.877e+140"),
        ("rmse", 123.4, 1e140, "1.234e+02 ± 1.000e+140"),
        ("deviance", float("inf"), None, "inf"),
        ("r2", -4.5678e120, None, "−4.568e+120"),
        ("r2", -1234.5, 2.0, "−1,234 ± 2"),
        ("r2", -12.3456, None, "−12.346"),
        ("r2", 0.27, 0.014, "0.270 ± 0.014"),
        ("auc", 0.98765, None, "0.988"),
        ("novel", 0.5, None, "0.500"),
    ],
)
def test_figures_have_digits_that_mean_something(name: str, value: float, spread: float | None, text: str) -> None:
    assert format_metric(name, value, spread) == text
    assert spread_text(name, Spread(mean=value, std=spread, seeds=2)) == text


def test_which_way_is_better() -> None:
    known = ("auc", "accuracy", "f1", "logloss", "rmse", "mae", "r2", "deviance")
    smaller = {name for name in known if not metric_of(name).higher_is_better}
    assert smaller == {"logloss", "rmse", "mae", "deviance"}


def test_the_page_of_a_regression(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB.replace("[1, 2, 3, 4, 5]", "[1, 2]"))
    for part in (LEAK, regression_rows([0.1, 0.1], rmse=84.0, defense=lmid(0.5))):
        for row in part:
            append_row(tmp_path, row)
            write_run(tmp_path, make_run(seed=row.seed, defense=row.defense))
    page = write_report(tmp_path).read_text(encoding="utf-8")
    for words in ("AUC", "log loss"):
        assert words not in page
    places = {}
    for number in (0, 1):
        mark = re.search(rf'<g id="plot-1-0-defense-{number}">.*?<use [^>]*x="([\d.]+)"', page, re.DOTALL)
        assert mark is not None
        places[number] = float(mark[1])
    assert places[1] < places[0]  # the larger error lies to the left: further right is more useful
