"""Credentials: certificate, key and authority of a party in a folder, loaded for a run or examined for a report."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Literal, TypeVar

from cryptography import x509

from labelward.errors import CertificateError
from labelward.transport.certificates import pem, verification
from labelward.transport.certificates.identity import (
    addresses_of,
    check_address,
    check_party_name,
    fingerprint,
    fingerprints,
    party_of,
)

REFUSED_FILE = "refused.txt"
"""Optional file of fingerprints, one a line, of certificates that are believed no longer."""
SOON_DAYS = 30
"""From when on the end of a certificate is worth a note."""
FINGERPRINT = re.compile("[0-9a-f]{64}")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """What a party shows, and whom it believes; all PEM."""

    party: str
    chain: bytes  # its own certificate first, then what leads to the authority
    key: bytes = field(repr=False)  # its private key, without a passphrase; never shown nor stored anywhere else
    authority: bytes  # the certificates that it trusts, one or several
    pinned: frozenset[str] = frozenset()  # fingerprints of the only certificates that are believed; empty: any
    refused: frozenset[str] = frozenset()  # fingerprints of certificates that are believed no longer
    folder: Path | None = None  # where they were read

    @classmethod
    def load(
        cls, folder: Path, party: str, *, pinned: frozenset[str] = frozenset(), now: datetime | None = None
    ) -> Credentials:
        """Read ``NAME.crt``, ``NAME.key``, ``authority.crt`` and ``refused.txt`` of a folder, and check that they fit.

        Args:
            pinned: fingerprints of the certificates that are believed; empty: of all that the authority signed.
            now: with a time zone; the present.

        Raises:
            CertificateError: the first thing that is wrong; names the file.
        """
        for finding in examine_credentials(folder, party, now=now):
            if finding.error is not None:
                raise finding.error
        return cls(
            party=party,
            chain=_content(folder / f"{party}.crt"),
            key=_content(folder / f"{party}.key"),
            authority=_content(folder / verification.AUTHORITY_FILE),
            pinned=pinned,
            refused=read_refused(folder / REFUSED_FILE),
            folder=folder,
        )

    def verify(self, chain: bytes, party: str | None, *, use: verification.Use | None = None) -> x509.Certificate:
        """Return the certificate of a peer that this party believes; as :func:`.verification.verify_peer` with its
        authorities, and what it pins and refuses.

        Raises:
            CertificateError: the certificate is not believed, is none of those pinned, or is refused.
        """
        found = verification.verify_peer(chain, self.authority, party, use=use)
        seen = fingerprint(found)
        where = f"the certificate {seen[:16]} of {party_of(found)!r}"
        if self.refuses(found):
            raise CertificateError(f"is listed in {REFUSED_FILE}", code="identity", field=where, value=seen)
        if self.pinned and seen not in self.pinned:
            reason = "is none of those in [network] pinned of the job"
            raise CertificateError(reason, code="identity", field=where, value=seen)
        return found

    def refuses(self, certificate: x509.Certificate) -> bool:
        """Return whether a certificate, or one that anybody can make of it, is believed no longer."""
        return bool(self.refused) and not self.refused.isdisjoint(fingerprints(certificate))

    @property
    def certificate(self) -> x509.Certificate:
        """The party's own certificate."""
        return pem.read_certificates(self.chain, f"the certificate of {self.party!r}")[0]


def days_left(certificate: x509.Certificate, *, now: datetime | None = None) -> int | None:
    """Return for how many days a certificate is still valid, if they are fewer than ``SOON_DAYS``."""
    left = (certificate.not_valid_after_utc - (now or datetime.now(UTC))).days
    return left if 0 <= left < SOON_DAYS else None


@dataclass(frozen=True)
class CredentialFinding:
    """One thing that was looked at: ``"right"``, ``"wrong"``, or a ``"note"`` that may or may not matter."""

    kind: Literal["right", "wrong", "note"]
    text: str
    error: CertificateError | None = None  # what is wrong, as data


