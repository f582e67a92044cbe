"""What each party holds: reference splits, shares, lists, importance, own tables, labels; and every refusal."""

import random
import warnings
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import v_measure_score

from labelward.data import RawTables, as_table, load_dataset, load_tables
from labelward.data.column_partition import column_counts
from labelward.data.splitting import check_split
from labelward.errors import DataError, DataWarning, JobError
from labelward.job import DataSection, parse_job
from labelward.rng import PrivateSeed
from refusals import refused

HALVES = {"active": 0.5, "telco": 0.5}


def make_job(data=None, parties=None, **rest):
    return parse_job({"data": {"table": "breast_cancer", **(data or {})}, "parties": parties or HALVES, **rest})


def rows(count=40, **columns):
    draw = np.random.default_rng(0)
    table = {"a": draw.normal(size=count), "b": np.arange(count), "c": draw.normal(size=count)}
    return RawTables(name="rows", tables=(as_table({**table, "label": np.arange(count) % 2, **columns}),))


def check_refusal(job, source, code, field, value, about=""):
    with refused(DataError, code, field=field, value=value) as caught:
        load_dataset(job, 1, source)
    assert about in caught.value.reason


def test_reference_splits_give_the_published_clustering_figures():
    published = [0.634, 0.614, 0.577, 0.521, 0.424]
    job = make_job({"split": "reference"})
    for seed, expected in enumerate(published, 1):
        data = load_dataset(job, seed)
        held = data.parties[1].train
        scaled = (held - held.min(axis=0)) / (held.max(axis=0) - held.min(axis=0))
        found = KMeans(2, n_init=10, random_state=0).fit_predict(scaled)
        # 10 starts of k-means end in the same optimum but for a few rows at the border
        assert v_measure_score(data.train_labels, found) == pytest.approx(expected, abs=0.01)


def test_reference_columns_are_head_and_tail_of_the_published_draw():
    names = [str(name) for name in load_breast_cancer().feature_names]
    drawn = random.Random(3).sample(range(30), 30)
    data = load_dataset(make_job({"split": "reference"}), 3)
    assert set(data.parties[0].columns) == {names[one] for one in drawn[:15]}
    assert set(data.parties[1].columns) == {names[one] for one in drawn[15:]}


@pytest.mark.parametrize("split", ["random", "reference"])
def test_rows_stay_together_across_parties(split):
    full = load_breast_cancer()
    names = [str(name) for name in full.feature_names]
    data = load_dataset(make_job({"split": split}, {"active": 0.2, "telco": 0.5, "shop": 0.3}), 4)
    assert [len(party.columns) for party in data.parties] == [6, 15, 9]
    assert sorted(name for party in data.parties for name in party.columns) == sorted(names)
    train, test = data.table_rows.train, data.table_rows.test
    assert sorted([*train, *test]) == list(range(569))
    assert len(test) == 114
    assert np.array_equal(data.train_labels, full.target[train])
    assert np.array_equal(data.test_labels, full.target[test])
    for party in data.parties:
        columns = [names.index(name) for name in party.columns]
        assert np.array_equal(party.train, full.data[train][:, columns])
        assert np.array_equal(party.test, full.data[test][:, columns])
        assert party.train.flags.c_contiguous


def test_a_seed_is_a_draw():
    job = make_job()
    first, again, other = load_dataset(job, 1), load_dataset(job, 1), load_dataset(job, 2)
    assert np.array_equal(first.train_ids, again.train_ids)
    assert first.parties[1].columns == again.parties[1].columns
    assert not np.array_equal(first.train_ids, other.train_ids)
    assert first.parties[1].columns != other.parties[1].columns


