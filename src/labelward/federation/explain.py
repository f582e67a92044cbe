"""Explanations and export of a trained model: every party's program in one process, as between companies.

Each party decides for itself what it tells beyond what a program needs: the names of its columns, and its splits. Here
the caller says what each has decided.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from labelward.errors import DataError
from labelward.federation.model import AlignedRows, FederatedModel, Warn, ignore_warning
from labelward.party.context import Context
from labelward.protocols.secureboost.explain import (
    Explanation,
    Feature,
    Features,
    Importance,
    columns_active,
    columns_passive,
    explain,
    importance,
)
from labelward.protocols.secureboost.export import export_active, export_passive
from labelward.protocols.secureboost.plot import draw_svg, draw_text
from labelward.protocols.secureboost.predict import predict_passive
from labelward.protocols.secureboost.share import ModelShare
from labelward.runs.secure_files import atomic_write

__all__ = ["BACKGROUND", "column_importance", "explain_stored_model", "export_model", "plot_stored_tree"]

BACKGROUND = 100
"""How many background rows are taken, where nothing else is said."""

PURPOSE = "use outside of labelward"
_NO_ROWS = np.empty(0, np.str_)


def column_importance(run: Path, *, names: Collection[str] = ()) -> tuple[Importance, ...]:
    """Return the importance of every column in which the model splits, the largest total gain first.

    Args:
        run: the folder that :func:`labelward.federation.train.train_variant` wrote.
        names: the parties that tell the names of their columns; the others' are numbers.

    Raises:
        FileFormatError: the folder is none of a training, or a share is missing, damaged or of another model.
        DataError: a name that no party has.
    """
    trained = FederatedModel.load(run)
    return importance(_share(trained, trained.active), _features(trained, names))


def plot_stored_tree(run: Path, tree: int, *, names: Collection[str] = ()) -> tuple[str, str]:
    """Return a tree as text and as an SVG picture: the active party's splits in words, the others by owner and column.

    Args:
        run: the folder of a training.
        tree: its number, from 0.
        names: the parties that tell the names of their columns.

    Raises:
        DataError: no such tree, or a name that no party has.
        FileFormatError: as for :func:`column_importance`.
    """
    trained = FederatedModel.load(run)
    share, features = _share(trained, trained.active), _features(trained, names)
    return draw_text(share, tree, features), draw_svg(share, tree, features)


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
    """Write the SHAP values of the rows of the parties' tables to a Parquet file; return how many rows and outputs.

    Its columns are ``id``; ``output``, the class, where the model has several outputs (a row of the file for each);
    ``margin``; ``expected``, the mean margin of the background rows; and ``PARTY.COLUMN`` for each column in which the
    model splits, with its number in place of a name that is not told. Their sum is ``margin - expected``.

    Args:
        run: the folder of a training.
        tables: each party's table with the rows to be explained.
        out: the file to write.
        background: each party's table with the rows that are compared with; None: those of ``tables``.
        most: number of background rows; of more, so many are taken, evenly spaced.
        names: the parties that tell the names of their columns.
        warn: hears of each column of categories of which the model knows none.

    Raises:
        DataError: as :meth:`FederatedModel.bring`, or a name that no party has.
        FileFormatError: as for :func:`column_importance`.
    """
    trained = FederatedModel.load(run)
    trained.check_parties(names)
    if most < 1:
        raise DataError(f"at least 1 row is needed but got {most}", code="range", field="background", value=most)
    rows = trained.bring(tables, warn)
    behind = (rows if background is None else trained.bring(background, warn)).some(most)
    found = _explained(trained, rows, behind, names)
    share = _share(trained, trained.active)
    with atomic_write(out) as file:
        pq.write_table(pa.table(_columns(found, rows.ids.tolist(), share.classes)), file)
    return found.margins.shape


def export_model(run: Path, out: Path, *, consent: Collection[str] = (), names: Collection[str] = ()) -> Path:
    """Write the joined model as XGBoost's JSON, if every passive party consents; the active party does by asking.

    Args:
        run: the folder of a training.
        out: the file to write, ending in ``.json``.
        consent: the parties that consent, and so tell their splits.
        names: the parties that tell the names of their columns, too.

    Raises:
        PolicyError: a party does not consent; nothing is written.
        DataError: a name that no party has, or a model without trees.
        OutputError: the file cannot be written.
        FileFormatError: as for :func:`column_importance`.
    """
    trained = FederatedModel.load(run)
    trained.check_parties([*consent, *names])

    def follow(ctx: Context) -> None:
        party = ctx.party
        export_passive(ctx, _share(trained, party), consent=party in consent, names=party in names)

    share = _share(trained, trained.active)
    return trained.converse(_NO_ROWS, lambda ctx: export_active(ctx, share, out, purpose=PURPOSE), follow)


def _share(trained: FederatedModel, party: str) -> ModelShare:
    share = trained.shares[party]
    if not isinstance(share, ModelShare):
        raise DataError(
            f"explanations, drawings and exports are of trees; this model is of kind {share.kind!r}",
            code="unsupported",
            value=share.kind,
        )
    return share


def _features(trained: FederatedModel, names: Collection[str]) -> Features:
    trained.check_parties(names)
    share = _share(trained, trained.active)
    return trained.converse(
        _NO_ROWS,
        lambda ctx: columns_active(ctx, share),
        lambda ctx: columns_passive(ctx, _share(trained, ctx.party), names=ctx.party in names),
    )


def _explained(trained: FederatedModel, rows: AlignedRows, behind: AlignedRows, names: Collection[str]) -> Explanation:
    both = rows.followed_by(behind)

    def lead(ctx: Context) -> Explanation:
        share = _share(trained, ctx.party)
        own = {ctx.party: (share.own, both.columns[ctx.party])}
        return explain(ctx, share, columns_active(ctx, share), own, len(rows.ids), len(behind.ids))

    def follow(ctx: Context) -> None:
        share = _share(trained, ctx.party)
        columns_passive(ctx, share, names=ctx.party in names)
        predict_passive(ctx, share, both.columns[ctx.party])

    return trained.converse(both.ids, lead, follow)


def _columns(found: Explanation, ids: list[str], classes: tuple[str, ...]) -> dict[str, Any]:
    """Return the columns of a file of SHAP values."""
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
