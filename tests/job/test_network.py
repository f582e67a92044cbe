"""Job files of a run over a network: who listens where, whose data are elsewhere, and every refusal."""

from __future__ import annotations

import math
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelward.errors import Code, JobError
from labelward.job import Job, NetworkSection, load_job, parse_job, split_address
from refusals import refused

BANK = {"table": "b.csv", "id": "customer", "label": "churned"}
TELCO = {"table": "t.csv", "id": "who"}
MEET = {"address": "bank.example:7443"}


def job(parties: dict[str, Any], network: dict[str, Any] | None = MEET, **rest: Any) -> Job:
    sections: dict[str, Any] = {"parties": parties, **rest}
    return parse_job(sections if network is None else {**sections, "network": network})


def test_both_companies_files_agree_on_who_is_who() -> None:
    """Each file knows its own table only, and both give the same shared part."""
    bank = job({"bank": BANK, "telco": {}})
    telco = job({"telco": TELCO, "bank": {"role": "active"}})
    assert bank.active.name == telco.active.name == "bank"
    assert [party.elsewhere for party in bank.parties] == [False, True]
    assert [party.elsewhere for party in telco.parties] == [True, False]
    assert bank.shared() == telco.shared()
    assert not any("network" in key or "example" in str(value) for key, value in bank.shared().items())
    for each in (bank, telco):
        assert parse_job(each.to_toml()) == each


def test_a_relay_knows_no_table() -> None:
    relay = job({"bank": {"role": "active"}, "telco": {"role": "passive"}}, {**MEET, "listener": "relay"})
    assert relay.listener == "relay"
    assert all(party.elsewhere for party in relay.parties)
    assert parse_job(relay.to_toml()) == relay


def test_defaults_and_paths(tmp_path: Any) -> None:
    file = tmp_path / "job.toml"
    text = (
        '[parties.bank]\ntable = "b.csv"\nid = "i"\nlabel = "y"\n[parties.telco]\n[network]\naddress = "[::1]:7443"\n'
    )
    file.write_text(text)
    found = load_job(file)
    assert found.connection() == NetworkSection(address="[::1]:7443", certificates=str(tmp_path / "certs"))
    assert found.connection().listens_at == "0.0.0.0:7443"
    assert found.listener == "bank"
    assert found.parties[1].id is None
    file.write_text(text + 'certificates = "../keys"\nlisten = "10.0.0.1:99"\nlistener = "telco"\n')
    found = load_job(file)
    assert found.connection().certificates == str(tmp_path.parent / "keys")
    assert found.connection().listens_at == "10.0.0.1:99"
    assert found.listener == "telco"
    assert parse_job(found.to_toml()) == found


def test_the_default_id_column_is_for_own_tables_only() -> None:
    found = job({"bank": {"table": "b.csv", "label": "y"}, "telco": {}}, data={"id": "who"})
    assert [party.id for party in found.parties] == ["who", None]


def test_parties_are_found_by_name() -> None:
    found = job({"bank": BANK, "telco": {}})
    assert found.party("telco").elsewhere
    with refused(JobError, "unknown", value="telko") as caught:
        found.party("telko")
    assert "'telco'?" in caught.value.reason


def test_a_run_over_a_network_needs_its_section() -> None:
    with refused(JobError, "missing", field="[network]"):
        job({"bank": BANK, "telco": TELCO}, None).connection()


