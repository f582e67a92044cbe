"""Attacks on each message of Pivot, each with a control in which it must succeed; and on what is opened."""

from __future__ import annotations

from typing import Any

import gmpy2
import msgspec
import numpy as np
import pytest
from pivot_runs import PLAIN, SMALL_KEY, data_of, job_of, trained
from sklearn.metrics import roc_auc_score

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.opened_tree import OpenedTreeGuess
from labelward.data import VerticalDataset
from labelward.errors import DataError, EncryptionError, FileFormatError
from labelward.federation.simulation import SimulationResult
from labelward.he.base import CipherBlock, PublicMaterial
from labelward.he.paillier.key_parts import PaillierKeyPart
from labelward.he.paillier.keys import PaillierPublicKey
from labelward.he.plain import _KeyPart
from labelward.messages.base import RowMask
from labelward.messages.pivot import LabelRows, MaskedShares, OpenedTree
from labelward.party.context import Context
from labelward.party.view import View
from labelward.protocols.family import attacker_data
from labelward.protocols.pivot import arithmetic
from labelward.protocols.pivot.params import Pivot
from labelward.testing.attacks import view_of
from refusals import refused


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    return abs(float(np.corrcoef(one.astype(np.float64).ravel(), other.astype(np.float64).ravel())[0, 1]))


@pytest.fixture
def opened_statistics(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What sources open: masked sums, int64 [cells, classes], in the order in which they do."""
    found: list[np.ndarray] = []
    combine = _KeyPart.combine

    def recorded(self: Any, block: CipherBlock, partials: Any) -> np.ndarray:
        values = combine(self, block, partials)
        found.append(values[0])
        return values

    monkeypatch.setattr(_KeyPart, "combine", recorded)
    return found


@pytest.mark.parametrize("masked", [True, False])
def test_masked_sums_tell_nothing_of_the_sums(
    masked: bool, opened_statistics: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source knows its masked sums of both classes; the larger sum must not be the larger masked one.

    In the control masks have no bits beyond those of the sums, and the largest sums show. 5 standard errors of a
    correlation of independent values are 5 / sqrt(n).
    """
    if not masked:
        monkeypatch.setattr(Pivot, "mask_bits", lambda self, rows: 3)
    job = job_of(parties={"active": 0.5, "telco": 0.5, "dealer": 0}, candidates="all", depth=1)
    data = data_of(job)
    trained(job, data)
    labels = data.train_values.astype(int)
    by_size = {len(each): each for each in opened_statistics}
    true, seen = [], []
    for party in data.parties[:2]:
        codes = [np.unique(column, return_inverse=True)[1] for column in party.train.T]
        sums = [np.bincount(each * 2 + labels, minlength=2 * (each.max() + 1)).reshape(-1, 2) for each in codes]
        true.append(np.concatenate(sums))
        seen.append(by_size[len(true[-1])])
    true, seen = np.concatenate(true), np.concatenate(seen)
    difference = correlation(true[:, 1] - true[:, 0], seen[:, 1] - seen[:, 0])
    level = max(correlation(true[:, at], seen[:, at]) for at in (0, 1))
    bound = 5 / np.sqrt(len(true))
    assert (max(difference, level) < bound) == masked, (difference, level, bound)


@pytest.mark.slow
def test_ciphertexts_of_children_do_not_show_which_rows_they_have() -> None:
    """Of a child's rows no ciphertext is one of the parent's, and quadratic residuosity is the same for all.

    The Jacobi symbol is what anyone can compute; were zeros made of one base, it would tell kept rows from others.
    """
    job = job_of(encryption=SMALL_KEY, depth=3, bins=8)
    data = data_of(job)
    found: list[tuple[CipherBlock, Any, CipherBlock, int]] = []
    select = PaillierPublicKey.select
    with pytest.MonkeyPatch.context() as patch:

        def recorded(self: PaillierPublicKey, block: CipherBlock, chosen: Any) -> CipherBlock:
            child = select(self, block, chosen)
            found.append((block, chosen, child, int(self.n)))
            return child

        patch.setattr(PaillierPublicKey, "select", recorded)
        trained(job, data)
    kept, zeros = [], []
    for parent, chosen, child, n in found:
        size = len(child.data) // child.count
        cells = [child.data[at : at + size] for at in range(0, len(child.data), size)]
        before = {parent.data[at : at + size] for at in range(0, len(parent.data), size)}
        assert not before & {*cells}
        numbers = [int.from_bytes(cell, "big") for cell in cells]
        kept += [gmpy2.jacobi(number, n) == 1 for number, inside in zip(numbers, chosen, strict=True) if inside]
        zeros += [gmpy2.jacobi(number, n) == 1 for number, inside in zip(numbers, chosen, strict=True) if not inside]
    assert min(len(kept), len(zeros)) > 300
    for each in (kept, zeros):
        assert abs(np.mean(each) - 0.5) < 5 * 0.5 / np.sqrt(len(each))


def test_parts_of_all_but_one_party_decrypt_nothing() -> None:
    """Two of three parties collude: with the rows and two parts they get no plaintext, with three they do."""
    parts: list[PaillierKeyPart] = []
    blocks: list[CipherBlock] = []
    init, recv = PaillierKeyPart.__init__, Context.recv

    def noted(self: PaillierKeyPart, public: Any, part: bytes) -> None:
        init(self, public, part)
        parts.append(self)

    def heard(self: Context, peer: str, kind: Any, step: Any) -> Any:
        message = recv(self, peer, kind, step)
        if isinstance(message, LabelRows):
            blocks.append(message.rows)  # type: ignore[arg-type]
        return message

    job = job_of(encryption=SMALL_KEY, depth=1, bins=4)
    data = data_of(job)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PaillierKeyPart, "__init__", noted)
        patch.setattr(Context, "recv", heard)
        trained(job, data)
    partials = [part.partial_decrypt(blocks[0]) for part in parts]
    for missing in range(3):
        with pytest.raises(EncryptionError):
            parts[0].combine(blocks[0], [each for at, each in enumerate(partials) if at != missing])
    # what the docs say of a dealer that colludes with one other party: it has all parts
    rows = parts[0].combine(blocks[0], partials)[0]
    np.testing.assert_array_equal(rows.argmax(axis=1), data.train_values)


