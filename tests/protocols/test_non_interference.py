"""Labels change nothing in a passive view but what policies released: every registered model and defense.

A new model or defense is covered by being registered; one with required parameters needs a line in ``REQUIRED``.
The last tests take cures of earlier leaks back, and each must be found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from crossing import crossed
from interrupted import Cut, Interrupted
from labelward.data import RawTables, VerticalDataset, as_table, load_dataset, loading
from labelward.data.splitting import DataSplit, published_split
from labelward.defenses import DEFENSES
from labelward.errors import DataError, LabelwardError, PolicyError
from labelward.federation.components import MODELS, check_job, make_engine, model_family, with_defaults
from labelward.federation.leakage_monitor import monitored_chains
from labelward.federation.simulation import simulate_job
from labelward.job import DataSection, Job, parse_job
from labelward.messages.pivodl import ChosenCandidates
from labelward.messages.splitnn import BatchEmbeddings, BatchGradients
from labelward.party.checkpoint import Checkpoints
from labelward.party.context import Context, no_progress
from labelward.party.view import View
from labelward.policy.chain import PolicyChain
from labelward.protocols.common.pairwise_masks import PairwiseMasks
from labelward.protocols.pivodl.secure_sums import Collection, SecureSums
from labelward.protocols.pivodl.tree import Tree
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
from wiring import Setting

ROWS, COLUMNS = 60, "abcdef"
PARTIES = ("active", "telco", "shop")
HOLDERS = ("active",)
DEALERS = {"pivot": ("dealer",)}
"""Further parties without columns that a kind of model needs."""
HELD = {"pivodl": {"active": 0.5, "telco": 0.5}}
"""Shares of the labels by party, for models with several label holders."""
SMALL: dict[str, dict[str, Any]] = {
    "secureboost": {"trees": 2, "depth": 3},
    "forest": {"trees": 2, "depth": 3},
    "splitnn": {"epochs": 2, "batch_size": 16, "width": 8},
    "pivodl": {"trees": 2, "depth": 3},
    "federboost": {"trees": 2, "depth": 3},
    "pivot": {"dealer": "dealer", "depth": 2, "bins": 4},
    "logistic": {"epochs": 2, "batch_size": 16, "rows_per_column": 0},
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
    ("splitnn", {"active_bottom": False}),
]
SELDOM_WHOLE = ("pivodl", "logistic")
"""Models in which few changes of a label change nothing."""
FOR: dict[str, dict[str, dict[str, Any]]] = {
    "lpsc": {"splitnn": {"loss": "logistic", "active_bottom": False}},
    "marvell": {"splitnn": {"top": False, "loss": "logistic"}},
}
"""Parameters that a kind of model needs for a defense."""
REQUIRED: dict[str, dict[str, Any]] = {
    "id-lmid": {"xi": 0.3},
    "purity-threshold": {"threshold": 0.9},
    "randomized-response": {"epsilon": 1.0},
    "lp-mst": {"epsilon": 1.0},
    "noisy-gradients": {"scale": 0.1},
    "gradient-compression": {"keep": 0.5},
    "ppdl": {"theta": 0.5, "epsilon": 1.0},
    "label-dp-sums": {"epsilon": 16.0},
    "marvell": {"s": 1.0},
    "distance-correlation": {"weight": 0.5},
    "mid": {"weight": 0.1},
    "coae": {"weight": 0.5},
}
"""Parameters without a default."""
AT = {"min-bin-rows": "telco"}
"""The passive party at which a defense acts."""
AFTER = {"grafting": ["randomized-response"]}
"""The defenses that another one follows in its chain."""
GREETINGS = {("received", "Hello"), ("received", "Begin")}
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
    needed = FOR.get(defense, {}).get(model["kind"], {})
    params = {"kind": model["kind"], **SMALL.get(model["kind"], {}), **needed, **model}
    chain = [{"kind": each, **REQUIRED.get(each, {})} for each in (*AFTER.get(defense, ()), defense)]
    if defense in AT:
        chain[-1]["party"] = AT[defense]
    encrypted = (
        {"encryption": {"engine": "plain", "insecure": True}} if params["kind"] not in ("splitnn", "federboost") else {}
    )
    stops = {"validation_size": 0.25} if model.keys() & DISCLOSED.keys() else {}
    held = {"labels": HELD[params["kind"]]} if params["kind"] in HELD else {}
    job = parse_job(
        {
            "data": {"table": "made.csv", "label": "label", **stops, **held},
            "parties": dict(zip(PARTIES, (["a", "b"], ["c", "d"], ["e", "f"]), strict=True))
            | {name: [] for name in DEALERS.get(params["kind"], ())},
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
    names = [party.name for party in job.parties]
    return load_dataset(job, 1, source, private={party: PrivateSeed(party.encode().ljust(32)) for party in names})


@dataclass(frozen=True)
class Ran:
    """What a run left, by party.

    Attributes:
        views: of all parties.
        left: what the party sent by type (messages, bytes, ciphertexts), its share of the model, and its checkpoints.
    """

    views: Mapping[str, View]
    left: Mapping[str, Any]


def run(job: Job, data: VerticalDataset) -> Ran:
    """Return what a run leaves; all noise is fixed."""
    engine, variant = make_engine(job.encryption), job.variants()[-1]
    model_family(job.model).check(data, monitored_chains(job, data, variant, seed=1))
    saved = dict[str, list[Any]]()

    def save(ctx: Context, number: int, state: Any, *, blocks: Mapping[str, bytes] | None = None, **_: Any) -> None:
        saved.setdefault(ctx.party, []).append((number, msgspec.msgpack.encode(state), blocks))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "kept", True)
        patch.setattr(Context, "save", save)
        out = simulate_job(
            job, data, variant, engine, None, seed=1, progress=no_progress, protections=lambda: SecureRandom(1)
        )
    engine.close()
    left = {}
    for party, ended in out.outcomes.items():
        meter = ended.meter
        counted = dict(meter.messages), dict(meter.bytes), dict(meter.ciphertexts)
        left[party] = (counted, saved.get(party), ended.result.share)
    return Ran(out.views, left)


def runs_of(job: Job, labelings: Sequence[NDArray[Any]]) -> list[Ran]:
    """Return a run with each of the labelings, but where the training part lacks a class: nothing is sent then."""
    runs = []
    for labels in labelings:
        try:
            runs.append(run(job, data_of(job, labels)))
        except DataError as error:
            if error.code != "labels":
                raise
    return runs


def compare(runs: Sequence[Ran], **options: Any) -> Coverage:
    return check_non_interference(
        [each.views for each in runs], **{"holders": HOLDERS, **options}, left=[each.left for each in runs]
    )


def changes(classes: int, count: int = 9) -> list[NDArray[np.int64]]:
    return relabelings(classes_of(classes), classes=classes, count=count, rng=np.random.default_rng(1))


def disclosed_by(model: Mapping[str, Any]) -> frozenset[str]:
    return frozenset[str]().union(*(names for key, names in DISCLOSED.items() if key in (*model, model["kind"])))


def check(model: Mapping[str, Any], defense: str = "none", classes: int = 2, count: int = 9) -> Coverage:
    """Compare runs that differ in one or two labels; for networks also any, with returned gradients held fixed.

    ``count`` is the number of labels that are changed; of networks half of it.
    """
    job, network = job_of(model, defense), model["kind"] == "splitnn"
    labelings = changes(classes, count // 2 if network else count)
    holders = HELD.get(model["kind"], HOLDERS)
    coverage = compare(runs_of(job, labelings), holders=holders, disclosed=disclosed_by(model))
    if network:
        fixed: list[Any] = []
        shuffled = [np.random.default_rng(seed).permutation(classes_of(classes)) for seed in range(max(2, count // 2))]
        with_fixed = []
        for labels in shuffled:
            with replayed(PolicyChain, "on_returned_gradient", fixed):
                with_fixed += runs_of(job, [labels])
        whole = compare(with_fixed, disclosed=disclosed_by(model))
        assert whole.whole == whole.pairs or disclosed_by(model)
        coverage.whole += whole.whole
    return coverage


def fits(kind: str, defense: str) -> bool:
    """Return whether a model can take a defense, which its set-up says before anything is sent."""
    try:
        job = job_of({"kind": kind}, defense)
        data = data_of(job, classes_of(2))
        check_job(job)
        model_family(job.model).check(data, monitored_chains(job, data, job.variants()[-1], seed=1))
    except LabelwardError as error:
        if error.code not in ("inapplicable", "unsupported"):
            raise
        return False
    return True


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("kind", sorted(MODELS.classes()))
@pytest.mark.parametrize("defense", ["none", *sorted(DEFENSES.classes())])
def test_of_models_and_defenses(kind: str, defense: str, many: bool) -> None:
    if defense != "none" and not fits(kind, defense):
        pytest.skip(f"{kind} does not take {defense}")
    coverage = check({"kind": kind}, defense, count=9 if many or kind in SELDOM_WHOLE else 4)
    assert coverage.whole > 0, coverage  # some labels change nothing at all, so that views are compared to their end


def labeled_by_others(job: Job, party: str) -> NDArray[np.int64]:
    """Return the rows, in the order of the table, whose labels a party does not hold."""
    data = data_of(job, classes_of(2))
    mine = np.concatenate([data.split.train, data.split.validation])[data.holds(party)]
    return np.setdiff1d(np.arange(ROWS), mine)


def holders_coverage(party: str, defense: str = "none", task: str = "classification", **model: Any) -> Coverage:
    """Compare a party's views of PIVODL where its own labels, and all totals that anybody opens, are fixed.

    So are sums under masks, which are uniform but for the total: no mask may serve twice.
    """
    job = job_of({"kind": "pivodl", **model}, defense)
    job = with_defaults(replace(job, data=replace(job.data, task=task)))
    totals: dict[Any, Any] = {}
    used: dict[PairwiseMasks, set[str]] = {}
    opened, masked = SecureSums.open, PairwiseMasks.masked

    def fixed(self: SecureSums, own: Any, shape: Any, to: Collection, layout: Any) -> Any:
        return totals.setdefault((self.ctx.party, to.step), opened(self, own, shape, to, layout))

    def padded(self: PairwiseMasks, values: Any, among: Any, purpose: str) -> Any:
        assert purpose not in used.setdefault(self, set()), purpose
        used[self].add(purpose)
        sums = masked(self, values, among, purpose)
        return totals.setdefault((self._party, purpose), sums) if purpose.startswith("sums") else sums

    among = labeled_by_others(job, party)
    labelings = relabelings(classes_of(2), classes=2, count=6, rng=np.random.default_rng(1), among=among)
    with mock.patch.object(SecureSums, "open", fixed), mock.patch.object(PairwiseMasks, "masked", padded):
        return compare(runs_of(job, labelings), holders={*PARTIES} - {party})


@crossed(
    "party,defense,model",
    PARTIES,
    [
        pytest.param("none", {}, id="none"),
        pytest.param("partial-dp", {}, id="partial-dp"),
        pytest.param("label-dp-sums", {}, id="label-dp-sums"),
        pytest.param("none", {"aggregation": "masks"}, id="masks"),
        pytest.param("none", {"exchange": "published"}, id="published"),
        pytest.param("none", {"instance_threshold": 2}, id="threshold"),
        pytest.param("none", {"instance_threshold": 2, "threshold": "both-sides"}, id="both-sides"),
        pytest.param("none", {"task": "regression"}, id="quantities"),
        pytest.param("none", {"task": "regression", "aggregation": "masks"}, id="masked-quantities"),
    ],
)
def test_where_labels_lie_on_several_parties(party: str, defense: str, model: dict[str, Any]) -> None:
    """All of a view, weights and observations included, is a function of opened totals and of the party's own data."""
    coverage = holders_coverage(party, defense, **model)
    assert coverage.whole == coverage.pairs > 0


