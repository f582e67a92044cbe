"""Model adapters: programs, baselines, shares and visibility summary of a family of models.

A new kind of model is one module with a subclass and one line in :data:`labelward.federation.components.PROGRAMS`; the
audit itself knows none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData
from labelward.data import PartyDataset, VerticalDataset
from labelward.errors import DataError, JobError
from labelward.he import Counts, Engine
from labelward.party.context import Context
from labelward.party.handshake import Agreement
from labelward.party.view import View
from labelward.policy.base import Policy, PolicyContext
from labelward.policy.chain import check_hooks
from labelward.protocols.common import LabelVector
from labelward.runs.schema import VisibilityCounts

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
PredictMode = Literal["one-round", "levels"]
"""All answers of a party at once, or level by level: slower, but only for the splits that a row meets."""


class PartyShare(Protocol):
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


S = TypeVar("S", bound=PartyShare)


@dataclass(frozen=True, kw_only=True)
class ValidationHistory:
    """How the validation rows fared.

    Attributes:
        metric: its name.
        values: after each round.
        best: the position of the best of them.
    """

    metric: str
    values: tuple[float, ...]
    best: int


def label_vector(data: VerticalDataset) -> LabelVector:
    """Return the labels of the training and validation rows of a dataset."""
    return LabelVector(
        values=np.concatenate([data.train_values, data.validation_values]),
        weights=np.concatenate([data.train_weights, data.validation_weights]),
        classes=data.classes,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PartyInputs:
    """What one party brings to a training.

    Attributes:
        data: its columns.
        labels: at the active party.
        share: of an earlier training that is continued.
        behavior: how a passive party trains, where not as agreed (:meth:`ModelAdapter.check_behavior`).
    """

    data: PartyDataset
    labels: LabelVector | None = None
    share: Any = None
    behavior: Mapping[str, Any] | None = None

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """For each categorical column its categories, by code."""
        return {self.data.columns[position]: names for position, names in self.data.categories.items()}


@dataclass(frozen=True, kw_only=True)
class RoleResult(Generic[S]):
    """Result of a run at one party.

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
    watched: ValidationHistory | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageMaps:
    """One party's part of some images, and on what of it the joined model's answers rest.

    Attributes:
        pixels: float64 [rows, channels, height, width].
        maps: float64 [rows, h, w], at least 0; of a row those of all parties have one scale.
    """

    pixels: Floats
    maps: Floats


