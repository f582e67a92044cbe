"""Tables of images, texts, hashed columns and rows drawn from larger sets, made of those of the catalogue.

A job reads columns, so that an image is a column for each pixel, channel by channel and row by row, and a text one for
each place, in which the number of a token stands.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from labelward.data.catalogue import load_catalogue_table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CIFAR",
    "DIGITS",
    "FASHION",
    "TOKENS",
    "VOCABULARY",
    "cifar",
    "clicks",
    "credit",
    "fashion",
    "halves",
    "texts",
]

DIGITS, FASHION, CIFAR = 8, 28, 32
"""Width of the images."""
TOKENS = 32
"""Places of a text's half."""
VOCABULARY = 8192

_WORD = re.compile(r"[a-z0-9]+")


def fashion(seed: int, *, rows: int | None = None) -> pa.Table:
    """Return Fashion-MNIST training images with pixels from 0 to 1: all, or so many drawn by seed, alike by class."""
    return _scaled(_drawn(load_catalogue_table("fashion_mnist_train"), seed, rows))


def credit(seed: int, *, rows: int | None = None) -> pa.Table:
    """Return the credit default table, or so many of its rows, drawn by seed."""
    return _drawn(load_catalogue_table("credit_default"), seed, rows)


def cifar(seed: int, *, side: int = CIFAR) -> pa.Table:
    """Return the CIFAR-10 subset, pixels of each channel as columns, from 0 to 1; the same for any seed.

    Args:
        seed: of the run.
        side: rows and columns of an image, a divisor of 32: each pixel is the mean of those that it stands for.
    """
    import pyarrow as pa

    table, step = load_catalogue_table("cifar10_10k"), CIFAR // side
    pixels = np.frombuffer(b"".join(table["image"].to_pylist()), np.uint8).reshape(-1, side, step, side, step, 3)
    flat = (pixels.mean(axis=(2, 4)) / 255).astype(np.float32).transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    names = [f"{color}{row}_{column}" for color in "rgb" for row in range(side) for column in range(side)]
    return pa.table({**dict(zip(names, flat.T.copy(), strict=True)), "label": table["label"]})


def clicks(seed: int, *, buckets: int) -> pa.Table:
    """Return the Criteo sample projected to so many columns by checksums, as the paper does; the same for any seed.

    A category adds 1 to the column of its name and value, a number the sign-keeping logarithm of 1 + its size to the
    column of its name, and what is missing adds nothing.
    """
    import pyarrow as pa

    table = load_catalogue_table("criteo_8k")
    found = np.zeros((table.num_rows, buckets), np.float32)
    for name in table.column_names[:-1]:
        for row, value in enumerate(table[name].to_pylist()):
            if isinstance(value, str):
                found[row, zlib.crc32(f"{name}={value}".encode()) % buckets] += 1
            elif value is not None:
                found[row, zlib.crc32(name.encode()) % buckets] += np.sign(value) * np.log1p(abs(value))
    return pa.table({**{f"h{at}": found[:, at] for at in range(buckets)}, "label": table["label"]})


def texts(seed: int, *, name: str, rows: int | None = None) -> pa.Table:
    """Return texts of the catalogue, each cut into two halves of tokens; all, or so many, drawn by seed."""
    import pyarrow as pa

    table = _drawn(load_catalogue_table(name), seed, rows)
    columns = [table[column].to_pylist() for column in table.column_names[:-1]]
    cut = [halves(" ".join(str(part or "") for part in row), TOKENS, VOCABULARY) for row in zip(*columns, strict=True)]
    tokens = np.stack(cut).reshape(len(cut), 2 * TOKENS)
    names = [f"{side}{place}" for side in ("first", "second") for place in range(TOKENS)]
    return pa.table({**dict(zip(names, tokens.T.copy(), strict=True)), "label": table["label"]})


def halves(text: str, places: int, vocabulary: int) -> NDArray[np.int64]:
    """Return int64 [2, places]: token numbers of the first and the second half of a text's words, 0 where none is left.

    A token is a word or number in small letters; its number is a checksum of it, from 1 to ``vocabulary - 1``, so that
    no vocabulary has to be learned or fetched and different words may have the same number.
    """
    words = _WORD.findall(text.lower())
    middle = (len(words) + 1) // 2
    return np.stack([_numbers(words[:middle], places, vocabulary), _numbers(words[middle:], places, vocabulary)])


def _numbers(words: Sequence[str], places: int, vocabulary: int) -> NDArray[np.int64]:
    numbers = np.zeros(places, np.int64)
    for place, word in enumerate(words[:places]):
        numbers[place] = 1 + zlib.crc32(word.encode()) % (vocabulary - 1)
    return numbers


def _drawn(table: pa.Table, seed: int, rows: int | None) -> pa.Table:
    """Return rows drawn by seed, of each class its share, in the order of the table; all of them for None."""
    if rows is None:
        return table
    from sklearn.model_selection import train_test_split

    labels = table["label"].to_numpy(zero_copy_only=False)
    kept, _ = train_test_split(np.arange(len(labels)), train_size=rows, random_state=seed, stratify=labels)
    return table.take(np.sort(kept))


def _scaled(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    columns = {
        name: (table[name].to_numpy() / 255).astype(np.float32) for name in table.column_names if name != "label"
    }
    return pa.table({**columns, "label": table["label"]})
