"""Direct attack: without a top model, the sign of a returned gradient reveals the row's class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import validate_classes, validate_rows
from labelward.attacks.nets.view_gradients import gradients_by_row, require_passive_view
from labelward.errors import DataError, JobError
from labelward.parameters import PositiveInt
from labelward.party.view import View

Rule = Literal["argmin", "first-negative"]


@dataclass(frozen=True, kw_only=True)
class GradientSign(Attack):
    """Without a top model, the sign of the gradient of a row's logits reveals its class.

    Under cross-entropy the gradient of a row's loss with respect to the logits is the class probabilities, less 1 at
    the row's own class: the only number below 0. Weights of rows and classes scale a gradient and leave its signs. With
    one output, the logit of class 1, it is below 0 for class 1; so it is in the first epoch where a policy has the
    labels replaced by what its own columns leave over, whose sign is the label's (``lpsc``).

    Setting: a curious passive party of a split network without a top model, whose embeddings are added up to the
        logits. No auxiliary knowledge. It reads training rows only, and none of its columns. A row without a
        gradient, or one whose gradient names no class (all zeros; no number below 0 for ``"first-negative"``) is drawn
        at random; notes count these rows.

    Reference: Section 3.5 of the label inference paper.

    Differences from the paper: ``"argmin"``, which is exact where a probability rounds to 1 and no number is below 0;
    rows that the gradient leaves open are drawn, where the published code counts them as wrong.
    """

    kind: ClassVar[str] = "direct"
    primary: ClassVar[str] = "accuracy"
    models: ClassVar[tuple[str, ...]] = ("splitnn",)

    rule: Annotated[
        Rule,
        Meta(
            description="Inferred class: that of the smallest gradient ('argmin'), or of the first negative gradient, "
            "as published ('first-negative')."
        ),
    ] = "argmin"
    epochs: Annotated[
        PositiveInt,
        Meta(description="Number of first epochs whose gradients are summed; more help where gradients are noisy."),
    ] = 1

    @property
    def reads_arrays(self) -> bool:
        """Always true: the attack reads gradients."""
        return True

    def check_model(self, model: Mapping[str, Any]) -> None:
        """See :meth:`Attack.check_model`; there must be no top model."""
        super().check_model(model)
        if model.get("top"):
            raise JobError(
                "the direct attack reads gradients of logits, which there are only without a top model; set "
                "[model] top = false, or use gradient-directions, which reads labels from gradients of any top model",
                code="unsupported",
            )

    def check_labels(self, rows: int, classes: int) -> None:
        """See :meth:`Attack.check_labels`; there must be classes."""
        if not classes:
            reason = "the direct attack reads the gradients of class logits, but this job is a regression"
            raise JobError(reason, code="unsupported")

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a class for every training row; notes count rows without a gradient and rows it leaves open.

        Raises:
            DataError: the view is the active party's; ``own`` does not hold its rows; the gradients are not those of
                class logits, or digests.
            FileFormatError: records of the view contradict each other.
            InputError: fewer classes than one, or more than rows.
        """
        require_passive_view(view, self.kind)
        validate_rows(view, own)
        validate_classes(view, aux)
        if view.parameter("model.top") is not False:
            raise DataError(
                "the direct attack reads the gradients of logits, but the view is not of a split network without a top "
                "model ([model] top = false); gradient-directions reads labels from gradients of any top model",
                code="unsupported",
                value=view.party,
            )
        values = rng.integers(aux.classes, size=view.rows)
        gradients, seen = gradients_by_row(view, self.epochs)
        if aux.classes == 2 and gradients.shape[1] == len(view.members):  # one output, the logit of class 1
            gradients = gradients.sum(axis=1, keepdims=True) * [-1.0, 1.0]
        elif gradients.shape[1] == len(view.members) * aux.classes:  # of the same logits, but for noise
            gradients = gradients.reshape(view.rows, -1, aux.classes).sum(axis=1)
        if not gradients.shape[1]:
            return self._as_guess(values, np.zeros((view.rows, aux.classes)), seen, seen)
        if gradients.shape[1] != aux.classes:
            shape = f"{gradients.shape[1]} values per row for {aux.classes} classes"
            raise DataError(
                f"the direct attack reads the gradients of class logits, but the view's have {shape}",
                code="unsupported",
                value=gradients.shape[1],
            )
        below = gradients < 0
        indicator = below if self.rule == "first-negative" else gradients > gradients.min(axis=1, keepdims=True)
        decided: NDArray[np.bool_] = np.any(indicator, axis=1).astype(np.bool_)
        named = below.argmax(axis=1) if self.rule == "first-negative" else gradients.argmin(axis=1)
        return self._as_guess(np.where(decided, named, values), -gradients, seen, decided)

    def _as_guess(
        self,
        values: NDArray[np.int64],
        scores: NDArray[np.float64],
        seen: NDArray[np.bool_],
        decided: NDArray[np.bool_],
    ) -> LabelGuess:
        notes = {
            "rows without a gradient": float((~seen).sum()),
            "rows left open": float((seen & ~decided).sum()),
        }
        ranked = scores if self.rule == "argmin" else None
        return LabelGuess(values=values.astype(np.int64), kind="labels", scores=ranked, notes=notes)
