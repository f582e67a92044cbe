"""Model shares: kept to the last bit, used in a new process, and refused where they are damaged or do not fit."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelward.errors import FileFormatError, OutputError, PeerError
from labelward.messages.tree import PredictAnswers
from labelward.protocols.tree.params import SecureBoost
from labelward.protocols.tree.predict import unpack_answers
from labelward.protocols.tree.share import FILE_NAME, ModelShare, Records, TreeShape
from wiring import Run, Setting, make_labels, make_parts

NAMES = ("active", "left", "right")


@pytest.fixture(scope="module")
def setting() -> Setting:
    parts, test = (make_parts(seed, rows, dict.fromkeys(NAMES, 3)) for seed, rows in ((21, 120), (22, 33)))
    return Setting(parts, make_labels(21, parts), SecureBoost(trees=3, depth=4, candidates="node"), test=test)


@pytest.fixture(scope="module")
def run(setting: Setting) -> Run:
    return setting.run()


@pytest.fixture(scope="module")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All shares, each in a folder of its own."""
    root = tmp_path_factory.mktemp("model")
    for party, share in shares(run).items():
        share.save(root / party)
    return root


def shares(run: Run) -> dict[str, ModelShare]:
    return {"active": run.active.share} | {party: out.share for party, out in run.passive.items()}


def test_shares_come_back_exactly(run: Run, folder: Path) -> None:
    for party, share in shares(run).items():
        assert ModelShare.load(folder / party) == share
        assert ModelShare.load(folder / party / FILE_NAME) == share


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(weights=st.lists(finite, max_size=4), thresholds=st.lists(finite, max_size=4), text=st.text(max_size=5))
def test_any_number_and_name_comes_back(
    weights: list[float], thresholds: list[float], text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    share = ModelShare(
        model="m",
        party=text,
        parties=(text, "b"),
        columns=(text,),
        own=Records((0,) * len(thresholds), tuple(thresholds)),
        trees=(TreeShape((), (), (), tuple(range(len(weights))), tuple(weights)),),
        classes=(text, "1"),
    )
    folder = tmp_path_factory.getbasetemp() / "any"
    share.save(folder)
    found = ModelShare.load(folder)
    assert found == share
    signs = [np.signbit(value) for value in found.trees[0].weights]
    assert signs == [np.signbit(value) for value in weights]


def test_no_share_holds_another_partys_part(run: Run, folder: Path) -> None:
    """Thresholds of an owner at the owner only; shape and weights at the active party only."""
    files = {party: (folder / party / FILE_NAME).read_text() for party in NAMES}
    for party, share in shares(run).items():
        assert bool(share.trees) == bool(share.classes) == (party == "active")
        for other in set(NAMES) - {party}:
            assert not any(repr(threshold) in files[other] for threshold in share.own.thresholds)
    assert len({share.model for share in shares(run).values()}) == 1


def test_only_the_owner_may_read(folder: Path) -> None:
    assert stat.S_IMODE((folder / "left").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "left" / FILE_NAME).stat().st_mode) == 0o600
    assert [each.name for each in (folder / "left").iterdir()] == [FILE_NAME]


_PREDICT = """
import sys
from pathlib import Path
import numpy as np
from labelward.party.context import Context
from labelward.party.local import run_parties
from labelward.party.transcript import Header, Transcript
from labelward.protocols.tree.predict import predict_active, predict_passive
from labelward.protocols.tree.share import ModelShare

root = Path(sys.argv[1])
shares = {name: ModelShare.load(root / name) for name in ("active", "left", "right")}
x = {name: np.load(root / f"{name}.npy") for name in shares}
rows = len(x["active"])

def make(end):
    peers = tuple(name for name in shares if name != end.party)
    header = Header(1, "test", end.party, "passive", peers, (0, rows), "plain", 0, (), {})
    return Context(end, active="active", peers=peers, transcript=Transcript(header), seed=0, timeout=30.0)

def lead(ctx):
    return predict_active(ctx, shares["active"], {"active": (shares["active"].own, x["active"])}, rows)

def follow(ctx):
    predict_passive(ctx, shares[ctx.party], x[ctx.party])

margins = run_parties({name: (make, lead if name == "active" else follow) for name in shares})["active"]
sys.stdout.write(margins.tobytes().hex())
"""


def test_prediction_in_a_new_process_from_stored_shares(setting: Setting, run: Run, folder: Path) -> None:
    assert setting.test is not None
    for party, x in setting.test.items():
        np.save(folder / f"{party}.npy", x)
    script = [sys.executable, "-W", "error", "-c", _PREDICT, str(folder)]
    out = subprocess.run(script, capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout == run.active.margins.tobytes().hex()


# -- damage ----------------------------------------------------------------------------------------------------------


def test_any_altered_byte_is_found(folder: Path, tmp_path: Path) -> None:
    original = (folder / "active" / FILE_NAME).read_bytes()
    rng = np.random.default_rng(1)
    for at in range(len(original)):
        data = bytearray(original)
        data[at] ^= int(rng.integers(1, 256))
        (tmp_path / "altered").write_bytes(bytes(data))
        with pytest.raises(FileFormatError):
            ModelShare.load(tmp_path / "altered")


def test_any_cut_is_found(folder: Path, tmp_path: Path) -> None:
    original = (folder / "left" / FILE_NAME).read_bytes()
    for length in range(0, len(original), 7):
        (tmp_path / "cut").write_bytes(original[:length])
        with pytest.raises(FileFormatError):
            ModelShare.load(tmp_path / "cut")


def test_a_share_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no model share can be read"):
        ModelShare.load(tmp_path)


@pytest.mark.parametrize("version", [0, 2, 99])
def test_other_format_versions_are_refused(run: Run, tmp_path: Path, version: int) -> None:
    """Named as such, also where the rest is unknown to this version."""
    msgspec.structs.replace(run.active.share, format=version).save(tmp_path)
    with pytest.raises(FileFormatError, match=f"format {version}; this version reads format 1"):
        ModelShare.load(tmp_path)
    (tmp_path / FILE_NAME).write_text(json.dumps({"sha256": "0", "share": {"format": version, "new": 1}}))
    with pytest.raises(FileFormatError, match=f"format {version}; this version reads format 1"):
        ModelShare.load(tmp_path)


def test_a_folder_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot be written"):
        run.active.share.save(tmp_path / "file")


# -- what does not fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answers",
    [
        PredictAnswers(2, 5, b"\0"),
        PredictAnswers(2, 4, b""),
        PredictAnswers(2, 4, b"\0\0"),
        PredictAnswers(1, 4, b"\0"),
        PredictAnswers(3, 4, b"\0\0"),
        PredictAnswers(-1, 4, b""),
        PredictAnswers(2**40, 4, b"\0"),
    ],
)
def test_answers_that_cannot_be(answers: PredictAnswers) -> None:
    with pytest.raises(PeerError, match="'left'"):
        unpack_answers("left", answers, 2, 4)
