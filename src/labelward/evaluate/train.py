"""Training without attacks, and prediction with the shares that it left: one process, one thread for each party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelward.data import encode_as, load_source, prepare, read_ids, read_table, refuse_other_rows
from labelward.errors import DataError, FileFormatError, JobError, unknown_name
from labelward.evaluate.folder import JOB_FILE, check_output, finished_in
from labelward.evaluate.kinds import check_job, completed, make_engine, make_policies, make_programs
from labelward.evaluate.names import brief_variant
from labelward.evaluate.private import replacing
from labelward.evaluate.programs import Programs, Share
from labelward.evaluate.rehearse import MODEL, key_info, rehearse
from labelward.evaluate.results import Cost, KeyInfo
from labelward.evaluate.utility import probabilities, scores
from labelward.evaluate.watch import Watch, silent
from labelward.job import Job, RunSection, Variant, load_job
from labelward.party.context import Context
from labelward.party.handshake import greet_active, greet_passives
from labelward.party.local import run_parties
from labelward.party.transcript import FORMAT, Header, Transcript
from labelward.transport.base import Transport

__all__ = ["TrainedModel", "predict", "train"]


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """What a training came to.

    Attributes:
        dataset: name of the data.
        seed: of the run.
        variant: slug of what defended it.
        utility: ``auc``, ``accuracy``, ``f1`` on the test rows.
        parties: whose folders were written.
    """

    dataset: str
    seed: int
    variant: str
    utility: dict[str, float]
    cost: Cost
    key: KeyInfo
    parties: tuple[str, ...]


def train(
    job: Job, out: Path, *, seed: int, variant: str | None = None, force: bool = False, watch: Watch = silent
) -> TrainedModel:
    """Train once, and write ``job.toml`` and for each party ``view`` and ``model``.

    They come to be in a folder beside ``out``, ``.OUT.partial``, and are moved when all is done.

    Args:
        job: its seeds and attacks play no part.
        out: a new folder; ``force`` replaces that of another training.
        seed: of the learning draws and of the split.
        variant: slug of one of ``job.variants()``; None where there is only one.

    Raises:
        InputError: of any kind, before anything is written.
        PolicyError: the defense does not fit model or data.
    """
    job = completed(replace(job, attacks=(), run=RunSection(seeds=(seed,))))
    defended = _variant(job, variant)
    job, name = replace(job, defenses=(defended,) * bool(defended.chain)), brief_variant(defended)
    check_job(job)
    check_output(out, job, "train", force=force)
    source = load_source(job)
    data = prepare(job, seed, source)
    make_programs(job.model).check(data, make_policies(defended))
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
            )
        key = key_info(engine, job.encryption, ended.fingerprint)
    finally:
        engine.close()
    return TrainedModel(
        dataset=source.name,
        seed=seed,
        variant=name.slug,
        utility=scores(ended.margins, data.test_labels),
        cost=ended.cost,
        key=key,
        parties=tuple(party.name for party in data.parties),
    )


def predict(run: Path, tables: Mapping[str, Path], out: Path) -> int:
    """Predict the rows of the parties' tables with the shares of a training; return how many rows.

    Writes a Parquet file with the columns ``id``, ``margin``, ``probability`` (of the second class) and ``prediction``
    (the class). Rows are matched by the job's id columns and sorted by id; without ids the tables' rows must be in the
    same order.

    Args:
        run: the folder that :func:`train` wrote.
        tables: each party's table.
        out: the file to write.

    Raises:
        DataError: a table is missing, cannot be used, or holds other rows than the active party's.
        FileFormatError: a share is missing or damaged, or that of another party.
        HandshakeError: the shares are parts of different models.
    """
    job = _trained_job(run)
    names = [party.name for party in job.parties]
    for name in tables:
        if name not in names:
            raise DataError(unknown_name("party", name, names))
    for name in names:
        if name not in tables:
            raise DataError(f"party {name!r}: its table is needed, since the others cannot predict without it")
    programs = make_programs(job.model)
    shares = {name: _share(programs, run / name / MODEL, name, names) for name in names}
    held = {name: _rows(job, shares[name], tables[name]) for name in names}
    for name in names[1:]:
        refuse_other_rows("bring", (names[0], held[names[0]][0]), (name, held[name][0]))

    def live(name: str, ctx: Context) -> NDArray[np.float64]:
        ids, x = held[name]
        agreed = {"model": shares[name].model}
        if name == names[0]:
            greet_passives(ctx, agreed, (0, len(ids)), ids.tolist())
            margins: NDArray[np.float64] = programs.predict_active(ctx, shares[name], x)
            return margins
        greet_active(ctx, agreed, (0, len(ids)), ids.tolist())
        programs.predict_passive(ctx, shares[name], x)
        return np.empty(0)

    ids = held[names[0]][0]
    connect = partial(_context, names=names, rows=len(ids))
    margins = run_parties({name: (connect, partial(live, name)) for name in names})[names[0]]
    _write(out, ids, margins, shares[names[0]].classes)
    return len(ids)


def _variant(job: Job, slug: str | None) -> Variant:
    variants = {brief_variant(variant).slug: variant for variant in job.variants()}
    if slug is None:
        if len(variants) > 1:
            raise JobError(f"the job has several variants; choose one of {', '.join(variants)}")
        return Variant()
    if slug not in variants:
        raise JobError(unknown_name("variant", slug, variants))
    return variants[slug]


def _trained_job(run: Path) -> Job:
    try:
        return load_job(run / JOB_FILE)
    except JobError as error:
        raise FileFormatError(f"{run}: is no folder that labelward train wrote ({error})") from error


def _share(programs: Programs[Any], folder: Path, party: str, parties: Sequence[str]) -> Share:
    share: Share = programs.load(folder)
    if share.party != party:
        raise FileFormatError(f"{folder}: the share of party {share.party!r} lies in the folder of {party!r}")
    if share.parties != tuple(parties):
        raise FileFormatError(
            f"{folder}: a share of a model of the parties {', '.join(share.parties)}; the job has {', '.join(parties)}"
        )
    return share


def _rows(job: Job, share: Share, path: Path) -> tuple[NDArray[np.str_], NDArray[np.float64]]:
    """Return ids and columns of one party's rows, sorted by id where the job names an id column."""
    place = f"party {share.party!r}, table {str(path)!r}"
    column = next(party.id for party in job.parties if party.name == share.party) or job.data.id
    table = read_table(path, text=[column] if column else [])
    x = encode_as(table, share.columns, place)
    if column is None:
        return np.arange(table.num_rows).astype(np.str_), x
    ids = read_ids(table, column, place)
    order = np.argsort(ids)
    return ids[order], x[order]


def _context(transport: Transport, *, names: list[str], rows: int) -> Context:
    party = transport.party
    peers = tuple(name for name in names if name != party)
    header = Header(
        format=FORMAT,
        version=version("labelward"),
        party=party,
        role="active" if party == names[0] else "passive",
        peers=peers,
        rows=(0, rows),
        engine="none",
        bits=0,
        insecure=(),
        job={},
    )
    return Context(transport, active=names[0], peers=peers, transcript=Transcript(header), seed=0)


def _write(out: Path, ids: NDArray[np.str_], margins: NDArray[np.float64], classes: tuple[str, ...]) -> None:
    columns: dict[str, Any] = {
        "id": pa.array(ids.tolist(), pa.string()),
        "margin": margins,
        "probability": probabilities(margins),
        "prediction": pa.array([classes[int(margin > 0)] for margin in margins], pa.string()),
    }
    with replacing(out, 0o666) as file:
        pq.write_table(pa.table(columns), file)
