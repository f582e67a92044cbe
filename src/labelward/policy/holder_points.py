"""What leaves a party where labels lie on several, as policies are asked about it: sums and leaf weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class HolderSums:
    """Sums over the rows that one party labels, before they are encrypted or masked.

    Attributes:
        tree: counted from 0.
        depth: of the nodes.
        part: number of the release within the level; -1 for the sums of the root.
        values: int64 [sums, k], not to be written to: gradient, hessian and count in fixed point.
        one: fixed-point value of a gradient of 1.
    """

    tree: int
    depth: int
    part: int
    values: Integers
    one: float


@dataclass(frozen=True, kw_only=True)
class LeafRelease:
    """Leaf weights that a split client is about to tell one party.

    Attributes:
        party: to whom they would go.
        owner: whether it owns the splits above the leaves, so that it knows all their rows.
        tree: counted from 0.
        nodes: whose children the leaves are.
        weights: float64 [nodes, 2], not to be written to: before the learning rate.
    """

    party: str
    owner: bool
    tree: int
    nodes: tuple[int, ...]
    weights: Floats
