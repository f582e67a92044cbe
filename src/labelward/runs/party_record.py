"""Record of one party's run: progress, identities of the peers, and protection of the connection."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from labelward.party.json_file import read_versioned
from labelward.runs.schema import Cost, KeyInfo
from labelward.runs.secure_files import write_json

FORMAT = 1
PARTY_FILE = "party.json"

Stage = Literal["running", "saved", "finished", "closed"]
"""``saved``: this party's share is on disk; ``finished``: all shares are; ``closed``: all parties know it."""


class PeerRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A peer's authenticated identity, and the protection of the connection to it.

    Attributes:
        identity: subject of its certificate.
        fingerprint: SHA-256 of its certificate, as hex.
        address: remote address of the link that carries its messages.
        tls: version and cipher of that link, as reported by a probe with the same certificates; null if unknown.
        sealed: whether all messages between the two parties are encrypted end to end, over any relay.
    """

    identity: str
    fingerprint: str
    address: str
    tls: str | None
    sealed: bool


class LeakageFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What guessing labels by the row sets that were told to a party gets right, as the label holder measured it.

    Attributes:
        trees: that the party has seen.
        v_measure: of the communities of rows with the labels.
        bound: no clustering made of the row sets has a larger V-measure.
        right: share of the rows that are right if each community is given its most frequent label.
        blind: share of the most frequent label.
    """

    trees: int
    v_measure: float
    bound: float
    right: float
    blind: float


class PartyRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of ``party.json``.

    Attributes:
        party: the recording party.
        parties: all parties, the active one first.
        seed: seed of the learning draws.
        defense: slug of the variant; empty at a passive party, which does not know it.
        attempts: number of attempts, each from the beginning or from a checkpoint.
        own: fingerprint of this party's certificate.
        peers: peers by name.
        key: engine, key and kernel of the last attempt; each attempt generates its own key.
        model: identifier of the model; empty until the share is saved.
        dates: columns of this party with dates or times.
        utility: metrics on the test rows, null if not finite; at the active party only.
        cost: this party's cost in the last attempt.
        leakage: by passive party; at the active party only, of models whose leakage the meter reads.
        versions: versions of labelward, Python and the relevant libraries.
    """

    format: int = FORMAT
    party: str
    parties: tuple[str, ...]
    stage: Stage = "running"
    seed: int
    defense: str = ""
    attempts: int = 0
    own: str
    peers: dict[str, PeerRecord] = {}
    key: KeyInfo
    model: str = ""
    dates: tuple[str, ...] = ()
    utility: dict[str, float | None] = {}
    cost: Cost | None = None
    leakage: dict[str, LeakageFigures] = {}
    versions: dict[str, str]


def write_party_record(folder: Path, record: PartyRecord) -> None:
    """Write ``party.json``; :class:`~labelward.errors.OutputError` if it cannot be written."""
    write_json(folder / PARTY_FILE, record)


def read_party_record(folder: Path) -> PartyRecord | None:
    """Read ``party.json``; None if there is none.

    Raises:
        FileFormatError: the file is damaged or of another format version.
    """
    path = folder / PARTY_FILE
    return read_versioned(path, PartyRecord, FORMAT) if path.exists() else None
