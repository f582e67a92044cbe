"""No secret lies on a disk, however a run ended: searched for by bytes in what parties wrote under umask 000."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from companies import Case, Companies, companies

pytestmark = [pytest.mark.network, pytest.mark.slow]

CASE = Case(
    model="trees = 40\ndepth = 2\nbins = 8",
    parties=("bank", "telco"),
    encryption="bits = 512\ninsecure = true\nworkers = 1",
)
SECRETS = "secrets"


def finished(made: Companies) -> None:
    made.edit("bank.toml", "trees = 40", "trees = 3")
    made.edit("telco.toml", "trees = 40", "trees = 3")
    made.start_all()
    made.ended(bank=0, telco=0)


def killed(made: Companies) -> None:
    running = made.start_all()
    made.wait_for("bank", "trees", count=3)
    for process in running.values():
        process.kill()


def interrupted(made: Companies) -> None:
    running = made.start_all()
    made.wait_for("bank", "trees", count=3)
    os.killpg(running["bank"].popen.pid, signal.SIGINT)
    made.ended(bank=2, telco=3)


def failed(made: Companies) -> None:
    made.changes["telco"] += ("fails=2",)
    made.start_all()
    made.ended(bank=3, telco=1)


def full(made: Companies) -> None:
    made.start("telco")
    made.start("bank", largest=40_000)
    made.ended(bank=2, telco=3)


@pytest.mark.parametrize("end", [finished, killed, interrupted, failed, full])
def test_no_secret_is_written(tmp_path: Path, end: object) -> None:
    """Of all parties the private keys, in any party's files; of the bank labels and gradients, in telco's."""
    assert callable(end)
    secrets = tmp_path / SECRETS
    changes = dict.fromkeys(CASE.parties, ("umask=0", f"secrets={secrets}"))
    with companies(tmp_path / "run", CASE, changes=changes) as made:
        end(made)
        written = {party: _written(made, party) for party in CASE.parties}
        kept = dict(line.split() for line in secrets.read_text().splitlines())
        assert {name.rstrip("0123456789") for name in kept} == {
            "prime",
            "gradients",
            "integers",
            "labels",
            "bits",
            "public",
        }
        keys = [_der(made.folder / f"certs-{party}" / f"{party}.key") for party in CASE.parties]
    assert all(len(files) > 3 for files in written.values())
    for party, files in written.items():
        foreign = {name for name in kept if (party == "telco" and not name.startswith("public")) or "prime" in name}
        sought = {name: bytes.fromhex(kept[name]) for name in foreign}
        sought |= {f"key {number}": key for number, key in enumerate(keys)}
        for path, content in files.items():
            assert [name for name, secret in sought.items() if _is_in(content, secret)] == [], path
    view = written["telco"][made.run("telco") / "telco" / "view" / "transcript.lwt"]
    assert _is_in(view, bytes.fromhex(kept["public1"])), "what was sent is not found either"


def _is_in(content: bytes, secret: bytes) -> bool:
    forms = (secret, secret[::-1], secret.hex().encode(), str(int.from_bytes(secret, "big")).encode())
    return any(form in content for form in forms)


def _written(made: Companies, party: str) -> dict[Path, bytes]:
    """Return all files of a party's run, none of which anybody else may read."""
    run = made.run(party)
    open_to_all = [path for path in (run, *run.rglob("*")) if path.lstat().st_mode & 0o077]
    assert open_to_all == []
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def _der(path: Path) -> bytes:
    """Return the middle of a private key, where its number is."""
    import base64

    lines = re.findall(rb"^[A-Za-z0-9+/=]+$", path.read_bytes(), re.MULTILINE)
    return base64.b64decode(b"".join(lines))[36:68]
