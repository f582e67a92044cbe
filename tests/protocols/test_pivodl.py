"""PIVODL without noise is the joined model, whoever holds the labels; nobody is told what it need not know."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from crossing import crossed
from labelward.attacks.instance_spaces import observed_leaves
from labelward.data import VerticalDataset, load_dataset
from labelward.errors import DataError, JobError, PeerError
from labelward.federation.components import check_job, make_engine, model_family, with_defaults
from labelward.federation.simulation import SimulationResult, simulate_job
from labelward.he.paillier.packing import Packing
from labelward.job import Job, Variant, parse_job
from labelward.kernels.node_rows import children, route_rows
from labelward.messages.pivodl import (
    ChildRows,
    ChildTotals,
    MaskedSums,
    NodeBins,
    OfferedCandidates,
    OpenedSums,
    OwnSums,
    PartyKeys,
    TotalSums,
)
from labelward.party.context import no_progress
from labelward.protocols.common.pairwise_masks import PairwiseMasks
from labelward.protocols.family import label_vector
from labelward.protocols.pivodl.joined import JoinedModel, train_joined
from labelward.protocols.pivodl.share import PUBLIC
from labelward.runs.private_seeds import resolve_seeds
from refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore::labelward.errors.DataWarning")  # of a holder with few labels

JOB = """
[data]
table = "{table}"
labels = {{{labels}}}
{data}
[parties]
{parties}
[model]
kind = "pivodl"
{model}
[encryption]
{encryption}
[run]
seeds = [1]
"""
PLAIN = 'engine = "plain"\ninsecure = true'
THREE = {"bank": 0.3, "clinic": 0.4, "shop": 0.3}
TEN = {f"p{number}": 0.1 for number in range(10)}


def job_of(
    labels: dict[str, float],
    parties: dict[str, float],
    *,
    model: str = "min_node_rows = 2\ndepth = 4",
    data: str = "",
    encryption: str = PLAIN,
    table: str = "breast_cancer",
) -> Job:
    shares = ", ".join(f"{name} = {share}" for name, share in labels.items())
    lines = "\n".join(f"{name} = {share}" for name, share in parties.items())
    text = JOB.format(table=table, labels=shares, data=data, parties=lines, model=model, encryption=encryption)
    return with_defaults(parse_job(text))


def trained(job: Job) -> tuple[VerticalDataset, SimulationResult, JoinedModel]:
    data = load_dataset(job, 1, private=resolve_seeds([party.name for party in job.parties]))
    family: Any = model_family(job.model)
    family.check(data, {})
    engine = make_engine(job.encryption)
    try:
        ended = simulate_job(job, data, Variant(), engine, None, seed=1, progress=no_progress)
    finally:
        engine.close()
    labels = label_vector(data).values
    precision, quantities = job.encryption.precision, not data.classes
    return data, ended, train_joined(family.params, data.parties, labels, precision=precision, quantities=quantities)


def assert_joined(data: VerticalDataset, ended: SimulationResult, joined: JoinedModel) -> None:
    """Every split and weight is that of the joined table, to the last bit; margins within their fixed point."""
    shares = ended.shares
    for number, tree in enumerate(joined.trees):
        for share in shares.values():
            own = share.trees[number]
            shape = (own.nodes, own.owners, own.records, own.leaves)
            assert shape == (tree.nodes, tree.owners, tree.records, tree.leaves)
        keepers = shares[data.parties[0].name].trees[number].keepers
        kept = [
            shares[data.parties[max(keeper, 0)].name].trees[number].weights[at] for at, keeper in enumerate(keepers)
        ]
        assert kept == list(tree.weights)
    for party, records in zip(data.parties, joined.records, strict=True):
        assert shares[party.name].own == records
    assert {share.scale for share in shares.values()} == {joined.scale}
    atol = 1e-11 * joined.scale.deviation
    np.testing.assert_allclose(ended.margins, joined.margins([party.test for party in data.parties]), atol=atol)


@crossed(
    "aggregation,labels,parties,data",
    ["paillier", "masks"],
    [
        pytest.param({"bank": 0.4, "clinic": 0.6}, {"bank": 0.5, "clinic": 0.5}, "", id="two"),
        pytest.param({"bank": 0.01, "clinic": 0.99}, THREE, "", id="one-percent"),
        pytest.param(
            {"bank": 0.3, "clinic": 0.7}, THREE, 'label_skew = "classes"\nlabel_concentration = 0.5', id="skewed"
        ),
        pytest.param(dict.fromkeys(TEN, 0.1), TEN, "", id="ten", marks=pytest.mark.slow),
    ],
)
def test_without_noise_it_is_the_joined_model(
    aggregation: str, labels: dict[str, float], parties: dict[str, float], data: str
) -> None:
    job = job_of(labels, parties, data=data, model=f'min_node_rows = 2\ndepth = 4\naggregation = "{aggregation}"')
    assert_joined(*trained(job))


@crossed(
    "aggregation,labels,parties",
    ["paillier", "masks"],
    [
        pytest.param({"bank": 0.4, "clinic": 0.6}, {"bank": 0.5, "clinic": 0.5}, id="two"),
        pytest.param(dict.fromkeys(TEN, 0.1), TEN, id="ten", marks=pytest.mark.slow),  # classes have ten parties, too
        pytest.param({"bank": 0.01, "clinic": 0.99}, THREE, id="one-percent"),
    ],
)
def test_quantities_are_standardized_by_a_public_scale(
    aggregation: str, labels: dict[str, float], parties: dict[str, float]
) -> None:
    model = f'min_node_rows = 2\ndepth = 4\naggregation = "{aggregation}"'
    job = job_of(labels, parties, table="diabetes.csv", data='task = "regression"\nlabel = "target"', model=model)
    data, ended, joined = trained(job)
    assert_joined(data, ended, joined)
    assert joined.scale.mean == pytest.approx(data.train_values.mean(), rel=1e-12)
    assert joined.scale.deviation == pytest.approx(data.train_values.std(), rel=1e-12)
    errors = ended.margins[:, 0] - data.test_values
    assert np.sqrt((errors**2).mean()) < data.test_values.std()


@crossed(
    "aggregation,table,data",
    ["paillier", "masks"],
    [
        pytest.param("breast_cancer", "", id="classes"),
        pytest.param("made.csv", 'label = "label"', id="made"),
        pytest.param("diabetes.csv", 'task = "regression"\nlabel = "target"', id="quantities"),
    ],
)
def test_the_exchange_of_the_paper_gives_the_same_model(aggregation: str, table: str, data: str) -> None:
    exchange = f'trees = 2\nmin_node_rows = 2\naggregation = "{aggregation}"\nexchange = '
    labels, told = {"bank": 0.3, "clinic": 0.7}, {}
    for name in ("codes", "published"):
        found = trained(job_of(labels, THREE, table=table, data=data, model=f'{exchange}"{name}"'))
        assert_joined(*found)
        told[name] = sum(sum(meter.bytes.values()) for meter in found[1].meters.values())
        bins = [message for view in found[1].views.values() for message in view.received(NodeBins)]
        assert {view.peer for view in bins} == ({*THREE} if name == "published" else set())
    assert told["published"] > told["codes"]


@pytest.mark.parametrize("threshold", ["published", "both-sides"])
def test_no_holder_is_left_with_fewer_rows_than_the_threshold(threshold: str) -> None:
    model = f'min_node_rows = 2\ninstance_threshold = 15\nthreshold = "{threshold}"\naggregation = "masks"'
    skew = 'label_skew = "classes"\nlabel_concentration = 0.5'
    data, ended, joined = trained(job_of({"bank": 0.3, "clinic": 0.7}, THREE, model=model, data=skew))
    offered = [each for view in ended.views.values() for each in view.observed(OfferedCandidates)]
    assert 0 < sum(each.refused for each in offered) < sum(each.offered for each in offered)
    told = [account for view in ended.views.values() for account in view.applied()]
    assert [account["refused_candidates"] for account in told] == [
        sum(each.refused for each in view.observed(OfferedCandidates)) for view in ended.views.values()
    ]
    sides = {party.name: ended.shares[party.name].sides(party.train) for party in data.parties}
    order = [party.name for party in data.parties]
    for tree in ended.shares["bank"].trees:
        reached = {0: np.ones(len(data.train_values), dtype=np.bool_)}
        for node, owner, record in zip(tree.nodes, tree.owners, tree.records, strict=True):
            left = sides[order[owner]][record]
            for child, mask in zip(children(node), (left, ~left), strict=True):
                reached[child] = reached[node] & mask
                rows = [int((reached[child] & data.holds(holder)).sum()) for holder in data.holders]
                if threshold == "both-sides":
                    assert all(count == 0 or count >= 15 for count in rows)
                elif child == children(node)[0]:
                    assert min(rows) >= 15
    assert ended.shares["bank"].trees[0].nodes != joined.trees[0].nodes or any(
        ended.shares[name].own != records for name, records in zip(order, joined.records, strict=True)
    )


def test_a_threshold_above_a_holders_rows() -> None:
    job = job_of({"bank": 0.01, "clinic": 0.99}, THREE, model="instance_threshold = 50")
    family: Any = model_family(job.model)
    with refused(JobError, "range", field="[model] instance_threshold", value=50):
        family.check(load_dataset(job, 1), {})


@pytest.mark.slow
def test_under_paillier_it_is_the_joined_model_and_sums_share_ciphertexts() -> None:
    """Each holder encrypts its cells of a level, as many to a ciphertext as fit."""
    model = "trees = 1\ndepth = 2\nmin_node_rows = 2"
    data, ended, joined = trained(job_of({"bank": 0.5, "clinic": 0.5}, THREE, model=model, encryption=""))
    assert_joined(data, ended, joined)
    blocks = [each.message.sums for view in ended.views.values() for each in view.received(OwnSums)]
    (part,) = Packing.of(blocks[0].layout, 2048).parts
    assert part.fit >= 19
    assert all(block.count == -(-int(np.prod(block.shape)) // part.fit) for block in blocks)
    opened = [each.sums.unpack() for view in ended.views.values() for each in view.observed(OpenedSums)]
    of_one_holder = 1 + sum(-(-sums.shape[0] * sums.shape[1] // part.fit) for sums in opened)  # the root's, and levels
    assert ended.cost.encryptions == len(data.holders) * of_one_holder


def test_under_the_lattice_engine_keys_are_of_sums_alone() -> None:
    """The joined model, by keys of 53 kB where those of rows have 9 MB."""
    model, lattice = "trees = 1\ndepth = 2\nmin_node_rows = 2", 'engine = "lattice"'
    data, ended, joined = trained(job_of({"bank": 0.5, "clinic": 0.5}, THREE, model=model, encryption=lattice))
    assert_joined(data, ended, joined)
    keys = [each.message.sums for view in ended.views.values() for each in view.received(PartyKeys)]
    (size,) = {len(key.data) for key in keys if key is not None}
    assert 0 < size < 60_000


def test_categories_and_missing_values() -> None:
    model = "min_node_rows = 2\ntrees = 3"
    parties = {"a": 0.4, "b": 0.3, "c": 0.3}
    data = 'label = "label"'
    assert_joined(*trained(job_of({"a": 0.5, "b": 0.5}, parties, model=model, data=data, table="made.csv")))


@pytest.fixture(autouse=True)
def made_table(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with categories and missing values, ``made.csv``, and one of quantities, ``diabetes.csv``."""
    rng = np.random.default_rng(0)
    lines = ["label,x0,x1,x2,color,shape"]
    for _ in range(300):
        x, color, shape = rng.normal(size=3), rng.choice(list("rgbycmkw")), rng.choice(["o", "x"])
        label = int(x[0] + (color in "rgb") + rng.normal() / 2 > 0.5)
        cells = ["" if rng.random() < 0.2 else f"{value:.1f}" for value in x]
        lines.append(",".join([str(label), *cells, color, shape]))
    frame = load_diabetes(as_frame=True).frame
    frame.to_csv(tmp_path / "diabetes.csv", index=False)
    (tmp_path / "made.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def test_who_is_told_what() -> None:
    """Sources open no sums of their own columns, and nobody is told ids of a leaf but of the rows that it labels."""
    job = job_of({"bank": 0.5, "clinic": 0.5}, THREE, model='depth = 2\nmin_node_rows = 2\naggregation = "paillier"')
    data, ended, _ = trained(job)
    parties = [party.name for party in data.parties]
    for name, view in ended.views.items():
        of_levels = [each for each in view.received(TotalSums) if len(each.step) > 2]  # not of the root
        assert all(parties[total.step[2]] == total.peer != name for total in of_levels)
        assert not [own for own in view.received(OwnSums) if len(own.step) > 2 and parties[own.step[2]] != name]
        for rows in view.received(ChildRows):
            for flags, mask in zip(rows.message.leaves, rows.message.left.value, strict=True):
                if all(flags):
                    assert mask.total <= int(data.holds(name)[: view.rows].sum())
        told = [each.message.weights.value.unpack() for each in view.received(ChildTotals)]
        assert data.holds(name).any() or not any(len(each) for each in told)
    assert not any(list(view.received(MaskedSums)) for view in ended.views.values())


def test_weights_of_leaves_are_told_to_holders_of_labels_in_the_node() -> None:
    """A holder of a hundredth of the labels is told those of few leaves, each below a node of which it labels rows."""
    data, ended, joined = trained(job_of({"bank": 0.01, "clinic": 0.99}, THREE, model="min_node_rows = 2\ntrees = 4"))
    held, allowed, pairs = data.holds("bank")[: len(data.parties[0].train)], set[tuple[float, float]](), 0
    for tree in joined.trees:
        sides = [
            joined.records[owner][at].goes_left(data.parties[owner].train)
            for owner, at in zip(tree.owners, tree.records, strict=True)
        ]
        reached = np.array(tree.leaves)[route_rows(*tree.branches(), np.stack(sides))]
        weights = dict(zip(tree.leaves, tree.weights, strict=True))
        for node in tree.nodes:
            left, right = 2 * node + 1, 2 * node + 2
            if {left, right} <= weights.keys():
                pairs += 1
                if held[np.isin(reached, (left, right))].any():
                    allowed.add((weights[left], weights[right]))
    view = ended.views["bank"]
    told = [tuple(pair) for each in view.received(ChildTotals) for pair in each.message.weights.value.unpack().tolist()]
    assert told
    assert {*told} <= allowed
    assert len(allowed) < pairs


def test_attacks_see_the_nodes_whose_rows_a_party_is_told() -> None:
    """The leaves below its own splits, and below those of others the node above."""
    data, ended, joined = trained(job_of({"bank": 0.5, "clinic": 0.5}, THREE, model="min_node_rows = 30\ntrees = 2"))
    for place, party in enumerate(data.parties):
        seen = observed_leaves(ended.views[party.name])
        assert len(seen) == 2
        for tree, nodes in zip(joined.trees, seen, strict=True):
            owner = dict(zip(tree.nodes, tree.owners, strict=True))
            sides = [
                joined.records[owns][at].goes_left(data.parties[owns].train)
                for owns, at in zip(tree.owners, tree.records, strict=True)
            ]
            reached = np.array(tree.leaves)[route_rows(*tree.branches(), np.stack(sides))]
            above = (reached - 1) // 2
            told = np.array([not {2 * node + 1, 2 * node + 2} <= {*tree.leaves} for node in above])
            mine = np.array([owner[node] for node in above.tolist()]) == place
            np.testing.assert_array_equal(nodes, np.where(told | mine, reached, above))


def test_masks_cancel_and_hide() -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    private = {name: X25519PrivateKey.generate() for name in ("a", "b", "c")}
    publics = {name: key.public_key().public_bytes_raw() for name, key in private.items()}
    masks = {name: PairwiseMasks(key, name, publics) for name, key in private.items()}
    values = {name: np.random.default_rng(ord(name)).integers(-(2**62), 2**62, size=(50, 3)) for name in private}
    hidden = {name: masks[name].masked(values[name], private, "sums") for name in private}
    np.testing.assert_array_equal(sum(hidden.values()), sum(values.values()))
    without_one = hidden["a"] + hidden["b"] - values["a"] - values["b"]
    assert (np.abs(without_one) > 2**40).mean() > 0.99
    again = masks["a"].masked(values["a"], private, "other")
    assert (again != hidden["a"]).all()
    with pytest.raises(PeerError) as caught:
        PairwiseMasks(private["a"], "a", {"b": b"short"})
    assert caught.value.peer == "b"


def test_weights_of_public_leaves_are_known_to_all() -> None:
    data, ended, joined = trained(job_of({"bank": 0.5, "clinic": 0.5}, THREE, model="depth = 4\nmin_node_rows = 60"))
    assert_joined(data, ended, joined)
    kept = [share.trees[0] for share in ended.shares.values()]
    public = [at for at, keeper in enumerate(kept[0].keepers) if keeper == PUBLIC]
    assert public
    assert all(len({tree.weights[at] for tree in kept}) == 1 for at in public)


@pytest.mark.parametrize(
    ("labels", "field", "code"),
    [
        ({"bank": 1.0}, "[data] labels", "range"),
        ({"bank": 0.5, "clinic": 0.4}, "[data] labels", "range"),
        ({"bank": 0.5, "lab": 0.5}, "[data] labels lab", "unknown"),
        ({"bank": 1.5, "clinic": -0.5}, "[data] labels bank", "range"),
    ],
)
def test_shares_of_labels_that_are_none(labels: dict[str, float], field: str, code: str) -> None:
    with refused(JobError, code, field=field):
        job_of(labels, THREE)


def test_one_holder_or_another_model() -> None:
    with refused(JobError, "unsupported", field="[data] labels"):
        model_family(job_of({"bank": 0.5, "clinic": 0.5}, THREE).model).topology(["bank", "clinic"], ["bank"])
    text = JOB.format(
        table="breast_cancer",
        labels="bank = 0.5, clinic = 0.5",
        data="",
        parties="bank = 0.5\nclinic = 0.5",
        model="",
        encryption=PLAIN,
    )
    with refused(JobError, "unsupported", field="[data] label"):
        check_job(with_defaults(parse_job(text.replace('"pivodl"', '"secureboost"'))))


def test_a_holder_without_labels() -> None:
    job = job_of({"bank": 0.0001, "clinic": 0.9999}, THREE)
    with refused(DataError, "labels", field="[data] labels bank"):
        load_dataset(job, 1)
