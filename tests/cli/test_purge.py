"""``labelward view purge``: what goes, what stays, what is refused, and what later commands say."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
from pathlib import Path

import pytest
from small_jobs import Call, refused
from typer.testing import CliRunner

from labelward.cli.app import app
from labelward.errors import InputError
from labelward.party.purge_record import read_purges
from labelward.runs.purge import find_purgeable
from labelward.runs.secure_files import directory_lock
from refusals import refused as raises

VIEW = "runs/none/1/telco/view"


@pytest.fixture
def audit(audited: Path, tmp_path: Path) -> Path:
    """A copy of a finished audit, with checkpoints in one place."""
    folder = shutil.copytree(audited, tmp_path / "audit")
    checkpoint = folder / "runs/none/1/telco/checkpoint"
    checkpoint.mkdir(mode=0o700)
    for name in ("7.lwc", "tree-1.lwb", "8.lwc.partial"):
        (checkpoint / name).write_bytes(b"state of " + name.encode())
    return folder


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _kept(name: str) -> bool:
    return "/view/" not in name and "/checkpoint/" not in name


def test_views_and_checkpoints_go_and_all_else_stays(audit: Path, call: Call) -> None:
    before = _files(audit)
    result = call("view", "purge", audit, "--yes")
    assert result.exit_code == 0, result.output
    after = _files(audit)
    assert {name: content for name, content in after.items() if _kept(name)} == {
        name: content for name, content in before.items() if _kept(name)
    }
    gone = [name for name in before if not _kept(name)]
    assert len(gone) == 2 * 2 * 2 + 3  # variants, seeds, parties; and the checkpoints
    assert not set(gone) & set(after)
    assert f"deleted {len(gone)} files" in result.stdout
    assert all(name.endswith("/purged.json") for name in set(after) - set(before))


def test_the_record_names_what_was_there(audit: Path, call: Call) -> None:
    content = (audit / VIEW / "transcript.lwt").read_bytes()
    assert call("view", "purge", audit / VIEW, "--yes").exit_code == 0
    record = audit / VIEW / "purged.json"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    stored = json.loads(record.read_text())
    assert stored["format"] == 1
    (purge,) = stored["purges"]
    assert purge["files"] == [
        {"name": "transcript.lwt", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    ]
    assert call("view", "purge", audit / "runs/none/1/telco", "--yes").exit_code == 0
    (purge,) = read_purges(audit / "runs/none/1/telco/checkpoint")
    assert [file.name for file in purge.files] == ["7.lwc", "8.lwc.partial", "tree-1.lwb"]
    assert not any(file.sha256 for file in purge.files)  # a state could be tried out against a digest


def test_later_commands_say_that_it_was_purged(audit: Path, call: Call, tmp_path: Path) -> None:
    assert call("view", "purge", audit, "--views", "--yes").exit_code == 0
    day = read_purges(audit / VIEW)[0].time[:10]
    for command in ("show", "digest", "verify"):
        refused(call("view", command, audit / VIEW), f"purged on {day}", "purged.json")
    features = audit / "data/1/telco.parquet"
    common = ["--attack", "id2graph", "--classes", 2, "--seed", 1, "--out", tmp_path / "guess.parquet"]
    refused(call("attack", audit / VIEW, "--features", features, *common), f"was purged on {day}")
    assert call("report", audit).exit_code == 0  # stored results need no view


@pytest.mark.parametrize(
    ("option", "gone", "stays"), [("--views", "view", "checkpoint"), ("--checkpoints", "checkpoint", "view")]
)
def test_one_of_the_two_alone(audit: Path, call: Call, option: str, gone: str, stays: str) -> None:
    party = audit / "runs/none/1/telco"
    before = _files(party / stays)
    assert call("view", "purge", party, option, "--yes").exit_code == 0
    assert list(_files(party / gone)) == ["purged.json"]
    assert _files(party / stays) == before
    assert (audit / "runs/none/1/active/view/transcript.lwt").exists()  # another party's


def test_nothing_goes_without_a_yes(audit: Path) -> None:
    before = _files(audit)
    for answer in ("n\n", "", "\n"):
        result = CliRunner().invoke(app, ["view", "purge", str(audit)], input=answer)
        assert result.exit_code == 2
        assert "nothing was deleted" in result.stderr
        assert str(audit / VIEW) in result.stdout
    assert _files(audit) == before
    assert CliRunner().invoke(app, ["view", "purge", str(audit)], input="y\n").exit_code == 0
    assert not (audit / VIEW / "transcript.lwt").exists()


def test_purging_again_finds_nothing(audit: Path, call: Call) -> None:
    assert call("view", "purge", audit, "--yes").exit_code == 0
    after = _files(audit)
    again = call("view", "purge", audit, "--yes")
    assert again.exit_code == 0
    assert "nothing to delete" in again.stdout
    assert _files(audit) == after


def test_a_view_that_was_handed_over_alone(audit: Path, call: Call, tmp_path: Path) -> None:
    shutil.copytree(audit / VIEW, tmp_path / "copy")
    assert call("view", "purge", tmp_path / "copy", "--yes").exit_code == 0
    assert list(_files(tmp_path / "copy")) == ["purged.json"]


def test_a_damaged_view_of_a_run_goes_too(audit: Path, call: Call) -> None:
    (audit / VIEW / "transcript.lwt").write_bytes(b"half a record")
    assert call("view", "purge", audit, "--yes").exit_code == 0
    assert list(_files(audit / VIEW)) == ["purged.json"]


def test_folders_of_others_are_refused(audit: Path, call: Call, tmp_path: Path) -> None:
    (tmp_path / "other/view").mkdir(parents=True)
    (tmp_path / "other/view/transcript.lwt").write_bytes(b"a transcript of something else")
    (tmp_path / "other/job.toml").write_text("title = 'not ours'\n")
    for folder in ("other", "other/view"):
        refused(call("view", "purge", tmp_path / folder, "--yes"), str(tmp_path / folder), "labelward wrote")
    refused(call("view", "purge", tmp_path / "nowhere", "--yes"), "no such folder")
    refused(call("view", "purge", audit / "results.jsonl", "--yes"), "is a file")
    assert (tmp_path / "other/view/transcript.lwt").exists()


def test_strange_files_and_links_are_refused_before_anything_goes(audit: Path, call: Call, tmp_path: Path) -> None:
    note = audit / VIEW / "note.txt"
    note.write_text("mine")
    before = _files(audit)
    refused(call("view", "purge", audit, "--yes"), "'note.txt'", "did not write")
    assert _files(audit) == before
    note.unlink()
    place = audit / VIEW
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    refused(call("view", "purge", audit, "--yes"), str(place), "is a link")
    assert (audit / "runs/none/1/active/view/transcript.lwt").exists()


def test_a_party_that_lies_elsewhere_is_not_passed_over(audit: Path, tmp_path: Path) -> None:
    """A folder of a party on another disk, which a run follows."""
    place = audit / "runs/none/1/telco"
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with raises(InputError, "foreign", field=str(place)):
        find_purgeable(audit)


def test_what_a_kill_left_of_the_first_checkpoint_goes(audit: Path, call: Call) -> None:
    checkpoint = audit / "runs/none/1/active/checkpoint"
    checkpoint.mkdir(mode=0o700)
    (checkpoint / "000000.lwc.partial").write_bytes(b"labels")
    assert call("view", "purge", checkpoint.parent, "--yes").exit_code == 0
    assert [path.name for path in checkpoint.iterdir()] == ["purged.json"]


def test_a_run_that_goes_on_is_left_alone(audit: Path, call: Call) -> None:
    with directory_lock(audit):
        refused(call("view", "purge", audit / VIEW, "--yes"), str(audit), "in use")
    assert (audit / VIEW / "transcript.lwt").exists()
