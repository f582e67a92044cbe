"""Checkpoints, views and shares of one history: what is of another run, or was cut, is refused by whoever sees it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_participate import PARTIES, Meeting, company, shares, silent, together

from labelward.errors import FileFormatError, HandshakeError, InputError, PeerDisagreementError
from labelward.federation.party_training import train_as_party
from labelward.federation.train import train_variant
from labelward.federation.view_evidence import verify_evidence
from labelward.job import Job, load_job
from labelward.leakage.stored_views import attack_view
from labelward.party.evidence import Evidence
from labelward.party.transcript import FILE_NAME, Transcript, decode_header, read_entries
from labelward.party.view import View
from labelward.protocols.secureboost.share import ModelShare
from refusals import refused

__all__ = ["company"]

A, B = "none", "id-lmid-xi-0.5"
_HALF = {1: ("bank", 40)}
"""Where an attempt is cut: at the bank's message of this number, in the third tree."""


def started(
    company: Path,
    variant: str = A,
    *,
    out: Mapping[str, str] | None = None,
    restart: tuple[str, ...] = (),
    cut: Mapping[int, tuple[str, int]] | None = None,
) -> dict[str, Any]:
    """Start all parties, and return what each returned or raised; with a cut they end with the first attempt."""

    def run(party: str, job: Job, folder: Path) -> Any:
        return train_as_party(
            job,
            party,
            company / (out or {}).get(party, folder.name),
            seed=1,
            join=meeting.join,
            variant=variant if party == "bank" else None,
            restart=party in restart,
            log=silent,
        )

    meeting = Meeting(cut, last=1 if cut else 100)
    return together(company, meeting, run)


def checkpoints(company: Path) -> dict[str, dict[str, bytes]]:
    """Return all files of checkpoints, by party."""
    folders = {party: company / f"run-{party}" / party / "checkpoint" for party in PARTIES}
    return {party: {path.name: path.read_bytes() for path in folder.iterdir()} for party, folder in folders.items()}


def assert_rehearsed(company: Path, found: Mapping[str, Any]) -> None:
    """The run ended as one that nobody disturbed."""
    assert {party: record.stage for party, record in found.items()} == dict.fromkeys(PARTIES, "closed")
    train_variant(load_job(company / "all.toml"), company / "rehearsal", seed=1, variant=A)
    here, there = (
        shares({party: company / folder.format(party=party) / party / "model" for party in PARTIES})
        for folder in ("run-{party}", "rehearsal")
    )
    assert here == there


def refused_by_all(found: Mapping[str, Any]) -> dict[str, int]:
    """All parties end with the same disagreement; return the progress that it names."""
    (own,) = (each for each in found.values() if type(each) is HandshakeError)
    others = [each for each in found.values() if each is not own]
    assert {type(each) for each in others} == {PeerDisagreementError}
    assert {each.code for each in found.values()} == {"disagreement"}
    assert all(own.reason in each.reason for each in others)
    return dict(own.value)


# -- checkpoints -----------------------------------------------------------------------------------------------------


def test_two_variants_are_never_mixed(company: Path) -> None:
    """The bank trains A, then B in another folder, then A again; the others stay in one folder throughout."""
    started(company, A, cut=_HALF)
    of_a = checkpoints(company)
    progress = refused_by_all(started(company, B, out={"bank": "other"}))
    assert progress == {"bank": 0, "telco": 2, "shop": 2}
    assert checkpoints(company) == of_a  # nobody lost anything by the wrong start
    started(company, B, out={"bank": "other"}, restart=("telco", "shop"), cut=_HALF)
    assert checkpoints(company)["telco"].keys() == of_a["telco"].keys()  # equal numbers, another history
    found = started(company, A)
    assert refused_by_all(found) == {"bank": 2, "telco": 2, "shop": 2}
    assert str(found["bank"]).count("another training") == 2
    assert_rehearsed(company, started(company, A, restart=PARTIES))


@pytest.mark.parametrize("party", PARTIES)
def test_a_start_in_an_empty_folder_throws_nothing_away(company: Path, party: str) -> None:
    started(company, cut=_HALF)
    before = checkpoints(company)
    progress = refused_by_all(started(company, out={party: "other"}))
    assert progress == {each: 0 if each == party else 2 for each in PARTIES}
    assert checkpoints(company) == before
    found = started(company)
    assert_rehearsed(company, found)
    assert {record.attempts for name, record in found.items() if name != party} == {3}


@pytest.mark.parametrize(("party", "column"), [("telco", "telco0"), ("bank", "bank1"), ("bank", "churned")])
def test_a_value_that_changed_is_refused_by_its_owner(company: Path, party: str, column: str) -> None:
    started(company, cut=_HALF)
    table = company / f"{party}.csv"
    text = table.read_text()
    names, *rows = list(csv.reader(text.splitlines()))
    rows[40][names.index(column)] = "1" if rows[40][names.index(column)] == "0" else "0"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    found = started(company)
    with refused(InputError, "other-run", field=str(company / f"run-{party}" / party / "checkpoint")):
        raise found[party]
    table.write_text(text)
    assert_rehearsed(company, started(company))