def test_the_sides_of_the_rows_are_a_function_of_their_number_and_the_private_seed():
    labels = [np.arange(40) % 2, np.arange(40) // 20, 1 - np.arange(40) % 2]
    secret, other = PrivateSeed(bytes(32)), PrivateSeed(bytes([1] * 32))
    job = make_job({"test_size": 0.25, "validation_size": 0.2})
    drawn = [load_dataset(job, 1, rows(label=label), private={"active": secret, "telco": other}) for label in labels]
    again = load_dataset(job, 1, rows(), private={"active": other, "telco": secret})
    for each in drawn:
        assert [len(side) for _, side in each.split.items()] == [24, 6, 10]
        assert all(np.array_equal(a, b) for a, b in zip(each.split.masks(), drawn[0].split.masks(), strict=True))
    assert not np.array_equal(again.split.test, drawn[0].split.test)


@pytest.mark.parametrize("side", ["validation", "test"])
def test_a_draw_in_which_a_side_lacks_a_class_is_used(side):
    """To draw again would tell, by the splits that are used, which rows a rare class cannot be."""
    job = make_job({"validation_size": 0.25})
    split = load_dataset(job, 1, rows()).table_rows
    label = np.arange(40) % 2
    label[getattr(split, side)] = 0
    with pytest.warns(DataWarning, match=side):
        data = load_dataset(job, 1, rows(label=label))
    assert data.table_rows.masks()[0].tolist() == split.masks()[0].tolist()
    assert data.table_rows.masks()[1].tolist() == split.masks()[1].tolist()


def test_a_training_part_without_a_class_is_refused():
    job = make_job({"validation_size": 0.25})
    split = load_dataset(job, 1, rows()).table_rows
    label = np.ones(40, dtype=int)
    label[split.train] = 0
    check_refusal(job, rows(label=label), "labels", "[data] test_size", "1", "row has class")


@pytest.mark.parametrize(
    ("sizes", "least"), [({}, 5), ({"test_size": 0.5}, 10), ({"test_size": 0.1}, 3), ({"validation_size": 0.25}, 8)]
)
def test_a_class_with_few_rows_is_refused_whatever_the_split(sizes, least):
    """All parties learn the split: whether a run begins must not tell what it is together with the labels."""
    job, label = make_job(sizes), np.arange(200) % 2
    for few in (least - 1, least):
        label[:few] = 7
        for seed in range(40):
            refusal = refused(DataError, "labels", field="[data] test_size", value="7")
            with warnings.catch_warnings(), nullcontext() if few == least else refusal:
                warnings.simplefilter("ignore", DataWarning)
                load_dataset(job, seed, rows(200, label=label))


@pytest.mark.parametrize(("sizes", "least"), [({}, 5), ({"test_size": 0.5}, 10), ({"validation_size": 0.25}, 8)])
@pytest.mark.parametrize("weighted", [False, True])
def test_quantities_that_are_nearly_all_equal_are_refused_whatever_the_split(sizes, least, weighted):
    """As a rare class: by the splits that are used, all parties would learn where the other values cannot be."""
    weight = {"weight": np.where(np.arange(200) < 100, 1.0, 0.0)} if weighted else {}
    job = make_job({**sizes, "task": "regression", **({"weight": "weight"} if weighted else {})})
    label = np.where(np.arange(200) >= 100, 5.0, 0.0) if weighted else np.zeros(200)
    for few in (least - 1, least):
        label[:few] = np.arange(1, few + 1)
        for seed in range(20):
            refusal = refused(DataError, "labels", field="table 'rows', label column 'label'", value=least - 1)
            with nullcontext() if few == least else refusal:
                load_dataset(job, seed, rows(200, label=label, **weight))


def test_rows_of_weight_0_do_not_make_a_class_frequent():
    job, label, weight = make_job({"weight": "weight"}), np.arange(200) % 2, np.ones(200)
    weight[1::2] = 0.0
    for few in (4, 5):
        weight[1 : 2 * few : 2] = 1.0
        for seed in range(20):
            refusal = refused(DataError, "labels", field="[data] test_size", value="1")
            with nullcontext() if few == 5 else refusal:
                load_dataset(job, seed, rows(200, label=label, weight=weight))


def test_published_splits_cut_the_tables_before_the_parties_have_them():
    data = load_dataset(make_job({"split": "reference", "validation_size": 0.2}), 1)
    train, validation = len(data.train_labels), len(data.validation_values)
    assert np.array_equal(np.flatnonzero(data.split.masks()[0]), np.arange(train, train + validation))
    assert np.array_equal(np.flatnonzero(data.split.masks()[1]), np.arange(train + validation, 569))
    assert data.ids.tolist() == [str(row) for row in range(569)]
    assert np.array_equal(data.train_labels, load_breast_cancer().target[data.table_rows.train])


@pytest.mark.parametrize("own", [False, True])
def test_published_splits_are_of_common_tables_without_ids(own):
    with refused(JobError, "conflict", field="[data] split", value="reference"):
        check_split(DataSection(split="reference", id="who", **({} if own else {"table": "breast_cancer"})))


def test_the_active_party_may_hold_no_column():
    for held in ({"active": 0, "telco": 1.0}, {"active": [], "telco": ["mean radius", "mean area"]}):
        data = load_dataset(make_job(parties=held), 1)
        assert data.parties[0].train.shape == (455, 0)
        assert data.parties[0].test.shape == (114, 0)


def test_listed_columns_keep_their_order_and_may_overlap():
    held = {"active": ["c", "a"], "telco": ["b", "a"]}
    data = load_dataset(make_job({"overlap": True}, held), 1, rows())
    assert [party.columns for party in data.parties] == [("c", "a"), ("b", "a")]
    assert np.array_equal(data.parties[0].train[:, 1], data.parties[1].train[:, 1])


def test_by_importance_the_passive_parties_get_the_most_telling_columns():
    draw = np.random.default_rng(5)
    label = draw.integers(0, 2, 400)
    strength = {"n0": 0.0, "s3": 3.0, "n1": 0.0, "s1": 1.0, "n2": 0.0, "s9": 9.0}
    columns = {name: draw.normal(size=400) + by * label for name, by in strength.items()}
    source = RawTables(name="planted", tables=(as_table({**columns, "label": label}),))
    parties = {"active": 0.5, "first": 1 / 6, "second": 2 / 6}
    data = load_dataset(make_job({"partition": "importance"}, parties), 1, source)
    assert [party.name for party in data.parties] == ["active", "first", "second"]
    assert [party.columns for party in data.parties] == [("n0", "n1", "n2"), ("s9",), ("s3", "s1")]


def test_importance_counts_categories_as_categories():
    label = np.arange(300) % 2
    scrambled = np.array(["p", "z", "k", "b"])[label + 2 * (np.arange(300) % 4 // 2)]  # tells all, in no order
    source = rows(300, label=label, told=scrambled)
    data = load_dataset(make_job({"partition": "importance"}, {"active": 0.75, "telco": 0.25}), 1, source)
    assert {name.split("=")[0] for name in data.parties[1].columns} == {"told"}


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 200))
def test_shares_that_sum_to_one_use_every_column(weights, columns):
    shares = [weight / sum(weights) for weight in weights]
    counts = column_counts(shares, columns)
    assert sum(counts) == columns
    # largest remainder: nobody is a whole column away from the exact share
    assert all(abs(count - share * columns) < 1 + 1e-6 for count, share in zip(counts, shares, strict=True))


def test_known_column_counts():
    assert column_counts([0.5, 0.5], 31) == [15, 16]
    assert column_counts([0.29, 0.71], 100) == [29, 71]
    assert column_counts([0.3, 0.3], 10) == [3, 3]
    assert column_counts([0.1, 0.2, 0.7], 10) == [1, 2, 7]


def test_rows_with_ids_are_sorted_by_id():
    ids = np.random.default_rng(1).permutation(40) + 5
    data = load_dataset(make_job({"id": "who"}), 1, rows(who=ids))
    assert "who" not in {name for party in data.parties for name in party.columns}
    for found in (data.train_ids, data.test_ids):
        assert found.tolist() == sorted(found.tolist())
    by_id = {str(one): row for row, one in enumerate(ids)}
    holder = next(party for party in data.parties if "b" in party.columns)  # column b is the row number
    assert holder.train[:, holder.columns.index("b")].tolist() == [by_id[one] for one in data.train_ids]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.arange(40) % 2, ("0", "1")),
        (np.where(np.arange(40) % 2, -1, 1), ("-1", "1")),
        (np.where(np.arange(40) % 2, 10, 9), ("9", "10")),
        ((np.arange(40) % 2).astype(float), ("0", "1")),
        (np.arange(40) % 2 == 1, ("False", "True")),
        (np.where(np.arange(40) % 2, "yes", "no"), ("no", "yes")),
        (pa.array(np.where(np.arange(40) % 2, "yes", "no")).dictionary_encode(), ("no", "yes")),
        (np.arange(40) % 3, ("0", "1", "2")),
    ],
)
def test_labels_become_positions_in_the_sorted_classes(labels, classes):
    data = load_dataset(make_job(), 1, rows(label=labels))
    assert data.classes == classes
    values = np.asarray(pa.array(labels).to_pylist() if isinstance(labels, pa.Array) else labels)
    texts = [str(int(one) if isinstance(one, float) else one) for one in values.tolist()]
    assert [classes[one] for one in data.train_labels] == [texts[int(row)] for row in data.train_ids]


