"""Training without attacks: one model, as shares of the parties; from the start, or on top of an earlier one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labelward.data import VerticalDataset, load_dataset, load_tables, warn_of_label_proxies
from labelward.errors import JobError, unknown_name
from labelward.federation.components import check_job, job_engine, make_engine, model_family, with_defaults
from labelward.federation.engine_choice import alternatives, costs_beside
from labelward.federation.leakage_monitor import monitored_chains
from labelward.federation.progress import Watch, no_log
from labelward.federation.simulation import key_info, simulate_job
from labelward.federation.warm_start import load_warm_start
from labelward.he import Engine
from labelward.job import Job, Variant
from labelward.metrics.utility import utility_scores
from labelward.policy.base import Policy
from labelward.protocols.family import ModelFamily, ValidationHistory
from labelward.runs.directory import atomic_directory, check_output
from labelward.runs.estimate import Estimate
from labelward.runs.private_seeds import keep_seeds, resolve_seeds, stored_seeds
from labelward.runs.provenance import library_versions
from labelward.runs.schema import Cost, KeyInfo
from labelward.runs.short_names import variant_without_defaults
from labelward.runs.training_record import RowCounts, TrainingRecord, Validation, write_record

Forecast = Callable[[Job, VerticalDataset, Engine, int, Sequence[Policy]], Estimate | None]
"""Called with a completed job, its data, engine, seed and policies."""


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """Result of a training.

    Attributes:
        dataset: name of the data.
        seed: of the run.
        variant: slug of what defended it.
        utility: metrics on the test rows, the one that ranks first.
        watched: metric of the validation rows, if there are any.
        phases: seconds by party and phase.
        estimate: estimated cost, if available.
        parties: whose folders were written.
        remark: what users must know of the model, such as that no tree has a split; empty for nothing.
    """

    dataset: str
    seed: int
    variant: str
    utility: dict[str, float]
    cost: Cost
    key: KeyInfo
    watched: ValidationHistory | None
    phases: dict[str, dict[str, float]]
    estimate: Estimate | None
    parties: tuple[str, ...]
    remark: str = ""


def train_variant(
    job: Job,
    out: Path,
    *,
    seed: int,
    variant: str | None = None,
    force: bool = False,
    watch: Watch = no_log,
    earlier: Path | None = None,
    repeat: Sequence[Path] = (),
    forecast: Forecast | None = None,
) -> TrainedModel:
    """Train once, and write ``job.toml``, ``training.json`` and for each party ``view`` and ``model``.

    They are written to ``.OUT.partial`` next to ``out`` and moved when complete.

    Args:
        job: its seeds and attacks play no part.
        out: a new folder; ``force`` replaces that of another training.
        seed: of the learning draws and of the split.
        variant: slug of one of ``job.variants()``; None where there is only one.
        earlier: folder of the training that a warm start continues: its trees, then as many as the job specifies.
            Parties, kind of model, columns, classes, seed, split and rows must be the same, and so are private draws.
        repeat: folders of earlier runs whose private draws, such as which rows are tested on, are repeated.
        forecast: estimates the cost of the training (:func:`labelward.planning.cost_model.forecast`).

    Raises:
        InputError: of any kind, before anything is written.
        PolicyError: the defense does not fit model or data.
    """
    job = with_defaults(replace(job, attacks=(), run=replace(job.run, seeds=(seed,))))
    defended = defense_variant(job, variant)
    job, name = replace(job, defenses=(defended,) * bool(defended.chain)), variant_without_defaults(defended)
    check_job(job)
    check_output(out, job, "train", force=force)
    source, programs = load_tables(job), model_family(job.model)
    again = [*repeat, *([earlier] if earlier and stored_seeds(earlier) else [])]
    private = resolve_seeds([party.name for party in job.parties], repeat=again)
    data = load_dataset(job, seed, source, private=private)
    programs.check(data, monitored_chains(job, data, defended, seed=seed))
    warn_of_label_proxies(data)
    shares = None if earlier is None else load_warm_start(programs, earlier, job, data)
    with closing(job_engine(job)) as engine, atomic_directory(out, job) as folder:
        keep_seeds(folder, private)
        estimate, beside = None, ""
        if forecast is not None:
            policies = monitored_chains(job, data, defended, seed=seed)[job.active.name]
            estimate = forecast(job, data, engine, seed, policies)
            beside = costs_of_engines(job, data, defended, seed, forecast, estimate)
        ended = simulate_job(
            job,
            data,
            defended,
            engine,
            folder,
            seed=seed,
            progress=lambda what, done, total: watch(what, done, total, name.label),
            shares=shares,
        )
        model = TrainedModel(
            dataset=source.name,
            seed=seed,
            variant=name.slug,
            utility=utility_scores(programs, ended.margins, data),
            cost=ended.cost,
            key=key_info(engine, job.encryption, ended.fingerprint, beside=beside),
            watched=ended.watched,
            phases={party: dict(meter.seconds) for party, meter in ended.meters.items()},
            estimate=estimate,
            parties=tuple(party.name for party in data.parties),
            remark=programs.remark_on(next(iter(ended.shares.values()))),
        )
        write_record(folder, _record(model, data, programs))
    return model


def _record(model: TrainedModel, data: VerticalDataset, programs: ModelFamily[Any]) -> TrainingRecord:
    watched = model.watched
    return TrainingRecord(
        dataset=model.dataset,
        seed=model.seed,
        defense=model.variant,
        utility={name: _finite(value) for name, value in model.utility.items()},
        primary=next(iter(model.utility)),
        validation=None
        if watched is None
        else Validation(metric=watched.metric, values=tuple(map(_finite, watched.values)), best_round=watched.best + 1),
        cost=model.cost,
        phases=model.phases,
        estimate=model.estimate,
        rows=RowCounts.of(data),
        dates={party.name: tuple(sorted(party.dates)) for party in data.parties},
        versions=library_versions(programs.libraries),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def defense_variant(job: Job, slug: str | None) -> Variant:
    """Return one of a job's variants; None: the only one. :class:`JobError` where there is none of that slug."""
    variants = {variant_without_defaults(variant).slug: variant for variant in job.variants()}
    if slug is None:
        if len(variants) > 1:
            raise JobError(
                f"the job has several variants; choose one of {', '.join(variants)} with --defense", code="missing"
            )
        return Variant()
    if slug not in variants:
        raise JobError(unknown_name("variant", slug, variants), code="unknown", field="--defense", value=slug)
    return variants[slug]


def costs_of_engines(
    job: Job,
    data: VerticalDataset,
    variant: Variant,
    seed: int,
    forecast: Forecast,
    estimate: Estimate | None,
) -> str:
    """Return what a completed job would cost under each engine that ``auto`` decides between; empty for other jobs.

    Args:
        variant: the defenses.
        estimate: under the engine that was chosen.
    """
    if not job.encryption.automatic or estimate is None:
        return ""
    found = {job.encryption.engine: estimate}
    for name, section in alternatives(job.encryption).items():
        if name not in found:
            other = with_defaults(replace(job, encryption=section))
            policies = monitored_chains(other, data, variant, seed=seed)[job.active.name]  # they act in the dry run
            with closing(make_engine(other.encryption)) as engine:
                costs = forecast(other, data, engine, seed, policies)
            if costs is not None:
                found[name] = costs
    return costs_beside(found)
