"""Estimates against the counts of runs: operations, ciphertexts, messages and bytes; times are only positive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from labelward.auditing.traffic import wire_flows
from labelward.data import load_dataset, load_tables
from labelward.defenses import leakage_meter
from labelward.errors import Code, InputError, JobError, PolicyError
from labelward.federation.components import make_engine, make_policies, with_defaults
from labelward.federation.leakage_monitor import with_monitor
from labelward.federation.train import train_variant
from labelward.he.base import CiphertextFormat
from labelward.he.lattice.spaced import SpacedData, SpacedRows
from labelward.he.plain import PlainEngine
from labelward.job import Job, parse_job
from labelward.planning.cost_estimate import estimate_cost
from labelward.planning.cost_model import CostModel, cost_model, forecast
from labelward.planning.estimate import NetworkLink, deployment_time, estimate
from labelward.planning.monitor_cost import monitor_seconds
from labelward.planning.workload import RemoteShape
from labelward.runs.short_names import variant_without_defaults
from labelward.runs.training_record import TrainingRecord, read_record
from refusals import refused

PAILLIER = {"engine": "paillier", "bits": 512, "insecure": True, "workers": 1}
SHAPES: dict[str, dict[str, Any]] = {
    "boosted": {"trees": 3, "depth": 3},
    "deep": {"trees": 2, "depth": 6, "min_rows": 4, "max_leaves": 9, "bins": 7},
    "some rows and columns": {"trees": 2, "depth": 3, "row_fraction": 0.6, "feature_fraction": 0.5},
    "large gradients": {"trees": 1, "depth": 3, "sampling": "goss"},
    "mixed": {"trees": 3, "depth": 2, "mode": "mixed"},
    "layered": {"trees": 2, "depth": 4, "mode": "layered", "passive_depth": 2},
    "candidates of the node": {"trees": 2, "depth": 3, "candidates": "node", "bins": 9},
    "nothing to split": {"trees": 2, "depth": 3, "min_rows": 1000},
    "forest without splits": {"kind": "forest", "trees": 2, "row_fraction": 0.7, "min_rows": 1000},
    "forest": {"kind": "forest", "trees": 3, "depth": 3, "row_fraction": 0.7, "replace": True},
}

SLOW = {"some rows and columns", "mixed", "candidates of the node", "forest without splits"}


def table(folder: Path, rows: int = 400, *, regression: bool = False, classes: int = 2) -> str:
    """Write a table with missing values, a mostly constant column and a categorical one; return its path."""
    rng = np.random.default_rng(3)
    columns: dict[str, Any] = {f"c{number}": rng.normal(size=rows) for number in range(7)}
    score = columns["c0"] + 2 * columns["c4"] + columns["c5"] + 0.3 * rng.normal(size=rows)
    columns["c1"] = np.where(rng.random(rows) < 0.9, 0.0, columns["c1"])
    columns["c5"] = pa.array(columns["c5"], mask=rng.random(rows) < 0.2)
    columns["c6"] = pa.array([["red", "green", "blue"][each] for each in rng.integers(0, 3, rows)])
    edges = np.quantile(score, np.arange(1, classes) / classes)
    columns["y"] = score if regression else np.searchsorted(edges, score)
    path = folder / "table.csv"
    pyarrow.csv.write_csv(pa.table(columns), path)
    return str(path)


def job_of(folder: Path, model: dict[str, Any], **more: Any) -> Job:
    made = {name: more.pop(name) for name in ("regression", "classes", "rows") if name in more}
    data = {"table": table(folder, **made), "label": "y", **more.pop("data", {})}
    if made.get("regression"):
        data["task"] = "regression"
    parties = {"active": ["c0", "c1", "c2"], "telco": ["c3", "c4"], "shop": ["c5", "c6"]}
    sections = {"data": data, "parties": parties, "model": model, "encryption": PAILLIER, **more}
    return parse_job(sections)


def model_of(job: Job) -> CostModel:
    job = with_defaults(job)
    model = cost_model(job, load_dataset(job, 1, load_tables(job)), make_engine(job.encryption), 1)
    assert model is not None
    return model


def trained(job: Job, out: Path) -> tuple[TrainingRecord, dict[tuple[str, str, str], tuple[int, int]]]:
    """Train; return its record, and messages and bytes by sender, receiver and type."""
    train_variant(job, out, seed=1, forecast=forecast)
    views = [(party.name, out / party.name / "view") for party in job.parties]
    flows = wire_flows(views, active="active", secure=True)
    return read_record(out), {(flow.sender, flow.receiver, flow.type): (flow.messages, flow.bytes) for flow in flows}


def check_exactly(job: Job, out: Path) -> None:
    """All operations, and all messages of each type, handshake and prediction included, are those of the run."""
    record, flows = trained(job, out)
    expected = record.estimate
    assert expected is not None
    for name in ("encryptions", "additions", "decryptions", "ciphertexts", "messages"):
        assert getattr(expected, name) == getattr(record.cost, name), name
    model = model_of(job)
    works = model.operations(with_monitor(job, load_dataset(with_defaults(job), 1), (), seed=1))
    estimated = {
        (sender, receiver, kind): (round(flow.messages), round(flow.bytes))
        for sender, work in works.items()
        for (receiver, kind), flow in work.flows.items()
    }
    assert estimated == flows
    assert sum(expected.bytes.values()) == record.cost.bytes
    model.engine.close()


@pytest.mark.parametrize(
    "shape", [pytest.param(each, marks=pytest.mark.slow if each in SLOW else ()) for each in SHAPES]
)
def test_the_first_trees_are_estimated_exactly(shape: str, tmp_path: Path) -> None:
    check_exactly(job_of(tmp_path, SHAPES[shape]), tmp_path / "out")


@pytest.mark.parametrize(
    ("model", "defense"),
    [({"mode": "mixed", "trees": 1}, None), ({"trees": 2}, {"kind": "local-trees", "count": 2})],
    ids=["mixed", "local"],
)
def test_a_party_that_sees_no_tree(model: dict[str, Any], defense: dict[str, Any] | None, tmp_path: Path) -> None:
    """The leakage meter has nothing to read there."""
    job = with_defaults(job_of(tmp_path, model, defense=[] if defense is None else [defense]))
    data, costs = load_dataset(job, 1), model_of(job)
    policies = with_monitor(job, data, make_policies(job.variants()[-1]), seed=1)
    assert any(isinstance(each, leakage_meter.LeakageMeter) for each in policies)
    assert costs.estimate(policies).seconds > 0
    costs.engine.close()


def test_the_lattice_engine_is_estimated_exactly(tmp_path: Path) -> None:
    """Its key of 9 MB, blocks that share polynomials, and additions that wait for the sealing."""
    lattice = {"engine": "lattice", "workers": 1}
    check_exactly(job_of(tmp_path, SHAPES["boosted"], encryption=lattice), tmp_path / "out")


@pytest.mark.slow
def test_rows_encrypted_again_for_a_level_count_as_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, prepare = [0], SpacedRows._prepare

    def spied(rows: SpacedRows, data: SpacedData, first: int) -> None:
        prepare(rows, data, first)
        held.append(sum(segment.a.nbytes + segment.words.nbytes for segment in rows._segments))

    monkeypatch.setattr(SpacedRows, "_prepare", spied)
    lattice = {"engine": "lattice", "workers": 1, "lattice": {"reencrypt": "8"}}
    job = job_of(tmp_path, {"trees": 1, "depth": 3}, rows=20_000, encryption=lattice)
    trained(job, tmp_path / "out")
    model = model_of(job)
    told = model.shape(()).level_bytes
    model.engine.close()
    polynomial = 4096 * 16 * 6  # of five digits and what they share; the last one of a level is filled up
    for name in ("telco", "shop"):
        assert told[name] <= max(held) < told[name] + polynomial


@pytest.mark.slow
def test_classes_in_one_tree_and_apart_are_estimated_exactly(tmp_path: Path) -> None:
    for strategy in ("multi_output_tree", "one_output_per_tree"):
        folder = tmp_path / strategy
        folder.mkdir()
        model = {"trees": 1, "depth": 3, "multi_strategy": strategy}
        check_exactly(job_of(folder, model, classes=4), folder / "out")


def test_regression_with_validation_rows_is_estimated_exactly(tmp_path: Path) -> None:
    data = {"validation_size": 0.25}
    check_exactly(job_of(tmp_path, {"trees": 2, "depth": 3}, regression=True, data=data), tmp_path / "out")


@pytest.mark.slow
def test_later_trees_are_like_the_first(tmp_path: Path) -> None:
    """Twelve trees are estimated from eight; costs vary with a tree's shape, so the limits are generous."""
    record, _ = trained(job_of(tmp_path, {"trees": 12, "depth": 4}), tmp_path / "out")
    expected, cost = record.estimate, record.cost
    assert expected is not None
    assert expected.encryptions == cost.encryptions
    for name in ("additions", "decryptions", "ciphertexts", "messages"):
        assert getattr(expected, name) == pytest.approx(getattr(cost, name), rel=0.5)
    assert sum(expected.bytes.values()) == pytest.approx(cost.bytes, rel=0.25)


