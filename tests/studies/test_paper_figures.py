"""Figures of papers: what is read from folders of studies, how it is stored, and what the page makes of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from labelward.federation.components import with_defaults
from labelward.job import ComponentSpec
from labelward.runs.diverged_runs import DivergedRun, write_diverged
from labelward.runs.schema import read_rows, run_folder
from labelward.studies import find_study
from labelward.studies.id2graph import ID2GRAPH
from labelward.studies.instance_clustering import INSTANCE_CLUSTERING
from labelward.studies.run import run_study
from labelward.studies.spec import Study

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def small(study: Study) -> Study:
    """Return a study of two trees of depth 3."""
    size = {"trees": 2, "depth": 3}
    return replace(
        study,
        models={
            name: replace(model, spec=ComponentSpec(model.spec.kind, {**model.spec.params, **size}))
            for name, model in study.models.items()
        },
        settings=tuple(replace(each, model={**each.model, **size}) for each in study.settings),
    )


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = import_module("paper_figures")
    monkeypatch.setattr(module, "find_study", lambda name: small(find_study(name)))
    yield module
    for name in ("paper_figures", "_paper_figures_page"):
        sys.modules.pop(name)


def call(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["paper_figures.py", *map(str, arguments)])
    script.main()


def test_figures_of_folders_are_merged_and_the_others_stay(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an unfinished study, what it has; of what was stored, figures of the same seeds are replaced."""
    table, stored = {"parts": ["table 2"], "datasets": ["breast_cancer"], "seeds": 1}, tmp_path / "stored.json"
    run_study(small(ID2GRAPH), tmp_path / "one", **table)  # type: ignore[arg-type]
    second = replace(small(ID2GRAPH), first_seed=2, models={"forest": small(ID2GRAPH).models["forest"]})
    run_study(second, tmp_path / "two", **table)  # type: ignore[arg-type]
    kept = {"defended": {"synthetic1": {"secureboost": {"none": {"majority": {"0": 0.5}}}}}}
    held = {"default": {"breast_cancer": {"forest": {"none": {"CL": {"1": 7.0, "9": 0.25}}}}}}
    stored.write_text(json.dumps({"format": 1, "figures": {"ica": kept, "id2graph": held}}))
    folders = [f"id2graph={tmp_path / name}" for name in ("one", "two")]
    call(script, monkeypatch, *folders, "--json", stored, "--page", tmp_path / "page.md")
    found = json.loads(stored.read_text())["figures"]
    assert found["ica"] == kept
    by_model = found["id2graph"].pop("default")["breast_cancer"]
    assert not found["id2graph"]
    assert set(by_model["forest"]["none"]) == {"CL", "UNI", "UNI+CL", "ID2Graph", "utility", "sums", "numbers"}
    assert {name: set(of["none"]["CL"]) for name, of in by_model.items()} == {
        "forest": {"1", "2", "9"},
        "secureboost": {"1"},
    }
    assert by_model["forest"]["none"]["CL"]["1"] < 7.0
    assert by_model["forest"]["none"]["CL"]["9"] == 0.25
    row = read_rows(tmp_path / "one" / "default" / "breast_cancer" / "secureboost" / "1")[0]
    assert by_model["secureboost"]["none"]["utility"] == {"1": round(row.utility["auc"], 4)}
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert page == sys.modules["_paper_figures_page"].page_of(json.loads(stored.read_text()))
    assert "### ID2Graph, Table 2: " in page
    assert "Figure 6" not in page  # one point of it
    assert ", 2 seeds |" in page


def test_trainings_that_diverged_are_counted(script: ModuleType, tmp_path: Path) -> None:
    """Under a defense a seed may have no model: it is stored as no number, and the cell says how many there are."""
    run_study(small(ID2GRAPH), tmp_path / "study", parts=["table 2"], datasets=["breast_cancer"], seeds=1)
    given = script.given(f"id2graph={tmp_path / 'study'}")
    (task, *_) = script.stored_tasks(given)
    run = DivergedRun(party=None, behavior=None, defense="none", seed=1, reason="overflow")
    write_diverged(run_folder(tmp_path / "study" / task.path, [], 1), run)
    found = script.nested([script.figures_of(given, [task])])
    assert found["default"]["breast_cancer"][task.model]["none"]["utility"] == {"1": None}
    columns = {"utility": {"1": 0.5, "2": None, "3": None}, "active": {"1": 0.25}}
    held = {"defended": {"cifar10": {"top": {"noise 0.1": columns}}}}
    page = sys.modules["_paper_figures_page"].page_of({"figures": {"label-inference": held}})
    assert "| noise 0.1 | .500, 1 seed; 2 diverged | – | .250, 1 seed |" in page


def test_information_by_tree_is_stored(script: ModuleType, tmp_path: Path) -> None:
    run_study(small(INSTANCE_CLUSTERING), tmp_path / "study", parts=["figure 3"], datasets=["synthetic1"], seeds=1)
    given = script.given(f"ica={tmp_path / 'study'}")
    found = script.nested([script.figures_of(given, script.stored_tasks(given))])
    columns = found["fifty-trees"]["synthetic1"]["secureboost"]["none"]
    assert [name for name in columns if name.startswith("tree")] == ["tree 1", "tree 2"]
    assert columns["tree 1"]["0"] > 0


