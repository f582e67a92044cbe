"""Vertical logistic regression: the joined model to the last bit, masked sums, lying peers, refused settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from malicious_peer import Change, Liar
from scipy.optimize import linprog
from sklearn.metrics import roc_auc_score

from labelward.attacks import ATTACKS
from labelward.attacks.base import AuxiliaryKnowledge
from labelward.attacks.batch_gradients import own_encoded_columns
from labelward.data import RawTables, VerticalDataset, as_table, load_dataset, loading
from labelward.errors import JobError, PeerError, PolicyError
from labelward.federation.components import check_job, make_engine, make_policies, model_family, with_defaults
from labelward.federation.simulation import SimulationResult, simulate_job
from labelward.he.base import Layout
from labelward.job import Job, parse_job
from labelward.kernels.encoded_columns import LIMIT, column_codes, column_values, mean_and_deviation
from labelward.messages.base import Array, Message
from labelward.messages.logistic import (
    BatchRows,
    EncryptedResiduals,
    LogisticReady,
    MaskedProducts,
    MaskedWeightGradient,
    PartialScores,
    PredictionScores,
    WeightGradient,
)
from labelward.party.context import no_progress
from labelward.protocols.common.row_batches import epoch_order
from labelward.protocols.family import attacker_data
from labelward.protocols.logistic import training
from labelward.protocols.logistic.columns import ColumnScale, encoded_columns, scales_of_party
from labelward.protocols.logistic.descent import check_batches, train_together
from labelward.protocols.logistic.fixed_point import (
    MOST_ROWS,
    STATISTICAL,
    BatchSums,
    fixed_residuals,
    gradient_values,
    products,
)
from labelward.protocols.logistic.params import LogisticRegression
from labelward.rng import PrivateSeed, SecureRandom
from refusals import refused

TWO = {"active": 0.5, "telco": 0.5}
THREE = {"active": 0.4, "telco": 0.3, "shop": 0.3}
PLAIN = {"engine": "plain", "insecure": True}
SMALL_KEY = {"engine": "paillier", "bits": 512, "insecure": True}
replace = msgspec.structs.replace


def job_of(
    parties: Mapping[str, Any] = TWO,
    encryption: Mapping[str, Any] = PLAIN,
    data: Mapping[str, Any] | None = None,
    defense: Mapping[str, Any] | None = None,
    **model: Any,
) -> Job:
    spec: dict[str, Any] = {
        "data": {"table": "breast_cancer", **(data or {})},
        "parties": dict(parties),
        "model": {"kind": "logistic", "rows_per_column": 0, **model},
        "encryption": dict(encryption),
    }
    if defense:
        spec["defense"] = [dict(defense)]
    return with_defaults(parse_job(spec))


def data_of(job: Job, made: Mapping[str, Any] | None = None) -> VerticalDataset:
    tables = loading.load_tables(job) if made is None else RawTables(name="made", tables=(as_table(dict(made)),))
    seeds = {party.name: PrivateSeed(party.name.encode().ljust(32)) for party in job.parties}
    return load_dataset(job, 1, tables, private=seeds)


def trained(job: Job, data: VerticalDataset) -> SimulationResult:
    check_job(job)
    variant = job.variants()[-1]
    model_family(job.model).check(data, {"active": make_policies(variant)})
    engine = make_engine(job.encryption)
    try:
        return simulate_job(job, data, variant, engine, None, seed=1, progress=no_progress)
    finally:
        engine.close()


def mixed_columns() -> dict[str, Any]:
    """Return a table with numbers, gaps, categories, a constant and an outlier."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(240, 4))
    kind = rng.choice(["a", "b", "c"], 240)
    label = (x[:, 0] + x[:, 1] + (kind == "b") + rng.logistic(size=240) > 0).astype(int)
    gaps = np.where(rng.random(240) < 0.2, np.nan, x[:, 1])
    outlier = np.where(np.arange(240) == 7, 1e6, x[:, 2])
    return {"n": x[:, 0], "gaps": gaps, "outlier": outlier, "kind": kind, "same": np.ones(240), "label": label}