@pytest.mark.slow
def test_rows_beyond_the_sample_are_scaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelward.planning.dry_run._CELLS", 1)
    monkeypatch.setattr("labelward.planning.dry_run._LEAST_ROWS", 300)
    job = job_of(tmp_path, {"trees": 2, "depth": 3}, rows=1500)
    record, flows = trained(job, tmp_path / "out")
    model, expected = model_of(job), record.estimate
    assert expected is not None
    assert (model.dry(()).sample.rows, model.dry(()).scale) == (300, 4.0)
    assert expected.encryptions == record.cost.encryptions
    assert expected.additions == pytest.approx(record.cost.additions, rel=0.5)
    rows = flows["active", "telco", "TreeRows"]
    told = model.operations(())["active"].flows["telco", "TreeRows"]
    assert (round(told.messages), round(told.bytes)) == rows
    model.engine.close()


@pytest.mark.slow
def test_rows_in_many_blocks_and_stretches_are_estimated_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labelward.protocols.secureboost.row_encoding.BLOCK_ROWS", 100)
    monkeypatch.setattr("labelward.protocols.secureboost.row_blocks.CHUNK_ROWS", 300)
    check_exactly(job_of(tmp_path, {"trees": 2, "depth": 3}, rows=1500), tmp_path / "out")
    forest = {"kind": "forest", "trees": 2, "depth": 2, "row_fraction": 0.3, "replace": True}
    for engine in (PAILLIER, {"engine": "plain", "insecure": True}):
        folder = tmp_path / str(engine["engine"])
        folder.mkdir()
        check_exactly(job_of(folder, forest, rows=600, encryption=engine), folder / "out")


