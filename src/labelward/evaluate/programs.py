"""What the evaluation needs to know of a kind of model: its programs, its baselines, its shares, what its views show.

A new kind of model is one module with a subclass and one line in :data:`labelward.evaluate.kinds.PROGRAMS`; the audit
itself knows none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyData, Rehearsal
from labelward.evaluate.results import Seen
from labelward.he import Counts, Engine
from labelward.kernels.objectives import Objective
from labelward.party.context import Context
from labelward.party.handshake import Agreed
from labelward.party.policy import Policy
from labelward.party.view import View

__all__ = ["Ended", "PredictMode", "Programs", "Share", "Watched"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
PredictMode = Literal["one-round", "levels"]
"""All answers of a party at once, or level by level: slower, but only for the splits that a row meets."""


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
    def kind(self) -> str:
        """The kind of model."""

    @property
    def categories(self) -> Mapping[str, tuple[str, ...]]:
        """For each categorical column its categories, by code."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The label's values; empty for quantities, and in a passive party's share."""

    def save(self, folder: Path) -> Path:
        """Write the share; :class:`~labelward.errors.OutputError` where that is impossible."""


S = TypeVar("S", bound=Share)


@dataclass(frozen=True, kw_only=True)
class Watched:
    """How the validation rows fared.

    Attributes:
        metric: its name.
        values: after each round.
        best: the position of the best of them.
    """

    metric: str
    values: tuple[float, ...]
    best: int


@dataclass(frozen=True, kw_only=True)
class Ended(Generic[S]):
    """What a run leaves at one party.

    Attributes:
        counts: of operations with the key on this side.
        margins: float64 [prediction rows, outputs]; none at a passive party.
        fingerprint: of the public key.
        watched: at the active party, where there are validation rows.
    """

    share: S
    counts: Counts
    margins: Floats = field(default_factory=lambda: np.empty((0, 1)))
    fingerprint: bytes = b""
    watched: Watched | None = None


class Programs(ABC, Generic[S]):
    """One model, with its parameters, as the evaluation runs it."""

    @abstractmethod
    def check(self, data: Rehearsal, policies: Sequence[Policy], *, passive: Sequence[str] | None = None) -> None:
        """Refuse data that the model cannot learn from and policies that it cannot honor, before anything starts.

        Args:
            data: of all parties, or of the active party alone.
            policies: what defends the run.
            passive: names of the passive parties; None: those of ``data``. In a run over a network the active party
                has no data of theirs, so that what depends on it is refused while the model is trained.

        Raises:
            JobError: a parameter does not go with the data.
            DataError: the labels are not of the kind that the model learns, or a value of them is unfit.
            PolicyError: a policy's point is never reached, or its own check fails.
        """

    @abstractmethod
    def objective(self, classes: Sequence[str]) -> Objective:
        """Return what the model is fitted to, for labels of these classes; without classes they are quantities."""

    @property
    @abstractmethod
    def deviance_power(self) -> float | None:
        """Of the variance in the mean, where the model is of counts or the like: 1 for Poisson, up to 2."""

    @abstractmethod
    def active(
        self, ctx: Context, agreed: Agreed, data: Rehearsal, engine: Engine, *, share: S | None = None
    ) -> Ended[S]:
        """Run the active party's program: agree, train, predict the test rows; go on with a share where it is given."""

    @abstractmethod
    def passive(
        self, ctx: Context, agreed: Agreed, data: PartyData, engine: Engine, *, share: S | None = None
    ) -> Ended[S]:
        """Run a passive party's program."""

    @abstractmethod
    def pooled(self, data: Rehearsal, parties: Sequence[PartyData], *, seed: int, precision: int) -> Floats:
        """Train the same algorithm, undefended and unencrypted, where these parties' columns lie on one table.

        Args:
            data: labels and weights.
            parties: those of its parties whose columns are used.

        Returns:
            float64 [test rows, outputs], the margins. Without any column they are all the same.
        """

    @abstractmethod
    def seen_by_active(self, view: View) -> Seen:
        """Count what the active party's view shows."""

    @abstractmethod
    def seen_by_passive(self, view: View, held: PartyData, labels: Labels) -> Seen:
        """Count what a passive party's view shows, and measure what it says about the labels.

        Args:
            labels: int64 [training rows], classes; of quantities the bins that they are cut into.
        """

    @abstractmethod
    def load(self, folder: Path) -> S:
        """Read a share; :class:`~labelward.errors.FileFormatError` where it is missing or damaged."""

    @abstractmethod
    def predict_active(self, ctx: Context, share: S, x: Floats, mode: PredictMode = "one-round") -> Floats:
        """Return the margins of each row, float64 [rows, outputs], with the peers of the context."""

    @abstractmethod
    def predict_passive(self, ctx: Context, share: S, x: Floats) -> None:
        """Answer for the rows of ``x`` until the active party asks no more."""
