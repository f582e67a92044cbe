"""Row ids: whether two parties have the same and, where they do not, how many differ and why.

Ids never travel. Equal ids are recognized by one digest, an HMAC-SHA-256 of all ids in order under a key drawn for the
handshake. If the digests or the numbers of rows differ, the run ends, and before that the coordinator counts the ids
that both have, by the Diffie-Hellman protocol for the size of an intersection (Meadows 1986; Huberman, Franklin and
Hogg 1999): each party maps its ids to points of the curve P-256 and multiplies them by a secret number, each multiplies
the points of the other by its own, and equal ids give equal points. What a party sends is sorted, and so says nothing
about which of its ids are meant. The same count of ids without their spaces, in lower case, without leading zeros and
without the ".0" of ids that were read as numbers shows the likely cause.

Of more than ``MOST_COUNTED`` ids a sample is compared: those with the smallest HMACs.

Leakage. If both follow the protocol, the coordinator learns how many of its ids the peer has, in each of the forms, and
both learn what the error says. A coordinator that deviates may multiply each of its points by another number, and find
out *which* ids of its choice, as many as are compared, the peer has. It can do so once for each start of the peer; that
ends with an error, whatever the coordinator does then, and is not repeated by itself. The peer's digest answers only a
guess of all ids in their order.
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from labelward.errors import HandshakeError, PeerDisagreementError, PeerError, wrong_message
from labelward.messages.base import Message, wire_name
from labelward.messages.handshake import BlindedRowIds, TwiceBlindedRowIds
from labelward.party.context import Context
from labelward.party.transcript import framed_ids

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

MOST_COUNTED: Final = 4000  # ids of which each is compared: about a second on each side
_MOST_ALIKE: Final = 400  # ids of which each further form is compared
_POINT: Final = 32  # bytes
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
    return hmac.digest(nonce, _keyed(nonce, sender) + digest, "sha256")


def refuse_rows(ctx: Context, peer: str, ids: Sequence[str], theirs: int, nonce: bytes) -> NoReturn:
    """At the coordinator: count the ids that a peer with other rows has too, and refuse.

    Args:
        theirs: the peer's number of rows.
        nonce: key of this handshake.

    Raises:
        HandshakeError: always, with the number of ids that only one of the two has.
        PeerError: the peer sent points that are none.
    """
    secret = _secret()
    ctx.send(peer, BlindedRowIds(_blinded(secret, nonce, ids)), _STEP)
    received = ctx.recv(peer, BlindedRowIds, _STEP)
    mine = ctx.recv(peer, TwiceBlindedRowIds, _STEP).points
    blinded = _again(peer, secret, received, theirs)
    if not _fits(mine, len(ids)):
        raise _no_points(peer, TwiceBlindedRowIds)
    common = {form: _common(mine[form], blinded[form]) for form in mine}
    raise _difference(ctx.party, peer, (len(ids), theirs), common)


def answer_refusal(ctx: Context, ids: Sequence[str], theirs: int, nonce: bytes) -> NoReturn:
    """At a peer of the coordinator, whose rows differ from its own: help to count, and hear the result.

    Raises:
        HandshakeError: the coordinator had this party's answer, and gave no account of what differs: another attempt,
            even one that a service begins by itself, would answer about further ids.
        PeerDisagreementError: the coordinator's account of what differs.
        PeerError: the coordinator sent points that are none, or ended before it had an answer.
    """
    secret, peer = _secret(), ctx.active
    ctx.send(peer, BlindedRowIds(_blinded(secret, nonce, ids)), _STEP)
    received = ctx.recv(peer, BlindedRowIds, _STEP)
    ctx.send(peer, TwiceBlindedRowIds(_again(peer, secret, received, theirs)), _STEP)
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


def _secret() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _keyed(nonce: bytes, text: str) -> bytes:
    return hmac.digest(nonce, text.encode(errors="surrogatepass"), "sha256")


def _blinded(secret: EllipticCurvePrivateKey, nonce: bytes, ids: Sequence[str]) -> dict[str, bytes]:
    sizes = _sizes(len(ids))
    blinded = {_SAME: _product(secret, _points(_sample(nonce, ids, sizes[_SAME])))}
    for form, (change, _) in _CAUSES.items():
        alike = _sample(nonce + form.encode(), [change(each) for each in ids], sizes[form])
        blinded[form] = _product(secret, _points(alike))
    return blinded


def _sample(nonce: bytes, texts: Sequence[str], size: int) -> list[bytes]:
    """Return the smallest keyed digests; a text that repeats has a digest for each time."""
    seen, digests = Counter[str](), []
    for text in texts:
        seen[text] += 1
        digests.append(_keyed(nonce, f"{seen[text]} {text}"))
    return heapq.nsmallest(size, digests)


def _points(digests: Sequence[bytes]) -> Iterator[EllipticCurvePublicKey]:
    """Yield a point for each digest: that of the first hash of digest and counter that is one's first coordinate."""
    for digest in digests:
        counter = 0
        while (point := _point(hashlib.sha256(digest + bytes([counter])).digest())) is None:
            counter += 1
        yield point


def _point(first: bytes) -> EllipticCurvePublicKey | None:
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x02" + first)
    except ValueError:
        return None


def _product(secret: EllipticCurvePrivateKey, points: Iterable[EllipticCurvePublicKey]) -> bytes:
    """Return the first coordinates of the multiplied points, sorted."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return b"".join(sorted(secret.exchange(ec.ECDH(), point) for point in points))


def _again(peer: str, secret: EllipticCurvePrivateKey, received: BlindedRowIds, rows: int) -> dict[str, bytes]:
    """Return the points of a peer with so many rows multiplied by the own secret, too."""
    if not _fits(received.points, rows):
        raise _no_points(peer, BlindedRowIds)
    again = {}
    for form, content in received.points.items():
        points = [_point(first) for first in _split(content)]
        if None in points:
            raise _no_points(peer, BlindedRowIds)
        again[form] = _product(secret, filter(None, points))
    return again


def _fits(points: Mapping[str, bytes], rows: int) -> bool:
    """Return whether there are as many points as a party with so many rows sends."""
    return {form: len(content) for form, content in points.items()} == {
        form: size * _POINT for form, size in _sizes(rows).items()
    }


def _split(points: bytes) -> list[bytes]:
    return [points[at : at + _POINT] for at in range(0, len(points), _POINT)]


def _common(one: bytes, other: bytes) -> int:
    return (Counter(_split(one)) & Counter(_split(other))).total()


def _no_points(peer: str, kind: type[Message]) -> PeerError:
    return wrong_message(peer, wire_name(kind), "sent no points of row ids", _STEP)


def _difference(party: str, peer: str, rows: tuple[int, int], common: Mapping[str, int]) -> HandshakeError:
    """Return the error of different rows."""
    shared = {form: _estimate(common[form], rows, MOST_COUNTED if form == _SAME else _MOST_ALIKE) for form in common}
    only = {party: rows[0] - shared[_SAME], peer: rows[1] - shared[_SAME]}
    cause = _cause(shared, min(rows))
    have = f"{party!r} has {rows[0]} rows and {peer!r} has {rows[1]}; all need the same rows"
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
