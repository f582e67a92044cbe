"""The family of PIVODL: boosted trees on labels that several parties hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyDataset, VerticalDataset
from labelward.errors import DataError, JobError
from labelward.he import Engine
from labelward.messages.pivodl import (
    BestGains,
    ChildRows,
    ChildTotals,
    ChosenCandidates,
    ColumnCodes,
    HeldRows,
    MaskedMargins,
    MaskedSums,
    OwnSums,
    PartyKeys,
    ReachedLeaves,
    RootTotals,
    SplitSides,
    TotalSums,
    WinningCandidates,
)
from labelward.party.context import Context
from labelward.party.handshake import Agreement
from labelward.party.roles import PASSIVE, Role, Topology
from labelward.party.view import View
from labelward.policy.base import HOLDER_POINTS, Policy, PolicyContext
from labelward.protocols.common import LabelVector, PartyInputs
from labelward.protocols.family import ModelFamily, PredictMode, RoleResult, label_vector
from labelward.protocols.pivodl.joined import train_joined
from labelward.protocols.pivodl.params import Pivodl
from labelward.protocols.pivodl.predict import predict_rows
from labelward.protocols.pivodl.secure_sums import SecureSums
from labelward.protocols.pivodl.share import PivodlShare
from labelward.protocols.pivodl.training import Fixed, OwnColumns, Training
from labelward.runs.schema import VisibilityCounts

Floats = NDArray[np.float64]

HOLDER, SOURCE = "holder", "source"
_ANYONE = (
    *(PartyKeys, ColumnCodes, TotalSums, RootTotals, BestGains, WinningCandidates, ChosenCandidates),
    *(ChildRows, ChildTotals, SplitSides, ReachedLeaves, MaskedMargins),
)
"""What every party may send: each is a source, and may be anybody's split client."""
_LABELED = (*_ANYONE, HeldRows, OwnSums, MaskedSums)
_POINTS = frozenset(HOLDER_POINTS)


