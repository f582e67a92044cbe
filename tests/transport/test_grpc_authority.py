"""What the authority may do: pinned certificates, refused ones, new ones during a run, keys of other types."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from loopback import Log, authority, kill, network, together

from blames import blamed
from labelward.errors import CertificateError
from labelward.transport.certificates import Credentials, CredentialSource, fingerprint, new_party
from labelward.transport.certificates.credentials import read_refused
from labelward.transport.grpc import Network
from labelward.transport.grpc.diagnose import credential_files
from refusals import refused

pytestmark = pytest.mark.network

TWO = ("bank", "telco")


def stored(folder: Path, party: str, *, later: int = 0) -> Credentials:
    """Write new files of a party; ``later``: seconds by which their time is moved on."""
    made = new_party(authority(), party, addresses=["127.0.0.1"])
    folder.mkdir(mode=0o700, exist_ok=True)
    names = {f"{party}.key": made.key, f"{party}.crt": made.certificate, "authority.crt": authority().certificate}
    for name, content in names.items():
        new = folder / f"{name}.new"
        new.touch(mode=0o600)
        new.write_bytes(content)
        os.utime(new, (time.time() + later,) * 2)
        new.rename(folder / name)
    return Credentials.load(folder, party)


@contextlib.contextmanager
def pair(bank: Credentials, telco: Credentials, logs: dict[str, Log]) -> Iterator[dict[str, Network]]:
    made = {"bank": network("bank", TWO, credentials=bank, log=logs["bank"])}
    try:
        port = made["bank"].port or 0
        made["telco"] = network("telco", TWO, port, credentials=telco, log=logs["telco"])
        yield made
    finally:
        for each in reversed(made.values()):
            each.close()


def test_only_pinned_certificates_are_believed(tmp_path: Path) -> None:
    """Another certificate of the same party from the same authority is not."""
    bank, telco = stored(tmp_path / "bank", "bank"), stored(tmp_path / "telco", "telco")
    other = stored(tmp_path / "other", "telco")
    pinned = replace(bank, pinned=frozenset({fingerprint(telco.certificate)}))
    logs = {party: Log() for party in TWO}
    with pair(pinned, other, logs):
        _until(lambda: logs["bank"].of("refused"))
        assert logs["bank"].of("refused")[0]["reason"].endswith("pinned of the job")
        assert not logs["bank"].of("session")
    with pair(pinned, telco, logs) as made:
        assert None not in together(**{party: each.attempt for party, each in made.items()}).values()


def test_a_refused_certificate_is_not_believed_even_during_a_run(tmp_path: Path) -> None:
    bank, telco = stored(tmp_path / "bank", "bank"), stored(tmp_path / "telco", "telco")
    logs = {party: Log() for party in TWO}
    with pair(bank, telco, logs) as made:
        ends = together(**{party: each.attempt for party, each in made.items()})
        seen = telco.certificate.fingerprint(telco.certificate.signature_hash_algorithm).hex(":")  # type: ignore[arg-type]
        (tmp_path / "bank" / "refused.txt").write_text(f"# stolen\n{seen.upper()}  # telco\n")
        with blamed("telco", "peer-message", about="which is refused"):
            while ends["bank"].receive(20.0) is not None:
                pass
    with pair(Credentials.load(tmp_path / "bank", "bank"), telco, logs):
        _until(lambda: any("refused.txt" in each["reason"] for each in logs["bank"].of("refused")))


def test_certificates_are_renewed_without_a_stop(tmp_path: Path) -> None:
    """The run goes on, and later connections and processes see the new ones."""
    bank, telco = stored(tmp_path / "bank", "bank"), stored(tmp_path / "telco", "telco")
    logs = {party: Log() for party in TWO}
    with pair(bank, telco, logs) as made:
        ends = together(**{party: each.attempt for party, each in made.items()})
        new = stored(tmp_path / "bank", "bank", later=10)
        _until(
            lambda: any(each["fingerprint"] == fingerprint(new.certificate) for each in logs["bank"].of("certificate"))
        )
        ends["telco"].send("bank", b"still here")
        assert ends["bank"].receive(30.0) == ("telco", b"still here")
        link = made["telco"]._hub_client
        assert link is not None
        link._call.cancel()
        _until(lambda: link.found is not None and link.found.fingerprint == fingerprint(new.certificate))
        kill(made["telco"])
        made["telco"] = network("telco", TWO, made["bank"].port or 0, credentials=telco, log=logs["telco"])
        together(**{party: each.attempt for party, each in made.items()})
        assert logs["telco"].of("session")[-1]["fingerprint"] == fingerprint(new.certificate)


def test_files_that_do_not_fit_together_are_not_taken_over(tmp_path: Path) -> None:
    first = stored(tmp_path / "bank", "bank")
    source = CredentialSource(first)
    (tmp_path / "bank" / "bank.crt").write_bytes(stored(tmp_path / "other", "bank").chain)
    source._looked -= 10.0
    assert source.current() is first
    (tmp_path / "bank" / "bank.key").write_bytes((tmp_path / "other" / "bank.key").read_bytes())
    source._looked -= 10.0
    assert source.current().chain == (tmp_path / "other" / "bank.crt").read_bytes()


def test_a_refused_certificate_counts_though_other_files_are_no_good(tmp_path: Path) -> None:
    """The own certificate has expired, say, or a line of the list is none; neither ends what the other lines say."""
    telco = stored(tmp_path / "telco", "telco")
    first = stored(tmp_path / "bank", "bank")
    source = CredentialSource(first)
    source.current().verify(telco.chain, "telco")
    (tmp_path / "bank" / "bank.crt").write_bytes(b"half a file")
    (tmp_path / "bank" / "refused.txt").write_text(f"no fingerprint\n{fingerprint(telco.certificate)}\n")
    source._looked -= 10.0
    with refused(CertificateError, "identity", value=fingerprint(telco.certificate)):
        source.current().verify(telco.chain, "telco")
    assert source.current().chain == first.chain
    (tmp_path / "bank" / "refused.txt").unlink()
    source._looked -= 10.0
    assert source.current().refuses(telco.certificate)  # until all fits again


def test_a_list_of_refused_certificates_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "refused.txt"
    path.write_text("\n# nothing\nabc\n")
    with refused(CertificateError, "type", field=str(path), value=3):
        read_refused(path)


def test_a_key_of_another_type_is_refused_and_logged(tmp_path: Path) -> None:
    """An authority that signs any key: RSA and ECDSA are what signatures of sessions are made with."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key, above = ed25519.Ed25519PrivateKey.generate(), x509.load_pem_x509_certificate(authority().certificate)
    usual = x509.load_pem_x509_certificate(new_party(authority(), "telco").certificate)
    builder = (
        x509.CertificateBuilder().subject_name(usual.subject).issuer_name(above.subject).public_key(key.public_key())
    )
    builder = builder.serial_number(7).not_valid_before(usual.not_valid_before_utc)
    builder = builder.not_valid_after(usual.not_valid_after_utc)
    for extension in usual.extensions:
        if not isinstance(extension.value, x509.SubjectKeyIdentifier):
            builder = builder.add_extension(extension.value, extension.critical)
    signer = load_pem_private_key(authority().key, None)
    made = builder.sign(signer, SHA256())  # type: ignore[arg-type]
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = made.public_bytes(Encoding.PEM)
    own = Credentials(party="telco", chain=chain, key=secret, authority=authority().certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with credential_files(own) as files:
        context.load_cert_chain(*files)
    log = Log()
    bank = network("bank", TWO, log=log)
    try:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", bank.port or 0)) as plain,
            context.wrap_socket(plain) as secure,
        ):
            secure.recv(1)
        _until(lambda: log.of("refused"))
    finally:
        bank.close()
    assert "key" in log.of("refused")[0]["reason"]


def _until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.01)
