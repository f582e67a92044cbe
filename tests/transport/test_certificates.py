"""Certificates: what is believed, what is refused and in which words, keys that sign, and folders of them."""

from __future__ import annotations

import base64
import hashlib
import re
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

from labelward.errors import CertificateError
from labelward.transport.certificates import (
    Credentials,
    Issued,
    check_address,
    examine,
    fingerprint,
    new_authority,
    new_party,
    new_request,
    party_of,
    sign,
    sign_request,
    verify,
    verify_peer,
)

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
    with pytest.raises(CertificateError, match=r"not in authority\.crt: by 'Company Issuing', where 'Company Root'"):
        verify_peer(own.pem, root.pem, "telco", now=NOW)  # it does not show the one between


def _by_us(name: str = "bank", **more: object) -> Holder:
    ours = Holder(leaf(AUTHORITY), load_pem_private_key(AUTHORITY.key, None))
    return certified(name, by=ours, days=(0, 30), **more)  # type: ignore[arg-type]


def _other(name: str) -> Holder:
    return certified("bank", by=certified(name, authority=True), uses=[CLIENT])


REFUSED: dict[str, tuple[Callable[[], Holder | Issued], str]] = {
    "unknown authority": (
        lambda: _other("somebody"),
        r"'bank': is signed by an authority that is not in .*: by 'somebody', where 'the authority' is trusted",
    ),
    "another authority of that name": (
        lambda: _other("the authority"),
        r"was not signed by the 'the authority' of .* made anew",
    ),
    "self-signed": (lambda: certified("bank"), r"'bank': is self-signed; .* authority\.crt \('the authority'\)"),
    "an authority": (lambda: AUTHORITY, r"is the certificate of an authority, 'the authority', not of a party"),
    "another party": (lambda: TELCO, r"names 'telco', where 'bank' is wanted"),
    "no party": (lambda: _by_us("9 lives"), r"'9 lives' cannot be the name of one"),
    "several parties": (
        lambda: _by_us(extensions=[(party_uri("bank", "telco"), False)]),
        r"names 2 parties: 'bank', 'telco'",
    ),
    "another party beside its common name": (
        lambda: _by_us("bank", extensions=[(party_uri("telco"), False)]),
        r"names 'telco', where 'bank' is wanted",
    ),
    "no use in TLS": (
        lambda: _by_us(uses=[x509.ExtendedKeyUsageOID.CODE_SIGNING]),
        r"lacks the use 'client authentication' \(needed to connect to others\) and 'server auth",
    ),
    "weak key": (lambda: _by_us(key=rsa_key(1024)), r"weak key, RSA of 1024 bits; at least 2048"),
    "unusual curve": (lambda: _by_us(key=ec.generate_private_key(ec.SECP521R1())), "curve secp521r1; P-256 and P-384"),
    "unusual key": (lambda: _by_us(key=ed25519.Ed25519PrivateKey.generate()), "kind Ed25519; ECDSA"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_and_why(case: str) -> None:
    make, words = REFUSED[case]
    with pytest.raises(CertificateError, match=words):
        believed(make())


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
    with pytest.raises(CertificateError, match="'bank': is signed with SHA1, which can be forged; SHA-256 is wanted"):
        verify_peer(OLD_WAYS, OLD_AUTHORITY, "bank", now=datetime(2030, 1, 1, tzinfo=UTC))


def test_a_party_cannot_sign_for_another() -> None:
    """What telco signs with its own key is no certificate, though telco's own leads to the authority."""
    telco = Holder(leaf(TELCO), load_pem_private_key(TELCO.key, None))
    forged = certified("bank", by=telco, uses=[CLIENT, SERVER], days=(0, 30))
    with pytest.raises(CertificateError):
        verify_peer(forged.pem + TELCO.certificate, AUTHORITY.certificate, "bank", now=NOW)


@pytest.mark.parametrize("use", ["client", "server"])
def test_a_certificate_for_one_use_has_no_other(use: str) -> None:
    own = _by_us(uses=[CLIENT if use == "client" else SERVER])
    other = "server" if use == "client" else "client"
    assert verify_peer(own.pem, AUTHORITY.certificate, "bank", use=use, now=NOW)  # type: ignore[arg-type]
    assert verify_peer(own.pem, AUTHORITY.certificate, "bank", now=NOW)
    with pytest.raises(CertificateError, match=f"lacks the use '{other} authentication'"):
        verify_peer(own.pem, AUTHORITY.certificate, "bank", use=other, now=NOW)  # type: ignore[arg-type]


def test_times_are_told_with_both_clocks() -> None:
    def at(days: float) -> None:
        verify_peer(BANK.certificate, AUTHORITY.certificate, "bank", now=NOW + timedelta(days=days))

    at(-0.02)  # half an hour: a clock that is a little off
    at(364.9)
    with pytest.raises(CertificateError, match=r"expired on 2027-06-01 12:00 UTC; here it is 2027-06-02 12:00 UTC"):
        at(366)
    with pytest.raises(
        CertificateError, match=r"only from 2026-06-01 11:00 UTC, and here it is 2026-05-31 12:00 .* clock"
    ):
        at(-1)


@pytest.mark.parametrize(
    ("days", "words"), [((-20, -2), "expired on 2026-05-30"), ((2, 20), "valid only from 2026-06-03")]
)
def test_the_time_of_an_authority_counts_too(days: tuple[int, int], words: str) -> None:
    root = certified("old root", authority=True, days=days)
    with pytest.raises(CertificateError, match=rf"authority\.crt: the authority 'old root': {words}"):
        believed(certified("bank", by=root), by=root.pem)
    between = certified("old between", by=certified("root", authority=True), authority=True, days=days)
    root = certified("root", authority=True)
    between = certified("between", by=root, authority=True, days=days)
    with pytest.raises(CertificateError, match=f"the authority 'between': {words}"):
        verify_peer(certified("bank", by=between).pem + between.pem, root.pem, "bank", now=NOW)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda pem: b"", "is empty, where a certificate is wanted"),
        (lambda pem: b"\n \n", "is empty"),
        (lambda pem: b"hello", r"no line -----BEGIN"),
        (lambda pem: pem[:300], "a block begins and does not end"),
        (lambda pem: pem.replace(b"-----END", b"----END"), "does not end"),
        (lambda pem: pem[:100] + b"!!" + pem[102:], "is damaged"),
        (lambda pem: pem[:200] + pem[260:], "is damaged"),
        (lambda pem: leaf(BANK).public_bytes(Encoding.DER), "binary form"),
        (lambda pem: BANK.key, "holds a private key, where a certificate is wanted"),
        (lambda pem: pem + BANK.key, "holds a private key as well; keep them in files of their own"),
        (lambda pem: new_request("bank").certificate, "holds a signing request, where"),
        (lambda pem: pem * 65, "holds 65 certificates"),
    ],
)
def test_files_that_are_no_certificate(change: Callable[[bytes], bytes], words: str) -> None:
    with pytest.raises(CertificateError, match=words):
        verify_peer(change(BANK.certificate), AUTHORITY.certificate, "bank", now=NOW)


