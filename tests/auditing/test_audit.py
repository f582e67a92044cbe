"""The audit's contract: rows, details, files; what a killed or interrupted one leaves; what it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from labelward.auditing.audit import audit
from labelward.data.encoding import MAX_MAGNITUDE
from labelward.errors import (
    Code,
    DataError,
    EncryptionError,
    FileFormatError,
    InputError,
    JobError,
    LabelwardError,
    OutputError,
    PolicyError,
)
from labelward.job import Job, load_job
from labelward.messages.tree import EncryptedTreeRows, LevelHistograms
from labelward.party.view import View
from labelward.runs.private_seeds import PRIVATE_FILE
from labelward.runs.schema import ResultRow, read_rows, read_run
from refusals import refused

Jobs = Callable[..., Job]
Finished = tuple[Path, list[ResultRow]]

ID2GRAPH = {
    "alpha": 3.0,
    "starts": 5,
    "inter_chunk_weight": 100.0,
    "tree_weights": "discount",
    "attributes": 0.0,
    "clusters": "classes",
}


def without_seconds(rows: list[ResultRow]) -> list[Any]:
    """Rows but for wall seconds, the only field that two runs of one job may differ in (plain keys have one size)."""
    return [msgspec.structs.replace(row, cost=msgspec.structs.replace(row.cost, seconds=0.0)) for row in rows]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_one_row_for_each_seed_variant_attacker_and_attack(finished: Finished) -> None:
    _, rows = finished
    found = {(row.seed, tuple(d["kind"] for d in row.defense), row.party, (row.attack or {})["kind"]) for row in rows}
    defenses = [(), ("id-lmid",), ("local-trees",)]
    wanted = {
        (seed, defense, party, attack)
        for seed in (1, 2)
        for defense in defenses
        for party in ("telco", "shop")
        for attack in ("clustering", "id2graph", "split-posterior")
    }
    assert found == wanted
    assert len(rows) == len(wanted)


def test_the_stored_line_has_the_contract_s_fields(finished: Finished) -> None:
    out, rows = finished
    line = json.loads((out / "results.jsonl").read_text().splitlines()[0])
    assert list(line) == [
        "format", "dataset", "model", "engine", "seed", "defense", "party", "attack", "leakage", "utility", "cost",
        "versions", "behavior",
    ]  # fmt: skip
    assert line["format"] == 1
    assert line["dataset"] == "breast_cancer"
    assert line["model"]["kind"] == "secureboost"
    assert line["model"]["depth"] == 3
    assert line["model"]["reg_lambda"] == 1.0  # completed with defaults
    assert line["engine"] == {"name": "plain", "bits": 0, "insecure": True, "security_level": 0}
    assert line["defense"] == []
    assert (line["party"], line["attack"]) == ("telco", {"kind": "clustering"})
    assert (rows[1].attack, rows[-1].defense) == (
        {"kind": "id2graph", "eta": None, "chunk": None, **ID2GRAPH},
        ({"kind": "local-trees", "count": 1, "mode": "replace"},),
    )
    metrics = {"v_measure", "ari"}
    assert metrics <= line["leakage"].keys()
    assert line["leakage"]["primary"] == "v_measure"
    assert line["leakage"]["chance"].keys() == line["leakage"]["without_view"].keys() >= metrics
    metrics = {"auc", "accuracy", "f1", "logloss"}
    assert line["utility"].keys() == {*metrics, "alone", "joined", "primary"}
    assert line["utility"]["alone"].keys() == line["utility"]["joined"].keys() == metrics
    assert line["utility"]["primary"] == "auc"
    assert {"seconds", "bytes", "messages", "encryptions", "additions", "decryptions", "ciphertexts"} <= line[
        "cost"
    ].keys()
    assert all(value > 0 for value in line["cost"].values())
    assert {"labelward", "python", "numpy", "scikit-learn"} <= line["versions"].keys()
    assert read_rows(out) == rows


def test_the_undefended_run_is_lossless_and_clustering_needs_no_view(finished: Finished) -> None:
    _, rows = finished
    for row in rows:
        utility, leakage = row.utility, row.leakage or {}
        if not row.defense:
            assert {name: utility[name] for name in ("auc", "accuracy", "f1", "logloss")} == utility["joined"]
        if (row.attack or {})["kind"] == "clustering":
            assert {name: leakage[name] for name in ("v_measure", "ari", "matched_accuracy")} == leakage["without_view"]


def test_costs_are_those_of_the_run(finished: Finished) -> None:
    out, rows = finished
    row = rows[0]
    details = read_run(out, row.defense, row.seed)
    assert details is not None
    assert sum(flow.bytes for flow in details.wire) == row.cost.bytes
    assert sum(flow.messages for flow in details.wire) == row.cost.messages
    assert row.cost.encryptions == 2 * 455  # trees × training rows: both peers get the same ciphertexts
    received = [
        getattr(each.message, field)
        for party in ("active", "telco", "shop")
        for view in (View.load(out / "runs/none/1" / party / "view"),)
        for kind, field in ((EncryptedTreeRows, "gradients"), (LevelHistograms, "sums"))
        for each in view.received(kind)
    ]
    assert row.cost.ciphertexts == sum(digest.count for digest in received)  # what travels twice counts twice
    sums = View.load(out / "runs/none/1/active/view").received(LevelHistograms)
    assert row.cost.decryptions == sum(each.message.sums.count for each in sums)
    assert row.cost.decryptions < details.seen["active"].decrypted_sums // 3  # g, h, count in one; some sums follow
    assert details.duration == row.cost.seconds


def test_details_say_what_each_party_could_have_seen(finished: Finished) -> None:
    out, _ = finished
    details = read_run(out, [], 1)
    assert details is not None
    active, telco, shop = (details.seen[name] for name in ("active", "telco", "shop"))
    assert (active.role, telco.role) == ("active", "passive")
    assert (active.columns, telco.columns, shop.columns) == (12, 12, 6)
    assert active.rows == telco.rows == 455
    assert active.own_splits + telco.own_splits + shop.own_splits == active.own_splits + active.told_splits
    assert telco.leaves == telco.trees + telco.own_splits + telco.told_splits
    for seen in (telco, shop):
        assert None not in (seen.max_node_information, seen.max_node_bound, seen.joint_information, seen.joint_bound)
        assert 0 < seen.max_node_information <= seen.joint_information <= seen.joint_bound <= seen.label_entropy  # type: ignore[operator]
        assert seen.max_node_information <= seen.max_node_bound  # type: ignore[operator]
    assert details.key.insecure == ("plain engine",)
    assert details.test_rows == 114
    assert {(each.party, each.attack["kind"]) for each in details.attacks} == {
        (party, attack) for party in ("telco", "shop") for attack in ("clustering", "id2graph", "split-posterior")
    }
    for each in details.attacks:
        counts = {"rows of each class": [212, 357]} if each.attack["kind"] == "split-posterior" else {}
        assert each.auxiliary == {"classes": 2, **counts}
    defended = read_run(out, [{"kind": "id-lmid", "xi": 0.4}], 1)
    assert defended is not None
    assert {"kind": "id-lmid", "xi": 0.4}.items() <= defended.applied[0].items()


def test_local_trees_are_absent_from_the_views(finished: Finished) -> None:
    out, _ = finished
    bare, local = (read_run(out, defense, 1) for defense in ([], [{"kind": "local-trees", "count": 1}]))
    assert bare is not None
    assert local is not None
    assert (bare.seen["telco"].trees, local.seen["telco"].trees) == (2, 1)


def test_what_lies_on_disk_is_private(finished: Finished) -> None:
    out, _ = finished
    folders = [out, *(path for path in out.rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in out.rglob("*") if path.is_file()} == {0o600}
    assert (out / "runs" / "id-lmid-xi-0.4" / "2" / "shop" / "view").is_dir()
    assert (out / "runs" / "none" / "1" / "active" / "model").is_dir()
    assert (out / "data" / "1" / "telco.parquet").is_file()
    view = View.load(out / "runs" / "none" / "1" / "telco" / "view")
    assert view.header.insecure == ("plain engine",)
    assert view.parameter("model.depth") == 3


def test_the_stored_job_is_the_completed_one(finished: Finished, job: Jobs) -> None:
    out, _ = finished
    stored = load_job(out / "job.toml")
    assert stored.run == job().run
    assert stored.model.params["min_child_weight"] == 0.0
    assert stored.defenses[1].chain[0].params == {"count": 1, "mode": "replace"}
    assert stored.attacks[1].params == ID2GRAPH


def test_the_stored_job_goes_on_with_its_audit(finished: Finished, job: Jobs) -> None:
    """Names of folders and keys of rows do not depend on what was left out."""
    out, rows = finished
    before = snapshot(out)
    assert audit(load_job(out / "job.toml"), out) == rows
    whole = job(defense=[{"kind": "id-lmid", "xi": 0.4}, {"kind": "local-trees", "count": 1}])
    assert audit(whole, out) == rows
    assert snapshot(out) == before


def test_a_finished_audit_is_left_as_it_is(finished: Finished, job: Jobs) -> None:
    out, rows = finished
    before = snapshot(out)
    assert audit(job(), out) == rows
    assert snapshot(out) == before


def test_an_audit_without_attacks_has_those_that_stand_in_every_audit(job: Jobs, tmp_path: Path) -> None:
    rows = audit(job(attack=None, defense=None), tmp_path / "out")
    assert [(row.seed, row.party, row.attack["kind"]) for row in rows if row.attack] == [
        (seed, party, "split-posterior") for seed in (1, 2) for party in ("telco", "shop")
    ]


def test_an_audit_of_quantities_without_attacks_has_a_row_for_each_training(job: Jobs, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    values = np.random.default_rng(0).normal(size=(60, 4))
    np.savetxt(table, values, delimiter=",", header="a,b,c,label", comments="")
    data = {"table": str(table), "label": "label", "task": "regression"}
    parties = {"active": ["a"], "telco": ["b", "c"]}
    rows = audit(job(data=data, parties=parties, attack=None, defense=None), tmp_path / "out")
    assert [(row.seed, row.party, row.attack, row.leakage) for row in rows] == [
        (1, None, None, None),
        (2, None, None, None),
    ]


def test_the_sides_are_those_of_the_private_seeds_and_can_be_repeated(
    finished: Finished, job: Jobs, tmp_path: Path
) -> None:
    out, _ = finished
    one = job(attack=None, defense=None, run={"seeds": [1]})
    text = (out / PRIVATE_FILE).read_text()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / PRIVATE_FILE).write_text(text.replace("00" * 32, "01" * 32))
    audit(one, tmp_path / "again", repeat=[out])
    audit(one, tmp_path / "moved", repeat=[tmp_path / "other"])
    truth = [(folder / "data" / "1" / "truth.parquet").read_bytes() for folder in (out, tmp_path / "again")]
    assert truth[0] == truth[1] != (tmp_path / "moved" / "data" / "1" / "truth.parquet").read_bytes()
    assert (out / PRIVATE_FILE).stat().st_mode & 0o777 == 0o600
    with refused(OutputError, "other-run", field=str(tmp_path / "again")):
        audit(one, tmp_path / "again", repeat=[tmp_path / "other"])
    with refused(FileFormatError, "not-found", field=str(tmp_path / PRIVATE_FILE)):
        audit(one, tmp_path / "new", repeat=[tmp_path])


def test_an_audit_of_a_version_that_told_the_labels_does_not_go_on(job: Jobs, tmp_path: Path) -> None:
    one = job(attack=None, defense=None, run={"seeds": [1]})
    rows = audit(one, tmp_path / "out")
    (tmp_path / "out" / PRIVATE_FILE).unlink()
    with refused(OutputError, "other-run", field=str(tmp_path / "out")):
        audit(one, tmp_path / "out")
    assert read_rows(tmp_path / "out") == rows
    assert audit(one, tmp_path / "out", force=True)


KILLED = """
import os, signal, sys
from pathlib import Path
from labelward.auditing import audit as module
from labelward.job import load_job

