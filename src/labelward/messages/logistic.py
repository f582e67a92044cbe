"""Messages of vertical logistic regression, and what its parties observe.

A run, as a passive party sees it::

    active  → LogisticStart(model, key)                step ()
    passive → LogisticReady(columns)                   step ()
    passive → ScoreKey(key)                            step (0,)               to the other passive parties, if any
    passive → PartialScores(scores)                    step (epoch, batch)     for each batch in the agreed order
    active  → EncryptedResiduals(rows)                 step (epoch, batch)
    passive → MaskedProducts(sums)                     step (epoch, batch)
    active  → MaskedWeightGradient(values)             step (epoch, batch)
    ...
    passive → ScoreKey(key)                            step (1,)               prediction
    passive → PredictionScores(model, scores)          step (piece,)           for each piece of the rows
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from labelward.he.base import CipherBlock, PublicMaterial
from labelward.messages.base import (
    KEYS,
    SMALL,
    Array,
    CipherDigest,
    Limits,
    Message,
    ModelId,
    Observation,
    Released,
    exempt,
)


class LogisticStart(Message, frozen=True):
    """Training begins.

    Attributes:
        model: the model's identifier, drawn at random.
        key: the public key of this attempt.
    """

    model: ModelId
    key: PublicMaterial
    volatile: ClassVar[tuple[str, ...]] = ("model", "key")
    limits: ClassVar[Limits | None] = KEYS


class LogisticReady(Message, frozen=True):
    """How many encoded columns the sender has: as many products with residuals will it ask for in each batch."""

    columns: int
    limits: ClassVar[Limits | None] = SMALL


class ScoreKey(Message, frozen=True):
    """The sender's X25519 key of this training or prediction, from which two passive parties derive a mask."""

    key: Annotated[bytes, exempt("a public key")]
    volatile: ClassVar[tuple[str, ...]] = ("key",)
    masked: ClassVar[tuple[str, ...]] = ("key",)
    limits: ClassVar[Limits | None] = SMALL


class PartialScores(Message, frozen=True):
    """The sender's part of the scores of a batch, fixed-point int64 [rows]; under pairwise masks of several senders."""

    scores: Released[Array]
    volatile: ClassVar[tuple[str, ...]] = ("scores",)


class EncryptedResiduals(Message, frozen=True):
    """Probability less label of each row of a batch, in parts of few bits, under the active party's key."""

    rows: CipherBlock | CipherDigest


class MaskedProducts(Message, frozen=True):
    """Sums of residuals by column, digit and digit's value, each under a mask of the sender's, to be decrypted."""

    sums: CipherBlock | CipherDigest


class MaskedWeightGradient(Message, frozen=True):
    """The products of the receiver's columns with the residuals under its own masks, int64 [columns], modulo 2^64."""

    values: Released[Array]
    volatile: ClassVar[tuple[str, ...]] = ("values",)


class PredictionScores(Message, frozen=True):
    """The sender's part of the scores of rows to be predicted, as :class:`PartialScores`."""

    model: ModelId
    scores: Released[Array]
    volatile: ClassVar[tuple[str, ...]] = ("model", "scores")


class EncodedCategories(Observation, frozen=True):
    """For each column of the party the codes of the categories that have a column of their own; none of numbers."""

    kept: tuple[tuple[int, ...], ...]


class BatchRows(Observation, frozen=True):
    """The training rows of a batch, in the order of its scores and residuals: int32 [rows of the batch]."""

    epoch: int
    batch: int
    rows: Array


class WeightGradient(Observation, frozen=True):
    """The sum over a batch of residual times encoded column, as a passive party reads it: float64 [columns]."""

    epoch: int
    batch: int
    values: Array