@pytest.mark.parametrize(
    ("columns", "code", "field", "value", "about"),
    [
        ({"label": np.ones(40, int)}, "labels", "table 'rows', label column 'label'", "1", ""),
        (
            {"label": [None, None, *[0, 1] * 19]},
            "labels",
            "table 'rows', label column 'label'",
            2,
            "the first in row 0",
        ),
        (
            {"label": [0.0, np.nan, *[0.0, 1.0] * 19]},
            "labels",
            "table 'rows', label column 'label'",
            1,
            "the first in row 1",
        ),
        ({"label": [0.0, np.inf, *[0.0, 1.0] * 19]}, "labels", "table 'rows', label column 'label'", np.inf, "row 1"),
        (
            {"label": [0.0, 2.0**63, *[0.0, 1.0] * 19]},
            "labels",
            "table 'rows', label column 'label'",
            2.0**63,
            "too large",
        ),
        ({"label": [0.0, 0.5, *[0.0, 1.0] * 19]}, "labels", "table 'rows', label column 'label'", 0.5, "row 1"),
        ({"label": [7, *[0, 1] * 19, 0]}, "labels", "table 'rows', label column 'label'", "7", ""),
        ({"a": [np.inf] * 40}, "values", "party 'telco', column 'a'", np.inf, "row 0"),
    ],
)
def test_rows_that_cannot_be_used(columns, code, field, value, about):
    check_refusal(make_job(), rows(**columns), code, field, value, about)


