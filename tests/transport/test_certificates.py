"""Certificates: what is believed, what is refused and in which words, keys that sign, and folders of them."""

from __future__ import annotations

import base64
import hashlib
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from company import CLIENT, NOW, SERVER, Holder, certified, p256, party_uri, rsa_key
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from blames import refused_about
from labelward.errors import CertificateError, Code
from labelward.transport.certificates import (
    Credentials,
    Issued,
    check_address,
    examine_credentials,
    fingerprint,
    new_authority,
    new_party,
    new_request,
    party_of,
    sign_bytes,
    sign_request,
    verify_peer,
    verify_signature,
)
from labelward.transport.certificates.identity import fingerprints
from refusals import refused

AUTHORITY = new_authority(name="the authority", now=NOW)
BANK = new_party(AUTHORITY, "bank", addresses=["bank.example", "10.0.0.1"], now=NOW)
TELCO = new_party(AUTHORITY, "telco", now=NOW)


def leaf(made: Issued) -> x509.Certificate:
    return x509.load_pem_x509_certificate(made.certificate)


def believed(holder: Holder | Issued, *, by: bytes = AUTHORITY.certificate, party: str | None = "bank") -> None:
    """Verify a chain of one certificate; raises what :func:`verify_peer` raises."""
    pem = holder.pem if isinstance(holder, Holder) else holder.certificate
    assert verify_peer(pem, by, party, now=NOW)


def test_what_is_made_is_believed() -> None:
    for made, name in ((BANK, "bank"), (TELCO, "telco")):
        for party in (name, None):
            for use in ("client", "server", None):
                found = verify_peer(made.certificate, AUTHORITY.certificate, party, use=use, now=NOW)  # type: ignore[arg-type]
                assert found == leaf(made)
        assert party_of(leaf(made)) == name
    assert fingerprint(leaf(BANK)) == hashlib.sha256(leaf(BANK).public_bytes(Encoding.DER)).hexdigest()


def test_what_is_made_is_as_strict_tls_libraries_want_it() -> None:
    top, own = leaf(AUTHORITY), leaf(BANK)
    limits = top.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (limits.critical, limits.value.ca, limits.value.path_length) == (True, True, 0)
    usage = top.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert (usage.value.key_cert_sign, usage.value.digital_signature) == (True, False)
    limits = own.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (limits.critical, limits.value.ca) == (True, False)
    assert own.serial_number != leaf(TELCO).serial_number
    assert own.serial_number.bit_length() > 64  # random, not counted
    begin = own.not_valid_before_utc
    assert NOW - timedelta(hours=2) < begin < NOW  # clocks differ between companies
    assert own.not_valid_after_utc == NOW + timedelta(days=365)


def test_a_company_with_an_authority_of_its_own_is_believed() -> None:
    """RSA, an authority between, no alternative names at all, constraints that are not critical."""
    root = certified("Company Root", key=rsa_key(), authority=True)
    between = certified("Company Issuing", by=root, key=rsa_key(), authority=True)
    own = certified("telco", by=between, key=rsa_key(), uses=[CLIENT, SERVER])
    assert party_of(own.certificate) == "telco"
    assert verify_peer(own.pem + between.pem, root.pem, "telco", now=NOW) == own.certificate
    assert verify_peer(own.pem + between.pem, AUTHORITY.certificate + root.pem, "telco", now=NOW)
    assert verify_peer(own.pem, between.pem, "telco", now=NOW)  # trusting the one between alone is enough
    with refused_about("by 'Company Issuing'", CertificateError, "identity", field="the certificate of 'telco'"):
        verify_peer(own.pem, root.pem, "telco", now=NOW)  # it does not show the one between


def _by_us(name: str = "bank", **more: object) -> Holder:
    ours = Holder(leaf(AUTHORITY), load_pem_private_key(AUTHORITY.key, None))
    return certified(name, by=ours, days=(0, 30), **more)  # type: ignore[arg-type]


def _other(name: str) -> Holder:
    return certified("bank", by=certified(name, authority=True), uses=[CLIENT])


