"""From a job's ``[network]`` section to the network that a party's run needs."""

from __future__ import annotations

import hashlib
from pathlib import Path

from labelward.errors import JobError
from labelward.evaluate.attempts import Log, Network
from labelward.job import Job

__all__ = ["join"]


def join(job: Job, party: str, log: Log) -> tuple[Network, str]:
    """Return a party's end of the network, and the fingerprint of its certificate.

    Raises:
        CertificateError: a certificate, key or authority is missing or unfit; names the file.
        JobError: ``[network]`` lacks what this party needs.
        OutputError: the listening address cannot be had.
    """
    from labelward.transport.certificates import Credentials, fingerprint
    from labelward.transport.grpc import Endpoint
    from labelward.transport.grpc import Network as Grpc

    section = job.network
    if section is None:
        raise JobError("[network]: required, since the parties must find each other")
    parties = tuple(each.name for each in job.parties)
    listener = section.listener or job.active.name
    credentials = Credentials.load(Path(section.certificates), party)
    endpoint = Endpoint(
        party=party,
        parties=parties,
        listener=listener,
        address=section.address,
        listen=section.listens_at if party == listener else None,
        timeout=section.timeout,
        silence=section.silence,
        message_limit=section.message_limit,
        heartbeat=section.heartbeat,
    )
    return Grpc(endpoint, credentials, run=_identity(parties), log=log), fingerprint(credentials.certificate)


def _identity(parties: tuple[str, ...]) -> str:
    """Return what tells runs apart on the wire: who takes part; all else is compared in the greeting, by name."""
    return hashlib.sha256("\n".join(sorted(parties)).encode()).hexdigest()
