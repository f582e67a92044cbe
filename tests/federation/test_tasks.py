"""Every kind of label and model through an audit, a training and a prediction; and going on with a model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelward.auditing.audit import audit
from labelward.data import load_dataset
from labelward.errors import Code, DataError, FileFormatError, JobError, LabelwardError
from labelward.federation.components import model_family, with_defaults
from labelward.federation.predict import predict_table
from labelward.federation.train import train_variant
from labelward.job import ComponentSpec, Job
from labelward.leakage.stored_guesses import score_guess, write_guess
from labelward.leakage.stored_views import attack_view
from labelward.metrics.utility import utility_scores
from labelward.party.view import View
from labelward.protocols.secureboost.share import ModelShare
from labelward.runs.schema import read_run
from refusals import refused
from standing import listed

Make = Callable[..., Job]
ROWS = 260


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labels of all kinds that both parties' columns tell of; gaps, a category, row weights."""
    rng = np.random.default_rng(11)
    age, calls = rng.normal(size=(2, ROWS))
    town = rng.choice(["east", "north", "west"], ROWS)
    value = age + calls + (town == "north") + 0.3 * rng.normal(size=ROWS)
    columns: dict[str, Any] = {
        "id": [f"{row:04d}" for row in range(ROWS)],
        "age": age,
        "calls": [None if row % 8 == 0 else one for row, one in enumerate(calls)],
        "town": [None if row % 13 == 0 else one for row, one in enumerate(town.tolist())],
        "weight": rng.uniform(0.5, 2.0, ROWS),
        "two": np.where(value > 0.3, "yes", "no"),
        "three": np.array(["low", "mid", "top"])[np.digitize(value, [-0.3, 0.9])],
        "value": value,
        "count": rng.poisson(np.exp(0.6 * value)),
    }
    path = tmp_path_factory.mktemp("tasks") / "table.parquet"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture(scope="module")
def make(job: Make, table: Path) -> Make:
    """Make a job for one of the labels: ``make("three", kind="forest")``."""

    def build(label: str, *, data: dict[str, Any] | None = None, **model: Any) -> Job:
        common = {"table": str(table), "label": label, "id": "id", "weight": "weight"}
        task = "regression" if label in ("value", "count") else "classification"
        return job(
            data={**common, "task": task, **(data or {})},
            parties={"active": ["age"], "telco": ["calls", "town"]},
            model={"trees": 3, "depth": 3, **model},
            defense=None,
            run={"seeds": [1]},
        )

    return build


CASES = [
    ("two", {"kind": "secureboost"}),
    ("two", {"kind": "forest", "row_fraction": 0.8, "replace": True}),
    ("three", {"kind": "secureboost", "multi_strategy": "one_output_per_tree"}),
    ("three", {"kind": "forest", "row_fraction": 0.7}),
    ("value", {"kind": "secureboost", "sampling": "goss"}),
    ("value", {"kind": "forest"}),
    ("count", {"kind": "secureboost", "objective": "count:poisson"}),
]


@pytest.mark.parametrize(("label", "model"), CASES)
def test_an_audit_is_lossless_and_done_once(make: Make, tmp_path: Path, label: str, model: dict[str, Any]) -> None:
    chosen = make(label, **model)
    rows = audit(chosen, tmp_path)
    assert audit(chosen, tmp_path) == rows
    best = rows[0].utility["primary"]
    assert best == ("rmse" if label in ("value", "count") else "auc")
    for row in listed(rows):
        metrics = {name: value for name, value in row.utility.items() if name not in ("alone", "joined", "primary")}
        assert metrics == row.utility["joined"]
        assert row.leakage is not None
        assert row.leakage["primary"] == "v_measure"
        assert ("r2" in row.leakage) == (best == "rmse")
    clustered, attacked = (row.leakage or {} for row in listed(rows))
    assert {name: clustered[name] for name in ("v_measure", "ari")}.items() <= clustered["without_view"].items()  # type: ignore[union-attr]
    if model.get("sampling") == "goss":  # shows too few rows in two trees for a gain in every draw
        return
    assert attacked["v_measure"] > attacked["without_view"]["v_measure"]  # type: ignore[call-overload,index]


def test_the_account_says_bins_where_labels_are_quantities(make: Make, tmp_path: Path) -> None:
    known = {}
    for label in ("three", "value"):
        audit(make(label), tmp_path / label)
        run = read_run(tmp_path / label, (), 1)
        assert run is not None
        known[label] = run.attacks[0].auxiliary
        assert 0 < (run.seen["telco"].joint_information or 0.0) <= (run.seen["telco"].label_entropy or 0.0)
    assert known == {"three": {"classes": 3}, "value": {"bins of the labels": 4}}


