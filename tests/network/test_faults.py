"""What goes wrong between companies, as their people see it: the last words of each process, and its exit code."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from companies import PATIENCE, Case, Companies, Process, companies
from undisturbed import Undisturbed, differences, end_of

from labelward.runs.party_record import read_party_record

pytestmark = pytest.mark.network

TWO = Case(parties=("bank", "telco"))
LONG = Case(model="trees = 12\ndepth = 2")
"""A party stops in its middle, whatever the machine's speed."""
FULL = Case(model="trees = 60\ndepth = 2")
"""Writes more than a small disk holds."""
REST = "run the same command again to resume"


def resumed(made: Companies, undisturbed: Undisturbed) -> None:
    """Start all parties with the same commands; the run ends as if nothing had happened."""
    made.start_all()
    made.ended(**dict.fromkeys(made.case.parties, 0))
    assert not differences(end_of(made), undisturbed.of(made.case)), made.told()


def shortly_patient(made: Companies, party: str, seconds: int = 15) -> None:
    """Let one party lose patience first, so that no other's can run out while processes start."""
    made.edit(f"{party}.toml", "timeout = 120.0", f"timeout = {seconds}.0")


def interrupt(process: Process) -> None:
    """Interrupt a process that has stopped, as a terminal does."""
    os.killpg(process.popen.pid, signal.SIGINT)
    process.popen.send_signal(signal.SIGCONT)


def blames(said: str, party: str) -> bool:
    """Whether an error names a party, be it first-hand or by what the active party says."""
    return re.match(f"error: (party 'bank' says of )?party {party!r}: ", said) is not None


@pytest.mark.slow
def test_a_peer_that_is_away_too_long(tmp_path: Path, undisturbed: Undisturbed) -> None:
    with companies(tmp_path / "run", LONG) as made:
        shortly_patient(made, "bank")
        made.stop_at("telco", "trees", 3)
        others = [made.start(party) for party in ("telco", "shop")]
        for party in ("telco", "shop"):
            made.wait_for(party, "waiting")
        made.start("bank")
        made.stopped("telco").kill()
        made.processes.remove(others[0])
        said = made.ended(bank=3, shop=3)
        for party in ("bank", "shop"):
            assert blames(said[party], "telco")
            assert "15 s" in said[party]
        assert "(message " in said["bank"]
        assert ", step [" in said["bank"]
        resumed(made, undisturbed)
        assert any(each.get("resume") for each in made.events("telco"))


@pytest.mark.slow
def test_a_peer_that_is_connected_and_does_nothing(tmp_path: Path) -> None:
    with companies(tmp_path / "run", changes={"telco": ("dawdles=2",)}) as made:
        made.edit("bank.toml", "timeout = 120.0", "timeout = 120.0\nsilence = 8.0")
        made.start_all()
        said = made.ended(bank=3, shop=3)
        assert blames(said["bank"], "telco")
        assert "8 s" in said["bank"]


@pytest.mark.slow
@pytest.mark.parametrize("party", ["bank", "telco"])
def test_an_interrupt_at_one_party(tmp_path: Path, undisturbed: Undisturbed, party: str) -> None:
    with companies(tmp_path / "run", LONG) as made:
        made.stop_at(party, "trees", 3)
        made.start_all()
        interrupt(made.stopped(party))
        others = {name: 3 for name in LONG.parties if name != party}
        said = made.ended(**{party: 2}, **others)
        assert said[party].startswith("interrupted: ")
        assert said[party].endswith(REST)
        for other in others:
            assert blames(said[other], party)
            assert "by its user (message " in said[other]
        resumed(made, undisturbed)


@pytest.mark.slow
def test_an_interrupt_within_native_code(tmp_path: Path, undisturbed: Undisturbed) -> None:
    """A compiled kernel that loads another one when Ctrl-C comes ends in an error of CPython's own."""
    with companies(tmp_path / "run", changes={"bank": ("interrupted=2",)}) as made:
        made.start_all()
        said = made.ended(bank=2, telco=3, shop=3)
        assert said["bank"].startswith("interrupted: ")
        assert said["bank"].endswith(REST)
        for other in ("telco", "shop"):
            assert "by its user (message " in said[other]
        made.changes.clear()
        resumed(made, undisturbed)


