"""Pivot: plain CART on all columns, with every statistic in shares; what is opened, and what is refused."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from malicious_peer import Change, Liar
from pivot_runs import PARTIES, PLAIN, SMALL_KEY, data_of, job_of, trained

from labelward.data import VerticalDataset
from labelward.defenses import DEFENSES
from labelward.errors import JobError, LabelwardError, PeerError, PolicyError
from labelward.federation import simulation
from labelward.federation.components import check_job, model_family
from labelward.federation.model import AlignedRows, FederatedModel
from labelward.federation.simulation import SimulationResult
from labelward.he.base import CipherBlock
from labelward.messages import pivot
from labelward.messages.base import Array, Message, Observation
from labelward.protocols.pivot import arithmetic
from labelward.protocols.pivot.cart import PlainTree, grow_plain
from labelward.protocols.pivot.family import PivotFamily
from labelward.protocols.pivot.params import Pivot
from labelward.protocols.pivot.share import PivotShare
from refusals import refused

TWO = {"active": 0.5, "telco": 0.5, "dealer": 0}
FIVE = {"active": 0.2, "a": 0.2, "b": 0.2, "c": 0.2, "dealer": 0, "d": 0.2}
replace = msgspec.structs.replace


def plain(data: VerticalDataset, params: Pivot) -> PlainTree:
    return grow_plain(params, data.parties, data.train_values.astype(np.int64), len(data.classes))


def check_equal(ended: SimulationResult, data: VerticalDataset, params: Pivot) -> PlainTree:
    """Compare all parties' shares with plain CART: shape, owners, thresholds, classes, and predictions of test rows."""
    tree = plain(data, params)
    for party, share in ended.shares.items():
        assert isinstance(share, PivotShare)
        if party == "dealer":
            assert not share.nodes
            assert not share.leaves
            continue
        assert dict(zip(share.leaves, share.labels, strict=True)) == tree.labels
        owners = {node: share.parties[at] for node, at in zip(share.nodes, share.owners, strict=True)}
        assert owners == {node: data.parties[owner].name for node, (owner, _) in tree.splits.items()}
        assert share.own == {node: record for node, (_, record) in tree.splits.items() if owners[node] == party}
    expected = tree.classes([party.test for party in data.parties])
    np.testing.assert_array_equal(ended.margins, np.eye(len(data.classes))[expected])
    assert len(tree.splits) > 1
    return tree


@pytest.mark.parametrize(
    ("parties", "encryption", "model"),
    [
        (PARTIES, PLAIN, {}),
        pytest.param(PARTIES, SMALL_KEY, {}, marks=pytest.mark.slow),  # "two" has the key, too
        (TWO, SMALL_KEY, {"depth": 2}),
        pytest.param(FIVE, PLAIN, {"depth": 3, "min_node_rows": 2}, marks=pytest.mark.slow),
        pytest.param(FIVE, PLAIN, {"depth": 4, "min_node_rows": 2}, marks=pytest.mark.slow),
        pytest.param(PARTIES, PLAIN, {"candidates": "all", "depth": 2}, marks=pytest.mark.slow),
        pytest.param(PARTIES, PLAIN, {"min_rows": 25}, marks=pytest.mark.slow),
        pytest.param(PARTIES, PLAIN, {"statistical_bits": 45}, marks=pytest.mark.slow),
    ],
    ids=["plain", "paillier", "two", "five", "five-deep", "all", "min_rows", "statistical_bits"],
)
def test_equals_plain_cart_on_breast_cancer(
    parties: Mapping[str, Any], encryption: Mapping[str, Any], model: dict[str, Any]
) -> None:
    job = job_of(parties=parties, encryption=encryption, **model)
    data = data_of(job)
    ended = trained(job, data)
    check_equal(ended, data, model_family(job.model).params)


@pytest.mark.parametrize("encryption", [PLAIN, pytest.param({}, marks=pytest.mark.slow)], ids=["plain", "2048"])
def test_equals_plain_cart_on_credit(encryption: Mapping[str, Any]) -> None:
    """On 2,000 training rows."""
    if "LABELWARD_DATA" not in os.environ:
        pytest.skip("LABELWARD_DATA names no folder with the credit_default table")
    job = job_of("credit_default", encryption=encryption)
    data = data_of(job, rows=2500)
    assert len(data.train_values) == 2000
    check_equal(trained(job, data), data, model_family(job.model).params)


