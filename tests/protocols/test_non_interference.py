"""Labels change nothing in a passive view but what policies released: every registered model and defense.

A new model or defense is covered by being registered; one with required parameters needs a line in ``REQUIRED``.
The last tests take cures of earlier leaks back, and each must be found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from labelward.data import RawTables, VerticalDataset, as_table, load_dataset, loading
from labelward.data.splitting import DataSplit, published_split
from labelward.defenses import DEFENSES
from labelward.errors import DataError, LabelwardError, PolicyError
from labelward.federation.components import MODELS, check_job, make_engine, model_family, with_defaults
from labelward.federation.leakage_monitor import monitored_chains
from labelward.federation.simulation import simulate_job
from labelward.job import DataSection, Job, parse_job
from labelward.messages.splitnn import BatchEmbeddings, BatchGradients
from labelward.party.context import no_progress
from labelward.party.view import View
from labelward.policy.chain import PolicyChain
from labelward.protocols.secureboost.active import TreeGrower
from labelward.protocols.splitnn import session as net_session
from labelward.rng import PrivateSeed, SecureRandom
from labelward.testing.non_interference import (
    Coverage,
    Interference,
    check_non_interference,
    relabelings,
    replayed,
)
from labelward.transport.base import Failure
from labelward.transport.in_process import _End

ROWS, COLUMNS = 60, "abcdef"
PARTIES = ("active", "telco", "shop")
HOLDERS = ("active",)
HELD = {"pivodl": {"active": 0.5, "telco": 0.5}}
"""Shares of the labels by party, for models with several label holders."""
SMALL: dict[str, dict[str, Any]] = {
    "secureboost": {"trees": 2, "depth": 3},
    "forest": {"trees": 2, "depth": 3},
    "splitnn": {"epochs": 2, "batch_size": 16, "width": 8},
    "pivodl": {"trees": 2, "depth": 3},
}
"""Parameters that make a model small; one that is not listed is trained with its defaults."""
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("secureboost", {"candidates": "node"}),
    ("secureboost", {"candidates": "node", "min_rows": 4, "min_child_weight": 1.0, "gamma": 0.2}),
    ("secureboost", {"candidates": "all", "mode": "layered", "passive_depth": 2}),
    ("secureboost", {"mode": "mixed"}),
    ("secureboost", {"sampling": "goss"}),
    ("secureboost", {"row_fraction": 0.2, "feature_fraction": 0.5}),
    ("secureboost", {"trees": 6, "early_stopping_rounds": 1}),
    ("secureboost", {"max_leaves": 5, "candidates": "node"}),
    ("forest", {"candidates": "node"}),
    ("forest", {"row_fraction": 0.5, "replace": True}),
    ("splitnn", {"top": False}),
    ("splitnn", {"loss": "weighted"}),
    ("splitnn", {"patience": 1}),
]
REQUIRED: dict[str, dict[str, Any]] = {
    "id-lmid": {"xi": 0.3},
    "purity-threshold": {"threshold": 0.9},
    "randomized-response": {"epsilon": 1.0},
    "lp-mst": {"epsilon": 1.0},
    "noisy-gradients": {"scale": 0.1},
    "gradient-compression": {"keep": 0.5},
    "ppdl": {"theta": 0.5, "epsilon": 1.0},
    "label-dp-sums": {"epsilon": 16.0},
}
"""Parameters without a default."""
AT = {"min-bin-rows": "telco"}
"""The passive party at which a defense acts."""
AFTER = {"grafting": ["randomized-response"]}
"""The defenses that another one follows in its chain."""
DISCLOSED = {
    "early_stopping_rounds": frozenset({"TreeStart", "TrainingEnd", "TrainingEnd.trees", "TrainingEnd.records"}),
    "patience": frozenset({"EpochEnd.best", "EpochEnd.last"}),
    "pivodl": frozenset({"OpenedSums", "LevelOutcome"}),
}
"""What a parameter of a model discloses of the labels of validation rows, and what each party of a kind of model opens
with a key of its own, as the documentation says."""


def table() -> NDArray[np.float64]:
    return np.random.default_rng(0).normal(size=(ROWS, len(COLUMNS))).round(2)


def classes_of(count: int) -> NDArray[np.int64]:
    """Return labels that half of the columns of each party decide, so that pure nodes are frequent."""
    score = table()[:, ::2].sum(axis=1)
    return np.searchsorted(np.quantile(score, np.arange(1, count) / count), score)


def job_of(model: Mapping[str, Any], defense: str = "none", **leakage: Any) -> Job:
    """Return the job of a model with at most one defense, and what this one needs; at a passive party where it acts.

    Raises:
        LabelwardError: the defense does not fit the model.
    """
    params = {"kind": model["kind"], **SMALL.get(model["kind"], {}), **model}
    chain = [{"kind": each, **REQUIRED.get(each, {})} for each in (*AFTER.get(defense, ()), defense)]
    if defense in AT:
        chain[-1]["party"] = AT[defense]
    encrypted = {"encryption": {"engine": "plain", "insecure": True}} if params["kind"] != "splitnn" else {}
    stops = {"validation_size": 0.25} if model.keys() & DISCLOSED.keys() else {}
    held = {"labels": HELD[params["kind"]]} if params["kind"] in HELD else {}
    job = parse_job(
        {
            "data": {"table": "made.csv", "label": "label", **stops, **held},
            "parties": dict(zip(PARTIES, (["a", "b"], ["c", "d"], ["e", "f"]), strict=True)),
            "model": params,
            **encrypted,
            "defense": [] if defense == "none" else [{"chain": chain}],
            "leakage": {"meter": bool(leakage), **leakage},
        }
    )
    return with_defaults(job)


def data_of(job: Job, labels: NDArray[Any]) -> VerticalDataset:
    columns = dict(zip(COLUMNS, table().T, strict=True))
    source = RawTables(name="made", tables=(as_table({**columns, "label": labels}),))
    return load_dataset(job, 1, source, private={party: PrivateSeed(party.encode().ljust(32)) for party in PARTIES})


def run(job: Job, data: VerticalDataset) -> Mapping[str, View]:
    """Return the views of all parties; all noise is fixed."""
    engine, variant = make_engine(job.encryption), job.variants()[-1]
    model_family(job.model).check(data, monitored_chains(job, data, variant, seed=1))
    out = simulate_job(
        job, data, variant, engine, None, seed=1, progress=no_progress, protections=lambda: SecureRandom(1)
    )
    engine.close()
    return out.views


def views_of(job: Job, labelings: Sequence[NDArray[Any]]) -> list[Mapping[str, View]]:
    """Return the views for each of the labelings, but for those of which a side lacks a class: nothing is sent then."""
    views = []
    for labels in labelings:
        try:
            views.append(run(job, data_of(job, labels)))
        except DataError as error:
            if error.code != "labels":
                raise
    return views


def changes(classes: int, count: int = 9) -> list[NDArray[np.int64]]:
    return relabelings(classes_of(classes), classes=classes, count=count, rng=np.random.default_rng(1))


def disclosed_by(model: Mapping[str, Any]) -> frozenset[str]:
    return frozenset[str]().union(*(names for key, names in DISCLOSED.items() if key in (*model, model["kind"])))


def check(model: Mapping[str, Any], defense: str = "none", classes: int = 2) -> Coverage:
    """Compare runs that differ in one or two labels; for networks also any, with returned gradients held fixed."""
    job, network = job_of(model, defense), model["kind"] == "splitnn"
    labelings = changes(classes, 4 if network else 9)
    holders = HELD.get(model["kind"], HOLDERS)
    coverage = check_non_interference(views_of(job, labelings), holders=holders, disclosed=disclosed_by(model))
    if network:
        fixed: list[Any] = []
        shuffled = [np.random.default_rng(seed).permutation(classes_of(classes)) for seed in range(4)]
        with_fixed = []
        for labels in shuffled:
            with replayed(PolicyChain, "on_returned_gradient", fixed):
                with_fixed += views_of(job, [labels])
        whole = check_non_interference(with_fixed, holders=HOLDERS, disclosed=disclosed_by(model))
        assert whole.whole == whole.pairs or disclosed_by(model)
        coverage.whole += whole.whole
    return coverage


def fits(kind: str, defense: str) -> bool:
    """Return whether a model can take a defense, which its set-up says before anything is sent."""
    job = job_of({"kind": kind}, defense)
    data = data_of(job, classes_of(2))
    try:
        check_job(job)
        model_family(job.model).check(data, monitored_chains(job, data, job.variants()[-1], seed=1))
    except LabelwardError as error:
        if error.code not in ("inapplicable", "unsupported"):
            raise
        return False
    return True


@pytest.mark.parametrize("kind", sorted(MODELS.classes()))
@pytest.mark.parametrize("defense", ["none", *sorted(DEFENSES.classes())])
def test_of_models_and_defenses(kind: str, defense: str) -> None:
    if defense != "none" and not fits(kind, defense):
        pytest.skip(f"{kind} does not take {defense}")
    coverage = check({"kind": kind}, defense)
    assert coverage.whole > 0, coverage  # some labels change nothing at all, so that views are compared to their end


def test_every_defense_is_covered() -> None:
    for defense in DEFENSES.classes():
        assert any(fits(kind, defense) for kind in MODELS.classes()), defense


@pytest.mark.parametrize(("kind", "options"), OPTIONS, ids=lambda each: str(each).translate({39: None, 32: None}))
@pytest.mark.parametrize("classes", [2, 3])
def test_of_options_of_models(kind: str, options: dict[str, Any], classes: int) -> None:
    coverage = check({"kind": kind, **options}, classes=classes)
    assert sum(coverage.compared.values()) >= 4 * coverage.pairs, coverage


def test_of_trees_for_each_class() -> None:
    options = {"kind": "secureboost", "trees": 1, "multi_strategy": "one_output_per_tree"}
    assert check(options, classes=3).compared["TreeStart"] > 0


def test_of_encrypted_trees() -> None:
    job = job_of({"kind": "secureboost", "trees": 1})
    section = replace(job.encryption, engine="paillier", bits=512)
    views = views_of(with_defaults(replace(job, encryption=section)), changes(2, 4))
    assert check_non_interference(views, holders=HOLDERS).compared["TreeRows"] > 0


@pytest.mark.parametrize("objective", ["reg:squarederror", "count:poisson"])
def test_of_quantities(objective: str) -> None:
    job = job_of({"kind": "secureboost", "objective": objective})
    job = replace(job, data=replace(job.data, task="regression"))
    quantities = np.round(np.exp(table()[:, ::2].sum(axis=1) / 2) * 5)
    changed = [quantities.copy() for _ in range(9)]
    for row, each in enumerate(changed[1:]):
        each[row * 7] = quantities[row * 7 + 1]
    coverage = check_non_interference(views_of(with_defaults(job), changed), holders=HOLDERS)
    assert coverage.compared["TreeStart"] > 0


def test_of_a_leakage_budget() -> None:
    """Who takes part in a tree, and so how many there are, is what the budget decides."""
    job = job_of({"kind": "secureboost"}, budget=0.3)
    views = views_of(job, changes(2, 4))
    coverage = check_non_interference(views, holders=HOLDERS, disclosed={"TreeStart", "TrainingEnd"})
    assert coverage.compared["Begin"] > 0


@pytest.mark.parametrize(
    ("kind", "point"), [("secureboost", "before_targets"), ("forest", "schedule"), ("splitnn", "on_returned_gradient")]
)
def test_failures_tell_peers_nothing(kind: str, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that names labels, at the party that holds them: its peers are told the same for all labels."""
    told: list[Failure] = []
    fail, job = _End.fail, job_of({"kind": kind})

    def noted(self: _End, failure: Failure) -> None:
        if self.party == "active":
            told.append(failure)
        fail(self, failure)

    monkeypatch.setattr(_End, "fail", noted)
    for labels in changes(2, 2):

        def failing(*_: Any, labels: NDArray[np.int64] = labels) -> None:
            raise PolicyError(f"labels {labels}", code="labels", value=labels.tolist())

        monkeypatch.setattr(PolicyChain, point, failing)
        with pytest.raises(PolicyError):
            run(job, data_of(job, labels))
    assert told == [Failure("peer-failed", "PolicyError")] * 3


