"""What every attack that guesses labels must do, as tests that others can inherit; and views with known gradients.

Usage: subclass :class:`LabelAttackContract` in a test module and give it ``attack``. The tests need torch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.errors import DataError
from labelward.leakage.known_rows import sample_known_rows
from labelward.messages.base import Array, Released
from labelward.messages.splitnn import BatchGradients, EpochEnd, EpochOrder, EpochStart
from labelward.metrics.leakage import label_chance, score_labels
from labelward.party.view import View
from labelward.testing.attacks import AttackContract, view_of

Labels = NDArray[np.int64]
Floats = NDArray[np.float64]


def gradients_of(truth: Labels, classes: int, seed: int, *, epochs: int = 2) -> Floats:
    """Return float64 [epochs, rows, classes]: those of cross-entropy with respect to logits that nobody learned."""
    logits = np.random.default_rng(seed).normal(size=(epochs, len(truth), classes))
    powers = np.exp(logits)
    return np.asarray(powers / powers.sum(axis=2, keepdims=True) - np.eye(classes)[truth])


def gradient_view(
    gradients: Floats, *, top: bool = False, party: str = "passive", batch: int = 32, order: NDArray[Any] | None = None
) -> View:
    """Return a passive party's view of a split network that returned these gradients.

    Args:
        gradients: float64 [epochs, rows, outputs]; they arrive divided by the rows of their batch, as float32.
        top: whether the run had a top model.
        party: whose view.
        batch: rows of a batch.
        order: [epochs, rows], the rows in the order in which each epoch takes them; None: as they stand.
    """
    rows = gradients.shape[1]
    records: list[Any] = []
    for epoch, values in enumerate(gradients):
        taken = np.arange(rows) if order is None else order[epoch]
        records.append((EpochStart(), (epoch,)))
        records.append((EpochOrder(epoch, Array.pack(taken.astype(np.int32))), (epoch,)))
        for number, at in enumerate(range(0, rows, batch)):
            piece = values[taken[at : at + batch]]
            array = Array.pack((piece / len(piece)).astype(np.float32))
            records.append((BatchGradients(Released.received(array)), (epoch, number)))
        records.append((EpochEnd(True, epoch + 1 == len(gradients)), (epoch,)))
    view = view_of(records, rows, model="splitnn", party=party)
    job = view.header.job | {"model.top": "true" if top else "false"}
    return View(msgspec.structs.replace(view.header, job=job), view._entries)


class LabelAttackContract(AttackContract):
    """Tests of one attack that guesses labels; every such attack passes them.

    Attributes:
        reaches: the accuracy that it must reach on the planted view.
        exact: whether rows in another order give the same guesses; else the accuracy may differ by .1.
    """

    reaches = 0.9
    exact = False

    def own(self) -> AttackerData:
        """Return columns of which the first tells the labels, which the trained bottom model has learned to use."""
        own = super().own()
        features = own.features.copy()
        features[:, 0] = 3.0 * self.truth() + np.random.default_rng(3).normal(scale=0.3, size=self.rows)
        features.setflags(write=False)
        outside = features[: self.rows // 4]
        return replace(
            own, features=features, bottom=_bottoms(learned=True), untrained=_bottoms(learned=False), outside=outside
        )

    def view(self, party: str = "passive", seed: int = 6) -> View:
        """Return a view of two epochs whose gradients are those of the labels."""
        return gradient_view(gradients_of(self.truth(), self.classes, seed), party=party)

    def aux(self, attack: Attack) -> AuxiliaryKnowledge:
        """Return the labels that the attack needs to be told."""
        rows = sample_known_rows(self.truth(), attack.labels_needed, seed=1)
        return AuxiliaryKnowledge(classes=self.classes, known_rows=rows, known_labels=self.truth()[rows])

    def guess(
        self,
        view: View,
        attack: Attack | None = None,
        own: AttackerData | None = None,
        aux: AuxiliaryKnowledge | None = None,
    ) -> LabelGuess:
        """Return the guess with a fixed seed."""
        attack = attack or self.attack()
        rng = np.random.default_rng(7)
        guess: LabelGuess = attack(view, own or self.own(), aux or self.aux(attack), rng=rng)
        return guess

    def test_gives_one_guess_a_row(self) -> None:
        """Class numbers, int64, with finite scores if any; the rows outside have theirs; known rows are known."""
        attack = self.attack()
        guess, aux = self.planted(), self.aux(attack)
        for found, rows in ((guess, self.rows), (guess.outside, self.rows // 4)):
            if found is None:
                continue
            assert found.kind == "labels"
            assert found.values.shape == (rows,)
            assert found.values.dtype == np.int64
            assert found.values.min() >= 0
            assert found.values.max() < self.classes
            if found.scores is not None:
                assert found.scores.shape == (rows, self.classes)
                assert found.scores.dtype == np.float64
                assert np.isfinite(found.scores).all()
        np.testing.assert_array_equal(guess.values[aux.known_rows], aux.known_labels)

    def test_finds_what_was_planted(self) -> None:
        """Rows whose labels it was told do not count."""
        assert self._accuracy(self.planted(), self.aux(self.attack()), self.truth()) >= self.reaches

    def test_equals_its_baseline_without_the_view(self) -> None:
        """Before anything arrives there is no trained bottom model, and a guess all the same."""
        empty = self.view().without_records()
        blind = self.guess(empty)
        np.testing.assert_array_equal(blind.values, self.guess(empty, own=replace(self.own(), bottom=None)).values)

    def test_refuses_the_active_party_s_view(self) -> None:
        """It has the labels and receives no gradient: a guess from it would be no attack, whatever it scored."""
        view = self.view("bank")
        active = View(msgspec.structs.replace(view.header, role="active"))
        with pytest.raises(DataError) as caught:
            self.guess(active)
        assert (caught.value.code, caught.value.value) == ("unsupported", "bank")

    def test_permuted_labels_score_at_chance(self) -> None:
        """The mean score over 20 permutations of the truth is within 3 standard errors of the stated chance."""
        guess, rng = self.planted(), np.random.default_rng(9)
        left = np.setdiff1d(np.arange(self.rows), self.aux(self.attack()).known_rows)
        values, truth = guess.values[left], self.truth()[left]
        ranked = None if guess.scores is None else guess.scores[left]
        scores = [score_labels(values, rng.permutation(truth), ranked, classes=self.classes) for _ in range(20)]
        for name, expected in label_chance(values, truth, ranked, classes=self.classes).items():
            found = np.array([each[name] for each in scores])
            error = found.std(ddof=1) / np.sqrt(len(found))
            assert abs(found.mean() - expected) <= 3 * error + 1e-12  # the latter: rounding, where all are equal

    def test_the_order_of_rows_says_nothing(self) -> None:
        """Rows in another order give the same guesses, or such that are as good."""
        order = np.random.default_rng(2).permutation(self.rows)
        own, aux, truth = self.own(), self.aux(self.attack()), self.truth()
        place = np.argsort(order)
        moved = gradient_view(gradients_of(truth, self.classes, 6)[:, order])
        told = replace(aux, known_rows=place[aux.known_rows])
        first = self.planted()
        second = self.guess(moved, own=replace(own, features=own.features[order]), aux=told)
        if self.exact:
            np.testing.assert_array_equal(second.values, first.values[order])
        difference = self._accuracy(second, told, truth[order]) - self._accuracy(first, aux, truth)
        assert abs(difference) <= 0.1

    def test_torch_draws_nothing_of_the_process(self) -> None:
        """Its generator is neither read nor moved."""
        import torch

        first = self.planted()
        torch.manual_seed(int(torch.randint(2**31, ())))  # whatever it was before, it is another state now
        before = torch.get_rng_state()
        np.testing.assert_array_equal(self.guess(self.view()).values, first.values)
        assert torch.equal(torch.get_rng_state(), before)

    def test_refuses_known_rows_that_lack_a_class(self) -> None:
        """An attack that is told nothing has nothing to refuse."""
        attack = self.attack()
        if not attack.labels_needed:
            return
        rows = np.flatnonzero(self.truth() != self.classes - 1)[: attack.labels_needed]
        aux = AuxiliaryKnowledge(classes=self.classes, known_rows=rows, known_labels=self.truth()[rows])
        with pytest.raises(DataError) as caught:
            self.guess(self.view(), attack, aux=aux)
        assert (caught.value.code, caught.value.value) == ("labels", self.classes - 1)

    def _accuracy(self, guess: LabelGuess, aux: AuxiliaryKnowledge, truth: Labels) -> float:
        left = np.setdiff1d(np.arange(self.rows), aux.known_rows)
        return float(np.mean(guess.values[left] == truth[left]))


def _bottoms(*, learned: bool) -> Any:
    """Return what makes a bottom model of 6 numbers a row; a learned one shows the first column, the other none."""

    def make() -> Any:
        import torch

        class Bottom(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                steps = torch.linspace(-1, 1, 6)
                self.weight = torch.nn.Parameter(steps if learned else torch.zeros(6))
                self.bias = torch.nn.Parameter(1.5 * steps.flip(0))

            def forward(self, x: Any) -> Any:
                return x[:, :1].nan_to_num() * self.weight + self.bias

        return Bottom().eval()

    return make
