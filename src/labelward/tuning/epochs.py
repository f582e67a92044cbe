"""First epochs of a split network: the models that a training passes on its way, from the states of all parties.

They are those of a training of that length to the last digit: an epoch follows from the state before it and from draws
of its own. The parties predict with them once more; no policy of theirs hears of it twice, since each model is new.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.auditing.measure import FinishedTraining
from labelward.federation.components import model_family, policy_chains
from labelward.federation.model import InferenceSession
from labelward.federation.session import Participant, run_session
from labelward.messages.base import wire_name
from labelward.messages.handshake import Hello
from labelward.messages.splitnn import TRAINING
from labelward.metrics.utility import utility_scores
from labelward.party.checkpoint import RememberedStates
from labelward.party.context import Context
from labelward.party.handshake import Agreement
from labelward.runs.schema import Cost

MOST = 128
"""Epochs whose numbers take as many bytes as the first."""


class EpochScorer:
    """The figures of the first epochs of one training.

    Args:
        training: with the views of all parties.
        states: by party, after each epoch.
    """

    def __init__(self, training: FinishedTraining, states: Mapping[str, RememberedStates]) -> None:
        self.training, self._states = training, states
        self._family = model_family(training.job.model)
        self._epochs = int(training.job.model.params["epochs"])
        self.first = cache(self._first)

    def rounds(self, epochs: int) -> int:
        """Return the rounds of a training of so many epochs."""
        return epochs

    def utility(self, epochs: int, names: Collection[str]) -> Mapping[str, float]:
        """Return metrics after the first epochs."""
        return utility_scores(self._family, self.first(epochs).ended.margins, self.training.data, names)

    def cost(self, epochs: int) -> Cost:
        """Return bytes and messages of a training of so many epochs, which all have as many; seconds of the whole.

        A greeting holds the job, and in it the number of epochs, whose digits count as well.
        """
        training, left = self.training, self._epochs - epochs
        names = [wire_name(each) for each in TRAINING]
        meters = training.ended.meters.values()
        of_epochs = {
            what: sum(getattr(meter, what).get(name, 0) for meter in meters for name in names)
            for what in ("bytes", "messages")
        }
        cost = training.ended.cost
        shorter = {what: getattr(cost, what) - spent * left // self._epochs for what, spent in of_epochs.items()}
        greetings = sum(meter.messages.get(wire_name(Hello), 0) for meter in meters)
        shorter["bytes"] -= greetings * (len(str(self._epochs)) - len(str(epochs)))
        return msgspec.structs.replace(cost, **shorter)

    def _first(self, epochs: int) -> FinishedTraining:
        """Return the training as it was after the first epochs."""
        training = self.training
        shares = {party: self._share(party, share, epochs) for party, share in training.ended.shares.items()}
        margins = self._margins(shares)
        outcomes = {
            party: dataclasses.replace(
                outcome, result=dataclasses.replace(outcome.result, share=shares[party], margins=margins)
            )
            for party, outcome in training.ended.outcomes.items()
        }
        return dataclasses.replace(
            training,
            ended=dataclasses.replace(training.ended, outcomes=outcomes),
            views={party: view.first_epochs(epochs) for party, view in training.views.items()},
            joined={},
        )

    def _share(self, party: str, share: Any, epochs: int) -> Any:
        """Return a party's share with the weights that it had after the first epochs."""
        state: Any = self._states[party].states[epochs]
        found = {"params": {**share.params, "epochs": epochs}, "epochs": epochs, "history": share.history[:epochs]}
        for name in ("bottom", "top", "between"):
            kept = getattr(state, name, None)
            if kept is not None:
                found[name] = msgspec.structs.replace(getattr(share, name), state=kept.weights)
        if isinstance(share.local, msgspec.Struct):
            found["local"] = msgspec.structs.replace(share.local, scale=state.scale)
        return msgspec.structs.replace(share, **found)

    def _margins(self, shares: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return float64 [scored rows, outputs]: what the parties predict with these shares."""
        training = self.training
        rows = {party.name: party.test for party in training.data.parties}

        def program(ctx: Context, agreed: Agreement) -> NDArray[np.float64]:
            return self._family.predict(ctx, shares[ctx.party], rows[ctx.party])

        chains = policy_chains(training.job, training.variant)
        participants = {party: Participant(program=program, policies=chains[party]) for party in shares}
        ids = training.data.test_ids.tolist()
        session = InferenceSession.of(self._family, shares, ids, compared=False)
        with self._family.together(len(shares)):
            return run_session(session, participants)[training.job.active.name].result
