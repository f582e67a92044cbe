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
    │   │   ├── PeerDisagrees    a peer disagrees, or is not trusted, before anything starts (exit code 2)
    │   │   └── PeerRestarted    a peer came back as a new process: this attempt is over, the run is not
    │   └── CodecError           bytes that are no message of this version, or an object that may not travel
    ├── PolicyError              a defense that cannot act: nothing unprotected leaves (exit code 2)
    └── EncryptionError          keys, ranges and ciphertexts (exit code 2)

Every error is data: a stable ``code``, the ``field`` that is wrong, the ``value`` that was given, and a ``reason``.
Programs and tests read these; the text, which joins field and reason, is for people and may be reworded at any time. An
error that is sent to a peer carries no private value. Errors of libraries are translated where they are met, with
``raise … from``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from copy import copy
from difflib import get_close_matches
from typing import Any, Literal, Self, TypeVar

LEAST_LIKENESS = 0.65
"""Of a name that is suggested, as :func:`difflib.get_close_matches` has it: one letter of three may be wrong."""

LONGEST_REASON = 800
"""Characters of what is said about a peer, most of which may be its own account of a failure."""

Translated = TypeVar("Translated", bound="LabelwardError")

Code = Literal[
    # a setting: a key of the job file, an option, an argument
    "unknown",  # a name or key that does not exist
    "missing",  # a required value is absent
    "type",  # of another type, or not of the written form
    "range",  # of the right type, but too small, too large or not finite
    "choice",  # none of the values that are allowed
    "duplicate",  # given twice
    "conflict",  # excludes, or lacks, another setting
    "unsupported",  # right elsewhere, but not with this model, engine, task or library version
    "insecure",  # protects nothing, and insecurity was not asked for
    "dependency",  # an optional library is not installed
    # a file or folder
    "not-found",
    "exists",  # and would be overwritten
    "unreadable",  # no permission, no text, no table
    "unwritable",
    "locked",  # another process uses it
    "foreign",  # not made by labelward, or of another kind
    "damaged",  # a checksum, chain or schema does not fit
    "format-version",  # written by a later version
    "incomplete",  # cut off, or not finished yet
    "purged",
    "other-run",  # of another job, model, seed or attempt
    # data
    "columns",  # missing, unexpected or of the wrong kind
    "rows",  # ids, counts or order of rows
    "labels",  # what cannot be learned or scored
    "values",  # cells that cannot be used
    "diverged",  # a training whose numbers are not finite any more
    # peers
    "disagreement",  # on job, version, rows or model, before anything starts
    "identity",  # a certificate of somebody else, or of an untrusted authority
    "expired",  # a certificate outside its dates
    "peer-gone",
    "peer-silent",
    "peer-failed",
    "peer-restarted",
    "peer-message",  # a message that the protocol does not allow
    "malformed",  # bytes that are no message of this version
    "not-sendable",  # an object that may not travel
    # protection
    "inapplicable",  # a defense that does not fit model, data or another defense
    "cannot-act",  # a defense that meets what it cannot protect
    "budget",  # of privacy or leakage, exceeded
    "key",  # too short, malformed, or another one
    "capacity",  # a number that the encoding cannot hold
    "ciphertext",  # not one of this key, or of another shape
    "failed",  # an engine that was closed, or whose worker ended
]
"""What is wrong, in one word; stable across versions."""


class LabelwardWarning(UserWarning):
    """What a user may want to change; a command prints it as one line, unlike the warnings of libraries."""


class DataWarning(LabelwardWarning):
    """What was noticed in a table that can be used."""


class DataNote(DataWarning):
    """How a table was read where its file leaves that open."""


