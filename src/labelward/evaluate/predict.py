"""Prediction with the shares that a training left: one process, one thread for each party."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelward.data import encode_as, origin, read_ids, read_table, refuse_other_rows
from labelward.errors import DataError, unknown_name
from labelward.evaluate.kinds import make_programs
from labelward.evaluate.private import replacing
from labelward.evaluate.programs import PredictMode, Share
from labelward.evaluate.shares import load_shares, trained_job
from labelward.job import Job, PartySection
from labelward.kernels.objectives import Objective
from labelward.party.context import Context
from labelward.party.handshake import greet_active, greet_passives
from labelward.party.local import run_parties
from labelward.party.transcript import FORMAT, Header, Transcript
from labelward.transport.base import Transport

__all__ = ["predict"]

Floats = NDArray[np.float64]

_MARGIN_IS_PREDICTED = ("reg:squarederror", "variance", "gini")


def predict(run: Path, tables: Mapping[str, Path], out: Path, *, mode: PredictMode = "one-round") -> int:
    """Predict the rows of the parties' tables with the shares of a training; return how many rows.

    Writes a Parquet file. Its columns are ``id``; the margins, where they are not what is predicted: ``margin``, or
    ``margin_CLASS`` for each class; for classes the probabilities: ``probability`` of the second of two, else
    ``probability_CLASS`` for each; and ``prediction``, the class or the quantity. Rows are matched by the job's id
    columns and sorted by id; without ids the tables' rows must be in the same order.

    Args:
        run: the folder that :func:`labelward.evaluate.train.train` wrote.
        tables: each party's table.
        out: the file to write.
        mode: ``"levels"`` tells the active party less, and passive parties more; the predictions are the same.

    Raises:
        FileFormatError: a share is missing, damaged, of another party or kind.
        DataError: a table cannot be used, lacks a column or has one that its party had not, or the parties bring
            different rows.
        HandshakeError: the shares are of different models.
    """
    job = trained_job(run)
    names = [party.name for party in job.parties]
    for name in tables:
        if name not in names:
            raise DataError(unknown_name("party", name, names))
    for name in names:
        if name not in tables:
            raise DataError(f"party {name!r}: its table is needed, since the others cannot predict without it")
    programs = make_programs(job.model)
    shares = load_shares(programs, run, job)
    held = {party.name: _rows(job, party, shares[party.name], tables[party.name]) for party in job.parties}
    for name in names[1:]:
        refuse_other_rows("bring", (names[0], held[names[0]][0]), (name, held[name][0]))

    def live(name: str, ctx: Context) -> Floats:
        ids, x = held[name]
        agreed = {"model": shares[name].model}
        if name == names[0]:
            greet_passives(ctx, agreed, (0, len(ids)), ids.tolist())
            margins: Floats = programs.predict_active(ctx, shares[name], x, mode)
            return margins
        greet_active(ctx, agreed, (0, len(ids)), ids.tolist())
        programs.predict_passive(ctx, shares[name], x)
        return np.empty((0, 0))

    ids = held[names[0]][0]
    connect = partial(_context, names=names, rows=len(ids))
    margins = run_parties({name: (connect, partial(live, name)) for name in names})[names[0]]
    classes = shares[names[0]].classes
    _write(out, {"id": pa.array(ids.tolist(), pa.string()), **_columns(programs.objective(classes), margins, classes)})
    return len(ids)


def _rows(job: Job, party: PartySection, share: Share, path: Path) -> tuple[NDArray[np.str_], Floats]:
    """Return ids and columns of one party's rows, sorted by id where the job names an id column."""
    place = f"party {party.name!r}, table {str(path)!r}"
    column = party.id or job.data.id
    table = read_table(path, text=[column] if column else [])
    x = encode_as(table, share.columns, share.categories, place)
    _refuse_strangers(job, party, share, table.column_names, place)
    if column is None:
        return np.arange(table.num_rows).astype(np.str_), x
    ids = read_ids(table, column, place)
    order = np.argsort(ids)
    return ids[order], x[order]


def _refuse_strangers(job: Job, party: PartySection, share: Share, found: list[str], place: str) -> None:
    """Refuse columns that the party's own table had not, where it brought all that it had.

    With dummies a column of a single category leaves no trace in the share, so that it cannot be told from a stranger.
    """
    if party.table is None or party.columns is not None or job.data.categories == "dummies":
        return
    known = {origin(name, found) for name in share.columns} | set(party.roles().values()) | {"id"}
    strangers = [name for name in found if name not in known]
    if strangers:
        more = ", …" if len(strangers) > 5 else ""
        told = ", ".join(map(repr, strangers[:5])) + more
        raise DataError(f"{place}: has columns that the model does not know: {told}; leave them out")


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


def _columns(objective: Objective, margins: Floats, classes: tuple[str, ...]) -> dict[str, Any]:
    """Return the columns of a file of predictions, but for the ids."""
    predicted = objective.predicted(margins)
    found: dict[str, Any] = {}
    if objective.name not in _MARGIN_IS_PREDICTED:
        names = [f"_{name}" for name in classes] if margins.shape[1] > 1 else [""]
        found |= {f"margin{name}": margins[:, position] for position, name in enumerate(names)}
    if not classes:
        return found | {"prediction": predicted}
    if len(classes) == 2:
        found["probability"] = predicted[:, 1]
    else:
        found |= {f"probability_{name}": predicted[:, position] for position, name in enumerate(classes)}
    return found | {"prediction": pa.array(np.asarray(classes)[predicted.argmax(axis=1)].tolist(), pa.string())}


def _write(out: Path, columns: Mapping[str, Any]) -> None:
    with replacing(out, 0o666) as file:
        pq.write_table(pa.table(dict(columns)), file)
