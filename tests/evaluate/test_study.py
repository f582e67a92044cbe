"""Studies: what is run, that a stopped one goes on, what is missing or fails, and what stands beside our figures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labelward.errors import InputError, OutputError
from labelward.evaluate.studies.ica import ICA, synthetic
from labelward.evaluate.studies.id2graph import ID2GRAPH
from labelward.evaluate.studies.options import OPTIONS
from labelward.evaluate.studies.plan import (
    NONE,
    SUMS,
    UTILITY,
    Column,
    DataSet,
    Defended,
    Expected,
    Part,
    Printed,
    Setting,
    Study,
    Task,
)
from labelward.evaluate.studies.read import figures, information_by_tree, versions
from labelward.evaluate.studies.run import STUDY_FILE, run_study
from labelward.federation.components import check_job, with_defaults
from labelward.job import ComponentSpec, parse_job
from labelward.report.study import StudyReport, write_study
from labelward.report.study_verdicts import rival_verdict
from labelward.report.summary import Spread
from labelward.runs.schema import RESULTS_FILE
from refusals import refused

SMALL = {"trees": 2, "depth": 3, "feature_fraction": 0.8}
PLACE = ("breast_cancer", "secureboost", NONE, "CL")
TINY = Study(
    name="tiny",
    title="A tiny study",
    tables=(DataSet(name="breast_cancer", title="Breast"),),
    absent={"lost": "Lost & found"},
    models={"secureboost": ComponentSpec("secureboost", SMALL)},
    columns=(
        Column(title="CL", attack=ComponentSpec("clustering")),
        Column(title="ID2Graph", attack=ComponentSpec("id2graph")),
    ),
    settings=(
        Setting(
            name="defended",
            defenses={
                "secureboost": (
                    Defended(family="ID-LMID", strength=0.1, chain=(ComponentSpec("id-lmid", {"xi": 0.1}),)),
                )
            },
            reference=True,
        ),
        Setting(name="trees-1", value=1, model={"trees": 1}),
    ),
    parts=(
        Part(name="table 1", title="Attacks", form="grid", settings=("defended",), columns=("CL", "ID2Graph")),
        Part(name="table 2", title="Sums", form="rates", settings=("defended",), columns=()),
        Part(name="figure 1", title="Trade", form="trade-off", settings=("defended",), columns=("ID2Graph",)),
        Part(
            name="figure 2",
            title="Trees",
            form="curves",
            settings=("trees-1", "defended"),
            columns=("ID2Graph",),
            axis="trees",
        ),
        Part(name="figure 3", title="Told", form="information", settings=("trees-1",), columns=(), axis="tree"),
    ),
    seeds=2,
    printed={
        ("table 1", PLACE): Printed(mean=0.1, std=0.01),
        ("table 2", ("", "secureboost", "ID-LMID 0.1", SUMS)): Printed(mean=0.5),
    },
    expected={
        PLACE: Expected(mean=0.624, std=0.014, within=0.01),  # seeds 1 and 2 of the reference splits: .634, .614
        (*PLACE[:3], "ID2Graph"): Expected(mean=0.0, within=0.01),
    },
    order=("ID-LMID 0.1",),
)


def rows(folder: Path) -> dict[str, list[dict[str, object]]]:
    """Return all stored rows by place, without what a clock decides."""
    found = {}
    for path in sorted(folder.rglob(RESULTS_FILE)):
        each = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for row in each:
            del row["cost"]["seconds"]
        found[str(path.relative_to(folder))] = each
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny study that nobody stopped; only to be read."""
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


def test_a_stopped_study_goes_on_to_the_same_end(whole: Path, tmp_path: Path) -> None:
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


