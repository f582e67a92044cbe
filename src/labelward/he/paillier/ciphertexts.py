"""Encrypted rows and sums of Paillier, over a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he._validate import check_block_fits, check_groups, check_positions, refuse_take
from labelward.he.base import CipherBlock, EncryptedRows, EncryptedSums, Groups, Integers, Layout
from labelward.he.paillier.backends.base import PreparedRows
from labelward.he.paillier.column_merging import plan_merging, present_rows
from labelward.he.paillier.packing import Packing
from labelward.he.paillier.scheme import multiply_sums

if TYPE_CHECKING:
    from labelward.he.paillier.keys import PaillierPublicKey

Cells = NDArray[np.uint8]


class PaillierRows(EncryptedRows):
    """A ciphertext for each part of each row.

    Args:
        fresh: the ciphertexts of each part, one after the other, of rows that this party encrypted; None for rows to
            come from a peer.
    """

    def __init__(self, key: PaillierPublicKey, layout: Layout, n: int, fresh: list[bytes] | None = None) -> None:
        self.n, self.layout, self.have = n, layout, 0 if fresh is None else n
        self._key, self._fresh, self._failed = key, fresh, False
        self._prepared: list[PreparedRows] = []

    def add(self, block: CipherBlock) -> None:
        """Append rows; after a ciphertext that shares a factor with n there are no sums."""
        parts = self._key.open(block, ("rows",))
        check_block_fits(block, self.layout, self.n - self.have)
        if block.shape[0]:
            self._prepare(parts)
        self.have += block.shape[0]

    def block(self) -> CipherBlock:
        """Return fresh rows as they travel."""
        if self._fresh is None:
            raise EncryptionError("rows that a peer encrypted do not travel again", code="not-sendable")
        return self._key.block("rows", (self.n,), self.layout, self.n * len(self._fresh), self._fresh)

    def group_sums(self, groups: Groups, n_groups: int, start: int = 0) -> EncryptedSums:
        """Sum rows by group, several columns at once where that takes fewer products."""
        checked = check_groups(groups, start, self.have, n_groups)
        present = present_rows(checked, n_groups, start)
        key, shape = self._key, (checked.shape[1], n_groups)
        count = len(Packing.of(self.layout, key.bits).parts)
        if not len(present.rows):
            empty = np.zeros((shape[0] * n_groups, key.ciphertext_size), dtype=np.uint8)
            empty[:, -1:] = 1
            return PaillierSums(key, self.layout, shape, [empty] * count)
        if self._fresh is not None and not self._prepared:
            self._prepare(self._fresh)
        if self._failed:
            raise EncryptionError("these rows could not be prepared for sums", code="failed")
        plan = plan_merging(present.groups, n_groups, key.backend.merge_cost, key.threads)
        sums = [rows.sums(present, n_groups, plan.sets) for rows in self._prepared]
        key.counts.additions += plan.products * count
        return PaillierSums(key, self.layout, shape, [_cells(data, key) for data in sums])

    def _prepare(self, parts: list[bytes]) -> None:
        if self._failed:
            raise EncryptionError("an earlier block of these rows could not be prepared for sums", code="failed")
        if not self._prepared:
            self._prepared = [self._key.prepared_rows(self.n) for _ in parts]
        self._failed = True  # until all parts are there: a failure in between would leave them of different lengths
        for rows, data in zip(self._prepared, parts, strict=True):
            rows.add(data)
        self._failed = False


class PaillierSums(EncryptedSums):
    """Sums that are not yet re-randomized: cells of each part, row-major, big-endian; an empty cell is 1.

    ``packed``: the cells are ciphertexts of a block of sums, which hold several sums each.
    """

    def __init__(
        self,
        key: PaillierPublicKey,
        layout: Layout,
        shape: tuple[int, int],
        parts: list[Cells],
        *,
        packed: bool = False,
    ) -> None:
        self.shape, self.layout, self.packed = shape, layout, packed
        self._key, self._parts = key, parts

    @classmethod
    def opened(cls, key: PaillierPublicKey, block: CipherBlock) -> PaillierSums:
        """Return the sums of a block that travels."""
        parts = [_cells(data, key) for data in key.open(block, ("sums",))]
        return cls(key, block.layout, (block.shape[0], block.shape[1]), parts, packed=True)

    def __add__(self, other: EncryptedSums) -> EncryptedSums:
        if not isinstance(other, PaillierSums) or other._key.fingerprint != self._key.fingerprint:
            raise EncryptionError("sums of different keys cannot be added", code="key")
        if (other.shape, other.layout, other.packed) != (self.shape, self.layout, self.packed):
            reason = f"sums of shapes {self.shape} and {other.shape} or of two layouts cannot be added"
            raise EncryptionError(reason, code="ciphertext", value=other.shape)
        pairs = zip(self._parts, other._parts, strict=True)
        results = [multiply_sums(mine, theirs, self._key.n2) for mine, theirs in pairs]
        self._key.counts.additions += sum(products for _, products in results)
        return PaillierSums(self._key, self.layout, self.shape, [cells for cells, _ in results], packed=self.packed)

    def take(self, cells: Integers) -> EncryptedSums:
        """Return the sums at flat positions."""
        refuse_take(self.packed)
        chosen = check_positions(cells, self.shape[0] * self.shape[1])
        return PaillierSums(self._key, self.layout, (1, len(chosen)), [part[chosen] for part in self._parts])

    def rerandomize(self) -> CipherBlock:
        """Combine as many sums as fit into a plaintext, then multiply by a fresh encryption of zero.

        One of these re-randomizes the whole ciphertext, which is a product of it and of known powers of the sums.
        """
        key, packing = self._key, Packing.of(self.layout, self._key.bits)
        data = []
        for cells, part in zip(self._parts, packing.parts, strict=True):
            fit = 1 if self.packed else part.fit
            count = -(-len(cells) // fit)
            if count:
                ops, random = key.public_ops(count), key.random(count)
                data.append(ops.rerandomize(cells.tobytes(), fit, part.width, random))
        key.counts.logical_sums += self.shape[0] * self.shape[1] * self.layout.logical
        count = sum(map(len, data)) // key.ciphertext_size
        return key.block("sums", self.shape, self.layout, count, data)


def _cells(data: bytes, key: PaillierPublicKey) -> Cells:
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, key.ciphertext_size)
