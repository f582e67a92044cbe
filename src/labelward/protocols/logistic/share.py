"""Model shares of logistic regression: each party knows the weights of its own columns."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError
from labelward.party.evidence import Evidence
from labelward.party.json_file import encode_checked, read_checked
from labelward.protocols.logistic.columns import ColumnScale, encoded_columns
from labelward.protocols.logistic.fixed_point import column_values
from labelward.runs.secure_files import atomic_write

FORMAT = 1
FILE_NAME = "share.json"

Floats = NDArray[np.float64]


class LogisticShare(msgspec.Struct, frozen=True, kw_only=True):
    """One party's part of a model.

    Attributes:
        model: random identifier of the training.
        parties: all parties, the active one first.
        columns: names of the party's columns, in the order in which prediction expects them.
        scales: how each column is encoded.
        weights: of the encoded columns.
        intercept: at the active party; elsewhere 0.
        classes: names of the two classes, at the active party.
        categories: for each of its categorical columns the categories, by code.
        evidence: of the training; None in a share that was not saved with a view.
    """

    format: Literal[1] = 1
    kind: Literal["logistic"] = "logistic"
    model: str
    party: str
    parties: tuple[str, ...]
    columns: tuple[str, ...] = ()
    scales: tuple[ColumnScale, ...] = ()
    weights: tuple[float, ...] = ()
    intercept: float = 0.0
    classes: tuple[str, ...] = ()
    categories: dict[str, tuple[str, ...]] = {}
    evidence: Evidence | None = None

    def scores(self, x: Floats) -> Floats:
        """Return the party's part of the scores of rows, float64 [rows], without the intercept.

        Raises:
            DataError: rows of another number of columns.
        """
        if x.shape[1:] != (len(self.scales),):
            reason = f"{x.shape[1]} columns where the share of party {self.party!r} has {len(self.scales)}"
            raise DataError(reason, code="columns", value=x.shape[1])
        return np.asarray(column_values(encoded_columns(self.scales, x)) @ np.array(self.weights))

    def save(self, folder: Path) -> Path:
        """Write the share with a checksum; :class:`~labelward.errors.OutputError` if it cannot be written."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_write(folder / FILE_NAME) as file:
            file.write(encode_checked(self))
        return folder / FILE_NAME

    @classmethod
    def load(cls, folder: Path) -> LogisticShare:
        """Read a share; :class:`~labelward.errors.FileFormatError` where it is missing or damaged."""
        return read_checked(folder / FILE_NAME if folder.is_dir() else folder, cls, FORMAT)
