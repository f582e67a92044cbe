"""Gradients, hessians and metrics against XGBoost: a single row, from a given margin, one leaf."""

import json
import math

import numpy as np
import pytest
import xgboost as xgb
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from blames import refused_about
from labelward.errors import DataError, JobError
from labelward.kernels.objectives import OBJECTIVES, Objective, evaluation_metric, objective, sigmoid
from refusals import refused

LAMBDA = 256.0
"""Large, so that no leaf reaches ``max_delta_step``."""

CASES = [
    ("binary:logistic", {}, [0.0, 1.0]),
    ("reg:squarederror", {}, [-2.5, 0.0, 3.0]),
    ("count:poisson", {"max_delta_step": 0.7}, [0.0, 1.0, 7.0]),
    ("count:poisson", {"max_delta_step": 0.25}, [0.0, 3.0]),
    ("reg:tweedie", {"tweedie_variance_power": 1.5}, [0.0, 0.5, 12.0]),
    ("reg:tweedie", {"tweedie_variance_power": 1.125}, [0.0, 12.0]),
]


def made(name: str, extra: dict[str, float], classes: int = 0) -> Objective:
    return objective(
        name,
        classes=2 if name == "binary:logistic" else classes,
        variance_power=extra.get("tweedie_variance_power", 1.5),
        max_delta_step=extra.get("max_delta_step", 0.0),
    )


def one_leaf(name: str, extra: dict[str, float], margin: list[float], y: float) -> list[tuple[float, float]]:
    """Gradient and hessian of each output as XGBoost has them, read from the leaf's weight and cover."""
    data = xgb.DMatrix(np.zeros((1, 1)), label=[y], base_margin=np.array([margin]))
    classes = {"num_class": len(margin)} if len(margin) > 1 else {}
    params = {"objective": name, "eta": 1.0, "lambda": LAMBDA, "max_depth": 1, "nthread": 1, "verbosity": 0}
    params |= {"min_child_weight": 0.0}
    booster = xgb.train(params | extra | classes, data, 1)
    trees = [json.loads(tree) for tree in booster.get_dump(with_stats=True, dump_format="json")]
    return [(-tree["leaf"] * (tree["cover"] + LAMBDA), tree["cover"]) for tree in trees]


@pytest.mark.parametrize("y", [0, 2])
def test_exact_hessians_of_softmax_are_second_derivatives(y: int) -> None:
    """Central differences of the gradient, whose error is of the order of the square of the step."""
    own, doubled = (objective("multi:softprob", classes=3, exact_hessian=exact) for exact in (True, False))
    margins, labels, step = np.array([[0.3, -1.2, 2.0]]), np.array([float(y)]), 1e-5
    g, h = own.gradients(margins, labels)
    for output in range(3):
        shift = np.zeros((1, 3))
        shift[0, output] = step
        above, below = (own.gradients(margins + sign * shift, labels)[0][0, output] for sign in (1, -1))
        assert h[0, output] == pytest.approx((above - below) / (2 * step), abs=1e-8)
    np.testing.assert_array_equal(g, doubled.gradients(margins, labels)[0])
    np.testing.assert_array_equal(2 * h, doubled.gradients(margins, labels)[1])
    assert h.max() <= own.h_most == 0.25


