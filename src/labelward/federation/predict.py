"""Prediction with the stored shares of a training: one process, one thread per party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelward.federation.model import FederatedModel, Warn, ignore_warning
from labelward.protocols.family import ModelFamily, PartyShare, PredictMode
from labelward.runs.secure_files import atomic_write

Floats = NDArray[np.float64]


def predict_table(
    run: Path, tables: Mapping[str, Path], out: Path, *, mode: PredictMode = "one-round", warn: Warn = ignore_warning
) -> int:
    """Predict the rows of the parties' tables with the shares of a training; return the number of rows.

    Writes a Parquet file that only its owner may read. Its columns are ``id``; the margins, where they are not what is
    predicted: ``margin``, or ``margin_CLASS`` for each class; for classes the probabilities: ``probability`` of the
    second of two, else ``probability_CLASS`` for each; and ``prediction``, the class or the value. Rows are matched
    by the job's id columns and sorted by id; without ids the tables' rows must be in the same order.

    Args:
        run: the folder that :func:`labelward.federation.train.train_variant` wrote.
        tables: each party's table, or the same for all.
        out: the file to write.
        mode: ``"levels"`` discloses less to the active party and more to passive parties; predictions are equal.
        warn: hears of each column of categories of which the model knows none.

    Raises:
        FileFormatError: a share is missing, damaged, of another party, kind or model.
        DataError: as :meth:`FederatedModel.bring`.
    """
    trained = FederatedModel.load(run)
    rows = trained.bring(tables, warn)
    assert rows.ids is not None  # of tables
    write_predictions(
        out, trained.programs, trained.shares[trained.active], rows.ids.tolist(), trained.predict(rows, mode)
    )
    return len(rows)


def write_predictions(
    out: Path, programs: ModelFamily[Any], share: PartyShare, ids: Sequence[str], margins: Floats
) -> None:
    """Write the file of :func:`predict_table`.

    Args:
        share: the active party's.
        ids: of the rows.
        margins: float64 [rows, outputs].
    """
    found = _columns(programs, margins, share.classes)
    with atomic_write(out) as file:
        pq.write_table(pa.table({"id": pa.array(ids, pa.string()), **found}), file)


def _columns(programs: ModelFamily[Any], margins: Floats, classes: tuple[str, ...]) -> dict[str, Any]:
    """Return the columns of a prediction file, without the ids."""
    predicted = programs.predicted(margins, classes)
    found: dict[str, Any] = {}
    if not programs.margins_say_all(classes):
        names = [f"_{name}" for name in classes] if margins.shape[1] > 1 else [""]
        found |= {f"margin{name}": margins[:, position] for position, name in enumerate(names)}
    if not classes:
        return found | {"prediction": predicted}
    if len(classes) == 2:
        found["probability"] = predicted[:, 1]
    else:
        found |= {f"probability_{name}": predicted[:, position] for position, name in enumerate(classes)}
    return found | {"prediction": pa.array(np.asarray(classes)[predicted.argmax(axis=1)].tolist(), pa.string())}
