"""Reports of models of quantities: less is better, figures have no scale of 1, and leakage is of bins and variance."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from stored_audit import JOB, lmid, make_row, make_run

from labelward.report.metrics import figure, metric_text, spread_text
from labelward.report.narrative import headline, reading_hint
from labelward.report.page import write_report
from labelward.report.summary import Spread, summary_table
from labelward.runs.schema import ResultRow, append_row, write_run

Chain = tuple[dict[str, Any], ...]


def rows(values: list[float], *, rmse: float = 80.0, alone: float = 90.0, defense: Chain = ()) -> list[ResultRow]:
    """Return rows of a regression whose attacker has .05 and explains 2 % from its own columns."""
    found = []
    for seed, value in enumerate(values, start=1):
        leakage = {
            "v_measure": value,
            "ari": value,
            "r2": 0.4,
            "chance": {"v_measure": 0.001, "ari": 0.0, "r2": 0.004},
            "without_view": {"v_measure": 0.05, "ari": 0.05, "r2": 0.02},
            "primary": "v_measure",
        }
        utility = {
            "rmse": rmse + 0.5 * (seed % 2),
            "mae": rmse / 2,
            "r2": 0.3,
            "alone": {"rmse": alone, "mae": alone / 2, "r2": 0.2},
            "joined": {"rmse": rmse, "mae": rmse / 2, "r2": 0.3},
            "primary": "rmse",
        }
        found.append(make_row(dataset="energy", seed=seed, defense=defense, leakage=leakage, utility=utility))
    return found


LEAK = rows([0.31, 0.33])


def said(*parts: list[ResultRow]) -> list[str]:
    return headline(summary_table([row for part in parts for row in part]), 455)


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_what_leaks_are_values_in_bins_and_their_variance() -> None:
    assert plain(said(LEAK)[0]) == (
        "From its own columns and what it received during training, telco could group the 455 training rows by their "
        "secret value, cut into bins of like size, with a V-measure of 0.32 (0.05 from its own columns alone; chance "
        "0.00). These groups explain 40.0 % of the variance of the values (2.0 % from its own columns alone; chance "
        "0.4 %)."
    )


@pytest.mark.parametrize(
    ("rmse", "price"),
    [
        (84.0, "raises the RMSE by 5.0 %."),
        (80.3, "raises the RMSE by 0.4 % (less than its spread over the seeds)."),
        (80.01, "does not raise the RMSE."),
        (76.0, "does not raise the RMSE (it fell by 5.0 %)."),
    ],
)
def test_a_defense_costs_percent_of_an_error(rmse: float, price: str) -> None:
    defended = rows([0.1, 0.1], rmse=rmse, defense=lmid(0.5))
    assert (
        plain(said(LEAK, defended)[1])
        == f"The best defense tried, id-lmid (xi 0.5), brings this down to 0.10 and {price}"
    )


def test_of_equal_defenses_the_one_with_the_smaller_error_is_the_more_useful() -> None:
    equal = rows([0.1, 0.1], rmse=95.0, defense=lmid(0.1)), rows([0.1, 0.1], rmse=81.0, defense=lmid(0.5))
    assert "id-lmid (xi 0.5)" in said(LEAK, *equal)[1]


def test_joining_that_lowers_the_error_is_a_gain() -> None:
    assert not any("no measurable gain" in sentence for sentence in said(LEAK))
    worse = said(rows([0.31, 0.33], alone=79.0))[-1]
    assert worse == "Joining brings no measurable gain on this data: RMSE 80.25 with telco, 79.00 without."


def test_an_error_of_nothing_has_no_percent() -> None:
    """An undefended model without any error: the rise is told in its own unit."""
    perfect = rows([0.31], rmse=-0.5)
    assert "raises the RMSE by 4.000" in said(perfect, rows([0.1], rmse=3.5, defense=lmid(0.5)))[1]


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
    assert figure(name, value, spread) == text
    assert spread_text(name, Spread(mean=value, std=spread, seeds=2)) == text


def test_which_way_is_better() -> None:
    known = ("auc", "accuracy", "f1", "logloss", "rmse", "mae", "r2", "deviance")
    smaller = {name for name in known if not metric_text(name).larger}
    assert smaller == {"logloss", "rmse", "mae", "deviance"}
    assert reading_hint("v_measure", quantities=True).endswith("1, that they are the bins of the labels.")


def test_the_page_of_a_regression(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB.replace("[1, 2, 3, 4, 5]", "[1, 2]"))
    for part in (LEAK, rows([0.1, 0.1], rmse=84.0, defense=lmid(0.5))):
        for row in part:
            append_row(tmp_path, row)
            write_run(tmp_path, make_run(seed=row.seed, defense=row.defense))
    page = write_report(tmp_path).read_text(encoding="utf-8")
    for words in (
        "secret value, cut into bins of like size,",
        "RMSE on the test rows; active party alone 90.00; joined table 80.00",
        "Smaller is better for RMSE and mean absolute error.",
        "RMSE, mean absolute error, R², deviance",
        "the share of the labels' variance that the groups explain".replace("'", "&#39;"),
    ):
        assert words in page, words
    for words in ("AUC", "class that sorts last"):
        assert words not in page
    places = {}
    for number in (0, 1):
        mark = re.search(rf'<g id="plot-1-0-defense-{number}">.*?<use [^>]*x="([\d.]+)"', page, re.DOTALL)
        assert mark is not None
        places[number] = float(mark[1])
    assert places[1] < places[0]  # the larger error lies to the left: further right is more useful
