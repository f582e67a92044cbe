"""Export to XGBoost: equal predictions, by consent of every party only."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import Floats, Model, converse, make_model

from blames import blamed, refused_about
from labelward.errors import OutputError, PolicyError
from labelward.kernels.binning import EVERYTHING
from labelward.messages.explain import ExportConsent, ExportDecision, ExportRecords, ExportRequest
from labelward.protocols.secureboost.export import export_active, export_passive
from labelward.protocols.secureboost.xgboost_json import above
from refusals import refused


def exported(model: Model, folder: Path, **answer: Any) -> tuple[xgboost.Booster, Any]:
    path = folder / "model.json"
    _, views = converse(
        model,
        lambda ctx: export_active(ctx, model.active, path, purpose="a comparison"),
        lambda ctx: export_passive(ctx, model.shares[ctx.party], **{"consent": True, "names": True, **answer}),
    )
    return xgboost.Booster(model_file=str(path)), views


def matrix(booster: xgboost.Booster, model: Model, table: dict[str, Floats]) -> xgboost.DMatrix:
    x = np.concatenate([table[party] for party in model.parties], axis=1)
    x[x == -1] = np.where(_categorical(model), np.nan, -1.0)[np.nonzero(x == -1)[1]]
    return xgboost.DMatrix(
        x.astype(np.float32), feature_names=booster.feature_names, feature_types=booster.feature_types,
        enable_categorical=True,
    )  # fmt: skip


def _categorical(model: Model) -> list[bool]:
    return [bool(size) for party in model.parties for size in model.kinds[party]]


def transformed(objective: str, margins: Floats) -> Floats:
    """What XGBoost's ``predict`` gives for an objective, in doubles."""
    match objective:
        case "binary:logistic":
            return 1 / (1 + np.exp(-margins[:, 0]))
        case "multi:softprob":
            return np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)
        case "count:poisson" | "reg:tweedie":
            return np.exp(margins[:, 0])
    return margins[:, 0] if margins.shape[1] == 1 else margins


CASES = [
    ("secureboost", "binary:logistic", 1, False),
    ("secureboost", "multi:softprob", 3, False),
    ("secureboost", "multi:softprob", 4, True),
    ("secureboost", "reg:squarederror", 1, False),
    ("secureboost", "count:poisson", 1, False),
    ("secureboost", "reg:tweedie", 1, False),
    ("forest", "gini", 2, False),
    ("forest", "gini", 5, False),
    ("forest", "variance", 1, False),
]


