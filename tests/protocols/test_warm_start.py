"""More trees on a saved model: as if it had never been saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from equivalence import GOSS, KINDS, as_reference, rich_setting

from crossing import crossed
from labelward.errors import HandshakeError, JobError, LabelwardError
from labelward.protocols.secureboost.share import ModelShare
from wiring import Run, Setting

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **KINDS,
    "samples of rows and columns": ("binary", {"row_fraction": 0.7, "feature_fraction": 0.5}),
    "goss": ("quantities", GOSS),
    "in turns": ("binary", {"mode": "mixed", "feature_fraction": 0.5}),
    "in layers": ("binary", {"mode": "layered", "passive_depth": 1}),
    "candidates of nodes": ("binary", {"candidates": "node"}),
}


def in_two(setting: Setting, first: int, then: int, folder: Path | None = None) -> Run:
    """Train some trees, save all shares, load them, and train the others."""
    run = setting.run(params=replace(setting.params, trees=first))
    shares = run.shares
    if folder is not None:
        for party, share in shares.items():
            share.save(folder / party)
        shares = {party: ModelShare.load(folder / party) for party in shares}
    return setting.run(params=replace(setting.params, trees=then), shares=shares)


@crossed("case,first,then", list(CASES), [pytest.param(2, 3), pytest.param(4, 1)])
def test_two_steps_are_one(case: str, first: int, then: int, tmp_path: Path) -> None:
    """Shares and margins to the last bit; in a forest but for the numbers of records, as trees grow side by side."""
    targets, params = CASES[case]
    setting = rich_setting(121, targets, **params)
    once = setting.run(params=replace(setting.params, trees=first + then))
    twice = in_two(setting, first, then, tmp_path)
    assert as_reference(twice) == as_reference(once)
    if setting.params.kind != "forest":
        assert twice.shares == once.shares
    assert twice.active.margins.tobytes() == once.active.margins.tobytes()


def test_under_encryption() -> None:
    """A key of its own for each step."""
    setting = rich_setting(122, "binary", parties=2)
    secret = replace(setting, engine="paillier", bits=512)
    assert in_two(secret, 1, 1).shares == setting.run().shares


def test_other_parameters_may_follow() -> None:
    """Shallow trees go on with deep ones; the first trees stay as they are."""
    setting = rich_setting(123, "binary")
    first = setting.run()
    then = setting.run(params=replace(setting.params, depth=5, learning_rate=0.1), shares=first.shares)
    assert then.active.share.trees[:2] == first.active.share.trees
    assert len(then.active.share.trees) == 4
    assert then.shares["left"].own.first(len(first.shares["left"].own.columns)) == first.shares["left"].own


def test_the_model_that_was_is_not_touched() -> None:
    setting = rich_setting(124, "binary")
    shares = setting.run().shares
    before = {party: msgspec.json.encode(share) for party, share in shares.items()}
    setting.run(shares=shares)
    assert {party: msgspec.json.encode(share) for party, share in shares.items()} == before


# -- what does not fit -------------------------------------------------------------------------------------------------


def error_of(setting: Setting, **changes: Any) -> LabelwardError:
    with pytest.raises(LabelwardError) as caught:
        setting.run(**changes)
    return caught.value


def test_shares_of_different_models_do_not_go_on_together() -> None:
    setting = rich_setting(125, "binary")
    shares = setting.run().shares
    shares["left"] = msgspec.structs.replace(shares["left"], model="another")
    error = error_of(setting, shares=shares)
    assert isinstance(error, HandshakeError)
    assert error.code == "disagreement"
    assert "continues" in error.value


def test_all_parties_go_on_or_none() -> None:
    setting = rich_setting(126, "binary")
    shares = setting.run().shares
    del shares["right"]
    error = error_of(setting, shares=shares)
    assert isinstance(error, HandshakeError)
    assert error.code == "disagreement"
    assert "right" in next(iter(error.value.values()))


@pytest.mark.parametrize("party", ["active", "left"])
def test_columns_must_be_those_of_the_share(party: str) -> None:
    setting = rich_setting(127, "binary")
    shares = setting.run().shares
    shares[party] = msgspec.structs.replace(shares[party], columns=("x", "y", "z"))
    error = error_of(setting, shares=shares)
    assert isinstance(error, JobError)
    assert (error.code, error.field, error.value) == ("other-run", f"party {party!r}", ("x", "y", "z"))


def test_categories_must_be_those_of_the_share() -> None:
    setting = rich_setting(128, "binary")
    shares = setting.run().shares
    categories = {"left": {2: ("other", "names", "here")}, "right": setting.categories["right"]}
    error = error_of(setting, shares=shares, categories=categories)
    assert (error.code, error.field) == ("other-run", "party 'left'")
    assert "categories" in error.reason


def test_kind_and_objective_must_be_those_of_the_share() -> None:
    boosted, forest = rich_setting(129, "quantities"), rich_setting(129, "quantities", kind="forest")
    error = error_of(boosted, shares=forest.run().shares)
    assert (error.code, error.field, error.value) == ("other-run", "[model] kind", "forest")
    counts = replace(boosted.params, objective="count:poisson")
    positive = abs(boosted.labels)
    error = error_of(boosted, shares=boosted.run().shares, params=counts, labels=positive)
    assert (error.code, error.field, error.value) == ("other-run", "[model] objective", "reg:squarederror")


# -- with validation rows ----------------------------------------------------------------------------------------------


def watched(seed: int, **params: Any) -> Setting:
    setting = rich_setting(seed, "binary", rows=90, **{"learning_rate": 1.0, "row_fraction": 0.8} | params)
    cut = {party: (x[:60], x[60:]) for party, x in setting.parts.items()}
    return replace(
        setting,
        parts={party: each for party, (each, _) in cut.items()},
        labels=setting.labels[:60],
        weights=None,
        validation={party: each for party, (_, each) in cut.items()},
        validation_labels=setting.labels[60:],
    )


def test_validation_rows_go_on_where_they_were() -> None:
    setting = watched(130, trees=6)
    once, first = setting.run(), setting.run(params=replace(setting.params, trees=4))
    then = setting.run(params=replace(setting.params, trees=2), shares=first.shares)
    assert first.active.history + then.active.history == once.active.history
    assert then.shares == once.shares


def test_going_on_after_an_early_stop() -> None:
    """The rounds that were dropped leave no trace in the trees that follow."""
    setting = watched(131, trees=12, early_stopping_rounds=2)
    stopped = setting.run()
    kept = len(stopped.active.share.trees)
    assert kept < len(stopped.active.history)
    more = replace(setting.params, trees=2, early_stopping_rounds=0)
    then = setting.run(params=more, shares=stopped.shares)
    assert as_reference(then) == as_reference(setting.run(params=replace(more, trees=kept + 2)))
