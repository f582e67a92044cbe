"""The contract's encrypted rows and sums over executors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he._checks import check_groups
from labelward.he.contract import CipherBlock, EncryptedRows, EncryptedSums, Groups, Layout
from labelward.he.paillier.numbers import read, write
from labelward.he.paillier.packing import Packing
from labelward.he.paillier.pool import Kept
from labelward.he.paillier.tasks import LoadRows, Seal, SumRows, Task

if TYPE_CHECKING:
    from labelward.he.paillier.keys import PaillierPublicKey

__all__ = ["PaillierRows", "PaillierSums", "spread"]


def spread(count: int, size: int) -> list[tuple[int, int]]:
    """Cut range(count) into ``size`` stretches of nearly equal length, as (start, stop)."""
    return [(count * i // size, count * (i + 1) // size) for i in range(size)]


class PaillierRows(EncryptedRows):
    """A ciphertext for each part of each row, all of one part after all of another."""

    def __init__(self, key: PaillierPublicKey, layout: Layout, n: int, parts: list[bytes]) -> None:
        self.n, self.layout = n, layout
        self._key, self._parts, self._kept = key, parts, [Kept() for _ in parts]

    def block(self) -> CipherBlock:
        """Return fresh rows as they travel."""
        return self._key.block("rows", (self.n,), self.layout, self.n * len(self._parts), self._parts)

    def group_sums(self, groups: Groups, n_groups: int) -> EncryptedSums:
        """Sum rows by group; each worker holds every ``size``-th row and sums those."""
        checked = check_groups(groups, self.n, n_groups)
        if checked.size and (checked.min() < -1 or checked.max() >= n_groups):
            raise EncryptionError(f"a group lies outside range({n_groups}) and is not -1")
        shape = (checked.shape[1], n_groups)
        held = _rows_per_cell(checked, n_groups)
        present, nonempty = int(held.sum()), int(np.count_nonzero(held))
        self._key.counts.additions += (present - nonempty) * len(self._parts)
        if not present:
            return PaillierSums(self._key, self.layout, shape, [[mpz(1)] * held.size for _ in self._parts])
        cells = [self._sum_part(index, checked, shape, present) for index in range(len(self._parts))]
        return PaillierSums(self._key, self.layout, shape, cells)

    def _sum_part(self, index: int, groups: Groups, shape: tuple[int, int], present: int) -> list[mpz]:
        key, kept = self._key, self._kept[index]
        executor = key.executors.pick(present)
        stride, size = executor.size, key.ciphertext_size
        whole = self._parts[index]
        data, n = np.frombuffer(whole, dtype=np.uint8).reshape(self.n, size), write([key.n], size)
        executor.load(kept, lambda i: LoadRows(kept.handle, n, data[i::stride].tobytes() if stride > 1 else whole))
        columns, n_groups = shape
        tasks: list[Task] = [
            SumRows(kept.handle, columns, n_groups, groups[i::stride].astype("<i4", copy=False).tobytes())
            for i in range(stride)
        ]
        first, *others = (read(result, size) for result in executor.run(tasks))
        for other in others:
            first = _multiply(first, other, key.n2)
        return first


class PaillierSums(EncryptedSums):
    """Unsealed cells for each part, in row-major order; an empty cell is the ciphertext 1."""

    def __init__(self, key: PaillierPublicKey, layout: Layout, shape: tuple[int, int], parts: list[list[mpz]]) -> None:
        self.shape, self.layout = shape, layout
        self._key, self._parts = key, parts

    def __add__(self, other: EncryptedSums) -> EncryptedSums:
        if not isinstance(other, PaillierSums) or other._key.fingerprint != self._key.fingerprint:
            raise EncryptionError("sums of different keys cannot be added")
        if other.shape != self.shape or other.layout != self.layout:
            raise EncryptionError(f"sums of shapes {self.shape} and {other.shape} or of two layouts cannot be added")
        pairs = list(zip(self._parts, other._parts, strict=True))
        self._key.counts.additions += sum(
            a != 1 and b != 1 for mine, theirs in pairs for a, b in zip(mine, theirs, strict=True)
        )
        parts = [_multiply(mine, theirs, self._key.n2) for mine, theirs in pairs]
        return PaillierSums(self._key, self.layout, self.shape, parts)

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

    def _seal_part(self, cells: list[mpz], fit: int, shift: int) -> bytes:
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
                write(cells[start * fit : stop * fit], key.ciphertext_size),
                random[start * step : stop * step],
            )
            for start, stop in spread(count, executor.size)
        ]
        return b"".join(executor.run(tasks))


def _rows_per_cell(groups: Groups, n_groups: int) -> NDArray[np.int64]:
    """Count the rows of each (column, group), flattened."""
    columns = groups.shape[1]
    cells = groups + np.arange(columns, dtype=np.int64) * n_groups
    return np.bincount(cells[groups >= 0], minlength=columns * n_groups)


def _multiply(first: list[mpz], second: list[mpz], n2: mpz) -> list[mpz]:
    """Multiply cell by cell; where one is empty there is nothing to do."""
    return [b if a == 1 else a if b == 1 else a * b % n2 for a, b in zip(first, second, strict=True)]
