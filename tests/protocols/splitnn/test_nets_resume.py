"""A training that is cut off, wherever, ends as if it had not been: models, predictions, views."""

from __future__ import annotations

import shutil
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from splitnets import Net, Run, blobs, policies_of, session, train

from blames import refused_about
from cutting import CutEnd, Killed
from labelward.defenses import DEFENSES
from labelward.defenses.lpsc import Lpsc
from labelward.defenses.noisy_gradients import NoisyGradients
from labelward.errors import FileFormatError, HandshakeError, JobError, PolicyError
from labelward.party.checkpoint import NOISE_FILE, Checkpoints
from labelward.party.context import Context
from labelward.party.in_process import run_parties
from labelward.party.noise_record import read_draws, supersede_draws
from labelward.party.transcript import FILE_NAME, Transcript
from labelward.party.view import View
from labelward.policy.chain import PolicyChain
from labelward.protocols.splitnn.behavior import MaliciousOptimizer
from labelward.protocols.splitnn.bottom_model import BottomModel
from labelward.protocols.splitnn.checkpointing import ActiveState, PassiveState
from labelward.protocols.splitnn.params import SplitNet
from labelward.transport.base import Transport
from refusals import refused


def attempt(
    net: Net, folder: Path, cut: tuple[str, int] | None = None, begun: dict[str, list[int]] | None = None
) -> tuple[dict[str, Any], Counter[str]] | None:
    """Run until the cut, or to the end: outcomes by party, and the messages that each passed; None: cut off.

    ``begun`` is filled with the number of messages that each party had passed when each of its epochs began.
    """
    passed = Counter[str]()

    whole, program = session(net, compared=True), train(net)

    def context(party: str, end: Transport) -> Context:
        return whole.context(
            CutEnd(end, cut[1] if cut and cut[0] == party else None, passed),
            Transcript(whole.header(party), folder / party / "view", resume=True, finished=True),
            timeout=120.0,
            checkpoints=Checkpoints(folder / party / "checkpoint", run={"run": "1"}),
            policies=PolicyChain(policies_of(net, party)),
            progress=lambda what, done, total: noted(party, what),
        )

    def noted(party: str, what: str) -> None:
        if begun is not None and what == "epochs":
            begun.setdefault(party, []).append(passed[party])

    def live(ctx: Context) -> Any:
        return program(ctx, whole.handshake(ctx))

    programs = {party: (partial(context, party), live) for party in net.parts}
    try:
        return run_parties(programs), passed
    except Killed:
        assert cut is not None
        view = folder / cut[0] / "view" / FILE_NAME
        view.write_bytes(view.read_bytes()[:-7])  # a kill leaves no closing record, and may tear the last one
        return None


def outcome(net: Net, folder: Path, outcomes: dict[str, Any]) -> Run:
    views = {party: View.load(folder / party / "view") for party in net.parts}
    return Run(outcomes[net.active], {party: outcomes[party] for party in list(net.parts)[1:]}, views)


def assert_same(one: Run, two: Run) -> None:
    shares = [{out.share.party: out.share for out in (run.active, *run.passive.values())} for run in (one, two)]
    for party, share in shares[0].items():
        renamed = [msgspec.structs.replace(each, model="model") for each in (share, shares[1][party])]
        assert renamed[0] == renamed[1]
        assert one.views[party].digest() == two.views[party].digest()
        assert list(one.views[party].applied()) == list(two.views[party].applied())
    assert one.active.outputs.tobytes() == two.active.outputs.tobytes()
    assert one.active.history == two.active.history


CASES: dict[str, dict[str, Any]] = {
    "momentum, top": {},
    "adam, no top": {"optimizer": "adam", "top": False, "learning_rate": 0.01},
    "stops early": {"patience": 1, "epochs": 12, "learning_rate": 0.5},
    "malicious": {"schedule": "cosine"},
    "coded": {"top": False, "loss": "logistic", "active_bottom": False},
}
QUICK = "momentum, top"


