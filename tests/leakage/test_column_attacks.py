"""Attacks of any party on labels or columns: who attacks, what is scored, and where it is reported."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from labelward.attacks import ATTACKS
from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, ColumnGuess
from labelward.auditing.audit import audit
from labelward.cli._summary import print_summary
from labelward.cli.app import app
from labelward.data import PartyDataset, load_dataset, load_tables
from labelward.errors import DataError, JobError
from labelward.federation.components import attacking_parties, check_job, with_defaults
from labelward.job import Job
from labelward.leakage.column_scores import score_columns, true_cells
from labelward.leakage.stored_columns import guess_table, score_stored_columns
from labelward.leakage.stored_views import attack_view
from labelward.party.view import View
from labelward.report.page import write_report
from labelward.runs.schema import read_rows


@dataclass(frozen=True, kw_only=True)
class _Peek(Attack):
    """Answers one cell of each column of each peer, and ranks a column of telco's by the labels."""

    kind: ClassVar[str] = "peek"
    primary: ClassVar[str] = "recovered"
    roles: ClassVar[tuple[str, ...]] = ("active", "passive")
    target: ClassVar[Any] = "columns"

    bin: float = 0.0

    def __call__(self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator) -> Any:
        assert (own.labels is not None) == (view.header.role == "active")
        assert own.labels is None or len(own.labels) == view.rows
        cells = np.full((view.rows, 12), np.nan)
        cells[0] = self.bin
        return ColumnGuess(cells={"telco": cells} if view.party != "telco" else {})


