"""A run that is cut off, wherever, ends as if it had not been: models, predictions, views, budgets."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from blames import refused_about
from interrupted import RUN, Cut, Ended, Fixed, Interrupted, Killed, assert_same
from labelward.defenses import leakage_meter
from labelward.defenses.grafting import Grafting
from labelward.defenses.id_lmid import IdLmid
from labelward.defenses.label_dp import LpMst, RandomizedLabels
from labelward.defenses.label_dp_sums import LabelDPSums
from labelward.defenses.leakage_meter import LeakageBudget, LeakageMeter, MonitorConfig
from labelward.defenses.local_trees import LocalTrees
from labelward.defenses.noisy_gradients import NoisyGradients
from labelward.errors import HandshakeError, InputError, LabelwardError, OutputError, PolicyError
from labelward.party.checkpoint import NOISE_FILE, Checkpoints
from labelward.party.noise_record import read_draws, record_draws, supersede_draws, with_earlier_cost
from labelward.party.transcript import ids_digest
from labelward.policy.base import Policy, TrainingTargets
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel
from labelward.runs.purge import find_purgeable, purge_targets
from refusals import refused
from wiring import Setting, make_parts, make_targets

NAMES = ("active", "left", "right")
SLOW = pytest.mark.slow
ROWS, WATCHED = 60, 20
Policies = Callable[[], Sequence[Policy]]


def setting(params: TreeModel, classes: int = 2, *, watched: bool = False, seed: int = 7) -> Setting:
    """Three parties; three classes or two, some values missing."""
    parts = make_parts(seed, ROWS + WATCHED, dict.fromkeys(NAMES, 3))
    for x in parts.values():
        x[::7, 1] = np.nan
    names = tuple(map(str, range(classes)))
    labels = make_targets(seed, parts, "classes", classes)
    given = Setting(
        parts={party: x[:ROWS] for party, x in parts.items()},
        labels=labels[:ROWS],
        classes=names,
        params=params,
        test={party: x[::2] for party, x in parts.items()},
        seed=seed,
    )
    if not watched:
        return given
    rest = {party: x[ROWS:] for party, x in parts.items()}
    return replace(given, validation=rest, validation_labels=labels[ROWS:])


def meter(given: Setting) -> LeakageMeter:
    return LeakageMeter(given.labels.astype(np.int64), MonitorConfig.of({"kind": given.params.kind}, 2, given.seed))


def budget(given: Setting) -> LeakageBudget:
    labels = given.labels.astype(np.int64)
    return LeakageBudget(labels, MonitorConfig.of({"kind": given.params.kind}, 2, given.seed), budget=0.6)


def cases() -> dict[str, tuple[Setting, Policies]]:
    small = {"trees": 4, "depth": 2, "bins": 4}
    boosted, forest = SecureBoost(**small), FederatedForest(**small)  # type: ignore[arg-type]
    stops = SecureBoost(**small | {"trees": 12}, early_stopping_rounds=2, learning_rate=1.0)  # type: ignore[arg-type]
    goss = SecureBoost(**small, sampling="goss", top_rate=0.3, other_rate=0.2)  # type: ignore[arg-type]
    apart = SecureBoost(**small | {"trees": 3}, multi_strategy="one_output_per_tree")  # type: ignore[arg-type]
    bags = FederatedForest(  # type: ignore[arg-type]
        **small | {"trees": 5}, trees_at_once=2, row_fraction=1.0, replace=True, feature_fraction=0.6
    )
    sampled = SecureBoost(**small, row_fraction=0.6, feature_fraction=0.6, mode="mixed")  # type: ignore[arg-type]
    given = setting(boosted)
    found: dict[str, tuple[Setting, Policies]] = {
        "boosted": (given, tuple),
        "stops early": (setting(stops, watched=True), tuple),
        "goss": (setting(goss), tuple),
        "a tree for each class": (setting(apart, 3), tuple),
        "a forest of bags": (setting(bags, 3), tuple),
        "in turns, sampled": (setting(sampled), tuple),
        "in layers": (setting(SecureBoost(**small, mode="layered", passive_depth=1)), tuple),  # type: ignore[arg-type]
        "id-lmid": (given, lambda: [IdLmid(xi=0.3)]),
        "local trees": (given, lambda: [LocalTrees(count=2)]),
        "metered": (given, lambda: [meter(given)]),
        "a budget": (given, lambda: [budget(given)]),
    }
    of_forest = setting(forest)
    found["a forest with a budget"] = (of_forest, lambda: [budget(of_forest)])
    return found


def noisy_cases() -> dict[str, tuple[Setting, Policies]]:
    small = {"trees": 3, "depth": 2, "bins": 4}
    boosted, forest = setting(SecureBoost(**small)), setting(FederatedForest(**small), 3)  # type: ignore[arg-type]
    return {
        "randomized response": (boosted, lambda: [RandomizedLabels(epsilon=1.0)]),
        "in stages": (forest, lambda: [LpMst(epsilon=1.0, stages=2)]),
        "grafted": (forest, lambda: [RandomizedLabels(epsilon=0.5), Grafting(unrepaired="relabel")]),
        "relabeled": (boosted, lambda: [RandomizedLabels(epsilon=0.5), Grafting(unrepaired="relabel")]),
    }


CASES, NOISY = cases(), noisy_cases()
_undisturbed: dict[str, Ended] = {}


def undisturbed(name: str, folder: Path) -> Ended:
    """Return how a case ends that nobody cuts, once for all tests."""
    if name not in _undisturbed:
        given, policies = CASES[name]
        _undisturbed[name] = Interrupted(
            setting=given, folder=folder / "undisturbed" / name, policies=policies
        ).finish()
    return _undisturbed[name]


def some_cuts(ended: Ended, count: int, seed: int) -> Iterator[Cut]:
    """Yield cuts of all parties, spread over the run."""
    rng = np.random.default_rng(seed)
    for position in range(count):
        party = NAMES[position % len(NAMES)]
        least, most = (np.array([position, position + 1]) * ended.passed[party] / count).astype(int)
        yield Cut(party, int(rng.integers(least, max(most, least + 1))))


# -- wherever it is cut ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("party", "step"),
    [("active", 8), ("left", 4), ("right", 8), *(pytest.param(name, 1, marks=SLOW) for name in NAMES)],
)
def test_a_cut_at_every_message(tmp_path: Path, party: str, step: int) -> None:
    calm = undisturbed("boosted", tmp_path)
    given, policies = CASES["boosted"]
    every = range(calm.passed[party])
    assert len(every) > 20
    for at in every[::step]:
        run = Interrupted(setting=given, folder=tmp_path / str(at), policies=policies)
        ended = run.finish(Cut(party, at))
        assert ended.attempts == 2
        assert {view.attempts for view in ended.views.values()} == {2}
        assert_same(ended, calm)


@pytest.mark.parametrize("count", [3, pytest.param(6, marks=SLOW)])
@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_model_and_defense(tmp_path: Path, name: str, count: int) -> None:
    calm = undisturbed(name, tmp_path)
    given, policies = CASES[name]
    for cut in some_cuts(calm, count, len(name)):
        run = Interrupted(setting=given, folder=tmp_path / f"{cut.party}{cut.at}", policies=policies)
        assert_same(run.finish(cut), calm)


@pytest.mark.parametrize("name", ["stops early", "a forest of bags", "a tree for each class", "a budget"])
def test_cut_again_and_again(tmp_path: Path, name: str) -> None:
    calm = undisturbed(name, tmp_path)
    given, policies = CASES[name]
    for seed in range(2):
        run = Interrupted(setting=given, folder=tmp_path / str(seed), policies=policies)
        assert_same(run.finish(*some_cuts(calm, 5, seed)), calm)


@pytest.mark.slow
def test_under_encryption(tmp_path: Path) -> None:
    """Each attempt makes its own key; no checkpoint holds one."""
    for name in ("boosted", "a forest of bags"):
        calm, (given, policies) = undisturbed(name, tmp_path), CASES[name]
        secret = replace(given, engine="paillier", bits=512)
        for at in (calm.passed["left"] // 2, calm.passed["left"] - 3):
            run = Interrupted(setting=secret, folder=tmp_path / f"{name}{at}", policies=policies)
            ended = run.finish(Cut("left", at))
            for party, each in ended.outcomes.items():
                assert each.share == calm.outcomes[party].share
            assert ended.outcomes["active"].margins.tobytes() == calm.outcomes["active"].margins.tobytes()


def test_work_is_not_done_again(tmp_path: Path) -> None:
    """Cut in its last tree, a run goes on from the last but one: the first trees are sent once."""
    calm, (given, policies) = undisturbed("boosted", tmp_path), CASES["boosted"]
    run = Interrupted(setting=given, folder=tmp_path / "run", policies=policies)
    ended = run.finish(Cut("active", calm.passed["active"] - 12))
    assert sum(ended.passed.values()) < 0.6 * sum(calm.passed.values())
    sent = ended.views["left"].counts()["received", "TreeStart"][0]
    assert sent <= given.params.trees + 1
    assert run.checkpoints("active").numbers() == (0, 2, 3, 4)
    assert run.checkpoints("left").numbers() == (0, 2, 3, 4)


@pytest.mark.parametrize("kind", [SecureBoost, FederatedForest])
def test_a_training_that_goes_on_is_cut(tmp_path: Path, kind: type[TreeModel]) -> None:
    """An earlier model of two trees is continued by three more, and cut meanwhile."""
    given = setting(kind(trees=2, depth=2, bins=4, feature_fraction=0.6), watched=True)  # type: ignore[call-arg]
    first = Interrupted(setting=given, folder=tmp_path / "first").finish()
    shares = {party: each.share for party, each in first.outcomes.items()}
    going_on = replace(given, shares=shares, params=replace(given.params, trees=3))
    calm = Interrupted(setting=going_on, folder=tmp_path / "calm").finish()
    assert len(calm.outcomes["active"].share.trees) == 5
    for cut in some_cuts(calm, 9, 1):
        run = Interrupted(setting=going_on, folder=tmp_path / f"{cut.party}{cut.at}")
        assert_same(run.finish(cut), calm)


def test_rounds_of_many_trees(tmp_path: Path) -> None:
    """The active party keeps one checkpoint for the five trees of a round, a passive party one for each tree."""
    small = SecureBoost(trees=3, depth=2, bins=4, multi_strategy="one_output_per_tree")
    given = setting(small, 5)
    calm = Interrupted(setting=given, folder=tmp_path / "calm").finish()
    run = Interrupted(setting=given, folder=tmp_path / "cut")
    messages = calm.passed["left"] - 12  # without the greeting, the key and the prediction
    assert run.attempt(Cut("left", 4 + messages * 14 // 15)) is None
    assert run.checkpoints("active").numbers() == (0, 1, 2)
    assert run.checkpoints("left").numbers()[-1] in (13, 14)
    ended = run.finish()
    assert_same(ended, calm)
    assert ended.views["left"].counts()["received", "TreeStart"][0] <= 15 + 5


def test_a_reading_that_is_due_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many rows the meter leaves trees out, and reads after the last: also where the cut comes behind that."""
    monkeypatch.setattr(leakage_meter, "_LIGHT", 0)
    given = setting(SecureBoost(trees=5, depth=2, bins=4))
    calm = Interrupted(setting=given, folder=tmp_path / "calm", policies=lambda: [meter(given)]).finish()
    for back in (2, 3, 4):
        run = Interrupted(setting=given, folder=tmp_path / str(back), policies=lambda: [meter(given)])
        ended = run.finish(Cut("active", calm.passed["active"] - back))
        assert_same(ended, calm)
        assert [*list(ended.views["active"].applied())[-1]["readings"]["left"]] == ["1", "2", "3", "4", "5"]


