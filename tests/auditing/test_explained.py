"""What audits keep of the embeddings and images of split networks, for the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from labelward.auditing.audit import audit
from labelward.errors import DataWarning, FileFormatError
from labelward.job import ComponentSpec, DataSection, Job, LeakageSection, PartySection, RunSection
from labelward.leakage import embeddings
from labelward.leakage.embeddings import (
    EXPLANATIONS_FILE,
    Explanations,
    neighbor_accuracy,
    project_to_plane,
    read_explanations,
)
from labelward.report.page import write_report
from labelward.runs.schema import read_rows
from refusals import refused

torch.set_num_threads(1)
pytestmark = pytest.mark.plots


def slow_neighbors(embedding: np.ndarray, labels: np.ndarray, neighbors: int) -> float:
    right = 0
    for row in range(len(labels)):
        far = ((embedding - embedding[row]) ** 2).sum(1)
        far[row] = np.inf
        told = labels[np.argsort(far)[:neighbors]].tolist()
        most = max(map(told.count, told))
        best = [label for label in sorted(set(told)) if told.count(label) == most]
        right += (told[0] if told[0] in best else best[0]) == labels[row]
    return right / len(labels)


@pytest.mark.parametrize("neighbors", [1, 4, 5])
def test_neighbors_vote_and_the_nearest_breaks_ties(neighbors: int) -> None:
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 4, 90)
    embedding = draw.normal(size=(90, 3)) + labels[:, None]
    found = neighbor_accuracy(embedding, labels, neighbors)
    assert found == pytest.approx(slow_neighbors(embedding, labels, neighbors), abs=1e-12)
    assert 0.25 < found < 1


def test_a_row_is_not_its_own_neighbor() -> None:
    """Pairs of equal rows with different labels: nobody's nearest row has its label, even at distance 0."""
    embedding = np.repeat(np.arange(6.0) * 10, 2)[:, None]
    assert neighbor_accuracy(embedding, np.tile([0, 1], 6), 1) == 0
    assert neighbor_accuracy(embedding, np.repeat(np.arange(6) % 2, 2), 1) == 1


@pytest.mark.parametrize("numbers", [1, 2, 8])
def test_the_plane_keeps_groups_apart_and_is_the_same_each_time(numbers: int) -> None:
    labels = np.arange(60) % 3
    embedding = np.random.default_rng(2).normal(0, 0.05, (60, numbers)) + labels[:, None]
    points = project_to_plane(embedding, seed=3)
    assert points.min() == 0
    assert points.max() == 1
    assert neighbor_accuracy(points, labels) > 0.95  # on a line a row cannot pass by another
    np.testing.assert_array_equal(points, project_to_plane(embedding, seed=3))


def test_an_embedding_of_equal_rows_is_one_point() -> None:
    assert (project_to_plane(np.ones((30, 4)), seed=1) == 0.5).all()


NET = {"kind": "splitnn", "epochs": 10, "batch_size": 32, "learning_rate": 0.02, "width": 8}


