"""Sums by several columns at once are those of each column by itself, in every kernel, and take fewer products."""

from __future__ import annotations

from math import gcd
from unittest.mock import patch

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.errors import EncryptionError
from labelward.he.paillier import column_merging as joint
from labelward.he.paillier.backends.base import BACKENDS, unavailable_reason
from labelward.he.paillier.backends.base import select_backend as kernel_of
from labelward.he.paillier.backends.ifma.work_lists import cut_lists
from labelward.he.paillier.column_merging import joint_cells, plan_merging, present_rows
from labelward.he.paillier.int_bytes import byte_length, write_ints
from labelward.he.row_store import RowStore
from refusals import refused

RUNNING = [name for name in BACKENDS if not unavailable_reason(name)]


@st.composite
def grouped(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Draw groups [n, F]: rows absent from some columns or all, empty groups, columns that hang together."""
    n, columns, n_groups = draw(st.integers(0, 60)), draw(st.integers(1, 7)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    groups = rng.integers(-1, n_groups, size=(n, columns)).astype(np.int32)
    if draw(st.booleans()):
        groups[:, -1] = groups[:, 0]
    groups[groups == draw(st.integers(0, 5))] = 0
    groups[rng.random(n) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = -1
    return groups, n_groups


def partitions(draw: st.DrawFn, columns: int) -> tuple[tuple[int, ...], ...]:
    """Draw sets of one to three columns that hold each column once."""
    order, sets = draw(st.permutations(range(columns))), []
    while order:
        size = draw(st.integers(1, 3))
        sets.append(tuple(order[:size]))
        order = order[size:]
    return tuple(sets)


@given(case=grouped())
@settings(deadline=None)
def test_joint_cells_are_the_different_rows(case: tuple[np.ndarray, int]) -> None:
    groups, n_groups = case
    numbers, cells = joint_cells(groups.T, range(groups.shape[1]), n_groups)
    expected = sorted({tuple(row) for row in groups.tolist() if max(row) >= 0})
    assert [tuple(cell) for cell in cells.tolist()] == expected
    for row, number in zip(groups.tolist(), numbers.tolist(), strict=True):
        assert (tuple(row) == expected[number]) if number >= 0 else max(row) < 0


@given(case=grouped(), start=st.integers(0, 9))
@settings(deadline=None)
def test_present_rows_by_column(case: tuple[np.ndarray, int], start: int) -> None:
    groups, n_groups = case
    found = present_rows(groups, n_groups, start)
    inside = np.flatnonzero((groups >= 0).any(axis=1))
    assert (found.rows - start).tolist() == inside.tolist()
    np.testing.assert_array_equal(found.groups, groups[inside].T)
    for wrong in (-2, n_groups):  # in a row that is absent from all other columns, too
        other = np.full((len(groups) + 1, groups.shape[1]), -1, np.int32)
        other[-1, 0] = wrong
        with refused(EncryptionError, "range", value=wrong):
            present_rows(other, n_groups)


@given(sizes=st.lists(st.integers(1, 70), max_size=40), most=st.integers(1, 80), gap=st.integers(0, 3))
@settings(deadline=None)
def test_lists_are_cut_into_parts_of_nearly_equal_length(sizes: list[int], most: int, gap: int) -> None:
    """Every item is in one part of its list; the longest parts come first, and blocks of eight are filled up."""
    stops = np.cumsum(np.array([size + gap for size in sizes], np.int64))
    starts = stops - np.array(sizes, np.int64)
    parts = cut_lists(starts, stops, most)
    lengths = parts.stops - parts.starts
    assert len(lengths) % 8 == 0
    assert len(lengths) - len(parts.owners) < 8
    assert not lengths[len(parts.owners) :].any()
    assert lengths.tolist() == sorted(lengths.tolist(), reverse=True)
    for index, size in enumerate(sizes):
        own = np.flatnonzero(parts.owners == index)
        covered = sorted(at for part in own for at in range(parts.starts[part], parts.stops[part]))
        assert covered == list(range(starts[index], stops[index]))
        assert len(own) == -(-size // most)
        assert lengths[own].max() - lengths[own].min() <= 1


@given(case=grouped(), weight=st.sampled_from([0.5, 1.0, 2.0, 5.0]))
@settings(deadline=None)
def test_what_a_plan_takes_is_counted_by_doing_it(case: tuple[np.ndarray, int], weight: float) -> None:
    """Products of rows into joint cells, and of joint cells into cells; never more than without."""
    groups, n_groups = case
    chosen = plan_merging(present_rows(groups, n_groups).groups, n_groups, weight)
    assert sorted(column for columns in chosen.sets for column in columns) == list(range(groups.shape[1]))
    rows, merges = 0, 0
    for columns in chosen.sets:
        inside = [tuple(row) for row in groups[:, columns].tolist() if max(row) >= 0]
        joint = set(inside)
        merges += sum(
            len([cell for cell in joint if cell[at] >= 0]) - len({cell[at] for cell in joint if cell[at] >= 0})
            for at in range(len(columns))
        )
        rows += len(inside) - len(joint)
    assert chosen == (chosen.sets, rows, merges)
    apart = sum(int((column >= 0).sum()) - len(set(column[column >= 0].tolist())) for column in groups.T)
    assert rows + weight * merges <= apart


@given(case=grouped(), weight=st.sampled_from([0.5, 2.0]))
@settings(deadline=None)
def test_cells_are_counted_alike_in_an_array_sorted_and_numbered(case: tuple[np.ndarray, int], weight: float) -> None:
    groups, n_groups = case
    present = present_rows(groups, n_groups).groups
    in_array = plan_merging(present, n_groups, weight)
    with patch.multiple(joint, _ROOM=0, _PER_ROW=0):
        assert plan_merging(present, n_groups, weight) == in_array
        with patch.object(joint, "_FEW", -1):
            assert plan_merging(present, n_groups, weight) == in_array


def test_pairs_on_a_root_as_of_job_a_and_triples_where_rows_are_many() -> None:
    """30,000 rows × 11 columns × 32 bins: at most 0.65 of the products (the acceptance's bound); triples from 10^5."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 32, size=(30_000, 11)).astype(np.int32)
    chosen = plan_merging(np.ascontiguousarray(groups.T), 32, 2.0)
    assert max(map(len, chosen.sets)) == 2
    assert chosen.products <= 0.65 * (30_000 - 32) * 11
    many = plan_merging(rng.integers(0, 32, size=(7, 300_000)).astype(np.int32), 32, 2.0)
    assert sorted(map(len, many.sets)) == [2, 2, 3]
    few = plan_merging(np.ascontiguousarray(groups[:500].T), 32, 2.0)
    assert few.sets == tuple((f,) for f in range(11))


def test_columns_that_hang_together_are_found_by_their_cells() -> None:
    """Two equal columns of many bins have few joint cells: half of the products."""
    column = np.random.default_rng(0).integers(0, 500, size=2000).astype(np.int32)
    assert plan_merging(np.stack([column, column]), 500, 2.0) == (((0, 1),), 2000 - len(set(column.tolist())), 0)


@pytest.mark.parametrize("name", RUNNING)
@given(case=grouped(), data=st.data())
@settings(deadline=None, max_examples=40)
def test_sums_by_any_sets_are_products_of_integers(
    name: str, case: tuple[np.ndarray, int], data: st.DataObject
) -> None:
    """Products of integers: each kernel, each partition of the columns, any stretch of rows that came in any blocks."""
    groups, n_groups = case
    sets = partitions(data.draw, groups.shape[1])
    seed, threads, before = data.draw(st.integers(0, 2**32)), data.draw(st.integers(1, 2)), data.draw(st.integers(0, 9))
    n = 2**512 - 2 * (seed % 1000) - 1
    square, size, rng = n * n, byte_length(mpz(n) ** 2), np.random.default_rng(seed)
    edges = [1, n - 1, n + 1, square - 1, 2**52 - 1, 2**520 - 1, square // 2]
    edges += [int.from_bytes(rng.bytes(size), "big") % square for _ in range(20)]
    units = [number for number in edges if gcd(number, n) == 1]
    numbers = [units[i] for i in rng.integers(0, len(units), before + len(groups))]
    rows = kernel_of(name, threads=threads).prepared_rows(mpz(n), len(numbers), RowStore(seed % 3 * 10_000).allocate)
    ciphertexts, cut = write_ints(map(mpz, numbers), size), int(rng.integers(0, len(numbers) + 1)) * size
    for block in (ciphertexts[:cut], ciphertexts[cut:]):
        if block:
            rows.add(block)
    expected = [1] * (groups.shape[1] * n_groups)
    for number, row in zip(numbers[before:], groups.tolist(), strict=True):
        for column, group in enumerate(row):
            if group >= 0:
                at = column * n_groups + group
                expected[at] = expected[at] * number % square
    if len(groups):
        assert rows.sums(present_rows(groups, n_groups, before), n_groups, sets) == write_ints(map(mpz, expected), size)


@pytest.mark.skipif("ifma" not in RUNNING, reason="the processor has no AVX-512 IFMA")
@pytest.mark.parametrize(("room", "batch"), [(0, 8192), (1 << 16, 1), (0, 20)])
def test_sets_in_batches_and_keys_too_many_to_count(monkeypatch: pytest.MonkeyPatch, room: int, batch: int) -> None:
    """The same bytes, whether joint cells are counted in an array or sorted, and in however many batches."""
    from labelward.he.paillier.backends.ifma import rows as ifma_rows

    rng, n, count = np.random.default_rng(3), mpz(2**512 - 569), 300
    ciphertexts = write_ints([mpz(int.from_bytes(rng.bytes(127), "big") | 1) for _ in range(count)], 128)
    groups = rng.integers(-1, 9, size=(count, 7)).astype(np.int32)
    groups[::5] = -1
    sets, found, inside = ((0, 3), (1, 2, 6), (4, 5)), [], present_rows(groups, 9)
    for _ in range(2):
        rows = kernel_of("ifma", threads=2).prepared_rows(n, count, RowStore().allocate)
        rows.add(ciphertexts)
        found.append((rows.sums(inside, 9, sets), plan_merging(inside.groups, 9, 2.0, 2)))
        monkeypatch.setattr(ifma_rows, "_BATCH", batch)
        monkeypatch.setattr(joint, "_ROOM", room)
        monkeypatch.setattr(joint, "_PER_ROW", min(room, joint._PER_ROW))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", [name for name in RUNNING if name != "gmpy2"])
def test_many_rows_by_triples_and_pairs(name: str) -> None:
    """Cells and exponents of more than one digit, several threads: the same bytes as one column after the other."""
    rng, n, count = np.random.default_rng(2), mpz(2**256 - 189), 70_000
    numbers = [mpz(int.from_bytes(rng.bytes(63), "big") | 1) for _ in range(100)]
    ciphertexts = write_ints([numbers[i] for i in rng.integers(0, 100, count)], 64)
    groups = np.minimum(rng.integers(0, 12, size=(count, 5)), [11, 11, 0, 3, 11]).astype(np.int32)
    made = []
    for sets in (((0,), (1,), (2,), (3,), (4,)), ((0, 2, 3), (1, 4)), ((2,), (4, 0, 1), (3,))):
        rows = kernel_of(name, threads=2).prepared_rows(n, count, RowStore().allocate)
        rows.add(ciphertexts)
        made.append(rows.sums(present_rows(groups, 12), 12, sets))
    assert made[0] == made[1] == made[2]
