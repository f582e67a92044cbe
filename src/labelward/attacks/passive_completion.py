"""Model completion attacks: labels inferred from a bottom model, completed by a head trained on a few known labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.after_epoch import AfterEpoch
from labelward.attacks.base import UPPER_BOUND, AttackerData, AuxiliaryKnowledge, Baseline, LabelGuess
from labelward.attacks.clustering import validate_classes, validate_rows
from labelward.attacks.gradient_sign import GradientSign
from labelward.attacks.known_label_models import Known, checked_known
from labelward.attacks.nets.view_embeddings import own_embeddings
from labelward.attacks.nets.view_gradients import has_gradients, require_passive_view
from labelward.errors import DataError
from labelward.metrics.registry import BALANCED
from labelward.parameters import NonNegativeFloat, PositiveFloat, PositiveInt
from labelward.party.view import View

if TYPE_CHECKING:
    from labelward.attacks.nets._torch import nn
    from labelward.attacks.nets.completion import CompletedModel

Source = Literal["told", "direct"]
Mix = Literal["auto", "inputs", "hidden", "embeddings"]


@dataclass(frozen=True, kw_only=True)
class Completion(AfterEpoch):
    """The common part of passive and active completion."""

    primary: ClassVar[str] = BALANCED
    models: ClassVar[tuple[str, ...]] = ("splitnn",)

    auxiliary: Annotated[
        PositiveInt,
        Meta(description="Number of training rows whose labels the attacker knows, equally many of each class."),
    ] = 40
    fine_tune: Annotated[
        bool,
        Meta(
            description="Train the bottom model together with the inference head, as in the paper; otherwise the head "
            "only, as in the published code."
        ),
    ] = False
    labels: Annotated[
        Source,
        Meta(
            description="Source of the known labels: 'told' (auxiliary knowledge) or 'direct' (inferred by the direct "
            "attack for that many rows)."
        ),
    ] = "told"
    steps: Annotated[
        PositiveInt,
        Meta(
            description="Number of optimizer steps; the published code takes 1024 in each of 5 to 25 epochs, on small "
            "tables one epoch suffices."
        ),
    ] = 1024
    batch_size: Annotated[PositiveInt, Meta(description="Labeled rows per step, and unlabeled rows per step.")] = 16
    learning_rate: Annotated[PositiveFloat, Meta(description="Learning rate of Adam.")] = 2e-3
    unlabeled_weight: Annotated[
        NonNegativeFloat | None,
        Meta(
            description="Final weight of the loss on unlabeled rows; it rises linearly from 0 over all steps. 50 is "
            "the published one. Left out: the one of 50, 5 and 0.5 that agrees best with known rows that were held out."
        ),
    ] = None
    temperature: Annotated[PositiveFloat, Meta(description="Temperature for sharpening guessed labels.")] = 0.8
    alpha: Annotated[PositiveFloat, Meta(description="Parameter of the beta distribution of MixUp coefficients.")] = (
        0.75
    )
    average: Annotated[
        float, Meta(ge=0, lt=1, description="Decay of the exponential moving average of the weights.")
    ] = 0.999
    shrink: Annotated[float, Meta(ge=0, lt=1, description="Weight decay: fraction subtracted in each step.")] = 4e-5
    mix: Annotated[
        Mix,
        Meta(
            description="Level of MixUp: 'inputs', 'hidden' (hidden states of 'bert-small' and 'bert-base', TMix), "
            "'embeddings' or 'auto' (inputs, but embeddings for token ids and for categorical columns that the bottom "
            "model's first layer does not encode)."
        ),
    ] = "auto"
    loss: Annotated[
        Literal["mixmatch", "mixtext"],
        Meta(
            description="Losses: 'mixmatch', or 'mixtext', those of MixText for texts: divergence of unlabeled rows, "
            "and a bound of the entropy of their guesses; MixText has unlabeled_weight = 1."
        ),
    ] = "mixmatch"
    dropped: Annotated[
        float,
        Meta(ge=0, lt=1, description="Augmentation of unlabeled texts: share of tokens that each step leaves out."),
    ] = 0.0

    @property
    def labels_needed(self) -> int:
        """Number of training rows whose labels the attack requires."""
        return self.auxiliary if self.labels == "told" else 0

    @property
    def reads_arrays(self) -> bool:
        """Whether labels are read from gradients."""
        return self.labels == "direct"

    def check_model(self, model: Mapping[str, Any]) -> None:
        """See :meth:`Attack.check_model`; labels can be read from gradients if the direct attack applies."""
        super().check_model(model)
        if self.epoch is not None and self.fine_tune:
            raise self.error("epoch", "reads embeddings, and no model that could be fine-tuned; remove fine_tune")
        if self.labels == "direct":
            GradientSign().check_model(model)

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a class for every training row, with known labels unchanged, and for the rows outside.

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
        if self.epoch is not None:  # rows outside of the training were not observed
            own = replace(own, outside=None)
        known_state = None if self.epoch is None else own_embeddings(view, self.epoch)
        if known_state is not None:
            own, bottom = _of_embeddings(own, known_state)
        if bottom is None:
            raise DataError(
                f"{self.kind} completes the bottom model of party {view.party!r}, and none is at hand",
                code="missing",
                value=view.party,
            )
        known = self._known(view, own, aux, rng)
        made, notes = self._completed(bottom, own, known, aux.classes, rng)
        scores = made.probabilities(own.features)
        scores[aux.known_rows] = np.eye(aux.classes)[aux.known_labels]
        guess = LabelGuess(values=scores.argmax(axis=1), kind="labels", scores=scores, notes=notes)
        if own.outside is None or not len(own.outside):
            return guess
        outside = made.probabilities(own.outside)
        return replace(guess, outside=LabelGuess(values=outside.argmax(axis=1), kind="labels", scores=outside))

    def _completed(
        self, bottom: Callable[[], Any], own: AttackerData, known: Known, classes: int, rng: np.random.Generator
    ) -> tuple[CompletedModel, dict[str, float]]:
        """Return the completed model, and notes; without a given weight the best one whose guesses are not constant."""
        from labelward.attacks.nets.weight_choice import guess_entropy, ranked_weights, try_weights

        def fit(attack: Completion, known: Known, weight: float) -> CompletedModel:
            chosen = replace(attack, unlabeled_weight=weight)
            return chosen.learned(bottom(), own, own.features, known, classes, rng=rng)

        if self.unlabeled_weight is not None:
            made = fit(self, known, self.unlabeled_weight)
            return made, made.notes
        half = replace(self, steps=-(-self.steps // 2))
        trials = try_weights(
            lambda told, weight: fit(half, told, weight).probabilities(own.features), known, classes, rng=rng
        )
        for weight in ranked_weights(trials):
            made = fit(self, known, weight)
            guess = np.delete(made.probabilities(own.features).argmax(axis=1), known[0])
            if guess_entropy(guess, classes) or not len(guess):
                break
        agreements = {each.weight: each.agreement for each in trials}
        notes = {**made.notes, "unlabeled_weight": weight}
        if np.isfinite(agreement := agreements.get(weight, np.nan)):
            notes["held_out_agreement"] = agreement
        return made, notes

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
        """Complete a bottom model with these parameters, given rows and known labels."""
        from labelward.attacks.nets.completion import fit_completion, mixup_level
        from labelward.attacks.nets.mixmatch import MixMatchConfig

        recipe = MixMatchConfig(**{name: getattr(self, name) for name in _RECIPE})
        mix = mixup_level(bottom, own) if self.mix == "auto" else self.mix
        return fit_completion(bottom, rows, known, classes, recipe, fine_tune=self.fine_tune, mix=mix, rng=rng)

    def baselines(
        self, own: AttackerData, aux: AuxiliaryKnowledge, *, truth: NDArray[np.int64] | None
    ) -> dict[str, Baseline]:
        """Return the upper bound ``"all labels"``, for an attacker with known labels and a bottom model."""
        if truth is None or own.untrained is None or not len(aux.known_rows):
            return {}

        def guess(rng: np.random.Generator) -> LabelGuess:
            from labelward.attacks.nets.upper_bound import oracle_upper_bound

            return oracle_upper_bound(self, own, truth, classes=aux.classes, rng=rng)

        return {UPPER_BOUND: Baseline(guess=guess, depends_on=(self.learning_rate, self.shrink, self.alpha, self.mix))}

    def _known(self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, rng: np.random.Generator) -> Known:
        """Return the rows and labels to train on."""
        if self.labels == "direct":
            read = GradientSign()(view, own, aux, rng=rng)
            order = rng.permutation(view.rows)
            return _balanced(order, read.values[order], self.auxiliary)
        return checked_known(view, aux, self.kind)


@dataclass(frozen=True, kw_only=True)
class PassiveCompletion(Completion):
    """Semi-supervised training of an inference head on the attacker's bottom model, with a few known labels.

    MixMatch without augmentation: unlabeled rows take the model's own sharpened guess, all rows are mixed in pairs, and
    the weights' moving average counts in the end.

    Setting: a curious passive party of a split network, with or without a top model, that follows the protocol. It uses
        its bottom model as trained, and its own columns. Auxiliary knowledge: the labels of ``auxiliary`` training
        rows, at least one of each class. On a view without gradients the bottom model is the untrained one: the
        paper's direct semi-supervised learning. It also infers rows outside the training set.

    Reference: Section 3.3, Appendix B and Table 7a of the label inference paper. The head and the rest of the defaults
    are the published code's.

    Differences from the paper: the weight of unlabeled rows is chosen (:mod:`labelward.attacks.nets.weight_choice`);
    ``unlabeled_weight = 50`` is the published one. Of texts embeddings are mixed unless ``mix = "hidden"`` and ``loss =
    "mixtext"`` ask for MixText (Chen et al. 2020), which mixes at one layer here and draws among three; its
    augmentation, by translation there and back, needs models that are not at hand: ``dropped`` leaves out tokens. From
    the published code: shares are drawn for each pair; the last step counts, not the best by the true labels; one run
    of steps instead of epochs.
    """

    kind: ClassVar[str] = "passive-completion"


def _of_embeddings(own: AttackerData, values: NDArray[np.float64]) -> tuple[AttackerData, Callable[[], Any]]:
    """Return what an attacker knows whose columns are its embeddings, and the bottom model that passes them on."""
    from labelward.attacks.nets.completion import identity_model

    narrowed = replace(own, features=values, columns=[], categories={})
    return narrowed, lambda: identity_model(values.shape[1])


_RECIPE = (
    "steps",
    "batch_size",
    "learning_rate",
    "unlabeled_weight",
    "temperature",
    "alpha",
    "average",
    "shrink",
    "loss",
    "dropped",
)


def _balanced(rows: NDArray[np.int64], labels: NDArray[np.int64], count: int) -> Known:
    """Return the first ``count`` rows, taken from the labels in turn."""
    rank = np.empty(len(rows), np.int64)
    for label in np.unique(labels):
        chosen = labels == label
        rank[chosen] = np.arange(chosen.sum())
    taken = np.argsort(rank, kind="stable")[:count]
    return rows[taken], labels[taken]
