"""What labels make of trees that have been grown: gains at all nodes, how well they explain the splits, derivatives.

Nodes of all trees are numbered throughout, a parent before its children and a right child after its left one. With G
the sums of p - q over rows and w = unit / (sum of h + λ), a candidate gains Σ_outputs G_L² w_L + G_R² w_R - G² w.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.jit import Whole, jit

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MUTE, STOPPED, OTHERS, OWN = range(4)  # of a node: tells nothing; no split known; split of another party; own split

_NEGLIGIBLE = -16.0  # logarithm of a share of a choice
_MISSED, _CAP = 0.5, 5.0  # violation where no pure node stops, and the largest one of a node


class Grown(NamedTuple):
    """Trees, and what a party could offer at their nodes. T trees, n rows, N nodes, C candidate columns of B bins.

    Attributes:
        leaf: int64 [T, n]: the deepest known node of each row; -1: not in the tree's sample.
        tree: int64 [N].
        parent: int64 [N]; -1 for a root.
        left: int64 [N]: the left child; -1 where no split is known.
        choice: int8 [N]: MUTE, STOPPED, OTHERS or OWN.
        codes: int32 [n, F]: bins of all own columns.
        columns: int64 [T, C]: the columns drawn for each tree, then -1.
        ordered: bool [F]: whether a candidate sends all bins up to one to the left, or that one only.
        valid: bool [N, C, B]: whether the candidate exists.
    """

    leaf: Integers
    tree: Integers
    parent: Integers
    left: Integers
    choice: NDArray[np.int8]
    codes: NDArray[np.int32]
    columns: Integers
    ordered: NDArray[np.bool_]
    valid: NDArray[np.bool_]


class Sums(NamedTuple):
    """Sums over the rows of nodes, and the weights of their squares.

    Attributes:
        left: float64 [N, C, B, O]: G on the left of each candidate.
        total: float64 [N, O]: G of each node.
        left_weight: float64 [N, C, B, O].
        right_weight: float64 [N, C, B, O].
        weight: float64 [N, O].
    """

    left: Floats
    total: Floats
    left_weight: Floats
    right_weight: Floats
    weight: Floats


@jit
def node_sums(grown: Grown, bins: int, p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Return the sums of p - q on the left of each candidate, float64 [N, C, B, O], and of each node [N, O].

    Args:
        grown: of which ``valid`` is not read.
        bins: B.
        p: float64 [T or 1, n, O].
        q: float64 [n, O].
    """
    trees, rows = grown.leaf.shape
    count, width, outputs = len(grown.parent), grown.columns.shape[1], q.shape[1]
    sums, total = np.zeros((count, width, bins, outputs)), np.zeros((count, outputs))
    for tree in range(trees):
        plane = min(tree, len(p) - 1)
        for row in range(rows):
            node = grown.leaf[tree, row]
            if node < 0:
                continue
            for output in range(outputs):
                value = p[plane, row, output] - q[row, output]
                total[node, output] += value
                for c in range(width):
                    column = grown.columns[tree, c]
                    if column >= 0:
                        sums[node, c, grown.codes[row, column], output] += value
    for node in range(count - 1, -1, -1):
        above = grown.parent[node]
        if above >= 0:
            sums[above] += sums[node]
            total[above] += total[node]
        for c in range(width):  # the node's children have added theirs
            column = grown.columns[grown.tree[node], c]
            if column >= 0 and grown.ordered[column]:
                for b in range(1, bins):
                    for output in range(outputs):
                        sums[node, c, b, output] += sums[node, c, b - 1, output]
    return sums, total


