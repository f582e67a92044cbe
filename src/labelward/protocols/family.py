"""Protocol families: roles, programs, baselines, shares and visibility summary of the models of one protocol.

A new family is one package with a subclass, and one entry in :data:`labelward.families.FAMILIES`. Training, prediction,
audits and reports depend on no family.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, SharedStart
from labelward.data import DataSplit, LabelColumn, PartyDataset, VerticalDataset
from labelward.errors import DataError, JobError
from labelward.he import Counts, Engine
from labelward.installation import version
from labelward.party.context import Context
from labelward.party.handshake import Agreement
from labelward.party.roles import Role, Topology
from labelward.party.view import View
from labelward.policy.base import Policy, PolicyContext
from labelward.policy.chain import check_hooks
from labelward.protocols.common import LabelVector, PartyInputs
from labelward.registry import Registry
from labelward.runs.schema import VisibilityCounts

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
PredictMode = Literal["one-round", "levels"]
"""All answers of a party at once, or level by level: slower, but only for the splits on a row's path."""


class PartyShare(Protocol):
    """One party's part of a model."""

    @property
    def model(self) -> str:
        """Identifier of the model; shares of different models do not fit together."""

    @property
    def party(self) -> str:
        """Party that owns the share."""

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the active one first."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The party's encoded columns, in the order required for prediction."""

    @property
    def kind(self) -> str:
        """The kind of model."""

    @property
    def categories(self) -> Mapping[str, tuple[str, ...]]:
        """For each categorical column its categories, by code."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; empty for regression, and in a passive party's share."""

    def save(self, folder: Path) -> Path:
        """Write the share; :class:`~labelward.errors.OutputError` if it cannot be written."""


S = TypeVar("S", bound=PartyShare)


@dataclass(frozen=True, kw_only=True)
class ValidationHistory:
    """Metric of the validation rows over the rounds.

    Attributes:
        metric: name of the metric.
        values: value after each round.
        best: index of the best value.
    """

    metric: str
    values: tuple[float, ...]
    best: int


def label_vector(data: VerticalDataset, party: str | None = None) -> LabelVector:
    """Return the labels of the training and validation rows of a dataset; of a party NaN where others hold them."""
    found = LabelVector(
        values=np.concatenate([data.train_values, data.validation_values]),
        weights=np.concatenate([data.train_weights, data.validation_weights]),
        classes=data.classes,
    )
    if party is None:
        return found
    return replace(found, values=np.where(data.holds(party), found.values, np.nan))


def labels_of(held: LabelColumn, split: DataSplit) -> LabelVector:
    """Return the labels of the training and validation rows that one of several holders has."""
    rows = np.concatenate([split.train, split.validation])
    return LabelVector(values=held.values[rows], weights=held.weights[rows], classes=held.classes)


@dataclass(frozen=True, kw_only=True)
class RoleResult(Generic[S]):
    """Result of a run at one party.

    Attributes:
        counts: of operations with the key on this side.
        margins: float64 [prediction rows, outputs], at the coordinator; elsewhere none.
        fingerprint: of the public key.
        watched: at the coordinator, where there are validation rows.
    """

    share: S
    counts: Counts
    margins: Floats = field(default_factory=lambda: np.empty((0, 1)))
    fingerprint: bytes = b""
    watched: ValidationHistory | None = None


