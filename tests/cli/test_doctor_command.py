"""``labelward doctor`` through its public face."""

import json

import pytest
from typer.testing import CliRunner

from labelward.cli.app import app


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
