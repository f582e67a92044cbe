"""A passive party's own defense over gRPC: the run of both companies is that of one process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
import torch
from companies import Case, Companies, sections, silent, together

import fixed_seeds  # noqa: F401  (so that every run splits the rows alike)
from embedding_noise import listed
from labelward.errors import JobError
from labelward.federation.connect import connect
from labelward.federation.party_prediction import predict_as_party
from labelward.federation.party_training import train_as_party
from labelward.federation.predict import predict_table
from labelward.federation.train import train_variant
from labelward.job import load_job
from labelward.party.view import View
from labelward.protocols.splitnn.share import NetShare
from refusals import refused

pytestmark = pytest.mark.network

torch.set_num_threads(1)

CASE = Case(
    parties=("bank", "telco"),
    rows=60,
    model='kind = "splitnn"\nepochs = 2\nbatch_size = 16\nwidth = 4',
    encryption="",
)
DEFENSE = '\n[[defense]]\nkind = "embedding-noise"\nscale = 0.5\nparty = "telco"\n'
SLUG = "embedding-noise-party-telco-scale-0.5"


def share(folder: Path) -> NetShare:
    return msgspec.structs.replace(NetShare.load(folder), model="", evidence=None)


def test_two_companies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Companies(tmp_path, CASE)
    monkeypatch.chdir(tmp_path)
    telco = made.job("telco")
    telco.write_text(telco.read_text() + DEFENSE)
    whole = tmp_path / "all.toml"
    whole.write_text(sections(CASE, CASE.parties) + DEFENSE)
    tables = {party: tmp_path / f"{party}.csv" for party in CASE.parties}

    def train(party: str) -> Any:
        chosen = SLUG if party == "telco" else None
        return train_as_party(
            load_job(made.job(party)),
            party,
            made.run(party),
            seed=1,
            join=partial(connect, folder=made.run(party)),
            variant=chosen,
            log=silent,
        )

    def predict(party: str) -> Any:
        out = tmp_path / "there.parquet" if party == "bank" else None
        return predict_as_party(
            load_job(made.job(party)),
            party,
            made.run(party),
            tables[party],
            out,
            join=partial(connect, folder=made.run(party)),
            log=silent,
        )

    with listed():
        with refused(JobError, "missing", field="", value=None):
            train_as_party(
                load_job(telco),
                "telco",
                made.run("telco"),
                seed=1,
                join=partial(connect, folder=made.run("telco")),
                log=silent,
            )
        records = together(CASE.parties, train)
        train_variant(load_job(whole), tmp_path / "one", seed=1, variant=SLUG)
        assert {party: record.defense for party, record in records.items()} == {"bank": "none", "telco": SLUG}
        for party in CASE.parties:
            here, there = made.run(party) / party, tmp_path / "one" / party
            assert share(here / "model") == share(there / "model")
            one, two = View.load(here / "view"), View.load(there / "view")
            assert one.digest() == two.digest()
            assert list(one.applied()) == list(two.applied())
        assert [each["kind"] for each in View.load(made.run("telco") / "telco" / "view").applied()] == [
            "embedding-noise"
        ]
        assert together(CASE.parties, predict) == dict.fromkeys(CASE.parties, CASE.rows)
        predict_table(tmp_path / "one", tables, tmp_path / "here.parquet")
        assert pq.read_table(tmp_path / "here.parquet").equals(pq.read_table(tmp_path / "there.parquet"))