@pytest.mark.parametrize(
    ("data", "parties", "code", "field", "value", "about"),
    [
        ({}, {"active": ["a"], "telco": ["bb"]}, "columns", "party 'telco'", "bb", "'b'?"),
        ({"label": "lable"}, HALVES, "columns", "table 'rows'", "lable", "'label'?"),
        ({"id": "who"}, HALVES, "columns", "table 'rows'", "who", ""),
        ({}, {"active": 0.9, "telco": 0.1}, "range", "[parties] telco", 0.1, "3 columns"),
        ({"test_size": 0.99}, HALVES, "rows", "[data] test_size", 0.99, "40 rows"),
    ],
)
def test_jobs_that_do_not_fit_the_table(data, parties, code, field, value, about):
    check_refusal(make_job(data, parties), rows(), code, field, value, about)


def test_a_passive_party_of_one_category_holds_nothing():
    job = make_job({"categories": "dummies"}, {"active": ["a"], "telco": ["same"]})
    check_refusal(job, rows(same=["s"] * 40), "columns", "party 'telco'", None, "no column")


@pytest.fixture
def own_tables(tmp_path):
    """Write two parties' tables with the same ids in different orders; return a function that makes the job."""
    order = np.random.default_rng(2).permutation(30)
    bank = pa.table({"customer": [f"{one:03}" for one in range(30)], "x": range(30), "y": ["no", "yes"] * 15})
    telco = pa.table({"who": [f"{one:03}" for one in order], "minutes": order * 10.0, "plan": ["p", "q"] * 15})

    def make(telco=telco, **sections):
        pq.write_table(bank, tmp_path / "bank.parquet")
        csv.write_csv(telco, tmp_path / "telco.csv")
        parties = {
            "telco": {"table": "telco.csv", "id": "who", **sections},
            "bank": {"table": "bank.parquet", "id": "customer", "label": "y"},
        }
        return parse_job({"parties": parties}, base=tmp_path)

    make.telco = telco
    return make


