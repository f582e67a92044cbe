"""Logistic regression over a network: the shares and views of one process, also where a party is killed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from chaos import Fault, Plan, Weather, play
from companies import PLAIN, Case, Companies, sections, silent, together
from undisturbed import Undisturbed

import fixed_seeds  # noqa: F401  (so that every run splits the rows alike)
from labelward.errors import LabelwardError
from labelward.federation.connect import connect
from labelward.federation.party_prediction import predict_as_party
from labelward.federation.party_training import train_as_party
from labelward.federation.predict import predict_table
from labelward.federation.train import train_variant
from labelward.job import load_job
from labelward.party.view import View
from labelward.protocols.logistic.share import LogisticShare

pytestmark = pytest.mark.network

MODEL = 'kind = "logistic"\nepochs = 3\nbatch_size = 32'
PARTIES = ("bank", "telco", "shop")


def train(made: Companies, party: str) -> Any:
    run = made.run(party)
    return train_as_party(load_job(made.job(party)), party, run, seed=1, join=partial(connect, folder=run), log=silent)


def predict(made: Companies, party: str) -> Any:
    out = made.folder / "there.parquet" if party == "bank" else None
    rows, run = made.folder / f"{party}.csv", made.run(party)
    join = partial(connect, folder=run)
    return predict_as_party(load_job(made.job(party)), party, run, rows, out, join=join, log=silent)


def share(folder: Path) -> LogisticShare:
    return msgspec.structs.replace(LogisticShare.load(folder), model="", evidence=None)


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
    assert any(share(made.run("telco") / "telco" / "model").weights)
    assert records["bank"].utility
    assert together(case.parties, partial(predict, made)) == dict.fromkeys(case.parties, case.rows)
    tables = {party: tmp_path / f"{party}.csv" for party in case.parties}
    predict_table(tmp_path / "one", tables, tmp_path / "here.parquet")
    here, there = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("here", "there"))
    assert here.column_names == there.column_names
    for name in here.column_names:
        np.testing.assert_array_equal(here[name], there[name])


@pytest.mark.slow
@pytest.mark.parametrize("case", ["regression", "regression, noisy labels"])
def test_killed_parties_resume(case: str, tmp_path: Path, undisturbed: Undisturbed) -> None:
    """Noisy labels are not drawn anew, and the weights are those of an undisturbed training."""
    kills = (
        Fault("kill", "telco", "shop", "agreed", 1, 0.02, 0.1),
        Fault("kill", "bank", "shop", "agreed", 1, 0.05, 0.1),
        Fault("kill two", "shop", "telco", "attempt", 1, 0.05, 0.1),
    )
    result = play(Plan(0, case, False, False, Weather(), kills), tmp_path / "run", undisturbed, surely=True)
    assert len(result.happened) == len(kills)
