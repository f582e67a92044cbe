"""Missing values: a direction is learned at each split, and kept for rows that are met later."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from equivalence import as_reference, assert_lossless, assert_same, encrypted, rich_setting

from crossing import crossed
from labelward.errors import DataError, InputError
from labelward.kernels.binning import EVERYTHING
from labelward.messages.tree import OwnSplit
from labelward.protocols.secureboost.params import SecureBoost
from wiring import Setting, make_labels, make_parts, with_missing

NAN = math.nan
STUMP = SecureBoost(trees=1, depth=1, learning_rate=1.0, reg_lambda=0.0)


def stump(values: list[float], labels: list[int], test: list[float]) -> tuple[Setting, list[float]]:
    """Train one split on a passive party's only column; return the margins of other values."""
    column = np.array(values)[:, None]
    held_out = {"a": np.empty((len(test), 0)), "b": np.array(test)[:, None]}
    setting = Setting({"a": np.empty((len(values), 0)), "b": column}, np.array(labels), STUMP, test=held_out)
    return setting, assert_lossless(setting).active.margins[:, 0].tolist()


def test_missing_values_go_where_they_gain_most() -> None:
    """They are like the small values in one table and like the large ones in the other."""
    values = [1.0, 2.0, 3.0, 4.0, NAN, NAN]
    _, as_small = stump(values, [0, 0, 1, 1, 0, 0], [0.0, 9.0, NAN])
    assert as_small == [-2.0, 2.0, -2.0]
    _, as_large = stump(values, [0, 0, 1, 1, 1, 1], [0.0, 9.0, NAN])
    assert as_large == [-2.0, 2.0, 2.0]


def test_being_missing_may_be_all_that_counts() -> None:
    """All known values go left, however large: the threshold is the largest number."""
    setting, margins = stump([1.0, 2.0, 3.0, NAN, NAN], [0, 0, 0, 1, 1], [-EVERYTHING, EVERYTHING, NAN])
    assert margins == [-2.0, -2.0, 2.0]
    run = setting.run()
    own = run.passive["b"].share.own
    assert own.thresholds == (EVERYTHING,)
    assert own.missing_left == ()
    assert [each.threshold for each in run.views["b"].observed(OwnSplit)] == [EVERYTHING]


def test_without_missing_values_in_a_node_they_go_right() -> None:
    _, margins = stump([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1], [1.0, 4.0, NAN])
    assert margins == [-2.0, 2.0, 2.0]


def test_right_wins_where_both_directions_gain_the_same() -> None:
    """Two missing rows of two classes: either way the split gains as much."""
    values, labels = [1.0, 2.0, NAN, NAN], [0, 1, 0, 1]
    setting, _ = stump(values, labels, [NAN])
    tree = as_reference(setting.run())[0]
    assert all(not split.missing_left for split in tree.splits.values())


def test_a_column_without_any_value_is_never_chosen() -> None:
    parts = make_parts(1, 40, {"a": 1, "b": 2})
    parts["b"][:, 0] = NAN
    for candidates in ("global", "node", "all"):
        params = SecureBoost(trees=2, depth=3, candidates=candidates)  # type: ignore[arg-type]
        run = assert_lossless(Setting(parts, make_labels(1, {"a": parts["a"], "b": parts["b"][:, 1:]}), params))
        assert 0 not in run.passive["b"].share.own.columns


@crossed("candidates,share", ["global", "node", "all"], [0.05, 0.5, 0.95])
def test_lossless_with_missing_values(candidates: str, share: float) -> None:
    """In every party's columns; sums of siblings are still subtracted."""
    parts = make_parts(61, 90, {"active": 2, "left": 2, "right": 2})
    setting = Setting(
        with_missing(61, parts, share),
        make_labels(61, parts),
        SecureBoost(trees=2, depth=4, bins=8, candidates=candidates, row_fraction=0.8),  # type: ignore[arg-type]
        test=with_missing(62, make_parts(62, 30, {"active": 2, "left": 2, "right": 2}), share),
    )
    assert_lossless(setting)


def test_rows_of_missing_values_are_in_no_sum() -> None:
    """The active party takes them for what the node's total leaves over; nothing else about them travels."""
    setting = rich_setting(63, "binary", rows=40)
    plain, secret = encrypted(setting)
    assert_same(plain, secret)
    from labelward.messages.tree import DecryptedSums

    for each in plain.views["active"].observed(DecryptedSums):
        if each.nodes == (0,):
            sums = np.asarray(each.sums.unpack())
            x = setting.parts[each.party][:, list(each.columns)]
            assert sums[..., -1].sum(axis=1).tolist() == (~np.isnan(x)).sum(axis=0).tolist()


def test_infinite_values_are_refused() -> None:
    parts = make_parts(64, 20, {"a": 1, "b": 1})
    parts["b"][3, 0] = math.inf
    with pytest.raises((DataError, InputError, ValueError), match="row 3"):
        Setting(parts, make_labels(64, {"a": parts["a"]}), STUMP).run()


def test_missing_values_at_prediction_only() -> None:
    """A model of complete tables meets gaps: they go right at every split."""
    parts = make_parts(65, 60, {"a": 2, "b": 2})
    test = with_missing(65, parts, 0.5)
    run = assert_lossless(replace(Setting(parts, make_labels(65, parts)), test=test))
    assert all(share.own.missing_left == () for share in run.shares.values())
