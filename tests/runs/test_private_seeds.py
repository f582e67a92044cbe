"""The parties' private seeds: drawn once, kept by their owner, repeated where asked, never lost without a word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixed_seeds import DRAWN
from labelward.errors import FileFormatError, OutputError
from labelward.rng import PrivateSeed
from labelward.runs.private_seeds import PRIVATE_FILE, keep_seeds, resolve_seeds, stored_seeds
from refusals import refused

ONE, OTHER = PrivateSeed(bytes([1] * 32)), PrivateSeed(bytes([2] * 32))


def folder_with(path: Path, **seeds: PrivateSeed) -> Path:
    path.mkdir()
    keep_seeds(path, seeds)
    return path


def test_a_seed_is_drawn_from_the_system_and_gives_independent_streams() -> None:
    assert DRAWN() != DRAWN()
    assert ONE.learning(1, 0, "sides").integers(2**62) == ONE.learning(1, 0, "sides").integers(2**62)
    streams = [ONE.learning(1, 0, "sides"), ONE.learning(2, 0, "sides"), ONE.learning(1, 1, "sides")]
    streams += [ONE.learning(1, 0, "rows"), OTHER.learning(1, 0, "sides")]
    assert len({int(stream.integers(2**62)) for stream in streams}) == 5
    assert PrivateSeed.from_hex(ONE.hex()) == ONE
    assert ONE.hex() not in repr(ONE)


def test_what_is_kept_is_read_again_and_never_replaced(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "run", bank=ONE)
    assert (folder / PRIVATE_FILE).stat().st_mode & 0o777 == 0o600
    assert keep_seeds(folder, {"bank": OTHER}) == stored_seeds(folder) == {"bank": ONE}
    assert resolve_seeds(["bank"], folder) == {"bank": ONE}


def test_the_first_folder_that_has_a_party_is_repeated(tmp_path: Path) -> None:
    first, second = folder_with(tmp_path / "a", bank=ONE), folder_with(tmp_path / "b", bank=OTHER, telco=OTHER)
    assert resolve_seeds(["bank", "telco"], repeat=[first, second]) == {"bank": ONE, "telco": OTHER}
    with refused(OutputError, "other-run", field=str(first)):
        resolve_seeds(["bank"], first, [second])
    with refused(FileFormatError, "other-run"):
        resolve_seeds(["shop"], repeat=[first, second])
    with refused(FileFormatError, "not-found", field=str(tmp_path / PRIVATE_FILE)):
        resolve_seeds(["bank"], repeat=[tmp_path])


def test_a_file_that_lacks_a_party_is_damaged(tmp_path: Path) -> None:
    with refused(FileFormatError, "damaged", value=["bank"]):
        resolve_seeds(["bank", "telco"], folder_with(tmp_path / "run", telco=ONE))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        json.dumps({"format": 1, "seeds": {"bank": "xy"}}),
        json.dumps({"format": 1, "seeds": {"bank": "00"}}),
    ],
)
def test_a_damaged_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / PRIVATE_FILE).write_text(text)
    with pytest.raises(FileFormatError) as caught:
        stored_seeds(tmp_path)
    assert caught.value.code in ("damaged", "format-version")
    assert PRIVATE_FILE in caught.value.field
