"""Labels that several parties hold: dealt out by shares, or joined from tables of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from labelward.data import load_dataset
from labelward.data.label_holders import deal_labels
from labelward.errors import DataError
from labelward.job import DataSection, Job, parse_job
from labelward.rng import PrivateSeed
from refusals import refused

SHARES = {"bank": 0.3, "clinic": 0.7}


def test_shares_are_kept_and_the_draw_is_private() -> None:
    data, private = DataSection(table="digits", labels=SHARES), PrivateSeed(bytes(32))
    first, again = (deal_labels(data, 1, None, 1000, private) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.bincount(first).tolist() == [300, 700]
    for other in (
        deal_labels(data, 2, None, 1000, private),
        deal_labels(data, 1, None, 1000, PrivateSeed(bytes([1] * 32))),
    ):
        assert (other != first).mean() > 0.3


def test_skewed_classes_have_shares_of_their_own() -> None:
    classes = np.repeat([0, 1, 2], 2000)
    even, skewed = (
        DataSection(table="digits", labels=SHARES, label_skew="classes", label_concentration=value)
        for value in (1e6, 0.1)
    )
    draws = [
        deal_labels(data, seed, classes, 6000, PrivateSeed.drawn()) for data in (even, skewed) for seed in range(9)
    ]
    shares = np.array([[(draw[classes == c] == 1).mean() for c in range(3)] for draw in draws])
    np.testing.assert_allclose(shares[:9], 0.7, atol=0.01)
    assert shares[9:].std() > 0.2
    with refused(DataError, "unsupported", field="[data] label_skew"):
        deal_labels(even, 1, None, 100, PrivateSeed.drawn())


def test_a_share_without_rows_is_refused() -> None:
    data = DataSection(table="digits", labels={"bank": 0.999, "clinic": 0.001})
    with refused(DataError, "labels", field="[data] labels clinic", value="clinic"):
        deal_labels(data, 1, None, 50, PrivateSeed.drawn())


def own_tables(folder: Path, bank: list[int | None], clinic: list[int | None]) -> Job:
    """A job of two label holders, whose rows are in different orders, and a third party."""
    rng, ids = np.random.default_rng(0), np.arange(len(bank))
    for name, labels, order in (("bank", bank, ids), ("clinic", clinic, ids[::-1]), ("shop", None, ids)):
        columns = {"id": ids[order], f"x_{name}": rng.normal(size=len(ids))}
        if labels is not None:
            columns["y"] = pa.array([labels[row] for row in order], pa.int64())
        pa.csv.write_csv(pa.table(columns), folder / f"{name}.csv")
    parties = {name: {"table": f"{name}.csv", "id": "id", "label": "y"} for name in ("bank", "clinic")}
    model = {"kind": "pivodl", "aggregation": "masks"}
    tables = {"parties": {**parties, "shop": {"table": "shop.csv", "id": "id"}}, "model": model}
    return parse_job(tables, base=folder)


def test_own_tables_are_joined(tmp_path: Path) -> None:
    labels = [0, 1] * 30
    bank = [label if row % 3 else None for row, label in enumerate(labels)]
    clinic = [None if row % 3 else label for row, label in enumerate(labels)]
    data = load_dataset(own_tables(tmp_path, bank, clinic), 1)
    assert data.holders == ("bank", "clinic")
    rows = data.train_ids.astype(int)
    np.testing.assert_array_equal(data.train_values, np.array(labels)[rows])
    np.testing.assert_array_equal(data.holds("bank"), rows % 3 != 0)
    assert not data.holds("shop").any()


@pytest.mark.parametrize(("twice", "party", "told"), [(True, "clinic", 5), (False, "bank", 4)])
def test_rows_labeled_twice_or_by_nobody(tmp_path: Path, twice: bool, party: str, told: int) -> None:
    """The error names the row of the party's file; that of the clinic has the rows in reverse."""
    row = 4
    bank: list[int | None] = [0, 1, 0, 1, 0, 1, None, None, None, None]
    clinic: list[int | None] = [None] * 6 + [0, 1, 0, 1]
    if twice:
        clinic[row] = 1
    else:
        bank[row] = None
    with refused(DataError, "labels", field=f"party {party!r}", value=told):
        load_dataset(own_tables(tmp_path, bank, clinic), 1)
