"""Model completion attacks: what a bottom model has learned of the labels, brought out with a few known ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, Baseline, LabelGuess
from labelward.attacks.clustering import validate_classes, validate_rows
from labelward.attacks.gradient_sign import GradientSign
from labelward.attacks.nets.view_gradients import has_gradients, require_passive_view
from labelward.errors import DataError, JobError, number_code, unknown_name
from labelward.party.view import View

if TYPE_CHECKING:
    from labelward.attacks.nets._torch import nn
    from labelward.attacks.nets.completion import CompletedModel

__all__ = ["Completion", "Mix", "PassiveCompletion", "Source"]

Source = Literal["told", "direct"]
Mix = Literal["auto", "inputs", "embeddings"]
Known = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Completion(Attack):
    """What passive and active completion share; parameters as :class:`PassiveCompletion` has them."""

    primary: ClassVar[str] = "accuracy"
    models: ClassVar[tuple[str, ...]] = ("splitnn",)

    auxiliary: int = 40
    fine_tune: bool = False
    labels: Source = "told"
    steps: int = 1024
    batch_size: int = 16
    learning_rate: float = 2e-3
    unlabeled_weight: float = 50.0
    temperature: float = 0.8
    alpha: float = 0.75
    average: float = 0.999
    shrink: float = 4e-5
    mix: Mix = "auto"

    def __post_init__(self) -> None:
        for name in ("auxiliary", "steps", "batch_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise JobError(
                    f"{name} must be a whole number of at least 1 but is {value!r}",
                    code=number_code(value, whole=True),
                    value=value,
                )
        if not isinstance(self.fine_tune, bool):
            raise JobError(
                f"fine_tune must be true or false but is {self.fine_tune!r}", code="type", value=self.fine_tune
            )
        for name, known in (("labels", get_args(Source)), ("mix", get_args(Mix))):
            if getattr(self, name) not in known:
                raise JobError(
                    unknown_name(name, str(getattr(self, name)), known), code="choice", value=getattr(self, name)
                )
        for name, below, positive in _NUMBERS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise JobError(f"{name} must be a number but is {value!r}", code=number_code(value), value=value)
            if value < 0 or (positive and value == 0) or value >= below:
                told = "" if below == math.inf else f" and below {below:g}"
                raise JobError(
                    f"{name} must be {'above' if positive else 'at least'} 0{told} but is {value!r}",
                    code="range",
                    value=value,
                )

    @property
    def labels_needed(self) -> int:
        """How many training rows' labels the attacker must be told."""
        return self.auxiliary if self.labels == "told" else 0

    @property
    def reads_arrays(self) -> bool:
        """Where labels are read from gradients."""
        return self.labels == "direct"

    def check_model(self, model: Mapping[str, Any]) -> None:
        """See :meth:`Attack.check_model`; labels can be read from gradients where the direct attack can."""
        super().check_model(model)
        if self.labels == "direct":
            GradientSign().check_model(model)

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a class for every training row, known ones as they are, and for the rows outside.

        On a view without gradients the bottom model that nothing has trained is completed.

        Raises:
            DataError: the view is the active party's; ``own`` does not hold its rows, or no bottom model that takes
                them; a class has no known row; known rows are not the view's.
            DependencyError: torch is not installed.
            FileFormatError: records of the view contradict each other.
            InputError: fewer classes than one, or more than rows.
        """
        require_passive_view(view, self.kind)
        validate_rows(view, own)
        validate_classes(view, aux)
        bottom = own.bottom if has_gradients(view) else own.untrained
        if bottom is None:
            raise DataError(
                f"{self.kind} completes the bottom model of party {view.party!r}, and none is at hand",
                code="missing",
                value=view.party,
            )
        known = self._known(view, own, aux, rng)
        made = self.learned(bottom(), own, own.features, known, aux.classes, rng=rng)
        scores = made.probabilities(own.features)
        scores[aux.known_rows] = np.eye(aux.classes)[aux.known_labels]
        guess = LabelGuess(values=scores.argmax(axis=1), kind="labels", scores=scores, notes={"loss": made.loss})
        if own.outside is None or not len(own.outside):
            return guess
        outside = made.probabilities(own.outside)
        return replace(guess, outside=LabelGuess(values=outside.argmax(axis=1), kind="labels", scores=outside))

    def learned(
        self,
        bottom: nn.Module,
        own: AttackerData,
        rows: NDArray[Any],
        known: Known,
        classes: int,
        *,
        rng: np.random.Generator,
    ) -> CompletedModel:
        """Return the complete model that these parameters make of a bottom model, some rows and known labels."""
        from labelward.attacks.nets.completion import fit_completion, mixup_level
        from labelward.attacks.nets.mixmatch import MixMatchConfig

        recipe = MixMatchConfig(**{name: getattr(self, name) for name in _RECIPE})
        mix = mixup_level(bottom, own) if self.mix == "auto" else self.mix
        return fit_completion(bottom, rows, known, classes, recipe, fine_tune=self.fine_tune, mix=mix, rng=rng)

    def baselines(
        self, own: AttackerData, aux: AuxiliaryKnowledge, *, truth: NDArray[np.int64] | None
    ) -> dict[str, Baseline]:
        """Return the upper bound ``"all labels"``, for an attacker that is told labels and has a bottom model."""
        if truth is None or own.untrained is None or not len(aux.known_rows):
            return {}

        def guess(rng: np.random.Generator) -> LabelGuess:
            from labelward.attacks.nets.upper_bound import oracle_upper_bound

            return oracle_upper_bound(self, own, truth, classes=aux.classes, rng=rng)

        return {"all labels": Baseline(guess=guess, depends_on=(self.learning_rate, self.shrink, self.alpha, self.mix))}

    def _known(self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, rng: np.random.Generator) -> Known:
        """Return the rows and labels to learn from."""
        rows, labels = aux.known_rows, aux.known_labels
        if self.labels == "direct":
            read = GradientSign()(view, own, aux, rng=rng)
            order = rng.permutation(view.rows)
            return _spread(order, read.values[order], self.auxiliary)
        if len(rows) != len(labels) or len(np.unique(rows)) != len(rows) or not _within(rows, view.rows):
            raise DataError(
                f"the {len(rows)} known rows are not different rows of the {view.rows} of the view",
                code="rows",
                value=len(rows),
            )
        if not _within(labels, aux.classes):
            raise DataError(
                f"the labels of known rows must be class numbers below {aux.classes}", code="labels", value=aux.classes
            )
        absent = np.setdiff1d(np.arange(aux.classes), labels)
        if len(absent):
            raise DataError(
                f"none of the {len(rows)} known rows has class {absent[0]}; {self.kind} needs one of each of the "
                f"{aux.classes} classes",
                code="labels",
                value=int(absent[0]),
            )
        return rows, labels


@dataclass(frozen=True, kw_only=True)
class PassiveCompletion(Completion):
    """The attacker puts a head on its trained bottom model and learns it from a few known labels and all its rows.

    MixMatch without augmentation: unlabeled rows take the model's own sharpened guess, all rows are mixed in pairs, and
    the weights' moving average counts in the end.

    Setting: a curious passive party of a split network, with or without a top model, that follows the protocol. It uses
        its bottom model as trained, and its own columns. Auxiliary knowledge: the labels of ``auxiliary`` training
        rows, at least one of each class. On a view without gradients the bottom model is the untrained one: the
        paper's direct semi-supervised learning. It tells rows outside the training set, too.

    Reference: Section 3.3, Appendix B and Table 7a of the label inference paper. The head and the rest of the defaults
    are the published code's.

    Differences from the paper: of texts embeddings are mixed, as MixText mixes hidden states, but without its
    augmentation. From the published code: shares are drawn for each pair; the last step counts, not the best by the
    true labels; one run of steps instead of epochs.

    Attributes:
        auxiliary: how many training rows' labels the attacker knows, equally many of each class.
        fine_tune: whether the bottom model learns with the head, as the paper says; without, the head alone, as the
            published code does.
        labels: where the known labels come from: ``"told"``, or ``"direct"``: nothing is told, and they are what the
            direct attack reads of ``auxiliary`` rows.
        steps: of learning (the published code takes 1024 in each of 5 to 25 epochs; on small tables one does).
        batch_size: labeled rows in a step, and unlabeled ones.
        learning_rate: of Adam.
        unlabeled_weight: of the unlabeled rows' loss, reached along all steps from 0 on.
        temperature: of sharpened guesses.
        alpha: of the beta distribution of the shares in which rows are mixed.
        average: share of the moving average that a step leaves.
        shrink: share by which weights shrink in a step.
        mix: ``"inputs"``; ``"embeddings"``: what the bottom model gives; ``"auto"``: inputs, but embeddings of token
            numbers, and of categorical columns that the bottom model does not encode in its first part.
    """

    kind: ClassVar[str] = "passive-completion"


_RECIPE = (
    "steps",
    "batch_size",
    "learning_rate",
    "unlabeled_weight",
    "temperature",
    "alpha",
    "average",
    "shrink",
)
_NUMBERS: tuple[tuple[str, float, bool], ...] = (
    ("learning_rate", math.inf, True),
    ("unlabeled_weight", math.inf, False),
    ("temperature", math.inf, True),
    ("alpha", math.inf, True),
    ("average", 1.0, False),
    ("shrink", 1.0, False),
)


def _within(values: NDArray[np.int64], bound: int) -> bool:
    return not len(values) or bool(values.min() >= 0 and values.max() < bound)


def _spread(rows: NDArray[np.int64], labels: NDArray[np.int64], count: int) -> Known:
    """Return the first so many rows of each label in turn."""
    place = np.empty(len(rows), np.int64)
    for label in np.unique(labels):
        chosen = labels == label
        place[chosen] = np.arange(chosen.sum())
    taken = np.argsort(place, kind="stable")[:count]
    return rows[taken], labels[taken]
