"""What every attack must do, as tests that others can inherit; and views with known leaves, made without a run.

Usage: subclass :class:`AttackContract` in a test module and give it ``attack``.
"""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, fields
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import Clustering
from labelward.errors import InputError
from labelward.he.base import Layout
from labelward.messages.base import CipherDigest, Message, Observation, Released, RowMask, wire_name
from labelward.messages.codec import encode_fields
from labelward.messages.tree import LevelRequest, NodeSplit, OwnSplit, TrainingEnd, TreeStart
from labelward.metrics.leakage import cluster_chance, score_clusters
from labelward.party.transcript import FORMAT, Header, TranscriptEntry
from labelward.party.view import View

_GRADIENTS = CipherDigest("planted", "rows", (0,), Layout((1,), 0, 1), 0, 0, b"")


def view_of(
    records: list[tuple[Message | Observation, tuple[int, ...]]],
    rows: int,
    *,
    model: str = "secureboost",
    party: str = "passive",
) -> View:
    """Return the view of a passive party that received and observed these (record, step) in this order."""
    header = Header(
        FORMAT, "test", party, "passive", ("active",), (rows, 0), "plain", 0, (), {"model.kind": f'"{model}"'}
    )
    entries = []
    for record, step in records:
        received = isinstance(record, Message)
        kind, peer = ("received", "active") if received else ("observed", "")
        entries.append(TranscriptEntry(kind, peer, wire_name(type(record)), step, encode_fields(record)))  # type: ignore[arg-type]
    return View(header, entries)


def planted_view(
    leaves: NDArray[np.int32], *, model: str = "secureboost", party: str = "passive", own: bool = False
) -> View:
    """Return a passive party's view whose visible leaves partition the rows as given.

    Each tree halves its set of leaves until one is left, level by level.

    Args:
        leaves: int32 [T, n]; -1: the row is not in the tree's sample.
        model: ``model.kind`` of the run.
        party: whose view.
        own: whether the party owns the splits; else it is told of them.
    """
    trees, rows = leaves.shape
    records: list[tuple[Message | Observation, tuple[int, ...]]] = []
    for tree in range(trees):
        sample = leaves[tree] >= 0
        records.append((TreeStart(tree, Released.received(RowMask.pack(sample)), _GRADIENTS), (tree,)))
        level = [(0, np.flatnonzero(sample))]
        depth = 0
        while level:
            splits, level = _halve(leaves[tree], level)
            told = () if own else tuple(splits)
            depth += 1
            records.append(
                (LevelRequest(tree, depth, Released.received(told), tuple(node for node, _ in level)), (tree, depth))
            )
            if own:
                records += [(OwnSplit(tree, s.node, "x", 0.0, s.node, s.left), (tree, depth)) for s in splits]
    records.append((TrainingEnd(trees, 0), (trees,)))
    return view_of(records, rows, model=model, party=party)


