"""Runs that are cut off at a chosen message and go on from their checkpoints, until they are done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cutting import CutEnd, Killed
from labelward.he import engine as make_engine
from labelward.messages.base import Array
from labelward.party.checkpoint import Checkpoints
from labelward.party.context import Context
from labelward.party.in_process import run_parties
from labelward.party.transcript import FILE_NAME, Transcript
from labelward.party.view import View
from labelward.policy.base import Policy, TrainingTargets
from labelward.policy.chain import PolicyChain
from labelward.protocols.secureboost.targets import FittedTargets
from labelward.transport.base import Transport
from wiring import Setting, header, program, session

RUN = {"run": "1"}


@dataclass(frozen=True)
class Cut:
    """Where an attempt ends: the party, and the number of its message, sent or received, that does not happen."""

    party: str
    at: int


@dataclass(frozen=True)
class Ended:
    """What a run leaves: outcomes and views by party, how many attempts it took, how many messages each party passed
    in the last of them, and what it spent."""

    outcomes: dict[str, Any]
    views: dict[str, View]
    attempts: int
    passed: Counter[str]


@dataclass(kw_only=True)
class Interrupted:
    """A run in a folder.

    Attributes:
        policies: makes them, anew for each attempt as a new process would.
        settled: whether a party is cut off when all others wait for a message, else whatever they do.
    """

    setting: Setting
    folder: Path
    policies: Callable[[], Sequence[Policy]] = tuple
    settled: bool = False
    contexts: dict[str, Context] = field(default_factory=dict)

    def finish(self, *cuts: Cut) -> Ended:
        """Go on until the run is done; each attempt but the last ends at a cut, or later by itself."""
        for number, cut in enumerate((*cuts, None), 1):
            ended = self.attempt(cut)
            if ended is not None:
                outcomes, passed = ended
                views = {party: View.load(self.folder / party / "view") for party in self.setting.parts}
                return Ended(outcomes, views, number, passed)
        raise AssertionError("an attempt without a cut did not end")

    def attempt(self, cut: Cut | None = None) -> tuple[dict[str, Any], Counter[str]] | None:
        """Run until the cut, or to the end: outcomes by party, and the messages that each passed; None: cut off."""
        setting, passed, waiting = self.setting, Counter[str](), set[str]() if self.settled else None
        engine = make_engine(setting.engine)
        whole, run = session(setting), program(setting, engine)

        def live(ctx: Context) -> Any:
            return run(ctx, whole.handshake(ctx))

        programs = {party: (partial(self._context, party, cut, passed, waiting), live) for party in setting.parts}
        try:
            outcomes = run_parties(programs)
        except Killed:
            assert cut is not None
            view = self.folder / cut.party / "view" / FILE_NAME
            view.write_bytes(view.read_bytes()[:-7])  # a kill leaves no closing record, and may tear the last one
            return None
        finally:
            engine.close()
        assert len({each.share.model for each in outcomes.values()}) == 1
        return {party: _renamed(outcome) for party, outcome in outcomes.items()}, passed

    def restart(self) -> None:
        """Forget the progress of all parties, as ``--restart`` does."""
        for party in self.setting.parts:
            self.checkpoints(party).restart()

    def checkpoints(self, party: str) -> Checkpoints:
        return Checkpoints(self.folder / party / "checkpoint", run=RUN)

    def fitted(self) -> FittedTargets:
        """Return what the run drew once, from its checkpoint 0."""
        kept = self.checkpoints(self.setting.active)
        return msgspec.msgpack.decode(kept.load(0, msgspec.Raw)[1]("beginning"), type=FittedTargets)  # type: ignore[type-var]

    def _context(
        self, party: str, cut: Cut | None, passed: Counter[str], waiting: set[str] | None, end: Transport
    ) -> Context:
        setting, checkpoints = self.setting, self.checkpoints(party)
        ctx = self.contexts[party] = session(setting).context(
            CutEnd(end, cut.at if cut and cut.party == party else None, passed, waiting),
            Transcript(header(setting, party), self.folder / party / "view", resume=True, finished=True),
            policies=PolicyChain(self.policies() if party == setting.active else ()),
            timeout=setting.timeout,
            checkpoints=checkpoints,
        )
        return ctx


def _renamed(outcome: Any) -> Any:
    return replace(outcome, share=msgspec.structs.replace(outcome.share, model="model"))


def assert_same(one: Ended, two: Ended) -> None:
    """Shares, predictions to the last bit, what policies did, what was watched, and the content of all views."""
    for party, mine in one.outcomes.items():
        theirs = two.outcomes[party]
        assert mine.share == theirs.share
        assert one.views[party].digest() == two.views[party].digest()
        assert list(one.views[party].applied()) == list(two.views[party].applied())
        assert one.views[party].ended == two.views[party].ended == "complete"
        if hasattr(mine, "margins"):
            assert mine.margins.tobytes() == theirs.margins.tobytes()
            assert (mine.tally, mine.history) == (theirs.tally, theirs.history)


class Fixed(Policy):
    """Targets that are given: what a noisy policy drew, without a draw."""

    kind = "noisy"
    label_private = True

    def __init__(self, values: Array) -> None:
        self.values = values.unpack().astype(np.float64)

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        return replace(targets, values=self.values)
