"""The study of LPSC: columns that are means over parties, columns that the active party keeps, aligned rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labelward.errors import DataError
from labelward.job import ComponentSpec
from labelward.runs.schema import read_rows
from labelward.studies.datasets import own_file
from labelward.studies.lpsc import LPSC
from labelward.studies.references import NO_DEFENSE, UTILITY, FigureKey
from labelward.studies.results import study_figures
from labelward.studies.run import run_study
from labelward.studies.spec import MetricColumn, Study, StudyDataset, StudyModel, StudyPart, StudySetting, StudyTask
from refusals import refused

NET = {"top": False, "loss": "logistic", "epochs": 1, "batch_size": 64, "active_bottom": False, "bottom": "linear"}
TINY = Study(
    name="tiny",
    title="Means over parties",
    datasets=(
        StudyDataset(
            name="breast_cancer",
            title="Breast",
            party_columns={"active": ("mean radius",), "shop": ("mean area",), "telco": ("mean texture",)},
            leakage_metric="auc",
        ),
    ),
    models={"net": StudyModel(title="Network", spec=ComponentSpec("splitnn", NET))},
    columns=(
        MetricColumn(title="all", attack=ComponentSpec("norm"), metric="auc_either", of="passive"),
        MetricColumn(title="one", attack=ComponentSpec("norm"), metric="auc_either"),
    ),
    settings=(StudySetting(name="half", aligned=0.5),),
    parts=(StudyPart(name="table 1", title="Means", form="grid", settings=("half",), columns=("all", "one")),),
    seeds=1,
    validation_size=0.1,
)


@pytest.mark.slow
def test_a_column_is_the_mean_over_all_passive_parties(tmp_path: Path) -> None:
    result = run_study(TINY, tmp_path / "out")
    assert not result.failed
    found = study_figures(result, tmp_path / "out")
    (task,) = result.jobs
    rows = [row for row in read_rows(tmp_path / "out" / task.path) if row.attack is not None and row.leakage]
    values = {row.party: row.leakage["auc_either"] for row in rows if row.leakage}
    assert sorted(map(str, values)) == ["shop", "telco"]
    key = FigureKey("breast_cancer", "net", NO_DEFENSE, "all")
    assert found["half", key][1] == pytest.approx(np.mean(list(values.values())), abs=1e-12)
    assert found["half", key._replace(column="one")][1] == values["telco"]
    assert ("half", key._replace(column=UTILITY)) in found


def test_the_active_party_keeps_as_many_columns_as_a_setting_says() -> None:
    credit = next(each for each in LPSC.datasets if each.name == "credit_default")
    for setting in LPSC.settings:
        if setting.active_columns is None:
            continue
        job = LPSC.job(StudyTask(setting=setting, dataset=credit, model="coded", seed=1), credit.name)
        assert job.active.columns == credit.party_columns["active"][: setting.active_columns]
        assert [party.columns for party in job.passive] == [*credit.party_columns.values()][1:]
        assert job.data.aligned == 0.5


def test_files_of_the_users_are_found_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, with the label under its published name, last; its columns are dealt out to as many parties."""
    cardio = next(each for each in LPSC.datasets if each.name == "cardio")
    monkeypatch.setenv("LABELWARD_DATA", str(tmp_path))
    with refused(DataError, "not-found", value="cardio"):
        own_file("cardio")
    (tmp_path / "cardio.csv").write_text("id,cardio,a,b\n1,0,2,3\n2,1,4,5\n")
    assert cardio.generate is not None
    table = cardio.generate(1)
    assert table.column_names == ["a", "b", "label"]
    assert table["label"].to_pylist() == [0, 1]
    job = LPSC.job(StudyTask(setting=LPSC.settings[0], dataset=cardio, model="coded", seed=1), "cardio.csv")
    assert [party.share for party in job.parties] == [1 / 7] * 7
    assert job.model.params["epochs"] == 200
    (tmp_path / "cardio.csv").write_text("a,b\n1,0\n")
    with refused(DataError, "columns", value="cardio"):
        cardio.generate(1)


def test_only_studies_with_such_columns_have_all_parties_attack() -> None:
    assert LPSC.attackers == TINY.attackers == ()
    assert replace(TINY, columns=TINY.columns[1:]).attackers == ("telco",)
