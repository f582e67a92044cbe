"""A party's share of a split network: its bottom model, and at the active party the top model and the objective.

The file is a magic line, the SHA-256 of what follows, and MessagePack by schema: weights are plain arrays under their
names, as torch calls them; nothing is ever unpickled. No share alone is a model.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import FileFormatError, JobError
from labelward.messages.base import Array
from labelward.party.evidence import Evidence
from labelward.protocols.common.json_share import write_share
from labelward.protocols.splitnn._torch import nn, torch
from labelward.protocols.splitnn.bottom_model import TrainableModule, copy_user_module, embed_batches
from labelward.protocols.splitnn.inputs import NetLabels
from labelward.protocols.splitnn.losses import EpochRecord, NetObjective
from labelward.protocols.splitnn.models.presets import ModelSpec, build
from labelward.protocols.splitnn.models.tabular import ScaledColumns
from labelward.protocols.splitnn.params import MODULE, SplitNet
from labelward.protocols.splitnn.tensors import as_array, as_tensor, pack_state, unpack_state
from labelward.rng import keyed

FORMAT = 1
FILE_NAME = "share.lwn"
_MAGIC = b"labelward split network\n"
_HASH = 32
_EDGE = 1e-3
_MOST_SCALE = 4.0

Floats = NDArray[np.float64]


class StoredModel(msgspec.Struct, frozen=True):
    """A stored module.

    Attributes:
        spec: its description.
        state: its weights and other tensors by name.
        start: key of the draws of its initial weights, which only its owner may know; empty for a user's module, and
            for a model of version 0.1.0, whose draws all parties could repeat.
    """

    spec: ModelSpec
    state: dict[str, Array]
    start: bytes = b""

    def module(self, params: SplitNet, given: nn.Module | None = None) -> nn.Module:
        """Return the module on the CPU, ready for prediction.

        Args:
            given: for a model that was handed in: a module of the same shape, which is copied.

        Raises:
            FileFormatError: the weights are not those of this module.
            JobError: the model was handed in, and is not now.
        """
        if self.spec.preset == MODULE:
            made = copy_user_module(given, "bottom or top_model", params)
        else:
            made = build(self.spec, torch.Generator(), getattr(torch, params.dtype))
        unpack_state(self.state, made, "a model share")
        return made.eval()

    def untrained(self, params: SplitNet, shared: torch.Generator, given: nn.Module | None = None) -> nn.Module:
        """Return the model that the training started from, with the column scaling of this one.

        Args:
            shared: for a model of version 0.1.0: the generator of the run's seed
                (:func:`~labelward.protocols.splitnn.bottom_model.torch_generator`).
            given: a model that was handed in; it is returned as it is handed in now.
        """
        if self.spec.preset == MODULE:
            return copy_user_module(given, "bottom or top_model", params).eval()
        made = build(self.spec, keyed(self.start) if self.start else shared, getattr(torch, params.dtype))
        for place, part in made.named_modules():
            if isinstance(part, ScaledColumns):
                for name, buffer in part.named_buffers(recurse=False):
                    stored = self.state[f"{place}.{name}" if place else name]
                    buffer.copy_(torch.from_numpy(stored.unpack().copy()))
        return made.eval()


class LocalFit(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers by which a model of the active party's own columns and a network are joined.

    Attributes:
        scale: factor of the network's output.
        weight: of a vote; factor of the own logit in a ``"regression"``.
        bias: constant of a ``"regression"``.
    """

    scale: float = 1.0
    weight: float = 1.0
    bias: float = 0.0


class LocalPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a model of the active party's own columns adds to a network of one output; it is in no message.

    Attributes:
        model: gives the logit of class 1.
        form: what of it is added, and to what: ``"logit"`` or ``"vote"`` (its sign times ``weight``) to the logit,
            ``"probability"`` to the probability; ``"regression"``: both logits are inputs of a logistic regression.
        weight, scale, bias: see :class:`LocalFit`.
    """

    model: StoredModel
    form: Literal["logit", "probability", "vote", "regression"]
    weight: float = 1.0
    scale: float = 1.0
    bias: float = 0.0

    @property
    def fit(self) -> LocalFit:
        """The numbers by which both are joined."""
        return LocalFit(scale=self.scale, weight=self.weight, bias=self.bias)

    def fitted(self, fit: LocalFit) -> LocalPart:
        """Return the same model, joined by other numbers."""
        return msgspec.structs.replace(self, scale=fit.scale, weight=fit.weight, bias=fit.bias)

    def logits(self, params: SplitNet, x: NDArray[Any], given: nn.Module | None = None) -> Floats:
        """Return float64 [rows, 1] for rows of the active party's columns; ``given`` as for its bottom model."""
        pieces = embed_batches(self.model.module(params, given), as_tensor(x, params, torch.device("cpu")), params)
        return np.concatenate([np.empty((0, 1)), *map(as_array, pieces)]).astype(np.float64)

    def best_fit(self, outputs: Floats, logits: Floats, labels: Floats, weights: Floats | None) -> LocalFit:
        """Return the numbers under which some rows' labels are likeliest: the scale, from 0 to 4, or a regression.

        Args:
            outputs, logits: as for :meth:`joined`.
            labels: 0 or 1, [rows].
            weights: [rows]; None: all 1.
        """
        from scipy.optimize import minimize, minimize_scalar

        signs = np.where(labels > 0.5, 1.0, -1.0)

        def loss(fit: LocalFit) -> float:
            margins = self.fitted(fit).joined(outputs, logits)[:, 0]
            return float(np.average(np.logaddexp(0.0, -signs * margins), weights=weights))

        def scaled(scale: float) -> LocalFit:
            return LocalFit(scale=scale, weight=self.weight, bias=self.bias)

        def regression(x: Floats) -> LocalFit:
            return LocalFit(scale=float(x[0]), weight=float(x[1]), bias=float(x[2]))

        if self.form == "regression":  # bounded, so that rows that are told apart have an answer
            bounds = [(-_MOST_SCALE, _MOST_SCALE)] * 3
            return regression(minimize(lambda x: loss(regression(x)), [0.5, 0.5, 0.0], bounds=bounds).x)
        return scaled(float(minimize_scalar(lambda x: loss(scaled(x)), bounds=(0.0, _MOST_SCALE), method="bounded").x))

    def joined(self, outputs: Floats, logits: Floats) -> Floats:
        """Return the logits of the joined model.

        Args:
            outputs: the network's, float64 [rows, 1].
            logits: of the own columns, likewise.
        """
        outputs = self.scale * outputs
        if self.form == "logit":
            return logits + outputs
        if self.form == "regression":
            return self.weight * logits + outputs + self.bias
        if self.form == "vote":
            return np.where(logits > 0, self.weight, -self.weight) + outputs
        return _logit(np.exp(-np.logaddexp(0.0, -logits)) + outputs)


class NetTargets(msgspec.Struct, frozen=True, kw_only=True):
    """What policies decided that a network is fitted to.

    Attributes:
        values: float64 [training rows] or [training rows, outputs].
        labels, weights, offset: float64 [training rows].
        loss: that they are fitted with.
        local: what is added at prediction; None: nothing.
        decoder: of shares of classes; empty: none.
        weights: of rows and code; their sum is not that by which the mean loss of a batch is taken.
        validated: whether ``local`` is joined as is best for the validation rows.
        validation: float64 [validation rows]: the labels that decide when to stop; None: none do.
    """

    values: Array
    labels: Array
    weights: Array
    offset: Array
    loss: str
    local: LocalPart | None
    validated: bool
    decoder: tuple[Array, ...] = ()
    validation: Array | None = None

    def known(self, labels: NetLabels) -> NetLabels:
        """Return labels as they may be used from now on."""
        rows = self.labels.shape[0]
        validation = labels.values[rows:] if self.validation is None else self.validation.unpack()
        return replace(labels, values=np.r_[self.labels.unpack(), validation])

    def coded(self, labels: NetLabels) -> NetLabels:
        """Return the same labels with the weights of the code; those of validation rows are not changed."""
        return replace(labels, weights=np.r_[self.weights.unpack(), labels.weights[self.weights.shape[0] :]])