@pytest.mark.parametrize("categories", [False, True])
@pytest.mark.parametrize(("kind", "objective", "outputs", "each_output"), CASES)
def test_xgboost_predicts_the_same(
    kind: str, objective: str, outputs: int, each_output: bool, categories: bool, tmp_path: Path
) -> None:
    """With missing values, values that are thresholds and no float32, categories and a base; unknown categories are
    given to XGBoost as missing."""
    base = (0.0,) * outputs if objective == "gini" else tuple(np.linspace(-1.5, 0.75, outputs).tolist())
    model = make_model(
        outputs, trees=12, depth=5, kind=kind, objective=objective, outputs=outputs, each_output=each_output,
        categories=categories, base=base,
    )  # fmt: skip
    table = model.table(np.random.default_rng(1), 500)
    margins = model.margins(table)
    booster, _ = exported(model, tmp_path)
    data = matrix(booster, model, table)
    got = booster.predict(data, output_margin=True).reshape(margins.shape)
    # float32 sums of 13 numbers, up to 10 in size: each addition rounds by at most 5e-7
    np.testing.assert_allclose(got, margins, rtol=1e-6, atol=2e-6)
    np.testing.assert_allclose(booster.predict(data), transformed(objective, margins), rtol=4e-6, atol=1e-6)
    assert booster.num_boosted_rounds() == (12 // outputs if each_output else 12)
    assert booster.num_features() == 8


@pytest.mark.parametrize("objective", ["binary:logistic", "count:poisson", "reg:squarederror"])
@pytest.mark.parametrize("base", [-12.0, 9.0])
def test_large_bases_are_kept(objective: str, base: float, tmp_path: Path) -> None:
    model = make_model(2, objective=objective, base=(base,))
    table = model.table(np.random.default_rng(2), 50)
    booster, _ = exported(model, tmp_path)
    got = booster.predict(matrix(booster, model, table), output_margin=True)
    np.testing.assert_allclose(got, model.margins(table)[:, 0], rtol=1e-6)  # float32


def test_a_tree_that_does_not_split(tmp_path: Path) -> None:
    model = make_model(3, fill=0.0, base=(0.5,))
    table = model.table(np.random.default_rng(3), 4)
    booster, _ = exported(model, tmp_path)
    got = booster.predict(matrix(booster, model, table), output_margin=True)
    np.testing.assert_allclose(got, model.margins(table)[:, 0], rtol=1e-6)


# -- thresholds ------------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(st.floats(allow_nan=False), st.floats(allow_nan=False), st.integers(-2, 2))
def test_values_go_the_same_way_in_float32(threshold: float, value: float, near: int) -> None:
    """Left is x ≤ t just where it is x < c in float32: for any x that float32 can tell from t, for t, for those next
    to it in float32, and in double for those below."""
    with np.errstate(over="ignore"):
        bound, rounded = above(np.array([threshold]))[0], np.float32(threshold)
        beside = rounded
        for _ in range(abs(near)):
            beside = np.nextafter(beside, np.float32(np.copysign(np.inf, near)))
        below = float(np.nextafter(threshold, -np.inf))
        for x in (value, threshold, below, float(beside)):
            if np.isfinite(np.float32(x)) and (x <= threshold or np.float32(x) != rounded):
                assert (np.float32(x) < bound) == (x <= threshold)


HARD = [0.0, -0.0, 0.1, 1e-45, -1e-45, 1e-40, 2.0**24 + 1, 16777217.0, 3.4028234663852886e38, 1e300, -1e300, 1 / 3,
        float(np.nextafter(1.0, 2)), float(np.nextafter(1.0, 0)), EVERYTHING]  # fmt: skip


def test_xgboost_reads_hard_thresholds_exactly(tmp_path: Path) -> None:
    """Each value of float32 that is next to a threshold, in float32 too, takes the same side there."""
    model = make_model(4, parties={"a": 1, "b": 1}, trees=len(HARD), depth=1, fill=1.0, categories=False)
    with np.errstate(over="ignore"):
        known = np.clip(np.array(HARD, dtype=np.float32).astype(np.float64), -EVERYTHING, EVERYTHING).tolist()
    for party, share in model.shares.items():
        numbers = [known[t] for t, tree in enumerate(model.active.trees) if model.parties[tree.owners[0]] == party]
        own = msgspec.structs.replace(share.own, thresholds=tuple(numbers))
        model.shares[party] = msgspec.structs.replace(share, own=own)
    with np.errstate(over="ignore"):
        close = np.array(HARD, dtype=np.float32)
        beside = [np.nextafter(close, np.float32(side)) for side in (np.inf, -np.inf)]
    near = np.concatenate([close, *beside])
    near = np.append(near[np.isfinite(near)], np.float32(np.nan)).astype(np.float64)[:, None]
    table = {"a": near, "b": near[::-1]}
    booster, _ = exported(model, tmp_path)
    got = booster.predict(matrix(booster, model, table), pred_leaf=True)
    expected = np.array(
        [[tree.leaves[leaf] for tree, leaf in zip(model.active.trees, row, strict=True)] for row in model.leaves(table)]
    )
    assert np.array_equal(got, expected)


def test_no_category_or_every_category_left(tmp_path: Path) -> None:
    model = make_model(5, parties={"a": 0, "b": 4}, trees=30, depth=1, fill=1.0)
    share = model.shares["b"]
    changed = {
        record: tuple(range(model.kinds["b"][share.own.columns[record]])) if record % 2 else ()
        for record in share.own.categories
    }
    assert changed
    own = msgspec.structs.replace(share.own, categories=changed)
    model.shares["b"] = msgspec.structs.replace(share, own=own)
    table = model.table(np.random.default_rng(5), 60)
    booster, _ = exported(model, tmp_path)
    got = booster.predict(matrix(booster, model, table), output_margin=True)
    np.testing.assert_allclose(got, model.margins(table)[:, 0], rtol=1e-6, atol=1e-5)  # float32 sums of 30 numbers


# -- consent ---------------------------------------------------------------------------------------------------------


def test_nothing_is_told_or_written_without_every_consent(tmp_path: Path) -> None:
    model = make_model(6)
    path = tmp_path / "model.json"
    agreed = {"telco": True, "shop": False}
    with refused_about("'resale'", PolicyError, "missing", value=("shop",)):
        converse(
            model,
            lambda ctx: export_active(ctx, model.active, path, purpose="resale"),
            lambda ctx: export_passive(ctx, model.shares[ctx.party], consent=agreed[ctx.party]),
        )
    assert list(tmp_path.iterdir()) == []


def test_those_who_agree_learn_who_refused_and_tell_nothing(tmp_path: Path) -> None:
    model = make_model(6)
    agreed = {"telco": True, "shop": False}
    errors: list[PolicyError] = []

    def lead(ctx: Any) -> None:
        try:
            export_active(ctx, model.active, tmp_path / "model.json", purpose="resale")
        except PolicyError as error:
            errors.append(error)

    out, views = converse(
        model, lead, lambda ctx: export_passive(ctx, model.shares[ctx.party], consent=agreed[ctx.party])
    )
    assert [error.value for error in errors] == [("shop",)]
    assert out["telco"] == out["shop"] == ("shop",)
    assert not list(views["bank"].received(ExportRecords))
    assert {each.peer: each.message.consent for each in views["bank"].received(ExportConsent)} == agreed


def test_refusal_is_the_default(tmp_path: Path) -> None:
    model = make_model(7, parties={"a": 1, "b": 1})
    with refused(PolicyError, "missing", value=("b",)):
        converse(
            model,
            lambda ctx: export_active(ctx, model.active, tmp_path / "model.json", purpose="x"),
            lambda ctx: export_passive(ctx, model.shares["b"]),
        )


def test_consent_may_depend_on_the_purpose(tmp_path: Path) -> None:
    model = make_model(7, parties={"a": 1, "b": 1})
    seen = []

    def decide(purpose: str) -> bool:
        seen.append(purpose)
        return True

    exported(model, tmp_path, consent=decide)
    assert seen == ["a comparison"]


def test_what_is_agreed_stands_in_both_views(tmp_path: Path) -> None:
    model = make_model(8)
    _, views = exported(model, tmp_path)
    for party in model.parties[1:]:
        assert [each.message for each in views[party].received(ExportRequest)] == [
            ExportRequest("model", "a comparison")
        ]
        assert [each.message for each in views[party].received(ExportDecision)] == [ExportDecision(())]
    for each in views["bank"].received(ExportConsent):
        assert each.message == ExportConsent("model", "a comparison", True)


def test_names_are_told_only_where_the_owner_says_so(tmp_path: Path) -> None:
    model = make_model(9, parties={"a[1]": 2, "b": 2})
    booster, _ = exported(model, tmp_path)
    assert booster.feature_names == ["a_1__0", "a_1__1", "b_0", "b_1"]
    booster, views = exported(model, tmp_path, names=False)
    assert booster.feature_names == ["a_1__0", "a_1__1", "b.f0", "b.f1"]
    assert all(each.message.names == () for each in views["a[1]"].received(ExportRecords))
    assert "b_0" not in (tmp_path / "model.json").read_text()


def test_names_that_two_parties_use(tmp_path: Path) -> None:
    model = make_model(10, parties={"a": 2, "b": 2}, categories=False)
    for party in ("a", "b"):
        model.shares[party] = msgspec.structs.replace(model.shares[party], columns=("age", f"only {party}"))
    booster, _ = exported(model, tmp_path)
    assert booster.feature_names == ["a.age", "only a", "b.age", "only b"]


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    exported(make_model(11), tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["model.json"]
    assert stat.S_IMODE((tmp_path / "model.json").stat().st_mode) == 0o600
    assert json.loads((tmp_path / "model.json").read_text())["version"] == [3, 2, 0]


@pytest.mark.parametrize("name", ["model.ubj", "no/model.json", "."])
def test_files_that_cannot_be_written(name: str, tmp_path: Path) -> None:
    model = make_model(12, parties={"a": 1})
    with refused(OutputError, "unwritable", value=tmp_path / name):
        converse(model, lambda ctx: export_active(ctx, model.active, tmp_path / name, purpose="x"), lambda ctx: None)


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """The part that fitted on a full disk stayed beside the file."""
    model = make_model(12, parties={"a": 1})
    (tmp_path / "model.json").mkdir()
    with refused(OutputError, "unwritable"):
        converse(
            model, lambda ctx: export_active(ctx, model.active, tmp_path / "model.json", purpose="x"), lambda ctx: None
        )
    assert [each.name for each in tmp_path.iterdir()] == ["model.json"]


# -- misbehaving peers -----------------------------------------------------------------------------------------------

GOOD = {"names": (), "width": 2, "categorical": (1,), "columns": (0, 1, 0), "thresholds": (0.0, 0.0, 1.0),
        "missing_left": (2,), "categories": {1: (0, 2)}, "values": {}}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"values": {0: ("x",)}},
        {"columns": (0, 1)},
        {"columns": (0, 1, 2)},
        {"columns": (0, 1, -1)},
        {"thresholds": (0.0, 0.0)},
        {"thresholds": (0.0, 0.0, float("nan"))},
        {"missing_left": (3,)},
        {"missing_left": (-1,)},
        {"categories": {0: (1,)}},
        {"categories": {3: (1,)}},
        {"categories": {1: (-1,)}},
        {"categories": {1: (1 << 24,)}},
        {"categorical": (2,)},
        {"names": ("x",)},
        {"width": 1},
    ],
)
def test_records_that_cannot_be(change: dict[str, Any], tmp_path: Path) -> None:
    model = make_model(13, parties={"a": 0, "b": 2}, trees=1, depth=2, fill=1.0)

    def follow(ctx: Any, told: ExportRecords) -> None:
        ctx.recv("a", ExportRequest, ())
        ctx.send("a", ExportConsent("model", "x", True), ())
        ctx.recv("a", ExportDecision, ())
        ctx.send("a", told, ())

    def lead(ctx: Any) -> Path:
        return export_active(ctx, model.active, tmp_path / "model.json", purpose="x")

    converse(model, lead, lambda ctx: follow(ctx, ExportRecords(**GOOD)))
    (tmp_path / "model.json").unlink()
    with blamed("b", "peer-message", message="ExportRecords", step=(), about="sent"):
        converse(model, lead, lambda ctx: follow(ctx, ExportRecords(**{**GOOD, **change})))
    assert list(tmp_path.iterdir()) == []


def test_consent_to_another_request(tmp_path: Path) -> None:
    model = make_model(14, parties={"a": 1, "b": 1})
    with blamed("b", "peer-message", message="ExportConsent", step=()):
        converse(
            model,
            lambda ctx: export_active(ctx, model.active, tmp_path / "model.json", purpose="x"),
            lambda ctx: (ctx.recv("a", ExportRequest, ()), ctx.send("a", ExportConsent("model", "y", True), ())),
        )


def test_another_model(tmp_path: Path) -> None:
    model = make_model(15, parties={"a": 1, "b": 1})
    with blamed("a", "peer-message", message="ExportRequest", step=(), value="other"):
        converse(
            model,
            lambda ctx: (ctx.send("b", ExportRequest("other", "x"), ()), ctx.recv("b", ExportConsent, ())),
            lambda ctx: export_passive(ctx, model.shares["b"], consent=True),
        )
