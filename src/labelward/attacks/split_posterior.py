"""Split posterior: label inference from the positions of the test rows.

Setting: any party that receives the training, validation and test masks (``RowSplit``) and knows the seed of
    the run, as all parties do. Where the sides are drawn *stratified by label from that seed*, the mask is a public
    function of the labels: of each class it is known which of its rows, counted in the shared order, are test rows. The
    mask is an interleaving of these sequences, and a forward and a backward pass over how many rows of each class came
    before gives each row's posterior (:mod:`labelward.kernels.interleaving`). Every further seed is another mask over
    the same rows. Runs of labelward before the sides were drawn without labels leak so; later ones must not, which is
    why this attack is part of every audit.

Auxiliary knowledge: how many rows each class has. The attacker's own columns, where the masks prove informative, by
    expectation maximization: a model of the columns is fitted to the posterior, and its predictions are the prior of
    the next pass.

Exact for two classes, but for counts of a probability below 1e-20. With more, each class is one factor (its own rows
in order, all others free) of a loopy belief propagation over the first 5,000 rows; later rows keep the classes' shares.
The draw is that of ``sklearn.model_selection.train_test_split(stratify=...)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward import rng as generators
from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.soft_labels import scaled_columns, soft_regression
from labelward.errors import DataError, JobError
from labelward.kernels.interleaving import posterior
from labelward.messages.handshake import RowSplit
from labelward.parameters import NonNegativeInt, PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_TRAIN, _VALIDATION, _TEST = range(3)
_SURE = 10.0  # natural logarithm of the odds from which the masks are taken to be drawn from the labels
_SWEEPS, _DAMPING, _STILL = 30, 0.5, 1e-3  # of the belief propagation
_FOLDS, _MOST_ROWS = 4, 20_000  # of the model of the columns
_LEAST = 1e-12
_MOST_PROPAGATED = 5_000


@dataclass(frozen=True, kw_only=True)
class SplitPosterior(Attack):
    """Labels inferred from a stratified training/test split, if drawn with the shared seed (as in version 0.1.0)."""

    kind: ClassVar[str] = "split-posterior"
    primary: ClassVar[str] = "auc"

    rounds: Annotated[
        NonNegativeInt,
        Meta(description="Rounds of refinement by the attacker's own columns; 0: the split only."),
    ] = 5
    class_counts: Annotated[
        tuple[PositiveInt, ...],
        Meta(
            description="Rows of each class in training, validation and test together, in order of the classes. "
            "Default: as an audit tells; required for a stored view."
        ),
    ] = ()

    @property
    def needs_class_counts(self) -> bool:
        """The sequences of the classes follow from their counts."""
        return not self.class_counts

    @property
    def reads_other_runs(self) -> bool:
        """Each seed is another mask over the same rows."""
        return True

    def check_labels(self, rows: int, classes: int) -> None:
        """Refuse counts of other classes, or that do not add up to all rows."""
        counts = self.class_counts
        if not classes:
            raise JobError(f"{self.kind!r} infers classes, but this job is a regression", code="unsupported")
        if counts and len(counts) != classes:
            reason = f"must have one count for each of the {classes} classes, not {len(counts)}"
            raise JobError(reason, code="conflict", field="class_counts", value=len(counts))
        if counts and sum(counts) != rows:
            reason = f"must add up to the {rows} rows, not {sum(counts)}"
            raise JobError(reason, code="conflict", field="class_counts", value=sum(counts))

    def follows_from(self, view: View, own: AttackerData, labels: Integers) -> bool:
        """Return whether the masks are those that a draw stratified by these labels gives."""
        runs = _runs(view, own)
        counts = np.bincount(labels)
        if not runs or len(counts) < 2 or any(len(sides) != len(labels) for sides, _ in runs):
            return False
        return any(_Masks.drawn(runs, counts, how).fit(labels) for how in ("random", "reference"))

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return the likeliest class of every training row, with the posterior as scores.

        If the masks were not drawn from the labels as assumed, or are uninformative, every row gets the class shares.

        Raises:
            JobError: the class counts do not fit the classes or the view's rows.
            DataError: another run has other rows.
        """
        runs = _runs(view, own)
        sides = [each for each, _ in runs]
        counts = self._counts(aux)
        if sides:
            self.check_labels(len(sides[0]), aux.classes)
        if not sides or counts is None:
            return _as_guess(np.tile(_shares(counts, aux.classes), (view.rows, 1)), own, 0.0)
        _check(view, sides)
        best = max((_Masks.of(runs, counts, how) for how in ("random", "reference")), key=lambda masks: masks.odds)
        shares = np.tile(_shares(counts, aux.classes), (len(sides[0]), 1))
        beliefs = best.beliefs(shares) if best.odds > 0 else shares
        if best.odds > _SURE:
            columns = _columns(own, sides[0])
            for number in range(self.rounds):
                prior = _fitted(columns, beliefs, shares[0], rng)
                settled = best.beliefs(prior)
                moved = float(np.mean(settled.argmax(axis=1) != beliefs.argmax(axis=1)))
                beliefs = settled
                if number and moved < _STILL:
                    break
        outside = beliefs[sides[0] == _TEST] if own.outside is not None else None
        return _as_guess(beliefs[sides[0] == _TRAIN], own, best.odds, outside)

    def _counts(self, aux: AuxiliaryKnowledge) -> Integers | None:
        return np.array(self.class_counts, np.int64) if self.class_counts else aux.class_counts


