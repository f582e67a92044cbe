import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blames import refused_about
from labelward.attacks import clustering
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.clustering import Clustering
from labelward.attacks.id2graph import ID2Graph, chunked
from labelward.errors import DataError, InputError
from labelward.kernels import communities
from labelward.kernels.louvain import louvain
from labelward.metrics.leakage import score_clusters
from labelward.party.view import View
from labelward.testing.attacks import planted_view

ROWS = 300


def noise(rows=ROWS, columns=3, seed=1):
    features = np.random.default_rng(seed).normal(size=(rows, columns))
    return AttackerData(features=features, columns=[f"x{column}" for column in range(columns)])


def attacked(attack, view, own, classes=2, seed=1):
    return attack(view, own, AuxiliaryKnowledge(classes=classes), rng=np.random.default_rng(seed))


def labels(classes, rows=ROWS):
    return np.random.default_rng(2).integers(classes, size=rows)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("attack", [ID2Graph(), ID2Graph(eta=1.0)])
@pytest.mark.parametrize("own_splits", [False, True])
def test_leaves_that_are_the_classes_give_them_away(classes, attack, own_splits):
    truth = labels(classes)
    view = planted_view(np.tile(truth, (3, 1)).astype(np.int32), own=own_splits)
    guess = attacked(attack, view, noise(), classes)
    assert score_clusters(guess.values, truth) == {
        "v_measure": pytest.approx(1.0),
        "ari": 1.0,
        "matched_accuracy": 1.0,
    }


def test_without_a_view_or_with_one_community_the_guess_is_that_of_clustering():
    view = planted_view(np.tile(labels(2), (3, 1)).astype(np.int32))
    one_leaf = planted_view(np.zeros((2, ROWS), np.int32))
    for seen in (view.without_records(), one_leaf):
        for seed in range(5):
            guess = attacked(ID2Graph(), seen, noise(), seed=seed)
            np.testing.assert_array_equal(guess.values, attacked(Clustering(), seen, noise(), seed=seed).values)
            assert guess.notes["communities"] == 1
            assert guess.notes["modularity"] == 0


def test_communities_without_weight_say_nothing():
    """With alpha = 0 the indicators vanish: two far groups are found as CL finds them, up to their numbers."""
    own = AttackerData(
        features=np.where(labels(2)[:, None] == 1, 5.0, 0.0) + noise().features * 0.1, columns=["a", "b", "c"]
    )
    view = planted_view(labels(3)[None].astype(np.int32))
    guess, baseline = attacked(ID2Graph(alpha=0.0), view, own), attacked(Clustering(), view, own)
    assert score_clusters(guess.values, baseline.values)["ari"] == 1.0


@pytest.mark.parametrize(("model", "eta"), [("secureboost", 0.6), ("forest", 1.0), ("federated-forest", 1.0)])
def test_the_discount_follows_the_model(model, eta):
    rng = np.random.default_rng(3)
    view = planted_view(rng.integers(4, size=(4, ROWS)).astype(np.int32), model=model)
    by_model, by_hand = (attacked(attack, view, noise()).notes for attack in (ID2Graph(), ID2Graph(eta=eta)))
    other = attacked(ID2Graph(eta=0.8), view, noise()).notes
    assert by_model == by_hand != other
    assert by_model["trees"] == 4


def test_the_first_tree_seen_has_full_weight():
    """Leakage reduced by local trees: the discount begins with the first tree of the view."""
    truth = labels(2)
    leaves = np.vstack([truth, np.random.default_rng(4).integers(2, size=(2, ROWS))]).astype(np.int32)
    guess = attacked(ID2Graph(eta=0.2), planted_view(leaves), noise())
    assert score_clusters(guess.values, truth)["v_measure"] == pytest.approx(1.0)


def test_leaves_by_any_name_and_equal_trees_in_any_order_give_the_same_guess():
    rng = np.random.default_rng(5)
    leaves = rng.integers(-1, 6, size=(4, ROWS)).astype(np.int32)
    names = np.array([*rng.permutation(100)[:6], -1], np.int32)
    guess = attacked(ID2Graph(eta=1.0), planted_view(leaves), noise())
    other = attacked(ID2Graph(eta=1.0), planted_view(names[leaves][::-1]), noise(), seed=1)
    np.testing.assert_array_equal(guess.values, other.values)


def test_sparse_and_dense_indicators_give_the_same_clusters(monkeypatch):
    view = planted_view(labels(4)[None].astype(np.int32))
    dense = attacked(ID2Graph(alpha=0.7), view, noise(), 4)
    monkeypatch.setattr(clustering, "_DENSE_BYTES", 0)
    sparse = attacked(ID2Graph(alpha=0.7), view, noise(), 4)
    assert score_clusters(dense.values, sparse.values)["ari"] == pytest.approx(1.0)


def test_scaling_and_constant_columns_do_not_change_clustering():
    own, view = noise(), planted_view(np.zeros((1, ROWS), np.int32))
    stretched = np.column_stack([own.features * [1, 1024, 2**-9], np.full(ROWS, 3.3)])
    other = AttackerData(features=stretched, columns=[*own.columns, "constant"])
    one, two = attacked(Clustering(), view, own), attacked(Clustering(), view, other)
    np.testing.assert_array_equal(one.values, two.values)  # powers of two scale without rounding