@pytest.mark.parametrize(
    ("parties", "encryption", "model"),
    [
        (TWO, PLAIN, {}),
        (THREE, PLAIN, {"batch_size": 32}),
        (TWO, SMALL_KEY, {"batch_size": 100, "epochs": 2}),
        (THREE, SMALL_KEY, {"batch_size": 200, "epochs": 1, "l2": 0.1}),
        ({"active": [], "telco": 1.0}, PLAIN, {"batch_size": 64}),
    ],
    ids=["two", "three", "paillier", "paillier three", "no own columns"],
)
def test_weights_are_those_of_the_joined_model(
    parties: Mapping[str, Any], encryption: Mapping[str, Any], model: dict[str, Any]
) -> None:
    if parties["active"] == []:
        names = data_of(job_of()).parties
        parties = {"active": [], "telco": [column for each in names for column in each.columns]}
    job = job_of(parties, encryption, **model)
    data = data_of(job)
    ended, family = trained(job, data), model_family(job.model)
    codes = [encoded_columns(scales_of_party(family.params, party), party.train) for party in data.parties]
    joined = train_together(family.params, codes, data.train_values, 1)
    for party, weights in zip(data.parties, joined.weights, strict=True):
        np.testing.assert_array_equal(ended.shares[party.name].weights, weights)
    assert ended.shares["active"].intercept == joined.intercept
    pooled = family.pooled(data, data.parties, seed=1, precision=30)
    np.testing.assert_allclose(ended.margins, pooled, atol=1e-10)
    assert roc_auc_score(data.test_values, ended.margins[:, 0]) > 0.98


def test_weights_are_within_a_millionth_of_real_numbers() -> None:
    """Gradient descent in float64, on the same encoded columns, with nothing rounded on the way."""
    job = job_of(THREE, batch_size=64)
    data = data_of(job)
    params = model_family(job.model).params
    parts = [column_values(encoded_columns(scales_of_party(params, party), party.train)) for party in data.parties]
    x, y = np.hstack(parts), data.train_values
    weights, constant = np.zeros(x.shape[1]), 0.0
    order = epoch_order(1, 0, len(y))
    for _ in range(params.epochs):
        for piece in params.batches(len(y)):
            rows = order[piece]
            residuals = 1 / (1 + np.exp(-(x[rows] @ weights + constant))) - y[rows]
            weights = weights - params.learning_rate * (x[rows].T @ residuals / len(rows) + params.l2 * weights)
            constant -= params.learning_rate * residuals.mean()
    ended = trained(job, data)
    found = np.concatenate([ended.shares[party.name].weights for party in data.parties])
    np.testing.assert_allclose(found, weights, atol=1e-6)
    assert abs(ended.shares["active"].intercept - constant) < 1e-6


def test_gaps_categories_constants_and_outliers() -> None:
    job = job_of(
        {"active": ["n"], "telco": ["gaps", "outlier", "kind", "same"]}, data={"table": "made.csv", "label": "label"}
    )
    data = data_of(job, mixed_columns())
    ended = trained(job, data)
    share = ended.shares["telco"]
    assert [scale.kept for scale in share.scales] == [None, None, (1, 2), None]
    assert len(share.weights) == 5
    assert share.weights[-1] == 0.0
    unknown = np.array([[np.nan, 0.0, -1.0, 1.0]])
    np.testing.assert_allclose(
        share.scores(unknown), -share.scales[1].mean / share.scales[1].deviation * share.weights[1], atol=1e-3
    )
    assert roc_auc_score(data.test_values, ended.margins[:, 0]) > 0.7


