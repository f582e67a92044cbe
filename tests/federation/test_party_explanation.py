"""After a training between companies: own importances, explanations, the joined model, and who must agree to it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from test_participate import PARTIES, Meeting, company, silent, together, trained
from typer.testing import CliRunner

from labelward.cli.app import app
from labelward.errors import DataError, HandshakeError, JobError, PeerError, PolicyError
from labelward.federation.explain import explain_stored_model
from labelward.federation.model import FederatedModel
from labelward.federation.party_explanation import explain_as_party, export_as_party, importance_at_party
from labelward.federation.train import train_variant
from labelward.job import Job, load_job
from labelward.party.public_reason import CONSENT
from labelward.protocols.secureboost.share import ModelShare
from refusals import refused

__all__ = ["company"]

EVERYTHING = dict.fromkeys(PARTIES, ("rows", "columns", "names", "export"))


@pytest.fixture
def finished(company: Path) -> Path:
    trained(company, Meeting())
    train_variant(load_job(company / "all.toml"), company / "rehearsal", seed=1, variant="none")
    return company


def agreeing(job: Job, party: str, consent: Mapping[str, tuple[str, ...]]) -> Job:
    return replace(job, network=replace(job.connection(), consent=consent.get(party, ())))


def explained(
    folder: Path, consent: Mapping[str, tuple[str, ...]], log: Any = silent, **more: Mapping[str, Any]
) -> dict[str, Any]:
    meeting = Meeting()

    def run(party: str, job: Job, out: Path) -> int:
        return explain_as_party(
            agreeing(job, party, consent),
            party,
            out,
            folder / f"{party}.csv",
            folder / "shap.parquet" if party == "bank" else None,
            join=meeting.join,
            log=log,
            **{name: values[party] for name, values in more.items() if party in values},
        )

    return together(folder, meeting, run)


def exported(folder: Path, consent: Mapping[str, tuple[str, ...]], log: Any = silent) -> dict[str, Any]:
    meeting = Meeting()

    def run(party: str, job: Job, out: Path) -> None:
        to = folder / "model.json" if party == "bank" else None
        export_as_party(agreeing(job, party, consent), party, out, to, join=meeting.join, log=log)

    return together(folder, meeting, run)


def test_each_party_has_the_importance_of_its_own_columns(finished: Path) -> None:
    rehearsed = FederatedModel.load(finished / "rehearsal").importance(PARTIES)
    for party in PARTIES:
        found = importance_at_party(finished / f"run-{party}", load_job(finished / f"{party}.toml"))
        mine = {each.feature.name: each for each in found if each.feature.party == party}
        there = {each.feature.name: each for each in rehearsed if each.feature.party == party}
        assert {name: each.weight for name, each in mine.items()} == {name: e.weight for name, e in there.items()}
        if party == "bank":
            assert {name: each.gain for name, each in mine.items()} == {name: each.gain for name, each in there.items()}
            others = {each.feature.party: each.total_gain for each in found if each.feature.party != party}
            for peer, gain in others.items():  # each as a whole; a sum in another order
                assert gain == pytest.approx(sum(e.total_gain for e in rehearsed if e.feature.party == peer), rel=1e-12)
        else:  # a gain follows from labels
            assert {each.feature.party for each in found} == {party}
            assert all(math.isnan(each.total_gain) for each in found)


def test_the_command_reads_the_folder_of_one_party(finished: Path) -> None:
    run = CliRunner().invoke(app, ["explain", "importance", str(finished / "run-telco"), "--json"])
    found = json.loads(run.stdout)["importance"]
    assert {each["party"] for each in found} == {"telco"}
    assert {each["name"] for each in found} <= {"telco0", "telco1"}
    assert all(each["gain"] is each["total_gain"] is None and each["splits"] > 0 for each in found)
    refused_run = CliRunner().invoke(app, ["explain", "importance", str(finished / "run-telco"), "--names", "bank"])
    assert refused_run.exit_code == 2


def test_explanations_are_those_of_a_rehearsal(finished: Path) -> None:
    assert explained(finished, EVERYTHING) == dict.fromkeys(PARTIES, 120)
    tables = {party: finished / f"{party}.csv" for party in PARTIES}
    explain_stored_model(finished / "rehearsal", tables, finished / "here.parquet", names=PARTIES)
    assert pq.read_table(finished / "shap.parquet").equals(pq.read_table(finished / "here.parquet"))


def test_a_party_that_keeps_its_columns_apart_to_itself_has_one_value(finished: Path) -> None:
    """tests/protocols/test_explain.py compares it with the definition."""
    explained(finished, {"telco": ("rows",), "shop": ("rows", "columns")}, most=dict.fromkeys(PARTIES, 7))
    table = pq.read_table(finished / "shap.parquet").to_pandas()
    values = [name for name in table.columns if "." in name]
    assert {name for name in values if name.startswith("telco.")} == {"telco.all columns"}
    assert {name for name in values if name.startswith("shop.")} <= {"shop.0", "shop.1"}
    # sums of some dozens of numbers of size 1
    np.testing.assert_allclose(table[values].sum(axis=1), table["margin"] - table["expected"], rtol=0, atol=1e-12)


def test_a_background_of_its_own(finished: Path) -> None:
    behind = {}
    for party in PARTIES:
        head, *lines = (finished / f"{party}.csv").read_text().splitlines()
        behind[party] = finished / f"{party}-behind.csv"
        behind[party].write_text("\n".join([head, *sorted(lines)[:9]]) + "\n")
        (finished / f"{party}.csv").write_text("\n".join([head, *sorted(lines)[50:60]]) + "\n")
    assert explained(finished, EVERYTHING, background=behind) == dict.fromkeys(PARTIES, 10)
    tables = {party: finished / f"{party}.csv" for party in PARTIES}
    here = finished / "here.parquet"
    explain_stored_model(finished / "rehearsal", tables, here, background=behind, names=PARTIES)
    assert pq.read_table(finished / "shap.parquet").equals(pq.read_table(here))


def test_who_does_not_agree_says_so_before_anything_else(finished: Path) -> None:
    job = agreeing(load_job(finished / "telco.toml"), "telco", {"telco": ("columns", "names", "export")})

    def nobody(*_: Any) -> Any:
        raise AssertionError("it must not look for the others")

    with refused(PolicyError, "missing", field=CONSENT, value="rows"):
        explain_as_party(job, "telco", finished / "run-telco", finished / "telco.csv", join=nobody, log=silent)
    with refused(PolicyError, "missing", field=CONSENT, value="export"):
        export_as_party(
            agreeing(load_job(finished / "bank.toml"), "bank", {}),
            "bank",
            finished / "run-bank",
            finished / "model.json",
            join=nobody,
            log=silent,
        )
    with refused(JobError, "conflict", value="telco"):
        export_as_party(job, "telco", finished / "run-telco", finished / "model.json", join=nobody, log=silent)


def test_numbers_of_rows_that_differ_are_named(finished: Path) -> None:
    found = explained(finished, EVERYTHING, most={"bank": 5, "telco": 6, "shop": 5})
    assert isinstance(found["bank"], HandshakeError | PeerError)
    assert "background rows" in str(found["bank"])
    assert not (finished / "shap.parquet").exists()


def test_questions_of_explanations_count(finished: Path) -> None:
    """As those of predictions do: a background row as well, and each row once in an explanation."""
    limits = dict.fromkeys(PARTIES, ("rows",))
    for number in range(3):
        meeting = Meeting()

        def run(party: str, job: Job, out: Path, meeting: Meeting = meeting) -> int:
            job = agreeing(job, party, limits)
            job = replace(job, network=replace(job.connection(), row_queries=2))
            to = finished / "shap.parquet" if party == "bank" else None
            return explain_as_party(job, party, out, finished / f"{party}.csv", to, join=meeting.join, log=silent)

        found = together(finished, meeting, run)
        if number < 2:
            assert found == dict.fromkeys(PARTIES, 120)
        else:
            assert any(isinstance(each, PolicyError) and each.code == "budget" for each in found.values())


def test_the_joined_model_is_that_of_a_rehearsal(finished: Path) -> None:
    told: list[tuple[str, Any]] = []
    found = exported(finished, EVERYTHING, log=lambda event, details: told.append((event, dict(details))))
    assert found == dict.fromkeys(PARTIES, None)
    FederatedModel.load(finished / "rehearsal").export(finished / "here.json", consent=PARTIES, names=PARTIES)
    assert json.loads((finished / "model.json").read_text()) == json.loads((finished / "here.json").read_text())
    asked = [details for event, details in told if event == "asked"]
    assert asked == [{"purpose": "use outside of labelward", "consent": True}] * 2


def test_without_one_consent_nothing_is_joined(finished: Path) -> None:
    found = exported(finished, EVERYTHING | {"shop": ("rows", "columns", "names")})
    for party, error in found.items():
        assert isinstance(error, PolicyError), (party, error)
        assert error.code == "missing"
    assert found["bank"].value == found["telco"].value == ("shop",)
    assert (found["bank"].field, found["shop"].field) == ("consent", CONSENT)
    assert not (finished / "model.json").exists()


def test_names_are_told_by_consent_only(finished: Path) -> None:
    exported(finished, EVERYTHING | {"telco": ("export",)})
    names = json.loads((finished / "model.json").read_text())["learner"]["feature_names"]
    assert {"telco.f0", "telco.f1", "shop0", "shop1"} <= set(names)
    assert not {"telco0", "telco1"} & set(names)


def test_only_trees_are_explained(company: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from labelward.federation import party_prediction

    share = SimpleNamespace(kind="splitnn", model="m")
    monkeypatch.setattr(party_prediction, "finished_share", lambda *_: (share, None))
    assert not isinstance(share, ModelShare)
    with refused(DataError, "unsupported", value="splitnn"):
        export_as_party(
            load_job(company / "telco.toml"), "telco", company / "run-telco", None, join=Meeting().join, log=silent
        )