@pytest.mark.parametrize("count", [1, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [each if each == QUICK else pytest.param(each, marks=pytest.mark.slow) for each in CASES]
)
def test_cut_anywhere_and_gone_on_with(tmp_path: Path, name: str, count: int) -> None:
    parts, y = blobs(4, 60, {"bank": 2, "telco": 3, "shop": 2}, 2)
    params = SplitNet(**{"epochs": 3, "batch_size": 15, "bottom": "fcnn-3", "width": 5, **CASES[name]})
    behaviors = {"telco": MaliciousOptimizer()} if name == "malicious" else {}
    coded = (Lpsc(coding="offset", scale="validation"),) if name == "coded" else ()
    net = Net(parts=parts, labels=y, params=params, validation=15, behaviors=behaviors, policies={"bank": coded})
    whole = attempt(net, tmp_path / "whole")
    assert whole is not None
    expected, messages = outcome(net, tmp_path / "whole", whole[0]), whole[1]
    assert_same(expected, outcome(net, tmp_path / "whole", whole[0]))
    rng = np.random.default_rng(0)
    for party in ("bank", "telco"):
        for at in sorted({0, messages[party] - 1, *rng.integers(1, messages[party], count).tolist()}):
            folder = tmp_path / f"{party}-{at}"
            assert attempt(net, folder, (party, at)) is None
            again = attempt(net, folder, ("shop", int(rng.integers(3, 12))))  # a second cut, early in the new attempt
            ended = again or attempt(net, folder)
            assert ended is not None
            assert_same(expected, outcome(net, folder, ended[0]))


CHAINS: dict[str, list[dict[str, Any]]] = {
    "noisy labels": [{"kind": "randomized-response", "epsilon": 1.0}],
    "noise in stages": [{"kind": "lp-mst", "epsilon": 1.0}, {"kind": "lpsc", "scale": "validation"}],
    "vfgboost": [{"kind": "lpsc"}, {"kind": "adversarial", "beta": 0.5}],
    "marvell": [{"kind": "marvell", "s": 1.0}],
    "distance correlation": [{"kind": "distance-correlation", "weight": 0.5}],
    "bottleneck": [{"kind": "mid", "weight": 0.5}],
    "soft labels": [{"kind": "coae", "weight": 0.5}],
}


@pytest.mark.parametrize("name", CHAINS)
def test_what_was_drawn_is_not_drawn_again(tmp_path: Path, name: str) -> None:
    """Noise, codes and heads: a run that has begun ends in the same model wherever it is cut off from then on."""
    parts, y = blobs(4, 50, {"bank": 2, "telco": 3, "shop": 2}, 2)
    loss: Any = "auto" if name == "soft labels" else "logistic"
    params = SplitNet(top=False, loss=loss, active_bottom=False, epochs=3, batch_size=20, bottom="linear")
    chain = [{**each} for each in CHAINS[name]]

    def net() -> Net:
        made = tuple(DEFENSES.make(each["kind"], {k: v for k, v in each.items() if k != "kind"}) for each in chain)
        return Net(parts=parts, labels=y, params=params, validation=10, policies={"bank": made})

    begun = tmp_path / "begun"
    assert attempt(net(), begun, ("bank", 13)) is None
    assert Checkpoints(begun / "bank" / "checkpoint", run={"run": "1"}).numbers() == (0,)
    ended = []
    for number, cuts in enumerate([[], [("telco", 9)], [("bank", 24), ("bank", 30)]]):
        folder = tmp_path / str(number)
        shutil.copytree(begun, folder)
        for cut in cuts:
            attempt(net(), folder, cut)
        last = attempt(net(), folder)
        assert last is not None
        ended.append(outcome(net(), folder, last[0]))
    assert_same(ended[0], ended[1])
    assert_same(ended[0], ended[2])


EVERY_EPOCH: dict[str, list[dict[str, Any]]] = {
    **{f"lpsc {coding}": [{"kind": "lpsc", "coding": coding}] for coding in ("logitboost", "adaboost", "l2", "offset")},
    "lpsc labels": [{"kind": "lpsc", "coding": "labels"}],
    "lpsc validation": [{"kind": "lpsc", "scale": "validation"}],
    "adversarial": [{"kind": "adversarial", "beta": 0.5}],
    "vfgboost": [{"kind": "lpsc"}, {"kind": "adversarial", "beta": 0.5}],
    "lpsc and marvell": [{"kind": "lpsc"}, {"kind": "marvell", "s": 1.0}],
    "marvell": [{"kind": "marvell", "s": 1.0}],
    "mid": [{"kind": "mid", "weight": 0.5}],
    "coae": [{"kind": "coae", "weight": 0.5}],
    "distance-correlation": [{"kind": "distance-correlation", "weight": 0.5}],
    "randomized-response": [{"kind": "randomized-response", "epsilon": 1.0}],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_EPOCH)
def test_killed_in_every_epoch(tmp_path: Path, name: str) -> None:
    """Killed behind every epoch and within it, at both kinds of party: weights, views and what defenses keep are equal.

    What the defenses drew is in the active party's first checkpoint, with which all runs begin.
    """
    parts, y = blobs(4, 90, {"bank": 2, "telco": 3, "shop": 2}, 2)
    parts["bank"] += y[:, None]  # an own model must be better than chance
    loss: Any = "auto" if name == "coae" else "logistic"
    params = SplitNet(top=False, loss=loss, active_bottom=False, epochs=4, batch_size=20, bottom="linear")

    def net() -> Net:
        made = [{**each} for each in EVERY_EPOCH[name]]
        chain = tuple(DEFENSES.make(each.pop("kind"), each) for each in made)
        return Net(parts=parts, labels=y, params=params, validation=20, policies={"bank": chain})

    def kept(folder: Path) -> ActiveState:
        found = Checkpoints(folder / "bank" / "checkpoint", run={"run": "1"})
        assert found.numbers()[-1] == 4
        return found.load(4, ActiveState)[0]

    start, begun = tmp_path / "start", dict[str, list[int]]()
    assert attempt(net(), start, ("bank", 13)) is None
    assert Checkpoints(start / "bank" / "checkpoint", run={"run": "1"}).numbers() == (0,)
    shutil.copytree(start, tmp_path / "whole")
    whole = attempt(net(), tmp_path / "whole", begun=begun)
    assert whole is not None
    expected, state = outcome(net(), tmp_path / "whole", whole[0]), kept(tmp_path / "whole")
    for party in ("bank", "telco"):
        ends = [*begun[party][:4], whole[1][party]]
        assert len(set(ends)) == 5
        for number, (first, last) in enumerate(pairwise(ends)):
            for at in (first, (first + last) // 2):
                folder = tmp_path / f"{party}-{at}"
                shutil.copytree(start, folder)
                assert attempt(net(), folder, (party, at)) is None
                numbers = Checkpoints(folder / "bank" / "checkpoint", run={"run": "1"}).numbers()
                assert numbers[-1] == number
                ended = attempt(net(), folder)
                assert ended is not None
                assert_same(expected, outcome(net(), folder, ended[0]))
                assert kept(folder) == state  # heads and keys of noise among it
                shutil.rmtree(folder)


def test_a_training_that_leaves_the_numbers_keeps_its_last_checkpoint(tmp_path: Path) -> None:
    parts, y = blobs(4, 60, {"bank": 2, "telco": 3}, 2)
    params = SplitNet(top=False, bottom="linear", epochs=40, batch_size=20, learning_rate=3e3, loss="mse")
    net = Net(parts=parts, labels=y * 1.5, classes=(), params=params)
    with refused(JobError, "diverged", value=3e3):
        attempt(net, tmp_path)
    numbers = Checkpoints(tmp_path / "telco" / "checkpoint", run={"run": "1"}).numbers()
    assert numbers
    assert numbers[-1] >= 1


@pytest.mark.parametrize("party", ["bank", "telco"])
def test_no_checkpoint_is_written_of_weights_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, party: str
) -> None:
    """The last batch of an epoch leaves the numbers: the run goes on from the epoch before, and ends as undisturbed."""
    parts, y = blobs(4, 60, {"bank": 2, "telco": 3}, 2)
    net = Net(parts=parts, labels=y, params=SplitNet(epochs=3, batch_size=20, width=5))
    whole = attempt(net, tmp_path / "whole")
    assert whole is not None
    update, done = BottomModel.update, Counter[int]()

    def leaving(self: BottomModel, gradient: Any) -> None:
        update(self, gradient)
        mine = self.spec.inputs == (len(parts[party][0]),)
        done[mine] += 1
        if mine and done[mine] == 6:
            next(iter(self.module.parameters())).data.fill_(float("inf"))

    with monkeypatch.context() as patched:
        patched.setattr(BottomModel, "update", leaving)
        with refused_about("epoch 2:", JobError, "diverged", field=f"party {party!r}"):
            attempt(net, tmp_path / "run")
    assert Checkpoints(tmp_path / "run" / party / "checkpoint", run={"run": "1"}).numbers() == (0, 1)
    ended = attempt(net, tmp_path / "run")
    assert ended is not None
    assert_same(outcome(net, tmp_path / "whole", whole[0]), outcome(net, tmp_path / "run", ended[0]))


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    parts, y = blobs(4, 60, {"bank": 2, "telco": 3}, 2)
    net = Net(parts=parts, labels=y, params=SplitNet(epochs=2, batch_size=20, width=5))
    assert attempt(net, tmp_path, ("bank", 14)) is None
    kept = Checkpoints(tmp_path / "telco" / "checkpoint", run={"run": "1"})
    assert kept.numbers()
    state, _ = kept.load(kept.numbers()[-1], PassiveState)
    assert state.bottom.optimizer  # momentum travels with the weights
    net.params = SplitNet(epochs=2, batch_size=20, width=6)
    with refused(FileFormatError, "damaged"):
        attempt(net, tmp_path)


def test_a_key_of_noise_that_is_lost_is_not_drawn_again(tmp_path: Path) -> None:
    """A second draw on the same gradients would tell more of the labels; nothing leaves, however often it is tried."""
    parts, y = blobs(4, 60, {"bank": 2, "telco": 3}, 2)
    params = SplitNet(epochs=2, batch_size=20, width=5)
    net = Net(parts=parts, labels=y, params=params, policies={"bank": NoisyGradients(scale=0.01)})
    assert attempt(net, tmp_path, ("bank", 14)) is None
    for path in (tmp_path / "bank" / "checkpoint").glob("*.lwc"):
        path.write_bytes(b"torn")
    with refused(HandshakeError, "disagreement", value={"bank": 0, "telco": 1}):
        attempt(net, tmp_path)
    Checkpoints(tmp_path / "telco" / "checkpoint", run={"run": "1"}).restart()
    for _ in range(2):
        with refused_about(".lwc", PolicyError, "cannot-act", value="noisy-gradients"):
            attempt(net, tmp_path)


def test_a_key_of_noise_whose_checkpoints_are_gone_is_not_drawn_again(tmp_path: Path) -> None:
    parts, y = blobs(4, 60, {"bank": 2, "telco": 3}, 2)
    params = SplitNet(epochs=2, batch_size=20, width=5)
    private = NoisyGradients(distribution="gaussian", epsilon=2.0, delta=1e-5, clip=0.1)
    net = Net(parts=parts, labels=y, params=params, policies={"bank": private})
    assert attempt(net, tmp_path, ("bank", 14)) is None
    record = tmp_path / "bank" / NOISE_FILE
    (draw,) = read_draws(record)
    assert (draw.epsilon, draw.delta) == (2.0, 1e-5)
    shutil.rmtree(tmp_path / "bank" / "checkpoint")
    with refused(HandshakeError, "disagreement", value={"bank": 0, "telco": 1}):
        attempt(net, tmp_path)
    for party in net.parts:
        Checkpoints(tmp_path / party / "checkpoint", run={"run": "1"}).restart()
    for _ in range(2):
        with refused(PolicyError, "cannot-act", field=str(record), value="noisy-gradients"):
            attempt(net, tmp_path)
    assert read_draws(record) == (draw,)
    supersede_draws(record)
    ended = attempt(net, tmp_path)
    assert ended is not None
    (account,) = View.load(tmp_path / "bank" / "view").applied()
    assert account["spent"] == pytest.approx(4.0, rel=1e-6)
    assert (account["spent_before"], account["delta_before"]) == (2.0, 1e-5)
