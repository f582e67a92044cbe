"""Messages of FederBoost; columns and sides travel as in PIVODL (:mod:`.pivodl`)."""

from __future__ import annotations

from typing import ClassVar

from labelward.messages.base import Message, Observation, Released, RowMask
from labelward.messages.pivodl import Candidate


class ChosenBuckets(Message, frozen=True):
    """The splits that a passive party answers for, each once, without tree, node and how often it is used.

    Attributes:
        model: random identifier of the training.
        splits: ascending by column and code; record numbers are places among them.
    """

    model: str
    splits: Released[tuple[Candidate, ...]]
    volatile: ClassVar[tuple[str, ...]] = ("model",)


class OwnSides(Observation, frozen=True):
    """For each split of the party in a model which of its training rows go left."""

    left: tuple[RowMask, ...]
