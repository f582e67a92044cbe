"""Stored shares of a trained model, checked for consistency."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labelward.errors import FileFormatError, JobError
from labelward.federation.simulation import MODEL
from labelward.job import Job, Variant, load_job
from labelward.protocols.family import ModelFamily, PartyShare
from labelward.runs.directory import JOB_FILE, made_for
from labelward.runs.short_names import variant_without_defaults


def trained_job(run: Path) -> Job:
    """Return the job of a training.

    Raises:
        FileFormatError: the folder is none of a training.
    """
    if (purpose := made_for(run)) in ("audit", "tune"):
        what = "an audit" if purpose == "audit" else "a search"
        reason = f"is the folder of {what}, not of a training; give the --out folder of labelward train"
        raise FileFormatError(reason, code="foreign", field=str(run), value=purpose)
    try:
        return load_job(run / JOB_FILE)
    except JobError as error:
        reason = f"is not the folder of a training run ({error}); give the --out folder of labelward train"
        raise FileFormatError(reason, code="foreign", field=str(run)) from error


def trained_variant(run: Path, job: Job, slug: str) -> Variant:
    """Return the defense variant of a training.

    Args:
        run: its folder.
        job: as stored there.
        slug: of the variant, as the training's record has it.

    Raises:
        FileFormatError: the job does not have it, so that the parties' defenses in predictions are not known.
    """
    variants = {variant_without_defaults(variant).slug: variant for variant in job.variants()}
    if slug not in variants and any("party" in kind.params for each in variants.values() for kind in each.chain):
        raise FileFormatError(
            f"the job has no variant {slug!r}, which the record names", code="damaged", field=str(run), value=slug
        )
    return variants.get(slug, Variant())


def load_shares(programs: ModelFamily[Any], run: Path, job: Job) -> dict[str, PartyShare]:
    """Return every party's share of the model from a training of this job.

    Raises:
        FileFormatError: one is missing or damaged, of another party, of other parties, of another kind of model or of
            another model.
    """
    names = tuple(party.name for party in job.parties)
    for name in names:
        check_share(run, name)
    shares = {name: _share(programs, run / name / MODEL, name, names, job.model.kind) for name in names}
    for name in names[1:]:
        if shares[name].model != shares[names[0]].model:
            raise FileFormatError(
                f"the share of party {name!r} is of another model than that of {names[0]!r} in "
                f"{run / names[0] / MODEL}; shares of one training belong together",
                code="other-run",
                field=str(run / name / MODEL),
                value=name,
            )
    return shares


def check_share(run: Path, party: str) -> None:
    """Refuse a folder of a training without a party's share of the model."""
    folder = run / party / MODEL
    if not folder.exists():
        reason = f"the share of party {party!r} is missing: there is no {folder}"
        raise FileFormatError(reason, code="not-found", field=str(run), value=party)


def default_seed(job: Job, earlier: Path | None) -> int:
    """Return the seed of a training that names none: the job's first, or that of the model that is continued."""
    return (job if earlier is None else trained_job(earlier)).run.seeds[0]


def _share(programs: ModelFamily[Any], folder: Path, party: str, parties: tuple[str, ...], kind: str) -> PartyShare:
    share: PartyShare = programs.load(folder)
    for has, wanted, reason in (
        (share.party, party, f"the share of party {share.party!r} lies in the folder of {party!r}"),
        (
            share.parties,
            parties,
            f"a share of a model of the parties {', '.join(share.parties)}; the job has {', '.join(parties)}",
        ),
        (share.kind, kind, f"a share of a model of kind {share.kind!r}; the job has {kind!r}"),
    ):
        if has != wanted:
            raise FileFormatError(reason, code="other-run", field=str(folder), value=has)
    return share
