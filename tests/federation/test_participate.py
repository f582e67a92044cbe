"""One party of a run between companies; what carries the messages is in this process, the rest is as it is there."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from cutting import RestartingEnd
from labelward.errors import (
    Code,
    DataError,
    FileFormatError,
    HandshakeError,
    InputError,
    JobError,
    LabelwardError,
    OutputError,
    PeerError,
    PolicyError,
)
from labelward.federation.components import job_engine
from labelward.federation.party_prediction import predict_as_party
from labelward.federation.party_run import run_until_complete
from labelward.federation.party_training import train_as_party
from labelward.federation.predict import predict_table
from labelward.federation.train import train_variant
from labelward.job import Job, load_job
from labelward.party.checkpoint import NOISE_FILE
from labelward.party.noise_record import read_draws
from labelward.party.transcript import FILE_NAME, read_entries
from labelward.party.view import View
from labelward.protocols.secureboost.share import ModelShare
from labelward.report.party_page import write_party_report
from labelward.runs.party_record import PARTY_FILE, PartyRecord, Stage, read_party_record, write_party_record
from labelward.runs.private_seeds import PRIVATE_FILE
from labelward.runs.purge import find_purgeable, purge_targets
from labelward.runs.short_names import variant_without_defaults
from labelward.transport.base import Transport
from labelward.transport.in_process import connect_in_process
from refusals import refused

PARTIES = ("bank", "telco", "shop")
PATIENCE = 120.0


class Meeting:
    """Where the parties of one run meet: an attempt begins once all are there, and is over where one is interrupted.

    Args:
        cut: by attempt, the party that is interrupted in it, and after how many of its messages.
        last: the attempt after which the parties do not meet again.

    Attributes:
        failed: what each party told of a failure outside of its program.
    """

    def __init__(self, cut: Mapping[int, tuple[str, int]] | None = None, *, last: int = 100) -> None:
        self.cut, self.last, self.failed = dict(cut or {}), last, dict[str, str]()
        self.changed, self.here, self.broken = threading.Condition(), 0, False
        self.number, self.ends = 0, connect_in_process(PARTIES)

    def gather(self) -> None:
        """Wait until all are here; an error where one will not come any more."""
        with self.changed:
            self.here, mine = self.here + 1, self.number + 1
            if self.here == len(PARTIES):
                self.here, self.number, self.ends = 0, mine, connect_in_process(PARTIES)
                self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.number == mine or self.broken, PATIENCE)
            if self.number != mine:
                raise PeerError("bank", "has ended", code="peer-gone")

    def leave(self) -> None:
        """Somebody will not come any more."""
        with self.changed:
            self.broken = True
            self.changed.notify_all()

    def join(self, job: Job, party: str, purpose: str, log: Any) -> tuple[Any, str]:
        assert purpose in ("train", "predict", "explain", "export")
        return _Here(self, party), f"certificate of {party}"


class _Here:
    def __init__(self, meeting: Meeting, party: str) -> None:
        self.meeting, self.party = meeting, party

    def attempt(self, *, finished: bool = False) -> Transport:
        self.meeting.gather()
        if self.meeting.number > self.meeting.last:
            raise PeerError("bank", "away", code="peer-gone")
        party, messages = self.meeting.cut.get(self.meeting.number, ("", 0))
        end = self.meeting.ends[self.party]
        return RestartingEnd(end, messages if party == self.party else -1)

    def conclude(self, mark: Callable[[], None]) -> None:
        mark()

    def fail(self, reason: str) -> None:
        self.meeting.failed[self.party] = reason

    def announce(self, reason: str, patience: float) -> tuple[str, ...]:
        self.meeting.failed[self.party] = reason
        return ()

    def uninformed(self) -> tuple[str, ...]:
        return ()

    def peers(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


@pytest.fixture
def company(tmp_path: Path) -> Path:
    """Three tables, and a job file for each party and for all."""
    rng, rows = np.random.default_rng(3), 120
    values = rng.normal(size=(rows, 6)).round(2)
    label = (values[:, 0] + values[:, 2] - values[:, 4] > 0).astype(int)
    ids = np.array([f"c{row:03}" for row in range(rows)])
    for number, party in enumerate(PARTIES):
        order = rng.permutation(rows)
        columns: dict[str, Any] = {"id": ids[order]} | {
            f"{party}{at}": values[order, 2 * number + at] for at in range(2)
        }
        if party == "bank":
            columns["churned"] = label[order]
        pa.csv.write_csv(pa.table(columns), tmp_path / f"{party}.csv")
    for whose in (*PARTIES, "all"):
        sections = []
        for party in PARTIES:
            mine = whose in (party, "all")
            sections.append(f"[parties.{party}]")
            sections += ['role = "active"'] * (party == "bank")
            sections += [f'table = "{party}.csv"'] * mine + ['label = "churned"'] * (mine and party == "bank")
        (tmp_path / f"{whose}.toml").write_text(_JOB.format(parties="\n".join(sections)))
    return tmp_path


_JOB = """
[data]
id = "id"

