"""Each attack of the list passes the suite that third parties are given."""

import numpy as np
import pytest

from blames import refused_about
from labelward.attacks import ATTACKS
from labelward.attacks.clustering import Clustering
from labelward.attacks.id2graph import ID2Graph
from labelward.errors import JobError
from labelward.testing.attacks import AttackContract


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
    ("parameters", "code", "about"),
    [
        ({"eta": 0}, "range", "eta"),
        ({"eta": 1.5}, "range", "eta"),
        ({"eta": True}, "type", "eta"),
        ({"alpha": -1.0}, "range", "alpha"),
        ({"alpha": float("nan")}, "range", "alpha"),
        ({"alpha": "3"}, "type", "alpha"),
        ({"starts": 0}, "range", "starts"),
        ({"starts": 2.0}, "type", "starts"),
        ({"chunk": 0}, "range", "chunk"),
        ({"inter_chunk_weight": 0.0}, "range", "inter_chunk_weight"),
        ({"alhpa": 1.0}, "unknown", "'alpha'"),
    ],
)
def test_parameters_that_cannot_be_are_refused_by_name(parameters, code, about):
    with refused_about(about, JobError, code) as caught:
        ATTACKS.make("id2graph", parameters)
    given = next(iter(parameters)) if code == "unknown" else next(iter(parameters.values()))
    np.testing.assert_equal(caught.value.value, given)