@pytest.mark.slow
def test_a_party_that_fails_by_itself(tmp_path: Path, undisturbed: Undisturbed) -> None:
    """Whatever it is: the others learn who, not what, since that may be private."""
    with companies(tmp_path / "run", changes={"telco": ("fails=2",)}) as made:
        made.start_all()
        said = made.ended(bank=3, telco=1, shop=3)
        for other in ("bank", "shop"):
            assert blames(said[other], "telco")
            assert "RuntimeError (message " in said[other]
            assert "c00017" not in made.told().partition("== telco")[0]
            assert "c00017" not in (made.run(other) / "log.jsonl").read_text()
        assert "c00017" not in (made.run("telco") / "log.jsonl").read_text()
        made.changes.clear()
        resumed(made, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("party", ["bank", "telco"])
def test_a_full_disk(tmp_path: Path, undisturbed: Undisturbed, party: str) -> None:
    """Stands for it: a limit on the size of files, at which writing fails in the same way."""
    with companies(tmp_path / "run", FULL) as made:
        others = {name: 3 for name in FULL.parties if name != party}
        for other in others:
            made.start(other)
        made.start(party, largest=40_000)
        said = made.ended(**{party: 2}, **others)
        assert said[party].startswith(f"error: {party}-{party}/{party}/")
        assert "File too large" in said[party]
        for other in others:
            assert blames(said[other], party)
            assert "cannot write its files" in said[other]
        resumed(made, undisturbed)


@pytest.mark.slow
def test_a_start_in_an_empty_folder(tmp_path: Path, undisturbed: Undisturbed) -> None:
    """It ends the attempt of all, names who has what, and costs nobody a tree; --restart begins anew."""
    with companies(tmp_path / "run", LONG, changes={"bank": ("seat=0",)}) as made:
        made.stop_at("telco", "trees", 3)
        made.start_all()
        made.stopped("telco").kill()
        wrong = made.start("telco", "--out", "other")
        assert wrong.wait() == 2
        said = made.ended(bank=2, shop=2, telco=2)
        for party in LONG.parties:
            assert re.search(r"'bank' has checkpoint \d+, 'telco' has none, 'shop' has checkpoint \d+", said[party])
        made.start("telco", "--out", "other")
        for party in ("bank", "shop"):
            made.start(party, "--restart")
        made.ended(bank=0, shop=0, telco=0)
        assert [each["attempts"] for each in made.events("shop") if each["event"] == "done"] == [3]


@pytest.mark.slow
def test_the_right_folder_after_a_wrong_one(tmp_path: Path, undisturbed: Undisturbed) -> None:
    """The place of a process that was killed is kept for its folder; the others wait, and nobody loses a tree."""
    with companies(tmp_path / "run", LONG) as made:
        made.stop_at("telco", "trees", 3)
        made.start_all()
        killed = made.stopped("telco")
        killed.kill()
        made.processes.remove(killed)
        wrong = made.start("telco", "--out", "other")
        assert wrong.wait() == 3
        assert "in another folder" in wrong.errors
        made.processes.remove(wrong)
        made.start("telco")
        made.ended(**dict.fromkeys(made.case.parties, 0))
        assert not differences(end_of(made), undisturbed.of(made.case)), made.told()
        assert any(each.get("resume") for each in made.events("telco"))


def test_another_version(tmp_path: Path) -> None:
    with companies(tmp_path / "run", TWO, changes={"telco": ("version=9.9",)}) as made:
        made.start_all()
        said = made.ended(bank=2, telco=2)
        for party in ("bank", "telco"):
            assert re.search(r"'telco' runs (labelward )?9\.9", said[party])
            assert "'bank' runs" in said[party]


def test_another_version_of_the_transport(tmp_path: Path) -> None:
    with companies(tmp_path / "run", TWO, changes={"telco": ("transport=2",)}) as made:
        made.start_all()
        said = made.ended(bank=2, telco=2)
        for party in ("bank", "telco"):
            assert "it speaks version 2" in said[party]


def test_jobs_that_differ(tmp_path: Path) -> None:
    with companies(tmp_path / "run") as made:
        made.edit("telco.toml", "depth = 3", "depth = 4\nlearning_rate = 0.1")
        made.start_all()
        said = made.ended(bank=2, telco=2, shop=2)
        for party in ("bank", "telco", "shop"):  # whether it found out itself or was told, which is a matter of timing
            for key, bank, telco in (("model.depth", 3, 4), ("model.learning_rate", 0.3, 0.1)):
                assert key in said[party]
                assert f" {bank} at 'bank'" in said[party]
                assert f" {telco} at 'telco'" in said[party]


def test_rows_that_differ(tmp_path: Path) -> None:
    with companies(tmp_path / "run") as made:
        made.edit("telco.csv", "c00017", "x00017")
        made.start_all()
        said = made.ended(bank=2, telco=2, shop=2)
        for party in ("bank", "telco", "shop"):
            assert "1 ids are only" in said[party]


def test_two_processes_of_a_party(tmp_path: Path, undisturbed: Undisturbed) -> None:
    """In one folder the second is refused."""
    with companies(tmp_path / "run", TWO) as made:
        made.start("telco")
        made.wait_for("telco", "waiting")
        second = made.start("telco")
        assert second.wait() == 2
        assert "telco-telco is in use" in second.errors
        made.start("bank")
        made.wait_for("bank", "connected", peer="telco")


def test_a_process_in_another_folder_does_not_take_part(tmp_path: Path) -> None:
    """The first stays, and the model is its own; the others end, and are told of it."""
    with companies(tmp_path / "run") as made:
        made.start("bank")
        first = made.start("telco")
        made.wait_for("bank", "session", peer="telco")
        for _ in range(2):
            later = made.start("telco", "--out", "other")
            assert later.wait() == 3
            assert "in another folder" in later.errors
        made.start("shop")
        made.ended(bank=0, shop=0)
        assert first.wait() == 0
        models = {read_party_record(made.run(party)).model for party in ("bank", "telco", "shop")}  # type: ignore[union-attr]
        assert len(models) == 1
        assert not list(made.folder.glob("other/**/share*"))


def test_a_message_over_the_limit(tmp_path: Path) -> None:
    """Where it is sent, and, where only the receiver has such a limit, where it arrives."""
    small_key = "bits = 512\ninsecure = true\nworkers = 1"  # a block of rows has 2 MiB
    large = Case(model="trees = 1\ndepth = 1", parties=TWO.parties, rows=20_000, encryption=small_key)
    with companies(tmp_path / "run", large) as made:
        for limited in ("bank", "telco"):
            made.edit(f"{limited}.toml", "[network]\n", "[network]\nmessage_limit = 1048576\n")
            made.start_all()
            said = made.ended(bank=3, telco=3)
            for party in ("bank", "telco"):
                assert "party 'bank': " in said[party]  # or what the other party says of it
                assert "1048576 bytes" in said[party]
                assert f"(message_limit at {limited!r})" in said[party]
            made.edit(f"{limited}.toml", "message_limit = 1048576\n", "")


@pytest.mark.slow
def test_a_run_that_has_ended_is_not_run_again(tmp_path: Path) -> None:
    with companies(tmp_path / "run", TWO) as made:
        made.start_all()
        made.ended(bank=0, telco=0)
        first = (made.run("bank") / "bank" / "view" / "transcript.lwt").read_bytes()
        assert made.start("bank").wait() == 0
        assert (made.run("bank") / "bank" / "view" / "transcript.lwt").read_bytes() == first
        made.edit("telco.toml", "depth = 3", "depth = 4")
        again = made.start("telco")
        assert again.wait() == 2
        assert "another job: model.depth" in again.errors


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_a_killed_party_leaves_no_process_behind(tmp_path: Path) -> None:
    """Nor does an ended one: workers of the encryption end with whoever started them."""
    case = Case(parties=TWO.parties, rows=60, encryption="bits = 512\ninsecure = true\nworkers = 2")
    with companies(tmp_path / "run", case) as made:
        processes = made.start_all()
        made.wait_for("bank", "trees", count=2)
        left = [each for each in processes.values() if each.popen.poll() is None]
        for each in left:
            each.kill()
        for each in processes.values():
            wait_until(lambda each=each: not members_of(each.popen.pid))  # type: ignore[misc]
        made.start_all()
        made.ended(bank=0, telco=0)
        for each in made.processes:
            wait_until(lambda each=each: not members_of(each.popen.pid))  # type: ignore[misc]


def members_of(session: int) -> list[int]:
    """Return the processes of a session; each party has one of its own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(path.parent.name))
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)