@pytest.mark.slow
def test_defenses_act_as_they_do_in_the_run(tmp_path: Path) -> None:
    """A defense that refuses splits makes trees smaller, and those of the dry run likewise."""
    job = job_of(tmp_path, {"trees": 2, "depth": 3}, defense=[{"kind": "id-lmid", "xi": 0.02}])
    defended = variant_without_defaults(with_defaults(job).variants()[1]).slug
    messages = []
    for slug in ("none", defended):
        train_variant(job, tmp_path / slug, seed=1, variant=slug, forecast=forecast)
        record = read_record(tmp_path / slug)
        assert record.estimate is not None
        for name in ("encryptions", "additions", "decryptions", "messages"):
            assert getattr(record.estimate, name) == getattr(record.cost, name), name
        assert sum(record.estimate.bytes.values()) == record.cost.bytes
        messages.append(record.cost.messages)
    assert messages[1] < messages[0]


def test_any_engine_is_priced_by_its_own_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path, {"trees": 1, "depth": 2}, encryption={"engine": "plain", "insecure": True})
    plain = estimate_cost(job).estimate
    monkeypatch.setattr(
        PlainEngine, "ciphertext_format", lambda *_: CiphertextFormat(size=1000, fits=(2, 3)), raising=False
    )
    other = estimate_cost(job).estimate
    assert (plain.encryptions, other.encryptions) == (320, 640)
    assert other.additions == 2 * plain.additions
    assert other.bytes["active"] - plain.bytes["active"] == pytest.approx(2 * 320 * (2 * 1000 - 24), rel=0.01)


