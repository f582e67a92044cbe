"""A search: what it counts and stores, what it finds, how it goes on, and what it refuses."""

from __future__ import annotations

import dataclasses
import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import made_up
import msgspec
import numpy as np
import pytest
from made_up import hearing, without_bounds, without_trainings
from typer.testing import CliRunner

from labelward.auditing.audit import audit
from labelward.auditing.measure import measure
from labelward.cli.app import app
from labelward.errors import Code, DataError, InputError, JobError, LabelwardError, OutputError
from labelward.federation.components import make_engine, with_defaults
from labelward.job import EncryptionSection, Job, load_job, parse_job
from labelward.report.tune_page import apart
from labelward.rng import PrivateSeed
from labelward.runs.private_seeds import keep_seeds, resolve_seeds
from labelward.runs.schema import read_rows
from labelward.tuning import evaluate as evaluation
from labelward.tuning import ledger
from labelward.tuning.evaluate import Evaluator, Plan, Task
from labelward.tuning.ledger import Evaluation, FrontPoint, Point
from labelward.tuning.objectives import Figures, Objectives
from labelward.tuning.pareto import hypervolume
from labelward.tuning.prefixes import begun_with, refusal
from labelward.tuning.search import SEARCHES, Told
from labelward.tuning.tune import TuneResult, tune
from refusals import refused

Small = Callable[..., Job]
SETTING = {"model.trees": 4, "model.depth": 2, "local-trees.count": 1, "purity-threshold.threshold": 0.9}


def evaluator(job: Job) -> Evaluator:
    assert job.tune is not None
    private = resolve_seeds([party.name for party in job.parties])
    return Evaluator(Plan(job=job, private={name: seed.hex() for name, seed in private.items()}, units=job.tune.units))


def files(result: TuneResult) -> tuple[list[str], tuple[FrontPoint, ...]]:
    return sorted(each.key for each in result.evaluations), result.front


# -- figures ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_first_trees_are_a_training_of_that_length(small: Small) -> None:
    for extra in ({}, {"local-trees.count": 0}, {"purity-threshold.threshold": 1.0}):
        make = evaluator(small(sections={"attack": [{"kind": "instance-clustering"}, {"kind": "union"}]}))
        setting = {**SETTING, **extra}
        whole = make(Task(setting=setting, seed=1))
        assert [each[0]["model.trees"] for each in whole.compared()] == [1, 2, 3, 4]
        for found, values in whole.compared():
            alone = make(Task(setting=found, seed=1))
            assert alone.points[-1].values == values
    replaced = evaluator(small(sections={"defense": [{"kind": "local-trees", "count": 1, "mode": "replace"}]}))
    whole = replaced(Task(setting={**SETTING, "local-trees.count": 2}, seed=1))
    assert [each[0]["model.trees"] for each in whole.compared()] == [2, 3, 4]
    assert whole.compared()[0][1] == replaced(Task(setting=whole.compared()[0][0], seed=1)).points[-1].values


@pytest.mark.parametrize(
    ("lengths", "counted"),
    [({"low": 3, "high": 5}, [3, 4, 5]), ({"choices": [2, 5, 1]}, [1, 2, 5]), ({"choices": [4]}, [4])],
)
def test_only_lengths_that_the_variable_takes_count(
    lengths: dict[str, Any], counted: list[int], small: Small, tmp_path: Path
) -> None:
    variables = [{"name": "model.trees", **lengths}, {"name": "model.depth", "low": 1, "high": 2}]
    found = tune(small(variables=variables, evaluations=2, search="random"), out=tmp_path / "out")
    for each in found.evaluations:
        assert [setting["model.trees"] for setting, _ in each.compared()] == counted


def test_first_epochs_are_a_training_of_that_length(small: Small) -> None:
    attack = {"kind": "passive-completion", "auxiliary": 8, "steps": 20}
    sections: dict[str, Any] = {"model": {"kind": "splitnn", "epochs": 1}, "encryption": None, "attack": [attack]}
    sections |= {"defense": [{"kind": "gradient-compression", "keep": 0.5}]}
    objectives = ["utility", "leakage", "bytes", "messages", "logloss"]
    variables = [{"name": "model.epochs", "low": 1, "high": 20}]
    make = evaluator(small(sections=sections, variables=variables, objectives=objectives, cost="bytes"))
    whole = make(Task(setting={"model.epochs": 10}, seed=1, lengths=(3, 10)))
    assert [each["model.epochs"] for each, _ in whole.compared()] == [3, 10], whole.reason
    first, last = (point.values for point in whole.points)
    assert make(Task(setting={"model.epochs": 3}, seed=1, lengths=(3,))).points[-1].values == first != last