def printed_algorithm(leaves, weights, size, between):
    """Algorithm 3 of the paper, loop by loop, with the inter-chunk edge that its text describes."""
    matrix = np.zeros((leaves.shape[1], leaves.shape[1]))
    for tree, weight in enumerate(weights):
        for leaf in set(leaves[tree]) - {-1}:
            rows = np.flatnonzero(leaves[tree] == leaf)
            for begin in range(0, len(rows), size):
                if begin:
                    matrix[rows[begin - 1], rows[begin]] += between
                    matrix[rows[begin], rows[begin - 1]] += between
                for one in rows[begin : begin + size]:
                    for other in rows[begin : begin + size]:
                        matrix[one, other] += weight * (one != other)
    return matrix


@settings(max_examples=50)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 15)).flatmap(
        lambda shape: arrays(np.int32, shape, elements=st.integers(-1, 2))
    ),
    st.integers(1, 6),
)
def test_the_chunked_form_is_the_papers_graph(leaves, size):
    weights = 0.5 ** np.arange(len(leaves))
    parts, part_weights = chunked(leaves, weights, size, 7.0)
    matrix = np.zeros((leaves.shape[1], leaves.shape[1]))
    for part, weight in zip(parts, part_weights, strict=True):
        matrix += weight * ((part[:, None] == part[None, :]) & (part >= 0))
    np.fill_diagonal(matrix, 0)
    np.testing.assert_array_equal(matrix, printed_algorithm(leaves, weights, size, 7.0))  # halves and sevens are exact


def test_chunks_lose_what_the_exact_graph_shows():
    """The reason why the exact graph is the default: strong edges between chunks pull communities apart."""
    truth = labels(2)
    view = planted_view(np.tile(truth, (3, 1)).astype(np.int32))
    exact, approximate = (attacked(attack, view, noise()) for attack in (ID2Graph(), ID2Graph(chunk=20)))
    assert approximate.notes["communities"] > exact.notes["communities"] == 2
    assert score_clusters(approximate.values, truth)["v_measure"] < score_clusters(exact.values, truth)["v_measure"]


def test_chunks_tell_nothing_of_the_order_of_the_rows():
    """One leaf with all rows of a table that is sorted by label; two chunks would be the classes."""
    truth = np.sort(labels(2))
    view = planted_view(np.zeros((1, ROWS), np.int32))
    guess = attacked(ID2Graph(chunk=int((truth == 0).sum())), view, noise())
    assert guess.notes["communities"] > 1
    assert score_clusters(guess.values, truth)["v_measure"] < 0.1


def test_one_chunk_is_the_exact_graph():
    leaves = np.random.default_rng(6).integers(5, size=(3, ROWS)).astype(np.int32)
    exact, whole = (attacked(attack, planted_view(leaves), noise()) for attack in (ID2Graph(), ID2Graph(chunk=ROWS)))
    np.testing.assert_array_equal(exact.values, whole.values)
    assert exact.notes == whole.notes


def with_value(value):
    own = noise()
    own.features[7, 1] = value
    return own


@pytest.mark.parametrize("attack", [Clustering(), ID2Graph()])
@pytest.mark.parametrize(
    ("own", "classes", "error", "code", "value", "about"),
    [
        (noise(ROWS + 1), 2, DataError, "rows", ROWS + 1, "300"),
        (noise(columns=0), 2, DataError, "columns", "passive", "no column"),
        (with_value(np.inf), 2, DataError, "values", np.inf, "in row 7"),
        (noise(), 0, InputError, "range", 0, "classes"),
        (noise(), ROWS + 1, InputError, "range", ROWS + 1, "classes"),
    ],
)
def test_what_cannot_be_clustered_is_refused(attack, own, classes, error, code, value, about):
    with refused_about(about, error, code, value=value):
        attacked(attack, planted_view(np.zeros((1, ROWS), np.int32)), own, classes)


def test_equal_rows_fall_into_one_cluster_without_a_warning():
    own = AttackerData(features=np.ones((ROWS, 2)), columns=["a", "b"])
    guess = attacked(Clustering(), planted_view(np.zeros((1, ROWS), np.int32)), own, 3)
    assert set(guess.values) == {0}


def test_the_last_of_thousands_of_trees_weigh_nothing():
    """0.6 to the power of 1500 is no number any more."""
    truth = labels(2, 60)
    leaves = np.tile(truth, (2000, 1)).astype(np.int32)
    guess = attacked(ID2Graph(), planted_view(leaves), noise(60))
    assert guess.notes["trees"] == 2000.0
    assert score_clusters(guess.values, truth)["ari"] == 1.0


def test_the_trees_of_one_round_have_one_rank(monkeypatch):
    """One tree for each of three classes a round: the discount counts rounds, as it does for one vector-leaf tree."""
    seen = []

    def watched(signatures, weights, **options):
        seen.append(weights.tolist())
        return louvain(signatures, weights, **options)

    monkeypatch.setattr(communities, "louvain", watched)
    plain = planted_view(np.random.default_rng(6).integers(4, size=(7, ROWS)).astype(np.int32))
    job = plain.header.job | {"model.multi_strategy": '"one_output_per_tree"'}
    apart = View(msgspec.structs.replace(plain.header, job=job), plain._entries)
    for view, classes in ((plain, 3), (apart, 3), (apart, 2)):
        attacked(ID2Graph(eta=0.5), view, noise(), classes)
    falling = [2.0**-rank for rank in range(7)]
    assert seen == [falling, [1, 1, 1, 0.5, 0.5, 0.5, 0.25], falling]
