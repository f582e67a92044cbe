"""Columns from embeddings: all cells where bottom models began with the shared seed, none where with private ones."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from sklearn import datasets

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, ColumnGuess
from labelward.attacks.embedding_inversion import EmbeddingInversion
from labelward.auditing.audit import audit
from labelward.errors import DataError
from labelward.job import Job, parse_job
from labelward.party.view import View
from labelward.protocols.splitnn.family import SplitNetFamily
from labelward.runs.schema import read_rows
from refusals import refused
from shared_starts import shared_starts

STORED = Path(__file__).parent.parent / "assets" / "shared-starts" / "breast-cancer-mlp"
"""View and share of the active party after one epoch, recorded when initial weights came from the shared seed.

It has 24 of the columns, the passive party telco the other 6; ``rows.npy`` has the ids of the training rows.
"""
COLUMNS = datasets.load_breast_cancer(as_frame=True).data.columns


def job(telco: int, **settings: Any) -> Job:
    """Return the job of an audit by the active party, with so many columns at the passive party."""
    return parse_job(
        {
            "data": {"table": "breast_cancer"},
            "parties": {"active": list(COLUMNS[12:]), "telco": list(COLUMNS[:telco])},
            "model": {"kind": "splitnn", "epochs": 1, **settings.pop("model", {})},
            "attack": [{"kind": "embedding-inversion"}],
            "leakage": {"privacy": False},
            "run": {"seeds": [3]},
            **settings,
        }
    )


def found(rows: list[Any]) -> list[dict[str, Any]]:
    """Return the metrics of the attack on each run."""
    wanted = [row.leakage for row in rows if row.attack is not None and row.attack["kind"] == "embedding-inversion"]
    assert wanted
    return wanted


SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in (1, 3, 4, 5, 6, 8, 12)]


@pytest.mark.slow
@pytest.mark.parametrize("width", [2, *SLOW])
@pytest.mark.parametrize("shared", [True, False])
def test_all_cells_follow_from_a_shared_start_and_none_from_a_private_one(
    width: int, shared: bool, tmp_path: Path
) -> None:
    with shared_starts() if shared else nullcontext():
        audit(job(width), tmp_path, explained=False)
    (leakage,) = found(list(read_rows(tmp_path)))
    if width == 8 and shared:  # some rows have several inverses, and of some none is found
        assert 0.3 < leakage["recovered"] <= 1.0
        assert leakage["wrong"] < 0.1
    else:
        assert leakage["recovered"] == (1.0 if shared and width < 8 else 0.0)
        assert leakage["wrong"] == 0.0
    assert leakage["target"] == "columns"
    assert leakage["without_view"]["recovered"] == 0.0


@pytest.mark.parametrize(
    "model",
    [
        {"top": False},
        {"optimizer": "adam", "learning_rate": 0.01},
        pytest.param({"bottom": "linear"}, marks=pytest.mark.slow),
        pytest.param({"standardize": False}, marks=pytest.mark.slow),
    ],
)
def test_other_networks_with_a_shared_start(model: dict[str, Any], tmp_path: Path) -> None:
    """Without a top model, two numbers are sent for each row: they determine one column."""
    with shared_starts():
        audit(job(1 if "top" in model else 3, model=model), tmp_path, explained=False)
    (leakage,) = found(list(read_rows(tmp_path)))
    assert leakage["recovered"] > 0.99
    assert leakage["wrong"] < 0.01


@pytest.mark.slow
def test_after_a_defense_only_the_first_batch_is_inverted(tmp_path: Path) -> None:
    with shared_starts():
        audit(job(3, defense=[{"kind": "noisy-gradients", "scale": 0.1}]), tmp_path, explained=False)
    plain, defended = found(list(read_rows(tmp_path)))
    assert plain["recovered"] == 1.0
    assert defended["recovered"] == pytest.approx(128 / 455)


def test_a_categorical_column_gets_no_answer(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "people.csv"
    places = rng.choice(["north", "south", "west"], 300)
    values = rng.normal(size=(300, 3))
    lines = [f"{a},{b},{c},{place},{int(a + b > 0)}" for (a, b, c), place in zip(values.tolist(), places, strict=True)]
    path.write_text("\n".join(["a,b,c,place,label", *lines]) + "\n")
    section = {"table": str(path), "label": "label"}
    made = job(1, data=section, parties={"active": ["a", "b"], "telco": ["c", "place"]})
    with shared_starts():
        audit(made, tmp_path / "out", explained=False)
    (leakage,) = found(list(read_rows(tmp_path / "out")))
    assert (leakage["recovered"], leakage["wrong"]) == (0.0, 0.0)


def stored() -> tuple[View, AttackerData, np.ndarray]:
    """Return the stored view, the attacker's data, and the other party's columns of the training rows."""
    from labelward.party.transcript import ids_digest

    view = View.load(STORED)
    table = datasets.load_breast_cancer(as_frame=True)
    train = np.load(STORED / "rows.npy")
    assert ids_digest(str(row) for row in train) == view.header.ids
    own = AttackerData(
        features=table.data[list(view.header.columns)].to_numpy(float)[train],
        columns=view.header.columns,
        labels=table.target.to_numpy(float)[train],
    )
    others = [column for column in COLUMNS if column not in view.header.columns]
    return (
        view,
        SplitNetFamily().own(view, own, SplitNetFamily().load(STORED)),
        table.data[others].to_numpy(float)[train],
    )


def attack(view: View, own: AttackerData, **params: Any) -> ColumnGuess:
    return EmbeddingInversion(**params)(view, own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(1))


@pytest.mark.slow
def test_a_stored_view_gives_all_columns_up_to_their_units() -> None:
    view, own, truth = stored()
    guess = attack(view, own)
    scaled = (truth - truth.mean(axis=0)) / truth.std(axis=0)
    np.testing.assert_allclose(guess.cells["telco"], scaled, atol=1e-4)  # float32 on the way
    assert guess.notes == {"rows of telco inverted": 455.0}


def test_fewer_columns_than_there_are_fit_nothing() -> None:
    view, own, _ = stored()
    assert attack(view, own, columns=5).cells == {}


def test_nothing_is_known_of_the_start() -> None:
    view, own, _ = stored()
    assert attack(view, AttackerData(features=own.features, columns=own.columns)).cells == {}
    assert attack(view.without_records(), own).cells == {}


def test_a_passive_party_receives_no_embeddings() -> None:
    view, own, _ = stored()
    with refused(DataError, "unsupported", value="active"):
        attack(View(msgspec.structs.replace(view.header, role="passive")), own)
