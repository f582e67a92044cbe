"""The family of PIVODL: boosted trees on labels that several parties hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData
from labelward.data import PartyDataset, VerticalDataset
from labelward.errors import JobError
from labelward.he import Engine
from labelward.kernels.noisy_gain import SumNoise
from labelward.messages.pivodl import (
    AllowedCandidates,
    BestGains,
    ChildRows,
    ChildTotals,
    ChosenCandidates,
    ColumnCodes,
    ColumnOrder,
    HeldRows,
    LabelTotal,
    MaskedMargins,
    MaskedSums,
    NodeBins,
    OwnSums,
    PartyKeys,
    ReachedLeaves,
    RootTotals,
    SplitSides,
    TotalSums,
    TreeEnd,
    WinningCandidates,
)
from labelward.party.context import HEAD, Context
from labelward.party.handshake import Agreement
from labelward.party.roles import PASSIVE, Role, Topology
from labelward.party.view import View
from labelward.policy.base import HOLDER_POINTS, Policy, PolicyContext
from labelward.protocols.common import LabelVector, PartyInputs, class_probabilities
from labelward.protocols.common.columns import OwnColumns
from labelward.protocols.family import (
    ModelFamily,
    PartyShare,
    PredictMode,
    RoleResult,
    label_vector,
    one_round,
    refuse_unsupported,
    split_remark,
)
from labelward.protocols.pivodl.agreed_sizes import checked_offer, largest_message, offered_columns
from labelward.protocols.pivodl.boosting import load_progress, train_trees
from labelward.protocols.pivodl.fixed import Fixed
from labelward.protocols.pivodl.joined import train_joined
from labelward.protocols.pivodl.label_scale import LabelScale, agree_on_scale
from labelward.protocols.pivodl.params import Pivodl
from labelward.protocols.pivodl.predict import predict_rows
from labelward.protocols.pivodl.secure_sums import SecureSums
from labelward.protocols.pivodl.share import PivodlShare
from labelward.protocols.pivodl.training import Training
from labelward.runs.schema import VisibilityCounts

Floats = NDArray[np.float64]

HOLDER, SOURCE = "holder", "source"
_ANYONE = (
    *(
        PartyKeys,
        HeldRows,
        ColumnCodes,
        TotalSums,
        LabelTotal,
        RootTotals,
        BestGains,
        WinningCandidates,
        ChosenCandidates,
    ),
    *(NodeBins, AllowedCandidates, ChildRows, ChildTotals, TreeEnd, SplitSides, ReachedLeaves, MaskedMargins),
)
"""What every party may send: each is a source, and may be anybody's split client."""
_LABELED = (*_ANYONE, OwnSums, MaskedSums)
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

    share_type: ClassVar[type[PivodlShare]] = PivodlShare

    params: Pivodl

    @property
    def uses_engine(self) -> bool:
        """See :attr:`ModelFamily.uses_engine`: masks need no key."""
        return self.params.aggregation == "paillier"

    def topology(self, parties: Sequence[str], holders: Sequence[str]) -> Topology:
        """See :meth:`ModelFamily.topology`: at least two label holders, of which the first coordinates."""
        if len(holders) < 2 or parties[0] not in holders:
            raise JobError(
                "needs at least two label holders",
                code="unsupported",
                field="[data] labels",
                value=tuple(holders),
            )
        return Topology(assigned={party: HOLDER if party in holders else SOURCE for party in parties}, roles=self.roles)

    def share_topology(self, share: PartyShare) -> Topology:
        """See :meth:`ModelFamily.share_topology`: a share names the label holders of the training."""
        assert isinstance(share, PivodlShare)
        return self.topology(share.parties, share.holders)

    def remark(self, parties: Sequence[str]) -> str:
        """See :meth:`ModelFamily.remark`."""
        exact = (
            "without 'label-dp-sums' the opened sums tell any party labels of others exactly, the more of them the "
            "more splits there are; the attack 'bin-bounds' counts them"
        )
        if len(parties) > 2:
            return exact
        return f"{exact}; with two parties, each learns all sums of the other by subtracting its own from the totals"

    def remark_on(self, share: PivodlShare) -> str:
        """See :meth:`ModelFamily.remark_on`."""
        return split_remark(sum(len(tree.nodes) for tree in share.trees), "min_rows, min_node_rows or gamma")

    def check_between_companies(self, policies: Sequence[Policy]) -> None:
        """See :meth:`ModelFamily.check_between_companies`: exact sums must be allowed."""
        noisy = any(type(each).sum_noise is not Policy.sum_noise for each in policies)
        if self.params.opened_sums == "refuse" and not noisy:
            raise JobError(
                "opens sums without noise, from which any party reads labels of others exactly; add the defense "
                "'label-dp-sums' and choose it with --defense, or set this to 'allow'",
                code="insecure",
                field="[model] opened_sums",
                value=self.params.opened_sums,
            )

    def check(
        self, data: VerticalDataset, policies: Mapping[str, Sequence[Policy]], *, passive: Sequence[str] | None = None
    ) -> None:
        """See :meth:`ModelFamily.check`."""
        check_data(self.params.kind, data)
        if passive is None:
            self.params.check_holders({party: int(data.holds(party).sum()) for party in data.holders})
        here = [party.name for party in data.parties]
        parties = here if passive is None else [here[0], *passive]
        topology = self.topology(parties, data.holders)
        columns = sum(len(party.columns) for party in data.parties)
        context = self._context(parties, data.holders, columns, len(data.classes), len(data.train_values))
        self.check_policies(policies, topology, dict.fromkeys((HOLDER, SOURCE), context))

    def _context(
        self, parties: Sequence[str], holders: Sequence[str], columns: int, classes: int, rows: int
    ) -> PolicyContext:
        params = self.params
        return PolicyContext(
            model=params.kind,
            classes=classes,
            passive=tuple(parties[1:]),
            trees=params.trees,
            depth=params.depth,
            columns=columns,
            holders=len(holders),
            rows=rows,
        )

    def program(self, ctx: Context, agreed: Agreement, inputs: PartyInputs, engine: Engine) -> RoleResult[PivodlShare]:
        """See :meth:`ModelFamily.program`."""
        params, data, rows = self.params, inputs.data, len(inputs.data.train)
        for peer in ctx.peers:
            ctx.expect(peer, engine.key_bytes(agreed.bits) + rows // 8 + HEAD)
        order = ctx.private.learning(ctx.seed, 0, "column order").permutation(len(data.columns))
        ctx.observe(ColumnOrder(tuple(order.tolist())))
        with ctx.phase("binning"):
            own = OwnColumns.of(data, params.most_bins, order)
        saved = load_progress(ctx, agreed.resume)
        engine_of_sums = engine if params.aggregation == "paillier" else None
        holders = ctx.topology.parties(HOLDER)
        sums = SecureSums(ctx, agreed, holders, engine_of_sums, offered_columns(own), model=saved.model)
        if agreed.resume:
            ctx.checkpoints.name_model(sums.model, agreed.resume)
        offers = {party: checked_offer(party, each, params.most_bins) for party, each in sums.offers.items()}
        columns, quantities = sum(each.columns for each in offers.values()), self._quantities(agreed)
        parties, classes = tuple(ctx.topology.assigned), 0 if quantities else 2
        context = self._context(parties, sums.holders, columns, classes, rows)
        self.check_own_policies(ctx, context)
        noise = None
        if deviation := ctx.policies.sum_noise(context):
            noise = SumNoise(deviation, max(1, *(each.widest for each in offers.values())))
        fixed = Fixed.of(params, rows, agreed.precision, quantities=quantities, noise=noise)
        form = None if engine_of_sums is None else engine_of_sums.ciphertext_format(fixed.layout, agreed.bits)
        for peer in ctx.peers:
            ctx.expect(peer, largest_message(fixed, offers, peer, ctx.party, form))
        labels = np.full(rows, np.nan) if inputs.labels is None else inputs.labels.values[:rows]
        known = ~np.isnan(labels)
        scale = agree_on_scale(ctx, sums, labels[known], rows) if quantities else LabelScale()
        training = Training(ctx, fixed, sums, own, known, scale.standardized(labels))
        trees = train_trees(ctx, training, context, sums.model, saved, agreed.resume)
        for account in (*ctx.policies.accounts(), *self._threshold_account(training)):
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
            scale=scale,
            categories=inputs.categories,
        )
        with ctx.phase("predict"):
            margins = predict_rows(ctx, share, data.test)
        return RoleResult(share=share, counts=sums.counts(), margins=margins, fingerprint=sums.fingerprint)

    def predict(self, ctx: Context, share: PivodlShare, x: Floats, mode: PredictMode = "one-round") -> Floats:
        """See :meth:`ModelFamily.predict`."""
        one_round(mode)
        return predict_rows(ctx, share, x)

    def _threshold_account(self, training: Training) -> list[dict[str, Any]]:
        """Return how many of the party's candidates the instance threshold refused, where there is one."""
        if not self.params.instance_threshold:
            return []
        parameters = {"rows": self.params.instance_threshold, "threshold": self.params.threshold}
        share = training.refused / max(training.offered, 1)
        tallies = {"refused_candidates": training.refused, "share_of_refused_candidates": round(share, 4)}
        return [{"kind": "instance-threshold", "parameters": parameters, "points": [], **tallies}]

    @staticmethod
    def _quantities(agreed: Agreement) -> bool:
        """Return whether labels are quantities, which all parties know from the job."""
        return bool(json.loads(agreed.job.get("data.task", "null")) == "regression")

    def predicted(self, margins: Floats, classes: Sequence[str]) -> Floats:
        """See :meth:`ModelFamily.predicted`."""
        if not classes:
            return margins[:, 0]
        return class_probabilities(margins[:, 0])

    def margins_say_all(self, classes: Sequence[str]) -> bool:
        """See :meth:`ModelFamily.margins_say_all`."""
        return not classes

    def pooled(self, data: VerticalDataset, parties: Sequence[PartyDataset], *, seed: int, precision: int) -> Floats:
        """See :meth:`ModelFamily.pooled`."""
        labels: LabelVector = label_vector(data)
        joined = train_joined(self.params, parties, labels.values, precision=precision, quantities=not data.classes)
        return joined.margins([party.test for party in parties])

    def visibility(self, view: View, own: AttackerData, labels: NDArray[np.int64]) -> VisibilityCounts:
        """See :meth:`ModelFamily.visibility`: the public trees, and the sums that the party opened."""
        trees = {message.step[0] for message in view.received(RootTotals)}
        masks = [mask for each in view.received(ChildRows) for mask in each.message.left.value]
        opened = sum(1 for _ in view.received(TotalSums))
        return VisibilityCounts(
            role=view.header.role, rows=view.rows, trees=len(trees), told_splits=len(masks), decrypted_sums=opened
        )


def check_data(kind: str, data: VerticalDataset) -> None:
    """Refuse labels, weights and constraints that the trees of this package do not take."""
    if len(data.classes) not in (0, 2):
        raise JobError(
            f"{kind!r} is for two classes or quantities, not {len(data.classes)} classes",
            code="unsupported",
            field="[model] kind",
        )
    refuse_unsupported(kind, data)
