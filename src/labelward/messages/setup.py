"""Messages before a run (who is there, do we agree, which key) and at its end."""

from __future__ import annotations

from typing import ClassVar

from labelward.he.contract import PublicMaterial
from labelward.messages.base import Message

__all__ = ["Hello", "KeyOffer", "Ready"]


class Hello(Message, frozen=True):
    """A party introduces itself to a peer.

    Attributes:
        version: of labelward.
        job: the shared part of the job, as JSON text by key; compared key by key.
        rows: how many training rows (and, after them, prediction rows) the party holds.
        nonce: the active party's per-run key for the digest of the row ids; empty from a passive party.
    """

    version: str
    party: str
    job: dict[str, str]
    rows: tuple[int, int]
    nonce: bytes
    volatile: ClassVar[tuple[str, ...]] = ("nonce",)


class Ready(Message, frozen=True):
    """A passive party agrees; ``ids`` is the HMAC-SHA-256 of its row ids under the nonce."""

    ids: bytes
    volatile: ClassVar[tuple[str, ...]] = ("ids",)


class KeyOffer(Message, frozen=True):
    """The active party's public key for this run, and the model's identifier, drawn at random."""

    key: PublicMaterial
    model: str
    volatile: ClassVar[tuple[str, ...]] = ("key", "model")
