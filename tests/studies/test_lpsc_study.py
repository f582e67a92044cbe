"""The study of LPSC: columns that are means over parties, columns that the active party keeps, aligned rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labelward.errors import DataError
from labelward.job import ComponentSpec
from labelward.report.plots import histograms
from labelward.report.study.page import StudyReport, shared_histograms
from labelward.runs.schema import read_rows
from labelward.studies.lpsc import LPSC
from labelward.studies.own_tables import read_own, with_own_tables
from labelward.studies.references import NO_DEFENSE, UTILITY, FigureKey
from labelward.studies.results import embeddings_by_class, study_figures
from labelward.studies.run import run_study
from labelward.studies.spec import (
    DefenseSpec,
    MetricColumn,
    Study,
    StudyDataset,
    StudyModel,
    StudyPart,
    StudySetting,
    StudyTask,
)
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
    settings=(
        StudySetting(name="half", aligned=0.5),
        StudySetting(
            name="outputs",
            defenses={"net": (DefenseSpec(family="LPSC", chain=(ComponentSpec("lpsc"),)),)},
            attacked=False,
            record="epochs",
        ),
    ),
    parts=(
        StudyPart(name="table 1", title="Means", form="grid", settings=("half",), columns=("all", "one")),
        StudyPart(
            name="figure 1",
            title="Outputs",
            form="distributions",
            settings=("outputs",),
            parties=("shop",),
            on_request=True,
        ),
    ),
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


@pytest.mark.slow
def test_outputs_are_shown_by_class(tmp_path: Path) -> None:
    """Of the party that the part names, under both targets; overlaps are those of what the share's model gives."""
    out = tmp_path / "out"
    result = run_study(TINY, out, parts=["figure 1"])
    assert not result.failed
    (section,) = StudyReport(result, out).sections
    assert [image.title for image in section.images] == [
        f"breast_cancer, shop, fitted to {target}" for target in ("labels", "LPSC")
    ]
    ((task, job),) = result.jobs.items()
    found = embeddings_by_class(task, job, out)
    assert {name: list(parties) for name, parties in found.items()} == {key: ["shop", "telco"] for key in found}
    (table,) = section.tables
    ((name, cells),) = table.rows
    expected = [shared_histograms(parties["shop"])[1].min(axis=0).sum() for parties in found.values()]
    assert name == "shop"
    assert [float(cell.ours) for cell in cells] == pytest.approx(expected, abs=5e-4)


def test_histograms_share_their_bins() -> None:
    """Equal groups overlap wholly, apart ones not at all; what is far out lies in the outermost bin."""
    values = np.linspace(0, 1, 1000)
    edges, shares = shared_histograms((values, values))
    assert shares.min(axis=0).sum() == pytest.approx(1.0)
    assert shares[0] == pytest.approx(1 / 40, abs=6e-3)
    edges, shares = shared_histograms((np.append(values, -1e6), values + 2))
    assert shares.min(axis=0).sum() == 0.0
    assert shares.sum(axis=1) == pytest.approx(1.0)
    assert edges[0] > -1
    assert shared_histograms((np.zeros(3), np.zeros(4)))[1].min(axis=0).sum() == 1.0
    assert "class 0 0.25" in histograms("a", [0.0, 0.5, 1.0], {"class 0": [0.6, 0.4]}, "output").words


def test_the_active_party_keeps_as_many_columns_as_a_setting_says() -> None:
    credit = next(each for each in LPSC.datasets if each.name == "credit_default")
    for setting in LPSC.settings:
        if setting.active_columns is None:
            continue
        job = LPSC.job(StudyTask(setting=setting, dataset=credit, model="coded", seed=1), credit.name)
        assert job.active.columns == credit.party_columns["active"][: setting.active_columns]
        assert [party.columns for party in job.passive] == [*credit.party_columns.values()][1:]
        assert job.data.aligned == 0.5


def test_files_of_the_users_are_dealt_out_evenly(tmp_path: Path) -> None:
    """With the paper's parameters, without ids; a part shows those that it names."""
    (tmp_path / "own.csv").write_text("id,label,a,b\n1,0,2,3\n2,1,4,5\n")
    study = with_own_tables(LPSC, {"cardio": tmp_path / "own.csv"})
    cardio = next(each for each in study.datasets if each.name == "cardio")
    assert [part.name for part in study.parts if study.datasets_of(part, [cardio])] == ["table 2"]
    assert cardio.convert is not None
    assert cardio.convert(read_own(tmp_path / "own.csv")).column_names == ["a", "b", "label"]
    job = study.job(StudyTask(setting=study.settings[0], dataset=cardio, model="coded", seed=1), "own.csv")
    assert [party.share for party in job.parties] == [1 / 7] * 7
    assert job.model.params["epochs"] == 200
    (tmp_path / "own.csv").write_text("a,b\n1,0\n")
    with refused(DataError, "columns", value="label"):
        with_own_tables(LPSC, {"Cardio": tmp_path / "own.csv"})


def test_only_studies_with_such_columns_have_all_parties_attack() -> None:
    assert LPSC.attackers == TINY.attackers == ()
    assert replace(TINY, columns=TINY.columns[1:]).attackers == ("telco",)