def test_a_stored_attack_on_quantities_gives_the_inline_figure(make: Make, tmp_path: Path) -> None:
    rows = audit(make("value", kind="forest", row_fraction=0.8), tmp_path)
    data, guess = tmp_path / "data" / "1", tmp_path / "guess.parquet"
    for row in rows:
        kind = (row.attack or {})["kind"]
        view = tmp_path / "runs/none/1/telco/view"
        ids, found = attack_view(view, data / "telco.parquet", kind, {}, classes=4, seed=1)
        write_guess(guess, ids, found, {"party": "telco", "seed": 1})
        scored = score_guess(guess, data / "truth.parquet", bins=4)
        leakage = row.leakage or {}
        assert scored == {
            name: value for name, value in leakage.items() if name not in ("without_view", "primary", "advantage")
        }
    with refused(DataError, "labels", field=f"table '{data / 'truth.parquet'}', label column 'label'"):
        score_guess(guess, data / "truth.parquet")


def test_what_is_stored_of_a_party_are_names_and_gaps(make: Make, tmp_path: Path, table: Path) -> None:
    audit(make("two"), tmp_path)
    stored = pq.read_table(tmp_path / "data/1/telco.parquet")
    rows = pq.read_table(table, columns=["id", "calls", "town"]).to_pylist()
    assert {row["id"]: row for row in stored.to_pylist()}.items() <= {row["id"]: row for row in rows}.items()
    header = View.load(tmp_path / "runs/none/1/telco/view").header
    assert header.categories == {"town": ("east", "north", "west")}


@pytest.mark.parametrize(
    ("label", "model", "columns"),
    [
        ("two", {}, ["margin", "probability_no", "probability_yes", "prediction"]),
        ("two", {"kind": "forest"}, ["probability_no", "probability_yes", "prediction"]),
        (
            "three",
            {},
            [*(f"{what}_{name}" for what in ("margin", "probability") for name in ("low", "mid", "top")), "prediction"],
        ),
        ("three", {"kind": "forest"}, ["probability_low", "probability_mid", "probability_top", "prediction"]),
        ("value", {}, ["prediction"]),
        ("value", {"kind": "forest"}, ["prediction"]),
        ("count", {"objective": "reg:tweedie"}, ["margin", "prediction"]),
    ],
)
def test_predictions_are_those_of_the_test(
    make: Make, table: Path, tmp_path: Path, label: str, model: dict[str, Any], columns: list[str]
) -> None:
    """The file has the columns that the label has, and its predictions give the figures of the training."""
    chosen = make(label, **model)
    trained = train_variant(chosen, tmp_path / "run", seed=1)
    tables = dict.fromkeys(("active", "telco"), table)
    for mode in ("one-round", "levels"):
        assert predict_table(tmp_path / "run", tables, tmp_path / f"{mode}.parquet", mode=mode) == ROWS  # type: ignore[arg-type]
    found = pq.read_table(tmp_path / "one-round.parquet")
    assert found.equals(pq.read_table(tmp_path / "levels.parquet"))
    assert found.column_names == ["id", *columns]
    data = load_dataset(with_defaults(chosen), 1)
    place = {name: row for row, name in enumerate(found["id"].to_pylist())}
    rows = [place[name] for name in data.test_ids.tolist()]
    guess = found["prediction"].to_numpy(zero_copy_only=False)[rows]
    if data.classes:
        right = guess == np.asarray(data.classes)[data.test_labels]
        assert np.average(right, weights=data.test_weights) == pytest.approx(trained.utility["accuracy"])
    else:
        off = np.average((guess - data.test_values) ** 2, weights=data.test_weights) ** 0.5
        assert off == pytest.approx(trained.utility["rmse"])


def test_training_tells_the_best_round(make: Make, tmp_path: Path) -> None:
    chosen = make("two", data={"validation_size": 0.3}, trees=30, early_stopping_rounds=3, eval_metric="auc")
    watched = train_variant(chosen, tmp_path / "run", seed=1).watched
    assert watched is not None
    assert watched.metric == "auc"
    assert len(watched.values) == watched.best + 4 < 30
    assert watched.values[watched.best] == max(watched.values)
    assert len(ModelShare.load(tmp_path / "run/active/model").trees) == watched.best + 1
    assert train_variant(make("two"), tmp_path / "other", seed=1).watched is None