def test_own_tables_are_matched_by_id(own_tables):
    data = load_dataset(own_tables(), 1)
    bank, telco = data.parties
    assert (bank.name, bank.columns) == ("bank", ("x",))
    assert (telco.name, telco.columns) == ("telco", ("minutes", "plan"))
    assert np.array_equal(telco.train[:, 0], 10 * bank.train[:, 0])
    assert data.train_ids.tolist() == [f"{int(one):03}" for one in bank.train[:, 0]]
    assert np.array_equal(data.train_labels, bank.train[:, 0] % 2)
    assert data.name == "bank"
    assert load_dataset(own_tables(columns=["minutes"]), 1).parties[1].columns == ("minutes",)


def test_own_tables_with_other_rows_are_refused(own_tables):
    short = own_tables.telco.slice(2)
    lost = min(own_tables.telco["who"][:2].to_pylist())
    check_refusal(own_tables(short), None, "rows", "", None, f"2 ids (such as '{lost}')")
    check_refusal(own_tables(short), None, "rows", "", None, "missing at 'telco'")
    doubled = pa.concat_tables([own_tables.telco, short])
    first, second, third = short["who"][:3].to_pylist()
    repeated = f"'{first}', '{second}', '{third}'"
    check_refusal(own_tables(doubled), None, "rows", "party 'telco', id column 'who'", 28, repeated)
    check_refusal(own_tables(columns=["minute"]), None, "columns", "party 'telco'", "minute", "'minutes'?")


def test_a_passive_party_s_column_with_the_label_s_name_must_be_listed(own_tables):
    """Left in by mistake it would be the label itself, and the model would learn from it."""
    leaky = own_tables.telco.append_column("y", pa.array(["no", "yes"] * 15))
    check_refusal(own_tables(leaky), None, "columns", "party 'telco'", "y", "of 'bank'")
    check_refusal(own_tables(leaky), None, "columns", "party 'telco'", "y", "[parties.telco]")
    assert load_dataset(own_tables(leaky, columns=["minutes", "y"]), 1).parties[1].columns == ("minutes", "y")


@pytest.mark.parametrize("listed", [{}, {"columns": ["x", "minutes"]}])
def test_a_column_of_two_own_tables_needs_overlap(own_tables, listed):
    both = own_tables.telco.append_column("x", pa.array(np.arange(30)))
    job = own_tables(both, **listed)
    check_refusal(job, None, "duplicate", "party 'telco'", "x", "party 'bank'")
    allowed = replace(job, data=DataSection(overlap=True))
    assert "x" in load_dataset(allowed, 1).parties[1].columns


def test_a_table_from_a_file_is_read_once_for_all_seeds(tmp_path):
    pq.write_table(rows().tables[0], tmp_path / "mine.parquet")
    job = make_job({"table": str(tmp_path / "mine.parquet"), "label": "label"})
    source = load_tables(job)
    (tmp_path / "mine.parquet").unlink()
    assert load_dataset(job, 1, source).name == "mine"
