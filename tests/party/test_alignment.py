"""Alignment: the common rows exactly, and what messages tell nobody; who deviates is named."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_conversation import Program, errors_of, live

from blames import blamed
from labelward.errors import HandshakeError, PeerDisagreementError
from labelward.messages.alignment import (
    AlignmentAnswers,
    AlignmentPoints,
    AlignmentStart,
    CommonRows,
    CommonRowsAgreed,
    CommonRowsProof,
)
from labelward.messages.base import Message, RowMask
from labelward.party import alignment, id_blinding
from labelward.party.alignment import align_active, align_passive, alignment_topology
from labelward.party.context import Context
from labelward.party.id_blinding import POINT, IdBlinding, split_points
from labelward.party.in_process import run_parties
from labelward.party.row_ids import bound, digest_id, digest_ids
from labelward.party.transcript import Header, Transcript
from labelward.party.view import View
from labelward.rng import SecureRandom
from labelward.runs.worker_process import worker_pool
from labelward.transport.base import Transport

STEP = (0,)
MOST = 1000
NONCE = bytes(32)
Tables = Mapping[str, Sequence[str]]


def context(end: Transport, names: tuple[str, ...], timeout: float = 30.0, seed: int | None = None) -> Context:
    header = Header(1, "test", end.party, "", tuple(n for n in names if n != end.party), (0, 0), "none", 0, (), {})
    return Context(
        end,
        topology=alignment_topology(*names),
        transcript=Transcript(header),
        seed=1,
        timeout=timeout,
        protection=SecureRandom(seed),
    )


def program(names: tuple[str, ...], party: str, ids: Sequence[str], most: int = MOST) -> Program:
    return lambda ctx: (align_active if party == names[0] else align_passive)(ctx, ids, most)


def align(tables: Tables, seed: int | None = None) -> tuple[dict[str, list[str]], dict[str, View]]:
    """Return the common ids as each party has them, and the views."""
    names, contexts = tuple(tables), dict[str, Context]()

    def keep(end: Transport) -> Context:
        contexts[end.party] = context(end, names, seed=seed)
        return contexts[end.party]

    found = run_parties({name: (keep, program(names, name, ids)) for name, ids in tables.items()})
    views = {name: View(ctx.transcript.header, ctx.transcript.entries) for name, ctx in contexts.items()}
    return {name: [tables[name][at] for at in found[name].tolist()] for name in names}, views


def received(view: View, kind: type[Message]) -> list[Any]:
    return [each.message for each in view.received(kind)]


def points_of(view: View) -> set[bytes]:
    """Return all points that a party was sent."""
    messages = received(view, AlignmentPoints) + received(view, AlignmentAnswers)
    return {point for each in messages for point in split_points(each.points)}


# -- the result --------------------------------------------------------------------------------------------------------


def tables(parties: int) -> st.SearchStrategy[list[list[str]]]:
    names = st.text("abc é", min_size=0, max_size=3)
    return st.lists(st.lists(names, min_size=1, max_size=12, unique=True), min_size=parties, max_size=parties)


@pytest.mark.parametrize("parties", [2, 3])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_all_parties_have_the_intersection(parties: int, data: st.DataObject) -> None:
    """In blocks of four ids, some of which only one party has; in the order of each table."""
    lists = [["common", *each] for each in data.draw(tables(parties))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "_BLOCK", 4)
        found, _ = align(dict(zip(("active", "left", "right"), lists, strict=False)))
    common = set.intersection(*map(set, lists))
    for own, ids in zip(lists, found.values(), strict=True):
        assert ids == [each for each in own if each in common]


def test_no_common_id() -> None:
    """The two parties hear how many ids differ and why, as before a training."""
    mine, theirs = [f"{row:05d}" for row in range(60)], [str(row) for row in range(60)]
    sides = {"active": mine, "left": theirs}
    raised = errors_of({name: program(("active", "left"), name, ids) for name, ids in sides.items()}, make=context)
    assert isinstance(raised["active"], HandshakeError)
    assert raised["active"].value == {
        "rows": dict.fromkeys(sides, 60),
        "only": dict.fromkeys(sides, 60),
        "cause": "zeros",
    }
    assert isinstance(raised["left"], PeerDisagreementError)


def test_of_three_parties_none_hears_what_two_others_have_in_common() -> None:
    """Two have 50 ids in common, the others none: nobody is told a number."""
    names = ("active", "left", "right")
    own = {"active": [f"c{row}" for row in range(60)], "left": [f"c{row}" for row in range(50)], "right": ["x", "y"]}
    raised = errors_of({name: program(names, name, own[name]) for name in names}, make=context)
    for error in raised.values():
        assert isinstance(error, HandshakeError | PeerDisagreementError)
        assert not re.search(r"\d", error.reason)


@pytest.mark.slow
def test_processes_share_the_work() -> None:
    """The same points in the same order; a point that is none is found out in a process, too."""
    secret, digests = os.urandom(POINT), [os.urandom(32) for _ in range(700)]
    alone = IdBlinding(secret)
    with worker_pool(2) as pool:
        shared = IdBlinding(secret, pool)
        assert shared.blind(digests) == alone.blind(digests)
        points = b"".join(alone.blind(digests))
        assert shared.blind_again(points) == alone.blind_again(points)
        with pytest.raises(ValueError, match="curve"):
            shared.blind_again(points + TWIST)


@pytest.mark.parametrize(("least", "parts"), [(0, 8), (50, 0)])
def test_small_tables_start_no_process(monkeypatch: pytest.MonkeyPatch, least: int, parts: int) -> None:
    """Two parties with 20 ids each, in parts of 10: four lists of points of two parts each."""
    monkeypatch.setattr(alignment, "_LEAST_SHARED", least)
    monkeypatch.setattr(id_blinding, "_PART", 10)
    ids, begun = [f"c{row}" for row in range(20)], list[int]()
    with ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(pool, "submit", lambda *task: (begun.append(1), ThreadPoolExecutor.submit(pool, *task))[1])
        sides = {"active": align_active, "left": align_passive}
        live({name: lambda ctx, run=run: run(ctx, ids, MOST, pool) for name, run in sides.items()}, make=context)
    assert len(begun) == parts


# -- what the messages tell --------------------------------------------------------------------------------------------


def test_points_are_matched_with_no_list_of_ids() -> None:
    """Whoever lists all ids there may be, with the nonce, finds none of the points; were they not blinded, all."""
    own = {"active": [f"c{row}" for row in range(40)], "left": [f"c{row}" for row in range(20, 60)]}

    def matched() -> dict[str, int]:
        _, views = align(own)
        (nonce,) = (each.nonce for each in received(views["left"], AlignmentStart))
        listed = _unblinded(IdBlinding(NONCE), [digest_id(nonce, f"c{row}") for row in range(60)])
        return {name: len(points_of(view) & set(listed)) for name, view in views.items()}

    assert matched() == {"active": 0, "left": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IdBlinding, "blind", _unblinded)
        patch.setattr(IdBlinding, "blind_again", lambda self, points: list(split_points(points)))
        assert matched() == {"active": 60, "left": 40}  # the active party has the points of both


def _unblinded(self: IdBlinding, digests: Any) -> list[bytes]:
    """Return the points of ids before the secret."""
    from labelward.party.id_blinding import _hashed

    return [_hashed(digest) for digest in digests]


def test_every_point_is_on_the_curve() -> None:
    """A point on the twist would tell a bit of its id's hash, since products stay there."""
    digests = [os.urandom(32) for _ in range(200)]
    blinding = IdBlinding(os.urandom(POINT))
    for point in (*_unblinded(blinding, digests), *blinding.blind(digests)):
        assert _on_curve(point)


