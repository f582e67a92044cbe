"""One party of an alignment over a network: a table with those of its own rows that all parties have."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from labelward.data.tables import read_ids, read_table
from labelward.errors import HandshakeError, JobError, PeerError
from labelward.federation.model import Warn, ignore_warning
from labelward.federation.party_run import Join, Log, require_party, run_until_complete
from labelward.federation.session import FederationSession
from labelward.job import Job
from labelward.party.alignment import align_active, align_passive, alignment_topology
from labelward.party.context import Context, Progress, no_progress
from labelward.party.handshake import RowMasks
from labelward.party.transcript import Transcript
from labelward.runs.secure_files import atomic_write
from labelward.runs.worker_process import worker_pool
from labelward.transport.base import Transport

if TYPE_CHECKING:
    import pyarrow as pa


def align_as_party(
    job: Job,
    party: str,
    table: Path,
    out: Path,
    *,
    join: Join,
    log: Log,
    progress: Progress = no_progress,
    most: int = 10_000_000,
    warn: Warn = ignore_warning,
) -> tuple[int, int]:
    """Take part in an alignment as one party; return the numbers of common rows and of the table's rows.

    Every party brings a table with an id column, and gets its own rows whose ids all parties have, sorted by id. What
    parties learn of each other, :mod:`labelward.party.alignment` says. Each call compares once: a party that comes back
    in the middle could bring other ids, and so ends it for all.

    Args:
        job: with a ``[network]`` section; of everything else only parties, id column and ``workers`` matter.
        party: its name in the job.
        table: with all columns that the party may need, none of which leaves it.
        out: the Parquet file to write: the common rows with all columns, as they were read.
        most: ids that another party may bring.
        warn: hears of a table whose rows are chosen by label, as far as that shows.

    Raises:
        JobError: no such party, no network, or no id column is named.
        DataError: the table cannot be read, or ids are missing or repeated.
        HandshakeError: no id is at all parties; a peer failed, came back or sent what cannot be when ids had been
            compared; or the others have finished without this party.
        PeerError: a peer was away for too long, or failed, before ids were compared.
        OutputError: the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    require_party(job, party)
    rows, ids = _read(job, party, table, warn)
    topology = alignment_topology(*(each.name for each in job.parties))
    session = FederationSession(topology=topology, masks=RowMasks.in_order(0, 0, 0))
    found: list[int] = []
    begun: list[str] = []

    def context(transport: Transport) -> Context:
        transcript = Transcript(session.header(party))
        return session.context(transport, transcript, timeout=job.connection().silence, progress=progress)

    align = align_active if party == session.coordinator else align_passive
    network, _ = join(job, party, "align", log)
    with closing(network), worker_pool(job.encryption.processes) as pool, atomic_write(out) as file:

        def live(ctx: Context) -> None:
            session.handshake(ctx)
            begun.append(ctx.party)
            chosen = sorted(align(ctx, ids, most, pool).tolist(), key=ids.__getitem__)
            pq.write_table(rows.take(pa.array(chosen)), file)
            file.flush()  # the others finish when they hear that this party has
            found.append(len(chosen))

        try:
            run_until_complete(network, context, live, log, spent=lambda: bool(begun))
        except PeerError as error:
            if begun:
                raise _compared(error) from error
            raise
        if not found:
            reason = f"{session.coordinator!r} has finished this alignment, of which this party wrote nothing"
            raise HandshakeError(f"{reason}; start again at all parties", code="other-run", value=session.coordinator)
    log("aligned", {"rows": found[0], "of": len(ids)})
    return found[0], len(ids)


def _read(job: Job, party: str, path: Path, warn: Warn) -> tuple[pa.Table, list[str]]:
    """Return a party's table with all its columns, and its ids; warn where its labels are all alike."""
    import pyarrow.compute as pc

    section = job.party(party)
    keys, column = (job.data, job.data.id) if section.table is None else (section, section.id)
    if column is None:
        raise JobError("required to align rows: the column of row ids", code="missing", field="[data] id")
    table = read_table(path, text=[column, *keys.text, *keys.hashed], form=keys.form)
    place = f"party {party!r}, table {str(path)!r}"
    ids = read_ids(table, column, place).tolist()
    if section.label in table.column_names and pc.count_distinct(table[section.label]).as_py() == 1:
        warn(f"{place}: all labels are alike, so whoever is aligned with this table learns them; bring all rows")
    return table, ids


def _compared(error: PeerError) -> HandshakeError:
    """Return the error of an alignment that ended when ids had been compared; no service begins it anew by itself."""
    reason = f"{error}. Start again when you know why: each start answers questions about further ids"
    return HandshakeError(reason, code="disagreement", value=error.peer)
