"""The backend that runs everywhere: gmpy2 on one core."""

from itertools import pairwise

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he.paillier.backends.base import Allocator, Backend
from labelward.he.paillier.column_merging import PresentRows, joint_cells
from labelward.he.paillier.int_bytes import byte_length, read_ints, write_ints
from labelward.he.paillier.scheme import CrtEncryptor, PublicEncryptor


class Gmpy2PrivateOps:
    """An :class:`CrtEncryptor` on bytes."""

    def __init__(self, p: mpz, q: mpz, tau_p: mpz, tau_q: mpz, uses: int) -> None:
        self._n, self._encryptor = p * q, CrtEncryptor(p, q, tau_p, tau_q, uses=uses)

    def encrypt(self, plaintexts: bytes, size: int, x: bytes, y: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PrivateOps`."""
        return write_ints(
            self._encryptor.encrypt(read_ints(plaintexts, size, signed=True), x, y), byte_length(self._n**2)
        )

    def complete(self, zeros: bytes, plaintexts: bytes, size: int) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PrivateOps`."""
        n, n2 = self._n, self._n**2
        pairs = zip(read_ints(zeros, byte_length(n2)), read_ints(plaintexts, size, signed=True), strict=True)
        return write_ints([zero * (1 + n * m) % n2 for zero, m in pairs], byte_length(n2))

    def decrypt(self, ciphertexts: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PrivateOps`."""
        plaintexts = self._encryptor.decrypt(read_ints(ciphertexts, byte_length(self._n**2)))
        return write_ints(plaintexts, byte_length(self._n) + 1, signed=True)


class Gmpy2PublicOps:
    """A :class:`PublicEncryptor` on bytes."""

    def __init__(self, n: mpz, h: mpz, w: mpz, uses: int) -> None:
        self._encryptor, self._size = PublicEncryptor(n, h, w, uses=uses), byte_length(n * n)

    def encrypt(self, plaintexts: bytes, size: int, random: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PublicOps`."""
        return write_ints(self._encryptor.encrypt(read_ints(plaintexts, size, signed=True), random), self._size)

    def rerandomize(self, cells: bytes, fit: int, shift: int, random: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PublicOps`."""
        n2, numbers, factor = self._encryptor.n2, read_ints(cells, self._size), mpz(1) << shift
        zeros, sealed = self._encryptor.encrypt([0] * -(-len(numbers) // fit), random), []
        for index, zero in enumerate(zeros):
            combined = mpz(1)
            for cell in reversed(numbers[index * fit : (index + 1) * fit]):
                combined = gmpy2.powmod(combined, factor, n2) if combined != 1 else combined
                combined = combined * cell % n2 if cell != 1 else combined
            sealed.append(combined * zero % n2)
        return write_ints(sealed, self._size)


class Gmpy2Rows:
    """Rows as pairs a and l with the ciphertext a · (1 + n·l), as in ``fixed_base``."""

    def __init__(self, n: mpz, count: int, allocate: Allocator) -> None:
        self._n, self._factors, self._shifts = n, list[mpz](), list[mpz]()

    def add(self, data: bytes) -> None:
        """See :class:`~labelward.he.paillier.backends.base.PreparedRows`."""
        n, split = self._n, []
        for ciphertext in read_ints(data, byte_length(n * n)):
            high, low = divmod(ciphertext, n)
            try:
                split.append((low, high * gmpy2.invert(low, n) % n))
            except ZeroDivisionError as error:
                raise EncryptionError("a ciphertext has a factor in common with n", code="ciphertext") from error
        self._factors += [low for low, _ in split]
        self._shifts += [shift for _, shift in split]

    def sums(self, present: PresentRows, n_groups: int, joined: tuple[tuple[int, ...], ...]) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PreparedRows`."""
        n, n2 = self._n, self._n**2
        found = [[(mpz(1), mpz(0))] * n_groups for _ in present.groups]
        for columns in joined:
            numbers, cells = joint_cells(present.groups, columns, n_groups)
            pairs = self._joint(numbers, len(cells), present.rows)
            for column, of_cells in zip(columns, cells.T.tolist(), strict=True):
                into = found[column]
                for group, (product, shift) in zip(of_cells, pairs, strict=True):
                    if group >= 0:
                        before, total = into[group]
                        into[group] = (product if before == 1 else before * product % n2, total + shift)
        flat = [product * (1 + n * (shift % n)) % n2 for column in found for product, shift in column]
        return write_ints(flat, byte_length(n2))

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


def unavailable_reason() -> str:
    """Return nothing: gmpy2 runs everywhere."""
    return ""


def backend(threads: int) -> Backend:
    """Return the backend, in as many processes."""
    if threads == 1:
        return Backend(
            name="gmpy2",
            merge_cost=2.0,
            private_ops=Gmpy2PrivateOps,
            public_ops=Gmpy2PublicOps,
            prepared_rows=Gmpy2Rows,
        )
    from labelward.he.paillier.backends.processes import ProcessBackend

    return ProcessBackend(threads)
