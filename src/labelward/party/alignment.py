"""Alignment: parties whose tables hold different ids find the rows that all of them have, before they train.

The active party compares its ids with those of each passive party as blinded points (:mod:`.id_blinding`): it sends
its own, gets them back multiplied by the other's secret, and multiplies the other's by its own. It then tells each
passive party which of the points *that one* sent belong to an id of all parties. Ids never travel.

Leakage, if all follow the protocol. The active party learns which of its ids each passive party has; a passive party
learns which of its ids *all* parties have, and nothing of other pairs. Both learn how many ids the other brings.
Points are sent in an order drawn at random, so that neither they nor the positions that are told say anything of the
order of a table. Labels take no part. But whether a row is in a table may follow from its label: a table of customers
who bought something tells whoever is aligned with it who did. That is for the owner of the table to see.

A party that deviates can bring ids that it made up, and so ask whether the other has them, as many as it says that it
brings; ``most`` limits them for each start, since no start compares twice. Wrong answers, or rows that are told and
are not common, only make the common ids fewer, as if their sender had brought fewer, or are found out at the end, when
both compare a digest of the common ids. It is compared as they are, under new secrets: a digest in clear would be of
few unknown ids where a party exchanged two of its answers, and could be found by trying. So it answers one guess.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import reduce
from typing import Final, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from labelward.errors import HandshakeError, wrong_message
from labelward.messages.alignment import (
    AlignmentAnswers,
    AlignmentPoints,
    AlignmentStart,
    CommonRows,
    CommonRowsAgreed,
    CommonRowsProof,
)
from labelward.messages.base import Message, RowMask, wire_name
from labelward.party.context import HEAD, Context
from labelward.party.id_blinding import POINT, IdBlinding
from labelward.party.roles import ACTIVE, PASSIVE, Role, Topology
from labelward.party.row_ids import answer_refusal, bound, digest_id, digest_ids, refuse_rows
from labelward.rng import keyed

_BLOCK: Final = 4096  # ids of a message: a third of a second
_LEAST_SHARED: Final = 50_000  # ids of all parties: some seconds of work
_NONCE: Final = 32
_NEED: Final = "an alignment needs an id that all parties have"
_STEP = (0,)
_TO_PASSIVE: Final = (AlignmentStart, AlignmentPoints, CommonRows, CommonRowsAgreed)
_TO_ACTIVE: Final = (AlignmentStart, AlignmentPoints, AlignmentAnswers, CommonRowsProof)

Positions: TypeAlias = NDArray[np.int64]


def alignment_topology(active: str, *passive: str) -> Topology:
    """Return the roles of an alignment: no policy acts, and passive parties send each other nothing."""
    roles = {
        ACTIVE: Role(attacks_as=(), sends={PASSIVE: _TO_PASSIVE}),
        PASSIVE: Role(attacks_as=(), sends={ACTIVE: _TO_ACTIVE}),
    }
    return Topology.star(active, *passive, roles=roles)


def align_active(ctx: Context, ids: Sequence[str], most: int, pool: Executor | None = None) -> Positions:
    """Run the active party's side of an alignment; return the positions of the ids that all parties have, ascending.

    Args:
        ids: of this party's rows, each once.
        most: ids that a peer may bring.
        pool: processes that share the work on large tables; None: this one does it alone.

    Raises:
        HandshakeError: no id is at all parties; with one peer it says how many ids that has, and the likely cause.
        PeerError: a peer failed, brings too many ids, sent what is no point, or has other common ids.
    """
    nonce = ctx.protection.bytes(_NONCE)
    for peer in ctx.peers:
        ctx.expect(peer, 0)
        ctx.send(peer, AlignmentStart(len(ids), nonce), _STEP)
    comparisons = [_Comparison(peer, _stated(peer, ctx.recv(peer, AlignmentStart, _STEP), most)) for peer in ctx.peers]
    sizes = (len(ids), *(each.rows for each in comparisons))
    own = _BlindedIds.drawn(ctx, ids, nonce, _pool_for(sizes, pool))
    for number in range(_blocks(*sizes)):
        points = own.block(number)
        for each in comparisons:
            if points:
                ctx.send(each.peer, AlignmentPoints(b"".join(points)), (number,))
        for each in comparisons:
            each.receive(ctx, own, number, len(points))
        ctx.progress("ids", *_done(number, *sizes))
    found = {each.peer: each.common() for each in comparisons}
    common = reduce(np.intersect1d, (mine for mine, _ in found.values()))
    chosen = own.positions(common)
    digest = _digest_common(nonce, ids, chosen)
    same = {peer: _Equality.drawn(ctx, digest) for peer in ctx.peers}
    for each in comparisons:
        mine, theirs = found[each.peer]
        told = np.zeros(each.rows, dtype=np.bool_)
        told[theirs[np.isin(mine, common)]] = True
        point = same[each.peer].point if len(chosen) else b""
        ctx.send(each.peer, CommonRows(RowMask.pack(told), point), _STEP)
    if not len(chosen):
        _refuse_all(ctx, lambda: refuse_rows(ctx, ctx.peers[0], ids, comparisons[0].rows, nonce, _NEED))
    for peer in ctx.peers:
        proof = ctx.recv(peer, CommonRowsProof, _STEP)
        product = same[peer].product(peer, proof, proof.point)
        _require_equal(peer, proof, bound(nonce, product, peer))
        ctx.send(peer, CommonRowsAgreed(bound(nonce, product, ctx.party)), _STEP)
    return chosen


def align_passive(ctx: Context, ids: Sequence[str], most: int, pool: Executor | None = None) -> Positions:
    """Run a passive party's side of an alignment; arguments, result and errors as for :func:`align_active`."""
    ctx.expect(ctx.active, HEAD + len(ids) // 8)
    start = ctx.recv(ctx.active, AlignmentStart, _STEP)
    rows = _stated(ctx.active, start, most)
    if len(start.nonce) != _NONCE:
        raise wrong_message(ctx.active, "AlignmentStart", "has no key for digests", _STEP, value=len(start.nonce))
    own = _BlindedIds.drawn(ctx, ids, start.nonce, _pool_for((len(ids), rows), pool))
    ctx.send(ctx.active, AlignmentStart(len(ids), b""), _STEP)
    for number in range(_blocks(len(ids), rows)):
        if points := own.block(number):
            ctx.send(ctx.active, AlignmentPoints(b"".join(points)), (number,))
        if expected := _length(rows, number):
            again = _blinded_again(own.blinding, ctx, ctx.active, number, expected)
            ctx.send(ctx.active, AlignmentAnswers(b"".join(again)), (number,))
        ctx.progress("ids", *_done(number, len(ids), rows))
    told = ctx.recv(ctx.active, CommonRows, _STEP)
    with ctx.blaming(ctx.active, "CommonRows", _STEP):
        common = np.flatnonzero(told.rows.unpack(len(ids)))
    if not len(common):
        _refuse_all(ctx, lambda: answer_refusal(ctx, ids, rows, own.nonce))
    chosen = own.positions(common)
    same = _Equality.drawn(ctx, _digest_common(own.nonce, ids, chosen))
    product = same.product(ctx.active, told, told.point)
    ctx.send(ctx.active, CommonRowsProof(same.point, bound(own.nonce, product, ctx.party)), _STEP)
    agreed = ctx.recv(ctx.active, CommonRowsAgreed, _STEP)
    _require_equal(ctx.active, agreed, bound(own.nonce, product, ctx.active))
    return chosen


@dataclass(frozen=True, kw_only=True, eq=False)
class _BlindedIds:
    """A party's ids in the order in which their points are sent.

    Attributes:
        nonce: key of the digests of ids in this alignment.
        order: the position in ``ids`` of each id that is sent.
    """

    ids: Sequence[str]
    nonce: bytes
    order: Positions
    blinding: IdBlinding

    @classmethod
    def drawn(cls, ctx: Context, ids: Sequence[str], nonce: bytes, pool: Executor | None) -> _BlindedIds:
        """Draw order and secret from the system's randomness."""
        order = keyed(ctx.protection.bytes(32)).permutation(len(ids))
        return cls(ids=ids, nonce=nonce, order=order, blinding=IdBlinding(ctx.protection.bytes(POINT), pool))

    def block(self, number: int) -> list[bytes]:
        """Return the points of a block; none behind the last one."""
        chosen = self.order[number * _BLOCK : (number + 1) * _BLOCK].tolist()
        return self.blinding.blind(digest_id(self.nonce, self.ids[position]) for position in chosen)

    def positions(self, sent: Positions) -> Positions:
        """Return the positions in ``ids``, ascending, of ids that are given by their places among those sent."""
        return np.sort(self.order[sent])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Equality:
    """Whether two parties hold the same common ids, which either one learns, and nothing else of the other's.

    Each sends the point of its digest under a secret that serves once, and multiplies the other's by it: equal digests
    give equal products. Of these each tells a digest of its own, so that who does not have the product passes no test.
    """

    blinding: IdBlinding
    point: bytes

    @classmethod
    def drawn(cls, ctx: Context, digest: bytes) -> _Equality:
        """Draw a secret for the digest of the common ids."""
        blinding = IdBlinding(ctx.protection.bytes(POINT))
        return cls(blinding=blinding, point=blinding.blind([digest])[0])

    def product(self, peer: str, message: CommonRows | CommonRowsProof, point: bytes) -> bytes:
        """Return a peer's point times the own secret."""
        return _again(self.blinding, peer, message, point, 1, _STEP)[0]


@dataclass
class _Comparison:
    """The active party's comparison with one peer, which brings so many rows.

    Attributes:
        mine, theirs: points of the ids of each, blinded by both, in blocks as they were sent.
    """

    peer: str
    rows: int
    mine: list[bytes] = field(default_factory=list)
    theirs: list[bytes] = field(default_factory=list)

    def receive(self, ctx: Context, own: _BlindedIds, number: int, sent: int) -> None:
        """Receive the peer's answers to a block of so many own points, and its own block."""
        if sent:
            answer = ctx.recv(self.peer, AlignmentAnswers, (number,))
            _require_length(self.peer, answer, answer.points, sent, (number,))
            self.mine.append(answer.points)
        if expected := _length(self.rows, number):
            self.theirs.append(b"".join(_blinded_again(own.blinding, ctx, self.peer, number, expected)))

    def common(self) -> tuple[Positions, Positions]:
        """Return for each id of both its place among the own ones as they were sent, and among the peer's."""
        own, others = (np.frombuffer(b"".join(each), dtype=f"S{POINT}") for each in (self.mine, self.theirs))
        _, mine, theirs = np.intersect1d(own, others, return_indices=True)
        return mine, theirs


def _blinded_again(blinding: IdBlinding, ctx: Context, peer: str, number: int, expected: int) -> list[bytes]:
    """Receive a block of a peer's points and return them blinded by this party too."""
    message = ctx.recv(peer, AlignmentPoints, (number,))
    return _again(blinding, peer, message, message.points, expected, (number,))


def _again(
    blinding: IdBlinding, peer: str, message: Message, points: bytes, expected: int, step: tuple[int, ...]
) -> list[bytes]:
    """Return so many points of a peer's message blinded by this party too; :class:`PeerError` for what are none."""
    _require_length(peer, message, points, expected, step)
    try:
        return blinding.blind_again(points)
    except ValueError as error:
        raise wrong_message(peer, wire_name(type(message)), f"sent points that are none ({error})", step) from error


def _require_length(peer: str, message: Message, points: bytes, expected: int, step: tuple[int, ...]) -> None:
    if len(points) != expected * POINT:
        reason = f"sent {len(points)} bytes of points where {expected * POINT} are due"
        raise wrong_message(peer, wire_name(type(message)), reason, step, value=len(points))


def _require_equal(peer: str, message: CommonRowsProof | CommonRowsAgreed, digest: bytes) -> None:
    """Refuse a peer that has another product, and so other common ids."""
    if not hmac.compare_digest(message.digest, digest):
        raise wrong_message(peer, wire_name(type(message)), "has other common ids than this party found", _STEP)


def _refuse_all(ctx: Context, count: Callable[[], NoReturn]) -> NoReturn:
    """End an alignment without a common id: two parties count, of more none may hear what two others have in common.

    Raises:
        HandshakeError: always.
    """
    if len(ctx.topology.assigned) == 2:
        count()
    raise HandshakeError(
        f"{_NEED}, and there is none; compare how the tables write ids, or let two parties align to find out",
        code="disagreement",
        value={},
    )


def _stated(peer: str, start: AlignmentStart, most: int) -> int:
    """Return how many ids a peer brings; :class:`PeerError` for none or too many."""
    if not 0 < start.rows <= most:
        reason = f"brings {start.rows} ids where this party takes 1 to {most}"
        raise wrong_message(peer, "AlignmentStart", reason, _STEP, value=start.rows)
    return start.rows


def _digest_common(nonce: bytes, ids: Sequence[str], chosen: Positions) -> bytes:
    return digest_ids(nonce, sorted(ids[position] for position in chosen.tolist()))


def _pool_for(sizes: Sequence[int], pool: Executor | None) -> Executor | None:
    """Return the pool where its processes are worth their start."""
    return pool if sum(sizes) >= _LEAST_SHARED else None


def _blocks(*rows: int) -> int:
    return -(-max(rows) // _BLOCK)


def _length(rows: int, number: int) -> int:
    """Return how many of so many ids a block holds."""
    return max(0, min(_BLOCK, rows - number * _BLOCK))


def _done(number: int, *rows: int) -> tuple[int, int]:
    """Return how many ids of the largest table are compared after a block, of how many."""
    return min(max(rows), (number + 1) * _BLOCK), max(rows)