REFUSED: dict[str, tuple[Callable[[], Holder | Issued], Code, object, str]] = {
    "unknown authority": (lambda: _other("somebody"), "identity", None, "by 'somebody'"),
    "another authority of that name": (lambda: _other("the authority"), "identity", None, "made anew"),
    "self-signed": (lambda: certified("bank"), "identity", None, "self-signed"),
    "an authority": (lambda: AUTHORITY, "identity", "'the authority'", "not of a party"),
    "another party": (lambda: TELCO, "identity", "telco", "'bank'"),
    "no party": (lambda: _by_us("9 lives"), "identity", "9 lives", "cannot be the name"),
    "several parties": (
        lambda: _by_us(extensions=[(party_uri("bank", "telco"), False)]),
        "identity",
        ("bank", "telco"),
        "2 parties",
    ),
    "another party beside its common name": (
        lambda: _by_us("bank", extensions=[(party_uri("telco"), False)]),
        "identity",
        "telco",
        "'bank'",
    ),
    "no use in TLS": (
        lambda: _by_us(uses=[x509.ExtendedKeyUsageOID.CODE_SIGNING]),
        "unsupported",
        ("client", "server"),
        "",
    ),
    "weak key": (lambda: _by_us(key=rsa_key(1024)), "key", 1024, "2048"),
    "unusual curve": (lambda: _by_us(key=ec.generate_private_key(ec.SECP521R1())), "key", "secp521r1", "curve"),
    "unusual key": (lambda: _by_us(key=ed25519.Ed25519PrivateKey.generate()), "key", "Ed25519", "kind"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_and_why(case: str) -> None:
    make, code, value, about = REFUSED[case]
    with refused_about(about, CertificateError, code, field="the certificate of 'bank'", value=value):
        believed(make())


def test_a_chain_with_its_authority_is_refused_as_one_without() -> None:
    """TLS libraries add the authority, which is self-signed: what is wrong is that nobody here trusts it."""
    other = new_authority(name="another company", now=NOW)
    made = new_party(other, "bank", now=NOW)
    for chain in (made.certificate, made.certificate + other.certificate):
        with refused_about("by 'another company'", CertificateError, "identity"):
            verify_peer(chain, AUTHORITY.certificate, "bank", now=NOW)


OLD_AUTHORITY = b"""
-----BEGIN CERTIFICATE-----
MIIBfTCCASOgAwIBAgIUeEAIAn5Fkdtrc6/LZ7wa+9vLb4kwCgYIKoZIzj0EAwIw
EzERMA8GA1UEAwwIb2xkIHdheXMwIBcNMjYxMTIxMTkwMTEwWhgPMjEyNTA2MTUx
OTAxMTBaMBMxETAPBgNVBAMMCG9sZCB3YXlzMFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAE3Dwt5cDb5Z0czpcp6khPFcicihuxWHFMwuoe2jLnwoAwgB+bGydpbzaG
hdhSj0yDSvq/izI8rvAFevSb6DdkuKNTMFEwHQYDVR0OBBYEFI9zBJTG9228WZHI
m88p+7ZalesJMB8GA1UdIwQYMBaAFI9zBJTG9228WZHIm88p+7ZalesJMA8GA1Ud
EwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgMWHFcywh8Z/+VqZsmCBbFvLT
q+BVf9YEt0CfOYAiIxgCIQCfTDCNKtpCWfbSWg/UP03orV/qllchWKnex3B7Egxe
0A==
-----END CERTIFICATE-----
"""
OLD_WAYS = b"""
-----BEGIN CERTIFICATE-----
MIIBHTCBxAIUNaFoOHL7eeGyqudmnoxYuVEnyn8wCQYHKoZIzj0EATATMREwDwYD
VQQDDAhvbGQgd2F5czAgFw0yNjExMjExOTAxMTBaGA8yMTI1MDYxNTE5MDExMFow
DzENMAsGA1UEAwwEYmFuazBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIccSeG1
HgrO16FNaC0IG31HMtijjyHi3VJWFKUw4D97o/dLhT/yCOIaptbvcPyJR1VMU7iR
qXgMX/nSW/45bZIwCQYHKoZIzj0EAQNJADBGAiEAnGUPriXebmYk0FmQUxskdeai
Xwqe0amhWym3F7H3uJoCIQC74TH1zRsUXQwfE0sM8dqISBKja+iZMKt0aphrtSAI
Cw==
-----END CERTIFICATE-----
"""


def test_signatures_with_an_old_digest_are_refused() -> None:
    """Signed with SHA-1, by OpenSSL: the library of these tests no longer does."""
    with refused_about("SHA1", CertificateError, "insecure", field="the certificate of 'bank'"):
        verify_peer(OLD_WAYS, OLD_AUTHORITY, "bank", now=datetime(2030, 1, 1, tzinfo=UTC))


def test_a_party_cannot_sign_for_another() -> None:
    """What telco signs with its own key is no certificate, though telco's own leads to the authority."""
    telco = Holder(leaf(TELCO), load_pem_private_key(TELCO.key, None))
    forged = certified("bank", by=telco, uses=[CLIENT, SERVER], days=(0, 30))
    with refused(CertificateError, "identity"):
        verify_peer(forged.pem + TELCO.certificate, AUTHORITY.certificate, "bank", now=NOW)


@pytest.mark.parametrize("use", ["client", "server"])
def test_a_certificate_for_one_use_has_no_other(use: str) -> None:
    own = _by_us(uses=[CLIENT if use == "client" else SERVER])
    other = "server" if use == "client" else "client"
    assert verify_peer(own.pem, AUTHORITY.certificate, "bank", use=use, now=NOW)  # type: ignore[arg-type]
    assert verify_peer(own.pem, AUTHORITY.certificate, "bank", now=NOW)
    with refused(CertificateError, "unsupported", value=(other,)):
        verify_peer(own.pem, AUTHORITY.certificate, "bank", use=other, now=NOW)  # type: ignore[arg-type]


def test_times_are_told_with_both_clocks() -> None:
    def at(days: float) -> None:
        verify_peer(BANK.certificate, AUTHORITY.certificate, "bank", now=NOW + timedelta(days=days))

    at(-0.02)  # half an hour: a clock that is a little off
    at(364.9)
    for days, told, end in ((366, "2027-06-01 12:00 UTC", 365), (-1, "2026-06-01 11:00 UTC", -1 / 24)):
        with refused_about(told, CertificateError, "expired", value=NOW + timedelta(days=end)) as caught:
            at(days)
        assert f"{NOW + timedelta(days=days):%Y-%m-%d %H:%M} UTC" in caught.value.reason


@pytest.mark.parametrize(("days", "told"), [((-20, -2), "expired on 2026-05-30"), ((2, 20), "from 2026-06-03")])
def test_the_time_of_an_authority_counts_too(days: tuple[int, int], told: str) -> None:
    root = certified("old root", authority=True, days=days)
    with refused_about(told, CertificateError, "expired") as caught:
        believed(certified("bank", by=root), by=root.pem)
    assert "'old root'" in caught.value.reason
    between = certified("old between", by=certified("root", authority=True), authority=True, days=days)
    root = certified("root", authority=True)
    between = certified("between", by=root, authority=True, days=days)
    with refused_about(told, CertificateError, "expired") as caught:
        verify_peer(certified("bank", by=between).pem + between.pem, root.pem, "bank", now=NOW)
    assert "'between'" in caught.value.reason


@pytest.mark.parametrize(
    ("change", "code", "value", "about"),
    [
        (lambda pem: b"", "foreign", None, "empty"),
        (lambda pem: b"\n \n", "foreign", None, "empty"),
        (lambda pem: b"hello", "foreign", None, "-----BEGIN"),
        (lambda pem: pem[:300], "damaged", None, "does not end"),
        (lambda pem: pem.replace(b"-----END", b"----END"), "damaged", None, "does not end"),
        (lambda pem: pem[:100] + b"!!" + pem[102:], "damaged", None, ""),
        (lambda pem: pem[:200] + pem[260:], "damaged", None, ""),
        (lambda pem: leaf(BANK).public_bytes(Encoding.DER), "foreign", None, "binary form"),
        (lambda pem: BANK.key, "foreign", "a private key", "where a certificate"),
        (lambda pem: pem + BANK.key, "foreign", "a private key", "as well"),
        (lambda pem: new_request("bank").certificate, "foreign", "a signing request", "where a certificate"),
        (lambda pem: pem * 65, "range", 65, "certificates"),
    ],
)
def test_files_that_are_no_certificate(change: Callable[[bytes], bytes], code: Code, value: object, about: str) -> None:
    with refused_about(about, CertificateError, code, field="the certificate of 'bank'", value=value):
        verify_peer(change(BANK.certificate), AUTHORITY.certificate, "bank", now=NOW)


def test_who_is_no_authority() -> None:
    with refused(CertificateError, "identity", field="authority.crt", value="'telco'"):
        believed(BANK, by=TELCO.certificate)
    with refused(CertificateError, "foreign", field="authority.crt", value="a private key"):
        believed(BANK, by=AUTHORITY.key)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 255), st.booleans())