# -- initial weights ---------------------------------------------------------------------------------------------------


def shared_starts(model: Mapping[str, Any]) -> list[str]:
    """Return which first messages of a network stay what they are where its sender draws from another private seed.

    Their initial weights could be repeated by everybody: columns and labels would follow from embeddings and gradients.
    """
    job, found = job_of({"kind": "splitnn", **model}), []
    data = data_of(job, classes_of(2))

    def first(changed: str) -> tuple[dict[str, Any], Any]:
        parties = [
            replace(each, private=PrivateSeed(bytes(32))) if each.name == changed else each for each in data.parties
        ]
        views = run(job, replace(data, parties=tuple(parties)))
        embeddings = {
            each.peer: each.message.values for each in views["active"].received(BatchEmbeddings) if each.step == (0, 0)
        }
        return embeddings, next(views["telco"].received(BatchGradients)).message.values

    embeddings, gradients = first("none")
    found += [party for party in PARTIES[1:] if first(party)[0][party] == embeddings[party]]
    return found + ["active"] * (first("active")[1] == gradients)


starts_are_private = pytest.mark.skipif(
    not hasattr(net_session, "start_key"), reason="initial weights are drawn from the shared seed"
)


@starts_are_private
@pytest.mark.parametrize("model", [{}, {"top": False}, {"bottom": "linear", "top_model": "linear"}], ids=str)
def test_initial_weights_are_private(model: dict[str, Any]) -> None:
    assert shared_starts(model) == []


