"""What a kernel does: the heavy arithmetic on bytes, in one process; and which kernel runs.

Every kernel gives the same bytes. Residues modulo n² travel big-endian with a fixed size, plaintexts signed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Protocol, cast

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.errors import InputError, unknown_name
from labelward.he.paillier.joint import Present

__all__ = ["KERNELS", "VARIABLE", "Kernel", "Owner", "Public", "Room", "Rows", "choose", "obstacle"]

#: Makes an array of a shape for numbers that stay, in memory or on disk; its content is undefined.
Room = Callable[[tuple[int, ...]], NDArray[np.uint64]]

#: The environment variable that names the kernel to use; others are then switched off.
VARIABLE = "LABELWARD_KERNEL"

#: Name → module with a class ``Made``, the fastest first.
KERNELS: dict[str, str] = {
    "ifma": "labelward.he.paillier.ifma",
    "libgmp": "labelward.he.paillier.libgmp",
    "gmpy2": "labelward.he.paillier.gmp",
}


class Owner(Protocol):
    """The secret of a key."""

    def encrypt(self, plaintexts: bytes, size: int, x: bytes, y: bytes) -> bytes:
        """Encrypt signed plaintexts of ``size`` bytes; x and y are exponents below p-1 and q-1."""

    def complete(self, zeros: bytes, plaintexts: bytes, size: int) -> bytes:
        """Multiply encryptions of zero by 1 + n·m for each signed plaintext m of ``size`` bytes."""

    def decrypt(self, ciphertexts: bytes) -> bytes:
        """Return signed plaintexts, a byte longer than n."""


class Public(Protocol):
    """What obfuscators are made of."""

    def encrypt(self, plaintexts: bytes, size: int, random: bytes) -> bytes:
        """Encrypt signed plaintexts of ``size`` bytes."""

    def seal(self, cells: bytes, fit: int, shift: int, random: bytes) -> bytes:
        """Combine each ``fit`` cells, ``shift`` bits apart and the first lowest, and re-randomize the result."""


class Rows(Protocol):
    """Encrypted rows, prepared for sums."""

    def add(self, data: bytes) -> None:
        """Take the next ciphertexts; :class:`EncryptionError` where one shares a factor with n."""

    def sums(self, present: Present, n_groups: int, joined: tuple[tuple[int, ...], ...]) -> bytes:
        """Multiply rows by group, for each column; cells without rows give 1.

        Args:
            present: the rows that are in any group, and in which.
            joined: the sets of columns that are summed together (:mod:`~labelward.he.paillier.joint`).
        """


class Kernel(Protocol):
    """Makes these from numbers.

    Attributes:
        shared: whether one process uses all cores by itself.
        merge: what the product of two cells costs, in products of a row and a cell.
    """

    name: str
    shared: bool
    merge: float

    def owner(self, p: mpz, q: mpz, tau_p: mpz, tau_q: mpz, uses: int) -> Owner:
        """Take the primes and generators of the n-th residues modulo p² and q²; expect so many encryptions."""

    def public(self, n: mpz, h: mpz, w: mpz, uses: int) -> Public:
        """Take n, h and w (:mod:`~labelward.he.paillier.kernels`); expect so many obfuscators."""

    def rows(self, n: mpz, count: int, room: Room) -> Rows:
        """Make a place for ``count`` ciphertexts to come."""


def obstacle(name: str) -> str:
    """Return why the kernel of that name cannot run here, or nothing if it can."""
    try:
        return cast("str", import_module(KERNELS[name]).obstacle())
    except Exception as error:  # whatever a library finds wrong with this machine, another kernel runs
        return f"{type(error).__name__}: {error}"


def choose(name: str | None = None, *, threads: int = 1) -> Kernel:
    """Return the kernel of that name, else that which :data:`VARIABLE` names, else the fastest that runs here.

    A kernel that is asked for by the variable and cannot run is replaced by one that can; one that is asked for by
    ``name`` is not.

    Raises:
        InputError: no such kernel, or it cannot run.
    """
    wanted = name or os.environ.get(VARIABLE) or None
    if wanted is not None and wanted not in KERNELS:
        raise InputError(unknown_name("encryption kernel", wanted, KERNELS), code="unknown", value=wanted)
    if name is not None and (why := obstacle(name)):
        raise InputError(f"the encryption kernel {name!r} cannot run here: {why}", code="dependency", value=name)
    order = [wanted, *KERNELS] if wanted else list(KERNELS)
    chosen = next(each for each in order if not obstacle(each))
    return cast("Kernel", import_module(KERNELS[chosen]).Made(threads))
