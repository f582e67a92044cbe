"""What a training left of all parties, and how it is put to use: one process, one thread for each party."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from labelward.data import check_same_ids, read_ids, read_table, source_column, transform
from labelward.errors import DataError, unknown_name
from labelward.federation.adapter import ModelAdapter, PartyShare
from labelward.federation.components import model_adapter
from labelward.federation.model_shares import load_shares, trained_job
from labelward.job import Job, PartySection
from labelward.party.context import Context
from labelward.party.handshake import Proposal, RowMasks, handshake_active, handshake_passive
from labelward.party.in_process import run_parties
from labelward.party.transcript import FORMAT, Header, Transcript
from labelward.runs.training_record import read_record
from labelward.transport.base import Transport

__all__ = [
    "AlignedRows",
    "FederatedModel",
    "Warn",
    "ignore_warning",
    "inference_context",
    "inference_proposal",
    "load_rows",
]

Floats = NDArray[np.float64]
T = TypeVar("T")
Warn = Callable[[str], None]


def ignore_warning(message: str) -> None:
    """Pass a warning over."""


@dataclass(frozen=True, kw_only=True)
class AlignedRows:
    """The rows that the parties bring.

    Attributes:
        ids: their ids, the same at all parties.
        columns: for each party its encoded columns, float64 [rows, columns].
    """

    ids: NDArray[np.str_]
    columns: Mapping[str, Floats]

    def followed_by(self, other: AlignedRows) -> AlignedRows:
        """Return these rows, then the other ones."""
        return AlignedRows(
            ids=np.concatenate([self.ids, other.ids]),
            columns={name: np.concatenate([x, other.columns[name]]) for name, x in self.columns.items()},
        )

    def some(self, most: int) -> AlignedRows:
        """Return at most so many of the rows, evenly spaced."""
        count = len(self.ids)
        chosen = np.linspace(0, count - 1, min(most, count)).astype(np.int64)
        return AlignedRows(ids=self.ids[chosen], columns={name: x[chosen] for name, x in self.columns.items()})


@dataclass(frozen=True, kw_only=True)
class FederatedModel:
    """A model, as the shares of all its parties.

    Attributes:
        job: of the training.
        programs: how its kind of model is run.
        shares: by party, the active one first.
        dates: by party the columns that hold dates or times.
    """

    job: Job
    programs: ModelAdapter[Any]
    shares: Mapping[str, PartyShare]
    dates: Mapping[str, Collection[str]]

    @classmethod
    def load(cls, run: Path) -> FederatedModel:
        """Read the folder that :func:`labelward.federation.train.train_variant` wrote.

        Raises:
            FileFormatError: it is none, or a share is missing, damaged, of another party, kind or model.
        """
        job = trained_job(run)
        programs = model_adapter(job.model)
        shares = load_shares(programs, run, job)
        return cls(job=job, programs=programs, shares=shares, dates=read_record(run).dates)

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the active one first."""
        return tuple(self.shares)

    @property
    def active(self) -> str:
        """The party that holds the labels."""
        return self.parties[0]

    def check_parties(self, names: Iterable[str]) -> None:
        """Refuse a name that no party has, with a :class:`~labelward.errors.DataError`."""
        for name in names:
            if name not in self.shares:
                raise DataError(unknown_name("party", name, self.parties), code="unknown", value=name)

    def bring(self, tables: Mapping[str, Path], warn: Warn = ignore_warning) -> AlignedRows:
        """Read the parties' tables; rows are sorted by id where the job names an id column.

        Args:
            tables: each party's own, or the same for all of them.
            warn: hears of each column of categories of which the model knows none.

        Raises:
            DataError: a table cannot be used, lacks a column, has other dates or numbers than in training, or (a
                party's own) a column that its party had not; or the parties bring different rows.
        """
        self.check_parties(tables)
        for name in self.parties:
            if name not in tables:
                raise DataError(
                    "its table is needed, since the others cannot predict without it",
                    code="missing",
                    field=f"party {name!r}",
                )
        own = len(set(tables.values())) > 1
        read = {
            party.name: load_rows(self.job, self.shares[party.name], tables[party.name], self._dates(party), own, warn)
            for party in self.job.parties
        }
        ids = read[self.active][0]
        for name in self.parties[1:]:
            check_same_ids("bring", (self.active, ids), (name, read[name][0]))
        return AlignedRows(ids=ids, columns={name: x for name, (_, x) in read.items()})

    def _dates(self, party: PartySection) -> Collection[str]:
        return self.dates.get(party.name, ())

    def converse(self, ids: NDArray[np.str_], lead: Callable[[Context], T], follow: Callable[[Context], None]) -> T:
        """Agree on model and rows, then run the parties' programs; return what the active party's returned.

        Args:
            ids: of the rows that the parties bring; empty where they talk of the model alone.
            lead: the active party's program.
            follow: that of each passive party.

        Raises:
            HandshakeError: the shares are of different models.
            LabelwardError: what the programs raise.
        """
        told = ids.tolist()

        def live(ctx: Context) -> T | None:
            offer = inference_proposal(self.shares[ctx.party], told)
            if ctx.party == self.active:
                handshake_active(ctx, offer, RowMasks.in_order(0, 0, len(told)))
                return lead(ctx)
            handshake_passive(ctx, offer)
            follow(ctx)
            return None

        make = partial(inference_context, parties=self.parties, rows=len(told))
        return cast("T", run_parties(dict.fromkeys(self.parties, (make, live)))[self.active])