def test_trees_without_a_passive_party_are_not_counted(tmp_path: Path) -> None:
    model = {"trees": 2, "depth": 3}
    for mode, rounds in (("add", 2), ("replace", 1)):
        folder = tmp_path / mode
        folder.mkdir()
        job = job_of(folder, model, defense=[{"kind": "local-trees", "count": 1, "mode": mode}])
        train_variant(
            job,
            folder / "out",
            seed=1,
            variant=variant_without_defaults(with_defaults(job).variants()[1]).slug,
            forecast=forecast,
        )
        record = read_record(folder / "out")
        assert record.estimate is not None
        assert record.estimate.encryptions == record.cost.encryptions == rounds * record.rows.train


@pytest.mark.parametrize("engine", ["paillier", "plain"])
def test_estimates_have_the_phases_of_runs(engine: str, tmp_path: Path) -> None:
    encryption = PAILLIER if engine == "paillier" else {"engine": "plain", "insecure": True}
    record, _ = trained(job_of(tmp_path, {"trees": 2, "depth": 3}, encryption=encryption), tmp_path / "out")
    expected = record.estimate
    assert expected is not None
    assert set(record.phases) == set(expected.phases) == set(expected.memory) == {"active", "telco", "shop"}
    for party, phases in expected.phases.items():
        assert all(seconds >= 0 for seconds in phases.values())
        assert phases.keys() - record.phases[party].keys() <= {"other"}
        assert record.phases[party].keys() - phases.keys() <= {"wait", "predict"}
    assert expected.seconds == pytest.approx(sum(sum(each.values()) for each in expected.phases.values()))
    assert min(expected.memory.values()) > 0
    assert all(expected.phases["telco"][phase] > 0 for phase in ("prepare rows", "aggregate", "seal"))


def test_an_estimate_of_a_job(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"trees": 4, "depth": 3}, run={"seeds": [5, 6]})
    found = estimate_cost(job, link=NetworkLink(bandwidth=8.0, latency=100.0))
    assert (found.dataset, found.variant, found.generated) == ("table", "none", ())
    assert found.parties == ("active", "telco", "shop")
    assert found.sample == (found.rows, 4)
    assert found.costs.engine == "paillier"
    assert found.costs.bits == 512
    assert all(getattr(found.costs, name) >= 0 for name in ("key", "owner_tables", "public_tables", "travel"))
    assert all(getattr(found.costs, name) > 0 for name in ("encrypt", "prepare", "add", "seal", "decrypt"))
    between = found.estimate.between
    assert between is not None
    size = sum(found.estimate.bytes.values())
    assert between.line == pytest.approx(size / 1e6, rel=1e-4)  # 8 million bits a second; bytes are whole, by party
    assert between.waiting == pytest.approx(between.turns * 0.1, abs=0.05)  # of a mean of trees, rounded
    assert between.seconds > between.waiting
    assert between.own == pytest.approx({name: sum(each.values()) for name, each in found.estimate.phases.items()})
    slow = estimate_cost(job, link=NetworkLink(bandwidth=0.008, latency=100.0)).estimate.between
    assert slow is not None
    assert slow.seconds > max(slow.line, between.seconds)  # a thousand times slower, the line is what takes time
    again = msgspec.json.decode(msgspec.json.encode(found.estimate), type=type(found.estimate))
    assert again == found.estimate


