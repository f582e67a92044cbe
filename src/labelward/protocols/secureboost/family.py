"""The family of federated trees: SecureBoost and the federated forest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData
from labelward.attacks.instance_spaces import member_leaves, observed_leaves
from labelward.data import PartyDataset, VerticalDataset
from labelward.errors import DataError, JobError
from labelward.he import Engine
from labelward.kernels.objectives import Objective, evaluation_metric
from labelward.messages.explain import (
    ColumnsRequest,
    ExportConsent,
    ExportDecision,
    ExportRecords,
    ExportRequest,
    PathAnswers,
    PathRequest,
    RecordColumns,
)
from labelward.messages.handshake import KeyOffer
from labelward.messages.tree import (
    DecryptedSums,
    EncryptedForestRows,
    EncryptedLevelRows,
    EncryptedTreeRows,
    InstanceSpaces,
    LevelHistograms,
    LevelRequest,
    OwnSplit,
    PredictAnswers,
    PredictRequest,
    SplitMasks,
    TrainingEnd,
    TreeStart,
    WinningSplits,
)
from labelward.metrics.information import leakage_bounds
from labelward.party.context import Context
from labelward.party.handshake import Agreement
from labelward.party.in_process import standalone_context
from labelward.party.roles import ACTIVE, PASSIVE, Role
from labelward.party.view import View
from labelward.policy.base import Policy
from labelward.protocols.common import PartyInputs
from labelward.protocols.family import (
    ModelFamily,
    PredictMode,
    RoleResult,
    ValidationHistory,
    label_vector,
    refuse_unaligned,
    split_remark,
)
from labelward.protocols.secureboost.active import train_active
from labelward.protocols.secureboost.behavior import SumLies
from labelward.protocols.secureboost.inputs import Columns, TrainingTask, TreeInputs
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.policy_hooks import VISITED, VISITED_PASSIVE
from labelward.protocols.secureboost.predict import largest_question, predict_active, predict_passive
from labelward.protocols.secureboost.replay import replayed_rows
from labelward.protocols.secureboost.session import run_active, run_passive, setup_of
from labelward.protocols.secureboost.share import ModelShare
from labelward.protocols.secureboost.targets import check_model, fitted_objective
from labelward.registry import Registry
from labelward.runs.schema import VisibilityCounts

Floats = NDArray[np.float64]


class TreeFamily(ModelFamily[ModelShare]):
    """SecureBoost and the federated forest."""

    roles: ClassVar[Mapping[str, Role]] = {
        ACTIVE: Role(
            attacks_as=(ACTIVE,),
            points=VISITED,
            sends={
                PASSIVE: (
                    *(KeyOffer, TreeStart, EncryptedTreeRows, EncryptedForestRows, LevelRequest),
                    *(EncryptedLevelRows, WinningSplits),
                    *(TrainingEnd, PredictRequest, PathRequest, ColumnsRequest, ExportRequest, ExportDecision),
                )
            },
        ),
        PASSIVE: Role(
            attacks_as=(PASSIVE,),
            points=VISITED_PASSIVE,
            sends={
                ACTIVE: (
                    *(LevelHistograms, SplitMasks, PredictAnswers, PathAnswers, RecordColumns),
                    *(ExportConsent, ExportRecords),
                )
            },
        ),
    }

    states_sizes: ClassVar[bool] = True
    behaviors: ClassVar[Registry[SumLies]] = Registry("behavior", __package__, ["behavior:SumLies"])

    share_type: ClassVar[type[ModelShare]] = ModelShare

    params: TreeModel

    def check(
        self, data: VerticalDataset, policies: Mapping[str, Sequence[Policy]], *, passive: Sequence[str] | None = None
    ) -> None:
        """See :meth:`ModelFamily.check`."""
        active, *others = data.parties
        try:
            self._check_labels(data)
        except DataError as error:
            raise error.under(f"{data.label}:") from error
        self._check_idle(data)
        refuse_unaligned(self.params.kind, data)
        setup = setup_of(
            self.params,
            classes=len(data.classes),
            active_columns=len(active.columns),
            passive=tuple(party.name for party in others) if passive is None else tuple(passive),
        )
        alone = setup_of(self.params, classes=0, active_columns=0, passive=setup.passive)
        topology = self.topology((active.name, *setup.passive), (active.name,))
        self.check_policies(policies, topology, {ACTIVE: setup, PASSIVE: alone})

    def remark(self, parties: Sequence[str]) -> str:
        """See :meth:`ModelFamily.remark`: trees of a forest that draws nothing are copies of one tree."""
        params = self.params
        if params.kind != "forest" or params.trees == 1 or params.replace:
            return ""
        if min(params.row_fraction, params.feature_fraction) < 1:
            return ""
        return (
            f"the {params.trees} trees of the forest draw neither rows nor columns, so that all but those that a "
            "defense replaces are alike; set row_fraction or feature_fraction below 1, or replace = true"
        )

    def remark_on(self, share: ModelShare) -> str:
        """See :meth:`ModelFamily.remark_on`."""
        return split_remark(sum(len(tree.nodes) for tree in share.trees), "min_rows, min_child_weight or gamma")

    def _check_idle(self, data: VerticalDataset) -> None:
        """Refuse what would mean nothing for these labels and rows."""
        params, several = self.params, len(data.classes) > 2
        forest = params.kind == "forest"
        if forest and len(data.validation_values):
            raise JobError(
                "means nothing for 'forest', which has no rounds to stop at",
                code="unsupported",
                field="[data] validation_size",
            )
        if params.eval_metric != "auto" and not len(data.validation_values):
            raise JobError(
                f"{params.eval_metric!r} means nothing without validation rows ([data] validation_size is 0)",
                code="conflict",
                field="[model] eval_metric",
                value=params.eval_metric,
            )
        if params.multi_strategy != "multi_output_tree" and not several:
            raise JobError(
                f"{params.multi_strategy!r} means nothing but for several classes",
                code="unsupported",
                field="[model] multi_strategy",
                value=params.multi_strategy,
            )
        for party in data.parties:
            for column in party.monotone:
                if several or (forest and data.classes):
                    raise JobError(
                        f"column {party.columns[column]!r} of party {party.name!r}: monotone constraints are "
                        "supported for boosted trees with two classes or for regression, and for regression forests",
                        code="unsupported",
                        field="[data] monotone",
                        value=party.columns[column],
                    )

    def predicted(self, margins: Floats, classes: Sequence[str]) -> Floats:
        """See :meth:`ModelFamily.predicted`."""
        return self._objective(classes).predicted(margins)

    def margins_say_all(self, classes: Sequence[str]) -> bool:
        """See :meth:`ModelFamily.margins_say_all`."""
        return self._objective(classes).name in ("reg:squarederror", "variance", "gini")

    def _objective(self, classes: Sequence[str]) -> Objective:
        return fitted_objective(self.params, len(classes))

    def check_start(self, run: Path, data: VerticalDataset, share: ModelShare) -> None:
        """See :meth:`ModelFamily.check_start`."""
        if self.params.base_score is None:
            return
        score = self.params.base_score
        start = self._objective(data.classes).start(data.train_values, data.train_weights, score)
        if tuple(start.tolist()) != share.base:
            has = ", ".join(f"{margin:.4g}" for margin in share.base)
            raise JobError(
                f"{score!r} differs from the starting point of the model in {run} (margin {has}); remove it",
                code="other-run",
                field="[model] base_score",
                value=score,
            )

    @property
    def deviance_power(self) -> float | None:
        """See :attr:`ModelFamily.deviance_power`."""
        powers = {"count:poisson": 1.0, "reg:tweedie": self.params.tweedie_variance_power}
        return powers.get(self.params.objective)

    def program(self, ctx: Context, agreed: Agreement, inputs: PartyInputs, engine: Engine) -> RoleResult[ModelShare]:
        """See :meth:`ModelFamily.program`."""
        task, columns = TrainingTask(params=self.params, agreed=agreed), _party_inputs(inputs.data)
        if inputs.labels is None:
            setup = setup_of(self.params, classes=0, active_columns=0, passive=(ctx.party,))
            self.check_own_policies(ctx, setup)
            behavior = None if inputs.behavior is None else self.make_behavior(inputs.behavior)
            outcome = run_passive(ctx, task, columns, engine, share=inputs.share, behavior=behavior)
            return RoleResult(share=outcome.share, counts=outcome.counts, fingerprint=outcome.fingerprint)
        ended = run_active(ctx, task, columns, inputs.labels, engine, share=inputs.share)
        return RoleResult(
            share=ended.share,
            counts=ended.counts,
            margins=ended.margins,
            fingerprint=ended.fingerprint,
            watched=self._watched(ended.history),
        )

    def pooled(self, data: VerticalDataset, parties: Sequence[PartyDataset], *, seed: int, precision: int) -> Floats:
        """See :meth:`ModelFamily.pooled`."""
        active = parties[0].name
        ctx = standalone_context(active, seed=seed, rows=len(data.train_labels), private=data.parties[0].private)
        columns = {party.name: _party_inputs(party) for party in parties}
        trained = train_active(
            ctx,
            self.params,
            {name: each.train for name, each in columns.items()},
            label_vector(data),
            None,
            validation=len(data.validation_values),
            precision=precision,
        )
        share = trained.share(self.params.kind, columns[active].train, data.classes)
        return predict_active(
            ctx, share, {name: (trained.own[name], each.test) for name, each in columns.items()}, len(parties[0].test)
        )

    def visibility(self, view: View, own: AttackerData, labels: NDArray[np.int64]) -> VisibilityCounts:
        """See :meth:`ModelFamily.visibility`; for the active party a tree without splits is not counted."""
        return _seen_by_active(view) if view.header.role == ACTIVE else _seen_by_passive(view, own, labels)

    def own(self, view: View, own: AttackerData, share: ModelShare) -> AttackerData:
        """See :meth:`ModelFamily.own`: at the active party the integers that it encrypted."""
        if own.labels is None:
            return own
        weights = np.ones(len(own.labels)) if own.weights is None else own.weights
        rows = partial(replayed_rows, share=share, params=self.params, labels=own.labels, weights=weights)
        return replace(own, encrypted_rows=rows)

    def predict(self, ctx: Context, share: ModelShare, x: Floats, mode: PredictMode = "one-round") -> Floats:
        """See :meth:`ModelFamily.predict`."""
        for peer in ctx.peers if ctx.role == ACTIVE else ():
            ctx.expect(peer, 0)  # until it is asked
        if ctx.role == ACTIVE:
            return predict_active(ctx, share, {ctx.party: (share.own, x)}, len(x), mode=mode)
        ctx.expect(ctx.active, largest_question(share, len(x)))
        predict_passive(ctx, share, x)
        return np.empty((0, 0))

    def _watched(self, history: tuple[float, ...]) -> ValidationHistory | None:
        if not history:
            return None
        name = "loss" if self.params.eval_metric == "auto" else self.params.eval_metric
        best = max(history) if name == "auc" else min(history)
        return ValidationHistory(metric=name, values=history, best=history.index(best))

    def _check_labels(self, data: VerticalDataset) -> None:
        """Refuse labels that the objective cannot take, on any side, and parameters that do not go with them."""
        chosen = self._objective(data.classes)
        if self.params.scale_pos_weight != 1 and len(data.classes) != 2:
            labels = f"{len(data.classes)} classes" if data.classes else "regression targets"
            raise JobError(
                f"is for two classes; {data.label} has {labels}",
                code="unsupported",
                field="[model] scale_pos_weight",
                value=self.params.scale_pos_weight,
            )
        check_model(self.params, len(data.validation_values), len(data.parties[0].columns))
        for values in (data.train_values, data.validation_values, data.test_values):
            chosen.check(values)
        start = chosen.start(data.train_values, data.train_weights, self.params.base_score)
        margins = np.tile(start, (len(data.train_values), 1))
        evaluation_metric(self.params.eval_metric, chosen, margins, data.train_values, data.train_weights)


def _party_inputs(party: PartyDataset) -> TreeInputs:
    """Return a party's columns as its role takes them: training rows, then validation rows."""
    rows = np.concatenate([party.train, party.validation]) if len(party.validation) else party.train
    columns = Columns(party.columns, rows, party.categories, party.monotone)
    return TreeInputs(train=columns, test=party.test, validation=len(party.validation))


