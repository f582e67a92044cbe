"""Federated trees are the trees of the definition: against a slow reference, on joined tables, under encryption."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from equivalence import (
    GOSS,
    KINDS,
    NAMES,
    assert_as_joined,
    assert_as_reference,
    assert_lossless,
    assert_same,
    encrypted,
    rich_setting,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from crossing import crossed
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost
from wiring import Floats, Setting, make_labels, make_parts, make_targets, with_missing


@pytest.mark.parametrize("kind", KINDS)
def test_paillier_equals_plain_equals_joined_equals_the_reference(kind: str) -> None:
    """Three parties, missing values, categories of both treatments, row weights, held-out rows. A small key: the
    arithmetic is the same, only weaker."""
    targets, params = KINDS[kind]
    setting = rich_setting(31, targets, **params)
    plain, secret = encrypted(setting)
    assert_same(plain, secret)
    assert_as_joined(plain, setting)
    assert_as_reference(plain, setting)
    assert len(plain.active.share.trees[0].nodes) > 3
    used = [share.own for share in plain.shares.values()]
    assert any(own.categories for own in used)
    assert any(own.missing_left for own in used)


@pytest.mark.parametrize("kind", KINDS)
def test_the_lattice_engine_equals_plain(kind: str) -> None:
    """The same setting, under the real ring: rows of one to many digits."""
    targets, params = KINDS[kind]
    plain, secret = encrypted(rich_setting(31, targets, **params), "lattice", 4096)
    assert_same(plain, secret)


@crossed(
    "kind,weighted", [kind for kind, (_, params) in KINDS.items() if params.get("kind") != "forest"], [False, True]
)
def test_goss_under_encryption(kind: str, weighted: bool) -> None:
    targets, params = KINDS[kind]
    setting = rich_setting(32, targets, **params, **GOSS)
    if not weighted:
        setting.weights = None
    plain, secret = encrypted(setting)
    assert_same(plain, secret)
    assert_as_joined(plain, setting)
    assert_as_reference(plain, setting)


# -- generated tables ------------------------------------------------------------------------------------------------


@st.composite
def settings_of_runs(draw: st.DrawFn) -> Setting:
    """Small tables with ties, constant and duplicated columns; the active party may hold no column."""
    names = NAMES[: draw(st.integers(2, 3))]
    rows = draw(st.integers(2, 24))
    seed = draw(st.integers(0, 2**20))
    widths = {name: draw(st.integers(0 if name == "active" else 1, 3)) for name in names}
    parts = make_parts(seed, rows, widths, levels=draw(st.sampled_from([2, 4, None])))
    if draw(st.booleans()):  # the same column at every party: the first in party order wins
        for x in parts.values():
            if x.shape[1]:
                x[:, 0] = parts[names[-1]][:, 0]
    if draw(st.booleans()):
        parts[names[-1]][:, -1] = 3.5
    params = SecureBoost(
        trees=draw(st.integers(1, 3)),
        depth=draw(st.integers(1, 4)),
        learning_rate=draw(st.sampled_from([0.3, 1.0])),
        feature_fraction=draw(st.sampled_from([1.0, 0.5])),
        row_fraction=draw(st.sampled_from([1.0, 0.7, 0.01])),
        bins=draw(st.sampled_from([2, 4, 32])),
        candidates=draw(st.sampled_from(["global", "node", "all"])),
        reg_lambda=draw(st.sampled_from([1.0, 0.0, 0.1])),
        gamma=draw(st.sampled_from([0.0, 0.2])),
        min_rows=draw(st.sampled_from([1, 3])),
        min_child_weight=draw(st.sampled_from([0.0, 0.6])),
        max_leaves=draw(st.sampled_from([0, 0, 3, 5])),
    )
    labels = np.array(draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)), dtype=np.int64)
    return Setting(parts, labels, params, seed=draw(st.integers(0, 5)))


@given(setting=settings_of_runs())
@settings(max_examples=60)
def test_equals_the_reference_on_generated_tables(setting: Setting) -> None:
    assert_lossless(setting)


@given(setting=settings_of_runs(), data=st.data())
@settings(max_examples=80)
def test_equals_the_reference_on_generated_targets_and_columns(setting: Setting, data: st.DataObject) -> None:
    """Every objective and mode, on tables where a third, or nearly all, is missing; weights may be 0."""
    kind, rows, seed = data.draw(st.sampled_from(sorted(KINDS))), len(setting.labels), data.draw(st.integers(0, 100))
    targets, params = KINDS[kind]
    classes = {"binary": ("0", "1"), "classes": ("0", "1", "2")}.get(targets, ())
    parts = with_missing(seed, setting.parts, data.draw(st.sampled_from([0.0, 0.3, 0.9])))
    labels = make_targets(seed, parts, "classes" if classes else targets, len(classes) or 3)
    weights = None
    if data.draw(st.booleans()):
        drawn = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=rows, max_size=rows))
        weights = np.array(drawn) if any(drawn) else np.ones(rows)
    if not classes and targets != "quantities":
        labels[0 if weights is None else np.argmax(weights)] = 2.0  # a mean of 0 has no logarithm
    parts, categories = data.draw(with_categories(parts, seed))
    vectors = kind in ("three classes, one tree", "forest of classes")
    directed = not vectors and kind != "three classes, a tree each" and data.draw(st.booleans())
    open_to = {party: [c for c in range(x.shape[1]) if c not in categories[party]] for party, x in parts.items()}
    monotone = {party: {c: (-1) ** c for c in columns} for party, columns in open_to.items()} if directed else {}
    modes = ["standard", "mixed", *(["layered"] if parts["active"].shape[1] and setting.params.depth > 1 else [])]
    given_params = setting.params.parameters() | {
        # sets for several classes follow a direction, which rounding decides on tables as small as these
        "max_cat_to_onehot": 7 if vectors else data.draw(st.sampled_from([1, 3])),
        "max_cat_threshold": data.draw(st.sampled_from([1, 2, 64])),
        "scale_pos_weight": data.draw(st.sampled_from([1.0, 1.0, 0.3])) if targets == "binary" else 1.0,
        "mode": (mode := data.draw(st.sampled_from(modes))),
        "passive_depth": 1 if mode == "layered" else 2,
    }
    make: Any = SecureBoost
    if params.get("kind") == "forest":
        make = FederatedForest
        given_params = {name: each for name, each in given_params.items() if name not in FederatedForest.unsupported}
    given_params |= {name: each for name, each in params.items() if name != "kind"}
    assert_lossless(
        replace(
            setting,
            parts=parts,
            labels=labels,
            classes=classes,
            weights=weights,
            categories=categories,
            monotone=monotone,
            params=make(**given_params),
        )
    )


@st.composite
def with_categories(
    draw: st.DrawFn, parts: dict[str, Floats], seed: int
) -> tuple[dict[str, Floats], dict[str, dict[int, tuple[str, ...]]]]:
    """Turn some columns into categories, gaps included; some of the categories do not occur."""
    rng = np.random.default_rng(seed)
    parts, categories = dict(parts), {party: dict[int, tuple[str, ...]]() for party in parts}
    for party, x in parts.items():
        for column in range(x.shape[1]):
            if draw(st.booleans()):
                many = draw(st.sampled_from([1, 2, 5]))
                codes = rng.integers(0, many, len(x)).astype(np.float64)
                parts[party] = parts[party].copy()
                parts[party][:, column] = np.where(np.isnan(x[:, column]), np.nan, codes)
                categories[party][column] = tuple(f"c{code}" for code in range(many + 1))
    return parts, categories


@crossed("candidates,parties", ["global", "node", "all"], [2, 3])
def test_equals_the_reference_on_larger_tables(candidates: str, parties: int) -> None:
    """Deep enough that siblings are subtracted and levels hold many nodes; held-out rows."""
    names = NAMES[:parties]
    parts = make_parts(3, 180, dict.fromkeys(names, 3))
    labels = make_labels(3, parts)
    test = make_parts(4, 50, dict.fromkeys(names, 3))
    params = SecureBoost(trees=2, depth=5, candidates=candidates, bins=16, row_fraction=0.8, feature_fraction=0.7)
    run = assert_lossless(Setting(parts, labels, params, test=test))
    owners = {owner for tree in run.active.share.trees for owner in tree.owners}
    assert owners == set(range(parties))
    assert any(len(tree.nodes) > 8 for tree in run.active.share.trees)


def test_equal_columns_go_to_the_first_party() -> None:
    x = np.arange(12.0)[:, None]
    labels = (np.arange(12) >= 5).astype(np.int64)
    setting = Setting({"a": np.zeros((12, 1)), "b": x, "c": x.copy()}, labels, SecureBoost(trees=1, depth=1))
    tree = assert_lossless(setting).active.share.trees[0]
    assert tree.owners == (1,)


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [1, 1, 1, 1]])
def test_one_class_gives_single_leaves(labels: list[int]) -> None:
    """Nothing to split: every row gets the root's weight, and the sums of the root are asked for all the same."""
    parts = make_parts(1, 4, {"a": 1, "b": 1})
    run = assert_lossless(Setting(parts, np.array(labels), SecureBoost(trees=2)))
    assert all(tree.leaves == (0,) for tree in run.active.share.trees)
    assert run.passive["b"].share.own.columns == ()
    assert run.meters["b"].messages["LevelSums"] == 2


