"""Training without attacks: one model, as shares of the parties; from the start, or on top of an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labelward.data import PartyData, Rehearsal, load_source, prepare
from labelward.errors import DataError, JobError, unknown_name
from labelward.evaluate.folder import check_output, finished_in
from labelward.evaluate.kinds import check_job, completed, make_engine, make_policies, make_programs
from labelward.evaluate.metering import metered
from labelward.evaluate.names import brief_variant
from labelward.evaluate.programs import Programs, Share, Watched
from labelward.evaluate.rehearse import key_info, rehearse
from labelward.evaluate.results import Cost, KeyInfo
from labelward.evaluate.shares import load_shares, trained_job
from labelward.evaluate.utility import scores
from labelward.evaluate.watch import Watch, silent
from labelward.job import Job, RunSection, Variant

__all__ = ["TrainedModel", "train"]


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """What a training came to.

    Attributes:
        dataset: name of the data.
        seed: of the run.
        variant: slug of what defended it.
        utility: metrics on the test rows, the one that ranks first.
        watched: how the validation rows fared, where there are any.
        parties: whose folders were written.
    """

    dataset: str
    seed: int
    variant: str
    utility: dict[str, float]
    cost: Cost
    key: KeyInfo
    watched: Watched | None
    parties: tuple[str, ...]


def train(
    job: Job,
    out: Path,
    *,
    seed: int,
    variant: str | None = None,
    force: bool = False,
    watch: Watch = silent,
    earlier: Path | None = None,
) -> TrainedModel:
    """Train once, and write ``job.toml`` and for each party ``view`` and ``model``.

    They come to be in a folder beside ``out``, ``.OUT.partial``, and are moved when all is done.

    Args:
        job: its seeds and attacks play no part.
        out: a new folder; ``force`` replaces that of another training.
        seed: of the learning draws and of the split.
        variant: slug of one of ``job.variants()``; None where there is only one.
        earlier: the folder of a training that is gone on with: the model has its trees, then as many as the job says.
            Parties, kind of model, columns, classes and seed must be the same.

    Raises:
        InputError: of any kind, before anything is written.
        PolicyError: the defense does not fit model or data.
    """
    job = completed(replace(job, attacks=(), run=RunSection(seeds=(seed,))))
    defended = _variant(job, variant)
    job, name = replace(job, defenses=(defended,) * bool(defended.chain)), brief_variant(defended)
    check_job(job)
    check_output(out, job, "train", force=force)
    source, programs = load_source(job), make_programs(job.model)
    data = prepare(job, seed, source)
    programs.check(data, metered(job, data, make_policies(defended), seed=seed))
    shares = None if earlier is None else _earlier(programs, earlier, job, data)
    engine = make_engine(job.encryption)
    try:
        with finished_in(out, job) as folder:
            ended = rehearse(
                job,
                data,
                make_policies(defended),
                engine,
                folder,
                seed=seed,
                progress=lambda what, done, total: watch(what, done, total, name.label),
                shares=shares,
            )
        key = key_info(engine, job.encryption, ended.fingerprint)
    finally:
        engine.close()
    return TrainedModel(
        dataset=source.name,
        seed=seed,
        variant=name.slug,
        utility=scores(programs, ended.margins, data),
        cost=ended.cost,
        key=key,
        watched=ended.watched,
        parties=tuple(party.name for party in data.parties),
    )


def _variant(job: Job, slug: str | None) -> Variant:
    variants = {brief_variant(variant).slug: variant for variant in job.variants()}
    if slug is None:
        if len(variants) > 1:
            raise JobError(f"the job has several variants; choose one of {', '.join(variants)}")
        return Variant()
    if slug not in variants:
        raise JobError(unknown_name("variant", slug, variants))
    return variants[slug]


def _earlier(programs: Programs[Any], run: Path, job: Job, data: Rehearsal) -> Mapping[str, Share]:
    """Return the shares of a training that this job can go on with."""
    before = trained_job(run)
    names, theirs = ([party.name for party in each.parties] for each in (job, before))
    if names != theirs:
        raise JobError(f"{run}: a model of the parties {', '.join(theirs)}; the job has {', '.join(names)}")
    if before.model.kind != job.model.kind:
        raise JobError(f"[model] kind: {run} holds a model of kind {before.model.kind!r}, not {job.model.kind!r}")
    if before.run.seeds != job.run.seeds:
        raise JobError(
            f"{run}: was trained with seed {before.run.seeds[0]}; with seed {job.run.seeds[0]} some of its training "
            "rows would be tested on, so go on with the same seed"
        )
    shares = load_shares(programs, run, before)
    for party in data.parties:
        _check_columns(run, party, shares[party.name])
    active = shares[names[0]]
    if active.classes != data.classes:
        was, now = (", ".join(each) or "a quantity" for each in (active.classes, data.classes))
        raise DataError(f"{run}: its label was {was}; {data.label} is {now}")
    return shares


def _check_columns(run: Path, party: PartyData, share: Share) -> None:
    if share.columns != party.columns:
        missing = [name for name in share.columns if name not in party.columns]
        more = [name for name in party.columns if name not in share.columns]
        told = [
            f"{word} {', '.join(map(repr, names[:5]))}{', …' if len(names) > 5 else ''}"
            for word, names in (("lacks", missing), ("has besides", more))
            if names
        ]
        raise DataError(
            f"party {party.name!r}: has not the columns of the model in {run}: it "
            f"{' and '.join(told) or 'has them in another order'}"
        )
    categories = {party.columns[position]: names for position, names in party.categories.items()}
    for name in party.columns:
        if categories.get(name) != share.categories.get(name):
            raise DataError(f"party {party.name!r}, column {name!r}: has other categories than the model in {run}")
