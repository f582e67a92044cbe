"""SHAP values of a trained model's rows, as a Parquet file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from labelward.errors import DataError
from labelward.federation.model import FederatedModel, Warn, ignore_warning
from labelward.protocols.secureboost.explain import Explanation, Feature
from labelward.runs.secure_files import atomic_write

BACKGROUND = 100
"""Default number of background rows."""


def explain_stored_model(
    run: Path,
    tables: Mapping[str, Path],
    out: Path,
    *,
    background: Mapping[str, Path] | None = None,
    most: int = BACKGROUND,
    names: Collection[str] = (),
    warn: Warn = ignore_warning,
) -> tuple[int, int]:
    """Write the SHAP values of rows of the parties' tables to a Parquet file; return the number of rows and of outputs.

    Its columns are ``id``; ``output``, the class, where the model has several outputs (a row of the file for each);
    ``margin``; ``expected``, the mean margin of the background rows; and ``PARTY.COLUMN`` for each column in which the
    model splits, with its number in place of a name that its party keeps. Their sum is ``margin - expected``.

    Args:
        run: the folder of a training.
        tables: each party's table with the rows to be explained.
        out: the file to write.
        background: each party's table with the rows that are compared with; None: those of ``tables``.
        most: number of background rows; of more, so many are taken, evenly spaced.
        names: parties that disclose their column names.
        warn: hears of each column of categories of which the model knows none.

    Raises:
        DataError: as :meth:`FederatedModel.bring`, or a name that no party has.
        FileFormatError: the folder is none of a training, or a share is missing, damaged or of another model.
    """
    trained = FederatedModel.load(run)
    trained.check_parties(names)
    if most < 1:
        raise DataError(f"at least 1 row is needed but got {most}", code="range", field="background", value=most)
    rows = trained.bring(tables, warn)
    behind = (rows if background is None else trained.bring(background, warn)).sample(most)
    found, classes = trained.explain(rows, behind, names), trained.shares[trained.active].classes
    assert rows.ids is not None  # of tables
    write_explanation(out, found, rows.ids.tolist(), classes)
    return found.margins.shape


def write_explanation(out: Path, found: Explanation, ids: list[str], classes: tuple[str, ...]) -> None:
    """Write the file that :func:`explain_stored_model` describes; OutputError where it cannot be written."""
    with atomic_write(out) as file:
        pq.write_table(pa.table(_columns(found, ids, classes)), file)


def _columns(found: Explanation, ids: list[str], classes: tuple[str, ...]) -> dict[str, Any]:
    """Return the columns of the SHAP value file."""
    outputs = found.margins.shape[1]
    columns: dict[str, Any] = {"id": pa.array(np.repeat(ids, outputs).tolist(), pa.string())}
    if outputs > 1:
        columns["output"] = pa.array([*classes] * len(ids), pa.string())
    columns["margin"] = found.margins.ravel()
    columns["expected"] = np.tile(found.expected, len(ids))
    return columns | {
        _column(feature): found.values[:, position].ravel() for position, feature in enumerate(found.features)
    }


def _column(feature: Feature) -> str:
    return f"{feature.party}.{feature.name or feature.number}"
