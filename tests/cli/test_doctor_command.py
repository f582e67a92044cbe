"""``labelward doctor`` through its public face."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labelward.cli.app import app


@pytest.mark.slow
def test_it_tells_which_kernel_runs_and_how_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELWARD_KERNEL", "gmpy2")
    told = CliRunner().invoke(app, ["doctor", "--json"])
    assert told.exit_code == 0
    kernels = {each["kernel"]: each for each in json.loads(told.stdout)["kernels"]}
    assert kernels["gmpy2"]["chosen"]
    assert kernels["gmpy2"]["why"] == "LABELWARD_KERNEL asks for it"
    assert kernels["gmpy2"]["microseconds"].keys() == {"encrypt", "split", "add", "seal", "decrypt"}
    assert all(value > 0 for value in kernels["gmpy2"]["microseconds"].values())
    assert not kernels["ifma"]["chosen"]


def test_an_unknown_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELWARD_KERNEL", "fpga")
    told = CliRunner().invoke(app, ["doctor"])
    assert told.exit_code == 2
    assert "fpga" in told.stderr
    assert "Traceback" not in told.stderr


_WHOLE = """
import tempfile
from dataclasses import replace
from pathlib import Path
from labelward.auditing.audit import audit
from labelward.cli.audit import demo_job
from labelward.jit import watching_compilation
from labelward.job import EncryptionSection

job = demo_job(small=False)
open = EncryptionSection(engine="plain", insecure=True)
job = replace(job, run=replace(job.run, seeds=job.run.seeds[:1]), encryption=open)
seen = []
with tempfile.TemporaryDirectory() as folder, watching_compilation(lambda done, running: seen.append(done)):
    audit(job, Path(folder) / "audit")
print(len(seen))
"""
"""The whole demo, but for encryption and further seeds: how many events of compilation it has."""


@pytest.mark.slow
def test_warm_leaves_nothing_to_compile_for_the_demo(tmp_path: Path) -> None:
    """In new processes; the audit after it says nothing of compilation, the first one alone would."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    (tmp_path / "kernels").mkdir(mode=0o700)
    said = {}
    for words in (("doctor", "--warm"), ("demo", "--small", "--out", str(tmp_path / "demo"))):
        command = [sys.executable, "-m", "labelward", *words]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=True)
        said[words[0]] = ended.stderr
    whole = subprocess.run([sys.executable, "-c", _WHOLE], env=environment, capture_output=True, text=True, check=True)
    assert whole.stdout.split() == ["0"], whole.stdout
    assert "compiling kernels, once" in said["doctor"]
    assert "compiling" not in said["demo"]
    assert {path.name for path in tmp_path.iterdir()} == {"kernels", "demo"}
