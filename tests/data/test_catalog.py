"""Where data sets are looked for, and what is refused; no test opens a connection."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.utils import Bunch

from labelward.data import catalog, catalog_entries, load_dataset, load_tables
from labelward.data.openml import Download, download
from labelward.errors import DataError
from labelward.job import parse_job
from refusals import refused

SETS = [name for name, entry in catalog_entries().items() if entry.sha256 or entry.files]
needs_folder = pytest.mark.skipif("LABELWARD_DATA" not in os.environ, reason="LABELWARD_DATA is not set")


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A machine without folder, cache and network."""
    monkeypatch.delenv("LABELWARD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def refuse(*args, **kwargs):
        raise OSError("no network in tests")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", refuse)
    return tmp_path


@pytest.mark.parametrize("name", ["breast_cancer", "digits"])
def test_sets_of_scikit_learn_need_nothing(nowhere, name):
    table = catalog.load_catalog_table(name)  # checks rows, columns and classes against the entry
    assert table.column_names[-1] == "label"


@needs_folder
@pytest.mark.parametrize("name", SETS)
def test_sets_in_the_folder_are_what_their_entries_say(name):
    assert catalog.load_catalog_table(name).num_rows == catalog_entries()[name].rows


TINY = catalog.CatalogEntry(
    name="tiny",
    title="Two rows",
    rows=2,
    features=1,
    classes={"no": 1, "yes": 1},
    sha256="0" * 64,
    source=Download(name="Tiny", version=1, columns=("x",), labels={"1": "no", "2": "yes"}),
)
ANSWER = Bunch(data=np.array([[0.0], [1.0]]), target=["1", "2"], feature_names=["V1"], categories={"V1": ["-1", "5"]})


@pytest.fixture
def tiny(nowhere, monkeypatch):
    monkeypatch.setattr(catalog, "catalog_entries", lambda: {TINY.name: TINY})
    return nowhere


def test_a_set_that_is_nowhere_says_where_it_was_looked_for(tiny):
    with refused(DataError, "not-found", value="tiny") as caught:
        catalog.load_catalog_table("tiny")
    for words in ("'tiny'", "LABELWARD_DATA is not set", str(tiny / "cache"), "0" * 64, "OpenML (Tiny)", "no network"):
        assert words in str(caught.value)


def test_a_set_without_a_known_download_says_so(nowhere):
    with refused(DataError, "not-found", value="criteo_8k") as caught:
        catalog.load_catalog_table("criteo_8k")
    assert "no download" in str(caught.value)


def test_a_download_is_converted_checked_and_kept(tiny, monkeypatch):
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda *args, **kwargs: ANSWER)
    expected = {"x": [-1, 5], "label": ["no", "yes"]}
    assert catalog.load_catalog_table("tiny").to_pydict() == expected
    monkeypatch.delattr("sklearn.datasets.fetch_openml")
    assert catalog.load_catalog_table("tiny").to_pydict() == expected
    assert [file.name for file in (tiny / "cache" / "labelward").iterdir()] == ["tiny.parquet"]


def test_a_download_of_something_else_is_refused_and_not_kept(tiny, monkeypatch):
    for wrong, value in (
        ({"target": ["1", "1"]}, {"no": 2}),
        ({"data": np.zeros((3, 1)), "target": ["1", "2", "2"]}, (3, 2, "label")),
    ):
        monkeypatch.setattr(
            "sklearn.datasets.fetch_openml", lambda *args, wrong=wrong, **kwargs: Bunch(**{**ANSWER, **wrong})
        )
        with refused(DataError, "damaged", field="OpenML (Tiny)", value=value):
            catalog.load_catalog_table("tiny")
    assert not (tiny / "cache").exists()


def test_columns_of_a_download(monkeypatch):
    answer = Bunch(
        data=np.array([[0.0, 1.5, 3.0], [1.0, np.nan, 4.0]]),
        target=["b", "a"],
        feature_names=["color", "size", "count"],
        categories={"color": ["red", "blue"]},
    )
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda *args, **kwargs: answer)
    table = download(Download(name="any", version=1))
    assert table.to_pydict() == {
        "color": ["red", "blue"],
        "size": [1.5, None],
        "count": [3, 4],
        "label": ["b", "a"],
    }


def test_a_folder_wins_over_the_cache_and_its_file_must_have_the_checksum(tiny, monkeypatch):
    good = pa.table({"x": [1, 2], "label": ["no", "yes"]})
    (tiny / "cache" / "labelward").mkdir(parents=True)
    pq.write_table(good, tiny / "cache" / "labelward" / "tiny.parquet")
    monkeypatch.setenv("LABELWARD_DATA", str(tiny))
    assert catalog.load_catalog_table("tiny").equals(good)  # the folder does not hold it, the cache does
    shutil.copy(tiny / "cache" / "labelward" / "tiny.parquet", tiny / "tiny.parquet")
    with refused(DataError, "damaged", field=str(tiny / "tiny.parquet")):
        catalog.load_catalog_table("tiny")


def test_a_cache_that_cannot_be_written_is_named(tiny, monkeypatch):
    (tiny / "cache").write_text("a file in the way")
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda *args, **kwargs: ANSWER)
    with refused(DataError, "unwritable", field=str(tiny / "cache" / "labelward" / "tiny.parquet")):
        catalog.load_catalog_table("tiny")


def test_names_that_do_not_exist(nowhere):
    job = parse_job({"data": {"table": "breast_canser"}, "parties": {"active": 0.5, "telco": 0.5}})
    with refused(DataError, "unknown", field="[data] table", value="breast_canser") as caught:
        load_tables(job)
    assert "'breast_cancer'?" in str(caught.value)


@needs_folder
def test_quantities_and_points_in_time_are_read_as_such():
    job = parse_job({"data": {"table": "appliances_energy"}, "parties": {"active": ["T1"], "telco": ["date", "T2"]}})
    data = load_dataset(job, 1)
    assert (data.task, data.classes) == ("regression", ())
    telco = data.parties[1]
    assert telco.categories == {}
    minutes = (telco.train[:, 0] - 16811) * 1440  # 11 January 2016 is day 16811
    # one row each ten minutes, from 17:00 on; a day number has 53 binary digits, 14 of them before the point
    np.testing.assert_allclose(minutes, 1020 + 10 * data.train_ids.astype(int), rtol=0, atol=1e-6)
