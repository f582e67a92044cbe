"""Runs that were stored under format 1 can still be read. ``assets/make_format1.py`` wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from labelward.attacks.instance_spaces import observed_leaves
from labelward.messages.tree import DecryptedSums, LevelHistograms, LevelRequest, OwnSplit, TreeStart
from labelward.party.view import View
from labelward.protocols.secureboost.predict import leaves_reached
from labelward.protocols.secureboost.share import ModelShare
from wiring import make_parts

STORED = Path(__file__).parent.parent / "assets" / "format1"
EXPECTED = json.loads((STORED / "expected.json").read_text())


def test_views_have_the_digest_that_they_had() -> None:
    assert {party: View.load(STORED / party).digest() for party in ("active", "left")} == EXPECTED["digests"]


def test_views_tell_what_they_told() -> None:
    view = View.load(STORED / "left")
    assert (view.header.format, view.party, view.rows, view.parameter("model.trees")) == (1, "left", 24, 1)
    start = next(view.received(TreeStart)).message
    assert start.rows.value.unpack(24).all()
    assert start.gradients is not None  # which travel in messages of their own now
    assert (start.gradients.kind, start.gradients.shape) == ("rows", (24,))
    assert next(view.received(LevelRequest)).message.build == (0,)
    assert {own.column for own in view.observed(OwnSplit)} <= {"left0", "left1"}


def test_attacks_and_reports_read_them() -> None:
    leaves = observed_leaves(View.load(STORED / "left"))
    assert leaves.shape == (1, 24)
    assert len(np.unique(leaves)) > 1
    sums = next(View.load(STORED / "active").received(LevelHistograms)).message
    assert (sums.cells, sums.implied, sums.sums.shape) == (b"", b"", (2, 4))
    assert next(View.load(STORED / "active").observed(DecryptedSums)).sums.unpack().shape[:2] == (2, 4)


def test_shares_predict_what_they_predicted() -> None:
    shares = {party: ModelShare.load(STORED / party) for party in ("active", "left")}
    parts = make_parts(41, 24, {"active": 1, "left": 2})
    answers = {party: share.own.answers(parts[party]) for party, share in shares.items()}
    active = shares["active"]
    margins = np.zeros((24, 1))
    for tree in active.trees:
        margins += tree.leaf_values()[leaves_reached(tree, active.parties, answers, 24)]
    assert margins.tobytes().hex() == EXPECTED["margins"]
