"""Explanations and export of a trained model: what matches the predictions, and what the parties consent to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xgboost
from numpy.typing import NDArray

from labelward.errors import DataError, FileFormatError, PolicyError
from labelward.federation.explain import explain_stored_model
from labelward.federation.model import FederatedModel
from labelward.federation.predict import predict_table
from labelward.federation.train import train_variant
from labelward.job import Job
from labelward.protocols.secureboost.share import ModelShare
from refusals import refused

ROWS = 150
PARTIES = {"active": ["age"], "telco": ["calls", "town"], "shop": ["bill", "visits"]}
TOWNS = ("east", "north", "south", "west", "xanten")
Train = Callable[..., Path]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Columns of three parties, with gaps and a category; labels of all kinds."""
    rng = np.random.default_rng(5)
    age, calls, bill, visits = rng.normal(size=(4, ROWS))
    town = rng.choice(TOWNS, ROWS)
    value = age + calls + bill * (visits > 0) + np.isin(town, ("north", "xanten"))
    columns: dict[str, Any] = {
        "id": [f"{row:04d}" for row in range(ROWS)],
        "age": age,
        "calls": [None if row % 8 == 0 else one for row, one in enumerate(calls)],
        "town": [None if row % 13 == 0 else one for row, one in enumerate(town.tolist())],
        "bill": bill,
        "visits": visits,
        "two": np.where(value > 0.3, "yes", "no"),
        "three": np.array(["low", "mid", "top"])[np.digitize(value, [-0.3, 0.9])],
        "value": value,
        "count": rng.poisson(np.exp(0.5 * value)),
    }
    path = tmp_path_factory.mktemp("explain") / "table.parquet"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture(scope="module")