def test_parcels_are_for_their_party_and_hold_no_readable_part() -> None:
    """A stored view holds the sealed parcel alone: neither the part nor the seed lie in any record of any party."""
    secrets: list[bytes] = []
    init = PaillierKeyPart.__init__

    def noted(self: PaillierKeyPart, public: Any, part: bytes) -> None:
        init(self, public, part)
        secrets.append(part)

    seeds: list[bytes] = []
    start = arithmetic.SharedArithmetic.__init__

    def started(self: Any, ctx: Context, dealer: str, parties: Any, seed: bytes) -> None:
        start(self, ctx, dealer, parties, seed)
        seeds.append(seed)

    job = job_of(encryption=SMALL_KEY, depth=1, bins=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PaillierKeyPart, "__init__", noted)
        patch.setattr(arithmetic.SharedArithmetic, "__init__", started)
        ended = trained(job, data_of(job))
    assert (len(secrets), len(seeds)) == (3, 3)
    for view in ended.views.values():
        stored = b"".join(msgspec.msgpack.encode(entry) for entry in view.entries())
        assert not any(part[8:40] in stored or seed in stored for part, seed in zip(secrets, seeds, strict=True))


def two_labelings() -> tuple[Any, VerticalDataset, VerticalDataset]:
    """Return a job and two data sets that differ in labels, but not in the tree: rows of two leaves change places."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2)).round(2)
    label = (x[:, 0] > 0).astype(int)
    other = label.copy()
    high = np.flatnonzero(x[:, 0] > 1)[:1]
    other[high] = 0
    parties = {"active": ["x1"], "telco": ["x0"], "shop": ["x2"], "dealer": []}
    job = job_of("made", parties, PLAIN, depth=1, bins=4)
    made = {"x0": x[:, 0], "x1": x[:, 1], "x2": rng.normal(size=80).round(2)}
    return job, data_of(job, made={**made, "label": label}), data_of(job, made={**made, "label": other})


@pytest.mark.slow
@pytest.mark.parametrize("receiver", ["telco", "shop"])
def test_shares_of_two_labelings_look_alike(receiver: str) -> None:
    """All that a party receives under masks, and what it adds up, in 60 runs of either labeling.

    For each word of the view the mean of its highest bits is compared; of 20,000 comparisons the largest of normal
    deviates is below 5.5 with a probability of .999. The opened results are equal, so that nothing may differ.
    """
    job, first, second = two_labelings()
    seen: dict[int, list[np.ndarray]] = {0: [], 1: []}
    for number, data in enumerate((first, second)):
        for _ in range(60):
            seen[number].append(words(trained(job, data), receiver))
    assert len({each.shape for runs in seen.values() for each in runs}) == 1
    means = [np.mean([each >> np.uint64(63) for each in seen[number]], axis=0) for number in (0, 1)]
    whole = [each.astype(np.float64) for runs in seen.values() for each in runs]
    varied = np.ptp(np.stack(whole), axis=0) > 2.0**60  # not the shares of single bits
    deviates = (means[0] - means[1])[varied] / np.sqrt(2 * 0.25 / 60)
    assert varied.sum() > 3000
    assert abs(deviates).max() < 5.5


def words(ended: SimulationResult, party: str) -> np.ndarray:
    """Return all shares that a party receives, and their sums over the senders of a step."""
    by_step: dict[Any, list[np.ndarray]] = {}
    for each in ended.views[party].received(MaskedShares):
        by_step.setdefault(each.step, []).append(each.message.values.unpack().astype(np.int64).view(np.uint64).ravel())
    steps = sorted(by_step)
    return np.concatenate([np.concatenate([*by_step[step], np.sum(by_step[step], axis=0)]) for step in steps])


def test_the_opened_tree_ranks_labels_and_the_attack_reads_it() -> None:
    """The leak that the protocol accepts: an owner of all splits above a leaf knows the class of most rows there."""
    job = job_of(parties={"active": 0, "telco": 0.9, "shop": 0.1, "dealer": 0}, depth=3)
    data = data_of(job)
    ended = trained(job, data)
    truth, right, sure = data.train_values.astype(int), {}, {}
    for party in data.parties[1:3]:
        own, aux = attacker_data(party), AuxiliaryKnowledge(classes=2)
        guess = OpenedTreeGuess()(ended.views[party.name], own, aux, rng=np.random.default_rng(0))
        right[party.name], sure[party.name] = (guess.values == truth).mean(), guess.notes["sure_rows"]
    assert right["telco"] > 0.9
    assert right["shop"] < right["telco"]
    assert sure["shop"] < 0.1 < 0.5 < sure["telco"]


def planted(tree: OpenedTree, rows: int = 4) -> View:
    return view_of([(tree, ())], rows, model="pivot", party="telco")


def test_the_attack_on_planted_trees() -> None:
    """Own splits everywhere: exact. None of its own: the same for all rows. Damaged: refused."""
    truth = np.array([0, 1, 1, 0])
    aux, data = AuxiliaryKnowledge(classes=2), AttackerData(features=np.zeros((4, 1)), columns=("x",))
    sides = (RowMask.pack(np.array([True, True, False, False])), RowMask.pack(np.array([True, False, False, False])))
    sides = (*sides, RowMask.pack(np.array([False, False, True, False])))
    tree = OpenedTree((0, 1, 2), ("telco",) * 3, (3, 4, 5, 6), (0, 1, 1, 0), sides)
    attack, rng = OpenedTreeGuess(), np.random.default_rng(0)
    view = planted(tree)
    guess = attack(view, data, aux, rng=rng)
    np.testing.assert_array_equal(guess.values, truth)
    assert guess.notes["sure_rows"] == 1
    others = msgspec.structs.replace(tree, owners=("shop",) * 3, left=())
    flat = attack(planted(others), data, aux, rng=rng)
    assert flat.scores is not None
    assert np.ptp(flat.scores, axis=0).max() == 0
    for damaged in (msgspec.structs.replace(tree, left=sides[:2]), msgspec.structs.replace(tree, classes=(0,))):
        with pytest.raises(FileFormatError):
            attack(planted(damaged), data, aux, rng=rng)
    with pytest.raises(FileFormatError):
        attack(planted(tree, rows=5), data, aux, rng=rng)


@pytest.mark.parametrize("seed", range(5))
def test_own_columns_tell_more_than_the_leaves_alone(seed: int) -> None:
    """One split of its own, on one of six columns that each tell a little: the others tell what it leaves open.

    Against shuffled labels the AUC of 1,000 rows has a standard error of .018, of which four are allowed.
    """
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=1000)
    columns = truth[:, None] + rng.normal(size=(1000, 6))
    tree = OpenedTree((0,), ("telco",), (1, 2), (0, 1), (RowMask.pack(columns[:, 0] <= 0.5),))
    own = AttackerData(features=columns, columns=tuple("abcdef"))
    found, shuffled = {}, rng.permutation(truth)
    for own_columns in (True, False):
        attack = OpenedTreeGuess(own_columns=own_columns)
        guess = attack(planted(tree, rows=1000), own, AuxiliaryKnowledge(classes=2), rng=rng)
        assert guess.scores is not None
        found[own_columns] = roc_auc_score(truth, guess.scores[:, 1])
        assert abs(roc_auc_score(shuffled, guess.scores[:, 1]) - 0.5) < 4 * 0.018
        assert guess.notes["sure_rows"] == 1
    assert found[True] > found[False] + 0.1
    np.testing.assert_array_equal(guess.values, columns[:, 0] > 0.5)  # of the leaves alone


def test_own_columns_of_other_rows_are_refused() -> None:
    tree = OpenedTree((0,), ("telco",), (1, 2), (0, 1), (RowMask.pack(np.array([True, False, False, True])),))
    own = AttackerData(features=np.zeros((3, 1)), columns=("x",))
    with refused(DataError, "rows", value=3):
        OpenedTreeGuess()(planted(tree), own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(0))


def test_the_dealer_sees_how_many_nodes_split_and_nothing_else() -> None:
    """Its view is the same for two labelings with one tree shape, and holds no ciphertext."""
    job, first, second = two_labelings()
    views = [trained(job, data).views["dealer"] for data in (first, second)]
    assert len({str(sorted(map(repr, view.content()))) for view in views}) == 1
    for view in views:
        for _, _, _, message in view.records():
            fields = [getattr(message, name) for name in message.__struct_fields__]
            assert not any(isinstance(each, CipherBlock | PublicMaterial) for each in fields)
