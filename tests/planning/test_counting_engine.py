"""The counting engine against the engines that it counts for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelward.he import Engine, Layout, engine
from labelward.planning.counting_engine import CountingEngine
from labelward.rng import SecureRandom

BITS = {"plain": 0, "paillier": 512}


def sums_of(made: Engine, bits: int, values: NDArray[np.int64], groups: NDArray[np.int32]) -> tuple[Any, int]:
    """Sum encrypted rows in two stretches and some of them once more; return the sums and the additions counted."""
    layout, protection = Layout(bounds=(7, 100_000, 3), rows=3 * len(values), logical=3), SecureRandom()
    private = made.generate(bits, protection=protection, insecure=True)
    public = made.public(private.public.material(), protection=protection, insecure=True)
    rows = public.allocate_rows(layout, len(values))
    for block in private.encrypt_blocks(values, layout, 10):
        rows.add(block)
    half = len(values) // 2
    total = rows.group_sums(groups[:half], 4) + rows.group_sums(groups[half:], 4, half)
    total = total + rows.group_sums(np.where(groups == 1, groups, np.int32(-1)), 4)
    sealed = total.take(np.arange(0, 4 * groups.shape[1], 2)).rerandomize()
    return private.decrypt(sealed).tolist(), public.counts.additions


@pytest.mark.slow
@pytest.mark.parametrize("name", BITS)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(2, 60), columns=st.integers(1, 5))
def test_additions_and_sums_are_those_of_the_priced_engine(name: str, seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, (rows, 3))
    groups = rng.integers(-1, 4, (rows, columns)).astype(np.int32)
    priced = engine(name)
    counting = CountingEngine(priced)
    found = sums_of(priced, BITS[name], values, groups)
    assert (sums_of(counting, 0, values, groups)[0], counting.total.number) == found
    assert counting.total.effort >= counting.total.number


def test_formats_are_as_wide_as_the_sums() -> None:
    """More rows make wider sums, so that fewer of them fit side by side."""
    narrow, wide = (engine("paillier").ciphertext_format(Layout((1000,), rows, 1), 512) for rows in (10, 10 << 20))
    assert wide.fits[0] < narrow.fits[0]
    assert narrow.size == wide.size == 128
    assert (narrow.sealed(0), narrow.sealed(1), narrow.sealed(narrow.fits[0] + 1)) == (0, 1, 2)