@jit
def choice_gradients(
    grown: Grown, sums: Sums, sharpness: tuple[float, float], hidden: float, by_left: Floats, by_total: Floats
) -> float:
    """Return -Σ_nodes log(share of what was chosen), and fill its derivatives by ``sums.left`` and ``sums.total``.

    The shares are those of exp(gain / τ) over the own candidates, the split seen, and to stop, which gains 0.

    Args:
        grown: trees.
        sums: under the labels.
        sharpness: τ is the first × the node's largest gain + the second.
        hidden: probability that a node which was not seen to split did, out of sight.
        by_left: float64, overwritten.
        by_total: float64, overwritten.
    """
    count, width, bins, outputs = sums.left.shape
    gains = np.empty((width, bins))
    by_left[:], by_total[:] = 0.0, 0.0
    value = 0.0
    for node in range(count):
        if grown.choice[node] == MUTE:
            continue
        whole = 0.0
        for o in range(outputs):
            whole += sums.total[node, o] ** 2 * sums.weight[node, o]
        top = 0.0
        for c in range(width):
            for b in range(bins):
                if grown.valid[node, c, b]:
                    gain = -whole
                    for o in range(outputs):
                        a = sums.left[node, c, b, o]
                        r = sums.total[node, o] - a
                        gain += a * a * sums.left_weight[node, c, b, o] + r * r * sums.right_weight[node, c, b, o]
                    gains[c, b] = gain
                    top = max(top, gain)
        split, child = grown.choice[node] != STOPPED, grown.left[node]
        seen = 0.0
        if split:
            seen = -whole
            for o in range(outputs):
                seen += sums.total[child, o] ** 2 * sums.weight[child, o]
                seen += sums.total[child + 1, o] ** 2 * sums.weight[child + 1, o]
            top = max(top, seen)
        tau = sharpness[0] * top + sharpness[1]
        shares = np.exp(-top / tau)
        if grown.choice[node] == OTHERS:
            shares += np.exp((seen - top) / tau)
        for c in range(width):
            for b in range(bins):
                if grown.valid[node, c, b]:
                    logarithm = (gains[c, b] - top) / tau
                    gains[c, b] = np.exp(logarithm) if logarithm > _NEGLIGIBLE else 0.0
                    shares += gains[c, b]
        if split:
            value += np.log(shares) - (seen - top) / tau
            factor = 1.0
        else:
            stop = np.exp(-top / tau) / shares
            value -= np.log((1 - hidden) * stop + hidden)
            factor = (1 - hidden) * stop / ((1 - hidden) * stop + hidden)
        for c in range(width):
            for b in range(bins):
                if grown.valid[node, c, b] and gains[c, b] > 0:
                    share = factor * gains[c, b] / (shares * tau)
                    for o in range(outputs):
                        a = sums.left[node, c, b, o]
                        right = 2 * (sums.total[node, o] - a) * sums.right_weight[node, c, b, o]
                        by_left[node, c, b, o] = share * (2 * a * sums.left_weight[node, c, b, o] - right)
                        by_total[node, o] += share * (right - 2 * sums.total[node, o] * sums.weight[node, o])
        if split:
            share = -1.0 / tau
            if grown.choice[node] == OTHERS:
                share += np.exp((seen - top) / tau) / (shares * tau)
            for o in range(outputs):
                by_total[node, o] -= 2 * share * sums.total[node, o] * sums.weight[node, o]
                for at in (child, child + 1):
                    by_total[at, o] += 2 * share * sums.total[at, o] * sums.weight[at, o]
    return value


@jit
def push_down(grown: Grown, by_left: Floats, by_total: Floats) -> None:
    """Turn derivatives by sums of candidates and nodes into those by a value in each bin and leaf, in place."""
    count, width, bins, outputs = by_left.shape
    for node in range(count):  # a parent comes first
        for c in range(width):
            column = grown.columns[grown.tree[node], c]
            if column >= 0 and grown.ordered[column]:
                for b in range(bins - 2, -1, -1):
                    for o in range(outputs):
                        by_left[node, c, b, o] += by_left[node, c, b + 1, o]
        above = grown.parent[node]
        if above >= 0:
            by_left[node] += by_left[above]
            by_total[node] += by_total[above]


@jit
def row_gradients(
    leaf: Integers, codes: NDArray[np.int32], columns: Integers, by_left: Floats, by_total: Floats
) -> Floats:
    """Return float64 [n, O]: derivatives by the p - q of each row, after :func:`push_down`."""
    trees, rows = leaf.shape
    gradient = np.zeros((rows, by_total.shape[1]))
    for tree in range(trees):
        for row in range(rows):
            node = leaf[tree, row]
            if node < 0:
                continue
            for o in range(gradient.shape[1]):
                gradient[row, o] += by_total[node, o]
                for c in range(columns.shape[1]):
                    column = columns[tree, c]
                    if column >= 0:
                        gradient[row, o] += by_left[node, c, codes[row, column], o]
    return gradient


@jit
def _change(output: int, outputs: int, old: Whole, new: Whole) -> float:
    """Return what p - q of an output changes by when a row's label does; two classes have one output."""
    if outputs == 1:
        return float(old - new)
    if old == new:
        return 0.0
    return 1.0 if output == old else -1.0 if output == new else 0.0


