"""The contract's encrypted rows and sums over executors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he._checks import check_cells, check_groups, check_more
from labelward.he.contract import CipherBlock, EncryptedRows, EncryptedSums, Groups, Integers, Layout
from labelward.he.paillier.joint import Present, plan, present
from labelward.he.paillier.numbers import read, write
from labelward.he.paillier.packing import Packing
from labelward.he.paillier.pool import Inline, Kept
from labelward.he.paillier.tasks import AddRows, LoadRows, Seal, SumRows, Task

if TYPE_CHECKING:
    from labelward.he.paillier.keys import PaillierPublicKey

__all__ = ["PaillierRows", "PaillierSums", "spread"]

Cells = NDArray[np.uint8]

_COLUMNS = 10  # how often each row is multiplied, about


def spread(count: int, size: int) -> list[tuple[int, int]]:
    """Cut range(count) into ``size`` stretches of nearly equal length, as (start, stop)."""
    return [(count * i // size, count * (i + 1) // size) for i in range(size)]


class _Held:
    """The rows of one part, in an executor, which may lose them: they are then given to it again."""

    def __init__(self, key: PaillierPublicKey, n: int) -> None:
        self._key, self._n, self._kept = key, n, Kept()
        self._executor = key.executors.pick(n * _COLUMNS)
        self._pieces: list[tuple[int, bytes]] = []
        self._given = 0

    def add(self, start: int, data: bytes) -> None:
        self._pieces.append((start, data))
        self._feed()

    def sums(self, present: Present, n_groups: int, joined: tuple[tuple[int, ...], ...]) -> list[bytes]:
        """Sum by group, in each process its own rows: of as many processes the i-th has every such row from i on."""
        self._feed()
        size, tasks = self._executor.size, list[Task]()
        for i in range(size):
            own = slice(None) if size == 1 else present.rows % size == i
            which, groups = present.rows[own] // size, present.groups[:, own]
            tasks.append(SumRows(self._kept.handle, len(groups), n_groups, _data(which), _data(groups), joined))
        return self._executor.run(tasks)

    def _feed(self) -> None:
        executor, key, handle = self._executor, self._key, self._kept.handle
        stride, n = executor.size, write([key.n], key.ciphertext_size)
        if executor.load(self._kept, lambda i: LoadRows(handle, n, len(range(i, self._n, stride)))):
            self._given = 0
        for start, data in self._pieces[self._given :]:
            rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, key.ciphertext_size)
            parts = [data if stride == 1 else rows[(i - start) % stride :: stride].tobytes() for i in range(stride)]
            executor.run([AddRows(handle, part) for part in parts])
            self._given += 1
        if isinstance(executor, Inline):  # this process is never lost
            self._pieces, self._given = [], 0


class PaillierRows(EncryptedRows):
    """A ciphertext for each part of each row; with ``fresh`` ones, each part's one after the other, all have come."""

    def __init__(self, key: PaillierPublicKey, layout: Layout, n: int, fresh: list[bytes] | None = None) -> None:
        self.n, self.layout, self.have = n, layout, 0 if fresh is None else n
        self._key, self._fresh, self._failed = key, fresh, False
        self._held: list[_Held] = []

    def add(self, block: CipherBlock) -> None:
        """Take the next rows in; after a ciphertext that shares a factor with n there are no sums."""
        parts = self._key.open(block, ("rows",))
        check_more(block, self.layout, self.n - self.have)
        if block.shape[0]:
            self._take(parts)
        self.have += block.shape[0]

    def block(self) -> CipherBlock:
        """Return fresh rows as they travel."""
        if self._fresh is None:
            raise EncryptionError("rows that a peer encrypted do not travel again", code="not-sendable")
        return self._key.block("rows", (self.n,), self.layout, self.n * len(self._fresh), self._fresh)

    def group_sums(self, groups: Groups, n_groups: int, start: int = 0) -> EncryptedSums:
        """Sum rows by group, several columns at once where that takes fewer products."""
        checked = check_groups(groups, start, self.have, n_groups)
        inside = present(checked, n_groups, start)
        key, shape = self._key, (checked.shape[1], n_groups)
        count, parts = len(Packing.of(self.layout, key.bits).parts), []
        if not len(inside.rows):
            empty = np.zeros((shape[0] * n_groups, key.ciphertext_size), dtype=np.uint8)
            empty[:, -1:] = 1
            return PaillierSums(key, self.layout, shape, [empty] * count)
        if self._fresh is not None and not self._held:
            self._take(self._fresh)
        if self._failed:
            raise EncryptionError("these rows could not be prepared for sums", code="failed")
        chosen = plan(inside.groups, n_groups, key.executors.merge, key.executors.threads)
        for held in self._held:
            first, *others = (_numbers(data, key) for data in held.sums(inside, n_groups, chosen.sets))
            for other in others:
                first, _ = _multiply(first, other, key)
            parts.append(first)
        key.counts.additions += chosen.products * count
        return PaillierSums(key, self.layout, shape, parts)

    def _take(self, parts: list[bytes]) -> None:
        if self._failed:
            raise EncryptionError("an earlier block of these rows could not be prepared for sums", code="failed")
        if not self._held:
            self._held = [_Held(self._key, self.n) for _ in parts]
        first, self._failed = 0 if self._fresh is not None else self.have, True
        for held, data in zip(self._held, parts, strict=True):
            held.add(first, data)
        self._failed = False


