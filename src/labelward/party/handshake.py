"""The handshake: parties compare version, job and rows, and agree on row masks and on the checkpoint to resume from.

The active party says ``Hello`` to each peer and each peer to it; both compare. Then it tells which rows are validation
and test rows (``RowSplit``), and the peer shows which rows it holds (``RowIdDigests``). What comes out is
:class:`Agreement`, without which no role can be called.

**Row ids** never travel. Under a key drawn for each greeting, HMAC-SHA-256 gives each id a digest; the digest says in
which bucket the id lies, and each bucket's digests, sorted, are digested once more. There is one bucket for every 64
rows, at most 256. So the active party can say how many rows differ at least, not only that some do.

What is learned from that: all parties hear whether the run goes on, and where it does not, between whom at least how
many rows differ; a passive party learns no more of ids. The active party holds the key,
so it can *test guesses*: whether the peer's ids in one bucket, 64 of them in the mean and more where there are over
16,384 rows, are exactly those that it thinks of. Where a bucket agrees, these are its own ids. Where a few ids of a
bucket differ, it can try its own without one of them, and others in their place: so it may find out which of its ids
the peer lacks, and which ids the peer has instead, if it can list them. An id that it cannot list stays unknown to it,
and so does any id of a bucket of whose other ids it has no list. Each attempt of a run is a greeting under another key,
so that ids lie in other buckets, and the tests add up. The one digest over all rows, which is sent as well
because it fixes their order, would answer such questions about all differences together only.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray

from labelward.errors import HandshakeError, PeerError
from labelward.messages.base import RowMask
from labelward.messages.handshake import Hello, RowIdDigests, RowSplit
from labelward.party.context import Context

_STEP = (0,)
_ROWS_PER_BUCKET, _MOST_BUCKETS = 64, 256
_LONGEST, _MOST_LISTED = 200, 20  # characters of what a peer wrote, and keys, in one message


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What a party proposes in the handshake.

    Attributes:
        parties: in party order, the active one first.
        job: the shared part of the job, as JSON text by key.
        ids: of all rows that the party holds, in the order that all parties agree on: sorted, where rows have ids.
        bits: of the key; 0 for an engine without keys.
        precision: bits behind the binary point of encrypted values.
        insecure: whether the job allows what protects nothing.
    """

    parties: tuple[str, ...]
    job: dict[str, str]
    ids: Sequence[str]
    bits: int
    precision: int
    insecure: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class RowMasks:
    """Which rows are watched and tested on; rows of neither are learned from.

    Attributes:
        validation: bool [rows], in the order of the offer's ids.
        test: bool [rows]; no row is both.
    """

    validation: NDArray[np.bool_]
    test: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.validation.shape != self.test.shape or (self.validation & self.test).any():
            raise ValueError("the sides of the rows overlap, or speak of different numbers of rows")

    @classmethod
    def in_order(cls, train: int, validation: int, test: int) -> RowMasks:
        """Return the sides of so many rows that come in this order."""
        numbers = np.repeat([0, 1, 2], [train, validation, test])
        return cls(validation=numbers == 1, test=numbers == 2)

    def digest(self) -> str:
        """Return a SHA-256 of the sides, as hex."""
        return hashlib.sha256(np.packbits([self.validation, self.test]).tobytes()).hexdigest()

    @property
    def train(self) -> NDArray[np.bool_]:
        """bool [rows]: those that are learned from."""
        return ~(self.validation | self.test)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What all parties agreed on before a run.

    Attributes:
        parties: in party order, the active one first.
        job: the shared part of the job, as JSON text by key; the same at all of them.
        sides: of the rows, as the active party announced them.
        rows: training rows, and prediction (test) rows.
        bits: of the key; 0 for an engine without keys.
        precision: bits behind the binary point of encrypted values.
        insecure: whether the job allows what protects nothing.
        resume: this party's own checkpoint to go on from; None: from the start.
    """

    parties: tuple[str, ...]
    job: dict[str, str]
    sides: RowMasks
    rows: tuple[int, int]
    bits: int
    precision: int
    insecure: bool
    resume: int | None

    @classmethod
    def of(cls, proposal: Proposal, masks: RowMasks, *, resume: int | None) -> Agreement:
        """Return the agreement of parties whose proposals are equal."""
        return cls(
            parties=proposal.parties,
            job=proposal.job,
            sides=masks,
            rows=(int(masks.train.sum()), int(masks.test.sum())),
            bits=proposal.bits,
            precision=proposal.precision,
            insecure=proposal.insecure,
            resume=resume,
        )


def continued_model(model: str | None) -> dict[str, str]:
    """Return the key that parties compare in addition when they continue a model: its identifier; empty for None."""
    return {} if model is None else {"continues": model}


def handshake_active(ctx: Context, offer: Proposal, sides: RowMasks) -> Agreement:
    """The active party's side: compare with every peer, and tell them the sides of the rows.

    Args:
        offer: what this party brings; only HMACs of its ids under a key of this greeting are compared.
        sides: of the rows in the order of ``offer.ids``.

    Raises:
        HandshakeError: versions, keys of the job, row counts or row ids differ; names the peer and what differs.
        PeerError: a peer failed.
    """
    nonce = ctx.protection.bytes(32)
    mine = _hello(ctx, offer, nonce)
    for peer in ctx.peers:
        ctx.send(peer, mine, _STEP)
    answers = {peer: ctx.recv(peer, Hello, _STEP) for peer in ctx.peers}
    for peer, answer in answers.items():
        _compare(ctx.party, peer, mine, answer)
    resume, parts = _going_on(ctx, answers)
    validation, test = RowMask.pack(sides.validation), RowMask.pack(sides.test)
    for peer in ctx.peers:
        ctx.send(peer, RowSplit(validation, test, parts.get(peer, 0)), _STEP)
    digests = _digests(nonce, offer.ids)
    for peer, ready in {peer: ctx.recv(peer, RowIdDigests, _STEP) for peer in ctx.peers}.items():
        _compare_ids(ctx.party, peer, len(offer.ids), digests, ready)
    ctx.checkpoints.discard(resume)
    return Agreement.of(offer, sides, resume=resume)


def handshake_passive(ctx: Context, offer: Proposal) -> Agreement:
    """A passive party's side; arguments and errors as for :func:`handshake_active`."""
    mine = _hello(ctx, offer, b"")
    ctx.send(ctx.active, mine, _STEP)
    theirs = ctx.recv(ctx.active, Hello, _STEP)
    _compare(ctx.party, ctx.active, mine, theirs)
    begin = ctx.recv(ctx.active, RowSplit, _STEP)
    with ctx.blaming(ctx.active, "Begin", _STEP):
        validation, test = (mask.unpack(len(offer.ids)) for mask in (begin.validation, begin.test))
    if (validation & test).any():
        raise PeerError(
            ctx.active,
            "says of a row that it is a validation and a test row",
            message="Begin",
            step=_STEP,
            code="peer-message",
        )
    if begin.resume and begin.resume not in mine.checkpoints:
        reason = f"wants to go on from checkpoint {begin.resume}, which {ctx.party!r} has not"
        raise PeerError(ctx.active, reason, message="Begin", step=_STEP, code="peer-message", value=begin.resume)
    ctx.send(ctx.active, _digests(theirs.nonce, offer.ids), _STEP)
    resume = begin.resume or None
    ctx.checkpoints.discard(resume)
    return Agreement.of(offer, RowMasks(validation=validation, test=test), resume=resume)


