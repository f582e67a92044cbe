"""A share is what predicts, in a new process too; a damaged file is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from splitnets import Net, blobs, participant, session
from torch import nn

from blames import refused_about
from labelward.errors import Code, FileFormatError, JobError
from labelward.federation.session import run_session
from labelward.party.context import Context
from labelward.party.handshake import Agreement
from labelward.protocols.splitnn.bottom_model import torch_generator
from labelward.protocols.splitnn.params import SplitNet
from labelward.protocols.splitnn.predict import predict_active_net, predict_passive_net
from labelward.protocols.splitnn.share import NetShare
from refusals import refused


def trained(**params: Any) -> Net:
    parts, y = blobs(0, 80, {"bank": 3, "telco": 2}, 3)
    settings = {"epochs": 3, "batch_size": 16, "bottom": "fcnn-3", **params}
    return Net(parts=parts, labels=y, classes=("a", "b", "c"), params=SplitNet(**settings))


def predict(net: Net, shares: dict[str, NetShare]) -> Any:
    """Predict all rows with stored shares."""

    def program(ctx: Context, agreed: Agreement) -> Any:
        share, x, bottom = shares[ctx.party], net.parts[ctx.party], net.bottoms.get(ctx.party)
        if ctx.party == net.active:
            return predict_active_net(ctx, share, x, bottom=bottom, top=net.top)
        return predict_passive_net(ctx, share, x, bottom=bottom)

    out = run_session(session(net), {party: participant(net, party, program) for party in net.parts})
    return out[net.active].result


@pytest.mark.parametrize("top", [True, False])
def test_stored_shares_predict_what_the_run_predicted(tmp_path: Path, top: bool) -> None:
    net = trained(top=top)
    run = net.run()
    for share in (run.active.share, run.passive["telco"].share):
        assert (share.save(tmp_path / share.party)).stat().st_mode & 0o777 == 0o600
    shares = {party: NetShare.load(tmp_path / party) for party in net.parts}
    assert shares["telco"] == run.passive["telco"].share
    outputs = predict(net, shares)
    assert np.array_equal(outputs, run.active.outputs)
    chances = shares["bank"].objective.predicted(outputs)
    np.testing.assert_allclose(chances.sum(1), 1.0, rtol=1e-12)  # float64, three numbers
    assert np.array_equal(chances.argmax(1), outputs.argmax(1))


@pytest.mark.slow
def test_a_share_is_used_in_a_new_process(tmp_path: Path) -> None:
    net = trained()
    run = net.run()
    run.passive["telco"].share.save(tmp_path)
    np.save(tmp_path / "x.npy", net.parts["telco"])
    code = f"""
import numpy as np, torch
torch.set_num_threads(1)
from pathlib import Path
from labelward.protocols.splitnn.share import NetShare
share = NetShare.load(Path({str(tmp_path)!r}))
module = share.bottom.module(share.settings)
with torch.no_grad():
    out = module(torch.from_numpy(np.load({str(tmp_path / "x.npy")!r}).astype("float32")))
np.save({str(tmp_path / "out.npy")!r}, out.numpy())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    from labelward.messages.splitnn import EmbeddingAnswer

    sent = next(iter(run.views["bank"].received(EmbeddingAnswer))).message.values.value.unpack()
    assert np.array_equal(np.load(tmp_path / "out.npy"), sent)


def test_modules_handed_in_are_handed_in_again(tmp_path: Path) -> None:
    net = trained(bottom="module", top_model="module")
    net.bottoms, net.top = {"bank": nn.Linear(3, 4), "telco": nn.Linear(2, 4)}, nn.Linear(8, 3)
    run = net.run()
    shares = {share.party: share for share in (run.active.share, run.passive["telco"].share)}
    assert np.array_equal(predict(net, shares), run.active.outputs)
    stored = shares["telco"].bottom
    assert stored is not None
    with refused(JobError, "missing", field="[model] bottom or top_model"):
        stored.module(shares["telco"].settings)
    with refused_about("(4,)", FileFormatError, "damaged", value="bias"):
        stored.module(shares["telco"].settings, nn.Linear(2, 5))


@pytest.mark.parametrize("bottom", ["linear", "fcnn-3", "hashed", "deepfm", "edcn"])
def test_the_untrained_model_is_where_training_started(bottom: str) -> None:
    """A run that learns next to nothing in one epoch ends where it began, columns scaled alike."""
    run = trained(bottom=bottom, epochs=1, learning_rate=1e-30).run()
    share = run.passive["telco"].share
    assert share.bottom is not None
    fresh = share.bottom.untrained(share.settings, torch_generator(1, "telco", "bottom")).state_dict()
    assert fresh.keys() == share.bottom.state.keys()
    for name, array in share.bottom.state.items():
        if "running" not in name and "tracked" not in name:  # what batch normalization saw
            np.testing.assert_allclose(
                fresh[name].numpy(), array.unpack(), rtol=0, atol=1e-25, err_msg=name
            )  # the rate
    # the draws that all parties can repeat, as version 0.1.0 used them, give other weights
    old = msgspec.structs.replace(share.bottom, start=b"")
    other = old.untrained(share.settings, torch_generator(1, "telco", "bottom")).state_dict()
    assert any(not torch.equal(fresh[name], other[name]) for name in fresh)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    share = trained().run().passive["telco"].share
    path = share.save(tmp_path)
    data = path.read_bytes()
    with refused(FileFormatError, "unreadable"):
        NetShare.load(tmp_path / "nowhere")
    wrong: list[tuple[bytes, Code]] = [
        (b"PK" + data, "foreign"),
        (data[:-1], "damaged"),
        (data[:100] + bytes([data[100] ^ 1]) + data[101:], "damaged"),
    ]
    for bad, code in wrong:
        path.write_bytes(bad)
        with refused(FileFormatError, code):
            NetShare.load(tmp_path)


def test_a_share_of_another_format_is_refused(tmp_path: Path) -> None:
    import msgspec

    share = trained().run().passive["telco"].share
    msgspec.structs.replace(share, format=99).save(tmp_path)
    with refused(FileFormatError, "format-version", value=99):
        NetShare.load(tmp_path)


def test_rows_of_another_shape_are_refused() -> None:
    net = trained()
    run = net.run()
    shares = {"bank": run.active.share, "telco": run.passive["telco"].share}
    net.parts = {"bank": net.parts["bank"], "telco": np.zeros((80, 5))}
    with refused(JobError, "columns", field="party 'telco'", value=(5,)):
        predict(net, shares)
