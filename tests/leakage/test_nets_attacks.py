"""Label inference against split networks within an audit: honest runs, runs in which the attacker deviates, offline."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest
import torch
from typer.testing import CliRunner, Result

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.known_label_models import fit_logistic
from labelward.auditing import audit as auditing
from labelward.auditing.audit import audit
from labelward.cli._summary import as_json
from labelward.cli.app import app
from labelward.errors import Code, JobError
from labelward.federation.components import check_job, with_defaults
from labelward.federation.train import train_variant
from labelward.job import Job
from labelward.leakage import run_attack
from labelward.party.view import View
from labelward.protocols.splitnn.share import NetShare
from labelward.report.load import read_audit
from labelward.report.narrative import diverged_notice
from labelward.report.page import write_report
from labelward.runs.diverged_runs import diverged_runs
from labelward.runs.schema import ResultRow, read_run, run_folder
from refusals import refused
from standing import listed

torch.set_num_threads(1)  # sums of several threads round differently; a rehearsal's parties share the cores

COMPLETION = {"auxiliary": 10, "steps": 40}
JOB: dict[str, Any] = {
    "parties": {"active": 0.5, "telco": 0.5},
    "model": {"kind": "splitnn", "top": False, "epochs": 2, "batch_size": 64, "width": 8},
    "encryption": None,
    "defense": [{"kind": "gradient-compression", "keep": 0.3}],
    "attack": [
        {"kind": "active-completion", **COMPLETION},
        {"kind": "passive-completion", **COMPLETION},
        {"kind": "direct"},
        {"kind": "clustering"},
    ],
    "run": {"seeds": [1]},
}
SLUG = "telco-malicious-optimizer"
Finished = tuple[Path, list[ResultRow]]


@pytest.fixture(scope="module")
def nets(job: Callable[..., Job], tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """An audit of a small split network: its folder and rows. Only to be read."""
    out = tmp_path_factory.mktemp("nets") / "audit"
    return out, audit(job(**JOB), out)


def attacked(rows: list[ResultRow], kind: str, *, defended: bool = False) -> ResultRow:
    (found,) = [row for row in rows if row.attack and row.attack["kind"] == kind and bool(row.defense) == defended]
    return found


def leak(row: ResultRow) -> dict[str, Any]:
    assert row.leakage is not None
    return row.leakage


@pytest.mark.slow
def test_each_attack_has_a_row_with_what_it_is_compared_with(nets: Finished) -> None:
    _, rows = nets
    assert len(listed(rows)) == 8
    for kind in ("passive-completion", "active-completion"):
        found = leak(attacked(rows, kind))
        assert found["primary"] == "balanced_accuracy"
        assert set(found["beside"]) == {"logistic", "boosted", "all labels"}
        assert found["without_view"].keys() == found["chance"].keys() >= {"accuracy", "auc", "f1", "outside_accuracy"}
    assert leak(attacked(rows, "direct"))["accuracy"] == 1.0  # the sign of a logit's gradient names the class
    assert "beside" not in leak(attacked(rows, "clustering"))


def test_an_attacker_that_breaks_the_training_does_not_end_the_audit(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compounding steps of the published code; the other attacks have their rows, and nothing is trained again."""
    attack = [
        {"kind": "active-completion", "reading": "published", "gamma": 1e6, "most": 1e9, **COMPLETION},
        {"kind": "direct"},
    ]
    made = job(**{**JOB, "defense": None, "attack": attack})
    rows = audit(made, tmp_path / "out")
    assert [row.attack["kind"] for row in listed(rows) if row.attack] == ["direct"]
    (found,) = diverged_runs(tmp_path / "out")
    assert (found.party, found.behavior["kind"], found.seed) == ("telco", "malicious-optimizer", 1)
    assert not list((tmp_path / "out").glob("runs/*/*malicious*/*/view"))
    assert diverged_notice([found])
    write_report(tmp_path / "out")
    monkeypatch.setattr(auditing, "run_training", None)
    assert audit(made, tmp_path / "out") == rows


