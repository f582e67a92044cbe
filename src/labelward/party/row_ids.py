"""Row ids: whether two parties have the same and, where they do not, how many differ and why.

Ids never travel. Equal ids are recognized by one digest, an HMAC-SHA-256 of all ids in order under a key drawn for the
handshake. If the digests or the numbers of rows differ, the run ends, and before that the coordinator counts the ids
that both have, as blinded points (:mod:`.id_blinding`). What a party sends is sorted, and so says nothing about which
of its ids are meant. The same count of ids without their spaces, in lower case, without leading zeros and without the
".0" of ids that were read as numbers shows the likely cause.

Of more than ``MOST_COUNTED`` ids a sample is compared: those with the smallest HMACs.

Leakage. If both follow the protocol, the coordinator learns how many of its ids the peer has, in each of the forms, and
both learn what the error says. A coordinator that deviates may multiply each of its points by another number, and find
out *which* ids of its choice, as many as are compared, the peer has. It can do so once for each start of the peer; that
ends with an error, whatever the coordinator does then, and is not repeated by itself. The peer's digest answers only a
guess of all ids in their order.
"""

from __future__ import annotations

import heapq
import hmac
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

from labelward.errors import HandshakeError, PeerDisagreementError, PeerError, wrong_message
from labelward.messages.base import Message, wire_name
from labelward.messages.handshake import BlindedRowIds, TwiceBlindedRowIds
from labelward.party.context import Context
from labelward.party.id_blinding import POINT, IdBlinding, split_points
from labelward.party.transcript import framed_ids

MOST_COUNTED: Final = 4000  # ids of which each is compared: about a second on each side
_MOST_ALIKE: Final = 400  # ids of which each further form is compared
_STEP = (0,)
_SAME: Final = "ids"


def _without_zeros(row: str) -> str:
    return row.lstrip("0") or "0" if row.isdecimal() else row


def _without_point(row: str) -> str:
    whole, _, rest = row.partition(".")
    return whole if rest and not rest.strip("0") and whole.lstrip("-").isdecimal() else row


_CAUSES: Final[Mapping[str, tuple[Callable[[str], str], str]]] = {
    "spaces": (lambda row: "".join(row.split()), "without spaces"),
    "case": (str.casefold, "in lower case"),
    "zeros": (_without_zeros, "without leading zeros"),
    "numbers": (_without_point, 'without the ".0" of an id that was read as a number'),
    "all": (
        lambda row: _without_zeros(_without_point("".join(row.split()).casefold())),
        'in lower case, without spaces, leading zeros and ".0"',
    ),
}
"""Causes of different ids: the form in which the ids are alike, and how a sentence says it."""


def digest_ids(nonce: bytes, ids: Sequence[str]) -> bytes:
    """Return the keyed digest of ids in their order, which no party sends: each sends what is :func:`bound` to it."""
    total = hmac.new(nonce, b"row ids", "sha256")
    for framed in framed_ids(ids):
        total.update(framed)
    return total.digest()


def bound(nonce: bytes, digest: bytes, sender: str) -> bytes:
    """Return a digest of ids as one party sends it; who does not have the ids cannot make its own from it."""
    return hmac.digest(nonce, digest_id(nonce, sender) + digest, "sha256")


def refuse_rows(
    ctx: Context, peer: str, ids: Sequence[str], theirs: int, nonce: bytes, need: str = "all need the same rows"
) -> NoReturn:
    """At the coordinator: count the ids that a peer with other rows has too, and refuse.

    Args:
        theirs: the peer's number of rows.
        nonce: key of this handshake.
        need: what the rows had to be, as the error says it.

    Raises:
        HandshakeError: always, with the number of ids that only one of the two has.
        PeerError: the peer sent points that are none.
    """
    own = IdBlinding(ctx.protection.bytes(POINT))
    ctx.send(peer, BlindedRowIds(_blinded(own, nonce, ids)), _STEP)
    received = ctx.recv(peer, BlindedRowIds, _STEP)
    mine = ctx.recv(peer, TwiceBlindedRowIds, _STEP).points
    blinded = _again(peer, own, received, theirs)
    if not _fits(mine, len(ids)):
        raise _no_points(peer, TwiceBlindedRowIds)
    common = {form: _common(mine[form], blinded[form]) for form in mine}
    raise _difference(ctx.party, peer, (len(ids), theirs), common, need)


