"""Messages by which parties find the rows that all of them have.

::

    each ↔ active      AlignmentStart(rows, nonce)     step (0,)
    each ↔ active      AlignmentPoints(points)         step (block,)    its own ids, in an order drawn at random
    passive → active   AlignmentAnswers(points)        step (block,)    the active party's points of the block
    active  → passive  CommonRows(rows, point)         step (0,)
    passive → active   CommonRowsProof(point, digest)  step (0,)
    active  → passive  CommonRowsAgreed(digest)        step (0,)
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from labelward.messages.base import SMALL, Limits, Message, RowMask, exempt


class AlignmentStart(Message, frozen=True):
    """How many ids a party brings.

    Attributes:
        nonce: the active party's key of this alignment for digests of ids; empty from a passive party.
    """

    rows: int
    nonce: Annotated[bytes, exempt("drawn at random"), msgspec.Meta(max_length=64)]
    volatile: ClassVar[tuple[str, ...]] = ("nonce",)
    limits: ClassVar[Limits | None] = SMALL


class AlignmentPoints(Message, frozen=True):
    """The next ids of the sender, as points that only it can open.

    Attributes:
        points: in an order that the sender draws, 32 bytes each.
    """

    points: Annotated[bytes, exempt("points under a secret of the sender")]
    volatile: ClassVar[tuple[str, ...]] = ("points",)
    limits: ClassVar[Limits | None] = SMALL


class AlignmentAnswers(Message, frozen=True):
    """To the active party: its own points of this block, times the sender's secret as well, in their order."""

    points: Annotated[bytes, exempt("points under secrets of both")]
    volatile: ClassVar[tuple[str, ...]] = ("points",)
    limits: ClassVar[Limits | None] = SMALL


class CommonRows(Message, frozen=True):
    """To a passive party: which of its ids all parties have.

    Attributes:
        rows: in the order in which the receiver sent their points.
        point: of a digest of these ids, sorted, under a new secret of the sender; empty where there is none.
    """

    rows: Annotated[RowMask, exempt("which of the receiver's ids all parties have, whatever the labels")]
    point: Annotated[bytes, exempt("a point under a secret of the sender")]
    volatile: ClassVar[tuple[str, ...]] = ("rows", "point")


class CommonRowsProof(Message, frozen=True):
    """To the active party, which can compare what both hold for the common ids.

    Attributes:
        point: of the digest of the sender's common ids, under a new secret of the sender.
        digest: HMAC of the sender under the product of the receiver's point and this secret.
    """

    point: Annotated[bytes, exempt("a point under a secret of the sender")]
    digest: Annotated[bytes, exempt("a digest of a point under secrets of both")]
    volatile: ClassVar[tuple[str, ...]] = ("point", "digest")
    limits: ClassVar[Limits | None] = SMALL


class CommonRowsAgreed(Message, frozen=True):
    """To a passive party whose common ids are the active party's: the same digest, of the active party."""

    digest: Annotated[bytes, exempt("a digest of a point under secrets of both")]
    volatile: ClassVar[tuple[str, ...]] = ("digest",)
    limits: ClassVar[Limits | None] = SMALL
