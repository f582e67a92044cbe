"""Two known sequences of symbols, shuffled into one: how likely each element of the shuffle is one of the first.

Given the symbols of all rows, and for the rows of one class (in their order) the symbols that they must have, the rows
of that class are found by a forward and a backward pass over *how many rows of the class came before*. With the symbols
of all other rows known as well (two classes) the pass is exact; without them (one of several classes) only the class's
own rows are constrained, and :func:`posterior` is one factor of a loopy belief propagation over the classes.

Work is rows × width, where the width is that of the band of counts whose probability is 1e-20 or more: about ten
standard deviations, which grow with the square root of the rows. Memory is that of two bands of √rows rows.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

Floats = NDArray[np.float64]
Symbols = NDArray[np.int32]

_NEGLIGIBLE = 1e-20


class Posterior(NamedTuple):
    """Result of the two passes.

    Attributes:
        inside: float64 [rows]: the probability that a row is one of the class.
        evidence: natural logarithm of the probability of the symbols, under independent rows of the given shares of
            which exactly as many as given are of the class; -inf where no shuffle of the sequences gives the symbols.
    """

    inside: Floats
    evidence: float


class _Chain(NamedTuple):
    """The sequences: symbols of all rows, of the class's rows, of all others (none: any), and each row's share.

    ``others`` is how many rows are of no such class at most; ``ends`` says whether all rows of the class must have come
    by the last row.
    """

    symbols: Symbols
    inside: Symbols
    outside: Symbols
    share: Floats
    others: int
    ends: bool


def posterior(
    symbols: Symbols, inside: Symbols, outside: Symbols | None, share: Floats, *, ends: bool = True
) -> Posterior:
    """Return how likely each row is one of the class.

    Args:
        symbols: int32 [rows], of all rows in order.
        inside: int32 [k], of the rows of the class in their order.
        outside: int32 [rows - k], of all others in their order; None: they may be anything.
        share: float64 [rows]: the probability of being one of the class before the symbols are looked at; strictly
            between 0 and 1.
        ends: whether the rows are all; without, they are the first of more, and so are the sequences' symbols.

    Raises:
        ValueError: lengths do not fit.
    """
    rows, k = len(symbols), len(inside)
    if len(share) != rows or (ends and (k > rows or (outside is not None and len(outside) != rows - k))):
        raise ValueError(f"{rows} rows, {k} of them inside, and sequences or shares of other lengths")
    free = np.empty(0, np.int32) if outside is None else outside
    chain = _Chain(symbols, inside, free, share, len(free) if outside is not None else rows, ends)
    if not rows:
        return Posterior(np.empty(0), 0.0)
    length = max(1, math.isqrt(rows))
    low, high = np.zeros(rows + 1, np.int64), np.ones(rows + 1, np.int64)
    band, starts, evidence = np.zeros(k + 2), [], 0.0
    band[0] = 1.0
    for start in range(0, rows, length):
        starts.append(band[low[start] : high[start]].copy())
        evidence += _forward(chain, band, low, high, start, min(start + length, rows))
        if not np.isfinite(evidence):
            return Posterior(share.copy(), -math.inf)
    found, later = np.empty(rows), np.zeros(k + 2)
    later[k if ends else slice(None)] = 1.0
    for start, first in zip(range(0, rows, length)[::-1], starts[::-1], strict=True):
        stop = min(start + length, rows)
        _backward(chain, _bands(chain, first, low, high, start, stop), later, low, high, start, found)
    return Posterior(found, evidence)


@jit
def _step(chain: _Chain, band: Floats, low: int, high: int, row: int, new: Floats) -> float:
    """Write the probabilities of the counts after a row into ``new[low : high + 1]``; return their sum."""
    symbol, share, total = chain.symbols[row], chain.share[row], 0.0
    k, others = len(chain.inside), chain.others
    constrained = len(chain.outside) > 0 or others == 0
    for count in range(low, high + 1):
        value = 0.0
        if count < high:
            before = row - count  # rows of other classes so far
            if before < others and (not constrained or chain.outside[before] == symbol):
                value += band[count] * (1.0 - share)
        if low < count <= k and chain.inside[count - 1] == symbol:
            value += band[count - 1] * share
        new[count] = value
        total += value
    return total


@jit
def _forward(
    chain: _Chain, band: Floats, low: NDArray[np.int64], high: NDArray[np.int64], start: int, stop: int
) -> float:
    """Advance from row ``start`` to ``stop``, storing the band of each row; return the logarithm of the evidence."""
    k, rows, evidence = len(chain.inside), len(chain.symbols), 0.0
    new = np.zeros(k + 2)
    for row in range(start, stop):
        bottom, top = low[row], high[row]
        total = _step(chain, band, bottom, top, row, new)
        if total <= 0.0:
            return -np.inf
        evidence += np.log(total)
        top += 1
        while bottom < top - 1 and (new[bottom] <= _NEGLIGIBLE * total or (chain.ends and k - bottom > rows - row - 1)):
            bottom += 1
        while top > bottom + 1 and (new[top - 1] <= _NEGLIGIBLE * total or top - 1 > k):
            top -= 1
        low[row + 1], high[row + 1] = bottom, top
        for count in range(bottom, top):
            band[count] = new[count] / total
    if stop == rows and chain.ends and not (low[rows] <= k < high[rows] and band[k] > 0.0):
        return -np.inf
    return evidence + (np.log(band[k]) if stop == rows and chain.ends else 0.0)


@jit
def _bands(
    chain: _Chain, first: Floats, low: NDArray[np.int64], high: NDArray[np.int64], start: int, stop: int
) -> Floats:
    """Return the forward probabilities of rows ``start`` to ``stop``: float64 [rows, width], each from its own low."""
    width = 0
    for row in range(start, stop + 1):
        width = max(width, high[row] - low[row])
    found, size = np.zeros((stop - start, width)), len(chain.inside) + 2
    band, new = np.zeros(size), np.zeros(size)
    band[low[start] : high[start]] = first
    for row in range(start, stop):
        found[row - start, : high[row] - low[row]] = band[low[row] : high[row]]
        total = _step(chain, band, low[row], high[row], row, new)
        for count in range(low[row + 1], high[row + 1]):
            band[count] = new[count] / total
    return found


@jit
def _backward(
    chain: _Chain,
    bands: Floats,
    later: Floats,
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    start: int,
    found: Floats,
) -> None:
    """Go back over the rows of ``bands``: ``later`` is the backward probability after its last row, then before its
    first; write how likely each row is inside."""
    k, others = len(chain.inside), chain.others
    constrained = len(chain.outside) > 0 or others == 0
    for row in range(start + len(bands) - 1, start - 1, -1):
        symbol, share = chain.symbols[row], chain.share[row]
        inside, total, most = 0.0, 0.0, 0.0
        bottom, top, after_bottom, after_top = low[row], high[row], low[row + 1], high[row + 1]
        for count in range(bottom, top):  # ascending: later[count + 1] is still that of the row after
            stay, move = 0.0, 0.0
            before = row - count
            if (
                after_bottom <= count < after_top
                and before < others
                and (not constrained or chain.outside[before] == symbol)
            ):
                stay = later[count] * (1.0 - share)
            if count < k and after_bottom <= count + 1 < after_top and chain.inside[count] == symbol:
                move = later[count + 1] * share
            weight = bands[row - start, count - bottom]
            inside += weight * move
            total += weight * (stay + move)
            later[count] = stay + move
            most = max(most, stay + move)
        found[row] = inside / total if total > 0.0 else share
        if most > 0.0:
            for count in range(bottom, top):
                later[count] /= most
