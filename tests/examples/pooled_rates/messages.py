"""Messages of pooled rates."""

from __future__ import annotations

from typing import Annotated

from labelward.he.base import CipherBlock, PublicMaterial
from labelward.messages.base import Array, CipherDigest, Message, Released, exempt


class HolderKey(Message, frozen=True):
    """A label holder's public key for this run, to the collector."""

    key: PublicMaterial


class EncryptedLabels(Message, frozen=True):
    """A holder's label and a one for each row that it labels, zeros for the others, under its own key."""

    rows: CipherBlock | CipherDigest


class RowBins(Message, frozen=True):
    """The bins of the source's column, to the collector, which holds neither labels nor keys."""

    bins: Annotated[Array, exempt("bins of the sender's own column, of no label")]


class BinSums(Message, frozen=True):
    """Labels and ones summed by bin, to the owner of the key."""

    sums: CipherBlock | CipherDigest


class HolderRates(Message, frozen=True):
    """A holder's labels and rows by bin, int64 [bins, 2], to the source."""

    sums: Released[Array]


class RowRates(Message, frozen=True):
    """The rates of the rows that the coordinator asks about, float64 [rows]."""

    rates: Released[Array]