def sides_depend_on_labels(view: View) -> bool:
    """Whether a view is of a version that drew the sides of rows from labels and shared seed, and says which they are.

    For regression these draws were not stratified; a view does not state the kind of labels. Sides that come one after
    the other, as estimators are handed them, were not drawn.
    """
    sides = _sides(view)
    drawn = sides is not None and bool((np.diff(sides) < 0).any())
    return drawn and view.header.version.startswith("0.1.")


class _Masks(NamedTuple):
    """The masks of all runs as one symbol a row, and the symbols that the rows of each class must have.

    Attributes:
        symbols: int32 [rows].
        sequences: for each class int32 [its rows].
        odds: natural logarithm of how much likelier the masks are if drawn from the labels than if drawn without.
    """

    symbols: NDArray[np.int32]
    sequences: list[NDArray[np.int32]]
    odds: float

    @property
    def first(self) -> slice:
        """The rows that are attacked."""
        return slice(None) if len(self.sequences) == 2 else slice(_MOST_PROPAGATED)

    @classmethod
    def of(cls, runs: Sequence[tuple[Integers, int]], counts: Integers, how: str) -> _Masks:
        """Return the masks of runs (sides of all rows, seed) under one way of drawing."""
        masks = cls.drawn(runs, counts, how)
        return masks._replace(odds=masks._odds(counts))

    @classmethod
    def drawn(cls, runs: Sequence[tuple[Integers, int]], counts: Integers, how: str) -> _Masks:
        """As :meth:`of`, without the odds."""
        rows = len(runs[0][0])
        found, drawn = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        for sides, seed in runs:
            tested, watched = (int(np.count_nonzero(sides == side)) for side in (_TEST, _VALIDATION))
            both = np.concatenate([found * 3 + sides, drawn * 3 + _stratified(counts, tested, watched, seed, how)])
            numbered = np.unique(both, return_inverse=True)[1]  # so that many runs do not overflow
            found, drawn = numbered[:rows], numbered[rows:]
        sequences = np.split(drawn.astype(np.int32), np.cumsum(counts)[:-1])
        return cls(found.astype(np.int32), sequences, 0.0)

    def fit(self, labels: Integers) -> bool:
        """Return whether the rows of each class have its symbols, in order."""
        return all(np.array_equal(self.symbols[labels == each], row) for each, row in enumerate(self.sequences))

    def beliefs(self, prior: Floats) -> Floats:
        """Return float64 [rows, classes]: the posterior under a prior of the same shape; the prior, where the masks
        contradict it."""
        return self._exact(prior) if len(self.sequences) == 2 else self._propagated(prior)

    def _exact(self, prior: Floats) -> Floats:
        first, second = self.sequences
        found = posterior(self.symbols, second, first, _within(prior[:, 1]))
        return np.stack([1 - found.inside, found.inside], axis=1) if np.isfinite(found.evidence) else prior

    def _propagated(self, prior: Floats) -> Floats:
        """Loopy belief propagation: ``ratios`` are the messages, log P(symbol | class) of each row and class."""
        symbols, whole = self.symbols[self.first], len(self.symbols) <= _MOST_PROPAGATED
        ratios = np.log(np.maximum(self._frequencies()[:, symbols].T, _LEAST))
        rest, prior = prior[len(symbols) :], prior[: len(symbols)]
        beliefs = prior
        for _ in range(_SWEEPS):
            before = ratios.copy()
            for label, sequence in enumerate(self.sequences):
                weights = prior * np.exp(ratios)
                others = weights.sum(axis=1) - weights[:, label]
                share = _within(prior[:, label] / (prior[:, label] + others))
                found = posterior(symbols, sequence, None, share, ends=whole)
                if not np.isfinite(found.evidence):
                    return np.concatenate([beliefs, rest])
                message = np.clip(_logit(_within(found.inside)) - _logit(share), -_bound(), _bound())
                ratios[:, label] += (1 - _DAMPING) * (message - ratios[:, label])
            beliefs = prior * np.exp(ratios)
            beliefs /= beliefs.sum(axis=1, keepdims=True)
            if np.abs(ratios - before).mean() < _STILL:
                break
        return np.concatenate([beliefs, rest])

    def _odds(self, counts: Integers) -> float:
        """Compare with masks that have as many rows of each symbol, in any order.

        Of several classes the logarithms of the factors are added up: each class's rows in order, all others
        independent. A class whose rows cannot be in the masks contradicts them altogether.
        """
        rows, shares = len(self.symbols), counts / counts.sum()
        used = np.bincount(self.symbols)
        if len(counts) == 2:
            found = posterior(self.symbols, self.sequences[1], self.sequences[0], np.full(rows, shares[1]))
            null = sum(math.lgamma(each + 1) for each in used) - math.lgamma(rows + 1)
            return found.evidence - _log_binomial(int(counts[1]), rows) - null
        symbols, whole, odds = self.symbols[self.first], rows <= _MOST_PROPAGATED, 0.0
        frequencies = self._frequencies()
        null = float(np.log(used / rows, where=used > 0, out=np.zeros(len(used)))[symbols].sum())
        for label, sequence in enumerate(self.sequences):
            others = (shares @ frequencies - shares[label] * frequencies[label])[symbols]
            total = shares[label] + others
            found = posterior(symbols, sequence, None, _within(shares[label] / total), ends=whole)
            exactly = _log_binomial(int(counts[label]), rows) if whole else 0.0
            odds += found.evidence + float(np.log(total).sum()) - exactly - null
            if not np.isfinite(odds):
                return -math.inf
        return odds

    def _frequencies(self) -> Floats:
        """Return float64 [classes, symbols]: frequency of each symbol among a class's rows."""
        width = 1 + max(int(self.symbols.max()), *(int(each.max()) for each in self.sequences))
        return np.stack([np.bincount(each, minlength=width) / len(each) for each in self.sequences])


