"""What one party is told that cannot even begin: its own files, its listener, its clock."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from companies import Case, Companies, authority, companies
from typer.testing import CliRunner

from labelward.cli.app import app
from labelward.transport.certificates import Issued, new_authority, new_party
from labelward.transport.grpc import coordinator

pytestmark = pytest.mark.network

TWO = Case(parties=("bank", "telco"), rows=60)
HERE = ["localhost", "127.0.0.1"]
OTHERS = new_authority(name="another company")


def begin(made: Companies, party: str, monkeypatch: pytest.MonkeyPatch, wanted: int | None = None) -> tuple[int, str]:
    """Run a party in this process; return its exit code and its last words.

    It waits longer where the machine was too busy for one try to connect, or to find what ends with a wanted code.
    """
    monkeypatch.chdir(made.folder)
    for seconds in (2, 10, 60):
        made.network = f"timeout = {seconds}.0\nheartbeat = 0.5"
        made.write_jobs()
        result = CliRunner().invoke(app, ["party", f"{party}.toml", "--as", party], prog_name="labelward")
        assert "Traceback" not in result.stderr
        said = result.stderr.splitlines()[-1]
        if party == "bank" or ("has not connected yet" not in said and wanted in (None, result.exit_code)):
            break
    return result.exit_code, said


@pytest.fixture
def nobody_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """No peer has connected that could still hear why a run cannot begin: nobody is waited for."""
    monkeypatch.setattr(coordinator, "_PASS_ON", 0.1)


def before(**ago: int) -> datetime:
    return datetime.now(UTC) - timedelta(**ago)


OWN: dict[str, tuple[Callable[[], Issued], str]] = {
    "expired": (lambda: new_party(authority(), "telco", days=10, now=before(days=30)), "telco.crt: expired on"),
    "clock": (
        lambda: new_party(authority(), "telco", now=before(days=-2)),
        "clock",
    ),
    "swapped": (lambda: new_party(authority(), "shop"), "telco.crt: names 'shop'"),
    "self-signed": (lambda: new_authority(name="telco"), "'telco', not of a"),
    "other authority": (lambda: new_party(OTHERS, "telco"), "not in authority.crt"),
}


@pytest.mark.parametrize("case", OWN)
def test_an_own_certificate_that_is_no_good(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, words = OWN[case]
    with companies(tmp_path, TWO) as made:
        made.certify("telco", make())
        code, said = begin(made, "telco", monkeypatch)
    assert code == 2
    assert said.startswith("error: ")
    assert words in said


def test_a_key_that_others_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with companies(tmp_path, TWO) as made:
        (made.folder / "certs-telco" / "telco.key").chmod(0o644)
        code, said = begin(made, "telco", monkeypatch)
    assert code == 2
    assert "telco.key" in said
    assert "600" in said


LISTENERS: dict[str, tuple[Callable[[], Issued], str]] = {
    "expired": (
        lambda: new_party(authority(), "bank", addresses=HERE, days=10, now=before(days=30)),
        "'bank': expired on",
    ),
    "clock": (
        lambda: new_party(authority(), "bank", addresses=HERE, now=before(days=-2)),
        "clock",
    ),
    "another party": (lambda: new_party(authority(), "shop", addresses=HERE), "names 'shop'"),
    "another address": (lambda: new_party(authority(), "bank", addresses=["bank.example"]), "is for bank.example"),
    "self-signed": (lambda: new_authority(name="bank"), "'bank', not of a"),
    "other authority": (
        lambda: new_party(OTHERS, "bank", addresses=HERE),
        "by 'another company'",
    ),
}


QUICK = ("another party", "other authority")


@pytest.mark.parametrize(
    "case", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in LISTENERS]
)
def test_a_listener_that_is_not_trusted(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, words = LISTENERS[case]
    with companies(tmp_path, TWO) as made, tls(made.port, make(), tmp_path):
        code, said = begin(made, "telco", monkeypatch, wanted=2)
    assert code == 2  # nothing that a restart mends
    assert said.startswith("error: party 'bank': ")
    assert words in said


def test_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with companies(tmp_path, TWO) as made:
        code, said = begin(made, "telco", monkeypatch)
    assert code == 3
    assert said.startswith("error: party 'bank': ")
    assert f"127.0.0.1:{made.port} refused" in said
    assert "nobody listens there" in said


def test_a_name_that_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with companies(tmp_path, TWO, addresses={"telco": "bank.invalid:7443"}) as made:
        code, said = begin(made, "telco", monkeypatch)
    assert code == 3
    assert said.startswith("error: party 'bank': ")
    assert "'bank.invalid' is not known" in said


def test_a_server_of_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(65536)
                connection.close()

    with companies(tmp_path, TWO) as made, socket.create_server(("127.0.0.1", made.port)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        code, said = begin(made, "telco", monkeypatch)
        server.shutdown(socket.SHUT_RDWR)
    assert code == 3
    assert said.startswith("error: party 'bank': ")
    assert f"127.0.0.1:{made.port} does not speak" in said


def test_nobody_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with companies(tmp_path, TWO) as made:
        code, said = begin(made, "bank", monkeypatch)
    assert code == 3
    assert said.startswith("error: party 'telco': ")
    assert "has not connected yet" in said


def test_a_port_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with companies(tmp_path, TWO) as made, socket.create_server(("127.0.0.1", made.port)):
        code, said = begin(made, "bank", monkeypatch)
    assert code == 2
    assert said.startswith(f"error: listen = '127.0.0.1:{made.port}': ")
    assert "in use" in said


@pytest.mark.usefixtures("nobody_to_tell")
def test_an_id_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with companies(tmp_path, TWO) as made:
        made.edit("telco.csv", "c00017", "c00018")
        code, said = begin(made, "telco", monkeypatch)
    assert code == 2
    assert said.startswith("error: party 'telco', id column 'id': ")
    assert "'c00018'" in said


@pytest.mark.usefixtures("nobody_to_tell")
def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not even the first file can be written; ENOSPC as a full disk gives it."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    with companies(tmp_path, TWO) as made:
        made.run("telco").mkdir(mode=0o700)
        (made.run("telco") / "job.toml.partial").symlink_to("/dev/full")
        code, said = begin(made, "telco", monkeypatch)
    assert (code, said) == (2, "error: telco-telco/job.toml: cannot be written (No space left on device)")


@contextlib.contextmanager
def tls(port: int, issued: Issued, folder: Path) -> Iterator[None]:
    """A server with a certificate, which asks for nothing."""
    (folder / "server.crt").write_bytes(issued.certificate)
    (folder / "server.key").write_bytes(issued.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.set_alpn_protocols(["h2"])

    def serve(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as secure:
                    secure.recv(1)

    with socket.create_server(("127.0.0.1", port)) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        yield
        server.shutdown(socket.SHUT_RDWR)


def test_an_absent_party_is_waited_for_longer_than_a_silent_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with companies(tmp_path, TWO) as made:
        made.network = "timeout = 5.0\nheartbeat = 0.5\nsilence = 1.0"
        made.write_jobs()
        result = CliRunner().invoke(app, ["party", "bank.toml", "--as", "bank"], prog_name="labelward")
    assert result.exit_code == 3
    said = result.stderr.splitlines()[-1]
    assert "'telco'" in said
    assert "away for 5 s" in said
