"""One party of a prediction over a network, with its own rows and its own share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelward.errors import FileFormatError, JobError, PolicyError
from labelward.federation.components import make_policies, model_family, with_defaults
from labelward.federation.model import InferenceSession, PartyRows, Warn, ignore_warning, load_rows
from labelward.federation.model_shares import check_share
from labelward.federation.party_run import Join, Log, require_party, run_until_complete
from labelward.federation.party_training import party_variant
from labelward.federation.predict import write_predictions
from labelward.federation.simulation import MODEL
from labelward.job import Job, Variant
from labelward.party.context import Context
from labelward.party.public_reason import CONSENT
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
    side = ModelSide.of(job, party, run, out)
    rows = side.rows(table, warn)
    ids, named = rows.ids.tolist(), (side.job.active.id or "id", rows.ids, rows.place)

    def live(ctx: Context) -> None:
        if out is None:
            count_queries(run / party, ctx.active, ids, side.job.connection().row_queries)
        margins = side.programs.predict(ctx, side.share, rows.columns, mode)
        if out is not None:
            write_predictions(out, side.programs, side.share, margins, named)

    side.converse("predict", ids, live, join, log)
    log("predicted", {"rows": len(ids)})
    return len(ids)


@dataclass(frozen=True, kw_only=True)
class ModelSide:
    """What one party brings to what is done with a trained model over a network, and how it meets the others."""

    job: Job
    party: str
    share: PartyShare
    record: PartyRecord

    @classmethod
    def of(cls, job: Job, party: str, run: Path, out: Path | None) -> ModelSide:
        """Return what a party brings.

        Args:
            job: that of the training, with its ``[network]`` section.
            party: its name in the job.
            run: the folder of its training.
            out: the file that the active party writes; None at a passive one.

        Raises:
            JobError: no such party, no network, or the wrong party gets the result.
            FileFormatError: the folder holds no finished share of this party.
        """
        job = with_defaults(job)
        require_party(job, party)
        if (out is None) != (party != job.active.name):
            what = "remove it" if out else "name the file to write"
            reason = f"the active party {job.active.name!r} gets the result, and no other; {what}"
            raise JobError(reason, code="conflict", field="--to", value=party)
        share, record = finished_share(model_family(job.model), run, party)
        return cls(job=job, party=party, share=share, record=record)

    @property
    def programs(self) -> ModelFamily[Any]:
        """The family of the model."""
        return model_family(self.job.model)

    def rows(self, table: Path, warn: Warn) -> PartyRows:
        """Return the party's rows of a table."""
        return load_rows(self.job, self.share, table, self.record.dates, True, warn)

    def require_consent(self, to: str) -> None:
        """Raise :class:`~labelward.errors.PolicyError` where the party does not agree to something."""
        if to not in self.job.connection().consent:
            raise PolicyError(
                f'party {self.party!r} does not agree to this; add "{to}" if it does',
                code="missing",
                field=CONSENT,
                value=to,
            )

    def converse(
        self,
        purpose: str,
        ids: Sequence[str],
        program: Callable[[Context], None],
        join: Join,
        log: Log,
        agreed: Mapping[str, str] | None = None,
    ) -> None:
        """Meet the others for a purpose, agree with them on the rows and the rest, and run this party's program."""
        session = InferenceSession.of(self.programs, {self.party: self.share}, ids, job=agreed)
        defended = party_variant(self.job, self.party, self.record.defense) if self.record.defense else Variant()
        leads = self.party == self.job.active.name

        def context(transport: Transport) -> Context:
            return session.context(
                transport,
                Transcript(session.header(self.party)),
                timeout=self.job.connection().silence,
                policies=PolicyChain(() if leads else make_policies(defended, self.party)),
            )

        def live(ctx: Context) -> None:
            session.handshake(ctx)
            program(ctx)

        network, _ = join(self.job, self.party, purpose, log)
        with closing(network):
            run_until_complete(network, context, live, log)


def finished_share(programs: ModelFamily[Any], run: Path, party: str) -> tuple[PartyShare, PartyRecord]:
    """Return a party's share, and the record of its run.

    Raises:
        FileFormatError: the folder holds no finished share of this party.
    """
    record = read_party_record(run)
    if record is None or record.party != party:
        found = "" if record is None else f"; it is that of {record.party!r}"
        raise FileFormatError(
            f"no record of a run of party {party!r}{found}; train first, or give the training's folder as --out",
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
    check_share(run, party)
    return programs.load(run / party / MODEL), record