def test_a_defense_that_breaks_the_training_does_not_end_the_audit(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defenses = [
        {"kind": "noisy-gradients", "distribution": "gaussian", "scale": 1e30},
        {"kind": "gradient-compression", "keep": 0.3},
    ]
    made = job(**{**JOB, "defense": defenses, "attack": [{"kind": "direct"}]})
    rows = audit(made, tmp_path / "out")
    assert [[spec["kind"] for spec in row.defense] for row in listed(rows)] == [[], ["gradient-compression"]]
    (found,) = diverged_runs(tmp_path / "out")
    assert (found.party, found.behavior, found.seed) == (None, None, 1)
    assert found.defense.startswith("noisy-gradients")
    assert not list((tmp_path / "out").glob("runs/noisy*/*/*/view"))
    stored = read_audit(tmp_path / "out")
    assert (stored.finished, stored.expected, stored.missing) == (3, 3, 0)
    assert as_json(tmp_path / "out", None, rows)["diverged"] == [
        {"defense": found.defense, "party": None, "behavior": None, "seed": 1, "reason": found.reason}
    ]
    monkeypatch.setattr(auditing, "run_training", None)
    assert audit(made, tmp_path / "out") == rows


def test_an_undefended_training_that_diverges_ends_the_audit(job: Callable[..., Job], tmp_path: Path) -> None:
    made = job(**{**JOB, "model": {**JOB["model"], "learning_rate": 1e30}, "attack": [{"kind": "direct"}]})
    with refused(JobError, "diverged"):
        audit(made, tmp_path / "out")
    assert not diverged_runs(tmp_path / "out")


@pytest.mark.slow
def test_an_active_attack_has_a_run_of_its_own(nets: Finished) -> None:
    out, rows = nets
    active, passive = (attacked(rows, f"{kind}-completion") for kind in ("active", "passive"))
    assert active.behavior == {"kind": "malicious-optimizer"}
    assert passive.behavior is None
    assert active.utility != passive.utility
    assert active.utility["joined"] == passive.utility["joined"]
    off, honest = (run_folder(out, [], 1, slug) / "telco" for slug in (SLUG, ""))
    assert off.parent.name == f"1-{SLUG}"
    assert [each["kind"] for each in View.load(off / "view").applied() if each["stage"] == "behavior"] == [
        "malicious-optimizer"
    ]
    assert not [each for each in View.load(honest / "view").applied() if each["stage"] == "behavior"]
    assert NetShare.load(off / "model").behavior["kind"] == "malicious-optimizer"
    details = read_run(out, [], 1, SLUG)
    assert details is not None
    assert details.deviation == {"party": "telco", "kind": "malicious-optimizer"}
    assert [each.attack["kind"] for each in details.attacks] == ["active-completion"]


def test_the_honest_run_is_that_of_a_training_without_attacks(
    nets: Finished, job: Callable[..., Job], tmp_path: Path
) -> None:
    out, rows = nets
    alone = train_variant(job(**JOB), tmp_path / "alone", seed=1, variant="none")
    utility = attacked(rows, "passive-completion").utility
    assert {name: utility[name] for name in alone.utility} == alone.utility
    for party in ("active", "telco"):
        here, there = run_folder(out, [], 1) / party, tmp_path / "alone" / party
        loaded = [NetShare.load(each / "model") for each in (here, there)]
        shares = [msgspec.structs.replace(each, model="", evidence=None) for each in loaded]
        assert shares[0] == shares[1]
        assert View.load(here / "view").digest() == View.load(there / "view").digest()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "slug"), [("passive-completion", ""), ("active-completion", SLUG), ("direct", "")])