class ModelAdapter(ABC, Generic[S]):
    """One model, with its parameters, as the evaluation runs it.

    Attributes:
        encrypts: whether the protocol encrypts anything; where not, the job's engine is ``"none"``.
        metered: whether the leakage meter can read what passive parties learn.
        bulky: whether embeddings and gradients travel, of which views may keep digests.
        grows: whether a training can continue the model of an earlier one (warm start).
        libraries: on whose versions figures depend, in addition to those that all models use.
        points: for each role the policy points that its program visits.
    """

    encrypts: ClassVar[bool] = True
    metered: ClassVar[bool] = True
    bulky: ClassVar[bool] = False
    grows: ClassVar[bool] = True
    libraries: ClassVar[tuple[str, ...]] = ()
    points: ClassVar[Mapping[str, frozenset[str]]]

    def __init__(self, params: Any = None) -> None:
        """``params``: of the model, checked; None where shares of a trained model are used, and nothing is trained."""
        self.params = params

    @abstractmethod
    def check(
        self, data: VerticalDataset, policies: Mapping[str, Sequence[Policy]], *, passive: Sequence[str] | None = None
    ) -> None:
        """Refuse data that the model cannot learn from and policies that it cannot honor, before anything starts.

        Args:
            data: of all parties, or of the active party alone.
            policies: by party, what defends the run.
            passive: names of the passive parties; None: those of ``data``. In a run over a network the active party
                has no data of theirs, so that what depends on it is refused while the model is trained.

        Raises:
            JobError: a parameter does not go with the data.
            DataError: the labels are not of the kind that the model learns, or a value of them is unfit.
            PolicyError: a policy's point is never reached, or its own check fails.
        """

    @abstractmethod
    def predicted(self, margins: Floats, classes: Sequence[str]) -> Floats:
        """Return what margins [rows, outputs] stand for: probabilities [rows, classes], or without classes means."""

    @abstractmethod
    def margins_say_all(self, classes: Sequence[str]) -> bool:
        """Return whether margins are what is predicted, for labels of these classes."""

    def check_policies(
        self, policies: Mapping[str, Sequence[Policy]], active: str, contexts: Mapping[str, PolicyContext]
    ) -> None:
        """Refuse policies whose points the role of their party never visits, or whose own check fails.

        Args:
            policies: by party.
            active: name of the active party.
            contexts: for each role what policies may check.

        Raises:
            PolicyError: names defense and points.
        """
        for party, chain in policies.items():
            role = "active" if party == active else "passive"
            check_hooks(chain, self.points[role], contexts[role], elsewhere=self.points)

    def check_behavior(self, behavior: Mapping[str, Any]) -> None:
        """Refuse a way of a passive party's to train otherwise than agreed: ``kind`` and parameters.

        Raises:
            JobError: the model knows no such behavior, or a parameter is unfit.
        """
        raise JobError(
            f"no party of this model can behave as {behavior['kind']!r} in training",
            code="unsupported",
            value=behavior["kind"],
        )

    def check_start(self, run: Path, data: VerticalDataset, share: S) -> None:
        """Refuse parameters that a warm start from the active party's share would ignore.

        Raises:
            JobError: such a parameter; ``run`` is where the share comes from.
        """

    def together(self, parties: int) -> AbstractContextManager[None]:
        """Return what so many parties of one process begin in."""
        return nullcontext()

    def own(self, view: View, own: AttackerData, model: Path) -> AttackerData:
        """Return the attacker's own knowledge: its columns, and its part of the model where attacks can use it.

        Args:
            view: of the party.
            own: its columns.
            model: folder of its share.

        Raises:
            FileFormatError: the share is missing or damaged.
        """
        return own

    def embeddings(self, share: S, held: PartyDataset, rows: Labels, *, seed: int) -> tuple[Floats, Floats] | None:
        """Return what a party's part of the model makes of its columns, as it was trained and as it was before.

        Args:
            share: of a passive party.
            held: its columns.
            rows: positions of training rows.
            seed: of the run.

        Returns:
            float64 [rows, numbers] twice; None where the model makes no embeddings.
        """
        return None

    def class_maps(self, shares: Mapping[str, S], data: VerticalDataset, rows: Labels) -> dict[str, ImageMaps]:
        """Return by party on what of an image the joined model's output for its true label rests; empty if no images.

        Args:
            shares: of all parties.
            data: of all parties.
            rows: positions of test rows.
        """
        return {}

    @property
    @abstractmethod
    def deviance_power(self) -> float | None:
        """Of the variance in the mean, where the model is of counts or the like: 1 for Poisson, up to 2."""

    @abstractmethod
    def program(self, ctx: Context, agreed: Agreement, inputs: PartyInputs, engine: Engine) -> RoleResult[S]:
        """Run the party's program in its role, after the handshake: exchange the key, train, predict the test rows.

        Raises:
            LabelwardError: as the roles of the protocol do.
        """

    @abstractmethod
    def pooled(self, data: VerticalDataset, parties: Sequence[PartyDataset], *, seed: int, precision: int) -> Floats:
        """Train the same algorithm, undefended and unencrypted, where these parties' columns lie on one table.

        Args:
            data: labels and weights.
            parties: those of its parties whose columns are used.

        Returns:
            float64 [test rows, outputs], the margins. Without any column they are all the same.
        """

    @abstractmethod
    def seen_by_active(self, view: View) -> VisibilityCounts:
        """Count what the active party's view shows."""

    @abstractmethod
    def seen_by_passive(self, view: View, held: PartyDataset, labels: Labels) -> VisibilityCounts:
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


def check_weights(side: str, values: Floats, weights: Floats, classes: Sequence[str]) -> None:
    """Refuse rows, or rows of a class, that count nothing: no metric could be worked out."""
    if not len(values):
        return
    if not weights.any():
        raise DataError(f"every {side} row has weight 0", code="rows", value=side)
    if classes and side != "training":
        by_class = np.bincount(values.astype(np.int64), weights, len(classes))
        if not by_class.all():
            raise DataError(
                f"every {side} row of class {classes[int(by_class.argmin())]!r} has weight 0",
                code="rows",
                value=classes[int(by_class.argmin())],
            )


def attacker_data(held: PartyDataset) -> AttackerData:
    """Return a party's training columns as its attacks take them."""
    categories = {held.columns[position]: len(names) for position, names in held.categories.items()}
    return AttackerData(features=held.train, columns=held.columns, categories=categories)
