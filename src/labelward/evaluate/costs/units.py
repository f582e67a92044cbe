"""What one operation of an engine takes on this machine, and what a training costs by that.

Reference: Equation 5 of the CMOSB paper, :func:`training_cost`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from labelward.he import Counts, Engine, Layout, PrivateKey
from labelward.he.base import Additions, CipherBlock, EncryptedSums
from labelward.messages.base import redacted
from labelward.messages.codec import decode, encode
from labelward.messages.tree import LevelHistograms
from labelward.rng import SecureRandom

__all__ = ["Adding", "Sample", "UnitCosts", "additions_of", "measured", "training_cost"]

Result = TypeVar("Result")

_COLD = 2.0
"""Seconds of making tables that tell of code that was compiled meanwhile."""
_COLUMNS, _CELLS = 16, 512
"""Most columns, and most sums of the smaller message, with which is measured."""
_FEW = 64
"""Rows of a message of which hardly anything is summed."""
_TIMES, _MOST_TIMES, _LONG = 3, 15, 0.1
"""How often an operation is repeated, at least and at most, after the first time; and for how many seconds in all."""


@dataclass(frozen=True, kw_only=True)
class UnitCosts:
    """Seconds of single operations: wall time of the whole engine with all its workers, so that its cores are in it.

    Attributes:
        engine, kernel, bits, workers: what was measured.
        key: making a key.
        owner_tables, public_tables: once for each key, at the first encryption and at the first sealed message.
        encrypt: a ciphertext, with the secret.
        prepare: a ciphertext, received, checked and made ready for sums.
        sum_message: a message of sums by groups, before any addition.
        add: an addition, as :class:`~labelward.he.base.Counts` has them, of rows to cells.
        seal_message, seal: a message of sums, and each sum in it.
        open_message, decrypt: a message of sealed sums, and each ciphertext in it.
        travel: a byte, encoded, recorded and decoded, as it does within one process.
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
class Sample:
    """What units are measured with: numbers and shapes as the job has them.

    Attributes:
        layout: of a row's numbers.
        rows: of a tree; no more of them are encrypted.
        columns: of the largest message of sums at the root.
        bins: of each of these.
    """

    layout: Layout
    rows: int
    columns: int
    bins: int


def training_cost(counts: Counts, costs: UnitCosts) -> float:
    """Return seconds of all operations with the key: N_enc · T_enc + N_dec · T_dec + N_add · T_add.

    Reference: Equation 5 of the CMOSB paper. Operations are those on our ciphertexts, which hold several numbers each;
    sealing is not among them, as there it is not.

    Args:
        counts: of all parties of a training together.
    """
    return counts.encryptions * costs.encrypt + counts.decryptions * costs.decrypt + counts.additions * costs.add


@dataclass(frozen=True, kw_only=True)
class Adding:
    """How an engine adds.

    Attributes:
        summed: tells of groups [n, F], so many in each column, what the engine does to sum by them.
        skips: whether cells that hold no rows cost nothing where sums are added to sums.
    """

    summed: Callable[[NDArray[np.int32], int], Additions]
    skips: bool

    def merged(self, before: NDArray[np.bool_] | None, more: NDArray[np.bool_]) -> tuple[Additions, NDArray[np.bool_]]:
        """Return what adding sums to those before takes, if there are any, and which cells then hold rows."""
        if before is None:
            return Additions(0, 0.0), more
        count = int(np.count_nonzero(before & more)) if self.skips else more.size
        return Additions(count, count), before | more


def additions_of(engine: Engine) -> Adding:
    """Return how an engine adds."""
    return Adding(summed=engine.additions, skips=engine.skips_empty_sums)


_kept: dict[tuple[Any, ...], UnitCosts] = {}


