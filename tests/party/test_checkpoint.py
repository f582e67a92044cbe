"""Checkpoints: what was saved is found whole or not at all, and only by the run that saved it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blames import refused_about
from labelward.errors import FileFormatError, InputError, OutputError
from labelward.party import checkpoint
from labelward.party.checkpoint import Checkpoints, decode_stored
from labelward.party.context import Context
from labelward.party.exchange import Exchange
from labelward.party.roles import Topology
from labelward.party.transcript import Header, Transcript
from labelward.transport.in_process import connect_in_process
from refusals import refused


class Nothing(msgspec.Struct, frozen=True):
    """What a passive party that drew nothing begins with."""


class State(msgspec.Struct):
    """A state of a test."""

    done: int
    weights: bytes = b""


class Other(msgspec.Struct):
    """Another state."""

    named: str


def exchange(frames: int, nonce: bytes = b"nonce") -> Exchange:
    """What was exchanged with a peer after so many frames of a training."""
    found = Exchange.begin(nonce, "left", (b"job",))
    for frame in range(frames):
        found = found.extended(bytes([frame]), outward=frame % 2 == 0)
    return found


def filled(folder: Path, last: int = 5, **more: Any) -> Checkpoints:
    """Checkpoints 0 to ``last``, each with a block of its own."""
    kept = Checkpoints(folder, **more)
    for number in range(last + 1):
        kept.save(
            number,
            State(number),
            peers={"left": 2 * number},
            blocks={f"tree-{number}": bytes([number]) * 9},
            exchanges={"left": exchange(2 * number)},
        )
    return kept


def test_the_newest_and_the_first_are_kept(tmp_path: Path) -> None:
    for kept in (filled(tmp_path / "c"), Checkpoints(tmp_path / "c")):
        assert kept.numbers() == (0, 3, 4, 5)
        state, block = kept.load(4, State)
        assert state == State(4)
        assert [block(f"tree-{number}") for number in range(5)] == [bytes([number]) * 9 for number in range(5)]
        with refused(FileFormatError, "damaged", value="tree-5"):
            block("tree-5")
    assert len(list((tmp_path / "c").iterdir())) == 4 + 6


def test_more_are_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path, keep=1)
    for number in range(1, 8):
        kept.save(number, State(number), keep=4)
    assert kept.numbers() == (4, 5, 6, 7)
    kept.save(8, State(8))
    assert kept.numbers() == (8,)


def test_nothing_is_kept_without_a_folder() -> None:
    kept = Checkpoints(None)
    kept.save(1, State(1), blocks={"a": b""})
    kept.discard(None)
    kept.purge()
    assert (kept.kept, kept.numbers(), kept.common({}), kept.damaged) == (False, (), None, ())
    with refused(FileFormatError, "not-found", value=1):
        kept.load(1, State)


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    filled(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


class Start(msgspec.Struct):
    """A beginning without a state."""


def test_a_beginning_without_a_state_binds_no_other_run(tmp_path: Path) -> None:
    Checkpoints(tmp_path, run={"rows": "a"}).save(0, Start())
    assert Checkpoints(tmp_path, run={"rows": "b"}).numbers() == ()
    assert Checkpoints(tmp_path, run={"rows": "a"}).numbers() == (0,)  # passed over, not removed
    for number, blocks in ((0, {"drawn": b"noise"}), (1, {})):
        folder = tmp_path / str(number)
        Checkpoints(folder, run={"rows": "a"}).save(number, Start(), blocks=blocks)
        with refused(InputError, "other-run", value={"rows": ("a", "b")}):
            Checkpoints(folder, run={"rows": "b"})


# -- the last one that all have ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        ((0, 6, 8, 10), 5),
        ((0, 6, 8), 4),
        ((0, 6, 8, 9, 11), 4),
        ((0,), 0),
        ((), None),
        ((0, 2, 4), 0),
    ],
)
def test_common(tmp_path: Path, theirs: tuple[int, ...], expected: int | None) -> None:
    found = filled(tmp_path).common({"left": {number: exchange(number).digest for number in theirs}})
    assert found == (None if expected is None else (expected, {"left": 2 * expected}))


def test_equal_numbers_of_another_history_are_not_common(tmp_path: Path) -> None:
    """The last one with an equal exchange is, whatever came after."""
    kept = filled(tmp_path)
    theirs = {number: exchange(number).digest for number in (0, 6, 8)} | {10: exchange(10, b"other").digest}
    assert kept.common({"left": theirs}) == (4, {"left": 8})
    assert kept.common({"left": {number: exchange(number, b"other").digest for number in (0, 6, 8, 10)}}) is None


@given(data=st.data())
@settings(max_examples=100)
def test_common_is_the_newest_to_which_every_peer_has_its_part(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Against a search through all of them."""
    parts = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6))
    theirs = {name: data.draw(st.sets(st.integers(0, 4))) for name in ("left", "right")}
    kept = Checkpoints(tmp_path_factory.mktemp("c"), keep=9)
    for number, (left, right) in enumerate(parts):
        kept.save(number + 1, State(number), peers={"left": left, "right": right})
    fitting = [
        number + 1 for number, (left, right) in enumerate(parts) if left in theirs["left"] and right in theirs["right"]
    ]
    found = kept.common({name: dict.fromkeys(numbers, b"") for name, numbers in theirs.items()})
    assert (None if found is None else found[0]) == (max(fitting) if fitting else None)


