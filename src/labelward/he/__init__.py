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


def engine(name: str, *, workers: int = 1) -> Engine:
    """Make the engine of that name.

    Args:
        name: a key of :data:`ENGINES`.
        workers: processes that share heavy work; 1 means none beside this one.

    Raises:
        InputError: no such engine, or fewer workers than one.
    """
    if name not in ENGINES:
        raise InputError(unknown_name("encryption engine", name, ENGINES))
    if workers < 1:
        raise InputError(f"workers must be at least 1 but got {workers}")
    module, _, constructor = ENGINES[name].partition(":")
    return cast("Engine", getattr(import_module(module), constructor)(workers=workers))
