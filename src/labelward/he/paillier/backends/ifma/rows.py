"""Encrypted rows in the IFMA kernel: split in one block, which all threads read, and summed in lanes.

Per row and set of columns one product of 2n limbs by n limbs (``fixed_base`` tells why half
of it is enough), which at 2048 bits is 12,680 multiply-adds for eight rows. Before the first sum a row is split once,
at about the price of two such products. Eight joint cells of like size are made at a time, one in each lane; large ones
in several parts, so that all lanes are busy whatever the groups. What comes of them is merged by the columns' own cells
(``column_merging``) in the same loop, and only what comes of that is made a ciphertext again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.he.paillier.backends.base import Allocator
from labelward.he.paillier.backends.ifma import sums as loops
from labelward.he.paillier.backends.ifma.arithmetic import LaneArithmetic, aligned, broadcast, limb_rows, to_limbs
from labelward.he.paillier.backends.ifma.limbs import Limbs
from labelward.he.paillier.backends.ifma.montgomery_ir import LANES, LIMB_BITS
from labelward.he.paillier.backends.ifma.sums import DIGIT, SplitFactors
from labelward.he.paillier.backends.ifma.work_lists import Int32s, JointCells, ListParts, cell_batches, cut_lists
from labelward.he.paillier.column_merging import PresentRows
from labelward.he.paillier.int_bytes import byte_length
from labelward.he.threads import run_in_threads

_FEW = 1024  # rows that are not worth a second thread
_PARTS = 4  # of each lane at least, so that those that end before others wait a small part of the time
_LONG = 16  # rows in one lane that are not worth another
_BATCH = 8192  # joint cells whose pieces stay in the last cache until they are merged
_SHARES = 8  # of each thread, so that one that is held up by other work leaves some to the others


class RowsKey:
    """What rows of one n share."""

    def __init__(self, n: mpz) -> None:
        self.root = LaneArithmetic(n)
        square, extended = self.root.square, mpz(1) << (LIMB_BITS * (self.root.rows + 2))
        self.by_total = broadcast(n * extended * self.root.radix**2 % square.value, square.limbs)
        self.size = byte_length(square.value)
        self._lock = threading.Lock()
        self._digits = np.empty((0, 1 << DIGIT, 2, self.root.rows), dtype=np.uint64)

    def powers(self, most: int) -> Limbs:
        """Return tables for exponents of R up to ``most``, for ``finalize``."""
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
            row[:] = to_limbs(power, square.limbs)
            power = power * unit % square.value
        split = np.empty((1, 1 << DIGIT, 2, self.root.rows), dtype=np.uint64)
        self.root.split(numbers.__getitem__, split[0], 1)
        return split


class IfmaRows:
    """Split rows."""

    def __init__(self, key: RowsKey, count: int, allocate: Allocator, *, threads: int) -> None:
        self._key, self._threads, self._have = key, threads, 0
        self._spare = deque[Limbs]()
        t = key.root.rows
        self._rows = SplitFactors(allocate((count + 1, 2 * t)), np.empty(0, np.int64), t, 1)
        _end_with_one(self._rows.numbers)
        key.powers(2 * count)  # about as many as the sums of so many rows need

    def add(self, data: bytes) -> None:
        """See :class:`~labelward.he.paillier.backends.base.PreparedRows`."""
        root, size = self._key.root, self._key.size
        array = np.frombuffer(data, dtype=np.uint8).reshape(-1, size)
        into = self._rows.numbers[self._have : self._have + len(array)].reshape(len(array), 2, root.rows)
        root.split(lambda part: limb_rows(array[part], size, root.square.limbs), into, self._threads)
        self._have += len(array)

    def sums(self, present: PresentRows, n_groups: int, joined: tuple[tuple[int, ...], ...]) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PreparedRows`."""
        made = np.zeros((len(present.groups) * n_groups, self._key.size), dtype=np.uint8)
        made[:, -1] = 1
        for cells in cell_batches(present, n_groups, joined, threads=self._threads, most=_BATCH):
            count = cells.rows.length
            if not count:
                continue
            shares = _shares(count, _FEW, self._threads)
            longest = max(_LONG, count // (_PARTS * LANES * shares))
            parts = cut_lists(cells.rows.starts, cells.rows.stops, longest)
            with self._places(len(parts.starts) + 1) as pieces:
                self._multiply(self._rows, cells.rows.items, parts, pieces, shares)
                self._merge(pieces, cells, parts.owners, made)
        return made.tobytes()

    def _multiply(self, source: SplitFactors, items: Int32s, parts: ListParts, out: SplitFactors, shares: int) -> None:
        """Multiply the factors of each part."""
        square = self._key.root.square.odd

        def multiply(share: int) -> None:
            loops.multiply_lists(source, items, parts, (share, shares), square, out)

        run_in_threads(self._threads, multiply, range(shares))

    def _merge(self, pieces: SplitFactors, cells: JointCells, owners: Int32s, made: NDArray[np.uint8]) -> None:
        """Multiply pieces to the columns' own cells, and write these as big-endian ciphertexts."""
        key, root, square = self._key, self._key.root.modulus.odd, self._key.root.square.odd
        filled, members = cells.members(owners, len(made))
        longest = int((members.stops - members.starts).max())
        parts = cut_lists(members.starts, members.stops, longest)
        table = key.powers(longest * (int(pieces.exponents.max()) + 2))
        places, shares = filled[parts.owners], _shares(len(members.items), _FEW // 4, self._threads)

        def merge(share: int) -> None:
            loops.multiply_lists(pieces, members.items, parts, (share, shares), square, merged)
            loops.finalize(merged, places, (share, shares), table, key.by_total, root, square, made)

        with self._places(len(parts.starts) + 1) as merged:
            run_in_threads(self._threads, merge, range(shares))

    @contextmanager
    def _places(self, count: int) -> Iterator[SplitFactors]:
        """Lend places for pieces: the same ones to one batch after the other, so that they lie in the cache."""
        t = self._key.root.rows
        width = -(-(3 * t + 2) // LANES) * LANES
        try:
            numbers = self._spare.pop()
        except IndexError:  # the first batch, or somebody else sums by these rows at the same time
            numbers = aligned(0, width)
        if len(numbers) < count:
            numbers = aligned(count, width)
        places = SplitFactors(numbers[:count], np.zeros(count, np.int64), 2 * t, 2)
        _end_with_one(places.numbers)
        yield places
        if len(numbers) <= 2 * _BATCH:
            self._spare.append(numbers)


def _end_with_one(numbers: Limbs) -> None:
    """Make the last of the factors the number 1."""
    numbers[-1] = 0
    numbers[-1, 0] = 1


def _shares(work: int, least: int, threads: int) -> int:
    """Return in how many equal shares to do so much work, of which less than ``least`` is not worth a thread.

    Several for each thread, so that one that is held up leaves some to the others; and as many for each, or most of
    them would wait for the last.
    """
    used = max(1, min(threads, work // least))
    return used * max(1, min(_SHARES, work // (4 * least * used)))
