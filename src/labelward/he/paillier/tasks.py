"""The units of work, each run in this process or in a worker, with the same code.

A task is data; :func:`run` carries it out on a :class:`State`, where keys and rows stay between tasks under numbers
(*handles*). Numbers travel big-endian: residues modulo n² with a fixed size, plaintexts signed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import gmpy2
import msgspec
import numpy as np
from gmpy2 import mpz

from labelward.errors import EncryptionError
from labelward.he.paillier.kernels import OwnerKernel, PublicKernel

__all__ = [
    "Decrypt",
    "EncryptOwner",
    "EncryptPublic",
    "Forget",
    "LoadOwner",
    "LoadPublic",
    "LoadRows",
    "Seal",
    "State",
    "SumRows",
    "Task",
    "read",
    "run",
    "write",
]


class LoadOwner(msgspec.Struct, frozen=True, tag=True):
    """Keep the secret of a key: p, q, and generators of the n-th residues modulo p² and q²."""

    handle: int
    p: bytes
    q: bytes
    tau_p: bytes
    tau_q: bytes
    uses: int


class LoadPublic(msgspec.Struct, frozen=True, tag=True):
    """Keep what obfuscators are made of."""

    handle: int
    n: bytes
    h: bytes
    w: bytes
    uses: int


class LoadRows(msgspec.Struct, frozen=True, tag=True):
    """Keep encrypted rows of one part, each split as :mod:`~labelward.he.paillier.fixedbase` splits its powers."""

    handle: int
    n: bytes
    data: bytes


class Forget(msgspec.Struct, frozen=True, tag=True):
    """Drop what was kept."""

    handles: list[int]


class EncryptOwner(msgspec.Struct, frozen=True, tag=True):
    """Encrypt plaintexts of ``size`` bytes with the secret; x and y are exponents."""

    key: int
    size: int
    plaintexts: bytes
    x: bytes
    y: bytes


class EncryptPublic(msgspec.Struct, frozen=True, tag=True):
    """Encrypt plaintexts of ``size`` bytes without the secret."""

    key: int
    size: int
    plaintexts: bytes
    random: bytes


class SumRows(msgspec.Struct, frozen=True, tag=True):
    """Multiply kept rows by group, for each column of int32 ``groups`` [rows, columns]; cells without rows give 1."""

    rows: int
    columns: int
    n_groups: int
    groups: bytes


class Seal(msgspec.Struct, frozen=True, tag=True):
    """Combine each ``fit`` cells, ``shift`` bits apart and the first one lowest, and re-randomize the result."""

    key: int
    fit: int
    shift: int
    cells: bytes
    random: bytes


class Decrypt(msgspec.Struct, frozen=True, tag=True):
    """Decrypt to plaintexts of the size of n, plus a byte for the sign."""

    key: int
    ciphertexts: bytes


Task = LoadOwner | LoadPublic | LoadRows | Forget | EncryptOwner | EncryptPublic | SumRows | Seal | Decrypt


class State:
    """What a process keeps between tasks."""

    def __init__(self) -> None:
        self.owners: dict[int, OwnerKernel] = {}
        self.publics: dict[int, PublicKernel] = {}
        self.rows: dict[int, tuple[mpz, list[mpz], list[mpz]]] = {}


def read(data: bytes, size: int, *, signed: bool = False) -> list[mpz]:
    """Split big-endian numbers of ``size`` bytes."""
    return [mpz.from_bytes(data[i : i + size], "big", signed=signed) for i in range(0, len(data), size)]


def write(numbers: Iterable[mpz] | Iterable[int], size: int, *, signed: bool = False) -> bytes:
    """Join big-endian numbers of ``size`` bytes."""
    return b"".join([number.to_bytes(size, "big", signed=signed) for number in numbers])


def run(task: Task, state: State) -> bytes:
    """Carry out a task; those that only keep or drop something return nothing."""
    match task:
        case LoadOwner():
            numbers = (_number(part) for part in (task.p, task.q, task.tau_p, task.tau_q))
            state.owners[task.handle] = OwnerKernel(*numbers, uses=task.uses)
        case LoadPublic():
            numbers = (_number(part) for part in (task.n, task.h, task.w))
            state.publics[task.handle] = PublicKernel(*numbers, uses=task.uses)
        case LoadRows():
            state.rows[task.handle] = _split_rows(_number(task.n), task.data)
        case Forget():
            for handle in task.handles:
                for kept in (state.owners, state.publics, state.rows):
                    kept.pop(handle, None)
        case EncryptOwner():
            owner = state.owners[task.key]
            plaintexts = read(task.plaintexts, task.size, signed=True)
            return write(owner.encrypt(plaintexts, task.x, task.y), _size((owner.p * owner.q) ** 2))
        case EncryptPublic():
            public = state.publics[task.key]
            plaintexts = read(task.plaintexts, task.size, signed=True)
            return write(public.encrypt(plaintexts, task.random), _size(public.n2))
        case SumRows():
            return _sum_rows(task, *state.rows[task.rows])
        case Seal():
            return _seal(task, state.publics[task.key])
        case Decrypt():
            owner = state.owners[task.key]
            n = owner.p * owner.q
            return write(owner.decrypt(read(task.ciphertexts, _size(n * n))), _size(n) + 1, signed=True)
    return b""


def _split_rows(n: mpz, data: bytes) -> tuple[mpz, list[mpz], list[mpz]]:
    """Return n, and a and l of each ciphertext a · (1 + n·l)."""
    factors, shifts = [], []
    for ciphertext in read(data, _size(n * n)):
        high, low = divmod(ciphertext, n)
        try:
            shifts.append(high * gmpy2.invert(low, n) % n)
        except ZeroDivisionError as error:
            raise EncryptionError("a ciphertext has a factor in common with n") from error
        factors.append(low)
    return n, factors, shifts


def _sum_rows(task: SumRows, n: mpz, factors: list[mpz], shifts: list[mpz]) -> bytes:
    groups, n2, cells = np.frombuffer(task.groups, dtype="<i4").reshape(-1, task.columns), n * n, []
    for column in range(task.columns):
        of_column = groups[:, column]
        order = np.argsort(of_column, kind="stable")
        bounds = np.searchsorted(of_column[order], np.arange(task.n_groups + 1)).tolist()
        by_group = order.tolist()
        for start, stop in pairwise(bounds):
            product = mpz(1)
            for row in by_group[start:stop]:
                product = product * factors[row] % n2
            shift = sum([shifts[row] for row in by_group[start:stop]], mpz(0)) % n
            cells.append(product * (1 + n * shift) % n2)
    return write(cells, _size(n2))


def _seal(task: Seal, public: PublicKernel) -> bytes:
    n2, size = public.n2, _size(public.n2)
    cells, shift = read(task.cells, size), mpz(1) << task.shift
    zeros, sealed = public.encrypt([0] * -(-len(cells) // task.fit), task.random), []
    for index, zero in enumerate(zeros):
        combined = mpz(1)
        for cell in reversed(cells[index * task.fit : (index + 1) * task.fit]):
            combined = gmpy2.powmod(combined, shift, n2) if combined != 1 else combined
            combined = combined * cell % n2 if cell != 1 else combined
        sealed.append(combined * zero % n2)
    return write(sealed, size)


def _number(data: bytes) -> mpz:
    return mpz.from_bytes(data, "big")


def _size(number: mpz) -> int:
    return int(number.bit_length() + 7) // 8
