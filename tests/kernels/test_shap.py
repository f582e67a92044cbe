"""Shapley values of trees, against their definition."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelward.kernels.shap import add_shapley_values, coalition_weights

Floats = NDArray[np.float64]


def random_tree(rng: np.random.Generator, splits: int) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """Return left, right and the depth; each new split takes the place of a leaf drawn among those that there are."""
    links, depth = np.zeros((splits, 2), np.int32), [1]
    open_ends = [(0, 0), (0, 1)] if splits else []
    for split in range(1, splits):
        above, side = open_ends.pop(int(rng.integers(len(open_ends))))
        links[above, side] = split
        depth.append(depth[above] + 1)
        open_ends += [(split, 0), (split, 1)]
    for leaf, (above, side) in enumerate(open_ends):
        links[above, side] = -1 - leaf
    return np.ascontiguousarray(links[:, 0]), np.ascontiguousarray(links[:, 1]), max(depth)


def by_definition(
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    columns: NDArray[np.int32],
    weights: Floats,
    x: NDArray[np.bool_],
    z: NDArray[np.bool_],
    players: int,
) -> Floats:
    """Sum over all coalitions; x, z: bool [splits]."""

    def output(coalition: set[int]) -> Floats:
        at = 0
        while at >= 0 and len(left):
            goes_left = (x if columns[at] in coalition else z)[at]
            at = int(left[at] if goes_left else right[at])
        return weights[-1 - at if len(left) else 0]

    values = np.zeros((players, weights.shape[1]))
    for player in range(players):
        others = [other for other in range(players) if other != player]
        for size in range(players):
            share = math.factorial(size) * math.factorial(players - size - 1) / math.factorial(players)
            for coalition in combinations(others, size):
                values[player] += share * (output({*coalition, player}) - output(set(coalition)))
    return values


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    splits=st.integers(0, 14),
    players=st.integers(1, 6),
    outputs=st.integers(1, 3),
    rows=st.integers(1, 3),
    others=st.integers(1, 3),
)
def test_against_the_definition(seed: int, splits: int, players: int, outputs: int, rows: int, others: int) -> None:
    rng = np.random.default_rng(seed)
    left, right, depth = random_tree(rng, splits)
    columns = rng.integers(0, players, splits).astype(np.int32)
    weights = rng.normal(size=(splits + 1, outputs))
    x, z = rng.random((splits, rows)) < 0.5, rng.random((splits, others)) < 0.5
    values = np.zeros((rows, players, outputs))
    add_shapley_values((left, right), columns, weights, x, z, coalition_weights(depth), values)
    for row in range(rows):
        each = [
            by_definition(left, right, columns, weights, x[:, row], z[:, other], players) for other in range(others)
        ]
        # sums of at most 15 leaves and 32 coalitions, of numbers of size 1
        np.testing.assert_allclose(values[row], np.mean(each, axis=0), rtol=0, atol=1e-12)


def test_values_are_added() -> None:
    left, right = np.array([-1], np.int32), np.array([-2], np.int32)
    values = np.full((1, 1, 1), 10.0)
    sides = (np.array([[True]]), np.array([[False]]))
    add_shapley_values(
        (left, right), np.zeros(1, np.int32), np.array([[3.0], [1.0]]), *sides, coalition_weights(1), values
    )
    assert values.item() == 12.0


@pytest.mark.parametrize("depth", [1, 20])
def test_coalition_weights_are_those_of_orders(depth: int) -> None:
    """The chance that, in a random order of u + v columns, a certain one of the u closes their head of the order."""
    table = coalition_weights(depth)
    assert table[0].tolist() == [0.0] * (depth + 1)
    assert table[1, 0] == 1.0
    for u in range(1, depth + 1):
        for v in range(depth + 1 - u):
            assert table[u, v] == pytest.approx(1 / (math.comb(u + v, u) * u), rel=1e-14)
