"""PEM: reading certificates, keys and requests, with the reason if a file is something else."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.utils import CryptographyDeprecationWarning

from labelward.errors import CertificateError

LEAST_RSA_BITS = 2048
_MOST_CERTIFICATES = 64
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----[^-]*(?:-----END \1-----)?")
_WHOLE = re.compile(rb"-----END [A-Z0-9 ]+-----\Z")
_NAMES = {
    "CERTIFICATE": "a certificate",
    "CERTIFICATE REQUEST": "a signing request",
    "NEW CERTIFICATE REQUEST": "a signing request",
    "PRIVATE KEY": "a private key",
    "EC PRIVATE KEY": "a private key",
    "RSA PRIVATE KEY": "a private key",
    "ENCRYPTED PRIVATE KEY": "a private key",
    "PUBLIC KEY": "a public key",
}
_WARNINGS = threading.Lock()
"""What is done with warnings is one setting of the whole process."""
_CANNOT_BE_READ = (
    CryptographyDeprecationWarning,
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
    x509.InvalidVersion,
)

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
T = TypeVar("T")


def read_certificates(pem: bytes, where: str) -> list[x509.Certificate]:
    """Return the certificates of a PEM text, at least one, each of them wholly readable.

    Raises:
        CertificateError: no certificate, something else beside it, or damage; begins with ``where``.
    """
    blocks = _blocks(pem, "a certificate", where)
    if len(blocks) > _MOST_CERTIFICATES:
        reason = f"holds {len(blocks)} certificates; at most {_MOST_CERTIFICATES} are read"
        raise CertificateError(reason, code="range", field=where, value=len(blocks))
    found = [_parsed(x509.load_pem_x509_certificate, block, where) for block in blocks]
    for each in found:
        _parsed(_read_all, each, where)
    return found


def read_request(pem: bytes, where: str) -> x509.CertificateSigningRequest:
    """Return the signing request of a PEM text; :class:`CertificateError` where there is none, or a damaged one."""
    blocks = _blocks(pem, "a signing request", where)
    found = _parsed(x509.load_pem_x509_csr, blocks[0], where)
    _parsed(lambda request: (request.subject, request.extensions, request.public_key()), found, where)
    if not _parsed(lambda request: request.is_signature_valid, found, where):
        raise CertificateError(
            "is not signed by its own key; it is damaged, or not the sender's own", code="damaged", field=where
        )
    return found


def read_private_key(pem: bytes, where: str) -> PrivateKey:
    """Return the private key of a PEM text.

    Raises:
        CertificateError: no key, one that is damaged, weak, of another kind, or locked with a passphrase.
    """
    blocks = _blocks(pem, "a private key", where)
    if len(blocks) > 1:
        raise CertificateError(
            f"holds {len(blocks)} private keys; one is wanted", code="range", field=where, value=len(blocks)
        )
    if b"ENCRYPTED" in blocks[0]:
        reason = (
            "is encrypted with a passphrase, which an unattended run cannot enter; store it without a passphrase, in a "
            "folder that only its owner can open"
        )
        raise CertificateError(reason, code="unsupported", field=where)
    found = _parsed(lambda block: load_pem_private_key(block, None), blocks[0], where)
    check_key(found.public_key(), where)
    assert isinstance(found, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
    return found


def check_key(key: Any, where: str) -> None:
    """Raise :class:`CertificateError` for a public key that is weak or that not every peer could use."""
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < LEAST_RSA_BITS:
            reason = f"weak key, RSA of {key.key_size} bits; at least {LEAST_RSA_BITS} are wanted"
            raise CertificateError(reason, code="key", field=where, value=key.key_size)
    elif not isinstance(key, ec.EllipticCurvePublicKey):
        kind = type(key).__name__.removesuffix("PublicKey").lstrip("_")
        raise CertificateError(
            f"a key of kind {kind}; ECDSA (P-256, P-384) and RSA can be used", code="key", field=where, value=kind
        )
    elif not isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1):
        reason = f"a key on the curve {key.curve.name}; P-256 and P-384 can be used"
        raise CertificateError(reason, code="key", field=where, value=key.curve.name)


def certificate_title(name: x509.Name) -> str:
    """Return how a person would call a subject or issuer: its common name, else all of it, quoted."""
    common = name.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return repr(common[0].value if common else name.rfc4514_string())


def format_time(time: datetime) -> str:
    """Return a time to the minute, such as ``2026-11-21 18:46 UTC``."""
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _blocks(pem: bytes, wanted: str, where: str) -> list[bytes]:
    """Return the PEM blocks of the wanted kind; anything else beside them is refused."""
    found: list[bytes] = []
    for match in _BLOCK.finditer(pem):
        label = match[1].decode()
        if label == "EC PARAMETERS":
            continue
        kind = _NAMES.get(label, f"a block of kind {label}")
        if kind != wanted:
            beside = " as well; keep them in files of their own" if found else f", where {wanted} is wanted"
            raise CertificateError(f"holds {kind}{beside}", code="foreign", field=where, value=kind)
        if not _WHOLE.search(match[0]):
            raise CertificateError("is damaged: a block begins and does not end", code="damaged", field=where)
        found.append(match[0])
    if not found:
        raise CertificateError(f"{_instead(pem)}, where {wanted} is wanted", code="foreign", field=where)
    return found


def _instead(pem: bytes) -> str:
    if not pem.strip():
        return "is empty"
    if pem[:1] == b"\x30":
        return "is in binary form (DER) and not in PEM"
    return "is damaged or no PEM file (no line -----BEGIN ...-----)"


def _parsed(read: Callable[[Any], T], what: Any, where: str) -> T:
    try:
        with _WARNINGS, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # such as a country of more than two letters
            warnings.simplefilter("error", CryptographyDeprecationWarning)  # such as a serial number of zero
            return read(what)
    except _CANNOT_BE_READ as error:
        reason = " ".join(str(error).split())
        raise CertificateError(
            f"is damaged or of a kind that cannot be read ({reason})", code="damaged", field=where
        ) from error


def _read_all(certificate: x509.Certificate) -> None:
    """Read every part that is looked at later: parsing is lazy, and peers may present anything."""
    _ = (certificate.subject.rfc4514_string(), certificate.issuer.rfc4514_string(), list(certificate.extensions))
    _ = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    _ = (certificate.public_key(), certificate.signature_hash_algorithm)
    if certificate.public_bytes(Encoding.DER)[-1 - len(certificate.signature)]:
        raise ValueError("its signature has unused bits")  # parsers ignore them, fingerprints do not
