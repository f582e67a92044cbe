"""What a party's run leaves beside view, model and checkpoints: how far it came, and what protected it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from labelward.runs.json_records import read_json, write_json
from labelward.runs.schema import Cost, KeyInfo

FORMAT = 1
PARTY_FILE = "party.json"

Stage = Literal["running", "saved", "finished", "closed"]
"""``saved``: this party's share is on disk; ``finished``: all parties' shares are; ``closed``: all parties know it."""


class PeerRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who a peer proved to be, and how what passed between it and this party was protected.

    Attributes:
        identity: subject of its certificate.
        fingerprint: SHA-256 of its certificate, as hex.
        address: where the link on which its messages come leads.
        tls: version and cipher of that link, as a probe with the same certificates found them; null where none did.
        sealed: whether all between the two parties is sealed end to end, whoever carries it.
    """

    identity: str
    fingerprint: str
    address: str
    tls: str | None
    sealed: bool


class PartyRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of ``party.json``.

    Attributes:
        party: whose run it is.
        parties: all of them, the active one first.
        seed: of the learning draws.
        defense: slug of the variant; empty at a passive party, which is not told.
        attempts: how often the run was begun, or gone on with from a checkpoint.
        own: fingerprint of this party's certificate.
        peers: by name.
        key: engine, key and kernel; of the last attempt, since each makes its own key.
        model: identifier of the model; empty until the share is saved.
        dates: columns of this party that hold dates or times.
        utility: metrics on the test rows, null where one was not finite; at the active party only.
        cost: this party's own, of the last attempt.
        versions: of labelward, Python and the libraries that matter.
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
    versions: dict[str, str]


def write_party_record(folder: Path, record: PartyRecord) -> None:
    """Write ``party.json``; :class:`~labelward.errors.OutputError` where that is impossible."""
    write_json(folder / PARTY_FILE, record)


def read_party_record(folder: Path) -> PartyRecord | None:
    """Read what :func:`write_party_record` wrote; None where there is none.

    Raises:
        FileFormatError: it is damaged or of another format version.
    """
    path = folder / PARTY_FILE
    return read_json(path, PartyRecord, FORMAT) if path.exists() else None
