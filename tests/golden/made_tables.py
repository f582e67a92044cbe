"""The tables of the golden record: parts of those that scikit-learn ships, and one that is drawn here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from sklearn import datasets

__all__ = ["PEOPLE", "read_columns", "read_predictions", "write_tables"]

PEOPLE = ("bank", "telco", "shop")
"""The parties that have tables of their own; the first has the label."""


def write_tables(folder: Path) -> None:
    """Write all tables: ``cancer.csv``, ``wine.csv``, ``diabetes.csv``, ``counts.csv`` and ``PARTY.csv`` of people.

    Beside each of the first four lies ``NAME-some.csv``: every fifth of its rows, for predictions.
    """
    _shipped(folder / "cancer.csv", datasets.load_breast_cancer(), rows=240, columns=14)
    _shipped(folder / "wine.csv", datasets.load_wine(), rows=178, columns=13)
    diabetes = datasets.load_diabetes()
    _shipped(folder / "diabetes.csv", diabetes, rows=260, columns=10)
    _shipped(folder / "counts.csv", diabetes, rows=200, columns=6, label=diabetes.target // 40)
    _people(folder)


def _shipped(path: Path, data: Any, *, rows: int, columns: int, label: Any = None) -> None:
    """Write some rows, evenly spaced, and the first columns, which are called x00, x01, and so on."""
    chosen = np.linspace(0, len(data.data) - 1, rows).astype(np.int64)
    found: dict[str, Any] = {f"x{at:02}": data.data[chosen, at] for at in range(columns)}
    found["label"] = (data.target if label is None else label)[chosen]
    table = pa.table(found)
    pa.csv.write_csv(table, path)
    pa.csv.write_csv(table.take(np.arange(0, rows, 5)), path.with_name(f"{path.stem}-some.csv"))


def _people(folder: Path) -> None:
    """Write a table for each party: numbers and categories, some missing, a weight, rows in an order of their own."""
    draw, rows = np.random.default_rng(5), 200
    age, income = draw.integers(18, 80, rows), draw.normal(40.0, 12.0, rows).round(2)
    calls, area = draw.poisson(6, rows), draw.choice(["east", "north", "south", "west"], rows)
    plan = draw.choice([f"plan {at}" for at in range(7)], rows)
    spent, visits = draw.exponential(30.0, rows).round(1), draw.integers(0, 9, rows)
    score = calls + 5.0 * np.isin(area, ["east", "west"]) + 0.2 * income - 0.1 * spent + draw.normal(0, 2, rows)
    levels = np.where(score > np.quantile(score, 0.6), "good", "bad")
    columns: dict[str, dict[str, Any]] = {
        "bank": {"age": age, "income": income, "weight": draw.integers(1, 4, rows), "level": levels},
        "telco": {"calls": calls, "area": area, "plan": plan},
        "shop": {"spent": spent, "visits": visits},
    }
    ids = np.array([f"c{row:03}" for row in range(rows)])
    for party in PEOPLE:
        order = draw.permutation(rows)
        table = {"id": pa.array(ids[order])}
        for name, values in columns[party].items():
            gone = draw.random(rows) < (0.12 if name in ("income", "area", "calls", "spent") else 0.0)
            table[name] = pa.array(values[order].tolist(), mask=gone[order])
        pa.csv.write_csv(pa.table(table), folder / f"{party}.csv")


def read_predictions(path: Path) -> Mapping[str, list[Any]]:
    """Return the columns of predictions in the form of the first versions: rows by id, and one probability of two."""
    table = pa.parquet.read_table(path)
    if table.column(0).to_pylist() != list(map(str, range(table.num_rows))):  # else the job names no ids
        table = table.sort_by(table.column_names[0])
    table = table.rename_columns(["id", *table.column_names[1:]])
    shares = [name for name in table.column_names if name.startswith("probability_")]
    if len(shares) == 2:
        table = table.drop_columns(shares[:1])
        table = table.rename_columns(["probability" if name == shares[1] else name for name in table.column_names])
    return {str(name): values for name, values in table.to_pydict().items()}


def read_columns(path: Path) -> Mapping[str, list[Any]]:
    """Return the columns of a Parquet file as lists."""
    return {str(name): values for name, values in pa.parquet.read_table(path).to_pydict().items()}