def test_a_changed_certificate_is_refused_and_nothing_else_happens(place: int, flip: int, shorten: bool) -> None:
    """One byte of the binary form changed, or all after it cut off: never believed, never another error."""
    der = bytearray(leaf(BANK).public_bytes(Encoding.DER))
    der[place % len(der)] ^= flip
    if shorten:
        del der[place % len(der) :]
    with pytest.raises(CertificateError):
        verify_peer(ssl.DER_cert_to_PEM_cert(bytes(der)).encode(), AUTHORITY.certificate, "bank", now=NOW)


@pytest.mark.parametrize("bits", range(1, 8))
def test_unused_bits_of_a_signature_are_refused(bits: int) -> None:
    """Parsers ignore them where the signature ends in as many zeros: a certificate with another fingerprint."""
    made = BANK
    while leaf(made).signature[-1] & 0x7F:
        made = new_party(AUTHORITY, "bank", now=NOW)
    der = bytearray(leaf(made).public_bytes(Encoding.DER))
    der[-1 - len(leaf(made).signature)] = bits
    with refused(CertificateError, "damaged", field="the certificate of 'bank'"):
        verify_peer(ssl.DER_cert_to_PEM_cert(bytes(der)).encode(), AUTHORITY.certificate, "bank", now=NOW)


