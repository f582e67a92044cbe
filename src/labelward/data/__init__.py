"""Tables, the catalogue of data sets, and what each party of a rehearsal holds."""

from .catalogue import Entry, entries
from .encode import Coding, coding, encode_as, encode_sides, origin
from .labels import encode_labels, encode_quantities, encode_weights
from .prepare import PartyData, Rehearsal, Source, load_source, prepare
from .rows import Split
from .tables import as_table, read_ids, read_table, refuse_other_rows

__all__ = [
    "Coding",
    "Entry",
    "PartyData",
    "Rehearsal",
    "Source",
    "Split",
    "as_table",
    "coding",
    "encode_as",
    "encode_labels",
    "encode_quantities",
    "encode_sides",
    "encode_weights",
    "entries",
    "load_source",
    "origin",
    "prepare",
    "read_ids",
    "read_table",
    "refuse_other_rows",
]
