"""Gradient directions: label clusters from the directions of a split network's returned gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import cluster_features, kmeans, kmeans_seed, validate_classes, validate_rows
from labelward.attacks.nets.view_gradients import gradients_by_row, require_passive_view, unit_rows
from labelward.messages.handshake import Hello
from labelward.metrics.registry import Metric
from labelward.parameters import PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]

_ONE_DIRECTION = 0.25  # of the largest singular value: a smaller second one is drift of the top model
_DIGITS = 9  # after the point, of lengths relative to the largest


@dataclass(frozen=True, kw_only=True)
class GradientDirections(Attack):
    """The direction of a row's returned gradient reveals its class; without labels, whatever the weights are.

    Under cross-entropy a row's gradient with respect to the logits is its class probabilities less 1 at its own class.
    A linear top model W returns the product with W. In the first epoch the probabilities are all but equal, so that
    each class has a direction of its own: the gradients are projected onto their first classes - 1 singular vectors,
    scaled to length 1 and clustered by k-means. For quantities, which have one direction only, rows are grouped by the
    signed length, in groups of equal size; equal lengths are in one group.

    Clusters get the names of classes where the initial weights of the top model are known: each row's gradient is
    compared with those of all classes at equal probabilities, and the names that agree best in sum are assigned. Up to
    version 0.1.0 these weights followed from the seed that all parties share. Without a top model they are the
    identity. Initial weights of a private seed have the same distribution for every order of the classes; then nothing
    in the view names them (unless the classes are weighted by known, unequal weights), and the names are random.

    Setting: a curious passive party of a split network, with any top model. No auxiliary knowledge. It reads training
        rows only. A row without a gradient is drawn at random; on a view without gradients the attack gives the
        clusters of the party's own columns. A nonlinear top model gives each row a map of its own, and directions then
        tell little.

    Difference from Section 3.5 of the label inference paper, the direct attack: it needs no gradient of logits.
    """

    kind: ClassVar[str] = "gradient-directions"
    models: ClassVar[tuple[str, ...]] = ("splitnn",)
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            name="accuracy_named",
            title="accuracy, clusters named by the start of the top model",
            article="an",
            note="Accuracy, clusters named by the start of the top model: around chance where that start is private.",
        ),
    )

    epochs: Annotated[
        PositiveInt,
        Meta(description="Number of first epochs whose gradients are summed; more help where gradients are noisy."),
    ] = 1

    @property
    def reads_arrays(self) -> bool:
        """Always true: the attack reads gradients."""
        return True

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a cluster for every training row; its number is the class that it is named with.

        Notes: the rows without a gradient, and the share of the gradients' squared length that lies in the directions
        of the shared start (all of it in runs up to version 0.1.0).

        Raises:
            DataError: the view is the active party's; ``own`` does not hold its rows; the view has digests.
            FileFormatError: records of the view contradict each other.
            InputError: fewer classes than one, or more than rows.
        """
        require_passive_view(view, self.kind)
        validate_rows(view, own)
        validate_classes(view, aux)
        seed, names = kmeans_seed(rng), rng.permutation(aux.classes)
        values = rng.integers(aux.classes, size=view.rows)
        gradients, seen = gradients_by_row(view, self.epochs, own_loss=True)
        notes = {"rows without a gradient": float((~seen).sum())}
        if not gradients.shape[1]:
            return LabelGuess(values=cluster_features(own.numbers(), aux.classes, seed), notes=notes)
        told = np.linalg.norm(gradients, axis=1) > 0
        if told.sum() >= max(aux.classes, 2):
            found = _clusters(gradients[told], aux.classes, seed)
            tops = _tops(view, own, aux.classes, gradients.shape[1])
            if tops:
                shares = [_explained(gradients[told], top) for top in tops]
                names = _names(gradients[told], found, tops[int(np.argmax(shares))])
                notes["share of the gradients that the shared start explains"] = max(shares)
            values[told] = names[found]
        return LabelGuess(values=values, notes=notes)

    def score(self, guess: LabelGuess, truth: NDArray[np.int64]) -> dict[str, float]:
        """Return the share of rows whose cluster has the name of their class."""
        return {"accuracy_named": float(np.mean(guess.values == truth))}


def starts_are_shared(view: View) -> bool:
    """Whether a view is of a split network of a version that drew initial weights from the seed that all parties share.

    Greetings of these versions name no versions of libraries, on which the draws of later ones depend.
    """
    greetings = [received.message for received in view.received(Hello)]
    return view.parameter("model.kind") == "splitnn" and bool(greetings) and not greetings[0].terms


def _clusters(gradients: Floats, classes: int, seed: int) -> NDArray[np.int64]:
    _, sizes, axes = np.linalg.svd(gradients, full_matrices=False)
    if classes > 2 and (len(sizes) < 2 or sizes[1] < _ONE_DIRECTION * sizes[0]):
        return _equal_groups(gradients @ axes[0], classes)
    return kmeans(unit_rows(gradients @ axes[: max(classes - 1, 1)].T), classes, seed)


def _equal_groups(lengths: Floats, groups: int) -> NDArray[np.int64]:
    """Return the group of each number, of equal sizes in ascending order; equal numbers are in one group.

    Ties dealt out by place would tell the labels of a table that is sorted by them. Numbers are equal up to rounding,
    as the projections of equal gradients may differ in their last digits.
    """
    size = float(np.abs(lengths).max()) or 1.0
    rounded = np.round(lengths / size, _DIGITS)
    return np.searchsorted(np.sort(rounded), rounded) * groups // len(rounded)


def _tops(view: View, own: AttackerData, classes: int, outputs: int) -> Sequence[Floats]:
    """Return the derivatives of the logits by the party's embedding at the start, for each possible set of parties."""
    if view.parameter("model.top") is False:
        return [np.eye(classes)] if outputs == classes else []
    return own.shared_start().tops(classes) if own.shared_start is not None else []


def _explained(gradients: Floats, top: Floats) -> float:
    """Return the share of the squared length in the span of differences of a top model's rows."""
    axes = np.linalg.svd(top - top.mean(axis=0), full_matrices=False)[2][: len(top) - 1]
    return float(np.square(gradients @ axes.T).sum() / np.square(gradients).sum())


def _names(gradients: Floats, clusters: NDArray[np.int64], top: Floats) -> NDArray[np.int64]:
    """Return the class of each cluster: that of the nearest direction in the mean, each class once."""
    from scipy.optimize import linear_sum_assignment

    near = unit_rows(gradients) @ unit_rows(top.mean(axis=0) - top).T
    sums = np.stack([near[clusters == cluster].sum(axis=0) for cluster in range(len(top))])
    return np.asarray(linear_sum_assignment(sums, maximize=True)[1], np.int64)