when, folder = sys.argv[1], Path(sys.argv[2])
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)

def watch(event, done, total, detail):
    if when == "training" and (event, done, detail) == ("trees", 1, "id-lmid (xi 0.4), seed 1"):
        kill()

append, written = module.append_row, []
def append_and_die(out, row):
    append(out, row)
    written.append(row)
    if when == "rows" and len(written) == 8:
        kill()
    if when == "line" and len(written) == 9:
        with (out / "results.jsonl").open("ab") as file:
            file.write(b'{"format": 1, "data')
        kill()
module.append_row = append_and_die
module.audit(load_job(sys.argv[3]), folder, watch=watch, repeat=[Path(sys.argv[4])])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("when", "survive"), [("training", 6), ("rows", 8), ("line", 9)])
def test_a_killed_audit_goes_on_to_the_same_rows(
    when: str, survive: int, finished: Finished, job: Jobs, tmp_path: Path
) -> None:
    undisturbed, rows = finished
    out, script, job_file = tmp_path / "out", tmp_path / "killed.py", tmp_path / "job.toml"
    script.write_text(KILLED)
    job_file.write_text(job().to_toml())
    command = [sys.executable, script, when, out, job_file, undisturbed]
    dead = subprocess.run(command, capture_output=True, check=False)
    assert dead.returncode == -signal.SIGKILL, dead.stderr.decode()
    assert len(read_rows(out)) == survive
    assert without_seconds(audit(job(), out)) == without_seconds(rows)
    for view in undisturbed.rglob("view"):
        assert View.load(out / view.relative_to(undisturbed)).digest() == View.load(view).digest()