def _on_curve(point: bytes) -> bool:
    prime, u = 2**255 - 19, int.from_bytes(point, "little")
    return u < prime and bool(gmpy2.jacobi(u**3 + 486662 * u**2 + u, prime) == 1)


def test_blindings_commute() -> None:
    one, other = IdBlinding(os.urandom(POINT)), IdBlinding(os.urandom(POINT))
    digests = [os.urandom(32) for _ in range(20)]
    assert other.blind_again(b"".join(one.blind(digests))) == one.blind_again(b"".join(other.blind(digests)))


def test_the_order_of_a_table_is_told_nobody() -> None:
    """Of 40 ids the first 20 are common, in tables sorted so: among the first 20 that are told there are 10 ± 5 sd."""
    ids = [f"c{row:02d}" for row in range(40)]
    firsts = []
    for _ in range(30):
        _, views = align({"active": ids[:20], "left": ids})
        (told,) = received(views["left"], CommonRows)
        firsts.append(int(told.rows.unpack(40)[:20].sum()))
    deviation = np.sqrt(20 * 0.25 * 20 / 39)  # of one hypergeometric draw
    assert abs(np.mean(firsts) - 10) < 5 * deviation / np.sqrt(30)
    assert len(set(firsts)) > 1


def test_a_passive_party_is_told_nothing_of_others() -> None:
    """With the active party's randomness fixed, ids of a third party change nothing that it sends, but for common ones.

    Neither do labels, which no program of an alignment is given.
    """
    ids = [f"c{row}" for row in range(12)]

    def told(third: Sequence[str]) -> list[Any]:
        _, views = align({"active": ids, "left": ids[3:], "right": third}, seed=7)
        view = views["left"]
        return [received(view, kind) for kind in (AlignmentStart, AlignmentPoints, CommonRows)]

    assert told(ids[:6]) == told([*ids[:6], "x", "y"]) == told(ids[3:6])
    assert told(ids[:6]) != told(ids[:5])


