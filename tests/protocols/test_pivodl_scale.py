"""The scale of quantities in PIVODL tells number, sum and sum of squares of all labels, and of no holder's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from labelward.data import RawTables, as_table, load_dataset
from labelward.federation.components import make_engine, with_defaults
from labelward.federation.simulation import SimulationResult, simulate_job
from labelward.job import Job, parse_job
from labelward.messages.pivodl import LabelTotal
from labelward.party.context import no_progress
from labelward.protocols.common.pairwise_masks import PairwiseMasks
from labelward.protocols.pivodl import label_scale
from labelward.protocols.pivodl.label_scale import LabelScale
from labelward.rng import PrivateSeed

ROWS, PARTIES, HOLDERS = 60, "abcd", "abc"
COLUMNS = np.random.default_rng(0).normal(size=(ROWS, 4)).round(2)
LABELS = np.random.default_rng(1).integers(1, 9, ROWS) / 4.0
ONE = 2**40
CARRY = [ONE, 0, 0], [3 * ONE // 4, ONE // 8, ONE // 8], [9 * ONE // 4, -3 * ONE // 4, -ONE // 2]
"""Totals of three holders which add up to the same. Their own lowest limbs carry 0, 1 and -1."""


def job_of(aggregation: str) -> Job:
    return with_defaults(
        parse_job(
            {
                "data": {
                    "table": "made.csv",
                    "label": "y",
                    "task": "regression",
                    "labels": dict.fromkeys(HOLDERS, 1 / 3),
                },
                "parties": {party: [f"x{at}"] for at, party in enumerate(PARTIES)},
                "model": {"kind": "pivodl", "trees": 1, "depth": 2, "aggregation": aggregation},
                "encryption": {"engine": "plain", "insecure": True},
                "leakage": {"meter": False},
            }
        )
    )


def data_of(job: Job, labels: NDArray[np.float64]) -> Any:
    columns = {f"x{at}": column for at, column in enumerate(COLUMNS.T)}
    source = RawTables(name="made", tables=(as_table({**columns, "y": labels}),))
    return load_dataset(job, 1, source, private={party: PrivateSeed(party.encode().ljust(32)) for party in PARTIES})


def run(job: Job, labels: NDArray[np.float64]) -> SimulationResult:
    engine = make_engine(job.encryption)
    try:
        return simulate_job(job, data_of(job, labels), job.variants()[-1], engine, None, seed=1, progress=no_progress)
    finally:
        engine.close()


def exchanged(job: Job) -> Iterator[NDArray[np.float64]]:
    """Yield the labels, and copies in which one of the first holder is exchanged with another one of the second."""
    data = data_of(job, LABELS)
    first, second = (data.split.train[data.holds(party)[: len(data.split.train)]] for party in HOLDERS[:2])
    yield LABELS
    for row in (first[0], first[1]):
        other = next(at for at in second if abs(LABELS[at] - LABELS[row]) > 0.5)
        changed = LABELS.copy()
        changed[[row, other]] = LABELS[[other, row]]
        yield changed


@pytest.mark.parametrize("aggregation", ["paillier", "masks"])
def test_everybody_is_told_the_same_for_labels_of_the_same_sums(aggregation: str) -> None:
    job, told = job_of(aggregation), []
    for labels in exchanged(job):
        ended = run(job, labels)
        scale = ended.shares["d"].scale
        received = {
            party: [each.message.limbs.value.unpack().tolist() for each in view.received(LabelTotal)]
            for party, view in ended.views.items()
        }
        assert max(map(len, received.values())) == 2
        train = labels[data_of(job, labels).split.train]
        assert scale == LabelScale.of(train)
        told.append((received, scale))
    assert told[0] == told[1] == told[2]


def masks_of_holders() -> dict[str, PairwiseMasks]:
    keys = {party: X25519PrivateKey.generate() for party in HOLDERS}
    publics = {party: key.public_key().public_bytes_raw() for party, key in keys.items()}
    return {party: PairwiseMasks(key, party, publics) for party, key in keys.items()}


def limbs_of(totals: list[int]) -> NDArray[np.int64]:
    """Return the limbs that the holders give to the sums, under keys drawn anew: int64 [holders, limbs]."""
    masks = masks_of_holders()
    shares = [
        label_scale._masked_limbs(total, masks[party], tuple(HOLDERS), 0)
        for party, total in zip(HOLDERS, totals, strict=True)
    ]
    return np.stack(shares)


@pytest.mark.parametrize("totals", [*CARRY, [0, 0, 0], [2**160, -1, 5], [-(2**160), 1, -(2**120)]], ids=str)
def test_the_opener_rebuilds_the_total(totals: list[int]) -> None:
    limbs = limbs_of(totals)
    assert limbs.min() >= 0
    assert limbs.max() < ONE
    assert label_scale._unmasked(limbs.sum(axis=0)) == sum(totals)


def test_what_is_opened_carries_alike_whoever_holds_which_label() -> None:
    """The lowest limbs are uniform below 2^40 but for the remainder of their sum, 0: they carry 1 or 2, as often.

    Of 400 draws 140 to 260 carry 1, but for 1 case in 10^8.
    """
    for totals in CARRY:
        lowest = [int(limbs_of(totals)[:, 0].sum()) for _ in range(400)]
        assert {each % ONE for each in lowest} == {0}
        carries = np.bincount([each // ONE for each in lowest], minlength=3)
        assert carries[0] == 0
        assert 140 <= carries[1] <= 260


def test_limbs_of_a_holder_are_uniform_bits() -> None:
    """Each of 200 bits is set in 20 to 80 of 100 draws, but for 1 case in 10^7; without masks nearly all are clear."""
    drawn = np.stack([limbs_of(CARRY[0])[0] for _ in range(100)])
    bits = (drawn[:, :, None] >> np.arange(40)) & 1
    assert bits.sum(axis=0).min() >= 20
    assert bits.sum(axis=0).max() <= 80


@pytest.mark.parametrize("aggregation", ["paillier", "masks"])
def test_no_mask_serves_twice(aggregation: str) -> None:
    used, kept, stream = list[tuple[int, str]](), list[PairwiseMasks](), PairwiseMasks._stream

    def noted(self: PairwiseMasks, peer: str, purpose: str, size: int) -> bytes:
        kept.append(self)  # so that no other has its id
        used.append((id(self), f"{peer} {purpose}"))
        return stream(self, peer, purpose, size)

    with mock.patch.object(PairwiseMasks, "_stream", noted):
        run(job_of(aggregation), LABELS)
    assert len(used) == len(set(used))
    assert sum("label total" in purpose for _, purpose in used) == 2 * len(HOLDERS) * (len(HOLDERS) - 1)
