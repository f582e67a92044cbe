"""After a run between companies, each in its own process: explanations and the joined model, over gRPC."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from companies import Case, Companies, companies

pytestmark = pytest.mark.network

TWO = Case(parties=("bank", "telco"), rows=60)


def consents(made: Companies, **by_party: str) -> None:
    for party, consent in by_party.items():
        made.edit(f"{party}.toml", "[network]", f"[network]\nconsent = {consent}")


@pytest.mark.slow
def test_what_is_agreed_to_is_done_and_nothing_else(tmp_path: Path) -> None:
    with companies(tmp_path / "run", TWO) as made:
        made.start_all()
        made.ended(bank=0, telco=0)
        consents(made, bank='["export"]')
        made.start("bank", "--export", "--to", "model.json")
        made.start("telco", "--export")
        said = made.ended(bank=2, telco=2)
        assert "'telco' is missing" in said["bank"]
        assert "telco.toml: [network] consent" in said["telco"]
        made.start("bank", "--explain", "bank.csv", "--to", "shap.parquet")
        made.start("telco", "--explain", "telco.csv")
        said = made.ended(bank=3, telco=2)
        assert "does not consent to 'rows'" in said["bank"]
        assert not {"model.json", "shap.parquet"} & {path.name for path in made.folder.iterdir()}
        consents(made, telco='["rows", "export"]')
        made.start("bank", "--export", "--to", "model.json")
        made.start("telco", "--export")
        made.ended(bank=0, telco=0)
        (asked,) = [each for each in made.events("telco") if each["event"] == "asked" and each["consent"]]
        assert asked["purpose"]
        assert "telco.f0" in json.loads((made.folder / "model.json").read_text())["learner"]["feature_names"]
        made.start("bank", "--explain", "bank.csv", "--to", "shap.parquet")
        made.start("telco", "--explain", "telco.csv")
        made.ended(bank=0, telco=0)
        columns = pq.read_table(made.folder / "shap.parquet").column_names
        assert [name for name in columns if name.startswith("telco.")] == ["telco.all columns"]
