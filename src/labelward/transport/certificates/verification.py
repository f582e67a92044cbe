"""Verification of certificates: trust, time, party and use, with a reason that says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import Criticality, ExtensionPolicy, Policy, PolicyBuilder, Store, VerificationError

from labelward.errors import CertificateError, Code
from labelward.transport.certificates.identity import party_of
from labelward.transport.certificates.pem import certificate_title, check_key, format_time, read_certificates

AUTHORITY_FILE = "authority.crt"
_OIDS = {"client": ExtendedKeyUsageOID.CLIENT_AUTH, "server": ExtendedKeyUsageOID.SERVER_AUTH}
_ROLES = {"client": "connect to others", "server": "listen"}
_OLD_HASHES = ("md5", "sha1")

Use = Literal["client", "server"]


def verify_peer(
    chain: bytes,
    authority: bytes,
    party: str | None,
    *,
    use: Use | None = None,
    where: str | None = None,
    now: datetime | None = None,
) -> x509.Certificate:
    """Return the first certificate of a chain if it may be believed to be a party's.

    Args:
        chain: PEM as it was presented, the party's own first, then what leads to the authority.
        authority: PEM of the authorities that are trusted.
        party: whose it must be; None: anybody's.
        use: what it must allow its holder to be in TLS; None: a client, a server or both.
        where: how messages call it.
        now: with a time zone; the present.

    Raises:
        CertificateError: one thing that is wrong, and when or with whom.
    """
    where = where or (f"the certificate of {party!r}" if party else "the peer's certificate")
    certificates = read_certificates(chain, where)
    leaf, now = certificates[0], now or datetime.now(UTC)
    check_key(leaf.public_key(), where)
    check_trust(certificates, read_authorities(authority, AUTHORITY_FILE), where, now=now)
    check_time(leaf, where, now=now)
    check_certificate_party(leaf, party, where)
    check_use(leaf, use, where)
    return leaf


def read_authorities(pem: bytes, where: str) -> list[x509.Certificate]:
    """Return the certificates of a PEM text, each of which must be an authority's."""
    found = read_certificates(pem, where)
    for each in found:
        if not may_sign(each):
            reason = f"{certificate_title(each.subject)} is no authority: its certificate may not sign others"
            raise CertificateError(reason, code="identity", field=where, value=certificate_title(each.subject))
    return found


def may_sign(certificate: x509.Certificate) -> bool:
    """Return whether a certificate is an authority's."""
    extensions = certificate.extensions
    try:
        if not extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        return extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound as missing:
        return missing.oid == x509.KeyUsage.oid


def check_trust(
    chain: Sequence[x509.Certificate], trusted: Sequence[x509.Certificate], where: str, *, now: datetime
) -> x509.Certificate:
    """Return the trusted authority to which a chain leads.

    It is judged at ``now`` or, outside its first certificate's time, at the nearest moment within: that the time is
    over is for :func:`check_time` to say.

    Raises:
        CertificateError: it leads to none of them.
    """
    leaf, above = chain[0], list(chain[1:])
    if may_sign(leaf):
        reason = f"is the certificate of an authority, {certificate_title(leaf.subject)}, not of a party"
        raise CertificateError(reason, code="identity", field=where, value=certificate_title(leaf.subject))
    at = min(max(now, leaf.not_valid_before_utc), leaf.not_valid_after_utc)
    ca = ExtensionPolicy.permit_all().require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _is_authority)
    ca = ca.may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _signs)
    builder = PolicyBuilder().store(Store(list(trusted))).time(at)
    builder = builder.extension_policies(ca_policy=ca, ee_policy=ExtensionPolicy.permit_all())
    try:
        return builder.build_client_verifier().verify(leaf, above).chain[-1]
    except (VerificationError, ValueError) as error:
        reason = str(error).partition(" (encountered")[0]  # a sentence of cryptography's, without its internals
        code, why = _distrusted(leaf, above, trusted, at) or ("identity", f"is not believed: {reason}")
        raise CertificateError(why, code=code, field=where) from error


