"""Where an estimator is saved, what is never overwritten, and which files are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from people_table import OPEN
from sklearn.exceptions import NotFittedError

from labelward.errors import FileFormatError, OutputError
from labelward.estimators import FederatedForestClassifier, SecureBoostClassifier
from labelward.estimators._errors import InvalidInputError
from labelward.federation.model import FederatedModel
from labelward.federation.train import train_variant
from labelward.job import parse_job
from labelward.protocols.secureboost.share import ModelShare
from refusals import refused

Numbers = tuple[np.ndarray, np.ndarray]
SMALL: dict[str, Any] = {"n_estimators": 2, "max_depth": 2, **OPEN}
JOB = """
[data]
table = "breast_cancer"
[parties]
active = 0.5
passive = 0.5
[model]
trees = 1
depth = 1
[encryption]
engine = "plain"
insecure = true
"""


@pytest.fixture(scope="module")
def fitted(numbers: Numbers) -> SecureBoostClassifier:
    return SecureBoostClassifier(**SMALL).fit(*numbers)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return all that lies in a folder, hidden files too."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_saved_models_that_do_not_fit(numbers: Numbers, tmp_path: Path) -> None:
    model = SecureBoostClassifier(**SMALL)
    with pytest.raises(NotFittedError):
        model.save(tmp_path / "a")
    model.fit(*numbers).save(tmp_path / "a")
    model.fit(*numbers).save(tmp_path / "b")
    with refused(
        FileFormatError, "foreign", field=str(tmp_path / "a" / "estimator.json"), value="SecureBoostClassifier"
    ):
        FederatedForestClassifier.load(tmp_path / "a")
    with refused(FileFormatError, "unreadable", value=str(tmp_path / "c" / "estimator.json")):
        SecureBoostClassifier.load(tmp_path / "c")
    (tmp_path / "a" / "passive").rename(tmp_path / "old")
    (tmp_path / "b" / "passive").rename(tmp_path / "a" / "passive")
    with refused(FileFormatError, "other-run", field=str(tmp_path / "a" / "passive"), value="passive"):
        SecureBoostClassifier.load(tmp_path / "a")
    text = (tmp_path / "b" / "estimator.json").read_text()
    (tmp_path / "b" / "estimator.json").write_text(text.replace('"format":1', '"format":7'))
    with refused(FileFormatError, "format-version", field=str(tmp_path / "b" / "estimator.json"), value=7):
        SecureBoostClassifier.load(tmp_path / "b")
    (tmp_path / "b" / "estimator.json").write_text(text[:-9])
    with refused(FileFormatError, "damaged", field=str(tmp_path / "b" / "estimator.json")):
        SecureBoostClassifier.load(tmp_path / "b")
    with refused(InvalidInputError, "type", field="random_state"):
        model.set_params(random_state=np.random.RandomState(1)).fit(*numbers).save(tmp_path / "d")


def test_a_folder_of_a_training_is_never_written_into(fitted: SecureBoostClassifier, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_variant(parse_job(JOB), run, seed=1)
    before = contents(run)
    for folder in (run, run / "model", run / "active" / "model"):
        for overwrite in (False, True):
            with refused(OutputError, "exists", field=str(folder), value=str(run)):
                fitted.save(folder, overwrite=overwrite)
    assert contents(run) == before
    with refused(FileFormatError, "unreadable", value=str(tmp_path / "run" / "estimator.json")):
        SecureBoostClassifier.load(run)


def test_a_training_is_never_written_into_the_folder_of_an_estimator(
    fitted: SecureBoostClassifier, tmp_path: Path
) -> None:
    before = contents(fitted.save(tmp_path / "model"))
    with refused(FileFormatError, "foreign", field=str(tmp_path / "model")):
        FederatedModel.load(tmp_path / "model")
    for force in (False, True):
        with refused(OutputError, "foreign", field=str(tmp_path / "model")):
            train_variant(parse_job(JOB), tmp_path / "model", seed=1, force=force)
    assert contents(tmp_path / "model") == before


def test_a_folder_with_other_files_is_never_written_into(fitted: SecureBoostClassifier, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("buy milk")
    with refused(OutputError, "foreign", field=str(tmp_path / "notes")):
        fitted.save(tmp_path / "notes", overwrite=True)
    fitted.save(tmp_path / "model")
    (tmp_path / "model" / "passive" / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    with refused(OutputError, "foreign", field=str(tmp_path / "model"), value="passive/notes.txt"):
        fitted.save(tmp_path / "model", overwrite=True)
    with refused(OutputError, "exists", field=str(tmp_path / "model" / "second"), value=str(tmp_path / "model")):
        fitted.save(tmp_path / "model" / "second", overwrite=True)
    with refused(OutputError, "exists", field=str(tmp_path / "notes" / "todo.txt")):
        fitted.save(tmp_path / "notes" / "todo.txt")
    with refused(OutputError, "unwritable", field=str(tmp_path / "notes" / "todo.txt" / "model")):
        fitted.save(tmp_path / "notes" / "todo.txt" / "model")
    assert contents(tmp_path) == before


def test_a_saved_estimator_is_replaced_where_that_is_wanted(numbers: Numbers, tmp_path: Path) -> None:
    X, y = numbers
    (tmp_path / "model").mkdir()
    folder = SecureBoostClassifier(**SMALL).fit(X, y).save(tmp_path / "model")
    parties = {"bank": [0, 1], "telco": [2], "shop": [3]}
    other = FederatedForestClassifier(**SMALL, parties=parties).fit(X, y)
    with refused(OutputError, "exists", field=str(tmp_path / "model"), value="SecureBoostClassifier"):
        other.save(folder)
    SecureBoostClassifier.load(folder)
    other.save(folder, overwrite=True)
    np.testing.assert_array_equal(FederatedForestClassifier.load(folder).predict_proba(X), other.predict_proba(X))
    assert sorted(path.name for path in folder.iterdir()) == ["bank", "estimator.json", "shop", "telco"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_interrupted_save_leaves_what_was_there(
    fitted: SecureBoostClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    """Interrupted as the second share is written, and as the new folder takes its place."""
    folder = tmp_path / "model"
    if overwrite:
        fitted.save(folder)
    before = contents(tmp_path)

    def interrupted(self: ModelShare, path: Path) -> Path:
        if self.party == "passive":
            raise KeyboardInterrupt
        return save(self, path)

    save, rename = ModelShare.save, Path.rename
    with monkeypatch.context() as patch:
        patch.setattr(ModelShare, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted.save(folder, overwrite=overwrite)
    assert contents(tmp_path) == before

    def stopped(self: Path, target: Path) -> Path:
        if self.name == "made":
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", stopped)
        with pytest.raises(KeyboardInterrupt):
            fitted.save(folder, overwrite=overwrite)
    assert contents(tmp_path) == before


def test_where_a_save_that_was_killed_left_the_estimator(fitted: SecureBoostClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    (tmp_path / ".model.k1ll3d").mkdir()
    shutil.move(tmp_path / "model", tmp_path / ".model.k1ll3d" / "replaced")
    with refused(FileFormatError, "unreadable", value=str(tmp_path / "model" / "estimator.json")):
        SecureBoostClassifier.load(tmp_path / "model")
    SecureBoostClassifier.load(tmp_path / ".model.k1ll3d" / "replaced")


def test_constraints_by_position_are_saved(numbers: Numbers, tmp_path: Path) -> None:
    """Keys of JSON are texts: a position would come back as a name."""
    for number, given in enumerate([{0: 1, 3: -1}, [1, 0, 0, -1, 0], "(1,0,0,-1,0)"]):
        model = SecureBoostClassifier(**SMALL, monotone_constraints=given).fit(*numbers)
        again = SecureBoostClassifier.load(model.save(tmp_path / str(number)))
        assert again.get_params() == model.get_params()
        np.testing.assert_array_equal(again.fit(*numbers).predict_proba(numbers[0]), model.predict_proba(numbers[0]))
