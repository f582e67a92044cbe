"""Catalog of named data sets: two come with scikit-learn, the others are searched for as files or on OpenML.

The entries are data, in ``catalog.toml``. A data set is searched for in the folder that the environment variable
``LABELWARD_DATA`` names, then in the cache (``labelward`` in ``$XDG_CACHE_HOME`` or ``~/.cache``), then on OpenML.

- A file in the folder must have the checksum of its entry.
- A download is written to the cache and must have the rows, columns and classes of its entry; its checksum depends on
  the conversion.
- A set of images is stored as the IDX files in which it was published, in a folder of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from labelward.data.idx import read_images
from labelward.data.openml import Download, download
from labelward.data.tables import read_table
from labelward.errors import DataError, unknown_name

_FOLDER_VARIABLE = "LABELWARD_DATA"


@dataclass(frozen=True, kw_only=True)
class CatalogEntry:
    """One data set.

    Attributes:
        classes: number of rows of each class, by label as text; empty for regression.
        files: of images, instead of one file: checksums of IDX files below the folder, each file of images followed by
            that of its labels.
    """

    name: str  # name in job files; the file is ``NAME.parquet``
    title: str  # name in print and origin
    rows: int
    features: int  # number of columns without the label
    classes: Mapping[str, int] = field(default_factory=dict)
    times: tuple[str, ...] = ()  # text columns that are read as points in time
    hashed: tuple[str, ...] = ()  # text columns of so many values that jobs hash them unless they say otherwise
    texts: tuple[str, ...] = ()  # free texts, which jobs read as tokens or words
    image: str = ""  # column of images, which jobs read as pixels
    unused: tuple[str, ...] = ()  # columns that are no feature
    sha256: str = ""  # checksum of the file; empty for data sets of scikit-learn and of images
    files: Mapping[str, str] = field(default_factory=dict)
    source: Download | None = None  # a faithful copy on OpenML, if one is known
    note: str = ""  # differences from the published data set, and the license

    @property
    def task(self) -> str:
        """``"regression"`` or ``"classification"``."""
        return "classification" if self.classes else "regression"


def catalog_entries() -> Mapping[str, CatalogEntry]:
    """Return the entries of ``catalog.toml`` by name."""
    return MappingProxyType(_stored_entries())


@cache
def _stored_entries() -> dict[str, CatalogEntry]:
    text = files(__package__).joinpath("catalog.toml").read_text(encoding="utf-8")
    return {name: _parse_entry(name, fields) for name, fields in tomllib.loads(text).items()}


def _parse_entry(name: str, fields: dict[str, Any]) -> CatalogEntry:
    source = fields.pop("source", None)
    if source is not None:
        source = Download(**{**source, "columns": tuple(source.get("columns", ()))})
    lists = {key: tuple(fields.get(key, ())) for key in ("times", "hashed", "texts", "unused")}
    return CatalogEntry(**{**fields, **lists, "name": name, "source": source})


def load_catalog_table(name: str) -> pa.Table:
    """Return a data set of the catalog: its feature columns, then ``label``.

    Raises:
        DataError: the name is unknown; a file is not the expected one; or no file was found, with the places that were
            searched and how to provide it.
    """
    known = catalog_entries()
    if name not in known:
        reason = f"{unknown_name('data set', name, known)}, or the path of a file"
        raise DataError(reason, code="unknown", field="[data] table", value=name)
    entry = known[name]
    if entry.files:
        return _load_images(entry)
    if not entry.sha256:
        return _verified(_from_scikit_learn(name), entry, "scikit-learn")
    folder = os.environ.get(_FOLDER_VARIABLE)
    if folder and (file := Path(folder) / f"{name}.parquet").is_file():
        _verify_checksum(file, entry.sha256)
        return _verified(read_table(file), entry, str(file))
    cached = _cache_folder() / f"{name}.parquet"
    if cached.is_file():
        return _verified(read_table(cached), entry, str(cached))
    if entry.source is None:
        raise DataError(f"{_not_found(entry, folder, cached)}; no download is known", code="not-found", value=name)
    try:
        table = download(entry.source)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{_not_found(entry, folder, cached)}; the download from OpenML ({entry.source.name}) failed: {reason}",
            code="not-found",
            value=name,
        ) from error
    _write_to_cache(_verified(table, entry, f"OpenML ({entry.source.name})"), cached)
    return table


def _load_images(entry: CatalogEntry) -> pa.Table:
    folder = os.environ.get(_FOLDER_VARIABLE)
    places = [*([Path(folder)] if folder else []), _cache_folder()]
    place = next((one for one in places if all((one / path).is_file() for path in entry.files)), None)
    if place is None:
        searched = " or ".join(repr(str(one)) for one in places)
        wanted = ", ".join(f"{path} (sha256 {each})" for path, each in entry.files.items())
        reason = (
            f"data set {entry.name!r} ({entry.title}) was not found in {searched}; "
            f"put {wanted} into a folder and set {_FOLDER_VARIABLE} to it"
        )
        raise DataError(reason, code="not-found", value=entry.name)
    paths = [place / path for path in entry.files]
    for path, expected in zip(paths, entry.files.values(), strict=True):
        _verify_checksum(path, expected)
    return _verified(read_images(paths[0::2], paths[1::2]), entry, str(paths[0].parent))


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "labelward"


def _not_found(entry: CatalogEntry, folder: str | None, cached: Path) -> str:
    searched = f"in {folder!r}" if folder else f"({_FOLDER_VARIABLE} is not set)"
    return (
        f"data set {entry.name!r} ({entry.title}) was not found {searched} or as {str(cached)!r}; "
        f"put {entry.name}.parquet (sha256 {entry.sha256}) into a folder and set {_FOLDER_VARIABLE} to it"
    )


def _verify_checksum(file: Path, expected: str) -> None:
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        reason = f"is not the expected file: its sha256 is {found}, not {expected}"
        raise DataError(reason, code="damaged", field=str(file), value=found)


def _verified(table: pa.Table, entry: CatalogEntry, origin: str) -> pa.Table:
    shape, wanted = (table.num_rows, table.num_columns), (entry.rows, entry.features + 1)
    if shape != wanted or table.column_names[-1] != "label":
        reason = (
            f"is not data set {entry.name!r}: it has {shape[0]} rows × {shape[1]} columns "
            f"with {table.column_names[-1]!r} last, not {wanted[0]} × {wanted[1]} with 'label'"
        )
        raise DataError(reason, code="damaged", field=origin, value=(*shape, table.column_names[-1]))
    if entry.classes:
        counts = {str(one["values"]): one["counts"] for one in pc.value_counts(table["label"]).to_pylist()}
        if counts != dict(entry.classes):
            reason = f"is not data set {entry.name!r}: the rows of its classes are {counts}"
            raise DataError(reason, code="damaged", field=origin, value=counts)
    for name in entry.times:
        position = table.column_names.index(name)
        table = table.set_column(position, name, table[name].cast(pa.timestamp("s")))
    return table


def _write_to_cache(table: pa.Table, file: Path) -> None:
    import pyarrow.parquet as pq

    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, part, compression="zstd")
        part.replace(file)  # atomic, also where two processes download at once
    except OSError as error:
        reason = f"cannot be written to the cache ({error}); set XDG_CACHE_HOME to a writable folder"
        raise DataError(reason, code="unwritable", field=str(file)) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _from_scikit_learn(name: str) -> pa.Table:
    from sklearn import datasets

    rows: Any = getattr(datasets, f"load_{name}")()
    columns = {str(column): rows.data[:, position] for position, column in enumerate(rows.feature_names)}
    return pa.table({**columns, "label": rows.target})