def test_who_is_no_authority() -> None:
    with pytest.raises(CertificateError, match=r"authority\.crt: 'telco' is no authority"):
        believed(BANK, by=TELCO.certificate)
    with pytest.raises(CertificateError, match=r"authority\.crt: holds a private key"):
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


@pytest.mark.parametrize("host", ["bank.example", "BANK.example.", "10.0.0.1"])
def test_addresses_that_a_certificate_is_for(host: str) -> None:
    check_address(leaf(BANK), host)


@pytest.mark.parametrize("host", ["other.example", "a.bank.example", "10.0.0.2", "bank", "::1"])
def test_addresses_that_it_is_not_for(host: str) -> None:
    with pytest.raises(CertificateError, match=re.escape("is for bank.example, 10.0.0.1, so that nobody")):
        check_address(leaf(BANK), host)


def test_a_port_is_no_part_of_an_address() -> None:
    with pytest.raises(CertificateError, match="without its port"):
        check_address(leaf(BANK), "bank.example:7443")


def test_a_wildcard_is_one_label() -> None:
    names = x509.SubjectAlternativeName([x509.DNSName("*.bank.example"), x509.IPAddress(ip_address("::1"))])
    own = certified("bank", extensions=[(names, False)]).certificate
    check_address(own, "hub.bank.example")
    check_address(own, "[::1]")
    for host in ("bank.example", "a.b.bank.example", ".bank.example"):
        with pytest.raises(CertificateError):
            check_address(own, host)
    with pytest.raises(CertificateError, match="names no address"):
        check_address(leaf(TELCO), "telco")  # a common name is no address


