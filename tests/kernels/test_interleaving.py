"""Interleavings, against all labelings counted one by one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelward.kernels.interleaving import posterior


@st.composite
def shuffles(draw: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Symbols of up to nine rows, which of them are of the class, and the shares."""
    rows = draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return (
        rng.integers(0, draw(st.integers(1, 3)), rows).astype(np.int32),
        rng.random(rows) < draw(st.sampled_from([0.0, 0.3, 0.7, 1.0])),
        rng.uniform(0.05, 0.95, rows),
    )


@given(shuffles(), st.booleans())
def test_it_is_the_share_of_all_labelings_that_give_the_symbols(shuffle: Any, both: bool) -> None:
    symbols, inside, share = shuffle
    count, total, weights = int(inside.sum()), 0.0, np.zeros(len(symbols))
    for chosen in itertools.combinations(range(len(symbols)), count):
        other = np.isin(np.arange(len(symbols)), chosen)
        fits = np.array_equal(symbols[other], symbols[inside])
        if fits and (not both or np.array_equal(symbols[~other], symbols[~inside])):
            weight = float(np.prod(np.where(other, share, 1 - share)))
            total, weights = total + weight, weights + weight * other
    found = posterior(symbols, symbols[inside], symbols[~inside] if both else None, share)
    np.testing.assert_allclose(found.inside, weights / total, atol=1e-9)
    assert found.evidence == pytest.approx(np.log(total))


def test_symbols_that_no_shuffle_gives() -> None:
    zeros, ones = np.zeros(2, np.int32), np.ones(2, np.int32)
    found = posterior(np.array([0, 1, 1, 1], np.int32), zeros, ones, np.full(4, 0.5))
    assert found.evidence == -np.inf
    assert np.array_equal(found.inside, np.full(4, 0.5))


def test_many_rows_are_gone_over_in_pieces() -> None:
    """The same as in one piece: a row's posterior is that of the sequences up to where they are known to meet."""
    rng = np.random.default_rng(1)
    inside = rng.random(5000) < 0.3
    symbols = (rng.random(5000) < 0.2).astype(np.int32)
    found = posterior(symbols, symbols[inside], symbols[~inside], np.full(5000, 0.3))
    backward = posterior(
        symbols[::-1].copy(), symbols[inside][::-1].copy(), symbols[~inside][::-1].copy(), np.full(5000, 0.3)
    )
    np.testing.assert_allclose(found.inside, backward.inside[::-1], atol=1e-9)
    assert found.evidence == pytest.approx(backward.evidence)
    assert found.inside.sum() == pytest.approx(inside.sum())


@pytest.mark.parametrize(("inside", "outside", "share"), [(3, 0, 2), (1, 2, 2), (1, 1, 3)])
def test_lengths_that_do_not_fit(inside: int, outside: int, share: int) -> None:
    first, second = (np.zeros(count, np.int32) for count in (inside, outside))
    with pytest.raises(ValueError, match="2 rows"):
        posterior(np.zeros(2, np.int32), first, second, np.full(share, 0.5))


def test_no_rows() -> None:
    nothing = np.zeros(0, np.int32)
    assert posterior(nothing, nothing, nothing, np.zeros(0)).evidence == 0.0
