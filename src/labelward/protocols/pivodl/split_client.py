"""What a split client decides of a node: the best candidates of a source, from the sums over all label holders."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.gain import best_splits
from labelward.kernels.noisy_gain import best_noisy_splits
from labelward.kernels.split_candidates import Candidates, candidates
from labelward.messages.pivodl import (
    Candidate,
)
from labelward.protocols.common.columns import SourceColumns
from labelward.protocols.pivodl.fixed import Fixed

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def best_candidates(
    columns: SourceColumns, sums: Integers, totals: Integers, fixed: Fixed, allowed: NDArray[np.bool_] | None = None
) -> list[tuple[float, tuple[Candidate, ...], Integers]]:
    """Return for each node the largest gain of a source, its candidates, and the left sums of each of them.

    Args:
        columns: sizes and kinds of the source's columns.
        sums: int64 [nodes, cells, k].
        totals: int64 [nodes, k].
        allowed: bool [nodes, columns, 2, bins], missing values on the right, then on the left; None: all. Categories
            are then split one against the rest.

    Returns:
        For each node the gain (minus infinity for none), one candidate for each column that reaches it, and int64
        [candidates, k].
    """
    numbers, scales, rule = fixed.numbers, fixed.scales, fixed.params.rule
    laid_out, noise = columns.laid_out(sums), fixed.noise
    if noise is not None:
        laid_out, variance = noise.reconciled(laid_out, totals, numbers, scales)
    offered = candidates(
        laid_out,
        totals,
        numbers,
        scales,
        rule,
        kinds=columns.kinds,
        sizes=columns.sizes,
        **({} if allowed is None else {"onehot": int(columns.sizes.max(initial=1)) + 1}),
    )
    width = offered.left.shape[2]
    gains, picks, lefts = [], [], []
    for column in range(len(columns.sizes)):
        orders = {0: offered.orders[column]} if column in offered.orders else {}
        one = Candidates(
            offered.left[:, column : column + 1], offered.bins, offered.one_hot[column : column + 1], orders
        )
        open_to = None if allowed is None else allowed[:, column].reshape(len(totals), 1, -1)[:, :, :width]
        kind = columns.kinds[column : column + 1]
        if noise is None:
            found = best_splits(one, totals, numbers, scales, rule, kinds=kind, allowed=open_to)
        else:
            found = best_noisy_splits(
                one, totals, numbers, scales, rule, noise=noise, variance=variance[column], allowed=open_to
            )
        gains.append(found.gain)
        lefts.append(found.left)
        picks.append(
            [None if at < 0 else one.chosen(node, 0, int(at)) for node, at in enumerate(found.candidate.tolist())]
        )
    result: list[tuple[float, tuple[Candidate, ...], Integers]] = []
    for node in range(len(totals)):
        best = max((each[node] for each in gains), default=-np.inf)
        if best == -np.inf:
            result.append((-np.inf, (), np.zeros((0, numbers.k), dtype=np.int64)))
            continue
        tied = [column for column, each in enumerate(gains) if each[node] == best]
        chosen = [pick for column in tied if (pick := picks[column][node]) is not None]
        named = tuple(Candidate(column, *pick) for column, pick in zip(tied, chosen, strict=True))
        result.append((float(best), named, np.stack([lefts[column][node] for column in tied])))
    return result


class Decided(NamedTuple):
    """What a split client knows of a node for one source."""

    gain: float
    tied: tuple[Candidate, ...]
    left: Integers