def test_trees_side_by_side_wait_once_and_parties_in_turn_wait_each(tmp_path: Path) -> None:
    """Trees of a forest wait at the same time, as often as the deepest of them; in the mixed mode all turns add up."""
    link = NetworkLink(bandwidth=100.0, latency=10.0)

    def turns(**model: Any) -> tuple[int, dict[str, float]]:
        costs = model_of(job_of(tmp_path, {"depth": 2, "trees": 3, **model}))
        works, found = costs.operations(()), costs.estimate((), link).between
        costs.engine.close()
        assert found is not None
        return found.turns, {name: work.turns for name, work in works.items()}

    forest = {"kind": "forest", "row_fraction": 0.7}
    at_once, _ = turns(**forest, trees_at_once=3)
    alone, _ = turns(**forest, trees_at_once=1)
    others = 3  # handshake and prediction
    assert (alone - others) / 3 <= at_once - others <= 2 * 2  # at most two turns a level
    together, each = turns()
    assert together == max(each["telco"], each["shop"])
    apart, each = turns(mode="mixed")
    assert apart == each["telco"] + each["shop"]


@pytest.mark.parametrize(("mode", "adds"), [("standard", False), ("layered", True), ("mixed", True)])
def test_own_sums_overlap_only_if_all_parties_may_own_the_splits(mode: str, adds: bool, tmp_path: Path) -> None:
    model = model_of(job_of(tmp_path, {"trees": 3, "depth": 3, "mode": mode}))
    shape, works = model.shape(()), model.operations(())
    costs, link = model.unit_costs(()), NetworkLink(bandwidth=1e6, latency=0.0)
    model.engine.close()
    found = estimate(works, shape, model.dry(()), costs)
    phases = {name: dict.fromkeys(each, 0.0) for name, each in found.phases.items()}
    phases["active"]["own sums"], phases["telco"]["aggregate"] = 5.0, 3.0
    told = deployment_time(msgspec.structs.replace(found, phases=phases), works, shape, link)
    assert told.seconds == pytest.approx(8.0 if adds else 5.0, abs=0.1)  # what is sent takes next to no time


@pytest.mark.slow
def test_prepared_rows_beyond_the_limit_are_not_in_memory(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"trees": 1, "depth": 2}, rows=3000)
    limited = job_of(tmp_path, {"trees": 1, "depth": 2}, rows=3000, encryption={**PAILLIER, "memory_limit": 1000})
    whole, less = (estimate_cost(each).estimate.memory for each in (job, limited))
    assert whole["active"] == less["active"]
    rows = 2400 * 128  # four fifths of the rows are trained on; a ciphertext of a 512-bit key has 128 bytes
    assert whole["telco"] - less["telco"] == pytest.approx(1.25 * rows, abs=1000)


@pytest.mark.parametrize("rows", [100, 1_000_000])
def test_the_meter_is_estimated_to_read_when_it_does(rows: int) -> None:
    """A second for each tree of a reading: all readings of the first trees, and the last."""
    for trees in range(1, 41):
        seen = range(1, min(trees, leakage_meter.MOST_TREES) + 1)
        read = [one for one in seen if one * rows <= leakage_meter._LIGHT or one == trees or leakage_meter._is_due(one)]
        told = monitor_seconds((1 / rows, 0.0), [1], rows=(10, rows), trees={"telco": trees})
        assert told == pytest.approx(sum(read))


NETWORK = {"listener": "bank", "address": "127.0.0.1:1"}


def apart(folder: Path, here: tuple[str, ...], **more: Any) -> Job:
    """A job between companies, of which some have their tables here."""
    path = Path(table(folder))
    text = path.read_text().splitlines()
    path.write_text(
        "\n".join([f'"id",{text[0]}', *(f"{number},{line}" for number, line in enumerate(text[1:]))]) + "\n"
    )
    parties = {
        "bank": {"table": str(path), "id": "id", "label": "y", "columns": ["c0", "c1"]},
        "telco": {"table": str(path), "id": "id", "columns": ["c2", "c3", "c4"]},
    }
    for name, role in (("bank", "active"), ("telco", "passive")):
        if name not in here:
            parties[name] = {"role": role}
    sections = {"parties": parties, "model": {"trees": 2, "depth": 3}, "encryption": PAILLIER, "network": NETWORK}
    return parse_job({**sections, **more})