def _hello(ctx: Context, offer: Proposal, nonce: bytes) -> Hello:
    return Hello(version("labelward"), ctx.party, offer.job, len(offer.ids), nonce, ctx.checkpoints.numbers())


def _going_on(ctx: Context, answers: Mapping[str, Hello]) -> tuple[int | None, dict[str, int]]:
    """Return the newest own checkpoint to which each peer has its part, and the numbers of these parts."""
    return ctx.checkpoints.common({peer: answer.checkpoints for peer, answer in answers.items()}) or (None, {})


def _digests(nonce: bytes, ids: Sequence[str]) -> RowIdDigests:
    """Return the digests of ids under a key, of all and by bucket."""
    count = min(max(len(ids) // _ROWS_PER_BUCKET, 1), _MOST_BUCKETS)
    each = [hmac.digest(nonce, name.encode(), "sha256") for name in ids]
    buckets: list[list[bytes]] = [[] for _ in range(count)]
    for digest in each:
        buckets[int.from_bytes(digest[:8], "big") % count].append(digest)
    return RowIdDigests(
        _digest_of(nonce, b"all", each), tuple(_digest_of(nonce, b"bucket", sorted(bucket)) for bucket in buckets)
    )


def _digest_of(nonce: bytes, kind: bytes, digests: Sequence[bytes]) -> bytes:
    return hmac.digest(nonce, kind + b"".join(digests), "sha256")


def _compare(party: str, peer: str, mine: Hello, theirs: Hello) -> None:
    if theirs.party != peer:
        raise HandshakeError(
            f"the peer at {peer!r} calls itself {_sanitize(theirs.party)!r}",
            code="identity",
            value=_sanitize(theirs.party),
        )
    if mine.version != theirs.version:
        raise HandshakeError(
            f"{party!r} runs labelward {mine.version} and {peer!r} runs {_sanitize(theirs.version)}",
            code="disagreement",
            value={party: mine.version, peer: _sanitize(theirs.version)},
        )
    differing = sorted(key for key in mine.job.keys() | theirs.job.keys() if mine.job.get(key) != theirs.job.get(key))
    if differing:
        sides = sorted([(party, mine.job), (peer, theirs.job)], key=lambda side: side[0])  # the same words at both
        (one, ones), (other, others) = sides
        values = {
            _sanitize(key): {one: _sanitize(ones.get(key, "absent")), other: _sanitize(others.get(key, "absent"))}
            for key in differing[:_MOST_LISTED]
        }
        listed = "; ".join(
            f"{key} is {found[one]} at {one!r} and {found[other]} at {other!r}" for key, found in values.items()
        )
        if len(differing) > _MOST_LISTED:
            listed += f"; and {len(differing) - _MOST_LISTED} more"
        raise HandshakeError(f"the parties disagree on the job: {listed}", code="disagreement", value=values)
    if mine.rows != theirs.rows:
        raise HandshakeError(
            f"{party!r} holds {mine.rows} rows and {peer!r} {theirs.rows}; all must hold the same",
            code="disagreement",
            value={party: mine.rows, peer: theirs.rows},
        )


def _sanitize(text: str) -> str:
    """Return what a peer wrote, safe to print, to log and to pass on: one line, printable, short."""
    short = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    return "".join(char if char.isprintable() else "?" for char in short)


def _compare_ids(party: str, peer: str, rows: int, mine: RowIdDigests, theirs: RowIdDigests) -> None:
    if hmac.compare_digest(mine.ids, theirs.ids):
        return
    if len(mine.buckets) != len(theirs.buckets):
        raise PeerError(
            peer,
            "digested its rows in other buckets",
            message="Ready",
            step=_STEP,
            code="peer-message",
            value=len(theirs.buckets),
        )
    pairs = zip(mine.buckets, theirs.buckets, strict=True)
    differing = sum(not hmac.compare_digest(ours, other) for ours, other in pairs)
    if not differing:
        raise HandshakeError(
            f"parties {party!r} and {peer!r} hold the same {rows} row ids, but not in the same order",
            code="disagreement",
            value=rows,
        )
    # a row that one has in place of another's touches two buckets at most
    least = (differing + 1) // 2
    raise HandshakeError(
        f"parties {party!r} and {peer!r} hold {rows} rows each, but not the same row ids: at least {least} of {rows} "
        "rows differ",
        code="disagreement",
        value=(least, rows),
    )
