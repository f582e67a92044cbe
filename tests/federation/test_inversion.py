"""Model inversion: a column of another party from its embeddings, in whole audits and on planted views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, ColumnGuess
from labelward.attacks.inversion import Inversion
from labelward.auditing.audit import audit
from labelward.errors import DataError, JobError
from labelward.federation.components import with_defaults
from labelward.job import Job, parse_job
from labelward.messages.base import Array, Released
from labelward.messages.splitnn import BatchEmbeddings, EpochOrder
from labelward.party.view import View
from labelward.runs.schema import read_rows
from labelward.testing.attacks import view_of
from refusals import refused

ROWS = 400


def job_of(tmp_path: Path, **attack: Any) -> Job:
    rng = np.random.default_rng(0)
    label, housing, x = rng.integers(2, size=ROWS), rng.integers(2, size=ROWS), rng.normal(size=(ROWS, 3))
    x[:, 1] += label
    table = tmp_path / "rows.csv"
    lines = [f"{a:.4f},{h},{b:.4f},{c:.4f},{y}" for (a, b, c), h, y in zip(x, housing, label, strict=True)]
    table.write_text("\n".join(["age,housing,income,debt,label", *lines]), encoding="utf-8")
    return parse_job(
        {
            "data": {"table": str(table), "label": "label"},
            "parties": {"active": ["age"], "telco": ["housing", "income", "debt"]},
            "model": {"kind": "splitnn", "bottom": "mlp", "epochs": 2, "embedding": 8, "batch_size": 32},
            "attack": [{"kind": "inversion", "column": "telco.housing", "auxiliary": 120, **attack}],
            "leakage": {"meter": False, "privacy": False},
            "run": {"seeds": [1]},
        }
    )


def test_an_audit_infers_a_column_and_scores_it_against_that_column(tmp_path: Path) -> None:
    job = with_defaults(job_of(tmp_path))
    audit(job, tmp_path / "out")
    row = next(each for each in read_rows(tmp_path / "out") if each.attack and each.attack["kind"] == "inversion")
    assert row.party == "active"
    assert row.leakage is not None
    assert row.leakage["auc"] > 0.95  # 8 numbers of a network that has barely learned tell all columns
    assert row.leakage["chance"]["auc"] == 0.5
    assert row.leakage["primary"] == "auc"
    assert abs(row.leakage["beside"]["own columns"]["auc"] - 0.5) < 0.1
    assert "logistic" not in row.leakage["beside"]


@pytest.mark.parametrize(
    ("column", "code"),
    [("active.age", "conflict"), ("telco.income", "values"), ("telco.wage", "unknown"), ("shop.housing", "unknown")],
)
def test_columns_that_cannot_be_inferred_are_refused_before_training(tmp_path: Path, column: str, code: Any) -> None:
    job = with_defaults(job_of(tmp_path, column=column))
    with refused(JobError, code, field="[[attack]] 1 column", value=column):
        audit(job, tmp_path / "out")
    assert not (tmp_path / "out" / "runs").exists()


def test_a_column_without_a_party_is_refused() -> None:
    with refused(JobError, "choice", value="housing"):
        Inversion(column="housing")


def planted(width: int) -> tuple[View, AttackerData, AuxiliaryKnowledge, np.ndarray[Any, Any]]:
    """Return a view of two epochs, of which the last embeddings tell a column; rows are in another order in each."""
    rng = np.random.default_rng(1)
    truth, records = rng.integers(2, size=ROWS), list[Any]()
    for epoch in range(2):
        order = rng.permutation(ROWS)
        records.append((EpochOrder(epoch, Array.pack(order.astype(np.int32))), (epoch,)))
        values = rng.normal(size=(ROWS, width)) + epoch * 3 * truth[order, None]
        for batch, start in enumerate(range(0, ROWS, 100)):
            array = Array.pack(values[start : start + 100].astype(np.float32))
            records.append((BatchEmbeddings(Released.received(array)), (epoch, batch)))
    view = view_of(records, ROWS, model="splitnn", party="active")
    peers = [msgspec.structs.replace(each, peer="telco") if each.kind == "received" else each for each in view._entries]
    known = np.arange(0, ROWS, 3)
    own = AttackerData(features=rng.normal(size=(ROWS, 2)), columns=["a", "b"])
    aux = AuxiliaryKnowledge(classes=2, known_rows=known, known_labels=truth[known])
    return View(msgspec.structs.replace(view.header, role="active"), peers), own, aux, truth


def attacked(view: View, own: AttackerData, aux: AuxiliaryKnowledge) -> ColumnGuess:
    return Inversion(column="telco.housing")(view, own, aux, rng=np.random.default_rng(2))


def test_the_last_epoch_is_read_row_by_row() -> None:
    view, own, aux, truth = planted(2)
    scores = attacked(view, own, aux).scores["telco", "housing"]
    unknown = np.setdiff1d(np.arange(ROWS), aux.known_rows)
    assert np.isnan(scores[aux.known_rows]).all()
    assert np.mean(scores[unknown].argmax(1) == truth[unknown]) > 0.95


def test_without_embeddings_own_columns_are_all_there_is() -> None:
    view, own, aux, truth = planted(2)
    unknown = np.setdiff1d(np.arange(ROWS), aux.known_rows)
    scores = attacked(view.without_records(), own, aux).scores["telco", "housing"]
    assert np.mean(scores[unknown].argmax(1) == truth[unknown]) < 0.65


def test_views_and_knowledge_that_do_not_fit_are_refused() -> None:
    view, own, aux, _ = planted(1)
    with refused(DataError, "unsupported", value="active"):
        attacked(View(msgspec.structs.replace(view.header, role="passive")), own, aux)
    with refused(DataError, "values", field="[[attack]] column", value="telco.housing"):
        attacked(view, own, AuxiliaryKnowledge(classes=2, known_rows=np.array([1]), known_labels=np.array([1])))