class PaillierSums(EncryptedSums):
    """Unsealed cells for each part, in row-major order, big-endian; an empty cell is the ciphertext 1."""

    def __init__(self, key: PaillierPublicKey, layout: Layout, shape: tuple[int, int], parts: list[Cells]) -> None:
        self.shape, self.layout = shape, layout
        self._key, self._parts = key, parts

    def __add__(self, other: EncryptedSums) -> EncryptedSums:
        if not isinstance(other, PaillierSums) or other._key.fingerprint != self._key.fingerprint:
            raise EncryptionError("sums of different keys cannot be added", code="key")
        if other.shape != self.shape or other.layout != self.layout:
            raise EncryptionError(
                f"sums of shapes {self.shape} and {other.shape} or of two layouts cannot be added",
                code="ciphertext",
                value=other.shape,
            )
        made = [_multiply(mine, theirs, self._key) for mine, theirs in zip(self._parts, other._parts, strict=True)]
        self._key.counts.additions += sum(products for _, products in made)
        return PaillierSums(self._key, self.layout, self.shape, [cells for cells, _ in made])

    def pick(self, cells: Integers) -> EncryptedSums:
        """Return the sums at flat positions."""
        chosen = check_cells(cells, self.shape[0] * self.shape[1])
        return PaillierSums(self._key, self.layout, (1, len(chosen)), [part[chosen] for part in self._parts])

    def seal(self) -> CipherBlock:
        """Combine as many sums as fit into a plaintext, then multiply by a fresh encryption of zero.

        One of them re-randomizes the whole ciphertext: what leaves is a product of it and of known powers of the sums.
        """
        packing = Packing.of(self.layout, self._key.bits)
        sealed = [
            self._seal_part(cells, part.fit, part.width) for cells, part in zip(self._parts, packing.parts, strict=True)
        ]
        self._key.counts.logical_sums += self.shape[0] * self.shape[1] * self.layout.logical
        count = sum(map(len, sealed)) // self._key.ciphertext_size
        return self._key.block("sums", self.shape, self.layout, count, sealed)

    def _seal_part(self, cells: Cells, fit: int, shift: int) -> bytes:
        key, count = self._key, -(-len(cells) // fit)
        if not count:
            return b""
        executor = key.executors.pick(len(cells) * shift + count * key.obfuscator_cost)
        handle, random = key.load(executor, count), key.random(count)
        step = len(random) // count
        tasks: list[Task] = [
            Seal(
                handle,
                fit,
                shift,
                cells[start * fit : stop * fit].tobytes(),
                random[start * step : stop * step],
            )
            for start, stop in spread(count, executor.size)
        ]
        return b"".join(executor.run(tasks))


def _data(numbers: NDArray[np.int32]) -> memoryview:
    return np.ascontiguousarray(numbers, "<i4").reshape(-1).view(np.uint8).data


def _numbers(data: bytes, key: PaillierPublicKey) -> Cells:
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, key.ciphertext_size)


def _multiply(first: Cells, second: Cells, key: PaillierPublicKey) -> tuple[Cells, int]:
    """Multiply cell by cell, where neither is empty; return also how many products that took."""
    empty = [(cells[:, -1] == 1) & ~cells[:, :-1].any(axis=1) for cells in (first, second)]
    product, both = np.where(empty[0][:, None], second, first), np.flatnonzero(~(empty[0] | empty[1]))
    numbers = (read(cells[both].tobytes(), key.ciphertext_size) for cells in (first, second))
    product[both] = _numbers(write([a * b % key.n2 for a, b in zip(*numbers, strict=True)], key.ciphertext_size), key)
    return product, len(both)
