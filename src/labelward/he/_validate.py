"""Checks of the arguments of every engine; each failure is an :class:`EncryptionError` unless it says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.errors import EncryptionError, InputError, quoted, unknown_name
from labelward.he.base import (
    SPACINGS,
    CipherBlock,
    Engine,
    EngineParameters,
    Groups,
    Integers,
    Layout,
    PublicMaterial,
)


def check_layout(layout: Layout) -> None:
    """Refuse a layout that describes no numbers, or sums that do not fit 63 bits."""
    if not layout.bounds or min(layout.bounds) < 0 or layout.rows < 0 or layout.logical < 0:
        raise EncryptionError(f"no such layout: {quoted(layout)}", code="range", value=layout)
    if layout.spacing not in SPACINGS:
        raise EncryptionError(f"no rows at every {quoted(layout.spacing)}", code="range", value=layout.spacing)
    if max(layout.widths()) > 63:
        reason = f"sums of {layout.rows} rows with bounds {quoted(layout.bounds)} do not fit 63 bits"
        raise EncryptionError(reason, code="capacity", value=max(layout.widths()))


def check_values(values: NDArray[np.generic], layout: Layout) -> Integers:
    """Return int64 ``values[n, k]`` in C order after checking them against the layout."""
    if values.dtype != np.int64:
        raise EncryptionError(f"values must be int64 but are {values.dtype}", code="type", value=values.dtype)
    check_layout(layout)
    checked: Integers = np.ascontiguousarray(values)
    layout.check(checked)
    return checked


def check_own_sums(values: NDArray[np.generic], layout: Layout) -> Integers:
    """Return int64 ``values[F, n_groups, k]`` as ``[F · n_groups, k]`` after checking them as sums of the layout."""
    if values.dtype != np.int64 or values.ndim != 3 or values.shape[2] != len(layout.bounds):
        raise EncryptionError(
            f"sums must be int64 [F, n_groups, {len(layout.bounds)}] but are {values.dtype} {list(values.shape)}",
            code="type",
            value=values.dtype,
        )
    check_layout(layout)
    check_sums(values.astype(np.int64, copy=False), layout)
    return np.ascontiguousarray(values, dtype=np.int64).reshape(-1, values.shape[2])


def refuse_take(packed: bool) -> None:
    """Refuse to take single sums out of opened ones, which share ciphertexts."""
    if packed:
        raise EncryptionError("single sums cannot be taken out of a block of sums", code="unsupported")


def check_groups(groups: Groups, start: int, have: int, n_groups: int) -> Groups:
    """Return int32 ``groups[m, F]`` in C order; the entries are checked by whoever reads them."""
    if groups.dtype != np.int32 or groups.ndim != 2:
        reason = f"groups must be int32 [rows, F] but are {groups.dtype} {list(groups.shape)}"
        raise EncryptionError(reason, code="type", value=groups.dtype)
    if start < 0 or start + len(groups) > have:
        raise EncryptionError(
            f"groups of the rows {start} to {start + len(groups)}, of which {have} have come", code="range", value=start
        )
    if n_groups < 0:
        raise EncryptionError(f"n_groups cannot be negative but got {n_groups}", code="range", value=n_groups)
    return np.ascontiguousarray(groups)


def check_material(material: PublicMaterial, engine: str) -> None:
    """Refuse the public key of another engine."""
    if material.engine != engine:
        reason = f"a public key of engine {quoted(material.engine)!r} was given to engine {engine!r}"
        raise EncryptionError(reason, code="key", value=material.engine)


def check_block(block: CipherBlock, engine: str, key: bytes, kinds: tuple[str, ...]) -> int:
    """Return how many entries of k numbers the block claims, after all checks that need no arithmetic.

    Checked are the engine, the key, the kind (one of ``kinds``), the shape and the layout.
    """
    if block.engine != engine:
        raise EncryptionError(
            f"a block of engine {quoted(block.engine)!r} was given to engine {engine!r}",
            code="ciphertext",
            value=block.engine,
        )
    if block.key != key:
        raise EncryptionError(
            f"the block belongs to key {quoted(block.key.hex())}, not to {key.hex()}", code="key", value=block.key
        )
    if block.kind not in kinds:
        raise EncryptionError(
            f"the block holds {block.kind}, wanted {' or '.join(kinds)}", code="ciphertext", value=block.kind
        )
    if len(block.shape) != (1 if block.kind == "rows" else 2) or min(block.shape) < 0:
        raise EncryptionError(
            f"a block of {block.kind} cannot have the shape {quoted(block.shape)}", code="ciphertext", value=block.shape
        )
    check_layout(block.layout)
    if block.kind == "rows" and block.shape[0] > block.layout.rows:
        raise EncryptionError(
            f"{block.shape[0]} rows exceed the layout's {block.layout.rows}", code="ciphertext", value=block.shape[0]
        )
    entries = block.shape[0]
    return entries if block.kind == "rows" else entries * block.shape[1]


def check_block_fits(block: CipherBlock, layout: Layout, due: int) -> None:
    """Refuse rows of another layout than the ones before them, or more rows than are due."""
    if block.layout != layout:
        raise EncryptionError(
            f"rows of the layout {quoted(block.layout)} among those of {quoted(layout)}",
            code="ciphertext",
            value=block.layout,
        )
    if block.shape[0] > due:
        raise EncryptionError(
            f"{block.shape[0]} rows came where {due} are due", code="ciphertext", value=block.shape[0]
        )


def check_capacity(n: int, layout: Layout) -> None:
    """Refuse a number of rows to come that the layout has no room for."""
    check_layout(layout)
    if not 0 <= n <= layout.rows:
        raise EncryptionError(f"{n} rows cannot come under a layout for {layout.rows}", code="range", value=n)


def check_positions(cells: Integers, count: int) -> Integers:
    """Return int64 positions of ``count`` sums in C order."""
    if cells.dtype != np.int64 or cells.ndim != 1:
        raise EncryptionError(
            f"positions must be int64 [n] but are {cells.dtype} {list(cells.shape)}", code="type", value=cells.dtype
        )
    if len(cells) and (cells.min() < 0 or cells.max() >= count):
        raise EncryptionError(f"a position lies outside range({count})", code="range")
    return np.ascontiguousarray(cells)


def check_sums(sums: NDArray[np.generic], layout: Layout) -> None:
    """Refuse decrypted ``sums[..., k]`` beyond what ``layout.rows`` rows within the bounds can give.

    An engine that decrypts to Python's integers, of any size, gives an array of objects.
    """
    from labelward.he._loops import first_beyond

    limits = np.array(layout.bounds, dtype=np.int64) * layout.rows
    entries = np.ascontiguousarray(sums).reshape(-1, len(limits))
    if entries.dtype == np.int64:
        column = first_beyond(entries, limits)
    else:
        beyond = (np.abs(entries.astype(object)) > limits).any(axis=0)
        column = int(beyond.argmax()) if beyond.any() else -1
    if column >= 0:
        limit = int(limits[column])
        raise EncryptionError(f"number {column} of a sum lies beyond the bound {limit}", code="capacity", value=limit)


def read_parameters(engine: type[Engine], values: Mapping[str, Any]) -> EngineParameters:
    """Return an engine's own parameters from the values of its table in a job file.

    Raises:
        InputError: a parameter that the engine does not have, a missing one, or one of the wrong type or range; the
            field is ``[encryption.NAME] KEY``.
    """
    place, declared = f"[encryption.{engine.name}]", {each.name: each for each in fields(engine.Parameters)}
    for key in values:
        if key not in declared:
            what = f"parameter of engine {engine.name!r}"
            raise InputError(unknown_name(what, key, declared), code="unknown", field=place, value=key)
    for name, each in declared.items():
        if name not in values and each.default is MISSING and each.default_factory is MISSING:
            raise InputError("required; there is no default", code="missing", field=f"{place} {name}")
    try:
        return engine.Parameters(**values)
    except InputError as error:
        raise error.under(place) from error


def check_chosen(block: CipherBlock, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return bool [rows] after checking that it speaks of the rows of a block."""
    if block.kind != "rows" or chosen.dtype != np.bool_ or chosen.shape != block.shape:
        reason = f"{chosen.dtype} {list(chosen.shape)} chooses none of {block.kind} {quoted(block.shape)}"
        raise EncryptionError(reason, code="type", value=chosen.shape)
    return chosen


def check_parties(parties: int) -> None:
    """Refuse a key that is not divided."""
    if parties < 2:
        raise EncryptionError(f"a key needs at least two parts, not {parties}", code="range", value=parties)