def test_an_odd_country_is_no_warning() -> None:
    """A peer's certificate makes this process say nothing; warnings are errors here."""
    der = leaf(BANK).public_bytes(Encoding.DER).replace(b"\x06\x03\x55\x04\x03", b"\x06\x03\x55\x04\x06")
    with refused(CertificateError, "identity", field="the certificate of 'bank'"):
        verify_peer(ssl.DER_cert_to_PEM_cert(der).encode(), AUTHORITY.certificate, "bank", now=NOW)


ORDERS = {
    "secp256r1": 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    "secp384r1": int("f" * 48 + "c7634d81f4372ddf581a0db248b0a77aecec196accc52973", 16),
}


def twin(own: x509.Certificate, order: int) -> x509.Certificate:
    """Return the certificate with the other ECDSA signature that is valid: made without any key."""
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

    def tagged(tag: int, content: bytes) -> bytes:
        size = len(content).to_bytes(2, "big")
        return bytes([tag, len(content)]) + content if len(content) < 128 else bytes([tag, 0x82]) + size + content

    r, s = decode_dss_signature(own.signature)
    der, signed = own.public_bytes(Encoding.DER), own.tbs_certificate_bytes
    start = der.index(signed) + len(signed)
    algorithm = der[start : start + 2 + der[start + 1]]
    other = tagged(0x03, b"\0" + encode_dss_signature(r, order - s))
    return x509.load_der_x509_certificate(tagged(0x30, signed + algorithm + other))


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1()], ids=lambda each: each.name)
def test_a_refused_certificate_does_not_come_back_with_its_other_signature(curve: ec.EllipticCurve) -> None:
    root = certified("Root", key=ec.generate_private_key(curve), authority=True)
    own = certified("bank", by=root).certificate
    other = twin(own, ORDERS[curve.name])
    assert fingerprint(other) != fingerprint(own)
    chain = other.public_bytes(Encoding.PEM)
    assert verify_peer(chain, root.pem, "bank", now=NOW) == other  # an authority's signature, which nobody else made
    for listed in (own, other):
        mine = Credentials(
            party="telco", chain=b"", key=b"", authority=root.pem, refused=frozenset({fingerprint(listed)})
        )
        assert mine.refuses(own)
        assert mine.refuses(other)
        assert not mine.refuses(leaf(TELCO))


