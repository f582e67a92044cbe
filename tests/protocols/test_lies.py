"""A passive party that lies about its sums: what is found out, what it reads before, and what it reads all the same."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from malicious_peer import Liar
from msgspec.structs import replace
from numpy.typing import NDArray

import wiring
from blames import blamed
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.lying_sums import LyingSums
from labelward.errors import JobError, LabelwardError
from labelward.messages.tree import LevelHistograms, ReadRows
from labelward.party.view import View
from labelward.protocols.secureboost.behavior import SumLies, _chains
from labelward.protocols.secureboost.params import SecureBoost
from labelward.protocols.secureboost.session import run_passive
from refusals import refused
from wiring import Run, Setting

ROWS = 200


@pytest.fixture
def setting() -> Setting:
    """The liar's columns tell most of the labels, the active party's some."""
    rng = np.random.default_rng(3)
    labels = rng.integers(2, size=ROWS)
    x = {"active": rng.normal(size=(ROWS, 3)), "liar": rng.normal(size=(ROWS, 10))}
    x["active"][:, 0] += labels
    x["liar"][:, 2] += 2 * labels
    return Setting(x, labels, SecureBoost(trees=8, depth=2), timeout=30.0)


def lying(monkeypatch: pytest.MonkeyPatch, setting: Setting, about: str) -> Run:
    how = SumLies(about=about)  # type: ignore[arg-type]

    def deceive(*args: Any, **named: Any) -> Any:
        return run_passive(*args, **named, behavior=how)

    monkeypatch.setattr(wiring, "run_passive", deceive)
    return setting.run()


def read_of(view: View, labels: NDArray[np.int64]) -> tuple[int, float]:
    """Return how many labels were read, and the share of them that is right."""
    attack, own = LyingSums(), AttackerData(features=np.zeros((ROWS, 0)), columns=())
    guess = attack(view, own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(0))
    return int(guess.notes["labels"]), attack.score(guess, labels)["read_right"]


@pytest.mark.parametrize("engine", [("plain", 0), ("paillier", 2048)])
def test_sums_of_no_rows_are_refused_before_a_label_is_told(
    monkeypatch: pytest.MonkeyPatch, setting: Setting, engine: tuple[str, int]
) -> None:
    setting.engine, setting.bits = engine
    with blamed("liar", "peer-message", message="LevelSums", step=(0, 0, 0), value=0):
        lying(monkeypatch, setting, "sums")


def test_a_winner_s_sums_are_those_of_its_rows(monkeypatch: pytest.MonkeyPatch, setting: Setting) -> None:
    """Sums that some rows might have, but not those that the party names: of a bin a little more."""

    def shifted(message: LevelHistograms) -> LevelHistograms:
        if not message.tree:
            return message  # the gradients of the first tree have two values
        values = np.frombuffer(message.sums.data, np.int64).reshape(-1, 3).copy()  # type: ignore[union-attr]
        values[0::2, 0] += 1
        return replace(message, sums=replace(message.sums, data=values.tobytes()))

    monkeypatch.setattr(wiring, "Wire", lambda end, nap: Liar(end, "liar", LevelHistograms, shifted))
    with blamed("liar", "peer-message", message="SplitRows", step=(1, 0), value=0):
        setting.run()


def test_made_up_columns_read_labels_and_pass_every_check(monkeypatch: pytest.MonkeyPatch, setting: Setting) -> None:
    """What remains, and is documented: the sums are those of rows, and the rows are those of a column, though of none
    that the party has."""
    view = lying(monkeypatch, setting, "columns").views["liar"]
    labels, right = read_of(view, np.asarray(setting.labels, dtype=np.int64))
    assert labels >= 15  # of eight trees, the first honest; five a tree at most
    assert right == 1.0
    assert [each["kind"] for each in view.applied() if each["stage"] == "behavior"] == ["lying-sums"]


def test_a_won_split_may_hold_none_of_the_rows_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node is another one: the tree tells no label, and the run goes on."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=ROWS)
    x = {"active": rng.normal(size=(ROWS, 3)), "liar": rng.normal(size=(ROWS, 3))}
    x["active"][:, 0] += 2 * labels
    x["liar"][:, 1] += labels
    setting = Setting(x, labels, SecureBoost(trees=6, depth=3), timeout=30.0)
    view = lying(monkeypatch, setting, "columns").views["liar"]
    assert 0 in [len(each.rows.unpack()) for each in view.observed(ReadRows)]
    assert read_of(view, np.asarray(labels, dtype=np.int64))[1] == 1.0


def test_an_honest_view_tells_this_attack_nothing(setting: Setting) -> None:
    assert read_of(setting.run().views["liar"], np.asarray(setting.labels, dtype=np.int64)) == (0, 0.5)


@pytest.mark.parametrize("classes", [0, 3])
def test_other_than_two_classes_are_refused_before_a_party_lies(classes: int) -> None:
    with refused(JobError, "unsupported", value=classes):
        LyingSums().check_labels(ROWS, classes)


@pytest.mark.parametrize("items", range(7))
def test_chains_hold_every_subset_once(items: int) -> None:
    chains = list(_chains(items))
    every = [each for chain in chains for each in chain]
    assert len(every) == len(set(every)) == 2**items
    assert all(small < large for chain in chains for small, large in pairwise(chain))


def test_who_lies_otherwise_is_refused() -> None:
    with pytest.raises(LabelwardError) as caught:
        SumLies(about="weights")  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.field) == ("choice", "lying-sums about")
