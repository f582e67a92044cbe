"""PIVODL: a party whose messages cannot be is named; bad settings are refused before anything starts."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from malicious_peer import Change, Liar
from test_pivodl import THREE, job_of, made_table

import wiring
from labelward.data import load_dataset
from labelward.errors import JobError, LabelwardError, PeerError, PolicyError
from labelward.federation import model, simulation
from labelward.federation.components import check_job, make_engine, model_family, policy_chains, with_defaults
from labelward.federation.model import FederatedModel
from labelward.federation.simulation import SimulationResult, simulate_job
from labelward.job import ComponentSpec, Job, Variant
from labelward.messages.base import Array, Message, RowMask
from labelward.messages.codec import decode
from labelward.messages.pivodl import (
    AllowedCandidates,
    BestGains,
    ChildTotals,
    ColumnCodes,
    HeldRows,
    LabelTotal,
    MaskedMargins,
    MaskedSums,
    NodeBins,
    PartyKeys,
    RootTotals,
    WinningCandidates,
)
from labelward.party.context import Context, no_progress
from labelward.protocols.pivodl import label_scale
from labelward.protocols.pivodl.family import PivodlFamily
from labelward.protocols.pivodl.params import Pivodl
from labelward.protocols.pivodl.predict import predict_rows
from refusals import refused

__all__ = ["made_table"]  # a fixture

replace = msgspec.structs.replace
MODEL = 'trees = 1\ndepth = 2\nmin_node_rows = 2\naggregation = "masks"'
LABELS = {"bank": 0.3, "clinic": 0.7}


def run(job: Job) -> SimulationResult:
    engine = make_engine(job.encryption)
    try:
        return simulate_job(job, load_dataset(job, 1), Variant(), engine, None, seed=1, progress=no_progress)
    finally:
        engine.close()


def array(change: Any, name: str) -> Change:
    return lambda message: replace(message, **{name: Array.pack(change(getattr(message, name).unpack()))})


LIES: dict[str, tuple[str, type[Message], Change]] = {
    "key": ("", PartyKeys, lambda message: replace(message, masks=b"short")),
    "rows of others": ("", HeldRows, lambda message: HeldRows(RowMask.pack(np.ones(message.rows.total, np.bool_)))),
    "rows of nobody": ("", HeldRows, lambda message: HeldRows(RowMask.pack(np.zeros(message.rows.total, np.bool_)))),
    "number of rows": ("", HeldRows, lambda message: HeldRows(RowMask.pack(np.ones(3, np.bool_)))),
    "columns": ("", ColumnCodes, lambda message: replace(message, codes=message.codes[:-2])),
    "bins": ("", ColumnCodes, lambda message: replace(message, codes=b"\xfe\xff" * (len(message.codes) // 2))),
    "cells": ("", MaskedSums, array(lambda sums: sums[:, 1:], "sums")),
    "counts": ("", MaskedSums, array(lambda sums: sums + 10_000, "sums")),
    "root": ("", RootTotals, array(lambda sums: sums[:, 1:], "totals")),
    "gains": ("", BestGains, array(lambda gains: gains * np.nan, "gains")),
    "candidates": ("", WinningCandidates, lambda message: replace(message, candidates=((),) * 9)),
    "children": ("", ChildTotals, array(lambda sums: sums[:, 1:], "left")),
    "allowed": ("instance_threshold = 2", AllowedCandidates, lambda message: AllowedCandidates(message.bits[:-1])),
    "bins of nodes": ('exchange = "published"', NodeBins, lambda message: NodeBins(message.bins[:-1])),
    "two bins": ('exchange = "published"', NodeBins, lambda message: NodeBins((message.bins[0],) * len(message.bins))),
    "margins": ("", MaskedMargins, array(lambda margins: margins[:-1], "margins")),
}


@pytest.mark.parametrize("lie", LIES)
def test_who_sends_what_cannot_be_is_named(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more, kind, change = LIES[lie]
    liar = "clinic"
    drawn = kind is RootTotals  # by the seed: whoever it is lies
    made = partial(simulation.Participant, wrap=lambda end: Liar(end, end.party if drawn else liar, kind, change))
    monkeypatch.setattr(simulation, "Participant", made)
    with pytest.raises(LabelwardError) as caught:
        run(job_of(LABELS, THREE, model=f"{MODEL}\n{more}"))
    assert isinstance(caught.value, PeerError)
    # masked sums of one holder are not told apart, rows that nobody labels are missing at all, and a third party
    # cannot tell which of two that claim a row is wrong
    assert caught.value.peer == liar or drawn or lie in ("counts", "rows of nobody", "rows of others")


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lambda limbs: limbs[1:], id="shape"),
        pytest.param(lambda limbs: limbs[None], id="dimensions"),
        # the same number: an opener could hide something in what the limbs carry
        pytest.param(lambda limbs: limbs + np.array([1 << 40, -1, 0, 0, 0]), id="form"),
        pytest.param(lambda limbs: -limbs, id="negative squares"),
    ],
)
def test_a_scale_that_is_none(lie: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(LABELS, THREE, table="diabetes.csv", data='task = "regression"\nlabel = "target"', model=MODEL)
    change = array(lie, "limbs")
    liars = [party.name for party in job.parties]
    made = partial(simulation.Participant, wrap=lambda end: Liar(end, end.party, LabelTotal, change))
    monkeypatch.setattr(simulation, "Participant", made)
    with pytest.raises(PeerError) as caught:
        run(job)
    assert caught.value.message == "LabelTotal"
    assert caught.value.peer in liars


def test_parts_of_squares_that_are_negative_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose part it was nobody can tell; all parties end with an error that names a peer."""
    exact = label_scale._integer_sum
    monkeypatch.setattr(
        label_scale, "_integer_sum", lambda values: -exact(values) if (values >= 0).all() else exact(values)
    )
    job = job_of(LABELS, THREE, table="diabetes.csv", data='task = "regression"\nlabel = "target"', model=MODEL)
    with pytest.raises(PeerError) as caught:
        run(job)
    assert caught.value.message in ("MaskedSums", "LabelTotal")


