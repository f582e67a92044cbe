"""Record of a training: metrics, costs, row counts and digests, date columns."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import numpy as np

from labelward.data import VerticalDataset
from labelward.party.json_file import read_versioned
from labelward.party.transcript import ids_digest
from labelward.runs.directory import TRAINING_FILE
from labelward.runs.estimate import Estimate
from labelward.runs.schema import Cost
from labelward.runs.secure_files import write_json

FORMAT = 1


class RowCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Training, validation and test rows of a training.

    Attributes:
        train: number of training rows.
        validation: number of validation rows.
        test: number of test rows.
        test_ids: ids of the test rows, or their row numbers in the table, counted from 0.
        train_digest: SHA-256 of the ids of the training rows.
        content_digest: SHA-256 of the labels and columns of the training rows (:func:`content_digest`).
    """

    train: int
    validation: int
    test: int
    test_ids: tuple[str, ...]
    train_digest: str
    content_digest: str

    @classmethod
    def of(cls, data: VerticalDataset) -> RowCounts:
        """Return the row counts of a dataset."""
        return cls(
            train=len(data.train_ids),
            validation=len(data.validation_ids),
            test=len(data.test_ids),
            test_ids=tuple(data.test_ids.tolist()),
            train_digest=ids_digest(data.train_ids.tolist()),
            content_digest=content_digest(data),
        )


class Validation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Metric of the validation rows over the rounds.

    Attributes:
        metric: name of the metric.
        values: value after each round; null if not finite.
        best_round: round of the best value, counted from 1.
    """

    metric: str
    values: tuple[float | None, ...]
    best_round: int


class TrainingRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of ``training.json``.

    Attributes:
        dataset: name of the dataset.
        seed: seed of the run.
        defense: slug of the variant.
        utility: metrics on the test rows; null if not finite.
        primary: the metric that ranks.
        validation: metric of the validation rows, if any.
        phases: seconds by party and phase.
        estimate: estimated cost of a tree model.
        dates: columns with dates or times, by party.
        versions: versions of labelward, Python and the relevant libraries.
    """

    format: int = FORMAT
    dataset: str
    seed: int
    defense: str
    utility: dict[str, float | None]
    primary: str
    validation: Validation | None
    cost: Cost
    phases: dict[str, dict[str, float]] = {}
    estimate: Estimate | None = None
    rows: RowCounts
    dates: dict[str, tuple[str, ...]]
    versions: dict[str, str]


def content_digest(data: VerticalDataset) -> str:
    """Return the SHA-256 of labels and columns of the training rows, as hex; it identifies rows without ids."""
    total = hashlib.sha256(np.ascontiguousarray(data.train_values).tobytes())
    for party in data.parties:
        total.update(np.ascontiguousarray(party.train).tobytes())
    return total.hexdigest()


def write_record(folder: Path, record: TrainingRecord) -> None:
    """Write ``training.json``; :class:`~labelward.errors.OutputError` if it cannot be written."""
    write_json(folder / TRAINING_FILE, record)


def read_record(run: Path) -> TrainingRecord:
    """Read ``training.json`` from the folder of a training.

    Raises:
        FileFormatError: the file is missing, damaged or of another format version.
    """
    return read_versioned(run / TRAINING_FILE, TrainingRecord, FORMAT)
