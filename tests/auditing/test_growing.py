"""Audits that grow: asked for step by step, they have the rows of the audit that was asked for at once."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from labelward.auditing import audit as module
from labelward.auditing.audit import audit
from labelward.errors import OutputError
from labelward.job import Job, load_job
from labelward.runs.directory import SOURCE_FILE
from labelward.runs.schema import ResultRow, read_rows, read_run
from refusals import refused

Jobs = Callable[..., Job]

XI = [{"kind": "id-lmid", "xi": 0.4}, {"kind": "id-lmid", "xi": 0.2}]
ATTACKS = [{"kind": "clustering"}, {"kind": "union"}, {"kind": "split-posterior"}]
STEPS: list[dict[str, Any]] = [
    {"defense": XI[:1], "attack": ATTACKS[:1], "run": {"seeds": [1]}},
    {"defense": XI, "attack": ATTACKS[:1], "run": {"seeds": [1]}},
    {"defense": XI, "attack": ATTACKS[:2], "run": {"seeds": [1]}},
    {"defense": XI, "attack": ATTACKS[1:], "run": {"seeds": [2]}},  # what was asked before stays
    {"defense": XI, "attack": ATTACKS, "run": {"seeds": [1, 2]}},
]


def alike(rows: list[ResultRow]) -> dict[str, Any]:
    """Return rows by key, without seconds."""
    rows = [msgspec.structs.replace(row, cost=msgspec.structs.replace(row.cost, seconds=0.0)) for row in rows]
    return {row.key(): row for row in rows}


@pytest.fixture(scope="module")
def small(job: Jobs) -> Callable[..., Job]:
    return lambda **changes: job(model={"trees": 2, "depth": 3}, **changes)


@pytest.fixture(scope="module")
def at_once(small: Jobs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("once") / "audit"
    audit(small(**STEPS[-1]), out)
    return out


@pytest.mark.slow
def test_step_by_step(small: Jobs, at_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, trained = tmp_path / "audit", []

    def count(*args: Any, **options: Any) -> Any:
        trained.append(options["seed"])
        return run_training(*args, **options)

    run_training = module.run_training
    monkeypatch.setattr(module, "run_training", count)
    for number, (step, trainings) in enumerate(zip(STEPS, ([1, 1], [1], [], [2, 2, 2], []), strict=True)):
        trained.clear()
        audit(small(**step), out, repeat=[at_once] if number == 0 else [])
        assert trained == trainings
    once = alike(read_rows(at_once))
    assert alike(read_rows(out)) == once
    for variant in load_job(out / "job.toml").variants():
        for seed in (1, 2):
            grown, whole = (read_run(folder, variant.as_list(), seed) for folder in (out, at_once))
            assert grown is not None
            assert whole is not None
            assert [(each.party, each.attack) for each in grown.attacks] == [
                (each.party, each.attack) for each in whole.attacks
            ]
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    audit(small(**STEPS[0]), out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_keys_that_change_no_figure(job: Jobs, finished: tuple[Path, list[ResultRow]], tmp_path: Path) -> None:
    asked, out = job(), shutil.copytree(finished[0], tmp_path / "audit")
    moved = dataclasses.replace(asked, encryption=dataclasses.replace(asked.encryption, workers=1))
    rows = (out / "results.jsonl").read_bytes()
    audit(moved, out)
    assert (out / "results.jsonl").read_bytes() == rows
    model = dataclasses.replace(asked.model, params={**asked.model.params, "trees": 3})
    deeper = dataclasses.replace(asked, model=model)
    with refused(OutputError, "other-run", value=("model.trees",)):
        audit(deeper, out)


def test_other_data(small: Jobs, tmp_path: Path) -> None:
    """Also where only rows that are tested on have changed, which are stored nowhere."""
    out = tmp_path / "audit"
    audit(small(defense=None, attack=ATTACKS[:1], run={"seeds": [1]}), out)
    path = out / "data" / SOURCE_FILE
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "tables": ["0" * 64]}))
    with refused(OutputError, "other-run", field=str(path)):
        audit(small(defense=None, attack=ATTACKS[:2], run={"seeds": [1]}), out)


KILLED = """
import os, signal, sys
from pathlib import Path
from labelward.auditing import audit as module
from labelward.job import load_job

def before(name):
    call = getattr(module, name)
    def die(*args):
        if name != "attack_training" or len(seen) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(args)
        return call(*args)
    seen = []
    setattr(module, name, die)

before(sys.argv[1])
module.audit(load_job(sys.argv[3]), Path(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["attack_training", "write_run", "replace_rows"])
def test_killed_while_it_grows(small: Jobs, at_once: Path, tmp_path: Path, when: str) -> None:
    out, file, script = tmp_path / "audit", tmp_path / "job.toml", tmp_path / "killed.py"
    audit(small(**{**STEPS[-1], "attack": ATTACKS[:1]}), out, repeat=[at_once])
    before = read_rows(out)
    file.write_text(small(**STEPS[-1]).to_toml())
    script.write_text(KILLED)
    done = subprocess.run([sys.executable, script, when, out, file], check=False, env={**os.environ})
    assert done.returncode == -signal.SIGKILL
    assert alike(read_rows(out)) == alike(before)  # nothing is lost
    audit(load_job(file), out)
    assert alike(read_rows(out)) == alike(read_rows(at_once))