@pytest.mark.parametrize(
    ("parties", "code", "field", "value"),
    [
        (
            {"bank": BANK, "telco": {"columns": ["a"]}},
            "missing",
            "[parties.telco] table",
            None,
        ),
        (
            {"bank": BANK, "telco": {"share": 0.5}},
            "missing",
            "[parties.telco] table",
            None,
        ),
        (
            {"bank": BANK, "telco": {"id": "who"}},
            "missing",
            "[parties.telco] table",
            None,
        ),
        (
            {"bank": {"label": "y"}, "telco": TELCO},
            "missing",
            "[parties.bank] table",
            None,
        ),
        ({"bank": {}, "telco": 0.5}, "missing", "[parties]", None),
        (
            {"bank": {"role": "active"}, "telco": 0.5},
            "missing",
            "[parties.telco] table",
            None,
        ),
        ({"bank": {}, "telco": TELCO}, "missing", "[parties]", None),
        (
            {"bank": {"role": "active"}, "telco": {**TELCO, "label": "y"}},
            "conflict",
            "[parties.telco] label",
            "y",
        ),
        (
            {"active": {}, "telco": {**TELCO, "label": "y"}},
            "conflict",
            "[parties.telco] label",
            "y",
        ),
        (
            {"bank": {"role": "active"}, "telco": {**TELCO, "role": "active"}},
            "conflict",
            "[parties.telco] role",
            "active",
        ),
        (
            {"bank": {**BANK, "role": "passive"}, "telco": {}},
            "conflict",
            "[parties.bank] role",
            "passive",
        ),
        (
            {"active": {"role": "passive"}, "telco": {"role": "active"}},
            "conflict",
            "[parties.active] role",
            "passive",
        ),
        (
            {"active": {}, "telco": {"role": "active"}},
            "conflict",
            "[parties.active] role",
            None,
        ),
        (
            {"bank": BANK, "telco": {"role": "pasive"}},
            "choice",
            "[parties.telco] role",
            "pasive",
        ),
        (
            {"bank": {"table": "b.csv", "id": "i", "role": "active"}, "telco": {}},
            "missing",
            "[parties.bank] label",
            None,
        ),
        (
            {"active": 0.5, "telco": 0.5},
            "conflict",
            "[network]",
            None,
        ),
        (
            {"bank": BANK, "telco": {"role": "passive", "rows": 3}},
            "unknown",
            "[parties.telco]",
            "rows",
        ),
    ],
)
def test_parties_that_cannot_be(parties: dict[str, Any], code: Code, field: str, value: object) -> None:
    data = {"table": "digits"} if parties.get("active") == 0.5 else {}
    with refused(JobError, code, field=field, value=value) as caught:
        job(parties, data=data)
    assert str(caught.value).startswith("job.toml: ")


@pytest.mark.parametrize(
    ("parties", "fact"),
    [
        ({"bank": BANK, "telco": {"columns": ["a"]}}, "columns"),
        ({"bank": BANK, "telco": {"share": 0.5}}, "share"),
        ({"bank": BANK, "telco": {"id": "who"}}, "monotone"),
        ({"bank": {"role": "active"}, "telco": 0.5}, "'bank'"),
        ({"bank": {"role": "active"}, "telco": {**TELCO, "label": "y"}}, "'bank'"),
        ({"bank": {"role": "active"}, "telco": {**TELCO, "role": "active"}}, "'bank'"),
        ({"bank": {**BANK, "role": "passive"}, "telco": {}}, "'churned'"),
        ({"bank": BANK, "telco": {"role": "pasive"}}, "'passive'?"),
        ({"bank": BANK, "telco": {"role": "passive", "rows": 3}}, "share, table, text, unaligned, weight"),
    ],
)
def test_what_else_a_refusal_of_parties_tells(parties: dict[str, Any], fact: str) -> None:
    with pytest.raises(JobError) as caught:
        job(parties)
    assert fact in caught.value.reason


def test_data_elsewhere_need_a_network() -> None:
    with refused(JobError, "missing", field="[parties.telco] table") as caught:
        job({"bank": BANK, "telco": {}}, None)
    assert "[network]" in caught.value.reason


