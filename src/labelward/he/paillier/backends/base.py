"""Interface of the backends: the heavy arithmetic of Paillier on bytes; and the choice of the backend that runs.

All backends return the same bytes. Residues modulo n² are big-endian with a fixed size, plaintexts are signed. Reports,
``labelward doctor`` and :data:`VARIABLE` call a backend the *kernel* of the engine.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.errors import InputError, unknown_name
from labelward.he.paillier.column_merging import PresentRows

#: Allocates an array of a shape for rows that are kept, in memory or on disk; its content is undefined.
Allocator = Callable[[tuple[int, ...]], NDArray[np.uint64]]

#: The environment variable that names the backend to use.
VARIABLE = "LABELWARD_KERNEL"

#: Name → module with ``backend(threads)`` and ``unavailable_reason()``, the fastest first.
BACKENDS: dict[str, str] = {
    "ifma": "labelward.he.paillier.backends.ifma.backend",
    "libgmp": "labelward.he.paillier.backends.gmp.backend",
    "gmpy2": "labelward.he.paillier.backends.gmpy2",
}


class PrivateOps(Protocol):
    """Operations with the secret of a key."""

    def encrypt(self, plaintexts: bytes, size: int, x: bytes, y: bytes) -> bytes:
        """Encrypt signed plaintexts of ``size`` bytes; x and y are exponents below p-1 and q-1."""

    def complete(self, zeros: bytes, plaintexts: bytes, size: int) -> bytes:
        """Multiply encryptions of zero by 1 + n·m for each signed plaintext m of ``size`` bytes."""

    def decrypt(self, ciphertexts: bytes) -> bytes:
        """Return signed plaintexts, a byte longer than n."""


class PublicOps(Protocol):
    """Operations without the secret."""

    def encrypt(self, plaintexts: bytes, size: int, random: bytes) -> bytes:
        """Encrypt signed plaintexts of ``size`` bytes."""

    def rerandomize(self, cells: bytes, fit: int, shift: int, random: bytes) -> bytes:
        """Combine each ``fit`` cells, ``shift`` bits apart and the first lowest, and re-randomize the results."""


class PreparedRows(Protocol):
    """Encrypted rows in the form in which the backend multiplies them."""

    def add(self, data: bytes) -> None:
        """Append ciphertexts; :class:`EncryptionError` where one shares a factor with n."""

    def sums(self, present: PresentRows, n_groups: int, joined: tuple[tuple[int, ...], ...]) -> bytes:
        """Multiply rows by group, for each column; a cell without rows is the ciphertext 1.

        Args:
            present: the rows that are in any group, and their groups.
            joined: the sets of columns that are summed together (:mod:`~labelward.he.paillier.column_merging`).
        """


@dataclass(kw_only=True, eq=False)
class Backend:
    """Creates the operations of a key.

    Attributes:
        merge_cost: the product of two cells, in products of a row and a cell.
        private_ops: of p, q, the generators of the n-th residues modulo p² and q², and the number of encryptions to
            expect, which decides the size of tables.
        public_ops: of n, h, w (:mod:`~labelward.he.paillier.scheme`) and the number of obfuscators to expect.
        prepared_rows: of n, the number of ciphertexts to come, and an allocator.
    """

    name: str
    merge_cost: float
    private_ops: Callable[[mpz, mpz, mpz, mpz, int], PrivateOps]
    public_ops: Callable[[mpz, mpz, mpz, int], PublicOps]
    prepared_rows: Callable[[mpz, int, Allocator], PreparedRows]
    close: Callable[[], None] = lambda: None


def unavailable_reason(name: str) -> str:
    """Return why the backend of that name cannot run here; empty if it can."""
    try:
        return cast("str", import_module(BACKENDS[name]).unavailable_reason())
    except Exception as error:  # whatever a library finds wrong with this machine, another backend runs
        return f"{type(error).__name__}: {error}"


def select_backend(name: str | None = None, *, threads: int = 1) -> Backend:
    """Return the backend of that name, else the one of :data:`VARIABLE`, else the fastest that runs here.

    A backend that :data:`VARIABLE` names and that cannot run is replaced by one that can; one that is asked for by
    ``name`` is not.

    Args:
        threads: threads, or processes where the backend has no threads, that share heavy work.

    Raises:
        InputError: no such backend, or it cannot run here.
    """
    wanted = name or os.environ.get(VARIABLE) or None
    if wanted is not None and wanted not in BACKENDS:
        raise InputError(unknown_name("encryption kernel", wanted, BACKENDS), code="unknown", value=wanted)
    if name is not None and (reason := unavailable_reason(name)):
        raise InputError(f"the encryption kernel {name!r} cannot run here: {reason}", code="dependency", value=name)
    order = [wanted, *BACKENDS] if wanted else list(BACKENDS)
    selected = next(each for each in order if not unavailable_reason(each))
    return cast("Backend", import_module(BACKENDS[selected]).backend(threads))