class TestGoingOn:
    @pytest.mark.parametrize("label", ["two", "three", "value"])
    def test_a_model_in_two_goes_is_the_model_in_one(self, make: Make, table: Path, tmp_path: Path, label: str) -> None:
        whole, half = make(label, trees=4, feature_fraction=0.7), make(label, trees=2, feature_fraction=0.7)
        at_once = train_variant(whole, tmp_path / "whole", seed=1)
        train_variant(half, tmp_path / "first", seed=1)
        in_two = train_variant(half, tmp_path / "second", seed=1, earlier=tmp_path / "first")
        assert in_two.utility == at_once.utility
        tables = dict.fromkeys(("active", "telco"), table)
        for run in ("whole", "second"):
            predict_table(tmp_path / run, tables, tmp_path / f"{run}.parquet")
        assert pq.read_table(tmp_path / "whole.parquet").equals(pq.read_table(tmp_path / "second.parquet"))
        assert len(ModelShare.load(tmp_path / "first/active/model").trees) == 2  # as it was

    def test_what_does_not_go_together(self, make: Make, job: Make, tmp_path: Path) -> None:
        first, out = tmp_path / "first", tmp_path / "out"
        chosen = make("two")
        train_variant(chosen, first, seed=1)
        shop = replace(chosen.passive[0], name="shop")
        other = replace(chosen.passive[0], columns=("calls",))
        there, parties, yes = str(first), ["active", "telco"], ("no", "yes")
        shopping, poorer = (replace(chosen, parties=(chosen.active, each)) for each in (shop, other))
        cases: list[tuple[Job, int, type[LabelwardError], Code, str, object, str]] = [
            (shopping, 1, JobError, "other-run", there, parties, "active, shop"),
            (
                replace(chosen, model=ComponentSpec("forest")),
                1,
                JobError,
                "other-run",
                "[model] kind",
                "forest",
                "'secureboost'",
            ),
            (chosen, 2, JobError, "other-run", there, 1, "seed 2"),
            (poorer, 1, DataError, "columns", "party 'telco'", ("town",), "missing: 'town'"),
            (make("three"), 1, DataError, "other-run", there, yes, "low, mid, top"),
            (make("value"), 1, DataError, "other-run", there, yes, "a regression target"),
        ]
        for wrong, seed, error, code, field, value, about in cases:
            with refused(error, code, field=field, value=value) as caught:
                train_variant(wrong, out, seed=seed, earlier=first)
            assert about in caught.value.reason
        with refused(FileFormatError, "foreign", field=str(tmp_path / "nowhere")):
            train_variant(chosen, out, seed=1, earlier=tmp_path / "nowhere")
        assert not out.exists()

    def test_other_categories_are_named(self, make: Make, table: Path, tmp_path: Path) -> None:
        train_variant(make("two"), tmp_path / "first", seed=1)
        rows = pq.read_table(table)
        south = [None if name is None else name.replace("north", "south") for name in rows["town"].to_pylist()]
        moved = tmp_path / "moved.parquet"
        pq.write_table(rows.set_column(rows.column_names.index("town"), "town", pa.array(south)), moved)
        with refused(DataError, "columns", field="party 'telco', column 'town'", value=("east", "south", "west")):
            train_variant(make("two", data={"table": str(moved)}), tmp_path / "out", seed=1, earlier=tmp_path / "first")


