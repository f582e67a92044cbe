"""Attribute inference from inferred labels: synthetic tables with known answers, and what the attack may not read."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from labelward.attacks.attribute_inference import LEARNERS, AttributeInference, append_labels, infer_attribute
from labelward.attacks.base import UPPER_BOUND, AttackerData, AuxiliaryKnowledge
from labelward.errors import DataError, JobError
from labelward.testing.label_attacks import gradient_view
from refusals import refused

ROWS = 400


def _told(secret: NDArray[np.int64]) -> AuxiliaryKnowledge:
    known = np.arange(40)
    return AuxiliaryKnowledge(classes=int(secret.max()) + 1, known_rows=known, known_labels=secret[known])


def _accuracy(own: AttackerData, labels: dict[str, NDArray[np.int64]], secret: NDArray[np.int64]) -> dict[str, float]:
    inputs = {"": own} | {f", {name}": append_labels(own, each, int(each.max()) + 1) for name, each in labels.items()}
    return {
        f"{learner}{name}": float(
            np.mean(infer_attribute(each, _told(secret), learner=learner, seed=1).values[40:] == secret[40:])
        )
        for name, each in inputs.items()
        for learner in LEARNERS
    }


def test_an_attribute_that_is_the_label_is_inferred_from_it_alone() -> None:
    """The columns are noise: without the label nothing is known; a label that is right in .8 of the rows gives .8."""
    rng = np.random.default_rng(1)
    secret = rng.integers(0, 2, ROWS)
    own = AttackerData(features=rng.normal(size=(ROWS, 2)), columns=["a", "b"])
    partly = np.where(rng.random(ROWS) < 0.8, secret, 1 - secret)
    found = _accuracy(own, {"right": secret, "partly": partly}, secret)
    for by in LEARNERS:
        assert found[by] == pytest.approx(0.5, abs=0.1)  # four standard errors of 360 coins
        assert found[f"{by}, right"] >= 0.97
        assert found[by] < found[f"{by}, partly"] < found[f"{by}, right"]
    assert found["logistic, partly"] == pytest.approx(0.8, abs=0.1)  # the network learns the noise of 40 rows, too


def test_a_class_without_order_is_used_too() -> None:
    """The middle one of three classes has the attribute: as a number the label would not tell it to a linear model."""
    rng = np.random.default_rng(2)
    label = rng.integers(0, 3, ROWS)
    own = AttackerData(features=rng.normal(size=(ROWS, 1)), columns=["label"])
    found = _accuracy(own, {"right": label}, (label == 1).astype(np.int64))
    assert found["logistic, right"] >= 0.97


def test_a_label_that_tells_nothing_gains_nothing() -> None:
    rng = np.random.default_rng(3)
    columns = rng.normal(size=(ROWS, 3))
    secret = (columns[:, 0] > 0).astype(np.int64)
    own = AttackerData(features=columns, columns=["a", "b", "c"])
    found = _accuracy(own, {"noise": rng.integers(0, 2, ROWS)}, secret)
    assert found["logistic"] >= 0.9
    assert found["logistic, noise"] <= found["logistic"] + 0.03


def test_the_column_of_labels_keeps_apart_from_others_of_its_name() -> None:
    own = AttackerData(features=np.zeros((2, 1)), columns=["label"], outside=np.zeros((1, 1)))
    found = append_labels(own, np.array([0, 2]), 3)
    assert list(found.columns) == ["label", "label_"]
    assert found.categories == {"label_": 3}
    assert found.numbers().tolist() == [[0, 0, 0], [0, 0, 1]]
    assert found.outside is None


def test_images_are_laid_out_beside_the_labels() -> None:
    found = append_labels(AttackerData(features=np.arange(8.0).reshape(2, 1, 2, 2), columns=[]), np.array([1, 0]), 2)
    assert found.numbers().tolist() == [[0, 1, 2, 3, 1], [4, 5, 6, 7, 0]]


def _noise(secret: NDArray[np.int64]) -> tuple[AttackerData, AuxiliaryKnowledge]:
    own = AttackerData(features=np.random.default_rng(4).normal(size=(ROWS, 2)), columns=["a", "b"])
    return own, AuxiliaryKnowledge(classes=2, attribute=_told(secret))


def test_baselines_are_own_columns_and_in_scoring_alone_the_true_labels() -> None:
    secret = np.random.default_rng(5).integers(0, 2, ROWS)
    own, aux = _noise(secret)
    attack = AttributeInference(column="secret", learner="logistic")
    assert list(attack.baselines(own, aux, truth=None)) == ["own columns"]
    found = {
        name: each.guess(np.random.default_rng(6)) for name, each in attack.baselines(own, aux, truth=secret).items()
    }
    assert list(found) == ["own columns", UPPER_BOUND]
    for name, least, most in (("own columns", 0.4, 0.6), (UPPER_BOUND, 0.97, 1.0)):
        scores = found[name].scores["", "secret"]
        assert np.isnan(scores[:40]).all()
        assert least <= np.mean(scores[40:].argmax(axis=1) == secret[40:]) <= most


def test_nothing_is_inferred_without_a_known_value() -> None:
    own, aux = _noise(np.zeros(ROWS, np.int64))
    attack, rng = AttributeInference(column="secret"), np.random.default_rng(1)
    for without in (
        AuxiliaryKnowledge(classes=2),
        AuxiliaryKnowledge(classes=2, attribute=AuxiliaryKnowledge(classes=2)),
    ):
        with refused(DataError, "missing", field="[[attack]] column", value="secret"):
            attack(gradient_view(np.zeros((ROWS, 1))), own, without, rng=rng)
        with refused(DataError, "missing", field="[[attack]] column", value="secret"):
            attack.baselines(own, without, truth=None)
    assert list(attack.baselines(own, aux, truth=None)) == ["own columns"]


def test_labels_are_those_of_passive_completion_unless_the_party_deviates() -> None:
    passive, active = AttributeInference(column="secret"), AttributeInference(column="secret", honest=False, gamma=2.0)
    assert (passive.behavior, passive.alone) == (None, "")
    assert active.behavior == {"kind": "malicious-optimizer", "gamma": 2.0, "base": "auto"}
    assert active.alone
    assert passive.attribute == ("secret", 40)
    assert passive.labels_needed == 40
    assert AttributeInference(column="secret", labels="direct").labels_needed == 0


@pytest.mark.parametrize(("field", "value"), [("column", ""), ("known_values", 0), ("learner", "tree")])
def test_parameters_out_of_bounds_are_refused(field: str, value: object) -> None:
    with pytest.raises(JobError) as caught:
        AttributeInference(**{"column": "secret", field: value})  # type: ignore[arg-type]
    assert field in caught.value.field
    assert caught.value.value == value
