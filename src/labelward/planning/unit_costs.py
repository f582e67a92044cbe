"""Unit costs: seconds of an engine's operations on this machine, and what they add up to."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from labelward.he import Engine, Layout, PrivateKey
from labelward.he.base import CipherBlock, EncryptedSums
from labelward.messages.codec import decode, encode, redacted
from labelward.messages.tree import LevelHistograms
from labelward.rng import SecureRandom

Result = TypeVar("Result")

_COLD = 2.0
"""Seconds of making tables beyond which code was compiled meanwhile."""
_COLUMNS, _CELLS = 16, 512
"""Columns, and sums of the smaller message, of a measurement, at most."""
_FEW = 64
"""Rows of a message whose sums take hardly any additions."""
_TIMES, _MOST_TIMES, _LONG = 3, 15, 0.1
"""Repetitions of an operation after the first, at least and at most, and seconds of all of them beyond the least."""


@dataclass(frozen=True, kw_only=True)
class UnitCosts:
    """Seconds of single operations: wall time of the engine with all of its workers.

    Attributes:
        engine, kernel, bits, workers: what was measured.
        key: making a key.
        owner_tables, public_tables: once per key, with the first encryption and the first sealed message.
        encrypt: a ciphertext, with the secret.
        prepare: a ciphertext, received, checked and made ready for sums.
        sum_message: sums by group, before any addition.
        add: an addition, as :class:`~labelward.he.base.Counts` has them, of rows to cells.
        seal_message, seal: a message of sums, and each sum in it.
        open_message, decrypt: a message of sealed sums, and each ciphertext in it.
        travel: a byte between parties of one process: encoded, recorded and decoded.
    """

    engine: str
    kernel: str
    bits: int
    workers: int
    key: float
    owner_tables: float
    public_tables: float
    encrypt: float
    prepare: float
    sum_message: float
    add: float
    seal_message: float
    seal: float
    open_message: float
    decrypt: float
    travel: float


@dataclass(frozen=True, kw_only=True)
class OperationShape:
    """Numbers and shapes of the job, for the measurement."""

    layout: Layout  # of a row's numbers
    rows: int  # of a tree; no more are encrypted
    columns: int  # of the largest message of sums at a root
    bins: int  # of each of these columns


_kept: dict[tuple[Any, ...], UnitCosts] = {}


def measure_units(engine: Engine, sample: OperationShape, *, bits: int, insecure: bool) -> UnitCosts:
    """Measure each operation with a new key; a second or two at 2048 bits, once per process.

    Raises:
        EncryptionError: the engine does not offer the key's size.
    """
    about = engine.describe()
    known = (*sorted((name, str(value)) for name, value in about.items()), bits)
    key = (known, sample.layout.bounds, sample.rows.bit_length(), min(sample.columns, _COLUMNS), sample.bins)
    if key not in _kept:
        found = _measure(engine, sample, bits, insecure)
        if found.owner_tables + found.public_tables > _COLD:
            found = _measure(engine, sample, bits, insecure)  # code was compiled, which happens once on a machine
        _kept[key] = found
    return _kept[key]


def _measure(engine: Engine, sample: OperationShape, bits: int, insecure: bool) -> UnitCosts:
    kernel, protection = str(engine.describe().get("kernel", "")), SecureRandom()
    start = time.perf_counter()
    private = engine.generate(bits, protection=protection, insecure=insecure)
    key = time.perf_counter() - start
    rows = max(1, min(sample.rows, engine.calibration_rows(bits)))
    blocks, encrypted = _encryption(private, sample.layout, rows)
    units = {"encrypt": encrypted[1] / rows, "owner_tables": max(0.0, encrypted[0] - encrypted[1])}
    parts = blocks[0].count / rows
    units["encrypt"] /= parts
    public = engine.public(private.public.material(), protection=protection, insecure=insecure)
    units["prepare"] = _repeated(lambda: public.allocate_rows(sample.layout, rows).add(blocks[0]))[1] / (rows * parts)
    held = public.allocate_rows(sample.layout, rows)
    held.add(blocks[0])
    groups = _groups(rows, min(sample.columns, _COLUMNS), sample.bins)
    few = groups[:_FEW]
    sums, taken = _repeated(lambda: held.group_sums(groups, sample.bins))
    _, once = _repeated(lambda: held.group_sums(few, sample.bins))
    if engine.sums_when_sealing:  # the same number of sums is sealed, so that the difference is that of the rows
        taken += _repeated(sums.rerandomize)[1]
        once += _repeated(held.group_sums(few, sample.bins).rerandomize)[1]
        sums = held.group_sums(np.full_like(few, -1), sample.bins)
    efforts = [engine.additions(each, sample.bins).effort * parts for each in (few, groups)]
    each = (taken - once) / max(1.0, efforts[1] - efforts[0]) if taken > once else taken / max(1.0, efforts[1])
    if engine.sums_when_sealing:
        once -= _repeated(sums.rerandomize)[1]
    units |= {"add": each, "sum_message": max(0.0, once - efforts[0] * each)}
    return UnitCosts(
        engine=engine.name,
        kernel=kernel,
        bits=bits,
        workers=engine.workers,
        key=key,
        **units,
        **_sealing(private, sums, sample),
        travel=_transport(blocks[0]),
    )


def _encryption(private: PrivateKey, layout: Layout, rows: int) -> tuple[list[CipherBlock], tuple[float, float]]:
    """Encrypt a block several times; return it, and the seconds of the first time and the median of the others."""
    values = np.random.default_rng(0).integers(0, 2, (rows, len(layout.bounds))).astype(np.int64)
    np.minimum(values, np.array(layout.bounds, dtype=np.int64), out=values)
    first, *others = [_timed(lambda: list(private.encrypt_blocks(values, layout, rows))) for _ in range(1 + _TIMES)]
    return first[0], (first[1], statistics.median(taken for _, taken in others))


def _groups(rows: int, columns: int, bins: int) -> NDArray[np.int32]:
    return np.random.default_rng(0).integers(0, bins, (rows, columns)).astype(np.int32)


def _sealing(private: PrivateKey, sums: EncryptedSums, sample: OperationShape) -> dict[str, float]:
    """Measure sealing and decrypting of messages of two sizes, the smaller one like a root's up to a limit."""
    cells = sums.shape[0] * sums.shape[1]
    least = max(1, min(sample.columns * sample.bins, _CELLS))
    first = _timed(sums.take(np.resize(np.arange(cells), least)).rerandomize)[1]
    seals, openings = [], []
    for size in (least, 3 * least):
        picked = sums.take(np.resize(np.arange(cells), size))
        sealed, taken = _repeated(picked.rerandomize)
        seals.append((size, taken))
        openings.append((sealed.count, _repeated(lambda sealed=sealed: private.decrypt(sealed))[1]))  # type: ignore[misc]
    (seal_message, seal), (open_message, decrypt) = _affine(seals), _affine(openings)
    return {
        "public_tables": max(0.0, first - seals[0][1]),
        "seal": seal,
        "seal_message": seal_message,
        "decrypt": decrypt,
        "open_message": open_message,
    }


def _affine(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Return the cost per message and per item from two points; none per message if that came out negative."""
    (few, short), (many, long) = points
    each = (long - short) / max(1, many - few)
    once = short - few * each
    return (once, each) if once > 0.0 < each else (0.0, long / max(1, many))


def _transport(block: CipherBlock) -> float:
    """Return the seconds of a byte on its way from one party of this process to another."""
    message = LevelHistograms(0, 0, 0, 1, (0,), (1,), block)

    def there() -> None:
        redacted(decode(encode(message, (0,)))[0])

    return _repeated(there)[1] / max(1, len(block.data))


def _timed(action: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start


def _repeated(action: Callable[[], Result]) -> tuple[Result, float]:
    """Return an action's result and median seconds after a first time, which builds tables and loads compiled code.

    The minimum would be that of a machine without any other work.
    """
    result, taken = action(), list[float]()
    while len(taken) < _TIMES or (sum(taken) < _LONG and len(taken) < _MOST_TIMES):
        result, seconds = _timed(action)
        taken.append(seconds)
    return result, statistics.median(taken)
