"""Which party's columns predictions must rise or fall with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from labelward.data.tables import find_column
from labelward.errors import DataError
from labelward.job import Job, PartySection

__all__ = ["assigned_monotone", "party_monotone"]


def assigned_monotone(job: Job, table: pa.Table, held: Sequence[Sequence[str]]) -> tuple[Mapping[str, int], ...]:
    """Return for each party the directions of its columns that ``[data] monotone`` names.

    Args:
        job: its parties share a table.
        table: the table.
        held: each party's columns. One that a share did not deal out to anybody is passed over.

    Raises:
        DataError: a column that does not exist, or that no party lists.
    """
    wanted = job.data.monotone
    for column in wanted:
        find_column(table, column, "[data] monotone")
        if job.active.share is None and not any(column in columns for columns in held):
            raise DataError(
                f"column {column!r} is held by no party", code="columns", field="[data] monotone", value=column
            )
    return tuple({column: wanted[column] for column in columns if column in wanted} for columns in held)


def party_monotone(parties: Sequence[PartySection], held: Sequence[Sequence[str]]) -> tuple[Mapping[str, int], ...]:
    """Return for each of some parties with their own tables the directions of its columns.

    Args:
        parties: all of a rehearsal, or the one whose data are here.
        held: each party's columns.

    Raises:
        DataError: a party names a column that it does not bring, with its holder if there is one among these.
    """
    for party, columns in zip(parties, held, strict=True):
        for column in party.monotone:
            if column not in columns:
                holders = [one.name for one, those in zip(parties, held, strict=True) if column in those]
                told = f"party {holders[0]!r} holds it" if holders else "no party holds it"
                raise DataError(
                    f"column {column!r} is not among the columns of {party.name!r}"
                    + (f" ({told})" if len(parties) > 1 else "")
                    + "; a party constrains its own columns",
                    code="columns",
                    field=f"[parties.{party.name}] monotone",
                    value=column,
                )
    return tuple(party.monotone for party in parties)
