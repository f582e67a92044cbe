"""Attacks on the state after an epoch: in whole audits, and on views that do not have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.inversion import Inversion
from labelward.attacks.passive_completion import PassiveCompletion
from labelward.attacks.row_ranking import NormAttack, SpectralAttack
from labelward.auditing.audit import audit
from labelward.errors import Code, DataError, JobError
from labelward.federation.components import check_job, with_defaults
from labelward.job import Job, parse_job
from labelward.messages.base import Array
from labelward.messages.splitnn import EpochOrder, OwnEmbeddings
from labelward.party.joined_view import JoinedView
from labelward.party.view import View
from labelward.runs.schema import read_rows
from labelward.testing.attacks import view_of
from refusals import refused

ROWS = 150


def job_of(folder: Path, *attacks: dict[str, Any], record: str = "epochs") -> Job:
    rng = np.random.default_rng(0)
    label, x = rng.integers(2, size=ROWS), rng.normal(size=(ROWS, 4))
    x[:, 1] += label
    lines = [",".join([*(f"{value:.4f}" for value in row), str(y)]) for row, y in zip(x, label, strict=True)]
    (folder / "rows.csv").write_text("\n".join(["a,b,c,d,label", *lines]), encoding="utf-8")
    model = {"kind": "splitnn", "epochs": 3, "embedding": 2, "batch_size": 32, "learning_rate": 0.01}
    return parse_job(
        {
            "data": {"table": str(folder / "rows.csv"), "label": "label"},
            "parties": {"active": ["a", "d"], "telco": ["b", "c"]},
            "model": model,
            "attack": list(attacks),
            "leakage": {"meter": False, "privacy": False},
            "run": {"seeds": [1], "record": record},
        }
    )


@pytest.mark.slow
def test_the_state_after_the_last_epoch_is_the_trained_model(tmp_path: Path) -> None:
    given = [{"kind": "spectral", **more} for more in ({}, {"epoch": 1}, {"epoch": 3})]
    complete = {"kind": "passive-completion", "auxiliary": 20, "steps": 50, "epoch": 2}
    audit(with_defaults(job_of(tmp_path, *given, complete)), tmp_path / "out")
    rows = [row for row in read_rows(tmp_path / "out") if row.attack and row.party == "telco"]
    found = {row.attack.get("epoch"): row.leakage for row in rows if row.attack and row.attack["kind"] == "spectral"}
    assert found[3]["auc_either"] == pytest.approx(found[None]["auc_either"], abs=1e-12)  # type: ignore[index]
    assert found[1]["auc_either"] != found[None]["auc_either"]  # type: ignore[index]
    assert any(row.attack and row.attack["kind"] == "passive-completion" for row in rows)


@pytest.mark.parametrize(
    ("attack", "record", "code", "field", "value"),
    [
        ({"kind": "spectral", "epoch": 1}, "full", "conflict", "[run] record", "full"),
        ({"kind": "norm", "epoch": 1}, "digests", "conflict", "[run] record", "digests"),
        ({"kind": "norm", "epoch": 4}, "epochs", "range", "[[attack]] 1 epoch", 4),
        ({"kind": "norm", "epoch": 0}, "epochs", "range", "[[attack]] 1 epoch", 0),
        ({"kind": "norm", "epoch": 1, "of": "gradients"}, "epochs", "conflict", "[[attack]] 1 epoch", 1),
        ({"kind": "passive-completion", "epoch": 1, "fine_tune": True}, "epochs", "conflict", "[[attack]] 1 epoch", 1),
        ({"kind": "inversion", "column": "telco.b", "epoch": 9}, "epochs", "range", "[[attack]] 1 epoch", 9),
    ],
)
def test_epochs_that_cannot_be_attacked(
    tmp_path: Path, attack: dict[str, Any], record: str, code: Code, field: str, value: Any
) -> None:
    with pytest.raises(JobError) as caught:
        check_job(with_defaults(job_of(tmp_path, attack, record=record)))
    error = caught.value
    assert (error.code, error.value) == (code, value)
    assert (error.field or "").endswith(field.rpartition("] ")[2])


def planted(values: np.ndarray[Any, Any] | None, party: str = "telco") -> View:
    """Return a view of three rows with the own embeddings after the first epoch; None: without."""
    records: list[Any] = [(EpochOrder(0, Array.pack(np.arange(3, dtype=np.int32))), (0,))]
    if values is not None:
        records.append((OwnEmbeddings(0, Array.pack(values)), (0,)))
    return view_of(records, 3, model="splitnn", party=party)


def test_own_embeddings_of_a_coalition_stand_side_by_side() -> None:
    values = np.array([[1.0], [5.0], [2.0]])
    own, aux = AttackerData(features=np.zeros((3, 1)), columns=["x"]), AuxiliaryKnowledge(classes=2)
    guess = NormAttack(epoch=1)(planted(values), own, aux, rng=np.random.default_rng(0))
    assert guess.scores is not None
    assert guess.scores[:, 1].tolist() == [1.0, 5.0, 2.0]
    both = JoinedView([planted(values), planted(values * 2, "shop")])
    joined = NormAttack(epoch=1)(both, own, aux, rng=np.random.default_rng(0))
    assert joined.scores is not None
    assert joined.scores[:, 1] == pytest.approx(values[:, 0] * np.sqrt(5))


def test_views_without_that_epoch_are_refused() -> None:
    own, aux = AttackerData(features=np.zeros((3, 1)), columns=["x"]), AuxiliaryKnowledge(classes=2)
    draws = np.random.default_rng(0)
    with refused(DataError, "incomplete", field="[[attack]] epoch", value=1):
        SpectralAttack(epoch=1)(planted(None), own, aux, rng=draws)
    with refused(DataError, "range", field="[[attack]] epoch", value=2):
        SpectralAttack(epoch=2)(planted(np.ones((3, 1))), own, aux, rng=draws)
    assert "epoch" not in PassiveCompletion().parameters()
    assert Inversion(column="telco.b", epoch=2).parameters()["epoch"] == 2
