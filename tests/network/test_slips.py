"""One party's slip ends both at once: what it finds wrong before it speaks, its partner hears; nothing private."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from companies import Case, Companies, authority, companies
from undisturbed import Undisturbed

from labelward.transport.certificates import new_authority, new_party

pytestmark = pytest.mark.network

TWO = Case(parties=("bank", "telco"), rows=60)
SOON = 30.0
"""Seconds, far below the timeout of 120; on a machine that does nothing else it takes three."""


def with_key(section: str, line: str) -> Callable[[Companies, str], None]:
    return lambda made, party: made.edit(f"{party}.toml", f"[{section}]", f"[{section}]\n{line}")


SLIPS: dict[str, tuple[Callable[[Companies, str], object], str]] = {
    "an unknown key": (with_key("model", "tres = 5"), "job file (code 'unknown')"),
    "an unknown section": (
        lambda made, party: made.edit(f"{party}.toml", "[model]", "[modle]"),
        "job file (code 'unknown')",
    ),
    "an unknown key of the network": (with_key("network", "timout = 5"), "job file (code 'unknown')"),
    "no table": (lambda made, party: (made.folder / f"{party}.csv").unlink(), "table (code 'not-found')"),
    "no id": (lambda made, party: made.edit(f"{party}.csv", "id", "key"), "table (code 'values')"),
    "an id twice": (lambda made, party: made.edit(f"{party}.csv", "c00017", "c00018"), "table (code 'values')"),
    "a table of another kind": (
        lambda made, party: (made.folder / f"{party}.csv").write_bytes(b"\0\1\2" * 99),
        "table (code 'unreadable')",
    ),
    "a folder of something else": (
        lambda made, party: (made.run(party).mkdir(), (made.run(party) / "mine.txt").touch()),
        "folder (code 'foreign')",
    ),
}
FAST = (("an unknown key", "telco"), ("an id twice", "bank"))


@pytest.mark.parametrize(
    ("slip", "party"),
    [
        pytest.param(slip, party, marks=[] if (slip, party) in FAST else [pytest.mark.slow])
        for slip in SLIPS
        for party in ("bank", "telco")
    ],
)
def test_a_slip_before_the_start(tmp_path: Path, slip: str, party: str) -> None:
    make, words = SLIPS[slip]
    other = "telco" if party == "bank" else "bank"
    with companies(tmp_path / "run", TWO) as made:
        make(made, party)
        made.start(other)
        made.wait_for(other, "waiting")
        began = time.monotonic()
        made.start(party)
        said = made.ended(**{party: 2, other: 3})
        assert time.monotonic() - began < SOON
        assert said[other].startswith(f"error: party {party!r}: ")
        assert words in said[other]
        assert not re.search(r"c000\d\d|tres|modle|mine", said[other])  # nothing of the error's text
        assert "Traceback" not in made.told()


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("model", 'gamma = "0.1'),
        pytest.param("network", 'consent = ["everything"]', marks=pytest.mark.slow),
        pytest.param("parties.telco", "columns = [", marks=pytest.mark.slow),
    ],
)
def test_a_line_that_cannot_be_read(tmp_path: Path, section: str, line: str) -> None:
    with companies(tmp_path / "run", TWO) as made:
        with_key(section, line)(made, "telco")
        made.start("bank")
        made.wait_for("bank", "waiting")
        began = time.monotonic()
        made.start("telco")
        said = made.ended(telco=2, bank=3)
        assert time.monotonic() - began < SOON
        assert "its job file" in said["bank"]


def test_other_ids_after_progress(tmp_path: Path) -> None:
    """What the checkpoints of a party show, before it has greeted anybody."""
    with companies(tmp_path / "run", TWO) as made:
        made.stop_at("telco", "trees", 3)
        made.start_all()
        made.stopped("telco").kill()
        made.edit("telco.csv", "c00017", "x00017")
        began = time.monotonic()
        made.start("telco")
        said = made.ended(telco=2, bank=3)
        assert time.monotonic() - began < SOON
        assert "'telco'" in said["bank"]


@pytest.mark.slow
def test_a_slip_of_one_of_three_is_heard_by_both(tmp_path: Path) -> None:
    with companies(tmp_path / "run", Case(rows=60)) as made:
        made.edit("shop.csv", "c00017", "c00018")
        made.start("bank")
        made.start("telco")
        made.wait_for("bank", "session", peer="telco")
        made.start("shop")
        said = made.ended(bank=3, telco=3, shop=2)
        for party in ("bank", "telco"):
            assert "'shop'" in said[party]
            assert "(code 'values')" in said[party]


def test_a_slip_at_a_prediction(tmp_path: Path) -> None:
    with companies(tmp_path / "run", TWO) as made:
        made.start_all()
        made.ended(bank=0, telco=0)
        made.start("bank", "--predict", "bank.csv", "--to", "p.csv")
        made.start("telco", "--predict", "nothing.csv")
        said = made.ended(bank=3, telco=2)
        assert "table (code 'not-found')" in said["bank"]
        assert "nothing.csv" not in said["bank"]


@pytest.mark.slow
def test_a_slip_beside_a_process_that_runs_leaves_it_alone(tmp_path: Path, undisturbed: Undisturbed) -> None:
    """In its own folder, which is locked, and in another one, from which the place is taken."""
    with companies(tmp_path / "run", TWO) as made:
        first = made.start("telco")
        made.wait_for("telco", "waiting")
        assert made.start("telco", "--defense", "nothing").wait() == 2
        bank = made.start("bank")
        made.wait_for("bank", "session", peer="telco")
        for more in (("--defense", "nothing"), ("--out", "other", "--defense", "nothing")):
            assert made.start("telco", *more).wait() == 2
        assert (first.wait(), bank.wait()) == (0, 0), made.told()


def test_an_unknown_authority_ends_who_connects(tmp_path: Path) -> None:
    """Exit code 2: no restart mends it. The listener says who was refused, and waits: no stranger may end its run."""
    with companies(tmp_path / "run", TWO) as made:
        others = new_authority(name="another company")
        made.certify("telco", new_party(others, "telco", addresses=["localhost", "127.0.0.1"]), trusted=others)
        bank = made.start("bank")
        made.wait_for("bank", "listening")
        began = time.monotonic()
        made.start("telco")
        said = made.ended(telco=2)
        assert time.monotonic() - began < SOON
        assert said["telco"].startswith("error: party 'bank': ")
        assert "authority.crt" in said["telco"]
        made.wait_for("bank", "refused")
        assert bank.popen.poll() is None
        made.certify("telco", new_party(authority(), "telco", addresses=["localhost", "127.0.0.1"]))
        made.start("telco")
        made.ended(bank=0, telco=0)


def test_another_run_ends_both(tmp_path: Path) -> None:
    """Other parties in the job, and one that predicts while the other trains."""
    with companies(tmp_path / "run", TWO) as made:
        made.edit("telco.toml", "[model]", "[parties.shop]\n[model]")
        made.start_all()
        said = made.ended(bank=2, telco=2)
        for party in ("bank", "telco"):
            assert "another run" in said[party]
            assert "bank (active), shop, telco" in said[party]


@pytest.mark.parametrize("mended", ["telco", pytest.param("bank", marks=pytest.mark.slow)])
def test_agreed_is_said_only_when_it_is_so(tmp_path: Path, mended: str) -> None:
    with companies(tmp_path / "run", TWO) as made:
        made.edit(f"{mended}.csv", "c00017", "x00017")
        made.start_all()
        made.ended(bank=2, telco=2)
        for party in ("bank", "telco"):
            assert not [each for each in made.events(party) if each["event"] == "agreed"]
        made.edit(f"{mended}.csv", "x00017", "c00017")
        made.start_all()  # what was refused has left nothing that binds: no --force
        made.ended(bank=0, telco=0)
        for party in ("bank", "telco"):
            (agreed,) = [each for each in made.events(party) if each["event"] == "agreed"]
            assert agreed["rows"] == 60
            assert agreed["resume"] is None


def test_waiting_tells_the_time_left_and_what_to_check(tmp_path: Path) -> None:
    with companies(tmp_path / "run", TWO) as made:
        process = made.start("bank")
        made.wait_for("bank", "waiting")
        (event, *_) = [each for each in made.events("bank") if each["event"] == "waiting"]
        assert 100 < event["left"] <= 120
        until = time.monotonic() + SOON
        while "waiting" not in process.errors and time.monotonic() < until:
            time.sleep(0.05)
        assert "waiting for telco, 2 min left" in process.errors
        assert "telco: it has not connected yet" in process.errors
        assert "firewalls" in process.errors


@pytest.mark.parametrize("edges", ["[-1.0, 0.0, 1.0, 2.0]", "[-1.0, 0.0]"], ids=["more than noise leaves", "few"])
def test_edges_are_checked_by_the_party_that_states_them(tmp_path: Path, edges: str) -> None:
    """The others know its columns as little as its job file."""
    case = Case(
        model='kind = "federboost"\ntrees = 2\nepsilon = 2.0', parties=("bank", "telco"), rows=60, encryption=""
    )
    with companies(tmp_path / "run", case) as made:
        column = (made.folder / "telco.csv").read_text().splitlines()[0].split(",")[1]
        made.edit("telco.toml", "[parties.telco]", f"[parties.telco]\nedges = {{{column} = {edges}}}")
        made.start_all()
        refused = edges.count(",") > 2
        said = made.ended(bank=3 if refused else 0, telco=2 if refused else 0)
        assert ("edges: " in said["telco"]) == refused
