"""What views of PIVODL hold, whatever the messages are: every array in them is searched.

The last tests let a message add what none may: each must be found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from labelward.attacks.shared_trees import known_trees
from labelward.attacks.split_gains import left_gradients
from labelward.data import VerticalDataset, load_dataset
from labelward.errors import PeerError
from labelward.federation.components import make_engine, with_defaults
from labelward.federation.simulation import SimulationResult, simulate_job
from labelward.job import parse_job
from labelward.kernels.node_rows import route_rows
from labelward.messages.base import Array, Released, RowMask
from labelward.messages.handshake import Hello, PairStart, RowIdDigests, RowSplit
from labelward.messages.pivodl import ChildRows, ColumnCodes, HeldRows, OpenedSums, PartyKeys, RootTotals, SplitSides
from labelward.party.context import no_progress
from labelward.party.view import View
from labelward.protocols.pivodl.share import PivodlShare
from labelward.protocols.pivodl.tree import Tree
from labelward.rng import PrivateSeed
from released import released

PARTIES = {"bank": 0.3, "clinic": 0.4, "shop": 0.3}
RATE, ONE = 0.3, 2.0**30
GREETING = (HeldRows, ChildRows, Hello, PairStart, RowSplit, RowIdDigests)
"""Messages that are looked at apart, or that begin a run."""
ALLOWED = [(PartyKeys, ["masks"]), (ColumnCodes, ["codes"]), (SplitSides, ["bits"])]
"""What messages have as bytes; sides of splits are of test rows."""


@dataclass
class Recorded:
    """A training with what only the tests know: the gradients of all rows before each tree, int64 [rows, k]."""

    data: VerticalDataset
    ended: SimulationResult
    values: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    def owned_leaves(self, party: str) -> Iterator[tuple[int, float, NDArray[np.int64]]]:
        """Yield of each leaf whose rows one source alone knows its tree, weight before the learning rate, and sums."""
        shares: Mapping[str, PivodlShare] = self.ended.shares
        names = list(shares)
        for number, tree in enumerate(shares[party].trees):
            sides = [
                shares[names[owner]].own[record].goes_left(self.data.parties[owner].train)
                for owner, record in zip(tree.owners, tree.records, strict=True)
            ]
            reached = route_rows(*tree.branches(), np.stack(sides))
            owners = dict(zip(tree.nodes, tree.owners, strict=True))
            for at, (leaf, keeper) in enumerate(zip(tree.leaves, tree.keepers, strict=True)):
                if keeper >= 0 and names[owners[(leaf - 1) // 2]] == party:
                    weight = shares[names[keeper]].trees[number].weights[at]
                    yield number, weight / RATE, self.values[number][reached == at].sum(axis=0)


def recorded(monkeypatch: pytest.MonkeyPatch, aggregation: str = "paillier") -> Recorded:
    """Train three trees on breast cancer under partial differential privacy."""
    job = with_defaults(
        parse_job(
            {
                "data": {"table": "breast_cancer", "labels": {"bank": 0.5, "clinic": 0.5}},
                "parties": PARTIES,
                "model": {"kind": "pivodl", "trees": 3, "learning_rate": RATE, "aggregation": aggregation},
                "encryption": {"engine": "plain", "insecure": True},
                "defense": [{"kind": "partial-dp"}],
            }
        )
    )
    data = load_dataset(job, 1, private={party: PrivateSeed(party.encode().ljust(32)) for party in PARTIES})
    values: dict[int, NDArray[np.int64]] = {}
    made = Tree.__init__

    def noted(self: Tree, training: Any, tree: int) -> None:
        made(self, training, tree)
        whole = values.setdefault(tree, np.zeros((len(data.train_labels), self.values.shape[1]), np.int64))
        whole[training.held] = self.values

    monkeypatch.setattr(Tree, "__init__", noted)
    engine, variant = make_engine(job.encryption), job.variants()[-1]
    return Recorded(data, simulate_job(job, data, variant, engine, None, seed=1, progress=no_progress), values)


def arrays(view: View) -> Iterator[NDArray[Any]]:
    """Yield every array of a view, in messages and observations, but sums by bins of others' columns."""
    for _, _, _, record in view.records():
        if isinstance(record, OpenedSums) and record.source != view.party:
            continue
        for name in record.__struct_fields__:
            value = getattr(record, name)
            value = value.value if isinstance(value, Released) else value
            if isinstance(value, Array):
                yield value.unpack()


def masks(value: Any) -> Iterator[RowMask]:
    """Yield every mask of rows in a value."""
    if isinstance(value, Released):
        yield from masks(value.value)
    elif isinstance(value, RowMask):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from masks(each)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from masks(getattr(value, name))


def check_weights_and_sums(run: Recorded) -> None:
    """No source reads the weight or the sums of a leaf that only it knows the rows of.

    Sums of the first tree are left out: gradients are ½ or -½ there, so that leaves of few rows have equal ones.
    """
    for party in PARTIES:
        leaves = list(run.owned_leaves(party))
        assert leaves or party != "clinic"
        found = [each for each in arrays(run.ended.views[party]) if each.size]
        numbers = np.concatenate([each.ravel() for each in found if each.dtype == np.float64])
        for tree, weight, sums in leaves:
            assert not np.isclose(numbers, weight, rtol=1e-9, atol=0).any(), party
            assert not np.isclose(numbers, weight * RATE, rtol=1e-9, atol=0).any(), party
            for each in found if tree else ():
                assert each.shape[-1] != len(sums) or not (each == sums).all(axis=-1).any(), party