@pytest.mark.parametrize("model", [{"exchange": "published"}, {"instance_threshold": 2}], ids=str)
def test_of_options_of_pivodl(model: dict[str, Any]) -> None:
    """At a party without labels totals are not held fixed: what a source is told of bins and refusals comes first."""
    assert check({"kind": "pivodl", **model}).compared["ColumnCodes"] > 0


def test_of_noisy_buckets() -> None:
    assert check({"kind": "federboost", "epsilon": 1.0}).whole > 0


@pytest.mark.parametrize("coding", ["l2", "offset"])
def test_of_source_codings(coding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REQUIRED, "lpsc", {"coding": coding})
    assert check({"kind": "splitnn"}, "lpsc").whole > 0


@pytest.mark.parametrize("kind", ["forest", "secureboost"])
def test_of_purity_by_algorithm_4(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That a node is grown by the active party alone shows in no request, order, size or absence beyond its rows."""
    monkeypatch.setitem(REQUIRED, "purity-threshold", {"threshold": 0.8, "hide": "algorithm-4"})
    assert check({"kind": kind}, "purity-threshold").whole > 0


def test_of_exact_hessians() -> None:
    assert check({"kind": "secureboost", "softmax_hessian": "exact"}, classes=3).compared["TreeStart"] > 0


def test_every_defense_is_covered() -> None:
    for defense in DEFENSES.classes():
        assert any(fits(kind, defense) for kind in MODELS.classes()), defense


@crossed("kind,options,classes", [pytest.param(kind, options) for kind, options in OPTIONS], [2, 3])
def test_of_options_of_models(kind: str, options: dict[str, Any], classes: int) -> None:
    coverage = check({"kind": kind, **options}, classes=classes)
    assert sum(coverage.compared.values()) >= 4 * coverage.pairs, coverage


def test_of_trees_for_each_class() -> None:
    options = {"kind": "secureboost", "trees": 1, "multi_strategy": "one_output_per_tree"}
    assert check(options, classes=3).compared["TreeStart"] > 0


def test_of_encrypted_trees() -> None:
    job = job_of({"kind": "secureboost", "trees": 1})
    section = replace(job.encryption, engine="paillier", bits=512)
    runs = runs_of(with_defaults(replace(job, encryption=section)), changes(2, 4))
    assert compare(runs).compared["TreeRows"] > 0


@crossed(
    "kind,defense,given,reencrypt",
    [
        pytest.param("secureboost", "none", {}),
        pytest.param("secureboost", "id-lmid", {"xi": 0.9}),
        pytest.param("secureboost", "purity-threshold", {"threshold": 0.97}),
        pytest.param("forest", "none", {}),
    ],
    ["auto", "1", "4"],
)
def test_of_rows_that_are_encrypted_again(
    kind: str, defense: str, given: dict[str, float], reencrypt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Order, sizes and absence of the rows of a level: also of nodes that a party may not know.

    The defenses let parties see the first level, so that there are such rows.
    """
    monkeypatch.setitem(REQUIRED, defense, given)
    job = job_of({"kind": kind, "trees": 1}, defense)
    section = replace(job.encryption, engine="lattice", bits=512, engine_parameters={"reencrypt": reencrypt})
    runs = runs_of(with_defaults(replace(job, encryption=section)), changes(2, 4))
    coverage = compare(runs)
    assert coverage.whole > 0
    assert coverage.compared["LevelRows"] > 0


@pytest.mark.parametrize("objective", ["reg:squarederror", "count:poisson"])
def test_of_quantities(objective: str) -> None:
    job = job_of({"kind": "secureboost", "objective": objective})
    job = replace(job, data=replace(job.data, task="regression"))
    quantities = np.round(np.exp(table()[:, ::2].sum(axis=1) / 2) * 5)
    changed = [quantities.copy() for _ in range(9)]
    for row, each in enumerate(changed[1:]):
        each[row * 7] = quantities[row * 7 + 1]
    coverage = compare(runs_of(with_defaults(job), changed))
    assert coverage.compared["TreeStart"] > 0


def test_of_a_leakage_budget() -> None:
    """Who takes part in a tree, and so how many there are, is what the budget decides."""
    job = job_of({"kind": "secureboost"}, budget=0.3)
    coverage = compare(runs_of(job, changes(2, 4)), disclosed={"TreeStart", "TrainingEnd"})
    assert coverage.compared["Begin"] > 0


@pytest.mark.parametrize(
    ("kind", "place", "method"),
    [
        ("secureboost", PolicyChain, "before_targets"),
        ("secureboost", TreeGrower, "select"),
        ("forest", PolicyChain, "schedule"),
        ("forest", TreeGrower, "next_level"),
        ("splitnn", PolicyChain, "on_returned_gradient"),
    ],
)
def test_failures_tell_peers_nothing(kind: str, place: type, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
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

        monkeypatch.setattr(place, method, failing)
        with pytest.raises(PolicyError):
            run(job, data_of(job, labels))
    assert told == [Failure("peer-failed", "PolicyError")] * 3


@pytest.mark.parametrize("cut", [Cut("active", 31), Cut("telco", 24)], ids=lambda cut: cut.party)
def test_of_a_run_that_goes_on(cut: Cut, tmp_path: Path) -> None:
    """The greeting of the second attempt states checkpoints, and a digest of frames that the receiver has, too."""
    parts, views = dict(zip(PARTIES, np.split(table(), 3, axis=1), strict=True)), []
    for number, labels in enumerate(changes(2)):
        setting = Setting(parts=parts, labels=labels, noise=1)
        views.append(Interrupted(setting=setting, folder=tmp_path / str(number), settled=True).finish(cut).views)
        assert views[-1]["shop"].attempts == 2
    check_non_interference(views, holders=HOLDERS)
    greeted = set[tuple[Any, ...]]()
    for whole in views:
        for party in PARTIES[1:]:
            payloads = [each.payload for each in whole[party]._entries if (each.kind, each.type) in GREETINGS]
            told = [msgspec.msgpack.decode(each) for each in payloads]
            assert len(told) == 4
            stated = [each.get(name) for each in told for name in ("checkpoints", "resume")]
            greeted.add((whole[party].digest(), str(stated)))
    assert len(greeted) == len({each[0] for each in greeted}) < 2 * len(views)


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
        views = run(job, replace(data, parties=tuple(parties))).views
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
    views = run(job := job_of({"kind": "secureboost"}), data_of(job, classes_of(2))).views
    assert check_non_interference([views, views], holders=HOLDERS).whole == 2
    entries = list(views["telco"]._entries)
    entries.remove(next(each for each in entries if (each.kind, each.type) == (kind, name)))
    with pytest.raises(Interference, match="'telco'"):
        check_non_interference([views, {**views, "telco": View(views["telco"].header, entries)}], holders=HOLDERS)


def test_a_checkpoint_or_counter_that_only_one_run_has_is_found() -> None:
    for kind in ("secureboost", "splitnn"):
        ran = run(job := job_of({"kind": kind}), data_of(job, classes_of(2)))
        counted, saved, share = ran.left["telco"]
        assert compare([ran, ran]).whole == 2
        for changed in ((counted, saved[1:], share), (counted[1:], saved, share)):
            with pytest.raises(Interference, match="'telco'"):
                compare([ran, replace(ran, left={**ran.left, "telco": changed})])


# -- cures of earlier leaks, taken back --------------------------------------------------------------------------------


def test_a_message_of_a_holder_that_depends_on_its_labels_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    grow = Tree.grow

    def telling(self: Tree) -> Any:
        if self.ctx.party == "telco" and int(self.training.labels.sum()) % 2:
            self.ctx.send("active", ChosenCandidates(()), (self.tree,))
        return grow(self)

    monkeypatch.setattr(Tree, "grow", telling)
    with pytest.raises(Interference, match="'active' received"):
        holders_coverage("active")


def test_gains_of_a_holder_alone_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split client that decides by its own sums, not by the totals, tells of its own labels."""
    collect = Tree._collect

    def alone(self: Tree, level: list[int], clients: dict[str, list[int]]) -> Any:
        sign = 1 + int(self.training.labels.sum()) % 2
        return {at: each._replace(gain=each.gain * sign) for at, each in collect(self, level, clients).items()}

    monkeypatch.setattr(Tree, "_collect", alone)
    coverage = holders_coverage("active")
    assert coverage.whole < coverage.pairs


def test_sides_drawn_by_the_labels_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As version 0.1.0 drew them: stratified by label, from the seed that all parties know."""
    labels = classes_of(2)

    def stratified(section: DataSection, seed: int, rows: int, private: PrivateSeed) -> DataSplit:
        return published_split(section, seed, labels, ("0", "1"))

    monkeypatch.setattr(loading, "split_rows", stratified)
    runs = []
    for labels in changes(2, 4):
        runs += runs_of(job_of({"kind": "secureboost"}), [labels])
    with pytest.raises(Interference, match="field test"):
        compare(runs)


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
