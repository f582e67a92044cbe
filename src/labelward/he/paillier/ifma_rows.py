"""Encrypted rows in the IFMA kernel: split in one block, which all threads read, and summed in lanes.

Per row and set of columns one product of 2n limbs by n limbs (:mod:`~labelward.he.paillier.fixedbase` tells why half
of it is enough), which at 2048 bits is 12,680 multiply-adds for eight rows. Before the first sum a row is split once,
at about the price of two such products. Each lane multiplies a stretch of the entries sorted by joint cell, so that
all lanes are busy whatever the groups, and an accumulator leaves its lane only where its cell ends. Joint cells are
then merged (:mod:`~labelward.he.paillier.joint`), and only what comes of that is made a ciphertext again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.he.contract import Groups
from labelward.he.paillier import ifma_sums as loops
from labelward.he.paillier.ifma_ir import LANES, LIMB_BITS
from labelward.he.paillier.ifma_limbs import Limbs, pack
from labelward.he.paillier.ifma_numbers import Root, cut, limbs_of, repeated, rows_of
from labelward.he.paillier.ifma_sums import DIGIT, Pieces
from labelward.he.paillier.joint import cells_of
from labelward.he.paillier.kernel import Room
from labelward.he.paillier.numbers import size_of
from labelward.he.paillier.threads import each

__all__ = ["IfmaRows", "RowsKey"]

_FEW = 1024  # entries that are not worth a second thread
_ROOM = 1 << 16  # keys that may be counted in an array, whatever the number of rows


class RowsKey:
    """What rows of one n share."""

    def __init__(self, n: mpz) -> None:
        self.root = Root(n)
        square, extended = self.root.square, mpz(1) << (LIMB_BITS * (self.root.rows + 2))
        self.by_total = repeated(n * extended * square.radix % square.value, square.limbs)
        self.size = size_of(square.value)
        self.neutral = limbs_of(self.root.radix**2 % square.value, square.limbs)
        self._lock = threading.Lock()
        self._digits = np.empty((0, 1 << DIGIT, 2, self.root.rows), dtype=np.uint64)

    def powers(self, most: int) -> Limbs:
        """Return tables for exponents of R up to ``most``, for :func:`~labelward.he.paillier.ifma_sums.close`."""
        with self._lock:  # parties of one process share an engine
            while not len(self._digits) or most >> DIGIT * len(self._digits):
                self._digits = np.concatenate([self._digits, self._further(1 << DIGIT * len(self._digits))])
            return self._digits

    def _further(self, step: int) -> Limbs:
        square, radix = self.root.square, self.root.radix
        unit, power = pow(radix, step, square.value), radix**2 % square.value
        numbers = np.empty((1 << DIGIT, square.limbs), dtype=np.uint64)
        for row in numbers:
            row[:] = limbs_of(power, square.limbs)
            power = power * unit % square.value
        split = np.empty((1, 1 << DIGIT, 2, self.root.rows), dtype=np.uint64)
        self.root.split(numbers.__getitem__, split[0], 1)
        return split


class IfmaRows:
    """Split rows."""

    def __init__(self, key: RowsKey, count: int, room: Room, *, threads: int) -> None:
        self._key, self._threads, self._have = key, threads, 0
        self._count = count
        self._rows = room((count + 1, 2, key.root.rows))
        self._rows[count] = 0
        self._rows[count, 0, 0] = 1  # no row

    def add(self, data: bytes) -> None:
        """See :class:`~labelward.he.paillier.kernel.Rows`."""
        root, size = self._key.root, self._key.size
        array = np.frombuffer(data, dtype=np.uint8).reshape(-1, size)
        into = self._rows[self._have : self._have + len(array)]
        root.split(lambda part: rows_of(array[part], size, root.square.limbs), into, self._threads)
        self._have += len(array)

    def sums(self, groups: Groups, n_groups: int, start: int, joined: tuple[tuple[int, ...], ...]) -> bytes:
        """See :class:`~labelward.he.paillier.kernel.Rows`."""
        made = np.zeros((groups.shape[1] * n_groups, self._key.size), dtype=np.uint8)
        made[:, -1] = 1
        entries = _Entries(groups, n_groups, joined, self._count - start)
        if not len(entries.order):
            return made.tobytes()
        pieces, owners = self._joint(start, entries)
        used = np.flatnonzero(owners >= 0)
        targets, members = entries.targets(owners[used])
        cells, counts = np.unique(targets, return_counts=True)
        order = np.argsort(targets, kind="stable")
        merged = self._merge(pieces, used[members[order]], counts)
        made[cells] = self._close(merged)
        return made.tobytes()

    def _pieces(self, count: int) -> Pieces:
        root = self._key.root
        return Pieces(
            np.empty((count, root.square.limbs), np.uint64),
            np.empty((count, root.rows + 2), np.uint64),
            np.zeros(count, np.int64),
        )

    def _joint(self, start: int, entries: _Entries) -> tuple[Pieces, NDArray[np.int32]]:
        """Multiply the rows of each joint cell; a cell has a piece for each stretch that it lies in."""
        threads = max(1, min(self._threads, len(entries.order) // _FEW))
        length = -(-len(entries.order) // (LANES * threads))
        pieces = self._pieces(entries.count + LANES * threads + 1)
        pieces.products[-1] = self._key.neutral
        owners = np.full(len(pieces.products), -1, np.int32)
        rows, odd = self._rows[start:], self._key.root.square.odd

        def piece(thread: int) -> Callable[[], None]:
            stretch = (LANES * thread, length)
            return lambda: loops.sum_lanes(
                rows, entries.leads, entries.order, entries.cells, stretch, odd, pieces, owners
            )

        each(threads, map(piece, range(threads)))
        return pieces, owners

    def _merge(self, pieces: Pieces, members: NDArray[np.int64], counts: NDArray[np.int64]) -> Pieces:
        """Multiply pieces to cells, of which each has so many of ``members``."""
        bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        by_size = np.argsort(-counts, kind="stable")
        merged, odd = self._pieces(len(counts)), self._key.root.square.odd
        blocks = [by_size[at : at + LANES] for at in range(0, len(by_size), LANES)]
        threads = max(1, min(self._threads, len(members) // (_FEW // 4)))

        def piece(thread: int) -> Callable[[], None]:
            chosen = np.concatenate(blocks[thread::threads])
            return lambda: loops.merge(pieces, members, bounds, chosen, odd, merged)

        each(threads, map(piece, range(min(threads, len(blocks)))))
        return merged

    def _close(self, pieces: Pieces) -> NDArray[np.uint8]:
        """Return big-endian ciphertexts."""
        key, count = self._key, len(pieces.exponents)
        square, table = key.root.square, key.powers(int(pieces.exponents.max(initial=0)))
        rows, made = np.empty((count, square.limbs), np.uint64), np.empty((count, key.size), np.uint8)

        def piece(part: slice) -> Callable[[], None]:
            def work() -> None:
                ends = (part.start, part.stop)
                loops.close(pieces, ends, table, key.by_total, square.one, square.odd, rows)
                pack(rows[part], made[part])

            return work

        each(self._threads, map(piece, cut(count, self._threads)))
        return made


class _Entries:
    """The entries of all sets of columns, sorted by joint cell.

    Attributes:
        leads: int32, the first row of each joint cell.
        order: int32, the row of each entry, which all other rows are; or ``no_row`` where a cell has no other.
        cells: int32, its joint cell, counted over all sets.
        count: of joint cells.
    """

    def __init__(self, groups: Groups, n_groups: int, joined: Sequence[tuple[int, ...]], no_row: int) -> None:
        self._sets: list[tuple[tuple[int, ...], NDArray[np.int32]]] = []
        self._n_groups, self.count, entries = n_groups, 0, 0
        present = np.flatnonzero(groups.max(axis=1) >= 0).astype(np.int32)
        if len(present) < len(groups):
            groups = groups[present]
        self.leads, self.order, self.cells = (np.empty(len(groups) * len(joined), np.int32) for _ in range(3))
        for columns in joined:
            into = self.leads[self.count :], self.order[entries:], self.cells[entries:]
            if (n_groups + 1) ** len(columns) <= max(_ROOM, 8 * len(groups)):
                counts = np.zeros((n_groups + 1) ** len(columns), np.int64)
                own = groups, np.array(columns, np.int64), n_groups
                added, count = loops.arrange(*own, self.count, counts, *into)
                keys = np.flatnonzero(counts)
                shape = (n_groups + 1,) * len(columns)
                cells = np.stack(np.unravel_index(keys, shape), axis=1).astype(np.int32) - np.int32(1)
            else:  # too many keys to count: most of them would be empty
                numbers, cells = cells_of(groups, columns, n_groups)
                counts, own = np.zeros(len(cells) + 1, np.int64), (numbers[:, None], np.zeros(1, np.int64), len(cells))
                added, count = loops.arrange(*own, self.count, counts, *into)
            assert count == len(cells)
            entries += added
            self._sets.append((columns, cells))
            self.count += count
        rows = np.append(present, np.int32(no_row))
        self.leads, self.order = rows[self.leads[: self.count]], rows[self.order[:entries]]
        self.cells = self.cells[:entries]

    def targets(self, owners: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return flat (column, group) cells and, for each, the position in rising ``owners`` of a piece of it."""
        targets, members, before = [], [], 0
        for columns, cells in self._sets:
            first, stop = np.searchsorted(owners, [before, before + len(cells)])
            own = cells[owners[first:stop] - before]
            for at, column in enumerate(columns):
                present = np.flatnonzero(own[:, at] >= 0)
                targets.append(column * self._n_groups + own[present, at].astype(np.int64))
                members.append(present + first)
            before += len(cells)
        return np.concatenate(targets), np.concatenate(members)
