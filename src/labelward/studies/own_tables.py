"""Datasets of a paper from the user's own files, in place of what is missing or stands in for them.

A file is a table with a column ``label``, in any format that a job reads. Its numbers of rows, columns and classes are
held against those of the paper, so that figures do not bear the name of a dataset that they are not of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from labelward.data import read_table
from labelward.errors import Code, DataError, InputError, unknown_name
from labelward.studies.datasets import PATIENT
from labelward.studies.spec import Study, StudyDataset

if TYPE_CHECKING:
    import pyarrow as pa

LABEL = "label"


def with_own_tables(study: Study, tables: Mapping[str, Path]) -> Study:
    """Return a study some of whose datasets are read from files.

    A dataset that nothing is at hand of is shown wherever the one is that it is like.

    Args:
        tables: file by dataset, which its name in the study or the paper's title names.

    Raises:
        InputError: no such dataset, or one of which no file can be read.
        DataError: the file is no table, or not the dataset's.
    """
    known = {each.name: each for each in (*study.datasets, *study.own)}
    names = {each.title.lower(): name for name, each in known.items()} | {name: name for name in known}
    found: dict[str, StudyDataset] = {}
    for name, file in tables.items():
        place = names.get(name.lower())
        if place is None:
            reason = unknown_name("dataset", name, list(known))
            raise InputError(reason, code="unknown", field="--table", value=name)
        dataset = known[place]
        table = read_table(file)
        check_dataset_shape(dataset, table, file)
        found[place] = replace(dataset, file=file, substitute="", generate=None, catalog_name="", on_request=False)
    present = {each.name for each in study.datasets}
    added = [each for name, each in found.items() if name not in present]
    return replace(
        study,
        datasets=(*(found.get(each.name, each) for each in study.datasets), *added),
        unavailable={name: title for name, title in study.unavailable.items() if name not in found},
        parts=tuple(
            replace(part, datasets=(*part.datasets, *(each.name for each in added if each.like in part.datasets)))
            for part in study.parts
        ),
    )


def check_dataset_shape(dataset: StudyDataset, table: pa.Table, file: Path) -> None:
    """Refuse a table that is not the dataset's.

    Raises:
        DataError: without labels or, for patches, without patients; or with other numbers of rows, columns or classes
            than the paper's.
    """
    for name in (LABEL, *([PATIENT] if dataset.patches else [])):
        if name not in table.column_names:
            reason, field = f"has no column {name!r}", f"--table {dataset.name}={file}"
            raise DataError(reason, code="columns", field=field, value=name)
    if dataset.shape is None:
        return
    found = table.num_rows, table.num_columns - 1, len(table[LABEL].unique())
    wanted = dataset.shape
    codes: tuple[Code, ...] = ("rows", "columns", "labels")
    for what, code, has, expected in zip(("rows", "columns", "classes"), codes, found, wanted, strict=True):
        if expected and has != expected:
            raise DataError(
                f"has {has} {what} where {dataset.title} has {expected}",
                code=code,
                field=f"--table {dataset.name}={file}",
                value=has,
            )


def read_own(file: Path) -> pa.Table:
    """Return the table of a file with its label as the last column."""
    table = read_table(file)
    return table.select([*(name for name in table.column_names if name != LABEL), LABEL])
