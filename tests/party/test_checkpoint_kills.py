"""Two parties that are killed within any operation on a file: no attempt goes on from parts of different attempts."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from labelward.party.checkpoint import Checkpoints
from labelward.party.exchange import Exchange

TREES, FEWEST = 6, 8
"""How many trees there are, and after how many attempts nobody is killed any more."""


class Killed(BaseException):
    """Stands for SIGKILL: nothing but the file system remembers."""


class State(msgspec.Struct):
    """Nothing."""


class Killer:
    """Counts the operations that change files or have them on the disk, and ends one process before one of them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        for owner, name in ((Path, "unlink"), (Path, "replace"), (os, "fsync")):
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            if self.left == 0:
                raise Killed
            if self.left is not None:
                self.left -= 1
            return function(*given, **named)

        return counted


class Party:
    """A process of a party in one attempt."""

    def __init__(self, folder: Path, killer: Killer, draw: random.Random, mortal: bool) -> None:
        self.kept = Checkpoints(folder, keep=draw.choice([1, 2, 3]))
        self._killer, self._draw, self._mortal = killer, draw, mortal

    def do(self, action: Callable[[Checkpoints], None]) -> None:
        self._killer.left = self._draw.randrange(8) if self._mortal and self._draw.random() < 0.25 else None
        try:
            action(self.kept)
        finally:
            self._killer.left = None

    def made(self, number: int | None) -> list[bytes]:
        """Return which attempt made each tree up to a checkpoint."""
        if not number:
            return []
        _, block = self.kept.load(number, State)
        return [block(f"tree-{tree}") for tree in range(1, number + 1)]


def saved(party: Party, tree: int, added: Mapping[str, bytes], peers: Mapping[str, int], exchange: Exchange) -> None:
    exchanges = dict.fromkeys(("active", "passive"), exchange)
    party.do(lambda kept: kept.save(tree, State(), peers=peers, blocks=added, exchanges=exchanges))


def attempt(folder: Path, killer: Killer, draw: random.Random, name: bytes, mortal: str) -> None:
    """Go on from the last common checkpoint, as the greeting does, and train; a tree is known by its attempt."""
    active, passive = (Party(folder / each, killer, draw, each == mortal) for each in ("active", "passive"))
    theirs = dict(zip(passive.kept.numbers(), passive.kept.digests("active"), strict=True))
    resume, parts = active.kept.common({"passive": theirs}) or (None, {})
    behind = parts.get("passive")
    assert active.made(resume) == passive.made(behind)
    passive.do(lambda kept: kept.discard(behind))
    active.do(lambda kept: kept.discard(resume))
    exchange = Exchange.begin(name, "passive", ())
    if resume is None:
        passive.do(lambda kept: kept.save(0, State(), exchanges={"active": exchange}))
        active.do(lambda kept: kept.save(0, State(), peers={"passive": 0}, exchanges={"passive": exchange}))
    else:
        exchange = active.kept.exchange(resume, "passive")
    for tree in range((resume or 0) + 1, TREES + 1):
        added = {f"tree-{tree}": name}
        exchange = exchange.extended(name, outward=True)
        saves = [
            partial(saved, active, tree, added, {"passive": tree}, exchange),
            partial(saved, passive, tree, added, {}, exchange),
        ]
        draw.shuffle(saves)  # they do not wait for each other
        for save in saves:
            save()


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_no_attempt_goes_on_from_a_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    killer, draw, killed = Killer(monkeypatch), random.Random(seed), 0
    for trial in range(15):
        for number in itertools.count():
            mortal = draw.choice(["active", "passive"]) if number < FEWEST else ""
            try:
                attempt(tmp_path / str(trial), killer, draw, f"attempt {number}".encode(), mortal)
            except Killed:
                killed += 1
                continue
            break
    assert killed > 15
