"""The family of split networks: a bottom model for each party with columns, a top model or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, SharedStart
from labelward.data import PartyDataset, VerticalDataset
from labelward.errors import DataError, JobError, unknown_name
from labelward.he import Counts, Engine
from labelward.messages.splitnn import (
    BatchEmbeddings,
    BatchGradients,
    EmbeddingAnswer,
    EmbeddingRequest,
    EpochEnd,
    EpochOrder,
    EpochStart,
    NetReady,
    NetStart,
    ValidationEmbeddings,
)
from labelward.party.context import Context
from labelward.party.handshake import Agreement
from labelward.party.roles import ACTIVE, PASSIVE, Role
from labelward.party.view import View
from labelward.policy.base import Policy
from labelward.protocols.common import LabelVector, PartyInputs
from labelward.protocols.family import (
    ImageMaps,
    ModelFamily,
    PredictMode,
    RoleResult,
    ValidationHistory,
    label_vector,
)
from labelward.protocols.splitnn._torch import torch
from labelward.protocols.splitnn.attacker_knowledge import replayed_gradients, shared_start
from labelward.protocols.splitnn.behavior import Behavior
from labelward.protocols.splitnn.bottom_model import attack_device, device_of, embed_batches, torch_generator
from labelward.protocols.splitnn.centralized import train_centralized
from labelward.protocols.splitnn.grad_cam import class_maps, image_shape
from labelward.protocols.splitnn.inputs import NetInputs, NetLabels
from labelward.protocols.splitnn.losses import NetObjective, objective_of
from labelward.protocols.splitnn.params import MODULE, SplitNet
from labelward.protocols.splitnn.predict import predict_active_net, predict_passive_net
from labelward.protocols.splitnn.session import (
    VISITED,
    VISITED_PASSIVE,
    NetTask,
    check_rows,
    net_policy_context,
    run_active_net,
    run_passive_net,
)
from labelward.protocols.splitnn.share import NetShare
from labelward.protocols.splitnn.tensors import as_array, as_tensor
from labelward.protocols.splitnn.thread_limits import share_threads
from labelward.registry import Registry
from labelward.runs.schema import VisibilityCounts

Floats = NDArray[np.float64]

_TABLES = ("linear", "mlp", "fcnn-3", "hashed", "deepfm", "wdl", "nfm", "edcn")
"""Bottom models over table columns."""
_IMAGES, _TEXTS = ("resnet-20", "resnet-18"), ("bert-small", "bert-base")
"""Bottom models over pixels and over tokens, one per column."""
_EXPLAINED = 32
"""Batch size for explaining images; the features of all layers are in memory."""
TOP = ""
"""Key of the top model among the user's modules by party."""


