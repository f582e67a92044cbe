"""Going on with a training: whatever could bring a row that was learned from into the test is refused."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelward.data import load_dataset
from labelward.errors import DataError, JobError
from labelward.federation.components import with_defaults
from labelward.federation.train import train_variant
from labelward.job import Job
from labelward.runs.training_record import read_record
from refusals import refused

ROWS = 160
COLUMNS = {"active": ["age"], "telco": ["calls"]}
Make = Callable[..., Job]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    age, calls = rng.normal(size=(2, ROWS))
    value = age + calls + 0.1 * rng.normal(size=ROWS)
    names = [f"{row:04d}" for row in range(ROWS)]
    path = tmp_path_factory.mktemp("going") / "table.parquet"
    columns = {"id": names, "age": age, "calls": calls, "value": value, "other": -value}
    pq.write_table(pa.table({**columns, "two": np.where(value > 0, "yes", "no")}), path)
    return path


@pytest.fixture(scope="module")
def make(job: Callable[..., Job], table: Path) -> Make:
    def chosen(label: str = "two", *, ids: bool = True, data: dict[str, Any] | None = None, **model: Any) -> Job:
        task = "classification" if label == "two" else "regression"
        section = {"table": str(table), "label": label, "task": task, **({"id": "id"} if ids else {}), **(data or {})}
        model = {"trees": 2, "depth": 2, **model}
        return job(data=section, parties=COLUMNS, model=model, defense=None, attack=None)

    return chosen


@pytest.fixture(scope="module")
def runs(make: Make, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    for name, chosen in {"ids": make(), "numbers": make("value", ids=False)}.items():
        train_variant(chosen, folder / name, seed=1)
    return {name: folder / name for name in ("ids", "numbers")}


def changed(table: Path, folder: Path, change: Callable[[pa.Table], pa.Table]) -> dict[str, str]:
    pq.write_table(change(pq.read_table(table)), folder / "changed.parquet")
    return {"table": str(folder / "changed.parquet")}


@pytest.mark.parametrize(
    ("data", "keys", "told"),
    [
        ({"test_size": 0.5}, ("test_size",), "0.2, not 0.5"),
        ({"validation_size": 0.25}, ("validation_size",), "0.0, not 0.25"),
        ({"test_size": 0.3, "validation_size": 0.1}, ("test_size", "validation_size"), "0.2, not 0.3"),
    ],
)
def test_another_split(
    make: Make, runs: dict[str, Path], tmp_path: Path, data: dict[str, Any], keys: tuple[str, ...], told: str
) -> None:
    places = tuple(f"[data] {key}" for key in keys)
    with refused(JobError, "other-run", field=str(runs["ids"]), value=places) as caught:
        train_variant(make(data=data), tmp_path / "out", seed=1, earlier=runs["ids"])
    assert told in caught.value.reason
    assert not (tmp_path / "out").exists()


def test_another_label_or_other_ids(make: Make, runs: dict[str, Path], tmp_path: Path) -> None:
    with refused(JobError, "other-run", field=str(runs["numbers"]), value=("[data] label",)):
        train_variant(make("other", ids=False), tmp_path / "out", seed=1, earlier=runs["numbers"])
    with refused(JobError, "other-run", field=str(runs["ids"]), value=("[data] id",)):
        train_variant(make(ids=False), tmp_path / "out", seed=1, earlier=runs["ids"])


def test_another_set_of_rows_with_ids(make: Make, table: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    fewer = make(data=changed(table, tmp_path, lambda rows: rows.slice(0, 120)))
    now = load_dataset(with_defaults(fewer), 1)
    learned = len(set(now.test_ids.tolist()) - set(read_record(runs["ids"]).rows.test_ids))
    assert learned > 0  # what the refusal is for
    with refused(DataError, "rows", field=str(runs["ids"]), value=learned) as caught:
        train_variant(fewer, tmp_path / "out", seed=1, earlier=runs["ids"])
    assert "128 training" in caught.value.reason


def test_rows_with_ids_may_be_in_another_file(make: Make, table: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    moved = make(data=changed(table, tmp_path, lambda rows: rows))
    assert train_variant(moved, tmp_path / "out", seed=1, earlier=runs["ids"]).utility["auc"] > 0.5


def test_rows_without_ids_must_be_the_same(make: Make, table: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    """In another order the same numbers stand for other rows, and nothing else would tell."""
    turned = make(
        "value", ids=False, data=changed(table, tmp_path, lambda rows: rows.take(pa.array(range(ROWS - 1, -1, -1))))
    )
    with refused(DataError, "rows", field=str(runs["numbers"])):
        train_variant(turned, tmp_path / "out", seed=1, earlier=runs["numbers"])
    same = make("value", ids=False, data=changed(table, tmp_path, lambda rows: rows))
    train_variant(same, tmp_path / "out", seed=1, earlier=runs["numbers"])


class TestBaseScore:
    def test_one_that_would_be_passed_over(self, make: Make, runs: dict[str, Path], tmp_path: Path) -> None:
        with refused(JobError, "other-run", field="[model] base_score", value=0.3) as caught:
            train_variant(make(base_score=0.3), tmp_path / "out", seed=1, earlier=runs["ids"])
        assert "(margin 0)" in caught.value.reason

    def test_the_model_s_own(self, make: Make, runs: dict[str, Path], tmp_path: Path) -> None:
        train_variant(make(base_score=0.5), tmp_path / "half", seed=1, earlier=runs["ids"])  # a margin of 0
        train_variant(make(base_score=0.3), tmp_path / "first", seed=1)
        train_variant(make(), tmp_path / "second", seed=1, earlier=tmp_path / "first")
        train_variant(make(base_score=0.3), tmp_path / "third", seed=1, earlier=tmp_path / "second")
        with refused(JobError, "other-run", field="[model] base_score", value=0.5):
            train_variant(make(base_score=0.5), tmp_path / "fourth", seed=1, earlier=tmp_path / "third")


class TestRecord:
    def test_it_holds_figures_and_rows(self, make: Make, tmp_path: Path) -> None:
        chosen = make(data={"validation_size": 0.25}, eval_metric="auc")
        model = train_variant(chosen, tmp_path / "run", seed=4)
        path = tmp_path / "run/training.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        found, data = json.loads(path.read_text()), load_dataset(with_defaults(chosen), 4)
        assert (found["format"], found["seed"], found["defense"], found["primary"]) == (1, 4, "none", "auc")
        assert found["utility"] == model.utility
        assert model.watched is not None
        assert found["validation"] == {
            "metric": "auc",
            "values": list(model.watched.values),
            "best_round": model.watched.best + 1,
        }
        assert found["rows"]["test_ids"] == data.test_ids.tolist()
        assert [found["rows"][side] for side in ("train", "validation", "test")] == [96, 32, 32]
        assert found["cost"] == msgspec.to_builtins(model.cost)
        assert "labelward" in found["versions"]

    def test_no_validation_rows_and_no_ids(self, runs: dict[str, Path]) -> None:
        record = read_record(runs["numbers"])
        assert record.validation is None
        assert {int(row) for row in record.rows.test_ids} < set(range(ROWS))
        assert record.dates == {"active": (), "telco": ()}