class NetShare(msgspec.Struct, frozen=True, kw_only=True):
    """One party's share of a trained model.

    Attributes:
        model: identifier of the model; the same in all shares of a training.
        parties: in party order, the active one first.
        columns: names of the party's columns; empty for images and texts.
        categories: for each categorical column its categories, by code.
        params: of the training, by name.
        bottom: None for an active party without columns.
        top: the active party's, where there is one.
        local: what the active party's own columns add to the network's output; unset, and not stored, without.
        between: what stands between the other parties' embeddings and the top model; likewise.
        decoder: of shares of classes that the network predicts (:func:`decoded`); likewise.
        objective: the active party's.
        classes: names of the classes, at the active party; empty for quantities.
        sizes: how many numbers a row each other party's bottom model gives, at the active party.
        history: how each epoch went, at the active party.
        epochs: how many there were.
        behavior: of the party in training, with its parameters.
        evidence: of the training; None in a share that was not saved with a view.
    """

    format: int = FORMAT
    kind: str = "splitnn"
    model: str
    party: str
    parties: tuple[str, ...]
    columns: tuple[str, ...]
    params: dict[str, Any]
    categories: dict[str, tuple[str, ...]] = {}
    bottom: StoredModel | None = None
    top: StoredModel | None = None
    local: LocalPart | msgspec.UnsetType = msgspec.UNSET
    between: StoredModel | msgspec.UnsetType = msgspec.UNSET
    decoder: tuple[Array, ...] | msgspec.UnsetType = msgspec.UNSET
    objective: NetObjective | None = None
    classes: tuple[str, ...] = ()
    sizes: dict[str, int] = {}
    history: tuple[EpochRecord, ...] = ()
    epochs: int = 0
    behavior: dict[str, Any] = {}
    evidence: Evidence | None = None

    @property
    def settings(self) -> SplitNet:
        """The parameters of the training; :class:`FileFormatError` if they are invalid."""
        try:
            return SplitNet(**self.params)
        except (JobError, TypeError) as error:
            raise FileFormatError(
                f"a model share of party {self.party!r} has no usable parameters: {error}",
                code="damaged",
                value=self.party,
            ) from error

    def save(self, folder: Path) -> Path:
        """Write the share with a checksum, as :func:`~labelward.protocols.common.json_share.write_share` does."""
        body = msgspec.msgpack.encode(self)
        return write_share(folder, FILE_NAME, _MAGIC + hashlib.sha256(body).digest() + body)

    @classmethod
    def load(cls, folder: Path) -> NetShare:
        """Read a share; :class:`FileFormatError` if it is missing, damaged or of another format version."""
        path = folder / FILE_NAME if folder.is_dir() else folder
        try:
            data = path.read_bytes()
        except OSError as error:
            raise FileFormatError(
                f"no model share can be read at {path}: {error.strerror}", code="unreadable", value=path
            ) from error
        if not data.startswith(_MAGIC):
            raise FileFormatError(f"{path} is no share of a split network", code="foreign", value=path)
        start = len(_MAGIC) + _HASH
        body = memoryview(data)[start:]
        if hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
            raise FileFormatError("a damaged model share (its checksum does not fit)", code="damaged", field=str(path))
        try:
            version = msgspec.msgpack.decode(body, type=_Version).format
            if version != FORMAT:
                raise FileFormatError(
                    f"a model share of format {version}; this version reads format {FORMAT}",
                    code="format-version",
                    field=str(path),
                    value=version,
                )
            return msgspec.msgpack.decode(body, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise FileFormatError(f"a damaged model share: {error}", code="damaged", field=str(path)) from error


def decoded(decoder: tuple[Array, ...], outputs: Floats) -> Floats:
    """Return logits of classes from the outputs of a network that was fitted to shares of classes, [rows, classes]."""
    first, first_bias, last, last_bias = (each.unpack() for each in decoder)
    powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    return np.asarray(np.maximum(shares @ first + first_bias, 0.0) @ last + last_bias)


def stored_model(model: TrainableModule) -> StoredModel:
    """Return a model as it is stored."""
    return StoredModel(model.spec, pack_state(model.module.state_dict()), model.start)


def _logit(probabilities: Floats) -> Floats:
    """Return logits; beyond 1/1000 from 0 and 1 along the tangent there, so that all sums stay apart."""
    inside = np.clip(probabilities, _EDGE, 1 - _EDGE)
    return np.asarray(np.log(inside / (1 - inside)) + (probabilities - inside) / (_EDGE * (1 - _EDGE)))


class _Version(msgspec.Struct, frozen=True):
    format: int
