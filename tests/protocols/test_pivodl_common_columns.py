"""Columns that two parties of PIVODL have in common: found as they are told, and refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from copied_columns import copying
from labelward.data import VerticalDataset, load_dataset
from labelward.errors import JobError
from labelward.federation.components import make_engine, with_defaults
from labelward.federation.simulation import simulate_job
from labelward.job import Variant, parse_job
from labelward.kernels.split_search import CATEGORICAL
from labelward.messages.pivodl import MISSING
from labelward.party.context import no_progress
from labelward.protocols.common.columns import SourceColumns
from labelward.protocols.pivodl.common_columns import LEAST, refuse_common_columns

Floats = NDArray[np.float64]


def train(data: dict[str, Any], change: Callable[[VerticalDataset], VerticalDataset], **model: Any) -> None:
    """Train a tree of three parties, two of which hold labels, on breast cancer."""
    table = {
        "data": {"table": "breast_cancer", "labels": {"bank": 0.5, "clinic": 0.5}},
        "parties": {"bank": 0.34, "clinic": 0.33, "shop": 0.33},
        "model": {"kind": "pivodl", "trees": 1, "aggregation": "masks", **model},
        "encryption": {"engine": "plain", "insecure": True},
        **data,
    }
    job = with_defaults(parse_job(table))
    variant = job.defenses[-1] if job.defenses else Variant()
    loaded = change(load_dataset(job, 1))
    simulate_job(job, loaded, variant, make_engine(job.encryption), None, seed=1, progress=no_progress)


@pytest.mark.parametrize("exchange", ["codes", "published"])
@pytest.mark.parametrize(("of", "to"), [("bank", "clinic"), ("clinic", "shop"), ("shop", "bank")])
def test_a_column_of_two_parties_is_refused(of: str, to: str, exchange: str) -> None:
    with pytest.raises(JobError) as caught:
        train({}, copying(of, to), exchange=exchange)
    assert (caught.value.code, caught.value.field) == ("columns", "[data] drop")
    assert set(caught.value.value) == {of, to}


@pytest.mark.parametrize("change", [lambda x: -x, np.sqrt, lambda x: 2 * x + 1, np.round, lambda x: x > np.median(x)])
@pytest.mark.parametrize("candidates", ["global", "all"])
def test_one_that_follows_from_the_other_is_refused(change: Callable[[Floats], Floats], candidates: str) -> None:
    with pytest.raises(JobError) as caught:
        train({}, copying("clinic", "shop", change), candidates=candidates)
    assert caught.value.code == "columns"


def test_what_the_job_allows_and_what_noise_hides_is_trained() -> None:
    train({}, copying("clinic", "shop"), common_columns="allow")
    train({"defense": [{"kind": "label-dp-sums", "epsilon": 2.0}]}, copying("clinic", "shop"))
    train({}, lambda data: data)


def columns_of(codes: Any, kind: int = 0) -> SourceColumns:
    """Return one column of a source."""
    found = np.asarray(codes, np.uint16).reshape(-1, 1)
    known = found[found != MISSING]
    return SourceColumns(np.array([known.max(initial=0) + 1], np.int32), np.array([kind], np.int8), found)


def common(one: SourceColumns, other: SourceColumns) -> bool:
    """Return whether the columns of two parties are refused."""
    try:
        refuse_common_columns({"bank": one, "shop": other})
    except JobError:
        return True
    return False


@given(st.lists(st.integers(0, 5), min_size=100, max_size=200), st.booleans())
def test_copies_are_found_whatever_their_bins_are_called(codes: list[int], categorical: bool) -> None:
    """Numbers by their order in either direction, with bins that no row has; categories by any names."""
    one = np.array(codes)
    other = np.array([4, 0, 5, 1, 3, 2])[one] if categorical else 11 - 2 * one
    kind = CATEGORICAL if categorical else 0
    assert common(columns_of(one, kind), columns_of(other, kind)) == (len(one) - np.bincount(one).max() >= LEAST)


@given(st.integers(0, 2**32), st.sampled_from([2, 3, 9, 40, 400]), st.sampled_from([2, 3, 9, 40, 400]))
def test_other_columns_are_not_refused(seed: int, bins: int, others: int) -> None:
    """Not even where each row has a bin of its own, so that every column follows from it."""
    rng = np.random.default_rng(seed)
    one, other = rng.integers(0, bins, 400), rng.integers(0, others, 400)
    for kind in (0, CATEGORICAL):
        assert not common(columns_of(one, kind), columns_of(other))
        assert not common(columns_of(one, kind), columns_of(other, CATEGORICAL))
        assert not common(columns_of(rng.permutation(400), kind), columns_of(other))


def test_coarser_columns_are_common_ones() -> None:
    rng = np.random.default_rng(1)
    value = rng.normal(size=500)
    quantiles, widths = (np.searchsorted(edges, value) for edges in (np.sort(value)[::40], np.linspace(-2, 2, 12)))
    flag = value > 0.5
    assert common(columns_of(quantiles), columns_of(widths))
    assert common(columns_of(np.argsort(np.argsort(value))), columns_of(flag))
    assert common(columns_of(flag), columns_of(~flag, CATEGORICAL))
    town = rng.integers(0, 40, 500)
    assert common(columns_of(town, CATEGORICAL), columns_of(town % 7, CATEGORICAL))


def test_a_holder_of_few_rows_takes_related_columns_for_others() -> None:
    """Of 90 rows it cannot tell whether two columns are one or alike by chance; the docs say so."""
    assert not common(columns_of(np.arange(90) // 3), columns_of(np.arange(90) // 3))


def test_a_flag_that_implies_another_one_is_none() -> None:
    """Who knows that somebody may drive does not know whether they own a car."""
    one = np.arange(400) % 2
    assert not common(columns_of(one), columns_of(one * (np.arange(400) % 4 == 1)))


def test_what_is_missing_counts_and_flags_of_few_rows_agree_by_chance() -> None:
    one = np.arange(400) % 4
    gaps = np.where(np.arange(400) == 7, MISSING, one)
    assert not common(columns_of(one), columns_of(gaps))
    assert common(columns_of(gaps), columns_of(np.where(gaps == MISSING, MISSING, 3 - one)))
    rare = np.arange(400) < LEAST - 1
    assert not common(columns_of(rare), columns_of(rare))
    assert not common(columns_of(one), columns_of((one + np.arange(400) // 399) % 4))
