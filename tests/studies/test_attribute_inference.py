"""Attribute inference from inferred labels: synthetic tables with known answers, and a task of the study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.errors import FileFormatError
from labelward.studies.attribute_inference import (
    ATTRIBUTE_FILE,
    append_labels,
    infer_attribute,
    read_attribute_inference,
)
from labelward.studies.label_inference import LABEL_INFERENCE
from labelward.studies.references import NO_DEFENSE
from labelward.studies.results import study_figures
from labelward.studies.run import run_study
from labelward.studies.spec import Study
from refusals import refused

ROWS = 400


def _accuracy(own: AttackerData, labels: dict[str, NDArray[np.int64]], secret: NDArray[np.int64]) -> dict[str, float]:
    known = np.arange(40)
    aux = AuxiliaryKnowledge(classes=2, known_rows=known, known_labels=secret[known])
    found = infer_attribute(own, labels, aux, classes=int(max(each.max() for each in labels.values())) + 1, seed=1)
    return {name: float(np.mean(guess.values[40:] == secret[40:])) for name, guess in found.items()}


def test_an_attribute_that_is_the_label_is_inferred_from_it_alone() -> None:
    """The columns are noise: without the label nothing is known; a label that is right in .8 of the rows gives .8."""
    rng = np.random.default_rng(1)
    secret = rng.integers(0, 2, ROWS)
    own = AttackerData(features=rng.normal(size=(ROWS, 2)), columns=["a", "b"])
    partly = np.where(rng.random(ROWS) < 0.8, secret, 1 - secret)
    found = _accuracy(own, {"right": secret, "partly": partly}, secret)
    assert found.keys() == {f"{by}{more}" for by in ("network", "logistic") for more in ("", ", right", ", partly")}
    for by in ("network", "logistic"):
        assert found[by] == pytest.approx(0.5, abs=0.1)  # four standard errors of 360 coins
        assert found[f"{by}, right"] >= 0.97
        assert found[by] < found[f"{by}, partly"] < found[f"{by}, right"]
    assert found["logistic, partly"] == pytest.approx(0.8, abs=0.1)  # the network learns the noise of 40 rows, too


def test_a_class_without_order_is_used_too() -> None:
    """The middle one of three classes has the attribute: as a number the label would not tell it to a linear model."""
    rng = np.random.default_rng(2)
    label = rng.integers(0, 3, ROWS)
    own = AttackerData(features=rng.normal(size=(ROWS, 1)), columns=["label"])
    found = _accuracy(own, {"right": label}, (label == 1).astype(np.int64))
    assert found["logistic, right"] >= 0.97


def test_a_label_that_tells_nothing_gains_nothing() -> None:
    rng = np.random.default_rng(3)
    columns = rng.normal(size=(ROWS, 3))
    secret = (columns[:, 0] > 0).astype(np.int64)
    found = _accuracy(
        AttackerData(features=columns, columns=["a", "b", "c"]), {"noise": rng.integers(0, 2, ROWS)}, secret
    )
    assert found["logistic"] >= 0.9
    assert found["logistic, noise"] <= found["logistic"] + 0.03


def test_the_column_of_labels_keeps_apart_from_others_of_its_name() -> None:
    own = AttackerData(features=np.zeros((2, 1)), columns=["label"], outside=np.zeros((1, 1)))
    found = append_labels(own, np.array([0, 2]), 3)
    assert list(found.columns) == ["label", "label_"]
    assert found.categories == {"label_": 3}
    assert found.numbers().tolist() == [[0, 0, 0], [0, 0, 1]]
    assert found.outside is None


def _small() -> Study:
    table = next(each for each in LABEL_INFERENCE.datasets if each.name == "breast_cancer_published")
    quick = replace(table, model={**table.model, "epochs": 3}, completion={"steps": 60}, upper_bound=False)
    columns = tuple(each for each in LABEL_INFERENCE.columns if each.title.startswith(("attribute", "λ_U 1")))
    parts = tuple(replace(each, columns=tuple(c.title for c in columns)) for each in LABEL_INFERENCE.parts)
    setting = next(each for each in LABEL_INFERENCE.settings if each.name == "appendix-e")
    setting = replace(setting, columns=tuple(each.title for each in columns))
    kept = tuple(each for each in parts if each.name == "second step")
    return replace(
        LABEL_INFERENCE, datasets=(quick,), columns=columns, settings=(setting,), parts=kept, claims=(), seeds=1
    )


@pytest.mark.slow
def test_the_study_s_second_step_takes_the_labels_of_its_first(tmp_path: Path) -> None:
    study = _small()
    result = run_study(study, tmp_path / "study")
    assert not result.failed
    found = study_figures(result, tmp_path / "study")
    place = "breast_cancer_published", "top", NO_DEFENSE
    told = {title: found["appendix-e", (*place, title)][1] for title in (each.title for each in study.columns)}
    assert told["attribute, network"] > 0.55  # other sizes stand among the columns
    assert told["attribute, network, true label"] != told["attribute, network"]
    (folder,) = (tmp_path / "study").glob("appendix-e/*/top/1")
    stored = (folder / ATTRIBUTE_FILE).read_bytes()
    (folder / ATTRIBUTE_FILE).unlink()
    run_study(study, tmp_path / "study")  # nothing is trained again: the guess is that of the stored view
    assert (folder / ATTRIBUTE_FILE).read_bytes() == stored
    (folder / ATTRIBUTE_FILE).write_text("{}")
    with refused(
        FileFormatError,
        "damaged",
        field=str(tmp_path / "study" / "appendix-e" / "breast_cancer_published" / "top" / "1" / "second.json"),
    ):
        read_attribute_inference(folder)


def test_parts_are_only_of_what_has_an_attribute() -> None:
    parts = {part.name: part for part in LABEL_INFERENCE.parts}
    secrets = {table.name: table.hidden_attribute for table in LABEL_INFERENCE.datasets}
    assert all(secrets[name] for name in parts["second step"].datasets)
    for table in LABEL_INFERENCE.datasets:
        held = {name for columns in table.party_columns.values() for name in columns}
        assert not table.hidden_attribute or table.hidden_attribute not in held
