"""FederBoost: without noise the joined model; with noise the stated mechanism; who learns what."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import astuple

from labelward.attacks.base import AuxiliaryKnowledge
from labelward.attacks.id2graph import ID2Graph
from labelward.attacks.instance_spaces import observed_leaves
from labelward.data import VerticalDataset, load_dataset
from labelward.errors import DataError, JobError, LabelwardError, PeerError
from labelward.federation.components import check_job, make_engine, model_family, with_defaults
from labelward.federation.leakage_monitor import monitored_chains
from labelward.federation.simulation import SimulationResult, simulate_job
from labelward.job import parse_job
from labelward.kernels.binning import EVERYTHING, bin_columns
from labelward.messages.federboost import ChosenBuckets
from labelward.messages.pivodl import MISSING, Candidate, ColumnCodes
from labelward.party.context import Context, no_progress
from labelward.protocols.common.columns import OwnColumns
from labelward.protocols.family import attacker_data
from labelward.protocols.pivodl.federboost import most_moved, noisy_buckets
from labelward.protocols.pivodl.params import FederBoost
from labelward.rng import PrivateSeed
from refusals import refused
from released import released

Edges = dict[str, list[float]]
PARTIES = {"active": 0.3, "clinic": 0.4, "shop": 0.3}


def trained(
    seed: int = 1, table: str = "breast_cancer", edges: Edges | None = None, parties: Any = PARTIES, **model: Any
) -> tuple[VerticalDataset, SimulationResult, Any]:
    source: dict[str, Any] = {"table": table, "edges": edges or {}}
    source |= {"label": "label"} if table.endswith(".csv") else {}
    job = with_defaults(parse_job({"data": source, "parties": parties, "model": {"kind": "federboost", **model}}))
    data = load_dataset(job, seed, private={party: PrivateSeed(party.encode().ljust(32)) for party in PARTIES})
    family = model_family(job.model)
    family.check(data, {})
    engine, variant = make_engine(job.encryption), job.variants()[-1]
    return data, simulate_job(job, data, variant, engine, None, seed=seed, progress=no_progress), family


@pytest.fixture(autouse=True)
def made_table(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with categories and missing values, ``made.csv``."""
    rng = np.random.default_rng(0)
    lines = ["label,x0,x1,x2,color,shape"]
    for _ in range(300):
        x, color, shape = rng.normal(size=3), rng.choice(list("rgbycmkw")), rng.choice(["o", "x"])
        label = int(x[0] + (color in "rgb") + rng.normal() / 2 > 0.5)
        cells = ["" if rng.random() < 0.2 else f"{value:.1f}" for value in x]
        lines.append(",".join([str(label), *cells, color, shape]))
    (tmp_path / "made.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("table", ["breast_cancer", "made.csv"])
def test_without_noise_it_is_the_joined_model(table: str) -> None:
    data, ended, family = trained(table=table, min_node_rows=2, depth=4)
    pooled = family.pooled(data, data.parties, seed=1, precision=30)
    np.testing.assert_array_equal(ended.margins, pooled)
    assert np.ptp(ended.margins) > 1


def test_who_is_told_what() -> None:
    """Passive parties hear once of their own buckets, each once; the active party of all buckets and of no values."""
    data, ended, _ = trained()
    rows = len(data.train_labels)
    for name, party in zip(PARTIES, data.parties, strict=True):
        view = ended.views[name]
        kinds = {type(record).__name__ for kind, _, _, record in view.records() if kind == "received"}
        if name == "active":
            sent = list(view.received(ColumnCodes))
            assert sorted(each.peer for each in sent) == ["clinic", "shop"]
            assert all(len(each.message.codes) == 2 * rows * len(each.message.sizes) for each in sent)
            continue
        assert kinds - {"Hello", "RowSplit", "RowIdDigests"} == {"ChosenBuckets"}
        (chosen,) = view.received(ChosenBuckets)
        splits = chosen.message.splits.value
        assert len(set(splits)) == len(splits) == len(ended.shares[name].own)
        assert list(splits) == sorted(splits, key=astuple)
        assert len(party.columns)
        assert not ended.shares[name].trees


@pytest.mark.parametrize(("epsilon", "buckets"), [(None, 32), (8.0, 32), (4.0, 24), (2.0, 4), (0.1, 2), (1e-6, 2)])
def test_noisy_columns_have_fewer_buckets(epsilon: float | None, buckets: int) -> None:
    """Of others, so that a row keeps its bucket with probability .7; the active party's own columns keep theirs."""
    model = {"epsilon": epsilon} if epsilon else {}
    _, ended, family = trained(**model)
    assert (family.params.sent_bins, family.params.most_bins) == (buckets, 32)
    for sent in ended.views["active"].received(ColumnCodes):
        assert max(sent.message.sizes) == buckets
    assert FederBoost(candidates="all", epsilon=2.0).sent_bins == 4


def test_no_order_of_splits_is_told() -> None:
    """Splits that differ only in the side of missing values would else stand as the trees found them."""
    _, ended, _ = trained(table="made.csv", trees=20, depth=4)
    twice = 0
    for party in list(PARTIES)[1:]:
        (chosen,) = ended.views[party].received(ChosenBuckets)
        splits = chosen.message.splits.value
        assert list(splits) == sorted(splits, key=astuple)
        twice += len(splits) - len({(each.column, each.code, each.categories) for each in splits})
    assert twice > 5


def test_noise_keeps_a_bucket_as_often_as_stated_and_repeats() -> None:
    """With the probability e^ε / (e^ε + q - 1), else any other alike; the same draws where a run is repeated."""
    rows, epsilon = 40_000, 2.0
    codes = np.tile(np.arange(10), rows // 10)
    own = OwnColumns(np.column_stack([codes, np.where(codes == 3, np.nan, codes)]).astype(float), {}, 32, np.arange(2))

    class At:
        private, seed = PrivateSeed(bytes(32)), 1

    noisy = noisy_buckets(own, epsilon, At())  # type: ignore[arg-type]
    keep = math.exp(epsilon) / (math.exp(epsilon) + 9)
    for column in range(2):
        kept = (noisy[:, column] == own.codes[:, column]).mean()
        assert abs(kept - keep) < 4 * math.sqrt(keep * (1 - keep) / rows)
        others = noisy[own.codes[:, column] == 0, column]
        counts = np.unique(others[others != 0], return_counts=True)[1]
        assert len(counts) == 9
        assert np.abs(counts - counts.mean()).max() < 5 * math.sqrt(counts.mean())
    assert (noisy[:, 1] == MISSING).any()
    np.testing.assert_array_equal(noisy, noisy_buckets(own, epsilon, At()))  # type: ignore[arg-type]
    for other, spent in ((own, 1.0), (OwnColumns(9 - own.codes.astype(float), {}, 32, np.arange(2)), epsilon)):
        again, least = noisy_buckets(other, spent, At()), math.exp(spent) / (math.exp(spent) + 9)  # type: ignore[arg-type]
        kept = (noisy[:, 0] == own.codes[:, 0]) & (again[:, 0] == other.codes[:, 0])
        assert abs(kept.mean() - keep * least) < 4 * math.sqrt(keep * least / rows)  # draws are independent
    At.seed = 2
    assert (noisy != noisy_buckets(own, epsilon, At())).mean() > 0.2  # type: ignore[arg-type]


def test_the_account_is_per_row() -> None:
    """Given the edges it is ε of each column; else times the rows that a cell moves, all with equal values."""
    data, ended, _ = trained(epsilon=0.5)
    for name, party in zip(PARTIES, data.parties, strict=True):
        accounts = [each for each in ended.views[name].applied() if each.get("kind") == "noisy-buckets"]
        assert len(accounts) == (name != "active")
        for each in accounts:
            moved = [len(column) if len(np.unique(column)) < len(column) else 2 for column in party.train.T]
            assert each["epsilon_of_a_cell_given_edges"] == 0.5
            assert each["epsilon_of_a_row_given_edges"] == len(party.columns) / 2
            assert each["epsilon_of_a_cell"] == max(moved) / 2
            assert each["epsilon_of_a_row"] == sum(moved) / 2


def test_edges_depend_on_the_number_of_values_alone() -> None:
    """Where these all differ: the position of each edge grows by 0 or 1 with the number of values."""
    for bins in (2, 3, 7, 24, 32):
        before = np.empty(0)
        for rows in range(bins, 300):
            edges = bin_columns(np.arange(rows, dtype=np.float64)[:, None], bins).edges[0]
            assert len(edges) == bins - 1
            if len(before):
                assert set(edges - before) <= {0, 1}
            before = edges


@pytest.mark.parametrize("kind", ["differ", "gaps", "equal", "categories", "stated"])
def test_a_cell_moves_no_more_rows_than_stated(kind: str) -> None:
    """Of pairs that differ in one cell, with as many buckets; the number is reached, but for equal values."""
    rng = np.random.default_rng(0)
    reached, categories = 0, {0: 4} if kind == "categories" else {}
    edges = {0: (0.5, 2.0, 30.0)} if kind == "stated" else {}
    for _ in range(1000):
        rows, bins = int(rng.integers(4, 40)), int(rng.integers(2, 8))
        x = rng.permutation(rows).astype(np.float64)
        if kind == "gaps":
            x[rng.choice(rows, 2, replace=False)] = np.nan
        elif kind not in ("differ", "stated"):
            x %= 4
        other = x.copy()
        choices = {
            "stated": (-1, 1, 2, 30, 31),
            "differ": (-1, rows),
            "gaps": (np.nan, -1, rows),
            "equal": (-1, 1, 4),
            "categories": (0, 1, 2, 3),
        }
        other[np.flatnonzero(~np.isnan(x))[rng.integers(2)]] = rng.choice(np.array(choices[kind], dtype=np.float64))
        one, two = (OwnColumns(each[:, None], categories, bins, np.arange(1), edges) for each in (x, other))
        if one.sizes[0] != two.sizes[0]:
            continue
        (stated,), moved = most_moved(one, x[:, None]), int((one.codes != two.codes).sum())
        assert moved <= stated
        reached = max(reached, moved / stated)
    assert reached > (0.7 if kind == "equal" else 0.99)


@pytest.mark.parametrize("epsilon", [2.0, 4.0])
def test_who_knows_all_other_cells_exceeds_epsilon_given_edges_but_not_the_stated_one(epsilon: float) -> None:
    """The likelihood ratio of two columns, in one of which a cell is the lowest and in the other the highest.

    No test of two outcomes under ε is right with a probability above e^ε / (1 + e^ε). Of 400 draws the standard error
    is .016 at most, of which three are allowed.
    """
    rng, draws = np.random.default_rng(0), 400
    x = np.sort(rng.normal(size=100))
    params = FederBoost(epsilon=epsilon)
    changed = np.where(np.arange(100) == 0, 10.0, x)
    owns = [OwnColumns(each[:, None], {}, params.sent_bins, np.arange(1)) for each in (x, changed)]
    stated = most_moved(owns[0], x[:, None])[0] * epsilon
    buckets = int(owns[0].sizes[0])
    assert stated == buckets * epsilon == (owns[0].codes != owns[1].codes).sum() * epsilon
    keep = math.exp(epsilon) / (math.exp(epsilon) + buckets - 1)
    odds = np.array([math.log((1 - keep) / (buckets - 1)), math.log(keep)])
    right = 0
    for number in range(draws):

        class At:
            private, seed = PrivateSeed(rng.bytes(32)), 1

        noisy = noisy_buckets(owns[number % 2], epsilon, At())  # type: ignore[arg-type]
        fits = [odds[(noisy == each.codes).astype(int)].sum() for each in owns]
        assert abs(fits[1] - fits[0]) <= stated + 1e-9  # which is what ε bounds
        right += (fits[1] > fits[0]) == bool(number % 2)
    given, whole = (math.exp(each) / (1 + math.exp(each)) for each in (epsilon, stated))
    error = math.sqrt(given * (1 - given) / draws)
    assert right / draws > given + min(3 * error, (1 - given) / 2)
    assert right / draws <= whole + 3 * math.sqrt(whole * (1 - whole) / draws)


def stated_edges(seed: int = 1, count: int = 3) -> Edges:
    """Edges of all columns, as a domain would give them: equal parts of a range that is not that of the rows."""
    data, *_ = trained(seed)
    return {
        name: np.linspace(-0.1, 1.5 * np.abs(column).max(), count + 2)[1:-1].tolist()
        for party in data.parties
        for name, column in zip(party.columns, party.train.T, strict=True)
    }


def test_stated_edges_give_the_joined_model_of_their_buckets() -> None:
    edges = stated_edges(count=9)
    data, ended, family = trained(edges=edges, min_node_rows=2, depth=4)
    np.testing.assert_array_equal(ended.margins, family.pooled(data, data.parties, seed=1, precision=30))
    assert np.ptp(ended.margins) > 1
    for name, party in zip(PARTIES, data.parties, strict=True):
        for record in ended.shares[name].own:
            assert record.threshold in (*edges[party.columns[record.column]], EVERYTHING)


def test_with_stated_edges_epsilon_is_that_of_a_cell() -> None:
    """Whatever the rows are, the buckets are as many, so that a cell changes what is sent of its own row alone."""
    data, ended, _ = trained(edges=stated_edges(), epsilon=2.0)
    for sent in ended.views["active"].received(ColumnCodes):
        assert set(sent.message.sizes) == {4}
    for name, party in list(zip(PARTIES, data.parties, strict=True))[1:]:
        (account,) = [each for each in ended.views[name].applied() if each.get("kind") == "noisy-buckets"]
        assert account["epsilon_of_a_cell"] == account["epsilon_of_a_cell_given_edges"] == 2.0
        assert account["epsilon_of_a_row"] == account["epsilon_of_a_row_given_edges"] == 2.0 * len(party.columns)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_who_knows_all_other_cells_stays_below_epsilon_with_stated_edges(epsilon: float) -> None:
    """As the test above, of the lowest value and the highest: the likelihood ratio is e^ε at most."""
    rng, x = np.random.default_rng(0), np.sort(np.random.default_rng(1).normal(size=100))
    owns = [
        OwnColumns(each[:, None], {}, 32, np.arange(1), {0: (-0.5, 0.5)}) for each in (x, np.where(x == x[0], 10.0, x))
    ]
    assert (owns[0].codes != owns[1].codes).sum() == 1
    keep = math.exp(epsilon) / (math.exp(epsilon) + 2)
    odds, right, draws = [math.log((1 - keep) / 2), math.log(keep)], 0.0, 2000
    for number in range(draws):

        class At:
            private, seed = PrivateSeed(rng.bytes(32)), 1

        noisy = noisy_buckets(owns[number % 2], epsilon, At())  # type: ignore[arg-type]
        first, second = (sum(odds[int(same)] for same in (noisy == each.codes).ravel()) for each in owns)
        assert abs(first - second) <= epsilon + 1e-9
        right += 0.5 if first == second else (second > first) == bool(number % 2)
    expected = keep + (1 - keep) / 4  # of three buckets the third one says nothing
    assert abs(right / draws - expected) < 3 * math.sqrt(expected * (1 - expected) / draws)
    assert expected < math.exp(epsilon) / (1 + math.exp(epsilon))


@pytest.mark.parametrize(
    ("edges", "model", "error", "code"),
    [
        ({"x0": [1.0]}, {}, DataError, "values"),
        ({"color": [1.0]}, {}, DataError, "columns"),
        ({"x9": [1.0]}, {}, DataError, "columns"),
        ({"w": [0.1, 0.2, 0.3, 0.4]}, {"epsilon": 2.0}, DataError, "range"),
        ({"w": list(range(1000))}, {}, DataError, "range"),
        ({"w": [2.0, 1.0]}, {}, JobError, "range"),
        ({"w": []}, {}, JobError, "range"),
        ({"w": ["a"]}, {}, JobError, "type"),
        ({"w": [True]}, {}, JobError, "type"),
        ({"w": [math.inf]}, {}, JobError, "range"),
        ({"w": [10**400]}, {}, JobError, "range"),
        ({"w": [2**53, 2**53 + 1]}, {}, JobError, "range"),
        ({"label": [0.5]}, {}, JobError, "conflict"),
    ],
)
def test_edges_that_cannot_be(edges: Any, model: dict[str, Any], error: type[LabelwardError], code: str) -> None:
    parties = {"active": ["x0"], "clinic": ["x1", "color"], "shop": ["w"]}
    lines = Path("made.csv").read_text(encoding="utf-8").splitlines()
    full = [f"{line},{'w' if not at else at / 300}" for at, line in enumerate(lines)]
    Path("made.csv").write_text("\n".join(full) + "\n", encoding="utf-8")
    with pytest.raises(error) as caught:
        trained(table="made.csv", edges=edges, parties=parties, **model)
    assert caught.value.code == code
    assert "edges" in caught.value.field


def test_edges_are_for_a_model_that_has_them() -> None:
    tables = {"data": {"table": "breast_cancer", "edges": {"mean radius": [10.0]}}, "parties": PARTIES}
    with refused(JobError, "unsupported", field="[data] edges"):
        check_job(with_defaults(parse_job({**tables, "model": {"kind": "secureboost"}})))


def test_attacks_read_the_sides_of_own_splits() -> None:
    data, ended, _ = trained()
    for name, party in list(zip(PARTIES, data.parties, strict=True))[1:]:
        leaves, share = observed_leaves(ended.views[name]), ended.shares[name]
        np.testing.assert_array_equal(leaves, 2 - share.sides(party.train).astype(int))
        guess = ID2Graph()(
            ended.views[name], attacker_data(party), AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(0)
        )
        assert guess.notes["trees"] == len(share.own)
    assert observed_leaves(ended.views["shop"].without_records()).shape == (0, len(data.train_labels))


def test_a_bucket_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    send = Context.send

    def wrong(self: Context, peer: str, message: Any, step: Any) -> None:
        if isinstance(message, ChosenBuckets):
            message = ChosenBuckets(message.model, released((Candidate(0, 99, False, ()),)))
        send(self, peer, message, step)

    monkeypatch.setattr(Context, "send", wrong)
    with pytest.raises(PeerError) as caught:
        trained()
    assert (caught.value.peer, caught.value.code) == ("active", "peer-message")


def test_what_it_does_not_take() -> None:
    with refused(JobError, "range", field="[model] epsilon"):
        trained(epsilon=0.0)
    job = with_defaults(
        parse_job(
            {
                "data": {"table": "breast_cancer"},
                "parties": PARTIES,
                "model": {"kind": "federboost"},
                "defense": [{"kind": "partial-dp"}],
            }
        )
    )
    data = load_dataset(job, 1, private={party: PrivateSeed(party.encode().ljust(32)) for party in PARTIES})
    with pytest.raises(LabelwardError) as caught:
        model_family(job.model).check(data, monitored_chains(job, data, job.variants()[-1], seed=1))
    assert caught.value.code == "inapplicable"
    several = replace(data, classes=("a", "b", "c"))
    with refused(JobError, "unsupported", field="[model] kind"):
        model_family(job.model).check(several, {})
