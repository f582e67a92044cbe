"""A relay carries a run between companies and holds nothing of it: not in its memory, not on its disk."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from companies import COLUMNS, LISTENER, Case, Companies, companies
from undisturbed import Undisturbed, differences, end_of

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read through /proc"),
]

RATE = "0.123456789"
CASE = Case(model=f"trees = 20\ndepth = 3\nlearning_rate = {RATE}", parties=("bank", "telco"))
"""The rate is part of what the parties tell each other when they greet."""
STOPS = {"telco": 2, "bank": 9}
"""After how many words of trees a party stops."""
PIECES = 8
BLOCK, OVERLAP = 16 * 1024 * 1024, 256


def memory(pid: int) -> Iterator[bytes]:
    """Yield all that a process may write in its memory, in blocks that overlap; it must stand still."""
    regions = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
        for region in regions:
            if not region[1].startswith("rw"):
                continue
            begin, end = (int(each, 16) for each in region[0].split("-"))
            for start in range(begin, end, BLOCK):
                with contextlib.suppress(OSError, OverflowError):
                    file.seek(start)
                    yield file.read(min(BLOCK + OVERLAP, end - start))


def found_in(blocks: Iterator[bytes], markers: dict[str, bytes]) -> set[str]:
    """Return the names of the markers that are there."""
    found: set[str] = set()
    for block in blocks:
        found |= {name for name, marker in markers.items() if name not in found and marker in block}
    return found


def disk(pid: int, folder: Path) -> Iterator[bytes]:
    """Yield all that a process has written: the files of its folder and those that it has open."""
    opened = [path.resolve() for path in Path(f"/proc/{pid}/fd").iterdir() if path.exists()]
    for path in {*folder.rglob("*"), *opened}:
        if path.is_file() and not path.is_relative_to("/proc") and not path.is_relative_to("/dev"):
            yield path.read_bytes()


def pieces(made: Companies) -> dict[str, bytes]:
    """Return some of what was said so far, before it was sealed: the first messages, the last, and some between."""
    path = made.folder / "heard"
    lines = [line for line in (path.read_text().split() if path.exists() else []) if len(line) == 96]
    chosen = [*lines[:: max(1, len(lines) // PIECES)], *lines[-2:]]
    return {f"message {number}": bytes.fromhex(line) for number, line in enumerate(chosen)}


def markers(made: Companies) -> dict[str, bytes]:
    names = [name for party in made.case.parties for name in COLUMNS[party]]
    told = {"rate": RATE.encode(), "rows": b"c00017", **{name: name.encode() for name in names}}
    return told | {"rows of numpy": "c00017".encode("utf-32-le"), **pieces(made)}


@pytest.mark.slow
def test_a_relay_holds_nothing_of_a_run(tmp_path: Path, undisturbed: Undisturbed) -> None:
    with companies(tmp_path / "run", CASE, relay=True) as made:
        made.changes = dict.fromkeys(CASE.parties, (f"heard={made.folder / 'heard'}",))
        for party, trees in STOPS.items():
            made.stop_at(party, "trees", trees)
        relay = made.start_relay()
        made.start_all()
        for party in STOPS:
            process = made.stopped(party)  # so that the relay has not yet forgotten the run
            relay.popen.send_signal(signal.SIGSTOP)
            assert not found_in(memory(relay.popen.pid), markers(made))
            for each in (relay, process):
                each.popen.send_signal(signal.SIGCONT)
        made.ended(bank=0, telco=0)
        assert len(pieces(made)) >= PIECES
        assert not found_in(memory(relay.popen.pid), markers(made))
        assert not found_in(disk(relay.popen.pid, made.folder / LISTENER), markers(made))
        assert relay.out.stat().st_size + relay.err.stat().st_size < 10_000
        assert not [path for path in (made.folder / LISTENER).rglob("*") if path.is_file()]  # sockets alone
        assert not differences(end_of(made), undisturbed.of(CASE))


@pytest.mark.slow
def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """The same search in a party's own memory finds what it holds, and messages of a moment ago."""
    with companies(tmp_path / "run", CASE) as made:
        made.changes = dict.fromkeys(CASE.parties, (f"heard={made.folder / 'heard'}",))
        made.stop_at("bank", "trees", 2)
        made.start_all()
        found = found_in(memory(made.stopped("bank").popen.pid), markers(made))
        assert {"rate", "income_chf"} <= found, sorted(found)
        assert {"rows", "rows of numpy"} & found
        assert any(name.startswith("message") for name in found)