{parties}

[model]
trees = 3
depth = 2

[encryption]
engine = "plain"
insecure = true

[[defense]]
kind = "id-lmid"
xi = 0.5

[network]
address = "127.0.0.1:7443"
"""


def together(company: Path, meeting: Meeting, run: Callable[[str, Job, Path], Any]) -> dict[str, Any]:
    """Run all parties side by side; return what each returned or raised."""
    found: dict[str, Any] = {}

    def live(party: str) -> None:
        try:
            found[party] = run(party, load_job(company / f"{party}.toml"), company / f"run-{party}")
        except Exception as error:
            found[party] = error
            meeting.leave()

    threads = [threading.Thread(target=live, args=(party,)) for party in PARTIES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return found


def trained(company: Path, meeting: Meeting, **changes: Any) -> dict[str, Any]:
    def run(party: str, job: Job, out: Path) -> PartyRecord:
        variant = "none" if party == "bank" else None
        return train_as_party(
            job, party, out, **{"seed": 1, "join": meeting.join, "variant": variant, "log": silent, **changes}
        )

    return together(company, meeting, run)


def silent(event: str, told: Mapping[str, Any]) -> None:
    pass


def shares(folders: Mapping[str, Path]) -> dict[str, ModelShare]:
    loaded = {party: ModelShare.load(path) for party, path in folders.items()}
    return {party: msgspec.structs.replace(share, model="", evidence=None) for party, share in loaded.items()}


# -- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [{}, {1: ("telco", 0)}, {1: ("bank", 9), 2: ("shop", 4)}, {1: ("telco", 8)}])
def test_the_run_is_that_of_a_rehearsal(company: Path, cut: dict[int, tuple[str, int]]) -> None:
    records = trained(company, Meeting(cut))
    rehearsed = train_variant(load_job(company / "all.toml"), company / "rehearsal", seed=1, variant="none")
    assert {party: record.stage for party, record in records.items()} == dict.fromkeys(PARTIES, "closed")
    assert {record.attempts for record in records.values()} == {len(cut) + 1}
    assert records["bank"].utility == rehearsed.utility
    assert records["telco"].utility == {}
    assert len({record.key.fingerprint for record in records.values()}) == 1
    here = {party: company / f"run-{party}" / party for party in PARTIES}
    there = {party: company / "rehearsal" / party for party in PARTIES}
    assert shares({party: path / "model" for party, path in here.items()}) == shares(
        {party: path / "model" for party, path in there.items()}
    )
    for party in PARTIES:
        assert View.load(here[party] / "view").digest() == View.load(there[party] / "view").digest()
        assert {path.name for path in here[party].iterdir()} == {"view", "model"}  # no checkpoint outlives the run


def test_each_party_has_its_own_memory_and_only_the_active_one_encrypts_ahead(
    company: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is no part of what the parties agree on, and may change where a run goes on."""
    made: list[tuple[int | None, bool]] = []

    def spied(*given: Any, **more: Any) -> Any:
        engine = job_engine(*given, **more)
        made.append((engine.memory_limit, engine.background))
        return engine

    monkeypatch.setattr("labelward.federation.party_training.job_engine", spied)
    for limits in (("1 KB", "2 KB", "3 KB"), ("4 KB", "5 KB", "6 KB")):
        for party, limit in zip(PARTIES, limits, strict=True):
            text = (company / f"{party}.toml").read_text()
            kept = re.sub("memory_limit = .*\n", "", text)
            told = kept.replace('engine = "plain"', "bits = 512").replace(
                "insecure", f'memory_limit = "{limit}"\ninsecure'
            )
            (company / f"{party}.toml").write_text(told)
        records = trained(company, Meeting({1: ("telco", 6)}, last=1 if limits[0] == "1 KB" else 100))
    assert {record.stage for record in records.values()} == {"closed"}
    assert sorted(made) == [(1000, True), (2000, False), (3000, False), (4000, True), (5000, False), (6000, False)]
    assert not [each for each in threading.enumerate() if each.name.startswith("labelward-prepare")]


