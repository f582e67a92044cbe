"""The family of logistic regression on vertically divided columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData
from labelward.data import PartyDataset, VerticalDataset
from labelward.errors import JobError
from labelward.he import Counts, Engine
from labelward.he.base import PublicKey
from labelward.messages.logistic import (
    BatchRows,
    EncodedCategories,
    EncryptedResiduals,
    LogisticReady,
    LogisticStart,
    MaskedProducts,
    MaskedWeightGradient,
    PartialScores,
    PredictionScores,
    ScoreKey,
    WeightGradient,
)
from labelward.party.context import Context
from labelward.party.handshake import Agreement
from labelward.party.noise_record import refuse_redraw
from labelward.party.roles import ACTIVE, PASSIVE, Role
from labelward.party.view import View
from labelward.policy.base import Policy, PolicyContext
from labelward.protocols.common import LabelVector, PartyInputs, class_probabilities
from labelward.protocols.family import (
    ModelFamily,
    PredictMode,
    RoleResult,
    label_vector,
    one_round,
    refuse_unsupported,
)
from labelward.protocols.logistic.columns import encoded_columns, scales_of_party
from labelward.protocols.logistic.descent import Intercept, OwnWeights, pooled_scores
from labelward.protocols.logistic.params import LogisticRegression
from labelward.protocols.logistic.predict import predict_scores
from labelward.protocols.logistic.share import LogisticShare
from labelward.protocols.logistic.targets import decide_labels
from labelward.protocols.logistic.training import ActiveProgress, ActiveTraining, train_own_weights
from labelward.runs.schema import VisibilityCounts

Floats = NDArray[np.float64]


class LogisticFamily(ModelFamily[LogisticShare]):
    """Logistic regression; the active party has the labels and the key."""

    roles: ClassVar[Mapping[str, Role]] = {
        ACTIVE: Role(
            attacks_as=(ACTIVE,),
            points=frozenset({"before_targets"}),
            sends={PASSIVE: (LogisticStart, EncryptedResiduals, MaskedWeightGradient)},
        ),
        PASSIVE: Role(
            attacks_as=(PASSIVE,),
            sends={ACTIVE: (LogisticReady, PartialScores, MaskedProducts, PredictionScores), PASSIVE: (ScoreKey,)},
        ),
    }
    metered: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    shared_libraries: ClassVar[tuple[str, ...]] = ("numpy",)

    share_type: ClassVar[type[LogisticShare]] = LogisticShare

    params: LogisticRegression

    def remark(self, parties: Sequence[str]) -> str:
        """See :meth:`ModelFamily.remark`."""
        told = "the active party learns the passive parties' part of the score of each row in each epoch, as a sum"
        if len(parties) == 2:
            told = "the active party learns the passive party's part of the score of each row in each epoch"
        return f"{told}, and from these the distances between rows, and cells of columns with few values"

    def check(
        self, data: VerticalDataset, policies: Mapping[str, Sequence[Policy]], *, passive: Sequence[str] | None = None
    ) -> None:
        """See :meth:`ModelFamily.check`."""
        kind, (active, *others) = self.params.kind, data.parties
        if len(data.classes) != 2:
            reason = f"{kind!r} is for two classes, not {len(data.classes) or 'quantities'}"
            raise JobError(reason, code="unsupported", field="[model] kind", value=len(data.classes))
        refuse_unsupported(kind, data)
        for party in data.parties:
            scales_of_party(self.params, party)
        names = tuple(party.name for party in others) if passive is None else tuple(passive)
        context = self._context(names, len(active.columns), len(data.train_values))
        topology = self.topology((active.name, *names), data.holders)
        self.check_policies(policies, topology, {ACTIVE: context, PASSIVE: context})

    def _context(self, passive: Sequence[str], active_columns: int, rows: int) -> PolicyContext:
        return PolicyContext(
            model=self.params.kind,
            classes=2,
            passive=tuple(passive),
            active_columns=active_columns,
            epochs=self.params.epochs,
            batches=len(self.params.batches(rows)),
        )

    def program(
        self, ctx: Context, agreed: Agreement, inputs: PartyInputs, engine: Engine
    ) -> RoleResult[LogisticShare]:
        """See :meth:`ModelFamily.program`."""
        data, labels = inputs.data, inputs.labels
        if not engine.adds_sealed:
            reason = f"{engine.name!r} cannot mask sums of rows, as {self.params.kind!r} needs it; use 'paillier'"
            raise JobError(reason, code="unsupported", field="[encryption] engine", value=engine.name)
        scales = scales_of_party(self.params, data)
        own = OwnWeights(self.params, encoded_columns(scales, data.train))
        context = self._context(ctx.peers, len(data.columns), len(data.train))
        self.check_own_policies(ctx, context)
        constant, counts, fingerprint = Intercept(self.params), Counts(), b""
        if labels is None:
            if not data.columns:
                reason = f"party {ctx.party!r} has no columns; only the active party may have none"
                raise JobError(reason, code="columns", value=ctx.party)
            ctx.observe(EncodedCategories(tuple(scale.kept or () for scale in scales)))
            model, public = train_own_weights(ctx, own, engine, agreed)
            counts = public.counts
        else:
            model, public = self._train_active(ctx, agreed, own, constant, labels, engine, context)
            counts, fingerprint = public.counts, public.fingerprint
        for account in ctx.policies.accounts():
            ctx.applied({"stage": "end", **account})
        share = LogisticShare(
            model=model,
            party=ctx.party,
            parties=agreed.parties,
            columns=data.columns,
            scales=scales,
            weights=tuple(own.weights.tolist()),
            intercept=constant.value,
            classes=() if labels is None else labels.classes,
            categories=inputs.categories,
        )
        with ctx.phase("predict"):
            margins = predict_scores(ctx, share, data.test)
        return RoleResult(share=share, counts=counts, margins=margins, fingerprint=fingerprint)

    def _train_active(
        self,
        ctx: Context,
        agreed: Agreement,
        own: OwnWeights,
        constant: Intercept,
        labels: LabelVector,
        engine: Engine,
        context: PolicyContext,
    ) -> tuple[str, PublicKey]:
        """Train at the active party; return the model's identifier and the key."""
        with ctx.phase("key"):
            private = engine.generate(agreed.bits, protection=ctx.protection, insecure=agreed.insecure)
        if agreed.resume is None:
            refuse_redraw(ctx.policies.drawing, ctx.checkpoints)
        ctx.policies.begin(context, ctx.protection)
        saved = None
        if agreed.resume is not None:
            saved = ctx.checkpoints.load(agreed.resume, ActiveProgress)[0]
        model = saved.model if saved else ctx.protection.bytes(8).hex()
        ctx.checkpoints.name_model(model, agreed.resume)
        fitted_to = saved.labels.unpack().astype(np.float64) if saved else decide_labels(ctx, own, labels.values)
        training = ActiveTraining(ctx, own, constant, fitted_to, model)
        training.run(private, engine, None if saved is None else (agreed.resume or 0, saved))
        return model, private.public

    def predict(self, ctx: Context, share: LogisticShare, x: Floats, mode: PredictMode = "one-round") -> Floats:
        """See :meth:`ModelFamily.predict`."""
        one_round(mode)
        return predict_scores(ctx, share, x)

    def predicted(self, margins: Floats, classes: Sequence[str]) -> Floats:
        """See :meth:`ModelFamily.predicted`."""
        return class_probabilities(margins[:, 0])

    def pooled(self, data: VerticalDataset, parties: Sequence[PartyDataset], *, seed: int, precision: int) -> Floats:
        """See :meth:`ModelFamily.pooled`: the weights are those of the federated training, to the last bit."""
        labels: LabelVector = label_vector(data)
        rows = len(data.test_values)
        return pooled_scores(self.params, list(parties), labels.values, seed, rows)[:, None]

    def visibility(self, view: View, own: AttackerData, labels: NDArray[np.int64]) -> VisibilityCounts:
        """See :meth:`ModelFamily.visibility`: gradients of its weights, or the scores that it received."""
        shapes = [each.values.shape for each in view.observed(WeightGradient)]
        shapes += [each.message.scores.value.shape for each in view.received(PartialScores)]
        return VisibilityCounts(
            role=view.header.role,
            rows=view.rows,
            columns=len(own.columns),
            epochs=len({each.epoch for each in view.observed(BatchRows)}),
            numbers=sum(int(np.prod(shape)) for shape in shapes),
            decrypted_sums=sum(int(np.prod(each.message.sums.shape)) for each in view.received(MaskedProducts)),
        )
