"""Signatures with the key of a certificate, which bind a session to the parties."""

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, HashAlgorithm

from labelward.errors import CertificateError
from labelward.transport.certificates.pem import check_key, read_private_key

_LABEL = b"labelward session signature\0"
"""Put before all that is signed, so that no signature made in a TLS handshake can be taken for one of ours."""


def sign_bytes(key: bytes, data: bytes) -> bytes:
    """Sign bytes of any length with a private key in PEM: ECDSA with SHA-256 (P-256) or SHA-384 (P-384), or RSA-PSS."""
    private = read_private_key(key, "the private key")
    if isinstance(private, rsa.RSAPrivateKey):
        return private.sign(_LABEL + data, _pss(), SHA256())
    return private.sign(_LABEL + data, ec.ECDSA(_hash(private.curve)))


def verify_signature(certificate: x509.Certificate, signature: bytes, data: bytes) -> None:
    """Raise :class:`CertificateError` unless the signature is that of these bytes by the certificate's key."""
    key = certificate.public_key()
    check_key(key, "the certificate")
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, _LABEL + data, _pss(), SHA256())
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, _LABEL + data, ec.ECDSA(_hash(key.curve)))
    except (InvalidSignature, ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError(
            "a signature was not made with the key of the certificate that is shown", code="key"
        ) from error


def _pss() -> padding.PSS:
    return padding.PSS(padding.MGF1(SHA256()), padding.PSS.DIGEST_LENGTH)


def _hash(curve: ec.EllipticCurve) -> HashAlgorithm:
    return SHA384() if isinstance(curve, ec.SECP384R1) else SHA256()