# -- between two checkpoints -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("party", NAMES)
def test_killed_while_it_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, party: str, when: str) -> None:
    """So one party has the state after a tree that the other has not; the last that both have is gone on from."""
    calm, (given, policies) = undisturbed("boosted", tmp_path), CASES["boosted"]
    save = Checkpoints.save
    for number in range(party != "active", given.params.trees + 1):
        run = Interrupted(setting=given, folder=tmp_path / str(number), policies=policies)

        def dying(
            self: Checkpoints, at: int, *args: Any, number: int = number, run: Interrupted = run, **more: Any
        ) -> None:
            mine = self.folder is not None and self.folder.parent.name == party
            if mine and at == number and when == "before":
                raise Killed
            save(self, at, *args, **more)
            if mine and at == number:
                raise Killed

        monkeypatch.setattr(Checkpoints, "save", dying)
        assert run.attempt(Cut(party, -1)) is None
        monkeypatch.setattr(Checkpoints, "save", save)
        assert_same(run.finish(), calm)


@pytest.mark.parametrize("party", NAMES)
@pytest.mark.parametrize("suffix", [".lwc", ".lwb"])
def test_damaged_checkpoints_are_left_out_of_account(tmp_path: Path, party: str, suffix: str) -> None:
    """The newest file, cut short or with one bit other: an earlier one is gone on from."""
    calm, (given, policies) = undisturbed("boosted", tmp_path), CASES["boosted"]
    for change in (lambda data: data[: len(data) // 2], lambda data: data[:-9] + bytes([data[-9] ^ 4]) + data[-8:]):
        run = Interrupted(setting=given, folder=tmp_path / f"{party}{suffix}{change(b'0123456789abcd')!r}")
        run.policies = policies
        assert run.attempt(Cut(party, calm.passed[party] - 4)) is None
        newest = max((run.folder / party / "checkpoint").glob(f"*{suffix}"), key=lambda path: path.name)
        newest.write_bytes(change(newest.read_bytes()))
        assert run.checkpoints(party).damaged
        if not run.checkpoints(party).numbers():  # the draws of the beginning, to which all others refer
            with lost(run):
                run.attempt()
            run.restart()
        assert_same(run.finish(), calm)


def lost(run: Interrupted) -> Any:
    """All parties refuse, since one has no part of the others' progress."""
    progress = {party: run.checkpoints(party).progress for party in run.setting.parts}
    return refused(HandshakeError, "disagreement", value=progress)


def test_a_party_that_lost_everything(tmp_path: Path) -> None:
    """Nobody throws anything away; with --restart all begin from the start, the active party with what it drew."""
    calm, (given, policies) = undisturbed("boosted", tmp_path), CASES["boosted"]
    for party in NAMES:
        run = Interrupted(setting=given, folder=tmp_path / party, policies=policies)
        assert run.attempt(Cut("active", calm.passed["active"] - 4)) is None
        run.checkpoints(party).purge()
        before = {each: run.checkpoints(each).numbers() for each in NAMES}
        with lost(run):
            run.attempt()
        assert {each: run.checkpoints(each).numbers() for each in NAMES} == before
        run.restart()
        assert_same(run.finish(), calm)


def test_a_full_disk_ends_the_run_and_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calm, (given, policies) = undisturbed("boosted", tmp_path), CASES["boosted"]
    for party in NAMES:
        run = Interrupted(setting=given, folder=tmp_path / party, policies=policies)
        place, flush = str(run.folder / party / "checkpoint"), os.fsync

        def full(handle: int, place: str = place, flush: Callable[[int], None] = flush) -> None:
            if os.readlink(f"/proc/self/fd/{handle}").startswith(f"{place}/000003"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            flush(handle)

        monkeypatch.setattr(os, "fsync", full)
        with refused_about("No space left", OutputError, "unwritable", value=Path(place)):
            run.attempt()
        monkeypatch.setattr(os, "fsync", flush)
        assert run.checkpoints(party).numbers()[-1] == 2
        assert_same(run.finish(), calm)


def test_a_checkpoint_of_another_job_is_refused(tmp_path: Path) -> None:
    given, policies = CASES["boosted"]
    run = Interrupted(setting=given, folder=tmp_path, policies=policies)
    run.attempt(Cut("active", 30))
    with refused(InputError, "other-run", value={"run": ("1", "2")}):
        Checkpoints(tmp_path / "active" / "checkpoint", run={"run": "2"})
    assert Checkpoints(tmp_path / "active" / "checkpoint", run=RUN).numbers()


# -- noise -------------------------------------------------------------------------------------------------------------


class Noisy(Policy):
    """Flips labels by a draw that protects, and keeps outside of the process what it drew."""

    kind = "noisy"
    label_private = True

    def __init__(self, drawn: list[bytes]) -> None:
        self.drawn = drawn

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        flips = np.frombuffer(targets.protection.bytes(len(targets.values)), np.uint8) % 4 == 0
        values = np.where(flips, 1.0 - targets.values, targets.values)
        self.drawn.append(values.tobytes())
        return replace(targets, values=values, account={"spent": 1.0})


def starts(ended: Ended) -> list[dict[str, Any]]:
    return [each for each in ended.views["active"].applied() if each["stage"] == "start"]


@pytest.mark.parametrize(
    ("party", "step"),
    [("active", 7), ("left", 9), ("right", 9), *(pytest.param(name, 2, marks=SLOW) for name in NAMES)],
)
def test_noise_is_drawn_once(tmp_path: Path, party: str, step: int) -> None:
    """Cut at every message: what leaves, and the model, follow from one draw, which is told of once."""
    given = setting(SecureBoost(trees=2, depth=2, bins=4))
    calm = Interrupted(setting=given, folder=tmp_path / "calm", policies=lambda: [Noisy([])]).finish()
    every = range(calm.passed[party])
    for at in every[::step]:
        drawn: list[bytes] = []
        run = Interrupted(setting=given, folder=tmp_path / str(at), policies=lambda drawn=drawn: [Noisy(drawn)])  # type: ignore[misc]
        if run.attempt(Cut(party, at)) is not None:
            continue  # other noise, fewer messages
        saved = bool(run.checkpoints("active").numbers())
        before = len(drawn)
        ended = run.finish()
        assert len(drawn) == (before if saved else before + 1)
        assert drawn[-1] == run.fitted().values.data
        assert [each["spent"] for each in starts(ended)] == [1.0]
        fixed = Interrupted(setting=given, folder=tmp_path / f"fixed{at}")
        fixed.policies = lambda run=run: [Fixed(run.fitted().values)]  # type: ignore[misc]
        told = fixed.finish()
        for name in NAMES:
            assert ended.outcomes[name].share == told.outcomes[name].share
            assert ended.views[name].digest() == told.views[name].digest()


@pytest.mark.parametrize("count", [3, pytest.param(5, marks=SLOW)])
@pytest.mark.parametrize("name", NOISY)
def test_label_privacy(tmp_path: Path, name: str, count: int) -> None:
    """As from the same noisy labels without a cut; repairs go on, too."""
    given, policies = NOISY[name]
    calm = Interrupted(setting=given, folder=tmp_path / "calm", policies=policies).finish()
    for cut in some_cuts(calm, count, len(name)):
        run = Interrupted(setting=given, folder=tmp_path / f"{cut.party}{cut.at}", policies=policies)
        ended = run.finish(cut)
        spent = [each["spent"] for each in starts(ended) if "spent" in each]
        assert spent == [policies()[0].epsilon]  # type: ignore[attr-defined]
        fixed = Interrupted(setting=given, folder=tmp_path / f"fixed{cut.party}{cut.at}")
        fixed.policies = lambda run=run: [Fixed(run.fitted().values), *policies()[1:]]  # type: ignore[misc]
        told = fixed.finish()
        for party in NAMES:
            assert ended.outcomes[party].share == told.outcomes[party].share
            assert ended.views[party].digest() == told.views[party].digest()
        assert ended.outcomes["active"].margins.tobytes() == told.outcomes["active"].margins.tobytes()


def test_noise_that_is_lost_is_not_drawn_again(tmp_path: Path) -> None:
    """A second draw would tell more of the labels; nothing leaves, however often it is tried."""
    given = setting(SecureBoost(trees=2, depth=2, bins=4))
    drawn: list[bytes] = []
    run = Interrupted(setting=given, folder=tmp_path, policies=lambda: [Noisy(drawn)])
    assert run.attempt(Cut("active", 40)) is None
    for path in (tmp_path / "active" / "checkpoint").glob("beginning.lwb"):
        path.write_bytes(b"torn")
    with lost(run):
        run.attempt()
    run.restart()
    for _ in range(2):
        with refused_about("beginning.lwb", PolicyError, "cannot-act", value="noisy"):
            run.attempt()
    assert len(drawn) == 1


@pytest.mark.parametrize("how", ["purged", "deleted", "all but the record"])
def test_noise_whose_checkpoints_are_gone_is_not_drawn_again(tmp_path: Path, how: str) -> None:
    """By the command, by hand, or with all else of the folder: that noise was drawn is known outside of it."""
    given = setting(SecureBoost(trees=2, depth=2, bins=4))
    drawn: list[bytes] = []
    run = Interrupted(setting=given, folder=tmp_path, policies=lambda: [Noisy(drawn)])
    assert run.attempt(Cut("active", 40)) is None
    folder = tmp_path / "active" / "checkpoint"
    record = folder.parent / NOISE_FILE
    if how == "purged":
        (tmp_path / "job.toml").write_text("# Written by labelward party: the job\n")
        purge_targets(find_purgeable(tmp_path / "active", ("checkpoint",)))
        assert [path.name for path in folder.iterdir()] == ["purged.json"]
    else:
        shutil.rmtree(folder)
    if how == "all but the record":
        shutil.rmtree(tmp_path / "active" / "view")
    known = read_draws(record)
    for _ in range(2):  # the others have progress: nothing begins, whatever the defense
        with refused(HandshakeError, "disagreement", value={"active": 0, "left": 1, "right": 1}):
            run.attempt()
    run.restart()
    for _ in range(2):
        with refused(PolicyError, "cannot-act", field=str(record), value="noisy"):
            run.attempt()
    assert read_draws(record) == known
    if how == "purged":  # as in a folder of a version without such records
        record.unlink()
        with refused_about("purged", PolicyError, "cannot-act", field=str(folder), value="noisy"):
            run.attempt()
    assert len(drawn) == 1
    if how != "purged":  # as --force does
        supersede_draws(record)
        run.finish()
        assert len(drawn) == 2
        assert [each.superseded for each in read_draws(record)] == [True, False]


def test_noise_that_no_message_carried_may_be_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while the first checkpoint is written: nothing left, and nothing is recorded."""
    given = setting(SecureBoost(trees=2, depth=2, bins=4))
    drawn: list[bytes] = []
    run = Interrupted(setting=given, folder=tmp_path, policies=lambda: [Noisy(drawn)])
    save = Checkpoints.save

    def dying(self: Checkpoints, at: int, *args: Any, **more: Any) -> None:
        if self.folder is not None and self.folder.parent.name == "active":
            raise Killed
        save(self, at, *args, **more)

    monkeypatch.setattr(Checkpoints, "save", dying)
    assert run.attempt(Cut("active", -1)) is None
    monkeypatch.setattr(Checkpoints, "save", save)
    assert not (tmp_path / "active" / NOISE_FILE).exists()
    run.finish()
    assert len(drawn) == 2
    (draw,) = read_draws(tmp_path / "active" / NOISE_FILE)
    assert (draw.defense, draw.epsilon, draw.superseded) == ("noisy", None, False)


def test_a_record_that_was_not_written_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between checkpoint and record: the next attempt goes on from the checkpoint, and records first."""
    given = setting(SecureBoost(trees=2, depth=2, bins=4))
    run = Interrupted(setting=given, folder=tmp_path, policies=lambda: [Noisy([])])

    def dying(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("labelward.protocols.secureboost.checkpointing.record_draws", dying)
        assert run.attempt(Cut("active", -1)) is None
    assert run.checkpoints("active").numbers() == (0,)
    run.finish()
    assert len(read_draws(tmp_path / "active" / NOISE_FILE)) == 1


def test_a_superseded_draw_is_charged(tmp_path: Path) -> None:
    """Labels of the same rows pay for both trainings; what is told says so."""
    given, run = setting(SecureBoost(trees=2, depth=2, bins=4)), Interrupted
    first = run(setting=given, folder=tmp_path, policies=lambda: [RandomizedLabels(epsilon=1.0)])
    assert first.attempt(Cut("active", 40)) is None
    for party in NAMES:
        shutil.rmtree(tmp_path / party / "checkpoint")
        shutil.rmtree(tmp_path / party / "view")
    record = tmp_path / "active" / NOISE_FILE
    supersede_draws(record)
    assert [draw.epsilon for draw in read_draws(record)] == [1.0]
    second = run(setting=given, folder=tmp_path, policies=lambda: [LpMst(epsilon=0.5, stages=1)])
    ended = second.finish()
    accounts = list(ended.views["active"].applied())
    assert {(each["spent"], each["spent_before"]) for each in accounts} == {(1.5, 1.0)}
    assert [draw.superseded for draw in read_draws(record)] == [True, False]


@pytest.mark.parametrize("policy", [RandomizedLabels(epsilon=1.0), LabelDPSums(epsilon=1.0)], ids=lambda own: own.kind)
def test_a_superseded_draw_is_charged_though_a_row_has_come(policy: Policy, tmp_path: Path) -> None:
    """All other labels are the same."""
    record = tmp_path / NOISE_FILE
    for ids in (["a", "b"], ["a", "b", "c"]):
        kept = Checkpoints(tmp_path / "checkpoint", noise=record, run={"rows": ids_digest(ids)})
        record_draws([policy], kept)
        charged = with_earlier_cost({"spent": 1.0}, kept)
        supersede_draws(record)
    delta = read_draws(record)[0].delta
    assert charged == {"spent": 2.0, "spent_before": 1.0} | ({"delta_before": delta} if delta else {})
    assert delta == getattr(policy, "delta", 0.0)


class Drawn(msgspec.Struct):
    """What a party drew before training."""


@pytest.mark.parametrize(
    ("policy", "charged"),
    [
        (RandomizedLabels(epsilon=1.0), {"spent": 1.0}),  # the labels are the same, whatever peers do
        (LabelDPSums(epsilon=1.0), {"spent": 2.0, "spent_before": 1.0, "delta_before": 1e-5}),
        (
            NoisyGradients(distribution="gaussian", epsilon=1.0, delta=1e-5, clip=0.1),
            {"spent": 2.0, "spent_before": 1.0, "delta_before": 1e-5},
        ),
    ],
    ids=lambda each: getattr(each, "kind", ""),
)
def test_noise_on_what_a_peer_sends_is_charged_anew_where_the_peer_lost_what_it_drew(
    policy: Policy, charged: dict[str, float], tmp_path: Path
) -> None:
    """The own noise is that of before, but on other sums or gradients."""

    def attempt() -> Checkpoints:
        kept = Checkpoints(tmp_path / "checkpoint")
        if 0 not in kept.numbers():
            kept.save(0, Drawn())
        return kept

    first = attempt()
    record_draws([policy], first)
    assert with_earlier_cost({"spent": 1.0}, first) == {"spent": 1.0}
    alike = attempt()  # all have their checkpoint 0
    record_draws([policy], alike)
    assert with_earlier_cost({"spent": 1.0}, alike) == {"spent": 1.0}
    apart = attempt()
    apart.rebind({})
    record_draws([policy], apart)
    assert with_earlier_cost({"spent": 1.0}, apart) == charged
    after = attempt()
    record_draws([policy], after)
    assert with_earlier_cost({"spent": 1.0}, after) == charged


def test_a_draw_that_was_recorded_without_its_cost_gets_it(tmp_path: Path) -> None:
    """As by versions that had no account of this defense."""
    record = tmp_path / NOISE_FILE
    kept = Checkpoints(tmp_path / "checkpoint", noise=record)
    record_draws([Noisy([])], kept)
    (draw,) = read_draws(record)
    policy = LabelDPSums(epsilon=3.0)
    text = record.read_text()
    record.write_text(text.replace(f'"{draw.defense}"', f'"{policy.kind}"'))
    record_draws([policy], kept)
    (draw,) = read_draws(record)
    assert (draw.defense, draw.epsilon, draw.delta) == (policy.kind, 3.0, 1e-5)


def test_errors_are_those_of_labelward(tmp_path: Path) -> None:
    """A transcript of another run is refused before anything is sent."""
    given, policies = CASES["boosted"]
    run = Interrupted(setting=given, folder=tmp_path, policies=policies)
    assert run.attempt(Cut("left", 10)) is None
    run.setting = replace(given, job={"model.trees": "9"})
    with refused(LabelwardError, "other-run", value=("job",)):
        run.attempt()


def added_trees(count: int) -> Policies:
    return lambda: [LocalTrees(count=count, mode="add")]


def test_greetings_do_not_tell_how_many_trees_a_party_has_no_part_in(tmp_path: Path) -> None:
    """The active party's checkpoints count all rounds: those of the next attempt would say how many were local."""
    told = []
    for count in (1, 3):
        given = setting(SecureBoost(trees=6, depth=2))
        run = Interrupted(setting=given, folder=tmp_path / str(count), policies=added_trees(count))
        view = run.finish(Cut("left", 50)).views["right"]
        assert view.attempts == 2
        heard = [(each.type, msgspec.msgpack.decode(each.payload)) for each in view._entries if each.kind == "received"]
        assert [each["resume"] > 0 for kind, each in heard if kind == "Begin"] == [False, True]
        told.append([each["checkpoints"] for kind, each in heard if kind == "Hello"])
    assert told[0] == told[1]
