"""Tables that are brought to a trained model: one for all parties, dates as in training, categories of before."""

from __future__ import annotations

import datetime as dt
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelward.errors import DataError
from labelward.federation.explain import explain_stored_model
from labelward.federation.predict import predict_table
from labelward.federation.train import train_variant
from labelward.job import Job
from labelward.runs.training_record import read_record
from refusals import refused

ROWS = 120
PARTIES = ("active", "telco")
HELD = {"active": ["id", "two", "age"], "telco": ["id", "calls", "since", "town"]}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    rng = np.random.default_rng(8)
    age, calls = rng.normal(size=(2, ROWS))
    return pa.table(
        {
            "id": [f"{row:03d}" for row in range(ROWS)],
            "two": np.where(age + calls > 0, "yes", "no"),
            "age": age,
            "calls": calls,
            "since": [dt.date(2020, 1, 1) + dt.timedelta(days=int(day)) for day in rng.integers(0, 900, ROWS)],
            "town": rng.choice(["north", "south"], ROWS),
        }
    )


@pytest.fixture(scope="module")
def run(job: Callable[..., Job], rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two parties that brought all columns of their own tables."""
    folder = tmp_path_factory.mktemp("own")
    for name, columns in HELD.items():
        pq.write_table(rows.select(columns), folder / f"{name}.parquet")
    parties = {
        "active": {"table": str(folder / "active.parquet"), "label": "two"},
        "telco": {"table": str(folder / "telco.parquet")},
    }
    chosen = job(data={"id": "id"}, parties=parties, defense=None, attack=None, model={"trees": 2, "depth": 3})
    train_variant(chosen, folder / "run", seed=1)
    return folder / "run"


@pytest.fixture
def with_column(rows: pa.Table, tmp_path: Path) -> Callable[[str, Any], dict[str, Path]]:
    """Write a common table, one column of which is another."""

    def write(name: str, values: Any) -> dict[str, Path]:
        table = rows.set_column(rows.column_names.index(name), name, pa.array(values))
        pq.write_table(table, tmp_path / "common.parquet")
        return dict.fromkeys(PARTIES, tmp_path / "common.parquet")

    return write


def own(run: Path) -> dict[str, Path]:
    return {name: run.parent / f"{name}.parquet" for name in PARTIES}


def test_one_table_serves_a_model_of_own_tables(run: Path, rows: pa.Table, tmp_path: Path) -> None:
    common = tmp_path / "all.parquet"
    pq.write_table(rows.append_column("remark", pa.array(["none"] * ROWS)), common)
    both = dict.fromkeys(PARTIES, common)
    for name, tables in (("own", own(run)), ("common", both)):
        assert predict_table(run, tables, tmp_path / f"{name}.parquet") == ROWS
        assert explain_stored_model(run, tables, tmp_path / f"{name}.shap.parquet", background=both, most=5) == (
            ROWS,
            1,
        )
    for kind in ("parquet", "shap.parquet"):
        one, other = (pq.read_table(tmp_path / f"{name}.{kind}") for name in ("own", "common"))
        assert one.equals(other)
        assert stat.S_IMODE((tmp_path / f"own.{kind}").stat().st_mode) == 0o600


def test_predictions_keep_the_order_of_the_table(run: Path, rows: pa.Table, tmp_path: Path) -> None:
    pq.write_table(rows.take(pa.array(range(ROWS - 1, -1, -1))), tmp_path / "turned.parquet")
    predict_table(run, dict.fromkeys(PARTIES, tmp_path / "turned.parquet"), tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet")["id"].to_pylist() == rows["id"].to_pylist()[::-1]


def test_dates_are_dates_as_in_training(run: Path, with_column: Any, tmp_path: Path) -> None:
    assert read_record(run).dates == {"active": (), "telco": ("since",)}
    text = ["2020-01-01", *["01.02.2020"] * (ROWS - 1)]
    for name, values, kind, about in (
        ("since", text, "string", "'01.02.2020'"),
        ("since", range(ROWS), "int64", "dates in training"),
        ("calls", [dt.date(2020, 1, 1)] * ROWS, "date32[day]", "numbers in training"),
        ("calls", ["1.5", *["l.5"] * (ROWS - 1)], "string", "'l.5'"),
    ):
        with refused(DataError, "columns", value=kind) as caught:
            predict_table(run, with_column(name, values), tmp_path / "out.parquet")
        assert caught.value.field.endswith(f", column {name!r}")
        assert about in caught.value.reason
    assert predict_table(run, with_column("since", pa.nulls(ROWS)), tmp_path / "out.parquet") == ROWS


def test_categories_of_which_the_model_knows_none(run: Path, with_column: Any, tmp_path: Path) -> None:
    heard: list[str] = []
    tables = with_column("town", [None, *["North"] * (ROWS - 1)])
    predict_table(run, tables, tmp_path / "out.parquet", warn=heard.append)
    explain_stored_model(run, own(run), tmp_path / "shap.parquet", background=tables, most=3, warn=heard.append)
    assert len(heard) == 2
    for told in heard:
        assert "party 'telco'" in told
        assert "column 'town'" in told
    for values in (["north", *["North"] * (ROWS - 1)], pa.nulls(ROWS)):
        predict_table(run, with_column("town", values), tmp_path / "out.parquet", warn=heard.append)
    assert len(heard) == 2


def test_a_column_id_of_the_tables_is_matched_where_the_job_names_none(
    job: Callable[..., Job], rows: pa.Table, tmp_path: Path
) -> None:
    """Tables that labelward writes have one; a table in another order brings the same predictions."""
    pq.write_table(rows.select(["two", "age", "calls"]), tmp_path / "all.parquet")
    parties = {"active": ["age"], "telco": ["calls"]}
    data = {"table": str(tmp_path / "all.parquet"), "label": "two"}
    train_variant(
        job(data=data, parties=parties, defense=None, attack=None, model={"trees": 2}), tmp_path / "run", seed=1
    )
    pq.write_table(rows.select(["id", "age"]), tmp_path / "active.parquet")
    order = np.random.default_rng(1).permutation(ROWS)
    pq.write_table(rows.select(["id", "calls"]).take(order), tmp_path / "telco.parquet")
    tables = {name: tmp_path / f"{name}.parquet" for name in PARTIES}
    predict_table(tmp_path / "run", tables, tmp_path / "by-id.parquet")
    predict_table(tmp_path / "run", dict.fromkeys(PARTIES, tmp_path / "all.parquet"), tmp_path / "by-row.parquet")
    by_id, by_row = (pq.read_table(tmp_path / f"by-{name}.parquet") for name in ("id", "row"))
    assert by_id.column("id").to_pylist() == rows.column("id").to_pylist()
    assert by_row.column("id").to_pylist() == [str(row) for row in range(ROWS)]
    assert by_id.drop_columns(["id"]).equals(by_row.drop_columns(["id"]))
    numbers = rows.select(["calls"])
    for ids in ([None] * ROWS, ["same"] * ROWS, [0.5] * ROWS, None):  # no ids: rows come in the order of the tables
        pq.write_table(numbers if ids is None else numbers.append_column("id", pa.array(ids)), tables["telco"])
        predict_table(tmp_path / "run", tables, tmp_path / "in-order.parquet")
        assert pq.read_table(tmp_path / "in-order.parquet").equals(by_row)
