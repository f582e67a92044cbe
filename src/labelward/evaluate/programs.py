"""What the evaluation needs to know of a kind of model: its programs, its baselines, its shares, what its views show.

A new kind of model is one module with a subclass and one line in :data:`labelward.evaluate.kinds.PROGRAMS`; the audit
itself knows none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyData, Rehearsal
from labelward.evaluate.results import Seen
from labelward.he import Counts, Engine
from labelward.party.context import Context
from labelward.party.handshake import Agreed
from labelward.party.policy import Policy
from labelward.party.view import View

__all__ = ["Ended", "Programs", "Share"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


class Share(Protocol):
    """One party's part of a model."""

    @property
    def model(self) -> str:
        """Identifier of the model; shares of different models do not fit together."""

    @property
    def party(self) -> str:
        """Whose share it is."""

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the active one first."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The party's encoded columns, in the order in which it must bring them."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The label's values; empty in a passive party's share."""

    def save(self, folder: Path) -> Path:
        """Write the share; :class:`~labelward.errors.OutputError` where that is impossible."""


S = TypeVar("S", bound=Share)


@dataclass(frozen=True, kw_only=True)
class Ended(Generic[S]):
    """What a run leaves at one party.

    Attributes:
        counts: of operations with the key on this side.
        margins: float64 [prediction rows]; none at a passive party.
        fingerprint: of the public key; at the active party only.
    """

    share: S
    counts: Counts
    margins: Floats = field(default_factory=lambda: np.empty(0))
    fingerprint: bytes = b""


class Programs(ABC, Generic[S]):
    """One model, with its parameters, as the evaluation runs it."""

    @abstractmethod
    def check(self, data: Rehearsal, policies: Sequence[Policy]) -> None:
        """Refuse data that the model cannot learn from and policies that it cannot honor, before anything starts.

        Raises:
            DataError: the labels have too many classes.
            PolicyError: a policy's point is never reached, or its own check fails.
        """

    @abstractmethod
    def active(self, ctx: Context, agreed: Agreed, data: Rehearsal, engine: Engine) -> Ended[S]:
        """Run the active party's program: agree, train, predict the test rows."""

    @abstractmethod
    def passive(self, ctx: Context, agreed: Agreed, data: PartyData, engine: Engine) -> Ended[S]:
        """Run a passive party's program."""

    @abstractmethod
    def pooled(self, parties: Sequence[PartyData], labels: Labels, *, seed: int, precision: int) -> Floats:
        """Train the same algorithm, undefended and unencrypted, where these parties' columns lie on one table.

        Returns:
            float64 [test rows], the margins. Without any column they are all the same.
        """

    @abstractmethod
    def seen_by_active(self, view: View) -> Seen:
        """Count what the active party's view shows."""

    @abstractmethod
    def seen_by_passive(self, view: View, held: PartyData, labels: Labels) -> Seen:
        """Count what a passive party's view shows, and measure what it says about the labels."""

    @abstractmethod
    def load(self, folder: Path) -> S:
        """Read a share; :class:`~labelward.errors.FileFormatError` where it is missing or damaged."""

    @abstractmethod
    def predict_active(self, ctx: Context, share: S, x: Floats) -> Floats:
        """Return the margin of each row, float64 [rows], with the peers of the context."""

    @abstractmethod
    def predict_passive(self, ctx: Context, share: S, x: Floats) -> None:
        """Answer for the rows of ``x`` until the active party asks no more."""