def test_a_certificate_of_an_rsa_authority_has_one_fingerprint() -> None:
    root = certified("Root", key=rsa_key(), authority=True)
    own = certified("bank", by=root).certificate
    assert fingerprints(own) == {fingerprint(own)}


@pytest.mark.parametrize("host", ["bank.example", "BANK.example.", "10.0.0.1"])
def test_addresses_that_a_certificate_is_for(host: str) -> None:
    check_address(leaf(BANK), host)


@pytest.mark.parametrize("host", ["other.example", "a.bank.example", "10.0.0.2", "bank", "::1"])
def test_addresses_that_it_is_not_for(host: str) -> None:
    with refused_about("bank.example, 10.0.0.1", CertificateError, "identity", value=host):
        check_address(leaf(BANK), host)


def test_a_port_is_no_part_of_an_address() -> None:
    with refused_about("without its port", CertificateError, "identity", value="bank.example:7443"):
        check_address(leaf(BANK), "bank.example:7443")


def test_a_wildcard_is_one_label() -> None:
    names = x509.SubjectAlternativeName([x509.DNSName("*.bank.example"), x509.IPAddress(ip_address("::1"))])
    own = certified("bank", extensions=[(names, False)]).certificate
    check_address(own, "hub.bank.example")
    check_address(own, "[::1]")
    for host in ("bank.example", "a.b.bank.example", ".bank.example"):
        with refused(CertificateError, "identity", value=host):
            check_address(own, host)
    with refused_about("names no address", CertificateError, "identity", value="telco"):
        check_address(leaf(TELCO), "telco")  # a common name is no address


@pytest.mark.parametrize("name", ["", "9", "a b", "bank/..", "ü", "a" * 65, "authority", "Authority"])
def test_names_that_no_party_has(name: str) -> None:
    for make in (lambda: new_party(AUTHORITY, name, now=NOW), lambda: new_request(name)):
        with refused(CertificateError, "conflict" if name.lower() == "authority" else "type", value=name):
            make()


@pytest.mark.parametrize(
    "address", ["", "bank.example:7443", "*.example", "a..b", "-a", "10.0.0.300", "bänk", "https://x"]
)
def test_addresses_that_cannot_be(address: str) -> None:
    with refused(CertificateError, "type", value=address):
        new_party(AUTHORITY, "bank", addresses=[address], now=NOW)


def test_how_long_certificates_can_be_valid() -> None:
    with refused_about("2036-05-29", CertificateError, "range", field="authority.crt", value=3651):
        new_party(AUTHORITY, "bank", days=3651, now=NOW)
    for days in (0, -1, 10**9):
        with refused(CertificateError, "range", field="", value=days):
            new_party(AUTHORITY, "bank", days=days, now=NOW)


