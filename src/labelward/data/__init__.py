"""Tables, the catalogue of data sets, and what each party of a rehearsal holds."""

from .catalogue import Entry, entries
from .encode import encode, encode_as, origin
from .labels import require_binary
from .prepare import PartyData, Rehearsal, Source, load_source, prepare
from .tables import as_table, read_ids, read_table, refuse_other_rows

__all__ = [
    "Entry",
    "PartyData",
    "Rehearsal",
    "Source",
    "as_table",
    "encode",
    "encode_as",
    "entries",
    "load_source",
    "origin",
    "prepare",
    "read_ids",
    "read_table",
    "refuse_other_rows",
    "require_binary",
]
