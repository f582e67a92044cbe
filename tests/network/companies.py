"""Companies on this machine: each with its table, its job file, its certificate, and a process of its own."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray
from nursery import Child, Nursery

from labelward.errors import LabelwardError
from labelward.job import load_job
from labelward.runs.short_names import variant_without_defaults
from labelward.transport.certificates import Issued, new_authority, new_party

PARTIES = ("bank", "telco", "shop")
LISTENER = "relay"
PATIENCE = 240.0
"""Seconds for whatever takes a second or so on a machine that does nothing else."""

PLAIN = 'engine = "plain"\ninsecure = true'
COLUMNS = {
    "bank": ("income_chf", "age_2025"),
    "telco": ("minutes_abroad", "roaming_mb", "sms_sent"),
    "shop": ("spent_chf", "visits_q3", "returned_pct"),
    "post": ("parcels", "letters"),
    "grid": ("kwh", "peak_kw"),
    "rail": ("trips", "km"),
    "dealer": (),
}
_ports = itertools.count(15_000 + os.getpid() * 37 % 16_000)


def free_port() -> int:
    """Return a port below those that the system gives to outgoing connections, so that nobody else takes it."""
    while True:
        port = 15_000 + next(_ports) % 17_000
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@cache
def nursery() -> Nursery:
    return Nursery()


@cache
def authority() -> Issued:
    return new_authority(now=datetime.now(UTC) - timedelta(days=100))


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained.

    Attributes:
        model: keys of ``[model]``.
        parties: who takes part, the active one first.
        active: what only the active party's file says: sections of defenses and of the meter.
        holders: where several parties have labels: who; all files then say what ``active`` does.
        data: keys of ``[data]``.
        encryption: keys of ``[encryption]``.
        classes: of the label.
        noisy: whether a defense draws noisy labels.
        keyed: whether a defense draws a key of its noise.
    """

    model: str = "trees = 5\ndepth = 3"
    parties: tuple[str, ...] = PARTIES
    active: str = ""
    holders: tuple[str, ...] = ()
    data: str = ""
    encryption: str = PLAIN
    rows: int = 150
    classes: int = 2
    noisy: bool = False
    keyed: bool = False

    @property
    def peers(self) -> tuple[str, ...]:
        return self.parties[1:]

    @property
    def defended(self) -> tuple[str, ...]:
        """Whose files have the sections of ``active``."""
        return self.parties if self.holders else self.parties[:1]


def write_tables(folder: Path, case: Case) -> None:
    """Write a table for each party, the rows of each in an order of its own."""
    rng = np.random.default_rng(11)
    ids = np.array([f"c{i:05d}" for i in range(case.rows)])
    values = {party: rng.normal(size=(case.rows, len(COLUMNS[party]))).round(3) for party in case.parties}
    score = sum(x[:, 0] - x[:, 1] for x in values.values() if x.shape[1]) + rng.normal(size=case.rows) / 2
    labels = (
        score.round(3)
        if not case.classes
        else np.digitize(score, np.quantile(score, np.arange(1, case.classes) / case.classes))
    )
    holders = case.holders or case.parties[:1]
    held = rng.integers(len(holders), size=case.rows) if case.holders else np.zeros(case.rows)
    for party, x in values.items():
        order = rng.permutation(case.rows)
        table: dict[str, NDArray[Any]] = {"id": ids[order]}
        table |= {name: x[order, at] for at, name in enumerate(COLUMNS[party])}
        if party in holders:
            table["label"] = pa.array(labels[order], mask=held[order] != holders.index(party))
        pyarrow.csv.write_csv(pa.table(table), folder / f"{party}.csv")


def sections(case: Case, own: Sequence[str]) -> str:
    """Return a job for those whose tables are here."""
    lines = ["[data]", 'id = "id"', case.data]
    for party in case.parties:
        lines.append(f"[parties.{party}]")
        if party == case.parties[0]:
            lines.append('role = "active"')
        elif party in case.holders:
            lines.append('role = "holder"')
        if party in own:
            lines.append(f'table = "{party}.csv"')
            if party in (case.holders or case.parties[:1]):
                lines.append('label = "label"')
    lines += ["[model]", case.model, "[encryption]", case.encryption]
    if {*case.defended} & {*own}:
        lines.append(case.active)
    return "\n".join([*lines, ""])


