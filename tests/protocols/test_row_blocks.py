"""Rows in many blocks, summed as they come, give what they give in one."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from equivalence import KINDS, NAMES, assert_as_joined, rich_setting

import wiring
from blames import blamed
from interrupted import Cut, Interrupted, assert_same
from labelward.errors import PeerError
from labelward.he import engine as make_engine
from labelward.he.base import CipherBlock, Layout
from labelward.he.paillier.keys import PaillierPrivateKey
from labelward.messages.base import wire_name
from labelward.messages.codec import decode, encode
from labelward.messages.tree import DecryptedSums, EncryptedForestRows, EncryptedTreeRows, LevelRequest, TreeStart
from labelward.party.context import Context
from labelward.party.roles import Topology
from labelward.party.transcript import Transcript
from labelward.policy.base import Policy, Schedule
from labelward.protocols.secureboost import row_blocks, row_encoding
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost
from labelward.protocols.secureboost.row_blocks import IncomingRows
from labelward.protocols.secureboost.row_encoding import block_count, encrypt_blocks
from labelward.rng import SecureRandom
from labelward.transport.base import Transport
from labelward.transport.in_process import connect_in_process
from released import rewrapped, unwrapped
from wiring import Run, Setting, make_labels, make_parts


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 16 rows, sums at the root for every 40 rows or more."""
    monkeypatch.setattr(row_encoding, "BLOCK_ROWS", 16)
    monkeypatch.setattr(row_blocks, "CHUNK_ROWS", 40)


def rows_of(run: Run, party: str, kind: type[Any]) -> list[tuple[tuple[int, ...], Any]]:
    return [(step, message) for message, step in map(decode, run.frames_to(party)) if isinstance(message, kind)]


