"""Tables, the catalogue of data sets, and what each party of a rehearsal holds."""

from labelward.data.catalogue import Entry, entries
from labelward.data.encode import Coding, coding, encode_as, encode_sides, origin
from labelward.data.held import PartyData, Rehearsal
from labelward.data.labels import encode_labels, encode_quantities, encode_weights
from labelward.data.own import OwnTable, load_own, own_party, own_rehearsal
from labelward.data.prepare import Source, load_source, prepare
from labelward.data.rows import Split
from labelward.data.tables import as_table, read_ids, read_table, refuse_other_rows

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
