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
    made.stop_at("bank", "trees", 3)
    running = made.start_all()
    made.stopped("bank")
    for process in running.values():
        process.kill()


def interrupted(made: Companies) -> None:
    made.stop_at("bank", "trees", 3)
    made.start_all()
    process = made.stopped("bank")
    os.killpg(process.popen.pid, signal.SIGINT)
    process.popen.send_signal(signal.SIGCONT)
    made.ended(bank=2, telco=3)


def failed(made: Companies) -> None:
    made.changes["telco"] += ("fails=2",)
    made.start_all()
    made.ended(bank=3, telco=1)


def full(made: Companies) -> None:
    made.start("telco")
    made.start("bank", largest=40_000)
    made.ended(bank=2, telco=3)


def resumed(made: Companies) -> None:
    """Killed, gone on with, and predicted with."""
    for party in CASE.parties:
        made.edit(f"{party}.toml", "trees = 40", "trees = 5")
    made.stop_at("bank", "trees", 3)
    made.start_all()
    made.stopped("bank").kill()
    made.start("bank")
    made.ended(bank=0, telco=0)
    for party in CASE.parties:
        to = ("--to", "predictions.parquet") if party == "bank" else ()
        made.start(party, "--predict", f"{party}.csv", *to)
    made.ended(bank=0, telco=0)


def disturbed(made: Companies) -> None:
    made.changes["telco"] += ("hostile=garbage,12",)
    for process in made.start_all().values():  # else files are looked for while it writes and renames them
        process.wait()


def away(made: Companies) -> None:
    for party in CASE.parties:
        made.edit(f"{party}.toml", "timeout = 120.0", "timeout = 3.0")
    made.stop_at("telco", "trees", 3)
    running = made.start_all()
    made.stopped("telco").kill()
    assert running["bank"].wait() == 3


@pytest.mark.parametrize("end", [finished, killed, interrupted, failed, full, resumed, disturbed, away])
def test_no_secret_is_written(tmp_path: Path, end: object) -> None:
    """Of all parties the private keys, in any party's files; of the bank labels and gradients, in telco's.

    What a killed party leaves among its temporary files is searched, too; others leave nothing there.
    """
    assert callable(end)
    secrets = tmp_path / SECRETS
    changes = {party: ("umask=0", f"secrets={secrets}", f"temporary={tmp_path / party}") for party in CASE.parties}
    with companies(tmp_path / "run", CASE, changes=changes) as made:
        end(made)
        written = {party: _written(made.run(party)) for party in CASE.parties}
        left = {party: _written(tmp_path / party) for party in CASE.parties}
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
    ended = {killed: (), resumed: ("telco",), disturbed: ("bank",), away: ("bank",)}.get(end, CASE.parties)
    assert not [path for party in ended for path in left[party]]
    for party, files in written.items():
        files |= left[party]
        foreign = {name for name in kept if (party == "telco" and not name.startswith("public")) or "prime" in name}
        sought = {name: bytes.fromhex(kept[name]) for name in foreign}
        sought |= {f"key {number}": key for number, key in enumerate(keys)}
        for path, content in files.items():
            assert [name for name, secret in sought.items() if _is_in(content, secret)] == [], path
    view = written["telco"][made.run("telco") / "telco" / "view" / "transcript.lwt"]
    sent = [bytes.fromhex(secret) for name, secret in kept.items() if name.startswith("public")]
    assert any(_is_in(view, each) for each in sent), "what was sent is not found either"


def _is_in(content: bytes, secret: bytes) -> bool:
    forms = (secret, secret[::-1], secret.hex().encode(), str(int.from_bytes(secret, "big")).encode())
    return any(form in content for form in forms)


def _written(run: Path) -> dict[Path, bytes]:
    """Return all files of a folder, none of which anybody else may read; sockets lie in a folder that nobody enters."""
    everything = [path for path in (run, *run.rglob("*")) if not path.is_socket()]
    open_to_all = [path for path in everything if path.lstat().st_mode & 0o077]
    assert open_to_all == []
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def _der(path: Path) -> bytes:
    """Return the middle of a private key, where its number is."""
    import base64

    lines = re.findall(rb"^[A-Za-z0-9+/=]+$", path.read_bytes(), re.MULTILINE)
    return base64.b64decode(b"".join(lines))[36:68]