def measured(engine: Engine, sample: Sample, *, bits: int, insecure: bool) -> UnitCosts:
    """Measure each operation with a key of its own; a second or two at 2048 bits, kept for this process.

    Args:
        bits: of the key.
        insecure: whether the job allows what protects nothing.

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


def _measure(engine: Engine, sample: Sample, bits: int, insecure: bool) -> UnitCosts:
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
    units["prepare"] = _usual(lambda: public.allocate_rows(sample.layout, rows).add(blocks[0]))[1] / (rows * parts)
    held = public.allocate_rows(sample.layout, rows)
    held.add(blocks[0])
    groups = _groups(rows, min(sample.columns, _COLUMNS), sample.bins)
    adding, few = additions_of(engine), groups[:_FEW]
    sums, taken = _usual(lambda: held.group_sums(groups, sample.bins))
    _, once = _usual(lambda: held.group_sums(few, sample.bins))
    efforts = [adding.summed(each, sample.bins).effort * parts for each in (few, groups)]
    each = (taken - once) / max(1.0, efforts[1] - efforts[0]) if taken > once else taken / max(1.0, efforts[1])
    units |= {"add": each, "sum_message": max(0.0, once - efforts[0] * each)}
    return UnitCosts(
        engine=engine.name,
        kernel=kernel,
        bits=bits,
        workers=engine.workers,
        key=key,
        **units,
        **_sealing(private, sums, sample),
        travel=_travel(blocks[0]),
    )


def _encryption(private: PrivateKey, layout: Layout, rows: int) -> tuple[list[CipherBlock], tuple[float, float]]:
    """Encrypt a block several times; return what came of it, and the seconds of the first time and of a usual one."""
    values = np.random.default_rng(0).integers(0, 2, (rows, len(layout.bounds))).astype(np.int64)
    np.minimum(values, np.array(layout.bounds, dtype=np.int64), out=values)
    first, *others = [_timed(lambda: list(private.encrypt_blocks(values, layout, rows))) for _ in range(1 + _TIMES)]
    return first[0], (first[1], statistics.median(taken for _, taken in others))


def _groups(rows: int, columns: int, bins: int) -> NDArray[np.int32]:
    return np.random.default_rng(0).integers(0, bins, (rows, columns)).astype(np.int32)


def _sealing(private: PrivateKey, sums: EncryptedSums, sample: Sample) -> dict[str, float]:
    """Measure sealing and decrypting messages of two sizes, the smaller as the root's where it is not too large."""
    cells = sums.shape[0] * sums.shape[1]
    least = max(1, min(sample.columns * sample.bins, _CELLS))
    first = _timed(sums.take(np.resize(np.arange(cells), least)).rerandomize)[1]
    seals, openings = [], []
    for size in (least, 3 * least):
        picked = sums.take(np.resize(np.arange(cells), size))
        sealed, taken = _usual(picked.rerandomize)
        seals.append((size, taken))
        openings.append((sealed.count, _usual(lambda sealed=sealed: private.decrypt(sealed))[1]))  # type: ignore[misc]
    (seal_message, seal), (open_message, decrypt) = _line(seals), _line(openings)
    return {
        "public_tables": max(0.0, first - seals[0][1]),
        "seal": seal,
        "seal_message": seal_message,
        "decrypt": decrypt,
        "open_message": open_message,
    }


def _line(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Return what is spent once and on each, from two points; nothing once, where they say so or contradict it."""
    (few, short), (many, long) = points
    each = (long - short) / max(1, many - few)
    once = short - few * each
    return (once, each) if once > 0.0 < each else (0.0, long / max(1, many))


def _travel(block: CipherBlock) -> float:
    """Return what a byte takes from one party of this process to another."""
    message = LevelHistograms(0, 0, 0, 1, (0,), (1,), block)

    def there() -> None:
        redacted(decode(encode(message, (0,)))[0])

    return _usual(there)[1] / max(1, len(block.data))


def _timed(action: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start


def _usual(action: Callable[[], Result]) -> tuple[Result, float]:
    """Time an action after a first time, which builds tables and reads compiled code; return its median seconds.

    The least would be what a machine can do while nobody else is at work there.
    """
    result, taken = action(), list[float]()
    while len(taken) < _TIMES or (sum(taken) < _LONG and len(taken) < _MOST_TIMES):
        result, seconds = _timed(action)
        taken.append(seconds)
    return result, statistics.median(taken)