def test_products_by_digit_are_exact() -> None:
    rng = np.random.default_rng(0)
    for rows in (1, 2, 15, 16, 1000, MOST_ROWS):
        sums = BatchSums(rows)
        codes = column_codes(np.clip(rng.normal(size=(rows, 3)) * 20, -99, 99))
        codes[0, 0], codes[-1, 1] = column_codes(np.array([[-LIMIT, LIMIT]]))[0]
        residuals = fixed_residuals(rng.uniform(-1, 1, rows))
        residuals[0] = fixed_residuals(np.array([-1.0]))[0]
        parts, groups = sums.split(residuals), sums.groups(codes)
        assert np.abs(parts).max() <= 1 << sums.part_bits
        by_digit = np.zeros((*sums.shape(3), sums.parts), dtype=np.int64)
        for column in range(groups.shape[1]):
            present = groups[:, column] >= 0
            np.add.at(by_digit[column], groups[present, column], parts[present])
        masks = sums.masks(3, SecureRandom())
        returned = sums.opened(by_digit + masks, residuals)
        expected = products(codes, residuals)
        np.testing.assert_array_equal(sums.unmasked(returned, masks), expected)
        exact = [sum(int(a) * int(b) for a, b in zip(codes[:, at], residuals, strict=True)) for at in range(3)]
        assert expected.tolist() == exact
        assert np.abs(by_digit).max() < 1 << (61 - STATISTICAL)
        sums.layout.check(parts)
        assert (by_digit + masks).max() < sums.layout.bounds[0] * sums.layout.rows
    assert gradient_values(np.array([1 << 42]))[0] == 1.0


def test_masks_are_uniform_and_fresh() -> None:
    """Neither a mask of two batches nor of two columns is the same; high and low bits are even."""
    sums = BatchSums(100)
    first, second = (sums.masks(20, SecureRandom()) for _ in range(2))
    assert not (first == second).any()
    assert len(np.unique(first)) == first.size
    for bit in (0, 30, 60):
        assert abs((first >> bit & 1).mean() - 0.5) < 4 / np.sqrt(first.size)
    assert first.min() >= 0


def test_layout_holds_every_batch() -> None:
    for rows in (1, 2, 2048, MOST_ROWS):
        layout = BatchSums(rows).layout
        assert isinstance(layout, Layout)
        assert max(layout.widths()) <= 63
        assert layout.bounds[0] * layout.rows >= (1 << 61) + (rows << BatchSums(rows).part_bits)


def test_a_scale_reads_training_values_alone() -> None:
    assert ColumnScale.of(np.full(3, np.nan), 0, 1) == ColumnScale()
    scale = ColumnScale.of(np.array([1.0, np.nan, 3.0]), 0, 1)
    assert (scale.mean, scale.deviation) == (2.0, 1.0)
    np.testing.assert_array_equal(scale.encoded(np.array([3.0, np.nan]))[:, 0], [1.0, 0.0])
    np.testing.assert_array_equal(
        ColumnScale(kept=(1, 2)).encoded(np.array([0.0, 2.0, -1.0])), [[0, 0], [0, 1], [0, 0]]
    )


def test_scores_of_several_parties_are_masked() -> None:
    """What the active party receives of one of two parties is none of its scores; of one party it is."""
    job = job_of(THREE, batch_size=100, epochs=1)
    data = data_of(job)
    views = trained(job, data).views
    first = {}
    for each in views["active"].received(PartialScores):
        first.setdefault(each.peer, each.message.scores.value.unpack())
    assert not (first["telco"] == 0).any()  # all weights are 0 in the first batch
    assert not (first["telco"] + first["shop"]).any()
    alone = trained(job_of(TWO, batch_size=100, epochs=1), data_of(job_of(TWO))).views["active"]
    message = next(iter(alone.received(PartialScores))).message
    assert not message.scores.value.unpack().any()


