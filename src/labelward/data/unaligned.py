"""Labeled rows that only the active party holds: it learns a model of its own columns from them, and sends none.

They come from a common table (``aligned``) or from a second table of the active party (``unaligned``). Categories and
classes are those of the aligned rows, so that no count that other parties learn depends on the unaligned ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelward.data.dataset import LabelColumn, OwnRows, PartyDataset
from labelward.data.encoding import transform
from labelward.data.labels import encode_held_labels, encode_weights
from labelward.data.splitting import DataSplit
from labelward.data.tables import read_ids, read_source
from labelward.errors import DataError
from labelward.job import DataSection, PartySection
from labelward.rng import PrivateSeed

Rows = NDArray[np.int64]


def draw_unaligned(data: DataSection, seed: int, sides: DataSplit, private: PrivateSeed) -> Rows:
    """Return the positions of the training rows that only the active party holds, ascending.

    Args:
        data: ``aligned``, the share of the training rows that all parties hold.
        private: private seed of the active party.

    Raises:
        DataError: no row would be left to all parties.
    """
    if data.aligned is None:
        return sides.train[:0]
    count = round(data.aligned * len(sides.train))
    if not count:
        raise DataError(
            f"{data.aligned} of {len(sides.train)} training rows leaves none to all parties",
            code="rows",
            field="[data] aligned",
            value=data.aligned,
        )
    order = private.learning(seed, 0, "aligned").permutation(len(sides.train))
    return np.sort(sides.train[order[count:]])


def with_unaligned(party: PartyDataset, table: pa.Table, labels: LabelColumn) -> PartyDataset:
    """Return the active party's data with rows of its own, encoded as the aligned ones are.

    Raises:
        DataError: a column is missing or of another type, or a value is not valid.
    """
    categories = {party.columns[position]: names for position, names in party.categories.items()}
    place = f"party {party.name!r}, unaligned rows"
    features = transform(table, party.columns, categories, place, dates=party.dates)
    values = labels.values.astype(np.float64)
    return replace(party, unaligned=OwnRows(features=features, values=values, weights=labels.weights))


def load_unaligned(
    section: PartySection, party: PartyDataset, known: LabelColumn, ids: NDArray[np.str_]
) -> PartyDataset:
    """Return the active party's data with the rows of its second table, ``unaligned``.

    Args:
        section: of the active party.
        known: labels of the aligned rows, for task and classes.
        ids: of the aligned rows, test rows included.

    Raises:
        DataError: the file cannot be read, has no row, or a row that is in the party's table as well; a label is
            missing or not valid; or as :func:`with_unaligned`.
    """
    file, place = section.unaligned or "", f"party {section.name!r}, unaligned rows"
    table = read_source(file, section, section.id)
    field = f"[parties.{section.name}] unaligned"
    own = read_ids(table, section.id or "", place)
    if not len(own):
        raise DataError("has no rows", code="rows", field=field, value=file)
    twice = own[np.isin(own, ids)]
    if len(twice):
        raise DataError(
            f"row {twice[0]!r} is in the party's table as well ({len(twice)} in all); remove it here",
            code="duplicate",
            field=field,
            value=str(twice[0]),
        )
    values = encode_held_labels(table, section.label or "", place, known.classes)
    if np.isnan(values).any():
        raise DataError(
            f"{int(np.isnan(values).sum())} labels are missing; remove these rows",
            code="labels",
            field=field,
            value=int(np.isnan(values).sum()),
        )
    weights = np.ones(len(values)) if section.weight is None else encode_weights(table, section.weight, place)
    return with_unaligned(party, table, replace(known, values=values, weights=weights))
