"""Parties with a table each: what one of them holds alone is what it holds in a rehearsal; and every refusal."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from labelward.data import (
    DataSplit,
    PartyDataset,
    VerticalDataset,
    encode_party,
    load_active,
    load_dataset,
    load_party_table,
    load_tables,
)
from labelward.errors import Code, DataError, JobError
from labelward.job import Job, parse_job
from labelward.rng import PrivateSeed
from refusals import refused

SECRET = PrivateSeed(bytes(PrivateSeed.SIZE))

MEET = {"address": "bank.example:7443"}


@dataclass(frozen=True)
class Case:
    """Two parties' tables and what is asked of them."""

    rows: int
    seed: int
    task: str
    categories: str
    validation: float
    weighted: bool
    missing: bool
    text_ids: bool


cases = st.builds(
    Case,
    rows=st.integers(40, 150),
    seed=st.integers(0, 2**32 - 1),
    task=st.sampled_from(["classification", "regression"]),
    categories=st.sampled_from(["native", "dummies"]),
    validation=st.sampled_from([0.0, 0.25]),
    weighted=st.booleans(),
    missing=st.booleans(),
    text_ids=st.booleans(),
)


NO_TEST_ROW_OF_A_CLASS = Case(
    rows=40,
    seed=9786,
    task="classification",
    categories="native",
    validation=0.0,
    weighted=False,
    missing=False,
    text_ids=False,
)


def tables_of(case: Case) -> dict[str, pa.Table]:
    """Draw a bank's and a telco's table, each in an order of its own."""
    draw = np.random.default_rng(case.seed)

    def gaps(values: Any) -> list[Any]:
        return [None if case.missing and draw.random() < 0.2 else value for value in values]

    ids = draw.choice(10 * case.rows, case.rows, replace=False)
    named = [f"c{one}" for one in ids] if case.text_ids else ids.tolist()
    labels = draw.normal(size=case.rows) if case.task == "regression" else draw.choice(["a", "b", "c"], case.rows)
    if case.task == "classification":
        labels[:30] = ["a", "b", "c"] * 10  # each class on each side
    bank: dict[str, Any] = {
        "customer": named,
        "balance": gaps(draw.normal(size=case.rows)),
        "branch": gaps(draw.choice(["north", "south"], case.rows).tolist()),
        "label": labels.tolist(),
        "weight": draw.uniform(0.5, 2.0, case.rows),
    }
    telco: dict[str, Any] = {
        "who": named,
        "minutes": gaps(draw.integers(0, 500, case.rows).tolist()),
        "plan": gaps(draw.choice(["p", "q", "r"], case.rows).tolist()),
        "since": gaps([dt.date(2020, 1, 1) + dt.timedelta(days=int(day)) for day in draw.integers(0, 900, case.rows)]),
        "roaming": gaps((draw.random(case.rows) < 0.5).tolist()),
    }
    return {
        name: pa.table(table).take(pa.array(draw.permutation(case.rows)))
        for name, table in (("bank", bank), ("telco", telco))
    }


