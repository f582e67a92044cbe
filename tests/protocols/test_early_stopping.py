"""Validation rows: what they decide, and that they decide nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from equivalence import KINDS, NAMES, as_reference, assert_as_joined, assert_as_reference, assert_same, encrypted

from labelward.errors import JobError
from labelward.messages.tree import OwnSplit, PredictAnswers, TrainingEnd, TreeStart
from labelward.protocols.secureboost.params import SecureBoost
from refusals import refused
from wiring import Setting, make_parts, make_targets, with_missing

BOOSTED = {name: case for name, case in KINDS.items() if "forest" not in name}


def setting(seed: int, kind: str = "binary", rows: int = 70, validation: int = 30, **params: object) -> Setting:
    """Noisy labels, so that the metric of the validation rows gets worse after some rounds."""
    whole = make_parts(seed, rows + validation, dict.fromkeys(NAMES, 2))
    classes = {"binary": ("0", "1"), "classes": ("0", "1", "2")}.get(kind, ())
    labels = make_targets(seed, whole, "classes" if classes else kind, len(classes) or 3)
    whole = with_missing(seed, whole, 0.1)
    given = {"trees": 12, "depth": 3, "bins": 8, "learning_rate": 1.0, "early_stopping_rounds": 2} | params
    return Setting(
        {party: x[:rows].copy() for party, x in whole.items()},
        labels[:rows],
        SecureBoost(**given),  # type: ignore[arg-type]
        classes=classes,
        validation={party: x[rows:].copy() for party, x in whole.items()},
        validation_labels=labels[rows:],
        weights=np.random.default_rng(seed).uniform(0.5, 2, rows),
        validation_weights=np.random.default_rng(seed + 1).uniform(0.5, 2, validation),
    )


@pytest.mark.parametrize("kind", BOOSTED)
def test_the_best_round_is_kept(kind: str) -> None:
    """It stops two rounds after the best one, and keeps the trees up to that; as in the reference."""
    targets, params = BOOSTED[kind]
    given = setting(101, targets, **params)
    run = given.run()
    history = list(run.active.history)
    best = int(np.argmin(history))
    assert best == len(history) - 3 < 9
    a_round = 3 if params.get("multi_strategy") == "one_output_per_tree" else 1
    assert len(run.active.share.trees) == a_round * (best + 1)
    assert_as_reference(run, given)
    assert_as_joined(run, given)


def test_shares_are_cut_to_what_the_model_keeps() -> None:
    """A passive party forgets the splits of rounds that were of no use."""
    run = setting(101).run()
    share = run.active.share
    for party, out in run.passive.items():
        owned = share.records_of(party)
        assert len(out.share.own.columns) == owned
        assert len(list(run.views[party].observed(OwnSplit))) > owned
        end = next(iter(run.views[party].received(TrainingEnd))).message
        assert end.records == owned
        assert end.trees == len(run.active.history)
        assert all(record < owned for record in out.share.own.missing_left)
    numbers = sorted(
        record for tree in share.trees for owner, record in zip(tree.owners, tree.records, strict=True) if owner == 0
    )
    assert numbers == list(range(len(share.own.columns)))


def test_stopping_early_is_training_for_so_many_rounds() -> None:
    given = setting(102)
    stopped = given.run()
    rounds = len(stopped.active.share.trees)
    assert 1 <= rounds < 12
    straight = given.run(params=replace(given.params, trees=rounds, early_stopping_rounds=0))
    assert {p: replaced(s) for p, s in straight.shares.items()} == {p: replaced(s) for p, s in stopped.shares.items()}
    assert straight.active.history == stopped.active.history[:rounds]


def replaced(share: object) -> object:
    """Return a share but for the number of trees that a party has seen, which is larger after an early stop."""
    import msgspec

    return msgspec.structs.replace(share, grown=0)  # type: ignore[type-var]


def test_patience_is_the_number_of_rounds_without_improvement() -> None:
    given = setting(103)
    for patience in (1, 2, 4):
        history = given.run(params=replace(given.params, early_stopping_rounds=patience, trees=12)).active.history
        best = int(np.argmin(history))
        assert len(history) - 1 - best == patience or len(history) == 12


def test_without_patience_nothing_stops() -> None:
    """Validation rows are then only watched: trees are the same as without them."""
    given = setting(104, early_stopping_rounds=0, trees=4)
    watched = given.run()
    blind = given.run(validation=None, validation_labels=None, validation_weights=None)
    assert len(watched.active.history) == 4
    assert blind.active.history == ()
    assert watched.shares == blind.shares


@pytest.mark.parametrize(
    ("kind", "metric", "larger"),
    [
        ("binary", "logloss", False),
        ("binary", "error", False),
        ("binary", "auc", True),
        ("classes", "logloss", False),
        ("classes", "error", False),
        ("quantities", "rmse", False),
        ("quantities", "mae", False),
    ],
)
def test_metrics(kind: str, metric: str, larger: bool) -> None:
    """The history is in the metric's own sign, and the best round is its largest value where larger is better."""
    given = setting(105, kind, eval_metric=metric)
    run = given.run()
    history = run.active.history
    best = int(np.argmax(history) if larger else np.argmin(history))
    assert len(run.active.share.trees) == best + 1
    assert all(value >= 0.0 for value in history)
    assert_as_reference(run, given)


