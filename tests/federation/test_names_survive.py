"""Names of columns, categories, classes and ids from a CSV file by the command line to XGBoost, treelite and Python.

Each reads the exported file by itself, the last one by the lines of the documentation, and predicts the same classes.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from typer.testing import CliRunner

from labelward.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "how-to-explain.md"
ROWS = 150
CLASSES = {"two": ("nein", "ja"), "five": ("ja", "nein", "€", "年龄", "🙂")}
JOB = """
[data]
table = "rows.csv"
label = "gekündigt?"
id = "Kunde №"
positive = {positive}
[parties]
active = ["Preis €", "年龄"]
telco = ["Größe 🙂", "城市"]
[model]
trees = 3
depth = 3
[encryption]
engine = "plain"
insecure = true
"""
Rows = list[dict[str, Any]]


def _cells() -> tuple[Rows, dict[str, list[str]]]:
    """Return rows with cells as a program has them, and for each case the class of each row."""
    draw = np.random.default_rng(5)
    rows: Rows = []
    for row in range(ROWS):
        rows.append(
            {
                "Kunde №": f"№{row:03d} 🙂",
                "Preis €": round(float(draw.normal(50, 20)), 2),
                "年龄": int(draw.integers(18, 90)) if row % 11 else None,
                "Größe 🙂": float(np.float32(draw.normal())),
                "城市": str(draw.choice(["北京", "Köln", "€uro", "🙂🙂"])),
            }
        )
    score = [(each["年龄"] or 50) / 20 + 2 * (each["城市"] in ("北京", "🙂🙂")) + each["Größe 🙂"] for each in rows]
    found = {}
    for case, names in CLASSES.items():
        edges = np.quantile(score, np.linspace(0, 1, len(names) + 1)[1:-1])
        found[case] = [names[place] for place in np.searchsorted(edges, score)]
    return rows, found


def _call(*arguments: object) -> None:
    done = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="labelward")
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module", params=list(CLASSES))
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows, list[str]]:
    """A folder with ``rows.csv``, ``predictions.csv`` and ``model.json``, the rows, and the names of the classes."""
    folder = tmp_path_factory.mktemp(request.param)
    rows, labels = _cells()
    with (folder / "rows.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "gekündigt?"])
        writer.writeheader()
        writer.writerows({**row, "gekündigt?": label} for row, label in zip(rows, labels[request.param], strict=True))
    job = JOB.format(positive='"ja"') if request.param == "two" else JOB.replace("positive = {positive}\n", "")
    (folder / "job.toml").write_text(job, encoding="utf-8")
    _call("train", folder / "job.toml", "--defense", "none", "--out", folder / "model", "--quiet")
    _call("predict", folder / "model", "--table", folder / "rows.csv", "--out", folder / "predictions.csv")
    told = ("--consent", "telco", "--names", "telco")
    _call("export", folder / "model", *told, "--out", folder / "model.json")
    return (
        folder,
        rows,
        sorted(CLASSES[request.param], key=lambda name: (request.param == "two" and name == "ja", name)),
    )


def _predicted(folder: Path) -> list[dict[str, str]]:
    with (folder / "predictions.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _recipe(folder: Path) -> dict[str, Any]:
    """Return what the lines of the documentation define, read in a folder."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (block,) = [each for each in blocks if "def margins" in each]
    code = block.split("# compared with")[0].replace('Path("model.json")', f"Path({str(folder / 'model.json')!r})")
    names: dict[str, Any] = {}
    exec(compile(code, "how-to-explain", "exec"), names)
    return names


def _matrix(model: dict[str, Any], rows: Rows) -> np.ndarray:
    """Return the rows as numbers, by the names in the exported file and nothing else."""
    return np.array([[model["number"](name, row[name]) for name in model["names"]] for row in rows])


def _probabilities(margins: list[float]) -> list[float]:
    if len(margins) == 1:
        share = 1 / (1 + math.exp(-margins[0]))
        return [1 - share, share]
    powers = [math.exp(each - max(margins)) for each in margins]
    return [each / sum(powers) for each in powers]


def _in_python(folder: Path, rows: Rows) -> np.ndarray:
    model = _recipe(folder)
    return np.array([_probabilities(model["margins"](row)) for row in rows])


def _in_xgboost(folder: Path, rows: Rows) -> np.ndarray:
    booster = xgboost.Booster(model_file=str(folder / "model.json"))
    model = _recipe(folder)
    assert booster.feature_names == model["names"]
    assert json.loads(booster.attr("labelward.classes")) == model["classes"]
    booster.save_model(folder / "again.json")  # names survive its own writer
    again = xgboost.Booster(model_file=str(folder / "again.json"))
    assert again.feature_names == model["names"]
    assert again.attributes() == booster.attributes()
    types = again.feature_types
    found = again.predict(xgboost.DMatrix(_matrix(model, rows), feature_names=model["names"], feature_types=types))
    return np.stack([1 - found, found], axis=1) if found.ndim == 1 else found


def _in_treelite(folder: Path, rows: Rows) -> np.ndarray:
    treelite = pytest.importorskip("treelite")
    model = _recipe(folder)
    read = treelite.frontend.load_xgboost_model(str(folder / "model.json"))
    assert read.num_feature == len(model["names"])
    found = treelite.gtil.predict(read, _matrix(model, rows).astype(np.float32)).reshape(len(rows), -1)
    return np.hstack([1 - found, found]) if found.shape[1] == 1 else found


@pytest.mark.parametrize("reader", [_in_python, _in_xgboost, _in_treelite], ids=["python", "xgboost", "treelite"])
def test_every_reader_predicts_the_same(
    exported: tuple[Path, Rows, list[str]], reader: Callable[[Path, Rows], np.ndarray]
) -> None:
    folder, rows, classes = exported
    lines = _predicted(folder)
    found = reader(folder, rows)
    assert _recipe(folder)["classes"] == classes
    wanted = np.array([[float(line[f"probability_{name}"]) for name in classes] for line in lines])
    np.testing.assert_allclose(found, wanted, atol=2e-6)  # sums of three leaves in float32
    assert [classes[at] for at in found.argmax(axis=1)] == [line["prediction"] for line in lines]


def test_predictions_have_ids_and_names(exported: tuple[Path, Rows, list[str]]) -> None:
    folder, rows, classes = exported
    lines = _predicted(folder)
    assert [line["Kunde №"] for line in lines] == [row["Kunde №"] for row in rows]
    margin = ["margin"] if len(classes) == 2 else [f"margin_{name}" for name in classes]
    assert list(lines[0]) == ["Kunde №", *margin, *(f"probability_{name}" for name in classes), "prediction"]


def test_the_model_splits_on_names_of_every_kind(exported: tuple[Path, Rows, list[str]]) -> None:
    """Otherwise nothing above could go wrong."""
    model = _recipe(exported[0])
    assert model["names"] == ["Preis €", "年龄", "Größe 🙂", "城市"]
    assert model["categories"] == {"城市": sorted(["北京", "Köln", "€uro", "🙂🙂"])}
    used = {model["names"][at] for tree in model["model"]["trees"] for at in tree["split_indices"]}
    assert {"年龄", "Größe 🙂", "城市"} <= used