def answer_refusal(ctx: Context, ids: Sequence[str], theirs: int, nonce: bytes) -> NoReturn:
    """At a peer of the coordinator, whose rows differ from its own: help to count, and hear the result.

    Raises:
        HandshakeError: the coordinator had this party's answer, and gave no account of what differs: another attempt,
            even one that a service begins by itself, would answer about further ids.
        PeerDisagreementError: the coordinator's account of what differs.
        PeerError: the coordinator sent points that are none, or ended before it had an answer.
    """
    own, peer = IdBlinding(ctx.protection.bytes(POINT)), ctx.active
    ctx.send(peer, BlindedRowIds(_blinded(own, nonce, ids)), _STEP)
    received = ctx.recv(peer, BlindedRowIds, _STEP)
    ctx.send(peer, TwiceBlindedRowIds(_again(peer, own, received, theirs)), _STEP)
    ended = "went on"
    try:
        ctx.recv(peer, TwiceBlindedRowIds, _STEP)  # never comes: the coordinator ends the run
    except PeerDisagreementError:
        raise
    except PeerError as error:
        ended = error.reason
    raise HandshakeError(
        f"{ctx.party!r} and {peer!r} have other rows, and {peer!r}, which can tell how many differ, did not say so: "
        f"{ended}. Start again when you know why: each start answers questions about further row ids",
        code="disagreement",
        value=peer,
    )


def _sizes(rows: int) -> dict[str, int]:
    return {_SAME: min(rows, MOST_COUNTED)} | dict.fromkeys(_CAUSES, min(rows, _MOST_ALIKE))


def digest_id(nonce: bytes, text: str) -> bytes:
    """Return the keyed digest of one id."""
    return hmac.digest(nonce, text.encode(errors="surrogatepass"), "sha256")


def _blinded(own: IdBlinding, nonce: bytes, ids: Sequence[str]) -> dict[str, bytes]:
    sizes = _sizes(len(ids))
    samples = {_SAME: _sample(nonce, ids, sizes[_SAME])}
    for form, (change, _) in _CAUSES.items():
        samples[form] = _sample(nonce + form.encode(), [change(each) for each in ids], sizes[form])
    return {form: b"".join(sorted(own.blind(digests))) for form, digests in samples.items()}


def _sample(nonce: bytes, texts: Sequence[str], size: int) -> list[bytes]:
    """Return the smallest keyed digests; a text that repeats has a digest for each time."""
    seen, digests = Counter[str](), []
    for text in texts:
        seen[text] += 1
        digests.append(digest_id(nonce, f"{seen[text]} {text}"))
    return heapq.nsmallest(size, digests)


def _again(peer: str, own: IdBlinding, received: BlindedRowIds, rows: int) -> dict[str, bytes]:
    """Return the points of a peer with so many rows, blinded by this party too."""
    if not _fits(received.points, rows):
        raise _no_points(peer, BlindedRowIds)
    try:
        return {form: b"".join(sorted(own.blind_again(points))) for form, points in received.points.items()}
    except ValueError as error:
        raise _no_points(peer, BlindedRowIds) from error


def _fits(points: Mapping[str, bytes], rows: int) -> bool:
    """Return whether there are as many points as a party with so many rows sends."""
    return {form: len(content) for form, content in points.items()} == {
        form: size * POINT for form, size in _sizes(rows).items()
    }


def _common(one: bytes, other: bytes) -> int:
    return (Counter(split_points(one)) & Counter(split_points(other))).total()


def _no_points(peer: str, kind: type[Message]) -> PeerError:
    return wrong_message(peer, wire_name(kind), "sent no points of row ids", _STEP)


def _difference(party: str, peer: str, rows: tuple[int, int], common: Mapping[str, int], need: str) -> HandshakeError:
    """Return the error of different rows."""
    shared = {form: _estimate(common[form], rows, MOST_COUNTED if form == _SAME else _MOST_ALIKE) for form in common}
    only = {party: rows[0] - shared[_SAME], peer: rows[1] - shared[_SAME]}
    cause = _cause(shared, min(rows))
    have = f"{party!r} has {rows[0]} rows and {peer!r} has {rows[1]}; {need}"
    about = "" if max(rows) <= MOST_COUNTED else "about "
    if any(only.values()):
        have += f", but {about}{only[party]} ids are only at {party!r} and {about}{only[peer]} only at {peer!r}"
    elif about:
        have += f" in the same order, but no id differs among {MOST_COUNTED} that were compared"
    else:
        have += " in the same order, and here the order differs"
    if cause is not None:
        share = shared[cause] / min(rows)
        whom = "all" if share == 1 else f"{share:.0%}"
        have += f"; {_CAUSES[cause][1]} {whom} of the ids are the same, so compare how both tables write them"
    value = {"rows": dict(zip((party, peer), rows, strict=True)), "only": only, "cause": cause}
    return HandshakeError(have, code="disagreement", value=value)


def _estimate(found: int, rows: tuple[int, int], most: int) -> int:
    """Return how many ids both have, of which so many are among the first ``most`` of each.

    The ids of the larger table reach less far in the order of HMACs: all ids of both up to there are found.
    """
    return min(min(rows), round(found * max(1.0, max(rows) / most)))


def _cause(shared: Mapping[str, int], rows: int) -> str | None:
    """Return the simplest form in which at least half of the ids that differ are alike; None for none."""
    best = max(shared, key=lambda form: shared[form])  # of several the first
    return best if 2 * (shared[best] - shared[_SAME]) > rows - shared[_SAME] else None
