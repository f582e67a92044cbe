"""Datasets of papers from the user's files: which they replace, what is held against the paper, and what is trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from labelward.cli.app import app
from labelward.errors import Code, DataError, InputError
from labelward.job import ComponentSpec
from labelward.report.study import StudyReport
from labelward.studies import load_studies
from labelward.studies.datasets import dealt, hashed, patches, pixels, shrunk, tokenized
from labelward.studies.own_tables import with_own_tables
from labelward.studies.references import NO_DEFENSE, UTILITY, FigureKey, ReferenceFigure
from labelward.studies.run import run_study
from labelward.studies.spec import MetricColumn, Study, StudyDataset, StudyModel, StudyPart, StudySetting
from refusals import refused

STUDY = Study(
    name="tiny",
    title="A tiny study",
    datasets=(
        StudyDataset(name="at_hand", title="Small", substitute="60 of 90 rows", shape=(90, 4, 2), on_request=True),
    ),
    unavailable={"lost": "Lost & found", "other": "Other"},
    own=(StudyDataset(name="lost", title="Lost & found", shape=(0, 4, 2), like="at_hand"),),
    models={"secureboost": StudyModel(title="XGBoost", spec=ComponentSpec("secureboost", {"trees": 1, "depth": 2}))},
    columns=(MetricColumn(title="CL", attack=ComponentSpec("clustering")),),
    settings=(StudySetting(name="default"),),
    parts=(StudyPart(name="table 1", title="One", form="grid", settings=("default",), datasets=("at_hand",)),),
    seeds=1,
)


def table_of(rows: int, columns: int, classes: int = 2) -> pa.Table:
    """The label is the first column, where a file may have it."""
    rng = np.random.default_rng(1)
    label = np.arange(rows) % classes
    values = {f"c{at}": rng.normal(size=rows) + label for at in range(columns)}
    return pa.table({"label": [f"class {each}" for each in label], **values})


def stored(folder: Path, rows: int = 90, columns: int = 4, classes: int = 2) -> Path:
    pq.write_table(table_of(rows, columns, classes), folder / "own.parquet")
    return folder / "own.parquet"


@pytest.mark.parametrize("name", ["lost", "Lost & Found", "LOST"])
def test_a_file_stands_where_nothing_was(tmp_path: Path, name: str) -> None:
    found = with_own_tables(STUDY, {name: stored(tmp_path)})
    assert [each.name for each in found.datasets] == ["at_hand", "lost"]
    assert found.unavailable == {"other": "Other"}
    assert found.parts[0].datasets == ("at_hand", "lost")
    assert with_own_tables(STUDY, {}) == STUDY


def test_a_file_replaces_a_substitute(tmp_path: Path) -> None:
    (dataset,) = with_own_tables(STUDY, {"small": stored(tmp_path)}).datasets
    assert (dataset.name, dataset.substitute, dataset.file) == ("at_hand", "", tmp_path / "own.parquet")
    assert not dataset.on_request


@pytest.mark.parametrize(
    ("rows", "columns", "classes", "code", "value"),
    [(89, 4, 2, "rows", 89), (90, 5, 2, "columns", 5), (90, 4, 3, "labels", 3)],
)
def test_a_file_that_is_not_the_dataset_is_refused(
    tmp_path: Path, rows: int, columns: int, classes: int, code: Code, value: int
) -> None:
    file = stored(tmp_path, rows, columns, classes)
    with refused(DataError, code, field=f"--table at_hand={file}", value=value):
        with_own_tables(STUDY, {"small": file})


def test_files_of_nothing_known_or_without_labels_are_refused(tmp_path: Path) -> None:
    with refused(InputError, "unknown", field="--table", value="other"):
        with_own_tables(STUDY, {"other": stored(tmp_path)})
    pq.write_table(table_of(90, 4).drop_columns("label"), tmp_path / "own.parquet")
    with refused(DataError, "columns", value="label"):
        with_own_tables(STUDY, {"small": tmp_path / "own.parquet"})
    ended = CliRunner().invoke(app, ["study", "ica", "--table", "5x", "--out", str(tmp_path / "out")])
    assert ended.exit_code == 2


def test_a_study_trains_on_the_file(tmp_path: Path) -> None:
    result = run_study(STUDY, tmp_path / "out", tables={"lost": stored(tmp_path)}, datasets=["lost"])
    assert not result.failed
    (job,) = result.jobs.values()
    trained = pq.read_table(job.data.table)
    assert trained.column_names == ["c0", "c1", "c2", "c3", "label"]
    assert trained.num_rows == 90
    assert not any("Lost" in title for title in result.missing)


def test_printed_figures_without_a_tolerance_are_said_to_have_none(tmp_path: Path) -> None:
    key = FigureKey("lost", "secureboost", NO_DEFENSE, UTILITY)
    study = replace(STUDY, printed={("table 1", key): ReferenceFigure(mean=0.7)})
    out = tmp_path / "out"
    for tried, said in ((study, "state no tolerance"), (STUDY, "no figure to compare")):
        result = run_study(tried, out, tables={"lost": stored(tmp_path)}, datasets=["lost"])
        assert said in StudyReport(result, out).verdict()


def test_another_file_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    """A folder whose audits are of the earlier file refuses to mix; without them the new file is converted."""
    out, file = tmp_path / "out", stored(tmp_path)
    (before,) = run_study(STUDY, out, tables={"lost": file}, datasets=["lost"]).jobs.values()
    pq.write_table(table_of(120, 4), file)
    other = run_study(STUDY, out, tables={"lost": file}, datasets=["lost"])
    (after,) = other.jobs.values()
    assert before.data.table != after.data.table
    assert pq.read_table(after.data.table).num_rows == 120
    assert list(other.failed) == ["default/lost/secureboost/1"]
    again = run_study(STUDY, tmp_path / "new", tables={"lost": file}, datasets=["lost"])
    assert not again.failed


def test_images_are_scaled_and_shrunk() -> None:
    """A white square of 2 x 2 pixels becomes one white pixel in its channel."""
    values = np.zeros((2, 3, 32, 32), np.uint8)
    values[1, 2, 4:6, 30:32] = 255
    columns = {f"p{at}": each for at, each in enumerate(values.reshape(2, -1).T.copy())}
    table = pa.table({**columns, "label": [0, 1]})
    scaled = pixels(table)
    assert float(scaled["p3071"].to_numpy().max()) == 0.0
    small = shrunk(table, width=16)
    assert small.num_columns == 3 * 16 * 16 + 1
    assert small["b2_15"].to_pylist() == [0.0, 1.0]
    assert sum(float(small[name].to_numpy().sum()) for name in small.column_names[:-1]) == 1.0


def patches_of(rows: int, width: int = 4) -> pa.Table:
    """The first pixel of a patch is its number; every third patch is of label 1, and all are of two patients."""
    values = np.zeros((rows, 3 * width**2))
    values[:, 0] = np.arange(rows)
    columns = {f"p{at}": each for at, each in enumerate(values.T.copy())}
    whose = [f"patient {at * 2 // rows}" for at in range(rows)]
    return pa.table({"label": np.arange(rows) % 3 // 2, "patient": whose, **columns})


def test_patches_are_dealt_round_robin_within_patient_and_label() -> None:
    made = dealt(patches_of(30), 3)
    own = np.column_stack([made[f"patch{at}_p0"].to_numpy() for at in range(3)])
    assert own.tolist() == [
        [0, 1, 3],
        [4, 6, 7],
        [9, 10, 12],
        [2, 5, 8],
        [15, 16, 18],
        [19, 21, 22],
        [24, 25, 27],
        [17, 20, 23],
    ]
    assert made["label"].to_pylist() == [0, 0, 0, 1, 0, 0, 0, 1]
    assert made.column_names[:2] == ["patch0_p0", "patch0_p1"]
    assert made.column_names[-1] == "label"
    assert made.num_columns == 3 * 48 + 1
    with refused(DataError, "rows", field="patient", value=11):
        dealt(patches_of(30), 11)


def test_patches_are_shrunk_and_keep_their_patients() -> None:
    table = patches_of(6)
    small = patches(table.select([*table.column_names[1:], "label"]), width=2)
    assert small.column_names == [
        "patient",
        *(f"{color}{at}" for color in "rgb" for at in ("0_0", "0_1", "1_0", "1_1")),
        "label",
    ]
    np.testing.assert_allclose(small["r0_0"].to_numpy(), np.arange(6) / 4 / 255, rtol=1e-6)
    assert small["patient"].equals(table["patient"])


def test_patches_need_their_patients(tmp_path: Path) -> None:
    (own,) = (each for each in load_studies()["label-inference"].own if each.name == "bhi")
    assert own.shape == (277_524, 7_501, 2)
    study = replace(STUDY, own=(replace(own, shape=(30, 49, 2), like="at_hand"),), unavailable={"bhi": "BHI"})
    file = tmp_path / "own.parquet"
    pq.write_table(patches_of(30), file)
    assert [each.name for each in with_own_tables(study, {"BHI": file}).datasets] == ["at_hand", "bhi"]
    pq.write_table(patches_of(30).rename_columns(["label", "whose", *(f"p{at}" for at in range(48))]), file)
    with refused(DataError, "columns", field=f"--table bhi={file}", value="patient"):
        with_own_tables(study, {"bhi": file})


@pytest.mark.filterwarnings("ignore:the order of the rows:labelward.errors.DataWarning")  # patches come by class
def test_a_study_deals_the_patches_of_a_file(tmp_path: Path) -> None:
    """A table for each number of parties, each of whom has a patch of every row."""
    dataset = StudyDataset(name="lost", title="L", shape=(0, 49, 2), like="at_hand", patches=True, image_width=4)
    settings = tuple(StudySetting(name=f"of-{number}", parties=number) for number in (2, 3))
    part = replace(STUDY.parts[0], settings=tuple(each.name for each in settings))
    study = replace(STUDY, own=(dataset,), settings=settings, parts=(part,))
    file = tmp_path / "own.parquet"
    pq.write_table(patches_of(120), file)
    result = run_study(study, tmp_path / "out", tables={"lost": file}, datasets=["lost"])
    assert not result.failed
    for job, parties, rows in zip(result.jobs.values(), (2, 3), (60, 38), strict=True):
        assert [len(party.columns or ()) for party in job.parties] == [48] * parties
        assert pq.read_table(job.data.table).num_rows == rows


def test_texts_and_hashed_columns_keep_their_labels() -> None:
    texts = tokenized(pa.table({"title": ["a b", "c"], "text": ["d", None], "label": [1, 0]}))
    assert texts["label"].to_pylist() == [1, 0]
    assert texts["first0"].to_pylist() != [0, 0]
    made = hashed(pa.table({"site": ["x", "y"], "price": [1.0, None], "label": [1, 0]}), buckets=8)
    sums = np.column_stack([made[f"h{at}"].to_numpy() for at in range(8)]).sum(axis=1)
    np.testing.assert_allclose(sums, [1 + np.log(2), 1], rtol=1e-6)


@pytest.mark.parametrize("full", [False, True])
def test_what_the_papers_name_can_be_read_from_files(full: bool) -> None:
    """Each has a name of its own, stands for one that is missing, and is like one at hand."""
    for study in load_studies().values():
        used = study.full if full and study.full is not None else study
        at_hand = {each.name for each in used.datasets}
        for each in used.own:
            assert each.name in used.unavailable
            assert each.name not in at_hand
            assert not each.like or each.like in at_hand
            assert each.shape is not None
    assert {each.name for each in load_studies()["label-inference"].own} == {
        "cifar100",
        "cinic10",
        "yahoo_answers",
        "bhi",
    }
    assert [each.name for each in load_studies()["id2graph"].own] == ["pucrio"]
