"""Exact Shapley values of one tree, from the sides that rows take at its splits.

Interventional ("feature perturbation") values after Lundberg et al., "From local explanations to global understanding
with explainable AI for trees" (Nature Machine Intelligence 2, 2020), Algorithm 3: the game of a row x and a
background row z gives a coalition S of columns the tree's output for the row that has S of x and the rest of z. Its
Shapley values follow in one descent: where x and z part at a split, both ways are taken, and a leaf reached with a set
U of columns of x and V of z counts with (|U|-1)! |V|! / (|U|+|V|)! for each of U, and with minus
|U|! (|V|-1)! / (|U|+|V|)! for each of V. Other than there, a split is known by the sides of x and z alone, so that no
threshold, and no value of another party's column, is needed.
"""

import math

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


def coalition_weights(depth: int) -> Floats:
    """Return float64 [depth + 1, depth + 1]: at (u, v) is (u-1)! v! / (u+v)!; 0 where u = 0."""
    table = np.zeros((depth + 1, depth + 1))
    for u in range(1, depth + 1):
        for v in range(depth + 1 - u):
            table[u, v] = math.factorial(u - 1) * math.factorial(v) / math.factorial(u + v)
    return table


@jit
def add_shapley_values(
    branches: tuple[Ints, Ints],
    columns: Ints,
    weights: Floats,
    rows: NDArray[np.bool_],
    background: NDArray[np.bool_],
    coalitions: Floats,
    values: Floats,
) -> None:
    """Add one tree's Shapley values, averaged over the background, to ``values``.

    Args:
        branches: for each split where left and right lead, as for :func:`~labelward.kernels.node_rows.route_rows`.
        columns: int32 [splits]: a number for each split's column; rows of x and z travel by columns, not by splits.
        weights: float64 [leaves, outputs].
        rows: bool [splits, explained rows]: whether the row goes left.
        background: bool [splits, background rows].
        coalitions: :func:`coalition_weights` of at least the tree's depth.
        values: float64 [explained rows, columns, outputs].
    """
    left, right = branches
    if len(left) == 0:
        return
    most = coalitions.shape[0] + 1
    path_column, path_of_x = np.empty(most, np.int32), np.empty(most, np.bool_)
    waiting, waiting_length = np.empty(most, np.int32), np.empty(most, np.int32)
    waiting_column = np.empty(most, np.int32)
    share = 1.0 / background.shape[1]
    for row in range(rows.shape[1]):
        for other in range(background.shape[1]):
            stack, at, length, of_x = 0, np.int32(0), 0, False
            while True:
                if at < 0:
                    _add_leaf(weights[-1 - at], path_column, path_of_x, length, coalitions, share, values[row])
                    if stack == 0:
                        break
                    stack -= 1
                    at, length = waiting[stack], waiting_length[stack]
                    path_column[length], path_of_x[length] = waiting_column[stack], False
                    length += 1
                    continue
                x_left, z_left = rows[at, row], background[at, other]
                if x_left != z_left:
                    column, found = columns[at], False
                    for place in range(length):
                        if path_column[place] == column:
                            found, of_x = True, path_of_x[place]
                            break
                    if not found:
                        waiting[stack], waiting_length[stack] = (left[at] if z_left else right[at]), length
                        waiting_column[stack] = column
                        stack += 1
                        path_column[length], path_of_x[length] = column, True
                        length += 1
                        of_x = True
                    x_left = x_left if of_x else z_left
                at = left[at] if x_left else right[at]


@jit
def _add_leaf(
    weights: Floats,
    path_column: Ints,
    path_of_x: NDArray[np.bool_],
    length: int,
    coalitions: Floats,
    share: float,
    values: Floats,
) -> None:
    """Add one leaf's contribution to the columns of its path; values: float64 [columns, outputs]."""
    u = 0
    for place in range(length):
        u += path_of_x[place]
    v = length - u
    gain, loss = coalitions[u, v] * share, coalitions[v, u] * share
    for place in range(length):
        factor = gain if path_of_x[place] else -loss
        for output in range(len(weights)):
            values[path_column[place], output] += factor * weights[output]
