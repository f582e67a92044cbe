"""Federated boosted trees as the evaluation runs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.contract import Own
from labelward.attacks.visible import visible_leaves
from labelward.data import PartyData, Rehearsal, require_binary
from labelward.evaluate.exposure import information
from labelward.evaluate.programs import Ended, Programs
from labelward.evaluate.results import Seen
from labelward.he import Engine
from labelward.messages.tree import DecryptedSums, InstanceSpaces, Level, OwnSplit
from labelward.party.context import Context
from labelward.party.handshake import Agreed
from labelward.party.policy import Policy, Setup, require_points
from labelward.party.transcript import FORMAT, Header, Transcript
from labelward.party.view import View
from labelward.protocols.tree.active import VISITED, train_active
from labelward.protocols.tree.columns import Columns
from labelward.protocols.tree.params import SecureBoost
from labelward.protocols.tree.predict import predict_active, predict_passive
from labelward.protocols.tree.roles import Task, run_active, run_passive
from labelward.protocols.tree.share import ModelShare
from labelward.transport.inprocess import connect

__all__ = ["TreePrograms"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


class TreePrograms(Programs[ModelShare]):
    """SecureBoost."""

    def __init__(self, params: SecureBoost) -> None:
        self.params = params

    def check(self, data: Rehearsal, policies: Sequence[Policy]) -> None:
        """See :meth:`Programs.check`."""
        require_binary(data.classes, self.params.kind, data.label)
        active, *passive = data.parties
        setup = Setup(
            model=self.params.kind,
            trees=self.params.trees,
            classes=len(data.classes),
            active_columns=len(active.columns),
            passive=tuple(party.name for party in passive),
            row_fraction=self.params.row_fraction,
        )
        require_points(policies, VISITED, setup)

    def active(self, ctx: Context, agreed: Agreed, data: Rehearsal, engine: Engine) -> Ended[ModelShare]:
        """See :meth:`Programs.active`."""
        own = data.parties[0]
        columns = Columns(own.columns, own.train)
        ended = run_active(
            ctx, Task(params=self.params, agreed=agreed), columns, own.test, data.train_labels, data.classes, engine
        )
        return Ended(share=ended.share, counts=ended.counts, margins=ended.margins, fingerprint=ended.fingerprint)

    def passive(self, ctx: Context, agreed: Agreed, data: PartyData, engine: Engine) -> Ended[ModelShare]:
        """See :meth:`Programs.passive`."""
        ended = run_passive(
            ctx, Task(params=self.params, agreed=agreed), Columns(data.columns, data.train), data.test, engine
        )
        return Ended(share=ended.share, counts=ended.counts)

    def pooled(self, parties: Sequence[PartyData], labels: Labels, *, seed: int, precision: int) -> Floats:
        """See :meth:`Programs.pooled`."""
        active = parties[0].name
        rows = len(labels), len(parties[0].test)
        header = Header(FORMAT, "", active, "active", (), rows, "none", 0, (), {})
        transport = connect([active])[active]
        ctx = Context(transport, active=active, peers=(), transcript=Transcript(header), seed=seed)
        blocks = {party.name: Columns(party.columns, party.train) for party in parties}
        trained = train_active(ctx, self.params, blocks, labels, None, precision=precision)
        share = ModelShare(
            model="", party=active, parties=trained.owners, columns=(), own=trained.own[active], trees=trained.trees
        )
        held = {party.name: (trained.own[party.name], party.test) for party in parties}
        return predict_active(ctx, share, held, rows[1])

    def seen_by_active(self, view: View) -> Seen:
        """See :meth:`Programs.seen_by_active`; a tree without a split shows nothing and is not counted."""
        levels = list(view.observed(InstanceSpaces))
        owners = [owner for level in levels for owner in level.owners]
        trees = {level.tree for level in levels}
        decrypted = sum(int(np.prod(each.sums.shape)) for each in view.observed(DecryptedSums))
        own = owners.count(view.party)
        return Seen(
            role="active",
            rows=view.rows,
            trees=len(trees),
            nodes=len(trees) + 2 * len(owners),
            leaves=len(trees) + len(owners),
            own_splits=own,
            told_splits=len(owners) - own,
            decrypted_sums=decrypted,
        )

    def seen_by_passive(self, view: View, held: PartyData, labels: Labels) -> Seen:
        """See :meth:`Programs.seen_by_passive`."""
        leaves = visible_leaves(view, Own(features=held.train, columns=held.columns))
        told = information(leaves, labels)
        return Seen(
            role="passive",
            rows=view.rows,
            trees=len(leaves),
            nodes=told.nodes,
            leaves=told.leaves,
            own_splits=sum(1 for _ in view.observed(OwnSplit)),
            told_splits=sum(len(received.message.splits) for received in view.received(Level)),
            max_node_information=told.max_node_information,
            max_node_bound=told.max_node_bound,
            joint_information=told.joint_information,
            joint_bound=told.joint_bound,
            label_entropy=told.label_entropy,
        )

    def load(self, folder: Path) -> ModelShare:
        """See :meth:`Programs.load`."""
        return ModelShare.load(folder)

    def predict_active(self, ctx: Context, share: ModelShare, x: Floats) -> Floats:
        """See :meth:`Programs.predict_active`."""
        return predict_active(ctx, share, {ctx.party: (share.own, x)}, len(x))

    def predict_passive(self, ctx: Context, share: ModelShare, x: Floats) -> None:
        """See :meth:`Programs.predict_passive`."""
        predict_passive(ctx, share, x)