def test_trainings_whose_beginning_differs_say_why(small: Small) -> None:
    net = {"model": {"kind": "splitnn", "schedule": "cosine"}, "encryption": None, "attack": [{"kind": "norm"}]}
    noise = {"model": {"kind": "splitnn"}, "encryption": None, "attack": [{"kind": "norm"}]}
    account = {"kind": "noisy-gradients", "distribution": "gaussian", "epsilon": 1.0, "delta": 1e-5, "clip": 1.0}
    for sections, why in (
        (net, "learning rate"),
        ({**noise, "defense": [account]}, "noisy-gradients"),
        ({"attack": [{"kind": "norm"}], "model": {"early_stopping_rounds": 2}}, "early stopping"),
    ):
        job = with_defaults(small(sections=sections, variables=[]))
        assert job.tune is not None
        assert why in refusal(job, job.variants()[-1], job.tune)
    scale = with_defaults(small(sections={**noise, "defense": [{"kind": "noisy-gradients", "scale": 0.1}]}))
    assert scale.tune is not None
    assert not refusal(scale, scale.variants()[-1], scale.tune)


def test_a_training_is_cut_short_where_it_can_win_no_more(small: Small) -> None:
    variables = [{"name": "model.trees", "low": 1, "high": 4}]
    make, setting = evaluator(small(variables=variables, constraints={"leakage": 0.52})), {"model.trees": 4}
    whole, cut, dear = (make(Task(setting=setting, seed=1, cheapest=cost)) for cost in (None, 0.0, 1e9))
    assert [each.status for each in (whole, cut, dear)] == ["done", "cut", "done"]
    assert whole.points[0].values[2] > 0.52
    assert cut.points == whole.points[:1]
    assert [begun_with(trees) for trees in (1, 3, 4, 7, 8, 31, 32)] == [0, 0, 1, 1, 2, 7, 8]