class LabelwardError(Exception):
    """The root.

    Args:
        reason: what is wrong, then what to do about it; without the field, which the text puts in front.
        code: what kind of thing is wrong.
        field: where: a key (``"[data] test_size"``), an option, a column, a file; empty where there is no one place.
        value: what was given, where one value is to blame.

    Attributes:
        exit_code: what the command line ends with.
        code: as above; so are ``field``, ``value`` and ``reason``.
    """

    exit_code = 1

    def __init__(self, reason: str, *, code: Code, field: str = "", value: Any = None) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.code, self.field, self.value, self.reason = code, field, value, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)

    def within(self, place: str) -> Self:
        """Return the same error with a place, such as the job file's name, before its text, unless it is there."""
        if str(self).startswith(f"{place}: "):
            return self
        moved = copy(self)
        moved.args = (f"{place}: {self}",)
        return moved

    def under(self, section: str) -> Self:
        """Return the same error with its field, and its text, in a section: ``kind`` becomes ``[model] kind``.

        Args:
            section: as the text has it; a colon at its end is no part of the field.
        """
        moved = copy(self)
        moved.args, moved.field = (f"{section} {self}",), f"{section.rstrip(':')} {self.field}".rstrip()
        return moved

    def translated(self, kind: type[Translated]) -> Translated:
        """Return it as an error of another class, which says the same."""
        return _restore(kind, self.args, self.__dict__)


def _restore(kind: type[Translated], args: tuple[Any, ...], state: dict[str, Any]) -> Translated:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


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
        peer: the party that is to blame; or that says so of another, which may not be true.
        about: that other party; None: what is said is known first-hand, or the peer says it of itself.
        message: the message type that was awaited or sent, if any.
        step: its step (such as tree and level), if any.
    """

    def __init__(
        self,
        peer: str,
        reason: str,
        *,
        code: Code,
        message: str | None = None,
        step: tuple[int, ...] | None = None,
        value: Any = None,
        about: str | None = None,
    ) -> None:
        reason = quoted(reason, LONGEST_REASON)
        super().__init__(reason, code=code, value=value)
        where = f" (message {message}, step {list(step or ())})" if message else ""
        whom = f" says of party {about!r}" if about else ""
        self.args = (f"party {peer!r}{whom}: {reason}{where}",)
        self.peer, self.message, self.step, self.about = peer, message, step, about


class PeerDisagreementError(PeerError):
    """What only people can mend, such as jobs that differ or an unknown authority: as it is, a start ends alike."""

    exit_code = 2


class PeerRestartedError(PeerError):
    """A peer came back as a new process: the present attempt is over, and the run goes on from the last checkpoint."""


def wrong_message(
    peer: str, message: str, reason: str, step: tuple[int, ...] | None = None, value: Any = None
) -> PeerError:
    """Return the error of a message, given by its wire name, that the protocol does not allow."""
    return PeerError(peer, reason, code="peer-message", message=message, step=step, value=value)


class CodecError(ProtocolError):
    """Bytes that are no message of this version, or an object that may not travel."""


class PolicyError(LabelwardError):
    """A defense cannot act where it must; the run stops and nothing unprotected leaves."""

    exit_code = 2


class EncryptionError(LabelwardError):
    """A key that is too short, a value out of the encoding's range, a ciphertext of another key."""

    exit_code = 2


@contextlib.contextmanager
def whole_interrupts() -> Iterator[None]:
    """Raise an interrupt as :class:`KeyboardInterrupt` where native code raised another error because of it.

    A compiled kernel that is interrupted while it calls Python, to load itself for instance, ends in
    :class:`SystemError`, of which the interrupt is the cause.
    """
    try:
        yield
    except SystemError as error:
        cause = error.__cause__
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__cause__
        if cause is None:
            raise
        raise KeyboardInterrupt from error


def quoted(text: object, most: int = 80) -> str:
    """Return text that another party wrote as it may be shown, logged and sent on: one line, printable, short.

    Args:
        most: characters; what is longer ends in ``...``.
    """
    read = bytes(text[: 4 * most]).decode(errors="replace") if isinstance(text, bytes | memoryview) else str(text)
    short = read if len(read) <= most else read[: most - 3] + "..."
    return "".join(char if char.isprintable() else "?" for char in short)


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the message for a name that is not in a list: what was given, a near one, all known ones."""
    names = sorted(known)
    return f"unknown {kind} {name!r}{suggestion(name, names)}; known: {', '.join(names) or 'none'}"


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return the end of a message that suggests the nearest known name; empty where none is near."""
    near = get_close_matches(name, list(known), n=1, cutoff=LEAST_LIKENESS) if isinstance(name, str) else []
    return f" (did you mean {near[0]!r}?)" if near else ""


def number_code(value: object, *, whole: bool = False) -> Code:
    """Return the code for what should be a number within bounds and is not: ``"type"`` where it is no number at all."""
    kind = int if whole else int | float
    return "range" if isinstance(value, kind) and not isinstance(value, bool) else "type"
