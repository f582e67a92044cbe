"""Ctrl-C, a closed pipe, a full disk, no memory: clear words, and the same command goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from small_jobs import Call, write_job, write_table

from labelward.errors import LabelwardWarning, PeerError


@pytest.mark.slow
def test_an_interrupted_audit_goes_on(tmp_path: Path) -> None:
    """What was finished stays byte for byte, and the end is that of an audit that nobody stopped."""
    write_table(tmp_path / "table.csv")  # rows are divided by the system's randomness: few may leave a part no class
    encrypted = {'engine = "plain"': 'engine = "paillier"\nbits = 512\nworkers = 2'}
    job = write_job(
        tmp_path, changes=encrypted | {"seeds = [1, 2]": f"seeds = {[*range(1, 13)]}", "depth = 3": "bins = 8"}
    )
    undisturbed = _audit(job, tmp_path / "whole")
    _, stderr = undisturbed.communicate(timeout=240)
    assert undisturbed.returncode == 0, stderr
    out = tmp_path / "audit"
    process = _audit(job, out, "--repeat", tmp_path / "whole")
    results = out / "results.jsonl"
    while process.poll() is None and not (results.exists() and results.read_bytes().count(b"\n") >= 4):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: worker processes get it too
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2, stderr
    assert "Traceback" not in stderr
    assert "interrupted: " in stderr
    assert f"kept in {out}" in stderr
    kept = results.read_bytes()
    assert 4 <= kept.count(b"\n") < 72
    again = _audit(job, out)
    _, stderr = again.communicate(timeout=240)
    assert again.returncode == 0, stderr
    assert results.read_bytes().startswith(kept)
    assert _figures(results) == _figures(tmp_path / "whole" / "results.jsonl")


def _audit(job: Path, out: Path, *more: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "labelward", "audit", str(job), "--out", str(out), *map(str, more)]
    return subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # where tests run without Ctrl-C
    )


def _figures(path: Path) -> list[dict[str, object]]:
    """Rows without what a clock or a key decides: seconds, and bytes, which vary with the ciphertexts' first digits."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        del row["cost"]["seconds"], row["cost"]["bytes"]
    return rows


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("command", ["audit", "train", "list"])
def test_an_interrupt_is_no_traceback(
    tmp_path: Path, call: Call, job: Path, command: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it met Python, or Python that a compiled kernel called, which CPython reports as another error."""

    def stop(*_: object, **__: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            if not native:
                raise
            raise SystemError("returned a result with an exception set") from error

    for place in ("auditing.audit.audit", "federation.train.train_variant", "federation.components.list_components"):
        monkeypatch.setattr(f"labelward.{place}", stop)
    arguments = {"audit": [job, "--out", tmp_path / "x"], "train": [job, "--out", tmp_path / "x"], "list": []}[command]
    result = call(command, *arguments)
    assert result.exit_code == 2
    assert "interrupted: " in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["audit", "train"])
def test_an_interrupt_before_anything_exists(
    tmp_path: Path, call: Call, job: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    place = {"audit": "auditing.audit.audit", "train": "federation.train.train_variant"}[command]
    monkeypatch.setattr(f"labelward.{place}", stop)
    out = tmp_path / "x"
    arguments = [job, "--out", out, *(["--defense", "none"] if command == "train" else [])]
    stderr = call(command, *arguments).stderr.splitlines()[-1]
    assert stderr.startswith("interrupted: ")
    assert str(out) not in stderr  # there is nothing in it, so it is not spoken of


@pytest.mark.parametrize("library", ["typer", "labelward.cli.audit", "labelward.job", "numpy"])
def test_an_interrupt_while_it_starts(tmp_path: Path, library: str) -> None:
    """Raised where Python looks for a library: while the commands are loaded, or while one begins."""
    code = f"""
import sys
class Stop:
    def find_spec(self, name, *_):
        if name == {library!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
from labelward.cli import main
main()
"""
    write_table(tmp_path / "table.csv")
    command = [sys.executable, "-c", code, "audit", str(write_job(tmp_path)), "--out", str(tmp_path / "x"), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("interrupted: no")


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (MemoryError(), 1, "out of memory"),
        (OSError(28, "No space left on device", "/disk/x"), 2, "the disk is full: /disk/x"),
        (PermissionError(13, "Permission denied", "/disk/x"), 2, "Permission denied: /disk/x"),
        (PeerError("telco", "fell silent", code="peer-gone"), 3, "party 'telco': fell silent"),
    ],
)
def test_what_the_machine_refuses(
    call: Call, error: BaseException, code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("labelward.federation.components.list_components", fail)
    result = call("list")
    assert result.exit_code == code
    assert f"error: {words}" in result.stderr
    assert "Traceback" not in result.output
    for debug in (call("--debug", "list"), _with_variable(call, monkeypatch)):
        assert debug.exit_code == code
        assert "Traceback" in debug.stderr


@pytest.mark.filterwarnings("default")
def test_warnings_of_libraries_are_for_who_debugs(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def complain() -> dict[str, list[object]]:
        warnings.warn("of a library", RuntimeWarning, stacklevel=1)
        warnings.warn("of this package", LabelwardWarning, stacklevel=1)
        return {}

    monkeypatch.setattr("labelward.federation.components.list_components", complain)
    with warnings.catch_warnings(record=True) as shown:
        result = call("list")
    assert result.stderr == "warning: of this package\n"
    assert not shown
    with pytest.warns(RuntimeWarning, match="of a library"):
        assert call("--debug", "list").stderr == result.stderr


def _with_variable(call: Call, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("LABELWARD_DEBUG", "1")
    return call("list")


def test_a_reader_that_stops_early() -> None:
    """As ``labelward list | head -1`` does; the output is larger than a pipe holds back."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "labelward", "list"], stdout=closed, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert "Traceback" not in done.stderr
    assert "error" not in done.stderr
