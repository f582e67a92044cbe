"""Encrypted rows in the IFMA kernel: split in one block, which all threads read, and summed in lanes.

Per row and set of columns one product of 2n limbs by n limbs (:mod:`~labelward.he.paillier.fixedbase` tells why half
of it is enough), which at 2048 bits is 12,680 multiply-adds for eight rows. Before the first sum a row is split once,
at about the price of two such products. Each lane multiplies a stretch of the entries sorted by joint cell, so that
all lanes are busy whatever the groups, and an accumulator leaves its lane only where its cell ends. Joint cells are
then merged (:mod:`~labelward.he.paillier.joint`), and only what comes of that is made a ciphertext again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.he.contract import Groups
from labelward.he.paillier import ifma_sums as loops
from labelward.he.paillier.ifma_entries import Entries, Members, batches
from labelward.he.paillier.ifma_ir import LANES, LIMB_BITS
from labelward.he.paillier.ifma_limbs import Limbs, pack
from labelward.he.paillier.ifma_numbers import Root, cut, limbs_of, repeated, rows_of
from labelward.he.paillier.ifma_sums import DIGIT, Pieces
from labelward.he.paillier.kernel import Room
from labelward.he.paillier.numbers import size_of
from labelward.he.paillier.threads import each

__all__ = ["IfmaRows", "RowsKey"]

_FEW = 1024  # entries that are not worth a second thread
_BATCH = 8192  # joint cells whose pieces stay in the last cache until they are merged
_SHARES = 8  # of each thread, so that one that is held up by other work leaves some to the others


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
        count = max(1, -(-most.bit_length() // DIGIT))
        with self._lock:  # parties of one process share an engine
            while len(self._digits) < count:
                self._digits = np.concatenate([self._digits, self._further(1 << DIGIT * len(self._digits))])
            return self._digits[:count]

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
        self._count, self._spare = count, deque[Pieces]()
        self._rows = room((count + 1, 2, key.root.rows))
        self._rows[count] = 0
        self._rows[count, 0, 0] = 1  # no row
        key.powers(2 * count)  # about as many as the sums of so many rows need

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
        no_row = self._count - start
        for entries in batches(groups, n_groups, joined, no_row, threads=self._threads, most=_BATCH):
            if len(entries.order):
                shares = _shares(len(entries.order), _FEW, self._threads)
                with self._places(len(entries.leads) + LANES * shares + 1) as pieces:
                    owners = self._joint(start, entries, pieces, shares)
                    members = entries.members(owners, len(made))
                    made[members.cells] = self._close(self._merge(pieces, members))
        return made.tobytes()

    @contextmanager
    def _places(self, count: int) -> Iterator[Pieces]:
        """Lend places for pieces: the same ones to one batch after the other, so that they lie in the cache."""
        try:
            places = self._spare.pop()
        except IndexError:  # the first batch, or somebody else sums by these rows at the same time
            places = self._pieces(0)
        if len(places.exponents) < count:
            places = self._pieces(count)
        yield Pieces(places.products[:count], places.totals[:count], places.exponents[:count])
        if len(places.exponents) <= 2 * _BATCH:
            self._spare.append(places)

    def _pieces(self, count: int) -> Pieces:
        root = self._key.root
        return Pieces(
            np.empty((count, root.square.limbs), np.uint64),
            np.empty((count, root.rows + 2), np.uint64),
            np.zeros(count, np.int64),
        )

    def _joint(self, start: int, entries: Entries, pieces: Pieces, shares: int) -> NDArray[np.int32]:
        """Multiply the rows of each joint cell, in so many shares; a cell has a piece for each stretch it lies in.

        Returns:
            The joint cell of each of ``pieces``; -1 where there is none.
        """
        length = -(-len(entries.order) // (LANES * shares))
        pieces.products[-1] = self._key.neutral
        owners = np.full(len(pieces.products), -1, np.int32)
        rows, odd = self._rows[start:], self._key.root.square.odd

        def piece(share: int) -> Callable[[], None]:
            stretch = (LANES * share, length)
            return lambda: loops.sum_lanes(
                rows, entries.leads, entries.order, entries.cells, stretch, odd, pieces, owners
            )

        each(self._threads, map(piece, range(shares)))
        return owners

    def _merge(self, pieces: Pieces, members: Members) -> Pieces:
        """Multiply pieces to cells."""
        by_size = np.argsort(-np.diff(members.bounds), kind="stable")
        merged, odd = self._pieces(len(by_size)), self._key.root.square.odd
        blocks = [by_size[at : at + LANES] for at in range(0, len(by_size), LANES)]
        shares = min(_shares(len(members.pieces), _FEW // 4, self._threads), len(blocks))

        def piece(share: int) -> Callable[[], None]:
            chosen = np.concatenate(blocks[share::shares])
            return lambda: loops.merge(pieces, members.pieces, members.bounds, chosen, odd, merged)

        each(self._threads, map(piece, range(shares)))
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


def _shares(work: int, least: int, threads: int) -> int:
    """Return in how many shares to do so much work, of which less than ``least`` is not worth a thread.

    More shares than threads wait less for each other at the end, but each cuts eight cells in two.
    """
    return 1 if threads == 1 else max(1, min(threads, work // least), min(_SHARES * threads, work // (4 * least)))
