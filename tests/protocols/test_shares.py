"""Model shares: kept to the last bit, used in a new process, and refused where they are damaged or do not fit."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from equivalence import NAMES, rich_setting
from hypothesis import given
from hypothesis import strategies as st

from blames import blamed
from labelward.errors import FileFormatError, OutputError
from labelward.kernels.binning import EVERYTHING
from labelward.messages.tree import PredictAnswers
from labelward.protocols.common.json_share import FILE_NAME
from labelward.protocols.secureboost.predict import unpack_answers
from labelward.protocols.secureboost.share import ModelShare, Records, TreeShape
from refusals import refused
from wiring import Run, Setting


@pytest.fixture(scope="module")
def setting() -> Setting:
    """Three classes, gaps, categories: all that a share can hold."""
    made = rich_setting(
        21, "classes", rows=120, trees=4, depth=4, candidates="node", multi_strategy="one_output_per_tree"
    )
    made.parts["left"][:40, 0] = np.nan
    labels = np.asarray(made.labels).copy()
    labels[:40] = 2
    return replace(made, labels=labels)


@pytest.fixture(scope="module")
def run(setting: Setting) -> Run:
    return setting.run()


@pytest.fixture(scope="module")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All shares, each in a folder of its own."""
    root = tmp_path_factory.mktemp("model")
    for party, share in run.shares.items():
        share.save(root / party)
    return root


def test_shares_come_back_exactly(run: Run, folder: Path) -> None:
    thresholds = [threshold for share in run.shares.values() for threshold in share.own.thresholds]
    assert EVERYTHING in thresholds
    for party, share in run.shares.items():
        assert ModelShare.load(folder / party) == share
        assert ModelShare.load(folder / party / FILE_NAME) == share


finite = st.floats(allow_nan=False, allow_infinity=False)
thresholds_of = st.one_of(finite, st.just(EVERYTHING))


@given(weights=st.lists(finite, max_size=4), thresholds=st.lists(thresholds_of, max_size=4), text=st.text(max_size=5))
def test_any_number_and_name_comes_back(
    weights: list[float], thresholds: list[float], text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    share = ModelShare(
        model="m",
        party=text,
        parties=(text, "b"),
        columns=(text,),
        own=Records((0,) * len(thresholds), tuple(thresholds), tuple(range(len(thresholds)))[::2], {0: (1, 2)}),
        trees=(TreeShape((), (), (), tuple(range(len(weights))), tuple(weights)),),
        classes=(text, "1"),
        base=tuple(weights) or (0.5,),
        categories={text: (text, "")},
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
    for party, share in run.shares.items():
        assert bool(share.trees) == bool(share.classes) == (party == "active")
        assert share.base == ((0.0, 0.0, 0.0) if party == "active" else (0.0,))
        finite_ones = [threshold for threshold in share.own.thresholds if len(repr(threshold)) > 8]
        assert len(finite_ones) > 3
        for other in set(NAMES) - {party}:
            assert not any(repr(threshold) in files[other] for threshold in finite_ones)
            assert not any(name in files[other] for name in share.columns)
    assert len({share.model for share in run.shares.values()}) == 1


def test_only_the_owner_may_read(folder: Path) -> None:
    assert stat.S_IMODE((folder / "left").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "left" / FILE_NAME).stat().st_mode) == 0o600
    assert [each.name for each in (folder / "left").iterdir()] == [FILE_NAME]


_PREDICT = """
import sys
from pathlib import Path
import numpy as np
from labelward.party.context import Context
from labelward.party.in_process import run_parties
from labelward.party.roles import Topology
from labelward.party.transcript import Header, Transcript
from labelward.protocols.secureboost.predict import predict_active, predict_passive
from labelward.protocols.secureboost.share import ModelShare

root = Path(sys.argv[1])
shares = {name: ModelShare.load(root / name) for name in ("active", "left", "right")}
x = {name: np.load(root / f"{name}.npy") for name in shares}
rows = len(x["active"])

def make(end):
    peers = tuple(name for name in shares if name != end.party)
    header = Header(
        format=1,
        version="test",
        party=end.party,
        role="passive",
        peers=peers,
        rows=(0, rows),
        engine="plain",
        bits=0,
        insecure=(),
        job={},
    )
    return Context(end, topology=Topology.star(*shares), transcript=Transcript(header), seed=0, timeout=30.0)

def lead(ctx):
    own = {"active": (shares["active"].own, x["active"])}
    return predict_active(ctx, shares["active"], own, rows, mode=sys.argv[2])

def follow(ctx):
    predict_passive(ctx, shares[ctx.party], x[ctx.party])

margins = run_parties({name: (make, lead if name == "active" else follow) for name in shares})["active"]
sys.stdout.write(margins.tobytes().hex())
"""


@pytest.mark.parametrize("mode", ["one-round", pytest.param("levels", marks=pytest.mark.slow)])
def test_prediction_in_a_new_process_from_stored_shares(setting: Setting, run: Run, folder: Path, mode: str) -> None:
    assert setting.test is not None
    for party, x in setting.test.items():
        np.save(folder / f"{party}.npy", x)
    script = [sys.executable, "-W", "error", "-c", _PREDICT, str(folder), mode]
    out = subprocess.run(script, capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout == run.active.margins.tobytes().hex()


# -- damage ----------------------------------------------------------------------------------------------------------


def test_any_altered_byte_is_found(folder: Path, tmp_path: Path) -> None:
    original = (folder / "active" / FILE_NAME).read_bytes()
    rng = np.random.default_rng(1)
    for at in [*range(200), *rng.integers(200, len(original), 1500)]:
        data = bytearray(original)
        data[at] ^= int(rng.integers(1, 256))
        (tmp_path / "altered").write_bytes(bytes(data))
        with pytest.raises(FileFormatError) as caught:
            ModelShare.load(tmp_path / "altered")
        assert caught.value.code in ("damaged", "format-version")  # the byte that says the format
        assert caught.value.field == str(tmp_path / "altered")


def test_any_cut_is_found(folder: Path, tmp_path: Path) -> None:
    original = (folder / "left" / FILE_NAME).read_bytes()
    for length in range(0, len(original), 7):
        (tmp_path / "cut").write_bytes(original[:length])
        with refused(FileFormatError, "damaged", field=str(tmp_path / "cut")):
            ModelShare.load(tmp_path / "cut")


def test_a_share_that_is_missing(tmp_path: Path) -> None:
    with refused(FileFormatError, "unreadable"):
        ModelShare.load(tmp_path)


@pytest.mark.parametrize("version", [0, 2, 99])
def test_other_format_versions_are_refused(run: Run, tmp_path: Path, version: int) -> None:
    """Named as such, also where the rest is unknown to this version."""
    msgspec.structs.replace(run.active.share, format=version).save(tmp_path)
    with refused(FileFormatError, "format-version", field=str(tmp_path / FILE_NAME), value=version):
        ModelShare.load(tmp_path)
    (tmp_path / FILE_NAME).write_text(json.dumps({"sha256": "0", "share": {"format": version, "new": 1}}))
    with refused(FileFormatError, "format-version", field=str(tmp_path / FILE_NAME), value=version):
        ModelShare.load(tmp_path)


def test_a_folder_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with refused(OutputError, "unwritable", value=tmp_path / "file"):
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
    with blamed("left", "peer-message", message="PredictAnswers"):
        unpack_answers("left", answers, 2, 4)
