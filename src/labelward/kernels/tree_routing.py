"""Routing rows through one tree, from the side that each row takes at each of its splits."""

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit


@jit
def route_rows(left: NDArray[np.int32], right: NDArray[np.int32], sides: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return int32 [rows]: the leaf that each row reaches.

    Args:
        left: int32 [splits]: where a split's rows go on the left: the position of another split, or ``-1 - leaf``.
            Split 0 is the root.
        right: the same for the right.
        sides: bool [splits, rows]: whether the row goes left.
    """
    rows = sides.shape[1]
    leaves = np.zeros(rows, dtype=np.int32)
    if len(left) == 0:
        return leaves
    for row in range(rows):
        at = np.int32(0)
        while at >= 0:
            at = left[at] if sides[at, row] else right[at]
        leaves[row] = -1 - at
    return leaves