def test_a_new_process_reaches_the_same_figures_with_what_the_party_has(
    nets: Finished, tmp_path: Path, kind: str, slug: str
) -> None:
    """Its folder of the run, its columns and the labels that it was told lie alone in another place."""
    out, rows = nets
    own = tmp_path / "own"
    shutil.copytree(run_folder(out, [], 1, slug) / "telco", own)
    data = out / "data" / "1"
    for name in ("telco", "known-10"):
        shutil.copy(data / f"{name}.parquet", own / f"{name}.parquet")
    arguments = ["attack", str(own / "view"), "--features", str(own / "telco.parquet"), "--attack", kind]
    arguments += ["--classes", "2", "--seed", "1", "--out", str(tmp_path / "guess.parquet")]
    if kind != "direct":
        arguments += ["--known", str(own / "known-10.parquet"), "--param", "auxiliary=10", "--param", "steps=40"]
    run(*arguments)
    scored = run("score", str(tmp_path / "guess.parquet"), "--truth", str(data / "truth.parquet"), "--json")
    found, wanted = json.loads(scored), leak(attacked(rows, kind))
    for metric in ("accuracy", "auc", "f1"):
        assert found[metric] == pytest.approx(wanted[metric], abs=1e-9)  # another process, other threads
        assert found["chance"][metric] == pytest.approx(wanted["chance"][metric], abs=1e-9)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (["auxiliary=40"], ["auxiliary is 40, but table", "known-10.parquet", "10 known labels"]),
        (["auxiliary=9", "steps=4"], ["auxiliary is 9, but table", "known-10.parquet", "10 known labels"]),
        (["steps=4"], []),
        (["auxiliary=10", "steps=4"], []),
        (["auxiliary=40", "labels=direct", "steps=4"], []),
    ],
)
def test_the_file_of_known_labels_says_how_many_there_are(
    nets: Finished, tmp_path: Path, parameters: list[str], words: list[str]
) -> None:
    """With labels read from gradients auxiliary is how many of these count, whatever the attacker was told."""
    ended = attack_by_hand(nets[0], tmp_path, "telco", "passive-completion", parameters)
    refused_with(ended, words)
    assert (tmp_path / "guess.parquet").exists() == (not words)


@pytest.mark.parametrize("kind", ["passive-completion", "active-completion", "direct"])
def test_the_active_party_s_view_is_refused(nets: Finished, tmp_path: Path, kind: str) -> None:
    ended = attack_by_hand(nets[0], tmp_path, "active", kind, [])
    refused_with(ended, [f"attack '{kind}': reads views of passive"])
    assert not (tmp_path / "guess.parquet").exists()


def test_an_attack_on_trees_refuses_the_view_of_a_network(nets: Finished, tmp_path: Path) -> None:
    """It would find no trees there, and guess what clustering of the party's own columns does."""
    ended = attack_by_hand(nets[0], tmp_path, "telco", "id2graph", [])
    refused_with(ended, ["attack 'id2graph' reads views of 'secureboost'", "not of 'splitnn'"])
    assert not (tmp_path / "guess.parquet").exists()


def attack_by_hand(out: Path, tmp_path: Path, party: str, kind: str, parameters: list[str]) -> Result:
    data, view = out / "data" / "1", run_folder(out, [], 1) / party / "view"
    arguments = ["attack", view, "--features", data / f"{party}.parquet", "--known", data / "known-10.parquet"]
    arguments += ["--attack", kind, "--classes", 2, "--seed", 1, "--out", tmp_path / "guess.parquet"]
    arguments += [word for each in parameters for word in ("--param", each)]
    return CliRunner().invoke(app, [str(each) for each in arguments], prog_name="labelward")


def refused_with(ended: Result, words: list[str]) -> None:
    """Exit code 2 and one line without a traceback; for no words, success."""
    assert ended.exit_code == (2 if words else 0), ended.output
    lines = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == bool(words)
    assert "Traceback" not in ended.output
    for word in words:
        assert word in lines[0]


def run(*arguments: str) -> str:
    code = "import sys, torch\ntorch.set_num_threads(1)\nfrom labelward.cli import main\nmain()"
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_what_attackers_were_told_is_stored(nets: Finished) -> None:
    out, _ = nets
    known = pyarrow.parquet.read_table(out / "data" / "1" / "known-10.parquet")
    truth = pyarrow.parquet.read_table(out / "data" / "1" / "truth.parquet").to_pylist()
    assert sorted(known["label"].to_pylist()) == ["0"] * 5 + ["1"] * 5
    assert all(row in truth for row in known.to_pylist())


@pytest.mark.slow
def test_an_interrupted_audit_trains_again_only_what_is_missing(
    nets: Finished, job: Callable[..., Job], tmp_path: Path
) -> None:
    out, rows = nets
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    (run_folder(copy, [], 1, SLUG) / "run.json").unlink()
    begun: list[str] = []
    again = audit(
        job(**JOB), copy, watch=lambda what, done, total, detail: begun.append(detail) if what == "runs" else None
    )
    assert [each for each in begun if each] == ["no defense, telco: malicious-optimizer, seed 1"]
    assert [row.key() for row in again] == [row.key() for row in rows]