@pytest.mark.parametrize(
    "kind",
    [
        "two classes",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("three classes, a tree each", "forest of quantities")
        ),
    ],
)
def test_many_blocks_give_the_run_of_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares, margins and decrypted sums to the last bit; rows drawn several times, trees side by side."""
    targets, params = KINDS[kind]
    setting = rich_setting(51, targets, rows=90, **params)
    one = setting.run(engine="paillier", bits=512)
    small_blocks.__wrapped__(monkeypatch)  # type: ignore[attr-defined]
    many = setting.run(engine="paillier", bits=512)
    assert many.shares == one.shares
    assert many.active.margins.tobytes() == one.active.margins.tobytes()
    assert many.active.counts.encryptions == one.active.counts.encryptions
    sums = [[each.sums for each in run.views["active"].observed(DecryptedSums)] for run in (one, many)]
    assert sums[0] == sums[1]
    again = setting.run(engine="paillier", bits=512)
    for party, view in many.views.items():
        assert view.digest() == again.views[party].digest()
    carrying = EncryptedForestRows if "forest" in kind else EncryptedTreeRows
    assert len(rows_of(one, "left", carrying)) < len(rows_of(many, "left", carrying))


def test_real_blocks_and_chunks() -> None:
    """More rows than are summed at once; a few of them are drawn twice."""
    parts = make_parts(60, 70_000, {"active": 1, "left": 2}, levels=50)
    params = FederatedForest(trees=2, depth=2, bins=16, replace=True)
    setting = Setting(parts, make_labels(60, parts), params)
    run = setting.run()
    assert_as_joined(run, setting)
    assert [each.gradients.shape for _, each in rows_of(run, "left", EncryptedForestRows)] == [(16_384,)] * 4 + [
        (4_464,)
    ]


@pytest.mark.usefixtures("small_blocks")
def test_every_party_gets_the_same_blocks_after_the_first_level() -> None:
    """What is to be summed comes before the rows; the rows come in order, each block once."""
    run = replace(rich_setting(52, "binary", rows=70, trees=2), engine="paillier", bits=512).run()
    for party in NAMES[1:]:
        names = [wire_name(type(decode(frame)[0])) for frame in run.frames_to(party)]
        start = names.index("TreeStart")
        assert names[start : start + 8] == ["TreeStart", "Level", *["TreeRows"] * 5, "ChosenSplits"]
        sent = rows_of(run, party, EncryptedTreeRows)
        assert [step for step, _ in sent] == [(tree, part) for tree in range(2) for part in range(5)]
        assert [(each.tree, each.part, each.parts) for _, each in sent] == [(*step, 5) for step, _ in sent]
        assert [each.gradients.shape for _, each in sent] == [(16,), (16,), (16,), (16,), (6,)] * 2
        assert {each.gradients.layout.rows for _, each in sent} == {70}
    left, right = (rows_of(run, party, EncryptedTreeRows) for party in NAMES[1:])
    assert [each.gradients for _, each in left] == [each.gradients for _, each in right]


@pytest.mark.usefixtures("small_blocks")
def test_no_rows_for_a_tree_of_which_nothing_is_to_be_summed() -> None:
    """A tree of too few rows ends at its root: nobody is sent what nobody sums."""
    parts = make_parts(53, 40, {"active": 1, "left": 1})
    setting = Setting(parts, make_labels(53, parts), FederatedForest(trees=2, min_rows=21), engine="paillier", bits=512)
    run = setting.run()
    assert len(rows_of(run, "left", TreeStart)) == 2
    assert [message.build for _, message in rows_of(run, "left", LevelRequest)] == [(), ()]
    assert not rows_of(run, "left", EncryptedForestRows)
    assert run.active.counts.encryptions == 0


class ByTurns(Policy):
    """The first tree is one party's, the second another's."""

    kind = "turns"

    def schedule(self, schedule: Schedule) -> Schedule:
        return replace(schedule, participants=(frozenset({"left"}), frozenset({"right"})))


@pytest.mark.usefixtures("small_blocks")
def test_a_party_that_joins_a_forest_later_gets_the_rows_of_the_others() -> None:
    """All rows are encrypt_blocks once even so."""
    parts = make_parts(54, 60, {"active": 1, "left": 2, "right": 2})
    params = FederatedForest(trees=2, depth=2, bins=8, row_fraction=0.9, trees_at_once=1)
    setting = Setting(parts, make_labels(54, parts), params, engine="paillier", bits=512, policies=(ByTurns(),))
    run = setting.run()
    left, right = (rows_of(run, party, EncryptedForestRows) for party in ("left", "right"))
    assert [step for step, _ in left] == [(0,), (1,), (2,), (3,)]
    assert left == right
    assert run.active.counts.encryptions == 60


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("forest", [False, True])
def test_a_run_that_goes_on_sends_rows_anew(tmp_path: Path, forest: bool) -> None:
    """Cut among the blocks of a tree, at either side; the views tell what those of a whole run tell."""
    parts = make_parts(55, 60, {"active": 1, "left": 2})
    params = FederatedForest(trees=2, depth=2, bins=8, row_fraction=0.9, trees_at_once=1)
    setting = Setting(
        parts,
        make_labels(55, parts),
        params if forest else SecureBoost(trees=3, depth=2, bins=8),
        engine="paillier",
        bits=512,
    )
    whole = Interrupted(setting=setting, folder=tmp_path / "whole").finish()
    for party in parts:
        for at in range(6, 30, 7):
            cut = Interrupted(setting=setting, folder=tmp_path / f"{party}-{at}").finish(Cut(party, at))
            assert cut.attempts == 2
            assert_same(cut, whole)


# -- encrypting ahead --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["two classes", "three classes, a tree each", "forest of classes"])
def test_what_is_prepared(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many ciphertexts as this tree has, where another follows; nothing in the end."""
    asked: list[int] = []
    made = PaillierPrivateKey.prepare
    monkeypatch.setattr(PaillierPrivateKey, "prepare", lambda key, count: (asked.append(count), made(key, count))[1])
    targets, params = KINDS[kind]
    setting = rich_setting(57, targets, rows=60, **params)
    run = setting.run(engine="paillier", bits=512)
    starts = 0 if "forest" in kind else len(rows_of(run, "left", EncryptedTreeRows))
    sent = [message.gradients.count for _, message in rows_of(run, "left", EncryptedTreeRows)]
    assert asked == [*sent[: starts - 1], 0]
    assert "forest" in kind or starts > 1


def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "make_engine", lambda name: make_engine(name, background=True))


def preparing() -> list[str]:
    names = [each.name for each in threading.enumerate()]
    return [name for name in names if name.startswith(("labelward-prepare", "labelward-encrypt"))]


def test_encrypting_ahead_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = rich_setting(58, "binary", rows=60, trees=4)
    plain = setting.run()
    ahead(monkeypatch)
    secret = setting.run(engine="paillier", bits=512)
    assert not preparing()
    assert secret.shares == plain.shares
    blocks_sent = [message.gradients.data for _, message in rows_of(secret, "left", EncryptedTreeRows)]
    ciphertexts = [data[at : at + 128] for data in blocks_sent for at in range(0, len(data), 128)]
    assert len(set(ciphertexts)) == len(ciphertexts) == secret.active.counts.encryptions


@pytest.mark.usefixtures("small_blocks")
def test_a_run_that_fails_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among the blocks of its second tree."""
    parts = make_parts(59, 60, {"active": 1, "left": 2})
    setting = Setting(parts, make_labels(59, parts), SecureBoost(trees=3, depth=2, bins=8), engine="paillier", bits=512)
    ahead(monkeypatch)
    monkeypatch.setattr(wiring, "Wire", lambda end, nap: Falling(end))
    with blamed("left", "peer-gone", message="TreeRows", step=(1, 1)):
        setting.run()
    assert not preparing()


class Falling(wiring.Wire):
    """The active party's end, which takes no more in the second tree."""

    def send(self, peer: str, frame: bytes) -> None:
        message, _ = decode(frame)
        if isinstance(message, EncryptedTreeRows) and (message.tree, message.part) == (1, 1):
            raise PeerError(peer, "fell", code="peer-gone")
        super().send(peer, frame)


