"""What is shown and told of runs between companies is so: the examples run, and the how-to's commands as they stand."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "two-companies"
PAGE = (ROOT / "docs" / "how-to-run-between-companies.md").read_text(encoding="utf-8")
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMPANIES = ("bank", "telco")
PATIENCE = 1200  # seconds, on a machine that does much else

sys.path.insert(0, str(EXAMPLE))
import proof  # noqa: E402
import tables  # noqa: E402
from together import Stopped, free_port, fresh, together  # noqa: E402


def _script(name: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLE / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | environment,
    )


@pytest.mark.slow
@pytest.mark.network
def test_both_companies_play(tmp_path: Path) -> None:
    before = sorted(EXAMPLE.rglob("*"))
    done = _script("play.py", "--out", tmp_path / "played")
    assert done.returncode == 0, done.stdout + done.stderr
    predicted = pq.read_table(tmp_path / "played" / "bank" / "predictions.parquet")
    assert predicted.num_rows == 120
    assert not list((tmp_path / "played" / "telco").glob("*.parquet"))
    assert "received  Level" in done.stdout
    assert [path for path in sorted(EXAMPLE.rglob("*")) if "__pycache__" not in path.parts] == [
        path for path in before if "__pycache__" not in path.parts
    ]


@pytest.mark.slow
@pytest.mark.network
def test_the_network_changes_nothing(tmp_path: Path) -> None:
    """A short `make demo-network`; without a network there is another table, and the script says so."""
    nowhere = {"LABELWARD_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "https_proxy": "http://127.0.0.1:9"}
    done = _script("proof.py", "--small", "--out", tmp_path / "proof", **nowhere)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DIFFERENT" not in done.stdout
    for what in ("model share of telco", "model share of shop", "view of bank", "view of shop", "predictions of"):
        assert re.search(rf"^{what}.* same$", done.stdout, re.MULTILINE), what
    for party in proof.PARTIES:
        record = json.loads((tmp_path / "proof" / party / "run" / "party.json").read_text())
        assert record["key"]["bits"] == 2048
        assert all(peer["sealed"] and "TLSv1.3" in peer["tls"] for peer in record["peers"].values())


def test_a_difference_is_seen(tmp_path: Path) -> None:
    """Shares that differ in more than the model's identifier and the evidence have other digests."""
    digests = []
    for number, (model, weight) in enumerate((("a", 1.0), ("b", 1.0), ("b", 2.0))):
        folder = tmp_path / str(number) / "model"
        folder.mkdir(parents=True)
        content = {"model": model, "evidence": {"exchange": model}, "weights": [weight]}
        (folder / "share.json").write_text(json.dumps({"share": content}))
        digests.append(proof.share(folder.parent))
    assert digests[0] == digests[1] != digests[2]


def test_the_tables_are_those_of_the_script(tmp_path: Path) -> None:
    tables.write_tables(tmp_path)
    for company in COMPANIES:
        for name in ("customers.csv", "new.csv"):
            assert (tmp_path / company / name).read_bytes() == (EXAMPLE / company / name).read_bytes()
        assert sorted(path.name for path in (EXAMPLE / company).iterdir() if not path.name.startswith("job-")) == [
            "customers.csv",
            "job.toml",
            "new.csv",
        ]


