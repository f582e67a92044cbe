"""Each attack of the list passes the suite that third parties are given."""

import pytest

from labelward.attacks import ATTACKS
from labelward.attacks.clustering import Clustering
from labelward.attacks.id2graph import ID2Graph
from labelward.errors import InputError
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
    ("parameters", "message"),
    [
        ({"eta": 0}, "eta must be above 0 and at most 1 but is 0"),
        ({"eta": 1.5}, "eta .* 1.5"),
        ({"eta": True}, "eta must be a number but is True"),
        ({"alpha": -1.0}, "alpha must not be negative but is -1.0"),
        ({"alpha": float("nan")}, "alpha must be a number but is nan"),
        ({"alpha": "3"}, "alpha must be a number but is '3'"),
        ({"starts": 0}, "starts must be a whole number of at least 1 but is 0"),
        ({"starts": 2.0}, "starts .* 2.0"),
        ({"chunk": 0}, "chunk .* 0"),
        ({"inter_chunk_weight": 0.0}, "inter_chunk_weight must be positive but is 0.0"),
        ({"alhpa": 1.0}, "'alhpa' .did you mean 'alpha'"),
    ],
)
def test_parameters_that_cannot_be_are_refused_by_name(parameters, message):
    with pytest.raises(InputError, match=message):
        ATTACKS.make("id2graph", parameters)
