"""Every error that labelward raises on purpose, in one tree.

::

    LabelwardError
    ├── InputError               what the user gave cannot be used (exit code 2)
    │   ├── JobError             a key of the job file
    │   ├── DataError            a table, a column, a label
    │   ├── FileFormatError      a damaged view, model or result file, or one of an unknown version
    │   ├── OutputError          an output folder that exists, or cannot be written
    │   ├── DependencyError      an optional library that is not installed
    │   └── CertificateError     a certificate or key that is missing, expired, of another party or authority
    ├── HandshakeError           the parties disagree before anything starts (exit code 2)
    ├── ProtocolError            a conversation between parties went wrong (exit code 3)
    │   ├── PeerError            a peer is dead, silent or failed; names peer, message and step
    │   │   ├── PeerDisagrees    a peer says that the parties disagree before anything starts (exit code 2)
    │   │   └── PeerRestarted    a peer came back as a new process: this attempt is over, the run is not
    │   └── CodecError           bytes that are no message of this version, or an object that may not travel
    ├── PolicyError              a defense that cannot act: nothing unprotected leaves (exit code 2)
    └── EncryptionError          keys, ranges and ciphertexts (exit code 2)

Messages name the value and the place. An error that is sent to a peer carries no private value.
Errors of libraries are translated where they are met, with ``raise … from``.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "LEAST_LIKENESS",
    "CertificateError",
    "CodecError",
    "DataError",
    "DependencyError",
    "EncryptionError",
    "FileFormatError",
    "HandshakeError",
    "InputError",
    "JobError",
    "LabelwardError",
    "OutputError",
    "PeerDisagrees",
    "PeerError",
    "PeerRestarted",
    "PolicyError",
    "ProtocolError",
    "unknown_name",
]

LEAST_LIKENESS = 0.65
"""Of a name that is suggested, as :func:`difflib.get_close_matches` has it: one letter of three may be wrong."""


class LabelwardError(Exception):
    """The root; ``exit_code`` is what the command line ends with."""

    exit_code = 1


class InputError(LabelwardError):
    """What the user gave cannot be used; the message names the value and the field."""

    exit_code = 2


class JobError(InputError):
    """A key of the job file is unknown, missing or has a value that cannot be."""


class DataError(InputError):
    """A table, a column, a label or a row id cannot be used."""


class FileFormatError(InputError):
    """A view, model, guess or result file is damaged or of an unknown format version."""


class OutputError(InputError):
    """An output folder exists already, belongs to another job, or cannot be written."""


class DependencyError(InputError):
    """An optional library is missing; the message names the extra that brings it."""


class CertificateError(InputError):
    """A certificate, key or authority is missing, expired, not yet valid, of another party, or does not fit."""


class HandshakeError(LabelwardError):
    """The parties do not agree on job, rows, keys or versions; the message names what differs."""

    exit_code = 2


class ProtocolError(LabelwardError):
    """A conversation between parties went wrong."""

    exit_code = 3


class PeerError(ProtocolError):
    """A peer is dead, silent or failed.

    Attributes:
        peer: the party that is to blame.
        message: the message type that was awaited or sent, if any.
        step: its step (such as tree and level), if any.
    """

    def __init__(
        self, peer: str, reason: str, *, message: str | None = None, step: tuple[int, ...] | None = None
    ) -> None:
        where = f" (message {message}, step {list(step or ())})" if message else ""
        super().__init__(f"party {peer!r}: {reason}{where}")
        self.peer, self.message, self.step = peer, message, step


class PeerDisagrees(PeerError):  # noqa: N818
    """A peer ended with a :class:`HandshakeError` and said so: to start again as it is would end the same way."""

    exit_code = 2


class PeerRestarted(PeerError):  # noqa: N818
    """A peer came back as a new process: the present attempt is over, and the run goes on from the last checkpoint."""


class CodecError(ProtocolError):
    """Bytes that are no message of this version, or an object that may not travel."""


class PolicyError(LabelwardError):
    """A defense cannot act where it must; the run stops and nothing unprotected leaves."""

    exit_code = 2


class EncryptionError(LabelwardError):
    """A key that is too short, a value out of the encoding's range, a ciphertext of another key."""

    exit_code = 2


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that is not in a list: what was given, a near one, all known ones."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=LEAST_LIKENESS)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"unknown {kind} {name!r}{hint}; known: {', '.join(names) or 'none'}"
