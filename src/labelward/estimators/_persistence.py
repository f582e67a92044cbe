"""Estimators on disk: each party's share, and a file with the remaining attributes."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from labelward.errors import FileFormatError, OutputError
from labelward.estimators._errors import InvalidInputError
from labelward.party.json_file import decode_versioned
from labelward.protocols.common.json_share import FILE_NAME as TREE_SHARE

FILE_NAME = "estimator.json"
_FORMAT = 1
_JOB_NAME, _JOB_MARK = "job.toml", b"# Written by labelward "
_LEARNED = ("evals_result_", "best_iteration_", "best_score_", "loss_curve_")
_SHARE_NAMES = (TREE_SHARE, "share.lwn")
"""Files of shares: of trees, and of networks, whose module needs torch."""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the file."""

    format: int = _FORMAT
    estimator: str
    parameters: dict[str, Any]
    places: dict[str, tuple[int, ...]]  # for each party, the active one first, the positions of its columns in X
    features: int  # number of columns of X; 0 where X was given by party
    feature_names: tuple[str, ...] | None
    classes: tuple[str, list[Any]] | None  # the values of the label, if any, and their type
    learned: dict[str, Any]


def save_estimator(estimator: Any, folder: Path, *, overwrite: bool) -> Path:
    """Write shares and file; see :meth:`FittedModelMixin.save`."""
    text = _text(estimator)
    target = folder.resolve()
    try:
        _check_place(folder, target, overwrite=overwrite)
        target.parent.mkdir(parents=True, exist_ok=True)
        side = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        made, replaced = side / "made", side / "replaced"
        try:
            for private in (made, *(made / party for party in estimator.shares_)):
                private.mkdir(mode=0o700)
            for party, share in estimator.shares_.items():
                share.save(made / party / "model")
            with os.fdopen(os.open(made / FILE_NAME, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(text)
            if target.exists():
                target.rename(replaced)
            made.rename(target)
        finally:
            if replaced.exists() and not target.exists():
                replaced.rename(target)
            shutil.rmtree(side, ignore_errors=True)
    except OSError as error:
        raise OutputError(f"cannot be written ({error.strerror})", code="unwritable", field=str(folder)) from error
    return folder


def _text(estimator: Any) -> bytes:
    """Return the file's contents; :class:`InvalidInputError` if a parameter cannot be stored."""
    classes = getattr(estimator, "classes_", None)
    names = getattr(estimator, "feature_names_in_", None)
    parameters = estimator.get_params()
    if isinstance(directions := parameters.get("monotone_constraints"), Mapping):
        parameters["monotone_constraints"] = list(directions.items())  # keys of JSON are texts, and positions are not
    for name, value in parameters.items():
        try:
            msgspec.json.encode(value, enc_hook=_number)
        except TypeError as error:
            raise InvalidInputError(
                f"{value!r} cannot be saved in a file", code="type", field=name, value=value
            ) from error
    stored = _File(
        estimator=type(estimator).__name__,
        parameters=parameters,
        places=estimator._places,
        features=getattr(estimator, "n_features_in_", 0),
        feature_names=None if names is None else tuple(map(str, names)),
        classes=None if classes is None else (classes.dtype.str, classes.tolist()),
        learned={name: getattr(estimator, name) for name in _LEARNED if hasattr(estimator, name)},
    )
    return msgspec.json.encode(stored, enc_hook=_number)


def _check_place(folder: Path, target: Path, *, overwrite: bool) -> None:
    """Refuse a folder in which anything but a saved estimator would be replaced, or that lies in another's.

    Raises:
        OutputError: names the folder, and what is in the way.
    """
    for place in (target, *target.parents):
        if _is_of_a_run(place):
            reason = f"is or lies in {place}, the folder of a run of labelward; save elsewhere"
            raise OutputError(reason, code="exists", field=str(folder), value=str(place))
        if place != target and (place / FILE_NAME).is_file():
            reason = f"lies in {place}, the folder of a saved estimator; save elsewhere"
            raise OutputError(reason, code="exists", field=str(folder), value=str(place))
    if not target.exists():
        return
    if not target.is_dir():
        raise OutputError("is a file, not a folder", code="exists", field=str(folder))
    if not any(target.iterdir()):
        return
    if not (target / FILE_NAME).is_file():
        raise OutputError(
            "holds other files, and no saved estimator; save elsewhere", code="foreign", field=str(folder)
        )
    stored = _read(target / FILE_NAME)
    ours = {target / FILE_NAME}
    ours |= {target / party / "model" / name for party in stored.places for name in _SHARE_NAMES}
    strange = [path for path in target.rglob("*") if path not in ours and (path.is_symlink() or not path.is_dir())]
    if strange:
        name = str(min(strange).relative_to(target))
        reason = f"contains {name!r}, which is not part of the saved {stored.estimator}; save elsewhere"
        raise OutputError(reason, code="foreign", field=str(folder), value=name)
    if not overwrite:
        reason = f"holds a saved {stored.estimator} already; overwrite=True replaces it"
        raise OutputError(reason, code="exists", field=str(folder), value=stored.estimator)


def _is_of_a_run(folder: Path) -> bool:
    path = folder / _JOB_NAME
    return path.is_file() and path.read_bytes().startswith(_JOB_MARK)


def load_estimator(cls: type[Any], folder: Path) -> Any:
    """Read what :func:`save_estimator` wrote; see :meth:`FittedModelMixin.load`."""
    path = folder / FILE_NAME
    stored = _read(path)
    if stored.estimator != cls.__name__:
        raise FileFormatError(
            f"holds a {stored.estimator}, not a {cls.__name__}", code="foreign", field=str(path), value=stored.estimator
        )
    directions = stored.parameters.get("monotone_constraints")
    if isinstance(directions, list) and all(isinstance(each, list) for each in directions):
        stored.parameters["monotone_constraints"] = dict(directions)
    estimator = cls(**stored.parameters)
    estimator._places = stored.places
    if stored.features:
        estimator.n_features_in_ = stored.features
    if stored.feature_names is not None:
        estimator.feature_names_in_ = np.array(stored.feature_names, dtype=object)
    if stored.classes is not None:
        estimator.classes_ = np.array(stored.classes[1], dtype=np.dtype(stored.classes[0]))
        estimator.n_classes_ = len(estimator.classes_)
    for name, value in stored.learned.items():
        setattr(estimator, name, value)
    shares = {party: cls._load_share(folder / party / "model") for party in stored.places}
    for party, share in shares.items():
        if share.party != party or share.model != next(iter(shares.values())).model:
            reason = f"a share of another party or model than {path} tells of"
            raise FileFormatError(reason, code="other-run", field=str(folder / party), value=share.party)
    estimator.shares_ = shares
    return estimator


def _read(path: Path) -> _File:
    """Return what a file holds; :class:`FileFormatError` where it is missing, damaged or of another version."""
    try:
        return decode_versioned(path.read_bytes(), _File, _FORMAT, field=str(path))
    except OSError as error:
        raise FileFormatError(
            f"no estimator can be read at {path}: {error.strerror}{_left_by(path)}", code="unreadable", value=str(path)
        ) from error


def _left_by(path: Path) -> str:
    """Return where else the estimator is, if a save was killed as it took the folder's place; empty if it was not."""
    folder = path.parent.resolve()
    for left in sorted(folder.parent.glob(f".{glob.escape(folder.name)}.*/replaced/{FILE_NAME}")):
        return f"; a save that was killed left it in {left.parent}"
    return ""


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(type(value).__name__)
