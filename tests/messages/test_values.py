"""Row masks and arrays: packed and unpacked, and data that cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from blames import refused_about
from labelward.errors import CodecError
from labelward.messages.base import Array, RowMask
from refusals import refused

bits = npst.arrays(np.bool_, st.integers(0, 300))


@given(mask=bits)
def test_masks_come_back(mask: np.ndarray) -> None:
    packed = RowMask.pack(mask)
    assert packed.unpack(len(mask)).tolist() == mask.tolist()
    assert packed.unpack(len(mask)).dtype == np.bool_


@given(total=st.integers(0, 5000), inside=st.integers(0, 60), flip=st.booleans(), seed=st.integers(0, 99))
def test_masks_take_the_smaller_form(total: int, inside: int, flip: bool, seed: int) -> None:
    """Few rows in or out: positions of four bytes; otherwise one bit a row."""
    inside = min(inside, total)
    mask = np.zeros(total, dtype=np.bool_)
    mask[np.random.default_rng(seed).choice(total, inside, replace=False)] = True
    mask ^= flip
    packed = RowMask.pack(mask)
    positions, packed_bits = 4 * min(mask.sum(), total - mask.sum()), (total + 7) // 8
    assert len(packed.data) == min(positions, packed_bits)
    if positions < packed_bits:
        assert packed.form == ("in" if mask.sum() <= total - mask.sum() else "out")
    else:
        assert packed.form == "bits"
    assert packed.unpack(total).tolist() == mask.tolist()


def test_masks_of_no_row() -> None:
    packed = RowMask.pack(np.zeros(0, dtype=np.bool_))
    assert (packed.total, packed.data) == (0, b"")
    assert packed.unpack(0).shape == (0,)


def words(*positions: int) -> bytes:
    return np.array(positions, dtype="<u4").tobytes()


@pytest.mark.parametrize(
    ("mask", "value", "about"),
    [
        (RowMask(4, "bits", b"\x01"), 4, "5"),
        (RowMask(5, "bits", b""), 0, "bytes"),
        (RowMask(5, "bits", b"\x01\x00"), 2, "bytes"),
        (RowMask(5, "in", b"\x01"), 1, "multiple of 4"),
        (RowMask(5, "in", words(5)), None, "exceed 5 rows"),
        (RowMask(5, "out", words(2**32 - 1)), None, "exceed 5 rows"),
        (RowMask(5, "in", words(2, 1)), None, "not ascending"),
        (RowMask(5, "in", words(2, 2)), None, "not ascending"),
        (RowMask(5, "out", words(4, 0, 1)), None, "not ascending"),
    ],
)
def test_masks_that_cannot_be(mask: RowMask, value: int | None, about: str) -> None:
    with refused_about(about, CodecError, "malformed", value=value):
        mask.unpack(5)


@given(total=st.integers(0, 40), form=st.sampled_from(["bits", "in", "out"]), data=st.binary(max_size=24))
def test_any_mask_is_read_or_refused(total: int, form: str, data: bytes) -> None:
    try:
        mask = RowMask(total, form, data).unpack(total)  # type: ignore[arg-type]
    except CodecError:
        return
    assert mask.shape == (total,)


arrays = npst.arrays(
    st.sampled_from([np.int32, np.int64, np.float32, np.float64]), npst.array_shapes(min_dims=0, min_side=0)
)


@given(values=arrays)
def test_arrays_come_back(values: np.ndarray) -> None:
    found = Array.pack(values).unpack()
    assert (found.dtype, found.shape) == (values.dtype, values.shape)
    assert found.tobytes() == values.tobytes()
    assert not found.flags.writeable


def test_arrays_of_other_orders() -> None:
    """Fortran order and big-endian numbers travel as the same bytes."""
    values = np.arange(6.0).reshape(2, 3)
    for other in (np.asfortranarray(values), values.astype(">f8"), np.repeat(values, 2, axis=1)[:, ::2]):
        assert Array.pack(other) == Array.pack(values)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "object", "complex128", "U3"])
def test_arrays_that_may_not_travel(dtype: str) -> None:
    with refused(CodecError, "not-sendable"):
        Array.pack(np.zeros(2, dtype=dtype))


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        ((3,), bytes(16)),
        ((-1,), bytes(8)),
        ((-1, -1), bytes(8)),
        ((2, 2), bytes(8)),
        ((1,), bytes(7)),
        ((2**32, 2**32), b""),
        ((0, 2**63), b""),
        ((1,) * 70, bytes(8)),
    ],
)
def test_arrays_that_cannot_be(shape: tuple[int, ...], data: bytes) -> None:
    with refused(CodecError, "malformed", value=shape):
        Array("int64", shape, data).unpack()