def test_plain_cart_is_that_of_scikit_learn() -> None:
    """On all distinct values: the same first split, and the same class of nearly all rows; chance breaks ties."""
    from sklearn.tree import DecisionTreeClassifier

    job = job_of(candidates="all", depth=3, min_node_rows=2)
    for seed in (1, 2, 3):
        data = data_of(job, seed=seed)
        tree, labels = plain(data, model_family(job.model).params), data.train_values.astype(np.int64)
        x = np.hstack([party.train for party in data.parties])
        theirs = DecisionTreeClassifier(max_depth=3, random_state=0).fit(x, labels)
        ours = tree.classes([party.train for party in data.parties])
        assert (ours == theirs.predict(x)).mean() > 0.99
        first = theirs.tree_.threshold[0], theirs.tree_.feature[0]
        owner, record = tree.splits[0]
        offset = sum(len(party.columns) for party in data.parties[:owner])
        values = np.unique(x[:, offset + record.column])
        assert offset + record.column == first[1]
        assert record.threshold < first[0] <= values[values > record.threshold].min()


def made_columns(rows: int = 240, classes: int = 3) -> dict[str, Any]:
    """Return a table with categories and missing values."""
    rng = np.random.default_rng(0)
    x, color = rng.normal(size=(rows, 2)).round(1), rng.choice(list("rgby"), size=rows)
    label = np.digitize(x[:, 0] + (color == "g") - (color == "y") + rng.normal(size=rows) / 3, [-0.5, 0.7])
    x[rng.random(size=x.shape) < 0.2] = np.nan
    shape = rng.choice(["o", "x"], size=rows)
    return {"x0": x[:, 0], "x1": x[:, 1], "color": color, "shape": shape, "label": np.minimum(label, classes - 1)}


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_categories_missing_values_and_more_classes(classes: int) -> None:
    parties = {"active": ["x1"], "telco": ["x0", "shape"], "shop": ["color"], "dealer": []}
    job = job_of("made", parties, SMALL_KEY, depth=4, min_node_rows=2)
    data = data_of(job, made=made_columns(classes=classes))
    tree = check_equal(trained(job, data), data, model_family(job.model).params)
    assert any(record.categories for _, record in tree.splits.values())
    assert len(data.classes) == classes


def test_a_label_holder_without_columns_and_a_tree_without_splits() -> None:
    parties = {"active": [], "telco": ["x0", "x1"], "shop": ["color", "shape"], "dealer": []}
    job = job_of("made", parties, depth=2)
    data = data_of(job, made=made_columns())
    check_equal(trained(job, data), data, model_family(job.model).params)
    job = job_of("made", parties, min_node_rows=10_000)
    ended = trained(job, data)
    share = ended.shares["telco"]
    most = np.bincount(data.train_values.astype(int)).argmax()
    assert (share.nodes, share.leaves, share.labels) == ((), (0,), (most,))
    np.testing.assert_array_equal(ended.margins.argmax(axis=1), most)


def payloads(ended: SimulationResult) -> dict[tuple[Any, ...], bytes]:
    """Return what travels under masks and is longer than a word, by receiver, sender, type and step."""
    found = {}
    for party, view in ended.views.items():
        for kind, peer, step, message in view.records():
            for name in getattr(message, "masked", ()) if kind == "received" else ():
                value = getattr(message, name)
                data = value.data if isinstance(value, Array) else value
                few = (
                    isinstance(value, Array) and np.isin(value.unpack(), (0, 1)).all() and len(data) < 8 * 100
                )  # shares of bits
                if isinstance(data, bytes) and len(data) >= 32 and name != "model" and not few:
                    found[party, peer, type(message).__name__, step] = data
    return found


@pytest.mark.slow
def test_shares_differ_between_runs_and_the_tree_does_not() -> None:
    """No message under masks is sent twice, in two runs or to two parties but where all must get the same."""
    job = job_of(encryption=SMALL_KEY, depth=2, bins=8)
    data = data_of(job)
    first, second = (trained(job, data) for _ in range(2))
    one, other = payloads(first), payloads(second)
    assert one.keys() == other.keys()
    assert not [key for key in one if one[key] == other[key]]
    sent: dict[bytes, set[Any]] = {}
    for (_, peer, kind, step), data_sent in one.items():
        sent.setdefault(data_sent, set()).add((peer, kind, step))
    assert all(len(each) == 1 for each in sent.values())
    for party in first.shares:
        assert replace(first.shares[party], model="") == replace(second.shares[party], model="")
        contents = (sorted(map(repr, ended.views[party].content())) for ended in (first, second))
        assert next(contents) == next(contents)


