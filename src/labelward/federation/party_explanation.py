"""One party of what is done with a trained model over a network: rows are explained, the joined model is exported.

Setting: as for predictions. Each party's ``[network] consent`` says what it agrees to, and is asked before anything
else. Where rows are explained, the active party learns on which side of every split each row lies, the explained ones
and the background, as in a prediction of these rows (they count as asked, :mod:`labelward.runs.query_record`), and
what :func:`~labelward.protocols.secureboost.explain.columns_passive` tells of the columns. A passive party learns which
rows are asked about, and no value: SHAP values are differences of leaf weights, which follow from labels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labelward.errors import DataError, PolicyError
from labelward.federation.components import model_family
from labelward.federation.explain import BACKGROUND, write_explanation
from labelward.federation.model import PURPOSE, Warn, evenly_spaced, ignore_warning
from labelward.federation.party_prediction import ModelSide, finished_share
from labelward.federation.party_run import Join, Log
from labelward.job import Job
from labelward.party.context import Context
from labelward.protocols.secureboost.explain import (
    Importance,
    columns_active,
    columns_passive,
    explain,
    own_importance,
)
from labelward.protocols.secureboost.export import export_active, export_passive
from labelward.protocols.secureboost.predict import predict_passive
from labelward.protocols.secureboost.share import ModelShare
from labelward.runs.party_record import read_party_record
from labelward.runs.query_record import count_queries


def importance_at_party(run: Path, job: Job) -> tuple[Importance, ...]:
    """Return what a party's own share says of the importance of columns; nobody is asked.

    Args:
        run: the folder that :func:`labelward.federation.party_training.train_as_party` left.
        job: as stored there.

    Raises:
        DataError: a model without trees.
        FileFormatError: the folder holds no finished share of this party.
    """
    record = read_party_record(run)
    assert record is not None
    share, _ = finished_share(model_family(job.model), run, record.party)
    return own_importance(_tree_share(share))


def explain_as_party(
    job: Job,
    party: str,
    run: Path,
    table: Path,
    out: Path | None = None,
    *,
    background: Path | None = None,
    most: int = BACKGROUND,
    join: Join,
    log: Log,
    warn: Warn = ignore_warning,
) -> int:
    """Take part in the explanation of rows as one party; return the number of rows.

    The active party alone learns the values, and writes the file that
    :func:`labelward.federation.explain.explain_stored_model` describes. A party that does not consent to ``"columns"``
    has one value, of all its columns together.

    Args:
        job: that of the training, with its ``[network]`` section.
        party: its name in the job.
        run: the folder that :func:`labelward.federation.party_training.train_as_party` left.
        table: the party's columns of the rows to be explained.
        out: the file to write, at the active party; None at a passive one.
        background: its columns of the rows that are compared with; None: those of ``table``. Alike at all parties.
        most: number of background rows, the same at all parties; of more, so many are taken, evenly spaced.
        warn: hears of each column of categories of which the model knows none.

    Raises:
        JobError: no such party, or no network.
        FileFormatError: the folder holds no finished share of this party.
        DataError: as :meth:`labelward.federation.model.FederatedModel.bring`, of this party; or a model without trees.
        HandshakeError: the parties hold shares of different models, or bring different rows or numbers of rows.
        PeerError: a peer was away for too long, failed, or sent what cannot be.
        PolicyError: this party, which is passive, does not consent; or the active party asks it for a row more often
            than ``[network] row_queries`` allows.
    """
    side = ModelSide.of(job, party, run, out)
    share = _tree_share(side.share)
    if out is None:
        side.require_consent("rows")
    rows = side.rows(table, warn)
    behind = rows if background is None else side.rows(background, warn)
    if most < 1:
        raise DataError(f"at least 1 row is needed but got {most}", code="range", field="background", value=most)
    chosen = evenly_spaced(len(behind.ids), most)
    ids = [*rows.ids.tolist(), *behind.ids[chosen].tolist()]
    x, explained = np.concatenate([rows.columns, behind.columns[chosen]]), len(rows.ids)
    consent = side.job.connection().consent

    def live(ctx: Context) -> None:
        if out is not None:
            own = {ctx.party: (share.own, x)}
            found = explain(ctx, share, columns_active(ctx, share), own, explained, len(chosen))
            write_explanation(out, found, rows.ids.tolist(), share.classes)
            return
        count_queries(run / party, ctx.active, [*dict.fromkeys(ids)], side.job.connection().row_queries)
        columns_passive(ctx, share, names="names" in consent, grouped="columns" in consent)
        predict_passive(ctx, share, x)

    agreed = {"explained rows": str(explained), "background rows": str(len(chosen))}
    side.converse("explain", ids, live, join, log, agreed)
    log("explained", {"rows": explained, "background": len(chosen)})
    return explained


def export_as_party(
    job: Job, party: str, run: Path, out: Path | None = None, *, purpose: str = PURPOSE, join: Join, log: Log
) -> None:
    """Take part in an export of the joined model as one party, if every party consents to ``"export"``.

    The active party alone gets the model, and writes the file that
    :meth:`labelward.federation.model.FederatedModel.export` writes.

    Args:
        job: that of the training, with its ``[network]`` section.
        party: its name in the job.
        run: the folder that :func:`labelward.federation.party_training.train_as_party` left.
        out: the file to write (``.json``), at the active party; None at a passive one.
        purpose: of the export, as the active party states it to the others, which log it.

    Raises:
        PolicyError: a party does not consent; nothing is told or written.
        JobError, FileFormatError, DataError, HandshakeError, PeerError: as :func:`explain_as_party`.
        OutputError: the file cannot be written.
    """
    side = ModelSide.of(job, party, run, out)
    share = _tree_share(side.share)
    consent = side.job.connection().consent
    if out is not None:
        side.require_consent("export")

    def decide(stated: str) -> bool:
        log("asked", {"purpose": stated, "consent": "export" in consent})
        return "export" in consent

    def live(ctx: Context) -> None:
        if out is not None:
            export_active(ctx, share, out, purpose=purpose)
            return
        refused = export_passive(ctx, share, consent=decide, names="names" in consent)
        if refused:
            side.require_consent("export")
            raise PolicyError(
                f"that of {', '.join(map(repr, refused))} is missing, so the model is not exported",
                code="missing",
                field="consent",
                value=refused,
            )

    side.converse("export", [], live, join, log)
    log("exported", {"model": share.model})


def _tree_share(share: object) -> ModelShare:
    """Return a share of trees; :class:`~labelward.errors.DataError` for another one."""
    if not isinstance(share, ModelShare):
        kind = getattr(share, "kind", "")
        raise DataError(
            f"importance, explanations and exports are of trees; this model is of kind {kind!r}",
            code="unsupported",
            value=kind,
        )
    return share
