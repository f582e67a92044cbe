"""Names of classes, columns and ids, and the order of the rows, from a CSV file to a prediction and to XGBoost."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xgboost
from pyarrow import csv

from labelward.errors import DataError, JobError, OutputError
from labelward.federation.model import FederatedModel
from labelward.federation.predict import predict_table
from labelward.federation.train import train_variant
from labelward.job import parse_job
from refusals import refused

ROWS = 120
JOB = """
[data]
table = "rows.csv"
label = "gekündigt"
id = "Kunde №"
positive = "ja"
drop = ["Bemerkung"]
text = ["PLZ"]
hashed = ["Straße"]
buckets = 8

[parties]
active = "all but 年龄, PLZ, Straße, 🙂"
telco = ["年龄", "PLZ", "Straße", "🙂"]

[model]
trees = 3
depth = 3

[encryption]
engine = "plain"
insecure = true
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("named")
    draw = np.random.default_rng(1)
    age, price = draw.integers(18, 90, ROWS), draw.normal(50, 20, ROWS).round(2)
    plan = draw.choice(["€ klein", "groß"], ROWS)
    ends = np.where(age + 20 * (plan == "groß") + draw.normal(0, 5, ROWS) > 60, "ja", "nein")
    lines = ["Kunde №;gekündigt;Preis €;年龄;PLZ;Straße;🙂;Bemerkung"]
    for row in draw.permutation(ROWS):
        written = f"{price[row]:.2f}".replace(".", ",")
        place = f"{row:04d};{ends[row]};{written};{age[row]};0{1000 + row % 7};Weg {row};{plan[row]};frei {row}"
        lines.append(place)
    (out / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.warns(UserWarning, match="decimal comma"):
        train_variant(parse_job(JOB, base=out), out / "model", seed=1)
    return out


@pytest.mark.filterwarnings("ignore::labelward.errors.DataNote")
def test_names_and_order_of_predictions(folder: Path) -> None:
    tables = dict.fromkeys(("active", "telco"), folder / "rows.csv")
    for suffix in (".parquet", ".csv", ".jsonl"):
        predict_table(folder / "model", tables, folder / f"p{suffix}")
    found = pq.read_table(folder / "p.parquet")
    assert found.column_names == ["Kunde №", "margin", "probability_nein", "probability_ja", "prediction"]
    ids = [line.split(";")[0] for line in (folder / "rows.csv").read_text(encoding="utf-8").splitlines()[1:]]
    assert found["Kunde №"].to_pylist() == ids
    assert found["prediction"].to_pylist() == ["ja" if p > 0.5 else "nein" for p in found["probability_ja"].to_pylist()]
    lines = [json.loads(line) for line in (folder / "p.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines == found.to_pylist()
    kinds = csv.ConvertOptions(column_types=dict(zip(found.column_names, found.schema.types, strict=True)))
    assert csv.read_csv(folder / "p.csv", convert_options=kinds).equals(found)
    with refused(OutputError, "choice", value=".txt"):
        predict_table(folder / "model", tables, folder / "p.txt")


@pytest.mark.filterwarnings("ignore::labelward.errors.DataNote")
def test_names_in_xgboost(folder: Path) -> None:
    model = FederatedModel.load(folder / "model")
    rows = model.bring(dict.fromkeys(model.parties, folder / "rows.csv"))
    model.export(folder / "model.json", consent=["telco"], names=["telco"])
    booster = xgboost.Booster(model_file=str(folder / "model.json"))
    names = ["Preis €", "年龄", "PLZ", "Straße#8", "🙂"]
    assert booster.feature_names == names
    assert json.loads(booster.attr("labelward.classes")) == ["nein", "ja"]
    assert json.loads(booster.attr("labelward.categories"))["🙂"] == ["groß", "€ klein"]
    assert json.loads(booster.attr("labelward.categories"))["PLZ"] == [f"0{1000 + place}" for place in range(7)]
    joined = np.hstack([rows.columns[party] for party in model.parties])
    matrix = xgboost.DMatrix(joined, feature_names=names, feature_types=booster.feature_types)
    np.testing.assert_allclose(booster.predict(matrix, output_margin=True), model.predict(rows)[:, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "error", "code"),
    [
        ('positive = "ja"', 'positive = "yes"', DataError, "labels"),
        ('drop = ["Bemerkung"]', 'drop = ["Bemerkungen"]', DataError, "columns"),
        ('drop = ["Bemerkung"]', 'drop = ["gekündigt"]', JobError, "conflict"),
        ('drop = ["Bemerkung"]', 'drop = ["PLZ"]', JobError, "conflict"),
        ('drop = ["Bemerkung"]', "", DataError, "values"),  # each row has another text
        ('hashed = ["Straße"]', 'hashed = ["Weg"]', DataError, "columns"),
        ('text = ["PLZ"]', 'format = {decimal = "x"}', JobError, "choice"),
        ('text = ["PLZ"]', 'format = {seperator = ";"}', JobError, "unknown"),
        ("all but 年龄, PLZ", "all but PLZ", DataError, "duplicate"),
        ("all but 年龄, PLZ", "all but 年龄, PLZs", DataError, "columns"),
    ],
)
@pytest.mark.filterwarnings("ignore::labelward.errors.DataNote")
def test_jobs_that_do_not_fit_the_table(
    folder: Path, old: str, new: str, error: type[DataError | JobError], code: str
) -> None:
    assert old in JOB
    with refused(error, code):  # type: ignore[arg-type]
        train_variant(parse_job(JOB.replace(old, new), base=folder), folder / "refused", seed=1)
    assert not (folder / "refused").exists()


def test_the_job_is_the_same_when_it_is_written_and_read(folder: Path) -> None:
    job = parse_job(JOB, base=folder)
    assert parse_job(job.to_toml()) == job


def test_a_key_that_is_left_out_is_not_written() -> None:
    """Jobs stored before the key existed are the same jobs."""
    text = parse_job('[data]\ntable = "breast_cancer"\n[parties]\nactive = 0.5\ntelco = 0.5\n').to_toml()
    assert not any(key in text for key in ("format", "drop", "text", "hashed", "positive"))


def test_tables_of_their_own(tmp_path: Path) -> None:
    rows = pa.table({"id": range(ROWS), "y": [row % 2 for row in range(ROWS)], "x": range(ROWS), "z": ["a"] * ROWS})
    pq.write_table(rows, tmp_path / "bank.parquet")
    pq.write_table(rows.select(["id", "z"]).append_column("w", rows["x"]), tmp_path / "telco.parquet")
    text = """
        [parties.bank]
        table = "bank.parquet"
        id = "id"
        label = "y"
        positive = "0"
        columns = "all but z"
        [parties.telco]
        table = "telco.parquet"
        id = "id"
        drop = ["z"]
        text = ["w"]
    """
    from labelward.data import load_dataset

    with refused(DataError, "values", field="party 'telco', column 'w'"):  # a category for each row
        load_dataset(parse_job(text, base=tmp_path), 1)
    data = load_dataset(parse_job(text.replace("text", "hashed"), base=tmp_path), 1)
    assert data.classes == ("1", "0")
    assert [party.columns for party in data.parties] == [("x",), ("w#1000",)]