def trained(job: Callable[..., Job], table: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Train on one of the labels, once for each job: ``trained("three", kind="forest")``."""
    done: dict[str, Path] = {}

    def run(label: str, **model: Any) -> Path:
        key = json.dumps([label, model])
        if key not in done:
            task = "regression" if label in ("value", "count") else "classification"
            chosen = job(
                data={"table": str(table), "label": label, "id": "id", "task": task},
                parties=PARTIES,
                model={"trees": 3, "depth": 3, **model},
                defense=None,
                run={"seeds": [1]},
            )
            done[key] = tmp_path_factory.mktemp("trained") / "run"
            train_variant(chosen, done[key], seed=1)
        return done[key]

    return run


def all_from(table: Path) -> dict[str, Path]:
    return dict.fromkeys(PARTIES, table)


def column(table: pa.Table, name: str) -> NDArray[np.float64]:
    return table[name].to_numpy().astype(np.float64)


CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("two", {}, ["margin"]),
    ("three", {}, ["margin_low", "margin_mid", "margin_top"]),
    ("three", {"multi_strategy": "one_output_per_tree"}, ["margin_low", "margin_mid", "margin_top"]),
    ("count", {"objective": "count:poisson"}, ["margin"]),
    ("value", {}, ["prediction"]),
    ("three", {"kind": "forest"}, ["probability_low", "probability_mid", "probability_top"]),
    ("value", {"kind": "forest"}, ["prediction"]),
]


@pytest.mark.parametrize(("label", "model", "margins"), CASES)
class TestWhatPredictWrites:
    def test_shap_values_add_up_to_it(
        self, trained: Train, table: Path, tmp_path: Path, label: str, model: dict[str, Any], margins: list[str]
    ) -> None:
        run = trained(label, **model)
        assert explain_stored_model(run, all_from(table), tmp_path / "shap.parquet", most=20) == (ROWS, len(margins))
        predict_table(run, all_from(table), tmp_path / "predicted.parquet")
        found, predicted = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("shap", "predicted"))
        expected = np.column_stack([column(predicted, name) for name in margins])
        features = [name for name in found.column_names if "." in name]
        total = column(found, "expected") + sum(column(found, name) for name in features)
        assert len(features) >= 3
        np.testing.assert_array_equal(column(found, "margin"), expected.ravel())
        np.testing.assert_allclose(total, expected.ravel(), rtol=0, atol=1e-12)  # a dozen sums of doubles around 1
        assert found["id"].to_pylist() == [name for name in predicted["id"].to_pylist() for _ in margins]
        if len(margins) > 1:
            assert found["output"].to_pylist() == ["low", "mid", "top"] * ROWS
        else:
            assert "output" not in found.column_names

    def test_xgboost_predicts_it_from_the_exported_model(
        self, trained: Train, table: Path, tmp_path: Path, label: str, model: dict[str, Any], margins: list[str]
    ) -> None:
        """Also at the thresholds, which are values of the table and no float32 as XGBoost reads them."""
        run = trained(label, **model)
        FederatedModel.load(run).export(tmp_path / "model.json", consent=["telco", "shop"], names=["telco", "shop"])
        predict_table(run, all_from(table), tmp_path / "predicted.parquet")
        predicted = pq.read_table(tmp_path / "predicted.parquet")
        booster = xgboost.Booster(model_file=str(tmp_path / "model.json"))
        rows = pq.read_table(table)
        codes = {None: np.nan} | {name: float(code) for code, name in enumerate(TOWNS)}
        x = [[codes[one] for one in rows["town"].to_pylist()] if name == "town" else column(rows, name)
             for name in booster.feature_names]  # fmt: skip
        data = xgboost.DMatrix(
            np.column_stack(x).astype(np.float32),
            feature_names=booster.feature_names,
            feature_types=booster.feature_types,
            enable_categorical=True,
        )
        assert sorted(booster.feature_names) == sorted(name for held in PARTIES.values() for name in held)
        got = booster.predict(data, output_margin=True).reshape(ROWS, len(margins))
        expected = np.column_stack([column(predicted, name) for name in margins])
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)  # sums of four float32 below 4


class TestNames:
    def test_importance_counts_the_splits_on_each_column(self, trained: Train) -> None:
        run = trained("two")
        found = FederatedModel.load(run).importance(names=["telco", "shop"])
        splits: Counter[tuple[str, str]] = Counter()
        for party in PARTIES:
            share = ModelShare.load(run / party / "model")
            splits.update((party, share.columns[position]) for position in share.own.columns)
        assert {(one.feature.party, one.feature.name): one.weight for one in found} == splits
        gains = sum(sum(tree.gains) for tree in ModelShare.load(run / "active/model").trees)
        assert sum(one.total_gain for one in found) == pytest.approx(gains)
        assert [one.total_gain for one in found] == sorted((one.total_gain for one in found), reverse=True)

    @pytest.mark.parametrize("told", [(), ("shop",), ("telco", "shop"), ("active",)])
    def test_names_are_those_of_the_parties_that_tell_them(
        self, trained: Train, table: Path, tmp_path: Path, told: tuple[str, ...]
    ) -> None:
        run, out = trained("two"), tmp_path / "shap.parquet"
        secret = {name for party in PARTIES if party not in (*told, "active") for name in PARTIES[party]}
        explain_stored_model(run, all_from(table), out, most=3, names=told)
        columns = [name for name in pq.read_table(out).column_names if "." in name]
        used = [one.feature for one in FederatedModel.load(run).importance(names=told)]
        assert {f"{one.party}.{one.name or one.number}" for one in used} == set(columns)
        drawn = "".join(text for tree in range(3) for text in FederatedModel.load(run).draw(tree, names=told))
        for name in secret:
            assert name not in drawn
        for feature in used:
            assert bool(feature.name) == (feature.party in (*told, "active"))
            assert feature.label in drawn

    def test_columns_without_names_are_called_by_their_owner_in_an_exported_model(
        self, trained: Train, tmp_path: Path
    ) -> None:
        path = FederatedModel.load(trained("two")).export(
            tmp_path / "model.json", consent=["telco", "shop"], names=["shop"]
        )
        names = xgboost.Booster(model_file=str(path)).feature_names
        assert names == ["age", "telco.f0", "telco.f1", "bill", "visits"]


class TestConsent:
    @pytest.mark.parametrize(("given", "missing"), [((), ("telco", "shop")), (("telco", "active"), ("shop",))])
    def test_without_every_consent_nothing_is_written(
        self, trained: Train, tmp_path: Path, given: tuple[str, ...], missing: tuple[str, ...]
    ) -> None:
        with refused(PolicyError, "missing", value=missing):
            FederatedModel.load(trained("two")).export(tmp_path / "model.json", consent=given, names=["telco", "shop"])
        assert [*tmp_path.iterdir()] == []


class TestBackground:
    def test_what_is_expected_is_the_mean_of_the_background_rows(
        self, trained: Train, table: Path, tmp_path: Path
    ) -> None:
        """Which are those explained where none are given, and evenly spaced where there are more than wanted."""
        run, tables = trained("value"), all_from(table)
        other = tmp_path / "other.parquet"
        pq.write_table(pq.read_table(table).slice(0, 7), other)
        predict_table(run, tables, tmp_path / "predicted.parquet")
        margins = column(pq.read_table(tmp_path / "predicted.parquet"), "prediction")
        for number, (options, rows) in enumerate(
            [
                ({}, np.linspace(0, ROWS - 1, 100).astype(int)),
                ({"most": 1000}, np.arange(ROWS)),
                ({"most": 1}, [0]),
                ({"background": all_from(other)}, np.arange(7)),
                ({"background": all_from(other), "most": 3}, [0, 3, 6]),
            ]
        ):
            out = tmp_path / f"{number}.parquet"
            explain_stored_model(run, tables, out, **options)  # type: ignore[arg-type]
            expected = column(pq.read_table(out), "expected")
            np.testing.assert_allclose(expected, margins[rows].mean(), rtol=1e-12)  # sums in another order

    def test_a_model_that_does_not_split(self, trained: Train, table: Path, tmp_path: Path) -> None:
        run, out = trained("two", gamma=1e6), tmp_path / "shap.parquet"
        explain_stored_model(run, all_from(table), out)
        assert FederatedModel.load(run).importance() == ()
        found = pq.read_table(out)
        assert found.column_names == ["id", "margin", "expected"]
        margin = found["margin"].to_numpy()
        np.testing.assert_allclose(margin, found["expected"].to_numpy(), rtol=1e-12)  # sums in another order
        text, picture = FederatedModel.load(run).draw(0)
        assert text.startswith("tree 0\nleaf ")
        assert picture.startswith("<svg")


class TestRefusals:
    def test_names_that_no_party_has(self, trained: Train, table: Path, tmp_path: Path) -> None:
        run, out = trained("two"), tmp_path / "out.json"
        calls: list[Callable[[], object]] = [
            lambda: FederatedModel.load(run).importance(names=["tleco"]),
            lambda: FederatedModel.load(run).draw(0, names=["tleco"]),
            lambda: explain_stored_model(run, all_from(table), out, names=["tleco"]),
            lambda: explain_stored_model(run, {**all_from(table), "tleco": table}, out),
            lambda: FederatedModel.load(run).export(out, consent=["tleco"]),
            lambda: FederatedModel.load(run).export(out, consent=["telco", "shop"], names=["tleco"]),
        ]
        for one in calls:
            with refused(DataError, "unknown", value="tleco") as caught:
                one()
            assert "'telco'?" in caught.value.reason
        assert not out.exists()

    def test_tables_and_numbers_that_cannot_be(self, trained: Train, table: Path, tmp_path: Path) -> None:
        run, out, short = trained("two"), tmp_path / "shap.parquet", tmp_path / "short.parquet"
        pq.write_table(pq.read_table(table).drop_columns(["bill"]), short)
        with refused(DataError, "columns", field=f"party 'shop', table '{tmp_path / 'short.parquet'}'", value="bill"):
            explain_stored_model(run, all_from(table) | {"shop": short}, out)
        with refused(DataError, "columns", field=f"party 'shop', table '{tmp_path / 'short.parquet'}'", value="bill"):
            explain_stored_model(run, all_from(table), out, background=all_from(short))
        with refused(DataError, "missing", field="party 'shop'"):
            explain_stored_model(run, {"active": table, "telco": table}, out)
        with refused(DataError, "range", field="background", value=0):
            explain_stored_model(run, all_from(table), out, most=0)
        with refused(DataError, "range", field="tree", value=3):
            FederatedModel.load(run).draw(3)
        assert not out.exists()

    def test_a_folder_of_something_else(self, tmp_path: Path) -> None:
        with refused(FileFormatError, "foreign", field=str(tmp_path)):
            FederatedModel.load(tmp_path).importance()