def test_a_passive_party_hears_how_far_the_training_is(company: Path) -> None:
    """From the job, and from what it is asked for: nothing is sent for it."""
    told: dict[str, list[tuple[str, int, int]]] = {party: [] for party in PARTIES}
    meeting = Meeting()

    def run(party: str, job: Job, out: Path) -> PartyRecord:
        variant = "none" if party == "bank" else None
        heard = lambda *each: told[party].append(each)  # noqa: E731
        return train_as_party(job, party, out, seed=1, join=meeting.join, variant=variant, log=silent, progress=heard)

    together(company, meeting, run)
    for party in ("telco", "shop"):
        assert [each for each in told[party] if each[0] == "trees"] == [("trees", done, 3) for done in (0, 1, 2, 3, 3)]


def test_a_finished_run_is_not_run_again(company: Path) -> None:
    records = trained(company, Meeting())
    told: list[str] = []

    def nobody(*_: Any) -> Any:
        raise AssertionError("it must not look for the others")

    again = trained(company, Meeting(), join=nobody, log=lambda event, _: told.append(event))
    assert again == records
    assert set(told) == {"done"}


class Alone:
    """A network in which nobody answers any more; it counts how often an end is concluded, and may be acknowledged."""

    def __init__(self, *uninformed: str) -> None:
        self.told, self.left, self.concluded = list[bool](), uninformed, 0

    def join(self, job: Job, party: str, purpose: str, log: Any) -> tuple[Any, str]:
        return self, ""

    def attempt(self, *, finished: bool = False) -> None:
        self.told.append(finished)

    def conclude(self, mark: Callable[[], None]) -> None:
        mark()
        self.concluded += 1

    def uninformed(self) -> tuple[str, ...]:
        return self.left

    def close(self) -> None:
        pass


def again(company: Path, party: str, alone: Alone, stage: Stage = "finished") -> PartyRecord:
    """Start a party whose process was killed when it had just learned of the end, or at an earlier stage."""
    out = company / f"run-{party}"
    record = read_party_record(out)
    assert record is not None
    write_party_record(out, msgspec.structs.replace(record, stage=stage))
    job = load_job(company / f"{party}.toml")
    return train_as_party(
        job, party, out, seed=1, join=alone.join, log=silent, variant="none" if party == "bank" else None
    )


def test_a_passive_party_that_knows_of_the_end_needs_nobody(company: Path) -> None:
    trained(company, Meeting())
    alone = Alone()
    assert again(company, "telco", alone).stage == "closed"
    assert alone.told == []


