"""What an attacker's own columns are as numbers."""

import numpy as np
import pytest

from blames import refused_about
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.clustering import Clustering
from labelward.attacks.id2graph import ID2Graph
from labelward.errors import DataError
from labelward.testing.attacks import planted_view

NAN = np.nan


def test_numbers_stay_and_a_gap_becomes_the_mean():
    own = AttackerData(features=np.array([[1.0, NAN], [NAN, NAN], [4.0, NAN]]), columns=("a", "b"))
    assert own.numbers().tolist() == [[1.0, 0.0], [2.5, 0.0], [4.0, 0.0]]
    assert np.isnan(own.features[1, 0])


def test_a_categorical_column_becomes_what_a_table_with_dummies_has():
    own = AttackerData(
        features=np.array([[7.0, 0.0], [8.0, 1.0], [9.0, 2.0], [9.0, NAN], [9.0, -1.0], [9.0, 2.0]]),
        columns=("a", "town"),
        categories={"town": 3},
    )
    # Two of the four rows whose town is known have category 2, one has 1; -1 is a category that the run did not have.
    assert own.numbers()[:, 1:].tolist() == [[0, 0], [1, 0], [0, 1], [0.25, 0.5], [0.25, 0.5], [0, 1]]
    assert own.numbers()[:, 0].tolist() == [7, 8, 9, 9, 9, 9]


def test_no_column_and_a_column_of_one_category():
    assert AttackerData(features=np.empty((3, 0)), columns=()).numbers().shape == (3, 0)
    assert AttackerData(features=np.zeros((2, 1)), columns=("c",), categories={"c": 1}).numbers().tolist() == [[0], [0]]


def test_of_many_categories_the_most_frequent_have_columns():
    """65 categories: the rarest has none, whose rows are all 0; other rows get the same columns."""
    codes = np.concatenate([np.arange(65.0), np.delete(np.arange(65.0), 7)])
    own = AttackerData(features=codes[:, None], columns=("hashed",), categories={"hashed": 65})
    found = own.numbers()
    assert found.shape == (129, 64)
    assert np.flatnonzero(found.sum(axis=1) == 0).tolist() == [7]
    assert (found.sum(axis=0) == 2).all()
    others = own.numbers(np.array([[7.0], [8.0], [0.0]]))
    assert others.sum(axis=1).tolist() == [0, 1, 1]
    assert others[1].argmax() == 7
    assert others[2].argmax() == 0


@pytest.mark.parametrize("attack", [Clustering(), ID2Graph()])
def test_names_of_codes_do_not_matter_beyond_the_first(attack):
    """Categories 1 and 2 exchanged: the same columns in another order, so the same clusters up to their numbers."""
    rng = np.random.default_rng(1)
    codes = rng.integers(3, size=200).astype(float)
    other = np.array([0.0, 2.0, 1.0])[codes.astype(int)]
    view = planted_view((codes[None] == 2).astype(np.int32))
    found = [
        attack(
            view,
            AttackerData(features=c[:, None], columns=("t",), categories={"t": 3}),
            AuxiliaryKnowledge(classes=3),
            rng=rng,
        ).values
        for c, rng in ((codes, np.random.default_rng(2)), (other, np.random.default_rng(2)))
    ]
    assert len(np.unique(found[0])) == 3
    assert len(np.unique(np.stack(found), axis=1).T) == 3


def test_an_infinite_value_is_refused():
    own = AttackerData(features=np.array([[1.0], [-np.inf], [NAN]]), columns=("a",))
    with refused_about("row 1", DataError, "values", value=-np.inf):
        Clustering()(
            planted_view(np.zeros((1, 3), np.int32)), own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(0)
        )