class Mute(wiring.Wire):
    """Keeps the masked margins of one party to itself."""

    def send(self, peer: str, frame: bytes) -> None:
        if self.party != "shop" or not isinstance(decode(frame)[0], MaskedMargins):
            super().send(peer, frame)


def test_a_prediction_without_the_masks_of_one_party_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = run(job_of(LABELS, THREE, model=MODEL))
    trained = FederatedModel(programs=PivodlFamily(), shares=ended.shares)
    rows = {party: np.zeros((5, len(share.columns))) for party, share in ended.shares.items()}
    monkeypatch.setattr(model, "Participant", partial(model.Participant, wrap=Mute))

    def program(ctx: Context) -> Any:
        return predict_rows(ctx, ended.shares[ctx.party], rows[ctx.party])

    with pytest.raises(PeerError) as caught:
        trained.converse(None, program, program)
    assert (caught.value.peer, caught.value.message) == ("shop", "MaskedMargins")


@pytest.mark.parametrize("kind", ["partial-dp", "label-dp-sums"])
def test_a_delta_above_the_share_of_a_row(kind: str) -> None:
    job = with_defaults(
        Job(
            data=job_of(LABELS, THREE).data,
            parties=job_of(LABELS, THREE).parties,
            model=ComponentSpec("pivodl"),
            defenses=(Variant((ComponentSpec(kind, {"epsilon": 1.0, "delta": 0.01}),)),),
        )
    )
    check_job(job)
    with refused(PolicyError, "range", field=f"defense {kind!r} delta", value=0.01):
        model_family(job.model).check(load_dataset(job, 1), policy_chains(job, job.defenses[0]))


def test_noise_on_sums_of_quantities() -> None:
    job = job_of(LABELS, THREE, table="diabetes.csv", data='task = "regression"\nlabel = "target"', model=MODEL)
    chains = policy_chains(job, Variant((ComponentSpec("label-dp-sums", {"epsilon": 1.0}),)))
    with refused(PolicyError, "inapplicable", value="label-dp-sums"):
        model_family(job.model).check(load_dataset(job, 1), chains)


def test_noise_that_no_sum_has_room_for() -> None:
    job = job_of(LABELS, THREE, model=MODEL)
    chains = policy_chains(job, Variant((ComponentSpec("label-dp-sums", {"epsilon": 1e-14, "delta": 1e-300}),)))
    with refused(PolicyError, "range", field="defense 'label-dp-sums' epsilon", value=1e-14):
        model_family(job.model).check(load_dataset(job, 1), chains)


@pytest.mark.parametrize("kind", ["partial-dp", "label-dp-sums"])
@pytest.mark.parametrize("party", ["bank", "clinic", "shop"])
def test_a_defense_of_one_party_protects_nobody(kind: str, party: str) -> None:
    """The sums of the others carry no noise, or leaf weights differ between parties."""
    plain = job_of(LABELS, THREE)
    spec = ComponentSpec(kind, {"party": party, "epsilon": 1.0})
    job = Job(data=plain.data, parties=plain.parties, model=plain.model, defenses=(Variant((spec,), 1),))
    with refused(JobError, "unsupported", field="[[defense]] 1 party", value=party):
        with_defaults(job)


def test_two_parties_are_told_what_they_learn() -> None:
    family = PivodlFamily(Pivodl())
    of_two, of_more = family.remark(["bank", "clinic"]), family.remark(["bank", "clinic", "shop"])
    assert "bin-bounds" in of_more
    assert of_two.startswith(of_more)
    assert len(of_two) > len(of_more)
