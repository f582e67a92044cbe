"""Active completion: passive completion of what the malicious optimizer trained."""

from __future__ import annotations

import numpy as np
import pytest
from splitruns import attacked, known_of, trained

from labelward.attacks import ATTACKS
from labelward.attacks.active_completion import ActiveCompletion
from labelward.attacks.passive_completion import PassiveCompletion
from labelward.errors import DataError, JobError
from labelward.protocols.splitnn.behavior import MaliciousOptimizer
from labelward.protocols.splitnn.family import SplitNetFamily
from labelward.protocols.splitnn.params import SplitNet
from labelward.testing.label_attacks import LabelAttackContract
from refusals import refused

# to choose the weight of unlabeled rows is passive completion's
PARAMETERS = {"auxiliary": 12, "steps": 150, "learning_rate": 0.01, "unlabeled_weight": 5.0}


class TestActiveCompletion(LabelAttackContract):
    def attack(self):
        return ActiveCompletion(**PARAMETERS, honest=True)


def a_run(behavior, optimizer="sgd"):
    rng = np.random.default_rng(2)
    labels = rng.permutation(np.arange(240) % 3)
    x = 2.5 * rng.normal(size=(3, 8))[labels] + rng.normal(size=(240, 8))
    params = SplitNet(bottom="mlp", epochs=3, batch_size=32, optimizer=optimizer, learning_rate=0.05)
    return trained(
        {"active": x[:, :4], "telco": x[:, 4:]}, labels, params, train=np.arange(200), seed=1, behavior=behavior
    )


def test_reads_the_view_that_the_malicious_optimizer_left_as_passive_completion_does():
    run = a_run(MaliciousOptimizer())
    active, passive = (attacked(run, made(**PARAMETERS), 1) for made in (ActiveCompletion, PassiveCompletion))
    np.testing.assert_array_equal(active.scores, passive.scores)
    assert np.mean(active.values == run.labels) > 0.6  # three classes


def test_an_honest_party_s_view_is_refused_unless_told():
    run = a_run(None)
    with refused(DataError, "unsupported", value="telco"):
        attacked(run, ActiveCompletion(**PARAMETERS), 1)
    blind = attacked(run, ActiveCompletion(**PARAMETERS), 1, run.view.without_records())
    told = attacked(run, ActiveCompletion(**PARAMETERS, honest=True), 1)
    assert len(blind.values) == len(told.values) == 200
    assert (told.values[known_of(run.labels, 12, 1).known_rows] == known_of(run.labels, 12, 1).known_labels).all()


def test_a_view_of_an_earlier_version_that_scaled_a_velocity_beside_adam_is_refused_unless_told():
    run = a_run(MaliciousOptimizer(), "adam")
    with refused(DataError, "unsupported", value="telco"):
        attacked(run, ActiveCompletion(**PARAMETERS), 1)
    assert len(attacked(run, ActiveCompletion(**PARAMETERS, base="momentum"), 1).values) == 200


@pytest.mark.parametrize("behavior", [{"base": "adam"}, {"reading": "published"}], ids=str)
def test_a_view_of_steps_as_recorded_is_read_beside_adam_by_an_attack_that_says_nothing_of_them(behavior):
    """The published code scales a velocity beside any optimizer."""
    run = a_run(MaliciousOptimizer(**behavior), "adam")
    assert len(attacked(run, ActiveCompletion(**PARAMETERS), 1).values) == 200


@pytest.mark.parametrize(
    ("given", "optimizer", "base"),
    [
        ({}, "sgd", "momentum"),
        ({}, "adam", "adam"),
        ({"reading": "published"}, "adam", "momentum"),
        ({"base": "momentum"}, "adam", "momentum"),
        ({"base": "adam"}, "sgd", "adam"),
    ],
)
def test_its_base_is_the_optimizer_of_the_model(given, optimizer, base):
    """A behavior without a base scales the velocity, as those that the first version stored."""
    model = SplitNet(optimizer=optimizer)
    settled = ActiveCompletion(**given).settled({"kind": "splitnn", **model.parameters()})
    assert (settled.base, settled.settled({"kind": "splitnn", "optimizer": "adam"})) == (base, settled)
    behavior = SplitNetFamily(model).make_behavior(settled.behavior)
    assert (behavior.base, "base" in settled.behavior) == (base, base == "adam")


def test_no_party_trains_for_an_attack_that_is_not_settled():
    with refused(JobError, "choice", field="malicious-optimizer base", value="auto"):
        SplitNetFamily().make_behavior(ActiveCompletion().behavior)


def test_parameters_that_cannot_be_are_refused_by_name():
    with refused(JobError, "type", field="honest", value=1):
        ATTACKS.make("active-completion", {"honest": 1})
    with refused(JobError, "range", field="steps", value=0):
        ATTACKS.make("active-completion", {"steps": 0})
