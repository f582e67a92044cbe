"""What of a split network leaves a party, as policies are asked about it: embeddings, and the gradients in return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelward.rng import SecureRandom

Values = NDArray[Any]
"""float32 or float64, as the model's numbers are."""


@dataclass(frozen=True, kw_only=True)
class ActiveModel:
    """What stands between the embeddings that the active party receives and what it makes of them.

    Attributes:
        bottleneck: weight in the loss of the divergence of a variational bottleneck behind each party's embeddings;
            None: there is none.
    """

    bottleneck: float | None = None


@dataclass(frozen=True, kw_only=True)
class OutgoingEmbedding:
    """What a party's bottom model gives for some rows, before it leaves.

    Attributes:
        party: to whom it would go.
        purpose: which rows these are.
        epoch: counted from 0; 0 in prediction.
        piece: number of the batch, or of the piece of validation or prediction rows.
        values: [rows, outputs], not to be written to.
        draw: returns the generator of the party's private learning draws for a purpose.
        protection: source of the draws that protect something, such as noise.
    """

    party: str
    purpose: Literal["training", "validation", "prediction"]
    epoch: int
    piece: int
    values: Values
    draw: Callable[[str], np.random.Generator]
    protection: SecureRandom


@dataclass(frozen=True, kw_only=True)
class ReturnedGradient:
    """The gradient of a batch's mean loss with respect to one party's embeddings, before it leaves.

    Attributes:
        party: to whom it would go.
        epoch: counted from 0.
        batch: counted from 0 in each epoch.
        values: [rows, outputs], not to be written to. Since the loss is the mean of the batch, a row's gradient is
            that of its own loss divided by the rows of the batch (by their total weight, where they have weights).
        embeddings: what the party sent, [rows, outputs]; not to be written to.
        targets: float64 [rows]: the batch's class numbers, or quantities, as policies of targets leave them: noisy
            ones where these put noise on them, the true ones where they replace what is fitted by something else.
        classes: how many there are; 0 for quantities.
        draw: returns the generator of the party's private learning draws for a purpose.
        protection: source of the draws that protect something, such as noise.
    """

    party: str
    epoch: int
    batch: int
    values: Values
    targets: NDArray[np.float64]
    classes: int
    draw: Callable[[str], np.random.Generator]
    protection: SecureRandom
    embeddings: Values = field(default_factory=lambda: np.empty((0, 0)))