@pytest.mark.slow
def test_where_one_fails_all_are_stopped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    waits = ("relay", "--listen", f"127.0.0.1:{free_port()}", "--party", "a", "--party", "b")
    subprocess.run(
        [sys.executable, "-m", "labelward", "certs", "new", "made", "--party", "relay", "--address", "127.0.0.1"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    with pytest.raises(Stopped, match="exit code 2"):
        together(
            {
                "patient": (tmp_path, (*waits, "--certificates", "made/relay")),
                "hasty": (tmp_path, ("view", "digest", "no-such-folder")),
            }
        )
    assert re.search(r"hasty +\| error: ", capfd.readouterr().out)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_script_leaves_no_process(tmp_path: Path, stop: signal.Signals) -> None:
    code = f"""
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {str(EXAMPLE)!r})
import together
sleeper = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
together._command = lambda arguments: [sys.executable, "-c", sleeper]
together.together({{"a": (Path("."), ()), "b": (Path("."), ())}})
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pids = [int(process.stdout.readline().split("|")[1]) for _ in range(2)]
    process.send_signal(stop)
    process.communicate(timeout=PATIENCE)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_what_others_wrote_is_not_thrown_away(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    fresh(folder)
    (folder / "rest").touch()
    assert not list(fresh(folder).glob("rest"))
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.txt").touch()
    with pytest.raises(Stopped, match="holds something else"):
        fresh(tmp_path / "theirs")
    assert (tmp_path / "theirs" / "thesis.txt").exists()


# -- the how-to ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.network
def test_the_how_to_can_be_followed_word_for_word(tmp_path: Path) -> None:
    """Each company types what stands behind its prompt, in its own folder; the page's address leads to this machine."""
    port, here = free_port(), {company: tmp_path / company for company in COMPANIES}
    for company, folder in here.items():
        shutil.copytree(EXAMPLE / company, folder)
        job = (folder / "job.toml").read_text()
        (folder / "job.toml").write_text(job.replace("bank.example:7443", f"127.0.0.1:{port}"))
    typed = 0
    for block in CONSOLE.findall(PAGE):
        lines = [line.replace("bank.example", "127.0.0.1").split("$ ", 1) for line in block.splitlines()]
        assert all(prompt in COMPANIES for prompt, _ in lines), block
        if all(" party " in command for _, command in lines):
            _at_once([(here[prompt], command) for prompt, command in lines])
        else:
            for prompt, command in lines:
                done = subprocess.run(_typed(command), cwd=here[prompt], capture_output=True, text=True)
                assert done.returncode == 0, f"{prompt}$ {command}\n{done.stdout}{done.stderr}"
        typed += len(lines)
        if (here["bank"] / "made" / "telco").exists():  # "hand the folder over"
            shutil.move(here["bank"] / "made" / "telco", here["telco"] / "certs")
    assert typed >= 10
    assert pq.read_table(here["bank"] / "predictions.parquet").num_rows == 120
    events = {json.loads(line)["event"] for company in COMPANIES for line in _log(here[company])}
    assert events <= set(_events())
    assert {"started", "listening", "connected", "session", "attempt", "agreed", "trees", "saved", "done"} <= events
    assert not list(tmp_path.glob("*/job-*/*/view/*.lwt"))


def _log(folder: Path) -> list[str]:
    return (folder / f"job-{folder.name}" / "log.jsonl").read_text().splitlines()


def _typed(command: str) -> list[str]:
    words = shlex.split(command)
    return [sys.executable, "-m", *words] if words[0] == "labelward" else words


def _at_once(commands: list[tuple[Path, str]]) -> None:
    """Run commands that wait for each other; output goes to files, so that none waits for its reader."""
    processes = []
    for folder, command in commands:
        with (folder / "output").open("w") as output:
            processes.append(subprocess.Popen(_typed(command), cwd=folder, stdout=output, stderr=output))
    try:
        codes = [process.wait(PATIENCE) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0, 0], "\n".join((folder / "output").read_text() for folder, _ in commands)


def _events() -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", PAGE[PAGE.index("| event | when") :].partition("\n\n")[0], re.MULTILINE)


def test_the_how_to_lists_every_event() -> None:
    source, told = ROOT / "src" / "labelward", set[str]()
    files = [
        *(source / "transport" / "grpc").glob("*.py"),
        *(source / "federation").glob("*.py"),
        source / "cli/party.py",
    ]
    for file in [*files, source / "cli" / "_run_log.py"]:
        told |= set(re.findall(r'\b(?:log|_log|journal|self)\(\s*"(\w+)", ', file.read_text(encoding="utf-8")))
    assert set(_events()) == told | {"trees", "epochs"}  # those of the progress, whose name is no literal


def test_the_how_to_shows_the_files_of_the_example() -> None:
    assert (EXAMPLE / "bank" / "job.toml").read_text() in PAGE
    shown = re.findall(r"^```toml\n(\[parties\.bank\]\nrole.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(shown) == 1
    assert shown[0] in (EXAMPLE / "telco" / "job.toml").read_text()
    jobs = [tomllib.loads((EXAMPLE / company / "job.toml").read_text()) for company in COMPANIES]
    for section in ("model", "encryption", "run", "network"):
        assert jobs[0][section] == jobs[1][section]


# -- deployment ------------------------------------------------------------------------------------------------------


def test_the_compose_file() -> None:
    content = yaml.safe_load((EXAMPLE / "deploy" / "compose.yaml").read_text())
    assert set(content) == {"x-party", "services"}
    assert set(content["services"]) == set(COMPANIES)
    known = {"image", "user", "restart", "stop_signal", "read_only", "cap_drop", "security_opt", "tmpfs", "ulimits"}
    known |= {"logging", "command", "volumes", "ports", "networks"}
    for company, service in content["services"].items():
        assert set(service) <= known
        assert service["command"] == ["party", "job.toml", "--as", company, "--json"]
        folder, _, inside = service["volumes"][0].partition(":")
        assert (EXAMPLE / "deploy" / folder).resolve() == EXAMPLE / company
        assert f"WORKDIR {inside}\n" in (EXAMPLE / "deploy" / "Dockerfile").read_text()
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
    address = tomllib.loads((EXAMPLE / "telco" / "job.toml").read_text())["network"]["address"]
    host, port = address.split(":")
    assert content["services"]["bank"]["networks"]["default"]["aliases"] == [host]
    assert content["services"]["bank"]["ports"] == [f"{port}:{port}"]
    assert "ports" not in content["services"]["telco"]


def test_the_dockerfile() -> None:
    text = re.sub(r"\\\n\s*", "", (EXAMPLE / "deploy" / "Dockerfile").read_text())
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    words = [word for word, _ in lines]
    assert words[0] == "FROM"
    assert set(words) <= {"FROM", "COPY", "RUN", "USER", "ENV", "WORKDIR", "ENTRYPOINT"}
    for word, rest in lines:
        if word == "COPY":
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
        if word == "ENTRYPOINT":
            assert json.loads(rest) == ["labelward"]
    assert words.index("USER") > max(number for number, word in enumerate(words) if word == "RUN")


def test_the_unit(tmp_path: Path) -> None:
    unit = EXAMPLE / "deploy" / "labelward-party.service"
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit, encoding="utf-8")
    assert parser.sections() == ["Unit", "Service", "Install"]
    service = parser["Service"]
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "2"
    assert "MemoryDenyWriteExecute" not in service
    assert re.fullmatch(
        r"/\S+/labelward party job\.toml --as NAME --out /var/lib/labelward/run --json", service["ExecStart"]
    )
    if shutil.which("systemd-analyze"):
        text = unit.read_text().replace("/opt/labelward/bin/labelward", shutil.which("true") or "/bin/true")
        (tmp_path / unit.name).write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", str(tmp_path / unit.name)], capture_output=True, text=True, timeout=PATIENCE
        )
        complaints = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
        assert not complaints
