"""Row ids that differ: how many, why, and what the comparison tells nobody."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_conversation import context, errors_of, first, greet, hello, offer

from blames import blamed
from cutting import RestartingEnd
from labelward.errors import HandshakeError, PeerDisagreementError
from labelward.messages.handshake import BlindedRowIds, Hello, RowIdDigests, RowSplit, TwiceBlindedRowIds
from labelward.party import row_ids
from labelward.party.context import Context
from labelward.party.handshake import RowMasks, handshake_active, handshake_passive
from labelward.party.in_process import run_parties
from labelward.party.row_ids import _estimate, _sizes, bound, digest_ids
from labelward.party.view import View
from labelward.transport.base import Transport
from refusals import refused

STEP = (0,)


def told(mine: list[str], theirs: list[str]) -> dict[str, Any]:
    """Return what the error of a handshake says of two tables."""
    return first(greet(offer(ids=mine), offer(ids=theirs))).value


def numbered(rows: int, form: str = "{:05d}") -> list[str]:
    return [form.format(row) for row in range(rows)]


def test_numbers_of_rows() -> None:
    value = told(["x", "y", "z"], ["x", "y"])
    assert value == {"rows": {"active": 3, "left": 2}, "only": {"active": 1, "left": 0}, "cause": None}


@pytest.mark.parametrize(("ids", "only"), [(["x", "y", "w"], 1), (["xy", "", "z"], 2), (["x", "x", "y"], 1)])
def test_other_ids(ids: list[str], only: int) -> None:
    """Other ids, other borders between ids, an id twice; the ids themselves are not said."""
    error = first(greet(offer(ids=["x", "y", "z"]), offer(ids=ids)))
    assert error.value["only"] == {"active": only, "left": only}
    assert not any(repr(name) in error.reason for name in ids)


@pytest.mark.parametrize("rows", [3, 500, pytest.param(1000, marks=pytest.mark.slow)])
def test_another_order(rows: int) -> None:
    error = first(greet(offer(ids=numbered(rows)), offer(ids=numbered(rows)[::-1])))
    assert error.value == {
        "rows": {"active": rows, "left": rows},
        "only": {"active": 0, "left": 0},
        "cause": None,
    }
    assert "the order differs" in error.reason


@pytest.mark.slow
@pytest.mark.parametrize("most", [120, 300])
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 299), st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_the_count_is_exact(most: int, mine: int, theirs: int, both: int, draw: Random) -> None:
    both = 1 + both % most
    left = [f"id{row}" for row in range(both)] + [f"mine{row}" for row in range(mine)]
    right = [f"id{row}" for row in range(both)] + [f"theirs{row}" for row in range(theirs)]
    draw.shuffle(left)
    value = told(left, ["first", *right])
    assert value["only"] == {"active": mine, "left": theirs + 1}


@pytest.mark.parametrize(
    ("cause", "theirs"),
    [
        ("spaces", [f" {row:05d}" for row in range(60)]),
        ("zeros", [str(row) for row in range(60)]),
        ("numbers", [f"{row:05d}.0" for row in range(60)]),
        ("all", [f"{row}.0 " for row in range(60)]),
        (None, [f"other{row}" for row in range(60)]),
    ],
)
def test_the_likely_cause(cause: str | None, theirs: list[str]) -> None:
    """Also where a few ids are missing."""
    assert told(numbered(60), theirs)["cause"] == cause
    assert told(numbered(60), theirs[:55])["cause"] == cause


def test_ids_that_differ_by_case() -> None:
    assert told([f"K{row}" for row in range(60)], [f"k{row}" for row in range(60)])["cause"] == "case"


def test_a_few_other_ids_have_no_cause() -> None:
    """Ten ids differ by their case and twenty altogether: the case does not explain most of them."""
    mine = [f"K{row}" for row in range(100)]
    theirs = [f"k{row}" if row < 8 else f"other{row}" if row < 20 else f"K{row}" for row in range(100)]
    value = told(mine, theirs)
    assert (value["only"]["active"], value["cause"]) == (20, None)
    theirs = [f"k{row}" if row < 12 else f"other{row}" if row < 20 else f"K{row}" for row in range(100)]
    assert told(mine, theirs)["cause"] == "case"


@pytest.mark.parametrize(("mine", "theirs", "both"), [(3000, 2500, 2500), (3000, 3000, 2000), (3000, 900, 800)])
def test_large_tables_are_sampled(monkeypatch: pytest.MonkeyPatch, mine: int, theirs: int, both: int) -> None:
    """Of a sample of 1,000 ids or so the count is within five standard deviations, whatever the sizes."""
    monkeypatch.setattr(row_ids, "MOST_COUNTED", 1000)
    monkeypatch.setattr(row_ids, "_MOST_ALIKE", 40)
    left = [f"id{row}" for row in range(mine)]
    right = [f"id{row}" for row in range(both)] + [f"other{row}" for row in range(theirs - both)]
    value = told(left, right)
    found = mine - value["only"]["active"]
    drawn = 1000 / mine  # of the larger table's ids this share is compared
    assert abs(found - both) <= 5 * (both * (1 - drawn) / drawn) ** 0.5
    assert value["only"]["left"] == theirs - found


def test_an_estimate_is_no_more_than_the_smaller_table() -> None:
    assert _estimate(4000, (10_000, 9_000), 4000) == 9_000
    assert _estimate(0, (5_000, 0), 4000) == 0
    assert _estimate(120, (100_000, 3_000), 4000) == 3_000


def test_views_hold_points_that_repeat_in_no_second_run() -> None:
    """Neither an id nor a digest that could be tried out is in a message about differing rows."""
    seen: list[set[bytes]] = []
    for _ in range(2):
        contexts: dict[str, Context] = {}

        def keep(ctx: Context, contexts: dict[str, Context] = contexts) -> Context:
            contexts[ctx.party] = ctx
            return ctx

        mine, theirs = offer(ids=["patient-8431", "patient-1207"]), offer(ids=["patient-8431", "patient-9999"])
        errors_of(
            {
                "active": lambda ctx, mine=mine: handshake_active(keep(ctx), mine, RowMasks.in_order(2, 0, 0)),
                "left": lambda ctx, theirs=theirs: handshake_passive(keep(ctx), theirs),
            }
        )
        points: set[bytes] = set()
        for ctx in contexts.values():
            view = View(ctx.transcript.header, ctx.transcript.entries)
            for kind in (BlindedRowIds, TwiceBlindedRowIds):
                for received in view.received(kind):
                    for content in received.message.points.values():
                        each = [content[at : at + 32] for at in range(0, len(content), 32)]
                        assert each == sorted(each)  # the order says nothing about rows
                        points |= set(each)
            assert not any(b"patient" in entry.payload for entry in ctx.transcript.entries)
        nonce = next(View(contexts["left"].transcript.header, contexts["left"].transcript.entries).received(Hello))
        guesses = row_ids._sample(nonce.message.nonce, ["patient-8431", "patient-1207", "patient-9999"], 3)
        assert not points & set(guesses)
        seen.append(points)
    assert not seen[0] & seen[1]


def test_a_digest_is_of_one_list_of_ids_alone() -> None:
    """In their order, with their bounds, under this key, across the batches in which they are read."""
    lists = (["a", "bc"], ["ab", "c"], ["bc", "a"], ["abc"], ["a", "bc", ""], ["", "a", "bc"])
    assert len({digest_ids(b"key", ids) for ids in lists}) == len(lists)
    assert digest_ids(b"key", lists[0]) != digest_ids(b"other", lists[0])
    many = [str(number) for number in range(70_000)]
    assert digest_ids(b"key", many) == digest_ids(b"key", tuple(many))
    assert digest_ids(b"key", many) != digest_ids(b"key", [*many[:-1], "x"])
    assert digest_ids(b"key", many) != digest_ids(b"key", ["x", *many[1:]])


def test_a_digest_is_its_senders() -> None:
    """A peer that sends the coordinator's digest back has not proved that it has the rows."""
    digest = digest_ids(b"key", ["x", "y", "z"])
    assert len({digest, bound(b"key", digest, "active"), bound(b"key", digest, "left")}) == 3

    def echo(ctx: Context) -> None:
        ctx.recv("active", Hello, STEP)
        ctx.send("active", hello("left"), STEP)
        ctx.send("active", RowIdDigests(ctx.recv("active", RowSplit, STEP).ids), STEP)
        row_ids.answer_refusal(ctx, ["a", "b", "c"], 3, b"")

    raised = errors_of({"active": lambda ctx: handshake_active(ctx, offer(), RowMasks.in_order(2, 0, 1)), "left": echo})
    assert isinstance(raised["active"], HandshakeError)
    assert isinstance(raised["left"], PeerDisagreementError)


