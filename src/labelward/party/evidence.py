"""Evidence of a training, which a share keeps: its job, where the transcript stood, and what was exchanged with whom.

At the end of a training over a network the parties state the digests of their exchanges to each other. A statement is
recorded in the receiver's view, and the digest in both shares: a view from which records were removed, or whose end was
made up, no longer gives the digest that the peer's share has, which the owner of the view cannot change.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import TypeVar, cast

import msgspec

from labelward.errors import HandshakeError
from labelward.messages.handshake import ExchangeDigest
from labelward.party.context import Context
from labelward.party.transcript import Transcript

T = TypeVar("T")

_STEP = (0,)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a share says of the training that made it.

    Attributes:
        job: SHA-256 of the shared part of the job (:func:`job_digest`), as hex; the same in all shares of a training.
        records: number of records in the party's transcript when the share was saved.
        head: hash of the last of them; empty for a transcript in memory.
        exchanges: for each peer the digest of the exchange with it.
        confirmed: the peers that stated the same digest.
    """

    job: str
    records: int = 0
    head: bytes = b""
    exchanges: dict[str, bytes] = {}
    confirmed: tuple[str, ...] = ()


def compare_exchanges(ctx: Context) -> Evidence:
    """Compare with every peer all that was exchanged with it, after a training; return what a share says of it.

    Raises:
        HandshakeError: a peer sent or received other messages.
        PeerError: a peer failed.
    """
    mine = {peer: exchange.digest for peer, exchange in ctx.exchanges.items()}
    for peer, digest in mine.items():
        ctx.send(peer, ExchangeDigest(digest), _STEP)
    for peer, digest in mine.items():
        if not hmac.compare_digest(ctx.recv(peer, ExchangeDigest, _STEP).digest, digest):
            raise HandshakeError(
                f"parties {ctx.party!r} and {peer!r} do not agree on the messages that they exchanged",
                code="disagreement",
                value=peer,
            )
    return evidence(ctx.transcript, mine, confirmed=tuple(mine))


def evidence(transcript: Transcript, exchanges: Mapping[str, bytes], *, confirmed: tuple[str, ...] = ()) -> Evidence:
    """Return what a share says of its training; ``exchanges``: digests by peer."""
    job, (records, head) = job_digest(transcript.header.job), transcript.position or (0, b"")
    return Evidence(job=job, records=records, head=head, exchanges=dict(exchanges), confirmed=confirmed)


def with_evidence(share: T, told: Evidence) -> T:
    """Return a share with its evidence; a family whose shares have no field ``evidence`` keeps none."""
    if "evidence" in getattr(share, "__struct_fields__", ()):
        return cast("T", msgspec.structs.replace(cast("msgspec.Struct", share), evidence=told))
    return share


def job_digest(job: Mapping[str, str]) -> str:
    """Return the SHA-256 of the shared part of a job, as hex."""
    return hashlib.sha256(msgspec.msgpack.encode(sorted(job.items()))).hexdigest()
