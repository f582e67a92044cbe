"""Tables of the catalog that hold texts, images or columns of many values: read by jobs of five lines.

The tables are made up, of the shape of the catalog's; their entries take the place of these.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelward.auditing.audit import audit
from labelward.data import catalog, load_dataset
from labelward.data.content import IMAGE_WIDTH, token, words
from labelward.errors import DataError, JobError
from labelward.job import Job, parse_job
from refusals import refused

ROWS = 48
HALVES = {"active": 0.5, "telco": 0.5}
SUBJECTS = (("goal match team", "the striker scored a late goal"), ("stock market bank", "shares of the bank fell"))
SMALL: dict[str, dict[str, Any]] = {
    "ag_news_7600": {"kind": "splitnn", "bottom": "bert-small", "epochs": 1, "batch_size": 16, "vocabulary": 500},
    "dbpedia_14k": {"kind": "secureboost", "trees": 2, "depth": 2},
    "cifar10_10k": {
        "kind": "splitnn",
        "bottom": "resnet-20",
        "height": 8,
        "channels": 3,
        "epochs": 1,
        "batch_size": 16,
    },
    "criteo_8k": {"kind": "forest", "trees": 2, "depth": 2},
}


def texts(rng: np.random.Generator, label: np.ndarray) -> list[str]:
    """Every fourth text is of the other subject, so that no word names the class."""
    label = np.where(rng.random(len(label)) < 0.25, 1 - label, label)
    return [" ".join(rng.permutation(SUBJECTS[one][1].split())) + f" No. {rng.integers(99)}!" for one in label]


def made_up(name: str, rng: np.random.Generator) -> pa.Table:
    """Return a small table with the columns of one of the catalog, and two classes."""
    label = np.arange(ROWS) % 2
    columns: dict[str, Any] = {}
    if name == "ag_news_7600":
        columns = {"title": [SUBJECTS[one][0] for one in rng.permutation(label)], "description": texts(rng, label)}
    elif name == "dbpedia_14k":
        columns = {"text": texts(rng, label)}
    elif name == "cifar10_10k":
        dark = rng.integers(0, 100, (ROWS, 1, 1, 1)) + 60 * label[:, None, None, None]
        images = rng.integers(0, 90, (ROWS, IMAGE_WIDTH, IMAGE_WIDTH, 3)) + dark
        stored = [image.astype(np.uint8).tobytes() for image in images]
        columns = {"image": pa.array(stored, pa.binary(3 * IMAGE_WIDTH**2)), "split": ["train"] * ROWS}
    else:
        columns = {f"I{at}": rng.normal(size=ROWS) + label for at in range(1, 14)}
        columns |= {f"C{at}": [f"{rng.integers(16**8):08x}" for _ in label] for at in range(1, 27)}
    return pa.table({**columns, "label": [str(one) for one in label]})


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], pa.Table]:
    """Put a made-up table in the place of one of the catalog."""

    def put(name: str) -> pa.Table:
        table, file = made_up(name, np.random.default_rng(1)), tmp_path / f"{name}.parquet"
        pq.write_table(table, file)
        known = dict(catalog.catalog_entries())
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        counts = {"0": ROWS // 2, "1": ROWS // 2}
        known[name] = dataclasses.replace(known[name], rows=ROWS, classes=counts, sha256=digest)
        monkeypatch.setattr(catalog, "_stored_entries", lambda: known)
        monkeypatch.setenv("LABELWARD_DATA", str(tmp_path))
        return table

    return put


def job_of(name: str, **sections: Any) -> Job:
    """Return the job of five lines; a model makes it smaller."""
    return parse_job({"data": {"table": name}, "parties": HALVES, **sections})


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_five_lines_are_a_job(stand_in: Callable[[str], pa.Table], tmp_path: Path, name: str) -> None:
    """Loaded with the default model and audited with a small one, as the command line does."""
    stand_in(name)
    data = load_dataset(job_of(name), 1)
    assert [party.train.shape[1] > 0 for party in data.parties] == [True, True]
    if SMALL[name]["kind"] == "splitnn":
        pytest.importorskip("torch")
    sections = {} if SMALL[name]["kind"] == "splitnn" else {"encryption": {"engine": "plain", "insecure": True}}
    made = job_of(name, model=SMALL[name], attack=[{"kind": "clustering"}], run={"seeds": [1]}, **sections)
    rows = audit(made, tmp_path / "audit")
    assert "clustering" in {row.attack["kind"] for row in rows if row.attack}
    assert all(np.isfinite(row.utility["auc"]) for row in rows if row.utility)


def test_tokens_are_dealt_out_as_they_stand(stand_in: Callable[[str], pa.Table]) -> None:
    """A run of positions for each party: the first half of a text, and the second."""
    table = stand_in("ag_news_7600")
    data = load_dataset(job_of("ag_news_7600", model=SMALL["ag_news_7600"]), 1)
    active, telco = data.parties
    assert list(active.columns) == [f"token{at:02d}" for at in range(32)]
    assert list(telco.columns) == [f"token{at:02d}" for at in range(32, 64)]
    row = int(data.table_rows.train[0])
    text = f"{table['title'][row]} {table['description'][row]}"
    expected = [token(word, 500) for word in words(text)][:32]
    assert active.train[0, : len(expected)].tolist() == expected
    assert not active.train[0, len(expected) :].any()


def test_words_are_counted_for_other_models(stand_in: Callable[[str], pa.Table]) -> None:
    """No word is lost, and none is counted twice."""
    table = stand_in("dbpedia_14k")
    data = load_dataset(job_of("dbpedia_14k"), 1)
    counts = np.hstack([party.train for party in data.parties])
    assert counts.shape[1] == 256
    found = [len(words(str(table["text"][int(row)]))) for row in data.table_rows.train]
    assert counts.sum(axis=1).tolist() == found


def test_images_are_cut_into_strips(stand_in: Callable[[str], pa.Table]) -> None:
    """Of 8 x 8 pixels the left half and the right, with the means of 4 x 4 pixels."""
    table = stand_in("cifar10_10k")
    data = load_dataset(job_of("cifar10_10k"), 1)
    left, right = data.parties
    assert {name.split("_")[1] for name in left.columns} == set("0123")
    assert {name.split("_")[1] for name in right.columns} == set("4567")
    row = int(data.table_rows.train[0])
    image = np.frombuffer(table["image"][row].as_py(), np.uint8).reshape(32, 32, 3)
    mean = image[4:8, 20:24, 1].mean() / 255
    assert right.train[0, list(right.columns).index("g1_5")] == pytest.approx(mean, abs=1e-6)  # stored as float32


@pytest.mark.parametrize("height", [5, 0, -1, 64, "8"])
def test_heights_that_do_not_divide_an_image(stand_in: Callable[[str], pa.Table], height: Any) -> None:
    stand_in("cifar10_10k")
    model = {"kind": "splitnn", "bottom": "resnet-20", "height": height, "channels": 3}
    with refused(JobError, "choice", field="[model] height", value=height):
        load_dataset(job_of("cifar10_10k", model=model), 1)


def test_columns_of_many_values_are_hashed_unless_the_job_says_otherwise(stand_in: Callable[[str], pa.Table]) -> None:
    stand_in("criteo_8k")
    data = load_dataset(job_of("criteo_8k"), 1)
    names = [name for party in data.parties for name in party.columns]
    assert sum(name.endswith("#1000") for name in names) == 26
    assert len(names) == 39
    with pytest.raises(DataError) as caught:
        load_dataset(job_of("criteo_8k", data={"table": "criteo_8k", "categories": "dummies"}), 1)
    assert caught.value.code
