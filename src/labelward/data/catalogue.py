"""Data sets by name: two come with scikit-learn, the others are found in a folder, in the user's cache or on OpenML.

A set of images stands there as the IDX files in which it was published, in a folder of its own.

The folder is the one that the environment names in ``LABELWARD_DATA``; a file there must have the checksum of its
entry. The cache is ``labelward`` in ``$XDG_CACHE_HOME`` or ``~/.cache``. What is downloaded is kept there, and must
have the rows, columns and classes of its entry, since a file that was converted here has its own checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from labelward.data.idx import read_images
from labelward.data.openml import Download, download
from labelward.data.tables import read_table
from labelward.errors import DataError, unknown_name

__all__ = ["CatalogueEntry", "catalogue_entries", "load_catalogue_table"]

_FOLDER_VARIABLE = "LABELWARD_DATA"


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """One data set.

    Attributes:
        name: in job files; its file is called ``NAME.parquet``.
        title: its name in print and where it comes from.
        rows: number of rows.
        features: number of columns beside the label.
        classes: number of rows of each class, by label as text; empty for regression.
        times: columns whose texts are points in time, and are read as such.
        sha256: checksum of the file; empty for a set that comes with scikit-learn, and for images.
        files: of images, instead of the one file: IDX files below the folder, images and their labels in turn, and
            their checksums.
        source: where else it can be had, if a faithful copy is known.
        note: how it differs from the set that its name recalls, and its license.
    """

    name: str
    title: str
    rows: int
    features: int
    classes: Mapping[str, int] = field(default_factory=dict)
    times: tuple[str, ...] = ()
    sha256: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    source: Download | None = None
    note: str = ""

    @property
    def task(self) -> str:
        """``"regression"`` or ``"classification"``."""
        return "classification" if self.classes else "regression"


def _even(classes: range, rows: int) -> dict[str, int]:
    return {str(one): rows for one in classes}


_BANK = (
    "age", "job", "marital", "education", "default", "balance", "housing", "loan", "contact", "day", "month",
    "duration", "campaign", "pdays", "previous", "poutcome",
)  # fmt: skip
_CREDIT = (
    "LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE", "PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6",
    "BILL_AMT1", "BILL_AMT2", "BILL_AMT3", "BILL_AMT4", "BILL_AMT5", "BILL_AMT6", "PAY_AMT1", "PAY_AMT2", "PAY_AMT3",
    "PAY_AMT4", "PAY_AMT5", "PAY_AMT6",
)  # fmt: skip
_FASHION = "Fashion-MNIST (Zalando Research)"
_FASHION_TRAIN = {
    "fashion_mnist/train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "fashion_mnist/train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
}
_FASHION_TEST = {
    "fashion_mnist/t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "fashion_mnist/t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}

_ENTRIES = (
    CatalogueEntry(
        name="breast_cancer",
        title="Breast Cancer Wisconsin (Diagnostic), scikit-learn",
        rows=569,
        features=30,
        classes={"0": 212, "1": 357},
        note="0 is malignant, 1 benign; CC BY 4.0",
    ),
    CatalogueEntry(
        name="digits",
        title="Optical Recognition of Handwritten Digits (test file), scikit-learn",
        rows=1797,
        features=64,
        classes={
            "0": 178, "1": 182, "2": 177, "3": 183, "4": 181, "5": 182, "6": 181, "7": 179, "8": 174, "9": 180,
        },
        note="CC BY 4.0",
    ),
    CatalogueEntry(
        name="obesity",
        title="Estimation of Obesity Levels, UCI 544",
        rows=2111,
        features=16,
        classes={
            "Insufficient_Weight": 272, "Normal_Weight": 287, "Obesity_Type_I": 351, "Obesity_Type_II": 297,
            "Obesity_Type_III": 324, "Overweight_Level_I": 290, "Overweight_Level_II": 290,
        },
        sha256="7cc9bc78cc2777116e519330be23a8233310eb1a8a820a1072e08f264e1679ab",
        note="CC BY 4.0",
    ),
    CatalogueEntry(
        name="phishing",
        title="Phishing Websites, UCI 327",
        rows=11055,
        features=30,
        classes={"-1": 4898, "1": 6157},
        sha256="ad9365223fe147754892386127bb906478a8486f28514c7161f0121c27b327da",
        source=Download(name="PhishingWebsites", version=1),
        note="about half of the rows are duplicates, so a random split puts equal rows on both sides; CC BY 4.0",
    ),
    CatalogueEntry(
        name="avila",
        title="Avila, UCI 459",
        rows=20867,
        features=10,
        classes={
            "A": 8572, "B": 10, "C": 206, "D": 705, "E": 2190, "F": 3923, "G": 893, "H": 1039, "I": 1663, "W": 89,
            "X": 1044, "Y": 533,
        },
        sha256="0e7d7b589f57816be2cd061b0e240e36ae2ddd1f6f8827bda71296f5b3749234",
        note="CC BY 4.0",
    ),
    CatalogueEntry(
        name="fars",
        title="Fatal Accident Reporting System, PMLB",
        rows=100968,
        features=29,
        classes={
            "0": 9, "1": 42116, "2": 15072, "3": 299, "4": 20007, "5": 13890, "6": 8674, "7": 901,
        },
        sha256="02ad425ee0bde4df9bcf688545d00adbf1543ae1187a5e4a7c5a8ad0b1e634bc",
        note="integer codes throughout, nominal columns included; US government publication",
    ),
    CatalogueEntry(
        name="credit_default",
        title="Default of Credit Card Clients, UCI 350",
        rows=30000,
        features=23,
        classes={"0": 23364, "1": 6636},
        sha256="fea78015e898a3325ced485872fdf6d421a5905d10c2c92c91ec57446659ea13",
        source=Download(name="default-of-credit-card-clients", version=1, columns=_CREDIT),
        note="without its ID column; CC BY 4.0",
    ),
    CatalogueEntry(
        name="bank_marketing",
        title="Bank Marketing (bank-full), UCI 222",
        rows=45211,
        features=16,
        classes={"no": 39922, "yes": 5289},
        sha256="0130bf2831d3cf02596addf188ff7983fbd7887e8745278693bedfbf0d3beb60",
        source=Download(name="bank-marketing", version=1, columns=_BANK, labels={"1": "no", "2": "yes"}),
        note="CC BY 4.0",
    ),
    CatalogueEntry(
        name="appliances_energy",
        title="Appliances Energy Prediction, UCI 374",
        rows=19735,
        features=28,
        times=("date",),
        sha256="70a450eefc70c3217c8d0eb6ee96bab4dc83e59bbdf552ee95de4af92f0d6783",
        note="CC BY 4.0",
    ),
    CatalogueEntry(
        name="sensorless_2200",
        title="Sensorless Drive Diagnosis, UCI 325, subset",
        rows=2200,
        features=48,
        classes=_even(range(1, 12), 200),
        sha256="f71973830084bc0f8db934a62143bba437544eddc2d738d23ea02eebe5d2da7f",
        note="2200 of 58509 rows, 200 of each class; CC BY 4.0",
    ),
    CatalogueEntry(
        name="parkinson_252",
        title="Parkinson's Disease Classification, UCI 470, derived",
        rows=252,
        features=751,
        classes={"PD": 188, "control": 64},
        sha256="edba79cec1719bfc1d4a44cb6b7ef5b26bf06cc3c56699266909061e254d6e11",
        note="252 subjects in place of 756 recordings, 751 features in place of 754; CC BY 4.0",
    ),
    CatalogueEntry(
        name="criteo_8k",
        title="Criteo Display Advertising Challenge, sample",
        rows=8000,
        features=39,
        classes={"0": 6272, "1": 1728},
        sha256="9014ec0ac9954499c2d10bde1336656cd3960a9ba27163f80c0b243ee83efb6e",
        note="8000 of 45,840,617 rows, with missing values; terms of the challenge (research, non-commercial)",
    ),
    CatalogueEntry(
        name="ag_news_7600",
        title="AG's News Topic Classification, test file",
        rows=7600,
        features=2,
        classes=_even(range(1, 5), 1900),
        sha256="c50fe340297dd7035e3715ba14ded25636611dd730a14e1f8510f05de4ecdeff",
        note="texts; without the 120,000 training rows; non-commercial use",
    ),
    CatalogueEntry(
        name="dbpedia_14k",
        title="DBpedia ontology classification, sample",
        rows=14000,
        features=1,
        classes=_even(range(14), 1000),
        sha256="e6c200696792ae5a1c5839cd77cb91d57c4d09eb48cc8503e99394748862c08a",
        note="texts; 14,000 of 560,000 training rows, 1,000 of each class; CC BY-SA 3.0",
    ),
    CatalogueEntry(
        name="cifar10_10k",
        title="CIFAR-10, subset",
        rows=10000,
        features=2,
        classes=_even(range(10), 1000),
        sha256="15892a2e35d4fc8e6291ab677614933dcf80780174d66dcd7e472e138492546e",
        note="images of 32 × 32 pixels in three colors, each 3,072 bytes in one column: for studies, not for "
        "jobs; 8,000 training and 2,000 test images, JPEG-compressed once",
    ),
    CatalogueEntry(
        name="fashion_mnist",
        title=_FASHION,
        rows=70000,
        features=784,
        classes=_even(range(10), 7000),
        files={**_FASHION_TRAIN, **_FASHION_TEST},
        note="images of 28 × 28 pixels, row by row, the 60,000 training images first; MIT",
    ),
    CatalogueEntry(
        name="fashion_mnist_train",
        title=f"{_FASHION}, training images",
        rows=60000,
        features=784,
        classes=_even(range(10), 6000),
        files=_FASHION_TRAIN,
        note="60,000 images of 28 × 28 pixels, row by row; MIT",
    ),
)  # fmt: skip


def catalogue_entries() -> Mapping[str, CatalogueEntry]:
    """Return all entries by name."""
    return MappingProxyType({entry.name: entry for entry in _ENTRIES})


def load_catalogue_table(name: str) -> pa.Table:
    """Return a data set of the catalogue: its feature columns, then ``label``.

    Raises:
        DataError: no such name; a file that is not the expected one; or nothing to be found, with where it was
            looked for and how to provide it.
    """
    known = catalogue_entries()
    if name not in known:
        raise DataError(
            f"{unknown_name('data set', name, known)}, or the path of a file",
            code="unknown",
            field="[data] table",
            value=name,
        )
    entry = known[name]
    if entry.files:
        return _images(entry)
    if not entry.sha256:
        return _checked(_from_scikit_learn(name), entry, "scikit-learn")
    folder = os.environ.get(_FOLDER_VARIABLE)
    if folder and (file := Path(folder) / f"{name}.parquet").is_file():
        _check_sum(file, entry.sha256)
        return _checked(read_table(file), entry, str(file))
    cached = _cache_folder() / f"{name}.parquet"
    if cached.is_file():
        return _checked(read_table(cached), entry, str(cached))
    if entry.source is None:
        raise DataError(
            f"{_not_found(entry, folder, cached)}; no download is known for it", code="not-found", value=name
        )
    try:
        table = download(entry.source)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{_not_found(entry, folder, cached)}; OpenML ({entry.source.name}) did not give it: {reason}",
            code="not-found",
            value=name,
        ) from error
    _keep(_checked(table, entry, f"OpenML ({entry.source.name})"), cached)
    return table


def _images(entry: CatalogueEntry) -> pa.Table:
    folder = os.environ.get(_FOLDER_VARIABLE)
    places = [*([Path(folder)] if folder else []), _cache_folder()]
    place = next((one for one in places if all((one / path).is_file() for path in entry.files)), None)
    if place is None:
        looked = " and ".join(repr(str(one)) for one in places)
        wanted = ", ".join(f"{path} (sha256 {each})" for path, each in entry.files.items())
        raise DataError(
            f"data set {entry.name!r} ({entry.title}) is not on this machine: its files were looked for in "
            f"{looked}; "
            f"put {wanted} into a folder and name that in {_FOLDER_VARIABLE}",
            code="not-found",
            value=entry.name,
        )
    paths = [place / path for path in entry.files]
    for path, expected in zip(paths, entry.files.values(), strict=True):
        _check_sum(path, expected)
    return _checked(read_images(paths[0::2], paths[1::2]), entry, str(paths[0].parent))


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "labelward"


def _not_found(entry: CatalogueEntry, folder: str | None, cached: Path) -> str:
    unset = f"{_FOLDER_VARIABLE} is not set"
    looked = f"{_FOLDER_VARIABLE} is {folder!r}, which does not hold it" if folder else unset
    return (
        f"data set {entry.name!r} ({entry.title}) is not on this machine: {looked}, and there is no {str(cached)!r}; "
        f"put {entry.name}.parquet (sha256 {entry.sha256}) into a folder and name that in {_FOLDER_VARIABLE}"
    )


def _check_sum(file: Path, expected: str) -> None:
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise DataError(
            f"is not the expected file: sha256 is {found}, not {expected}", code="damaged", field=str(file), value=found
        )


def _checked(table: pa.Table, entry: CatalogueEntry, origin: str) -> pa.Table:
    shape, wanted = (table.num_rows, table.num_columns), (entry.rows, entry.features + 1)
    if shape != wanted or table.column_names[-1] != "label":
        raise DataError(
            f"is not data set {entry.name!r}: it has {shape[0]} rows × {shape[1]} columns "
            f"with {table.column_names[-1]!r} last, not {wanted[0]} × {wanted[1]} with 'label'",
            code="damaged",
            field=origin,
            value=(*shape, table.column_names[-1]),
        )
    if entry.classes:
        counts = {str(one["values"]): one["counts"] for one in pc.value_counts(table["label"]).to_pylist()}
        if counts != dict(entry.classes):
            raise DataError(
                f"is not data set {entry.name!r}: its classes number {counts}",
                code="damaged",
                field=origin,
                value=counts,
            )
    for name in entry.times:
        position = table.column_names.index(name)
        table = table.set_column(position, name, table[name].cast(pa.timestamp("s")))
    return table


def _keep(table: pa.Table, file: Path) -> None:
    import pyarrow.parquet as pq

    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, part, compression="zstd")
        part.replace(file)  # whole or not at all, even if two processes download at once
    except OSError as error:
        raise DataError(
            f"cannot be kept in the cache ({error}); set XDG_CACHE_HOME", code="unwritable", field=str(file)
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _from_scikit_learn(name: str) -> pa.Table:
    from sklearn import datasets

    rows: Any = getattr(datasets, f"load_{name}")()
    columns = {str(column): rows.data[:, position] for position, column in enumerate(rows.feature_names)}
    return pa.table({**columns, "label": rows.target})