def other_points(points: dict[str, bytes], how: str) -> dict[str, bytes]:
    changed = dict(points)
    if how == "fewer":
        changed["ids"] = changed["ids"][32:]
    elif how == "form":
        changed["made up"] = changed.pop("case")
    elif how == "cut":
        changed["ids"] = changed["ids"][1:]
    else:  # 0 is the first coordinate of no point that a product has, 2^256 - 1 of none at all
        changed["ids"] = b"\xff" * len(changed["ids"])
    return changed


@pytest.mark.parametrize("how", ["fewer", "form", "cut", "curve"])
@pytest.mark.parametrize("liar", ["active", "left"])
def test_points_that_are_none(liar: str, how: str) -> None:
    """Either side names the other and the message."""

    def coordinator(ctx: Context) -> None:
        ctx.recv("left", Hello, STEP)
        ctx.send("left", hello("active", rows=2), STEP)
        theirs = ctx.recv("left", BlindedRowIds, STEP).points
        ctx.send("left", BlindedRowIds(other_points(theirs, how)), STEP)
        ctx.recv("left", TwiceBlindedRowIds, STEP)

    def peer(ctx: Context) -> None:
        ctx.recv("active", Hello, STEP)
        ctx.send("active", hello("left", rows=3), STEP)
        points = ctx.recv("active", BlindedRowIds, STEP).points
        ctx.send("active", BlindedRowIds(other_points(points, how)), STEP)
        ctx.send("active", TwiceBlindedRowIds(points), STEP)

    mine = offer(ids=["a", "b"] if liar == "left" else ["a", "b", "c"])
    honest: Any = (
        (lambda ctx: handshake_active(ctx, mine, RowMasks.in_order(1, 0, 1)))
        if liar == "left"
        else (lambda ctx: handshake_passive(ctx, mine))
    )
    programs = {"active": honest, "left": peer} if liar == "left" else {"active": coordinator, "left": honest}
    with blamed(liar, "peer-message", message="BlindedRowIds", step=STEP):
        raise errors_of(programs)[next(name for name in programs if name != liar)]