def test_ids_and_counts_in_messages() -> None:
    """No id is in a message; a passive party's view holds the two counts, points, and which of its ids are common."""
    own = {"active": ["patient-1", "patient-2"], "left": ["patient-2", "patient-3"]}
    _, views = align(own)
    for view in views.values():
        assert not any(b"patient" in entry.payload for entry in view.entries())
    counts = {name for kind, name in views["left"].counts() if kind == "received"}
    assert counts == {"AlignmentStart", "AlignmentPoints", "CommonRows", "CommonRowsAgreed"}
    assert {name for kind, name in views["active"].counts() if kind == "received"} == {
        "AlignmentStart",
        "AlignmentPoints",
        "AlignmentAnswers",
        "CommonRowsProof",
    }


# -- parties that deviate ----------------------------------------------------------------------------------------------

TWIST = (2).to_bytes(POINT, "little")
"""First coordinate of a point of the twist."""
LARGE = (2**255 - 19 + 9).to_bytes(POINT, "little")
"""The base point's coordinate, not reduced."""


def test_the_points_of_these_tests() -> None:
    assert not _on_curve(TWIST)
    assert _on_curve((9).to_bytes(POINT, "little"))


SMALL = 39382357235489614581723060781553021112529911719440698176882885853963445705823
"""First coordinate of a point of order 8."""


@pytest.mark.parametrize("point", [TWIST, LARGE, bytes(POINT), SMALL.to_bytes(POINT, "little"), b"\xff" * POINT])
def test_points_that_are_none(point: bytes) -> None:
    """On the twist, not reduced, of small order."""
    good = IdBlinding(os.urandom(POINT)).blind([b"id"])
    with pytest.raises(ValueError, match=r"curve|key"):
        IdBlinding(os.urandom(POINT)).blind_again(good[0] + point)


def lying_peer(
    *,
    rows: int = 2,
    points: Callable[[bytes], bytes] = bytes,
    answers: Callable[[bytes], bytes] = bytes,
    proof: Callable[[bytes], bytes] = bytes,
    ids: Sequence[str] = ("a", "b"),
) -> Program:
    """Return a passive party with the ids a and b that changes what it sends; ``ids``: those that it proves."""

    def lie(ctx: Context) -> None:
        start = ctx.recv("active", AlignmentStart, STEP)
        ctx.send("active", AlignmentStart(rows, b""), STEP)
        own = IdBlinding(bytes(range(32)))
        blinded = own.blind([digest_id(start.nonce, each) for each in ("a", "b")])
        ctx.send("active", AlignmentPoints(points(b"".join(blinded))), STEP)
        theirs = ctx.recv("active", AlignmentPoints, STEP).points
        ctx.send("active", AlignmentAnswers(answers(b"".join(own.blind_again(theirs)))), STEP)
        told = ctx.recv("active", CommonRows, STEP)
        point = own.blind([digest_ids(start.nonce, ids)])[0]
        digest = bound(start.nonce, own.blind_again(told.point)[0], "left")
        ctx.send("active", CommonRowsProof(proof(point), digest), STEP)
        ctx.recv("active", CommonRowsAgreed, STEP)

    return lie


def swapped(points: bytes) -> bytes:
    return points[POINT:] + points[:POINT]


@pytest.mark.parametrize(
    ("lie", "message", "value"),
    [
        (lying_peer(rows=0), "AlignmentStart", 0),
        (lying_peer(rows=MOST + 1), "AlignmentStart", MOST + 1),
        (lying_peer(points=lambda points: points[POINT:]), "AlignmentPoints", POINT),
        (lying_peer(points=lambda points: TWIST + points[POINT:]), "AlignmentPoints", None),
        (lying_peer(answers=lambda points: points + points[:POINT]), "AlignmentAnswers", 3 * POINT),
        (lying_peer(proof=lambda point: TWIST), "CommonRowsProof", None),
        (lying_peer(proof=lambda point: point + point), "CommonRowsProof", 2 * POINT),
        (lying_peer(ids=["a"]), "CommonRowsProof", None),
    ],
)
def test_a_passive_party_that_lies(lie: Program, message: str, value: object) -> None:
    names = ("active", "left")
    raised = errors_of({"active": program(names, "active", ["a", "b"]), "left": lie}, make=context)
    with blamed("left", "peer-message", message=message, step=STEP, value=value):
        raise raised["active"]


