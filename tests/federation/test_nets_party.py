"""One party of a split network's run between companies: the same views, shares and figures as in a rehearsal."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow.parquet
import pytest
import torch
from test_participate import PARTIES, Meeting, silent, together, trained
from test_participate import company as company

from labelward.defenses import DEFENSES
from labelward.errors import PeerError, PolicyError
from labelward.federation.party_prediction import predict_as_party
from labelward.federation.party_training import train_as_party
from labelward.federation.predict import predict_table
from labelward.federation.train import train_variant
from labelward.job import Job, load_job
from labelward.messages.codec import decode_fields
from labelward.party.checkpoint import NOISE_FILE
from labelward.party.noise_record import read_draws
from labelward.party.transcript import FILE_NAME, read_entries
from labelward.party.view import View
from labelward.policy.base import Policy, PolicyContext
from labelward.policy.net_points import OutgoingEmbedding, Values
from labelward.privacy.noise import KEY_BYTES, KeyedDraws
from labelward.protocols.splitnn.share import NetShare
from labelward.report.party_page import write_party_report
from labelward.rng import SecureRandom
from labelward.runs.query_record import summarize_queries
from refusals import refused

torch.set_num_threads(1)  # sums of several threads round differently; a rehearsal's parties share the cores

NET = """
[model]
kind = "splitnn"
epochs = 3
batch_size = 32
width = 8

[[defense]]
kind = "gradient-compression"
keep = 0.5

[network]
"""


@pytest.fixture
def firms(company: Path) -> Path:
    """The same companies with the job of a split network."""
    for path in company.glob("*.toml"):
        head, _, rest = path.read_text().partition("[model]")
        path.write_text(head + NET.lstrip() + rest.partition("[network]")[2])
    return company


def share(folder: Path) -> NetShare:
    return msgspec.structs.replace(NetShare.load(folder), model="", evidence=None)


@pytest.mark.parametrize("cut", [{}, {1: ("telco", 0)}, {1: ("bank", 13), 2: ("shop", 7)}, {1: ("telco", 11)}])
def test_the_run_is_that_of_a_rehearsal(firms: Path, cut: dict[int, tuple[str, int]]) -> None:
    """Cut before anything, within an epoch, and at the prediction of the test rows; and gone on with."""
    records = trained(firms, Meeting(cut))
    rehearsed = train_variant(load_job(firms / "all.toml"), firms / "rehearsal", seed=1, variant="none")
    assert {party: record.stage for party, record in records.items()} == dict.fromkeys(PARTIES, "closed")
    assert {record.attempts for record in records.values()} == {len(cut) + 1}
    assert records["bank"].utility == rehearsed.utility
    assert {(record.key.engine, record.key.insecure) for record in records.values()} == {("none", ())}
    assert "torch" in records["telco"].versions
    for party in PARTIES:
        here, there = firms / f"run-{party}" / party, firms / "rehearsal" / party
        assert share(here / "model") == share(there / "model")
        assert View.load(here / "view").digest() == View.load(there / "view").digest()
        assert {path.name for path in here.iterdir()} == {"view", "model"}


def test_predictions_and_the_page(firms: Path) -> None:
    trained(firms, Meeting())
    train_variant(load_job(firms / "all.toml"), firms / "rehearsal", seed=1, variant="none")
    tables = {party: firms / f"{party}.csv" for party in PARTIES}
    meeting = Meeting()

    def run(party: str, job: Job, out: Path) -> Any:
        to = firms / "there.parquet" if party == "bank" else None
        once = replace(job, network=replace(job.connection(), row_queries=1))
        return predict_as_party(once, party, out, tables[party], to, join=meeting.join, log=silent)

    assert together(firms, meeting, run) == dict.fromkeys(PARTIES, 120)
    predict_table(firms / "rehearsal", tables, firms / "here.parquet")
    here, there = (pyarrow.parquet.read_table(firms / f"{name}.parquet") for name in ("here", "there"))
    assert here.equals(there)
    assert here.column_names == ["id", "margin_0", "margin_1", "probability_0", "probability_1", "prediction"]
    meeting = Meeting()
    again = together(firms, meeting, run)
    assert {type(again["telco"]), type(again["shop"])} <= {PolicyError, PeerError}
    assert {each.code for each in again.values()} == {"budget", "peer-failed"}
    asked = {"asker": "bank", "predictions": 1, "answers": 120, "rows": 120, "repeated": 0, "most": 1}
    (told,) = summarize_queries(firms / "run-telco" / "telco")
    assert asked.items() <= vars(told).items()
    assert "Questions about rows" in write_party_report(firms / "run-telco").read_text()
    assert not summarize_queries(firms / "run-bank" / "bank")
    assert "no encryption" not in write_party_report(firms / "run-bank").read_text().lower()


@dataclass(frozen=True, kw_only=True)
class KeyedNoise(Policy):
    """A defense of embeddings whose noise follows from a key that is drawn when the run begins."""

    kind: ClassVar[str] = "keyed-noise"

    _kept: dict[str, bytes] = field(default_factory=dict, init=False, repr=False, compare=False)

    def begin(self, setup: PolicyContext, protection: SecureRandom) -> None:
        self._kept["key"] = protection.bytes(KEY_BYTES)

    def state(self) -> bytes:
        return self._kept["key"]

    def resume(self, state: bytes) -> None:
        self._kept["key"] = state

    def before_embedding(self, outgoing: OutgoingEmbedding) -> Values:
        place = f"{outgoing.purpose} {outgoing.epoch} {outgoing.piece}".encode()
        noise = KeyedDraws(self._kept["key"], place, b"").gaussian(outgoing.values.size, 1.0)
        return (outgoing.values + noise.reshape(outgoing.values.shape)).astype(outgoing.values.dtype)

    def parameters(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def noisy(firms: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same companies, where telco has a defense of somebody else."""
    monkeypatch.setitem(sys.modules, "labelward.defenses.keyed_noise", sys.modules[__name__])
    monkeypatch.setattr(DEFENSES, "_entries", (*DEFENSES._entries, "keyed_noise:KeyedNoise"))
    path = firms / "telco.toml"
    path.write_text(
        path.read_text().replace("[network]", '[[defense]]\nkind = "keyed-noise"\nparty = "telco"\n\n[network]')
    )
    return firms


