"""Figures of privacy in the rows of an audit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.auditing.audit import audit
from labelward.data import load_dataset, load_tables
from labelward.errors import FileFormatError
from labelward.federation.components import with_defaults
from labelward.job import Job
from labelward.leakage.privacy_figures import PrivacyScorer, ViewGuess
from labelward.metrics.epsilon_bound import EpsilonEvidence
from labelward.metrics.reconstruction import ReconstructionAdvantage
from labelward.party.view import View
from labelward.protocols.family import attacker_data
from labelward.runs.schema import ResultRow, read_rows
from labelward.testing.attacks import view_of
from refusals import refused

Jobs = Callable[..., Job]


class Told(Attack):
    """An attack that returns what the test made."""

    kind = "told"

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        raise NotImplementedError


class Ranked(Told):
    """The same of an attack that leaves open which number is which class."""

    names_classes = False


def evidence_of(figures: dict[str, Any]) -> EpsilonEvidence:
    return msgspec.convert({name: value for name, value in figures.items() if name != "bound"}, EpsilonEvidence)


@pytest.fixture(scope="module")
def rows(job: Jobs, tmp_path_factory: pytest.TempPathFactory) -> list[ResultRow]:
    """The small audit with these figures."""
    return audit(job(leakage={}, run={"seeds": [1]}), tmp_path_factory.mktemp("scored") / "audit")


def test_every_attack_has_both_figures(rows: list[ResultRow]) -> None:
    for row in rows:
        assert row.leakage is not None
        evidence = evidence_of(row.leakage["epsilon"])  # type: ignore[arg-type]
        assert evidence.bound() == row.leakage["epsilon"]["bound"]  # type: ignore[index]
        assert (evidence.changed, evidence.contradicted, evidence.delta) == (0, 0, 0.0)
        assert 0 < evidence.pairs <= evidence.rows < 455
        advantage = msgspec.convert(row.leakage["advantage"], ReconstructionAdvantage)
        if (row.attack or {})["kind"] == "clustering":
            assert advantage.accuracy <= advantage.without_view  # it is one of those without the view
        assert advantage.additive == pytest.approx(advantage.accuracy - advantage.without_view)
        assert np.sign(advantage.multiplicative) == np.sign(advantage.additive)
    same = {row.leakage["advantage"]["without_view"] for row in rows if row.party == "telco"}  # type: ignore[index]
    assert len(same) == 1  # the best of all attacks without the view


def test_figures_can_be_switched_off(job: Jobs, tmp_path: Path) -> None:
    (row, *_) = audit(job(run={"seeds": [1]}, defense=[], leakage={"privacy": False}), tmp_path / "out")
    assert row.leakage is not None
    assert not {"epsilon", "advantage"} & row.leakage.keys()


def test_quantities_have_an_advantage_only(job: Jobs, tmp_path: Path) -> None:
    table = load_diabetes(as_frame=True).frame.iloc[:150]
    table.to_parquet(tmp_path / "diabetes.parquet")
    data = {"table": str(tmp_path / "diabetes.parquet"), "label": "target", "task": "regression"}
    rows = audit(job(data=data, run={"seeds": [1]}, defense=[], leakage={}), tmp_path / "out")
    for row in rows:
        assert row.leakage is not None
        assert "epsilon" not in row.leakage
        assert "advantage" in row.leakage


def test_guesses_of_rows_are_scored_with_the_best_without_the_view(job: Jobs) -> None:
    made = with_defaults(job(run={"seeds": [1]}))
    data = load_dataset(made, 1, load_tables(made))
    truth, party = data.train_labels, data.parties[1]
    own, nothing = attacker_data(party), LabelGuess(values=np.zeros_like(truth), kind="labels")
    half = LabelGuess(values=np.where(np.arange(len(truth)) % 2 == 0, truth, 0), kind="labels")
    attacks = [
        ViewGuess(attack=Told(), own=own, guess=LabelGuess(values=truth, kind="labels"), blind=(nothing,)),
        ViewGuess(attack=Told(), own=own, guess=nothing, blind=(nothing, half)),
    ]
    view = view_of([], len(truth), party=party.name)
    all_right, none = PrivacyScorer(data, 1).score(view, attacks, delta=1e-6)
    expected = float(np.mean([np.mean(half.values[truth == label] == label) for label in (0, 1)]))
    assert all_right["advantage"]["without_view"] == pytest.approx(expected)
    assert all_right["advantage"]["additive"] == pytest.approx(1 - expected)
    assert none["advantage"]["additive"] == pytest.approx(0.5 - expected)
    assert all_right["epsilon"]["delta"] == 1e-6
    assert all_right["epsilon"]["trials"][0]["right"] == all_right["epsilon"]["pairs"]
    assert none["epsilon"]["bound"] == 0


def test_a_ranking_without_names_counts_in_the_direction_that_fits(job: Jobs) -> None:
    """So do its guess without the view, and not its baselines, which name classes."""
    made = with_defaults(job(run={"seeds": [1]}))
    data = load_dataset(made, 1, load_tables(made))
    truth, own = data.train_labels, attacker_data(data.parties[1])
    reverse = LabelGuess(values=1 - truth, kind="labels")
    half = LabelGuess(values=np.where(np.arange(len(truth)) % 2 == 0, 1 - truth, 0), kind="labels")
    attacks = [
        ViewGuess(attack=Ranked(), own=own, guess=reverse, blind=(half, reverse)),
        ViewGuess(attack=Told(), own=own, guess=reverse, blind=(reverse,)),
    ]
    ranked, named = PrivacyScorer(data, 1).score(view_of([], len(truth), party=data.parties[1].name), attacks)
    assert (ranked["advantage"]["accuracy"], named["advantage"]["accuracy"]) == (1.0, 0.0)
    shares = [np.mean(half.values[truth == label] != label) for label in (0, 1)]
    assert ranked["advantage"]["without_view"] == pytest.approx(float(np.mean(shares)))


@pytest.mark.parametrize("damage", [{"bound": "much"}, {"trials": [{"right": "all"}]}])
def test_rows_with_damaged_figures_are_refused(rows: list[ResultRow], damage: dict[str, Any], tmp_path: Path) -> None:
    broken = msgspec.structs.replace(rows[0], leakage={**(rows[0].leakage or {}), "epsilon": damage})
    (tmp_path / "results.jsonl").write_bytes(msgspec.json.encode(broken) + b"\n")
    with refused(FileFormatError, "damaged"):
        read_rows(tmp_path)
