"""Tables of images, texts, hashed columns and row samples, derived from those of the catalog.

A job reads columns. An image has one column per pixel, channel by channel and row by row; a text has one per position,
which holds the number of a token. Functions of a dataset take the seed of a run.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from labelward.data.catalog import load_catalog_table
from labelward.data.content import pixel_columns, token, words
from labelward.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

DIGITS_WIDTH, FASHION_WIDTH, CIFAR_WIDTH, BHI_WIDTH = 8, 28, 32, 50  # pixels
PATIENT = "patient"
"""Column of a table of patches that tells whose each is."""
TOKENS = 32
"""Positions of each half of a text."""
VOCABULARY = 8192


def fashion_mnist(seed: int, *, rows: int | None = None) -> pa.Table:
    """Return Fashion-MNIST training images, pixels scaled to [0, 1]: all, or a sample of rows stratified by class."""
    import pyarrow as pa

    table = _sample(load_catalog_table("fashion_mnist_train"), seed, rows)
    pixels = [name for name in table.column_names if name != "label"]
    scaled = {name: (table[name].to_numpy() / 255).astype(np.float32) for name in pixels}
    return pa.table({**scaled, "label": table["label"]})


def credit_default(seed: int, *, rows: int | None = None) -> pa.Table:
    """Return the credit default table, or a sample of its rows stratified by class."""
    return _sample(load_catalog_table("credit_default"), seed, rows)


def cifar10(seed: int, *, width: int = CIFAR_WIDTH) -> pa.Table:
    """Return the CIFAR-10 subset, one column per pixel and channel, scaled to [0, 1]; the same for any seed.

    Args:
        seed: unused.
        width: of an image, a divisor of 32; smaller images have means of pixels.
    """
    import pyarrow as pa

    table = load_catalog_table("cifar10_10k")
    return pa.table({**pixel_columns(table["image"].to_pylist(), width), "label": table["label"]})


def pixels(table: pa.Table) -> pa.Table:
    """Return a table of images, one column per pixel and channel and the label last, with pixels scaled to [0, 1]."""
    import pyarrow as pa

    white = _white(table)
    scaled = {name: (table[name].to_numpy() / white).astype(np.float32) for name in table.column_names[:-1]}
    return pa.table({**scaled, "label": table["label"]})


def _white(table: pa.Table) -> float:
    """Return the value of a white pixel: 255, or 1 where no pixel is above."""
    return 255.0 if max(float(np.max(table[name].to_numpy())) for name in table.column_names[:-1]) > 1.0 else 1.0


def shrunk(table: pa.Table, *, width: int) -> pa.Table:
    """Return a table of square images of three channels, shrunk to means of pixels; the label last.

    Args:
        width: of the shrunk images, a divisor of that of the images.
    """
    import pyarrow as pa

    names = table.column_names[:-1]
    side = math.isqrt(len(names) // 3)
    step = side // width
    parts = _white(table) * step**2
    means = np.zeros((3, width, width, table.num_rows), np.float32)
    for at, name in enumerate(names):  # a column at a time: patches are many
        line, column = divmod(at, side)
        means[line // side, line % side // step, column // step] += table[name].to_numpy() / parts
    columns = dict(zip(_pixel_names(width), means.reshape(-1, table.num_rows), strict=True))
    return pa.table({**columns, "label": table["label"]})


def patches(table: pa.Table, *, width: int) -> pa.Table:
    """Return a table of patches, one a row, with a column ``patient``, shrunk to means of pixels; the label last."""
    shrunken = shrunk(table.drop_columns(PATIENT), width=width)
    return shrunken.add_column(0, PATIENT, table[PATIENT])


def dealt(table: pa.Table, parties: int) -> pa.Table:
    """Return a table of patches as rows of one patch for each party, all of one patient and label.

    Patches are dealt in the order of the table; of a patient's patches of a label those that are too few for another
    row are left out. Columns lie by party, and in the order of the table.

    Reference: the label inference paper, Section 4.1 ("in a round-robin manner").

    Raises:
        DataError: no patient has a patch for each party.
    """
    import pyarrow as pa

    groups: dict[tuple[object, object], list[int]] = {}
    for place, whose in enumerate(zip(table[PATIENT].to_pylist(), table["label"].to_pylist(), strict=True)):
        groups.setdefault(whose, []).append(place)
    held = [each[at : at + parties] for each in groups.values() for at in range(0, len(each) - parties + 1, parties)]
    if not held:
        raise DataError(f"no patient has {parties} patches of a label", code="rows", field=PATIENT, value=parties)
    chosen = np.array(held)
    names = [name for name in table.column_names if name not in (PATIENT, "label")]
    columns = {f"patch{at}_{name}": table[name].take(chosen[:, at]) for at in range(parties) for name in names}
    return pa.table({**columns, "label": table["label"].take(chosen[:, 0])})


def made_up_patches(seed: int, *, patients: int, each: int, width: int) -> pa.Table:
    """Return made-up patches of patients: pixels of nuclei, dark, on a ground whose tint is the patient's own.

    Patches of label 1, a share of .28 as in BHI, have more nuclei; how many, varies by patient and by patch.

    Args:
        seed: that all are drawn from.
        patients: their number.
        each: number of a patient's patches.
        width: of a patch, in pixels.
    """
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    patient, label = np.repeat(np.arange(patients), each), (rng.random(patients * each) < 0.28).astype(np.int64)
    tissue = np.exp(rng.normal(0.0, 0.1, patients))[patient] * np.exp(rng.normal(0.0, 0.25, len(label)))
    density = tissue * np.where(label == 1, 0.28, 0.13)
    nuclei = rng.random((patients * each, 1, width, width)) < density[:, None, None, None]
    ground = np.array([0.85, 0.65, 0.80]) + rng.normal(0.0, 0.04, (patients, 3))
    values = ground[patient][:, :, None, None] - nuclei * np.array([0.45, 0.40, 0.25])[:, None, None]
    values = np.clip(values + rng.normal(0.0, 0.08, values.shape), 0.0, 1.0).astype(np.float32)
    columns = dict(zip(_pixel_names(width), values.reshape(len(label), -1).T.copy(), strict=True))
    return pa.table({PATIENT: patient, **columns, "label": label})


def _pixel_names(width: int) -> list[str]:
    """Return the columns of an image of three channels: by channel, then row by row."""
    return [f"{color}{row}_{column}" for color in "rgb" for row in range(width) for column in range(width)]


def criteo(seed: int, *, buckets: int) -> pa.Table:
    """Return the Criteo sample with columns hashed into buckets; the same for any seed."""
    return hashed(load_catalog_table("criteo_8k"), buckets=buckets)


def hashed(table: pa.Table, *, buckets: int) -> pa.Table:
    """Return a table whose columns but the last, the label, are hashed into buckets, as in the label inference paper.

    A category adds 1 to the bucket of its column and value; a number x adds sign(x) log(1 + |x|) to the bucket of its
    column; a missing value adds nothing.
    """
    import pyarrow as pa

    sums = np.zeros((table.num_rows, buckets), np.float32)
    for name in table.column_names[:-1]:
        for row, value in enumerate(table[name].to_pylist()):
            if isinstance(value, str):
                sums[row, zlib.crc32(f"{name}={value}".encode()) % buckets] += 1
            elif value is not None:
                sums[row, zlib.crc32(name.encode()) % buckets] += np.sign(value) * np.log1p(abs(value))
    return pa.table({**{f"h{at}": sums[:, at] for at in range(buckets)}, "label": table["label"]})


def texts(seed: int, *, name: str, rows: int | None = None) -> pa.Table:
    """Return a text table of the catalog as token numbers, in two halves: all rows, or a stratified sample."""
    return tokenized(_sample(load_catalog_table(name), seed, rows))


def tokenized(table: pa.Table) -> pa.Table:
    """Return a table of texts, the label last, as token numbers in two halves."""
    import pyarrow as pa

    columns = [table[column].to_pylist() for column in table.column_names[:-1]]
    joined = (" ".join(str(part or "") for part in row) for row in zip(*columns, strict=True))
    tokens = np.stack([token_halves(text, TOKENS, VOCABULARY) for text in joined]).reshape(-1, 2 * TOKENS)
    names = [f"{side}{place}" for side in ("first", "second") for place in range(TOKENS)]
    return pa.table({**dict(zip(names, tokens.T.copy(), strict=True)), "label": table["label"]})


def token_halves(text: str, positions: int, vocabulary: int) -> NDArray[np.int64]:
    """Return int64 [2, positions]: token numbers of the first and second half of a text's words, padded with 0.

    Tokens and their numbers are those of :mod:`labelward.data.content`.
    """
    found = words(text)
    middle = (len(found) + 1) // 2
    numbers = np.zeros((2, positions), np.int64)
    for half, own in enumerate((found[:middle], found[middle:])):
        codes = [token(word, vocabulary) for word in own[:positions]]
        numbers[half, : len(codes)] = codes
    return numbers


def synthetic(rows: int, classes: int, seed: int) -> pa.Table:
    """Return a table of 10 columns, 5 informative ones and 5 linear combinations of these, and ``label``."""
    import pyarrow as pa
    from sklearn.datasets import make_classification

    values, labels = make_classification(
        n_samples=rows, n_features=10, n_informative=5, n_redundant=5, n_classes=classes, random_state=seed
    )
    return pa.table({**{f"f{at}": values[:, at] for at in range(10)}, "label": labels})


def without_columns(table: pa.Table, *, names: Sequence[str]) -> pa.Table:
    """Return a table without some columns, such as ids, where it has them."""
    return table.drop_columns([name for name in names if name in table.column_names])


def _sample(table: pa.Table, seed: int, rows: int | None) -> pa.Table:
    """Return a sample of rows, stratified by class, in the order of the table; for None the table."""
    if rows is None:
        return table
    from sklearn.model_selection import train_test_split

    labels = table["label"].to_numpy(zero_copy_only=False)
    kept, _ = train_test_split(np.arange(len(labels)), train_size=rows, random_state=seed, stratify=labels)
    return table.take(np.sort(kept))