class TestBadInput:
    def test_a_share_of_another_kind(self, make: Make, table: Path, tmp_path: Path) -> None:
        run = tmp_path / "run"
        train_variant(make("two"), run, seed=1)
        share = ModelShare.load(run / "telco/model")
        msgspec.structs.replace(share, kind="forest").save(run / "telco/model")
        with refused(FileFormatError, "other-run", field=str(tmp_path / "run" / "telco" / "model"), value="forest"):
            predict_table(run, dict.fromkeys(("active", "telco"), table), tmp_path / "o.parquet")

    def test_columns_that_the_model_does_not_know(self, job: Make, table: Path, tmp_path: Path) -> None:
        """Where a party brought all columns of its table, one more is a mistake; the label and ids may be there."""
        rows = pq.read_table(table)
        for name, columns in (("bank", ["id", "two", "age"]), ("telco", ["id", "calls", "town"])):
            pq.write_table(rows.select(columns), tmp_path / f"{name}.parquet")
        parties = {
            "active": {"table": str(tmp_path / "bank.parquet"), "label": "two"},
            "telco": {"table": str(tmp_path / "telco.parquet")},
        }
        chosen = job(data={"id": "id"}, parties=parties, defense=None, attack=None, model={"trees": 1})
        train_variant(chosen, tmp_path / "run", seed=1)
        bank, more, out = tmp_path / "bank.parquet", tmp_path / "more.parquet", tmp_path / "o.parquet"
        pq.write_table(rows.select(["id", "calls", "town", "weight"]), more)
        assert predict_table(tmp_path / "run", {"active": bank, "telco": tmp_path / "telco.parquet"}, out) == ROWS
        out.unlink()
        with refused(
            DataError, "columns", field=f"party 'telco', table '{tmp_path / 'more.parquet'}'", value=("weight",)
        ):
            predict_table(tmp_path / "run", {"active": bank, "telco": more}, out)
        pq.write_table(rows.select(["id", "calls"]), more)
        with refused(DataError, "columns", field=f"party 'telco', table '{tmp_path / 'more.parquet'}'", value="town"):
            predict_table(tmp_path / "run", {"active": bank, "telco": more}, out)
        assert not out.exists()

    def test_new_categories_and_gaps_are_no_mistake(self, make: Make, table: Path, tmp_path: Path) -> None:
        run, out = tmp_path / "run", tmp_path / "o.parquet"
        train_variant(make("two"), run, seed=1)
        rows = pq.read_table(table).slice(0, 2)
        new = rows.set_column(rows.column_names.index("town"), "town", pa.array(["Mars", None]))
        pq.write_table(new, tmp_path / "new.parquet")
        assert predict_table(run, dict.fromkeys(("active", "telco"), tmp_path / "new.parquet"), out) == 2

    @pytest.mark.parametrize(("label", "objective"), [("value", "count:poisson"), ("value", "reg:tweedie")])
    def test_labels_that_the_objective_cannot_take(
        self, make: Make, tmp_path: Path, label: str, objective: str
    ) -> None:
        with refused(DataError, "labels", field="table 'table', label column 'value'") as caught:
            train_variant(make(label, objective=objective), tmp_path / "run", seed=1)
        assert caught.value.value < 0
        assert f"'{objective}'" in caught.value.reason
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("label", ["two", "value"])
def test_test_rows_that_count_nothing(make: Make, table: Path, tmp_path: Path, label: str) -> None:
    """Without those of one class the others are scored, since the split must not be drawn for the labels."""
    rows = pq.read_table(table)
    tested = set(load_dataset(with_defaults(make(label)), 1).test_ids.tolist())
    weights = [
        0.0 if name in tested and (label == "value" or two == "yes") else 1.0
        for name, two in zip(rows["id"].to_pylist(), rows["two"].to_pylist(), strict=True)
    ]
    weightless = tmp_path / "weightless.parquet"
    pq.write_table(rows.set_column(rows.column_names.index("weight"), "weight", pa.array(weights)), weightless)
    job, field = make(label, data={"table": str(weightless)}), f"table 'weightless', label column '{label}'"
    if label == "two":
        record = train_variant(job, tmp_path / "run", seed=1)
        assert record.utility["auc"] == 0.5
        return
    with refused(DataError, "rows", field=field, value="test"):
        train_variant(job, tmp_path / "run", seed=1)
    assert not (tmp_path / "run").exists()


def test_utility_is_that_of_margins_of_any_shape(make: Make) -> None:
    """A margin for each class, and for quantities one that is the prediction."""
    for label, metric in (("three", "auc"), ("value", "rmse")):
        chosen = with_defaults(make(label, kind="forest"))
        programs, data = model_family(chosen.model), load_dataset(chosen, 1)
        margins = programs.pooled(data, data.parties, seed=1, precision=30)
        assert margins.shape == (len(data.test_values), 3 if label == "three" else 1)
        assert next(iter(utility_scores(programs, margins, data))) == metric


def test_folders_are_not_mixed_up(make: Make, tmp_path: Path, table: Path) -> None:
    """A share of another training of the same parties is told by its model, as its columns are the same."""
    for name in ("one", "other"):
        train_variant(make("two"), tmp_path / name, seed=1)
    shutil.copytree(tmp_path / "other/telco/model", tmp_path / "one/telco/model", dirs_exist_ok=True)
    with refused(FileFormatError, "other-run", field=str(tmp_path / "one" / "telco" / "model"), value="telco"):
        train_variant(make("two"), tmp_path / "out", seed=1, earlier=tmp_path / "one")
    assert not (tmp_path / "out").exists()
