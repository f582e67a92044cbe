"""Additively homomorphic encryption behind one interface (:mod:`labelward.he.base`).

:data:`ENGINES` lists the engines; a new one is one module and one line there. Every engine passes the suite in
:mod:`labelward.testing.engines`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, cast

from labelward.errors import InputError, unknown_name
from labelward.extensions import extensions, load
from labelward.he._validate import read_parameters
from labelward.he.base import (
    CipherBlock,
    CiphertextFormat,
    Counts,
    EncryptedRows,
    EncryptedSums,
    Engine,
    EngineParameters,
    Groups,
    Integers,
    KernelBenchmark,
    KeyPart,
    Layout,
    PrivateKey,
    PublicKey,
    PublicMaterial,
)
from labelward.he.plain import NullEngine

__all__ = [
    "ENGINES",
    "CipherBlock",
    "CiphertextFormat",
    "Counts",
    "EncryptedRows",
    "EncryptedSums",
    "Engine",
    "EngineParameters",
    "Groups",
    "Integers",
    "KernelBenchmark",
    "KeyPart",
    "Layout",
    "NullEngine",
    "PrivateKey",
    "PublicKey",
    "PublicMaterial",
    "benchmark_engines",
    "check_engine",
    "engine",
    "engine_class",
    "engine_names",
]

#: Name in the job file → "module:class"; the module is imported when the engine is asked for.
ENGINES: dict[str, str] = {
    "plain": "labelward.he.plain:PlainEngine",
    "paillier": "labelward.he.paillier:PaillierEngine",
    "lattice": "labelward.he.lattice:LatticeEngine",
}


def engine_names() -> tuple[str, ...]:
    """Return the names of all engines, those of :mod:`~labelward.extensions` last."""
    return tuple(dict.fromkeys((*ENGINES, *extensions("engines"))))


def engine_class(name: str) -> type[Engine]:
    """Return the class of the engine of that name; :class:`InputError` if there is none."""
    if name in extensions("engines") and name not in ENGINES:
        return cast("type[Engine]", load("engines", name))
    if name not in ENGINES:
        raise InputError(unknown_name("encryption engine", name, engine_names()), code="unknown", value=name)
    module, _, constructor = ENGINES[name].partition(":")
    return cast("type[Engine]", getattr(import_module(module), constructor))


def check_engine(name: str, parameters: Mapping[str, Any], *, insecure: bool) -> EngineParameters:
    """Return an engine's own parameters, with defaults, after checking that the engine may be used.

    Raises:
        InputError: no such engine, one that hides nothing without ``insecure``, or a wrong parameter.
    """
    cls = engine_class(name)
    if not cls.secure and not insecure:
        reason = f"{name!r} encrypts nothing; it needs insecure = true"
        raise InputError(reason, code="insecure", field="[encryption] engine", value=name)
    return read_parameters(cls, parameters)


def engine(
    name: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    workers: int = 1,
    background: bool = False,
    memory_limit: int | None = None,
) -> Engine:
    """Return a new engine of that name.

    Args:
        parameters: the engine's own, as in the table ``[encryption.NAME]`` of a job file.

    Raises:
        InputError: no such engine, a parameter that the engine does not have or that is out of range, fewer workers
            than one, or a negative limit.
    """
    constructor = engine_class(name)
    own = read_parameters(constructor, parameters or {})
    if workers < 1:
        raise InputError(f"workers must be at least 1 but got {workers}", code="range", value=workers)
    if memory_limit is not None and memory_limit < 0:
        raise InputError(f"memory_limit cannot be negative but is {memory_limit}", code="range", value=memory_limit)
    given = {"parameters": own} if fields(own) else {}
    return constructor(workers=workers, background=background, memory_limit=memory_limit, **given)


def benchmark_engines(
    bits: int = 2048, only: str | None = None, parameters: Mapping[str, Any] | None = None
) -> dict[str, list[KernelBenchmark]]:
    """Measure the implementations of each engine that has a benchmark; takes a few seconds.

    Args:
        only: name of one engine; None for all.

    Raises:
        InputError: no such engine or parameter; ``LABELWARD_KERNEL`` names no kernel.
    """
    found: dict[str, list[KernelBenchmark]] = {}
    for name in engine_names() if only is None else (only,):
        made = engine(name, parameters=parameters)
        try:
            results = made.benchmark(bits)
        finally:
            made.close()
        if results:
            found[name] = results
    return found
