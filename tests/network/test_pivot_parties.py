"""Pivot over a network: the shares of one process, at every party and with a dealer that has nothing but row ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import ALL, Fault, Plan, play
from companies import PLAIN, Case, companies, together
from rehearsal import Network
from troubled import Weather
from undisturbed import Undisturbed

from labelward.errors import JobError, LabelwardError
from labelward.messages.codec import decode_fields
from labelward.messages.pivot import DealtParcel
from labelward.party.transcript import read_entries
from labelward.protocols.pivot.share import PivotShare

pytestmark = pytest.mark.network

MODEL = 'kind = "pivot"\ndealer = "dealer"\ndepth = 2\nbins = 4'
PARTIES = ("bank", "telco", "shop", "dealer")


@pytest.mark.slow
@pytest.mark.parametrize(
    "encryption",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param("bits = 512\ninsecure = true\nworkers = 1", id="paillier", marks=pytest.mark.slow),
    ],
)
def test_training_and_prediction(encryption: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(model=MODEL, parties=PARTIES, encryption=encryption, rows=120)
    network = Network(tmp_path, case, PivotShare)
    monkeypatch.chdir(tmp_path)
    assert network.train_both()["bank"].utility
    assert network.share("bank").nodes
    network.predict_both()


def test_a_dealer_with_a_table_of_columns(tmp_path: Path) -> None:
    """Only the dealer itself can tell; it refuses before it deals."""
    case = Case(model=MODEL.replace('"dealer"', '"shop"'), parties=("bank", "telco", "shop"), rows=60)
    ended = together(case.parties, Network(tmp_path, case, PivotShare).train)
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