READABLE = {
    "DealRequest.kinds",
    "SplitOffers.sizes",
    "SplitOffers.kinds",
    "DealerExchange.model",
    "DealerExchange.key",
    "DealtParcel.model",
    "DealtParcel.material",
    "DealtParcel.key",
    "DealtParcel.sealed",
    "LabelRows.classes",
    "OpenedTree.nodes",
}
OPENED = {"SplitNodes.split", "SplitPlaces.places", "LeafClasses.classes", "DealRequest.counts"}


def test_only_prune_bits_splits_and_classes_are_opened() -> None:
    """Every field is a ciphertext, under masks, released, or on a list: one that a message gains must be put there."""
    released, readable = set(), set()
    for name, kind in vars(pivot).items():
        if not isinstance(kind, type) or not issubclass(kind, Message) or kind is Message:
            continue
        assert not issubclass(kind, Observation)
        for each in msgspec.structs.fields(kind):
            text = str(each.type)
            if "Released" in text:
                released.add(f"{name}.{each.name}")
            elif "CipherBlock" not in text and each.name not in kind.masked:
                readable.add(f"{name}.{each.name}")
            else:
                assert "CipherBlock" in text or each.name in kind.volatile
    assert released == OPENED
    assert readable <= READABLE, readable - READABLE


def test_who_receives_what() -> None:
    """The dealer gets no ciphertext and no share; only the label holder gets shares of results."""
    job = job_of(depth=2)
    ended = trained(job, data_of(job))
    kinds = {
        party: {type(message).__name__ for kind, _, _, message in view.records() if kind == "received"}
        for party, view in ended.views.items()
    }
    assert {each for each in kinds["dealer"] if hasattr(pivot, each)} == {"DealerExchange", "DealRequest", "DealEnd"}
    assert "ResultShares" in kinds["active"]
    for party in ("telco", "shop"):
        assert not kinds[party] & {"ResultShares", "DealtCorrections", "DealRequest"}
        assert {"MaskedShares", "MaskedStatistics", "SplitNodes"} <= kinds[party]


@pytest.mark.slow
def test_predictions_of_a_trained_model_need_the_dealer_and_no_key() -> None:
    job = job_of(encryption=SMALL_KEY, depth=2)
    data = data_of(job)
    ended = trained(job, data)
    model = FederatedModel(programs=PivotFamily(), shares=ended.shares)
    rows = AlignedRows(columns={party.name: party.test for party in data.parties})
    np.testing.assert_array_equal(model.predict(rows), ended.margins)


@pytest.mark.parametrize(
    ("parties", "model", "code", "field"),
    [
        (PARTIES, {"dealer": None}, "missing", "[model] dealer"),
        (PARTIES, {"dealer": "nobody"}, "missing", "[model] dealer"),
        (PARTIES, {"dealer": "active"}, "conflict", "[model] dealer"),
        ({"active": 1.0, "dealer": 0}, {}, "unsupported", "[parties]"),
    ],
    ids=["none", "unknown", "active", "two"],
)
def test_a_dealer_that_is_none(parties: Mapping[str, Any], model: dict[str, Any], code: str, field: str) -> None:
    if model.get("dealer", "") is None:
        parties = {"active": 0.5, "telco": 0.5}
    if model.get("dealer") in ("nobody", "active"):
        parties = {"active": 0.5, "telco": 0.25, "shop": 0.25}
    with refused(JobError, code, field=field):
        check_job(job_of(parties=parties, **model))


def test_a_dealer_with_columns() -> None:
    job = job_of(parties={"active": 0.5, "telco": 0.25, "dealer": 0.25})
    with refused(JobError, "conflict", field="[model] dealer"):
        trained(job, data_of(job))


def test_a_party_without_columns_that_does_not_deal() -> None:
    with refused(JobError, "range", field="[parties] helper"):
        job_of(parties={"active": 0.5, "telco": 0.5, "dealer": 0, "helper": 0})


def test_too_many_rows_or_bits() -> None:
    with refused(JobError, "range", field="[model] kind", value=10_810):
        Pivot().check_rows(10_810, 3)
    with refused(JobError, "range", field="[model] statistical_bits", value=60):
        Pivot(statistical_bits=60).check_rows(100, 3)
    Pivot(statistical_bits=50).check_rows(100, 3)


def test_more_candidates_than_can_be_dealt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "MOST", 100)
    job = job_of(depth=1)
    with refused(JobError, "range", field="[model] candidates"):
        trained(job, data_of(job))