def check_rows(run: Recorded) -> None:
    """Nobody is told rows but those that all are told, its own leaves', and, of others' leaves, those that it labels.

    What all are told are whole nodes that go on; codes come of labeled rows only.
    """
    total = len(run.data.train_labels)
    for party in PARTIES:
        view, held = run.ended.views[party], int(run.data.holds(party)[:total].sum())
        for each in view.received(ColumnCodes):
            assert len(each.message.codes) == 2 * held * len(each.message.sizes), party
        for kind, _, _, record in view.records():
            if kind == "received" and not isinstance(record, GREETING):
                loose = [name for name in record.__struct_fields__ if isinstance(getattr(record, name), bytes)]
                assert not list(masks(record)), type(record)
                assert (type(record), loose) in ALLOWED or not loose, (type(record), loose)
        for told in view.received(ChildRows):
            for flags, mask in zip(told.message.leaves, told.message.left.value, strict=True):
                assert not all(flags) or mask.total <= held, party


@pytest.mark.parametrize("aggregation", ["paillier", "masks"])
def test_no_source_reads_sum_or_clean_weight_of_its_leaf(monkeypatch: pytest.MonkeyPatch, aggregation: str) -> None:
    run = recorded(monkeypatch, aggregation)
    check_weights_and_sums(run)
    check_rows(run)


def test_the_gain_of_a_split_tells_the_sums_of_its_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """What remains, and is documented: before the first tree exactly, up to which of two solutions it is."""
    run, solved = recorded(monkeypatch), 0
    for party in PARTIES:
        tree = next(known_trees(run.ended.views[party]))
        for node in tree.own & tree.gains.keys():
            if 2 * node + 1 in tree.sums:
                continue
            left, right = (tree.rows[2 * node + side] for side in (1, 2))
            sums = [run.values[0][rows].sum(axis=0)[:2] / ONE for rows in (left, right)]
            both = left_gradients(tree.gains[node], sums[0][0] + sums[1][0], (sums[0][1], sums[1][1]), 1.0)
            assert min(abs(g - sums[0][0]) for g in both) < 1e-5, party
            solved += 1
    assert solved


def test_a_clean_weight_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Tree._told_weights
    monkeypatch.setattr(
        Tree, "_told_weights", lambda self, peer, source, ended, weights: told(self, peer, "", ended, weights)
    )
    with pytest.raises(AssertionError):
        check_weights_and_sums(recorded(monkeypatch))


def test_a_sum_of_a_leaf_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split client that tells the source the sums of a leaf, beside its weight."""
    decide, observe = Tree._decide, Tree._observe

    def telling(self: Tree, source: str, nodes: Any, going_on: Any, ended: list[int], decided: Any) -> Any:
        if ended:
            sums = self.ctx.policies.release_opened(Array.pack(decided[source, ended[0]].left[:1]))
            self.ctx.send(source, RootTotals(sums), (self.tree, self.depth, ended[0]))
        return decide(self, source, nodes, going_on, ended, decided)

    def told(self: Tree, source: str, nodes: list[int], rows: Any) -> None:
        ended = [node for node in nodes if all(rows[node][0])]
        if ended and source == self.ctx.party:
            client = self.parties[self._split_client(ended[0], source)]
            self.ctx.recv(client, RootTotals, (self.tree, self.depth, ended[0]))
        observe(self, source, nodes, rows)

    monkeypatch.setattr(Tree, "_decide", telling)
    monkeypatch.setattr(Tree, "_observe", told)
    with pytest.raises(AssertionError):
        check_weights_and_sums(recorded(monkeypatch))


def test_a_row_of_anothers_leaf_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that tells a split client which rows go left, whoever labels them."""
    observe = Tree._observe

    def telling(self: Tree, source: str, nodes: list[int], rows: Any) -> None:
        client, step = self.parties[self._split_client(nodes[0], source)], (self.tree, self.depth, nodes[0])
        if source == self.ctx.party:
            self.ctx.send(client, ChildRows(((True, True),), released((RowMask.pack(rows[nodes[0]][1]),))), step)
        elif client == self.ctx.party:
            self.ctx.recv(source, ChildRows, step)
        observe(self, source, nodes, rows)

    monkeypatch.setattr(Tree, "_observe", telling)
    with pytest.raises(AssertionError):
        check_rows(recorded(monkeypatch))


def test_a_receiver_refuses_rows_that_it_does_not_label(monkeypatch: pytest.MonkeyPatch) -> None:
    tell = Tree._child_rows

    def telling(self: Tree, client: int, source: str, nodes: list[int], chosen: Any) -> Any:
        if source == self.ctx.party:
            everything = np.ones(self.fixed.rows, dtype=np.bool_)
            self.training.holding = dict.fromkeys(self.training.holding, everything)
        return tell(self, client, source, nodes, chosen)

    monkeypatch.setattr(Tree, "_child_rows", telling)
    with pytest.raises(PeerError) as caught:
        recorded(monkeypatch)
    assert caught.value.code in ("peer-message", "malformed")
