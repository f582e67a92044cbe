"""Labels of both tasks, weights, validation rows, constraints: what a job with them gives, and every refusal."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from labelward.data import RawTables, as_table, load_dataset
from labelward.data.labels import encode_labels, quantile_edges
from labelward.errors import DataError, DataWarning
from labelward.job import parse_job
from refusals import refused

HALVES = {"active": 0.5, "telco": 0.5}
REGRESSION = {"task": "regression"}


def make_job(data=None, parties=None, **rest):
    return parse_job({"data": {"table": "digits", **(data or {})}, "parties": parties or HALVES, **rest})


def rows(count=40, **columns):
    draw = np.random.default_rng(0)
    table = {"a": draw.normal(size=count), "b": np.arange(count), "c": draw.normal(size=count)}
    return RawTables(name="rows", tables=(as_table({**table, "label": np.arange(count) % 2, **columns}),))


def check_refusal(job, source, code, field, value, about=""):
    with refused(DataError, code, field=field, value=value) as caught:
        load_dataset(job, 1, source)
    assert about in caught.value.reason


def test_quantities_are_learned_and_their_bins_guessed():
    label = np.random.default_rng(1).gamma(2.0, size=200)
    data = load_dataset(
        make_job({**REGRESSION, "validation_size": 0.25}, leakage={"label_bins": 5}), 1, rows(200, label=label)
    )
    assert (data.task, data.classes) == ("regression", ())
    assert np.array_equal(data.train_values, label[data.train_ids.astype(int)])
    assert np.array_equal(data.validation_values, label[data.validation_ids.astype(int)])
    assert np.array_equal(data.test_values, label[data.test_ids.astype(int)])
    assert np.bincount(data.train_labels).tolist() == [24] * 5
    limits = [data.train_values[data.train_labels == one].max() for one in range(4)]
    assert np.array_equal(data.test_labels, (data.test_values[:, None] > limits).sum(axis=1))
    assert (len(data.train_ids), len(data.validation_ids), len(data.test_ids)) == (120, 40, 40)


def test_class_numbers_are_values_and_labels():
    data = load_dataset(make_job(), 1)
    assert data.task == "classification"
    assert len(data.classes) == 10
    assert np.array_equal(data.train_values, data.train_labels)
    assert np.array_equal(data.test_values, data.test_labels)
    for weights, values in ((data.train_weights, data.train_values), (data.test_weights, data.test_values)):
        assert np.array_equal(weights, np.ones(len(values)))
        assert weights.dtype == values.dtype == np.float64
    assert data.validation_values.shape == data.validation_weights.shape == data.validation_ids.shape == (0,)
    assert data.parties[0].validation.shape == (0, 32)


def test_the_catalog_says_what_its_labels_are(monkeypatch):
    from labelward.data import catalog

    quantity = catalog.CatalogEntry(name="digits", title="", rows=1797, features=64)
    monkeypatch.setattr(catalog, "catalog_entries", lambda: {quantity.name: quantity})
    assert load_dataset(make_job(), 1).task == "regression"
    assert load_dataset(make_job({"task": "classification"}), 1).task == "classification"


@given(
    st.lists(st.one_of(st.integers(0, 4).map(float), st.floats(-1e150, 1e150)), min_size=2, max_size=60),
    st.integers(2, 10),
)
def test_no_bin_of_the_training_rows_is_empty(values, bins):
    values = np.array(values)
    assume(values.min() < values.max())
    edges = quantile_edges(values, bins)
    assert np.array_equal(edges, np.unique(edges))
    counts = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
    assert 2 <= len(counts) <= bins
    assert counts.min() > 0


@pytest.mark.parametrize(
    ("values", "bins", "edges"),
    [
        (np.arange(1.0, 9), 4, [2, 4, 6]),
        (np.arange(1.0, 9), 2, [4]),
        ([0.0] * 90 + [1.0, 2.0, 3.0, 4.0, 5.0] * 2, 4, [0]),  # claims of insured people: most have none
        ([1.0, 2.0] + [9.0] * 50, 4, [2]),
        ([5.0, 7.0], 100, [5]),
    ],
)
def test_known_bins(values, bins, edges):
    assert quantile_edges(np.array(values), bins).tolist() == edges


def test_numbers_that_lose_digits_are_told():
    ids = 2**60 + np.arange(40)
    with pytest.warns(DataWarning, match="40 different"):
        load_dataset(make_job({}, {"active": 0.4, "telco": 0.6}), 1, rows(far=ids, exact=2.0**60 * np.arange(40)))


def test_classes_that_differ_in_spelling_are_told():
    with pytest.warns(DataWarning, match="'Yes' and 'yes'"):
        encode_labels(pa.table({"y": ["no", "yes", "Yes", "no", "yes", "Yes"]}), "y", "made")


def test_weights_whose_smallest_would_round_to_zero_are_refused():
    for least, fails in ((1e-9, False), (1e-10, True)):
        weights = np.where(np.arange(40) % 2, 1.0, least)
        weights[0] = 0.0
        job = make_job({"weight": "w"}, {"active": 0.4, "telco": 0.6})
        if fails:
            with refused(DataError, "range", value=(least, 1.0)):
                load_dataset(job, 1, rows(w=weights))
        else:
            load_dataset(job, 1, rows(w=weights))


def test_weights_go_with_their_rows_and_are_nobodys_column():
    weights = np.random.default_rng(3).permutation(40) / 4.0
    data = load_dataset(
        make_job({"weight": "w", "validation_size": 0.2}, {"active": 0.4, "telco": 0.6}), 1, rows(w=weights)
    )
    assert sorted(name for party in data.parties for name in party.columns) == ["a", "b", "c"]
    for ids, found in (
        (data.train_ids, data.train_weights),
        (data.validation_ids, data.validation_weights),
        (data.test_ids, data.test_weights),
    ):
        assert np.array_equal(found, weights[ids.astype(int)])


@pytest.mark.parametrize(
    ("weights", "code", "field", "value", "about"),
    [
        ([1.0, -2.0, *[1.0] * 38], "values", "table 'rows', weight column 'w'", 1, "row 1"),
        ([1.0, np.nan, *[1.0] * 38], "values", "table 'rows', weight column 'w'", 1, "row 1"),
        ([None, None, *[1] * 38], "values", "table 'rows', weight column 'w'", 2, "row 0"),
        ([np.inf, *[1.0] * 39], "values", "table 'rows', weight column 'w'", np.inf, "row 0"),
        ([0] * 40, "values", "table 'rows', weight column 'w'", None, ""),
        (["1"] * 40, "columns", "table 'rows', weight column 'w'", "string", ""),
        ([True] * 40, "columns", "table 'rows', weight column 'w'", "bool", ""),
    ],
)
def test_weights_that_cannot_be_used(weights, code, field, value, about):
    check_refusal(make_job({"weight": "w"}), rows(w=weights), code, field, value, about)


def test_a_side_of_weight_zero_is_refused():
    job = make_job({"weight": "w"})
    for side in ("train", "test"):
        ids = getattr(load_dataset(job, 1, rows(w=[1] * 40)), f"{side}_ids").astype(int)
        weights = np.where(np.isin(np.arange(40), ids), 0, 1)
        check_refusal(job, rows(w=weights), "rows", "table 'rows', label column 'label'", side)


@pytest.mark.parametrize(
    ("task", "label", "code", "field", "value", "about"),
    [
        ("regression", ["x", "y"] * 20, "labels", "table 'rows', label column 'label'", "string", "'x'"),
        ("regression", [True, False] * 20, "labels", "table 'rows', label column 'label'", "bool", ""),
        ("regression", [dt.date(2020, 1, 1)] * 40, "labels", "table 'rows', label column 'label'", "date32[day]", ""),
        ("regression", [None, *range(39)], "labels", "table 'rows', label column 'label'", 1, "row 0"),
        ("regression", [1.0, np.nan, *range(38)], "labels", "table 'rows', label column 'label'", 1, "row 1"),
        ("regression", [1.0, -np.inf, *range(38)], "values", "table 'rows', label column 'label'", -np.inf, "row 1"),
        ("regression", [1e151, *range(39)], "values", "table 'rows', label column 'label'", 1e151, "1e+150"),
        ("regression", [2.5] * 40, "labels", "table 'rows', label column 'label'", 2.5, ""),
        (
            "classification",
            [dt.date(2020, 1, 1)] * 40,
            "labels",
            "table 'rows', label column 'label'",
            "date32[day]",
            "",
        ),
        ("classification", [0.5, 1.5] * 20, "labels", "table 'rows', label column 'label'", 0.5, 'task = "regression"'),
        ("classification", range(40), "labels", "table 'rows', label column 'label'", "0", 'task = "regression"'),
    ],
)
def test_labels_that_do_not_fit_the_task(task, label, code, field, value, about):
    check_refusal(make_job({"task": task}), rows(label=pa.array(label)), code, field, value, about)


def test_a_constant_label_of_the_training_rows_is_refused():
    job = make_job(REGRESSION)
    test_rows = load_dataset(job, 1, rows()).test_ids[:5].astype(int)
    label = np.where(np.isin(np.arange(40), test_rows), 1.0, 0.0)
    check_refusal(job, rows(label=label), "labels", "table 'rows', label column 'label'", 0.0, "training row")


@pytest.mark.parametrize("split", ["random", "reference"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_validation_rows_come_out_of_the_training_rows(split, task):
    data = {"split": split, "task": task}
    plain = load_dataset(make_job(data), 3)
    watched = load_dataset(make_job({**data, "validation_size": 0.25}), 3)
    assert np.array_equal(plain.table_rows.test, watched.table_rows.test)
    assert np.array_equal(plain.test_values, watched.test_values)
    together = np.concatenate([watched.table_rows.train, watched.table_rows.validation])
    assert sorted(together) == plain.table_rows.train.tolist()
    assert len(watched.validation_ids) == int(np.ceil(0.25 * len(plain.train_ids)))
    assert np.array_equal(watched.validation_ids.astype(int), np.sort(watched.validation_ids.astype(int)))
    for before, after in zip(plain.parties, watched.parties, strict=True):
        assert before.columns == after.columns
        assert np.array_equal(before.test, after.test)
        held = dict(zip(plain.table_rows.train.tolist(), before.train, strict=True))
        assert np.array_equal(after.validation, [held[row] for row in watched.table_rows.validation.tolist()])
        assert np.array_equal(after.train, [held[row] for row in watched.table_rows.train.tolist()])
    other = load_dataset(make_job({**data, "validation_size": 0.25}), 4)
    assert not np.array_equal(watched.table_rows.validation, other.table_rows.validation)


@pytest.mark.parametrize(
    ("label", "share", "code", "field", "value", "about"),
    [
        ([0, 1] * 20, 0.01, "rows", "[data] validation_size", 0.01, "2 classes"),
        ([0, 1] * 20, 0.99, "rows", "[data] validation_size", 0.99, "2 classes"),
        ([*[7] * 5, *[0, 1] * 100], 0.05, "labels", "[data] validation_size", "7", "no validation row"),
    ],
)
def test_published_sides_without_a_class(label, share, code, field, value, about):
    job = make_job({"validation_size": share, "split": "reference"})
    check_refusal(job, rows(len(label), label=label), code, field, value, about)


def test_a_share_of_one_row_leaves_no_row():
    job = make_job({**REGRESSION, "test_size": 0.5, "validation_size": 0.9})
    check_refusal(job, rows(2, label=[1.0, 2.0]), "rows", "[data] validation_size", 0.9, "1 rows")


def test_categories_are_those_of_the_training_and_validation_rows():
    source = rows(plan=["p", "q"] * 20)
    job = make_job({"validation_size": 0.2}, {"active": ["a"], "telco": ["b", "plan"]})
    data = load_dataset(job, 1, source)
    lonely, watched = int(data.test_ids[0]), int(data.validation_ids[0])
    plans = [
        "test" if row == lonely else "watched" if row == watched else ["p", "q", None][row % 3] for row in range(40)
    ]
    telco = load_dataset(job, 1, rows(plan=plans)).parties[1]
    assert telco.categories == {1: ("p", "q", "watched")}
    assert telco.test[0, 1] == -1
    assert telco.validation[0, 1] == 2
    assert np.isnan(telco.train[:, 1]).sum() == sum(plans[int(row)] is None for row in data.train_ids)
    assert not np.isin(telco.train[:, 1], [-1, 2]).any()


def test_dummies_where_they_are_wanted():
    parties = {"active": ["a"], "telco": ["plan", "b"]}
    telco = load_dataset(
        make_job({"categories": "dummies"}, parties), 1, rows(plan=["p", "q", "r", None] * 10)
    ).parties[1]
    assert telco.columns == ("plan=q", "plan=r", "b")
    assert telco.categories == {}
    expected = np.array([[0, 0], [1, 0], [0, 1], [np.nan] * 2])[telco.train[:, 2].astype(int) % 4]
    np.testing.assert_array_equal(telco.train[:, :2], expected)


def test_a_column_with_too_many_texts_is_refused_by_name():
    job = make_job({}, {"active": ["a"], "telco": ["who"]})
    source = rows(who=[f"u{row}" for row in range(40)])
    check_refusal(job, source, "values", "party 'telco', column 'who'", 32, "may have 16")


@pytest.mark.parametrize("style", ["native", "dummies"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_importance_with_gaps_and_categories(style, task):
    draw = np.random.default_rng(5)
    hidden = draw.integers(0, 3, 600)
    label = hidden if task == "classification" else hidden + 0.1 * draw.normal(size=600)
    noise = {f"n{number}": draw.normal(size=600) for number in range(3)}
    texts = np.array(["p", "a", "k"])[hidden].astype(object)
    texts[::5] = None
    gaps = np.where(draw.random(600) < 0.3, np.nan, hidden + 0.1 * draw.normal(size=600))
    absent = pa.array(draw.normal(size=600), mask=hidden == 1)  # that it is missing tells
    source = RawTables(
        name="planted",
        tables=(
            as_table({**noise, "texts": texts, "gaps": gaps, "absent": absent, "none": pa.nulls(600), "label": label}),
        ),
    )
    job = make_job({"partition": "importance", "task": task, "categories": style}, {"active": 4 / 7, "telco": 3 / 7})
    held = {name.split("=")[0] for name in load_dataset(job, 1, source).parties[1].columns}
    assert held == {"texts", "gaps", "absent"}


def test_importance_where_a_few_rows_are_known():
    few = [None] * 37 + [0.5, 1.5, 2.5]
    job = make_job({"partition": "importance"}, {"active": 0.5, "telco": 0.5})
    assert sum(len(party.columns) for party in load_dataset(job, 1, rows(few=few, gone=pa.nulls(40))).parties) == 5


def test_constraints_become_positions_at_each_holder():
    job = make_job(
        {"overlap": True, "monotone": {"a": 1, "c": -1}}, {"active": ["c", "a"], "telco": ["plan", "b", "a"]}
    )
    bank, telco = load_dataset(job, 1, rows(plan=["p", "q"] * 20)).parties
    assert bank.monotone == {0: -1, 1: 1}
    assert telco.monotone == {2: 1}
    assert telco.categories == {0: ("p", "q")}
    dummies = make_job(
        {"overlap": True, "monotone": {"a": 1}, "categories": "dummies"}, {"active": ["c"], "telco": ["plan", "a"]}
    )
    assert load_dataset(dummies, 1, rows(plan=["p", "q", "r", "q"] * 10)).parties[1].monotone == {2: 1}


def test_a_constraint_on_a_column_that_the_draw_leaves_out_is_passed_over():
    job = make_job({"monotone": {"a": 1, "b": 1, "c": 1}}, {"active": 0, "telco": 0.5})
    assert len(load_dataset(job, 1, rows()).parties[1].monotone) == 1


@pytest.mark.parametrize(
    ("monotone", "parties", "code", "field", "value", "about"),
    [
        ({"aa": 1}, HALVES, "columns", "[data] monotone", "aa", "'a'?"),
        ({"c": 1}, {"active": ["a"], "telco": ["b"]}, "columns", "[data] monotone", "c", "no party"),
        ({"plan": 1}, {"active": ["a"], "telco": ["plan"]}, "columns", "party 'telco': monotone", "plan", ""),
    ],
)
@pytest.mark.parametrize("style", ["native", "dummies"])
def test_constraints_that_cannot_be(monotone, parties, code, field, value, about, style):
    job = make_job({"monotone": monotone, "categories": style}, parties)
    check_refusal(job, rows(plan=["p", "q"] * 20), code, field, value, about)


@pytest.fixture
def own_tables(tmp_path):
    """Write two parties' tables with the same ids; return a function that makes the job."""
    ids = [f"{one:03}" for one in range(30)]
    weights = np.arange(30) / 2
    bank = pa.table({"who": ids, "x": range(30), "y": np.arange(30) * 1.5, "w": weights, "z": range(30)})
    telco = pa.table({"who": ids[::-1], "minutes": np.arange(30)[::-1], "plan": ["p", None, "q"] * 10})
    pq.write_table(bank, tmp_path / "bank.parquet")
    pq.write_table(telco, tmp_path / "telco.parquet")

    def make(bank=None, telco=None, **data):
        parties = {
            "bank": {"table": "bank.parquet", "label": "y", **(bank or {})},
            "telco": {"table": "telco.parquet", **(telco or {})},
        }
        return parse_job({"data": {"id": "who", **data}, "parties": parties}, base=tmp_path)

    return make