@pytest.fixture(scope="module")
def tables(job: Callable[..., Job], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit of two seeds with a defense and an active attack by the passive party."""
    out = tmp_path_factory.mktemp("explained") / "tables"
    attack = [{"kind": "active-completion", "auxiliary": 10, "steps": 2}]
    defense = [{"kind": "gradient-compression", "keep": 0.5}]
    run, leakage = {"seeds": [2, 1]}, {"upper_bound": False, "privacy": False}
    parties = {"active": 0.5, "telco": 0.5}
    made = job(parties=parties, model=NET, encryption=None, defense=defense, attack=attack, run=run, leakage=leakage)
    with pytest.MonkeyPatch.context() as patch:  # all rows in the fewest steps: where points come to lie is not asked
        patch.setattr(embeddings, "_ITERATIONS", 250)
        audit(made, out)
    return out


def read(folder: Path) -> Explanations:
    found = read_explanations(folder)
    assert found is not None
    return found


@pytest.mark.slow
def test_each_run_of_the_first_seed_is_looked_at(tables: Path) -> None:
    folders = sorted(tables.glob("runs/*/*"))
    assert len(folders) == 2 * 2 * 2
    for folder in folders:
        assert (folder / EXPLANATIONS_FILE).exists() == folder.name.startswith("2"), folder
        if folder.name.startswith("2"):
            assert [each.party for each in read(folder).embeddings] == ["telco"]


@pytest.mark.slow
def test_training_brings_labels_together_and_the_untrained_bottom_is_the_same_in_all_runs(tables: Path) -> None:
    honest, other = read(tables / "runs/none/2"), read(tables / "runs/none/2-telco-malicious-optimizer")
    defended = read(tables / "runs/gradient-compression-keep-0.5/2")
    for each, same in zip(honest.embeddings, defended.embeddings, strict=True):
        assert each.before == same.before
        assert each.labels == same.labels
        assert each.after != same.after
    assert other.embeddings[0].before == honest.embeddings[0].before
    assert honest.classes == ("0", "1")
    (telco,) = honest.embeddings
    assert telco.rows == len(telco.labels) == len(telco.before.points) == len(telco.after.points) == 455
    assert telco.frequent == pytest.approx(max(np.bincount(telco.labels)) / 455)
    assert telco.after.neighbors > telco.frequent + 0.2  # .63 by guessing; trained bottoms reach above .9
    points = np.array(telco.after.points)
    assert points.min() == 0
    assert points.max() == 1000


@pytest.mark.slow
def test_the_report_draws_them(tables: Path) -> None:
    text = write_report(tables).read_text(encoding="utf-8")
    assert ">Labels in the bottom" in text
    assert text.count("data:image/png;base64,") == 2 * 2
    assert "no defense, telco: malicious-optimizer</summary>" in text
    assert "nearest neighbors by embedding" in text
    assert "Grad-CAM" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "noise",
    [
        {"kind": "randomized-response", "epsilon": 1.0},
        {"kind": "noisy-gradients", "distribution": "gaussian", "epsilon": 8.0, "delta": 1e-5, "clip": 0.1},
    ],
    ids=lambda noise: noise["kind"],
)
def test_no_row_is_shown_where_a_defense_states_an_epsilon(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: dict[str, object]
) -> None:
    monkeypatch.setattr(embeddings, "_ITERATIONS", 250)
    made = job(
        parties={"active": 0.5, "telco": 0.5}, model=NET | {"epochs": 1}, encryption=None, defense=[noise], attack=[],
        run={"seeds": [1]}, leakage={"upper_bound": False, "privacy": False},
    )  # fmt: skip
    audit(made, tmp_path / "run")
    folders = sorted((tmp_path / "run/runs").iterdir(), key=lambda folder: folder.name == "none")
    ((private,), (plain,)) = (read(folder / "1").embeddings for folder in folders)
    assert (private.labels, private.before.points, private.after.points) == ((), (), ())
    assert private.rows == len(plain.labels) == 455
    assert private.before.neighbors == plain.before.neighbors
    assert write_report(tmp_path / "run").read_text(encoding="utf-8").count("data:image/png;base64,") == 1


@pytest.mark.slow
def test_a_damaged_file_is_named(tables: Path, tmp_path: Path) -> None:
    (tmp_path / EXPLANATIONS_FILE).write_text('{"format": 2}')
    with refused(FileFormatError, "damaged", field=str(tmp_path / "explanations.json")):
        read_explanations(tmp_path)
    assert read_explanations(tables) is None


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit of images whose label shows in the passive party's half alone: a bright pixel at one of two places."""
    folder = tmp_path_factory.mktemp("explained")
    draw = np.random.default_rng(3)
    labels = np.arange(120) % 2
    halves = draw.uniform(0, 0.2, (120, 2, 8, 4))
    halves[np.arange(120), 1, np.where(labels, 6, 1), 2] = 3.0
    names = [f"c{at}" for at in range(64)]
    flat = halves.reshape(120, 64)
    table = {name: flat[:, at] for at, name in enumerate(names)}
    pq.write_table(pa.table({**table, "label": labels}), folder / "table.parquet")
    model = {"bottom": "resnet-20", "height": 8, "epochs": 4, "batch_size": 15, "learning_rate": 0.02}
    made = Job(
        data=DataSection(table=str(folder / "table.parquet"), label="label", test_size=0.25),
        parties=(
            PartySection(name="active", columns=tuple(names[:32])),
            PartySection(name="telco", columns=tuple(names[32:])),
        ),
        model=ComponentSpec("splitnn", model),
        leakage=LeakageSection(upper_bound=False, privacy=False),
        run=RunSection(seeds=(1,)),
    )
    with pytest.warns(DataWarning):  # each of the two pixels tells the label alone
        audit(made, folder / "out")
    return folder / "out"


@pytest.mark.slow
def test_images_have_maps_that_look_where_the_label_is(images: Path) -> None:
    found = read(images / "runs/none/1")
    assert list(found.evidence) == ["active", "telco"]
    assert sum(found.evidence.values()) == pytest.approx(1)
    assert found.evidence["telco"] > 0.5  # .57 to .93, by initial weights
    assert found.evidence_rows == 30
    assert [picture.label for picture in found.pictures] == [0, 1]
    for picture in found.pictures:
        active, telco = picture.parts
        assert active.shape == telco.shape == (1, 8, 4)
        pixels = np.frombuffer(telco.pixels, dtype=np.uint8).reshape(8, 4)
        assert np.unravel_index(pixels.argmax(), (8, 4)) == (6 if picture.label else 1, 2)
        assert telco.cells == (2, 1)
        assert max(*active.map, *telco.map) == 255
    text = write_report(images).read_text(encoding="utf-8")
    assert "(Grad-CAM)" in text
    assert text.count("data:image/png;base64,") == 2


def test_it_can_be_left_out_and_trees_have_none(
    job: Callable[..., Job], finished: tuple[Path, list], tmp_path: Path
) -> None:
    made = job(model={**NET, "epochs": 1}, encryption=None, defense=None, attack=None, run={"seeds": [1]})
    audit(made, tmp_path / "out", explained=False)
    assert len(read_rows(tmp_path / "out")) == 2
    assert not list(tmp_path.rglob(EXPLANATIONS_FILE))
    assert not list(finished[0].rglob(EXPLANATIONS_FILE))
