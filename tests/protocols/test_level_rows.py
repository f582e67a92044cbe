"""Rows of a level's nodes, encrypted again: the same trees, and a message that tells no more than the list of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from equivalence import KINDS, NAMES, assert_same, rich_setting

from blames import blamed
from crossing import crossed
from labelward.he.base import CipherBlock, Integers
from labelward.he.plain import PlainEngine
from labelward.messages.base import CipherDigest, RowMask
from labelward.messages.codec import decode
from labelward.messages.tree import EncryptedLevelRows, EncryptedTreeRows, InstanceSpaces, LevelRequest, OwnSplit
from labelward.party.context import Context
from labelward.party.view import View
from labelward.protocols.secureboost import row_encoding
from wiring import Run, Setting, make_labels, make_parts


def encrypted(setting: Setting, reencrypt: str) -> tuple[Run, Run]:
    lattice = {"engine": "lattice", "bits": 512, "parameters": {"reencrypt": reencrypt, "secrets": 5}}
    return setting.run(), setting.run(**lattice)


def requests(view: View) -> Iterator[tuple[LevelRequest, list[EncryptedLevelRows]]]:
    """Yield each request of a level, and the rows that came with it."""
    rows = [each.message for each in view.received(EncryptedLevelRows)]
    for each in view.received(LevelRequest):
        own = [row for row in rows if (row.tree, row.depth) == (each.message.tree, each.message.depth)]
        yield each.message, own


@crossed("kind,reencrypt", list(KINDS), ["1", "16", "never"])
def test_trees_are_those_of_plain(kind: str, reencrypt: str) -> None:
    """Boosted trees and forests, many digits a row, rows drawn with replacement."""
    targets, params = KINDS[kind]
    plain, secret = encrypted(rich_setting(31, targets, **params), reencrypt)
    assert_same(plain, secret)
    again = [rows for party in NAMES[1:] for _, rows in requests(secret.views[party]) if rows]
    assert bool(again) == (reencrypt != "never")
    assert secret.active.counts.logical_rows == plain.active.counts.logical_rows  # each row of a tree once


@pytest.mark.parametrize("reencrypt", ["1", "8"])
def test_rows_in_several_blocks(reencrypt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 1,024 coefficients: two polynomials of the small ring each."""
    monkeypatch.setattr(row_encoding, "BLOCK_ROWS", 1024)
    parts = make_parts(3, 3000, {"active": 2, "left": 3})
    plain, secret = encrypted(Setting(parts, make_labels(3, parts)), reencrypt)
    assert_same(plain, secret)
    again = [rows for _, rows in requests(secret.views["left"]) if rows]
    assert again
    assert all(len(rows) == rows[0].parts for rows in again)
    assert max(len(rows) for rows in again) > 1


def test_the_message_follows_from_the_request() -> None:
    """Number and sizes of the blocks are those of the rows of the nodes, which the party knows; none without a list."""
    parts = make_parts(3, 900, {"active": 2, "left": 3, "right": 2})
    _, secret = encrypted(Setting(parts, make_labels(3, parts)), "2")
    for party in ("left", "right"):
        view, sizes = secret.views[party], dict[tuple[int, int], int]()
        for own in view.observed(OwnSplit):
            note(sizes, own.tree, own.node, own.left)
        told = 0
        for request, rows in requests(view):
            for split in request.splits.value:
                note(sizes, request.tree, split.node, split.left)
            assert bool(rows) == bool(request.build and request.depth) == bool(request.spacing)
            if rows:
                assert {each.gradients.layout.spacing for each in rows} == {request.spacing}
                known = [sizes[request.tree, node] for node in request.build]
                blocks = [each.gradients.shape[0] for each in rows]  # type: ignore[union-attr]
                assert blocks == [sum(known)]
                told += 1
        assert told >= 2


def note(sizes: dict[tuple[int, int], int], tree: int, node: int, mask: RowMask) -> None:
    left = int(mask.unpack(mask.total).sum())
    sizes[tree, 2 * node + 1], sizes[tree, 2 * node + 2] = left, mask.total - left