def split_remark(splits: int, limits: str) -> str:
    """Return the remark on a model of trees without any split; empty for one that has some.

    Args:
        splits: of all trees.
        limits: the parameters that rule splits out.
    """
    if splits:
        return ""
    return (
        f"no tree of the model has a split, so that all rows are predicted alike; lower {limits}, add columns, or "
        "loosen a defense that withholds splits"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageMaps:
    """One party's part of some images, with class activation maps of the joint model.

    Attributes:
        pixels: float64 [rows, channels, height, width].
        maps: float64 [rows, h, w], at least 0; of a row those of all parties have one scale.
    """

    pixels: Floats
    maps: Floats


class ModelFamily(ABC, Generic[S]):
    """One family, with the parameters of a model.

    Attributes:
        roles: the roles of its protocol, by name.
        encrypts: whether the protocol encrypts anything; where not, the job's engine is ``"none"``.
        metered: whether the leakage meter can read what passive parties learn.
        bulky: whether embeddings and gradients travel, of which views may keep digests.
        grows: whether a training can continue the model of an earlier one (warm start).
        defended_alike: whether a defense without ``party`` acts at every party, since any may send what it defends.
        states_sizes: whether parties agree on the numbers of columns and classes when they greet each other, since
            these bound what they send.
        takes_edges: whether a party may state where the buckets of its columns end.
        libraries: on whose versions figures depend, in addition to those that all models use.
        shared_libraries: whose versions must be equal at all parties, since all draw or compute with them alike.
        behaviors: how a passive party may deviate in a run of an active attack; None: in no way.
        share_type: class of its shares, whose ``load`` reads one.
    """

    roles: ClassVar[Mapping[str, Role]]
    encrypts: ClassVar[bool] = True
    metered: ClassVar[bool] = True
    bulky: ClassVar[bool] = False
    grows: ClassVar[bool] = True
    defended_alike: ClassVar[bool] = False
    states_sizes: ClassVar[bool] = False
    takes_edges: ClassVar[bool] = False
    libraries: ClassVar[tuple[str, ...]] = ()
    shared_libraries: ClassVar[tuple[str, ...]] = ()
    behaviors: ClassVar[Registry[Any] | None] = None
    share_type: ClassVar[type[Any]]

    def __init__(self, params: Any = None) -> None:
        """``params``: validated parameters of the model; None to use a trained model without training."""
        self.params = params

    @property
    def uses_engine(self) -> bool:
        """Whether anything is encrypted with these parameters; False wherever ``encrypts`` is."""
        return self.encrypts

    def share_topology(self, share: PartyShare) -> Topology:
        """Return the roles of the parties in a prediction with a share."""
        return self.topology(share.parties, share.parties[:1])

    def topology(self, parties: Sequence[str], holders: Sequence[str]) -> Topology:
        """Return the roles of the parties of a run.

        Args:
            parties: in party order; the first one coordinates.
            holders: those that hold labels.

        Raises:
            JobError: the protocol has no such roles; by default it has one label holder, who coordinates.
        """
        if tuple(holders) != (parties[0],):
            raise JobError(
                f"this model is for one label holder, the first party; here {', '.join(holders)} hold labels",
                code="unsupported",
                field="[data] label",
                value=tuple(holders),
            )
        return Topology.star(*parties, roles=self.roles)

    def remark(self, parties: Sequence[str]) -> str:
        """Return what users must know of a run with these parties before it begins; empty for nothing."""
        return ""

    def remark_on(self, share: S) -> str:
        """Return what users must know of a trained model, by the coordinator's share of it; empty for nothing."""
        return ""

    def check_between_companies(self, policies: Sequence[Policy]) -> None:
        """Refuse a run over a network that gives away more than its job allows; by default none.

        Args:
            policies: the party's own.

        Raises:
            JobError: code ``insecure``.
        """

    @property
    def terms(self) -> dict[str, str]:
        """Versions of the shared libraries, without local parts such as ``+cpu``."""
        return {f"version of {name}": version(name).partition("+")[0] for name in self.shared_libraries}

    @abstractmethod
    def check(
        self, data: VerticalDataset, policies: Mapping[str, Sequence[Policy]], *, passive: Sequence[str] | None = None
    ) -> None:
        """Refuse data that the model cannot be trained on and policies that it cannot apply, before anything starts.

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
        """Convert margins [rows, outputs] to probabilities [rows, classes], or without classes to means."""

    def margins_say_all(self, classes: Sequence[str]) -> bool:
        """Return whether the margins are themselves the predictions, for labels of these classes."""
        return False

    def check_policies(
        self, policies: Mapping[str, Sequence[Policy]], topology: Topology, contexts: Mapping[str, PolicyContext]
    ) -> None:
        """Refuse policies whose hooks the role of their party never reaches, or whose own check fails.

        Args:
            policies: by party.
            topology: the role of each party.
            contexts: for each role what policies may check.

        Raises:
            PolicyError: names defense and points.
        """
        for party, chain in policies.items():
            role = topology.assigned[party]
            check_hooks(chain, self.roles[role].points, contexts[role], elsewhere=self.points())

    def check_own_policies(self, ctx: Context, context: PolicyContext) -> None:
        """Refuse the party's own policies as :meth:`check_policies` does, before its program begins."""
        self.check_policies({ctx.party: ctx.policies.policies}, ctx.topology, {ctx.role: context})

    @classmethod
    def points(cls) -> dict[str, frozenset[str]]:
        """Return by role the policy points that its program visits."""
        return {name: role.points for name, role in cls.roles.items()}

    def make_behavior(self, settings: Mapping[str, Any]) -> Any:
        """Return a malicious behavior of a passive party from ``kind`` and parameters.

        Raises:
            JobError: the model knows no such behavior, or a parameter is unfit.
        """
        kind = settings["kind"]
        if self.behaviors is None:
            reason = f"no party of this model can behave as {kind!r} in training"
            raise JobError(reason, code="unsupported", value=kind)
        return self.behaviors.make(kind, {name: value for name, value in settings.items() if name != "kind"})

    def check_start(self, run: Path, data: VerticalDataset, share: S) -> None:
        """Refuse parameters that a warm start from the active party's share would ignore.

        Raises:
            JobError: such a parameter; ``run`` is where the share comes from.
        """

    def together(self, parties: int) -> AbstractContextManager[None]:
        """Return the context manager in which this many parties of one process run."""
        return nullcontext()

    def own(self, view: View, own: AttackerData, share: S) -> AttackerData:
        """Return the attacker's own knowledge: its columns, and its part of the model if attacks can use it.

        Args:
            view: of the party.
            own: its columns.
            share: its share.

        Raises:
            DataError: the share belongs to another party.
        """
        return own

    def shared_start(self, view: View) -> SharedStart:
        """Return the initial weights of the run's networks as the shared seed would give them (up to version 0.1.0)."""
        return SharedStart(tops=lambda classes: (), bottom=None)

    def embeddings(self, share: S, inputs: PartyDataset, rows: Labels, *, seed: int) -> tuple[Floats, Floats] | None:
        """Return a party's embeddings of its columns by the trained and by the untrained bottom model.

        Args:
            share: of a passive party.
            inputs: the party's columns.
            rows: positions of training rows.
            seed: of the run.

        Returns:
            float64 [rows, numbers] twice; None where the model makes no embeddings.
        """
        return None

    def class_maps(self, shares: Mapping[str, S], data: VerticalDataset, rows: Labels) -> dict[str, ImageMaps]:
        """Return by party the class activation maps of the output for the true label; empty without images.

        Args:
            shares: of all parties.
            data: of all parties.
            rows: positions of test rows.
        """
        return {}

    @property
    def deviance_power(self) -> float | None:
        """Power of the mean in the variance, for models of counts and the like: 1 for Poisson, up to 2; else None."""
        return None

    @abstractmethod
    def program(self, ctx: Context, agreed: Agreement, inputs: PartyInputs, engine: Engine) -> RoleResult[S]:
        """Run the party's program in its role, after the handshake: exchange the key, train, predict the test rows.

        Raises:
            LabelwardError: as the roles of the protocol do.
        """

    @abstractmethod
    def pooled(self, data: VerticalDataset, parties: Sequence[PartyDataset], *, seed: int, precision: int) -> Floats:
        """Train the same algorithm, undefended and unencrypted, on one table with these parties' columns.

        Args:
            data: labels and weights.
            parties: those of its parties whose columns are used.

        Returns:
            float64 [test rows, outputs], the margins. Without any column they are all the same.
        """

    @abstractmethod
    def visibility(self, view: View, own: AttackerData, labels: Labels) -> VisibilityCounts:
        """Count the information visible to a party in its role, and measure what it tells about others' labels.

        Args:
            view: of the party, or of a coalition.
            own: columns of the party, or of all members.
            labels: int64 [training rows]: classes, or the bins of regression targets.
        """

    def load(self, folder: Path) -> S:
        """Read a share; :class:`~labelward.errors.FileFormatError` if it is missing or damaged."""
        share: S = self.share_type.load(folder)
        return share

    @abstractmethod
    def predict(self, ctx: Context, share: S, x: Floats, mode: PredictMode = "one-round") -> Floats:
        """Predict with the peers of the context.

        Returns:
            float64 [rows, outputs]: the margins of each row, at the coordinator. All others answer its requests until
            there are no more, and return float64 [0, 0].
        """


def one_round(mode: PredictMode) -> None:
    """Refuse any other way to predict."""
    if mode != "one-round":
        raise JobError(f"{mode!r} is for SecureBoost and forests", code="unsupported", field="--mode", value=mode)


def refuse_unaligned(kind: str, data: VerticalDataset) -> None:
    """Refuse rows that only the active party holds, for a model that has no use for them."""
    if data.parties[0].unaligned is not None:
        raise JobError(
            f"{kind!r} learns from rows that all parties hold only; remove [data] aligned or the party's unaligned",
            code="unsupported",
            field="[data] aligned",
            value=len(data.parties[0].unaligned.values),
        )


def refuse_unsupported(kind: str, data: VerticalDataset) -> None:
    """Refuse validation and unaligned rows, row weights and monotone constraints, for a model that takes none."""
    if len(data.validation_values):
        raise JobError(f"means nothing for {kind!r}", code="unsupported", field="[data] validation_size")
    refuse_unaligned(kind, data)
    if (data.train_weights != 1).any():
        raise DataError(f"{kind!r} takes no row weights", code="unsupported", field=data.label)
    if any(party.monotone for party in data.parties):
        raise JobError("monotone constraints are not supported", code="unsupported", field="[data] monotone")


def attacker_data(inputs: PartyDataset) -> AttackerData:
    """Return a party's training columns in the form used by attacks."""
    categories = {inputs.columns[position]: len(names) for position, names in inputs.categories.items()}
    return AttackerData(
        features=inputs.train, columns=inputs.columns, categories=categories, monotone=inputs.directions
    )
