"""The units of work, each run in this process or in a worker, with the same code.

A task is data; :func:`run` carries it out on a :class:`State`, where keys and rows stay between tasks under numbers
(*handles*). Numbers travel big-endian: residues modulo n² with a fixed size, plaintexts signed.
"""

from __future__ import annotations

import msgspec
import numpy as np
from gmpy2 import mpz

from labelward.he.paillier.joint import Present
from labelward.he.paillier.kernel import Kernel, Owner, Public, Room, Rows

__all__ = [
    "AddRows",
    "Complete",
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
    "run",
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
    """Make a place for ``count`` encrypted rows of one part."""

    handle: int
    n: bytes
    count: int


class AddRows(msgspec.Struct, frozen=True, tag=True):
    """Keep the next encrypted rows of one part."""

    handle: int
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


class Complete(msgspec.Struct, frozen=True, tag=True):
    """Add plaintexts of ``size`` bytes to encryptions of zero."""

    key: int
    size: int
    zeros: bytes
    plaintexts: bytes


class EncryptPublic(msgspec.Struct, frozen=True, tag=True):
    """Encrypt plaintexts of ``size`` bytes without the secret."""

    key: int
    size: int
    plaintexts: bytes
    random: bytes


class SumRows(msgspec.Struct, frozen=True, tag=True):
    """Multiply kept rows by group: int32 ``which`` [m], by int32 ``groups`` [columns, m]; cells without rows give 1."""

    rows: int
    columns: int
    n_groups: int
    which: memoryview
    groups: memoryview
    joined: tuple[tuple[int, ...], ...]


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


Task = (
    LoadOwner | LoadPublic | LoadRows | AddRows | Forget
    | EncryptOwner | Complete | EncryptPublic | SumRows | Seal | Decrypt
)  # fmt: skip


class State:
    """What a process keeps between tasks.

    Args:
        kernel: what does the arithmetic.
        room: where it keeps rows.
    """

    def __init__(self, kernel: Kernel, room: Room) -> None:
        self.kernel, self.room = kernel, room
        self.owners: dict[int, Owner] = {}
        self.publics: dict[int, Public] = {}
        self.rows: dict[int, Rows] = {}


def run(task: Task, state: State) -> bytes:
    """Carry out a task; those that only keep or drop something return nothing."""
    match task:
        case LoadOwner():
            p, q, tau_p, tau_q = (_number(part) for part in (task.p, task.q, task.tau_p, task.tau_q))
            state.owners[task.handle] = state.kernel.owner(p, q, tau_p, tau_q, task.uses)
        case LoadPublic():
            n, h, w = (_number(part) for part in (task.n, task.h, task.w))
            state.publics[task.handle] = state.kernel.public(n, h, w, task.uses)
        case LoadRows():
            state.rows[task.handle] = state.kernel.rows(_number(task.n), task.count, state.room)
        case AddRows():
            state.rows[task.handle].add(task.data)
        case Forget():
            for handle in task.handles:
                for kept in (state.owners, state.publics, state.rows):
                    kept.pop(handle, None)
        case EncryptOwner():
            return state.owners[task.key].encrypt(task.plaintexts, task.size, task.x, task.y)
        case Complete():
            return state.owners[task.key].complete(task.zeros, task.plaintexts, task.size)
        case EncryptPublic():
            return state.publics[task.key].encrypt(task.plaintexts, task.size, task.random)
        case SumRows():
            which, groups = (
                np.frombuffer(data, dtype="<i4").astype(np.int32, copy=False) for data in (task.which, task.groups)
            )
            present = Present(which, groups.reshape(task.columns, len(which)))
            return state.rows[task.rows].sums(present, task.n_groups, task.joined)
        case Seal():
            return state.publics[task.key].seal(task.cells, task.fit, task.shift, task.random)
        case Decrypt():
            return state.owners[task.key].decrypt(task.ciphertexts)
    return b""


def _number(data: bytes) -> mpz:
    return mpz.from_bytes(data, "big")
