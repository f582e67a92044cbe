"""What a person at a terminal of 80 columns meets: examples that can be typed, and lines that end between words."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from small_jobs import Call

from labelward.cli._output import complain, print_table, say
from labelward.cli.app import app

LONG = "telco could group the training rows by their secret label with a V-measure of 0.84, of which 0.59 are its own"


def leaves() -> Iterator[tuple[list[str], Any]]:
    """Yield all commands with their words, those of groups too."""

    def walk(command: Any, words: list[str]) -> Iterator[tuple[list[str], Any]]:
        if words:
            yield words, command
        for name, each in getattr(command, "commands", {}).items():
            yield from walk(each, [*words, name])

    return walk(typer.main.get_command(app), [])


@pytest.mark.parametrize(("words", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in leaves()])
def test_every_command_ends_with_an_example_that_parses(words: list[str], command: Any) -> None:
    lead, _, line = (command.epilog or "").partition(": ")
    assert lead == "Example"
    name, *rest = shlex.split(line)
    assert name == "labelward"
    assert rest[: len(words)] == words
    rest, parsed = rest[len(words) :], command
    while hasattr(parsed, "commands"):
        parsed, rest = parsed.commands[rest[0]], rest[1:]
    parsed.make_context("example", rest)  # parses, and runs nothing


def test_commands_are_grouped_by_task(call: Call) -> None:
    panels = [line for line in call("--help").stdout.splitlines() if line.startswith("╭─")]
    assert len(panels) > 4
    assert not any("Commands" in line for line in panels)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        return re.sub(r"\x1b\[[0-9;]*m", "", self.getvalue()).splitlines()


def opened(patch: pytest.MonkeyPatch, columns: int = 80) -> _Terminal:
    """Put a terminal without colors in the place of stdout and stderr; called in a test, since pytest changes both."""
    made = _Terminal()
    for name, value in (("COLUMNS", str(columns)), ("NO_COLOR", "1"), ("TERM", "xterm")):
        patch.setenv(name, value)
    for stream in ("stdout", "stderr"):
        patch.setattr(sys, stream, made)
    return made


@pytest.mark.parametrize("tell", [say, complain])
def test_sentences_are_broken_between_words(tell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = opened(monkeypatch)
    tell(LONG)
    lines = terminal.lines()
    assert " ".join(lines) == LONG
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("tell", [say, complain])
def test_a_pipe_gets_a_line_a_sentence(tell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tell(LONG)
    assert "".join(capsys.readouterr()) == f"{LONG}\n"


def test_a_path_is_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/srv/" + "-".join(["folder"] * 20)
    terminal = opened(monkeypatch)
    say(f"wrote {path} for you")
    assert path in terminal.lines()


def test_cells_and_headings_are_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["id-lmid (xi 0.1)", "telecom", "spectral-clustering (steps 3)", "0.763", "0.585", "0.98"]] * 3
    header = ["defense", "attacker", "attack", "V-measure", "without the view", "balanced accuracy"]
    terminal = opened(monkeypatch)
    print_table("", header, rows, words=3)
    lines = terminal.lines()
    assert max(map(len, lines)) <= 80
    shown = {word for line in lines for word in line.split()}
    wanted = {word for cells in (header, rows[0]) for cell in cells for word in cell.split()}
    assert wanted <= shown


def test_a_table_of_a_narrow_terminal_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = opened(monkeypatch, 40)
    print_table("", ["file", "bytes"], [["/a/path/of/one/word/that/has/no/end/at/all", "1,000"]], words=1)
    assert max(map(len, terminal.lines())) <= 40
