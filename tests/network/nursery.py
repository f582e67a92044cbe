"""Starts parties as processes of their own, forked from one that has loaded labelward: they begin at once.

Run as a program it reads orders, JSON lines on stdin, and answers on stdout: ``[pid]`` of what it has started, and
later ``[pid, code]``. It ends, with all that it has started, when stdin does.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import resource
import selectors
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np


class Child:
    """A process that the nursery has started; as :class:`subprocess.Popen`, as far as it goes."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended, self._code = threading.Event(), 0

    def end(self, code: int) -> None:
        self._code = code
        self._ended.set()

    def poll(self) -> int | None:
        return self._code if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("party", timeout or 0.0)
        return self._code

    def send_signal(self, number: int) -> None:
        """To the process alone; it is there until the nursery has told its end."""
        if self.poll() is None:
            os.kill(self.pid, number)


class Nursery:
    """The other side: one for all tests of a process."""

    def __init__(self) -> None:
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._children: dict[int, Child] = {}
        self._begun: queue.Queue[Child] = queue.Queue()
        threading.Thread(target=self._hear, daemon=True, name="nursery").start()

    def start(
        self, arguments: Sequence[str], folder: Path, out: Path, err: Path, *, changes: Sequence[str], largest: int
    ) -> Child:
        """Run ``labelward`` with arguments, changed as :mod:`changed` says; ``largest``: bytes of a file, 0: any."""
        order = {
            "arguments": list(arguments),
            "folder": str(folder),
            "out": str(out),
            "err": str(err),
            "changes": list(changes),
            "largest": largest,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._begun.get(timeout=120)

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            pid, *code = json.loads(line)
            if code:
                self._children.pop(pid).end(code[0])
            else:
                child = self._children[pid] = Child(pid)
                self._begun.put(child)


# -- the program -----------------------------------------------------------------------------------------------------


def grow(order: dict[str, Any]) -> NoReturn:
    """Become a party."""
    code = 1
    try:
        os.setsid()
        os.chdir(order["folder"])
        for number, path in ((1, order["out"]), (2, order["err"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if order["largest"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest"], order["largest"]))
        import changed

        changed.run(order["changes"], order["arguments"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


LOADED = (
    "labelward.cli.app",
    "labelward.cli.explain",
    "labelward.data.delimited",
    "labelward.federation.components",
    "labelward.federation.early_notice",
    "labelward.federation.party_training",
    "labelward.metrics.utility",
    "labelward.protocols.logistic.family",
    "labelward.protocols.pivodl.family",
    "labelward.protocols.secureboost.family",
    "labelward.report.party_page",
    "labelward.runs.private_seeds",
    "labelward.transport.certificates",
    "matplotlib.backends.backend_svg",
    "numba.typed",
    "pandas",
    "scipy.linalg",
    "sklearn.metrics",
    "typer._adapters",
)
"""What parties import, but for what imports grpc: seconds of each process, were it not there when they begin."""
LOADED_FOR_NETWORKS = ("labelward.protocols.splitnn.family", "torch._dynamo")
"""What imports torch, for parties of networks alone."""


def load(names: Iterable[str]) -> None:
    """Import modules before the next fork."""
    for name in names:
        importlib.import_module(name)
    assert threading.active_count() == 1, "it must be able to fork"
    assert "grpc" not in sys.modules, "it does not outlive a fork"


def main() -> None:
    load(LOADED)
    from labelward.kernels.binning import bin_columns

    bin_columns(np.zeros((2, 1)), 2)  # numba loads most of itself with its first kernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = selectors.DefaultSelector()
    orders.register(0, selectors.EVENT_READ)
    running, rest = set[int](), b""
    while True:
        if orders.select(0.01):
            block = os.read(0, 65536)
            if not block:
                break
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if any('"splitnn"' in path.read_text() for path in Path(order["folder"]).glob("*.toml")):
                    load(LOADED_FOR_NETWORKS)
                pid = os.fork()
                if not pid:
                    grow(order)
                running.add(pid)
                print(json.dumps([pid]), flush=True)
        while running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            running.discard(pid)
            print(json.dumps([pid, os.waitstatus_to_exitcode(status)]), flush=True)
    for pid in running:
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