def test_an_attacker_who_compares_blocks_learns_nothing() -> None:
    """The attack: equal ciphertexts, or words, in two levels would tell which rows have equal gradients.

    A row that is encrypted again shares no word with its other encryptions, and its place is that of the row in its
    node: rows ascend, so that nothing but the list of nodes decides the order.
    """
    parts = make_parts(3, 600, {"active": 2, "left": 3})
    setting = Setting(parts, make_labels(3, parts))
    _, secret = encrypted(setting, "1")
    blocks = [
        message.gradients
        for message in (decode(frame)[0] for frame in secret.frames_to("left"))
        if isinstance(getattr(message, "gradients", None), CipherBlock)
    ]
    assert len(blocks) > 4
    assert len({block.data[2:18] for block in blocks}) == len(blocks)  # seeds
    words = [{block.data[at : at + 8] for at in range(18, len(block.data) - 8)} for block in blocks]
    for i, one in enumerate(words):
        assert not any(one & other for other in words[:i])


def test_rows_come_in_the_order_of_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without encryption every row of the message can be read: those of the nodes, ascending in each."""
    parts = make_parts(3, 300, {"active": 1, "left": 3})
    setting = Setting(parts, make_labels(3, parts))
    plain = setting.run()
    monkeypatch.setattr(PlainEngine, "level_spacing", lambda *_: 1)
    run = setting.run()
    assert run.shares == plain.shares
    splits = {(each.tree, each.depth): each.splits for each in run.views["active"].observed(InstanceSpaces)}
    nodes, build, first, checked = dict[int, Integers](), tuple[int, ...](), np.empty((0, 0), np.int64), 0
    for message in (decode(frame)[0] for frame in run.frames_to("left")):
        if isinstance(message, LevelRequest):
            for split in splits[message.tree, message.depth - 1] if message.depth else ():
                rows, left = nodes[split.node], split.left.unpack(split.left.total)
                nodes[2 * split.node + 1], nodes[2 * split.node + 2] = rows[left], rows[~left]
            build = message.build
        elif isinstance(message, EncryptedTreeRows):
            first, nodes = integers(message.gradients), {0: np.arange(300)}
        elif isinstance(message, EncryptedLevelRows):
            order = np.concatenate([nodes[node] for node in build])
            np.testing.assert_array_equal(integers(message.gradients), first[order])
            checked += 1
    assert checked >= 2


def integers(block: CipherBlock | CipherDigest) -> Integers:
    assert isinstance(block, CipherBlock)
    return np.frombuffer(block.data, "<i8").reshape(block.shape[0], -1)


@pytest.mark.parametrize(("spacing", "depth"), [(3, 1), (-1, 1), (1 << 40, 1), (2, 0)])
def test_spacings_that_no_request_has(spacing: int, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    send = Context.send

    def altered(self: Context, peer: str, message: Any, step: tuple[int, ...]) -> None:
        if isinstance(message, LevelRequest) and message.depth == depth and message.build:
            message = msgspec.structs.replace(message, spacing=spacing)
        send(self, peer, message, step)

    monkeypatch.setattr(Context, "send", altered)
    parts = make_parts(3, 300, {"active": 2, "left": 3})
    with blamed("active", "peer-message", message="Level", step=(0, depth), about="out of place"):
        Setting(parts, make_labels(3, parts)).run()


def test_rows_of_another_spacing(monkeypatch: pytest.MonkeyPatch) -> None:
    send = Context.send

    def altered(self: Context, peer: str, message: Any, step: tuple[int, ...]) -> None:
        if isinstance(message, LevelRequest) and message.spacing:
            message = msgspec.structs.replace(message, spacing=4)
        send(self, peer, message, step)

    monkeypatch.setattr(Context, "send", altered)
    parts = make_parts(3, 300, {"active": 2, "left": 3})
    with blamed("active", "peer-message", message="LevelRows", step=(0, 1, 0), about="spacing"):
        encrypted(Setting(parts, make_labels(3, parts)), "2")