@pytest.mark.parametrize("margin", [-3.0, -0.5, 0.0, 1.25, 4.0])
@pytest.mark.parametrize(("name", "extra", "targets"), CASES)
def test_gradients_are_those_of_xgboost(
    name: str, extra: dict[str, float], targets: list[float], margin: float
) -> None:
    own = made(name, extra)
    for y in targets:
        g, h = own.gradients(np.array([[margin]]), np.array([y]))
        ((expected_g, expected_h),) = one_leaf(name, extra, [margin], y)
        hessian = float(h[0, 0]) if own.hessians else 1.0
        # XGBoost computes in float32 and prints 9 digits; a leaf's error is multiplied with λ
        assert g[0, 0] == pytest.approx(expected_g, rel=1e-5, abs=1e-5)
        assert hessian == pytest.approx(expected_h, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("y", [0.0, 1.0, 2.0])
def test_gradients_of_several_classes_are_those_of_xgboost(y: float) -> None:
    margin = [0.5, -1.25, 2.0]
    g, h = made("multi:softprob", {}, 3).gradients(np.array([margin]), np.array([y]))
    expected = one_leaf("multi:softprob", {}, margin, y)
    np.testing.assert_allclose(g[0], [each for each, _ in expected], rtol=0, atol=1e-5)
    np.testing.assert_allclose(h[0], [each for _, each in expected], rtol=0, atol=1e-6)


def xgboost_metrics(name: str, extra: dict[str, float], names: list[str], margins: np.ndarray, rows: dict) -> dict:
    """Metrics of given margins: those after a round that adds nothing."""
    data = xgb.DMatrix(np.zeros((len(margins), 1)), base_margin=margins, **rows)
    params = {"objective": name, "eta": 0.0, "eval_metric": names, "nthread": 1, "verbosity": 0}
    history: dict = {}
    xgb.train(params | extra, data, 1, evals=[(data, "own")], evals_result=history, verbose_eval=False)
    return {key: values[-1] for key, values in history["own"].items()}


@pytest.mark.parametrize(
    ("name", "extra", "names"),
    [
        ("binary:logistic", {}, {"logloss": "logloss", "error": "error", "auc": "auc"}),
        ("multi:softprob", {"num_class": 4}, {"auto": "mlogloss", "error": "merror"}),
        ("reg:squarederror", {}, {"auto": "rmse", "mae": "mae"}),
        ("count:poisson", {"max_delta_step": 0.7}, {"auto": "poisson-nloglik", "rmse": "rmse"}),
        (
            "reg:tweedie",
            {"tweedie_variance_power": 1.25},
            {"auto": "tweedie-nloglik@1.25", "mae": "mae"},
        ),
    ],
)
def test_metrics_are_those_of_xgboost(name: str, extra: dict[str, float], names: dict[str, str]) -> None:
    rng = np.random.default_rng(3)
    classes = {"multi:softprob": 4, "binary:logistic": 2}.get(name, 0)
    own = made(name, extra, classes)
    y = rng.integers(0, classes or 6, 400).astype(np.float64)
    margins, weights = np.round(rng.normal(size=(400, own.outputs)), 1), rng.integers(1, 5, 400) / 4
    theirs = xgboost_metrics(name, extra, list(names.values()), margins, {"label": y, "weight": weights})
    for mine, their in names.items():
        value, larger = evaluation_metric(mine, own, margins, y, weights)
        assert value == pytest.approx(theirs[their], rel=2e-6)  # float32
        assert larger == (mine == "auc")


def test_auc_of_several_classes_is_the_mean_of_one_against_the_rest() -> None:
    rng = np.random.default_rng(0)
    own = objective("multi:softprob", classes=3)
    y, margins, weights = np.arange(60) % 3, np.round(rng.normal(size=(60, 3)), 1), rng.random(60)
    p = own.predicted(margins)
    expected = np.mean([roc_auc_score(y == c, p[:, c], sample_weight=weights) for c in range(3)])
    assert evaluation_metric("auc", own, margins, y.astype(float), weights)[0] == pytest.approx(expected, rel=1e-12)
    two = y < 2
    expected = np.mean([roc_auc_score(y[two] == c, p[two, c], sample_weight=weights[two]) for c in range(2)])
    found = evaluation_metric("auc", own, margins[two], y[two].astype(float), weights[two])[0]
    assert found == pytest.approx(expected, rel=1e-12)
    assert evaluation_metric("auc", own, margins[:1], y[:1].astype(float), weights[:1]) == (0.5, True)


@settings(deadline=None)  # the first example compiles
@given(st.floats(-30, 30), st.sampled_from([0.0, 1.0, 0.3]))
def test_logistic_gradients_are_the_derivatives_of_the_loss(margin: float, y: float) -> None:
    own = objective("binary:logistic", classes=2)

    def loss(m: float) -> float:
        return own.loss(np.array([[m]]), np.array([y]), np.ones(1))

    g, h = own.gradients(np.array([[margin]]), np.array([y]))
    step = 1e-3
    # central differences err by step²/6 times the third derivative (below 0.1), and by rounding of a loss up to 30
    assert g[0, 0] == pytest.approx((loss(margin + step) - loss(margin - step)) / (2 * step), abs=1e-7)
    second = (loss(margin + step) - 2 * loss(margin) + loss(margin - step)) / step**2
    assert h[0, 0] == pytest.approx(second, abs=3e-8)  # 4 roundings of 30 (3.6e-15 each) over step²


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1e307, 1e307), st.floats(-50, 50), st.integers(0, 1)), min_size=1, max_size=20))
def test_bounds_hold_for_any_margin(rows: list[tuple[float, float, int]]) -> None:
    margins, y = np.array([row[:2] for row in rows]), np.array([float(row[2]) for row in rows])
    for own, m in [
        (objective("binary:logistic", classes=2), margins[:, :1]),
        (objective("multi:softprob", classes=2), margins),
        (objective("gini", classes=2), margins),
    ]:
        g, h = own.gradients(m, y)
        assert own.bounded
        assert (np.abs(g) <= own.g_most).all()
        assert ((h >= 0) & (h <= own.h_most)).all()
        assert g.shape == (len(y), own.outputs)
        assert h.shape == (len(y), own.hessians)
        if own.implied == "zero":
            np.testing.assert_allclose(g.sum(axis=1), 0, atol=4 * 2.0**-52)  # a rounding for each operation on 1
        if own.implied == "count":
            assert (g.sum(axis=1) == -1).all()
    p = objective("binary:logistic", classes=2).predicted(margins[:, :1])
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=2.0**-51)  # each of the two is rounded three times


