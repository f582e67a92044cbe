"""Tables, the catalog of data sets, and the vertical data set of a run: what each party has of it."""

from labelward.data.catalog import CatalogEntry, catalog_entries
from labelward.data.dataset import LabelColumn, OwnRows, PartyDataset, VerticalDataset, check_weights
from labelward.data.encoding import ColumnEncoding, fit_encoding, source_column, transform, transform_splits
from labelward.data.label_proxies import warn_of_label_proxies
from labelward.data.labels import encode_labels, encode_regression_targets, encode_weights
from labelward.data.loading import RawTables, load_dataset, load_tables
from labelward.data.party_tables import (
    PartyTable,
    encode_party,
    held_labels,
    load_active,
    load_party_table,
    most_columns,
)
from labelward.data.splitting import DataSplit
from labelward.data.tables import as_table, check_same_ids, read_ids, read_source, read_table, table_digest

__all__ = [
    "CatalogEntry",
    "ColumnEncoding",
    "DataSplit",
    "LabelColumn",
    "OwnRows",
    "PartyDataset",
    "PartyTable",
    "RawTables",
    "VerticalDataset",
    "as_table",
    "catalog_entries",
    "check_same_ids",
    "check_weights",
    "encode_labels",
    "encode_party",
    "encode_regression_targets",
    "encode_weights",
    "fit_encoding",
    "held_labels",
    "load_active",
    "load_dataset",
    "load_party_table",
    "load_tables",
    "most_columns",
    "read_ids",
    "read_source",
    "read_table",
    "source_column",
    "table_digest",
    "transform",
    "transform_splits",
    "warn_of_label_proxies",
]