def test_a_passive_party_that_comes_back_for_the_end_concludes_it_once_it_is_marked(
    company: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it cannot write it does not acknowledge, so that it hears of it again."""
    trained(company, Meeting())
    stages = list[str]()

    def full(folder: Path, record: PartyRecord) -> None:
        raise OutputError("cannot be written", code="unwritable")

    def spied(folder: Path, record: PartyRecord) -> None:
        stages.append(f"{record.stage} {alone.concluded}")
        write_party_record(folder, record)

    alone = Alone()
    monkeypatch.setattr("labelward.federation.party_run.write_party_record", full)
    with refused(OutputError, "unwritable"):
        again(company, "telco", alone, "saved")
    assert alone.concluded == 0
    record = read_party_record(company / "run-telco")
    assert record is not None
    assert record.stage == "saved"
    monkeypatch.setattr("labelward.federation.party_run.write_party_record", spied)
    assert again(company, "telco", alone, "saved").stage == "closed"
    assert alone.told == [True, True]
    assert stages == ["finished 0", "closed 1"]


def test_a_party_that_comes_back_when_a_prediction_has_ended_concludes_it() -> None:
    def unused(_: Any) -> Any:
        raise AssertionError

    alone = Alone()
    run_until_complete(alone, unused, unused, silent)  # type: ignore[arg-type]
    assert alone.concluded == 1


def test_the_end_of_a_run_without_a_share_is_none(company: Path) -> None:
    """As where the active party's process of an earlier run is still there: what is here must not be thrown away."""
    trained(company, Meeting({1: ("telco", 8)}, last=1))
    alone, out = Alone(), company / "run-telco"
    kept = sorted((out / "telco" / "checkpoint").iterdir())
    assert kept
    with refused(PeerError, "other-run") as caught:
        train_as_party(load_job(company / "telco.toml"), "telco", out, seed=1, join=alone.join, log=silent)
    assert isinstance(caught.value, PeerError)
    assert caught.value.peer == "bank"
    assert str(out / "telco") in caught.value.reason
    record = read_party_record(out)
    assert record is not None
    assert record.stage == "running"
    assert sorted((out / "telco" / "checkpoint").iterdir()) == kept


def test_a_record_that_cannot_be_written_is_told(company: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, record: PartyRecord) -> None:
        raise OutputError(f"{folder}: cannot be written (No space left on device)", code="unwritable")

    meeting = Meeting()
    monkeypatch.setattr("labelward.federation.party_run.write_party_record", full)
    raised = trained(company, meeting)
    assert {type(each) for each in raised.values()} == {OutputError}
    assert meeting.failed == dict.fromkeys(PARTIES, "it cannot write its files")


def test_shares_are_on_disk_before_the_others_hear_of_it(company: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut at one party, after all have removed their checkpoints, must not lose its share."""
    flushed: set[int] = set()
    early: list[Path] = []
    there = os.fsync

    def spied(descriptor: int) -> None:
        there(descriptor)
        flushed.add(os.fstat(descriptor).st_ino)

    def conclude(here: _Here, mark: Callable[[], None]) -> None:
        out = company / f"run-{here.party}"
        needed = (
            *(out / here.party / "model").iterdir(),
            out / here.party / "model",
            out / PARTY_FILE,
            out / PRIVATE_FILE,
        )
        early.extend(path for path in needed if path.stat().st_ino not in flushed)
        mark()

    monkeypatch.setattr(os, "fsync", spied)
    monkeypatch.setattr(_Here, "conclude", conclude)
    trained(company, Meeting())
    assert not early


def test_the_active_party_tells_of_the_end_until_all_know(company: Path) -> None:
    trained(company, Meeting())
    for alone, stage in ((Alone("telco"), "finished"), (Alone(), "closed")):
        assert again(company, "bank", alone).stage == stage
        assert alone.told == [True]
        assert alone.concluded == 0  # which waits for the others


def test_a_party_that_comes_back_again_and_again_ends_the_run(company: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelward.federation.party_run._MAX_RESTARTS", 3)
    meeting = Meeting(dict.fromkeys(range(1, 9), ("telco", 0)))
    raised = trained(company, meeting)
    assert meeting.number == 3
    for party in PARTIES:
        assert re.search(r"3 times in a row", str(raised[party]))


def test_the_first_line_of_a_log_says_what_protects_nothing(company: Path) -> None:
    told: dict[str, list[tuple[str, Mapping[str, Any]]]] = {party: [] for party in PARTIES}
    meeting = Meeting()

    def run(party: str, job: Job, out: Path) -> PartyRecord:
        variant = "none" if party == "bank" else None
        log = lambda event, fields: told[party].append((event, fields))  # noqa: E731
        return train_as_party(job, party, out, seed=1, join=meeting.join, variant=variant, log=log)

    together(company, meeting, run)
    for party in PARTIES:
        event, fields = told[party][0]
        assert (event, fields["party"], fields["insecure"]) == ("started", party, ["plain engine"])


@pytest.mark.parametrize(("min_rows", "told"), [(1000, {"bank"}), (1, set())])
def test_the_label_holder_hears_of_a_model_without_splits(company: Path, min_rows: int, told: set[str]) -> None:
    heard, meeting = set[str](), Meeting()
    for party in PARTIES:
        path = company / f"{party}.toml"
        path.write_text(path.read_text().replace("depth = 2", f"depth = 2\nmin_rows = {min_rows}"))

    def run(party: str, job: Job, out: Path) -> PartyRecord:
        def log(event: str, fields: Mapping[str, Any]) -> None:
            if event == "remark" and "min_rows" in fields["remark"]:
                heard.add(party)

        variant = "none" if party == "bank" else None
        return train_as_party(job, party, out, seed=1, join=meeting.join, variant=variant, log=log)

    together(company, meeting, run)
    assert heard == told


def test_parties_that_disagree_hear_on_what(company: Path) -> None:
    path = company / "telco.toml"
    path.write_text(path.read_text().replace("depth = 2", "depth = 3"))
    raised = trained(company, Meeting())
    assert any(isinstance(raised[party], HandshakeError) for party in ("bank", "telco"))
    for party in ("bank", "telco"):  # the one that sees it first tells the other
        assert re.search(r"model.depth is [23] at", str(raised[party]))
    assert not (company / "run-telco" / "telco" / "model").exists()


@pytest.mark.parametrize("cell", ["inf", "1e200"])
def test_partners_hear_that_a_table_has_a_bad_cell(company: Path, cell: str) -> None:
    """Whose table it is and the code; no column, no row and no value."""
    path = company / "telco.csv"
    names, first, *rest = path.read_text().splitlines()
    bad = ",".join([*first.split(",")[:-1], cell])
    path.write_text("\n".join([names, bad, *rest]) + "\n")
    raised = trained(company, Meeting())
    assert isinstance(raised["telco"], DataError)
    for party in ("bank", "shop"):
        assert isinstance(raised[party], PeerError)
        for told in ("its table", "'values'"):
            assert told in raised[party].reason
        for private in (cell, names.split(",")[-1], "row"):
            assert private not in raised[party].reason


def test_ids_that_differ_are_counted(company: Path) -> None:
    path = company / "shop.csv"
    path.write_text(path.read_text().replace("c007", "d007"))
    raised = trained(company, Meeting())
    assert isinstance(raised["bank"], HandshakeError)
    assert raised["bank"].value["only"] == {"bank": 1, "shop": 1}


def test_a_greeting_that_another_party_refused_binds_no_table(company: Path) -> None:
    """telco has begun when shop is refused; its table, and not shop's, is mended."""
    change = lambda path: path.write_text(path.read_text().replace("c007", "d007"))  # noqa: E731
    change(company / "shop.csv")
    trained(company, Meeting())
    assert [path.name for path in (company / "run-telco" / "telco" / "checkpoint").iterdir()] == ["000000.lwc"]
    for party in ("bank", "telco"):
        change(company / f"{party}.csv")
    records = trained(company, Meeting())
    assert {party: record.stage for party, record in records.items()} == dict.fromkeys(PARTIES, "closed")


def shifted(path: Path) -> None:
    """Change a value of a table."""
    table = pa.csv.read_csv(path)
    values = table["telco0"].to_numpy() + (np.arange(len(table)) == 3)
    pa.csv.write_csv(table.set_column(table.column_names.index("telco0"), "telco0", pa.array(values)), path)


def test_a_table_that_changes_in_the_first_tree_is_refused(company: Path) -> None:
    """telco has answered, and there is no checkpoint with progress yet."""
    trained(company, Meeting({1: ("telco", 3)}, last=1))
    assert [path.name for path in (company / "run-telco" / "telco" / "checkpoint").iterdir()] == ["000000.lwc"]
    shifted(company / "telco.csv")
    raised = trained(company, Meeting())
    with refused(InputError, "other-run", field=str(company / "run-telco" / "telco" / "checkpoint"), value=0):
        raise raised["telco"]


def test_a_table_may_change_after_greetings_alone(company: Path) -> None:
    trained(company, Meeting({1: ("bank", 6)}, last=1))
    assert {entry.type for entry in read_entries(company / "run-telco" / "telco" / "view" / FILE_NAME)} >= {"KeyOffer"}
    shifted(company / "telco.csv")
    records = trained(company, Meeting())
    assert {party: record.stage for party, record in records.items()} == dict.fromkeys(PARTIES, "closed")


@pytest.mark.parametrize(
    ("changes", "error", "code", "field", "value", "about"),
    [
        ({"party": "tleco"}, JobError, "unknown", "--as", "tleco", "'telco'?"),
        ({"party": "telco", "variant": "none"}, JobError, "conflict", "--defense", "telco", "'telco'"),
        ({"party": "bank", "variant": "nothing"}, JobError, "unknown", "--defense", "nothing", "none"),
        ({"party": "bank"}, JobError, "missing", "", None, "none, id-lmid-xi-0.5"),
    ],
)
def test_bad_input_leaves_no_folder(
    company: Path,
    changes: dict[str, Any],
    error: type[LabelwardError],
    code: Code,
    field: str,
    value: object,
    about: str,
) -> None:
    given = {"seed": 1, "join": Meeting().join, "log": silent, "variant": None, **changes}
    party = given.pop("party")
    job = load_job(company / "bank.toml" if party == "bank" else company / "telco.toml")
    with refused(error, code, field=field, value=value) as caught:
        train_as_party(job, party, company / "out", **given)
    assert about in caught.value.reason
    assert not (company / "out").exists()


def test_the_folder_of_another_job_is_refused(company: Path) -> None:
    trained(company, Meeting())
    path = company / "telco.toml"
    path.write_text(path.read_text().replace("trees = 3", "trees = 4"))
    with refused(OutputError, "other-run", field=str(company / "run-telco"), value=("model.trees",)):
        train_as_party(load_job(path), "telco", company / "run-telco", seed=1, join=Meeting().join, log=silent)


def test_the_folder_of_another_defense_is_refused(company: Path) -> None:
    trained(company, Meeting())
    bank: dict[str, Any] = {"job": load_job(company / "bank.toml"), "party": "bank", "out": company / "run-bank"}
    (other,) = {variant_without_defaults(each).slug for each in bank["job"].variants()} - {"none"}
    with refused(OutputError, "other-run", field=str(company / "run-bank"), value="none") as caught:
        train_as_party(**bank, seed=1, variant=other, join=Meeting().join, log=silent)
    assert other in caught.value.reason


def test_a_run_goes_on_with_other_addresses_and_patience(company: Path) -> None:
    """A network that failed may need them; what is trained is the same."""
    trained(company, Meeting())
    path = company / "telco.toml"
    path.write_text(path.read_text().replace("127.0.0.1:7443", "10.0.0.7:9443") + "timeout = 7.0\n")
    again = train_as_party(load_job(path), "telco", company / "run-telco", seed=1, join=Meeting().join, log=silent)
    assert again.stage == "closed"
    stored = (company / "run-telco" / "job.toml").read_text()
    assert 'address = "10.0.0.7:9443"' in stored
    assert "7443" not in stored


# -- afterwards ------------------------------------------------------------------------------------------------------


def test_predictions_are_those_of_a_rehearsal(company: Path) -> None:
    trained(company, Meeting())
    train_variant(load_job(company / "all.toml"), company / "rehearsal", seed=1, variant="none")
    tables = {party: company / f"{party}.csv" for party in PARTIES}
    meeting = Meeting({1: ("telco", 0)})

    def run(party: str, job: Job, out: Path) -> int:
        to = company / "there.parquet" if party == "bank" else None
        return predict_as_party(job, party, out, tables[party], to, join=meeting.join, log=silent)

    assert together(company, meeting, run) == dict.fromkeys(PARTIES, 120)
    predict_table(company / "rehearsal", tables, company / "here.parquet")
    assert pa.parquet.read_table(company / "there.parquet").equals(pa.parquet.read_table(company / "here.parquet"))


def test_a_party_that_comes_back_again_and_again_ends_a_prediction(
    company: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(company, Meeting())
    monkeypatch.setattr("labelward.federation.party_run._MAX_RESTARTS", 3)
    meeting = Meeting(dict.fromkeys(range(1, 9), ("telco", 0)))

    def run(party: str, job: Job, out: Path) -> int:
        to = company / "there.parquet" if party == "bank" else None
        return predict_as_party(job, party, out, company / f"{party}.csv", to, join=meeting.join, log=silent)

    raised = together(company, meeting, run)
    assert meeting.number == 3
    for party in PARTIES:
        with refused(PeerError, "peer-restarted", value=3):
            raise raised[party]


def test_predictions_that_cannot_be(company: Path) -> None:
    job = load_job(company / "telco.toml")
    given: dict[str, Any] = {"join": Meeting().join, "log": silent}
    with refused(FileFormatError, "other-run", field=str(company / "run-telco" / "party.json")):
        predict_as_party(job, "telco", company / "run-telco", company / "telco.csv", **given)
    with refused(JobError, "conflict", value="telco"):
        predict_as_party(job, "telco", company / "run-telco", company / "telco.csv", company / "p.parquet", **given)
    trained(company, Meeting())
    (company / "new.csv").write_text("id,telco0\nc1,1.0\n")
    with refused(DataError, "columns", field=f"party 'telco', table '{company / 'new.csv'}'", value="telco1"):
        predict_as_party(job, "telco", company / "run-telco", company / "new.csv", **given)


def test_the_page_says_what_protected_the_run(company: Path) -> None:
    trained(company, Meeting({1: ("telco", 3)}))
    page = write_party_report(company / "run-bank").read_text()
    record = read_party_record(company / "run-bank")
    assert record is not None
    for words in (record.key.fingerprint, "certificate of bank", "plain engine", "AUC"):
        assert words in page
    assert "resumed once." in page
    assert "no encryption (plain engine)" in page
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    texts = {"parties": (record.party, evil), "defense": evil, "own": evil, "model": evil, "versions": {evil: evil}}
    write_party_record(company / "run-bank", msgspec.structs.replace(record, **texts))
    hostile = write_party_report(company / "run-bank").read_text()
    assert hostile.count("<script") == 1  # the page's own
    assert "<img src=x" not in hostile
    assert "&lt;script&gt;" in hostile


# -- noise that is drawn once ------------------------------------------------------------------------------------------


def test_a_start_after_refused_batches_meets_the_same_noise(company: Path) -> None:
    """Whether batches are refused follows from the noisy labels: who drew again would draw until they are accepted."""
    told = list[str]()
    for path in company.glob("*.toml"):
        text = path.read_text().replace("trees = 3\ndepth = 2", 'kind = "logistic"\nepochs = 1')
        path.write_text(
            re.sub('kind = "id-lmid".*', 'kind = "randomized-response"\nepsilon = 1.0', text).replace("xi = 0.5", "")
        )

    def live(party: str, job: Job, out: Path) -> PartyRecord:
        variant = "randomized-response-epsilon-1.0" if party == "bank" else None
        return train_as_party(job, party, out, seed=1, join=meeting.join, variant=variant, log=silent)

    for _ in range(2):
        meeting = Meeting()
        raised = together(company, meeting, live)["bank"]
        assert isinstance(raised, JobError)
        assert (raised.code, raised.field) == ("range", "[model] batch_size")
        assert len(read_draws(company / "run-bank" / NOISE_FILE)) == 1
        told.append(str(raised))
    assert told[0] == told[1]


@pytest.mark.parametrize("how", ["purged", "deleted"])
def test_a_run_that_lost_its_noise_is_refused_and_one_that_starts_over_pays_for_both(company: Path, how: str) -> None:
    """Checkpoints purged, or deleted by hand with the party's folder; the record lies beside the private seed."""
    job = company / "bank.toml"
    job.write_text(job.read_text().replace('kind = "id-lmid"\nxi = 0.5', 'kind = "randomized-response"\nepsilon = 1.0'))
    slug = "randomized-response-epsilon-1.0"

    def run(meeting: Meeting, **more: Any) -> dict[str, Any]:
        def live(party: str, job: Job, out: Path) -> PartyRecord:
            variant = slug if party == "bank" else None
            return train_as_party(job, party, out, seed=1, join=meeting.join, variant=variant, log=silent, **more)

        return together(company, meeting, live)

    run(Meeting({1: ("telco", 8)}, last=1))
    out, record = company / "run-bank", company / "run-bank" / NOISE_FILE
    (draw,) = read_draws(record)
    assert (draw.defense, draw.epsilon, draw.superseded) == ("randomized-response", 1.0, False)
    if how == "purged":
        purge_targets(find_purgeable(out, ("checkpoint",)))
    else:
        shutil.rmtree(out / "bank")
    raised = run(Meeting())["bank"]  # the greeting: the others have progress
    assert isinstance(raised, HandshakeError)
    assert raised.code == "disagreement"
    assert raised.value["bank"] == 0 < raised.value["telco"] == raised.value["shop"]  # how far depends on timing
    for restart in (True, True, False):  # all begin anew, so only the record is left to refuse a second draw
        raised = run(Meeting(), restart=restart)["bank"]
        assert isinstance(raised, PolicyError)
        assert (raised.code, raised.field, raised.value) == ("cannot-act", str(record), "randomized-response")
        assert read_draws(record) == (draw,)
    records = run(Meeting(), force=True)
    assert {each.stage for each in records.values()} == {"closed"}
    accounts = View.load(out / "bank" / "view").applied()
    assert {(each["spent"], each["spent_before"]) for each in accounts if "spent" in each} == {(2.0, 1.0)}
    assert [each.superseded for each in read_draws(record)] == [True, False]
    run(Meeting(), force=True)
    accounts = View.load(out / "bank" / "view").applied()
    assert {each["spent"] for each in accounts if "spent" in each} == {3.0}
