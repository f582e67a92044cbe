"""Objectives of split networks: loss, validation metric, and conversion of outputs to predictions."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError, JobError
from labelward.protocols.splitnn._torch import nn, torch
from labelward.protocols.splitnn.inputs import NetLabels
from labelward.protocols.splitnn.params import SplitNet

Floats = NDArray[np.float64]

_ONE_OUTPUT = ("logistic", "residuals")
"""Losses of two classes that one output tells apart."""


class EpochScore(msgspec.Struct, frozen=True):
    """Loss and metric of some rows.

    Attributes:
        loss: the mean, weighted as in training.
        metric: accuracy; for quantities the root of the mean squared error, in their own unit. NaN where it was not
            looked at.
    """

    loss: float
    metric: float = math.nan


class EpochRecord(msgspec.Struct, frozen=True):
    """Results of an epoch.

    Attributes:
        train: of the training rows, each under the weights that its batch met.
        validation: of the validation rows after the epoch; None where there are none.
    """

    train: EpochScore
    validation: EpochScore | None = None


class NetObjective(msgspec.Struct, frozen=True):
    """A loss with its parameters.

    Attributes:
        loss: ``"cross_entropy"``, ``"weighted"``, ``"nll"``, ``"logistic"`` or ``"mse"``; or ``"residuals"``, half the
            squared distance to what a policy has two classes replaced by.
        outputs: of the whole model: one for each class; 1 for a quantity, and for ``"logistic"`` and ``"residuals"``.
        class_weights: for ``"weighted"``, one for each class.
        center, scale: of quantities; the model is fitted to (value − center) / scale.
    """

    loss: str
    outputs: int
    class_weights: tuple[float, ...] = ()
    center: float = 0.0
    scale: float = 1.0

    @property
    def classes(self) -> int:
        """Number of classes; 0 for regression."""
        return 0 if self.loss == "mse" else 2 if self.loss in _ONE_OUTPUT else self.outputs

    def targets(self, values: Floats, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return the targets of the loss: class numbers, or what one output is fitted to."""
        if self.classes and self.loss not in _ONE_OUTPUT and values.ndim == 1:
            return torch.from_numpy(values.astype(np.int64)).to(device)
        return torch.from_numpy((values - self.center) / self.scale).to(device, dtype)

    def weights(self, values: Floats, weights: Floats, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return the weight of each row, that of its class included."""
        if self.class_weights:
            weights = weights * np.array(self.class_weights)[values.astype(np.int64)]
        return torch.from_numpy(weights.copy()).to(device, dtype)

    def mean_loss(
        self,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor | None,
        per: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return Σ w·loss / Σ w over the rows; 0 where no row has a weight. Without weights all are 1.

        Args:
            per: weights by whose sum Σ w·loss is divided in place of Σ w: those of the rows, where a policy's code has
                weights of its own, which are not normalized.
        """
        reduction = "mean" if weights is None else "none"
        if self.loss == "mse":
            losses = nn.functional.mse_loss(outputs[:, 0], targets, reduction=reduction)
        elif self.loss == "residuals":
            losses = nn.functional.mse_loss(outputs[:, 0], targets, reduction=reduction) / 2
        elif self.loss == "logistic":
            losses = nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction=reduction)
        elif self.loss == "nll":
            losses = nn.functional.nll_loss(outputs.log_softmax(1), targets, reduction=reduction)
        else:
            losses = nn.functional.cross_entropy(outputs, targets, reduction=reduction)
        if weights is None:
            return losses
        total = (weights if per is None else per).sum()
        return (weights * losses).sum() / total.clamp(min=torch.finfo(outputs.dtype).tiny)

    def score(
        self,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor | None,
        per: torch.Tensor | None = None,
    ) -> EpochScore:
        """Return the loss and the metric of these rows; arguments as for :meth:`mean_loss`."""
        loss = float(self.mean_loss(outputs, targets, weights, per))
        if self.loss == "logistic":
            return EpochScore(loss, float(((outputs[:, 0] > 0) == (targets > 0.5)).double().mean()))
        if targets.dim() == 2:
            targets = targets.argmax(1)
        if self.classes and self.loss != "residuals":
            return EpochScore(loss, float((outputs.argmax(1) == targets).double().mean()))
        return EpochScore(loss, self.scale * float((outputs[:, 0] - targets).square().mean().sqrt()))

    def predicted(self, outputs: Floats) -> Floats:
        """Convert outputs [rows, outputs] to predictions: probabilities [rows, classes], or means [rows]."""
        if not self.classes:
            return np.asarray(outputs[:, 0] * self.scale + self.center)
        if self.outputs == 1:
            positive = np.exp(-np.logaddexp(0.0, -outputs[:, 0]))
            return np.stack([1.0 - positive, positive], axis=1)
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def objective_of(params: SplitNet, labels: NetLabels, rows: int) -> NetObjective:
    """Return the objective of a run; ``rows``: how many of the labels are of training rows.

    Raises:
        DataError: there are no two classes among the training rows, or a weighted loss lacks one.
        JobError: the loss does not fit the labels.
    """
    classes, values, weights = len(labels.classes), labels.values[:rows], labels.weights[:rows]
    loss = params.loss if params.loss != "auto" else "cross_entropy" if classes else "mse"
    if (loss == "mse") == bool(classes):
        raise JobError(
            f"{loss!r} does not fit labels that are {'classes' if classes else 'quantities'}",
            code="unsupported",
            field="[model] loss",
            value=loss,
        )
    if loss == "mse":
        center = float(values.mean()) if params.standardize else 0.0
        scale = float(values.std()) if params.standardize else 1.0
        return NetObjective(loss, 1, center=center, scale=scale or 1.0)
    counts = np.bincount(values.astype(np.int64), weights=weights, minlength=classes)
    if np.count_nonzero(counts) < 2:
        raise DataError("the training rows have labels of one class only", code="labels")
    if loss == "logistic":
        if classes != 2:
            raise JobError(
                f"'logistic' is for two classes, and there are {classes}",
                code="unsupported",
                field="[model] loss",
                value=loss,
            )
        return NetObjective(loss, 1)
    if loss != "weighted":
        return NetObjective(loss, classes)
    if params.class_weights:
        if len(params.class_weights) != classes:
            raise JobError(
                f"{len(params.class_weights)} weights for {classes} classes",
                code="conflict",
                field="[model] class_weights",
                value=len(params.class_weights),
            )
        return NetObjective(loss, classes, params.class_weights)
    if not counts.all():
        missing = labels.classes[int(np.argmin(counts))]
        raise DataError(
            f"no training row has the class {missing!r}, so that it has no weight; give class_weights",
            code="labels",
            value=missing,
        )
    return NetObjective(loss, classes, tuple((counts.sum() / (classes * counts)).tolist()))
