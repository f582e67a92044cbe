"""Several ``labelward`` processes at a time: who says what, and one end for all. For the scripts beside."""

from __future__ import annotations

import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["Stopped", "free_port", "fresh", "labelward", "together"]

_MARK = ".made-by-labelward-example"
_PATIENCE = 10.0  # seconds that a process which was told to stop may take


class Stopped(Exception):  # noqa: N818
    """A command ended with an exit code other than 0."""


def labelward(*arguments: object, folder: Path) -> str:
    """Run one command to its end in a folder, and return what it printed; :class:`Stopped` where it fails."""
    done = subprocess.run(_command(arguments), cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise Stopped(f"labelward {' '.join(map(str, arguments))}\n{done.stderr.strip()}")
    return done.stdout


def together(commands: Mapping[str, tuple[Path, Sequence[object]]]) -> dict[str, list[str]]:
    """Run commands at the same time; return what each printed, by the name that it was given under.

    Every line is also shown as it comes, behind that name. Where one command fails, or this process is interrupted or
    terminated, all are stopped, with the processes that they have started.

    Args:
        commands: by name, the folder to run in and the arguments of ``labelward``.

    Raises:
        Stopped: one has failed; says which.
    """
    width = max(map(len, commands))
    lines: dict[str, list[str]] = {name: [] for name in commands}
    ended: queue.Queue[str] = queue.Queue()

    def listen(name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                lines[name].append(line.rstrip("\n"))
                print(f"{name:{width}} | {line}", end="", flush=True)
        process.wait()
        ended.put(name)

    before = signal.signal(signal.SIGTERM, _interrupt)
    running: dict[str, subprocess.Popen[str]] = {}
    listening: list[threading.Thread] = []
    try:
        for name, (folder, arguments) in commands.items():
            running[name] = _start(_command(arguments), folder)
            listening.append(threading.Thread(target=listen, args=(name, running[name]), daemon=True))
            listening[-1].start()
        for _ in commands:
            name = ended.get()
            if running[name].returncode:
                raise Stopped(f"{name} ended with exit code {running[name].returncode}")
    finally:
        for process in running.values():
            _stop(process)
        for thread in listening:
            thread.join(_PATIENCE)
        signal.signal(signal.SIGTERM, before)
    return lines


def free_port() -> int:
    """Return a port of this machine at which nobody listens, below those that outgoing connections get."""
    for port in random.sample(range(20000, 30000), 100):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Stopped("no free port was found between 20000 and 30000")


def fresh(folder: Path) -> Path:
    """Make a folder anew; what is there is thrown away only if an earlier call of this function made it."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).exists():
            raise Stopped(f"{folder} holds something else; give another folder with --out")
        shutil.rmtree(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / _MARK).touch()
    return folder.resolve()


def _command(arguments: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", "labelward", *map(str, arguments)]


def _start(command: list[str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C reaches this process alone, which stops the others
    )


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