def test_jobs_of_images_are_made_without_their_table(script: ModuleType) -> None:
    for name in script.PAPERS:
        study = find_study(name)
        tasks = study.tasks(study.parts, [each for each in study.datasets if each.image_width], 1)
        for setting, task in {task.setting.name: task for task in tasks}.items():
            assert with_defaults(study.job(task, script.UNREAD, script._pixels(task))).passive, setting


@pytest.mark.parametrize("given", ["id2graph", "options=DIR", "id2graph=nowhere", "ica=DIR"])
def test_another_folder_is_refused(
    script: ModuleType, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "study.json").write_text(json.dumps({"format": 1, "study": "id2graph"}))
    stored = tmp_path / "stored.json"
    with pytest.raises(SystemExit) as raised:
        call(script, monkeypatch, given.replace("DIR", str(tmp_path)), "--json", stored)
    assert raised.value.code == 2
    assert not stored.exists()


def test_another_format_is_refused(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stored.json").write_text(json.dumps({"format": 2, "figures": {}}))
    with pytest.raises(SystemExit):
        call(script, monkeypatch, "--json", tmp_path / "stored.json")


def page_of(figures: dict[str, Any]) -> str:
    page: str = sys.modules["_paper_figures_page"].page_of({"format": 1, "figures": figures})
    return page


def series(*values: float) -> dict[str, float]:
    return {str(seed): value for seed, value in enumerate(values, start=1)}


@pytest.mark.usefixtures("script")
def test_a_grid_has_the_papers_figure_and_a_reason_if_it_is_far() -> None:
    near, far = series(0.7, 0.8, 0.75, 0.75, 0.75), series(0.2, 0.3)
    columns = {"utility": near, "ID2Graph": near, "UNI": far}
    page = page_of({"id2graph": {"default": {"breast_cancer": {"forest": {"none": columns}}}}})
    assert "| Breastcancer | .750 (.700 to .800) | – | .250 (.200 to .300), 2 seeds | – | .750 (.700 to .800) |" in page
    assert "| *paper* |  | *.554±.084* | *.000±.000* | *.554±.084* | *.751±.106* |" in page
    assert ", 1 of 2 differ by more than .05." in page
    (row,) = [line for line in page.splitlines() if line.startswith("| ID2Graph, Table 2")]
    assert row.startswith("| ID2Graph, Table 2, Breastcancer, random forest, UNI | *.000±.000* | .250 | one leaf")


@pytest.mark.usefixtures("script")
def test_curves_have_the_common_setting_at_its_place() -> None:
    def of(value: float) -> dict[str, Any]:
        return {"sensorless_2200": {"forest": {"none": {"ID2Graph": series(*[value] * 5)}}}}

    page = page_of({"id2graph": {"depth-2": of(0.2), "default": of(0.6)}})
    head, _, row = page.partition("### ID2Graph, Figure 6")[2].split("|  |  | ")[1].splitlines()[:3]
    assert head == "2 | 4 | 6 | 8 |"  # the common depth is 6
    assert row == "| `sensorless_2200` | ID2Graph | .200 (.200 to .200) | – | .600 (.600 to .600) | – |"
    assert "`sensorless_2200` is a substitute for Drive: 2,200 of 58,509 rows" in page


@pytest.mark.usefixtures("script")
def test_rates_are_those_of_each_seed() -> None:
    with_rows = {"sums": series(100, 200), "numbers": series(1000, 1000)}
    sums = {"none": with_rows, "ID-LMID 0.5": {"sums": series(50, 200, 300), "numbers": series(900, 900)}}
    other = {"none": {"sums": series(10)}, "ID-LMID 0.5": {"sums": series(10)}}
    page = page_of({"id2graph": {"defended": {"breast_cancer": {"forest": sums}, "obesity": {"forest": other}}}})
    assert "| ID-LMID 0.5 | .875 | *.364* | .750 (.500 to 1.000), 2 seeds | 1.000, 1 seed |" in page
    assert "Sums on the paper's side of 1: 1 of the 1 that are judged." in page
    assert "| ID-LMID 0.5 | .900 | *.364* | .900 (.900 to .900), 2 seeds |" in page
    assert "| ID2Graph, Table 3, random forest, ID-LMID 0.5, cost | *.364* | .900 | the paper averages nine" in page


@pytest.mark.usefixtures("script")
def test_a_trade_off_has_the_papers_figure_beside_ours() -> None:
    defenses = {"none": {"utility": series(0.9), "first negative": series(0.9)}, "noise 0.1": {"utility": series(0.5)}}
    page = page_of({"label-inference": {"direct": {"cifar10": {"sum": defenses}}}})
    assert "| defense | accuracy | *paper* | first negative | *paper* | least number |" in page
    assert "| none | .900, 1 seed |  | .900, 1 seed | *1.000* | – |" in page
    assert "| noise 0.1 | .500, 1 seed | *.100* | – | *.127* | – |" in page


@pytest.mark.usefixtures("script")
def test_nothing_is_shown_of_what_is_not_stored() -> None:
    assert "\n##" not in page_of({})