class SplitNetFamily(ModelFamily[NetShare]):
    """Split networks over tables, with the pixels or tokens of images and texts as columns. Own modules: Python API."""

    encrypts: ClassVar[bool] = False
    metered: ClassVar[bool] = False
    bulky: ClassVar[bool] = True
    grows: ClassVar[bool] = False
    libraries: ClassVar[tuple[str, ...]] = ("torch",)
    shared_libraries: ClassVar[tuple[str, ...]] = ("numpy", "torch")
    behaviors: ClassVar[Registry[Behavior]] = Registry("behavior", __package__, ["behavior:MaliciousOptimizer"])

    roles: ClassVar[Mapping[str, Role]] = {
        ACTIVE: Role(
            attacks_as=(ACTIVE,),
            points=VISITED,
            sends={PASSIVE: (NetStart, EpochStart, BatchGradients, EpochEnd, EmbeddingRequest)},
        ),
        PASSIVE: Role(
            attacks_as=(PASSIVE,),
            points=VISITED_PASSIVE,
            sends={ACTIVE: (NetReady, BatchEmbeddings, ValidationEmbeddings, EmbeddingAnswer)},
        ),
    }

    share_type: ClassVar[type[NetShare]] = NetShare

    params: SplitNet

    def __init__(self, params: SplitNet | None = None, modules: Mapping[str, Any] | None = None) -> None:
        """``modules``: the user's torch modules: bottom models by party, the top model under :data:`TOP`."""
        super().__init__(params)
        self.modules = modules or {}

    def check(
        self, data: VerticalDataset, policies: Mapping[str, Sequence[Policy]], *, passive: Sequence[str] | None = None
    ) -> None:
        """See :meth:`ModelFamily.check`."""
        params, (active, *others) = self.params, data.parties
        rows = len(data.train_values)
        names = [active.name, *(tuple(party.name for party in others) if passive is None else passive)]
        _check_bottom(params, data.parties, names)
        if params.top_model == MODULE:
            raise JobError(
                "a job cannot pass a module; name a preset",
                code="unsupported",
                field="[model] top_model",
                value=params.top_model,
            )
        check_rows(params, rows, len(data.validation_values), unaligned=active.unaligned is not None)
        for party in data.parties:
            _party_inputs(party)
            for column in party.monotone:
                raise JobError(
                    f"column {party.columns[column]!r} of party {party.name!r}: monotone constraints are for trees",
                    code="unsupported",
                    field="[data] monotone",
                    value=party.columns[column],
                )
        try:
            objective_of(params, _label_vector(label_vector(data)), rows)
        except DataError as error:
            raise error.under(f"{data.label}:") from error
        setup = net_policy_context(
            params,
            classes=len(data.classes),
            rows=rows,
            active_columns=len(active.columns),
            passive=tuple(party.name for party in others) if passive is None else tuple(passive),
            validation=len(data.validation_values),
            unaligned=active.unaligned is not None,
            policies=policies.get(active.name, ()),
        )
        alone = net_policy_context(params, classes=0, rows=rows, active_columns=0, passive=setup.passive)
        topology = self.topology((active.name, *setup.passive), (active.name,))
        self.check_policies(policies, topology, {ACTIVE: setup, PASSIVE: alone})

    def predicted(self, margins: Floats, classes: Sequence[str]) -> Floats:
        """See :meth:`ModelFamily.predicted`; margins of regression targets are in the unit of the target."""
        outputs = margins.shape[1]
        loss = "mse" if not classes else "logistic" if outputs == 1 else "cross_entropy"
        return NetObjective(loss, outputs).predicted(margins)

    def margins_say_all(self, classes: Sequence[str]) -> bool:
        """See :meth:`ModelFamily.margins_say_all`."""
        return not classes

    def together(self, parties: int) -> AbstractContextManager[None]:
        """See :meth:`ModelFamily.together`; they share torch's threads."""
        return share_threads(parties)

    def program(self, ctx: Context, agreed: Agreement, inputs: PartyInputs, engine: Engine) -> RoleResult[NetShare]:
        """See :meth:`ModelFamily.program`."""
        task, net_inputs = NetTask(params=self.params, agreed=agreed), self._net_inputs(inputs)
        if inputs.labels is None:
            behavior = None if inputs.behavior is None else self.make_behavior(inputs.behavior)
            outcome = run_passive_net(ctx, task, net_inputs, behavior=behavior)
            return RoleResult(share=_with_categories(outcome.share, inputs), counts=Counts())
        ended = run_active_net(ctx, task, net_inputs, _label_vector(inputs.labels))
        share = _with_categories(ended.share, inputs)
        losses = tuple(each.validation.loss for each in ended.history if each.validation is not None)
        return RoleResult(
            share=share,
            counts=Counts(),
            margins=_in_unit(share, ended.outputs),
            watched=ValidationHistory(metric="loss", values=losses, best=losses.index(min(losses))) if losses else None,
        )

    def _net_inputs(self, inputs: PartyInputs) -> NetInputs:
        """Return the inputs of a role: columns, and the user's modules."""
        party, active = inputs.data.name, inputs.labels is not None
        return replace(
            _party_inputs(inputs.data), bottom=self.modules.get(party), top=self.modules.get(TOP) if active else None
        )

    def pooled(self, data: VerticalDataset, parties: Sequence[PartyDataset], *, seed: int, precision: int) -> Floats:
        """See :meth:`ModelFamily.pooled`: each party has its own bottom model, as in the federated training."""
        labels = _label_vector(label_vector(data))
        if not any(party.columns for party in parties):
            return np.tile(_prior(data), (len(data.test_values), 1))
        parts = {party.name: _party_inputs(party) for party in parties}
        params = self.params if len(parties) > 1 else replace(self.params, active_bottom=True)
        with share_threads(1):
            private = {party.name: party.private for party in parties}
            outputs = train_centralized(params, parts, labels, seed=seed, private=private)
        return _scaled(objective_of(params, labels, len(data.train_values)), outputs)

    def visibility(self, view: View, own: AttackerData, labels: NDArray[np.int64]) -> VisibilityCounts:
        """See :meth:`ModelFamily.visibility`; label information in gradients is measured by attacks only."""
        arrays = [each.message.values.value for each in view.received(BatchEmbeddings)]
        arrays += [each.message.values.value for each in view.received(BatchGradients)]
        count = sum(int(np.prod(array.shape)) for array in arrays)
        epochs = len({each.epoch for each in view.observed(EpochOrder)})
        return VisibilityCounts(role=view.header.role, rows=view.rows, epochs=epochs, numbers=count)

    def own(self, view: View, own: AttackerData, share: NetShare) -> AttackerData:
        """See :meth:`ModelFamily.own`: the trained and the untrained bottom model."""
        if share.party != view.party:
            raise DataError(
                f"is the share of party {share.party!r}, but the view belongs to {view.party!r}",
                code="other-run",
                value=share.party,
            )
        own, params = replace(own, shared_start=partial(shared_start, view)), share.settings
        if own.labels is not None and share.objective is not None and MODULE not in (params.bottom, params.top_model):
            own = replace(own, returned=partial(replayed_gradients, share, view, own))
        if share.bottom is None:
            return own
        bottom = share.bottom
        if params.preset(view.party) in _TEXTS:
            outside = None if own.outside is None else own.outside.astype(np.int64)
            own = replace(own, features=own.features.astype(np.int64), outside=outside)
        seed, device = view.parameter("run.seed", 0), attack_device(params)
        return replace(
            own,
            bottom=lambda: bottom.module(params).to(device),
            untrained=lambda: bottom.untrained(params, torch_generator(seed, view.party, "bottom")).to(device),
        )

    def shared_start(self, view: View) -> SharedStart:
        """See :meth:`ModelFamily.shared_start`."""
        return shared_start(view)

    def embeddings(
        self, share: NetShare, columns: PartyDataset, rows: NDArray[np.int64], *, seed: int
    ) -> tuple[Floats, Floats] | None:
        """See :meth:`ModelFamily.embeddings`."""
        if share.bottom is None:
            return None
        params = share.settings
        device = device_of(params)
        x = as_tensor(columns.train[rows], params, device)
        trained = share.bottom.module(params)
        untrained = share.bottom.untrained(params, torch_generator(seed, columns.name, "bottom"))
        first, second = (
            np.concatenate([as_array(piece) for piece in embed_batches(module.to(device), x, params)]).astype(
                np.float64
            )
            for module in (trained, untrained)
        )
        return first, second

    def class_maps(
        self, shares: Mapping[str, NetShare], data: VerticalDataset, rows: NDArray[np.int64]
    ) -> dict[str, ImageMaps]:
        """See :meth:`ModelFamily.class_maps`; for regression, of the only output."""
        if not {self.params.bottom, *self.params.bottoms.values()} <= set(_IMAGES):
            return {}
        return _class_maps(shares, data, rows)

    def predict(self, ctx: Context, share: NetShare, x: Floats, mode: PredictMode = "one-round") -> Floats:
        """See :meth:`ModelFamily.predict`.

        Raises:
            JobError: ``mode`` is ``"levels"``, which only trees support.
        """
        if mode != "one-round":
            raise JobError(
                f"{mode!r} is for trees; a split network predicts in one round",
                code="unsupported",
                field="--mode",
                value=mode,
            )
        bottom = self.modules.get(ctx.party)
        if ctx.role == ACTIVE:
            outputs = predict_active_net(ctx, share, x, bottom=bottom, top=self.modules.get(TOP))
            return _in_unit(share, outputs)
        setup = net_policy_context(
            share.settings, classes=0, rows=max(len(x), 1), active_columns=0, passive=(ctx.party,)
        )
        ctx.policies.begin(setup, ctx.protection)
        predict_passive_net(ctx, share, x, bottom=bottom)
        return np.empty((0, 0))


