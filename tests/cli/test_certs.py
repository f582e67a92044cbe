"""``labelward certs``: what is written and for whom, what is refused, and what a check says."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from small_jobs import Call, refused

from labelward.transport.certificates import Credentials, addresses_of, new_authority


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def made(tmp_path: Path, call: Call) -> Path:
    """The folder of ``certs new`` for a bank that listens and a telco."""
    arguments = ["--party", "bank", "--party", "telco", "--address", "bank.example", "--address", "10.0.0.1"]
    result = call("certs", "new", tmp_path / "certs", *arguments)
    assert result.exit_code == 0, result.output
    assert "can impersonate any party" in result.stdout
    return tmp_path / "certs"


def test_new_makes_for_each_party_what_it_needs_and_no_more(made: Path) -> None:
    assert _names(made) == [
        "authority/authority.crt",
        "authority/authority.key",
        "bank/authority.crt",
        "bank/bank.crt",
        "bank/bank.key",
        "telco/authority.crt",
        "telco/telco.crt",
        "telco/telco.key",
    ]
    assert all(_mode(path) == (0o700 if path.is_dir() else 0o600) for path in made.rglob("*"))
    assert addresses_of(Credentials.load(made / "bank", "bank").certificate) == ("bank.example", "10.0.0.1")
    assert addresses_of(Credentials.load(made / "telco", "telco").certificate) == ()


def test_another_party_may_listen(tmp_path: Path, call: Call) -> None:
    arguments = ["--party", "bank", "--party", "hub", "--address", "hub.example", "--listener", "hub", "--days", 4000]
    result = call("certs", "new", tmp_path / "certs", *arguments)
    assert result.exit_code == 2  # --days
    assert call("certs", "new", tmp_path / "certs", *arguments[:-2]).exit_code == 0
    assert addresses_of(Credentials.load(tmp_path / "certs/hub", "hub").certificate) == ("hub.example",)
    assert addresses_of(Credentials.load(tmp_path / "certs/bank", "bank").certificate) == ()


def test_nothing_is_overwritten_without_force(made: Path, call: Call) -> None:
    before = {name: (made / name).read_bytes() for name in _names(made)}
    refused(call("certs", "new", made, "--party", "shop", "--party", "telco"), "authority.crt", "--force")
    refused(call("certs", "authority", made / "authority"), "authority.crt", "--force")
    refused(call("certs", "request", made / "bank", "--party", "bank"), "bank.key", "--force")
    again = ["certs", "party", made / "telco", "--party", "telco", "--authority", made / "authority"]
    refused(call(*again), "telco.crt", "--force")
    assert {name: (made / name).read_bytes() for name in _names(made)} == before
    assert call(*again, "--force").exit_code == 0
    assert (made / "telco/telco.key").read_bytes() != before["telco/telco.key"]
    Credentials.load(made / "telco", "telco")


def test_a_further_party_and_one_that_keeps_its_key(made: Path, tmp_path: Path, call: Call) -> None:
    authority = ["--authority", made / "authority"]
    assert call("certs", "party", tmp_path / "shop", "--party", "shop", *authority, "--days", 30).exit_code == 0
    assert _names(tmp_path / "shop") == ["authority.crt", "shop.crt", "shop.key"]
    Credentials.load(tmp_path / "shop", "shop")

    theirs = tmp_path / "theirs"
    asked = call("certs", "request", theirs, "--party", "lab", "--address", "lab.example")
    assert asked.exit_code == 0
    assert f"check {theirs} --as lab" in asked.stdout
    assert _names(theirs) == ["lab.csr", "lab.key"]
    refused(call("certs", "check", theirs, "--as", "lab"), "2 problems")
    signed = call("certs", "party", tmp_path / "answer", "--party", "lab", *authority, "--request", theirs / "lab.csr")
    assert signed.exit_code == 0
    assert "lab.example" in signed.stdout  # who signs sees what is asked for
    assert _names(tmp_path / "answer") == ["authority.crt", "lab.crt"]
    for name in _names(tmp_path / "answer"):
        (theirs / name).write_bytes((tmp_path / "answer" / name).read_bytes())
    assert call("certs", "check", theirs, "--as", "lab", "--address", "lab.example").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["new", "--party", "bank", "--party", "bank"], ["--party", "'bank' is given twice"]),
        (["new", "--party", "9lives"], ["'9lives'"]),
        (["new", "--party", "authority"], ["'authority'"]),
        (["new", "--party", "bank", "--listener", "telco"], ["--listener", "'telco'", "'bank'"]),
        (["new", "--party", "bank", "--address", "bank.example:7443"], ["'bank.example:7443'", "without the port"]),
        (["authority", "--name", "n" * 65], ["64"]),
        (["request", "--party", "../bank"], ["'../bank'"]),
        (["party", "--party", "bank", "--authority", "nowhere"], ["nowhere/authority.crt", "cannot be read"]),
    ],
)
def test_what_cannot_be_made(
    tmp_path: Path, call: Call, arguments: list[str], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(call("certs", arguments[0], "out", *arguments[1:]), *words)
    assert not (tmp_path / "out").exists()


def test_a_party_is_not_made_with_what_is_no_authority(made: Path, tmp_path: Path, call: Call) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "authority.crt").write_bytes((made / "bank/bank.crt").read_bytes())
    (other / "authority.key").write_bytes((made / "bank/bank.key").read_bytes())
    arguments = ["certs", "party", tmp_path / "out", "--party", "shop", "--authority", other]
    refused(call(*arguments), "'bank' is no authority")
    (other / "authority.crt").write_bytes((made / "authority/authority.crt").read_bytes())
    refused(call(*arguments), "authority.key", "does not belong")
    request = made / "bank/bank.crt"
    refused(
        call(*arguments[:-1], made / "authority", "--request", request), "bank.crt", "a certificate", "signing request"
    )


def test_keys_do_not_enter_the_folder_of_a_run(tmp_path: Path, call: Call) -> None:
    (tmp_path / "job.toml").write_text("# Written by labelward train: the job, completed with defaults.\n")
    for arguments in (["new", "--party", "bank"], ["authority"], ["request", "--party", "bank"]):
        refused(
            call("certs", arguments[0], tmp_path / "telco" / "certs", *arguments[1:]), str(tmp_path), "folder of a run"
        )
    assert _names(tmp_path) == ["job.toml"]


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path, call: Call) -> None:
    tmp_path.chmod(0o755)
    assert call("certs", "request", tmp_path, "--party", "bank").exit_code == 0
    assert _mode(tmp_path) == 0o755
    assert _mode(tmp_path / "bank.key") == 0o600


def test_check_says_all_that_is_right(made: Path, call: Call) -> None:
    result = call("certs", "check", made / "bank", "--as", "bank", "--address", "bank.example")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["right"] * 8
    for words in ("names 'bank'; fingerprint (SHA-256) ", "365 days left", "connect and listen", "is for bank.example"):
        assert words in result.stdout
    assert lines[-1].startswith("bank can connect")


def test_check_says_all_that_is_wrong(made: Path, call: Call) -> None:
    (made / "bank/bank.key").chmod(0o644)
    (made / "bank/authority.crt").write_bytes(new_authority(name="another").certificate)
    result = call("certs", "check", made / "bank", "--as", "bank", "--address", "telco.example")
    refused(result, "3 problems")
    wrong = [line for line in result.stdout.splitlines() if line.startswith("wrong")]
    for words in ("mode 0644", "where 'another' is trusted", "nobody can connect to it as 'telco.example'"):
        assert any(words in line for line in wrong)
    assert not re.search("PRIVATE|BEGIN", result.output)
    refused(call("certs", "check", made / "telco", "--as", "bank"), "2 problems")
    refused(call("certs", "check", made / "none", "--as", "bank"), "no such folder")
