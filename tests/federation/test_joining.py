"""Parties that cannot be of the same run are told so, and do not wait for each other."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from labelward.federation.connect import connect, run_identity
from labelward.job import load_job
from labelward.transport.certificates import new_authority, new_party

pytestmark = pytest.mark.network

_JOB = """
[data]
id = "id"

[parties.bank]
role = "{bank}"

[parties.telco]
role = "{telco}"

[model]

[encryption]
engine = "plain"
insecure = true

[network]
address = "127.0.0.1:{port}"
listener = "bank"
certificates = "{certificates}"
heartbeat = 0.5
"""


def test_two_active_parties_do_not_wait_for_each_other(tmp_path: Path) -> None:
    authority = new_authority()
    for party in ("bank", "telco"):
        made = new_party(authority, party, addresses=["127.0.0.1"])
        for suffix, content in (("crt", made.certificate), ("key", made.key)):
            (tmp_path / f"{party}.{suffix}").touch(mode=0o600)
            (tmp_path / f"{party}.{suffix}").write_bytes(content)
    (tmp_path / "authority.crt").write_bytes(authority.certificate)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    told: list[tuple[str, Mapping[str, Any]]] = []

    def log(event: str, fields: Mapping[str, Any]) -> None:
        told.append((event, fields))

    networks = []
    try:
        for party, other in (("bank", "telco"), ("telco", "bank")):
            path = tmp_path / f"{party}.toml"
            roles = {party: "active", other: "passive"}
            path.write_text(_JOB.format(**roles, port=port, certificates=tmp_path))
            networks.append(connect(load_job(path), party, "train", log, folder=tmp_path)[0])
        until = time.monotonic() + 60.0
        while not (refused := [fields for event, fields in told if event == "refused"]):
            assert time.monotonic() < until, told
            time.sleep(0.02)
    finally:
        for network in reversed(networks):
            network.close()
    assert refused[0]["peer"] == "telco"
    words = "it takes part in another run (train: telco (active), bank; not train: bank (active), telco)"
    assert refused[0]["reason"] == words


def test_what_tells_runs_apart() -> None:
    assert run_identity("train", ("bank", "telco", "shop"), None) == "train: bank (active), shop, telco"
    assert run_identity("train", ("bank", "shop", "telco"), "march") == "train march: bank (active), shop, telco"
    long = tuple(f"{letter * 60}" for letter in "abc")
    cut = run_identity("train", long, "m" * 60)
    assert len(cut) == 100
    assert cut != run_identity("train", long[::-1], "m" * 60)