def _check_bottom(params: SplitNet, parties: Sequence[PartyDataset], names: Sequence[str]) -> None:
    """Refuse a bottom model that a job cannot name, that is no party's, or that does not support the columns.

    Args:
        parties: whose columns are known here.
        names: of all parties.
    """
    for name in params.bottoms:
        if name not in names:
            raise JobError(unknown_name("party", name, names), code="unknown", field="[model] bottoms", value=name)
    images = [preset for preset in (params.bottom, *params.bottoms.values()) if preset in _IMAGES]
    if images and not params.height:
        raise JobError(
            f"{images[0]!r} needs the image height to arrange columns as pixels",
            code="missing",
            field="[model] height",
        )
    if params.bottom not in (*_TABLES, *_IMAGES, *_TEXTS):
        known = ", ".join(map(repr, (*_TABLES, *_IMAGES, *_TEXTS)))
        raise JobError(
            f"a job can name one of {known}, not {params.bottom!r}",
            code="choice",
            field="[model] bottom",
            value=params.bottom,
        )
    for party in (each for each in parties if params.preset(each.name) in _TEXTS):
        for values in (party.train, party.validation, party.test):
            if not ((values >= 0) & (values < params.vocabulary) & (values == np.floor(values))).all():
                raise DataError(
                    f"{params.preset(party.name)!r} needs token numbers in its columns, integers from 0 to "
                    f"{params.vocabulary - 1}",
                    code="values",
                    field=f"party {party.name!r}",
                )


