"""``labelward relay``: two companies train through it, it ends when told to, and refuses what it cannot use."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small_jobs import Call, refused, write_table
from typer.testing import Result

PATIENCE = 300  # seconds, on a machine that does much else

COLUMNS = {"bank": "a0", "telco": "t0"}
JOB = """
[data]
id = "id"
[parties.bank]
role = "active"
{bank}
[parties.telco]
{telco}
[model]
trees = 2
depth = 2
[encryption]
engine = "plain"
insecure = true
[network]
address = "127.0.0.1:{port}"
listener = "relay"
certificates = "{party}"
"""


@pytest.fixture
def made(tmp_path: Path, call: Call) -> Path:
    """Certificates of a bank, a telco and a relay."""
    parties = [word for name in ("relay", "bank", "telco") for word in ("--party", name)]
    assert call("certs", "new", tmp_path, *parties, "--address", "127.0.0.1").exit_code == 0
    return tmp_path


def _start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "labelward", *map(str, arguments)], cwd=folder, stderr=subprocess.PIPE, text=True
    )


def _relay(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """Start a relay at any free port; return it and the port."""
    options = ("--listen", "127.0.0.1:0", "--certificates", "relay", "--party", "bank", "--party", "telco", "--json")
    process = _start(folder, "relay", *options)
    assert process.stderr is not None
    told = json.loads(process.stderr.readline())
    assert told["event"] == "listening"
    return process, told["port"]


@pytest.mark.network
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_told_to(made: Path, stop: signal.Signals) -> None:
    process, _ = _relay(made)
    process.send_signal(stop)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert json.loads(told.splitlines()[-1])["event"] == "stopped"


@pytest.mark.slow
@pytest.mark.network
def test_two_companies_train_through_it(made: Path) -> None:
    relay, port = _relay(made)
    try:
        parties = {}
        for party in ("bank", "telco"):
            ids: list[object] = [f"c{row}" for row in range(120)]
            write_table(made / f"{party}.csv", id=ids)
            tables = {"bank": "", "telco": ""}
            tables[party] = f'table = "{party}.csv"\ncolumns = ["{COLUMNS[party]}"]'
            tables[party] += '\nlabel = "label"' if party == "bank" else ""
            (made / f"{party}.toml").write_text(JOB.format(port=port, party=party, **tables))
            parties[party] = _start(made, "party", f"{party}.toml", "--as", party, "--out", f"run-{party}")
        for party, process in parties.items():
            _, told = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, f"{party}: {told}"
    finally:
        relay.terminate()
        _, told = relay.communicate(timeout=PATIENCE)
    connected = {line["peer"] for line in map(json.loads, told.splitlines()) if line["event"] == "connected"}
    assert connected == {"bank", "telco"}
    assert relay.returncode == 0
    assert json.loads((made / "run-bank" / "party.json").read_text())["peers"]["telco"]["sealed"]


def test_what_it_cannot_use_is_refused(made: Path, call: Call) -> None:
    def run(*options: object) -> Result:
        return call("relay", "--listen", "127.0.0.1:0", "--certificates", made / "relay", *options)

    before = signal.getsignal(signal.SIGTERM)
    refused(run("--party", "bank"), "--party", "two or more")
    refused(run("--party", "bank", "--party", "bank"), "--party", "'bank'")
    refused(run("--party", "bank", "--party", "telco", "--as", "hub"), "hub.crt")
    refused(run("--party", "bank", "--party", "relay"), "'relay' is a party")
    assert signal.getsignal(signal.SIGTERM) is before
