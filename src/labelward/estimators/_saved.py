"""An estimator on disk: each party's share, and what the class needs beside them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from labelward.errors import FileFormatError, OutputError
from labelward.estimators._errors import UnfitInputError
from labelward.protocols.tree.share import ModelShare

if TYPE_CHECKING:
    from labelward.estimators._base import FederatedTrees

__all__ = ["load", "save"]

FILE_NAME = "estimator.json"
_FORMAT = 1
_LEARNED = ("evals_result_", "best_iteration_", "best_score_")


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the file.

    Attributes:
        estimator: name of the class.
        places: for each party, the active one first, the positions of its columns in X.
        features: number of columns of X.
        feature_names: their names, if any.
        classes: the values of the label, if any, and their type.
        learned: further attributes by name.
    """

    format: int = _FORMAT
    estimator: str
    parameters: dict[str, Any]
    places: dict[str, tuple[int, ...]]
    features: int
    feature_names: tuple[str, ...] | None
    classes: tuple[str, list[Any]] | None
    learned: dict[str, Any]


def save(estimator: FederatedTrees, folder: Path) -> Path:
    """Write shares and file; see :meth:`FederatedTrees.save`."""
    classes = getattr(estimator, "classes_", None)
    names = getattr(estimator, "feature_names_in_", None)
    stored = _File(
        estimator=type(estimator).__name__,
        parameters=estimator.get_params(),
        places=estimator._places,
        features=estimator.n_features_in_,
        feature_names=None if names is None else tuple(map(str, names)),
        classes=None if classes is None else (classes.dtype.str, classes.tolist()),
        learned={name: getattr(estimator, name) for name in _LEARNED if hasattr(estimator, name)},
    )
    for name, value in stored.parameters.items():
        try:
            msgspec.json.encode(value, enc_hook=_number)
        except TypeError as error:
            raise UnfitInputError(f"{name}: {value!r} cannot be saved in a file") from error
    path = folder / FILE_NAME
    try:
        for party, share in estimator.shares_.items():
            for private in (folder, folder / party):
                private.mkdir(parents=True, exist_ok=True, mode=0o700)
                private.chmod(0o700)
            share.save(folder / party / "model")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(stored, enc_hook=_number))
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror})") from error
    return folder


def load(cls: type[Any], folder: Path) -> Any:
    """Read what :func:`save` wrote; see :meth:`FederatedTrees.load`."""
    path = folder / FILE_NAME
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise FileFormatError(f"no estimator can be read at {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: a damaged file: {error}") from error
    if stored.format != _FORMAT:
        raise FileFormatError(f"{path}: an estimator of format {stored.format}; this version reads format {_FORMAT}")
    if stored.estimator != cls.__name__:
        raise FileFormatError(f"{path}: holds a {stored.estimator}, not a {cls.__name__}")
    estimator = cls(**stored.parameters)
    estimator._places = stored.places
    estimator.n_features_in_ = stored.features
    if stored.feature_names is not None:
        estimator.feature_names_in_ = np.array(stored.feature_names, dtype=object)
    if stored.classes is not None:
        estimator.classes_ = np.array(stored.classes[1], dtype=np.dtype(stored.classes[0]))
        estimator.n_classes_ = len(estimator.classes_)
    for name, value in stored.learned.items():
        setattr(estimator, name, value)
    shares = {party: ModelShare.load(folder / party / "model") for party in stored.places}
    for party, share in shares.items():
        if share.party != party or share.model != next(iter(shares.values())).model:
            raise FileFormatError(f"{folder / party}: a share of another party or model than {path} tells of")
    estimator.shares_ = shares
    return estimator


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(type(value).__name__)
