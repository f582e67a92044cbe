"""Rankings of rows by embeddings or gradients of a split network, without a known label: norm and spectral attack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.after_epoch import AfterEpoch
from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import validate_rows
from labelward.attacks.nets.view_embeddings import own_embeddings
from labelward.attacks.nets.view_gradients import gradients_by_row, has_gradients, require_passive_view
from labelward.errors import DataError, JobError
from labelward.metrics.registry import Metric
from labelward.parameters import PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]

AUC_EITHER = Metric(
    name="auc_either",
    title="AUC, either direction",
    article="an",
    note="AUC, either direction: the larger of the AUC and 1 less it; nothing says which end is which class.",
)


@dataclass(frozen=True, kw_only=True)
class TwoClassRanking(Attack):
    """The common part of rankings of rows of two classes by a number; which end is which class stays open."""

    primary: ClassVar[str] = AUC_EITHER.name
    metrics: ClassVar[tuple[Metric, ...]] = (AUC_EITHER,)
    names_classes: ClassVar[bool] = False
    models: ClassVar[tuple[str, ...]] = ("splitnn",)

    def check_view(self, view: View, own: AttackerData, aux: AuxiliaryKnowledge) -> None:
        """Refuse an active party's view, rows of another view, and all but two classes.

        Raises:
            DataError: the view is the active party's, or ``own`` does not hold its rows.
            JobError: not two classes.
        """
        require_passive_view(view, self.kind)
        validate_rows(view, own)
        self.check_labels(view.rows, aux.classes)

    def trained_bottom(self, view: View, own: AttackerData, *, untrained: bool = False) -> Any:
        """Return the party's bottom model, or the one that its training began with.

        Raises:
            DataError: it is not at hand.
        """
        bottom = own.untrained if untrained else own.bottom
        if bottom is None:
            raise DataError(
                f"{self.kind} reads the bottom model of party {view.party!r}, and none is at hand",
                code="missing",
                value=view.party,
            )
        return bottom()

    def check_labels(self, rows: int, classes: int) -> None:
        """Refuse all but two classes."""
        if classes != 2:
            raise JobError(
                f"{self.kind} ranks rows of two classes, not of {classes}", code="unsupported", value=classes
            )

    def guess_of(self, scores: Floats, notes: dict[str, float], outside: LabelGuess | None = None) -> LabelGuess:
        """Return scores, float64 [rows], as a guess: the upper half of the ranking is class 1."""
        guessed = (scores > np.median(scores)).astype(np.int64)
        ranked = np.stack([-scores, scores], axis=1)
        return LabelGuess(values=guessed, kind="labels", scores=ranked, notes=notes, outside=outside)

    def score(self, guess: LabelGuess, truth: NDArray[np.int64]) -> dict[str, float]:
        """Return the AUC of the ranking or of its reverse; .5 where one class is missing."""
        if guess.scores is None or len(np.unique(truth)) != 2:
            return {AUC_EITHER.name: 0.5}
        area = area_of_ranking(guess.scores[:, 1], truth == 1)
        return {AUC_EITHER.name: max(area, 1 - area)}


def area_of_ranking(scores: Floats, inside: NDArray[np.bool_]) -> float:
    """Return the AUC of scores, bit by bit that of scikit-learn's ``roc_auc_score``, which takes ten times as long.

    The level of chance is the mean of 200 of them.

    Args:
        scores: float64 [rows], finite.
        inside: bool [rows], some true and some not.

    Raises:
        ValueError: a score is not finite.
    """
    if not np.isfinite(scores).all():
        raise ValueError("scores of a ranking are finite")
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    ends = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)
    hits = np.cumsum(inside[order], dtype=np.float64)[ends]
    misses = 1 + ends - hits
    if len(ends) > 2:  # corners of the curve
        corners = np.flatnonzero(np.concatenate([[True], np.logical_or(np.diff(misses, 2), np.diff(hits, 2)), [True]]))
        hits, misses = hits[corners], misses[corners]
    x, y = (np.concatenate([[0.0], counts]) / counts[-1] for counts in (misses, hits))
    return float((np.diff(x) * (y[1:] + y[:-1]) / 2.0).sum())


@dataclass(frozen=True, kw_only=True)
class RowRanking(AfterEpoch, TwoClassRanking):
    """The common part of both: embeddings, or gradients, ranked by a number."""

    of: Annotated[
        Literal["embeddings", "gradients"],
        Meta(
            description="What is ranked: 'embeddings' of the attacker's trained bottom model, or 'gradients' that were "
            "returned to it."
        ),
    ] = "embeddings"
    epochs: Annotated[PositiveInt, Meta(description="Number of first epochs whose 'gradients' are summed.")] = 1

    def check_parameters(self) -> None:
        """Refuse an epoch for gradients, of which ``epochs`` says which are read."""
        if self.epoch is not None and self.of == "gradients":
            raise self.error("epoch", "is for 'embeddings'; gradients are those of the first 'epochs'")

    @property
    def reads_arrays(self) -> bool:
        """Whether gradients are read; embeddings follow from the party's own model."""
        return self.of == "gradients"

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a score for every training row; the upper half of the ranking is guessed as class 1.

        Trained embeddings of rows outside the training set are ranked by the same rule, on the training rows' scale.

        On a view without gradients the embeddings are those of the untrained bottom model, and ``"gradients"`` are
        drawn at random, as those of rows without one are ranked in the middle.

        Raises:
            DataError: the view is the active party's; ``own`` does not hold its rows, or no bottom model; the view has
                digests of the gradients.
            FileFormatError: records of the view contradict each other.
            JobError: not two classes.
        """
        self.check_view(view, own, aux)
        if self.of == "embeddings":
            values, outside = self._embeddings(view, own)
            ranked = self.rule(values)
            beyond = self.guess_of(ranked(outside), {}) if outside is not None and len(outside) else None
            return self.guess_of(ranked(values), {}, beyond)
        values, seen = gradients_by_row(view, self.epochs, own_loss=True)
        if not values.shape[1]:
            values = rng.normal(size=(view.rows, 1))
        scores = np.zeros(view.rows)
        known = seen if seen.any() else ~seen
        scores[known] = self.rule(values[known])(values[known])
        scores[~known] = np.median(scores[known])
        return self.guess_of(scores, {"rows without a gradient": float((~seen).sum())})

    def rule(self, values: Floats) -> Callable[[Floats], Floats]:
        """Return what ranks rows, float64 [rows, numbers] to float64 [rows], as the training rows' values suggest."""
        raise NotImplementedError

    def _embeddings(self, view: View, own: AttackerData) -> tuple[Floats, Floats | None]:
        """Return the embeddings of the training rows, and of the rows outside where they are at hand."""
        from labelward.attacks.nets.completion import embedded

        known = None if self.epoch is None else own_embeddings(view, self.epoch)
        if known is not None:
            return known, None
        trained = self.trained_bottom(view, own, untrained=not has_gradients(view))
        # nobody has embeddings of other rows after an epoch, so that without the view there are none to compare with
        outside = None if self.epoch is not None or own.outside is None else embedded(trained, own.outside)
        return embedded(trained, own.features), outside


