"""Identity in a certificate: party, addresses, fingerprint."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.serialization import Encoding

from labelward.errors import CertificateError

URI_PREFIX = "labelward:party:"
_ECDSA = "1.2.840.10045.4."
_BIT_STRING, _SEQUENCE = 0x03, 0x30
_ORDERS = (
    0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973,
    (1 << 521) - 0x5AE79787C40D069948033FEB708F65A2FC44A36477663B851449048E16EC79BF7,
)
"""Of the points of P-256, P-384 and P-521."""
_PARTY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def check_party_name(name: str) -> str:
    """Return a name that a party with certificates may have; :class:`CertificateError` for another."""
    if not _PARTY.fullmatch(name):
        raise CertificateError(
            f"a party's name must be a letter, then letters, digits, '_' or '-', at most 64 in all, but got {name!r}",
            code="type",
            value=name,
        )
    if name.lower() == "authority":
        reason = f"a party that has certificates cannot be called {name!r}: authority.crt is another file"
        raise CertificateError(reason, code="conflict", value=name)
    return name


def party_of(certificate: x509.Certificate | x509.CertificateSigningRequest, *, where: str = "the certificate") -> str:
    """Return the party that a certificate or a request names.

    It stands as ``labelward:party:NAME`` among the alternative names (URI), or else as the common name.

    Raises:
        CertificateError: neither, several, or what cannot be a party's name.
    """
    uris = [uri for uri in _alternatives(certificate, x509.UniformResourceIdentifier) if uri.startswith(URI_PREFIX)]
    names = [uri.removeprefix(URI_PREFIX) for uri in uris]
    if not names:
        names = [str(each.value) for each in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    if not names:
        raise CertificateError(
            f"names no party, neither as {URI_PREFIX}NAME nor as its common name", code="identity", field=where
        )
    if len(names) > 1:
        reason = f"names {len(names)} parties: {', '.join(map(repr, names))}"
        raise CertificateError(reason, code="identity", field=where, value=tuple(names))
    if not _PARTY.fullmatch(names[0]):
        raise CertificateError(
            f"names no party: {names[0]!r} cannot be the name of one", code="identity", field=where, value=names[0]
        )
    return names[0]


def addresses_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> tuple[str, ...]:
    """Return the DNS names and then the IP addresses under which the holder can be reached."""
    names = _alternatives(certificate, x509.DNSName)
    return (*names, *map(str, _alternatives(certificate, x509.IPAddress)))


def check_address(certificate: x509.Certificate, host: str, *, where: str = "the certificate") -> None:
    """Raise :class:`CertificateError` where a host, a DNS name or an IP without a port, is none of a certificate's.

    TLS checks the same when it connects; here are the words for it. A common name counts for nothing.
    """
    listed = addresses_of(certificate)
    wanted = _ip(host.strip("[]"))
    if wanted is not None:
        found = any(_ip(each) == wanted for each in listed)
    else:
        found = any(_covers(each.lower(), host.lower().rstrip(".")) for each in listed)
    if not found:
        port = "; give the host without its port" if wanted is None and ":" in host else ""
        named = f"is for {', '.join(listed)}" if listed else "names no address"
        raise CertificateError(
            f"{named}, so that nobody can connect to it as {host!r}{port}", code="identity", field=where, value=host
        )


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate as 64 hex digits, as ``openssl x509 -fingerprint -sha256`` has it."""
    return certificate.fingerprint(SHA256()).hex()


def fingerprints(certificate: x509.Certificate) -> frozenset[str]:
    """Return the fingerprint of a certificate, and those of others that anybody can make of it.

    With an ECDSA signature ``(r, s)`` of an authority, ``(r, n - s)`` is valid, too, whatever the holder of the
    certificate knows. A list of refused certificates means both.
    """
    found = {fingerprint(certificate)}
    if not certificate.signature_algorithm_oid.dotted_string.startswith(_ECDSA):
        return frozenset(found)
    r, s = decode_dss_signature(certificate.signature)
    der, signed = certificate.public_bytes(Encoding.DER), certificate.tbs_certificate_bytes
    head = 2 + (der[1] & 0x7F if der[1] & 0x80 else 0)
    algorithm = der[head + len(signed) : len(der) - len(_tagged(_BIT_STRING, b"\0" + certificate.signature))]
    for order in _ORDERS:
        if 0 < s < order:
            other = _tagged(_BIT_STRING, b"\0" + encode_dss_signature(r, order - s))
            digest = Hash(SHA256())
            digest.update(_tagged(_SEQUENCE, signed + algorithm + other))
            found.add(digest.finalize().hex())
    return frozenset(found)


def _tagged(tag: int, content: bytes) -> bytes:
    """Return content as DER has it, with its tag and length."""
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    size = (length.bit_length() + 7) // 8
    return bytes((tag, 0x80 | size)) + length.to_bytes(size, "big") + content


def _ip(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _covers(pattern: str, host: str) -> bool:
    """Whether a DNS name is a certificate's; a wildcard stands for one whole first label."""
    if pattern.startswith("*."):
        return host.partition(".")[2] == pattern[2:] and not host.startswith(".")
    return host == pattern


def _alternatives(
    certificate: x509.Certificate | x509.CertificateSigningRequest,
    kind: type[x509.UniformResourceIdentifier] | type[x509.DNSName] | type[x509.IPAddress],
) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(each) for each in names.get_values_for_type(kind)]