def test_trainings_hear_of_the_cheapest_setting_within_the_limits(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_trainings(monkeypatch.setattr)
    heard: list[tuple[float | None, tuple[float, ...]]] = []

    def evaluated(self: Evaluator, task: Task) -> Evaluation:
        found = made_up.evaluation(self, task)
        heard.append((task.cheapest, found.points[-1].values))
        return found

    monkeypatch.setattr(Evaluator, "__call__", evaluated)
    limited = {"search": "random", "evaluations": 20, "constraints": {"leakage": 0.6}}
    tune(small(**limited), out=tmp_path / "out")
    for batch in range(0, 20, 2):  # the search asks for two at a time
        known = [cost for _, (_, cost, leakage) in heard[:batch] if leakage <= 0.6]
        assert heard[batch][0] == heard[batch + 1][0] == (min(known) if known else None)
    assert heard[-1][0] is not None
    for keys in ({"cut_short": False}, {"handling": "none"}, {"constraints": {"cost": 0.5}}):
        heard.clear()
        tune(small(**{**limited, **keys}), out=tmp_path / "out", force=True)
        assert {each for each, _ in heard} == {None}


@pytest.mark.slow
def test_operations_are_those_of_an_encrypted_training(small: Small) -> None:
    section = EncryptionSection(engine="paillier", bits=512, insecure=True, workers=1)
    make = evaluator(dataclasses.replace(small(), encryption=section))
    for setting in (SETTING, {**SETTING, "local-trees.count": 0}, {**SETTING, "model.trees": 2, "model.depth": 3}):
        found = make(Task(setting=setting, seed=1, rows="test"))
        counted, units = found.counts, make.plan.units
        job, variant = make.space.job_of(setting)
        engine = make_engine(section)
        try:
            cost = measure(job, variant, private=make.private, engine=engine).cost
        finally:
            engine.close()
        assert counted == {name: getattr(cost, name) for name in counted}
        seconds = (
            units["encrypt"] * cost.encryptions + units["decrypt"] * cost.decryptions + units["add"] * cost.additions
        )
        assert found.points[-1].values[1] == pytest.approx(
            seconds, rel=1e-9
        )  # Equation 5, with the ten digits of a ledger


def test_a_refused_setting_is_no_error(small: Small) -> None:
    make = evaluator(small())
    found = make(Task(setting={**SETTING, "purity-threshold.threshold": 0.5}, seed=1))
    assert (found.status, found.points) == ("refused", ())
    assert "threshold" in found.reason


def test_a_failed_training_is_recorded(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **named: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(evaluation, "measure", fail)
    found = evaluator(small())(Task(setting=SETTING, seed=1))
    assert (found.status, found.reason) == ("failed", "MemoryError: no room")


def test_an_interrupted_training_is_not_recorded_as_failed(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any, **named: Any) -> None:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr(evaluation, "measure", stop)
    with pytest.raises(KeyboardInterrupt):
        evaluator(small())(Task(setting=SETTING, seed=1))


def test_defenses_and_their_order_are_variables(small: Small) -> None:
    variables = [
        {"name": "defenses", "choices": ["none", "purity-threshold+local-trees", "local-trees+purity-threshold"]},
        {"name": "purity-threshold.threshold", "low": 0.6, "high": 1.0},
    ]
    space = evaluator(small(variables=variables)).space
    for choice in variables[0]["choices"]:  # type: ignore[attr-defined]
        _, variant = space.job_of({"defenses": choice, "purity-threshold.threshold": 0.8})
        assert "+".join(each.kind for each in variant.chain) == choice.replace("none", "")


def test_idle_defenses_are_left_out(small: Small) -> None:
    space = evaluator(small()).space
    setting = {**SETTING, "local-trees.count": 0, "purity-threshold.threshold": 1.0}
    assert space.job_of(setting)[1].chain == ()
    chain = space.job_of(SETTING)[1].chain
    assert [each.kind for each in chain] == ["local-trees", "purity-threshold"]
    assert chain[0].params["mode"] == "add"


# -- the search -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_search_from_a_job_file_to_its_page(small: Small, tmp_path: Path) -> None:
    path, out = tmp_path / "job.toml", tmp_path / "out"
    path.write_text(small(confirm=2, evaluations=4, constraints={"leakage": 0.9}).to_toml())
    done = CliRunner().invoke(app, ["tune", str(path), "--out", str(out), "--json", "--quiet"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    front = ledger.read_lines(out / ledger.FRONT_FILE, FrontPoint)
    assert [each["number"] for each in told["front"]] == [each.number for each in front]
    assert all(len(each.confirmed) == 2 and each.tested is not None for each in front)
    assert any(each.undominated for each in front)
    page = (out / "tune.html").read_text()
    assert "still undominated" in page
    assert page.count("<script") == 1  # the page's own
    # a setting is a job file; on the same private draws its audit gives the confirmed figures
    assert audited(out, front[0], tmp_path) == confirmed(front[0])
    (out / ledger.RESULT_FILE).unlink()
    table = CliRunner().invoke(app, ["tune", str(path), "--out", str(out), "--quiet"])
    assert "loss of" in table.stdout
    assert "cost in" in table.stdout
    # it goes on where nothing is left to do
    again = CliRunner().invoke(app, ["tune", str(path), "--out", str(out), "--json", "--quiet"])
    assert json.loads(again.stdout) == told
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    stored = optuna.load_study(study_name=None, storage=JournalStorage(JournalFileBackend(str(out / "optuna.journal"))))
    assert len(stored.trials) == 4


def test_what_another_search_of_the_same_draws_trained_is_not_trained_again(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_bounds(monkeypatch.setattr)
    trained = list[str]()

    def train(self: Evaluator, task: Task) -> Evaluation:
        trained.append(self.key(task))
        return made_up.evaluation(self, task)

    monkeypatch.setattr(Evaluator, "__call__", train)
    first, limited = small(search="nsga2", population=3, prefixes=False), {"leakage": 0.6}
    whole = tune(first, out=tmp_path / "first")
    with_limit = small(search="nsga2", population=3, prefixes=False, constraints=limited, handling="penalty")
    alone = tune(with_limit, out=tmp_path / "alone", repeat=[tmp_path / "first"])
    trained.clear()
    beside = [tmp_path / "first", tmp_path / "second", tmp_path / "not there"]
    second = tune(with_limit, out=tmp_path / "second", repeat=[tmp_path / "first"], beside=beside)
    assert files(second) == files(alone)
    assert len(second.evaluations) == 6
    known = {each.key for each in whole.evaluations}
    assert sorted(trained) == sorted({each.key for each in second.evaluations} - known)
    assert len(trained) <= 3  # both begin with the same generation
    assert read_keys(tmp_path / "second") == {each.key for each in second.evaluations}


@pytest.mark.parametrize(
    ("keys", "secret"),
    [({"cost": "unpacked"}, 1), ({"validation": 0.4}, 1), ({"prefixes": True}, 1), ({}, 2)],
    ids=["another cost", "other rows", "first trees", "other draws"],
)
def test_other_searches_are_not_taken_for_the_same(
    keys: dict[str, Any], secret: int, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_trainings(monkeypatch.setattr)
    for number in (1, 2):
        (tmp_path / f"draws {number}").mkdir()
        seeds = {party: PrivateSeed(bytes([number]) * 32) for party in ("active", "telco")}
        keep_seeds(tmp_path / f"draws {number}", seeds)
    tune(small(search="random", prefixes=False), out=tmp_path / "first", repeat=[tmp_path / "draws 1"])
    trained = list[str]()

    def train(self: Evaluator, task: Task) -> Evaluation:
        trained.append(self.key(task))
        return made_up.evaluation(self, task)

    monkeypatch.setattr(Evaluator, "__call__", train)
    other, drawn = small(**{"search": "random", "prefixes": False, **keys}), [tmp_path / f"draws {secret}"]
    result = tune(other, out=tmp_path / "second", repeat=drawn, beside=[tmp_path / "first"])
    assert sorted(trained) == sorted(each.key for each in result.evaluations)


def read_keys(out: Path) -> set[str]:
    return {each.key for each in ledger.read_evaluations(out)}


def audited(out: Path, point: FrontPoint, tmp_path: Path) -> set[tuple[float, ...]]:
    """Return loss of utility and leakage of a front's setting by seed, as an audit of its job file has them."""
    job, folder = load_job(out / f"settings/{point.number}.toml"), tmp_path / f"audit {point.number}"
    plain = dataclasses.replace(job, encryption=EncryptionSection(engine="plain", insecure=True))
    audit(plain, folder, repeat=[out], explained=False)
    chain = tuple(job.variants()[-1].as_list())
    rows = [row for row in read_rows(folder) if row.defense == chain]
    strongest: dict[int, tuple[float, float]] = {}
    for row in rows:
        found = (1 - row.utility["auc"], row.leakage["matched_accuracy"])
        strongest[row.seed] = max(found, strongest.get(row.seed, found))
    return {(shown(loss), shown(leakage)) for loss, leakage in strongest.values()}


def confirmed(point: FrontPoint) -> set[tuple[float, ...]]:
    """Return loss of utility and leakage of a front's setting on each further seed, as the search has them."""
    return {(shown(each[0]), shown(each[2])) for each in point.confirmed}


def shown(value: float) -> float:
    """Return a value with the ten digits that a ledger keeps."""
    return float(f"{value:.10g}")


@pytest.mark.slow
def test_every_setting_of_a_front_is_a_job_whose_audit_gives_its_confirmed_figures(
    small: Small, tmp_path: Path
) -> None:
    front = tune(small(confirm=2, evaluations=3), out=tmp_path / "out").front
    assert len(front) > 1
    for point in front:
        assert audited(tmp_path / "out", point, tmp_path) == confirmed(point)


@pytest.mark.slow
@pytest.mark.parametrize("search", ["tpe", "nsga2", "random"])
def test_a_killed_search_ends_as_an_undisturbed_one(
    search: str, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_trainings(monkeypatch.setattr)
    job = small(search=search, evaluations=100, population=10)
    out, rng = tmp_path / "out", np.random.default_rng(4)
    whole = tune(job, out=out)
    assert len(whole.evaluations) == 100
    assert len({each.key for each in whole.evaluations}) == 100
    text = gzip.decompress((out / ledger.CLOSED_FILE).read_bytes())
    for _ in range(5 if search == "random" else 2):
        cut = int(rng.integers(0, len(text)))
        (out / ledger.CLOSED_FILE).unlink()
        (out / ledger.LEDGER_FILE).write_bytes(text[:cut])
        assert files(tune(job, out=out)) == files(whole)
        again = gzip.decompress((out / ledger.CLOSED_FILE).read_bytes())
        assert sorted(again.split(b"\n")) == sorted(text.split(b"\n"))


@pytest.mark.slow
def test_two_workers_change_nothing(small: Small, tmp_path: Path) -> None:
    private = tune(small(evaluations=8), out=tmp_path / "one")
    both = tune(small(evaluations=8), out=tmp_path / "two", jobs=2, repeat=[tmp_path / "one"])
    assert files(both) == files(private)


def test_known_settings_do_not_count(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_trainings(monkeypatch.setattr)
    variables = [{"name": "model.trees", "low": 1, "high": 3}]
    found = tune(small(variables=variables, evaluations=50, search="random"), out=tmp_path / "few")
    assert len(found.evaluations) == 3  # all that there are
    for search in ("tpe", "random", "grid", "nsga2"):
        result = tune(small(search=search, evaluations=23, population=10), out=tmp_path / search)
        assert len(result.evaluations) == 23


def test_a_search_varies_no_length_that_every_training_passes(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All trainings are of the greatest length, and the strategy hears of the best part within the limits."""
    heard = hearing(monkeypatch.setattr)
    job = small(search="random", evaluations=6, constraints={"cost": 0.2}, cut_short=False)
    found = tune(job, out=tmp_path / "out")
    bounds = np.array(found.record.bounds)
    for told, each in zip(heard, found.evaluations, strict=True):
        assert "model.trees" not in told.setting
        assert each.setting["model.trees"] == 4
        within = [point.values for point in each.points if point.values[1] <= 0.2] or [
            point.values for point in each.points
        ]
        volumes = [hypervolume(np.array([values]), bounds) for values in within]
        best = np.array(within[int(np.argmax(volumes))])
        assert told.values == tuple(best if max(volumes) > 0 else np.maximum(within[-1], bounds[1]))
        counted = np.array([point.values for point in each.points if point.values[1] <= 0.2]).reshape(-1, 3)
        assert told.volume == hypervolume(counted, bounds) if len(counted) else told.volume <= -len(bounds[0])
    assert {len(each.points) for each in found.evaluations} == {4}
    assert any(told.values != each.points[-1].values for told, each in zip(heard, found.evaluations, strict=True))
    for other in ({"prefixes": False}, {"cost": "seconds"}, {"variables": [job.tune.variables[0]]}):  # type: ignore[union-attr]
        keys = {**other, "variables": [{"name": "model.trees", "low": 1, "high": 4}]} if "variables" in other else other
        assert not evaluator(small(**keys)).fixed


def test_a_penalty_takes_from_the_hypervolume_of_a_training(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_trainings(monkeypatch.setattr)
    heard = hearing(monkeypatch.setattr)
    job = small(search="random", evaluations=20, constraints={"cost": 0.5}, handling="penalty", cut_short=False)
    found = tune(job, out=tmp_path / "out").evaluations
    fined = [max(0.0, each.points[0].values[1] - 0.5) / 0.5 for each in found]
    for told, each, fine in zip(heard, found, fined, strict=True):
        values = np.add(each.points[0].values, (0.0, 20 * fine, 0.0))
        inside, beyond = np.prod(np.clip(1 - values, 0.0, 1.0)), np.maximum(values - 1, 0.0).sum()
        assert told.volume == pytest.approx(float(inside or -beyond))
    assert min(each.volume for each in heard) < 0 < max(each.volume for each in heard)


def test_what_lies_beyond_a_bound_is_told_no_better_than_the_bounds(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else cheap trees that learn nothing are as good as any on the front, of which they never are."""
    without_trainings(monkeypatch.setattr)
    high = (1e-6, 1.0, 0.5)
    monkeypatch.setattr(Objectives, "bounds", lambda *_: np.array([[0.0] * 3, high]))
    heard = hearing(monkeypatch.setattr)
    found = tune(small(search="random", evaluations=6), out=tmp_path / "out").evaluations
    assert {each.values for each in heard} == {tuple(np.maximum(each.points[-1].values, high)) for each in found}
    assert any(each.points[-1].values[2] < 0.5 for each in found)
    beyond = [float(np.maximum((np.array(each.points[-1].values) - high) / high, 0).sum()) for each in found]
    assert [each.volume for each in heard] == pytest.approx([-each for each in beyond])


@pytest.mark.parametrize("handling", ["penalty", "feasible-first", "none"])
@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_a_refused_setting_is_told_as_the_worst_so_far(
    handling: str, scale: float, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beside settings beyond the limits and, with a scale of 10, beyond the bounds."""
    without_trainings(monkeypatch.setattr)
    made, told, refusals = Evaluator.__call__, list[tuple[float, ...]](), 0

    def sometimes(self: Evaluator, task: Task) -> Evaluation:
        found = made(self, task)
        if task.setting["model.depth"] == 3:
            return msgspec.structs.replace(found, status="refused", points=())
        values = tuple(scale * each for each in found.points[-1].values)
        return msgspec.structs.replace(found, points=(Point(values),))

    class Hearing(SEARCHES["random"]):  # type: ignore[misc]
        def tell(self, found: Sequence[Told]) -> None:
            nonlocal refusals
            told.extend((*each.values, *each.excess, -each.volume) for each in found)
            for each in found:
                if each.setting["model.depth"] == 3:
                    refusals += 1
                    assert (np.array(told) <= (*each.values, *each.excess, -each.volume)).all()

    monkeypatch.setattr(Evaluator, "__call__", sometimes)
    monkeypatch.setitem(SEARCHES, "random", Hearing)  # type: ignore[arg-type]
    limits = {"cost": 0.1, "leakage": 0.6}
    tune(small(search="random", evaluations=30, handling=handling, constraints=limits), out=tmp_path / "out")
    assert refusals > 3


def test_rows_that_select_are_no_test_rows(small: Small) -> None:
    make = evaluator(small())
    full, chosen = make.data(1, "test", 1.0), make.data(1, "validation", 1.0)
    assert not {*chosen.test_ids, *chosen.train_ids} & {*full.test_ids}
    assert {*chosen.test_ids, *chosen.train_ids} == {*full.train_ids}
    # test labels that say nothing change no figure of the search
    before = make(Task(setting=SETTING, seed=1)).points
    shuffled = np.random.default_rng(1).permutation(full.test_values)
    make._data = {(1, "test", 1.0): dataclasses.replace(full, test_values=shuffled, test_labels=shuffled)}
    assert make(Task(setting=SETTING, seed=1)).points == before


def test_a_front_is_the_same_whatever_the_test_labels_are(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, load = small(confirm=1, evaluations=4, objectives=["leakage", "utility"]), evaluation.load_dataset
    plain = tune(job, out=tmp_path / "plain")

    def shuffled(*args: Any, **named: Any) -> Any:
        data = load(*args, **named)
        labels = np.random.default_rng(1).permutation(data.test_labels)
        return dataclasses.replace(data, test_values=labels.astype(data.test_values.dtype), test_labels=labels)

    monkeypatch.setattr(evaluation, "load_dataset", shuffled)
    other = tune(job, out=tmp_path / "shuffled", repeat=[tmp_path / "plain"])
    assert [each.points for each in other.evaluations] == [each.points for each in plain.evaluations]
    assert [(each.setting, each.found) for each in other.front] == [(each.setting, each.found) for each in plain.front]
    assert [each.tested for each in other.front] != [each.tested for each in plain.front]


def test_limits_that_nothing_meets_are_said(small: Small, tmp_path: Path) -> None:
    found = tune(small(constraints={"leakage": 0.01}, evaluations=2), out=tmp_path / "out")
    assert found.front
    assert not any(each.feasible for each in found.front)


@pytest.mark.parametrize(
    ("sections", "variables"),
    [
        ({}, [{"name": "id-lmid.xi", "low": 0.1, "high": 0.6, "log": True}]),
        ({}, [{"name": "lp-mst.epsilon", "low": 0.5, "high": 4.0}]),
        (
            {
                "model": {"kind": "splitnn", "epochs": 1},
                "encryption": None,
                "attack": [{"kind": "passive-completion", "auxiliary": 8, "steps": 20}],
            },
            [{"name": "noisy-gradients.scale", "low": 0.001, "high": 1.0, "log": True}],
        ),
    ],
)
def test_other_families_are_tuned_by_a_job_file_alone(
    sections: dict[str, Any], variables: list[dict[str, Any]], small: Small, tmp_path: Path
) -> None:
    cost = "bytes" if "model" in sections else "operations"
    found = tune(small(sections=sections, variables=variables, evaluations=2, cost=cost), out=tmp_path / "out")
    assert [each.status for each in found.evaluations] == ["done", "done"], found.evaluations


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "error", "code", "field"),
    [
        ({"variables": [{"name": "model.tree", "low": 1, "high": 2}]}, JobError, "unknown", "[[tune.variable]] name"),
        ({"variables": [{"name": "id-lmit.xi", "low": 1, "high": 2}]}, JobError, "unknown", "[[tune.variable]] name"),
        ({"variables": [{"name": "id-lmid.kind", "low": 1, "high": 2}]}, JobError, "unknown", "[[tune.variable]] name"),
        (
            {"variables": [{"name": "model.depth", "low": 0, "high": 2}]},
            JobError,
            "range",
            "[[tune.variable]] model.depth: low",
        ),
        (
            {"variables": [{"name": "model.depth", "low": 1, "high": 2, "levels": 3}]},
            JobError,
            "range",
            "[[tune.variable]] model.depth: levels",
        ),
        (
            {"variables": [{"name": "model.depth", "choices": [1, 2], "levels": 2}]},
            JobError,
            "conflict",
            "[[tune.variable]] model.depth: levels",
        ),
        ({"objectives": ["utility", "speed"]}, JobError, "unknown", "[tune] objectives"),
        ({"objectives": ["utility", "ciphertexts"]}, JobError, "unknown", "[tune] objectives"),
        ({"objectives": ["utility", "top5"]}, JobError, "unknown", "[tune] objectives"),
        ({"objectives": ["utility", "r2"]}, JobError, "unknown", "[tune] objectives"),
        ({"objectives": ["utility", "instance-clustering.lift"]}, JobError, "unknown", "[tune] objectives"),
        ({"sections": {"attack": None}}, JobError, "missing", "[[attack]]"),
        ({"sections": {"run": {"seeds": [1, 2]}}}, JobError, "conflict", "[run] seeds"),
        ({"leakage": "id2graph"}, JobError, "unknown", "[tune] leakage"),
        ({"constraints": {"speed": 1.0}}, JobError, "unknown", "[tune] constraints speed"),
        ({"objectives": ["utility"], "constraints": {"cost": 1.0}}, JobError, "unknown", "[tune] constraints cost"),
        ({"search": "nsga2", "population": 7}, JobError, "range", "[tune] population"),
        ({"sections": {"defense": [{"kind": "local-trees", "count": [1, 2]}]}}, JobError, "conflict", "[[defense]]"),
        ({"validation": 0.999}, DataError, "labels", "[tune] validation"),
        ({"constraints": {"leakage": "low"}}, JobError, "type", "[tune] constraints leakage"),
        (
            {"variables": [{"name": "model.depth", "choices": [1, 2], "log": True}]},
            JobError,
            "conflict",
            "[[tune.variable]] model.depth: log",
        ),
        (
            {"variables": [{"name": "model.depth", "choices": [1, 2], "coding": "bits"}]},
            JobError,
            "conflict",
            "[[tune.variable]] model.depth: coding",
        ),
        (
            {"variables": [{"name": "model.depth", "low": 1, "high": 2, "off": 1}]},
            JobError,
            "conflict",
            "[[tune.variable]] model.depth: off",
        ),
        (
            {"variables": [{"name": "model.learning_rate", "low": 0.1, "high": 0.9, "coding": "bits"}]},
            JobError,
            "conflict",
            "[[tune.variable]] model.learning_rate: coding",
        ),
        (
            {"variables": [{"name": "defenses", "low": 1, "high": 2}]},
            JobError,
            "missing",
            "[[tune.variable]] defenses: choices",
        ),
        (
            {"variables": [{"name": "defenses", "choices": ["none", "local-trees+local-trees"]}]},
            JobError,
            "duplicate",
            "[[tune.variable]] defenses: choices",
        ),
        (
            {"variables": [{"name": "defenses", "choices": ["none", "id-lmid"]}]},
            JobError,
            "missing",
            "[[tune.variable]] defenses: choices xi",
        ),
        ({"constraints": {"leakage": 2}}, JobError, "range", "[tune] constraints leakage"),
        ({"constraints": {"utility": 1.5}}, JobError, "range", "[tune] constraints utility"),
        (
            {
                "objectives": ["utility", "instance-clustering.v_measure"],
                "constraints": {"instance-clustering.v_measure": 1.1},
            },
            JobError,
            "range",
            "[tune] constraints instance-clustering.v_measure",
        ),
    ],
)
def test_bad_input_is_refused(
    keys: dict[str, Any],
    error: type[LabelwardError],
    code: Code,
    field: str,
    small: Small,
    tmp_path: Path,
) -> None:
    with refused(error, code, field=field):
        tune(small(**keys), out=tmp_path / "out")
    assert not (tmp_path / "out" / ledger.LEDGER_FILE).exists()


def test_fewer_than_one_process_is_refused_before_there_is_a_folder(small: Small, tmp_path: Path) -> None:
    with refused(JobError, "type", field="[tune] variables", value=5):
        tune(small(), [5], out=tmp_path / "out")  # type: ignore[list-item]
    with refused(InputError, "range", field="jobs", value=0):
        tune(small(), out=tmp_path / "out", jobs=0)
    assert not (tmp_path / "out").exists()


def test_a_defense_of_another_model_is_refused(small: Small, tmp_path: Path) -> None:
    search = small(variables=[{"name": "marvell.s", "low": 1, "high": 2}], evaluations=2)
    for _ in range(2):  # also where the search goes on
        with refused(InputError, "unsupported", field="[[tune.variable]]", value=2):
            tune(search, out=tmp_path / "out")


def test_utility_without_a_metric_is_refused(small: Small) -> None:
    """As where all scored rows with known labels are of one class."""
    figures = Figures(utility={}, cost=1.0, costs={}, leakage={})
    objectives = evaluator(small(objectives=["utility", "cost"])).objectives
    with refused(JobError, "unsupported", field="[tune] objectives", value="utility"):
        objectives.bounds(figures)


def test_a_network_is_refused(table: Path, tmp_path: Path) -> None:
    parties = {
        "active": {"table": str(table), "id": "f0", "label": "label"},
        "telco": {"table": str(table), "id": "f0"},
    }
    job = parse_job({"parties": parties, "network": {"address": "a:1"}, "attack": [{"kind": "union"}], "tune": {}})
    with refused(JobError, "conflict", field="[network]"):
        tune(job, out=tmp_path / "out")


def test_a_folder_of_another_search_is_refused(small: Small, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tune(small(evaluations=1), out=out)
    with refused(OutputError, "other-run", field=str(out)):
        tune(small(evaluations=2), out=out)
    stored = out / ledger.SEARCH_FILE
    text = stored.read_text()
    for key, code in (("version", "other-run"), ("data", "other-run"), ("format", "format-version")):
        changed = json.loads(text)
        changed[key] = 9 if key == "format" else "9"
        stored.write_text(json.dumps(changed))
        with pytest.raises(InputError) as caught:
            tune(small(evaluations=1), out=out)
        assert caught.value.code == code


def test_a_ledger_of_another_format_is_refused(small: Small, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tune(small(evaluations=1), out=out)
    stored = out / ledger.LEDGER_FILE
    lines = gzip.decompress((out / ledger.CLOSED_FILE).read_bytes())
    stored.write_bytes(lines.replace(b'"format":1', b'"format":9'))
    with refused(InputError, "format-version", field=f"{stored}, line 1"):
        tune(small(evaluations=1), out=out)


def test_a_dashboard_sees_what_failed_and_why(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    without_trainings(monkeypatch.setattr)
    made = Evaluator.__call__

    def sometimes(self: Evaluator, task: Task) -> Evaluation:
        found = made(self, task)
        deep = task.setting["model.depth"] == 3
        return msgspec.structs.replace(found, status="failed", reason="no room", points=()) if deep else found

    monkeypatch.setattr(Evaluator, "__call__", sometimes)
    found = tune(small(search="grid", evaluations=12), out=tmp_path / "out").evaluations
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "out/optuna.journal")))
    trials = optuna.load_study(study_name=None, storage=storage).trials
    assert [each.user_attrs.get("reason", "") for each in trials] == [each.reason for each in found]
    assert {each.state.name for each in trials} == {"COMPLETE", "FAIL"}


def test_more_failures_than_results_end_a_search(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_bounds(monkeypatch.setattr)

    def fail(*args: Any, **named: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(evaluation, "measure", fail)
    with refused(InputError, "failed", field="[tune]"):
        tune(small(evaluations=30, search="random"), out=tmp_path / "out")


def test_without_the_libraries_nothing_is_searched(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pymoo", None)
    path = tmp_path / "job.toml"
    path.write_text(small().to_toml())
    done = CliRunner().invoke(app, ["tune", str(path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "[tune]" in done.output


def test_a_plot_draws_one_of_the_points_that_cover_each_other() -> None:
    rng = np.random.default_rng(2)
    points = [(float(x), float(y)) for x, y in rng.random((30_000, 2))]
    kept = apart(points)
    assert set(kept) <= set(points)
    assert len(kept) <= 31 * 31
    near = np.array(kept)
    assert all(np.abs(near - point).max(axis=1).min() <= 1 / 30 for point in np.array(points[:500]))
    assert apart([(1.0, 2.0), (1.0, 2.0)]) == [(1.0, 2.0)]
    assert apart([]) == []


def test_a_page_needs_no_library_of_the_search() -> None:
    code = (
        "import importlib, pkgutil, sys, labelward.report as report\n"
        "for each in pkgutil.walk_packages(report.__path__, 'labelward.report.'):\n"
        "    importlib.import_module(each.name)\n"
        "sys.exit(bool({'optuna', 'pymoo'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
