"""Monotone columns: which party has a column that a job constrains, and in which direction."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from labelward.data.tables import find_column
from labelward.errors import DataError
from labelward.job import Job, PartySection


def assigned_monotone(job: Job, table: pa.Table, assigned: Sequence[Sequence[str]]) -> tuple[Mapping[str, int], ...]:
    """Return each party's part of ``[data] monotone``: 1 or -1 by column.

    Args:
        job: a job with a common table.
        assigned: columns of each party; with shares, a constrained column may be assigned to none.

    Raises:
        DataError: a column does not exist, or no party lists it.
    """
    wanted = job.data.monotone
    for column in wanted:
        find_column(table, column, "[data] monotone")
        if job.active.share is None and not any(column in columns for columns in assigned):
            raise DataError(
                f"column {column!r} is listed by no party", code="columns", field="[data] monotone", value=column
            )
    return tuple({column: wanted[column] for column in columns if column in wanted} for columns in assigned)


def party_monotone(parties: Sequence[PartySection], assigned: Sequence[Sequence[str]]) -> tuple[Mapping[str, int], ...]:
    """Return the directions of each party's columns, of parties with their own tables.

    Args:
        parties: all parties of a simulation, or the one whose data are on this machine.
        assigned: columns of each party.

    Raises:
        DataError: a party constrains a column that is not its own; names the party that has it, if known.
    """
    for party, columns in zip(parties, assigned, strict=True):
        for column in party.monotone:
            if column not in columns:
                holders = [one.name for one, those in zip(parties, assigned, strict=True) if column in those]
                owner = f"party {holders[0]!r} has it" if holders else "no party has it"
                raise DataError(
                    f"column {column!r} is not among the columns of {party.name!r}"
                    + (f" ({owner})" if len(parties) > 1 else "")
                    + "; a party may constrain only its own columns",
                    code="columns",
                    field=f"[parties.{party.name}] monotone",
                    value=column,
                )
    return tuple(party.monotone for party in parties)