@pytest.mark.parametrize(
    ("here", "remote"),
    [
        (("bank",), RemoteShape(columns={"telco": 3})),
        (("telco",), RemoteShape(columns={"bank": 2})),
        (("telco",), RemoteShape(columns={"bank": 0}, classes=0)),
        ((), RemoteShape(rows=400, columns={"bank": 2, "telco": 3}, classes=5)),
    ],
)
def test_remote_columns_are_synthetic(here: tuple[str, ...], remote: RemoteShape, tmp_path: Path) -> None:
    found = estimate_cost(apart(tmp_path, here), remote=remote)
    assert found.rows == 320
    assert set(found.generated) == {"bank", "telco"} - set(here)
    assert found.estimate.encryptions == 2 * 320
    assert found.estimate.decryptions > 0
    assert found.parties == ("bank", "telco")


@pytest.mark.parametrize("rows", [401, 403])
def test_synthetic_splits_have_the_sizes_of_real_ones(rows: int, tmp_path: Path) -> None:
    """Shares are rounded up."""
    here, nowhere = apart(tmp_path, ("bank",)), apart(tmp_path, ())
    lines = Path(table(tmp_path, rows)).read_text().splitlines()
    text = [f'"id",{lines[0]}', *(f"{number},{line}" for number, line in enumerate(lines[1:]))]
    (tmp_path / "table.csv").write_text("\n".join(text) + "\n")
    sections = [replace(job, data=replace(job.data, test_size=0.2, validation_size=0.15)) for job in (here, nowhere)]
    real = estimate_cost(sections[0], remote=RemoteShape(columns={"telco": 3}))
    made_up = estimate_cost(sections[1], remote=RemoteShape(rows=rows, columns={"bank": 2, "telco": 3}))
    assert made_up.rows == real.rows


@pytest.mark.parametrize("objective", ["count:poisson", "reg:tweedie"])
def test_synthetic_regression_targets_fit_every_objective(objective: str, tmp_path: Path) -> None:
    job = apart(tmp_path, ("telco",), model={"trees": 1, "depth": 2, "objective": objective})
    job = replace(job, data=replace(job.data, task="regression"))
    assert estimate_cost(job, remote=RemoteShape(columns={"bank": 2})).estimate.encryptions == 320


def test_attacks_and_budgets_are_checked(tmp_path: Path) -> None:
    model = {"trees": 1, "depth": 2}
    with refused(JobError, "unknown", field="[[attack]] 1", value="foo"):
        estimate_cost(job_of(tmp_path, model, attack=[{"kind": "id2graph", "foo": 1}]))
    assert not estimate_cost(job_of(tmp_path, model, attack=[{"kind": "id2graph"}])).budgeted
    assert estimate_cost(job_of(tmp_path, model, leakage={"budget": 0.3})).budgeted


@pytest.mark.parametrize(
    ("defense", "value"),
    [
        ({"kind": "grafting"}, None),
        ({"kind": "min-bin-rows", "rows": 10}, ("before_histograms",)),
        ({"kind": "id-lmid", "xi": 0.1, "party": "telco"}, ("before_instance_space", "split_candidates")),
        ({"kind": "local-trees", "count": 100}, 100),
        ({"kind": "purity-threshold", "threshold": 0.1}, 0.1),
    ],
)
def test_all_variants_are_checked_as_by_an_audit(defense: dict[str, Any], value: Any, tmp_path: Path) -> None:
    """Also where the undefended variant is the one that is estimated."""
    with refused(PolicyError, "inapplicable", value=value):
        estimate_cost(job_of(tmp_path, {"trees": 2, "depth": 2}, defense=[defense]))


def test_another_variant_than_the_one_that_is_asked_for_is_not_checked(tmp_path: Path) -> None:
    chosen = {"kind": "randomized-response", "epsilon": 1.0}
    job = job_of(tmp_path, {"trees": 2, "depth": 2}, defense=[chosen, {"kind": "local-trees", "count": 100}])
    assert estimate_cost(job, variant="randomized-response-epsilon-1.0").defended


def test_the_active_partys_defenses_are_checked_where_others_are_remote(tmp_path: Path) -> None:
    job = apart(tmp_path, ("bank",), defense=[{"kind": "local-trees", "count": 100}])
    with refused(PolicyError, "inapplicable", value=100):
        estimate_cost(job, remote=RemoteShape(columns={"telco": 3}))


