"""Arithmetic on shares: exact at the edges of the ring, and nothing but uniform words is seen on the way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pivot_runs import Hall, Together, divided, together

from labelward.protocols.pivot.dealt_shares import KINDS, corrections, drawn
from labelward.protocols.pivot.params import Pivot
from labelward.protocols.pivot.split_finding import left_counts, majority, shared_splits

EDGES = [0, 1, -1, 2, -2, 2**62, -(2**62), 2**63 - 1, -(2**63), -(2**63) + 1, 2**32, -(2**32), 12345678901]


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_signs_and_products_are_exact(parties: int) -> None:
    """Also at the edges; products are those of the ring."""
    rng = np.random.default_rng(0)
    x = np.concatenate([np.array(EDGES), rng.integers(-(2**63), 2**63, size=200)])
    y = np.concatenate([np.array(EDGES[::-1]), rng.integers(-(2**63), 2**63, size=200)])
    xs, ys = divided(x, parties), divided(y, parties, seed=8)

    def program(mpc: Together, place: int) -> tuple[np.ndarray | None, ...]:
        product = mpc.result(mpc.multiply(xs[place], ys[place]))
        return mpc.result(mpc.is_negative(xs[place])), product, mpc.result_bits(mpc.both(xs[place], ys[place]))

    first, *others = together(parties, program)
    assert all(each == (None, None, None) for each in others)
    np.testing.assert_array_equal(first[0].astype(np.int64), x < 0)
    np.testing.assert_array_equal(first[1], x.view(np.uint64) * y.view(np.uint64))
    bits = [np.bitwise_xor.reduce(each) for each in (xs, ys)]
    np.testing.assert_array_equal(first[2], bits[0] & bits[1])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_dealt_shares_fit(kind: str) -> None:
    seeds, count = [bytes([place]) * 32 for place in range(3)], 1000
    parts = np.stack([drawn(seed, kind, 5, count) for seed in seeds])
    parts[0, -1] = corrections(seeds, kind, 5, count)
    added = parts.sum(axis=0, dtype=np.uint64)
    mixed = np.bitwise_xor.reduce(parts)
    expected = {
        "products": lambda: (added[2], added[0] * added[1]),
        "ands": lambda: (mixed[2], mixed[0] & mixed[1]),
        "words": lambda: (added[1], mixed[0]),
        "bits": lambda: (added[1], mixed[0] & np.uint64(1)),
        "zeros": lambda: (added[0], np.zeros(count)),
        "blanks": lambda: (mixed[0], np.zeros(count)),
    }[kind]()
    np.testing.assert_array_equal(*expected)
    assert len(np.unique(parts)) == parts.size  # no share twice, also of other parties
    assert not np.intersect1d(parts, drawn(seeds[0], kind, 6, count)).size


def table(draw: np.random.Generator, nodes: int, candidates: int, classes: int, most: int) -> tuple[np.ndarray, ...]:
    left = draw.integers(0, most, size=(nodes, candidates, classes))
    totals = left.max(axis=1) + draw.integers(0, most, size=(nodes, classes))
    return left, totals


def plain_split(left: np.ndarray, totals: np.ndarray, params: Pivot) -> tuple[int, int]:
    """Return whether a node splits and where, with whole numbers of Python."""
    whole = totals.tolist()
    above, below, best = sum(each**2 for each in whole), sum(whole), None
    for place, counts in enumerate(left.tolist()):
        rest = [total - count for total, count in zip(whole, counts, strict=True)]
        n_left, n_right = sum(counts), sum(rest)
        if min(n_left, n_right) < params.min_rows:
            continue
        numerator = n_right * sum(each**2 for each in counts) + n_left * sum(each**2 for each in rest)
        if numerator * below > above * n_left * n_right:
            above, below, best = numerator, n_left * n_right, place
    splits = best is not None and sum(whole) >= params.min_node_rows
    return int(splits), best if best is not None else -1


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(2, 4), st.sampled_from([2, 5, 600]), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_the_best_split_is_that_of_whole_numbers(
    seed: int, candidates: int, classes: int, most: int, min_rows: int
) -> None:
    """With ties, empty sides, nodes of one class and small nodes; the first of ties wins."""
    rng, params = np.random.default_rng(seed), Pivot(min_rows=min_rows, min_node_rows=4)
    left, totals = table(rng, 3, candidates, classes, most)
    left[0, rng.integers(candidates)] = 0
    left[1, :, 1:], totals[1, 1:] = 0, 0
    left[2, -1] = left[2, 0]
    lefts, wholes = divided(left, 3), divided(totals, 3, seed=9)

    def program(mpc: Together, place: int) -> list[np.ndarray | None]:
        bits, places = shared_splits(mpc, lefts[place], wholes[place], params)
        return [mpc.result(bits), mpc.result(places), mpc.result(majority(mpc, wholes[place]))]

    bits, places, classes_of = together(3, program)[0]
    for node in range(3):
        splits, place = plain_split(left[node], totals[node], params)
        assert bits[node] == splits
        assert not splits or places[node] == place
    np.testing.assert_array_equal(classes_of, totals.argmax(axis=1))


def test_gains_of_the_most_rows_fit() -> None:
    """Half of the rows on either side, all of one class: the largest products there are."""
    rows = 10_808
    params = Pivot()
    params.check_rows(rows, 3)
    left = np.array([[[rows // 4, rows // 4], [rows // 2, 0], [rows // 2 - 1, 0]]])
    totals = np.array([[rows // 2, rows // 2]])
    lefts, wholes = divided(left, 3), divided(totals, 3)
    bits, places = together(
        3, lambda mpc, at: [mpc.result(each) for each in shared_splits(mpc, lefts[at], wholes[at], params)]
    )[0]
    assert (bits[0], places[0]) == (1, 1)


def test_left_counts() -> None:
    cells = np.arange(14, dtype=np.uint64).reshape(7, 2)
    found = left_counts(cells, np.array([3, 5, 7]), np.array([False, True, False]))
    np.testing.assert_array_equal(found[:, 0], [0, 2, 6, 6, 8, 10, 22])


def test_what_is_opened_on_the_way_is_uniform_and_no_mask_serves_twice() -> None:
    """A mask that served twice would let differences of opened words be differences of secrets, which are small.

    Each bit of the words that all can add up has a mean of one half within 5 standard errors, whatever the values; two
    words that differ by less than 2^16 among 130,000 have a probability below 1e-4.
    """
    for values in (np.zeros(1500, np.int64), np.full(1500, 3), np.arange(1500)):
        shares, hall = divided(values, 3), Hall(3)

        def program(mpc: Together, place: int, shares: list[np.ndarray] = shares) -> None:
            product = mpc.multiply(shares[place], shares[place])
            mpc.result(mpc.is_negative(product))

        together(3, program, hall)
        sent = [np.stack(list(each.values())) for each in hall.opened.values()]
        added = np.concatenate([each.sum(axis=0, dtype=np.uint64).ravel() for each in sent[:2]])
        bitwise = np.concatenate([np.bitwise_xor.reduce(each).ravel() for each in sent[2:-2]])
        alone = np.concatenate([share.ravel() for each in sent for share in each if share.max() > 1])
        for words in (added, bitwise, alone):
            bits = (words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
            assert abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(words))
        gaps = np.diff(np.sort(np.concatenate([added, alone])))
        assert gaps.min() > 1 << 16


def test_a_reused_mask_would_show() -> None:
    """The control of the test above."""
    shares, hall = divided(np.arange(1500), 3), Hall(3)

    def program(mpc: Together, place: int) -> None:
        mpc.multiply(shares[place], shares[place])
        mpc._requests = 0
        mpc.multiply(shares[place] + mpc.constant(1, (1500,)), shares[place])

    together(3, program, hall)
    added = np.concatenate([sum(each.values()).ravel() for each in hall.opened.values()])
    assert np.diff(np.sort(added)).min() <= 1
