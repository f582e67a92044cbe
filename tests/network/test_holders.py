"""Labels on several parties over a network: the shares and views of one process, kills or not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from chaos import SPREAD, Fault, Plan, play
from companies import Case, Companies, companies, defended, sections, silent, together
from holder_kills import killed
from troubled import Weather
from undisturbed import Undisturbed

import fixed_seeds  # noqa: F401  (so that every run splits the rows alike)
from labelward.errors import HandshakeError, JobError, LabelwardError, PeerError
from labelward.federation.connect import connect
from labelward.federation.party_prediction import predict_as_party
from labelward.federation.party_training import train_as_party
from labelward.federation.predict import predict_table
from labelward.federation.train import train_variant
from labelward.job import load_job
from labelward.party.view import View
from labelward.protocols.pivodl.share import PivodlShare
from refusals import refused

pytestmark = pytest.mark.network

CALM = Weather()
KILLS = (
    Fault("kill", "telco", "shop", "trees", 1, 0.02, 0.1),
    Fault("kill", "bank", "shop", "trees", 1, 0.0, 0.1),
    Fault("kill two", "shop", "telco", "attempt", 1, 0.05, 0.1),
)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["several holders, noise", "several holders"])
def test_killed_parties_end_with_the_shares_and_views_of_one_process(
    case: str, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    result = play(Plan(0, case, False, False, CALM, KILLS), tmp_path / "run", undisturbed, surely=True)
    assert len(result.happened) == len(KILLS)
    assert result.resumed


@pytest.mark.slow
@pytest.mark.parametrize(("case", "seed"), [("several holders, noisy leaves", 5), ("several holders, paillier", 6)])
def test_parties_that_are_killed_at_random(case: str, seed: int, tmp_path: Path) -> None:
    """A sample: ``python tests/network/holder_kills.py`` kills each party fifty times."""
    assert killed(case, seed, tmp_path, kills=1, trees=60).attempts > 1


class Network:
    """Parties in threads of this process, connected over gRPC, beside the same run in one process."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.folder, self.case, self.made = folder, case, Companies(folder, case)

    def train(self, party: str) -> Any:
        path, run = self.made.job(party), self.made.run(party)
        variant = defended(path) if "[[defense]]" in path.read_text() else None
        return train_as_party(
            load_job(path), party, run, seed=1, join=partial(connect, folder=run), variant=variant, log=silent
        )

    def predict(self, party: str) -> Any:
        out = self.folder / "there.parquet" if party == self.case.parties[0] else None
        rows, run = self.folder / f"{party}.csv", self.made.run(party)
        return predict_as_party(
            load_job(self.made.job(party)), party, run, rows, out, join=partial(connect, folder=run), log=silent
        )

    def share(self, folder: Path) -> PivodlShare:
        return msgspec.structs.replace(PivodlShare.load(folder), model="", evidence=None)


@pytest.mark.parametrize(
    ("model", "more"),
    [
        (SPREAD, {}),
        (f'{SPREAD}\nexchange = "published"\ninstance_threshold = 3', {"data": 'task = "regression"', "classes": 0}),
        (
            'kind = "pivodl"\ntrees = 2\ndepth = 2\nbins = 4',
            {"encryption": "bits = 512\ninsecure = true\nworkers = 1"},
        ),
    ],
    ids=["masks", "quantities", "paillier"],
)
def test_training_and_prediction(
    model: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(**{"model": model, "holders": ("bank", "shop"), "data": 'classes = ["0", "1"]', "rows": 120, **more})
    network = Network(tmp_path, case)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all.toml").write_text(sections(case, case.parties))
    records = together(case.parties, network.train)
    assert not [each for each in records.values() if isinstance(each, LabelwardError)]
    train_variant(load_job(tmp_path / "all.toml"), tmp_path / "one", seed=1)
    for party in case.parties:
        here, there = network.made.run(party) / party, tmp_path / "one" / party
        assert network.share(here / "model") == network.share(there / "model")
        assert View.load(here / "view").digest() == View.load(there / "view").digest()
        others = {peer for peer in case.parties if peer != party}
        evidence = PivodlShare.load(here / "model").evidence
        assert evidence is not None
        assert {*evidence.confirmed} == {*View.load(here / "view").exchanges()} == others
    assert records["bank"].utility  # of the test rows that it labels
    assert not records["shop"].utility
    assert together(case.parties, network.predict) == dict.fromkeys(case.parties, case.rows)
    predict_table(
        tmp_path / "one", {party: tmp_path / f"{party}.csv" for party in case.parties}, tmp_path / "here.parquet"
    )
    here, there = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("here", "there"))
    assert here.column_names == there.column_names
    for name in set(here.column_names) - {"id", "prediction"}:  # sums of floats: the order of parties is the same
        np.testing.assert_array_equal(here[name], there[name])


def refusal(case: Case, folder: Path, **edits: tuple[str, str]) -> dict[str, Any]:
    """Return what training ends with at each party after edits of its job file, or of a file by its name."""
    network = Network(folder, case)
    for party, (old, new) in edits.items():
        network.made.edit(f"{party}.toml", old, new)
    return together(case.parties, network.train)


CASE = Case(model=SPREAD, holders=("bank", "shop"), data='classes = ["0", "1"]', rows=60)


def test_parties_with_different_defenses(tmp_path: Path) -> None:
    partial = '\n[[defense]]\nkind = "partial-dp"\nepsilon = 8.0\n[network]'
    found = refusal(CASE, tmp_path, shop=("[network]", partial))
    assert {each.code for each in found.values()} == {"disagreement"}
    assert {name for each in found.values() if isinstance(each, HandshakeError) for name in each.value} == {"defense"}


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["cells", "counts", "key"])
def test_a_party_whose_sums_or_keys_are_others(lie: str, tmp_path: Path) -> None:
    """Exit code 3 and the party's name; whose masked sums were wrong nobody can tell where several are added."""
    with companies(tmp_path, CASE) as made:
        made.changes["shop"] = (f"lies={lie}",)
        running = made.start_all()
        codes = {party: process.wait() for party, process in running.items()}
        assert codes["bank"] == codes["telco"] == 3, made.told()
        last = {party: running[party].errors.splitlines()[-1] for party in ("bank", "telco")}
        assert not any("Traceback" in process.errors for process in running.values())
        assert all("party '" in each for each in last.values()), last
        assert lie == "counts" or any("'shop'" in each for each in last.values()), last


@pytest.mark.slow
def test_different_defenses_end_all_processes(tmp_path: Path) -> None:
    with companies(tmp_path, CASE) as made:
        made.edit("shop.toml", "[network]", '[[defense]]\nkind = "partial-dp"\nepsilon = 8.0\n[network]')
        more = {"shop": ("--defense", defended(made.job("shop")))}
        running = {party: made.start(party, *more.get(party, ())) for party in CASE.parties}
        assert {process.wait() for process in running.values()} == {2}, made.told()
        assert all("defense" in process.errors.splitlines()[-1] for process in running.values()), made.told()


def test_classes_over_a_network_are_named(tmp_path: Path) -> None:
    network = Network(tmp_path, replace(CASE, data=""))
    with refused(JobError, "missing", field="[data] classes"):
        network.train("bank")


def test_a_row_that_two_parties_label(tmp_path: Path) -> None:
    network = Network(tmp_path, CASE)
    path = tmp_path / "shop.csv"
    path.write_text("\n".join(f"{line}0" if line.endswith(",") else line for line in path.read_text().splitlines()))
    found = together(CASE.parties, network.train)
    assert all(isinstance(each, PeerError) for each in found.values())
    assert found["bank"].peer == "shop"