def job_of(case: Case, folder: Path, here: tuple[str, ...]) -> Job:
    """Return the job file of those whose tables are here."""
    bank = {"table": str(folder / "bank.parquet"), "id": "customer", "label": "label"}
    bank |= {"weight": "weight"} if case.weighted else {"columns": ["balance", "branch"]}
    telco = {
        "table": str(folder / "telco.parquet"),
        "id": "who",
        "monotone": {"minutes": 1},
        "edges": {"minutes": [0.5]},
    }
    data = {"categories": case.categories}
    if "bank" in here:
        data |= {"task": case.task, "validation_size": case.validation}
    return parse_job(
        {
            "data": data,
            "parties": {
                "bank": bank if "bank" in here else {"role": "active"},
                "telco": telco if "telco" in here else {},
            },
            "network": MEET,
        }
    )


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, PartyDataset | DataSplit):
        return all(equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    return bool(one == other)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.mark.filterwarnings("ignore:no .* row has class:labelward.errors.DataWarning")
@given(case=cases)
@example(case=NO_TEST_ROW_OF_A_CLASS)
@settings(max_examples=40, deadline=None)
def test_alone_each_party_holds_what_it_holds_in_a_rehearsal(folder: Path, case: Case) -> None:
    """The passive party knows nothing but its file, its table and the sides that it is told, as masks."""
    for name, table in tables_of(case).items():
        pq.write_table(table, folder / f"{name}.parquet")
    try:
        together = load_dataset(job_of(case, folder, ("bank", "telco")), case.seed)
    except DataError as error:
        assume(error.code != "labels")  # a class has too few rows
        raise
    job = job_of(case, folder, ("bank",))
    bank = load_active(job, load_party_table(job, "bank"), case.seed, SECRET)
    for each in fields(VerticalDataset):
        if each.name != "parties":
            assert equal(getattr(bank, each.name), getattr(together, each.name)), each.name
    assert equal(bank.ids, together.ids)
    assert bank.ids.tolist() == sorted(bank.ids.tolist())
    assert [party.name for party in bank.parties] == ["bank"]
    assert equal(bank.parties[0], together.parties[0])

    job = job_of(case, folder, ("telco",))
    own = load_party_table(job, "telco")
    assert equal(own.ids, together.ids)
    assert equal(encode_party(job, own, DataSplit.of(*bank.split.masks()), SECRET), together.parties[1])


@given(st.lists(st.integers(0, 2), max_size=30))
def test_sides_survive_being_told_as_masks(numbers: list[int]) -> None:
    sides = np.array(numbers, dtype=np.int64)
    split = DataSplit.of(sides == 1, sides == 2)
    assert split.total == len(sides)
    assert equal(split.train, np.flatnonzero(sides == 0))
    assert [mask.tolist() for mask in split.masks()] == [(sides == 1).tolist(), (sides == 2).tolist()]


@pytest.mark.parametrize("ids", [None, "who"])
def test_a_common_table_knows_the_place_of_each_row(tmp_path: Path, ids: str | None) -> None:
    """Sides and ids of all rows stand in one order, that of the ids as text where there are any."""
    draw = np.random.default_rng(5)
    who = draw.permutation(60)
    table = pa.table({"who": who, "a": who * 2.0, "b": draw.normal(size=60), "y": who % 2})
    pq.write_table(table, tmp_path / "t.parquet")
    data: dict[str, Any] = {"table": str(tmp_path / "t.parquet"), "label": "y", "validation_size": 0.2}
    if ids is not None:
        data["id"] = ids
    job = parse_job({"data": data, "parties": {"active": ["b"], "telco": ["a"]}})
    found = load_dataset(job, 1)
    assert found.ids.tolist() == (sorted(map(str, who)) if ids else [str(row) for row in range(60)])
    for name, rows in found.split.items():
        assert found.ids[rows].tolist() == getattr(found, f"{name}_ids").tolist()
        assert equal(rows, np.sort(rows))
        held = getattr(found.parties[1], name)[:, 0]
        assert equal(held, 2.0 * (found.ids[rows].astype(np.float64) if ids else who[rows]))


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("party", "column", "wrong", "code"),
    [
        ("telco", "minutes", float("inf"), "values"),
        ("telco", "typed", "n.b.", "values"),
        ("bank", "balance", float("inf"), "values"),
        ("bank", "label", None, "labels"),
        ("bank", "label", 0.5, "labels"),
        ("bank", "weight", -1.0, "values"),
    ],
)
def test_errors_name_rows_of_the_file(tmp_path: Path, party: str, column: str, wrong: Any, code: Code) -> None:
    """Rows are sorted by id, as text, before they are checked; of two rows the first of the file is named."""
    ids = list(range(150))
    tables: dict[str, dict[str, list[Any]]] = {
        "bank": {"balance": [row / 3 for row in ids], "label": [row % 2 for row in ids], "weight": [1.0] * 150},
        "telco": {"minutes": [row / 7 for row in ids], "typed": [str(row % 20) for row in ids]},
    }
    tables[party][column][7] = tables[party][column][10] = wrong  # sorted, row 10 comes first
    job = parse_job(
        {
            "parties": {
                "bank": {"table": str(tmp_path / "bank.parquet"), "id": "who", "label": "label", "weight": "weight"},
                "telco": {"table": str(tmp_path / "telco.parquet"), "id": "who"},
            },
        }
    )
    for name, columns in tables.items():
        pq.write_table(pa.table({"who": ids, **columns}), tmp_path / f"{name}.parquet")
    with refused(DataError, code) as caught:
        load_dataset(job, 1)
    assert "row 7," in caught.value.reason
    with refused(DataError, code) as caught:
        own = load_party_table(job, party)
        if party == "bank":
            load_active(job, own, 1, SECRET)
        encode_party(job, own, DataSplit.of(*np.zeros((2, 150), dtype=bool)), SECRET)
    assert "row 7," in caught.value.reason


