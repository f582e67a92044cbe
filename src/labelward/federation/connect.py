"""Network connection of a party's run, from the job's ``[network]`` section."""

from __future__ import annotations

import hashlib
import hmac
import platform
from pathlib import Path

from labelward.federation.party_run import Connection, Log
from labelward.job import Job
from labelward.messages.codec import frame_limit

_LONGEST = 100
"""Characters of a run's identity on the wire."""


def connect(job: Job, party: str, purpose: str, log: Log, *, folder: Path) -> tuple[Connection, str]:
    """Return a party's end of the network, and the fingerprint of its certificate.

    Args:
        purpose: of the run, in a word; parties that are here for different ones do not meet.
        folder: of the party's files; no two processes of a party in different ones take part.

    Raises:
        CertificateError: a certificate, key or authority is missing or unfit; names the file.
        JobError: ``[network]`` lacks what this party needs.
        InputError: the listening address cannot be had.
    """
    from labelward.transport.certificates import Credentials, fingerprint
    from labelward.transport.grpc import Endpoint
    from labelward.transport.grpc import Network as Grpc

    section, listener = job.connection(), job.listener
    parties = tuple(each.name for each in job.parties)
    credentials = Credentials.load(Path(section.certificates), party, pinned=frozenset(section.pinned))
    endpoint = Endpoint(
        party=party,
        parties=parties,
        listener=listener,
        address=section.address,
        listen=section.listens_at if party == listener else None,
        timeout=section.timeout,
        silence=section.silence,
        message_limit=section.message_limit,
        frame_limit=frame_limit,
        heartbeat=section.heartbeat,
        place=hmac.digest(credentials.key, f"{platform.node()}:{folder.resolve()}".encode(), "sha256")[:16],
    )
    return Grpc(
        endpoint,
        credentials,
        run=run_identity(purpose, parties, section.run),
        log=log,
    ), fingerprint(credentials.certificate)


def run_identity(purpose: str, parties: tuple[str, ...], name: str | None) -> str:
    """Return the identity of a run on the wire: purpose, parties, and which of them is active.

    Everything else is compared in the handshake, by name.

    Args:
        parties: the active one first.
        name: of the run, where the same parties have several.
    """
    active, *passive = parties
    identity = f"{purpose}{f' {name}' if name else ''}: {', '.join([f'{active} (active)', *sorted(passive)])}"
    if len(identity) <= _LONGEST:
        return identity
    return f"{identity[: _LONGEST - 18]}… {hashlib.sha256(identity.encode()).hexdigest()[:16]}"