def test_the_report_tells_runs_apart(nets: Finished) -> None:
    text = re.sub(r"\s+", " ", write_report(nets[0]).read_text())
    assert "no defense, telco: malicious-optimizer" in text
    assert "reads all embeddings" in text
    assert "Baselines: inference" in text
    assert "active attacks" in text
    assert "decrypts the sums" not in text
    assert "decrypted sums" not in text
    assert "known labels = 10" in text


@pytest.mark.parametrize(
    ("changes", "code", "field", "value", "about"),
    [
        ({"model": {"kind": "splitnn"}}, "unsupported", "[[attack]] 3", None, "top = false"),
        (
            {"model": {"kind": "secureboost"}, "defense": None},
            "unsupported",
            "[[attack]] 1",
            "secureboost",
            "'splitnn'",
        ),
        (
            {"attack": [{"kind": "active-completion", "most": 0.5}]},
            "conflict",
            "[[attack]] 1 malicious-optimizer least",
            1.0,
            "0.5 (most)",
        ),
    ],
)
def test_attacks_that_cannot_be(
    job: Callable[..., Job], changes: dict[str, Any], code: Code, field: str, value: object, about: str
) -> None:
    with refused(JobError, code, field=field, value=value) as caught:
        check_job(with_defaults(job(**{**JOB, **changes})))
    assert about in caught.value.reason


@pytest.mark.parametrize(
    ("attack", "impossible"),
    [
        ({"kind": "direct"}, True),
        ({"kind": "passive-completion", "labels": "direct"}, True),
        ({"kind": "active-completion", "labels": "direct"}, True),
        ({"kind": "passive-completion"}, False),
    ],
)
def test_what_reads_gradients_is_refused_before_a_run_that_keeps_digests(
    job: Callable[..., Job], tmp_path: Path, attack: dict[str, Any], impossible: bool
) -> None:
    made = job(**{**JOB, "attack": [attack], "run": {"seeds": [1], "record": "digests"}})
    if not impossible:
        check_job(with_defaults(made))
        return
    with refused(JobError, "conflict", field="[[attack]] 1", value="digests"):
        audit(made, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_only_the_parties_that_are_named_attack(job: Callable[..., Job], tmp_path: Path) -> None:
    parties = {"active": 0.4, "party2": 0.3, "telco": 0.3}
    made = job(**{**JOB, "parties": parties, "defense": None, "attack": [{"kind": "active-completion", **COMPLETION}]})
    rows = audit(made, tmp_path / "out", attackers=("telco",), explained=False)
    assert [row.party for row in listed(rows)] == ["telco"]
    assert {row.party for row in rows} == {"telco"}
    runs = {path.name for path in (tmp_path / "out" / "runs" / "none").iterdir()}
    assert runs == {"1", f"1-{SLUG}"}


@pytest.mark.slow
def test_baselines_are_learned_once_for_attacks_that_know_the_same_rows(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = []

    def counted(own: AttackerData, aux: AuxiliaryKnowledge) -> LabelGuess:
        learned.append(len(aux.known_rows))
        return fit_logistic(own, aux)

    monkeypatch.setattr(run_attack, "fit_logistic", counted)
    kinds = [{"auxiliary": 10}, {"auxiliary": 10, "fine_tune": True}, {"auxiliary": 20}]
    attacks = [{"kind": "passive-completion", "steps": 20, **each} for each in kinds]
    made = job(**{**JOB, "defense": None, "attack": attacks, "leakage": {"upper_bound": False}})
    rows = audit(made, tmp_path / "out", explained=False)
    assert learned == [10, 20]
    first, second, third = (leak(row)["beside"]["logistic"] for row in listed(rows))
    assert first == second != third


def test_too_few_known_labels(job: Callable[..., Job], tmp_path: Path) -> None:
    few = {"kind": "passive-completion", "auxiliary": 1}
    with refused(JobError, "labels", field="[[attack]] 1 auxiliary", value=1):
        audit(job(**{**JOB, "attack": [few]}), tmp_path / "out")
    assert not (tmp_path / "out").exists()
