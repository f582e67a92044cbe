"""One party of a prediction over a network, with its own rows and its own share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labelward.errors import FileFormatError, JobError
from labelward.federation.components import make_policies, model_family, with_defaults
from labelward.federation.model import InferenceSession, Warn, ignore_warning, load_rows
from labelward.federation.party_run import Join, Log, require_party, run_until_complete
from labelward.federation.party_training import party_variant
from labelward.federation.predict import write_predictions
from labelward.federation.simulation import MODEL
from labelward.job import Job, Variant
from labelward.party.context import Context
from labelward.party.transcript import Transcript
from labelward.policy.chain import PolicyChain
from labelward.protocols.family import ModelFamily, PartyShare, PredictMode
from labelward.runs.party_record import PARTY_FILE, PartyRecord, read_party_record
from labelward.runs.query_record import count_queries
from labelward.transport.base import Transport


def predict_as_party(
    job: Job,
    party: str,
    run: Path,
    table: Path,
    out: Path | None = None,
    *,
    join: Join,
    log: Log,
    mode: PredictMode = "one-round",
    warn: Warn = ignore_warning,
) -> int:
    """Take part in the prediction of rows as one party; return the number of rows.

    Every party brings its own columns of the same rows, matched by id. The active party alone learns the predictions,
    and writes the file that :func:`labelward.federation.predict.predict_table` describes.

    Args:
        job: that of the training, with its ``[network]`` section.
        party: its name in the job.
        run: the folder that :func:`labelward.federation.party_training.train_as_party` left.
        table: the party's rows.
        out: the file to write, at the active party; None at a passive one.
        mode: at the active party.
        warn: hears of each column of categories of which the model knows none.

    Raises:
        JobError: no such party, or no network.
        FileFormatError: the folder holds no finished share of this party.
        DataError: as :meth:`labelward.federation.model.FederatedModel.bring`, of this party.
        HandshakeError: the parties hold shares of different models, or bring different rows.
        PeerError: a peer was away for too long, failed, or sent what cannot be.
        PolicyError: the active party asks a passive one for a row more often than ``[network] row_queries`` allows.
    """
    job = with_defaults(job)
    require_party(job, party)
    if (out is None) != (party != job.active.name):
        raise JobError(
            f"only the active party {job.active.name!r} learns the predictions, and says where they go",
            code="conflict",
            value=party,
        )
    programs = model_family(job.model)
    share, record = finished_share(programs, run, party)
    rows = load_rows(job, share, table, record.dates, True, warn)
    session = InferenceSession.of(programs, {party: share}, rows.ids.tolist())
    defended = party_variant(job, party, record.defense) if record.defense else Variant()

    def context(transport: Transport) -> Context:
        return session.context(
            transport,
            Transcript(session.header(party)),
            timeout=job.connection().silence,
            policies=PolicyChain(() if out is not None else make_policies(defended, party)),
        )

    def live(ctx: Context) -> None:
        session.handshake(ctx)
        if out is None:
            count_queries(run / party, ctx.active, session.ids, job.connection().row_queries)
        margins = programs.predict(ctx, share, rows.columns, mode)
        if out is not None:
            write_predictions(out, programs, share, margins, (job.active.id or "id", rows.ids, rows.place))

    network, _ = join(job, party, "predict", log)
    try:
        run_until_complete(network, context, live, log)
        log("predicted", {"rows": len(rows.ids)})
    finally:
        network.close()
    return len(rows.ids)


def finished_share(programs: ModelFamily[Any], run: Path, party: str) -> tuple[PartyShare, PartyRecord]:
    """Return a party's share, and the record of its run.

    Raises:
        FileFormatError: the folder holds no finished share of this party.
    """
    record = read_party_record(run)
    if record is None or record.party != party:
        found = "" if record is None else f"; it is that of {record.party!r}"
        raise FileFormatError(
            f"no record of a run of party {party!r}{found}",
            code="other-run",
            field=str(run / PARTY_FILE),
            value=None if record is None else record.party,
        )
    if record.stage not in ("finished", "closed"):
        raise FileFormatError(
            "the training is incomplete; run labelward party to resume it",
            code="incomplete",
            field=str(run),
            value=record.stage,
        )
    return programs.load(run / party / MODEL), record