def test_ctrl_c_passes_through_and_keeps_what_is_finished(finished: Finished, job: Jobs, tmp_path: Path) -> None:
    def interrupt(event: str, done: int, total: int, detail: str) -> None:
        if (event, done) == ("runs", 2):
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        audit(job(), out, watch=interrupt)
    assert without_seconds(read_rows(out)) == without_seconds(finished[1][:12])
    assert without_seconds(audit(job(), out)) == without_seconds(finished[1])


def test_progress_counts_runs_trees_and_attacks(job: Jobs, tmp_path: Path) -> None:
    told: list[tuple[str, int, int, str]] = []
    audit(job(run={"seeds": [3]}, defense=None), tmp_path / "out", watch=lambda *news: told.append(news))
    assert told[0] == ("runs", 0, 1, "no defense, seed 3")
    assert told[-1] == ("runs", 1, 1, "")
    assert [news[1:3] for news in told if news[0] == "trees"] == [(0, 2), (1, 2), (2, 2)]
    assert [news[1:3] for news in told if news[0] == "attacks"] == [(done, 6) for done in range(6)]


IN_USE = """
import sys
from pathlib import Path
from labelward.errors import OutputError
from labelward.auditing.audit import audit
from labelward.job import load_job
for force in (False, True):
    try:
        audit(load_job(sys.argv[1]), Path(sys.argv[2]), force=force)
    except OutputError as error:
        print(error.code, error.value, error.reason)
"""


