"""Which sums of a level travel, and that nothing is lost by leaving the others out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from equivalence import KINDS, NAMES, rich_setting
from hypothesis import given
from hypothesis import strategies as st

from blames import refused_about
from labelward.errors import Code, CodecError
from labelward.kernels.binning import missing_code
from labelward.kernels.histogram import groups, level_sums
from labelward.messages.tree import DecryptedSums, LevelHistograms
from labelward.protocols.secureboost.histogram_message import CellMask
from labelward.protocols.secureboost.params import SecureBoost
from wiring import Run, Setting, make_labels, make_parts

COUNT = 2  # of three numbers the last counts rows


@st.composite
def levels(draw: st.DrawFn) -> dict[str, Any]:
    """Rows in a few nodes or in none, drawn up to three times; columns of few values, some constant, some missing."""
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    n, slots = draw(st.integers(1, 40)), draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    dtype = draw(st.sampled_from([np.uint8, np.uint16]))
    codes = np.stack([rng.integers(0, size, n) for size in sizes], axis=1).astype(dtype)
    codes[rng.random(codes.shape) < draw(st.sampled_from([0.0, 0.1, 1.0]))] = missing_code(np.dtype(dtype))
    if draw(st.booleans()):
        codes[:, 0] = 0
    slot = rng.integers(-1, slots, n).astype(np.int32)
    counts = rng.integers(1, draw(st.integers(2, 4)), n).astype(np.uint8)
    values = np.column_stack([rng.integers(-50, 50, (n, 2)), np.ones(n)]).astype(np.int64) * counts[:, None]
    return {"codes": codes, "slot": slot, "counts": counts, "slots": slots, "values": values, "sizes": tuple(sizes)}


def mask_of(level: dict[str, Any]) -> CellMask:
    return CellMask.of(level["codes"], level["slot"], level["counts"], level["slots"], max(level["sizes"]))


def totals_of(level: dict[str, Any]) -> np.ndarray:
    return np.stack([level["values"][level["slot"] == node].sum(axis=0) for node in range(level["slots"])])


def traveling(level: dict[str, Any], mask: CellMask) -> np.ndarray:
    """Return the sums that travel, from the groups that a party sums."""
    bins = max(level["sizes"])
    grouped = groups(level["codes"], level["slot"], bins, mask.implied)
    sums = np.zeros((grouped.shape[1], level["slots"] * bins, 3), dtype=np.int64)
    for column in range(grouped.shape[1]):
        for row, cell in enumerate(grouped[:, column]):
            if cell >= 0:
                sums[column, cell] += level["values"][row]
    return sums.reshape(-1, 3)[mask.sent]


@given(level=levels())
def test_the_whole_follows_from_what_travels(level: dict[str, Any]) -> None:
    mask, bins = mask_of(level), max(level["sizes"])
    again = CellMask.unpack(*mask.packed(), level["sizes"], level["slots"])
    assert (again.cells == mask.cells).all()
    assert (again.implied == mask.implied).all()
    whole = level_sums(level["codes"], level["slot"], level["values"], level["slots"], bins)
    assert again.fill(traveling(level, mask), totals_of(level), COUNT).tobytes() == whole.tobytes()


@given(level=levels())
def test_of_a_column_without_gaps_the_fullest_bin_stays(level: dict[str, Any]) -> None:
    """Its rows are in no group; empty bins do not travel either."""
    mask, bins = mask_of(level), max(level["sizes"])
    held = level_sums(level["codes"], level["slot"], level["values"][:, 2:], level["slots"], bins)[..., 0]
    for column in range(len(level["sizes"])):
        for node in range(level["slots"]):
            counts, rows = held[column, node], totals_of(level)[node, COUNT]
            left_out = int(mask.implied[column, node])
            assert (left_out >= 0) == (rows > 0 and counts.sum() == rows)
            if left_out >= 0:
                assert left_out == counts.argmax()
                grouped = groups(level["codes"], level["slot"], bins, mask.implied)[:, column]
                assert not (grouped == node * bins + left_out).any()
            sent = {int(cell) - (column * level["slots"] + node) * bins for cell in mask.sent}
            assert {cell for cell in sent if 0 <= cell < bins} == set(np.flatnonzero(counts)) - {left_out}


LEVEL = {
    "codes": np.array([[0, 1], [0, 255], [1, 1], [0, 2], [2, 0]], dtype=np.uint8),
    "slot": np.array([0, 0, 0, 0, -1], dtype=np.int32),
    "counts": np.ones(5, dtype=np.uint8),
    "slots": 1,
    "values": np.column_stack([np.arange(5), -np.arange(5), np.ones(5)]).astype(np.int64),
    "sizes": (3, 3),
}


def test_a_known_level() -> None:
    """The first column has no gap in the node: its bin 0 follows. Of the second all bins with rows travel."""
    mask = mask_of(LEVEL)
    assert mask.implied.tolist() == [[0], [-1]]
    assert mask.sent.tolist() == [1, 4, 5]
    assert mask.packed() == (bytes([0b110011]), b"\x00\x00\xff\xff")


@pytest.mark.parametrize(
    ("cells", "implied", "code", "value", "about"),
    [
        (b"", b"\x00\x00\xff\xff", "malformed", 0, "cells"),
        (bytes(2), b"\x00\x00\xff\xff", "malformed", 2, "cells"),
        (bytes([0b110011]), b"\x00\x00", "malformed", 2, "bins"),
        (bytes([0b110011]), b"\x02\x00\xff\xff", "peer-message", None, "implied bin"),
        (bytes([0b110011]), b"\x03\x00\xff\xff", "peer-message", None, "implied bin"),
        (bytes([0b110011]), b"\xfe\xff\xff\xff", "peer-message", None, "implied bin"),
    ],
)
def test_bytes_that_cannot_be(cells: bytes, implied: bytes, code: Code, value: int | None, about: str) -> None:
    with refused_about(about, CodecError, code, value=value):
        CellMask.unpack(cells, implied, (3, 3), 1)


def test_a_bin_that_a_column_does_not_have() -> None:
    with refused_about("a bin", CodecError, "peer-message"):
        CellMask.unpack(bytes([0b110011]), b"\x00\x00\xff\xff", (3, 2), 1)


@pytest.mark.parametrize(
    ("counts", "rows", "about"),
    [
        ((4, 1, 1), 4, "leave 0 rows"),  # the derived bin of the first column is empty
        ((5, 1, 1), 4, "leave -1 rows"),
        ((1, 0, 2), 4, "leave 0 rows"),
        ((1, 2, 2), 4, "match its node"),  # the second column has no gap, and yet no bin is left out
        ((1, 3, 3), 4, "match its node"),
        ((3, 1, 1), 4, "not the fullest"),
    ],
)
def test_counts_that_cannot_be(counts: tuple[int, ...], rows: int, about: str) -> None:
    mask, values = mask_of(LEVEL), np.zeros((3, 3), dtype=np.int64)
    values[:, COUNT] = counts
    with refused_about(about, CodecError, "peer-message"):
        mask.fill(values, np.array([[0, 0, rows]]), COUNT)


# -- in whole runs -----------------------------------------------------------------------------------------------------


def shapes(run: Run) -> list[tuple[int, int]]:
    """Return for each message of sums how many cells travel, and how many there are."""
    return [
        (each.message.sums.shape[1], len(each.message.sizes) * len(each.message.implied) // 2 * max(each.message.sizes))
        for each in run.views["active"].received(LevelHistograms)
    ]


@pytest.mark.parametrize("kind", ["two classes", "forest of quantities"])
def test_the_active_party_decrypts_what_it_did_before(kind: str) -> None:
    """Gaps, categories, rows that are drawn several times: every cell of every level, by the values themselves."""
    targets, params = KINDS[kind]
    setting = rich_setting(41, targets, **params)
    run, plain = setting.run(engine="paillier", bits=512), setting.run()
    seen = list(run.views["active"].observed(DecryptedSums))
    assert [each.sums for each in seen] == [each.sums for each in plain.views["active"].observed(DecryptedSums)]
    for each in seen:
        sums = each.sums.unpack()
        assert sums.shape[:2] == (len(each.columns), len(each.nodes) * each.bins)
        assert ((sums[..., -1] > 0) | ~sums.any(axis=2)).all()
    assert any(len(each.nodes) > 1 for each in seen)


def test_a_constant_column_costs_nothing_and_a_sparse_one_its_entries() -> None:
    parts = make_parts(3, 64, {"active": 2, "left": 2})
    parts["left"][:, 0] = 3.5
    parts["left"][:, 1] = np.where(np.arange(64) % 16 == 5, np.arange(64), 0.0)
    setting = Setting(parts, make_labels(3, parts), SecureBoost(trees=1, depth=1, bins=32))
    run, alone = setting.run(), replace(setting, parts=parts | {"left": parts["left"][:, :1]}).run()
    assert sum(sent for sent, _ in shapes(alone)) == 0
    assert sum(sent for sent, _ in shapes(run)) == 4
    assert run.passive["left"].counts.ciphertexts == 4
    assert run.passive["left"].counts.additions == 0  # each of the four bins has one row
    cells = sum(cells for _, cells in shapes(run))
    assert run.passive["left"].counts.logical_sums == 2 * cells  # g and h of every cell


def test_empty_cells_do_not_travel() -> None:
    """Deep in a tree most bins of a node are empty."""
    setting = replace(rich_setting(42, "binary", trees=1, depth=4, bins=32), weights=None)
    cells = shapes(setting.run())
    assert sum(sent for sent, _ in cells) < 0.6 * sum(cells for _, cells in cells)
    assert set(NAMES[1:]) == {each.peer for each in setting.run().views["active"].received(LevelHistograms)}