@pytest.mark.parametrize(("bandwidth", "latency"), [(0.0, 1.0), (1.0, -1.0), (float("nan"), 1.0), (1.0, float("inf"))])
def test_links_out_of_range(bandwidth: float, latency: float) -> None:
    wrong = ("--latency", latency) if bandwidth == 1 else ("--bandwidth", bandwidth)
    with refused(JobError, "range", field=wrong[0], value=wrong[1]):
        NetworkLink(bandwidth=bandwidth, latency=latency)


def test_remote_shapes_that_cannot_be(tmp_path: Path) -> None:
    for given, field, value in (
        ({"rows": 9}, "--rows", 9),
        ({"columns": {"a": -1}}, "--columns", -1),
        ({"classes": 1}, "--classes", 1),
    ):
        with refused(JobError, "range", field=field, value=value):
            RemoteShape(**given)
    both = {"bank": 2, "telco": 2}
    cases: list[tuple[tuple[str, ...], RemoteShape, Code, str, int, str]] = [
        (("bank",), RemoteShape(columns={"telco": 1}, classes=3), "conflict", "--classes", 3, "labels are here"),
        (("telco",), RemoteShape(columns={"bank": 1}, classes=5000), "range", "--classes", 5000, "320 training rows"),
        (("telco",), RemoteShape(columns={"bank": 999_999}), "range", "--columns", 999_999 * 400, "of 400 rows"),
        ((), RemoteShape(rows=10**23, columns=both), "range", "--columns", 4 * 10**23, "a plan makes up"),
    ]
    for here, remote, code, field, value, about in cases:
        with refused(JobError, code, field=field, value=value) as caught:
            estimate_cost(apart(tmp_path, here), remote=remote)
        assert about in caught.value.reason
    job = apart(tmp_path, ("telco",))
    with refused(JobError, "conflict", field="--classes", value=3):
        estimate_cost(
            replace(job, data=replace(job.data, task="regression")), remote=RemoteShape(columns={"bank": 1}, classes=3)
        )
    with refused(JobError, "conflict", field="--classes", value=2):
        estimate_cost(job_of(tmp_path, {"trees": 1}), remote=RemoteShape(classes=2))


def test_what_cannot_be_planned_is_refused(tmp_path: Path) -> None:
    with refused(JobError, "missing", field="[parties.telco] table") as caught:
        estimate_cost(apart(tmp_path, ("bank",)))
    assert "--columns telco=COUNT" in caught.value.reason
    with refused(JobError, "missing", field="--rows"):
        estimate_cost(apart(tmp_path, ()), remote=RemoteShape(columns={"bank": 1, "telco": 1}))
    with refused(JobError, "conflict", field="--columns", value="bank"):
        estimate_cost(apart(tmp_path, ("bank",)), remote=RemoteShape(columns={"bank": 1, "telco": 1}))
    with refused(JobError, "unknown", field="--columns", value="teleco") as caught:
        estimate_cost(apart(tmp_path, ("bank",)), remote=RemoteShape(columns={"teleco": 1}))
    assert "'telco'?" in caught.value.reason
    with refused(JobError, "conflict", field="--rows", value=70) as caught:
        estimate_cost(apart(tmp_path, ("bank",)), remote=RemoteShape(rows=70, columns={"telco": 1}))
    assert "has 400" in caught.value.reason
    with refused(JobError, "conflict", field="--rows", value=70):
        estimate_cost(job_of(tmp_path, {"trees": 1}), remote=RemoteShape(rows=70))
    with refused(InputError, "columns", field="table 'table'", value="labl"):
        estimate_cost(job_of(tmp_path, {"trees": 1}, data={"label": "labl"}))
    with refused(JobError, "unknown", value="no-such"):
        estimate_cost(job_of(tmp_path, {"trees": 1}), variant="no-such")
    with refused(JobError, "unknown", value=""):
        estimate_cost(job_of(tmp_path, {"trees": 1}), variant="")
