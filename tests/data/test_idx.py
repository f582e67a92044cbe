"""Images in IDX files: what a table of them holds, and what is refused."""

import gzip
import hashlib
import struct

import numpy as np
import pytest

from labelward.data import catalog
from labelward.data.idx import read_idx, read_images
from labelward.errors import DataError
from refusals import refused

IMAGES = np.arange(3 * 2 * 4, dtype=np.uint8).reshape(3, 2, 4)
LABELS = np.array([1, 0, 1], np.uint8)


def write(file, values, *, kind=8, cut=0):
    file.parent.mkdir(parents=True, exist_ok=True)
    header = bytes((0, 0, kind, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    content = header + values.tobytes()
    file.write_bytes(gzip.compress(content[: len(content) - cut]))
    return file


def test_an_image_is_a_row_of_its_pixels_row_by_row(tmp_path):
    images = [write(tmp_path / "a", IMAGES), write(tmp_path / "b", IMAGES[:1] + 100)]
    labels = [write(tmp_path / "c", LABELS), write(tmp_path / "d", LABELS[:1])]
    table = read_images(images, labels)
    assert table.column_names == [*(f"pixel{at}" for at in range(1, 9)), "label"]
    assert table.to_pylist()[1] == {**{f"pixel{at + 1}": 8 + at for at in range(8)}, "label": 0}
    assert table["label"].to_pylist() == [1, 0, 1, 1]
    assert table["pixel8"].to_pylist() == [7, 15, 23, 107]


@pytest.mark.parametrize("shape", [(0,), (2, 3), (1, 1, 1, 1)])
def test_any_number_of_dimensions(tmp_path, shape):
    values = np.random.default_rng(1).integers(256, size=shape).astype(np.uint8)
    np.testing.assert_array_equal(read_idx(write(tmp_path / "x", values)), values)


def test_what_is_no_idx_file_is_refused(tmp_path):
    (tmp_path / "plain").write_bytes(b"\0\0\x08\x01")
    broken = write(tmp_path / "broken", IMAGES)
    broken.write_bytes(broken.read_bytes()[:-12])
    for file, code, value in (
        (tmp_path / "none", "unreadable", None),
        (tmp_path / "plain", "unreadable", None),
        (broken, "unreadable", None),
        (write(tmp_path / "floats", IMAGES, kind=13), "foreign", b"\0\0\x0d\x03"),
        (write(tmp_path / "short", IMAGES, cut=1), "damaged", 23),
        (write(tmp_path / "header", LABELS[:0], cut=2), "damaged", 0),
    ):
        with refused(DataError, code, field=str(file), value=value):
            read_idx(file)


def test_files_that_do_not_go_together_are_refused(tmp_path):
    images, labels = write(tmp_path / "i", IMAGES), write(tmp_path / "l", LABELS)
    for one, other, shape in ((images, write(tmp_path / "few", LABELS[:2]), (3, 2, 4)), (labels, images, (3,))):
        with refused(DataError, "damaged", field=str(one), value=shape):
            read_images([one], [other])
    with refused(DataError, "damaged", field=str(tmp_path / "turned"), value=(4, 2)):
        read_images([images, write(tmp_path / "turned", IMAGES.reshape(3, 4, 2))], [labels, labels])


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A catalog of one set of images, whose folder is there."""
    files = {"tiny/images.gz": IMAGES, "tiny/labels.gz": LABELS}
    sums = {path: hashlib.sha256(write(tmp_path / path, each).read_bytes()).hexdigest() for path, each in files.items()}
    entry = catalog.CatalogEntry(
        name="tiny", title="Three images", rows=3, features=8, classes={"0": 1, "1": 2}, files=sums
    )
    monkeypatch.setattr(catalog, "catalog_entries", lambda: {entry.name: entry})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LABELWARD_DATA", str(tmp_path))
    return tmp_path


def test_images_are_found_in_the_folder_or_the_cache(tiny, monkeypatch):
    table = catalog.load_catalog_table("tiny")
    assert table.shape == (3, 9)
    (tiny / "cache").mkdir()
    (tiny / "cache" / "labelward").mkdir()
    (tiny / "tiny").rename(tiny / "cache" / "labelward" / "tiny")
    assert catalog.load_catalog_table("tiny").equals(table)
    monkeypatch.delenv("LABELWARD_DATA")
    assert catalog.load_catalog_table("tiny").equals(table)


def test_images_that_are_missing_or_others_are_named(tiny):
    write(tiny / "tiny" / "labels.gz", 1 - LABELS)
    with refused(DataError, "damaged", field=str(tiny / "tiny" / "labels.gz")):
        catalog.load_catalog_table("tiny")
    (tiny / "tiny" / "labels.gz").unlink()
    with refused(DataError, "not-found", value="tiny") as caught:
        catalog.load_catalog_table("tiny")
    assert "labels.gz (sha256" in str(caught.value)