def defended(firms: Path, meeting: Meeting, **more: Any) -> dict[str, Any]:
    def run(party: str, job: Job, out: Path) -> Any:
        variant = {"telco": "keyed-noise-party-telco", "bank": "none"}.get(party)
        return train_as_party(job, party, out, seed=1, join=meeting.join, variant=variant, log=silent, **more)

    return together(firms, meeting, run)


def test_noise_of_a_passive_party_is_drawn_once(noisy: Path) -> None:
    """The active party has the first batch sent in three attempts, which would average fresh noise out."""
    cuts = {1: ("bank", 9), 2: ("bank", 9)}
    records = defended(noisy, Meeting(cuts))
    assert records["telco"].attempts == len(cuts) + 1
    sent = [
        decode_fields(entry.type, entry.payload).values
        for entry in read_entries(noisy / "run-bank" / "bank" / "view" / FILE_NAME)
        if (entry.kind, entry.type, entry.peer, entry.step) == ("received", "BatchEmbeddings", "telco", (0, 0))
    ]
    assert len(sent) == len(cuts) + 1
    assert sent == sent[:1] * len(sent)
    assert [draw.defense for draw in read_draws(noisy / "run-telco" / NOISE_FILE)] == ["keyed-noise"]


def test_lost_noise_of_a_passive_party_is_not_drawn_again(noisy: Path) -> None:
    defended(noisy, Meeting({1: ("bank", 9)}, last=1))
    shutil.rmtree(noisy / "run-telco" / "telco")
    raised = defended(noisy, Meeting())
    with refused(PolicyError, "cannot-act", value="keyed-noise"):
        raise raised["telco"]
