"""What is done with a model after training, from the shares that training leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xgboost
from random_models import Floats, Model, converse

from labelward.party.context import Context
from labelward.protocols.secureboost.explain import Explanation, columns_active, columns_passive, explain, importance
from labelward.protocols.secureboost.export import export_active, export_passive
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel
from labelward.protocols.secureboost.plot import draw_text
from labelward.protocols.secureboost.predict import predict_active, predict_passive
from wiring import Setting

ROWS = 240
CASES: list[tuple[TreeModel, tuple[str, ...]]] = [
    (SecureBoost(trees=6, depth=4), ("0", "1")),
    (SecureBoost(trees=4, depth=3), ("a", "b", "c")),
    (SecureBoost(trees=4, depth=3, multi_strategy="one_output_per_tree"), ("a", "b", "c")),
    (SecureBoost(trees=6, depth=4), ()),
    (SecureBoost(trees=6, depth=3, objective="count:poisson"), ()),
    (FederatedForest(trees=5, depth=4, row_fraction=0.7), ("a", "b", "c")),
    (FederatedForest(trees=5, depth=4, row_fraction=0.7, replace=True), ()),
]


def parts() -> dict[str, Floats]:
    """Draw float32 values, some missing, and one categorical column for each passive party."""
    rng = np.random.default_rng(5)
    drawn = {
        party: rng.normal(size=(ROWS, 3)).astype(np.float32).astype(np.float64) for party in ("bank", "telco", "shop")
    }
    for party in ("telco", "shop"):
        drawn[party][:, 2] = rng.integers(0, 7, ROWS)
    for x in drawn.values():
        x[rng.random(x.shape) < 0.1] = np.nan
    return drawn


@pytest.mark.parametrize(("params", "classes"), CASES)
def test_after_training(params: TreeModel, classes: tuple[str, ...], tmp_path: Path) -> None:
    """Both modes predict what training predicted, to the last bit; SHAP values add up; XGBoost predicts the same."""
    x = parts()
    score = np.nan_to_num(x["bank"][:, 0]) + np.nan_to_num(x["telco"][:, 2]) / 3 + np.nan_to_num(x["shop"][:, 1])
    labels = np.argsort(np.argsort(score)) * len(classes) // ROWS if classes else np.abs(score)
    names = tuple(f"v{code}" for code in range(7))
    setting = Setting(x, labels, params, classes=classes, categories={party: {2: names} for party in ("telco", "shop")})
    run = setting.run()
    model = Model(run.shares, {"bank": [0, 0, 0], "telco": [0, 0, 7], "shop": [0, 0, 7]})
    share, own = run.active.share, {"bank": (run.active.share.own, x["bank"])}
    path = tmp_path / "model.json"

    def lead(ctx: Context) -> tuple[Floats, Explanation]:
        levels = predict_active(ctx, share, own, ROWS, mode="levels")
        features = columns_active(ctx, share)
        assert sum(each.weight for each in importance(share, features)) == sum(len(tree.nodes) for tree in share.trees)
        told = explain(ctx, share, features, own, 40, ROWS - 40)
        export_active(ctx, share, path, purpose="a comparison")
        return levels, told

    def follow(ctx: Context) -> None:
        predict_passive(ctx, run.shares[ctx.party], x[ctx.party])
        columns_passive(ctx, run.shares[ctx.party])
        predict_passive(ctx, run.shares[ctx.party], x[ctx.party])
        export_passive(ctx, run.shares[ctx.party], consent=True)

    levels, told = converse(model, lead, follow)[0]["bank"]
    assert levels.tobytes() == run.active.margins.tobytes()
    np.testing.assert_allclose(told.values.sum(axis=1), levels[:40] - levels[40:].mean(axis=0), rtol=0, atol=1e-9)
    booster = xgboost.Booster(model_file=str(path))
    data = xgboost.DMatrix(
        np.concatenate([*x.values()], axis=1).astype(np.float32), feature_names=booster.feature_names,
        feature_types=booster.feature_types, enable_categorical=True,
    )  # fmt: skip
    got = booster.predict(data, output_margin=True).reshape(levels.shape)
    np.testing.assert_allclose(got, levels, rtol=1e-6, atol=1e-6)  # float32 sums of a few numbers of size 1
    assert draw_text(share, 0).startswith("tree 0")