def test_known_values() -> None:
    np.testing.assert_array_equal(sigmoid(np.array([[0.0, 800.0], [-800.0, 0.0]])), [[0.5, 1.0], [0.0, 0.5]])
    g, h = objective("binary:logistic", classes=2).gradients(np.zeros((2, 1)), np.array([0.0, 1.0]))
    assert g.tolist() == [[0.5], [-0.5]]
    assert h.tolist() == [[0.25], [0.25]]
    for name in ("reg:squarederror", "variance"):
        g, h = objective(name, classes=0).gradients(np.full((2, 1), 3.0), np.array([1.0, 5.0]))
        assert g.tolist() == [[2.0], [-2.0]]
        assert h.shape == (2, 0)


def test_where_training_starts() -> None:
    y, weights = np.array([1.0, 4.0]), np.array([3.0, 1.0])
    starts = {
        "binary:logistic": (0.75, math.log(3), 0.0),
        "reg:squarederror": (-2.0, -2.0, 1.75),
        "count:poisson": (2.0, math.log(2), math.log(1.75)),
        "reg:tweedie": (2.0, math.log(2), math.log(1.75)),
    }
    for name, (base_score, given_margin, margin) in starts.items():
        own = made(name, {})
        assert own.start(y, weights, base_score).tolist() == pytest.approx([given_margin])
        assert own.start(y, weights, None).tolist() == pytest.approx([margin])
    for name in ("multi:softprob", "gini"):
        own = objective(name, classes=3)
        assert own.start(y, weights, None).tolist() == [0.0, 0.0, 0.0]
        with refused(JobError, "conflict", field="[model] base_score", value=0.5):
            own.start(y, weights, 0.5)
    for bad in (0.0, 1.0, -3.0):
        with refused(JobError, "range", field="[model] base_score", value=bad):
            made("binary:logistic", {}).start(y, weights, bad)
    with refused(JobError, "range", field="[model] base_score", value=0.0):
        made("count:poisson", {}).start(y, weights, 0.0)
    with refused(DataError, "labels"):
        made("reg:tweedie", {}).start(0 * y, weights, None)
    with refused(DataError, "rows"):
        made("reg:squarederror", {}).start(y, 0 * weights, None)


def test_margins_that_overflow_give_infinite_gradients_quietly() -> None:
    g, h = made("count:poisson", {}).gradients(np.array([[1000.0]]), np.array([1.0]))
    assert g[0, 0] == h[0, 0] == np.inf


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("binary:logistic", 2.0),
        ("multi:softprob", 1.5),
        ("multi:softprob", 3.0),
        ("gini", -1.0),
        ("reg:squarederror", math.nan),
        ("variance", math.inf),
        ("count:poisson", -1.0),
        ("reg:tweedie", -0.5),
    ],
)
def test_labels_that_do_not_fit_are_named(name: str, bad: float) -> None:
    own = made(name, {}, 3 if name in ("multi:softprob", "gini") else 0)
    own.check(np.array([0.0, 1.0]))
    with refused_about("row 1,", DataError, "labels") as caught:
        own.check(np.array([0.0, bad, 1.0]))
    np.testing.assert_equal(caught.value.value, bad)


def test_objectives_and_metrics_that_do_not_fit_are_refused() -> None:
    with refused_about("'count:poisson'", JobError, "unknown", field="[model] objective", value="count:poison"):
        objective("count:poison", classes=0)
    for name in OBJECTIVES:
        with refused(JobError, "unsupported", field="[model] objective", value=name):
            objective(name, classes=0 if name in ("binary:logistic", "multi:softprob", "gini") else 2)
    with refused_about("3 classes", JobError, "unsupported", field="[model] objective"):
        objective("binary:logistic", classes=3)
    with refused(JobError, "range", field="[model] tweedie_variance_power", value=2.0):
        objective("reg:tweedie", classes=0, variance_power=2.0)
    own, margins, y = objective("variance", classes=0), np.zeros((2, 1)), np.zeros(2)
    with refused(JobError, "conflict", field="[model] eval_metric", value="auc"):
        evaluation_metric("auc", own, margins, y, np.ones(2))
    with refused(JobError, "unknown", field="[model] eval_metric", value="r2"):
        evaluation_metric("r2", own, margins, y, np.ones(2))
    with pytest.raises(ValueError, match="do not fit"):
        own.gradients(margins, np.zeros(3))


def test_shares_are_predicted_as_they_are() -> None:
    own, shares = objective("gini", classes=3), np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
    np.testing.assert_array_equal(own.predicted(shares), shares)
    assert evaluation_metric("error", own, shares, np.array([0.0, 2.0]), np.array([1.0, 3.0]))[0] == 0.75
    assert own.loss(shares, np.array([0.0, 1.0]), np.ones(2)) == pytest.approx(math.log(2) / 2)
