"""The second step of the label inference study: a further attribute, from the labels of a finished task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from labelward.errors import FileFormatError
from labelward.studies.attribute_inference import ATTRIBUTE_FILE, read_attribute_inference
from labelward.studies.label_inference import LABEL_INFERENCE
from labelward.studies.references import NO_DEFENSE
from labelward.studies.results import study_figures
from labelward.studies.run import run_study
from labelward.studies.spec import Study
from refusals import refused


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
