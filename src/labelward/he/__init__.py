"""Additively homomorphic encryption behind one contract (see :mod:`labelward.he.contract`).

:data:`ENGINES` names what exists; a new engine is one module and one line there. Every engine passes the
suite in :mod:`labelward.testing.engines`.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from labelward.errors import InputError, unknown_name
from labelward.he.contract import (
    CipherBlock,
    Counts,
    EncryptedRows,
    EncryptedSums,
    Engine,
    Groups,
    Integers,
    Layout,
    PrivateKey,
    PublicKey,
    PublicMaterial,
)

__all__ = [
    "ENGINES",
    "CipherBlock",
    "Counts",
    "EncryptedRows",
    "EncryptedSums",
    "Engine",
    "Groups",
    "Integers",
    "Layout",
    "PrivateKey",
    "PublicKey",
    "PublicMaterial",
    "engine",
]

#: Name in the job file → "module:class"; the module is imported when the engine is asked for.
ENGINES: dict[str, str] = {
    "plain": "labelward.he.plain:PlainEngine",
    "paillier": "labelward.he.paillier:PaillierEngine",
}


def engine(name: str, *, workers: int = 1, background: bool = False, memory_limit: int | None = None) -> Engine:
    """Make the engine of that name.

    Args:
        name: a key of :data:`ENGINES`.
        workers, background, memory_limit: as in :class:`Engine`.

    Raises:
        InputError: no such engine, fewer workers than one, or a negative limit.
    """
    if name not in ENGINES:
        raise InputError(unknown_name("encryption engine", name, ENGINES), code="unknown", value=name)
    if workers < 1:
        raise InputError(f"workers must be at least 1 but got {workers}", code="range", value=workers)
    if memory_limit is not None and memory_limit < 0:
        raise InputError(f"memory_limit cannot be negative but is {memory_limit}", code="range", value=memory_limit)
    module, _, constructor = ENGINES[name].partition(":")
    made = getattr(import_module(module), constructor)
    return cast("Engine", made(workers=workers, background=background, memory_limit=memory_limit))
