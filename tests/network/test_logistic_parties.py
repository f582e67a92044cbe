"""Logistic regression over a network: the shares and views of one process, also where a party is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import Fault, Plan, Weather, play
from companies import PLAIN, Case
from rehearsal import Network
from undisturbed import Undisturbed

from labelward.protocols.logistic.share import LogisticShare

pytestmark = pytest.mark.network

MODEL = 'kind = "logistic"\nepochs = 3\nbatch_size = 32\nrows_per_column = 0'
PARTIES = ("bank", "telco", "shop")


@pytest.mark.parametrize("encryption", [PLAIN, "bits = 512\ninsecure = true\nworkers = 1"], ids=["plain", "paillier"])
def test_training_and_prediction(encryption: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(model=MODEL, parties=PARTIES, encryption=encryption, rows=120)
    network = Network(tmp_path, case, LogisticShare)
    monkeypatch.chdir(tmp_path)
    assert network.train_both()["bank"].utility
    assert any(network.share("telco").weights)
    network.predict_both()


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
