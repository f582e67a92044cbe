"""Messages of split networks, and what each party observes while one is trained.

A run, as a passive party sees it::

    active  → NetStart(model, outputs)              step (0,)
    passive → NetReady(outputs)                     step (0,)
    active  → EpochStart(epoch)                     step (epoch,)
    passive → BatchEmbeddings(values)               step (epoch, batch)     for each batch in the agreed order
    active  → BatchGradients(values)                step (epoch, batch)
    ...
    passive → ValidationEmbeddings(values)          step (epoch, part)      piece by piece, where there are such rows
    active  → EpochEnd(best, last)                  step (epoch,)
    ...
    active  → EmbeddingRequest(start, stop)         step (number,)          prediction; an empty one ends it
    passive → EmbeddingAnswer(values)               step (number,)

Embeddings are what a bottom model gives for some rows: [rows, outputs]; without a top model they are its part of the
logits. Gradients are those of the loss with respect to the embeddings of the same batch. Both travel in the model's
dtype, or as float16 where the parties agreed on that.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from labelward.messages.base import SMALL, Array, Limits, Message, ModelId, Observation, Released, exempt


class NetStart(Message, frozen=True):
    """Training begins.

    Attributes:
        model: the model's identifier, drawn at random.
        outputs: how many numbers a row each bottom model must give; 0: any number, which the answer tells.
    """

    model: ModelId
    outputs: int
    volatile: ClassVar[tuple[str, ...]] = ("model",)


class NetReady(Message, frozen=True):
    """The passive party has a bottom model; ``outputs`` is how many numbers a row it gives."""

    outputs: int


class EpochStart(Message, frozen=True):
    """An epoch begins: all training rows once more, in batches of the order that both sides draw.

    Attributes:
        order: SHA-256 of the order that the sender drew from the common seed; the receiver compares it with its own.
    """

    order: Annotated[bytes, exempt("a digest of a draw that all parties make")] = b""
    volatile: ClassVar[tuple[str, ...]] = ("order",)
    limits: ClassVar[Limits | None] = SMALL


class BatchEmbeddings(Message, frozen=True):
    """What the sender's bottom model gives for a batch: [rows of the batch, outputs]."""

    values: Released[Array]
    bulk: ClassVar[tuple[str, ...]] = ("values",)


class BatchGradients(Message, frozen=True):
    """The gradient of the batch's mean loss with respect to the receiver's embeddings, after the sender's policies."""

    values: Released[Array]
    bulk: ClassVar[tuple[str, ...]] = ("values",)


class ValidationEmbeddings(Message, frozen=True):
    """What the sender's bottom model gives for some validation rows, in their order."""

    values: Released[Array]
    bulk: ClassVar[tuple[str, ...]] = ("values",)


class EpochEnd(Message, frozen=True):
    """An epoch is over.

    Attributes:
        best: the weights as they are now are the best so far, and kept.
        last: no further epoch follows; the model has the weights of the last epoch that was the best.
    """

    best: bool
    last: bool


class EmbeddingRequest(Message, frozen=True):
    """Rows ``start`` to ``stop`` of the prediction table are to be embedded; empty: no further request follows."""

    model: ModelId
    start: int
    stop: int
    volatile: ClassVar[tuple[str, ...]] = ("model",)


class EmbeddingAnswer(Message, frozen=True):
    """What the sender's bottom model gives for the rows of a request: [rows, outputs]."""

    values: Released[Array]
    bulk: ClassVar[tuple[str, ...]] = ("values",)


class OwnEmbeddings(Observation, frozen=True):
    """What the party's bottom model gives for all training rows after an epoch: [training rows, outputs].

    In the order of the rows. Only where ``[run] record = "epochs"``.
    """

    epoch: int
    values: Array


class EpochOrder(Observation, frozen=True):
    """The training rows in the order in which an epoch takes them: int32 [training rows].

    Batches are consecutive pieces of it, as long as the embeddings and gradients of the batch.
    """

    epoch: int
    rows: Array


TRAINING: tuple[type[Message], ...] = (EpochStart, BatchEmbeddings, BatchGradients, ValidationEmbeddings, EpochEnd)
"""Messages of an epoch: their step begins with its number, and each epoch has as many of each, of the same size."""