def test_exchanged_answers_tell_no_unknown_id() -> None:
    """A peer with one common id exchanges two of its answers, so that another id of the active party counts as common.

    With a digest of the common ids in clear it would find that id among all there may be. It has points under a secret
    instead, and is found out.
    """
    seen = list[bytes]()

    def exchange(ctx: Context) -> None:
        start = ctx.recv("active", AlignmentStart, STEP)
        ctx.send("active", AlignmentStart(1, b""), STEP)
        own = IdBlinding(os.urandom(POINT))
        ctx.send("active", AlignmentPoints(own.blind([digest_id(start.nonce, "a")])[0]), STEP)
        theirs = ctx.recv("active", AlignmentPoints, STEP).points
        ctx.send("active", AlignmentAnswers(swapped(b"".join(own.blind_again(theirs)))), STEP)
        told = ctx.recv("active", CommonRows, STEP)
        assert told.rows.unpack(1).all()
        listed = [digest_ids(start.nonce, [each]) for each in ("a", "b")]
        seen.extend({told.point} & {*listed, *_unblinded(own, listed)})
        point = own.blind([digest_ids(start.nonce, ["a"])])[0]
        ctx.send("active", CommonRowsProof(point, bound(start.nonce, own.blind_again(told.point)[0], "left")), STEP)
        ctx.recv("active", CommonRowsAgreed, STEP)

    raised = errors_of({"active": program(("active", "left"), "active", ["a", "b"]), "left": exchange}, make=context)
    assert not seen
    with blamed("left", "peer-message", message="CommonRowsProof", step=STEP):
        raise raised["active"]


def lying_coordinator(
    *, rows: int = 2, nonce: bytes = NONCE, told: RowMask, ids: Sequence[str] = ("a", "b", "c"), how: str = ""
) -> Program:
    """Return an active party with the ids a and b that changes what it sends; ``ids``: those that it proves."""

    def lie(ctx: Context) -> None:
        ctx.send("left", AlignmentStart(rows, nonce), STEP)
        ctx.recv("left", AlignmentStart, STEP)
        own = IdBlinding(bytes(range(32)))
        ctx.send("left", AlignmentPoints(b"".join(own.blind([digest_id(nonce, each) for each in ("a", "b")]))), STEP)
        ctx.recv("left", AlignmentAnswers, STEP)
        ctx.send("left", CommonRows(told, own.blind([digest_ids(nonce, ids)])[0] if how != "twist" else TWIST), STEP)
        proof = ctx.recv("left", CommonRowsProof, STEP)
        product = own.blind_again(proof.point)[0]
        ctx.send("left", CommonRowsAgreed(proof.digest if how == "echo" else bound(nonce, product, "active")), STEP)

    return lie


ALL = RowMask.pack(np.ones(3, dtype=np.bool_))


@pytest.mark.parametrize(
    ("lie", "message", "code", "value"),
    [
        (lying_coordinator(rows=0, told=ALL), "AlignmentStart", "peer-message", 0),
        (lying_coordinator(nonce=b"", told=ALL), "AlignmentStart", "peer-message", 0),
        (lying_coordinator(rows=1, told=ALL), "AlignmentPoints", "peer-message", 2 * POINT),
        (lying_coordinator(told=RowMask.pack(np.ones(4, dtype=np.bool_))), "CommonRows", "malformed", 4),
        (lying_coordinator(told=ALL, how="twist"), "CommonRows", "peer-message", None),
        (lying_coordinator(told=ALL, ids=["a", "b"], how="echo"), "CommonRowsAgreed", "peer-message", None),
        (lying_coordinator(told=ALL, ids=["a", "b"]), "CommonRowsAgreed", "peer-message", None),
    ],
)
def test_an_active_party_that_lies(lie: Program, message: str, code: Any, value: object) -> None:
    """It says that c, which it does not have, is common, too."""
    names = ("active", "left")
    raised = errors_of({"active": lie, "left": program(names, "left", ["a", "b", "c"])}, make=context)
    with blamed("active", code, message=message, step=STEP, value=value):
        raise raised["left"]


def test_passive_parties_do_not_talk() -> None:
    topology = alignment_topology("active", "left", "right")
    assert topology.messages("left", "right") == frozenset()
    assert not topology.partners("left")