# -- the comparison itself ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"), [("received", "TrainingEnd"), ("received", "Level"), ("observed", "OwnSplit")]
)
def test_a_record_that_only_one_run_has_is_found(kind: str, name: str) -> None:
    views = run(job := job_of({"kind": "secureboost"}), data_of(job, classes_of(2)))
    assert check_non_interference([views, views], holders=HOLDERS).whole == 2
    entries = list(views["telco"]._entries)
    entries.remove(next(each for each in entries if (each.kind, each.type) == (kind, name)))
    with pytest.raises(Interference, match="'telco'"):
        check_non_interference([views, {**views, "telco": View(views["telco"].header, entries)}], holders=HOLDERS)


# -- cures of earlier leaks, taken back --------------------------------------------------------------------------------


def test_sides_drawn_by_the_labels_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As version 0.1.0 drew them: stratified by label, from the seed that all parties know."""
    labels = classes_of(2)

    def stratified(section: DataSection, seed: int, rows: int, private: PrivateSeed) -> DataSplit:
        return published_split(section, seed, labels, ("0", "1"))

    monkeypatch.setattr(loading, "split_rows", stratified)
    views = []
    for labels in changes(2, 4):
        views += views_of(job_of({"kind": "secureboost"}), [labels])
    with pytest.raises(Interference, match="field test"):
        check_non_interference(views, holders=HOLDERS)


@pytest.mark.parametrize(
    "model",
    [
        {"kind": "secureboost", "candidates": "node"},
        {"kind": "secureboost"},
        {"kind": "forest", "candidates": "all"},
    ],
    ids=lambda model: "-".join(model.values()),
)
def test_unsummed_pure_nodes_are_found(model: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = TreeGrower._wanted
    monkeypatch.setattr(
        TreeGrower, "_wanted", lambda self, owner: [each for each in wanted(self, owner) if not self._ends(each)]
    )
    with pytest.raises(Interference, match="field build"):
        check(model)


@starts_are_private
def test_initial_weights_of_the_shared_seed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(private: PrivateSeed, seed: int, party: str, part: str) -> bytes:
        return hashlib.sha256(f"{seed} {party} {part}".encode()).digest()

    monkeypatch.setattr(net_session, "start_key", shared)
    assert shared_starts({}) == ["telco", "shop", "active"]