class PivodlFamily(ModelFamily[PivodlShare]):
    """PIVODL. A ``holder`` labels some rows; a ``source`` has columns only. Roles at a node are drawn anew."""

    roles: ClassVar[Mapping[str, Role]] = {
        HOLDER: Role(attacks_as=(PASSIVE,), points=_POINTS, sends={HOLDER: _LABELED, SOURCE: _LABELED}),
        SOURCE: Role(attacks_as=(PASSIVE,), points=_POINTS, sends={HOLDER: _ANYONE, SOURCE: _ANYONE}),
    }
    metered: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    defended_alike: ClassVar[bool] = True

    params: Pivodl

    @classmethod
    def topology(cls, parties: Sequence[str], holders: Sequence[str]) -> Topology:
        """See :meth:`ModelFamily.topology`: at least two label holders, of which the first coordinates."""
        if len(holders) < 2 or parties[0] not in holders:
            raise JobError(
                "needs at least two label holders",
                code="unsupported",
                field="[data] labels",
                value=tuple(holders),
            )
        return Topology(assigned={party: HOLDER if party in holders else SOURCE for party in parties}, roles=cls.roles)

    def check(
        self, data: VerticalDataset, policies: Mapping[str, Sequence[Policy]], *, passive: Sequence[str] | None = None
    ) -> None:
        """See :meth:`ModelFamily.check`."""
        if len(data.classes) != 2:
            found = f"{len(data.classes)} classes" if data.classes else "regression targets"
            raise JobError(
                f"{self.params.kind!r} is for two classes, not {found}", code="unsupported", field="[model] kind"
            )
        if len(data.validation_values):
            raise JobError("means nothing for 'pivodl'", code="unsupported", field="[data] validation_size")
        if (data.train_weights != 1).any():
            raise DataError("'pivodl' takes no row weights", code="unsupported", field=data.label)
        for party in data.parties:
            if party.monotone:
                raise JobError("monotone constraints are not supported", code="unsupported", field="[data] monotone")
        parties = [party.name for party in data.parties]
        topology = self.topology(parties, data.holders)
        columns = sum(len(party.columns) for party in data.parties)
        context = self._context(parties, data.holders, columns)
        self.check_policies(policies, topology, dict.fromkeys((HOLDER, SOURCE), context))

    def _context(self, parties: Sequence[str], holders: Sequence[str], columns: int) -> PolicyContext:
        params = self.params
        return PolicyContext(
            model=params.kind,
            classes=2,
            passive=tuple(parties[1:]),
            trees=params.trees,
            depth=params.depth,
            columns=columns,
            holders=len(holders),
        )

    def program(self, ctx: Context, agreed: Agreement, inputs: PartyInputs, engine: Engine) -> RoleResult[PivodlShare]:
        """See :meth:`ModelFamily.program`."""
        params, data, rows = self.params, inputs.data, len(inputs.data.train)
        order = np.frombuffer(ctx.protection.bytes(8 * len(data.columns)), dtype="<u8").argsort()
        with ctx.phase("binning"):
            sizes = {position: len(names) for position, names in data.categories.items()}
            own = OwnColumns(data.train, sizes, params.bins, order)
        sums = SecureSums(
            ctx, agreed, ctx.topology.parties(HOLDER), engine if params.aggregation == "paillier" else None
        )
        labels = np.full(rows, np.nan) if inputs.labels is None else inputs.labels.values[:rows]
        training = Training(ctx, Fixed.of(params, rows, agreed.precision), sums, own, ~np.isnan(labels), labels)
        columns = sum(len(source.sizes) for source in training.sources.values())
        ctx.policies.begin(self._context(training.parties, sums.holders, columns), ctx.protection)
        trees = training.run()
        for account in ctx.policies.accounts():
            ctx.applied({"stage": "end", **account})
        share = PivodlShare(
            model=sums.model,
            party=ctx.party,
            parties=training.parties,
            holders=sums.holders,
            columns=data.columns,
            own=tuple(training.records),
            trees=trees,
            classes=inputs.labels.classes if inputs.labels is not None else (),
            categories=inputs.categories,
        )
        with ctx.phase("predict"):
            margins = predict_rows(ctx, share, data.test)
        return RoleResult(share=share, counts=sums.counts(), margins=margins, fingerprint=sums.fingerprint)

    def predict(self, ctx: Context, share: PivodlShare, x: Floats, mode: PredictMode = "one-round") -> Floats:
        """See :meth:`ModelFamily.predict`."""
        if mode != "one-round":
            raise JobError(f"{mode!r} is for SecureBoost and forests", code="unsupported", field="--mode", value=mode)
        return predict_rows(ctx, share, x)

    def predicted(self, margins: Floats, classes: Sequence[str]) -> Floats:
        """See :meth:`ModelFamily.predicted`."""
        from scipy.special import expit

        second = expit(margins[:, 0])
        return np.stack([1 - second, second], axis=1)

    def margins_say_all(self, classes: Sequence[str]) -> bool:
        """See :meth:`ModelFamily.margins_say_all`."""
        return False

    @property
    def deviance_power(self) -> float | None:
        """See :attr:`ModelFamily.deviance_power`."""
        return None

    def pooled(self, data: VerticalDataset, parties: Sequence[PartyDataset], *, seed: int, precision: int) -> Floats:
        """See :meth:`ModelFamily.pooled`."""
        labels: LabelVector = label_vector(data)
        return train_joined(self.params, parties, labels.values, precision=precision).margins([p.test for p in parties])

    def visibility(self, view: View, inputs: PartyDataset, labels: NDArray[np.int64]) -> VisibilityCounts:
        """See :meth:`ModelFamily.visibility`: the public trees, and the sums that the party opened."""
        trees = {message.step[0] for message in view.received(RootTotals)}
        masks = [mask for each in view.received(ChildRows) for mask in each.message.left.value]
        opened = sum(1 for _ in view.received(TotalSums))
        return VisibilityCounts(
            role=view.header.role, rows=view.rows, trees=len(trees), told_splits=len(masks), decrypted_sums=opened
        )

    def load(self, folder: Path) -> PivodlShare:
        """See :meth:`ModelFamily.load`."""
        return PivodlShare.load(folder)