def examine_credentials(
    folder: Path, party: str, *, addresses: Sequence[str] = (), now: datetime | None = None
) -> list[CredentialFinding]:
    """Look at all that a party needs in a folder, and go on after what is wrong.

    Args:
        addresses: DNS names and IPs, without port, under which others will connect to it.
        now: with a time zone; the present.

    Raises:
        CertificateError: the folder is none, or the name cannot be a party's; all else is a finding.
    """
    check_party_name(party)
    if not folder.is_dir():
        reason = f"{'is a file' if folder.exists() else 'no such folder'}; a folder is wanted"
        raise CertificateError(reason, code="not-found", field=str(folder))
    now, found = now or datetime.now(UTC), list[CredentialFinding]()
    files = [folder / f"{party}.crt", folder / f"{party}.key", folder / verification.AUTHORITY_FILE]

    def tried(check: Callable[[], tuple[str, T]]) -> T | None:
        try:
            text, value = check()
        except CertificateError as error:
            found.append(CredentialFinding("wrong", str(error), error))
            return None
        found.append(CredentialFinding("right", text))
        return value

    chain = tried(lambda: _read_chain(files[0], party))
    key = tried(lambda: _read_key(files[1]))
    trusted = tried(lambda: _read_authorities(files[2]))
    if chain:
        leaf, where = chain[0], str(files[0])
        if key:
            tried(lambda: _check_pair(leaf, key, files))
        if trusted:
            tried(lambda: _check_trust(chain, trusted, where, now))
        for check in (_check_time, _check_use):
            tried(lambda check=check: check(leaf, where, now, bool(addresses)))  # type: ignore[misc]
        for address in addresses:
            tried(lambda address=address: _check_address(leaf, address, where))  # type: ignore[misc]
        found += _notes_on(leaf, where, now, bool(addresses))
    return [*found, *_notes_on_folder(folder, party, trusted or [])]


def read_refused(path: Path) -> frozenset[str]:
    """Return the fingerprints of a file, one a line, with or without colons; text after ``#`` is a comment.

    Raises:
        CertificateError: a line is no SHA-256 fingerprint; names it.
    """
    lines = _refused_lines(path)
    for number, text in lines:
        if not FINGERPRINT.fullmatch(text):
            reason = f"line {number} is no fingerprint (SHA-256, 64 hexadecimal digits)"
            raise CertificateError(reason, code="type", field=str(path), value=number)
    return frozenset(text for _, text in lines)


def readable_refused(path: Path) -> frozenset[str]:
    """Return those lines of such a file that are fingerprints; empty where it cannot be read."""
    try:
        return frozenset(text for _, text in _refused_lines(path) if FINGERPRINT.fullmatch(text))
    except CertificateError:
        return frozenset()


def _refused_lines(path: Path) -> list[tuple[int, str]]:
    if not path.exists():
        return []
    lines = enumerate(_content(path).decode(errors="replace").splitlines(), 1)
    texts = [(number, line.partition("#")[0].replace(":", "").strip().lower()) for number, line in lines]
    return [(number, text) for number, text in texts if text]


def _read_chain(path: Path, party: str) -> tuple[str, list[x509.Certificate]]:
    chain = pem.read_certificates(_content(path), str(path))
    pem.check_key(chain[0].public_key(), str(path))
    verification.check_certificate_party(chain[0], party, str(path))
    return f"{path}: names {party!r}; fingerprint (SHA-256) {fingerprint(chain[0])}", chain