def defended(job: Path) -> str:
    """Return the slug of a job's last variant."""
    return variant_without_defaults(load_job(job).variants()[-1]).slug


@dataclass
class Process:
    """One life of a party."""

    party: str
    popen: Child | subprocess.Popen[bytes]
    out: Path
    err: Path

    @property
    def errors(self) -> str:
        return self.err.read_text()

    def wait(self, seconds: float = PATIENCE) -> int:
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.party!r} hangs:\n{self.errors}") from None

    def kill(self) -> None:
        """SIGKILL; its workers find out by themselves."""
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()


@dataclass
class Companies:
    """A run's companies in a folder.

    Attributes:
        addresses: where each party connects to; the listener's own address where nothing is said.
        network: more keys of ``[network]``, for all.
        changes: by party, for :mod:`changed`.
        relay: whether a third machine listens.
    """

    folder: Path
    case: Case = field(default_factory=Case)
    network: str = "timeout = 120.0\nheartbeat = 0.5"
    addresses: dict[str, str] = field(default_factory=dict)
    changes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    relay: bool = False
    port: int = field(default_factory=free_port)
    processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_tables(self.folder, self.case)
        for party in self.case.parties + (LISTENER,) * self.relay:
            self.certify(party)
        self.write_jobs()

    def write_jobs(self) -> None:
        for party in self.case.parties:
            self.job(party).write_text(sections(self.case, [party]) + self.section(party))

    def section(self, party: str) -> str:
        """Return ``[network]`` as a party's file has it."""
        address = self.addresses.get(party, f"127.0.0.1:{self.port}")
        lines = ["[network]", f'address = "{address}"', f'certificates = "certs-{party}"', self.network]
        if party == self.case.parties[0] and not self.relay:
            lines.append(f'listen = "127.0.0.1:{self.port}"')
        if self.relay:
            lines.append(f'listener = "{LISTENER}"')
        return "\n".join([*lines, ""])

    def job(self, party: str) -> Path:
        return self.folder / f"{party}.toml"

    def run(self, party: str) -> Path:
        """The folder of a party's run."""
        return self.folder / f"{party}-{party}"

    def certify(self, party: str, issued: Issued | None = None, trusted: Issued | None = None) -> None:
        """Give a party a certificate, that of the authority where none is given."""
        issued = issued or new_party(authority(), party, addresses=["localhost", "127.0.0.1"])
        certs = self.folder / f"certs-{party}"
        certs.mkdir(mode=0o700, exist_ok=True)
        (certs / f"{party}.crt").write_bytes(issued.certificate)
        key = certs / f"{party}.key"
        key.touch(mode=0o600)
        key.write_bytes(issued.key)
        (certs / "authority.crt").write_bytes((trusted or authority()).certificate)

    def start(self, party: str, *more: str, largest: int = 0) -> Process:
        """Start a party's process, or start it again: the same command; ``largest``: bytes of any file of it."""
        out, err = self._files(party)
        arguments = ["party", self.job(party).name, "--as", party, *self._variant(party), *more]
        changes = self.changes.get(party, ())
        child = nursery().start(arguments, self.folder, out, err, changes=changes, largest=largest)
        return self._started(Process(party, child, out, err))

    def start_relay(self, mangle: int | None = None) -> Process:
        """Start the relay's process; with a seed it mangles what it carries."""
        out, err = self._files(LISTENER)
        folder = self.folder / LISTENER
        folder.mkdir(exist_ok=True)
        arguments = ["relay", "--listen", f"127.0.0.1:{self.port}", "--certificates", f"../certs-{LISTENER}"]
        arguments += [word for party in self.case.parties for word in ("--party", party)]
        if mangle is not None:
            child = nursery().start(arguments, folder, out, err, changes=[f"mangle={mangle}"], largest=0)
            return self._started(Process(LISTENER, child, out, err))
        command = [sys.executable, "-m", "labelward", *arguments]
        environment = os.environ | {"TMPDIR": str(folder)}
        with out.open("wb") as stdout, err.open("wb") as stderr:
            popen = subprocess.Popen(
                command, stdout=stdout, stderr=stderr, cwd=folder, env=environment, start_new_session=True
            )
        return self._started(Process(LISTENER, popen, out, err))

    def _files(self, party: str) -> tuple[Path, Path]:
        number = sum(each.party == party for each in self.processes)
        return self.folder / f"{party}.{number}.out", self.folder / f"{party}.{number}.err"

    def _started(self, process: Process) -> Process:
        self.processes.append(process)
        return process

    def _variant(self, party: str) -> tuple[str, ...]:
        if party not in self.case.defended or "[[defense]]" not in self.case.active:
            return ()
        return ("--defense", defended(self.job(party)))

    def start_all(self) -> dict[str, Process]:
        return {party: self.start(party) for party in self.case.parties}

    def edit(self, file: str, old: str, new: str) -> None:
        """Change a file of the folder."""
        path = self.folder / file
        text = path.read_text()
        assert old in text, text
        path.write_text(text.replace(old, new))

    def events(self, party: str) -> list[dict[str, Any]]:
        """Return what a party's log has so far; a torn last line is not there yet."""
        path = self.run(party) / "log.jsonl"
        if not path.exists():
            return []
        found = []
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def wait_for(self, party: str, event: str, *, count: int = 1, **fields: Any) -> None:
        """Wait until a party's log says something."""
        until = time.monotonic() + PATIENCE
        while True:
            said = [each for each in self.events(party) if each["event"] == event]
            if sum(fields.items() <= each.items() for each in said) >= count:
                return
            assert time.monotonic() < until, f"{party!r} never says {event!r}; {self.told()}"
            time.sleep(0.01)

    def stop_at(self, party: str, event: str, count: int = 1) -> None:
        """Let the next process of a party stop when it has logged an event so often; see :meth:`stopped`."""
        self.changes[party] = (*self.changes.get(party, ()), f"stops={event},{count}")

    def stopped(self, party: str) -> Process:
        """Wait until a party's process has stopped by itself, and return it; its next process will not stop."""
        last = [each for each in self.processes if each.party == party][-1]
        stat, until = Path(f"/proc/{last.popen.pid}/stat"), time.monotonic() + PATIENCE
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < until, f"{party!r} never stops; {self.told()}"
            assert last.popen.poll() is None, f"{party!r} has ended; {self.told()}"
            time.sleep(0.01)
        self.stop_no_more(party)
        return last

    def stop_no_more(self, party: str) -> None:
        """Let the next process of a party run through."""
        self.changes[party] = tuple(each for each in self.changes.get(party, ()) if not each.startswith("stops="))

    def ended(self, **codes: int) -> dict[str, str]:
        """Wait for the last process of each party, and return what it said last, its error."""
        last = {each.party: each for each in self.processes}
        found = {party: last[party].wait() for party in codes}
        assert found == codes, self.told()
        return {party: last[party].errors.splitlines()[-1] for party in codes}

    def told(self) -> str:
        """Return what all processes said on stderr, for messages of tests."""
        return "\n".join(f"== {each.err.name} ({each.popen.poll()})\n{each.errors}" for each in self.processes)

    def kill_all(self) -> None:
        """End what still runs, with workers."""
        for each in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.popen.pid, signal.SIGKILL)
            each.popen.wait()


def silent(event: str, told: Any) -> None:
    """Log nothing."""


def together(parties: Sequence[str], run: Callable[[str], Any]) -> dict[str, Any]:
    """Run all parties in threads; return by party what it returned or raised."""
    found: dict[str, Any] = {}

    def live(party: str) -> None:
        try:
            found[party] = run(party)
        except LabelwardError as error:
            found[party] = error

    threads = [threading.Thread(target=live, args=(party,), daemon=True) for party in parties]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert set(found) == set(parties)
    return found


@contextlib.contextmanager
def companies(folder: Path, case: Case | None = None, **more: Any) -> Iterator[Companies]:
    """Give companies, and end their processes."""
    made = Companies(folder, case or Case(), **more)
    try:
        yield made
    finally:
        made.kill_all()
