"""A company's own authority, as other software makes it: RSA, an authority between, names in the common name only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
"""When the certificates of the tests are looked at, so that no test depends on the day."""
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


@dataclass(frozen=True)
class Holder:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: Any

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def p256() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def certified(
    name: str,
    *,
    by: Holder | None = None,
    key: Any = None,
    authority: bool = False,
    days: tuple[int, int] = (-10, 300),
    uses: Sequence[x509.ObjectIdentifier] | None = None,
    extensions: Sequence[tuple[x509.ExtensionType, bool]] = (),
) -> Holder:
    """Make a certificate; by nobody: self-signed. ``days``: from when until when, as seen from ``NOW``."""
    key = key or p256()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer = by.certificate.subject if by else subject
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(NOW + timedelta(days[0])).not_valid_after(NOW + timedelta(days[1]))
    if authority:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=False)
    if uses is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(uses)), critical=False)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    signer = by.key if by else key
    return Holder(builder.sign(signer, SHA256()), key)


def party_uri(*names: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"labelward:party:{name}") for name in names])