def _read_key(path: Path) -> tuple[str, pem.PrivateKey]:
    content = _content(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    key = pem.read_private_key(content, str(path))
    if mode & 0o077:
        reason = f"is readable by others than its owner (mode {mode:04o}); run `chmod 600`"
        raise CertificateError(reason, code="insecure", field=str(path), value=mode)
    return f"{path}: a strong key that only its owner can read", key


def _read_authorities(path: Path) -> tuple[str, list[x509.Certificate]]:
    trusted = verification.read_authorities(_content(path), str(path))
    for changed in (path, path.parent):
        if changed.stat().st_mode & stat.S_IWOTH:
            raise CertificateError(
                "is writable by everybody on this machine, who could replace the trusted authority; run `chmod o-w`",
                code="insecure",
                field=str(changed),
            )
    return f"{path}: trusts {', '.join(pem.certificate_title(each.subject) for each in trusted)}", trusted


def _check_pair(leaf: x509.Certificate, key: pem.PrivateKey, files: Sequence[Path]) -> tuple[str, None]:
    if key.public_key() != leaf.public_key():
        raise CertificateError(
            f"does not belong to {files[0]}: it is the key of another certificate", code="key", field=str(files[1])
        )
    return f"{files[1]}: belongs to {files[0].name}", None


def _check_trust(
    chain: Sequence[x509.Certificate], trusted: Sequence[x509.Certificate], where: str, now: datetime
) -> tuple[str, None]:
    authority = verification.check_trust(chain, trusted, where, now=now)
    return f"{where}: signed by {pem.certificate_title(authority.subject)} of {verification.AUTHORITY_FILE}", None


def _check_time(leaf: x509.Certificate, where: str, now: datetime, listens: bool) -> tuple[str, None]:
    left = ceil(verification.check_time(leaf, where, now=now) / timedelta(days=1))
    end, days = pem.format_time(leaf.not_valid_after_utc), f"{left} {'day' if left == 1 else 'days'} left"
    return f"{where}: valid until {end}, {days}", None


def _check_use(leaf: x509.Certificate, where: str, now: datetime, listens: bool) -> tuple[str, None]:
    verification.check_use(leaf, "server" if listens else None, where)
    ways = " and ".join({"client": "connect", "server": "listen"}[use] for use in sorted(verification.uses_of(leaf)))
    return f"{where}: may be used to {ways}", None


def _check_address(leaf: x509.Certificate, address: str, where: str) -> tuple[str, None]:
    check_address(leaf, address, where=where)
    return f"{where}: is for {address}", None


def _notes_on(leaf: x509.Certificate, where: str, now: datetime, listens: bool) -> Iterator[CredentialFinding]:
    if days_left(leaf, now=now) is not None:
        yield CredentialFinding("note", f"{where}: ends soon; ask for the next one now")
    if listens:
        return
    uses, listed = verification.uses_of(leaf), addresses_of(leaf)
    if uses == {"server"}:
        yield CredentialFinding("note", f"{where}: only for the party that listens; it cannot connect to others")
    elif uses == {"client"}:
        yield CredentialFinding("note", f"{where}: only for a party that connects; it cannot listen")
    elif listed:
        yield CredentialFinding("note", f"{where}: others can connect to it as {', '.join(listed)}")
    else:
        yield CredentialFinding(
            "note", f"{where}: names no address: right for a party that connects, wrong for the one that listens"
        )


def _notes_on_folder(folder: Path, party: str, trusted: Sequence[x509.Certificate]) -> Iterator[CredentialFinding]:
    if len(trusted) > 1:
        yield CredentialFinding(
            "note",
            f"{folder / verification.AUTHORITY_FILE}: trusts {len(trusted)} authorities; each can name any party",
        )
    for path in sorted(folder.glob("*.key")):
        if path.name == "authority.key":
            yield CredentialFinding("note", f"{path}: whoever has it can be any party; keep it on a machine of its own")
        elif path.name != f"{party}.key":
            yield CredentialFinding("note", f"{path}: is the key of another party, which nobody else should have")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise CertificateError(f"no such file{_hint(path)}", code="not-found", field=str(path)) from error
    except OSError as error:
        raise CertificateError(f"cannot be read ({error.strerror})", code="unreadable", field=str(path)) from error


def _hint(path: Path) -> str:
    """Return what may have happened to a file that is not there."""
    request = path.with_suffix(".csr")
    if path.suffix == ".crt" and request.exists():
        return f"; {request.name} waits for its authority, whose answer belongs here"
    others = sorted(
        each.name for each in path.parent.glob(f"*{path.suffix}") if each.name != verification.AUTHORITY_FILE
    )
    return f"; the folder holds {', '.join(others)}" if others and path.name != verification.AUTHORITY_FILE else ""