def test_a_checkpoint_names_model_and_history(company: Path) -> None:
    started(company, cut=_HALF)
    named = {party: msgspec.msgpack.decode(files["000002.lwc"][53:]) for party, files in checkpoints(company).items()}
    assert len({each["model"] for each in named.values()} - {""}) == 1
    assert named["bank"]["exchanges"]["telco"] == named["telco"]["exchanges"]["bank"]
    assert named["bank"]["exchanges"]["shop"] == named["shop"]["exchanges"]["bank"]
    assert len({each["inputs"] for each in named.values()}) == len(PARTIES)
    assert len({each["row_split"] for party, each in named.items() if party != "bank"} - {""}) == 1


# -- views -----------------------------------------------------------------------------------------------------------


def cut_to(view: Path, keep: int) -> tuple[int, bytes]:
    """Leave the first records of a transcript, and close it as whole; return its last position."""
    entries = list(read_entries(view / FILE_NAME))
    (view / FILE_NAME).unlink()
    whole = Transcript(decode_header(entries[0]), view)
    for entry in entries[1:keep]:
        whole.append(entry.kind, entry.peer, entry.type, entry.step, entry.payload, entry.frame)
    whole.close(complete=True)
    assert View.load(view).ended == "complete"
    assert whole.position is not None
    return whole.position


def test_a_view_that_was_cut_is_noticed(company: Path) -> None:
    """By its own share, and by a peer's where its owner made up a share as well."""
    started(company)
    view, share = (company / "run-telco" / "telco" / name for name in ("view", "model"))
    told = verify_evidence(view, company / "run-bank" / "bank" / "model")
    assert told is not None
    assert told.confirmed == ("bank",)
    assert View.load(view).exchanges()["bank"][1]
    position = cut_to(view, len(list(read_entries(view / FILE_NAME))) // 2)
    with refused(FileFormatError, "incomplete", field=str(view), value=told.records):
        verify_evidence(view)
    stored, exchange = ModelShare.load(share), View.load(view).exchanges()["bank"][0]
    forged = Evidence(job=told.job, records=position[0], head=position[1], exchanges={"bank": exchange.digest})
    msgspec.structs.replace(stored, evidence=forged).save(share)
    verify_evidence(view)
    with refused(FileFormatError, "incomplete", value="bank"):
        verify_evidence(view, company / "run-bank" / "bank" / "model")


@pytest.mark.parametrize("gone", [0, 1])
def test_a_record_that_was_taken_out_is_noticed(company: Path, gone: int) -> None:
    """Also without any share: the peer's statement in the view no longer fits; in both attempts of a resumed run."""
    started(company, cut=_HALF)
    started(company)
    view = company / "run-telco" / "telco" / "view"
    verify_evidence(view)
    entries = list(read_entries(view / FILE_NAME))
    (view / FILE_NAME).unlink()
    whole = Transcript(decode_header(entries[0]), view)
    asked = [number for number, entry in enumerate(entries) if entry.type == "Level"]
    for number, entry in enumerate(entries[1:-1], 1):
        if number != asked[-gone]:
            whole.append(entry.kind, entry.peer, entry.type, entry.step, entry.payload, entry.frame)
    whole.close(complete=True)
    with refused(FileFormatError, "incomplete", value="bank"):
        View.load(view).exchanges()


def test_an_unfinished_run_does_not_go_on_with_a_view_that_was_cut(company: Path) -> None:
    started(company, cut=_HALF)
    view = company / "run-telco" / "telco" / "view"
    cut_to(view, len(list(read_entries(view / FILE_NAME))) // 2)
    with refused(FileFormatError, "incomplete", field=str(view)):
        raise started(company)["telco"]


def test_all_shares_name_one_model_and_one_job(company: Path) -> None:
    started(company)
    stored = [ModelShare.load(company / f"run-{party}" / party / "model") for party in PARTIES]
    evidence = [share.evidence for share in stored if share.evidence]
    assert len({share.model for share in stored}) == len({each.job for each in evidence}) == 1
    assert evidence[0].exchanges == {"telco": evidence[1].exchanges["bank"], "shop": evidence[2].exchanges["bank"]}


def test_a_view_states_its_party_s_constraints_and_no_other_s(company: Path) -> None:
    """Only the party's own job has them; with its table it attacks its view by them."""
    job = company / "telco.toml"
    job.write_text(job.read_text().replace('table = "telco.csv"', 'table = "telco.csv"\nmonotone = {telco0 = 1}'))
    started(company)
    views = {party: company / f"run-{party}" / party / "view" for party in PARTIES}
    stated = {party: View.load(folder).header.monotone for party, folder in views.items()}
    assert stated == {party: {"telco0": 1} if party == "telco" else {} for party in PARTIES}
    ids, guess = attack_view(views["telco"], company / "telco.csv", "monotone-sides", {}, classes=2, seed=1)
    assert guess.notes["splits"] > 0
    assert len(ids) == len(guess.values)