def test_gradients_name_the_labels_of_small_batches() -> None:
    """Of columns that say nothing: a batch with fewer rows than columns is solved, and a large one tells little."""
    rng = np.random.default_rng(3)
    noise = {f"c{at}": rng.normal(size=500) for at in range(12)}
    signal = rng.normal(size=500)
    table = {"signal": signal, **noise, "label": (signal + rng.logistic(size=500) > 0).astype(int)}
    attack, found = ATTACKS.make("batch-gradients", {}), {}
    for size in (8, 200):
        data = {"table": "made.csv", "label": "label"}
        job = job_of({"active": ["signal"], "telco": list(noise)}, data=data, batch_size=size, epochs=1)
        made = data_of(job, table)
        view = trained(job, made).views["telco"]
        own, aux = attacker_data(made.parties[1]), AuxiliaryKnowledge(classes=2)
        guess = attack(view, own, aux, rng=np.random.default_rng(0))
        found[size] = attack.score(guess, made.train_labels)["auc_either"]
        assert guess.notes["determined_rows"] == (size == 8)
        assert len(list(view.observed(WeightGradient))) == -(-len(made.train_values) // size)
    assert found[8] == 1.0
    assert 0.5 < found[200] < 0.7


def few_rows(columns: int, rows: int) -> dict[str, Any]:
    """Return a table whose passive columns say nothing of the label."""
    rng = np.random.default_rng(8)
    noise = {f"c{at}": rng.normal(size=rows) for at in range(columns)}
    signal = rng.normal(size=rows)
    return {"signal": signal, **noise, "label": (signal + rng.logistic(size=rows) > 0).astype(int)}


def test_few_rows_for_their_columns_are_solved_where_they_are_allowed() -> None:
    """Eight rows a column, far more than the equations single out: lattice reduction finds every label of the batch."""
    table, data = few_rows(8, 80), {"table": "made.csv", "label": "label"}
    columns = {"active": ["signal"], "telco": [f"c{at}" for at in range(8)]}
    job = job_of(columns, data=data, epochs=2)
    made = data_of(job, table)
    view, own = trained(job, made).views["telco"], attacker_data(made.parties[1])
    attack = ATTACKS.make("batch-gradients", {})
    guess = attack(view, own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(0))
    assert guess.notes["determined_rows"] == 1.0
    assert attack.score(guess, made.train_labels)["auc_either"] == 1.0


@pytest.mark.parametrize(
    ("rows", "columns", "size", "code"),
    [
        (80, 8, 2048, "range"),
        (480, 8, 128, "range"),
        (480, 8, 384, None),  # 192 rows have less than 192 bits
        (480, 8, 192, "range"),
        (480, 4, 127, "range"),  # 64 times the root
        (480, 4, 192, None),
        (80, 2, 2048, "range"),
        (3000, 100, 2048, "range"),  # two batches of 1,200 rows
        (3000, 90, 2400, None),
    ],
)
def test_batches_with_few_rows_for_their_columns_are_refused(
    rows: int, columns: int, size: int, code: str | None
) -> None:
    """At the active party, before anything that follows from labels leaves; columns of two parties count together."""
    if code is None:
        labels = np.arange(rows * 4 // 5) % 2.0
        check_batches(LogisticRegression(batch_size=size), 1, labels, columns)
        return
    names, data = [f"c{at}" for at in range(columns)], {"table": "made.csv", "label": "label"}
    parties = {"active": ["signal"], "telco": names[::2], "shop": names[1::2]}
    job = job_of(parties, data=data, batch_size=size, rows_per_column=LogisticRegression().rows_per_column)
    with refused(JobError, "range", field="[model] batch_size", value=size):
        trained(job, data_of(job, few_rows(columns, rows)))


@pytest.mark.parametrize(("positives", "fits"), [(10, False), (20, False), (300, False), (600, True)])
def test_rare_classes_need_more_rows(positives: int, fits: bool) -> None:
    """Ten positives among 2,080 rows are found by linear programming from the equations of 85 columns."""
    rng = np.random.default_rng(2)
    labels = (np.arange(2080) < positives).astype(float)
    params, columns = LogisticRegression(batch_size=2080), 70
    if positives == 10:
        x = rng.normal(size=(2080, columns))
        found = linprog(np.ones(2080), A_eq=x.T, b_eq=labels @ x, bounds=(0, 1))
        np.testing.assert_allclose(found.x, labels, atol=1e-6)
    if fits:
        check_batches(params, 1, labels, columns)
        return
    with refused(JobError, "range", field="[model] batch_size", value=2080):
        check_batches(params, 1, labels, columns)


@pytest.mark.parametrize("anew", [False, True])
def test_epochs_add_no_equations(anew: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of columns that say nothing: batches drawn anew in every epoch would give away nearly every label."""
    rng = np.random.default_rng(4)
    noise = {f"c{at}": rng.normal(size=800) for at in range(12)}
    signal = rng.normal(size=800)
    table = {"signal": signal, **noise, "label": (signal + rng.logistic(size=800) > 0).astype(int)}

    def redrawn(ctx: Any, own: Any, epoch: int) -> Any:
        order = epoch_order(ctx.seed, epoch, len(own.codes))
        for batch, piece in enumerate(own.params.batches(len(order))):
            ctx.observe(BatchRows(epoch, batch, Array.pack(order[piece])))
            yield (epoch, batch), order[piece]

    if anew:
        monkeypatch.setattr(training, "_batches", redrawn)
    data = {"table": "made.csv", "label": "label"}
    job = job_of({"active": ["signal"], "telco": list(noise)}, data=data, batch_size=110, epochs=16)
    made = data_of(job, table)
    view, own = trained(job, made).views["telco"], attacker_data(made.parties[1])
    found = {}
    for epochs in (1, None):
        attack = ATTACKS.make("batch-gradients", {} if epochs is None else {"epochs": epochs})
        guess = attack(view, own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(0))
        assert not guess.notes["determined_rows"]
        found[epochs] = attack.score(guess, made.train_labels)["auc_either"]
    assert 0.55 < found[1] < 0.8
    assert found[None] > 0.95 if anew else found[None] == found[1]


def many_categories(rows: int = 3000) -> dict[str, Any]:
    """Return a table whose column ``kind`` has 200 categories, of which most are rare; a value of ``z`` is cut."""
    rng = np.random.default_rng(11)
    odds = 1 / np.arange(1, 201)
    kind = rng.choice(200, rows, p=odds / odds.sum())
    x = rng.normal(size=rows)
    label = (x + rng.logistic(size=rows) > 0).astype(int)
    z = rng.normal(size=rows)
    z[0] = 1e3
    return {"x": x, "z": z, "kind": [f"k{each:03}" for each in kind], "label": label}


def test_rare_categories_have_no_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum over a category's only row in a batch is its label: without the limit hundreds of labels are read."""
    data = {"table": "made.csv", "label": "label"}
    job = job_of({"active": ["x"], "telco": ["z", "kind"]}, data=data, batch_size=600, epochs=3)
    made = data_of(job, many_categories())
    own, aux, attack = (
        attacker_data(made.parties[1]),
        AuxiliaryKnowledge(classes=2),
        ATTACKS.make("batch-gradients", {}),
    )
    counts = np.bincount(made.parties[1].train[:, 1].astype(int))
    least = 10 * len(made.train_values) / 600
    for limit in (10, 0):
        monkeypatch.setattr("labelward.kernels.encoded_columns.LEAST_IN_BATCH", limit)
        ended = trained(job, made)
        scales = ended.shares["telco"].scales
        scale = scales[1]
        guess = attack(ended.views["telco"], own, aux, rng=np.random.default_rng(0))
        assert guess.scores is not None
        encoded = column_values(encoded_columns(scales, made.parties[1].train))
        np.testing.assert_array_equal(own_encoded_columns(ended.views["telco"], own), encoded)
        if limit:
            assert scale.kept == tuple(code for code in range(1, len(counts)) if counts[code] >= least)
            assert len(scale.kept) > 3
            assert guess.notes["determined_rows"] == 0
        else:
            assert guess.notes["determined_rows"] > 0.05
            certain = np.abs(guess.scores[:, 1]) == np.abs(guess.scores[:, 1]).max()
            assert certain.mean() == pytest.approx(guess.notes["determined_rows"])
            assert ((guess.scores[certain, 1] > 0) == made.train_labels[certain]).all()


def rare_flags() -> dict[str, Any]:
    """Return a table with 30 flags, each of which few rows have, and amounts of which one is far beyond all others."""
    rng = np.random.default_rng(4)
    x, flags = rng.normal(size=3000), (rng.random((30, 3000)) < 0.001).astype(int)
    amounts = np.where(np.arange(3000) % 1000 == 7, 1e3, rng.normal(size=3000))
    label = (x + rng.logistic(size=3000) > 0).astype(int)
    return {"x": x, "amounts": amounts, **{f"f{at}": flag for at, flag in enumerate(flags)}, "label": label}


@pytest.mark.parametrize(
    ("table", "data"),
    [(many_categories(), {"categories": "dummies"}), (rare_flags(), {})],
    ids=["dummies", "flags"],
)
def test_numbers_that_few_rows_have_have_no_column(
    table: dict[str, Any], data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of numbers single rows out as categories do, though no equation holds a single row alone."""
    telco = [name for name in table if name not in ("x", "label")]
    job = job_of({"active": ["x"], "telco": telco}, data={"table": "made.csv", "label": "label", **data}, epochs=2)
    made, attack = data_of(job, table), ATTACKS.make("batch-gradients", {})
    own, aux, read = attacker_data(made.parties[1]), AuxiliaryKnowledge(classes=2), {}
    for limit in (10, 0):
        monkeypatch.setattr("labelward.kernels.encoded_columns.LEAST_IN_BATCH", limit)
        guess = attack(trained(job, made).views["telco"], own, aux, rng=np.random.default_rng(0))
        assert guess.scores is not None
        certain = np.abs(guess.scores[:, 1]) == np.abs(guess.scores[:, 1]).max()
        read[limit] = guess.notes["determined_rows"]
        assert not read[limit] or ((guess.scores[certain, 1] > 0) == made.train_labels[certain]).all()
    assert read[10] == 0
    assert read[0] > 0.005


def test_a_combination_of_columns_that_singles_rows_out_is_found() -> None:
    """No rule looks at columns together: two that differ in few rows give their labels, which an audit counts."""
    rng = np.random.default_rng(6)
    part, few = rng.normal(size=3000), np.where(rng.random(3000) < 0.002, rng.normal(size=3000), 0.0)
    label = (part + rng.logistic(size=3000) > 0).astype(int)
    table = {"x": rng.normal(size=3000), "part": part, "total": part + few, "label": label}
    job = job_of(
        {"active": ["x"], "telco": ["part", "total"]}, data={"table": "made.csv", "label": "label"}, batch_size=600
    )
    made = data_of(job, table)
    guess = ATTACKS.make("batch-gradients", {})(
        trained(job, made).views["telco"],
        attacker_data(made.parties[1]),
        AuxiliaryKnowledge(classes=2),
        rng=np.random.default_rng(0),
    )
    assert guess.notes["determined_rows"] > 0


def test_a_column_of_few_numbers_or_an_outlier_is_scaled_by_the_others() -> None:
    values = np.r_[np.linspace(-1, 1, 398), 1e3, np.nan]
    assert mean_and_deviation(values, 10) == mean_and_deviation(values[:-2])
    assert mean_and_deviation(values) == (float(values[:-1].mean()), float(values[:-1].std()))
    many = np.r_[np.zeros(1000), np.full(3, 1.0)]  # more than 16 deviations, but as many as are asked for
    assert mean_and_deviation(many, 3) == mean_and_deviation(many)
    assert ColumnScale.of(many, 0, 4).kept == ()
    assert ColumnScale.of(many, 0, 3).kept is None
    assert ColumnScale.of(np.r_[np.arange(5.0), 4.0], 0, 100).kept is None  # most rows differ
    assert ColumnScale.of(np.ones(5), 0, 100).kept is None


def test_a_party_of_rare_categories_alone_is_refused() -> None:
    table = {**many_categories(), "rare": ["yes" if row % 500 == 3 else "no" for row in range(3000)]}
    job = job_of({"active": ["x"], "telco": ["rare"]}, data={"table": "made.csv", "label": "label"})
    with refused(JobError, "columns", value="telco"):
        trained(job, data_of(job, table))


def test_made_up_columns_read_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A passive party that deviates: in the first batch 20 labels for each column, as the documentation says."""
    job = job_of(TWO, epochs=1)
    data = data_of(job)
    honest, rows = encoded_columns, len(data.train_values)
    width = data.parties[1].train.shape[1]

    def made_up(scales: Any, x: Any) -> Any:
        codes = honest(scales, x)
        if not np.array_equal(x, data.parties[1].train):
            return codes
        codes[:] = -(1 << 19)
        for column in range(width - 1):  # the last one gives the sum of all residuals
            codes[20 * column : 20 * column + 20, column] += 1 << np.arange(20, dtype=np.int32)
        return codes

    monkeypatch.setattr("labelward.protocols.logistic.family.encoded_columns", made_up)
    view = trained(job, data).views["telco"]
    gradient = np.rint(next(iter(view.observed(WeightGradient))).values.unpack() * 2.0**42).astype(np.int64)
    assert rows <= LogisticRegression().batch_size  # one batch, so that its rows are those of the table
    residuals = (gradient[:-1] - gradient[-1]) >> 26  # of each column the sum of 2^i or -2^i
    found = (residuals[:, None] + (1 << 20) - 1 >> 1 >> np.arange(20)) & 1
    assert (found.ravel() == 1 - data.train_labels[: 20 * (width - 1)]).all()


def test_scores_tell_the_active_party_the_geometry_of_the_columns() -> None:
    """One batch an epoch: the inner products of the rows of the other party follow from its scores."""
    names = data_of(job_of()).parties[1].columns[:2]
    job = job_of({"active": [], "telco": list(names)}, epochs=5)
    data = data_of(job)
    params = model_family(job.model).params
    view, y = trained(job, data).views["active"], data.train_values
    scores = np.zeros((params.epochs, len(y)))
    for message, rows in zip(view.received(PartialScores), view.observed(BatchRows), strict=True):
        scores[rows.epoch, rows.rows.unpack()] = message.message.scores.value.unpack() / 2.0**40
    residuals, constant = [], 0.0
    for each in scores:
        residuals.append(1 / (1 + np.exp(-(each + constant))) - y)
        constant -= params.learning_rate * residuals[-1].mean()
    r = np.array(residuals[:-1]).T
    shrunk = 1 - params.learning_rate * params.l2
    v = -len(y) / params.learning_rate * (scores[1:] - shrunk * scores[:-1]).T  # K·r of each step
    found = v @ np.linalg.pinv(r.T @ v, rcond=1e-12) @ v.T
    x = column_values(encoded_columns(scales_of_party(params, data.parties[1]), data.parties[1].train))
    np.testing.assert_allclose(found, x @ x.T, atol=1e-2)


def test_noisy_labels_are_what_is_fitted() -> None:
    for kind in ("randomized-response", "lp-mst"):
        job = job_of(TWO, defense={"kind": kind, "epsilon": 0.5}, batch_size=64)
        data = data_of(job)
        noisy = trained(job, data)
        plain = trained(job_of(TWO, batch_size=64), data)
        weights = [np.array(each.shares["telco"].weights) for each in (noisy, plain)]
        assert np.linalg.norm(weights[0]) < 0.8 * np.linalg.norm(weights[1])


def test_defenses_of_other_models_are_refused() -> None:
    data = data_of(job_of())
    for kind, parameters in (
        ("noisy-gradients", {"scale": 0.1}),
        ("purity-threshold", {"threshold": 0.9}),
        ("lpsc", {}),
    ):
        job = job_of(defense={"kind": kind, **parameters})
        with pytest.raises(PolicyError) as caught:
            model_family(job.model).check(data, {"active": make_policies(job.variants()[-1])})
        assert caught.value.code == "inapplicable"


def change_shape(message: Any) -> Message:
    array = message.scores.unpack() if isinstance(message.scores, Array) else message.scores
    return replace(message, scores=Array.pack(np.asarray(array)[:-1]))


def too_wide(message: Any) -> Message:
    return replace(message, columns=1 << 20)


def floats(message: Any) -> Message:
    return replace(message, values=Array.pack(message.values.unpack().astype(np.float64)))


def smaller(message: Any) -> Message:
    return replace(message, sums=replace(message.sums, layout=replace(message.sums.layout, rows=7)))


def cut(message: Any) -> Message:
    return replace(message, rows=replace(message.rows, shape=(message.rows.shape[0] - 1,)))


@pytest.mark.parametrize(
    ("who", "kind", "change"),
    [
        ("telco", LogisticReady, too_wide),
        ("telco", PartialScores, change_shape),
        ("telco", MaskedProducts, smaller),
        ("active", EncryptedResiduals, cut),
        ("active", MaskedWeightGradient, floats),
        ("telco", PredictionScores, change_shape),
        ("telco", PredictionScores, lambda message: replace(message, model="other")),
    ],
    ids=["ready", "scores", "sums", "residuals", "gradient", "prediction", "model"],
)
def test_what_cannot_be_is_refused_by_name(
    who: str, kind: type[Message], change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labelward.party import in_process

    connect = in_process.connect_in_process
    monkeypatch.setattr(
        in_process,
        "connect_in_process",
        lambda names: {name: Liar(end, who, kind, change) for name, end in connect(names).items()},
    )
    job = job_of(TWO, batch_size=128, epochs=1)
    with pytest.raises(PeerError) as caught:
        trained(job, data_of(job))
    assert caught.value.peer == who
    assert caught.value.message == kind.__name__


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"data": {"table": "digits"}}, "unsupported", "[model] kind"),
        ({"data": {"validation_size": 0.2}}, "unsupported", "[data] validation_size"),
    ],
    ids=["classes", "validation"],
)
def test_unfit_data_are_refused(change: dict[str, Any], code: str, field: str) -> None:
    job = job_of(**change)
    with refused(JobError, code, field=field):
        model_family(job.model).check(data_of(job), {})


def test_an_engine_that_cannot_mask_is_refused() -> None:
    job = job_of(encryption={"engine": "lattice"})
    with refused(JobError, "unsupported", field="[encryption] engine", value="lattice"):
        trained(job, data_of(job))


def test_too_many_categories_are_refused() -> None:
    rows = 800
    names = np.array([f"v{row % 300}" for row in range(rows)])
    table = {"id": names, "n": np.arange(rows) * 1.0, "label": np.arange(rows) % 2}
    job = job_of({"active": ["n"], "telco": ["id"]}, data={"table": "made.csv", "label": "label"})
    with refused(JobError, "range", field="[data] drop", value="id"):
        model_family(job.model).check(data_of(job, table), {})


def test_weights_that_diverge_end_the_run() -> None:
    job = job_of(learning_rate=1e9, batch_size=16)
    with pytest.raises(JobError) as caught:
        trained(job, data_of(job))
    assert (caught.value.code, caught.value.field) == ("diverged", "[model] learning_rate")


def test_parameters() -> None:
    for rows in (1, 2, 3, 7, 9, 2049, 5000):
        pieces = LogisticRegression(batch_size=3).batches(rows)
        sizes = [piece.stop - piece.start for piece in pieces]
        assert np.concatenate([np.arange(rows)[piece] for piece in pieces]).tolist() == list(range(rows))
        assert max(sizes) <= 3
        assert max(sizes) - min(sizes) <= 1  # a last batch of few rows would give their labels
    with refused(JobError, "range", field="[model] batch_size"):
        LogisticRegression(batch_size=MOST_ROWS + 1)
