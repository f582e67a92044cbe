"""Gradient trajectories: labels from how the direction of each row's gradient moves over all epochs.

A defense that adds a penalty's gradient (``adversarial``, ``distance-correlation``), and a nonlinear top model, turn
the directions of an epoch around from one epoch to the next, so that a sum over epochs cancels. Rows of one class turn
together: side by side the epochs name the classes, more and more clearly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import cluster_features, kmeans, kmeans_seed, validate_classes, validate_rows
from labelward.attacks.known_label_models import checked_known, fit_logistic
from labelward.attacks.nets.view_gradients import gradients_by_epoch, require_passive_view, unit_rows
from labelward.metrics.registry import BALANCED
from labelward.parameters import PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]

_WITHOUT = "rows without a gradient"


@dataclass(frozen=True, kw_only=True)
class _Trajectories(Attack):
    """The common part: one place for each row among the main directions of all trajectories."""

    models: ClassVar[tuple[str, ...]] = ("splitnn",)

    epochs: Annotated[
        PositiveInt | None, Meta(description="Number of first epochs whose gradients are read. Default: all.")
    ] = None
    components: Annotated[
        PositiveInt | None,
        Meta(description="Number of principal components of the trajectories. Default: twice the classes."),
    ] = None

    @property
    def reads_arrays(self) -> bool:
        """Always true: the attack reads gradients."""
        return True

    def _places(self, view: View, classes: int) -> tuple[Floats, NDArray[np.bool_]]:
        """Return float64 [rows, components], none on a view without gradients; and which rows had a gradient."""
        epochs = gradients_by_epoch(view, self.epochs)
        if not epochs:
            return np.zeros((view.rows, 0)), np.zeros(view.rows, dtype=np.bool_)
        most = self.components or 2 * classes
        seen = np.any([np.any(each != 0, axis=1) for each in epochs], axis=0)
        return _components(np.hstack([_components(unit_rows(_finite(each)), most) for each in epochs]), most), seen


@dataclass(frozen=True, kw_only=True)
class GradientTrajectories(_Trajectories):
    """Rows clustered by the directions of their gradients in all epochs.

    Each row's gradient of each epoch is scaled to length 1, and each epoch is projected onto its main directions.
    Epochs stand side by side, are projected again, and the rows are clustered by k-means.

    Setting: a curious passive party of a split network, with any top model and any defense of gradients. No auxiliary
        knowledge. It reads training rows only. On a view without gradients the attack gives the clusters of the party's
        own columns.

    Reference: none; found by attacking ``adversarial`` and ``distance-correlation``.
    """

    kind: ClassVar[str] = "gradient-trajectories"
    answers: ClassVar[tuple[str, ...]] = ("adversarial", "distance-correlation")

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a cluster for every training row.

        Raises:
            DataError: the view is the active party's; ``own`` does not hold its rows; the view has digests.
            FileFormatError: records of the view contradict each other.
            InputError: fewer classes than one, or more than rows.
        """
        require_passive_view(view, self.kind)
        validate_rows(view, own)
        validate_classes(view, aux)
        seed = kmeans_seed(rng)
        places, seen = self._places(view, aux.classes)
        notes = {_WITHOUT: float((~seen).sum())}
        if not places.shape[1]:
            return LabelGuess(values=cluster_features(own.numbers(), aux.classes, seed), notes=notes)
        return LabelGuess(values=kmeans(places, aux.classes, seed), notes=notes)


@dataclass(frozen=True, kw_only=True)
class GradientCompletion(_Trajectories):
    """A model of a few known labels by the directions of all rows' gradients, and by the party's own columns.

    The places of :class:`GradientTrajectories` stand beside the columns; a logistic regression on the known rows names
    all others. It reads what returned gradients tell, where completion reads what the trained bottom model tells.

    Setting: as there, with the labels of a few training rows, equally many of each class.

    Reference: none.
    """

    kind: ClassVar[str] = "gradient-completion"
    primary: ClassVar[str] = BALANCED

    auxiliary: Annotated[
        PositiveInt,
        Meta(description="Number of training rows whose labels the attacker knows, equally many of each class."),
    ] = 40

    @property
    def labels_needed(self) -> int:
        """Number of training rows whose labels the attack requires."""
        return self.auxiliary

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a class for every training row; without gradients by the party's own columns alone.

        Raises:
            DataError: as :meth:`GradientTrajectories.__call__`, or known rows are not the view's.
            FileFormatError, InputError: as there.
        """
        require_passive_view(view, self.kind)
        validate_rows(view, own)
        validate_classes(view, aux)
        checked_known(view, aux, self.kind)
        places, seen = self._places(view, aux.classes)
        columns = np.hstack([own.numbers(), places])
        scores = fit_logistic(AttackerData(features=columns, columns=()), aux).scores
        assert scores is not None
        scores[aux.known_rows] = np.eye(aux.classes)[aux.known_labels]
        return replace(LabelGuess.of_scores(scores), notes={_WITHOUT: float((~seen).sum())})


def _components(values: Floats, most: int) -> Floats:
    """Return the rows, less their mean, in their main directions: float64 [rows, at most so many]."""
    from scipy.linalg import eigh

    centered, width = values - values.mean(axis=0), values.shape[1]
    axes = eigh(centered.T @ centered, subset_by_index=(max(width - most, 0), width - 1))[1]
    return np.asarray(centered @ axes[:, ::-1])


def _finite(values: Floats) -> Floats:
    """Return the rows, with zeros in place of a gradient that has left the numbers."""
    return np.where(np.isfinite(values).all(axis=1, keepdims=True), values, 0.0)
