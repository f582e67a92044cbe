"""Studies: tasks, resuming, missing datasets, failures, and the comparison of figures."""

from __future__ import annotations

import html
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import mutual_info_score

from labelward.attacks.instance_spaces import observed_leaves
from labelward.errors import FileFormatError, InputError, OutputError
from labelward.federation.components import check_job, with_defaults
from labelward.federation.simulation import VIEW
from labelward.job import ComponentSpec, parse_job
from labelward.party.view import View
from labelward.report.study import StudyReport, write_study
from labelward.report.study.verdicts import NOT_COUNTED, ablation_verdict
from labelward.report.summary import Spread
from labelward.runs.directory import data_folder
from labelward.runs.diverged_runs import DivergedRun, write_diverged
from labelward.runs.schema import RESULTS_FILE, run_folder
from labelward.studies import load_studies
from labelward.studies.datasets import synthetic
from labelward.studies.id2graph import ID2GRAPH
from labelward.studies.references import (
    NO_DEFENSE,
    NUMBERS,
    SUMS,
    TIME,
    TRAFFIC,
    UTILITY,
    FigureKey,
    ReferenceFigure,
    load_figures,
)
from labelward.studies.results import information_by_tree, study_figures, study_versions
from labelward.studies.run import STUDY_FILE, plan_study, run_study
from labelward.studies.spec import (
    ATTACKER,
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

SMALL = {"trees": 2, "depth": 3, "feature_fraction": 0.8}
PLACE = FigureKey("breast_cancer", "secureboost", NO_DEFENSE, "CL")
TINY = Study(
    name="tiny",
    title="A tiny study",
    datasets=(StudyDataset(name="breast_cancer", title="Breast"),),
    unavailable={"lost": "Lost & found"},
    models={"secureboost": StudyModel(title="XGBoost", spec=ComponentSpec("secureboost", SMALL))},
    columns=(
        MetricColumn(title="CL", attack=ComponentSpec("clustering")),
        MetricColumn(title="ID2Graph", attack=ComponentSpec("id2graph")),
    ),
    settings=(
        StudySetting(
            name="defended",
            defenses={
                "secureboost": (
                    DefenseSpec(family="ID-LMID", strength=0.1, chain=(ComponentSpec("id-lmid", {"xi": 0.1}),)),
                )
            },
            has_references=True,
        ),
        StudySetting(name="trees-1", axis_value=1, model={"trees": 1}),
    ),
    parts=(
        StudyPart(name="table 1", title="Attacks", form="grid", settings=("defended",), columns=("CL", "ID2Graph")),
        StudyPart(name="table 2", title="Sums", form="rates", settings=("defended",), columns=()),
        StudyPart(name="figure 1", title="Trade", form="trade-off", settings=("defended",), columns=("ID2Graph",)),
        StudyPart(
            name="figure 2",
            title="Trees",
            form="curves",
            settings=("trees-1", "defended"),
            columns=("ID2Graph",),
            axis="trees",
        ),
        StudyPart(name="figure 3", title="Told", form="information", settings=("trees-1",), columns=(), axis="tree"),
    ),
    seeds=2,
    printed={
        ("table 1", PLACE): ReferenceFigure(mean=0.1, std=0.01),
        ("table 2", FigureKey("", "secureboost", "ID-LMID 0.1", SUMS)): ReferenceFigure(mean=0.5),
    },
    reference={
        PLACE: ReferenceFigure(mean=0.624, std=0.014, within=0.01),  # seeds 1 and 2 of the reference splits: .634, .614
        PLACE._replace(column="ID2Graph"): ReferenceFigure(mean=0.0, within=0.01),
    },
    judged_rates=("ID-LMID 0.1",),
)


def rows(folder: Path) -> dict[str, list[dict[str, object]]]:
    """Return all stored rows by path, without durations."""
    found = {}
    for path in sorted(folder.rglob(RESULTS_FILE)):
        each = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for row in each:
            del row["cost"]["seconds"]
        found[str(path.relative_to(folder))] = each
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny study that was never interrupted; read only."""
    out = tmp_path_factory.mktemp("study") / "whole"
    run_study(TINY, out)
    return out


def test_each_task_is_an_audit_of_its_own(whole: Path) -> None:
    stored = rows(whole)
    assert set(stored) == {
        f"{setting}/breast_cancer/secureboost/{seed}/{RESULTS_FILE}"
        for setting in ("defended", "trees-1")
        for seed in (1, 2)
    }
    defended = stored[f"defended/breast_cancer/secureboost/1/{RESULTS_FILE}"]
    assert len(defended) == 4  # undefended and ID-LMID, two attacks each
    assert {path.parent.name for path in whole.rglob("view")} == {"telco"}


@pytest.mark.slow
def test_a_stopped_study_resumes_to_the_same_end(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"

    def stop(event: str, done: int, total: int, detail: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(TINY, out, watch=stop)
    kept = {path: path.read_bytes() for path in out.rglob(RESULTS_FILE)}
    assert len(kept) == 2
    run_study(TINY, out, jobs=2)
    assert rows(out) == rows(whole)
    assert {path: path.read_bytes() for path in kept} == kept


@pytest.mark.slow
def test_more_parts_and_seeds_are_added_to_what_is_there(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    first = run_study(TINY, out, parts=["table 1"], seeds=1)
    assert [task.path for task in first.jobs] == ["defended/breast_cancer/secureboost/1"]
    run_study(TINY, out)
    assert rows(out) == rows(whole)


def test_a_study_resumes_in_a_folder_that_was_moved(tmp_path: Path) -> None:
    """Generated tables lie in the folder, so their paths change."""
    table = StudyDataset(name="generated", title="", generate=lambda seed: synthetic(60, 2, seed))
    study = replace(TINY, datasets=(table,), parts=TINY.parts[-1:], printed={}, reference={})
    run_study(study, tmp_path / "one", seeds=1)
    kept = (tmp_path / "one" / "trees-1" / "generated" / "secureboost" / "1" / RESULTS_FILE).read_bytes()
    (tmp_path / "one").rename(tmp_path / "two")
    result = run_study(study, tmp_path / "two", seeds=2)
    assert not result.failed
    first, second = (tmp_path / "two" / task.path / RESULTS_FILE for task in result.jobs)
    assert first.read_bytes() == kept
    assert second.exists()


@pytest.mark.slow
def test_a_killed_study_resumes_and_leaves_no_process(tmp_path: Path) -> None:
    """SIGKILL leaves no time to clean up: workers must end by themselves, or they would keep their folders locked."""
    command = ["study", "id2graph", "--table", "2", "--datasets", "breast_cancer", "--seeds", "2", "--jobs", "2"]

    def start(out: Path) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-m", "labelward", *command, "--out", str(out), "--quiet"]
        return subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    run_study(ID2GRAPH, tmp_path / "whole", parts=["table 2"], datasets=["breast_cancer"], seeds=2)
    killed = start(tmp_path / "study")
    while killed.poll() is None and not list((tmp_path / "study").rglob(RESULTS_FILE)):
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)  # also waits for the workers, which hold the other end of stderr
    assert killed.returncode == -signal.SIGKILL
    again = start(tmp_path / "study")
    _, stderr = again.communicate(timeout=300)
    assert again.returncode == 0, stderr
    assert rows(tmp_path / "study") == rows(tmp_path / "whole")


def test_figures_are_those_of_the_rows(whole: Path) -> None:
    result = run_study(TINY, whole)
    found = study_figures(result, whole)
    assert found["defended", PLACE] == pytest.approx({1: 0.634, 2: 0.614}, abs=0.0005)  # digits given
    for seed in (1, 2):
        (row, *_) = rows(whole)[f"defended/breast_cancer/secureboost/{seed}/{RESULTS_FILE}"]
        assert found["defended", (*PLACE[:3], UTILITY)][seed] == row["utility"]["auc"]  # type: ignore[index]
        sums, in_rows = row["cost"]["logical_sums"], row["cost"]["logical_rows"]
        assert found["defended", (*PLACE[:3], SUMS)][seed] == sums  # type: ignore[index]
        assert found["defended", (*PLACE[:3], NUMBERS)][seed] == sums + in_rows  # type: ignore[index]
    assert "labelward" in study_versions(result, whole)


def test_information_by_tree_is_that_of_scikit_learn(whole: Path) -> None:
    for task in run_study(TINY, whole, parts=["figure 3"]).jobs:
        folder = whole / task.path
        truth = pq.read_table(data_folder(folder, task.seed) / "truth.parquet")["label"].to_numpy()
        (leaves,) = observed_leaves(View.load(run_folder(folder, [], task.seed) / ATTACKER / VIEW))
        expected = mutual_info_score(truth[leaves >= 0], leaves[leaves >= 0])
        assert expected > 0
        assert information_by_tree(task, whole) == pytest.approx([expected])


def test_the_page_compares_ours_with_the_others(whole: Path) -> None:
    result = run_study(TINY, whole)
    report = StudyReport(result, whole)
    page = write_study(report, whole).read_text(encoding="utf-8")
    assert '<span class="ours">0.624 ± 0.014</span><span class="other">paper 0.100 ± 0.010</span>' in page
    assert 'reference 0.624 ± 0.014</span><span class="other">within 0.01: yes ✓' in page
    assert 'reference 0.000</span><span class="other unmet">within 0.01: no ✗' in page
    assert "0.624 here, 0.100 in the paper (+0.524)" in page
    assert "<strong>Lost &amp; found</strong>" in page
    assert page.count('<img src="data:image/svg+xml;base64,') == 3
    assert page.count("<script") == 1  # the page's own
    rate, with_rows = (cell for part, _, column, cell in report.cells() if part == "table 2")
    assert with_rows.met is None
    assert with_rows.ours != rate.ours
    assert rate.within == "below 1"
    assert rate.met is (float(rate.ours) < 1)
    assert report.verdict().startswith("2 of 3" if rate.met else "1 of 3")


def test_rows_that_the_version_of_a_study_did_not_count_were_not_left_out(whole: Path, tmp_path: Path) -> None:
    """Two that encrypt nothing differ: without sums there are no rows of them, and a defense costs nothing."""
    cells = {}
    for name, missing in (("earlier", ("logical_rows",)), ("nothing", ("logical_rows", "logical_sums"))):
        out = shutil.copytree(whole, tmp_path / name)
        for path in out.rglob(RESULTS_FILE):
            stored = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            for row in stored:
                for number in missing if row["defense"] or name == "earlier" else ():
                    del row["cost"][number]
            path.write_text("".join(json.dumps(row) + "\n" for row in stored), encoding="utf-8")
        report = StudyReport(run_study(TINY, out), out)
        cells[name] = [cell.ours for part, _, _, cell in report.cells() if part == "table 2"]
    assert cells["earlier"][1] == NOT_COUNTED
    assert float(cells["earlier"][0]) > 0
    assert cells["nothing"] == ["0.000", "0.000"]


def test_differences_have_the_reason_of_their_part(whole: Path) -> None:
    result = run_study(replace(TINY, parts=(replace(TINY.parts[0], reason="trees of one leaf"),)), whole)
    (difference,) = StudyReport(result, whole).sections[0].differences
    assert "(+0.524): trees of one leaf;" in difference
    assert "unexplained" not in difference


def test_fewer_seeds_are_not_judged(whole: Path) -> None:
    report = StudyReport(run_study(TINY, whole, parts=["table 1"], seeds=1), whole)
    assert all(cell.met is None for _, _, _, cell in report.cells())
    assert "mean of 2 seeds" in report.verdict()


def test_missing_datasets_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABELWARD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    elsewhere = replace(
        TINY, datasets=(StudyDataset(name="obesity", title="Obesity"), StudyDataset(name="never", title="Never"))
    )
    result = run_study(elsewhere, tmp_path / "study")
    assert set(result.missing) == {"Obesity", "Never", "Lost & found"}
    assert "was not found" in result.missing["Obesity"]
    assert not result.jobs
    assert "no figure" in StudyReport(result, tmp_path / "study").verdict()


def test_a_page_tells_which_trainings_diverged(tmp_path: Path) -> None:
    result = plan_study(TINY, tmp_path, parts=("table 1",), seeds=2)
    assert StudyReport(result, tmp_path).diverged == []
    task = next(iter(result.jobs))
    for seed in (1, 2):
        folder = (tmp_path / task.path).parent / str(seed) / "runs" / "noise" / str(seed)
        folder.mkdir(parents=True)
        write_diverged(folder, DivergedRun(defense="noise", seed=seed, reason="not finite"))
    report = StudyReport(result, tmp_path)
    (sentence,) = report.diverged
    assert "1 and 2" in sentence
    assert html.escape(sentence) in write_study(report, tmp_path).read_text(encoding="utf-8")


def test_an_invalid_task_is_reported_and_others_run(tmp_path: Path) -> None:
    unknown = {"secureboost": (DefenseSpec(family="No", chain=(ComponentSpec("no-such-defense"),)),)}
    wrong = StudySetting(name="wrong", defenses=unknown)
    parts = (StudyPart(name="table 9", title="", form="grid", settings=("wrong",), columns=("CL",)), TINY.parts[-1])
    study = replace(TINY, settings=(wrong, TINY.settings[1]), parts=parts)
    result = run_study(study, tmp_path / "study", seeds=1)
    assert list(result.failed) == ["wrong/breast_cancer/secureboost/1"]
    assert "no-such-defense" in result.failed["wrong/breast_cancer/secureboost/1"]
    page = write_study(StudyReport(result, tmp_path / "study"), tmp_path / "study").read_text(encoding="utf-8")
    assert "no-such-defense" in page
    assert "not run" in page


def test_folders_of_others_are_left_alone(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for folder, study in ((tmp_path, TINY), (whole, replace(TINY, name="other"))):
        with refused(OutputError, "exists", field=str(folder)):
            run_study(study, folder)
    with refused(OutputError, "exists", field=str(tmp_path / "notes.txt")):
        run_study(TINY, tmp_path / "notes.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]
    assert json.loads((whole / STUDY_FILE).read_text()) == {"format": 1, "study": "tiny"}


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with refused(InputError, "unknown", field="study 'tiny'", value="table 7"):
        run_study(TINY, tmp_path / "study", parts=["table 7"])
    with refused(InputError, "unknown", field="study 'tiny'", value="brest_cancer") as caught:
        run_study(TINY, tmp_path / "study", datasets=["brest_cancer"])
    assert "'breast_cancer'?" in caught.value.reason
    assert not (tmp_path / "study").exists()


def test_a_dataset_that_no_part_shows_is_refused(tmp_path: Path) -> None:
    elsewhere = replace(TINY.parts[0], name="table 3", datasets=("other",))
    study = replace(
        TINY, datasets=(*TINY.datasets, StudyDataset(name="other", title="")), parts=(*TINY.parts, elsewhere)
    )
    with refused(InputError, "conflict", field="study 'tiny'", value="breast_cancer") as caught:
        run_study(study, tmp_path / "study", parts=["table 3"], datasets=["other", "breast_cancer"])
    assert "table 3," in caught.value.reason
    assert "table 1, table 2" in caught.value.reason
    assert not (tmp_path / "study").exists()
    result = run_study(study, tmp_path / "study", parts=["table 3"])
    assert list(result.missing) == ["Lost & found", ""]  # breast_cancer is not looked for
    assert not result.datasets


def _tasks(study: Study) -> list[StudyTask]:
    return list(study.tasks(study.parts, study.datasets, 1))


STUDIES = [each for study in load_studies().values() for each in (study, study.full) if each is not None]


@pytest.mark.parametrize(
    "study",
    [pytest.param(each, id=each.name, marks=pytest.mark.slow if each.name == "id2graph" else ()) for each in STUDIES],
)
def test_every_job_of_a_study_can_be_run(study: Study) -> None:
    for task in _tasks(study):
        job = with_defaults(study.job(task, "any.parquet", [f"p{at}" for at in range(784)]))
        check_job(job)
        assert with_defaults(parse_job(job.to_toml())) == job


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_name_in_a_study_is_known(study: Study) -> None:
    """A figure to compare with that no result can have would never be shown."""
    datasets = {name for each in study.datasets for name, *_ in each.metrics()} | set(study.unavailable) | {""}
    columns = {column.title for column in study.columns}
    claimed = [key for claim in study.claims for group in claim.groups for key in group]
    for key in [*study.reference, *(key for _, key in study.printed), *claimed]:
        defenses = {each.name for one in study.settings for each in one.defenses.get(key.model, ())} | {NO_DEFENSE}
        assert key.dataset in datasets
        assert key.model in study.models
        assert key.defense in defenses
        assert key.column in columns | {UTILITY, SUMS}
    settings = {setting.name for setting in study.settings}
    for part in study.parts:
        assert set(part.settings) <= settings
        assert {*part.columns, part.baseline} - {""} <= columns | {UTILITY, TIME, TRAFFIC}
        assert set(part.datasets) <= datasets
        assert set(part.models) <= set(study.models)
    parts = {part.name for part in study.parts}
    assert {part for part, _ in study.printed} | {claim.part for claim in study.claims} <= parts


@pytest.mark.parametrize("cells", ["[1.0]", '["0.5 +- 0.1", 1.0]', '["within 0.1", 1.0]'])
def test_a_figure_that_cannot_be_read_is_refused(cells: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "figures").mkdir()
    text = f'[[printed]]\npart = "p"\nmodel = "m"\ncolumns = ["a", "b"]\n[printed.rows]\nrow = {cells}\n'
    (tmp_path / "figures" / "paper.toml").write_text(text)
    monkeypatch.setattr("labelward.studies.references.resources.files", lambda _: tmp_path)
    with pytest.raises(FileFormatError) as caught:
        load_figures("paper")
    assert caught.value.code == "damaged"
    assert "row" in caught.value.field


def test_the_printed_tables_are_whole() -> None:
    printed = [(place, each) for (part, place), each in ID2GRAPH.printed.items() if part == "table 2"]
    assert len(printed) == 9 * 8  # data sets; four attacks on each of two models
    best = [(place, each) for place, each in printed if place[3] == "ID2Graph"]
    for place, each in best:  # as the paper says of its table
        others = [other.mean for where, other in printed if where[:2] == place[:2] and where != place]
        assert each.mean > max(others)
    assert len([part for part, _ in ID2GRAPH.printed if part == "table 3"]) == 9


def test_images_are_cut_into_left_and_right() -> None:
    task = next(each for each in _tasks(ID2GRAPH) if each.dataset.image_width)
    columns = [f"r{row}c{column}" for row in range(28) for column in range(28)]
    active, attacker = ID2GRAPH.job(task, "fashion_mnist_train", columns).parties
    assert set(attacker.columns or ()) == {f"r{row}c{column}" for row in range(28) for column in range(14)}
    assert set(active.columns or ()) | set(attacker.columns or ()) == set(columns)


def test_an_active_party_without_columns() -> None:
    task = next(each for each in _tasks(ID2GRAPH) if each.setting.name == "no-columns")
    active, attacker = ID2GRAPH.job(task, "breast_cancer").parties
    assert (active.share, attacker.share) == (0.0, 1.0)


def test_generated_tables_are_those_of_their_seed() -> None:
    table = synthetic(200, 2, 3)
    assert table.equals(synthetic(200, 2, 3))
    assert not table.equals(synthetic(200, 2, 4))
    assert np.linalg.matrix_rank(np.array([table[f"f{at}"] for at in range(10)])) == 5  # five are sums of the others


def test_options_are_compared_seed_by_seed(tmp_path: Path) -> None:
    """An option that changes nothing gains nothing, on each seed, though the seeds differ."""
    same = MetricColumn(
        title="same", attack=ComponentSpec("id2graph", {"inter_chunk_weight": 7.0})
    )  # not read without chunks
    part = StudyPart(
        name="options", title="", form="ablation", settings=("trees-1",), columns=("ID2Graph", "CL", "same")
    )
    study = replace(TINY, columns=(*TINY.columns, same), parts=(part,), printed={}, reference={})
    result = run_study(study, tmp_path / "study")
    report = StudyReport(result, tmp_path / "study")
    ((_, (base, other, equal)),) = report.sections[0].tables[0].rows
    found = study_figures(result, tmp_path / "study")
    values = {name: found["trees-1", (*PLACE[:3], name)] for name in ("ID2Graph", "CL")}
    difference = Spread.of([values["CL"][seed] - values["ID2Graph"][seed] for seed in (1, 2)])
    assert base.ours.startswith(f"{np.mean(list(values['ID2Graph'].values())):.3f} ± ")
    assert other.ours.split(" ± ")[0].replace("−", "-").lstrip("+") == f"{difference.mean:.3f}"
    assert equal.ours.replace("+", "") == "0.000 ± 0.000"
    assert report.sections[0].verdicts[1].startswith("same: 0.000 over 1")
    assert "Verdicts" in write_study(report, tmp_path / "study").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("means", "word"),
    [
        ([0.1, 0.12, 0.09], "it wins"),
        ([-0.1, -0.12, -0.09], "it loses"),
        ([0.3, -0.1, 0.02], "neither"),
        ([0.2], "one"),
    ],
)
def test_an_option_wins_only_beyond_chance(means: list[float], word: str) -> None:
    assert word in ablation_verdict([Spread(mean=mean, std=0.5, seeds=5) for mean in means])


def test_a_plan_runs_nothing_and_reads_what_is_there(tmp_path: Path) -> None:
    """Of an unfinished study, the figures that it has."""
    planned = plan_study(TINY, tmp_path / "study", parts=["table 1"], seeds=2)
    assert not (tmp_path / "study").exists()
    assert study_figures(planned, tmp_path / "study") == {}
    run_study(TINY, tmp_path / "study", parts=["table 1"], seeds=1)
    found = study_figures(planned, tmp_path / "study")
    assert set(found["defended", PLACE]) == {1}
    with pytest.raises(InputError):
        plan_study(TINY, tmp_path / "study", parts=["table 9"])


def test_a_plan_for_a_new_folder_writes_generated_tables(tmp_path: Path) -> None:
    table = StudyDataset(name="generated", title="", generate=lambda seed: synthetic(60, 2, seed))
    study = replace(TINY, datasets=(table,), parts=TINY.parts[-1:], printed={}, reference={})
    out = tmp_path / "new" / "study"
    plan_study(study, out, seeds=1)
    assert [str(path.relative_to(out)) for path in out.rglob("*.*")] == ["tables/generated-1.parquet"]


def test_fewer_than_one_process_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    with refused(InputError, "range", field="jobs", value=0):
        run_study(TINY, tmp_path / "study", jobs=0)
    assert not (tmp_path / "study").exists()


@pytest.mark.slow
def test_trees_and_views_of_table_2_are_those_of_a_slow_reference(tmp_path: Path) -> None:
    """Every node and every own split; ID2Graph by other programs for communities and k-means is close."""
    benchmark = Path(__file__).parents[2] / "benchmarks" / "id2graph_reference.py"
    arguments = ["--work", tmp_path / "work", "--json", tmp_path / "rows.json", "--data", "breast_cancer"]
    command = [sys.executable, benchmark, *arguments, "--seeds", "1", "--choice", "as stored"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["model"], row["choice"]) for row in rows] == [
        (model, choice) for model in ("secureboost", "forest") for choice in ("stored", "as stored")
    ]
    for stored, grown in (rows[:2], rows[2:]):
        assert grown["same_nodes"] == grown["nodes"] > 20
        assert grown["same_splits"] == grown["splits"] > 5
        assert grown["union"] == stored["union"]
        assert abs(grown["id2graph"] - stored["id2graph"]) < 0.1
