"""Label privacy: the noise is there, it is the system's, and nothing but noisy labels decides what leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from blames import refused_about
from labelward.defenses.grafting import Grafting
from labelward.defenses.id_lmid import IdLmid
from labelward.defenses.label_dp import LpMst, NoisyLabels, RandomizedLabels
from labelward.defenses.local_trees import LocalTrees
from labelward.defenses.purity_threshold import PurityThreshold
from labelward.errors import JobError, PolicyError
from labelward.policy.base import POINTS, LeafWeights, Policy, PolicyContext, TrainingTargets
from labelward.policy.chain import check_hooks
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel
from labelward.rng import SecureRandom, learning
from refusals import refused
from wiring import Setting, make_labels, make_parts, make_targets, readable_content

SETUP = PolicyContext(model="secureboost", trees=2, classes=2, active_columns=2, passive=("left",), row_fraction=1.0)
EVERYTHING = 40.0  # at this epsilon a label changes with a probability below 1e-17


class Recorder:
    """A learner that keeps what it was shown, and finds the class of even rows a little likelier than that of odd."""

    def __init__(self, classes: int) -> None:
        self.classes, self.shown = classes, list[tuple[NDArray[np.float64], NDArray[np.bool_]]]()
        self.answers: list[NDArray[np.float64]] = []

    def probabilities(self, values: NDArray[np.float64], rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        self.shown.append((values.copy(), rows.copy()))
        counts = np.bincount(values[rows].astype(np.int64), minlength=self.classes) + 1.0
        counts = counts + np.arange(len(values))[:, None] % 2 * np.arange(self.classes)
        self.answers.append(counts / counts.sum(axis=1, keepdims=True))
        return self.answers[-1]


def targets(labels: NDArray[np.int64], classes: int, noise: int | None = None) -> tuple[TrainingTargets, Recorder]:
    learner, n = Recorder(classes), len(labels)
    return TrainingTargets(
        values=labels.astype(np.float64),
        labels=labels.astype(np.float64),
        weights=np.ones(n),
        offset=np.zeros(n),
        loss="gini",
        classes=classes,
        learner=learner,
        draw=lambda purpose: learning(3, "active", 0, purpose),
        protection=SecureRandom(noise),
    ), learner


# -- the noise -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [RandomizedLabels(epsilon=0.0), LpMst(epsilon=0.0, stages=1)])
def test_at_epsilon_0_labels_are_drawn_anew(policy: NoisyLabels) -> None:
    """Each of four classes as often as any other, whatever the label."""
    labels = np.repeat(np.arange(4), 2500)
    noisy = policy.before_targets(targets(labels, 4, noise=1)[0]).values
    table = np.histogram2d(labels, noisy, bins=4)[0] / 2500
    assert np.abs(table - 0.25).max() < 0.04  # five standard deviations of a share of 2,500 draws


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_at_a_large_epsilon_labels_stay(stages: int) -> None:
    """A prior of k = C loses none; here every class is likely enough to be told apart."""
    labels = np.arange(300) % 3
    answer = LpMst(epsilon=EVERYTHING, stages=stages).before_targets(targets(labels, 3)[0])
    assert (answer.values == labels).all()
    assert (RandomizedLabels(epsilon=EVERYTHING).before_targets(targets(labels, 3)[0]).values == labels).all()


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_labels_stay_as_often_as_epsilon_says(epsilon: float) -> None:
    labels = np.arange(20_000) % 2
    noisy = RandomizedLabels(epsilon=epsilon).before_targets(targets(labels, 2, noise=2)[0]).values
    assert np.mean(noisy == labels) == pytest.approx(np.exp(epsilon) / (1 + np.exp(epsilon)), abs=0.018)  # five sd


@pytest.mark.parametrize(("rows", "stages", "used"), [(10, 1, [10]), (10, 2, [5, 5]), (11, 3, [4, 4, 3])])
def test_the_account_says_what_was_spent(rows: int, stages: int, used: list[int]) -> None:
    """Every label once: the stages cost epsilon together."""
    answer = LpMst(epsilon=0.7, stages=stages).before_targets(targets(np.arange(rows) % 2, 2)[0])
    assert answer.account == {"spent": 0.7, "labels_used": used}
    answer = RandomizedLabels(epsilon=0.7).before_targets(targets(np.arange(rows) % 2, 2)[0])
    assert answer.account == {"spent": 0.7, "labels_used": [rows]}


def test_priors_follow_from_the_noisy_labels_of_earlier_stages_only() -> None:
    """Other labels in later stages change no prior; each stage learns from all stages before."""
    labels, policy = np.arange(90) % 3, LpMst(epsilon=1.0, stages=3)
    given, learner = targets(labels, 3, noise=5)
    noisy = policy.before_targets(given).values
    first, second = (rows for _, rows in learner.shown)
    assert (first.sum(), second.sum(), (first & second).sum()) == (30, 60, 30)
    for values, rows in learner.shown:
        assert (values[rows] == noisy[rows]).all()
        assert not values[~rows].any()
    poisoned, other = targets(np.where(first, labels, (labels + 1) % 3), 3, noise=5)
    policy.before_targets(poisoned)
    assert (other.shown[0][0] == learner.shown[0][0]).all()
    assert (other.answers[0] == learner.answers[0]).all()
    assert not (other.shown[1][0] == learner.shown[1][0]).all()  # the poison is one: stage 2 is drawn from it


def test_noise_is_the_systems() -> None:
    """Nothing that a run fixes, such as its seed, fixes the noise."""
    labels = np.arange(200) % 2
    first, second = (RandomizedLabels(epsilon=0.1).before_targets(targets(labels, 2)[0]).values for _ in range(2))
    assert (first != second).any()  # equal with a probability of about 2**-200


def setting(params: TreeModel, seed: int = 61, rows: int = 240, classes: int = 2) -> Setting:
    parts = make_parts(seed, rows, {"active": 3, "left": 2, "right": 2})
    labels = make_labels(seed, parts) if classes == 2 else make_targets(seed, parts, "classes", classes)
    return Setting(parts, labels, params, tuple(map(str, range(classes))))


def accuracy(run: Any, labels: NDArray[np.int64]) -> float:
    margins = run.active.margins
    guess = margins.argmax(axis=1) if margins.shape[1] > 1 else margins[:, 0] > 0
    return float(np.mean(guess == labels))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "params",
    [
        FederatedForest(trees=3, depth=4, row_fraction=0.8),
        SecureBoost(trees=3, depth=3, row_fraction=0.8),
        SecureBoost(trees=2, depth=3, multi_strategy="one_output_per_tree"),
    ],
    ids=["forest", "boosted", "one-output"],
)
@pytest.mark.parametrize("policy", [RandomizedLabels, LpMst])
def test_a_run_with_labels_that_stay_is_the_undefended_one(
    policy: type[NoisyLabels], params: TreeModel, classes: int
) -> None:
    """Noise at epsilon 0 leaves a guess; without noise the trees are the undefended ones to the last bit."""
    given_setting = setting(params, classes=classes)
    plain = given_setting.run()
    exact = given_setting.run(policies=(policy(epsilon=EVERYTHING),))
    if policy is RandomizedLabels:  # a confident prior leaves out classes, whatever epsilon
        assert exact.active.share == plain.active.share
    noisy = given_setting.run(policies=(policy(epsilon=0.01),), noise=4)
    assert accuracy(noisy, given_setting.labels) < accuracy(plain, given_setting.labels) - 0.1
    account = list(noisy.views["active"].applied())[-1]
    assert account["parameters"]["epsilon"] == 0.01
    assert (account["spent"], sum(account["labels_used"])) == (0.01, 240)


# -- what leaves follows from noisy labels alone ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Given(NoisyLabels):
    """Takes certain labels for the noisy ones, so that true ones can be changed without a change of these."""

    kind: ClassVar[str] = "given"

    epsilon: float = 1.0
    labels: tuple[int, ...]

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        return replace(targets, values=np.array(self.labels, dtype=np.float64))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "params",
    [
        FederatedForest(trees=5, depth=4, row_fraction=0.8, trees_at_once=2),
        FederatedForest(trees=3, depth=5, max_leaves=6, replace=True),
        SecureBoost(trees=3, depth=3, row_fraction=0.7),
        SecureBoost(trees=3, depth=3, sampling="goss"),
        SecureBoost(trees=2, depth=3, multi_strategy="one_output_per_tree", candidates="node"),
    ],
    ids=["forest", "bootstrap", "boosted", "goss", "one-output"],
)
def test_other_true_labels_change_no_message(params: TreeModel, classes: int) -> None:
    """With the same noisy labels every passive view is the same, repaired or not, with weights and validation rows."""
    if classes == 2:
        params = replace(params, scale_pos_weight=3.0)
    given_setting = setting(params, classes=classes, rows=150)
    rng = np.random.default_rng(8)
    given_setting = replace(
        given_setting,
        weights=rng.random(150) + 0.5,
        validation=make_parts(9, 30, {"active": 3, "left": 2, "right": 2}),
        validation_labels=np.arange(30) % classes,
        noise=3,
    )
    fixed = Given(labels=tuple(rng.integers(0, classes, 150).tolist()))
    contents = []
    for labels in (given_setting.labels, rng.permutation(given_setting.labels)):
        for chain in ((fixed,), (fixed, Grafting(unrepaired="relabel"))):
            run = given_setting.run(policies=chain, labels=labels)
            contents.append([readable_content(run.views[party]) for party in ("left", "right")])
    assert all(content == contents[0] for content in contents)


# -- what is refused -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Weighing(Policy):
    kind: ClassVar[str] = "weighing"

    def before_leaf_weights(self, leaves: LeafWeights) -> Any:
        return leaves.weights


@pytest.mark.parametrize("other", [IdLmid(xi=0.1), PurityThreshold(threshold=0.8), Weighing()])
@pytest.mark.parametrize("policy", [LpMst(epsilon=1.0), RandomizedLabels(epsilon=1.0)])
def test_policies_that_read_true_classes_are_refused(policy: NoisyLabels, other: Policy) -> None:
    for chain in ((policy, other), (other, policy)):
        with refused_about(repr(policy.kind), PolicyError, "inapplicable", value=other.kind):
            check_hooks(chain, frozenset(POINTS), SETUP)


def test_what_goes_together() -> None:
    for chain in (
        (LocalTrees(), LpMst(epsilon=1.0)),
        (LpMst(epsilon=1.0), LocalTrees(count=1, mode="add"), Grafting(unrepaired="relabel")),
    ):
        check_hooks(chain, frozenset(POINTS), SETUP)
    check_hooks((LpMst(epsilon=1.0), Grafting()), frozenset(POINTS), replace(SETUP, model="forest"))
    check_hooks((LpMst(epsilon=1.0, stages=1),), frozenset(POINTS), replace(SETUP, active_columns=0))


@pytest.mark.parametrize(
    ("chain", "setup", "value", "about"),
    [
        ((LpMst(epsilon=1.0),), {"classes": 0}, None, "regression"),
        ((LpMst(epsilon=1.0),), {"continues": True}, None, "warm start"),
        ((LpMst(epsilon=1.0),), {"active_columns": 0}, 2, "no priors"),
        ((LpMst(epsilon=1.0), RandomizedLabels(epsilon=1.0)), {}, "randomized-response", "noise"),
    ],
)
def test_set_ups_without_privacy_are_refused(
    chain: tuple[Policy, ...], setup: dict[str, Any], value: object, about: str
) -> None:
    with refused_about(about, PolicyError, "inapplicable", value=value):
        check_hooks(chain, frozenset(POINTS), replace(SETUP, **setup))


def test_a_run_that_goes_on_is_refused() -> None:
    given_setting = setting(SecureBoost(trees=2, depth=2))
    with refused_about("warm start", PolicyError, "inapplicable"):
        given_setting.run(policies=(RandomizedLabels(epsilon=1.0),), shares=given_setting.run().shares)


# -- early stopping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [RandomizedLabels(epsilon=1.0), LpMst(epsilon=1.0)])
def test_labels_that_decide_when_to_stop_are_noisy_at_no_further_cost(policy: NoisyLabels) -> None:
    """Each once, by plain randomized response; the training labels are drawn as without them."""
    labels = np.arange(20_000) % 2
    given = targets(labels[:90], 2, noise=3)[0]
    answer = policy.before_targets(replace(given, validation=labels.astype(float)))
    assert np.mean(answer.validation == labels) == pytest.approx(np.e / (1 + np.e), abs=0.018)  # five sd
    assert answer.account["validation_labels_used"] == len(labels)
    assert answer.account["spent"] == 1.0
    alone = policy.before_targets(targets(labels[:90], 2, noise=3)[0])
    assert (alone.values == answer.values).all()
    assert "validation_labels_used" not in alone.account
    assert not len(alone.validation)


@dataclass(frozen=True, kw_only=True)
class Released(Policy):
    """Stands for noise: what is fitted, and what decides when to stop, are given."""

    kind: ClassVar[str] = "released"
    label_private: ClassVar[bool] = True

    values: tuple[float, ...]
    validation: tuple[float, ...]

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        values, validation = np.array(self.values), np.array(self.validation)
        return replace(targets, values=values, labels=values, validation=validation)


@pytest.mark.parametrize("repaired", [False, True])
def test_when_boosting_stops_follows_from_released_labels_only(repaired: bool) -> None:
    """Two runs whose true labels have nothing in common but what was released: equal views, and as many trees.

    With trees that are repaired on true labels, too, whose scores would differ.
    """
    rng, counts = np.random.default_rng(8), set()
    whole = make_parts(9, 300, {"active": 3, "left": 2, "right": 2})
    signal = (whole["active"][:, 0] + whole["left"][:, 0] > 0).astype(float)
    noisy = np.where(rng.random(300) < 0.25, 1 - signal, signal)
    chain: tuple[Policy, ...] = (Released(values=tuple(noisy[:200].tolist()), validation=tuple(noisy[200:].tolist())),)
    chain += (Grafting(unrepaired="relabel"),) if repaired else ()
    params = SecureBoost(trees=15, depth=3, learning_rate=1.0, early_stopping_rounds=2)
    views, histories = [], []
    for true in (signal, 1 - signal, rng.integers(2, size=300).astype(float)):
        run = Setting(
            {party: x[:200].copy() for party, x in whole.items()},
            true[:200].astype(np.int64),
            params,
            validation={party: x[200:].copy() for party, x in whole.items()},
            validation_labels=true[200:].astype(np.int64),
            noise=4,
        ).run(policies=chain)
        views.append({party: readable_content(run.views[party]) for party in ("left", "right")})
        histories.append(run.active.history)
        counts.add(len(run.active.share.trees))
    assert views[0] == views[1] == views[2]
    assert histories[0] == histories[1] == histories[2]
    assert len(histories[0]) < 15  # it did stop early
    assert len(counts) == 1


@pytest.mark.parametrize("epsilon", [-0.1, float("nan"), float("inf"), True, "1", None])
def test_epsilons_that_cannot_be(epsilon: Any) -> None:
    for kind in (RandomizedLabels, LpMst):
        with refused(JobError, "range" if type(epsilon) is float else "type", field="epsilon"):
            kind(epsilon=epsilon)


@pytest.mark.parametrize("stages", [0, -1, 1.5, True, "2"])
def test_stages_that_cannot_be(stages: Any) -> None:
    with refused(JobError, "range" if type(stages) is int else "type", value=stages, field="stages"):
        LpMst(epsilon=1.0, stages=stages)


def test_more_stages_than_rows() -> None:
    with refused_about("2 rows", PolicyError, "inapplicable", field="defense 'lp-mst'", value=3):
        LpMst(epsilon=1.0, stages=3).before_targets(targets(np.array([0, 1]), 2)[0])
