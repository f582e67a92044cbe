"""Certificates of parties: reading, verification with reasons, issuing, signatures.

A party is named by the alternative name ``labelward:party:NAME`` (URI), or by the common name for authorities that
cannot issue such names. References: RFC 5280 (profile), RFC 6125 (host names), RFC 8446 section 4.4.3 (labels of signed
data).
"""

from labelward.transport.certificates.credentials import (
    REFUSED_FILE,
    CredentialFinding,
    Credentials,
    days_left,
    examine_credentials,
)
from labelward.transport.certificates.identity import (
    addresses_of,
    check_address,
    check_party_name,
    fingerprint,
    party_of,
)
from labelward.transport.certificates.issue import (
    AUTHORITY_DAYS,
    Issued,
    new_authority,
    new_party,
    new_request,
    sign_request,
)
from labelward.transport.certificates.pem import format_time, read_certificates
from labelward.transport.certificates.signing import sign_bytes, verify_signature
from labelward.transport.certificates.source import CredentialSource
from labelward.transport.certificates.verification import AUTHORITY_FILE, verify_peer

__all__ = [
    "AUTHORITY_DAYS",
    "AUTHORITY_FILE",
    "REFUSED_FILE",
    "CredentialFinding",
    "CredentialSource",
    "Credentials",
    "Issued",
    "addresses_of",
    "check_address",
    "check_party_name",
    "days_left",
    "examine_credentials",
    "fingerprint",
    "format_time",
    "new_authority",
    "new_party",
    "new_request",
    "party_of",
    "read_certificates",
    "sign_bytes",
    "sign_request",
    "verify_peer",
    "verify_signature",
]
