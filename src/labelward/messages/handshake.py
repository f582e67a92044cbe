"""Messages before a run (who is there, do we agree, which rows, which key)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from labelward.he.base import PublicMaterial
from labelward.messages.base import KEYS, SMALL, Limits, Message, ModelId, RowMask, exempt


class Hello(Message, frozen=True, omit_defaults=True):
    """A party introduces itself to a peer.

    Attributes:
        version: of labelward.
        job: the shared part of the job, as JSON text by key; compared key by key.
        rows: how many rows the party holds, all sides together.
        nonce: the active party's key of this greeting for the digests of the row ids; empty from a passive party.
        checkpoints: from a passive party: from which of its checkpoints it could go on, ascending.
        histories: from a passive party: for each of these checkpoints the digest of its exchange with the active party.
        terms: whatever else must be equal for equal results, such as versions of libraries; compared key by key.
        columns: from a passive party of a run over a network: the most columns of which it will send sums; 0: not said.
        classes: from the active party of such a run: of the label, 1 for a quantity; 0: not said.
    """

    version: str
    party: str
    job: Annotated[dict[str, str], exempt("settings that all parties wrote")]
    rows: int
    nonce: Annotated[bytes, exempt("drawn at random"), msgspec.Meta(max_length=64)]
    checkpoints: Annotated[tuple[int, ...], exempt("numbers of rounds that are done")]
    histories: Annotated[tuple[bytes, ...], exempt("digests of what the receiver has, too")] = ()
    terms: Annotated[dict[str, str], exempt("versions of libraries")] = msgspec.field(default_factory=dict)
    columns: int = 0
    classes: int = 0
    volatile: ClassVar[tuple[str, ...]] = ("nonce", "checkpoints", "histories", "terms", "columns", "classes")
    limits: ClassVar[Limits | None] = Limits(text=1 << 19)


class RowSplit(Message, frozen=True, tag="Begin", omit_defaults=True):
    """The active party says which rows are validation and test rows; those of neither are learned from.

    Attributes:
        validation: of all rows, in the order of their ids.
        test: of all rows; none of them is a validation row.
        resume: the passive party's checkpoint to go on from; 0: from the start.
        history: the active party's digest of their exchange up to there; empty: a new training begins.
        ids: HMAC-SHA-256 of the sender and all its row ids in order, under the nonce.
    """

    validation: Annotated[RowMask, exempt("drawn without labels, from the label holder's private seed")]
    test: Annotated[RowMask, exempt("as the validation rows")]
    resume: int
    history: Annotated[bytes, exempt("a digest of what the receiver has, too")] = b""
    ids: Annotated[bytes, exempt("an HMAC of row ids")] = b""
    volatile: ClassVar[tuple[str, ...]] = ("resume", "history", "ids")


class RowIdDigests(Message, frozen=True, tag="Ready", omit_defaults=True):
    """A passive party agrees, and proves which rows it holds.

    Attributes:
        ids: HMAC-SHA-256 of the sender and all its row ids in order, under the nonce.
        buckets: empty; in views of 0.1.0 digests of the ids in each of several buckets.
    """

    ids: Annotated[bytes, exempt("an HMAC of row ids")]
    buckets: Annotated[tuple[bytes, ...], exempt("HMACs of row ids")] = ()
    volatile: ClassVar[tuple[str, ...]] = ("ids", "buckets")
    limits: ClassVar[Limits | None] = SMALL


class BlindedRowIds(Message, frozen=True):
    """Two parties whose rows differ count the ids that both have: the sender's ids, as points that only it can open.

    Attributes:
        points: by form of the ids, the first coordinates of their points times the sender's secret, sorted.
    """

    points: Annotated[dict[str, bytes], exempt("points under a secret of the sender")]
    volatile: ClassVar[tuple[str, ...]] = ("points",)
    limits: ClassVar[Limits | None] = SMALL


class TwiceBlindedRowIds(Message, frozen=True):
    """To the coordinator: its own points, times the sender's secret as well.

    Attributes:
        points: by form, sorted.
    """

    points: Annotated[dict[str, bytes], exempt("points under secrets of both")]
    volatile: ClassVar[tuple[str, ...]] = ("points",)
    limits: ClassVar[Limits | None] = SMALL


class PairStart(Message, frozen=True):
    """Two parties of which none coordinates begin their exchange: the first in party order sends its key."""

    nonce: Annotated[bytes, exempt("drawn at random")]
    volatile: ClassVar[tuple[str, ...]] = ("nonce",)


class PairHistories(Message, frozen=True):
    """To the coordinator: for each other party and each checkpoint the digest of the sender's exchange with it."""

    digests: Annotated[dict[str, tuple[bytes, ...]], exempt("digests under keys that the receiver does not have")]
    volatile: ClassVar[tuple[str, ...]] = ("digests",)


class KeyOffer(Message, frozen=True):
    """The active party's public key for this run, and the model's identifier, drawn at random."""

    key: PublicMaterial
    model: ModelId
    volatile: ClassVar[tuple[str, ...]] = ("key", "model")
    limits: ClassVar[Limits | None] = KEYS


class ExchangeDigest(Message, frozen=True):
    """A party's digest of all that it exchanged with the receiver in a training, which ends with this comparison."""

    digest: Annotated[bytes, exempt("a digest of what the receiver has, too")]
    evidence: ClassVar[bool] = True
    limits: ClassVar[Limits | None] = SMALL