@pytest.fixture
def peek(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the attack above."""
    module = ModuleType("labelward.attacks._peek")
    module.Peek = _Peek  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "labelward.attacks._peek", module)
    monkeypatch.setattr(ATTACKS, "_entries", (*ATTACKS._entries, "_peek:Peek"))


@pytest.mark.usefixtures("peek")
@pytest.mark.parametrize(
    ("party", "expected"),
    [
        (None, ("telco", "shop", "active")),
        ("active", ("active",)),
        ("passive", ("telco", "shop")),
        ("shop", ("shop",)),
    ],
)
def test_an_attack_is_run_by_the_parties_of_its_roles_or_the_one_named(
    job: Callable[..., Job], party: str | None, expected: tuple[str, ...]
) -> None:
    """The key ``party`` takes a party's name or a role; without it all parties of the attack's roles attack."""
    made = with_defaults(job(attack=[{"kind": "peek"} | ({} if party is None else {"party": party})]))
    assert attacking_parties(made, made.attacks[0]) == expected
    check_job(made)


@pytest.mark.usefixtures("peek")
@pytest.mark.parametrize(
    ("attacks", "code"),
    [
        ([{"kind": "id2graph", "party": "active"}], "conflict"),
        ([{"kind": "id2graph", "party": "bank"}], "unknown"),
        ([{"kind": "peek"}, {"kind": "peek", "party": "shop"}], "duplicate"),
    ],
)
def test_parties_that_cannot_attack_or_attack_twice_are_refused(
    job: Callable[..., Job], attacks: list[dict[str, Any]], code: str
) -> None:
    """A party of another role, an unknown one, and the same attack by the same party."""
    with pytest.raises(JobError) as caught:
        check_job(with_defaults(job(attack=attacks)))
    assert caught.value.code == code
    assert caught.value.field.startswith("[[attack]]")


@pytest.mark.usefixtures("peek")
def test_an_audit_scores_attacks_on_columns_apart_from_labels(
    job: Callable[..., Job], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows state the target; neither headline nor ranking of label leakage takes them in."""
    attacks = [{"kind": "peek", "party": "active"}, {"kind": "id2graph"}]
    made = job(attack=attacks, defense=[], run={"seeds": [1]})
    rows = audit(made, tmp_path / "a", explained=False)
    assert [row.party for row in rows if row.attack and row.attack["kind"] == "peek"] == ["active"]
    found = next(row.leakage for row in rows if row.attack and row.attack["kind"] == "peek")
    assert found is not None
    assert found["target"] == "columns"
    assert all("target" not in (row.leakage or {}) for row in rows if row.party != "active")
    assert read_rows(tmp_path / "a") == rows

    data = load_dataset(with_defaults(made), 1, load_tables(with_defaults(made)))
    cells = sum(party.train.size for party in data.parties[1:])
    assert found["recovered"] + found["wrong"] == pytest.approx(12 / cells)  # type: ignore[operator]
    assert audit(made, tmp_path / "a", explained=False) == rows

    print_summary(rows)
    printed = capsys.readouterr().out
    assert printed.index("id2graph") < printed.index("columns of other parties") < printed.index("peek")
    page = write_report(tmp_path / "a").read_text(encoding="utf-8")
    labels, _, columns = page.partition("Leakage of columns")
    assert "id2graph" in labels
    assert "peek" in columns
    assert "id2graph" not in columns.partition("</table>")[0]

    view, tables = tmp_path / "a" / "runs" / "none" / "1" / "active" / "view", tmp_path / "a" / "data" / "1"
    call = [
        "attack",
        view,
        "--attack",
        "peek",
        "--features",
        tables / "active.parquet",
        "--out",
        tmp_path / "g.parquet",
    ]
    call = [*map(str, call), "--classes", "2", "--seed", "1", "--labels", str(tables / "truth.parquet")]
    assert CliRunner().invoke(app, call).exit_code == 0
    without = CliRunner().invoke(app, [*call[:-2], "--force"])
    assert without.exit_code == 2
    score = [
        "score",
        str(tmp_path / "g.parquet"),
        "--truth",
        str(tables / "telco.parquet"),
        "--party",
        "telco",
        "--json",
    ]
    scored = json.loads(CliRunner().invoke(app, score).stdout)
    share = cells / data.parties[1].train.size
    assert scored["recovered"] == pytest.approx(found["recovered"] * share)  # type: ignore[operator]
    stored = tmp_path / "a" / "runs" / "none" / "1" / "telco" / "view"
    with pytest.raises(JobError) as caught:
        attack_view(view, tables / "active.parquet", "id2graph", {}, classes=2, seed=1)
    assert caught.value.code == "unsupported"
    assert attack_view(stored, tables / "telco.parquet", "peek", {}, classes=2, seed=1)[1].cells == {}


def test_scores_of_columns_count_right_and_wrong_answers(job: Callable[..., Job]) -> None:
    """The truth recovers all; one wrong answer is counted; a shuffled guess reaches its chance."""
    made = with_defaults(job(attack=[]))
    data = load_dataset(made, 1, load_tables(made))
    others = data.parties[1:]
    bins = {party.name: true_cells(party, "bins", {"bins": 8}) for party in others}
    for guess in (ColumnGuess(cells=bins), ColumnGuess(cells={p.name: p.train for p in others}, kind="values")):
        found = score_columns(guess, others, {"bins": 8})
        assert (found["recovered"], found["wrong"]) == (1.0, 0.0)
    one = {name: cells.copy() for name, cells in bins.items()}
    one["telco"][0, 0] += 1
    one["telco"][1:, 0] = np.nan
    total = sum(cells.size for cells in bins.values())
    found = score_columns(ColumnGuess(cells=one), others, {"bins": 8})
    assert found["wrong"] == 1 / total
    assert found["recovered"] == (total - len(one["telco"])) / total
    rng = np.random.default_rng(3)
    shuffled = {name: rng.permuted(cells, axis=0) for name, cells in bins.items()}
    found = score_columns(ColumnGuess(cells=shuffled), others, {"bins": 8})
    assert found["recovered"] == pytest.approx(found["chance"]["recovered"], abs=0.01)  # 8,000 cells: error 0.004
    column = others[0].columns[0]
    ranks = np.unique(others[0].train[:, 0], return_inverse=True)[1]
    scores = -np.abs(ranks[:, None] - np.arange(ranks.max() + 1)).astype(np.float64)
    guess = ColumnGuess(scores={(others[0].name, column): scores})
    assert score_columns(guess, others, {"bins": 8})["auc"] == 1.0
    with pytest.raises(DataError):
        score_columns(ColumnGuess(cells={"telco": np.zeros((3, 3))}), others, {"bins": 8})


def test_a_correlation_has_the_chance_of_as_many_rows() -> None:
    rng = np.random.default_rng(0)
    truth, drawn = rng.normal(size=(50, 3)), rng.normal(size=(50, 3))
    drawn[:, 2] = 0.0  # constant: no order of the truth correlates with it
    party = PartyDataset(name="telco", columns=("a", "b", "c"), train=truth, validation=truth[:0], test=truth[:0])
    found = score_columns(ColumnGuess(cells={"telco": drawn}, kind="values"), [party], {})
    shuffled = [abs(np.corrcoef(drawn[:, 0], rng.permutation(truth[:, 0]))[0, 1]) for _ in range(1000)]
    # the error of the mean is .003
    assert found["chance"]["correlation"] == pytest.approx(np.mean(shuffled) * 2 / 3, abs=0.01)
    assert found["correlation"] < 0.3


def test_a_stored_guess_keeps_what_splits_alone_reveal(tmp_path: Path) -> None:
    nothing = np.nan
    cells, by_splits = np.array([[0.0], [1.0], [nothing], [2.0]]), np.array([[0.0], [nothing], [nothing], [nothing]])
    guess = ColumnGuess(cells={"telco": cells}, by_splits={"telco": by_splits})
    pq.write_table(guess_table(["p", "q", "r", "s"], guess, {}), tmp_path / "guess.parquet")
    pq.write_table(pa.table({"id": ["s", "r", "q", "p"], "age": [30.0, 30.0, 20.0, 10.0]}), tmp_path / "telco.parquet")
    found = score_stored_columns(tmp_path / "guess.parquet", tmp_path / "telco.parquet", "telco")
    assert (found["recovered"], found["wrong"], found["recovered_by_splits"]) == (0.75, 0.0, 0.25)
    assert found["chance"] == {"recovered": 0.25, "wrong": 0.5, "recovered_by_splits": 1 / 16}
