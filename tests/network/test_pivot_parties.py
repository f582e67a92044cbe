"""Pivot over a network: the shares of one process, at every party and with a dealer that has nothing but row ids."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from chaos import ALL, Fault, Plan, play
from companies import PLAIN, Case, Companies, companies, sections, silent, together
from troubled import Weather
from undisturbed import Undisturbed

import fixed_seeds  # noqa: F401  (so that every run splits the rows alike)
from labelward.errors import JobError, LabelwardError
from labelward.federation.connect import connect
from labelward.federation.party_prediction import predict_as_party
from labelward.federation.party_training import train_as_party
from labelward.federation.predict import predict_table
from labelward.federation.train import train_variant
from labelward.job import load_job
from labelward.messages.codec import decode_fields
from labelward.messages.pivot import DealtParcel
from labelward.party.transcript import read_entries
from labelward.party.view import View
from labelward.protocols.pivot.share import PivotShare

pytestmark = pytest.mark.network

MODEL = 'kind = "pivot"\ndealer = "dealer"\ndepth = 2\nbins = 4'
PARTIES = ("bank", "telco", "shop", "dealer")


def train(made: Companies, party: str) -> Any:
    run = made.run(party)
    return train_as_party(load_job(made.job(party)), party, run, seed=1, join=partial(connect, folder=run), log=silent)


def predict(made: Companies, party: str) -> Any:
    out = made.folder / "there.parquet" if party == "bank" else None
    rows, run = made.folder / f"{party}.csv", made.run(party)
    join = partial(connect, folder=run)
    return predict_as_party(load_job(made.job(party)), party, run, rows, out, join=join, log=silent)


def share(folder: Path) -> PivotShare:
    return msgspec.structs.replace(PivotShare.load(folder), model="", evidence=None)


@pytest.mark.parametrize("encryption", [PLAIN, "bits = 512\ninsecure = true\nworkers = 1"], ids=["plain", "paillier"])
def test_training_and_prediction(encryption: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(model=MODEL, parties=PARTIES, encryption=encryption, rows=120)
    made = Companies(tmp_path, case)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all.toml").write_text(sections(case, case.parties))
    records = together(case.parties, partial(train, made))
    assert not [each for each in records.values() if isinstance(each, LabelwardError)]
    train_variant(load_job(tmp_path / "all.toml"), tmp_path / "one", seed=1)
    for party in case.parties:
        here, there = made.run(party) / party, tmp_path / "one" / party
        assert share(here / "model") == share(there / "model")
        assert View.load(here / "view").digest() == View.load(there / "view").digest()
    assert share(made.run("bank") / "bank" / "model").nodes
    assert records["bank"].utility
    assert together(case.parties, partial(predict, made)) == dict.fromkeys(case.parties, case.rows)
    tables = {party: tmp_path / f"{party}.csv" for party in case.parties}
    predict_table(tmp_path / "one", tables, tmp_path / "here.parquet")
    here, there = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("here", "there"))
    assert here.column_names == there.column_names
    for name in here.column_names:
        np.testing.assert_array_equal(here[name], there[name])


def test_a_dealer_with_a_table_of_columns(tmp_path: Path) -> None:
    """Only the dealer itself can tell; it refuses before it deals."""
    case = Case(model=MODEL.replace('"dealer"', '"shop"'), parties=("bank", "telco", "shop"), rows=60)
    made = Companies(tmp_path, case)
    ended = together(case.parties, partial(train, made))
    assert isinstance(ended["shop"], JobError)
    assert (ended["shop"].code, ended["shop"].field) == ("conflict", "[model] dealer")
    assert all(isinstance(each, LabelwardError) for each in ended.values())


KILLED = Case(model=MODEL, parties=PARTIES, rows=100)


@pytest.mark.slow
def test_a_killed_party_has_the_training_begun_anew(
    tmp_path: Path, undisturbed: Undisturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dealer, label holder or another: the shares and views of an undisturbed run, by another key in each attempt."""
    kills = tuple(Fault("kill", party, "", "agreed", 1, 0.1, 0.1) for party in ("dealer", "telco", "bank"))
    monkeypatch.setitem(ALL, "pivot", KILLED)
    result = play(Plan(0, "pivot", False, False, Weather(), kills), tmp_path / "run", undisturbed, surely=True)
    assert len(result.happened) == len(kills)
    assert result.attempts > 1
    for party in ("bank", "telco", "shop"):
        entries = read_entries(tmp_path / "run" / f"{party}-{party}" / party / "view" / "transcript.lwt")
        parcels = [decode_fields(each.type, each.payload) for each in entries if each.type == DealtParcel.__name__]
        keys = [each.material.data for each in parcels if isinstance(each, DealtParcel) and each.material]
        assert len({*keys}) == len(keys) >= 1


@pytest.mark.slow
def test_a_table_that_changes_between_attempts(tmp_path: Path) -> None:
    """It would open another tree of the same labels."""
    with companies(tmp_path, KILLED) as made:
        made.stop_at("telco", "agreed")
        made.start_all()
        made.stopped("telco").kill()
        table = tmp_path / "telco.csv"
        head, _, last = table.read_text().rstrip().rpartition("\n")
        cells = last.split(",")
        table.write_text("\n".join([head, ",".join([cells[0], f"{float(cells[1]) + 1:.3f}", *cells[2:]]), ""]))
        made.start("telco")
        assert "--force" in made.ended(bank=3, telco=2, shop=3, dealer=3)["telco"]
