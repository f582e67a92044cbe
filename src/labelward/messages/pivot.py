"""Messages of Pivot: what the dealer deals, encrypted rows and sums, shares, and the few values that are opened.

Steps are numbers that all parties count alike.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from labelward.he.base import CipherBlock, PublicMaterial
from labelward.messages.base import (
    SMALL,
    Array,
    CipherDigest,
    Limits,
    Message,
    ModelId,
    Observation,
    Released,
    RowMask,
    exempt,
)


class DealerExchange(Message, frozen=True):
    """A party's X25519 key, under which the dealer seals what it deals to this party.

    Attributes:
        model: the identifier that the coordinator drew; empty from all others.
    """

    model: ModelId
    key: Annotated[bytes, exempt("a public key")]
    volatile: ClassVar[tuple[str, ...]] = ("model", "key")
    masked: ClassVar[tuple[str, ...]] = ("model", "key")
    limits: ClassVar[Limits | None] = SMALL


class DealtParcel(Message, frozen=True):
    """What the dealer deals to one party, readable by this party and stored by nobody.

    Attributes:
        model: as the coordinator drew it.
        material: the public key of the training; None in a prediction.
        key: the dealer's X25519 key for this parcel.
        sealed: a seed of shares and a part of the private key, encrypted.
    """

    model: ModelId
    material: PublicMaterial | None
    key: Annotated[bytes, exempt("a public key")]
    sealed: Annotated[bytes, exempt("drawn at random, and encrypted")]
    volatile: ClassVar[tuple[str, ...]] = ("model", "material", "key", "sealed")
    masked: ClassVar[tuple[str, ...]] = ("key", "sealed")
    limits: ClassVar[Limits | None] = SMALL


class DealRequest(Message, frozen=True):
    """Which random shares are needed next, by kind and number; from the coordinator to the dealer.

    The numbers follow from the candidates and from how many nodes split, which was opened before.
    """

    kinds: Annotated[tuple[str, ...], exempt("the next operation, the same for all data")]
    counts: Released[tuple[int, ...]]


class DealtCorrections(Message, frozen=True):
    """What the coordinator takes for its last share of each request, so that all shares together fit."""

    values: Annotated[Array, exempt("uniform but for all other shares")]
    volatile: ClassVar[tuple[str, ...]] = ("values",)
    masked: ClassVar[tuple[str, ...]] = ("values",)


class DealEnd(Message, frozen=True):
    """No more shares are needed; to the dealer."""

    ends: ClassVar[bool] = True


class SplitOffers(Message, frozen=True):
    """The sender's columns: number of bins and kind of each."""

    sizes: Annotated[tuple[int, ...], exempt("bins of the sender's own columns")]
    kinds: Annotated[tuple[int, ...], exempt("kinds of the sender's own columns")]


class LabelRows(Message, frozen=True):
    """The classes of all training rows, one-hot, under the key of which every party has a part.

    Attributes:
        classes: how many there are.
    """

    classes: int
    rows: CipherBlock | CipherDigest


class ChildCiphertexts(Message, frozen=True):
    """The encrypted classes of a child's rows, and zeros for all others; from the owner of the split.

    Attributes:
        right: None where nobody will sum or divide the rows of the right child.
    """

    left: CipherBlock | CipherDigest
    right: CipherBlock | CipherDigest | None


class SumMasks(Message, frozen=True):
    """Encrypted masks of the receiver's sums; the sender's share is minus the masks."""

    masks: CipherBlock | CipherDigest


class MaskedStatistics(Message, frozen=True):
    """The sender's sums by candidate, node and class under the masks of all others, to be decrypted by all."""

    sums: CipherBlock | CipherDigest


class PartialDecryptions(Message, frozen=True):
    """The sender's part of the decryption of masked sums."""

    parts: Annotated[bytes, exempt("fixed by the masked sums and the parts of all others")]
    volatile: ClassVar[tuple[str, ...]] = ("parts",)
    masked: ClassVar[tuple[str, ...]] = ("parts",)


class MaskedShares(Message, frozen=True):
    """The sender's shares of values under masks that nobody knows, int64; all parties add them up."""

    values: Annotated[Array, exempt("uniform: each value is masked by a dealt one that serves once")]
    volatile: ClassVar[tuple[str, ...]] = ("values",)
    masked: ClassVar[tuple[str, ...]] = ("values",)


class ResultShares(Message, frozen=True):
    """The sender's shares of results, int64, to the coordinator, which adds them up and tells what may be known."""

    values: Annotated[Array, exempt("uniform but for the result: a dealt share of zero is added")]
    volatile: ClassVar[tuple[str, ...]] = ("values",)
    masked: ClassVar[tuple[str, ...]] = ("values",)


class SplitNodes(Message, frozen=True):
    """For each node of a level whether it splits: the prune bits."""

    split: Released[tuple[bool, ...]]


class SplitPlaces(Message, frozen=True):
    """For each node that splits the place of its candidate among those of all parties: party, column and bin."""

    places: Released[tuple[int, ...]]


class LeafClasses(Message, frozen=True):
    """The class of each leaf, by node number."""

    classes: Released[tuple[int, ...]]


class OpenedTree(Observation, frozen=True):
    """The tree as every party knows it, with the party's own sides.

    Attributes:
        nodes, owners: the nodes that split, ascending, and the party of each.
        leaves, classes: the leaves, ascending, and the class of each.
        left: for each node that the party owns, in the order of ``nodes``, which training rows would go left; other
            nodes are left out.
    """

    nodes: tuple[int, ...]
    owners: tuple[str, ...]
    leaves: tuple[int, ...]
    classes: tuple[int, ...]
    left: tuple[RowMask, ...]