def _stratified(counts: Integers, tested: int, watched: int, seed: int, how: str) -> Integers:
    """Return int64 [rows]: the sides of rows sorted by class, as a draw stratified by class deals them out.

    How the rows of the classes are interleaved plays no part in what befalls the i-th row of a class.
    """
    from sklearn.model_selection import train_test_split

    labels = np.repeat(np.arange(len(counts)), counts)
    sides, train = np.zeros(len(labels), np.int64), np.arange(len(labels))
    states = {_TEST: seed if how == "reference" else _state(seed, "rows"), _VALIDATION: _state(seed, "validation")}
    for side, size in ((_TEST, tested), (_VALIDATION, watched)):
        if size:
            try:
                train, taken = train_test_split(
                    train, test_size=size, random_state=states[side], stratify=labels[train]
                )
            except ValueError:  # fewer rows on a side than classes: nobody can have drawn so
                return np.full(len(labels), -1)
            sides[taken] = side
    return sides


def _state(seed: int, purpose: str) -> int:
    return int(generators.learning(seed, "", 0, purpose).integers(2**31))


def _runs(view: View, own: AttackerData) -> list[tuple[Integers, int]]:
    """Return sides of all rows and seed of each run whose view has the masks."""
    masks = [(_sides(each), _seed(each)) for each in (view, *own.other_runs)]
    return [(sides, seed) for sides, seed in masks if sides is not None]


