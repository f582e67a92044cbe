"""Sentences of a search's page: units, differences on further seeds, and limits that nothing holds."""

from __future__ import annotations

from typing import Any

import msgspec

from labelward.report.tune_page import StoredSearch, advice, objective_title, trust
from labelward.tuning.ledger import FrontPoint, SearchRecord, SearchSummary


def search(points: list[FrontPoint], **changes: Any) -> StoredSearch:
    record = SearchRecord(
        version="0",
        data="",
        dataset="made up",
        seed=1,
        search="random",
        evaluations=4,
        objectives=("utility", "cost", "leakage"),
        constraints={"leakage": 0.9},
        variables=(),
        bounds=((0.0, 0.0, 0.5), (0.5, 1.0, 1.0)),
        units={},
        own_columns=None,
        utility_metric="auc",
        margin=1.0,
    )
    summary = SearchSummary(hypervolume=(), feasible=(), pooled=0.0, trainings=(4, 0, 0, 0))
    return StoredSearch(
        record=msgspec.structs.replace(record, **changes), summary=summary, front=points, evaluations=()
    )


def point(number: int, *again: tuple[float, float, float]) -> FrontPoint:
    return FrontPoint(number=number, setting={"model.trees": 2}, found=(0.05, 0.2, 0.85), confirmed=again)


FAR = point(1, (0.05, 0.3, 0.95), (0.05, 0.3, 0.97))
NEAR = point(2, (0.05, 0.279, 0.92), (0.05, 0.279, 0.89))
HELD = point(3, (0.05, 0.279, 0.8), (0.05, 0.279, 0.8))


def test_where_no_setting_holds_a_limit_the_nearest_is_named_with_its_figures() -> None:
    text = advice(search([FAR, NEAR]))
    assert "setting 2: leakage 0.905 ± 0.021, limit 0.9." in text
    assert "than 1 standard errors" not in text
    assert "standard error" in text
    assert "standard error" not in advice(search([FAR], margin=0.0))
    assert "On further seeds" not in advice(search([FAR, NEAR, HELD]))


def test_a_search_without_utility_is_not_said_to_break_limits() -> None:
    assert "further seeds" not in advice(search([HELD], objectives=("auc", "cost", "leakage")))


def test_costs_on_more_rows_have_a_reason_and_no_difference_has_no_sign() -> None:
    sentences = trust(search([HELD]))
    assert "\N{MINUS SIGN}0.000" not in " ".join(sentences)
    assert "-0.000" not in " ".join(sentences)
    assert any("cost in seconds differs by +0.079" in each for each in sentences)
    assert any("utility differs by less" in each for each in sentences)
    assert "more rows cost more" in sentences[-1]


def test_costs_are_named_with_their_unit() -> None:
    assert [objective_title("cost", unit) for unit in ("operations", "bytes")] == ["cost in seconds", "cost in bytes"]
    assert objective_title("utility", "seconds") == "loss of utility"
