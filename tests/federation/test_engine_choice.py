"""``engine = "auto"``: Paillier while conditions are open, else the cheaper engine by the plan; and who says so."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labelward.errors import JobError
from labelward.federation.components import job_engine, with_defaults
from labelward.federation.engine_choice import OPEN, alternatives, choose_engine, costs_beside
from labelward.federation.simulation import key_info
from labelward.job import EncryptionSection, Job, parse_job
from labelward.planning.cost_estimate import estimate_cost
from labelward.runs.estimate import DeploymentEstimate, Estimate
from refusals import refused


def job_of(**encryption: Any) -> Job:
    return parse_job(
        {
            "data": {"table": "breast_cancer"},
            "parties": {"active": 0.5, "telco": 0.5},
            "model": {"kind": "secureboost", "trees": 2, "depth": 2},
            "encryption": encryption,
        }
    )


def costs(seconds: float, between: float | None = None) -> Estimate:
    line = None
    if between is not None:
        line = DeploymentEstimate(bandwidth=1.0, latency=1.0, seconds=between, own={}, line=0.0, waiting=0.0, turns=1)
    counted = dict.fromkeys(("messages", "encryptions", "additions", "decryptions", "ciphertexts"), 1)
    return Estimate(seconds=seconds, phases={}, bytes={"bank": 5}, memory={}, kernel="", between=line, **counted)


def test_conditions_come_before_costs() -> None:
    estimates = {"paillier": costs(9.0), "lattice": costs(1.0)}
    closed = choose_engine(estimates)
    assert (closed.engine, closed.cheaper) == ("paillier", "lattice")
    assert all(each in closed.reason for each in OPEN)
    assert choose_engine(estimates, ()).engine == "lattice"
    assert choose_engine({"paillier": costs(1.0), "lattice": costs(2.0)}, ()).engine == "paillier"
    assert choose_engine(None, ()).engine == "paillier"


def test_costs_on_a_line_count_where_the_line_is_known() -> None:
    estimates = {"paillier": costs(9.0, 10.0), "lattice": costs(1.0, 20.0)}
    assert choose_engine(estimates, ()).engine == "paillier"
    assert costs_beside(estimates).count(" s and ") == 2


def test_auto_is_decided_alike_at_all_parties() -> None:
    """What the handshake compares is the engine that was chosen, so that a party that names it agrees."""
    chosen = with_defaults(job_of(engine="auto")).encryption
    assert chosen == with_defaults(job_of(engine="paillier")).encryption
    assert (chosen.engine, chosen.bits, chosen.automatic) == ("paillier", 2048, True)
    assert chosen.shared() == with_defaults(job_of(engine="paillier")).encryption.shared()
    assert chosen.shared() != with_defaults(job_of(engine="lattice")).encryption.shared()
    assert with_defaults(with_defaults(job_of(engine="auto"))).encryption.automatic
    assert not with_defaults(job_of(engine="paillier")).encryption.automatic
    assert {each.engine for each in alternatives(chosen).values()} == {"paillier", "lattice"}


@pytest.mark.parametrize(
    ("encryption", "code", "field"),
    [
        ({"bits": 2048}, "conflict", "[encryption] bits"),
        ({"auto": {"secrets": 5}}, "conflict", "[encryption] engine_parameters"),
        ({"automatic": True}, "unknown", "[encryption]"),
    ],
)
def test_what_auto_does_not_take(encryption: dict[str, Any], code: Any, field: str) -> None:
    with refused(JobError, code, field=field):
        job_of(engine="auto", **encryption)


def test_a_stored_job_names_the_engine_that_was_chosen() -> None:
    stored = parse_job(with_defaults(job_of(engine="auto")).to_toml())
    assert (stored.encryption.engine, stored.encryption.automatic) == ("paillier", False)
    assert parse_job(job_of(engine="auto").to_toml()).encryption == EncryptionSection(engine="auto")


@pytest.mark.slow
def test_a_plan_has_the_costs_of_both() -> None:
    found = estimate_cost(job_of(engine="auto", workers=1))
    assert found.choice is not None
    assert (found.choice.engine, found.costs.engine) == ("paillier", "paillier")
    assert found.engines["paillier"] == found.estimate
    assert 0 < found.engines["lattice"].seconds < found.engines["paillier"].seconds
    assert found.choice.cheaper == "lattice"


@pytest.mark.slow
def test_a_trained_model_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How precisely costs were measured does not matter here."""
    from labelward.federation.train import train_variant
    from labelward.planning import unit_costs
    from labelward.planning.cost_model import forecast

    for name, value in {"_kept": {}, "_TIMES": 1, "_LONG": 0.0, "_CELLS": 32}.items():
        monkeypatch.setattr(unit_costs, name, value)
    job = replace(job_of(engine="auto", workers=1), model=job_of().model)
    key = train_variant(job, tmp_path / "out", seed=1, forecast=forecast).key
    assert key.engine == "paillier"
    assert OPEN[0] in key.chosen
    assert "lattice" in key.chosen.partition("by the plan")[2]


@pytest.mark.parametrize(("aggregation", "engine"), [("paillier", "paillier"), ("masks", "none")])
def test_sums_that_are_masked_need_no_engine(aggregation: str, engine: str) -> None:
    """Results, views and reports would otherwise name a key that nobody made."""
    job = with_defaults(
        parse_job(
            {
                "data": {"table": "breast_cancer", "labels": {"bank": 0.5, "telco": 0.5}},
                "parties": {"bank": 0.5, "telco": 0.5},
                "model": {"kind": "pivodl", "aggregation": aggregation},
            }
        )
    )
    with closing(job_engine(job)) as made:
        assert made.name == engine
        assert bool(key_info(made, job.encryption, "").bits) == (engine != "none")
