"""The kernel that runs everywhere: gmpy2, one core in each process."""

from __future__ import annotations

from itertools import pairwise

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he.paillier.joint import Present, cells_of
from labelward.he.paillier.kernel import Room
from labelward.he.paillier.kernels import OwnerKernel, PublicKernel
from labelward.he.paillier.numbers import read, size_of, write

__all__ = ["GmpOwner", "GmpPublic", "GmpRows", "Made", "obstacle"]


def obstacle() -> str:
    """Nothing is in the way."""
    return ""


class GmpOwner:
    """An :class:`OwnerKernel` on bytes."""

    def __init__(self, p: mpz, q: mpz, tau_p: mpz, tau_q: mpz, uses: int) -> None:
        self._n, self._kernel = p * q, OwnerKernel(p, q, tau_p, tau_q, uses=uses)

    def encrypt(self, plaintexts: bytes, size: int, x: bytes, y: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.kernel.Owner`."""
        return write(self._kernel.encrypt(read(plaintexts, size, signed=True), x, y), size_of(self._n**2))

    def complete(self, zeros: bytes, plaintexts: bytes, size: int) -> bytes:
        """See :class:`~labelward.he.paillier.kernel.Owner`."""
        n, n2 = self._n, self._n**2
        pairs = zip(read(zeros, size_of(n2)), read(plaintexts, size, signed=True), strict=True)
        return write([zero * (1 + n * m) % n2 for zero, m in pairs], size_of(n2))

    def decrypt(self, ciphertexts: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.kernel.Owner`."""
        plaintexts = self._kernel.decrypt(read(ciphertexts, size_of(self._n**2)))
        return write(plaintexts, size_of(self._n) + 1, signed=True)


class GmpPublic:
    """A :class:`PublicKernel` on bytes."""

    def __init__(self, n: mpz, h: mpz, w: mpz, uses: int) -> None:
        self._kernel, self._size = PublicKernel(n, h, w, uses=uses), size_of(n * n)

    def encrypt(self, plaintexts: bytes, size: int, random: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.kernel.Public`."""
        return write(self._kernel.encrypt(read(plaintexts, size, signed=True), random), self._size)

    def seal(self, cells: bytes, fit: int, shift: int, random: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.kernel.Public`."""
        n2, numbers, factor = self._kernel.n2, read(cells, self._size), mpz(1) << shift
        zeros, sealed = self._kernel.encrypt([0] * -(-len(numbers) // fit), random), []
        for index, zero in enumerate(zeros):
            combined = mpz(1)
            for cell in reversed(numbers[index * fit : (index + 1) * fit]):
                combined = gmpy2.powmod(combined, factor, n2) if combined != 1 else combined
                combined = combined * cell % n2 if cell != 1 else combined
            sealed.append(combined * zero % n2)
        return write(sealed, self._size)


class GmpRows:
    """Rows as pairs a and l with the ciphertext a · (1 + n·l), as in :mod:`~labelward.he.paillier.fixedbase`."""

    def __init__(self, n: mpz, count: int, room: Room) -> None:
        self._n, self._factors, self._shifts = n, list[mpz](), list[mpz]()

    def add(self, data: bytes) -> None:
        """See :class:`~labelward.he.paillier.kernel.Rows`."""
        n, split = self._n, []
        for ciphertext in read(data, size_of(n * n)):
            high, low = divmod(ciphertext, n)
            try:
                split.append((low, high * gmpy2.invert(low, n) % n))
            except ZeroDivisionError as error:
                raise EncryptionError("a ciphertext has a factor in common with n", code="ciphertext") from error
        self._factors += [low for low, _ in split]
        self._shifts += [shift for _, shift in split]

    def sums(self, present: Present, n_groups: int, joined: tuple[tuple[int, ...], ...]) -> bytes:
        """See :class:`~labelward.he.paillier.kernel.Rows`."""
        n, n2 = self._n, self._n**2
        found = [[(mpz(1), mpz(0))] * n_groups for _ in present.groups]
        for columns in joined:
            numbers, cells = cells_of(present.groups, columns, n_groups)
            pairs = self._joint(numbers, len(cells), present.rows)
            for column, of_cells in zip(columns, cells.T.tolist(), strict=True):
                into = found[column]
                for group, (product, shift) in zip(of_cells, pairs, strict=True):
                    if group >= 0:
                        before, total = into[group]
                        into[group] = (product if before == 1 else before * product % n2, total + shift)
        flat = [product * (1 + n * (shift % n)) % n2 for column in found for product, shift in column]
        return write(flat, size_of(n2))

    def _joint(self, numbers: NDArray[np.int32], count: int, rows: NDArray[np.int32]) -> list[tuple[mpz, mpz]]:
        """Multiply the a, and add up the l, of the ``rows`` of each joint cell."""
        n2, order = self._n**2, np.argsort(numbers, kind="stable")
        bounds = np.searchsorted(numbers[order], np.arange(count + 1)).tolist()
        by_cell, pairs = rows[order].tolist(), []
        for first, stop in pairwise(bounds):
            product = mpz(1)
            for row in by_cell[first:stop]:
                product = product * self._factors[row] % n2
            pairs.append((product, sum([self._shifts[row] for row in by_cell[first:stop]], mpz(0))))
        return pairs


class Made:
    """The gmpy2 kernel; it has no threads of its own, and holds rows as integers, whatever the room."""

    name, shared, merge = "gmpy2", False, 2.0

    def __init__(self, threads: int = 1) -> None:
        self.owner, self.public, self.rows = GmpOwner, GmpPublic, GmpRows
