"""What every command prints, word for word: its help, a typical use, and typical errors.

A page is a series of commands in a folder with a table, a job, an audit, a trained model and a guess.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_jobs import Call, write_job, write_table

from labelward.cli._run_log import RunLog
from pages import check_page, masked

PAGES = Path(__file__).parent / "pages"

AUDITED = "audit/runs/none/1/telco/view"
ATTACK = f"attack {AUDITED} --features audit/data/1/telco.parquet --classes 2 --seed 1"

COMMANDS: dict[str, list[str]] = {
    "labelward": ["", "--help", "adit", "--version"],
    "init": ["init --help", "init new.toml", "init new.toml", "init nowhere/new.toml"],
    "audit": [
        "audit --help",
        "audit job.toml --out new",
        "audit typo.toml --out other",
        "audit unknown.toml --out other",
        "audit range.toml --out other",
        "audit party.toml --out other",
        "audit job.toml --out .",
        "audit nowhere.toml --out other",
    ],
    "demo": ["demo --help"],
    "report": ["report --help", "report audit", "report nowhere", "report broken", "report ."],
    "plan": [
        "plan --help",
        "plan job.toml",
        "plan job.toml --defense id-lmid-xi-0.1 --bandwidth 100 --latency 20",
        "plan job.toml --bandwidth 100",
        "plan job.toml --columns telco",
    ],
    "tune": ["tune --help", "tune typo.toml --out other", "tune nowhere.toml --out other"],
    "train": [
        "train --help",
        "train job.toml --out new --defense none",
        "train job.toml --out new --defense none",
        "train job.toml --out other",
        "train job.toml --out other --defense none --continue audit",
    ],
    "predict": [
        "predict --help",
        "predict run --table table.csv --out predictions.parquet",
        "predict run --party telco=table.csv --out other.parquet",
        "predict run --table few.csv --out other.parquet",
        "predict nowhere --table table.csv --out other.parquet",
    ],
    "explain": [
        "explain --help",
        "explain importance --help",
        "explain importance run --names active",
        "explain tree --help",
        "explain tree run 0",
        "explain tree run 9",
        "explain rows --help",
        "explain rows run --table table.csv --out values.parquet",
    ],
    "export": [
        "export --help",
        "export run --out model.json --consent active --consent telco",
        "export run --out other.json",
    ],
    "attack": [
        "attack --help",
        f"{ATTACK} --attack id2graph --out new.parquet",
        f"{ATTACK} --attack id3graph --out other.parquet",
        f"{ATTACK} --attack id2graph --param etta=1 --out other.parquet",
        f"{ATTACK} --attack passive-completion --out other.parquet",
        "attack audit --features table.csv --attack id2graph --classes 2 --seed 1 --out other.parquet",
    ],
    "score": [
        "score --help",
        "score guess.parquet --truth audit/data/1/truth.parquet",
        "score guess.parquet --truth table.csv",
        "score table.csv --truth table.csv",
    ],
    "list": ["list --help", "list", "list atacks"],
    "view": [
        "view --help",
        "view show --help",
        f"view show {AUDITED} --messages 3",
        "view digest --help",
        f"view digest {AUDITED}",
        "view verify --help",
        f"view verify {AUDITED}",
        "view verify nowhere",
        "view verify broken/view",
        "view purge --help",
        "view purge run --yes",
        "view purge run --yes",
        "view purge audit",
    ],
    "certs": [
        "certs --help",
        "certs new --help",
        "certs new keys --party bank --party telco --address bank.example",
        "certs new keys --party bank --party telco",
        "certs new other --party bank --party bank",
        "certs authority --help",
        "certs authority own",
        "certs party --help",
        "certs party third --party shop --authority keys/authority",
        "certs request --help",
        "certs request later --party shop",
        "certs check --help",
        "certs check keys/bank --as bank --address bank.example",
        "certs check keys/bank --as telco",
    ],
    "party": [
        "party --help",
        "party job.toml --as telco",
        "party job.toml --as telko",
        "party job.toml --as telco --align few.csv",
        "party job.toml --as telco --align few.csv --to common.parquet",
    ],
    "relay": [
        "relay --help",
        "relay --listen 127.0.0.1:0 --party bank",
        "relay --listen 127.0.0.1:0 --party bank --party telco",
    ],
    "doctor": ["doctor --help", "doctor --bits 1024"],
    "study": [
        "study --help",
        "study id2graph --help",
        "study label-inference --help",
        "study id2graph --table 9 --out other",
        "study label-inference --datasets cifar100,bhi --out other",
    ],
}

MACHINE_DEPENDENT = ("plan",)
"""Commands whose figures are measured: every number in their output is masked."""

JOBS = {
    "typo": {"trees = 2": "tress = 2"},
    "unknown": {'kind = "id2graph"': 'kind = "id3graph"'},
    "range": {"depth = 3": "depth = 0"},
    "party": {'"t2"]': '"t3"]'},
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, call: Call) -> Path:
    """A folder with everything that commands read."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_table(folder / "table.csv")
        (folder / "few.csv").write_text("a0,a1,t0\n1,2,3\n")
        for name, changes in JOBS.items():
            write_job(folder, changes=changes).rename(folder / f"{name}.toml")
        write_job(folder)
        for command in (
            "audit job.toml --out audit --quiet",
            "train job.toml --out run --defense none --quiet",
            f"{ATTACK} --attack id2graph --out guess.parquet",
        ):
            done = call(*shlex.split(command))
            assert done.exit_code == 0, done.output
        shutil.copytree(AUDITED, "broken/view")
        stored = next(Path("broken/view").iterdir())
        stored.write_bytes(stored.read_bytes()[:-5])
    return folder


