"""Job files of a run over a network: who listens where, whose data are elsewhere, and every refusal word for word."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelward.errors import JobError
from labelward.job import Job, NetworkSection, load_job, parse_job, split_address

BANK = {"table": "b.csv", "id": "customer", "label": "churned"}
TELCO = {"table": "t.csv", "id": "who"}
FILE = "(the path of a .csv or .parquet file)"
SUCH = 'such as "bank.example:7443"'
PORT = "the port must be a number from 1 to 65535"
HOST = "must be a host name or an IP address"
NAMED = "a name must be a letter, then letters, digits, '_' or '-', at most 64 in all"
LONG = "must be seconds, more than 0 and at most 2592000 (30 days), but got"
NOBODY = (
    "[parties]: none of them is the active party; call the one that holds the labels 'active', or give its section "
    'the label column, or role = "active" where its table is elsewhere'
)
MEET = {"address": "bank.example:7443"}


def job(parties: dict[str, Any], network: dict[str, Any] | None = MEET, **rest: Any) -> Job:
    sections: dict[str, Any] = {"parties": parties, **rest}
    return parse_job(sections if network is None else {**sections, "network": network})


def refusal(parties: dict[str, Any], network: dict[str, Any] | None = MEET, **rest: Any) -> str:
    with pytest.raises(JobError) as caught:
        job(parties, network, **rest)
    told = str(caught.value)
    assert told.startswith("job.toml: ")
    return told.removeprefix("job.toml: ")


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
    with pytest.raises(JobError) as caught:
        found.party("telko")
    assert str(caught.value) == "unknown party 'telko' (did you mean 'telco'?); known: bank, telco"


def test_a_run_over_a_network_needs_its_section() -> None:
    with pytest.raises(JobError) as caught:
        job({"bank": BANK, "telco": TELCO}, None).connection()
    assert str(caught.value) == "[network]: required for a run over a network; give it the listener's address"


@pytest.mark.parametrize(
    ("parties", "told"),
    [
        (
            {"bank": BANK, "telco": {"columns": ["a"]}},
            f"[parties.telco] table: required beside columns {FILE}",
        ),
        (
            {"bank": BANK, "telco": {"share": 0.5}},
            f"[parties.telco] table: required beside share {FILE}",
        ),
        (
            {"bank": BANK, "telco": {"id": "who"}},
            "[parties.telco] table: required beside id, label, weight and monotone",
        ),
        (
            {"bank": {"label": "y"}, "telco": TELCO},
            "[parties.bank] table: required beside id, label, weight and monotone",
        ),
        ({"bank": {}, "telco": 0.5}, NOBODY),
        (
            {"bank": {"role": "active"}, "telco": 0.5},
            "[parties.telco] table: required, since 'bank' does not share the table of [data]",
        ),
        ({"bank": {}, "telco": TELCO}, NOBODY),
        (
            {"bank": {"role": "active"}, "telco": {**TELCO, "label": "y"}},
            "[parties.telco] label: only the active party has the labels, and the active party is 'bank'",
        ),
        (
            {"active": {}, "telco": {**TELCO, "label": "y"}},
            "[parties.telco] label: the labels are held by another party than 'active'",
        ),
        (
            {"bank": {"role": "active"}, "telco": {**TELCO, "role": "active"}},
            "[parties.telco] role: 'bank' is the active party already",
        ),
        (
            {"bank": {**BANK, "role": "passive"}, "telco": {}},
            "[parties.bank] role: 'passive', but the party has the label column 'churned'",
        ),
        (
            {"active": {"role": "passive"}, "telco": {"role": "active"}},
            "[parties.active] role: a party called 'active' is the active party",
        ),
        (
            {"active": {}, "telco": {"role": "active"}},
            "[parties.active] role: a party called 'active' is the active party",
        ),
        (
            {"bank": BANK, "telco": {"role": "pasive"}},
            "[parties.telco] role: must be one of 'active', 'passive' but got 'pasive' (did you mean 'passive'?)",
        ),
        (
            {"bank": {"table": "b.csv", "id": "i", "role": "active"}, "telco": {}},
            "[parties.bank] label: required for the active party's own table",
        ),
        (
            {"active": 0.5, "telco": 0.5},
            "[network]: only where each party has its own table ([parties.NAME]); here all share the table of [data]",
        ),
        (
            {"bank": BANK, "telco": {"role": "passive", "rows": 3}},
            "[parties.telco] unknown key 'rows'; known: columns, id, label, monotone, role, share, table, weight",
        ),
    ],
)
def test_parties_that_cannot_be(parties: dict[str, Any], told: str) -> None:
    data = {"table": "digits"} if parties.get("active") == 0.5 else {}
    assert refusal(parties, data=data) == told


def test_data_elsewhere_need_a_network() -> None:
    assert refusal({"bank": BANK, "telco": {}}, None) == (
        "[parties.telco] table: required; without it the data of 'telco' are elsewhere, and that needs a section "
        "[network]"
    )


@pytest.mark.parametrize(
    ("network", "told"),
    [
        ({}, f"[network] address: required (where the others reach the listener, {SUCH})"),
        (
            {"address": ""},
            f"[network] address: required (where the others reach the listener, {SUCH})",
        ),
        ({"address": 7443}, "[network] address: must be a text that is not empty but got 7443"),
        (
            {"address": "bank.example"},
            "[network] address: must be a host and a port, such as \"bank.example:7443\", but got 'bank.example'",
        ),
        (
            {"address": ":7443"},
            "[network] address: must be a host and a port, such as \"bank.example:7443\", but got ':7443'",
        ),
        (
            {"address": "bank.example:"},
            f"[network] address: {PORT} but got '' in 'bank.example:'",
        ),
        (
            {"address": "bank.example:0"},
            f"[network] address: {PORT} but got '0' in 'bank.example:0'",
        ),
        (
            {"address": "bank.example:65536"},
            f"[network] address: {PORT} but got '65536' in 'bank.example:65536'",
        ),
        (
            {"address": "bank.example:https"},
            f"[network] address: {PORT} but got 'https' in 'bank.example:https'",
        ),
        (
            {"address": "bank.example:٧"},
            f"[network] address: {PORT} but got '٧' in 'bank.example:٧'",
        ),
        (
            {"address": "https://bank.example:7443"},
            f"[network] address: {HOST} but got 'https://bank.example' in 'https://bank.example:7443'",
        ),
        (
            {"address": "bank example:7443"},
            f"[network] address: {HOST} but got 'bank example' in 'bank example:7443'",
        ),
        (
            {"address": "10.0.0.256:7443"},
            f"[network] address: {HOST} but got '10.0.0.256' in '10.0.0.256:7443'",
        ),
        (
            {"address": "::1:7443"},
            "[network] address: an IPv6 address stands in brackets, \"[::1]:7443\", but got '::1:7443'",
        ),
        (
            {"address": "[::x]:7443"},
            "[network] address: must be an IPv6 address in brackets but got '::x' in '[::x]:7443'",
        ),
        (
            {**MEET, "listen": "0.0.0.0"},
            "[network] listen: must be a host and a port, such as \"bank.example:7443\", but got '0.0.0.0'",
        ),
        (
            {**MEET, "listener": "../bank"},
            f"[network] listener: {NAMED}, but got '../bank'",
        ),
        ({**MEET, "listener": "Bank"}, "[network] listener: 'Bank' and the party 'bank' differ only in case"),
        ({**MEET, "certificates": " "}, "[network] certificates: must be a text that is not empty but got ' '"),
        (
            {**MEET, "timeout": 0},
            f"[network] timeout: {LONG} 0",
        ),
        (
            {**MEET, "timeout": float("nan")},
            f"[network] timeout: {LONG} nan",
        ),
        (
            {**MEET, "timeout": float("inf")},
            f"[network] timeout: {LONG} inf",
        ),
        (
            {**MEET, "silence": -1.0},
            f"[network] silence: {LONG} -1.0",
        ),
        ({**MEET, "silence": "6h"}, "[network] silence: must be a number but got '6h'"),
        ({**MEET, "heartbeat": True}, "[network] heartbeat: must be a number but got True"),
        ({**MEET, "timeout": 5.0}, "[network] heartbeat: must be less than the timeout of 5 s but got 5"),
        (
            {**MEET, "message_limit": 1000},
            "[network] message_limit: must lie between 1048576 and 1099511627776 but got 1000",
        ),
        ({**MEET, "message_limit": 1e9}, "[network] message_limit: must be a whole number but got 1000000000.0"),
        (
            {**MEET, "adress": "x:1"},
            "[network] unknown key 'adress' (did you mean 'address'?); known: address, "
            "certificates, heartbeat, listen, listener, message_limit, run, silence, timeout",
        ),
    ],
)
def test_networks_that_cannot_be(network: dict[str, Any], told: str) -> None:
    assert refusal({"bank": BANK, "telco": {}}, network) == told


def test_the_section_is_a_section() -> None:
    with pytest.raises(JobError) as caught:
        parse_job({"parties": {"bank": BANK, "telco": {}}, "network": "bank:1"})
    assert str(caught.value) == "job.toml: [network]: must be a section with keys but got 'bank:1'"


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
