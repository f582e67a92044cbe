"""A party's share of a split network: its bottom model, and at the active party the top model and the objective.

The file is a magic line, the SHA-256 of what follows, and MessagePack by schema: weights are plain arrays under their
names, as torch calls them; nothing is ever unpickled. No share alone is a model.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from labelward.errors import FileFormatError, JobError, OutputError
from labelward.messages.base import Array
from labelward.party.evidence import Evidence
from labelward.protocols.splitnn._torch import nn, torch
from labelward.protocols.splitnn.bottom_model import copy_user_module
from labelward.protocols.splitnn.losses import EpochRecord, NetObjective
from labelward.protocols.splitnn.models.presets import ModelSpec, build
from labelward.protocols.splitnn.models.tabular import Hashed, TableEncoder
from labelward.protocols.splitnn.params import MODULE, SplitNet
from labelward.protocols.splitnn.tensors import unpack_state
from labelward.rng import keyed

FORMAT = 1
FILE_NAME = "share.lwn"
_MAGIC = b"labelward split network\n"
_HASH = 32


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
        first = next(iter(made.children()), None)
        if isinstance(first, TableEncoder | Hashed):
            scaling = {name: torch.from_numpy(self.state[f"0.{name}"].unpack().copy()) for name in ("mean", "scale")}
            first.load_state_dict(scaling, strict=False)
        return made.eval()


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
        """Write the share with a checksum; the folder gets mode 0700, the file 0600."""
        body = msgspec.msgpack.encode(self)
        path = folder / FILE_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            partial = folder / f".{FILE_NAME}"
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(_MAGIC + hashlib.sha256(body).digest() + body)
            partial.replace(path)
        except OSError as error:
            raise OutputError(
                f"a model share cannot be written to {folder}: {error.strerror}", code="unwritable", value=folder
            ) from error
        return path

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
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise FileFormatError(f"a damaged model share: {error}", code="damaged", field=str(path)) from error


class _Version(msgspec.Struct, frozen=True):
    format: int