class TestOutputFolder:
    @pytest.mark.slow
    def test_one_audit_at_a_time(self, job: Jobs, tmp_path: Path) -> None:
        """Whether the second is to replace the first or not."""
        out, job_file, told = tmp_path / "out", tmp_path / "job.toml", list[str]()
        small = job(defense=None, attack=None)
        job_file.write_text(small.to_toml())

        def again(event: str, done: int, total: int, detail: str) -> None:
            if event == "runs" and done == 1:
                command = [sys.executable, "-c", IN_USE, job_file, out]
                told.extend(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())

        assert len(audit(small, out, watch=again)) == 4
        assert len(told) == 2
        for line in told:
            assert line.startswith(f"locked {out} ")
            assert f"process {os.getpid()}" in line
        assert not (out / ".lock").exists()

    def test_a_lock_that_a_killed_audit_left_is_no_obstacle(self, job: Jobs, tmp_path: Path) -> None:
        (tmp_path / ".lock").write_text("1")
        assert len(audit(job(defense=None, attack=None), tmp_path)) == 4

    def test_a_folder_within_another_audit_s_is_refused(self, finished: Finished, job: Jobs) -> None:
        out, _ = finished
        with refused(OutputError, "exists", field=str(out / "runs/other"), value=str(out)):
            audit(job(), out / "runs" / "other")
        assert not (out / "runs" / "other").exists()

    def test_another_job_is_refused_by_its_keys(self, finished: Finished, job: Jobs) -> None:
        out, _ = finished
        before = snapshot(out)
        other = job(model={"trees": 3, "depth": 3, "feature_fraction": 0.8}, run={"seeds": [1]})
        with refused(OutputError, "other-run", field=str(out), value=("model.trees",)):
            audit(other, out)
        assert snapshot(out) == before

    def test_force_replaces_an_audit_and_nothing_else(self, job: Jobs, tmp_path: Path) -> None:
        out = tmp_path / "out"
        audit(job(defense=None, attack=None), out)
        (out / "notes.txt").write_text("mine")
        rows = audit(job(defense=None, attack=None, run={"seeds": [4]}), out, force=True)
        assert [row.seed for row in rows] == [4, 4]
        assert sorted(path.name for path in (out / "data").iterdir()) == ["4", "source.json"]
        assert (out / "notes.txt").read_text() == "mine"

    @pytest.mark.parametrize("force", [False, True])
    def test_a_folder_of_something_else_is_never_touched(self, force: bool, job: Jobs, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "precious.csv").write_text("1")
        (tmp_path / "job.toml").write_text(job().to_toml())
        before = snapshot(tmp_path)
        with refused(OutputError, "foreign", field=str(tmp_path)):
            audit(job(), tmp_path, force=force)
        assert snapshot(tmp_path) == before

    def test_an_empty_folder_is_taken(self, job: Jobs, tmp_path: Path) -> None:
        assert len(audit(job(defense=None, attack=None), tmp_path)) == 4

    def test_a_file_in_the_way(self, job: Jobs, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_text("")
        with refused(OutputError, "exists", field=str(tmp_path / "file")):
            audit(job(), file)
        with refused(
            OutputError, "unwritable", field=str(tmp_path / "file" / "below" / "out"), value=str(tmp_path / "file")
        ):
            audit(job(), file / "below" / "out")

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that not even root can write to")
    def test_a_place_where_nobody_can_write(self, job: Jobs) -> None:
        with refused(OutputError, "unwritable", field="/proc/labelward"):
            audit(job(), Path("/proc/labelward"))

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_parent_that_cannot_be_written(self, job: Jobs, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        try:
            with refused(OutputError, "unwritable"):
                audit(job(), tmp_path / "out")
        finally:
            tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("sections", "error", "code", "field", "value", "about"),
    [
        ({"model": {"kind": "forrest"}}, JobError, "unknown", "[model]", "forrest", "'forest'?"),
        ({"model": {"tress": 3}}, JobError, "unknown", "[model]", "tress", "'trees'?"),
        ({"model": {"depth": 0}}, JobError, "range", "[model] depth", 0, "1 to 20"),
        ({"defense": [{"kind": "id-lmdi"}]}, JobError, "unknown", "[[defense]] 1", "id-lmdi", "'id-lmid'?"),
        ({"defense": [{"kind": "id-lmid"}]}, JobError, "missing", "[[defense]] 1 xi", None, ""),
        ({"defense": [{"kind": "id-lmid", "xi": -1}]}, JobError, "range", "[[defense]] 1 xi", -1, ""),
        (
            {"defense": [{"kind": "local-trees"}, {"kind": "id-lmid", "xi": [0.1, -1]}]},
            JobError,
            "range",
            "[[defense]] 2 xi",
            -1,
            "",
        ),
        (
            {"defense": [{"kind": "local-trees"}, {"kind": "local-trees", "count": 1}]},
            JobError,
            "duplicate",
            "[[defense]]",
            "local-trees (count 1, mode replace)",
            "",
        ),
        ({"attack": [{"kind": "id2grap"}]}, JobError, "unknown", "[[attack]] 1", "id2grap", "'id2graph'?"),
        (
            {"attack": [{"kind": "id2graph", "eta": 2}]},
            JobError,
            "range",
            "[[attack]] 1 eta",
            2,
            "",
        ),
        ({"encryption": {"engine": "palier"}}, JobError, "unknown", "[encryption] engine", "palier", "'paillier'?"),
        ({"encryption": {"bits": 2049}}, EncryptionError, "range", "[encryption] bits", 2049, ""),
        (
            {"data": {"table": "breast_cancre"}},
            DataError,
            "unknown",
            "[data] table",
            "breast_cancre",
            "'breast_cancer'?",
        ),
        (
            {"data": {"table": "digits"}, "model": {"objective": "binary:logistic"}},
            JobError,
            "unsupported",
            "[model] objective",
            "binary:logistic",
            "10 classes",
        ),
        (
            {"model": {"objective": "count:poisson"}},
            JobError,
            "unsupported",
            "[model] objective",
            "count:poisson",
            "2 classes",
        ),
        ({"data": {"table": "digits", "task": "regression"}}, PolicyError, "inapplicable", "", None, "regression"),
        (
            {"data": {"table": "digits"}, "model": {"scale_pos_weight": 2}},
            JobError,
            "unsupported",
            "[model] scale_pos_weight",
            2.0,
            "10 classes",
        ),
        (
            {"model": {"early_stopping_rounds": 5}},
            JobError,
            "conflict",
            "[model] early_stopping_rounds",
            5,
            "validation_size",
        ),
        ({"model": {"eval_metric": "rmse"}}, JobError, "conflict", "[model] eval_metric", "rmse", "'binary:logistic'"),
        ({"model": {"base_score": 1.5}}, JobError, "range", "[model] base_score", 1.5, ""),
        ({"model": {"kind": "forest", "gamma": -1}}, JobError, "range", "[model] gamma", -1, ""),
        (
            {"model": {"kind": "forest", "learning_rate": 0.1}},
            JobError,
            "unsupported",
            "[model] learning_rate",
            0.1,
            "'forest'",
        ),
        (
            {"parties": {"active": [], "telco": ["mean radus"]}},
            DataError,
            "columns",
            "party 'telco'",
            "mean radus",
            "'mean radius'?",
        ),
        ({"parties": {"active": 0.5, "truth": 0.5}}, JobError, "conflict", "[parties] truth", "truth", ""),
        (
            {"parties": {"active": [], "telco": ["mean radius"]}, "defense": [{"kind": "local-trees"}]},
            PolicyError,
            "inapplicable",
            "defense 'local-trees'",
            None,
            "no column",
        ),
        (
            {"defense": [{"kind": "local-trees", "count": 3}]},
            PolicyError,
            "inapplicable",
            "defense 'local-trees'",
            3,
            "model's 2",
        ),
    ],
)
def test_bad_input_is_named_before_anything_is_written(
    sections: dict[str, Any],
    error: type[LabelwardError],
    code: Code,
    field: str,
    value: object,
    about: str,
    job: Jobs,
    tmp_path: Path,
) -> None:
    out = tmp_path / "above" / "out"
    with refused(error, code, field=field, value=value) as raised:
        audit(job(**sections), out)
    assert about in raised.value.reason
    assert raised.value.exit_code == 2
    assert not out.parent.exists()


def test_a_feature_called_id_is_refused(job: Jobs, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("id,age,label\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(40)))
    parties = {"active": ["age"], "telco": ["id"]}
    with refused(DataError, "columns", field="party 'telco'", value="id"):
        audit(job(data={"table": str(table), "label": "label"}, parties=parties), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore:no test row has class:labelward.errors.DataWarning")
def test_an_attack_must_leave_rows_of_each_class_to_score(
    job: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class of which all rows are known would not count; an audit that has the attack already goes on."""
    x = np.random.default_rng(1).normal(size=(240, 4))
    rows = np.column_stack([x, np.arange(240) % 12 == 0])
    np.savetxt(tmp_path / "t.csv", rows, delimiter=",", header="a,b,c,d,label", comments="", fmt="%g")

    def asked(known: int, seeds: list[int]) -> Job:
        attack = [{"kind": "instance-clustering", "known_per_class": known}]
        data = {"table": str(tmp_path / "t.csv"), "label": "label", "test_size": 0.25}
        return job(data=data, parties={"active": 0.5, "telco": 0.5}, defense=None, attack=attack, run={"seeds": seeds})

    field = "[[attack]] 1 known_per_class"
    with refused(JobError, "labels", field=field, value=50) as caught:
        audit(asked(50, [1]), tmp_path / "out")
    for word in ("class '1'", "training rows", "left to score"):
        assert word in caught.value.reason
    assert not (tmp_path / "out").exists()
    (row, *_) = audit(asked(5, [1]), tmp_path / "few")
    assert 0 < row.leakage["accuracy"] <= 1
    with monkeypatch.context() as earlier:
        earlier.setattr("labelward.auditing.audit._check_known", lambda *_: None)
        audit(asked(50, [1]), tmp_path / "out")
    assert {row.seed for row in audit(asked(50, [1, 2]), tmp_path / "out")} == {1, 2}


def test_a_table_that_changed_is_refused_on_resume(job: Jobs, tmp_path: Path) -> None:
    """Rows of two data sets must not stand side by side."""
    table = tmp_path / "table.csv"

    def write(seed: int) -> None:
        x = np.random.default_rng(seed).normal(size=(60, 4))
        rows = np.column_stack([x, np.arange(60) % 2])
        np.savetxt(table, rows, delimiter=",", header="a,b,c,d,label", comments="", fmt="%.6f")

    write(1)
    asked = job(data={"table": str(table), "label": "label"}, run={"seeds": [1]})
    audit(asked, tmp_path / "out")
    (tmp_path / "out" / "results.jsonl").unlink()
    write(2)
    with refused(OutputError, "other-run", field=str(tmp_path / "out" / "data" / "source.json")):
        audit(asked, tmp_path / "out")


def test_a_damaged_result_file_is_refused(finished: Finished, job: Jobs, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with contextlib.suppress(KeyboardInterrupt):
        audit(job(defense=None, attack=None), out)
    (out / "results.jsonl").write_text("{}\n")
    with refused(InputError, "damaged", field=f"{out / 'results.jsonl'}, line 1"):
        audit(job(defense=None, attack=None), out)


@pytest.mark.slow
def test_an_audit_under_paillier_says_so(job: Jobs, tmp_path: Path) -> None:
    """2048 bits, and few rows and columns: views, counts and security level are those of real encryption."""
    table = tmp_path / "table.csv"
    lines = [f"{i % 7},{i % 5},{i % 3},{int(i % 7 + i % 5 + i % 3 > 5)}" for i in range(60)]
    table.write_text("age,height,weight,label\n" + "\n".join(lines) + "\n")
    chosen = job(
        data={"table": str(table), "label": "label"},
        parties={"active": ["height"], "telco": ["age", "weight"]},
        encryption={"engine": "paillier", "bits": 2048},
        defense=[{"kind": "id-lmid", "xi": 0.3}],
        run={"seeds": [1]},
    )
    rows = audit(chosen, tmp_path / "out")
    plain = audit(unencrypted(chosen), tmp_path / "plain")
    for row, bare in zip(rows, plain, strict=True):
        assert (row.leakage, row.utility) == (bare.leakage, bare.utility)  # no figure depends on the engine
        assert row.engine.security_level == 112
        assert (row.engine.bits, row.engine.insecure) == (2048, False)
        assert row.cost.encryptions >= 2 * 48
        assert row.cost.decryptions > 0
        assert row.cost.bytes > bare.cost.bytes
    details = read_run(tmp_path / "out", [], 1)
    assert details is not None
    assert details.key.insecure == ()
    assert details.key.kernel in ("ifma", "libgmp", "gmpy2")
    readable = {(flow.receiver, flow.type): flow.readable for flow in details.wire}
    assert readable["telco", "TreeRows"] == "all but gradients (encrypted)"
    assert readable["active", "LevelSums"] == "all of it (sums with its key)"
    assert readable["telco", "Level"] is True


def unencrypted(job: Job) -> Job:
    from dataclasses import replace

    from labelward.job import EncryptionSection

    return replace(job, encryption=EncryptionSection(engine="plain", insecure=True))


def test_the_largest_numbers_that_tables_let_through(job: Jobs, tmp_path: Path) -> None:
    """Neither k-means nor the ranking by importance nor the model may overflow."""
    draw, label = np.random.default_rng(0), np.arange(80) % 2
    columns = {name: draw.normal(size=80) + label for name in "abcd"}
    columns["a"][:2] = MAX_MAGNITUDE, -MAX_MAGNITUDE
    rows = np.column_stack([*columns.values(), label])
    table = tmp_path / "table.csv"
    np.savetxt(table, rows, delimiter=",", header="a,b,c,d,label", comments="")
    data = {"table": str(table), "label": "label", "partition": "importance"}
    found = audit(job(data=data, parties={"active": 0, "telco": 1.0}, defense=None), tmp_path / "out")
    assert len(found) == 6


def test_an_audit_keeps_what_was_expected(job: Callable[..., Job], finished: tuple[Path, list[Any]]) -> None:
    out, rows = finished
    for row in rows:
        run = read_run(out, row.defense, row.seed)
        assert run is not None
        assert run.estimate is not None
        assert set(run.estimate.phases) == set(run.phases)
        if not row.defense:
            assert run.estimate.encryptions == row.cost.encryptions
            assert run.estimate.decryptions == row.cost.decryptions


def test_what_splits_alone_reveal_of_columns_has_all_its_references(job: Jobs, tmp_path: Path) -> None:
    """Every audit with this attack ended in a traceback: the metric stood without its references."""
    small = job(
        parties={"active": 0.5, "telco": 0.5},
        model={"trees": 2, "depth": 3},
        defense=None,
        attack=[{"kind": "bin-reconstruction"}],
        run={"seeds": [1]},
    )
    (row,) = (each for each in audit(small, tmp_path / "out") if each.leakage["primary"] == "recovered")
    own = set(row.leakage) - {"chance", "without_view", "primary", "target"}
    assert own == {"recovered", "recovered_by_splits", "wrong"}
    assert row.leakage["recovered"] >= row.leakage["recovered_by_splits"]
    assert row.leakage["chance"].keys() == row.leakage["without_view"].keys() == own
    assert set(row.leakage["without_view"].values()) == {0.0}
