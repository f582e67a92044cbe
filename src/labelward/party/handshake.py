"""Before a run: the parties compare the shared part of the job, the version and the rows, and name what differs."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from labelward.errors import HandshakeError
from labelward.messages.setup import Hello, Ready
from labelward.party.context import Context
from labelward.party.transcript import framed_ids

__all__ = ["Agreed", "greet_active", "greet_passives"]

_STEP = (0,)


@dataclass(frozen=True, kw_only=True)
class Agreed:
    """What all parties agree on before a run.

    Attributes:
        parties: in party order, the active one first.
        job: the shared part of the job, as JSON text by key; compared in the handshake.
        ids: row ids, training rows first; compared by HMAC.
        rows: training rows, and prediction rows after them.
        bits: of the key; 0 for an engine without keys.
        precision: bits behind the binary point of encrypted values.
        insecure: whether the job allows what protects nothing.
    """

    parties: tuple[str, ...]
    job: dict[str, str]
    ids: Sequence[str]
    rows: tuple[int, int]
    bits: int
    precision: int
    insecure: bool


def greet_passives(ctx: Context, job: dict[str, str], rows: tuple[int, int], ids: Sequence[str]) -> None:
    """The active party's side: compare with every peer.

    Args:
        job: the shared part of the job, as JSON text by key.
        rows: training rows, and prediction rows after them.
        ids: the row ids, training rows first; only their HMAC under a per-run key is compared.

    Raises:
        HandshakeError: keys of the job, version, row count or row ids differ; names the peer and what differs.
    """
    nonce = ctx.protection.bytes(32)
    for peer in ctx.peers:
        ctx.send(peer, Hello(version("labelward"), ctx.party, job, rows, nonce), _STEP)
    answers = {peer: ctx.recv(peer, Hello, _STEP) for peer in ctx.peers}
    for peer, answer in answers.items():
        _compare(ctx.party, peer, Hello(version("labelward"), ctx.party, job, rows, nonce), answer)
    mine = _digest(nonce, ids)
    for peer in ctx.peers:
        theirs = ctx.recv(peer, Ready, _STEP).ids
        if not hmac.compare_digest(mine, theirs):
            raise HandshakeError(
                f"parties {ctx.party!r} and {peer!r} hold {len(ids)} rows each, but not the same row ids"
            )


def greet_active(ctx: Context, job: dict[str, str], rows: tuple[int, int], ids: Sequence[str]) -> None:
    """A passive party's side; arguments and errors as for :func:`greet_passives`."""
    mine = Hello(version("labelward"), ctx.party, job, rows, b"")
    ctx.send(ctx.active, mine, _STEP)
    theirs = ctx.recv(ctx.active, Hello, _STEP)
    _compare(ctx.party, ctx.active, mine, theirs)
    ctx.send(ctx.active, Ready(_digest(theirs.nonce, ids)), _STEP)


def _digest(nonce: bytes, ids: Sequence[str]) -> bytes:
    total = hmac.new(nonce, digestmod=hashlib.sha256)
    for framed in framed_ids(ids):
        total.update(framed)
    return total.digest()


def _compare(party: str, peer: str, mine: Hello, theirs: Hello) -> None:
    if theirs.party != peer:
        raise HandshakeError(f"the peer at {peer!r} calls itself {theirs.party!r}")
    if mine.version != theirs.version:
        raise HandshakeError(f"{party!r} runs labelward {mine.version} and {peer!r} runs {theirs.version}")
    differing = sorted(key for key in mine.job.keys() | theirs.job.keys() if mine.job.get(key) != theirs.job.get(key))
    if differing:
        told = "; ".join(
            f"{key} is {mine.job.get(key, 'absent')} at {party!r} and {theirs.job.get(key, 'absent')} at {peer!r}"
            for key in differing
        )
        raise HandshakeError(f"the parties disagree on the job: {told}")
    if mine.rows != theirs.rows:
        raise HandshakeError(
            f"{party!r} holds {mine.rows[0]} training and {mine.rows[1]} prediction rows, "
            f"{peer!r} {theirs.rows[0]} and {theirs.rows[1]}"
        )