def _seen_by_active(view: View) -> VisibilityCounts:
    levels = list(view.observed(InstanceSpaces))
    owners = [owner for level in levels for owner in level.owners]
    trees = {level.tree for level in levels}
    decrypted = sum(int(np.prod(each.sums.shape)) for each in view.observed(DecryptedSums))
    own = owners.count(view.party)
    return VisibilityCounts(
        role=ACTIVE,
        rows=view.rows,
        trees=len(trees),
        nodes=len(trees) + 2 * len(owners),
        leaves=len(trees) + len(owners),
        own_splits=own,
        told_splits=len(owners) - own,
        decrypted_sums=decrypted,
    )


def _seen_by_passive(view: View, own: AttackerData, labels: NDArray[np.int64]) -> VisibilityCounts:
    leaves = observed_leaves(view, own)
    bounds = together = leakage_bounds(leaves, labels)
    if len(view.members) > 1:  # what members know alone of rows out of a sample is counted, too
        together = leakage_bounds(np.vstack([leaves, *member_leaves(view, own)]), labels)
    return VisibilityCounts(
        role=PASSIVE,
        rows=view.rows,
        trees=len(leaves),
        nodes=bounds.nodes,
        leaves=bounds.leaves,
        own_splits=sum(1 for _ in view.observed(OwnSplit)),
        told_splits=sum(len(received.message.splits.value) for received in view.received(LevelRequest)),
        max_node_information=bounds.max_node_information,
        max_node_bound=bounds.max_node_bound,
        joint_information=together.joint_information,
        joint_bound=together.joint_bound,
        label_entropy=bounds.label_entropy,
    )