def own_job(folder: Path, telco: dict[str, Any], **sections: Any) -> Job:
    pq.write_table(pa.table(telco), folder / "telco.parquet")
    own = {"table": str(folder / "telco.parquet"), "id": "who", **sections}
    return parse_job({"parties": {"bank": {"role": "active"}, "telco": own}, "network": MEET})


def hold(job: Job, party: str = "telco") -> None:
    own = load_party_table(job, party)
    encode_party(job, own, DataSplit.of(np.zeros(len(own.ids), np.bool_), np.arange(len(own.ids)) < 2), SECRET)


@pytest.mark.parametrize(
    ("telco", "sections", "code", "field", "value", "about"),
    [
        (
            {"who": ["a", "b", "a", "c", "b", "a", "d", "d"], "x": range(8)},
            {},
            "rows",
            "party 'telco', id column 'who'",
            4,
            "'a', 'b', 'd'",
        ),
        (
            {"who": [7, 7], "x": [1, 2]},
            {},
            "rows",
            "party 'telco', id column 'who'",
            1,
            "'7'",
        ),
        (
            {"whom": ["a"], "x": [1]},
            {},
            "columns",
            "party 'telco'",
            "who",
            "'whom'?",
        ),
        (
            {"who": ["a", None], "x": [1, 2]},
            {},
            "rows",
            "party 'telco', id column 'who'",
            1,
            "row 1",
        ),
        (
            {"who": [1.5, 2.5], "x": [1, 2]},
            {},
            "columns",
            "party 'telco', id column 'who'",
            "double",
            "",
        ),
        (
            {"who": range(4), "x": range(4)},
            {"columns": ["y"]},
            "columns",
            "party 'telco'",
            "y",
            "who, x",
        ),
        (
            {"who": range(4), "x": range(4)},
            {"monotone": {"z": 1}},
            "columns",
            "[parties.telco] monotone",
            "z",
            "",
        ),
        (
            {"who": range(4), "x": ["p", "q", "p", "q"]},
            {"monotone": {"x": 1}},
            "columns",
            "party 'telco': monotone",
            "x",
            "",
        ),
        (
            {"who": range(4), "x": range(4)},
            {"edges": {"z": [1.0]}},
            "columns",
            "[parties.telco] edges",
            "z",
            "",
        ),
        ({"who": range(4)}, {}, "columns", "party 'telco'", None, ""),
    ],
)
def test_tables_that_cannot_be_used(
    tmp_path: Path,
    telco: dict[str, Any],
    sections: dict[str, Any],
    code: Code,
    field: str,
    value: object,
    about: str,
) -> None:
    telco = {name: list(column) for name, column in telco.items()}
    with refused(DataError, code, field=field, value=value) as caught:
        hold(own_job(tmp_path, telco, **sections))
    assert about in caught.value.reason


def test_who_cannot_take_part(tmp_path: Path) -> None:
    job = own_job(tmp_path, {"who": [1, 2], "x": [1, 2]})
    with refused(JobError, "missing", field="[parties.bank] table"):
        hold(job, "bank")
    with refused(JobError, "unknown", value="telko") as caught:
        hold(job, "telko")
    assert "'telco'?" in caught.value.reason
    common = parse_job({"data": {"table": "breast_cancer"}, "parties": {"active": 0.5, "telco": 0.5}})
    with refused(JobError, "missing", field="[parties.telco] table") as caught:
        hold(common)
    assert "[data]" in caught.value.reason
    with refused(DataError, "missing", field="party 'telco'") as caught:
        load_active(job, load_party_table(job, "telco"), 1, SECRET)
    assert "label column" in caught.value.reason


def test_missing_files_are_named(tmp_path: Path) -> None:
    job = own_job(tmp_path, {"who": [1, 2], "x": [1, 2]})
    (tmp_path / "telco.parquet").unlink()
    with refused(DataError, "not-found", field=f"table '{tmp_path / 'telco.parquet'}'"):
        hold(job)


def test_nothing_is_rehearsed_of_data_that_are_elsewhere(tmp_path: Path) -> None:
    with refused(JobError, "missing", field="[parties.bank] table") as caught:
        load_tables(own_job(tmp_path, {"who": [1, 2], "x": [1, 2]}))
    assert "labelward party JOB.toml" in caught.value.reason