@pytest.mark.parametrize("how", ["comes back", "fails", "leaves", "is silent", "goes on"])
def test_a_peer_answers_once_in_each_start(how: str) -> None:
    """Whatever a coordinator does with the answer, no further attempt, and no restart by itself, answers about more."""
    raised: list[BaseException] = []

    def asker(ctx: Context) -> None:
        ctx.recv("left", Hello, STEP)
        ctx.send("left", hello("active", rows=2), STEP)
        theirs = ctx.recv("left", BlindedRowIds, STEP).points
        few = {form: content[: 2 * 32] for form, content in theirs.items()}
        ctx.send("left", BlindedRowIds(few), STEP)
        points = ctx.recv("left", TwiceBlindedRowIds, STEP)
        if how in ("comes back", "goes on"):
            ctx.send("left", points, STEP)
        elif how == "fails":
            raise OSError
        elif how == "is silent":
            time.sleep(1.0)

    def answering(ctx: Context) -> None:
        try:
            handshake_passive(ctx, offer(ids=["a", "b", "c"]))
        except HandshakeError as error:
            raised.append(error)
            raise

    def ends(end: Transport) -> Context:
        left = 2 if how == "comes back" and end.party == "active" else -1
        return context(RestartingEnd(end, left), ("active", "left"), 0.5)

    with pytest.raises(BaseException):  # noqa: B017, PT011
        run_parties({"active": (ends, asker), "left": (ends, answering)})
    with refused(HandshakeError, "disagreement", value="active"):
        raise raised[0]


@pytest.mark.slow
def test_the_most_that_is_sent_fits_into_a_message() -> None:
    """A handshake of tables that are larger than the sample, and whose ids all differ."""
    rows = row_ids.MOST_COUNTED + 50
    assert sum(_sizes(rows).values()) == row_ids.MOST_COUNTED + 5 * 400
    value = told([f"mine{row}" for row in range(rows)], [f"theirs{row}" for row in range(rows)])
    assert value["only"] == {"active": rows, "left": rows}
