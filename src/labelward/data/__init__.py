"""Tables, the catalogue of data sets, and what each party of a rehearsal holds."""

from labelward.data.catalogue import CatalogueEntry, catalogue_entries
from labelward.data.dataset import PartyDataset, VerticalDataset
from labelward.data.encoding import ColumnEncoding, fit_encoding, source_column, transform, transform_splits
from labelward.data.labels import encode_labels, encode_regression_targets, encode_weights
from labelward.data.loading import RawTables, load_dataset, load_tables
from labelward.data.party_tables import PartyTable, encode_party, load_active, load_party_table
from labelward.data.splitting import DataSplit
from labelward.data.tables import as_table, check_same_ids, read_ids, read_table

__all__ = [
    "CatalogueEntry",
    "ColumnEncoding",
    "DataSplit",
    "PartyDataset",
    "PartyTable",
    "RawTables",
    "VerticalDataset",
    "as_table",
    "catalogue_entries",
    "check_same_ids",
    "encode_labels",
    "encode_party",
    "encode_regression_targets",
    "encode_weights",
    "fit_encoding",
    "load_active",
    "load_dataset",
    "load_party_table",
    "load_tables",
    "read_ids",
    "read_table",
    "source_column",
    "transform",
    "transform_splits",
]
