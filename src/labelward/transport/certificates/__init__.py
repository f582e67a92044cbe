"""Certificates of parties: read, judged in plain words, made, and used to sign.

A party is named by the alternative name ``labelward:party:NAME`` (URI), or by the common name where a company's own
authority knows no other. Sources: RFC 5280 (profile), RFC 6125 (names of hosts), RFC 8446 section 4.4.3 (why what is
signed carries a label).
"""

from labelward.transport.certificates.credentials import CredentialFinding, Credentials, examine_credentials
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
from labelward.transport.certificates.pem import certificates_in, moment
from labelward.transport.certificates.signing import sign, verify
from labelward.transport.certificates.verification import AUTHORITY_FILE, verify_peer

__all__ = [
    "AUTHORITY_DAYS",
    "AUTHORITY_FILE",
    "CredentialFinding",
    "Credentials",
    "Issued",
    "addresses_of",
    "certificates_in",
    "check_address",
    "check_party_name",
    "examine_credentials",
    "fingerprint",
    "moment",
    "new_authority",
    "new_party",
    "new_request",
    "party_of",
    "sign",
    "sign_request",
    "verify",
    "verify_peer",
]
