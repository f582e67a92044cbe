"""Clocks: waits do not depend on the clock of the day, and who has a wrong one or an old certificate is told."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest
from loopback import Log, authority, network, together

import labelward
from labelward.transport.certificates import Credentials, new_party
from labelward.transport.grpc import Network
from labelward.transport.grpc.node import Node

pytestmark = pytest.mark.network

TWO = ("bank", "telco")


def _pair(logs: dict[str, Log], days: dict[str, int]) -> dict[str, Network]:
    made: dict[str, Network] = {}
    for party in TWO:
        issued = new_party(authority(), party, addresses=["127.0.0.1"], days=days.get(party, 365))
        own = Credentials(party=party, chain=issued.certificate, key=issued.key, authority=authority().certificate)
        made[party] = network(party, TWO, (made["bank"].port or 0) if made else 0, log=logs[party], credentials=own)
    return made


def _meet(made: dict[str, Network]) -> None:
    try:
        assert None not in together(**{party: each.attempt for party, each in made.items()}).values()
    finally:
        for each in reversed(made.values()):
            each.close()


@pytest.mark.parametrize("days", [365, 31, 29, 2])
def test_a_certificate_near_its_end_is_told_at_both_parties(days: int) -> None:
    logs = {party: Log() for party in TWO}
    _meet(_pair(logs, {"telco": days}))
    for log in logs.values():
        told = [fields for fields in log.of("expiry") if fields["peer"] == "telco"]
        assert bool(told) == (days < 30)
        assert all(fields["days"] in (days - 1, days) for fields in told)
        assert all(fields["peer"] == "telco" for fields in log.of("expiry"))


@pytest.mark.parametrize(("wrong", "seconds"), [(0.0, None), (200.0, None), (400.0, 400), (-86400.0, -86400)])
def test_a_clock_that_is_off_is_told(monkeypatch: pytest.MonkeyPatch, wrong: float, seconds: int | None) -> None:
    """Both are told, each of the other."""
    own = {"telco": wrong}
    monkeypatch.setattr(Node, "clock", lambda self: time.time() + own.get(self.endpoint.party, 0.0))
    logs = {party: Log() for party in TWO}
    _meet(_pair(logs, {}))
    for party, peer, sign in (("bank", "telco", 1), ("telco", "bank", -1)):
        told = logs[party].of("clock")
        assert [each["peer"] for each in told] == ([] if seconds is None else [peer])
        assert all(abs(each["seconds"] - sign * (seconds or 0)) < 30 for each in told)


@pytest.mark.slow
def test_waits_do_not_depend_on_the_clock_of_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wall clock that runs a thousand times too fast: nobody is away, nothing times out."""
    began, real = time.time(), time.time
    monkeypatch.setattr(time, "time", lambda: began + 1000 * (real() - began))
    logs = {party: Log() for party in TWO}
    made = _pair(logs, {})
    try:
        ends = together(**{party: each.attempt for party, each in made.items()})
        for number in range(50):
            ends["bank"].send("telco", b"%d" % number)
            assert ends["telco"].receive(5.0) == ("bank", b"%d" % number)
            time.sleep(0.02)
    finally:
        for each in reversed(made.values()):
            each.close()
    assert not any(log.of("away") for log in logs.values())


def test_the_clock_of_the_day_is_read_for_greetings_and_certificates_only() -> None:
    root = Path(labelward.__file__).parent
    readers = set()
    for path in [*(root / "transport").rglob("*.py"), *(root / "party").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in (
                "time.time",
                "datetime.now",
                "datetime.utcnow",
            ):
                readers.add(path.name)
    assert readers == {"node.py", "issue.py", "verification.py", "credentials.py", "diagnose.py", "noise_record.py"}
