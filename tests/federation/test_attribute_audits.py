"""A further attribute inferred in whole audits, and from stored views: a column of nobody, or of another party."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import labelward
from labelward.attacks.attribute_inference import AttributeInference
from labelward.auditing.audit import audit
from labelward.cli.app import app
from labelward.data import load_dataset
from labelward.errors import InputError, JobError
from labelward.federation.components import with_defaults
from labelward.job import Job, parse_job
from labelward.leakage.attributes import attribute_values, value_numbers
from labelward.leakage.stored_columns import score_stored_columns
from labelward.runs.schema import ResultRow, read_rows, read_run
from refusals import refused

ROWS = 240
QUICK: dict[str, Any] = {"auxiliary": 12, "known_values": 20, "steps": 20, "unlabeled_weight": 0.5}


def _table(folder: Path) -> Path:
    """Write a table with ids in no order, whose ``secret`` is the label but in every twentieth row."""
    rng = np.random.default_rng(0)
    label = rng.integers(2, size=ROWS)
    secret = np.where(rng.random(ROWS) < 0.95, label, 1 - label)
    columns = {name: np.round(rng.normal(size=ROWS) + 2 * label, 4) for name in ("age", "income", "rate")}
    kinds = np.array(["a", "b", "c"])[rng.integers(3, size=ROWS)]
    made = {"key": rng.permutation(ROWS), **columns, "debt": rng.normal(size=ROWS), "kind": kinds, "label": label}
    few = pa.array([None, *rng.normal(size=ROWS - 1)])
    pq.write_table(
        pa.table({**made, "secret": np.where(secret, "yes", "no"), "few": few, "same": np.ones(ROWS)}),
        folder / "rows.parquet",
    )
    return folder / "rows.parquet"


def _job(folder: Path, *attacks: dict[str, Any], **sections: Any) -> Job:
    data = {"table": str(_table(folder)), "label": "label", "id": "key", "drop": ["secret", "few", "same"]}
    made = {
        "data": data,
        "parties": {"active": ["age"], "telco": ["income", "debt"], "shop": ["rate"]},
        "model": {"kind": "splitnn", "bottom": "linear", "epochs": 2, "embedding": 2, "batch_size": 32},
        "attack": [{"kind": "attribute-inference", "party": "telco", **QUICK, **each} for each in attacks],
        "leakage": {"meter": False, "privacy": False},
        "run": {"seeds": [1]},
    }
    return with_defaults(parse_job(made | sections))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[ResultRow]]:
    """An audit of a column of nobody, and of one of another party. Only to be read."""
    folder = tmp_path_factory.mktemp("attribute")
    job = _job(folder, {"column": "secret"}, {"column": "rate", "learner": "logistic"})
    audit(job, folder / "out", explained=False)
    rows = read_rows(folder / "out")
    return folder / "out", [row for row in rows if row.attack and row.attack["kind"] == AttributeInference.kind]


def test_an_audit_scores_the_guess_against_the_attribute_beside_its_baselines(
    stored: tuple[Path, list[ResultRow]],
) -> None:
    out, rows = stored
    assert [(row.party, row.attack["column"]) for row in rows if row.attack] == [("telco", "secret"), ("telco", "rate")]
    for row in rows:
        assert row.leakage is not None
        assert (row.leakage["target"], row.leakage["primary"]) == ("columns", "accuracy")
        assert row.leakage["chance"]["accuracy"] == pytest.approx(0.5, abs=0.05)
        assert set(row.leakage["beside"]) == {"own columns", "all labels"}
        assert "epsilon" not in row.leakage
        assert row.leakage["beside"]["all labels"]["accuracy"] > row.leakage["beside"]["own columns"]["accuracy"]
    assert rows[0].leakage is not None
    assert rows[0].leakage["beside"]["all labels"]["accuracy"] > 0.85  # it is the label in .95 of the rows
    details = read_run(out, [], 1)
    assert details is not None
    account = next(each for each in details.attacks if each.attack.get("column") == "secret")
    assert account.auxiliary == {"classes": 2, "known labels": 12, "known values of secret": 20}


@pytest.mark.parametrize("column", ["secret", "rate"])
def test_a_stored_view_is_attacked_and_scored_as_in_the_audit(
    stored: tuple[Path, list[ResultRow]], tmp_path: Path, column: str
) -> None:
    """With the values that the audit gave the attacker, and the column of the user's own table."""
    (out, rows), guess, data = stored, tmp_path / "guess.parquet", stored[0] / "data" / "1"
    row = next(each for each in rows if each.attack and each.attack["column"] == column)
    given = {
        name: value for name, value in (row.attack or {}).items() if name not in ("kind", "auxiliary", "known_values")
    }
    given = {name: value for name, value in given.items() if value is not None}
    options = [word for each in given.items() for word in ("--param", "=".join((each[0], json.dumps(each[1]))))]
    known = ["--known", str(data / "known-12.parquet"), "--attribute", str(data / f"known-20-{column}.parquet")]
    asked = ["--attack", AttributeInference.kind, "--classes", "2", "--seed", "1", "--out", str(guess)]
    place = ["attack", str(out / "runs/none/1/telco/view"), "--features", str(data / "telco.parquet")]
    result = CliRunner().invoke(app, [*place, *known, *asked, *options])
    assert result.exit_code == 0, result.output
    found = score_stored_columns(guess, out.parent / "rows.parquet", "nobody", id_column="key")
    assert row.leakage is not None
    assert found["accuracy"] == row.leakage["accuracy"]
    assert found["chance"]["accuracy"] == row.leakage["chance"]["accuracy"]