def load_rows(
    job: Job, share: PartyShare, path: Path, dates: Collection[str], own: bool, warn: Warn
) -> tuple[NDArray[np.str_], Floats]:
    """Return ids and columns of one party's rows, sorted by id where the job names an id column.

    Args:
        job: of the training.
        share: the party's.
        path: of its table.
        dates: its columns that hold dates or times.
        own: whether the table is the party's own, and not that of all parties.
        warn: hears of each column of categories of which the model knows none.

    Raises:
        DataError: as :meth:`FederatedModel.bring`, of this party.
    """
    party = job.party(share.party)
    place, column = f"party {party.name!r}, table {str(path)!r}", party.id or job.data.id
    table = read_table(path, text=[column] if column else [])
    x = transform(table, share.columns, share.categories, place, dates=dates)
    if own:
        _refuse_strangers(job, party, share, table.column_names, place)
    for name in _unknown(share, x):
        warn(
            f"{place}: column {name!r} holds no category that the model met in training; all of its rows go the "
            "way of missing values"
        )
    if column is None:
        return np.arange(table.num_rows).astype(np.str_), x
    ids = read_ids(table, column, place)
    order = np.argsort(ids)
    return ids[order], x[order]


def inference_proposal(share: PartyShare, ids: Sequence[str]) -> Proposal:
    """Return what a party brings to a greeting about a model: which model, and the ids of the rows, all to be used."""
    return Proposal(parties=share.parties, job={"model": share.model}, ids=ids, bits=0, precision=0, insecure=False)


def _unknown(share: PartyShare, x: Floats) -> Iterator[str]:
    """Yield the columns that hold categories, but none of those that the model knows."""
    for name in share.categories:
        codes = x[:, share.columns.index(name)]
        known = codes[~np.isnan(codes)]
        if len(known) and (known < 0).all():
            yield name


def _refuse_strangers(job: Job, party: PartySection, share: PartyShare, found: list[str], place: str) -> None:
    """Refuse columns that the party's own table had not, where it brought all that it had.

    With dummies a column of a single category leaves no trace in the share, so that it cannot be told from a stranger.
    """
    if party.table is None or party.columns is not None or job.data.categories == "dummies":
        return
    known = {source_column(name, found) for name in share.columns} | set(party.roles().values()) | {"id"}
    strangers = [name for name in found if name not in known]
    if strangers:
        more = ", …" if len(strangers) > 5 else ""
        told = ", ".join(map(repr, strangers[:5])) + more
        raise DataError(
            f"has columns that the model does not know: {told}; leave them out",
            code="columns",
            field=place,
            value=tuple(strangers),
        )


def inference_context(
    transport: Transport, *, parties: tuple[str, ...], rows: int, timeout: float | None = None
) -> Context:
    """Return a party's context for the use of a model; what it records is not kept.

    Args:
        rows: how many are used.
        timeout: seconds to wait for one message.
    """
    party = transport.party
    peers = tuple(name for name in parties if name != party)
    header = Header(
        format=FORMAT,
        version=version("labelward"),
        party=party,
        role="active" if party == parties[0] else "passive",
        peers=peers,
        rows=(0, rows),
        engine="none",
        bits=0,
        insecure=(),
        job={},
    )
    return Context(transport, active=parties[0], peers=peers, transcript=Transcript(header), seed=0, timeout=timeout)
