"""Tables, the catalogue of data sets, and what each party of a rehearsal holds."""

from .catalogue import Entry, entries
from .encode import Coding, coding, encode_as, encode_sides, origin
from .held import PartyData, Rehearsal
from .labels import encode_labels, encode_quantities, encode_weights
from .own import OwnTable, load_own, own_party, own_rehearsal
from .prepare import Source, load_source, prepare
from .rows import Split
from .tables import as_table, read_ids, read_table, refuse_other_rows

__all__ = [
    "Coding",
    "Entry",
    "OwnTable",
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
    "load_own",
    "load_source",
    "origin",
    "own_party",
    "own_rehearsal",
    "prepare",
    "read_ids",
    "read_table",
    "refuse_other_rows",
]
