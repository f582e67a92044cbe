"""What a party, a relay or a kill at the wrong moment could do, and does not."""

from __future__ import annotations

import socket
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest
from loopback import credentials

from labelward.transport.grpc import probe

pytestmark = pytest.mark.network


def test_a_probe_puts_no_key_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill within it would leave the key there."""
    found: list[Path] = []
    load = ssl.SSLContext.load_cert_chain

    def loading(self: ssl.SSLContext, *files: Any) -> None:
        load(self, *files)
        found.extend(path for path in tmp_path.rglob("*") if path.is_file())

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", loading)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        reason = probe(f"127.0.0.1:{port}", credentials("telco"), "bank", timeout=0.1).reason
    assert reason is not None
    assert "does not answer" in reason
    assert found == []