def check_time(certificate: x509.Certificate, where: str, *, now: datetime) -> timedelta:
    """Return how long a certificate is still valid; :class:`CertificateError` outside its time."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise CertificateError(
            f"expired on {format_time(end)}; here it is {format_time(now)}", code="expired", field=where, value=end
        )
    if now < begin:
        reason = (
            f"valid only from {format_time(begin)}, and here it is {format_time(now)}: "
            "is a clock wrong, here or where it was made?"
        )
        raise CertificateError(reason, code="expired", field=where, value=begin)
    return end - now


def check_certificate_party(certificate: x509.Certificate, party: str | None, where: str) -> str:
    """Return the party that a certificate names; :class:`CertificateError` where it is not the one that is wanted."""
    named = party_of(certificate, where=where)
    if party is not None and named != party:
        raise CertificateError(f"names {named!r}, where {party!r} is wanted", code="identity", field=where, value=named)
    return named


def check_use(certificate: x509.Certificate, use: Use | None, where: str) -> None:
    """Raise :class:`CertificateError` where a certificate may not be used in TLS as is wanted."""
    allowed = uses_of(certificate)
    lacking = [use] if use else ["client", "server"]
    if not allowed.intersection(lacking):
        words = " and ".join(f"'{each} authentication' (needed to {_ROLES[each]})" for each in lacking)
        raise CertificateError(f"lacks the use {words}", code="unsupported", field=where, value=tuple(lacking))


def uses_of(certificate: x509.Certificate) -> set[Use]:
    """Return as what a certificate may be used in TLS; one that does not say so may be used as both."""
    both: set[Use] = {"client", "server"}
    extensions = certificate.extensions
    for extension in extensions:
        if isinstance(extension.value, x509.KeyUsage) and not extension.value.digital_signature:
            return set()
    try:
        listed = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return both
    return {each for each in both if _OIDS[each] in listed}


def _distrusted(
    leaf: x509.Certificate, above: list[x509.Certificate], trusted: Sequence[x509.Certificate], at: datetime
) -> tuple[Code, str] | None:
    """Return why a chain leads to no trusted authority, following it upward; None where it seems to."""
    known = ", ".join(sorted({certificate_title(each.subject) for each in trusted}))
    current, left = leaf, list(above)
    while True:
        whose = "" if current is leaf else f"the authority {certificate_title(current.subject)} that stands above it "
        algorithm = current.signature_hash_algorithm
        if algorithm is not None and algorithm.name in _OLD_HASHES:
            reason = f"{whose}is signed with {algorithm.name.upper()}, which can be forged; SHA-256 is wanted"
            return "insecure", reason
        signer = next((each for each in trusted if _signed(current, each)), None)
        if signer is not None:
            return _ended(signer, at, f"{AUTHORITY_FILE}: the authority ")
        step = next((each for each in left if _signed(current, each) and not _signed(each, each)), None)
        if step is None:
            return "identity", f"{whose}{_stranger(current, trusted, known)}"
        if ended := _ended(step, at, "the authority "):
            return ended
        left.remove(step)
        current = step


def _stranger(certificate: x509.Certificate, trusted: Sequence[x509.Certificate], known: str) -> str:
    if _signed(certificate, certificate):
        return f"is self-signed; it must be signed by an authority of {AUTHORITY_FILE} ({known})"
    issuer = certificate_title(certificate.issuer)
    if any(each.subject == certificate.issuer for each in trusted):
        return (
            f"was not signed by the {issuer} of {AUTHORITY_FILE}, though it says so: "
            "was the authority made anew, and one of the two files left from before, or is this one damaged?"
        )
    return f"is signed by an authority that is not in {AUTHORITY_FILE}: by {issuer}, where {known} is trusted"


def _ended(authority: x509.Certificate, at: datetime, what: str) -> tuple[Code, str] | None:
    try:
        check_key(authority.public_key(), what + certificate_title(authority.subject))
        check_time(authority, what + certificate_title(authority.subject), now=at)
    except CertificateError as error:
        return error.code, str(error)
    return None


def _signed(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _is_authority(policy: Policy, certificate: x509.Certificate, extension: x509.BasicConstraints) -> None:
    if not extension.ca:
        raise ValueError("no authority")


def _signs(policy: Policy, certificate: x509.Certificate, extension: x509.KeyUsage | None) -> None:
    if extension is not None and not extension.key_cert_sign:
        raise ValueError("may not sign certificates")
