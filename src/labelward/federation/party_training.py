"""One party of a training over a network, with its own data and folder.

A party runs the same program as in a simulation, and records the same view; only the transport differs. A run is made
of *attempts*: if a party restarts as a new process, all parties begin a new attempt and resume from their last
common checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from labelward.data import (
    DataSplit,
    PartyTable,
    encode_party,
    held_labels,
    load_active,
    load_party_table,
    most_columns,
    warn_of_label_proxies,
)
from labelward.errors import JobError, OutputError, unknown_name
from labelward.federation.components import (
    check_job,
    common_defense,
    job_engine,
    make_policies,
    model_family,
    own_part,
    policy_chains,
    with_defaults,
)
from labelward.federation.engine_choice import choice_sentence, choose_engine
from labelward.federation.leakage_monitor import leakage_figures, monitored_chains
from labelward.federation.party_run import AttemptResult, Join, Log, PartyProgram, PartyRun, require_party
from labelward.federation.simulation import key_info
from labelward.he import Engine
from labelward.installation import version
from labelward.job import Job, Variant
from labelward.kernels.binning import bin_columns
from labelward.metrics.utility import utility_scores
from labelward.party.checkpoint import NOISE_FILE
from labelward.party.context import Context, Progress, no_progress
from labelward.party.handshake import Agreement, RowMasks
from labelward.party.noise_record import supersede_draws
from labelward.policy.base import Policy
from labelward.policy.chain import PolicyChain
from labelward.protocols.common import PartyInputs
from labelward.protocols.family import label_vector, labels_of
from labelward.rng import PrivateSeed
from labelward.runs.directory import locked_output
from labelward.runs.party_record import PartyRecord, read_party_record
from labelward.runs.private_seeds import PRIVATE_FILE, Seeds, keep_seeds, resolve_seeds, stored_seeds
from labelward.runs.short_names import variant_without_defaults


def train_as_party(
    job: Job,
    party: str,
    out: Path,
    *,
    seed: int,
    join: Join,
    variant: str | None = None,
    force: bool = False,
    restart: bool = False,
    repeat: Sequence[Path] = (),
    log: Log,
    progress: Progress = no_progress,
) -> PartyRecord:
    """Take part in a training as one party, until all parties have their share of the model.

    The same call resumes an earlier one with the same ``out``, however that one ended.

    Args:
        job: with a ``[network]`` section; only this party's own section needs a table.
        party: its name in the job.
        out: the party's folder of this run.
        seed: the same at all parties.
        variant: slug of one of ``job.variants()``, of which this party applies its own part. Nobody else learns it.
        force: discard the files of another run in ``out``.
        restart: forget this party's progress, but not what its defenses drew: all parties begin this run anew.
        repeat: folders of this party's earlier runs whose private draws are repeated.

    Raises:
        InputError: an invalid input, or a model that gives away more than its job allows, before anything is written.
        OutputError: ``out`` cannot be written, or contains the run of another job or defense.
        HandshakeError: the parties disagree on job, rows or version.
        PeerError: a peer was absent for too long, failed, or sent an invalid message; repeat the call to resume.
        PolicyError: the defense does not fit model or data.
    """
    job = with_defaults(replace(job, attacks=(), run=replace(job.run, seeds=(seed,))))
    require_party(job, party)
    job.connection()
    defended = party_variant(job, party, variant)
    if variant is None and party != job.active.name:
        _refuse_unowned(job, party)
    check_job(job)
    model_family(job.model).check_between_companies(policy_chains(job, defended)[party])
    own, seeds = load_party_table(job, party), resolve_seeds([party], None if force else out, repeat)
    private = seeds[party]
    if party == job.active.name:
        side = _active(job, own, seed, defended, private, progress)
    else:
        side = _passive(job, party, own, defended, private)
    with locked_output(out, job, "party", force=force):
        if force:
            supersede_draws(out / NOISE_FILE)
        record = _earlier_run(out, side, seeds)
        if record is not None and record.stage == "closed":
            log("done", {"model": record.model, "attempts": record.attempts})
            return record
        with closing(job_engine(job, background=party == job.active.name)) as engine:
            log("started", _protection(job, party, engine))
            if remark := model_family(job.model).remark([each.name for each in job.parties]):
                log("remark", {"remark": remark})
            if job.encryption.automatic:
                log("remark", {"remark": choice_sentence(job.encryption.engine, choose_engine().reason)})
            _load_libraries(job, party)
            network, fingerprint = join(job, party, "train", log)
            with closing(network):
                run = PartyRun(
                    job=job,
                    side=side,
                    out=out,
                    seed=seed,
                    engine=engine,
                    network=network,
                    log=log,
                    progress=progress,
                    restart=restart,
                )
                return run.to_its_end(record or run.first_record(fingerprint))


def _earlier_run(out: Path, side: PartyProgram, seeds: Seeds) -> PartyRecord | None:
    """Return the record of the run in a folder, which is resumed; None: there is none, and the seeds are stored."""
    record = read_party_record(out)
    if record is None:
        keep_seeds(out, seeds)
        return None
    if record.stage in ("running", "saved") and not stored_seeds(out):
        _refuse_without_seeds(out, record)
    if record.defense != side.defense:
        raise OutputError(
            f"contains a run with defense {record.defense}, not {side.defense}; choose another folder, "
            "or use --force to replace it",
            code="other-run",
            field=str(out),
            value=record.defense,
        )
    return record


def _load_libraries(job: Job, party: str) -> None:
    """Load what is imported late, a second or two, before the parties wait for each other."""
    if model_family(job.model).encrypts:
        bin_columns(np.zeros((2, 1)), 2)  # numba loads most of itself with its first kernel
    if party == job.active.name:
        import_module("sklearn.metrics")


def _refuse_without_seeds(out: Path, record: PartyRecord) -> None:
    """Refuse to resume a run whose private seed is missing, since its draws would differ."""
    if record.versions.get("labelward", "").startswith("0.1."):
        reason = "this run was begun by a version whose split leaked the labels; start over with --force"
    else:
        reason = f"{PRIVATE_FILE} of this run is missing; restore it, or start over with --force"
    raise OutputError(reason, code="other-run", field=str(out))


def _protection(job: Job, party: str, engine: Engine) -> dict[str, Any]:
    """Return the first line of a log: the party, the version, and what protects the run."""
    key = key_info(engine, job.encryption, "")
    protection = {"insecure": list(key.insecure), "engine": key.engine, "bits": key.bits, "kernel": key.kernel}
    return {"party": party, "version": version("labelward"), **protection}


def _active(
    job: Job, own: PartyTable, seed: int, defended: Variant, private: PrivateSeed, progress: Progress
) -> PartyProgram:
    party = job.active.name
    data, programs = load_active(job, own, seed, private), model_family(job.model)
    warn_of_label_proxies(data)

    def policies(progress: Progress = progress) -> tuple[Policy, ...]:
        return monitored_chains(job, data, defended, seed=seed, progress=progress)[party]

    programs.check(data, {party: policies(no_progress)}, passive=tuple(each.name for each in job.passive))
    validation, test = data.split.masks()
    masks = RowMasks(validation=validation, test=test)
    inputs = PartyInputs(data=data.parties[0], labels=label_vector(data))

    def live(run: PartyRun, ctx: Context) -> AttemptResult:
        _begin_view(run, ctx, inputs, masks)
        ended = programs.program(ctx, _handshake(run, ctx), inputs, run.engine)
        if remark := programs.remark_on(ended.share):
            run.log("remark", {"remark": remark})
        utility = utility_scores(programs, ended.margins, data)
        leakage = leakage_figures(ctx.policies.policies)
        return AttemptResult(ended=ended, dates=tuple(sorted(inputs.data.dates)), utility=utility, leakage=leakage)

    return PartyProgram(
        party=party,
        ids=data.ids.tolist(),
        private=private,
        policies=lambda: PolicyChain(policies()),
        live=live,
        masks=masks,
        defense=variant_without_defaults(defended).slug,
        common=common_defense(job, defended),
        classes=(len(data.classes) or 1) if programs.states_sizes else 0,
        drawn={"sides": masks.digest()},
    )


def _passive(job: Job, party: str, own: PartyTable, defended: Variant, private: PrivateSeed) -> PartyProgram:
    programs = model_family(job.model)
    held = held_labels(job, own) if party in job.holders else None

    def live(run: PartyRun, ctx: Context) -> AttemptResult:
        agreed = _handshake(run, ctx)
        masks = agreed.sides
        split = DataSplit.of(masks.validation, masks.test)
        inputs = PartyInputs(
            data=encode_party(job, own, split, private), labels=None if held is None else labels_of(held, split)
        )
        _begin_view(run, ctx, inputs, masks)
        ended = programs.program(ctx, agreed, inputs, run.engine)
        return AttemptResult(ended=ended, dates=tuple(sorted(inputs.data.dates)))

    return PartyProgram(
        party=party,
        ids=own.ids.tolist(),
        private=private,
        policies=lambda: PolicyChain(policy_chains(job, defended)[party]),
        live=live,
        defense=variant_without_defaults(defended).slug if defended.chain else "",
        common=common_defense(job, defended),
        columns=most_columns(job, own) if programs.states_sizes else 0,
    )


def _handshake(run: PartyRun, ctx: Context) -> Agreement:
    agreed = run.session.handshake(ctx)
    told: dict[str, Any] = {"rows": sum(agreed.rows), "resume": agreed.resume}
    sizes = {"columns": dict(agreed.columns), "classes": agreed.classes}
    told |= {name: size for name, size in sizes.items() if size}
    if ctx.party == ctx.active:
        run.log("agreed", told)
    else:  # whether the row ids are the same, the active party finds out
        ctx.when_heard(ctx.active, lambda: run.log("agreed", told))
    return agreed


def _begin_view(run: PartyRun, ctx: Context, inputs: PartyInputs, masks: RowMasks) -> None:
    if len(run.job.holders) > 1 and inputs.labels is not None:
        values = inputs.labels.values
        known = values[~np.isnan(values)]
        run.log("labels", {"rows": len(known), "of": len(values), "different": len(np.unique(known))})
    ctx.checkpoints.bind(run.side.private.keyed(inputs.digest()), ctx.transcript.begun)
    header = run.session.header(
        ctx.party,
        columns=inputs.data.columns,
        categories=inputs.categories,
        monotone=inputs.data.directions,
        masks=masks,
    )
    ctx.transcript.begin(header)


def _refuse_unowned(job: Job, party: str) -> None:
    """Refuse defenses that act at passive parties alone and name none: this party would begin without."""
    family = model_family(job.model)
    assigned, points = family.topology([each.name for each in job.parties], job.holders).assigned, family.points()
    there = points[assigned[job.active.name]]
    here = frozenset().union(*(points[role] for name, role in assigned.items() if name != job.active.name))
    for variant in job.variants():
        for policy in make_policies(variant):
            if policy.points and not policy.points & there and policy.points <= here:
                raise JobError(
                    f"defense {policy.kind!r} acts at passive parties only, and names none; add party = {party!r}",
                    code="missing",
                    field="[[defense]] party",
                    value=policy.kind,
                )


def party_variant(job: Job, party: str, slug: str | None) -> Variant:
    """Return the part of one of a job's variants that is a party's own; each party applies its own and no other.

    Args:
        job: completed.
        slug: of a whole variant, or of the party's part of it; None: the only part that the party has.

    Raises:
        JobError: no such variant, one in which the party has no part, or several to choose from.
    """
    parts = {variant: own_part(job, variant, party) for variant in job.variants()}
    if slug is None:
        own = {variant_without_defaults(part).slug: part for part in parts.values()}
        if len(own) > 1:
            raise JobError(
                f"party {party!r} has several variants; choose one of {', '.join(own)} with --defense", code="missing"
            )
        return Variant()
    named = {variant_without_defaults(each).slug: part for whole, part in parts.items() for each in (part, whole)}
    if slug not in named:
        raise JobError(unknown_name("variant", slug, named), code="unknown", field="--defense", value=slug)
    undefended = slug == variant_without_defaults(Variant()).slug and (
        party == job.active.name or any(part.chain for part in parts.values())
    )
    if not named[slug].chain and not undefended:
        raise JobError(
            f"nothing in {slug!r} is a defense of party {party!r}; give it to the party whose messages it defends",
            code="conflict",
            field="--defense",
            value=party,
        )
    return named[slug]