@pytest.mark.parametrize(
    ("network", "code", "field", "value"),
    [
        ({}, "missing", "[network] address", None),
        (
            {"address": ""},
            "missing",
            "[network] address",
            None,
        ),
        ({"address": 7443}, "type", "[network] address", 7443),
        (
            {"address": "bank.example"},
            "type",
            "[network] address",
            "bank.example",
        ),
        (
            {"address": ":7443"},
            "type",
            "[network] address",
            ":7443",
        ),
        (
            {"address": "bank.example:"},
            "range",
            "[network] address",
            "bank.example:",
        ),
        (
            {"address": "bank.example:0"},
            "range",
            "[network] address",
            "bank.example:0",
        ),
        (
            {"address": "bank.example:65536"},
            "range",
            "[network] address",
            "bank.example:65536",
        ),
        (
            {"address": "bank.example:https"},
            "range",
            "[network] address",
            "bank.example:https",
        ),
        (
            {"address": "bank.example:٧"},
            "range",
            "[network] address",
            "bank.example:٧",
        ),
        (
            {"address": "https://bank.example:7443"},
            "type",
            "[network] address",
            "https://bank.example:7443",
        ),
        (
            {"address": "bank example:7443"},
            "type",
            "[network] address",
            "bank example:7443",
        ),
        (
            {"address": "10.0.0.256:7443"},
            "type",
            "[network] address",
            "10.0.0.256:7443",
        ),
        (
            {"address": "::1:7443"},
            "type",
            "[network] address",
            "::1:7443",
        ),
        (
            {"address": "[::x]:7443"},
            "type",
            "[network] address",
            "[::x]:7443",
        ),
        (
            {**MEET, "listen": "0.0.0.0"},
            "type",
            "[network] listen",
            "0.0.0.0",
        ),
        (
            {**MEET, "listener": "../bank"},
            "type",
            "[network] listener",
            "../bank",
        ),
        ({**MEET, "listener": "Bank"}, "conflict", "[network] listener", "Bank"),
        ({**MEET, "certificates": " "}, "type", "[network] certificates", " "),
        (
            {**MEET, "timeout": 0},
            "range",
            "[network] timeout",
            0,
        ),
        (
            {**MEET, "timeout": math.nan},
            "range",
            "[network] timeout",
            math.nan,
        ),
        (
            {**MEET, "timeout": math.inf},
            "range",
            "[network] timeout",
            math.inf,
        ),
        (
            {**MEET, "silence": -1.0},
            "range",
            "[network] silence",
            -1.0,
        ),
        ({**MEET, "silence": "6h"}, "type", "[network] silence", "6h"),
        ({**MEET, "heartbeat": True}, "type", "[network] heartbeat", True),
        ({**MEET, "timeout": 5.0}, "range", "[network] heartbeat", 5.0),
        ({**MEET, "heartbeat": 0.05}, "range", "[network] heartbeat", 0.05),
        (
            {**MEET, "message_limit": 1000},
            "range",
            "[network] message_limit",
            1000,
        ),
        ({**MEET, "message_limit": 1e9}, "type", "[network] message_limit", 1000000000.0),
        (
            {**MEET, "adress": "x:1"},
            "unknown",
            "[network]",
            "adress",
        ),
    ],
)
def test_networks_that_cannot_be(network: dict[str, Any], code: Code, field: str, value: object) -> None:
    with refused(JobError, code, field=field, value=value) as caught:
        job({"bank": BANK, "telco": {}}, network)
    assert str(caught.value).startswith("job.toml: ")


@pytest.mark.parametrize(
    ("network", "fact"),
    [
        ({"address": "bank.example:65536"}, "'65536'"),
        ({"address": "bank example:7443"}, "'bank example'"),
        ({"address": "[::x]:7443"}, "'::x'"),
        ({"address": "::1:7443"}, '"[::1]:7443"'),
        ({**MEET, "listener": "Bank"}, "party 'bank'"),
        ({**MEET, "timeout": 5.0}, "5 s"),
        ({**MEET, "timeout": 0}, "2592000"),
        ({**MEET, "message_limit": 1000}, "1048576 to 1099511627776"),
        ({**MEET, "adress": "x:1"}, "'address'?"),
    ],
)
def test_what_else_a_refusal_of_a_network_tells(network: dict[str, Any], fact: str) -> None:
    with pytest.raises(JobError) as caught:
        job({"bank": BANK, "telco": {}}, network)
    assert fact in caught.value.reason


def test_the_section_is_a_section() -> None:
    with refused(JobError, "type", field="[network]", value="bank:1"):
        parse_job({"parties": {"bank": BANK, "telco": {}}, "network": "bank:1"})


label = st.text(string.ascii_letters + string.digits, min_size=1, max_size=20)
hosts = st.one_of(
    st.lists(label, min_size=1, max_size=4).map(".".join).filter(lambda host: not host.replace(".", "").isdigit()),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
)


@given(hosts, st.integers(1, 65535))
def test_addresses_are_read_as_they_are_written(host: str, port: int) -> None:
    assert split_address("x", f"{host}:{port}") == (host.strip("[]"), port)


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        host, port = split_address("x", text)
    except JobError:
        return
    assert host
    assert 1 <= port <= 65535
