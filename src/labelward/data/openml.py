"""Downloads from OpenML through scikit-learn, converted to the columns and labels of the original data sets."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Download:
    """A data set of OpenML and its differences from the original.

    Attributes:
        columns: original names of the feature columns, in order; empty if OpenML has the same.
        labels: original labels by those of OpenML; empty if they are the same.
    """

    name: str
    version: int
    columns: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def download(source: Download) -> pa.Table:
    """Return the table: feature columns, then ``label``; integers as int64, nominal values as text.

    Raises:
        OSError: there is no connection, or the server refuses.
        ValueError: the answer has another number of columns, or cannot be parsed.
    """
    from sklearn.datasets import fetch_openml

    with warnings.catch_warnings():  # a lost connection raises an error as well
        warnings.simplefilter("ignore")
        got: Any = fetch_openml(
            source.name, version=source.version, as_frame=False, parser="liac-arff", cache=False, n_retries=1
        )
    names = source.columns or tuple(got.feature_names)
    if len(names) != got.data.shape[1]:
        raise ValueError(f"it has {got.data.shape[1]} feature columns, not {len(names)}")
    columns = {
        name: _column(got.data[:, position], got.categories.get(there))
        for position, (name, there) in enumerate(zip(names, got.feature_names, strict=True))
    }
    labels = [source.labels.get(str(value), str(value)) for value in got.target]
    return pa.table({**columns, "label": _integers_or_text(labels)})


def _column(values: NDArray[np.float64], categories: Sequence[str] | None) -> pa.Array:
    if categories is None:
        whole = bool(np.isfinite(values).all() and (values == np.floor(values)).all())
        return pa.array(values.astype(np.int64) if whole else values, from_pandas=True)
    by_code = _integers_or_text([str(category) for category in categories])
    return by_code.take(pa.array(values, from_pandas=True).cast(pa.int64()))


def _integers_or_text(texts: list[str]) -> pa.Array:
    """Return texts as integers if all of them are."""
    try:
        return pa.array([int(text) for text in texts])
    except ValueError:
        return pa.array(texts)
