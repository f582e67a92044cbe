"""Each attack of the list passes the suite that third parties are given."""

import numpy as np
import pytest

from blames import refused_about
from labelward.attacks import ATTACKS
from labelward.attacks.clustering import Clustering
from labelward.attacks.id2graph import ID2Graph
from labelward.errors import JobError
from labelward.testing.attacks import AttackContract
from refusals import refused


class TestClustering(AttackContract):
    def attack(self):
        return Clustering()


class TestID2Graph(AttackContract):
    def attack(self):
        return ID2Graph()


class TestID2GraphOfThreeClasses(AttackContract):
    classes = 3

    def attack(self):
        return ID2Graph(eta=1, alpha=1.0, starts=2)


class TestChunkedID2Graph(AttackContract):
    def attack(self):
        return ID2Graph(chunk=20)


def test_the_list_makes_each_of_them():
    assert {"clustering", "id2graph"} <= set(ATTACKS.classes())
    assert ATTACKS.make("id2graph", {"alpha": 2.0}) == ID2Graph(alpha=2.0)


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"eta": 0}, "range"),
        ({"eta": 1.5}, "range"),
        ({"eta": True}, "type"),
        ({"alpha": -1.0}, "range"),
        ({"alpha": float("nan")}, "range"),
        ({"alpha": "3"}, "type"),
        ({"starts": 0}, "range"),
        ({"starts": 2.0}, "type"),
        ({"chunk": 0}, "range"),
        ({"inter_chunk_weight": 0.0}, "range"),
    ],
)
def test_parameters_that_cannot_be_are_refused_by_name(parameters, code):
    ((name, value),) = parameters.items()
    with refused(JobError, code, field=name) as caught:
        ATTACKS.make("id2graph", parameters)
    np.testing.assert_equal(caught.value.value, value)


def test_an_unknown_parameter_is_refused_with_a_near_one():
    with refused_about("'alpha'", JobError, "unknown", value="alhpa"):
        ATTACKS.make("id2graph", {"alhpa": 1.0})
