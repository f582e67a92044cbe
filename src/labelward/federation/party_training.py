"""One party of a run between companies: its own data and folder here, the other parties behind a network.

The program that a party runs is the one of a rehearsal, and so is its view; only the transport differs. A run is made
of *attempts*: where a party comes back as a new process, all parties begin a new attempt, and go on from the last
checkpoint that they have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from labelward.data import DataSplit, PartyTable, encode_party, load_active, load_party_table
from labelward.errors import JobError, OutputError
from labelward.federation.components import check_job, make_engine, make_policies, model_adapter, with_defaults
from labelward.federation.leakage_monitor import with_monitor
from labelward.federation.party_run import AttemptResult, Join, Log, PartyProgram, PartyRun, require_party
from labelward.federation.simulation import key_info, make_header
from labelward.federation.train import defense_variant
from labelward.he import Engine
from labelward.job import Job
from labelward.metrics.utility import utility_scores
from labelward.party.context import Context, Progress, no_progress
from labelward.party.handshake import RowMasks, handshake_active, handshake_passive
from labelward.policy.chain import PolicyChain
from labelward.rng import PrivateSeed
from labelward.runs.directory import locked_output
from labelward.runs.party_record import PartyRecord, read_party_record
from labelward.runs.private_seeds import PRIVATE_FILE, keep_seeds, resolve_seeds, stored_seeds
from labelward.runs.short_names import variant_without_defaults

__all__ = ["train_as_party"]


def train_as_party(
    job: Job,
    party: str,
    out: Path,
    *,
    seed: int,
    join: Join,
    variant: str | None = None,
    force: bool = False,
    repeat: Sequence[Path] = (),
    log: Log,
    progress: Progress = no_progress,
) -> PartyRecord:
    """Take part in a training as one party, until all parties have their share of the model.

    The same call goes on with what an earlier one, however it ended, left in ``out``.

    Args:
        job: with a ``[network]`` section; only this party's own section needs a table.
        party: its name in the job.
        out: the party's folder of this run.
        seed: the same at all parties.
        variant: slug of one of ``job.variants()``; at the active party, which alone defends.
        force: throw away what another run left in ``out``.
        repeat: folders of this party's earlier runs whose private draws are repeated.

    Raises:
        InputError: of any kind, before anything is written.
        OutputError: ``out`` cannot be written, or holds the run of another job or defense.
        HandshakeError: the parties disagree on job, rows or version.
        PeerError: a peer was away for too long, failed, or sent what cannot be; the same call goes on later.
        PolicyError: the defense does not fit model or data.
    """
    job = with_defaults(replace(job, attacks=(), run=replace(job.run, seeds=(seed,))))
    require_party(job, party)
    job.connection()
    if variant is not None and party != job.active.name:
        raise JobError(
            f"the active party {job.active.name!r} alone defends, and tells nobody how",
            code="conflict",
            field="--defense",
            value=party,
        )
    check_job(job)
    own, seeds = load_party_table(job, party), resolve_seeds([party], None if force else out, repeat)
    private = seeds[party]
    if party == job.active.name:
        side = _active(job, own, seed, variant, private, progress)
    else:
        side = _passive(job, party, own, private)
    with locked_output(out, job, "party", force=force):
        record = read_party_record(out)
        if record is None:
            keep_seeds(out, seeds)
        elif record.stage in ("running", "saved") and not stored_seeds(out):
            _refuse_without_seeds(out, record)
        if record is not None and record.defense != side.defense:
            raise OutputError(
                f"holds a run that is defended by {record.defense}, not {side.defense}; choose another folder, "
                "or --force to replace it",
                code="other-run",
                field=str(out),
                value=record.defense,
            )
        if record is not None and record.stage == "closed":
            log("done", {"model": record.model, "attempts": record.attempts})
            return record
        engine = make_engine(job.encryption, background=party == job.active.name)
        log("started", _protection(job, party, engine))
        try:
            network, fingerprint = join(job, party, "train", log)
            try:
                run = PartyRun(
                    job=job, side=side, out=out, seed=seed, engine=engine, network=network, log=log, progress=progress
                )
                return run.to_its_end(record or run.first_record(fingerprint))
            finally:
                network.close()
        finally:
            engine.close()


def _refuse_without_seeds(out: Path, record: PartyRecord) -> None:
    """Refuse to go on with a run whose private seed is not there: it would draw otherwise."""
    if record.versions.get("labelward", "").startswith("0.1."):
        reason = "this run was begun by a version whose split gave the labels away; begin anew with --force"
    else:
        reason = f"{PRIVATE_FILE} of this run is missing; put it back, or begin anew with --force"
    raise OutputError(reason, code="other-run", field=str(out))


def _protection(job: Job, party: str, engine: Engine) -> dict[str, Any]:
    """Return what the first line of a log says: who this is, and what will protect the run."""
    key = key_info(engine, job.encryption, "")
    told = {"insecure": list(key.insecure), "engine": key.engine, "bits": key.bits, "kernel": key.kernel}
    return {"party": party, "version": version("labelward"), **told}


def _active(
    job: Job, own: PartyTable, seed: int, variant: str | None, private: PrivateSeed, progress: Progress
) -> PartyProgram:
    defended = defense_variant(job, variant)
    data, programs = load_active(job, own, seed, private), model_adapter(job.model)
    passive = tuple(each.name for each in job.passive)
    programs.check(data, with_monitor(job, data, make_policies(defended), seed=seed), passive=passive)
    validation, test = data.split.masks()
    sides = RowMasks(validation=validation, test=test)

    def live(run: PartyRun, ctx: Context) -> AttemptResult:
        offer = run.offer()
        ctx.transcript.begin(make_header(data.parties[0], offer, sides, run.engine, run.insecure()))
        agreed = handshake_active(ctx, offer, sides)
        run.log("agreed", {"rows": sum(agreed.rows), "resume": agreed.resume})
        ended = programs.active(ctx, agreed, data, run.engine)
        utility = utility_scores(programs, ended.margins, data)
        return AttemptResult(ended=ended, dates=tuple(sorted(data.parties[0].dates)), utility=utility)

    def policies() -> PolicyChain:
        return PolicyChain(with_monitor(job, data, make_policies(defended), seed=seed, progress=progress))

    slug = variant_without_defaults(defended).slug
    return PartyProgram(
        party=job.active.name,
        ids=data.ids.tolist(),
        private=private,
        policies=policies,
        live=live,
        defense=slug,
        drawn={"sides": sides.digest()},
    )


def _passive(job: Job, party: str, own: PartyTable, private: PrivateSeed) -> PartyProgram:
    programs = model_adapter(job.model)

    def live(run: PartyRun, ctx: Context) -> AttemptResult:
        offer = run.offer()
        agreed = handshake_passive(ctx, offer)
        run.log("agreed", {"rows": sum(agreed.rows), "resume": agreed.resume})
        held = encode_party(job, own, DataSplit.of(agreed.sides.validation, agreed.sides.test), private)
        ctx.transcript.begin(make_header(held, offer, agreed.sides, run.engine, run.insecure()))
        return AttemptResult(ended=programs.passive(ctx, agreed, held, run.engine), dates=tuple(sorted(held.dates)))

    return PartyProgram(party=party, ids=own.ids.tolist(), private=private, policies=PolicyChain, live=live)
