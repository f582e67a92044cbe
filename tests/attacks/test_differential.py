"""Differences of sums give labels to a source that is its own split client, and to no other."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from copied_columns import copying
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.differential import Differential
from labelward.data import VerticalDataset, load_dataset
from labelward.federation.components import make_engine, with_defaults
from labelward.federation.simulation import simulate_job
from labelward.job import Variant, parse_job
from labelward.party.context import Context, no_progress
from labelward.party.view import View
from labelward.protocols.family import attacker_data
from labelward.protocols.pivodl.tree import Tree
from labelward.rng import PrivateSeed

PARTIES = {"bank": 0.3, "clinic": 0.4, "shop": 0.3}


@dataclass
class Attacked:
    """A party's guess beside the labels that others hold."""

    guess: Any
    right: NDArray[np.bool_]
    truth: NDArray[np.int64]

    @property
    def balanced(self) -> float:
        return float(np.mean([self.right[self.truth == label].mean() for label in (0, 1)]))


def trained(copied: Sequence[str] = (), **model: Any) -> tuple[VerticalDataset, Mapping[str, View]]:
    """Train one tree on breast cancer; return the views.

    Args:
        copied: parties that also have one column of the party before them.
    """
    job = with_defaults(
        parse_job(
            {
                "data": {"table": "breast_cancer", "labels": {"bank": 0.2, "clinic": 0.8}},
                "parties": PARTIES,
                "model": {"kind": "pivodl", "trees": 1, "aggregation": "masks", "common_columns": "allow", **model},
                "encryption": {"engine": "plain", "insecure": True},
            }
        )
    )
    data = load_dataset(job, 1, private={party: PrivateSeed(party.encode().ljust(32)) for party in PARTIES})
    names = list(PARTIES)
    for party in copied:
        data = copying(names[names.index(party) - 1], party)(data)
    engine = make_engine(job.encryption)
    return data, simulate_job(job, data, Variant(), engine, None, seed=1, progress=no_progress).views


def attacked(party: str, form: str, **model: Any) -> Attacked:
    data, views = trained(**model)
    return guessed(views[party], data, party, form)


def guessed(view: View, data: VerticalDataset, party: str, form: str) -> Attacked:
    own, held = own_data(data, party), data.holds(party)[: len(data.train_labels)]
    guess = Differential(form=form)(  # type: ignore[arg-type]
        view, own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(0)
    )
    truth = data.train_labels[~held]
    return Attacked(guess, guess.values[~held] == truth, truth)


def own_data(data: VerticalDataset, party: str) -> AttackerData:
    own = attacker_data(next(each for each in data.parties if each.name == party))
    if party not in data.holders:
        return own
    held = data.holds(party)[: len(data.train_labels)]
    return replace(own, labels=np.where(held, data.train_values, np.nan))


@pytest.fixture
def one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every source is its own split client, and what it would send to itself reaches it."""
    sent: dict[tuple[Any, ...], deque[Any]] = defaultdict(deque)
    send, recv = Context.send, Context.recv

    def loop_send(self: Context, peer: str, message: Any, step: Any) -> None:
        if peer == self.party:
            sent[id(self), type(message), step].append(message)
        else:
            send(self, peer, message, step)

    def loop_recv(self: Context, peer: str, kind: Any, step: Any, **more: Any) -> Any:
        return sent[id(self), kind, step].popleft() if peer == self.party else recv(self, peer, kind, step, **more)

    monkeypatch.setattr(Context, "send", loop_send)
    monkeypatch.setattr(Context, "recv", loop_recv)
    monkeypatch.setattr(Tree, "_split_client", lambda self, node, source: self.parties.index(source))


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_source_that_is_its_own_split_client_learns_the_labels(one_client: None, party: str) -> None:
    found = attacked(party, "adjacent", candidates="all")
    assert found.right.mean() >= 0.99
    assert found.guess.notes["certain"] >= 0.99


def test_few_bins_are_enough(one_client: None) -> None:
    found = attacked("bank", "adjacent")
    assert found.balanced > 0.95


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_with_another_split_client_it_learns_nothing(party: str) -> None:
    found = attacked(party, "adjacent", candidates="all")
    assert found.balanced <= 0.55
    assert found.guess.notes["certain"] == 0


@pytest.mark.parametrize("party", ["clinic", "shop"])
def test_who_has_a_column_of_a_source_as_well_learns_the_labels(party: str) -> None:
    """A split client is told no rows of the bins that it opens, but knows them: nobody has to collude."""
    data, views = trained([party], candidates="all")
    found = guessed(views[party], data, party, "adjacent")
    assert found.guess.notes["certain"] > 0.3
    truth = data.train_labels
    certain = np.isin(found.guess.scores[:, 1], (0.0, 1.0))
    assert (found.guess.values[certain] == truth[certain]).all()


def test_public_sums_of_nodes_settle_labels_whoever_the_split_client_is() -> None:
    """The second form: nodes of one class, or with rows of one class but those that the attacker labels."""
    found = attacked("bank", "parent-child", depth=4, min_node_rows=2)
    certain = found.guess.notes["certain"]
    assert 0.2 < certain < 1
    assert found.right.mean() > certain


@pytest.mark.parametrize("form", ["adjacent", "parent-child"])
def test_without_a_view_it_guesses_nothing(form: str) -> None:
    data, views = trained()
    assert guessed(views["bank"].without_records(), data, "bank", form).balanced == 0.5
