"""IDX files, the format of the MNIST family: images and labels as a table."""

import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelward.errors import DataError

_BYTES = 0x08  # the format's code of uint8, the only type that the family uses


def read_images(images: Sequence[Path], labels: Sequence[Path]) -> pa.Table:
    """Return one row per image: columns ``pixel1``, ``pixel2``, … in C order, then ``label``; all uint8.

    Args:
        images: IDX files of images of the same size, which are concatenated.
        labels: for each of them an IDX file of as many labels.

    Raises:
        DataError: a file cannot be read, is not an IDX file, or does not match the others.
    """
    blocks, names, size = [], [], None
    for image_file, label_file in zip(images, labels, strict=True):
        block, name = read_idx(image_file), read_idx(label_file)
        if block.ndim != 3 or name.ndim != 1 or len(block) != len(name):
            reason = f"its shape {block.shape} does not match the shape {name.shape} of the labels in {label_file.name}"
            raise DataError(reason, code="damaged", field=str(image_file), value=block.shape)
        if size not in (None, block.shape[1:]):
            reason = f"has images of {block.shape[1:]} pixels, but earlier files have {size}"
            raise DataError(reason, code="damaged", field=str(image_file), value=block.shape[1:])
        size = block.shape[1:]
        blocks.append(block.reshape(len(block), -1))
        names.append(name)
    pixels = np.ascontiguousarray(np.concatenate(blocks).T)
    columns = {f"pixel{at}": column for at, column in enumerate(pixels, start=1)}
    return pa.table({**columns, "label": np.concatenate(names)})


def read_idx(file: Path) -> NDArray[np.uint8]:
    """Return the array of a gzipped IDX file of bytes: a magic number, the dimensions, then the values in C order.

    Raises:
        DataError: the file cannot be read, is not an IDX file of bytes, or is truncated.
    """
    try:
        content = gzip.decompress(file.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read as a gzipped file ({error})", code="unreadable", field=str(file)) from error
    if len(content) < 4 or content[:3] != bytes((0, 0, _BYTES)):
        reason = f"is not an IDX file of bytes: it begins with {content[:4].hex(' ')!r}"
        raise DataError(reason, code="foreign", field=str(file), value=content[:4])
    end = 4 + 4 * content[3]
    shape = struct.unpack(f">{content[3]}I", content[4:end]) if len(content) >= end else ()
    wanted = int(np.prod(shape, dtype=np.int64)) if shape else -1
    if len(content) - end != wanted:
        reason = f"has {max(0, len(content) - end)} values, but its header announces the shape {shape}"
        raise DataError(reason, code="damaged", field=str(file), value=max(0, len(content) - end))
    return np.frombuffer(content, np.uint8, offset=end).reshape(shape)