@pytest.mark.parametrize(
    "key", [p256(), ec.generate_private_key(ec.SECP384R1()), rsa_key()], ids=["P-256", "P-384", "RSA"]
)
@pytest.mark.parametrize("data", [b"", b"x" * 100_000], ids=["nothing", "much"])
def test_signatures_bind_bytes_and_key(key: object, data: bytes) -> None:
    own, other = certified("bank", key=key), certified("bank")
    signature = sign_bytes(own.key_pem, data)
    verify_signature(own.certificate, signature, data)
    for certificate, bad, signed in (
        (other.certificate, signature, data),
        (own.certificate, signature, data + b"\0"),
        (own.certificate, signature[:-1], data),
        (own.certificate, b"", data),
        (own.certificate, signature[:-1] + bytes([signature[-1] ^ 1]), data),
    ):
        with refused(CertificateError, "key"):
            verify_signature(certificate, bad, signed)


def test_a_signature_for_tls_is_none_of_ours() -> None:
    """What a key signs elsewhere, over the same bytes, is not accepted: ours carry a label."""
    own = certified("bank")
    with refused(CertificateError, "key"):
        verify_signature(own.certificate, own.key.sign(b"data", ec.ECDSA(SHA256())), b"data")


def test_a_request_is_signed_without_its_key() -> None:
    asked = new_request("telco", addresses=["telco.example"])
    signed = sign_request(AUTHORITY, asked.certificate, "telco", addresses=["10.1.1.1", "telco.example"], now=NOW)
    own = verify_peer(signed, AUTHORITY.certificate, "telco", now=NOW)
    check_address(own, "telco.example")
    check_address(own, "10.1.1.1")
    verify_signature(own, sign_bytes(asked.key, b"data"), b"data")
    with refused_about("'bank'", CertificateError, "identity", field="the request", value="telco"):
        sign_request(AUTHORITY, asked.certificate, "bank", now=NOW)
    other = new_request("telco")
    with refused(CertificateError, "key", field="authority.key"):
        sign_request(Issued(certificate=AUTHORITY.certificate, key=other.key), asked.certificate, "telco", now=NOW)


def test_a_request_that_was_changed_is_refused() -> None:
    der = x509.load_pem_x509_csr(new_request("telco").certificate).public_bytes(Encoding.DER)
    changed = der.replace(b"telco", b"other")
    pem = (
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(changed) + b"-----END CERTIFICATE REQUEST-----\n"
    )
    with refused_about("its own key", CertificateError, "damaged", field="the request"):
        sign_request(AUTHORITY, pem, "other", now=NOW)