@pytest.mark.parametrize("name", ["", "9", "a b", "bank/..", "ü", "a" * 65, "authority", "Authority"])
def test_names_that_no_party_has(name: str) -> None:
    for make in (lambda: new_party(AUTHORITY, name, now=NOW), lambda: new_request(name)):
        with pytest.raises(CertificateError, match="party"):
            make()


@pytest.mark.parametrize(
    "address", ["", "bank.example:7443", "*.example", "a..b", "-a", "10.0.0.300", "bänk", "https://x"]
)
def test_addresses_that_cannot_be(address: str) -> None:
    with pytest.raises(CertificateError, match="an address must be"):
        new_party(AUTHORITY, "bank", addresses=[address], now=NOW)


def test_how_long_certificates_can_be_valid() -> None:
    with pytest.raises(CertificateError, match="the authority ends on 2036-05-29"):
        new_party(AUTHORITY, "bank", days=3651, now=NOW)
    for days in (0, -1, 10**9):
        with pytest.raises(CertificateError, match=f"but got {days}"):
            new_party(AUTHORITY, "bank", days=days, now=NOW)


@pytest.mark.parametrize(
    "key", [p256(), ec.generate_private_key(ec.SECP384R1()), rsa_key()], ids=["P-256", "P-384", "RSA"]
)
@pytest.mark.parametrize("data", [b"", b"x" * 100_000], ids=["nothing", "much"])
def test_signatures_bind_bytes_and_key(key: object, data: bytes) -> None:
    own, other = certified("bank", key=key), certified("bank")
    signature = sign(own.key_pem, data)
    verify(own.certificate, signature, data)
    for certificate, bad, signed in (
        (other.certificate, signature, data),
        (own.certificate, signature, data + b"\0"),
        (own.certificate, signature[:-1], data),
        (own.certificate, b"", data),
        (own.certificate, signature[:-1] + bytes([signature[-1] ^ 1]), data),
    ):
        with pytest.raises(CertificateError, match="was not made with the key"):
            verify(certificate, bad, signed)


def test_a_signature_for_tls_is_none_of_ours() -> None:
    """What a key signs elsewhere, over the same bytes, is not accepted: ours carry a label."""
    own = certified("bank")
    with pytest.raises(CertificateError):
        verify(own.certificate, own.key.sign(b"data", ec.ECDSA(SHA256())), b"data")


def test_a_request_is_signed_without_its_key() -> None:
    asked = new_request("telco", addresses=["telco.example"])
    signed = sign_request(AUTHORITY, asked.certificate, "telco", addresses=["10.1.1.1", "telco.example"], now=NOW)
    own = verify_peer(signed, AUTHORITY.certificate, "telco", now=NOW)
    check_address(own, "telco.example")
    check_address(own, "10.1.1.1")
    verify(own, sign(asked.key, b"data"), b"data")
    with pytest.raises(CertificateError, match="asks for a certificate of 'telco', where 'bank' is wanted"):
        sign_request(AUTHORITY, asked.certificate, "bank", now=NOW)
    other = new_request("telco")
    with pytest.raises(CertificateError, match=r"authority\.key: does not belong"):
        sign_request(Issued(certificate=AUTHORITY.certificate, key=other.key), asked.certificate, "telco", now=NOW)


def test_a_request_that_was_changed_is_refused() -> None:
    der = x509.load_pem_x509_csr(new_request("telco").certificate).public_bytes(Encoding.DER)
    changed = der.replace(b"telco", b"other")
    pem = (
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(changed) + b"-----END CERTIFICATE REQUEST-----\n"
    )
    with pytest.raises(CertificateError, match="is not signed by its own key"):
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
    assert all(finding.kind == "right" for finding in examine(folder, "bank", addresses=["bank.example"], now=NOW))


def _locked(key: bytes) -> bytes:
    made = load_pem_private_key(key, None)
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))