def test_quantities_and_defenses() -> None:
    parties = {"active": ["x1"], "telco": ["x0", "shape"], "shop": ["color"], "dealer": []}
    made, job = made_columns(), job_of("made", parties)
    quantities = dataclasses.replace(job, data=dataclasses.replace(job.data, task="regression"))
    data = data_of(quantities, made={**made, "label": np.random.default_rng(0).normal(size=len(made["label"]))})
    with refused(JobError, "unsupported", field="[model] kind", value=0):
        trained(quantities, data)
    family = model_family(job.model)
    for kind in ("randomized-response", "partial-dp"):
        policy = DEFENSES.make(kind, {"epsilon": 1.0})
        with refused(PolicyError, "inapplicable"):
            family.check(data_of(job, made=made), {"active": [policy]})


def test_an_engine_without_keys_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from labelward.errors import EncryptionError
    from labelward.he.base import Engine
    from labelward.he.plain import PlainEngine

    monkeypatch.setattr(PlainEngine, "deal_key", Engine.deal_key)
    job = job_of()
    with refused(EncryptionError, "unsupported", value="plain"):
        trained(job, data_of(job))


def values(change: Any, name: str = "values") -> Change:
    return lambda message: replace(message, **{name: Array.pack(change(getattr(message, name).unpack()))})


def cut(block: CipherBlock) -> CipherBlock:
    return replace(block, shape=(block.shape[0] - 1, *block.shape[1:]))


LIES: dict[str, tuple[str, type[Message], Change]] = {
    "columns": ("telco", pivot.SplitOffers, lambda message: replace(message, sizes=message.sizes[1:])),
    "bins": ("telco", pivot.SplitOffers, lambda message: replace(message, sizes=(0,) * len(message.sizes))),
    "kinds": ("telco", pivot.SplitOffers, lambda message: replace(message, kinds=(9,) * len(message.kinds))),
    "classes": ("active", pivot.LabelRows, lambda message: replace(message, classes=1)),
    "rows": ("active", pivot.LabelRows, lambda message: replace(message, rows=cut(message.rows))),
    "layout": ("active", pivot.LabelRows, lambda message: replace(message, classes=3)),
    "masks": ("telco", pivot.SumMasks, lambda message: replace(message, masks=cut(message.masks))),
    "parts": ("telco", pivot.PartialDecryptions, lambda message: replace(message, parts=message.parts[:-1])),
    "shares": ("telco", pivot.MaskedShares, values(lambda each: each[..., 1:])),
    "numbers": ("telco", pivot.MaskedShares, values(lambda each: each.astype(np.float64))),
    "results": ("telco", pivot.ResultShares, values(lambda each: each[1:])),
    "nodes": ("active", pivot.SplitNodes, lambda message: pivot.SplitNodes((*message.split, True))),
    "places": ("active", pivot.SplitPlaces, lambda message: pivot.SplitPlaces((-1,) * len(message.places))),
    "leaves": ("active", pivot.LeafClasses, lambda message: pivot.LeafClasses((7,) * len(message.classes))),
    "corrections": ("dealer", pivot.DealtCorrections, values(lambda each: each[1:])),
    "parcel": ("dealer", pivot.DealtParcel, lambda message: replace(message, sealed=message.sealed[:-1] + b"!")),
    "no key": ("dealer", pivot.DealtParcel, lambda message: replace(message, material=None)),
    "requests": ("active", pivot.DealRequest, lambda message: replace(message, kinds=("gold",))),
    "sizes": ("active", pivot.DealRequest, lambda message: pivot.DealRequest(message.kinds, (1 << 40,))),
    "key": ("telco", pivot.DealerExchange, lambda message: replace(message, key=b"short")),
}


@pytest.mark.parametrize("lie", LIES)
def test_who_sends_what_cannot_be_is_named(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    liar, kind, change = LIES[lie]
    made = partial(simulation.Participant, wrap=lambda end: Liar(end, liar, kind, change))
    monkeypatch.setattr(simulation, "Participant", made)
    job = job_of(encryption=SMALL_KEY, depth=1, bins=4)
    with pytest.raises(PeerError) as caught:
        trained(job, data_of(job, rows=100))
    assert caught.value.peer == liar


def test_shares_are_stored_with_a_checksum(tmp_path: Path) -> None:
    job = job_of(depth=2)
    ended = trained(job, data_of(job))
    share = ended.shares["telco"]
    file = share.save(tmp_path / "share")
    assert PivotShare.load(tmp_path / "share") == share
    file.write_text(file.read_text().replace('"dealer"', '"helper"'), encoding="utf-8")
    with pytest.raises(LabelwardError):
        PivotShare.load(tmp_path / "share")