def test_active_party_without_columns() -> None:
    """Labels only: every split is a passive party's, and so is every answer at prediction."""
    parts = {"a": np.empty((60, 0))} | make_parts(2, 60, {"b": 2, "c": 2})
    labels = make_labels(2, {"b": parts["b"], "c": parts["c"]})
    for candidates in ("global", "node"):
        params = SecureBoost(trees=2, depth=3, candidates=candidates)  # type: ignore[arg-type]
        run = assert_lossless(Setting(parts, labels, params))
        assert run.active.share.own.columns == ()
        assert {owner for tree in run.active.share.trees for owner in tree.owners} <= {1, 2}


# -- under encryption ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("candidates", ["global", "node"])
@pytest.mark.parametrize("parties", [2, 3])
def test_paillier_equals_plain(candidates: str, parties: int) -> None:
    parts = make_parts(5, 70, dict.fromkeys(NAMES[:parties], 2))
    params = SecureBoost(trees=2, depth=3, bins=8, candidates=candidates, row_fraction=0.9)  # type: ignore[arg-type]
    setting = Setting(parts, make_labels(5, parts), params)
    assert_same(*encrypted(setting, bits=512))


def test_four_parties() -> None:
    """Two passive parties more than are needed for any mistake in their order to show."""
    parts = make_parts(8, 90, dict.fromkeys(("z", "b", "y", "a"), 2))
    setting = Setting(parts, make_labels(8, parts), SecureBoost(trees=3, depth=4, bins=8, row_fraction=0.9))
    plain, secret = encrypted(setting)
    assert_same(plain, secret)
    assert_as_joined(plain, setting)
    assert_as_reference(plain, setting)
    assert {owner for tree in plain.active.share.trees for owner in tree.owners} == {0, 1, 2, 3}


def test_many_classes_under_encryption() -> None:
    """More numbers to a row than one plaintext of a small key holds."""
    parts = make_parts(7, 120, dict.fromkeys(NAMES, 2))
    classes = tuple(map(str, range(11)))
    labels = make_targets(7, parts, "classes", len(classes))
    setting = Setting(parts, labels, SecureBoost(trees=1, depth=2, bins=4), classes=classes)
    plain, secret = encrypted(setting, bits=512)
    assert_same(plain, secret)
    assert_as_reference(plain, setting)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_paillier_equals_plain_with_a_full_key(kind: str) -> None:
    setting = rich_setting(6, kind, rows=40, parties=2, trees=1)
    assert_same(*encrypted(setting, bits=2048))
