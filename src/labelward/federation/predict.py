"""Prediction with the stored shares of a training: one process, one thread per party."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

from labelward.errors import OutputError
from labelward.federation.model import FederatedModel, Warn, ignore_warning
from labelward.job.table_formats import PREDICTION_SUFFIXES
from labelward.protocols.family import ModelFamily, PartyShare, PredictMode
from labelward.runs.secure_files import atomic_write

Floats = NDArray[np.float64]


def predict_table(
    run: Path, tables: Mapping[str, Path], out: Path, *, mode: PredictMode = "one-round", warn: Warn = ignore_warning
) -> int:
    """Predict the rows of the parties' tables with the shares of a training; return the number of rows.

    Writes a file that only its owner may read: Parquet, CSV or one JSON object a line, by the suffix. Its columns are
    the ids, under the name that the job gives them, else ``id``; the margins, where they are not what is predicted:
    ``margin``, or ``margin_CLASS`` for each class; for classes ``probability_CLASS`` for each; and ``prediction``, the
    class or the value. Rows are matched by the job's id columns; without ids the tables' rows must be in the same
    order. They are written in the order of the active party's table.

    Args:
        run: the folder that :func:`labelward.federation.train.train_variant` wrote.
        tables: each party's table, or the same for all.
        out: the file to write.
        mode: ``"levels"`` discloses less to the active party and more to passive parties; predictions are equal.
        warn: hears of each column of categories of which the model knows none.

    Raises:
        FileFormatError: a share is missing, damaged, of another party, kind or model.
        DataError: as :meth:`FederatedModel.bring`.
        OutputError: the file's suffix is another one.
    """
    if out.suffix.lower() not in WRITERS:
        reason = f"must end in {' or '.join(WRITERS)}"
        raise OutputError(reason, code="choice", field=str(out), value=out.suffix)
    trained = FederatedModel.load(run)
    rows = trained.bring(tables, warn)
    assert rows.ids is not None  # of tables
    assert rows.place is not None
    job = trained.job
    name = "id" if job is None else job.active.id or job.data.id or "id"
    margins = trained.predict(rows, mode)
    write_predictions(out, trained.programs, trained.shares[trained.active], margins, (name, rows.ids, rows.place))
    return len(rows)


def write_predictions(
    out: Path,
    programs: ModelFamily[Any],
    share: PartyShare,
    margins: Floats,
    rows: tuple[str, NDArray[np.str_], NDArray[np.int64]],
) -> None:
    """Write the file of :func:`predict_table`.

    Args:
        share: the active party's.
        margins: float64 [rows, outputs].
        rows: name of the id column, ids, and where each row stands in the active party's table.
    """
    name, ids, place = rows
    order = np.argsort(place)
    found = _columns(programs, margins[order], share.classes)
    table = pa.table({"id" if name in found else name: pa.array(ids[order].tolist(), pa.string()), **found})
    with atomic_write(out) as file:
        WRITERS[out.suffix.lower()](table, file)


def _write_lines(table: pa.Table, file: BinaryIO) -> None:
    """Write one JSON object for each row."""
    encoder = msgspec.json.Encoder()
    for batch in table.to_batches(max_chunksize=1 << 16):
        file.write(encoder.encode_lines(batch.to_pylist()))


WRITERS: Mapping[str, Callable[[pa.Table, BinaryIO], None]] = dict(
    zip(PREDICTION_SUFFIXES, (pq.write_table, csv.write_csv, _write_lines), strict=True)
)
"""How predictions are written, by suffix."""


def _columns(programs: ModelFamily[Any], margins: Floats, classes: tuple[str, ...]) -> dict[str, Any]:
    """Return the columns of a prediction file, without the ids."""
    predicted = programs.predicted(margins, classes)
    found: dict[str, Any] = {}
    if not programs.margins_say_all(classes):
        names = [f"_{name}" for name in classes] if margins.shape[1] > 1 else [""]
        found |= {f"margin{name}": margins[:, position] for position, name in enumerate(names)}
    if not classes:
        return found | {"prediction": predicted}
    found |= {f"probability_{name}": predicted[:, position] for position, name in enumerate(classes)}
    return found | {"prediction": pa.array(np.asarray(classes)[predicted.argmax(axis=1)].tolist(), pa.string())}