def test_own_tables_with_all_of_it(own_tables):
    job = own_tables(
        {"weight": "w", "monotone": {"x": -1}}, {"monotone": {"minutes": 1}}, **REGRESSION, validation_size=0.2
    )
    data = load_dataset(job, 1)
    bank, telco = data.parties
    assert (bank.columns, bank.monotone) == (("x", "z"), {0: -1})
    assert (telco.columns, telco.monotone, telco.categories) == (("minutes", "plan"), {0: 1}, {1: ("p", "q")})
    assert np.array_equal(data.train_values, 1.5 * bank.train[:, 0])
    assert np.array_equal(data.train_weights, bank.train[:, 0] / 2)
    assert np.array_equal(data.validation_values, 1.5 * telco.validation[:, 0])
    assert np.array_equal(data.test_weights, telco.test[:, 0] / 2)


@pytest.mark.parametrize(
    ("bank", "telco", "code", "field", "value", "about"),
    [
        (
            {},
            {"monotone": {"x": 1}},
            "columns",
            "[parties.telco] monotone",
            "x",
            "'bank' has it",
        ),
        ({"monotone": {"minutes": 1}}, {}, "columns", "[parties.bank] monotone", "minutes", "'telco' has it"),
        ({"monotone": {"q": 1}}, {}, "columns", "[parties.bank] monotone", "q", "no party has it"),
        ({"columns": ["x"], "monotone": {"z": 1}}, {}, "columns", "[parties.bank] monotone", "z", ""),
        ({}, {"monotone": {"plan": 1}}, "columns", "party 'telco': monotone", "plan", ""),
        ({"weight": "v"}, {}, "columns", "party 'bank'", "v", ""),
    ],
)
def test_own_tables_that_do_not_fit_their_sections(own_tables, bank, telco, code, field, value, about):
    check_refusal(own_tables(bank, telco, **REGRESSION), None, code, field, value, about)