def test_the_metric_is_that_of_predictions() -> None:
    """RMSE of the validation rows by hand, from the model's own predictions of them."""
    given = replace(setting(106, "quantities", trees=3, early_stopping_rounds=0))
    run = given.run(test=given.validation)
    error = run.active.margins[:, 0] - np.asarray(given.validation_labels)
    weights = given.validation_weights
    assert weights is not None
    expected = float(np.sqrt(np.average(error**2, weights=weights)))
    assert run.active.history[-1] == pytest.approx(expected, rel=1e-12)


def test_validation_labels_do_not_touch_the_trees() -> None:
    given = setting(107, trees=3, early_stopping_rounds=0)
    other = given.run(validation_labels=1 - np.asarray(given.validation_labels))
    assert other.shares == given.run().shares


def test_validation_values_do_not_touch_the_cuts() -> None:
    given = setting(108, trees=3, early_stopping_rounds=0)
    assert given.validation is not None
    other = given.run(validation={party: 100 * x for party, x in given.validation.items()})
    assert as_reference(other) == as_reference(given.run())


def test_validation_rows_under_encryption() -> None:
    assert_same(*encrypted(setting(109, "classes", trees=4)))


# -- what is seen of them ----------------------------------------------------------------------------------------------


def test_passive_parties_answer_for_validation_rows_and_learn_nothing_of_their_way() -> None:
    """But for the sides of the rows, told before training, no mask that they receive speaks of a validation row.

    What they send are the sides at their own splits.
    """
    given = setting(110, trees=3, early_stopping_rounds=0)
    run = given.run()
    plain = given.run(validation=None, validation_labels=None, validation_weights=None)
    for party in NAMES[1:]:
        assert all(each.message.rows.value.total == 70 for each in run.views[party].received(TreeStart))
        assert all(each.message.route for each in run.views[party].received(TreeStart))
        seen, before = (list(each.views[party].content()) for each in (run, plain))
        told = ("Begin", "PredictRequest")
        assert [without_route(record) for record in seen if record[2] not in told] == [
            without_route(record) for record in before if record[2] not in told
        ]
    answers = list(run.views["active"].received(PredictAnswers))
    of_trees = [each.message for each in answers if each.message.rows == 30]
    assert len(of_trees) == 3 * 2


def without_route(record: list) -> list:
    kind, peer, name, step, fields = record
    return [kind, peer, name, step, {key: value for key, value in fields.items() if key not in ("route", "rows")}]


def test_patience_needs_validation_rows() -> None:
    given = setting(111)
    with refused(JobError, "conflict", field="[model] early_stopping_rounds"):
        given.run(validation=None, validation_labels=None, validation_weights=None)
