"""Issuing: an authority, certificates of parties, and requests to the authority of a company."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from labelward.errors import CertificateError
from labelward.transport.certificates.identity import URI_PREFIX, addresses_of, check_party_name, party_of
from labelward.transport.certificates.pem import PrivateKey, check_key, format_time, read_private_key, read_request
from labelward.transport.certificates.verification import AUTHORITY_FILE, read_authorities

AUTHORITY_DAYS = 3650
_SKEW = timedelta(hours=1)
"""How far what is made is dated back: the clocks of two companies differ."""
_MOST_DAYS = 36_500
_LONGEST_NAME = 64
_LONGEST_HOST = 253
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


@dataclass(frozen=True, kw_only=True)
class Issued:
    """A certificate, or a request for one, and its private key: both PEM, the key PKCS #8 without a passphrase."""

    certificate: bytes
    key: bytes = field(repr=False)


def new_authority(*, name: str | None = None, days: int = AUTHORITY_DAYS, now: datetime | None = None) -> Issued:
    """Make an authority that signs certificates of parties, and no authorities below it (ECDSA P-256).

    Args:
        name: its common name; None: one with a random end, so that no two authorities are called the same.
    """
    name = f"labelward authority {secrets.token_hex(3)}" if name is None else name
    if not 0 < len(name) <= _LONGEST_NAME:
        raise CertificateError(
            f"the name of an authority has 1 to {_LONGEST_NAME} characters but got {name!r}", code="range", value=name
        )
    key, now = ec.generate_private_key(ec.SECP256R1()), _seconds(now)
    end = now + timedelta(days=_checked(days))
    builder = _builder(_called(name), _called(name), key.public_key(), now - _SKEW, end)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
    return Issued(certificate=_pem(builder.sign(key, SHA256())), key=_key_pem(key))


def new_party(
    authority: Issued, party: str, *, addresses: Sequence[str] = (), days: int = 365, now: datetime | None = None
) -> Issued:
    """Make a key and a certificate for a party, for connecting and for listening (ECDSA P-256).

    Args:
        addresses: DNS names and IPs under which it will listen.
        days: how long it is valid; no longer than the authority.

    Raises:
        CertificateError: a name or address that cannot be, or the authority ends earlier.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    signed = _signed(authority, key.public_key(), _names(party, addresses), party, days, now)
    return Issued(certificate=signed, key=_key_pem(key))


def new_request(party: str, *, addresses: Sequence[str] = ()) -> Issued:
    """Make a key (ECDSA P-256) and a request that an authority sign its certificate."""
    names, key = _names(party, addresses), ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_called(party))
    builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(_usage("digital_signature"), critical=True)
    builder = builder.add_extension(_both_uses(), critical=False)
    return Issued(certificate=_pem(builder.sign(key, SHA256())), key=_key_pem(key))


def sign_request(
    authority: Issued,
    request: bytes,
    party: str,
    *,
    addresses: Sequence[str] = (),
    days: int = 365,
    now: datetime | None = None,
    where: str = "the request",
) -> bytes:
    """Return the certificate (PEM) that a party asked for with a request (PEM).

    Nothing of the request is taken over but its key, the party's name and the addresses.

    Args:
        addresses: further DNS names and IPs.
        where: how messages call the request.

    Raises:
        CertificateError: it is damaged, asks for another party's name, or has a weak key.
    """
    read = read_request(request, where)
    check_key(read.public_key(), where)
    named = party_of(read, where=where)
    if named != party:
        raise CertificateError(
            f"asks for a certificate of {named!r}, where {party!r} is wanted", code="identity", field=where, value=named
        )
    key = read.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)
    names = _names(party, list(dict.fromkeys([*addresses_of(read), *addresses])))
    return _signed(authority, key, names, party, days, now)


def _signed(
    authority: Issued, key: _PublicKey, names: x509.SubjectAlternativeName, party: str, days: int, now: datetime | None
) -> bytes:
    signer, private, now = *_authority(authority), _seconds(now)
    begin, end = max(now - _SKEW, signer.not_valid_before_utc), now + timedelta(days=_checked(days))
    if end > signer.not_valid_after_utc:
        left = max(0, (signer.not_valid_after_utc - now).days)
        reason = (
            f"the authority ends on {format_time(signer.not_valid_after_utc)}, in {left} days; "
            f"what it signs cannot be valid for {days} days"
        )
        raise CertificateError(reason, code="range", field=AUTHORITY_FILE, value=days)
    builder = _builder(_called(party), signer.subject, key, begin, end)
    builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage("digital_signature"), critical=True)
    builder = builder.add_extension(_both_uses(), critical=False)
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())  # type: ignore[arg-type]
    return _pem(builder.add_extension(above, critical=False).sign(private, SHA256()))


def _authority(authority: Issued) -> tuple[x509.Certificate, PrivateKey]:
    certificate = read_authorities(authority.certificate, AUTHORITY_FILE)[0]
    private = read_private_key(authority.key, "authority.key")
    if private.public_key() != certificate.public_key():
        raise CertificateError(f"does not belong to {AUTHORITY_FILE}", code="key", field="authority.key")
    return certificate, private


def _builder(
    subject: x509.Name, issuer: x509.Name, key: _PublicKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _names(party: str, addresses: Sequence[str]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(URI_PREFIX + check_party_name(party))]
    return x509.SubjectAlternativeName([*names, *map(_address, addresses)])


def _address(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text.strip("[]")))
    except ValueError:
        pass
    labels = text.split(".")
    if len(text) <= _LONGEST_HOST and all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdigit():
        return x509.DNSName(text.lower())
    hint = " (without the port)" if ":" in text else ""
    raise CertificateError(
        f"an address must be a DNS name such as bank.example, or an IP{hint}, but got {text!r}", code="type", value=text
    )


def _checked(days: int) -> int:
    if not 1 <= days <= _MOST_DAYS:
        raise CertificateError(
            f"a certificate is valid for 1 to {_MOST_DAYS} days but got {days}", code="range", value=days
        )
    return days


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*uses: str) -> x509.KeyUsage:
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    known = (*others, "digital_signature", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**{use: use in uses for use in known})


def _both_uses() -> x509.ExtendedKeyUsage:
    return x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])


def _seconds(now: datetime | None) -> datetime:
    return (now or datetime.now(UTC)).replace(microsecond=0)


def _pem(made: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    return made.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