def _public(key: bytes) -> bytes:
    made = load_pem_private_key(key, None)
    return made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("bank.key", None, r"bank\.key: no such file"),
        ("bank.crt", None, r"bank\.crt: no such file"),
        ("authority.crt", None, r"authority\.crt: no such file"),
        ("bank.key", TELCO.key, r"bank\.key: does not belong to .*bank\.crt"),
        ("bank.key", BANK.certificate, r"bank\.key: holds a certificate, where a private key is wanted"),
        ("bank.key", BANK.key * 2, r"bank\.key: holds 2 private keys"),
        ("bank.key", _locked(BANK.key), r"bank\.key: is locked with a passphrase"),
        ("bank.key", _public(BANK.key), r"bank\.key: holds a public key"),
        ("bank.key", BANK.key[:100], r"bank\.key: is damaged"),
        ("bank.key", BANK.key[:60] + BANK.key[64:], r"bank\.key: is damaged"),
        ("bank.crt", TELCO.certificate, r"bank\.crt: names 'telco', where 'bank' is wanted"),
        ("bank.crt", BANK.key, r"bank\.crt: holds a private key"),
        ("authority.crt", BANK.certificate, r"authority\.crt: 'bank' is no authority"),
        ("authority.crt", new_authority(name="new", now=NOW).certificate, r"bank\.crt: is signed .* 'new' is trusted"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,  # keys differ from process to process
)
def test_a_folder_with_one_thing_wrong(folder: Path, name: str, content: bytes | None, words: str) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    with pytest.raises(CertificateError, match=words):
        Credentials.load(folder, "bank", now=NOW)
    wrong = [finding.text for finding in examine(folder, "bank", now=NOW) if finding.kind == "wrong"]
    assert len(wrong) == 1
    assert re.search(words, wrong[0])
    assert wrong[0].startswith(str(folder))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_a_key_that_others_can_read(folder: Path, mode: int) -> None:
    (folder / "bank.key").chmod(mode)
    with pytest.raises(CertificateError, match=rf"bank\.key: can be read by others .*mode {mode:04o}.*chmod 600"):
        Credentials.load(folder, "bank", now=NOW)


def test_an_authority_that_anybody_may_replace(folder: Path) -> None:
    (folder / "authority.crt").chmod(0o666)
    with pytest.raises(CertificateError, match=r"authority\.crt: can be changed by anybody"):
        Credentials.load(folder, "bank", now=NOW)


def test_everything_that_is_wrong_is_found_at_once(folder: Path) -> None:
    (folder / "bank.key").write_bytes(TELCO.key)
    (folder / "authority.crt").write_bytes(new_authority(name="new").certificate)
    found = examine(folder, "bank", addresses=["bank.example", "other"], now=NOW + timedelta(days=400))
    wrong = "\n".join(finding.text for finding in found if finding.kind == "wrong")
    for words in ("does not belong", "not in authority.crt", "expired on", "'other'"):
        assert words in wrong
    assert any(finding.kind == "right" and "is for bank.example" in finding.text for finding in found)


def test_notes(folder: Path) -> None:
    def notes(days: float = 0) -> str:
        found = examine(folder, "bank", now=NOW + timedelta(days=days))
        return "\n".join(finding.text for finding in found if finding.kind == "note")

    assert "others can connect to it as bank.example, 10.0.0.1" in notes()
    assert "ends soon" not in notes(330)
    assert "ends soon" in notes(340)
    (folder / "authority.key").write_bytes(AUTHORITY.key)
    (folder / "telco.key").write_bytes(TELCO.key)
    assert "authority.key: whoever has it can be any party" in notes()
    assert "telco.key: is the key of another party" in notes()
    both = AUTHORITY.certificate + new_authority(name="other", now=NOW).certificate
    (folder / "authority.crt").write_bytes(both)
    assert "trusts 2 authorities; each can name any party" in notes()


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="no such folder"):
        Credentials.load(tmp_path / "none", "bank")
    (tmp_path / "file").touch()
    with pytest.raises(CertificateError, match="is a file"):
        Credentials.load(tmp_path / "file", "bank")
    with pytest.raises(CertificateError, match="party's name"):
        Credentials.load(tmp_path, "../bank")
