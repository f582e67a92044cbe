"""Labels from the gains of the party's own splits into two leaves (PIVODL): what noise on leaf weights does not hide.

Setting: any party of PIVODL is curious about the labels of the others. Everybody is told the sums of a node and the
gain of its split, and the source of the split knows which rows go where. With g and h of the left child unknown, and
G and H of the node known, the gain g²/(h + λ) + (G - g)²/(H - h + λ) - G²/(H + λ) - γ leaves two values of g once h is
known: before the first tree exactly, since all hessians are equal, later nearly, as the node's mean times the rows. Of
the two the party takes the one by which its own labels on either side differ, or, without labels on both sides, the one
nearer to the weights that it was told. So the sums of leaves follow whose weights ``partial-dp`` covers with noise. All
other rows are guessed as by :mod:`.node_sums`.

Source: our own; the paper sends gains in clear (Zhu et al., PIVODL, 2023, Section IV-A, step 6) and names no such
attack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from labelward.attacks.node_sums import Floats, NodeSums, Rows
from labelward.attacks.shared_trees import KnownTree
from labelward.kernels.node_rows import children
from labelward.party.view import View

_EXACT = 0.1
"""Told weights are taken for exact if they lie this near to a solution, relative to the distance of both."""


@dataclass(frozen=True, kw_only=True)
class SplitGains(NodeSums):
    """Labels of others from the gains of the party's own splits into two leaves (PIVODL)."""

    kind: ClassVar[str] = "split-gains"

    def _sums_of_others(self, tree: KnownTree, mine: Floats, scale: float, view: View) -> Iterator[tuple[Rows, Floats]]:
        """Yield both leaves of such splits, and what is left of the nodes of :class:`NodeSums`."""
        solved = np.zeros(view.rows, dtype=np.bool_)
        reg_lambda, gamma = view.parameter("model.reg_lambda", 1.0), view.parameter("model.gamma", 0.0)
        for node in sorted(tree.own & tree.gains.keys() & tree.sums.keys()):
            left, right = children(node)
            if left in tree.sums or not {left, right} <= tree.leaf_rows.keys():
                continue
            sides = tree.leaf_rows[left], tree.leaf_rows[right]
            whole = tree.sums[node][:2] / scale
            share = len(sides[0]) / (len(sides[0]) + len(sides[1]))
            hessians = whole[1] * share, whole[1] * (1 - share)
            both = left_gradients(tree.gains[node] + gamma, whole[0], hessians, reg_lambda)
            told = -tree.weights[left] * (hessians[0] + reg_lambda) / view.parameter("model.learning_rate", 0.3)
            g = _likelier(both, whole[0], told, sides, mine)
            for rows, gradients, h in zip(sides, (g, whole[0] - g), hessians, strict=True):
                solved[rows] = True
                yield rows, np.array([gradients, h]) - mine[rows].sum(axis=0)
        for rows, sums in super()._sums_of_others(tree, mine, scale, view):
            yield rows[~solved[rows]], sums


def left_gradients(gain: float, whole: float, hessians: tuple[float, float], reg_lambda: float) -> tuple[float, float]:
    """Return the two sums of gradients of a left child that give a split its gain, the smaller one first.

    Args:
        gain: of the split, with γ added.
        whole: sum of the node's gradients.
        hessians: sums of both children.
        reg_lambda: of the model.
    """
    a, b = max(hessians[0] + reg_lambda, 1e-12), max(hessians[1] + reg_lambda, 1e-12)
    middle = whole * a / (a + b)  # a split there gains -γ
    beyond = gain + whole**2 / max(sum(hessians) + reg_lambda, 1e-12) - whole**2 / (a + b)
    apart = float(np.sqrt(max(beyond, 0.0) * a * b / (a + b)))
    return middle - apart, middle + apart


def _likelier(both: tuple[float, float], whole: float, told: float, sides: tuple[Rows, Rows], mine: Floats) -> float:
    """Return the solution that agrees with the weight told, if that is exact, else with the party's own labels."""
    nearest = min(both, key=lambda g: abs(g - told))
    own = [mine[rows] for rows in sides]
    labeled = [each[each[:, 1] > 0, 0] for each in own]
    if abs(nearest - told) <= _EXACT * (both[1] - both[0]) or not len(labeled[0]) or not len(labeled[1]):
        return nearest
    apart = labeled[0].mean() - labeled[1].mean()
    return min(both, key=lambda g: abs(g / len(sides[0]) - (whole - g) / len(sides[1]) - apart))