# -- a new attempt -----------------------------------------------------------------------------------------------------


def test_an_attempt_forgets_what_came_after(tmp_path: Path) -> None:
    """Also the blocks: those that it writes under the same name are its own."""
    kept = filled(tmp_path)
    kept.discard(3)
    assert kept.numbers() == (0, 3)
    kept.save(4, State(40), blocks={"tree-4": b"other"})
    again = Checkpoints(tmp_path)
    state, block = again.load(4, State)
    assert (state.done, block("tree-4"), block("tree-1")) == (40, b"other", b"\1" * 9)
    with refused(FileFormatError, "damaged", value="tree-5"):
        block("tree-5")
    again.discard(None)
    assert (again.numbers(), list(tmp_path.iterdir())) == ((), [])
    with refused(FileFormatError, "not-found", value=7):
        again.discard(7)


def test_what_an_attempt_forgets_stays_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut must not bring a checkpoint back that another attempt wrote under the same number."""
    kept, flushed = filled(tmp_path), list[list[str]]()
    monkeypatch.setattr(
        checkpoint, "flush", lambda folder: flushed.append(sorted(each.name for each in folder.glob("*.lwc")))
    )
    kept.discard(3)
    assert flushed == [["000000.lwc", "000003.lwc"]]
    kept.discard(3)
    assert len(flushed) == 1


def test_an_attempt_from_the_start_names_no_earlier_block(tmp_path: Path) -> None:
    kept = filled(tmp_path)
    kept.discard(None)
    kept.save(1, State(1))
    with refused(FileFormatError, "damaged", value="tree-1"):
        kept.load(1, State)[1]("tree-1")


def test_purge_removes_everything(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    kept = filled(folder)
    (folder / "000005.lwc").write_bytes(b"torn")
    (folder / "000009.lwc.partial").write_bytes(b"torn")
    kept.purge()
    assert not folder.exists()
    kept.purge()


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of checkpoints, only to be copied: to write it takes as long as the disk does."""
    folder = tmp_path_factory.mktemp("whole")
    filled(folder, 3)
    return folder


