"""The kernels put together on one table, beside XGBoost on the same bins."""

import numpy as np
import pytest
from sklearn.datasets import make_classification

from labelward.kernels.binning import bin_columns, code_columns
from labelward.kernels.fixed_point import encode
from labelward.kernels.gain import GainRule, best_splits, leaf_weights
from labelward.kernels.histogram import group_sums, level_sums
from labelward.kernels.loss import logistic_gradients

xgboost = pytest.importorskip("xgboost")

BINS, SCALE = 32, 2.0**30


def boost(codes: np.ndarray, y: np.ndarray, new: np.ndarray, depth: int, trees: int) -> np.ndarray:
    """Grow full trees level by level; return the margins of new rows."""
    margin, margin_new = np.zeros(len(y)), np.zeros(len(new))
    rows, rows_new = np.arange(len(y)), np.arange(len(new))
    for _ in range(trees):
        g, h = logistic_gradients(margin, y)
        values = np.stack([encode(g, 30), encode(h, 30), np.ones(len(y), dtype=np.int64)], axis=1)
        slot, slot_new = np.zeros(len(y), dtype=np.int32), np.zeros(len(new), dtype=np.int32)
        for level in range(depth):
            best = best_splits(level_sums(codes, slot, values, 2**level, BINS), SCALE, GainRule())
            column = np.maximum(best.column, 0)
            code = np.where(best.column < 0, BINS, best.code)  # a node that does not split sends all its rows left
            slot = 2 * slot + (codes[rows, column[slot]] > code[slot])
            slot_new = 2 * slot_new + (new[rows_new, column[slot_new]] > code[slot_new])
        weights = leaf_weights(group_sums(slot[:, None], values, 2**depth)[0], SCALE, 1.0, 0.3)
        margin += weights[slot]
        margin_new += weights[slot_new]
    return margin_new


@pytest.mark.parametrize("depth", [3, 6])
def test_trees_on_the_same_bins_predict_as_xgboost_does(depth: int) -> None:
    x, y = make_classification(40000, 23, n_informative=10, n_redundant=4, class_sep=0.8, flip_y=0.05, random_state=0)
    binned = bin_columns(x[:30000], BINS)
    new, y = code_columns(x[30000:], binned.edges), y.astype(np.float64)
    ours = boost(binned.codes, y[:30000], new, depth, trees=5)
    parameters = {"tree_method": "hist", "max_depth": depth, "eta": 0.3, "lambda": 1.0, "min_child_weight": 0.0}
    model = xgboost.train(
        parameters | {"objective": "binary:logistic", "base_score": 0.5, "nthread": 2},
        xgboost.DMatrix(binned.codes.astype(np.float32), y[:30000]),
        5,
    )
    theirs = model.predict(xgboost.DMatrix(new.astype(np.float32)), output_margin=True)
    # XGBoost keeps g and h in 32 bits, which moves sums of 5 weights by about 3e-7; another split moves some by 0.01
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