def test_a_stored_view_needs_known_values(stored: tuple[Path, list[ResultRow]]) -> None:
    data = stored[0] / "data" / "1"
    with refused(JobError, "missing", value="attribute-inference"):
        labelward.attack(
            stored[0] / "runs/none/1/telco/view",
            data / "telco.parquet",
            "attribute-inference",
            classes=2,
            seed=1,
            parameters={"column": "secret"},
            known=data / "known-12.parquet",
        )


@pytest.mark.parametrize(
    ("attack", "kind", "code", "field", "value"),
    [
        ({"column": "wage"}, JobError, "unknown", "column", "wage"),
        ({"column": "label"}, JobError, "unknown", "column", "label"),
        ({"column": "income"}, JobError, "conflict", "column", "income"),
        ({"column": "few"}, JobError, "values", "column", "few"),
        ({"column": "same"}, JobError, "values", "column", "same"),
        ({"column": "kind", "known_values": 2}, JobError, "labels", "known_values", 2),
    ],
)
def test_attributes_that_cannot_be_inferred_are_refused_before_training(
    tmp_path: Path, attack: dict[str, Any], kind: type[InputError], code: Any, field: str, value: object
) -> None:
    with refused(kind, code, field=f"[[attack]] 1 {field}", value=value):
        audit(_job(tmp_path, attack), tmp_path / "out")
    assert not (tmp_path / "out" / "runs").exists()


def test_values_are_those_of_the_training_rows_in_their_order(tmp_path: Path) -> None:
    """Rows with ids are sorted by them; the classes of a category, and the sides of a median."""
    data = load_dataset(_job(tmp_path, {"column": "secret"}), 1)
    table = pq.read_table(tmp_path / "rows.parquet")
    row_of = {str(key): row for row, key in enumerate(table["key"].to_pylist())}
    rows = [row_of[each] for each in data.train_ids.tolist()]
    assert attribute_values(data, "secret").tolist() == [int(table["secret"][row].as_py() == "yes") for row in rows]
    assert attribute_values(data, "kind").tolist() == ["abc".index(table["kind"][row].as_py()) for row in rows]
    rate = table["rate"].to_numpy()[rows]
    assert attribute_values(data, "rate").tolist() == (rate > np.sort(rate)[(len(rate) - 1) // 2]).astype(int).tolist()


def test_where_parties_have_tables_a_column_is_named_with_its_party(tmp_path: Path) -> None:
    table = pq.read_table(_table(tmp_path))
    for name, columns in {"active": ["age", "label"], "telco": ["income"], "shop": ["rate", "kind"]}.items():
        pq.write_table(table.select(["key", *columns]), tmp_path / f"{name}.parquet")
    parties = {name: {"table": str(tmp_path / f"{name}.parquet"), "id": "key"} for name in ("active", "telco", "shop")}
    parties["active"]["label"] = "label"
    job = _job(tmp_path, {"column": "shop.kind"}, data={}, parties=parties)
    data = load_dataset(job, 1)
    assert attribute_values(data, "shop.kind").max() == 2
    for column, code in (("kind", "unknown"), ("telco.income", "conflict")):
        with refused(JobError, code, field="[[attack]] 1 column", value=column):
            audit(_job(tmp_path, {"column": column}, data={}, parties=parties), tmp_path / "out")


def test_two_numbers_are_classes_of_their_own() -> None:
    assert value_numbers(np.array([3.0, 1.0, 3.0, 3.0]), categorical=False).tolist() == [1, 0, 1, 1]
    assert value_numbers(np.array([3.0, 1.0, 2.0, 3.0]), categorical=False).tolist() == [1, 0, 0, 1]
    assert value_numbers(np.array([2.0, 0.0, 1.0]), categorical=True).tolist() == [2, 0, 1]
