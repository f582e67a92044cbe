"""What is read of a job file with something wrong in it: whom to tell, and how to reach them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelward.job import network_job

WHOLE = """
[data]
id = "id"

[parties.bank]
role = "active"

[parties.telco]
table = "customers.csv"

[model]
trees = 5

[network]
address = "bank.example:7443"
certificates = "certs"
timeout = 60.0
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("trees = 5", "tres = 5"),
        ("trees = 5", 'trees = "5'),
        ("trees = 5", "trees = ["),
        ("[model]", "[model"),
        ("[model]", "[modle]"),
        ('table = "customers.csv"', "table = customers.csv"),
        ("timeout = 60.0", "timeout = soon"),
        ("timeout = 60.0", 'timeout = "soon"'),
        ("timeout = 60.0", 'consent = ["everything"]'),
        ("timeout = 60.0", "heartbeat = 9999.0"),
        ('id = "id"', 'id = "id"\nid = "key"'),
    ],
)
def test_the_partners_are_known_whatever_else_is_wrong(tmp_path: Path, old: str, new: str) -> None:
    file = tmp_path / "job.toml"
    file.write_text(WHOLE.replace(old, new))
    job = network_job(file)
    assert job is not None
    assert [each.name for each in job.parties] == ["bank", "telco"]
    assert job.active.name == "bank"
    assert job.connection().address == "bank.example:7443"
    assert job.connection().certificates == str(tmp_path / "certs")
    assert job.connection().timeout == (60.0 if "60.0" in file.read_text() else 600.0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("address = ", "adress = "),
        ("bank.example:7443", "bank.example"),
        ("[network]", "[netwrk]"),
        ("[parties.", "[p."),
    ],
)
def test_without_an_address_or_partners_nobody_is_told(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "job.toml").write_text(WHOLE.replace(old, new))
    assert network_job(tmp_path / "job.toml") is None


@given(cut=st.integers(0, len(WHOLE)), put=st.text(max_size=3))
def test_nothing_that_is_typed_ends_in_another_error(
    tmp_path_factory: pytest.TempPathFactory, cut: int, put: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "typed.toml"
    file.write_text(WHOLE[:cut] + put + WHOLE[cut + 1 :], encoding="utf-8", errors="surrogatepass")
    network_job(file)
