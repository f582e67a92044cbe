"""Histories of parties of which none coordinates: a run goes on only from checkpoints of which each two are equal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from test_participate import PARTIES, Meeting, silent, together

import fixed_seeds  # noqa: F401  (so that every run splits the rows alike)
from labelward.errors import HandshakeError, JobError, PeerDisagreementError
from labelward.federation.party_training import train_as_party
from labelward.federation.train import train_variant
from labelward.job import Job, load_job
from labelward.party.view import View
from labelward.protocols.pivodl.share import PivodlShare
from refusals import refused

HOLDERS = ("bank", "shop")
JOB = """
[data]
id = "id"
classes = ["0", "1"]

{parties}
[model]
kind = "pivodl"
trees = 4
depth = 2
min_node_rows = 2
aggregation = "masks"
opened_sums = "allow"

[encryption]
engine = "plain"
insecure = true

[network]
address = "127.0.0.1:7443"
"""
CUT = {1: ("bank", 75)}
"""Where an attempt is cut: after the second tree."""
HEAD = len(b"labelward checkpoint\n")


@pytest.fixture
def spread(tmp_path: Path) -> Path:
    """Three tables, labels at two of the parties, and a job file for each party and for all."""
    rng, rows = np.random.default_rng(5), 80
    values = rng.normal(size=(rows, 6)).round(2)
    label = (values[:, 0] + values[:, 2] - values[:, 4] > 0).astype(int)
    ids = np.array([f"c{row:03}" for row in range(rows)])
    for number, party in enumerate(PARTIES):
        table: dict[str, Any] = {"id": ids} | {f"{party}{at}": values[:, 2 * number + at] for at in range(2)}
        if party in HOLDERS:
            table["churned"] = pa.array(label, mask=np.arange(rows) % 2 != HOLDERS.index(party))
        pa.csv.write_csv(pa.table(table), tmp_path / f"{party}.csv")
    for whose in (*PARTIES, "all"):
        lines = []
        for party in PARTIES:
            mine = whose in (party, "all")
            lines.append(f"[parties.{party}]")
            lines += [f'role = "{"active" if party == "bank" else "holder"}"'] * (party in HOLDERS)
            lines += [f'table = "{party}.csv"'] * mine + ['label = "churned"'] * (mine and party in HOLDERS)
        (tmp_path / f"{whose}.toml").write_text(JOB.format(parties="\n".join(lines)))
    return tmp_path


def started(spread: Path, *, restart: tuple[str, ...] = (), cut: Mapping[int, tuple[str, int]] | None = None) -> Any:
    """Start all parties; return what each returned or raised, and how many attempts began."""

    def run(party: str, job: Job, folder: Path) -> Any:
        return train_as_party(job, party, folder, seed=1, join=meeting.join, restart=party in restart, log=silent)

    meeting = Meeting(cut, last=1 if cut else 100)
    return together(spread, meeting, run)


def stored(spread: Path, party: str) -> dict[int, Path]:
    """Return a party's checkpoints by number."""
    folder = spread / f"run-{party}" / party / "checkpoint"
    return {int(path.stem): path for path in sorted(folder.glob("*.lwc"))}


def rewrite(path: Path, peer: str) -> None:
    """Give a checkpoint another history with a peer, as that of another training, and a checksum that fits."""
    body = msgspec.msgpack.decode(path.read_bytes()[HEAD + 32 :])
    body["exchanges"][peer]["outward"] = bytes(32)
    new = msgspec.msgpack.encode(body)
    path.write_bytes(path.read_bytes()[:HEAD] + hashlib.sha256(new).digest() + new)


def test_a_pair_of_another_history_goes_on_from_the_last_common_one(spread: Path) -> None:
    """telco's last checkpoint is of another history with shop; all others, and those with the bank, are equal."""
    started(spread, cut=CUT)
    newest = max(stored(spread, "telco"))
    assert newest >= 2
    rewrite(stored(spread, "telco")[newest], "shop")
    found = started(spread)
    assert {party: record.stage for party, record in found.items()} == dict.fromkeys(PARTIES, "closed")
    for party in PARTIES:
        assert newest - 1 in _resumed(spread, party)
        assert newest not in _resumed(spread, party)
    train_variant(load_job(spread / "all.toml"), spread / "rehearsal", seed=1)
    for party in PARTIES:
        here, there = spread / f"run-{party}" / party, spread / "rehearsal" / party
        assert _share(here / "model") == _share(there / "model")
        assert View.load(here / "view").digest() == View.load(there / "view").digest()


def test_a_pair_without_a_common_history_is_refused_and_loses_nothing(spread: Path) -> None:
    started(spread, cut=CUT)
    for path in stored(spread, "telco").values():
        rewrite(path, "shop")
    before = {party: {path: path.read_bytes() for path in stored(spread, party).values()} for party in PARTIES}
    found = started(spread)
    (own,) = (each for each in found.values() if type(each) is HandshakeError)
    assert {type(each) for each in found.values() if each is not own} == {PeerDisagreementError}
    assert own.code == "disagreement"
    assert {*own.value} == {*PARTIES}
    assert {party: {path: path.read_bytes() for path in stored(spread, party).values()} for party in PARTIES} == before


def _resumed(spread: Path, party: str) -> set[int]:
    """Return the checkpoints with which a party's exchanges were linked, as its view says."""
    from labelward.party.transcript import FILE_NAME, read_entries

    entries = read_entries(spread / f"run-{party}" / party / "view" / FILE_NAME)
    return {entry.step[0] for entry in entries if entry.kind == "linked"}


def _share(folder: Path) -> PivodlShare:
    return msgspec.structs.replace(PivodlShare.load(folder), model="", evidence=None)


def test_companies_do_not_begin_on_exact_sums(spread: Path) -> None:
    """Refused before anything is written or sent."""
    path = spread / "bank.toml"
    path.write_text(path.read_text().replace('opened_sums = "allow"', ""))
    with refused(JobError, "insecure", field="[model] opened_sums", value="refuse"):
        train_as_party(load_job(path), "bank", spread / "run", seed=1, join=never, log=silent)
    assert not (spread / "run").exists()


def never(*parties: Any) -> Any:
    raise AssertionError(f"joined: {parties}")
