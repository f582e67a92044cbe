"""SIGKILL at random moments: a search goes on, and ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import killed_search
import msgspec
import pytest
from made_up import without_trainings

from labelward.job import Job
from labelward.tuning import ledger
from labelward.tuning.ledger import Evaluation
from labelward.tuning.tune import tune

KILLS = 20
VARIABLES = [{"name": "model.trees", "low": 1, "high": 2}, {"name": "model.learning_rate", "low": 0.01, "high": 0.5}]
QUICK: dict[str, Any] = {"variables": VARIABLES, "objectives": ["utility", "cost"], "prefixes": False}


def stored(out: Path) -> tuple[list[Evaluation], bytes]:
    """Return ledger, in any order and without seconds, and front."""
    found = ledger.read_evaluations(out)
    timeless = [msgspec.structs.replace(each, seconds=0.0) for each in found]
    return sorted(timeless, key=lambda each: each.key), (out / ledger.FRONT_FILE).read_bytes()


def undisturbed(job: Job, tmp_path: Path) -> Path:
    """Return the folder of a whole search, and write the job and the private seeds that an interrupted one uses."""
    tune(job, out=tmp_path / "whole")
    (tmp_path / "job.toml").write_text(job.to_toml())
    (tmp_path / "out").mkdir()
    return tmp_path / "whole"


@pytest.mark.slow
def test_a_search_that_is_killed_often_ends_as_an_undisturbed_one(
    small: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_trainings(monkeypatch.setattr)
    job = small(search="nsga2", evaluations=100, population=20)
    whole = undisturbed(job, tmp_path)
    command = [sys.executable, killed_search.__file__, tmp_path / "job.toml", tmp_path / "out", whole, KILLS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, env=environment)
    assert done.stdout.split() == [str(KILLS), "0"], done.stderr
    assert stored(tmp_path / "out") == stored(whole)


@pytest.mark.slow
def test_a_command_with_two_jobs_that_is_killed_goes_on(small: Callable[..., Job], tmp_path: Path) -> None:
    whole = undisturbed(small(evaluations=12, **QUICK), tmp_path)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "labelward", "tune", tmp_path / "job.toml", "--out", out, "--jobs", "2"]
    command += ["--repeat", whole]
    arguments = [*map(str, command), "--quiet"]
    killed = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while killed.poll() is None and killed_search.lines(out) < 4:
        time.sleep(0.001)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert 4 <= killed_search.lines(out) < 12
    again = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr
    assert stored(out) == stored(whole)