def _class_maps(shares: Mapping[str, NetShare], data: VerticalDataset, rows: NDArray[np.int64]) -> dict[str, ImageMaps]:
    active = shares[data.parties[0].name]
    params = active.settings
    device = device_of(params)
    bottoms = {name: share.bottom.module(params).to(device) for name, share in shares.items() if share.bottom}
    top = None if active.top is None else active.top.module(params).to(device)
    x = {party.name: party.test[rows] for party in data.parties if party.name in bottoms}
    several = active.objective is not None and active.objective.outputs > 1
    outputs = torch.from_numpy(data.test_labels[rows] if several else np.zeros(len(rows), np.int64)).to(device)
    maps: dict[str, list[Floats]] = {name: [] for name in x}
    for start in range(0, len(rows), _EXPLAINED):
        piece = slice(start, start + _EXPLAINED)
        parts = [as_tensor(x[name][piece], params, device) for name in x]
        results = class_maps([bottoms[name] for name in x], top, parts, outputs[piece])
        for name, values in zip(x, results, strict=True):
            maps[name].append(as_array(values).astype(np.float64))
    return {
        name: ImageMaps(
            pixels=x[name].reshape(-1, *image_shape(bottoms[name], x[name].shape[1:])), maps=np.concatenate(maps[name])
        )
        for name in x
    }


def _party_inputs(party: PartyDataset) -> NetInputs:
    """Return a party's columns as inputs of its role: training rows, then validation rows."""
    return NetInputs(
        train=np.concatenate([party.train, party.validation]) if len(party.validation) else party.train,
        test=party.test,
        validation=len(party.validation),
        names=party.columns,
        categories={position: len(names) for position, names in party.categories.items()},
        unaligned=party.unaligned,
    )


def _label_vector(labels: LabelVector) -> NetLabels:
    return NetLabels(values=labels.values, weights=labels.weights, classes=labels.classes)


def _with_categories(share: NetShare, inputs: PartyInputs) -> NetShare:
    """Return the share with the category names, so that new rows can be encoded."""
    return msgspec.structs.replace(share, categories=inputs.categories)


def _in_unit(share: NetShare, outputs: Floats) -> Floats:
    assert share.objective is not None  # an active party's share
    return _scaled(share.objective, outputs)


def _scaled(objective: NetObjective, outputs: Floats) -> Floats:
    """Return logits unchanged, and regression outputs [rows, 1] in the unit of the target."""
    return outputs if objective.classes else outputs * objective.scale + objective.center


def _prior(data: VerticalDataset) -> Floats:
    """Return the margins of a model without columns."""
    if not data.classes:
        return np.array([np.average(data.train_values, weights=data.train_weights)])
    counts = np.bincount(data.train_values.astype(np.int64), data.train_weights, len(data.classes))
    return np.asarray(np.log(np.maximum(counts / counts.sum(), 1e-15)))
