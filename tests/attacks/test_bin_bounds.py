"""The sides of splits tell which rows lie in the bins whose sums a party of PIVODL opens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.bin_bounds import BinBounds
from labelward.attacks.counted_labels import CountedLabelAttack
from labelward.attacks.differential import Differential
from labelward.data import VerticalDataset, load_dataset
from labelward.errors import JobError
from labelward.federation.components import (
    make_engine,
    make_policies,
    model_family,
    with_defaults,
    with_standing,
)
from labelward.federation.simulation import simulate_job
from labelward.job import Job, Variant, parse_job
from labelward.party.context import no_progress
from labelward.party.view import View
from labelward.protocols.family import attacker_data
from labelward.rng import PrivateSeed
from refusals import refused

PARTIES = {"bank": 0.3, "clinic": 0.4, "shop": 0.3}
NOISE = {"kind": "label-dp-sums", "epsilon": 8.0}


def spread(table: str = "breast_cancer", *defenses: dict[str, Any], **model: Any) -> Job:
    label = {"label": "label"} if table.endswith("parquet") else {}
    return with_defaults(
        parse_job(
            {
                "data": {"table": table, "labels": {"bank": 0.5, "clinic": 0.5}, **label},
                "parties": PARTIES,
                "model": {"kind": "pivodl", "trees": 20, "aggregation": "masks", **model},
                "encryption": {"engine": "plain", "insecure": True},
                "defense": list(defenses),
            }
        )
    )


def trained(job: Job, variant: Variant) -> tuple[VerticalDataset, dict[str, View]]:
    data = load_dataset(job, 1, private={party: PrivateSeed(party.encode().ljust(32)) for party in PARTIES})
    engine = make_engine(job.encryption)
    return data, dict(simulate_job(job, data, variant, engine, None, seed=1, progress=no_progress).views)


def guessed(attack: CountedLabelAttack, view: View, data: VerticalDataset) -> tuple[LabelGuess, dict[str, float]]:
    """Return a party's guess, and its scores on the rows that others label."""
    own: AttackerData = attacker_data(next(each for each in data.parties if each.name == view.party))
    held = data.holds(view.party)[: len(data.train_labels)] if view.party in data.holders else np.zeros(view.rows, bool)
    if held.any():
        own = replace(own, labels=np.where(held, data.train_values, np.nan))
    guess = attack(view, own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(0))
    assert guess.scores is not None
    others = LabelGuess.of_scores(guess.scores[~held])
    return guess, attack.score(others, data.train_labels[~held])


@pytest.mark.parametrize("exchange", ["codes", "published"])
def test_any_party_reads_labels_and_claims_no_wrong_one(exchange: str) -> None:
    job = spread(exchange=exchange)
    data, views = trained(job, Variant())
    for party, view in views.items():
        guess, scores = guessed(BinBounds(), view, data)
        assert scores["read_right"] == 1.0
        if exchange == "codes":
            assert scores["read"] > (0.8 if party in data.holders else 0.3)
            assert guess.notes["certain"] == pytest.approx(scores["read"])
            assert guessed(Differential(form="parent-child"), view, data)[1]["read"] < scores["read"]


def test_categories_and_gaps_lead_to_no_wrong_claim(tmp_path: Path) -> None:
    """A column that is not read may have split a node, and another one agree with it by chance."""
    rng, rows = np.random.default_rng(7), 300
    numbers = rng.normal(size=(rows, 6)).round(1)
    towns = rng.integers(0, 5, (rows, 2))
    gaps = np.where(rng.random(rows) < 0.2, np.nan, rng.normal(size=rows))
    odds = numbers[:, 0] + numbers[:, 3] + 2 * (towns == 2).sum(axis=1) + np.nan_to_num(gaps) - 1
    table = {f"x{at}": numbers[:, at] for at in range(6)} | {f"town{at}": towns[:, at].astype(str) for at in range(2)}
    table |= {"gaps": gaps, "label": (odds + rng.normal(size=rows) > 0).astype(np.int64)}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    data, views = trained(spread(str(tmp_path / "t.parquet"), trees=30, depth=4, min_node_rows=4), Variant())
    found = [guessed(BinBounds(), view, data)[1] for view in views.values()]
    assert max(each["read"] for each in found) > 0.2
    assert {each["read_right"] for each in found if each["read"]} == {1.0}


def test_more_trees_tell_labels_of_the_first_ones_sums() -> None:
    found = []
    for trees in (1, 5, 20):
        data, views = trained(spread(trees=trees), Variant())
        found.append(guessed(BinBounds(), views["clinic"], data)[1]["read"])
    assert found == sorted(found)
    assert found[0] < 0.2 < found[-1]


def test_noise_on_sums_leaves_nothing_certain() -> None:
    job = spread("breast_cancer", NOISE)
    data, views = trained(job, job.variants()[-1])
    for view in views.values():
        assert guessed(BinBounds(), view, data)[1]["read"] < 0.02


def test_without_a_view_it_guesses_nothing() -> None:
    data, views = trained(spread(trees=1), Variant())
    guess, scores = guessed(BinBounds(), views["bank"].without_records(), data)
    assert scores["read"] == 0
    assert guess.notes == {}


def test_companies_do_not_begin_on_sums_without_noise() -> None:
    """Between companies a party refuses exact sums, unless noise acts or the job allows them."""
    with refused(JobError, "insecure", field="[model] opened_sums", value="refuse"):
        model_family(spread().model).check_between_companies([])
    model_family(spread(opened_sums="allow").model).check_between_companies([])
    job = spread("breast_cancer", NOISE)
    model_family(job.model).check_between_companies(make_policies(job.variants()[-1]))
    with refused(JobError, "insecure"):
        job = spread("breast_cancer", {"kind": "partial-dp", "epsilon": 1.0})
        model_family(job.model).check_between_companies(make_policies(job.variants()[-1]))


def test_every_audit_of_classes_runs_it() -> None:
    assert "bin-bounds" in [each.kind for each in with_standing(spread(), 100, 2)]
    assert "bin-bounds" not in [each.kind for each in with_standing(spread(), 100, 0)]
    with refused(JobError, "unsupported"):
        BinBounds().check_labels(100, 0)
