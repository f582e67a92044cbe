"""Every honest message fits what its receiver takes: with no size that is always allowed, in every registered model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_non_interference import SMALL, classes_of, data_of, job_of, run

from blames import blamed
from labelward.federation.session import FederationSession
from labelward.messages.base import wire_name
from labelward.messages.codec import decode
from labelward.messages.pivodl import ColumnCodes, OfferedColumns
from labelward.party import context
from labelward.party.context import Context
from labelward.protocols.common.columns import OwnColumns
from labelward.protocols.pivodl.agreed_sizes import MOST_COLUMNS, checked_offer, matches, offered_columns

HEAD = 256
"""Bytes that small messages may have where nothing is counted."""
UNBOUNDED = {"Ready", "KeyOffer", "PartyKeys", "ColumnCodes"}
"""The first messages after the greeting, until the program has said what it expects."""
VARIANTS: list[dict[str, Any]] = [
    *({"kind": kind} for kind in SMALL),
    {"kind": "pivodl", "depth": 5, "bins": 8, "min_node_rows": 2},
    {"kind": "pivodl", "aggregation": "masks", "depth": 5, "min_node_rows": 2, "candidates": "all"},
    {"kind": "pivodl", "aggregation": "masks", "exchange": "published", "depth": 4, "min_node_rows": 2},
    {"kind": "pivodl", "aggregation": "masks", "instance_threshold": 1, "depth": 4},
    {"kind": "federboost", "depth": 5, "trees": 5, "candidates": "all", "min_node_rows": 2},
    {"kind": "pivot", "depth": 3, "bins": 16, "min_node_rows": 2},
    {"kind": "secureboost", "candidates": "all", "depth": 5, "row_fraction": 0.5},
]
LONG = ("pivot", "pivodl")
"""Kinds whose trainings under encryption take seconds."""
HE = {"engine": "paillier", "bits": 512, "insecure": True, "workers": 1}


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int | None]]:
    """Give what arrives: type, size, and what its receiver takes of the sender at that moment."""
    found: list[tuple[str, int, int | None]] = []
    receive_one = Context._receive_one

    def watched(self: Any, *args: Any) -> None:
        transport = self._transport
        original = transport.receive

        def receive(timeout: float) -> tuple[str, bytes] | None:
            got: tuple[str, bytes] | None = original(timeout)
            if got and got[1]:
                message, _ = decode(got[1])
                found.append((wire_name(type(message)), len(got[1]), self._agreed.get(got[0])))
            return got

        transport.receive = receive
        try:
            receive_one(self, *args)
        finally:
            del transport.receive

    proposal = FederationSession.proposal
    monkeypatch.setattr(
        FederationSession, "proposal", lambda self, party: replace(proposal(self, party), columns=2, classes=2)
    )  # as companies state it
    monkeypatch.setattr(Context, "_receive_one", watched)
    monkeypatch.setattr(context, "LEAST", 0)
    return found


@pytest.mark.parametrize(
    ("model", "paillier"),
    [
        pytest.param(
            model,
            paillier,
            id=" ".join(map(str, model.values())) + ("-paillier" if paillier else "-plain"),
            marks=pytest.mark.slow if paillier and (len(model) > 1 or model["kind"] in LONG) else (),
        )
        for model in VARIANTS
        for paillier in (False, True)
    ],
)
def test_honest_messages_fit(model: dict[str, Any], paillier: bool, arrived: list[tuple[str, int, int | None]]) -> None:
    job = job_of(model)
    if paillier:
        if model["kind"] in ("splitnn", "federboost"):
            pytest.skip("encrypts nothing")
        job = replace(job, encryption=replace(job.encryption, **HE))
    run(job, data_of(job, classes_of(2)))
    greetings = {"Hello", "Begin", "PairHistories", "PairStart"}
    after = [each for each in arrived if each[0] not in greetings]
    assert {name for name, _, most in after if most is None} <= UNBOUNDED
    over = [(name, size, most) for name, size, most in after if most is not None and size > most + HEAD]
    assert not over
    told = [size / most for _, size, most in after if most]
    assert model["kind"] not in ("pivodl", "pivot", "logistic") or max(told) > 0.1  # the bounds mean something


def test_columns_are_those_that_were_stated() -> None:
    x = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, np.nan]])
    offered = offered_columns(OwnColumns(x, {}, None, np.arange(2)))
    assert offered == OfferedColumns(2, 4, 3)
    assert matches(ColumnCodes((3, 1), (0, 0), b""), offered)
    assert not matches(ColumnCodes((3, 2), (0, 0), b""), offered)
    assert offered_columns(OwnColumns(x[:, :0], {}, None, np.arange(0))) == OfferedColumns()


@pytest.mark.parametrize(
    ("columns", "bins", "widest"),
    [(-1, 0, 0), (MOST_COLUMNS + 1, MOST_COLUMNS + 1, 1), (2, 1, 1), (2, 9, 4), (0, 0, 3), (1, 2000, 2000)],
)
def test_columns_that_cannot_be(columns: int, bins: int, widest: int) -> None:
    with blamed("telco", "peer-message", message="PartyKeys", step=(), value=columns):
        checked_offer("telco", OfferedColumns(columns, bins, widest), 32)