def _halve(
    leaf: NDArray[np.int32], level: list[tuple[int, NDArray[np.int64]]]
) -> tuple[list[NodeSplit], list[tuple[int, NDArray[np.int64]]]]:
    """Split each node (number, rows) that holds several leaves; return the splits, and their children."""
    splits, children = [], []
    for node, rows in level:
        names = np.unique(leaf[rows])
        if len(names) < 2:
            continue
        left = leaf[rows] < names[len(names) // 2]
        splits.append(NodeSplit(node, RowMask.pack(left)))
        children += [(2 * node + 1, rows[left]), (2 * node + 2, rows[~left])]
    return splits, children


class AttackContract:
    """Tests of one attack; every attack passes them.

    Override :meth:`attack`, and :meth:`baseline` where the attack's guess without a view is not CL's.
    """

    classes = 2
    rows = 240
    _planted: ClassVar[dict[str, LabelGuess]] = {}

    def attack(self) -> Attack:
        """Return the attack under test."""
        raise NotImplementedError

    def baseline(self) -> Attack:
        """Return the attack that gives the same clusters when nothing was seen."""
        return Clustering()

    def truth(self) -> NDArray[np.int64]:
        """Return the labels behind the planted views; no attack is given them."""
        return np.arange(self.rows) % self.classes

    def own(self) -> AttackerData:
        """Return read-only columns, some of which tell of the labels; one has categories, two have gaps."""
        rng = np.random.default_rng(5)
        features = rng.normal(size=(self.rows, 5))
        features[:, 0] += self.truth()
        features[:, 3] = 7.0
        features[:, 4] = rng.integers(3, size=self.rows)
        features[::9, 1] = features[::7, 4] = np.nan
        features.setflags(write=False)
        return AttackerData(features=features, columns=["a", "b", "c", "constant", "place"], categories={"place": 3})

    def view(self, party: str = "passive", seed: int = 6) -> View:
        """Return a view of three trees whose leaves tell of the labels, apart from noise."""
        rng = np.random.default_rng(seed)
        noisy = np.where(
            rng.random((3, self.rows)) < 0.1, rng.integers(self.classes, size=(3, self.rows)), self.truth()
        )
        leaves = (3 * noisy + rng.integers(3, size=noisy.shape)).astype(np.int32)
        leaves[rng.random(leaves.shape) < 0.05] = -1
        return planted_view(leaves, party=party)

    def guess(self, view: View, attack: Attack | None = None) -> LabelGuess:
        """Return the guess with a fixed seed."""
        guess: LabelGuess = (attack or self.attack())(
            view, self.own(), AuxiliaryKnowledge(classes=self.classes), rng=np.random.default_rng(7)
        )
        return guess

    def planted(self) -> LabelGuess:
        """Return the guess from :meth:`view`; only to be read: tests of a class with the same attack share it."""
        view = self.view()
        made, key = type(self)._planted, f"{type(self)} {self.attack()} {view.digest()}"
        if key not in made:
            made[key] = self.guess(view)
        return made[key]

    def test_takes_a_view_what_the_party_owns_and_auxiliary_knowledge_only(self) -> None:
        """No argument could carry the true labels."""
        assert list(inspect.signature(self.attack().__call__).parameters) == ["view", "own", "aux", "rng"]

    def test_is_frozen_and_lists_its_parameters(self) -> None:
        """A result that names the parameters names what ran; equal parameters make an equal attack."""
        attack = self.attack()
        named = attack.parameters()
        assert all(getattr(attack, name) == value for name, value in named.items())
        assert all(getattr(attack, each.name) == each.default for each in fields(attack) if each.name not in named)  # type: ignore[arg-type]
        assert type(attack)(**named) == attack
        with pytest.raises(FrozenInstanceError):
            attack.anything = 1  # type: ignore[attr-defined]

    def test_gives_one_guess_a_row(self) -> None:
        """Clusters are int64 numbers from 0, at most as many as there are classes."""
        guess = self.planted()
        assert guess.kind == "clusters"
        assert guess.values.shape == (self.rows,)
        assert guess.values.dtype == np.int64
        assert guess.values.min() >= 0
        assert guess.values.max() < self.classes

    def test_a_seed_fixes_the_guess(self) -> None:
        """All chance comes from the generator: the global one is neither read nor moved."""
        first = self.planted()
        before = np.random.get_state(legacy=False)  # noqa: NPY002
        second = self.guess(self.view())
        np.testing.assert_array_equal(first.values, second.values)
        assert first.notes == second.notes
        np.testing.assert_equal(np.random.get_state(legacy=False), before)  # noqa: NPY002

    def test_two_passive_parties_are_attacked_from_their_own_views(self) -> None:
        """A party's name does not matter, its view does not change."""
        one, other = self.view("alpha"), self.view("beta", seed=8)
        digests = one.digest(), other.digest()
        guesses = self.guess(one), self.guess(other)
        assert (one.digest(), other.digest()) == digests
        assert all(len(guess.values) == self.rows for guess in guesses)
        np.testing.assert_array_equal(guesses[0].values, self.planted().values)

    def test_equals_its_baseline_without_the_view(self) -> None:
        """What an attack gains over its baseline comes from the view."""
        empty = self.view().without_records()
        np.testing.assert_array_equal(self.guess(empty).values, self.guess(empty, self.baseline()).values)

    def test_permuted_labels_score_at_chance(self) -> None:
        """The mean score over 20 permutations of the truth is within 3 standard errors of the stated chance."""
        guess, truth, rng = self.planted(), self.truth(), np.random.default_rng(9)
        values, known = guess.values, guess.known_rows
        scores = [score_clusters(values, rng.permutation(truth), None, **known) for _ in range(20)]
        for name, expected in cluster_chance(values, truth, None, **known).items():
            found = np.array([each[name] for each in scores])
            error = found.std(ddof=1) / np.sqrt(len(found))
            assert abs(found.mean() - expected) <= 3 * error + 1e-12  # the latter: rounding, where all are equal

    def test_refuses_features_of_other_rows(self) -> None:
        """The message names both numbers."""
        own = AttackerData(features=np.zeros((self.rows - 1, 2)), columns=["a", "b"])
        with pytest.raises(InputError, match=rf"{self.rows - 1}.*{self.rows}") as caught:
            self.attack()(self.view(), own, AuxiliaryKnowledge(classes=self.classes), rng=np.random.default_rng(7))
        assert (caught.value.code, caught.value.value) == ("rows", self.rows - 1)
