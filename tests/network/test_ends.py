"""The end of a run at a party that comes back for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from companies import Case, together
from rehearsal import Network

from labelward.errors import LabelwardError, OutputError
from labelward.federation.party_run import PartyRun
from labelward.protocols.secureboost.share import ModelShare
from labelward.runs.party_record import PartyRecord, read_party_record, write_party_record
from labelward.transport.grpc import coordinator

pytestmark = pytest.mark.network

TWO = Case(model="trees = 2\ndepth = 2", parties=("bank", "telco"), rows=60)


class Killed(BaseException):
    """A party is gone."""


@pytest.mark.slow
def test_a_party_that_cannot_write_the_end_hears_of_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed when it had saved its share, and its disk is full when it is back."""
    network, conclude = Network(tmp_path, TWO, ModelShare), PartyRun._conclude
    monkeypatch.chdir(tmp_path)

    def killed(run: PartyRun, record: PartyRecord) -> None:
        if run.side.party == "telco":
            raise Killed
        conclude(run, record)

    def full(folder: Path, record: PartyRecord) -> None:
        if record.party == "telco" and record.stage in ("finished", "closed"):
            raise OutputError("cannot be written", code="unwritable")
        write_party_record(folder, record)

    def train(party: str) -> Any:
        if party == "bank":
            return network.train(party)
        with pytest.raises(Killed):
            network.train(party)
        changes.setattr(PartyRun, "_conclude", conclude)
        try:
            return network.train(party)
        except LabelwardError as error:
            return error
        finally:
            changes.setattr(coordinator, "_LINGER", 0.0)  # bank has waited long enough

    with monkeypatch.context() as changes:
        changes.setattr(PartyRun, "_conclude", killed)
        changes.setattr("labelward.federation.party_run.write_party_record", full)
        found = together(TWO.parties, train)
    assert isinstance(found["telco"], OutputError)
    assert found["telco"].code == "unwritable"
    assert found["bank"].stage == "finished"  # it tells telco again
    record = read_party_record(network.made.run("telco"))
    assert record is not None
    assert record.stage == "saved"
    again = together(TWO.parties, network.train)
    assert {party: each.stage for party, each in again.items()} == dict.fromkeys(TWO.parties, "closed")
    assert {each.attempts for each in again.values()} == {1}
    assert not [*(network.made.run("telco") / "telco").glob("checkpoint*")]
