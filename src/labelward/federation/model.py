"""Trained federated model: the shares of all parties, with predictions, explanations, drawings and exports.

All parties' programs run in this process, as they would between companies. Each party decides what it discloses beyond
the requirements of a program: its column names and its splits. Here the caller states these decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from labelward.data import check_same_ids, read_ids, read_source, source_column, transform
from labelward.errors import DataError, unknown_name
from labelward.federation.components import make_policies, model_family
from labelward.federation.model_shares import load_shares, trained_job, trained_variant
from labelward.federation.session import FederationSession, Participant, run_session
from labelward.job import Job, PartySection
from labelward.parameters import StrPath, as_path
from labelward.party.context import Context
from labelward.party.handshake import Agreement, Proposal, RowMasks
from labelward.policy.base import Policy
from labelward.protocols.family import ModelFamily, PartyShare, PredictMode
from labelward.protocols.secureboost.explain import (
    Explanation,
    Features,
    Importance,
    columns_active,
    columns_passive,
    explain,
    importance,
)
from labelward.protocols.secureboost.export import export_active, export_passive
from labelward.protocols.secureboost.plot import draw_svg, draw_text
from labelward.protocols.secureboost.predict import predict_leaves, predict_passive
from labelward.protocols.secureboost.share import ModelShare
from labelward.runs.training_record import read_record

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]
T = TypeVar("T")
Warn = Callable[[str], None]

PURPOSE = "use outside of labelward"
"""Default purpose of an export, as stated to passive parties."""


def ignore_warning(message: str) -> None:
    """Discard a warning."""


@dataclass(frozen=True, kw_only=True)
class AlignedRows:
    """The same rows at all parties.

    Attributes:
        columns: for each party its encoded columns, [rows, ...].
        ids: of the rows, which the parties compare; None where one user holds all columns.
        place: int64 [rows], where each row stands in the active party's table; None where one user holds all columns.
    """

    columns: Mapping[str, NDArray[Any]]
    ids: NDArray[np.str_] | None = None
    place: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values())))

    def followed_by(self, other: AlignedRows) -> AlignedRows:
        """Return the concatenation of these rows and others."""
        columns = {name: np.concatenate([x, other.columns[name]]) for name, x in self.columns.items()}
        if self.ids is None or other.ids is None:
            return AlignedRows(columns=columns)
        return AlignedRows(columns=columns, ids=np.concatenate([self.ids, other.ids]))

    def sample(self, most: int) -> AlignedRows:
        """Return at most so many of the rows, evenly spaced."""
        chosen = evenly_spaced(len(self), most)
        columns = {name: x[chosen] for name, x in self.columns.items()}
        return AlignedRows(columns=columns, ids=None if self.ids is None else self.ids[chosen])


@dataclass(frozen=True, kw_only=True)
class FederatedModel:
    """A model, as the shares of all its parties, from a folder (:meth:`load`) or from memory.

    Attributes:
        programs: how its kind of model is run.
        shares: by party, the active one first.
        policies: makes by party the defenses of what it sends in a prediction.
        job: of the training; None where the shares never were in a run's folder.
        dates: by party the columns that hold dates or times.
    """

    programs: ModelFamily[Any]
    shares: Mapping[str, PartyShare]
    policies: Callable[[], Mapping[str, Sequence[Policy]]] = dict
    job: Job | None = None
    dates: Mapping[str, Collection[str]] = field(default_factory=dict)

    @classmethod
    def load(cls, run: StrPath) -> FederatedModel:
        """Read the folder that :func:`labelward.federation.train.train_variant` wrote.

        Raises:
            FileFormatError: it is none, or a share is missing, damaged, of another party, kind or model.
        """
        run = as_path("run", run)
        job = trained_job(run)
        programs = model_family(job.model)
        shares, record = load_shares(programs, run, job), read_record(run)
        variant = trained_variant(run, job, record.defense)

        def policies() -> dict[str, tuple[Policy, ...]]:
            return {party.name: make_policies(variant, party.name) for party in job.passive}

        return cls(job=job, programs=programs, shares=shares, dates=record.dates, policies=policies)

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

    def bring(self, tables: Mapping[str, StrPath], warn: Warn = ignore_warning) -> AlignedRows:
        """Read the parties' tables; rows are sorted by id where the job names an id column.

        Where it names none, they are by a column ``id``, if all tables have one with different ids, and in the order of
        the tables otherwise.

        Args:
            tables: each party's own, or the same for all of them.
            warn: hears of each column of categories of which the model knows none.

        Raises:
            DataError: a table cannot be used, lacks a column, has other dates or numbers than in training, or (a
                party's own) a column that its party had not; or the parties bring different rows.
            ValueError: the model is from memory, so there is no job that describes the tables.
        """
        if self.job is None:
            raise ValueError("only a model of a run's folder reads tables")
        self.check_parties(tables)
        paths = {name: as_path(f"table of party {name!r}", table) for name, table in tables.items()}
        for name in self.parties:
            if name not in tables:
                raise DataError(
                    "its table is needed, since the others cannot predict without it",
                    code="missing",
                    field=f"party {name!r}",
                )
        own = len(set(paths.values())) > 1
        named = not any("id" in (*share.columns, *share.categories) for share in self.shares.values())
        read = {
            name: load_rows(self.job, share, paths[name], self.dates.get(name, ()), own, warn, named=named)
            for name, share in self.shares.items()
        }
        unnamed = {name: those.unnamed for name, those in read.items() if those.unnamed is not None}
        if len(unnamed) == len(read):
            read = {name: _sorted(replace(those, ids=unnamed[name])) for name, those in read.items()}
        own_rows = read[self.active]
        for name in self.parties[1:]:
            check_same_ids("bring", (self.active, own_rows.ids), (name, read[name].ids))
        return AlignedRows(
            ids=own_rows.ids, place=own_rows.place, columns={name: those.columns for name, those in read.items()}
        )

    def predict(self, rows: AlignedRows, mode: PredictMode = "one-round") -> Floats:
        """Return the margins of rows: float64 [rows, outputs].

        Args:
            mode: ``"levels"`` discloses less to the active party and more to passive parties; predictions are equal.

        Raises:
            HandshakeError: the shares are of different models.
            JobError: ``"levels"`` for a model without levels.
        """

        def program(ctx: Context) -> Floats:
            return self.programs.predict(ctx, self.shares[ctx.party], rows.columns[ctx.party], mode)

        return self.converse(rows, program, program)

    def leaves(self, rows: AlignedRows) -> NDArray[np.int32]:
        """Return the positions among its leaves that each row reaches in each tree: int32 [rows, trees]."""
        share = self.tree_share(self.active)
        return self.converse(
            rows,
            lambda ctx: predict_leaves(ctx, share, {ctx.party: (share.own, rows.columns[ctx.party])}, len(rows)),
            lambda ctx: predict_passive(ctx, self.tree_share(ctx.party), rows.columns[ctx.party]),
        )

    def importance(self, names: Collection[str] = ()) -> tuple[Importance, ...]:
        """Return the importance of every column in which the model splits, the largest total gain first.

        Args:
            names: parties that disclose their column names; columns of others are numbered.

        Raises:
            DataError: a name that no party has, or a model without trees.
        """
        return importance(self.tree_share(self.active), self._features(names))

    def draw(self, tree: int, names: Collection[str] = ()) -> tuple[str, str]:
        """Return a tree as text and as an SVG picture: the active party's splits in words, the others' by column.

        Args:
            tree: its number, from 0.
            names: parties that disclose their column names.

        Raises:
            DataError: no such tree, a name that no party has, or a model without trees.
        """
        share, features = self.tree_share(self.active), self._features(names)
        return draw_text(share, tree, features), draw_svg(share, tree, features)

    def explain(self, rows: AlignedRows, background: AlignedRows, names: Collection[str] = ()) -> Explanation:
        """Return the SHAP values of rows against background rows.

        Args:
            names: parties that disclose their column names.

        Raises:
            DataError: a name that no party has, or a model without trees.
        """
        self.check_parties(names)
        both = rows.followed_by(background)

        def lead(ctx: Context) -> Explanation:
            share = self.tree_share(ctx.party)
            own = {ctx.party: (share.own, both.columns[ctx.party])}
            return explain(ctx, share, columns_active(ctx, share), own, len(rows), len(background))

        def follow(ctx: Context) -> None:
            share = self.tree_share(ctx.party)
            columns_passive(ctx, share, names=ctx.party in names)
            predict_passive(ctx, share, both.columns[ctx.party])

        return self.converse(both, lead, follow)

    def export(
        self, path: StrPath, *, consent: Collection[str] = (), names: Collection[str] = (), purpose: str = PURPOSE
    ) -> Path:
        """Write the joined model as XGBoost's JSON, if every passive party consents.

        Args:
            path: ends in ``.json``.
            consent: parties that consent to disclose their splits.
            names: parties that also disclose their column names.
            purpose: purpose of the export, as stated to the passive parties.

        Raises:
            PolicyError: a party does not consent; nothing is written.
            DataError: a name that no party has, or a model without trees.
            OutputError: the file cannot be written.
        """
        target = as_path("path", path)
        self.check_parties([*consent, *names])
        share = self.tree_share(self.active)
        return self.converse(
            None,
            lambda ctx: export_active(ctx, share, target, purpose=purpose),
            lambda ctx: export_passive(
                ctx, self.tree_share(ctx.party), consent=ctx.party in consent, names=ctx.party in names
            ),
        )

    def tree_share(self, party: str) -> ModelShare:
        """Return a party's share; :class:`~labelward.errors.DataError` where the model has no trees."""
        share = self.shares[party]
        if not isinstance(share, ModelShare):
            raise DataError(
                f"explanations, drawings and exports are of trees; this model is of kind {share.kind!r}",
                code="unsupported",
                value=share.kind,
            )
        return share

    def converse(
        self, rows: AlignedRows | None, lead: Callable[[Context], T], follow: Callable[[Context], object]
    ) -> T:
        """Agree on model and rows, then run the parties' programs; return the active party's result.

        Args:
            rows: those that the parties bring; None where they talk of the model alone.
            lead: the active party's program.
            follow: that of each passive party.

        Raises:
            HandshakeError: the shares are of different models.
            LabelwardError: any error of the programs.
        """
        ids = [] if rows is None or rows.ids is None else rows.ids.tolist()
        policies = self.policies()

        def program(ctx: Context, agreed: Agreement) -> T | None:
            if ctx.party == self.active:
                return lead(ctx)
            follow(ctx)
            return None

        with self.programs.together(len(self.shares)):
            outcomes = run_session(
                InferenceSession.of(self.programs, self.shares, ids, compared=self.job is not None),
                {party: Participant(program=program, policies=policies.get(party, ())) for party in self.parties},
            )
        return cast("T", outcomes[self.active].result)

    def _features(self, names: Collection[str]) -> Features:
        self.check_parties(names)
        share = self.tree_share(self.active)
        return self.converse(
            None,
            lambda ctx: columns_active(ctx, share),
            lambda ctx: columns_passive(ctx, self.tree_share(ctx.party), names=ctx.party in names),
        )


class InferenceSession(FederationSession):
    """An inference session; its transcripts are not stored."""

    @classmethod
    def of(
        cls,
        programs: ModelFamily[Any],
        shares: Mapping[str, PartyShare],
        ids: Sequence[str],
        *,
        compared: bool = True,
        job: Mapping[str, str] | None = None,
    ) -> InferenceSession:
        """Return the session.

        Args:
            programs: family of the model.
            shares: of the parties that are here.
            ids: of the rows, all of which are used.
            compared: whether the parties compare model and rows first.
            job: what else they compare, as text by name.
        """
        topology = programs.share_topology(next(iter(shares.values())))
        masks = RowMasks.in_order(0, 0, len(ids))
        return cls(topology=topology, ids=ids, masks=masks, shares=shares, compared=compared, job=job or {})

    def proposal(self, party: str) -> Proposal:
        """Return a party's proposal in the handshake: the model of its share."""
        model = self.shares[party].model
        return Proposal(
            parties=self.parties,
            job={"model": model, **self.job},
            ids=self.ids,
            bits=0,
            precision=0,
            insecure=False,
        )


def evenly_spaced(rows: int, most: int) -> NDArray[np.int64]:
    """Return the numbers of at most so many rows of a table: int64 [chosen]."""
    return np.linspace(0, rows - 1, min(most, rows)).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class PartyRows:
    """Rows of one party, in the order of the conversation: sorted by id where the job names an id column."""

    ids: NDArray[np.str_]  # text [rows]
    columns: Floats  # [rows, F], encoded
    place: NDArray[np.int64]  # int64 [rows], where each row stands in the party's table
    unnamed: NDArray[np.str_] | None = None  # text [rows]: of a column "id", where the job names none


def load_rows(
    job: Job,
    share: PartyShare,
    path: Path,
    dates: Collection[str],
    own: bool,
    warn: Warn,
    *,
    named: bool = False,
) -> PartyRows:
    """Return the rows of one party.

    Args:
        job: of the training.
        share: the party's.
        path: of its table.
        dates: its columns that hold dates or times.
        own: whether the table is the party's own, and not that of all parties.
        warn: hears of each column of categories of which the model knows none.
        named: whether a column ``id`` may hold the ids where the job names none.

    Raises:
        DataError: as :meth:`FederatedModel.bring`, of this party.
    """
    party = job.party(share.party)
    place, column = f"party {party.name!r}, table {str(path)!r}", party.id or job.data.id
    table = read_source(path, job.data if party.table is None else party, column)
    x = transform(table, share.columns, share.categories, place, dates=dates)
    if own:
        _refuse_strangers(job, party, share, table.column_names, place)
    for name in _unknown(share, x):
        warn(
            f"{place}: column {name!r} holds no category that the model met in training; all its rows are "
            "treated as missing"
        )
    if column is None:
        rows = np.arange(table.num_rows)
        own_ids = _unnamed_ids(table, place) if named else None
        return PartyRows(ids=rows.astype(np.str_), columns=x, place=rows, unnamed=own_ids)
    return _sorted(PartyRows(ids=read_ids(table, column, place), columns=x, place=np.arange(table.num_rows)))


def _unnamed_ids(table: pa.Table, place: str) -> NDArray[np.str_] | None:
    """Return the ids of a column ``id`` that the job does not name, as tables of labelward have one; None: no ids."""
    if "id" not in table.column_names:
        return None
    try:
        return read_ids(table, "id", place)
    except DataError:  # a gap, a repetition, or no ids at all
        return None


def _sorted(rows: PartyRows) -> PartyRows:
    """Return rows in the order of their ids."""
    order = np.argsort(rows.ids)
    return PartyRows(ids=rows.ids[order], columns=rows.columns[order], place=rows.place[order])


def _unknown(share: PartyShare, x: Floats) -> Iterator[str]:
    """Yield the categorical columns without any category known to the model."""
    for name in share.categories:
        codes = x[:, share.columns.index(name)]
        known = codes[~np.isnan(codes)]
        if len(known) and (known < 0).all():
            yield name


def _refuse_strangers(job: Job, party: PartySection, share: PartyShare, found: list[str], place: str) -> None:
    """Refuse columns that the party's own table did not have in training, if the model uses all of its columns.

    With dummies a column of a single category leaves no trace in the share, so unknown columns cannot be recognized.
    """
    if party.table is None or party.columns is not None or job.data.categories == "dummies":
        return
    known = {source_column(name, found) for name in share.columns} | set(party.roles().values()) | {"id"}
    strangers = [name for name in found if name not in known]
    if strangers:
        more = ", …" if len(strangers) > 5 else ""
        names = ", ".join(map(repr, strangers[:5])) + more
        raise DataError(
            f"has columns that the model does not know: {names}; leave them out",
            code="columns",
            field=place,
            value=tuple(strangers),
        )