@jit
def _violation(
    grown: Grown, sums: Sums, node: int, below: Whole, row: Whole, old: Whole, new: Whole, pure: bool
) -> float:
    """Return by how much a node contradicts the labels after one change; ``below``: its child with the row, or -1."""
    outputs = sums.total.shape[1]
    split = grown.choice[node] != STOPPED
    if pure:
        return 2 * _CAP if split else 0.0
    whole = 0.0
    for o in range(outputs):
        whole += (sums.total[node, o] + _change(o, outputs, old, new)) ** 2 * sums.weight[node, o]
    best = 0.0
    for c in range(grown.columns.shape[1]):
        column = grown.columns[grown.tree[node], c]
        if column < 0:
            continue
        code = grown.codes[row, column]
        for b in range(grown.valid.shape[2]):
            if grown.valid[node, c, b]:
                inside = b >= code if grown.ordered[column] else b == code
                gain = -whole
                for o in range(outputs):
                    change = _change(o, outputs, old, new)
                    a = sums.left[node, c, b, o] + (change if inside else 0.0)
                    r = sums.total[node, o] + change - a
                    gain += a * a * sums.left_weight[node, c, b, o] + r * r * sums.right_weight[node, c, b, o]
                best = max(best, gain)
    if not split:
        return min(_MISSED + best, _CAP)
    seen = -whole
    for child in (grown.left[node], grown.left[node] + 1):
        for o in range(outputs):
            change = _change(o, outputs, old, new) if child == below else 0.0
            seen += (sums.total[child, o] + change) ** 2 * sums.weight[child, o]
    return max(best - seen, 0.0) + (1.0 if seen <= 1e-9 else 0.0)


@jit
def violations(grown: Grown, sums: Sums, counts: Floats) -> Floats:
    """Return float64 [N]: by how much each node contradicts the labels; ``counts`` [N, K]: its rows of each class."""
    found = np.zeros(len(grown.parent))
    none, zero = np.int64(-1), np.int64(0)
    for node in range(len(found)):
        if grown.choice[node] != MUTE:
            pure = counts[node].max() == counts[node].sum()
            found[node] = _violation(grown, sums, node, none, zero, zero, zero, pure)
    return found


@jit
def relabel_rows(
    grown: Grown,
    sums: Sums,
    found: Floats,
    counts: Floats,
    labels: Integers,
    proposals: tuple[Integers, Integers, Floats],
    prior: float,
) -> None:
    """Change labels of single rows where that costs little, in place; so do all sums, counts and violations.

    The cost is that of all violations, and of labels in leaves by a Dirichlet distribution.

    Args:
        grown: trees.
        sums: under the labels.
        found: from :func:`violations`.
        counts: float64 [N, K].
        labels: int64 [n].
        proposals: rows in order, the shift of each row's label, and the largest cost to be accepted.
        prior: of the Dirichlet distribution.
    """
    classes, bins, outputs = counts.shape[1], grown.valid.shape[2], sums.total.shape[1]
    fresh = np.empty(len(grown.parent))
    for at in range(len(proposals[0])):
        row, limit = proposals[0][at], proposals[2][at]
        old = labels[row]
        new = (old + proposals[1][at]) % classes
        cost, gone = 0.0, 0.0
        for tree in range(len(grown.leaf)):
            node = grown.leaf[tree, row]
            if node >= 0:
                cost += np.log(counts[node, old] - 1 + prior) - np.log(counts[node, new] + prior)
            while node >= 0:
                gone += found[node]
                node = grown.parent[node]
        for tree in range(len(grown.leaf)):
            node, below = grown.leaf[tree, row], np.int64(-1)
            while node >= 0 and cost - gone <= limit:  # no violation is negative
                if grown.choice[node] != MUTE:
                    pure = counts[node, new] + 1 == counts[node].sum()
                    fresh[node] = _violation(grown, sums, node, below, row, old, new, pure)
                    cost += fresh[node] - found[node]
                    gone -= found[node]
                node, below = grown.parent[node], node
        if cost - gone > limit or cost > limit:
            continue
        labels[row] = new
        for tree in range(len(grown.leaf)):
            node = grown.leaf[tree, row]
            while node >= 0:
                counts[node, old] -= 1
                counts[node, new] += 1
                if grown.choice[node] != MUTE:
                    found[node] = fresh[node]
                for o in range(outputs):
                    change = _change(o, outputs, old, new)
                    sums.total[node, o] += change
                    for c in range(grown.columns.shape[1]):
                        column = grown.columns[tree, c]
                        if column >= 0:
                            code = grown.codes[row, column]
                            for b in range(code, bins if grown.ordered[column] else code + 1):
                                sums.left[node, c, b, o] += change
                node = grown.parent[node]
