"""A party's share of a tree model, on disk and in memory.

The active party keeps shape, leaf weights and who owns which split; every party keeps column and threshold of its own
splits under record numbers. No share alone is a model.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import FileFormatError, OutputError

__all__ = ["EVERYTHING", "FILE_NAME", "FORMAT", "ModelShare", "Records", "TreeShape"]

FORMAT = 1
EVERYTHING = sys.float_info.max
"""The threshold of a split that sends all known values left."""

FILE_NAME = "share.json"


class TreeShape(msgspec.Struct, frozen=True):
    """One tree as the active party keeps it.

    Attributes:
        nodes: numbers of the split nodes, ascending.
        owners: for each split the position of its owner in ``ModelShare.parties``.
        records: for each split the owner's record number.
        leaves: numbers of the leaves, ascending.
        weights: for each leaf its weights, learning rate included: one for each of the tree's outputs, leaf by leaf.
        output: the one output that the tree adds to; -1: all of them.
        gains: for each split its gain.
        covers: sum of hessians (in a forest: of row weights) of each split, then of each leaf.
    """

    nodes: tuple[int, ...]
    owners: tuple[int, ...]
    records: tuple[int, ...]
    leaves: tuple[int, ...]
    weights: tuple[float, ...]
    output: int = -1
    gains: tuple[float, ...] = ()
    covers: tuple[float, ...] = ()


class Records(msgspec.Struct, frozen=True):
    """A party's own splits by record number.

    Attributes:
        columns: position of each split's column.
        thresholds: a row goes left where x ≤ threshold; the largest float where all that is known goes left, 0 and
            unused for a set of categories.
        missing_left: the records where a row goes left whose value is missing (NaN), or a category that training never
            met; elsewhere it goes right.
        categories: for the records of categorical columns the codes that go left.
    """

    columns: tuple[int, ...] = ()
    thresholds: tuple[float, ...] = ()
    missing_left: tuple[int, ...] = ()
    categories: dict[int, tuple[int, ...]] = {}

    def answers(self, x: NDArray[np.float64], start: int = 0) -> NDArray[np.bool_]:
        """Return bool [records from ``start`` on, rows]: whether each row goes left.

        Args:
            x: float64 [rows, columns]; codes of categories, -1 for a category that training never met, NaN for missing.
        """
        left = np.empty((len(self.columns) - start, len(x)), dtype=np.bool_)
        missing_left = frozenset(self.missing_left)
        for record in range(start, len(self.columns)):
            values, out = x[:, self.columns[record]], left[record - start]
            chosen = self.categories.get(record)
            if chosen is None:
                np.less_equal(values, self.thresholds[record], out=out)
            else:
                out[:] = np.isin(values, chosen)
            if record in missing_left:
                out |= np.isnan(values) if chosen is None else ~(values >= 0)
        return left

    def first(self, count: int) -> Records:
        """Return the first ``count`` records."""
        return Records(
            self.columns[:count],
            self.thresholds[:count],
            tuple(record for record in self.missing_left if record < count),
            {record: codes for record, codes in self.categories.items() if record < count},
        )


class ModelShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one party keeps of a model.

    Attributes:
        model: identifies the training, drawn at random; shares of different trainings do not fit together.
        parties: all parties in party order, the active one first.
        columns: the party's columns, in the order in which it must bring them.
        trees: the active party's part; empty elsewhere.
        classes: the label's values; the active party's part; empty for quantities.
        objective: what the trees were fitted to, such as ``"binary:logistic"``; ``"gini"`` or ``"variance"`` in a
            forest; the active party's part.
        base: the margin of each output before any tree; the active party's part.
        categories: for each of the party's categorical columns its categories, by code.
        grown: in how many trees the party took part; further training goes on from there.
        records: the active party's part, where trees were repaired: for each party how many splits the trees had of it
            as they were grown together; not all of these are still in use, and no party is told which.
    """

    format: int = FORMAT
    kind: Literal["secureboost", "forest"] = "secureboost"
    model: str
    party: str
    parties: tuple[str, ...]
    columns: tuple[str, ...]
    own: Records
    trees: tuple[TreeShape, ...] = ()
    classes: tuple[str, ...] = ()
    objective: str = "binary:logistic"
    base: tuple[float, ...] = (0.0,)
    categories: dict[str, tuple[str, ...]] = {}
    grown: int = 0
    records: dict[str, int] = {}

    @property
    def outputs(self) -> int:
        """Margins of a row."""
        return len(self.base)

    def records_of(self, party: str) -> int:
        """Return how many splits a party owns, as the active party's share has it."""
        if self.records:
            return self.records[party]
        owner = self.parties.index(party)
        return sum(tree.owners.count(owner) for tree in self.trees)

    def save(self, folder: Path) -> Path:
        """Write the share with a checksum; the folder gets mode 0700, the file 0600."""
        body = msgspec.json.encode(self)
        text = msgspec.json.encode(_File(hashlib.sha256(body).hexdigest(), msgspec.Raw(body)))
        path = folder / FILE_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            partial = folder / f".{FILE_NAME}"
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(text)
            partial.replace(path)
        except OSError as error:
            raise OutputError(
                f"a model share cannot be written to {folder}: {error.strerror}", code="unwritable", value=folder
            ) from error
        return path

    @classmethod
    def load(cls, folder: Path) -> ModelShare:
        """Read a share; :class:`FileFormatError` where it is missing, damaged or of another format version."""
        path = folder / FILE_NAME if folder.is_dir() else folder
        try:
            stored = msgspec.json.decode(path.read_bytes(), type=_File)
            version = msgspec.json.decode(stored.share, type=_Version).format
            if version != FORMAT:
                raise FileFormatError(
                    f"a model share of format {version}; this version reads format {FORMAT}",
                    code="format-version",
                    field=str(path),
                    value=version,
                )
            if hashlib.sha256(bytes(stored.share)).hexdigest() != stored.sha256:
                raise FileFormatError(
                    "a damaged model share (its checksum does not fit)", code="damaged", field=str(path)
                )
            return msgspec.json.decode(stored.share, type=cls)
        except OSError as error:
            raise FileFormatError(
                f"no model share can be read at {path}: {error.strerror}", code="unreadable", value=path
            ) from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise FileFormatError(f"a damaged model share: {error}", code="damaged", field=str(path)) from error


class _File(msgspec.Struct, frozen=True):
    sha256: str
    share: msgspec.Raw


class _Version(msgspec.Struct, frozen=True):
    format: int