@pytest.mark.usefixtures("small_blocks")
def test_rows_out_of_memory_give_the_same_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = rich_setting(61, "binary", rows=60)
    within = setting.run(engine="paillier", bits=512)
    monkeypatch.setattr(wiring, "make_engine", lambda name: make_engine(name, memory_limit=2_000))
    beyond = setting.run(engine="paillier", bits=512)
    assert beyond.shares == within.shares
    assert beyond.passive["left"].counts == within.passive["left"].counts


# -- faults ------------------------------------------------------------------------------------------------------------


class Liar(wiring.Wire):
    """The active party's end, which sends another last block than its program meant to."""

    def __init__(self, inner: Transport, change: Any) -> None:
        super().__init__(inner)
        self.change = change

    def send(self, peer: str, frame: bytes) -> None:
        message, step = decode(frame)
        if isinstance(message, EncryptedTreeRows) and message.part == message.parts - 1:
            frame = encode(rewrapped(self.change(unwrapped(message))), step)
        super().send(peer, frame)


def whole_block(message: Any) -> Any:
    """As many rows as any other block has."""
    block = message.gradients
    more = msgspec.structs.replace(block, shape=(16,), count=16, data=block.data + bytes(16 * 24 - len(block.data)))
    return msgspec.structs.replace(message, gradients=more)


CHANGES = {
    "more rows than due": whole_block,
    "another layout": lambda m: msgspec.structs.replace(m, gradients=other_layout(m.gradients)),
    "further blocks": lambda m: msgspec.structs.replace(m, parts=m.parts + 1),
    "an earlier block": lambda m: msgspec.structs.replace(m, part=0),
}


def other_layout(block: CipherBlock) -> CipherBlock:
    bounds = block.layout.bounds
    return msgspec.structs.replace(block, layout=Layout((bounds[0] + 1, *bounds[1:]), block.layout.rows, 2))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_sender_of_wrong_blocks_is_named(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = make_parts(56, 60, {"active": 1, "left": 2})
    setting = Setting(parts, make_labels(56, parts), SecureBoost(trees=1, depth=2, bins=8))
    monkeypatch.setattr(wiring, "Wire", lambda end, nap: Liar(end, change))
    with pytest.raises(PeerError) as caught:
        setting.run()
    assert (caught.value.peer, caught.value.message) == ("active", "TreeRows")
    assert caught.value.code in ("peer-message", "ciphertext", "capacity", "range")


# -- alone -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (1, [(0, 1)]),
        (39, [(0, 39)]),
        (40, [(0, 40)]),
        (41, [(0, 40), (40, 41)]),
        (100, [(0, 40), (40, 80), (80, 100)]),
    ],
)
def test_chunks_have_arrived_when_they_are_yielded(n: int, expected: list[tuple[int, int]]) -> None:
    """Sums begin before the last block has come; what is summed again later is summed at once."""
    ends = connect_in_process(["active", "left"])
    setting = Setting({"active": np.zeros((n, 1)), "left": np.zeros((n, 1))}, np.zeros(n, dtype=np.int64))
    contexts = {
        party: Context(
            ends[party],
            topology=Topology.star("active", "left"),
            transcript=Transcript(wiring.header(setting, party)),
            seed=1,
            timeout=60.0,
        )
        for party in ends
    }
    engine = make_engine("plain")
    private = engine.generate(0, protection=SecureRandom(), insecure=True)
    values = np.arange(n, dtype=np.int64)[:, None]
    made = list(encrypt_blocks(contexts["active"], private, values, Layout((100,), n, 1)))
    assert len(made) == block_count(n)
    arriving = IncomingRows(contexts["left"], private.public, EncryptedTreeRows, (3,), n)
    incoming, found = arriving.chunks(), []
    sent = total = 0
    for start, stop in expected:
        while sent * 16 < stop:  # no more than the chunk needs
            contexts["active"].send("left", EncryptedTreeRows(3, sent, len(made), made[sent]), (3, sent))
            sent += 1
        found.append(next(incoming))
        sums = arriving.rows.group_sums(np.zeros((stop - start, 1), np.int32), 1, start)
        total += int(private.decrypt(sums.rerandomize())[0, 0, 0])
    assert next(incoming, None) is None
    assert found == expected
    assert total == values.sum()
    assert list(arriving.chunks()) == [(0, n)]