def test_a_request_hands_over_no_rights() -> None:
    """A request that asks to be an authority gets a party's certificate."""
    key = p256()
    builder = x509.CertificateSigningRequestBuilder().subject_name(leaf(TELCO).subject)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
    own = x509.load_pem_x509_certificate(sign_request(AUTHORITY, pem, "telco", now=NOW))
    assert not own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the party ``bank``."""
    (tmp_path / "bank.crt").write_bytes(BANK.certificate)
    (tmp_path / "bank.key").write_bytes(BANK.key)
    (tmp_path / "bank.key").chmod(0o600)
    (tmp_path / "authority.crt").write_bytes(AUTHORITY.certificate)
    return tmp_path


def test_a_folder_is_loaded_and_its_key_is_not_shown(folder: Path) -> None:
    loaded = Credentials.load(folder, "bank", now=NOW)
    assert loaded.certificate == leaf(BANK)
    assert (loaded.chain, loaded.key, loaded.authority) == (BANK.certificate, BANK.key, AUTHORITY.certificate)
    assert "PRIVATE" not in repr(loaded)
    assert "PRIVATE" not in repr(BANK)
    assert all(
        finding.kind == "right" for finding in examine_credentials(folder, "bank", addresses=["bank.example"], now=NOW)
    )


def _locked(key: bytes) -> bytes:
    made = load_pem_private_key(key, None)
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))


def _public(key: bytes) -> bytes:
    made = load_pem_private_key(key, None)
    return made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    ("name", "content", "code", "value", "about"),
    [
        ("bank.key", None, "not-found", None, ""),
        ("bank.crt", None, "not-found", None, ""),
        ("authority.crt", None, "not-found", None, ""),
        ("bank.key", TELCO.key, "key", None, "bank.crt"),
        ("bank.key", BANK.certificate, "foreign", "a certificate", "a private key"),
        ("bank.key", BANK.key * 2, "range", 2, "private keys"),
        ("bank.key", _locked(BANK.key), "unsupported", None, "passphrase"),
        ("bank.key", _public(BANK.key), "foreign", "a public key", ""),
        ("bank.key", BANK.key[:100], "damaged", None, ""),
        ("bank.key", BANK.key[:60] + BANK.key[64:], "damaged", None, ""),
        ("bank.crt", TELCO.certificate, "identity", "telco", "'bank'"),
        ("bank.crt", BANK.key, "foreign", "a private key", ""),
        ("authority.crt", BANK.certificate, "identity", "'bank'", ""),
        ("authority.crt", new_authority(name="new", now=NOW).certificate, "identity", None, "'new' is trusted"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,  # keys differ from process to process
)
def test_a_folder_with_one_thing_wrong(
    folder: Path, name: str, content: bytes | None, code: Code, value: object, about: str
) -> None:
    field = folder / ("bank.crt" if about == "'new' is trusted" else name)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    with refused_about(about, CertificateError, code, field=str(field), value=value) as caught:
        Credentials.load(folder, "bank", now=NOW)
    wrong = [finding for finding in examine_credentials(folder, "bank", now=NOW) if finding.kind == "wrong"]
    assert [(finding.text, type(finding.error)) for finding in wrong] == [(str(caught.value), CertificateError)]
    assert wrong[0].text.startswith(str(folder))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_a_key_that_others_can_read(folder: Path, mode: int) -> None:
    (folder / "bank.key").chmod(mode)
    with refused_about("chmod 600", CertificateError, "insecure", field=str(folder / "bank.key"), value=mode):
        Credentials.load(folder, "bank", now=NOW)


def test_an_authority_that_anybody_may_replace(folder: Path) -> None:
    (folder / "authority.crt").chmod(0o666)
    with refused(CertificateError, "insecure", field=str(folder / "authority.crt")):
        Credentials.load(folder, "bank", now=NOW)


def test_everything_that_is_wrong_is_found_at_once(folder: Path) -> None:
    (folder / "bank.key").write_bytes(TELCO.key)
    (folder / "authority.crt").write_bytes(new_authority(name="new").certificate)
    found = examine_credentials(folder, "bank", addresses=["bank.example", "other"], now=NOW + timedelta(days=400))
    wrong = [finding.error for finding in found if finding.error is not None]
    files = [str(folder / name) for name in ("bank.key", "bank.crt", "bank.crt", "bank.crt")]
    assert [(error.field, error.code) for error in wrong] == list(
        zip(files, ("key", "identity", "expired", "identity"), strict=True)
    )
    assert wrong[-1].value == "other"
    assert any(finding.kind == "right" and "is for bank.example" in finding.text for finding in found)


def test_notes(folder: Path) -> None:
    def notes(days: float = 0) -> str:
        found = examine_credentials(folder, "bank", now=NOW + timedelta(days=days))
        return "\n".join(finding.text for finding in found if finding.kind == "note")

    assert "bank.example, 10.0.0.1" in notes()
    assert "ends soon" not in notes(330)
    assert "ends soon" in notes(340)
    (folder / "authority.key").write_bytes(AUTHORITY.key)
    (folder / "telco.key").write_bytes(TELCO.key)
    assert "authority.key: whoever has it" in notes()
    assert "telco.key: is the key" in notes()
    both = AUTHORITY.certificate + new_authority(name="other", now=NOW).certificate
    (folder / "authority.crt").write_bytes(both)
    assert "trusts 2 authorities" in notes()


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with refused(CertificateError, "not-found", field=str(tmp_path / "none")):
        Credentials.load(tmp_path / "none", "bank")
    (tmp_path / "file").touch()
    with refused(CertificateError, "not-found", field=str(tmp_path / "file")):
        Credentials.load(tmp_path / "file", "bank")
    with refused(CertificateError, "type", value="../bank"):
        Credentials.load(tmp_path, "../bank")
