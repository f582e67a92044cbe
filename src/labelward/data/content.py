"""Texts and images of the catalog as the columns that a model reads.

Tokens are words in lower case; the number of a token is a checksum of it, so that no vocabulary has to be learned or
fetched, and different words may have the same number. A bottom model over tokens gets one column for each position;
every other model counts of words by bucket, whose columns any party may hold. An image has one column per pixel and
channel, by channel and then by row, scaled to [0, 1]; bottom models over images get as many pixels as they say, other
models few.

Positions of a text and pixels of an image are dealt out as they lie: each party gets a run of positions, or a strip of
the images from left to right, in the order of the parties.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labelward.errors import JobError

if TYPE_CHECKING:
    import pyarrow as pa

IMAGE_WIDTH = 32
"""Pixels of a row of an image, and of a column."""

_WORD = re.compile(r"[a-z0-9]+")
_POSITIONS, _BUCKETS, _SMALL = 64, 256, 8
_VOCABULARY = 30_522  # that of a BERT preset unless a job says otherwise


def words(text: str) -> list[str]:
    """Return the words and numbers of a text in lower case."""
    return _WORD.findall(text.lower())


def token(word: str, vocabulary: int) -> int:
    """Return the number of a word, from 1 to ``vocabulary - 1``; 0 is padding."""
    return 1 + zlib.crc32(word.encode()) % (vocabulary - 1)


def text_columns(table: pa.Table, texts: Sequence[str], model: Mapping[str, Any]) -> tuple[pa.Table, int]:
    """Return a table whose columns of text are joined and replaced, and how many columns lie side by side.

    Args:
        model: parameters; a bottom preset over tokens gets the numbers of the first 64 tokens.

    Returns:
        The table, and 64 for tokens, whose order counts; 0 for counts of words, which have none.
    """
    whole = [
        " ".join(str(part or "") for part in row) for row in zip(*(table[n].to_pylist() for n in texts), strict=True)
    ]
    if _presets(model, "bert"):
        given = model.get("vocabulary", _VOCABULARY)
        vocabulary = given if isinstance(given, int) and given > 1 else _VOCABULARY
        numbers = np.zeros((len(whole), _POSITIONS), np.int64)
        for row, text in enumerate(whole):
            found = [token(word, vocabulary) for word in words(text)[:_POSITIONS]]
            numbers[row, : len(found)] = found
        return _replaced(table, texts, {f"token{at:02d}": numbers[:, at] for at in range(_POSITIONS)}), _POSITIONS
    counts = np.zeros((len(whole), _BUCKETS), np.int64)
    for row, text in enumerate(whole):
        np.add.at(counts[row], [token(word, _BUCKETS + 1) - 1 for word in words(text)], 1)
    return _replaced(table, texts, {f"words{at:03d}": counts[:, at] for at in range(_BUCKETS)}), 0


def image_columns(table: pa.Table, image: str, model: Mapping[str, Any]) -> tuple[pa.Table, int]:
    """Return a table whose images are columns of pixels, and how many pixels a row of an image has.

    Args:
        image: the column of images, 3,072 bytes each: 32 x 32 pixels of three colors.
        model: parameters; a bottom preset over images gets ``height`` x ``height`` pixels, other models 8 x 8.

    Raises:
        JobError: ``height`` does not divide 32.
    """
    width = _SMALL
    if _presets(model, "resnet"):
        width = model.get("height", IMAGE_WIDTH)
        if not isinstance(width, int) or width < 1 or IMAGE_WIDTH % width:
            reason = f"images of {IMAGE_WIDTH} x {IMAGE_WIDTH} pixels shrink to heights that divide this, not {width!r}"
            raise JobError(reason, code="choice", field="[model] height", value=width)
    return _replaced(table, [image], pixel_columns(table[image].to_pylist(), width)), width


def pixel_columns(images: Sequence[bytes], width: int) -> dict[str, NDArray[np.float32]]:
    """Return one column per channel and pixel of images, float32 in [0, 1]; smaller images have means of pixels."""
    step = IMAGE_WIDTH // width
    values = np.frombuffer(b"".join(images), np.uint8).reshape(-1, width, step, width, step, 3)
    flat = (values.mean(axis=(2, 4)) / 255).astype(np.float32).transpose(0, 3, 1, 2).reshape(len(values), -1)
    names = [f"{color}{row}_{column}" for color in "rgb" for row in range(width) for column in range(width)]
    return dict(zip(names, flat.T.copy(), strict=True))


def _presets(model: Mapping[str, Any], prefix: str) -> bool:
    """Whether any party's bottom model is one of these presets."""
    bottoms = model.get("bottoms")
    named = [model.get("bottom"), *(bottoms.values() if isinstance(bottoms, Mapping) else ())]
    return any(isinstance(each, str) and each.startswith(prefix) for each in named)


def _replaced(table: pa.Table, old: Sequence[str], new: Mapping[str, NDArray[Any]]) -> pa.Table:
    """Return the table with columns in place of others, before all that remain."""
    import pyarrow as pa

    rest = {name: table[name] for name in table.column_names if name not in old}
    return pa.table({**new, **rest})