def _sides(view: View) -> Integers | None:
    """Return int64 [all rows], the side of each; None if the view does not contain it."""
    begun = next(view.received(RowSplit), None)
    if begun is None:
        return None
    message, rows = begun.message, begun.message.test.total
    return np.where(message.test.unpack(rows), _TEST, np.where(message.validation.unpack(rows), _VALIDATION, _TRAIN))


def _seed(view: View) -> int:
    return int(view.parameter("run.seed", 0))


def _check(view: View, sides: Sequence[Integers]) -> None:
    for each in sides[1:]:
        if len(each) != len(sides[0]):
            raise DataError(
                f"the views of {view.party!r} are of runs with {len(sides[0])} and {len(each)} rows", code="rows"
            )


def _shares(counts: Integers | None, classes: int) -> Floats:
    """Return float64 [classes]: frequency of each class, as far as known."""
    if counts is None:
        return np.full(classes, 1 / classes)
    shares = np.zeros(max(classes, len(counts)))
    shares[: len(counts)] = counts / counts.sum()
    return shares


def _as_guess(beliefs: Floats, own: AttackerData, odds: float, outside: Floats | None = None) -> LabelGuess:
    beyond = None
    if own.outside is not None:
        rest = np.tile(beliefs.mean(axis=0), (len(own.outside), 1)) if outside is None else outside
        beyond = LabelGuess(values=rest.argmax(axis=1), kind="labels", scores=rest)
    return LabelGuess(
        values=beliefs.argmax(axis=1),
        kind="labels",
        scores=beliefs,
        outside=beyond,
        notes={"log odds that the sides follow from the labels": max(odds, -1e9)},
    )


def _columns(own: AttackerData, sides: Integers) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the party's scaled columns of all rows, and a mask of the rows that have any."""
    available = sides == _TRAIN
    features = own.features
    if own.outside is not None and len(own.outside) == np.count_nonzero(sides == _TEST):
        features = np.concatenate([own.features, own.outside])
    scaled = scaled_columns(own.numbers(features))
    columns = np.zeros((len(sides), scaled.shape[1]))
    columns[available] = scaled[: len(own.features)]
    if len(features) > len(own.features):
        columns[sides == _TEST] = scaled[len(own.features) :]
        available = available | (sides == _TEST)
    return columns, available


def _fitted(
    columns: tuple[Floats, NDArray[np.bool_]], beliefs: Floats, shares: Floats, rng: np.random.Generator
) -> Floats:
    """Return float64 [rows, classes]: class probabilities by models of the columns, fitted to other rows' beliefs.

    Logistic regression on beliefs as weights; rows of which the party has no column keep the classes' shares.
    """
    values, available = columns
    known = np.flatnonzero(available)
    prior, classes = np.tile(shares, (len(beliefs), 1)), beliefs.shape[1]
    fold = rng.permutation(len(known)) % _FOLDS
    for number in range(_FOLDS):
        train, held_out = known[fold != number][: _MOST_ROWS // classes], known[fold == number]
        prior[held_out] = soft_regression(values[train], beliefs[train], values[held_out])
    return np.clip(prior, 1e-6, None)


def _within(share: Floats) -> Floats:
    return np.clip(share, _LEAST, 1 - _LEAST)


def _logit(share: Floats) -> Floats:
    return np.log(share) - np.log1p(-share)


def _bound() -> float:
    return -math.log(_LEAST)


def _log_binomial(count: int, rows: int) -> float:
    """Return the logarithm of the probability of exactly so many of the rows, each with the share that is expected."""
    from scipy.stats import binom

    return float(binom.logpmf(count, rows, count / rows))
