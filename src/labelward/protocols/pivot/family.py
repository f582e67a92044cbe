"""The family of Pivot: a classification tree on shares, with a dealer beside the parties that hold data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData
from labelward.data import PartyDataset, VerticalDataset
from labelward.errors import JobError
from labelward.he import Counts, Engine
from labelward.messages.pivot import (
    ChildCiphertexts,
    DealEnd,
    DealerExchange,
    DealRequest,
    DealtCorrections,
    DealtParcel,
    LabelRows,
    LeafClasses,
    MaskedShares,
    MaskedStatistics,
    OpenedTree,
    PartialDecryptions,
    ResultShares,
    SplitNodes,
    SplitOffers,
    SplitPlaces,
    SumMasks,
)
from labelward.party.context import Context
from labelward.party.handshake import Agreement
from labelward.party.roles import ACTIVE, PASSIVE, Role, Topology
from labelward.party.view import View
from labelward.policy.base import Policy, PolicyContext
from labelward.protocols.common import LabelVector, PartyInputs
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
from labelward.protocols.pivot.agreed_sizes import TrainingSizes, prediction_bytes
from labelward.protocols.pivot.arithmetic import HEAD
from labelward.protocols.pivot.cart import grow_plain
from labelward.protocols.pivot.dealer import KeyTerms, deal, receive
from labelward.protocols.pivot.params import Pivot
from labelward.protocols.pivot.predict import predict_classes
from labelward.protocols.pivot.share import PivotShare
from labelward.protocols.pivot.training import MOST_CLASSES, GrownTree, TreeTraining, shared_arithmetic
from labelward.runs.schema import VisibilityCounts

Floats = NDArray[np.float64]

DEALER = "dealer"
_SHARED = (SplitOffers, SumMasks, MaskedStatistics, PartialDecryptions, MaskedShares, ChildCiphertexts)
"""What the parties with data may send each other."""


class _Begun(msgspec.Struct, frozen=True):
    """What a party stores of a training: that it has begun, and with which columns and labels."""


class PivotFamily(ModelFamily[PivotShare]):
    """Pivot, basic protocol for classification trees; the label holder coordinates.

    An interrupted training begins anew, with another key and other seeds: no share, mask or product serves twice, and
    no part of a key is ever stored. What was opened is opened again, since the tree is a function of the tables; a
    party whose columns or labels have changed meanwhile refuses to go on.
    """

    roles: ClassVar[Mapping[str, Role]] = {
        ACTIVE: Role(
            attacks_as=(ACTIVE,),
            sends={
                PASSIVE: (*_SHARED, LabelRows, SplitNodes, SplitPlaces, LeafClasses),
                DEALER: (DealerExchange, DealRequest, DealEnd),
            },
        ),
        PASSIVE: Role(
            attacks_as=(PASSIVE,),
            sends={ACTIVE: (*_SHARED, ResultShares), PASSIVE: _SHARED, DEALER: (DealerExchange,)},
        ),
        DEALER: Role(attacks_as=(), sends={ACTIVE: (DealtParcel, DealtCorrections), PASSIVE: (DealtParcel,)}),
    }
    metered: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    states_sizes: ClassVar[bool] = True

    share_type: ClassVar[type[PivotShare]] = PivotShare

    params: Pivot

    def topology(self, parties: Sequence[str], holders: Sequence[str]) -> Topology:
        """See :meth:`ModelFamily.topology`: one label holder, at least one other party with columns, and the dealer."""
        return self._topology(parties, holders, self.params.dealer)

    def _topology(self, parties: Sequence[str], holders: Sequence[str], dealer: str | None) -> Topology:
        star = super().topology(parties, holders)
        if dealer is None:
            raise JobError("required: a party without columns", code="missing", field="[model] dealer")
        if dealer not in parties:
            reason = f"{dealer!r} is none of the parties; add a party without columns: [parties] {dealer} = []"
            raise JobError(reason, code="missing", field="[model] dealer", value=dealer)
        if dealer == parties[0]:
            raise JobError("holds the labels, and cannot deal", code="conflict", field="[model] dealer", value=dealer)
        if len(parties) < 3:
            reason = "needs a party with columns beside the label holder and the dealer"
            raise JobError(reason, code="unsupported", field="[parties]", value=tuple(parties))
        return Topology(assigned={**star.assigned, dealer: DEALER}, roles=self.roles)

    def share_topology(self, share: PartyShare) -> Topology:
        """See :meth:`ModelFamily.share_topology`: a share names the dealer of the training."""
        assert isinstance(share, PivotShare)
        return self._topology(share.parties, share.parties[:1], share.dealer)

    def remark_on(self, share: PivotShare) -> str:
        """See :meth:`ModelFamily.remark_on`."""
        return split_remark(len(share.nodes), "min_rows or min_node_rows")

    def check(
        self, data: VerticalDataset, policies: Mapping[str, Sequence[Policy]], *, passive: Sequence[str] | None = None
    ) -> None:
        """See :meth:`ModelFamily.check`."""
        kind = self.params.kind
        if not 2 <= len(data.classes) <= MOST_CLASSES:
            reason = f"{kind!r} is for 2 to {MOST_CLASSES} classes, not {len(data.classes) or 'quantities'}"
            raise JobError(reason, code="unsupported", field="[model] kind", value=len(data.classes))
        refuse_unsupported(kind, data)
        here = [party.name for party in data.parties]
        parties = here if passive is None else [here[0], *passive]
        topology = self.topology(parties, data.holders)
        for party in data.parties:
            self._check_dealer(party.name, party.columns)
        self.params.check_rows(len(data.train_values), len(parties) - 1)
        context = PolicyContext(model=kind, classes=len(data.classes), passive=tuple(parties[1:]), trees=1)
        self.check_policies(policies, topology, dict.fromkeys(self.roles, context))

    def _check_dealer(self, party: str, columns: Sequence[str]) -> None:
        """Refuse a dealer with data of its own: what it deals opens all that the others exchange."""
        if party == self.params.dealer and columns:
            reason = f"{party!r} has columns of its own; a dealer must hold none"
            raise JobError(reason, code="conflict", field="[model] dealer", value=tuple(columns))

    def program(self, ctx: Context, agreed: Agreement, inputs: PartyInputs, engine: Engine) -> RoleResult[PivotShare]:
        """See :meth:`ModelFamily.program`."""
        params, data, labels = self.params, inputs.data, inputs.labels
        offer, parties = KeyTerms(engine, agreed.bits, agreed.insecure), tuple(ctx.topology.assigned)
        self._check_dealer(ctx.party, data.columns)
        for peer in ctx.peers:
            ctx.expect(peer, engine.key_bytes(agreed.bits) + HEAD)
        ctx.save(0, _Begun(), peers=dict.fromkeys(ctx.peers, 0))
        if ctx.role == DEALER:
            sharing = tuple(party for party in parties if party != ctx.party)
            model = deal(ctx, sharing, offer)
            share = PivotShare(model=model, party=ctx.party, parties=parties, dealer=ctx.party)
            return RoleResult(share=share, counts=Counts())
        outputs = 0 if labels is None else len(labels.classes)
        sizes = TrainingSizes.of(ctx, params, agreed.rows, agreed.classes or outputs, offer)
        drawn = ctx.protection.bytes(8).hex() if ctx.party == ctx.topology.coordinator else ""
        if labels is None:
            ctx.expect(ctx.topology.coordinator, None if sizes is None else sizes.labels)
        (dealer,) = ctx.topology.parties(DEALER)
        dealt = receive(ctx, dealer, offer, drawn)
        assert dealt.part is not None
        mpc = shared_arithmetic(ctx, dealer, dealt)
        with ctx.phase("binning"):
            own = OwnColumns.of(data, params.most_bins)
        known = None if labels is None else labels.values[: len(data.train)].astype(np.int64)
        training = TreeTraining(mpc, dealt, params, data.train, own, known, outputs, sizes)
        share = self._share(ctx, dealt.model, training.grow(), inputs, training.classes)
        with ctx.phase("predict"):
            margins = predict_classes(mpc, share, data.test)
        mpc.end()
        public = dealt.part.public
        return RoleResult(share=share, counts=public.counts, margins=margins, fingerprint=public.fingerprint)

    def _share(self, ctx: Context, model: str, tree: GrownTree, inputs: PartyInputs, outputs: int) -> PivotShare:
        parties = tuple(ctx.topology.assigned)
        nodes, leaves = tuple(sorted(tree.owners)), tuple(sorted(tree.labels))
        return PivotShare(
            model=model,
            party=ctx.party,
            parties=parties,
            dealer=ctx.topology.parties(DEALER)[0],
            columns=inputs.data.columns,
            own=tree.own,
            nodes=nodes,
            owners=tuple(parties.index(tree.owners[node]) for node in nodes),
            leaves=leaves,
            labels=tuple(tree.labels[leaf] for leaf in leaves),
            outputs=outputs,
            classes=() if inputs.labels is None else inputs.labels.classes,
            categories=inputs.categories,
        )

    def predict(self, ctx: Context, share: PivotShare, x: Floats, mode: PredictMode = "one-round") -> Floats:
        """See :meth:`ModelFamily.predict`: with new seeds of the dealer, and without any key."""
        one_round(mode)
        for peer in ctx.peers:
            ctx.expect(peer, HEAD)
        if ctx.party == share.dealer:
            deal(ctx, share.sharing, None)
            return np.empty((0, 0))
        for peer in share.sharing:
            if peer != ctx.party:
                ctx.expect(peer, prediction_bytes(len(x), len(share.leaves), share.outputs))
        mpc = shared_arithmetic(ctx, share.dealer, receive(ctx, share.dealer, None))
        margins = predict_classes(mpc, share, x)
        mpc.end()
        return margins

    def predicted(self, margins: Floats, classes: Sequence[str]) -> Floats:
        """See :meth:`ModelFamily.predicted`: a leaf has a class and no probability, so that these are 0 and 1."""
        return margins

    def margins_say_all(self, classes: Sequence[str]) -> bool:
        """See :meth:`ModelFamily.margins_say_all`."""
        return True

    def pooled(self, data: VerticalDataset, parties: Sequence[PartyDataset], *, seed: int, precision: int) -> Floats:
        """See :meth:`ModelFamily.pooled`: plain CART."""
        labels: LabelVector = label_vector(data)
        known = labels.values[: len(data.train_values)].astype(np.int64)
        tree = grow_plain(self.params, parties, known, len(data.classes))
        one_hot: Floats = np.eye(len(data.classes))[tree.classes([party.test for party in parties])]
        return one_hot

    def visibility(self, view: View, own: AttackerData, labels: NDArray[np.int64]) -> VisibilityCounts:
        """See :meth:`ModelFamily.visibility`: the public tree, and the shares and masked values that it received."""
        trees = list(view.observed(OpenedTree))
        shapes = [each.message.values.shape for each in view.received(MaskedShares)]
        shapes += [each.message.values.shape for each in view.received(ResultShares)]
        return VisibilityCounts(
            role=view.header.role,
            rows=view.rows,
            columns=len(own.columns),
            trees=len(trees),
            leaves=sum(len(tree.leaves) for tree in trees),
            own_splits=sum(len(tree.left) for tree in trees),
            numbers=sum(int(np.prod(shape)) for shape in shapes),
        )