@given(data=st.data())
@settings(max_examples=150)
def test_a_damaged_file_is_left_out_of_account(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any byte changed, or the file cut short: those before it are still there, and nothing crashes."""
    folder = shutil.copytree(whole, tmp_path_factory.mktemp("c"), dirs_exist_ok=True)
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[at:]
    path.write_bytes(bytes(content))
    kept = Checkpoints(folder)
    number = int(path.stem.removeprefix("tree-"))
    undamaged = tuple(each for each in range(4) if (each < number if path.suffix == ".lwb" else each != number))
    assert kept.numbers() == undamaged
    assert len(kept.damaged) == 1
    assert str(path) in kept.damaged[0]
    for each in undamaged:
        state, block = kept.load(each, State)
        assert state == State(each)
        assert block("tree-0") == b"\0" * 9


def test_damaged_files_are_written_anew(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    (tmp_path / "tree-3.lwb").write_bytes(b"torn")
    kept = Checkpoints(tmp_path)
    kept.discard(2)
    kept.save(3, State(3), blocks={"tree-3": b"whole"})
    again = Checkpoints(tmp_path)
    assert (again.numbers(), again.damaged) == ((0, 1, 2, 3), ())


def test_a_missing_block(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    (tmp_path / "tree-2.lwb").unlink()
    kept = Checkpoints(tmp_path)
    assert kept.numbers() == (0, 1)
    assert "tree-2.lwb: " in kept.damaged[0]


def test_what_a_kill_leaves_half_written_is_removed(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    (tmp_path / "000002.lwc.partial").write_bytes(b"labelward check")
    assert Checkpoints(tmp_path).numbers() == (0, 1)
    assert not list(tmp_path.glob("*.partial"))


def test_damage_after_it_was_found(tmp_path: Path) -> None:
    kept = filled(tmp_path, 2)
    (tmp_path / "000002.lwc").write_bytes(b"torn")
    with refused(FileFormatError, "damaged", field=str(tmp_path / "000002.lwc")):
        kept.load(2, State)
    with refused(FileFormatError, "damaged", field=str(tmp_path / "000001.lwc")):
        kept.load(1, Other)


@pytest.mark.parametrize("block", [b"", b"\xc1", msgspec.msgpack.encode("other")])
def test_a_block_of_another_content_is_named(tmp_path: Path, block: bytes) -> None:
    with refused(FileFormatError, "damaged", field=str(tmp_path)):
        decode_stored(block, State, tmp_path)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_run_is_refused_by_name(tmp_path: Path) -> None:
    filled(tmp_path, 1, run={"model.trees": "5", "ids": "a"})
    assert Checkpoints(tmp_path, run={"model.trees": "5", "ids": "a"}).numbers() == (0, 1)
    with refused(InputError, "other-run", value={"data.rows": ("absent", "9"), "model.trees": ("5", "7")}):
        Checkpoints(tmp_path, run={"model.trees": "7", "ids": "a", "data.rows": "9"})


def test_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("labelward.party.checkpoint.FORMAT", 3)
        filled(tmp_path, 1)
    with refused(FileFormatError, "format-version", value=3):
        Checkpoints(tmp_path)


def test_other_inputs_are_refused(tmp_path: Path) -> None:
    """Of the party's own columns and labels, by itself."""
    kept = Checkpoints(tmp_path)
    kept.bind(b"columns")
    kept.save(3, State(3))
    Checkpoints(tmp_path).bind(b"columns")
    with refused(InputError, "other-run", field=str(tmp_path), value=3):
        Checkpoints(tmp_path).bind(b"changed")


def test_a_beginning_binds_the_table_once_something_was_told(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.begin(Nothing(), {})
    kept.bind(b"columns", lambda: False)
    for inputs in (b"columns", b"mended"):
        Checkpoints(tmp_path).bind(inputs, lambda: False)
    Checkpoints(tmp_path).bind(b"mended", lambda: True)
    with refused(InputError, "other-run", field=str(tmp_path), value=0):
        Checkpoints(tmp_path).bind(b"changed", lambda: True)


def test_what_was_drawn_binds_the_table_that_it_was_drawn_for(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.bind(b"columns", lambda: False)
    kept.save(0, State(0), blocks={"targets": b"noisy"})
    with refused(InputError, "other-run", value=0):
        Checkpoints(tmp_path).bind(b"changed", lambda: False)


def test_another_model_is_refused(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.name_model("one", None)
    kept.save(3, State(3))
    Checkpoints(tmp_path).name_model("one", 3)
    with refused(InputError, "other-run", field=str(tmp_path), value="one"):
        Checkpoints(tmp_path).name_model("two", 3)


def test_a_restart_keeps_what_was_drawn(tmp_path: Path) -> None:
    kept = filled(tmp_path)
    kept.restart()
    assert (kept.numbers(), kept.progress) == ((0,), 0)
    kept.rebind({"left": exchange(0, b"new")})
    again = Checkpoints(tmp_path)
    assert again.digests("left") == (exchange(0, b"new").digest,)
    assert again.load(0, State)[1]("tree-0") == b"\0" * 9


@pytest.mark.parametrize("name", ["", "../x", "A", "a/b", "a.b"])
def test_names_that_could_lead_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="a block is named"):
        Checkpoints(tmp_path).save(1, State(1), blocks={name: b""})


def test_bad_numbers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"keep .* 0"):
        Checkpoints(tmp_path, keep=0)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path is named, what was kept before is there, and nothing half-written is."""
    kept = filled(tmp_path, 2)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with refused_about("No space left", OutputError, "unwritable", value=tmp_path):
            kept.save(3, State(3), blocks={"tree-3": b"x"})
    assert not list(tmp_path.glob("*.partial"))
    assert kept.numbers() == Checkpoints(tmp_path).numbers() == (0, 1, 2)
    kept.save(3, State(3), blocks={"tree-3": b"x"})
    assert Checkpoints(tmp_path).numbers() == (0, 1, 2, 3)


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with refused(OutputError, "unwritable", value=tmp_path / "file" / "c"):
        Checkpoints(tmp_path / "file" / "c").save(0, State(0))


# -- with a context ----------------------------------------------------------------------------------------------------


def test_what_was_recorded_is_on_the_disk_before_the_checkpoint_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run could go on behind what its view has lost."""
    header = Header(1, "test", "a", "active", (), (3, 0), "plain", 0, ("test",), {})
    transcript = Transcript(header, tmp_path / "view")
    flushed: list[str] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    ctx = Context(
        connect_in_process(["a"])["a"],
        topology=Topology.star("a"),
        transcript=transcript,
        seed=1,
        checkpoints=Checkpoints(tmp_path / "checkpoint"),
    )
    ctx.save(0, State(0), blocks={"tree": b""})
    assert flushed == ["transcript.lwt", "tree.lwb.partial", "000000.lwc.partial", "checkpoint"]
    ctx.abandon()
    ctx.close()