@dataclass(frozen=True, kw_only=True)
class NormAttack(RowRanking):
    """Rows ranked by the length of their embeddings, or gradients: the rarer class has the larger ones.

    Setting: a curious passive party of a split network of two classes, without a known label.

    Reference: Li et al., "Label leakage and protection in two-party split learning" (ICLR 2022), of gradients; the LPSC
        paper (Table 2), of embeddings.
    """

    kind: ClassVar[str] = "norm"

    def rule(self, values: Floats) -> Callable[[Floats], Floats]:
        """Rank by the lengths of the rows."""
        return lambda rows: np.asarray(np.linalg.norm(rows, axis=1))


@dataclass(frozen=True, kw_only=True)
class SpectralAttack(RowRanking):
    """Rows ranked along the direction in which their embeddings, or gradients, differ most.

    Setting: a curious passive party of a split network of two classes, without a known label. Of a one-dimensional
        embedding the signed score is the embedding itself. Of gradients through a linear top model the signed score is
        the gradient of the logit, up to its sign.

    Reference: Tran et al., "Spectral signatures in backdoor attacks" (NeurIPS 2018), as in Table 2 of the LPSC paper:
        squared projections, which ``signed = false`` orders alike.
    """

    kind: ClassVar[str] = "spectral"

    signed: Annotated[
        bool, Meta(description="Rank by the projection itself; otherwise by its absolute value, as published.")
    ] = True

    def rule(self, values: Floats) -> Callable[[Floats], Floats]:
        """Rank by the projections of the rows, less the mean, onto the first singular vector of the training rows."""
        center = values.mean(axis=0)
        direction = np.linalg.svd(values - center, full_matrices=False)[2][0]
        if (((values - center) @ direction) ** 3).sum() < 0:  # the rarer class is further out
            direction = -direction

        def projected(rows: Floats) -> Floats:
            along = (rows - center) @ direction
            return np.asarray(along if self.signed else np.abs(along))

        return projected