def test_more_parts_and_seeds_are_added_to_what_is_there(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    first = run_study(TINY, out, parts=["table 1"], seeds=1)
    assert [task.path for task in first.jobs] == ["defended/breast_cancer/secureboost/1"]
    run_study(TINY, out)
    assert rows(out) == rows(whole)


def test_a_study_goes_on_in_a_folder_that_was_moved(tmp_path: Path) -> None:
    """Tables that are made lie in the folder, so that they have another path then."""
    table = DataSet(name="made", title="", generate=lambda seed: synthetic(60, 2, seed))
    study = replace(TINY, tables=(table,), parts=TINY.parts[-1:], printed={}, expected={})
    run_study(study, tmp_path / "one", seeds=1)
    kept = (tmp_path / "one" / "trees-1" / "made" / "secureboost" / "1" / RESULTS_FILE).read_bytes()
    (tmp_path / "one").rename(tmp_path / "two")
    outcome = run_study(study, tmp_path / "two", seeds=2)
    assert not outcome.failed
    first, second = (tmp_path / "two" / task.path / RESULTS_FILE for task in outcome.jobs)
    assert first.read_bytes() == kept
    assert second.exists()


@pytest.mark.slow
def test_a_killed_study_goes_on_and_leaves_no_process(tmp_path: Path) -> None:
    """Killed so that it cannot clean up: its workers end by themselves, or they would still hold their folders."""
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
    outcome = run_study(TINY, whole)
    found = figures(outcome, whole)
    assert found["defended", PLACE] == pytest.approx({1: 0.634, 2: 0.614}, abs=0.0005)  # digits given
    for seed in (1, 2):
        (row, *_) = rows(whole)[f"defended/breast_cancer/secureboost/{seed}/{RESULTS_FILE}"]
        assert found["defended", (*PLACE[:3], UTILITY)][seed] == row["utility"]["auc"]  # type: ignore[index]
        assert found["defended", (*PLACE[:3], SUMS)][seed] == row["cost"]["logical_sums"]  # type: ignore[index]
    assert "labelward" in versions(outcome, whole)


def test_what_a_tree_tells_is_between_nothing_and_all(whole: Path) -> None:
    outcome = run_study(TINY, whole, parts=["figure 3"])
    for task, job in outcome.jobs.items():
        told = information_by_tree(task, job, whole)
        assert told.shape == (1,)
        assert 0 <= told[0] <= np.log(2)


def test_the_page_sets_ours_beside_the_others(whole: Path) -> None:
    outcome = run_study(TINY, whole)
    report = StudyReport(outcome, whole)
    page = write_study(report, whole).read_text(encoding="utf-8")
    assert '<span class="ours">0.624 ± 0.014</span><span class="other">paper 0.100 ± 0.010</span>' in page
    assert 'reference 0.624 ± 0.014</span><span class="other">within 0.01: yes ✓' in page
    assert 'reference 0.000</span><span class="other unmet">within 0.01: no ✗' in page
    assert "Breast, XGBoost, CL: 0.624 here, 0.100 in the paper (+0.524)" in page
    assert "Lost &amp; found</strong>: no copy of it is known" in page
    assert page.count('<img src="data:image/svg+xml;base64,') == 3
    assert "<script" not in page
    (rate,) = [cell for part, _, column, cell in report.cells() if part == "table 2"]
    assert rate.within == "below 1"
    assert rate.met is (float(rate.ours) < 1)
    assert report.verdict().startswith("2 of 3" if rate.met else "1 of 3")


def test_differences_have_the_reason_of_their_part(whole: Path) -> None:
    outcome = run_study(replace(TINY, parts=(replace(TINY.parts[0], reason="trees of one leaf"),)), whole)
    (told,) = StudyReport(outcome, whole).sections[0].differences
    assert "(+0.524): trees of one leaf; an independent implementation" in told
    assert "no reason is known" not in told


def test_fewer_seeds_are_not_judged(whole: Path) -> None:
    report = StudyReport(run_study(TINY, whole, parts=["table 1"], seeds=1), whole)
    assert all(cell.met is None for _, _, _, cell in report.cells())
    assert "holds for the mean of 2 seeds" in report.verdict()


def test_data_that_are_not_here_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABELWARD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    elsewhere = replace(TINY, tables=(DataSet(name="obesity", title="Obesity"), DataSet(name="never", title="Never")))
    outcome = run_study(elsewhere, tmp_path / "study")
    assert set(outcome.missing) == {"Obesity", "Never", "Lost & found"}
    assert "is not on this machine" in outcome.missing["Obesity"]
    assert outcome.missing["Never"] == "no copy of it is known"
    assert not outcome.jobs
    assert "nothing" not in StudyReport(outcome, tmp_path / "study").verdict()


def test_a_task_that_cannot_be_is_told_of_and_others_go_on(tmp_path: Path) -> None:
    unknown = {"secureboost": (Defended(family="No", chain=(ComponentSpec("no-such-defense"),)),)}
    wrong = Setting(name="wrong", defenses=unknown)
    parts = (Part(name="table 9", title="", form="grid", settings=("wrong",), columns=("CL",)), TINY.parts[-1])
    study = replace(TINY, settings=(wrong, TINY.settings[1]), parts=parts)
    outcome = run_study(study, tmp_path / "study", seeds=1)
    assert list(outcome.failed) == ["wrong/breast_cancer/secureboost/1"]
    assert "no-such-defense" in outcome.failed["wrong/breast_cancer/secureboost/1"]
    page = write_study(StudyReport(outcome, tmp_path / "study"), tmp_path / "study").read_text(encoding="utf-8")
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


def test_a_data_set_for_which_nothing_would_be_run_is_refused(tmp_path: Path) -> None:
    elsewhere = replace(TINY.parts[0], name="table 3", tables=("other",))
    study = replace(TINY, tables=(*TINY.tables, DataSet(name="other", title="")), parts=(*TINY.parts, elsewhere))
    with refused(InputError, "conflict", field="study 'tiny'", value="breast_cancer") as caught:
        run_study(study, tmp_path / "study", parts=["table 3"], datasets=["other", "breast_cancer"])
    assert "table 3," in caught.value.reason
    assert "table 1, table 2" in caught.value.reason
    assert not (tmp_path / "study").exists()
    outcome = run_study(study, tmp_path / "study", parts=["table 3"])
    assert list(outcome.missing) == ["Lost & found", ""]  # breast_cancer is not looked for
    assert not outcome.tables


def _tasks(study: Study) -> list[Task]:
    return list(study.tasks(study.parts, study.tables, 1))


@pytest.mark.parametrize("study", [ID2GRAPH, ICA, OPTIONS], ids=lambda study: study.name)
def test_every_job_of_a_study_can_be_run(study: Study) -> None:
    for task in _tasks(study):
        job = study.job(task, "any.parquet", [f"p{at}" for at in range(784)])
        check_job(with_defaults(job))
        assert with_defaults(parse_job(with_defaults(job).to_toml())) == with_defaults(job)


@pytest.mark.parametrize("study", [ID2GRAPH, ICA], ids=lambda study: study.name)
def test_every_figure_to_compare_with_has_its_place(study: Study) -> None:
    """A place that no result can have would never be shown."""
    tables = {table.name for table in study.tables} | set(study.absent) | {""}
    columns = {column.title for column in study.columns} | {UTILITY, SUMS}
    places = [*study.expected, *(place for _, place in study.printed)]
    assert places
    for table, model, defense, column in places:
        defenses = {each.name for one in study.settings for each in one.defenses.get(model, ())} | {NONE}
        assert table in tables
        assert model in study.models
        assert defense in defenses
        assert column in columns
    names = {setting.name for setting in study.settings}
    titles = {column.title for column in study.columns}
    for part in study.parts:
        assert set(part.settings) <= names
        assert set(part.columns) <= titles
    assert {part for part, _ in study.printed} <= {part.name for part in study.parts}


def test_the_printed_tables_are_whole() -> None:
    printed = [(place, each) for (part, place), each in ID2GRAPH.printed.items() if part == "table 2"]
    assert len(printed) == 9 * 8  # data sets; four attacks on each of two models
    best = [(place, each) for place, each in printed if place[3] == "ID2Graph"]
    for place, each in best:  # as the paper says of its table
        others = [other.mean for where, other in printed if where[:2] == place[:2] and where != place]
        assert each.mean > max(others)
    assert len([part for part, _ in ID2GRAPH.printed if part == "table 3"]) == 9


def test_images_are_cut_into_left_and_right() -> None:
    task = next(each for each in _tasks(ID2GRAPH) if each.table.image)
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
    same = Column(
        title="same", attack=ComponentSpec("id2graph", {"inter_chunk_weight": 7.0})
    )  # not read without chunks
    part = Part(name="options", title="", form="rivals", settings=("trees-1",), columns=("ID2Graph", "CL", "same"))
    study = replace(TINY, columns=(*TINY.columns, same), parts=(part,), printed={}, expected={})
    outcome = run_study(study, tmp_path / "study")
    report = StudyReport(outcome, tmp_path / "study")
    ((_, (base, other, equal)),) = report.sections[0].grids[0].rows
    found = figures(outcome, tmp_path / "study")
    values = {name: found["trees-1", (*PLACE[:3], name)] for name in ("ID2Graph", "CL")}
    difference = Spread.of([values["CL"][seed] - values["ID2Graph"][seed] for seed in (1, 2)])
    assert base.ours.startswith(f"{np.mean(list(values['ID2Graph'].values())):.3f} ± ")
    assert other.ours.split(" ± ")[0].replace("−", "-").lstrip("+") == f"{difference.mean:.3f}"
    assert equal.ours.replace("+", "") == "0.000 ± 0.000"
    assert report.sections[0].verdicts[1].startswith("same: 0.000 over 1 pairs")
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
    assert word in rival_verdict([Spread(mean=mean, std=0.5, seeds=5) for mean in means])
