"""Who reads stderr, or does not, holds up nobody else."""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from pathlib import Path

import pytest

from labelward.cli._output import StderrWriter
from labelward.cli._run_log import RunLog
from labelward.errors import OutputError, PeerError
from refusals import refused


def test_lines_are_said_in_order() -> None:
    said = list[str]()
    voice = StderrWriter(said.append)
    for number in range(1000):
        voice(str(number))
    voice.close()
    assert said == [str(number) for number in range(1000)]


def test_a_held_terminal_holds_up_nobody() -> None:
    held, said = threading.Event(), list[str]()

    def say(line: str) -> None:
        held.wait(60.0)
        said.append(line)

    voice = StderrWriter(say)
    for number in range(11_000):
        voice(str(number))
    held.set()
    voice.close()
    assert 10_000 <= len(said) <= 10_001
    assert said[:3] == ["0", "1", "2"]


def test_a_closed_pipe_ends_the_talking_and_nothing_else() -> None:
    def say(line: str) -> None:
        raise BrokenPipeError

    voice = StderrWriter(say)
    for _ in range(3):
        voice("line")
    voice.close()


class _Held(io.StringIO):
    """A stderr that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.read = threading.Event()  # type: ignore[assignment]

    def write(self, text: str) -> int:
        self.read.wait(60.0)  # type: ignore[attr-defined]
        return super().write(text)


def test_the_journal_goes_on_where_nobody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network's threads tell it their news with their lock held: no heartbeat would leave."""
    stderr = _Held()
    monkeypatch.setattr(sys, "stderr", stderr)
    with RunLog(tmp_path / "log.jsonl", json_lines=False, quiet=False) as journal:
        began = time.monotonic()
        for number in range(3):
            journal("waiting", {"for": [f"party {number}"], "left": 60.0, "away": {}})
        assert time.monotonic() - began < 30.0
        lines = (tmp_path / "log.jsonl").read_text().splitlines()
        stderr.read.set()  # type: ignore[attr-defined]
    assert [json.loads(line)["for"] for line in lines] == [[f"party {number}"] for number in range(3)]
    assert stderr.getvalue().splitlines() == [f"waiting for party {number}, 60 s left" for number in range(3)]


def test_a_log_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").mkdir()
    with RunLog(tmp_path / "log.jsonl", json_lines=False, quiet=True) as journal:
        with refused(OutputError, "unwritable", field=str(tmp_path / "log.jsonl")):
            journal("saved", {"model": "m"})
        journal.failed(PeerError("telco", "away", code="peer-gone"))