@pytest.fixture
def run(prepared: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Run a command in a copy of the prepared folder, and return it with all that it prints."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "TERMINAL_WIDTH"):
        monkeypatch.delenv(name, raising=False)

    def output(command: str) -> str:
        result = call(*shlex.split(command))
        assert "Traceback" not in result.output
        numbers = command.split()[0:1] and command.split()[0] in MACHINE_DEPENDENT
        plain = "--help" in command or not command
        parts = [f"$ labelward {command}".rstrip()]
        for name, text in (("", result.stdout), ("stderr: ", result.stderr)):
            text = text.replace(str(tmp_path), "FOLDER")
            lines = (text if plain else masked(text, numbers=bool(numbers))).splitlines()
            parts += [f"{name}{line}".rstrip() for line in lines]
        if result.exit_code:
            parts.append(f"exit code {result.exit_code}")
        return "\n".join(parts)

    return output


@pytest.mark.parametrize("name", COMMANDS)
def test_page(name: str, run: Callable[[str], str]) -> None:
    check_page(PAGES / f"{name}.txt", "\n\n".join(run(command) for command in COMMANDS[name]))


EVENTS = {
    "listening": {"listen": "0.0.0.0:7443"},
    "connected": {"peer": "telco", "address": "10.0.0.2:4711"},
    "session": {"peer": "telco", "fingerprint": "ab" * 32},
    "disconnected": {"address": "10.0.0.1:7443", "reason": "connection refused"},
    "refused": {"address": "10.0.0.9:4711", "reason": "no certificate"},
    "waiting": {"for": ["telco", "shop"], "away": {"shop": "it has not connected yet"}, "left": 570.0},
    "telling": {"seconds": 5.0},
    "told": {"peers": ["telco"]},
    "away": {"peer": "telco", "reason": "connection closed"},
    "attempt": {"number": 1},
    "agreed": {"rows": 96, "resume": 4},
    "restarted": {"peer": "telco"},
    "saved": {"model": "a1b2"},
    "unacknowledged": {"peers": ["telco"]},
    "done": {"model": "a1b2"},
}


def test_events_of_a_party(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentences on stderr, one for each event of a run between companies."""
    with RunLog(tmp_path / "log.jsonl", json_lines=False, quiet=False) as log:
        for event, details in EVENTS.items():
            log(event, details)
    assert [json.loads(line)["event"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == list(EVENTS)
    check_page(PAGES / "party-events.txt", masked(capsys.readouterr().err))
