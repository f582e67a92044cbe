"""What partners hear of a party that cannot begin: the side and a code, and nothing that follows from its labels."""

from __future__ import annotations

from typing import Any

import pytest

from labelward.data import RawTables, as_table, load_dataset
from labelward.errors import Code, DataError, DependencyError, JobError, LabelwardError, OutputError, PolicyError
from labelward.federation.components import with_defaults
from labelward.job import parse_job
from labelward.party.public_reason import CONSENT, public_reason, reason_during_run
from labelward.rng import PrivateSeed

ROWS = 40
COLUMN = [float(row % 7) for row in range(ROWS)]
LABELS = [row % 2 for row in range(ROWS)]
RARE = [0] * (ROWS - 1) + [1]
TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    "a missing column": ("columns", {"b": COLUMN, "y": LABELS}),
    "no rows": ("rows", {"a": [], "b": [], "y": []}),
    "one class": ("labels", {"a": COLUMN, "b": COLUMN, "y": [1] * ROWS}),
    "a rare class": ("labels", {"a": COLUMN, "b": COLUMN, "y": RARE}),
    "an infinite cell": ("values", {"a": [float("inf"), *COLUMN[1:]], "b": COLUMN, "y": LABELS}),
}


def refusal(columns: dict[str, Any]) -> LabelwardError:
    sections = {"data": {"table": "m.csv", "label": "y"}, "parties": {"active": ["a"], "telco": ["b"]}}
    job = with_defaults(parse_job({**sections, "model": {"kind": "secureboost"}}))
    private = {party: PrivateSeed(party.encode().ljust(32)) for party in ("active", "telco")}
    with pytest.raises(DataError) as caught:
        load_dataset(job, 1, RawTables(name="m", tables=(as_table(columns),)), private=private)
    return caught.value


@pytest.mark.parametrize("table", TABLES)
def test_what_a_table_holds_is_told_in_the_same_words(table: str) -> None:
    code, columns = TABLES[table]
    error = refusal(columns)
    assert error.code == code
    assert public_reason(error) == public_reason(DataError("private", code="values", field="private", value="private"))
    assert "'values'" in public_reason(error)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (DataError, "not-found"),
        (DataError, "unreadable"),
        (JobError, "columns"),
        (JobError, "unknown"),
        (OutputError, "foreign"),
        (PolicyError, "inapplicable"),
    ],
)
def test_other_errors_keep_their_code(kind: type[LabelwardError], code: Code) -> None:
    reason = public_reason(kind("private", code=code, field="private", value="private"))
    assert f"{code!r}" in reason
    assert "private" not in reason


def test_consent_that_lacks_is_named_and_a_foreign_error_by_its_kind() -> None:
    error = PolicyError("private", code="choice", field=CONSENT, value="rows")
    assert "'rows'" in public_reason(error)
    assert "KeyError" in public_reason(KeyError("private"))
    assert "private" not in public_reason(error) + public_reason(KeyError("private"))


@pytest.mark.parametrize("code", ["values", "labels", "diverged", "range", "unreadable"])
def test_during_a_run_no_code_follows_from_the_labels(code: Code) -> None:
    private = {"code": code, "field": "private", "value": "private"}
    assert "'values'" in reason_during_run(DataError("private", **private))
    for kind in (DataError, JobError, DependencyError):
        same = kind("other", code="values", field="other", value="other")
        assert reason_during_run(kind("private", **private)) == reason_during_run(same)
        assert "private" not in reason_during_run(same)
