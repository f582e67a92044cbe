"""Plans against what runs count of themselves: operations, ciphertexts, messages and bytes; times are only positive."""

from __future__ import annotations

from collections.abc import Callable
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
from labelward.errors import Code, InputError, JobError
from labelward.evaluate.costs.brought import Elsewhere
from labelward.evaluate.costs.estimate import Line, between, estimate
from labelward.evaluate.costs.meter import meter_seconds
from labelward.evaluate.costs.prospect import Prospect, foresee
from labelward.evaluate.costs.units import UnitCosts, training_cost
from labelward.evaluate.plan import plan
from labelward.federation.components import make_engine, with_defaults
from labelward.federation.leakage_monitor import with_monitor
from labelward.federation.train import train_variant
from labelward.he import Counts
from labelward.job import Job, parse_job
from labelward.policy.chain import PolicyChain
from labelward.runs.schema import read_run
from labelward.runs.short_names import variant_without_defaults
from labelward.runs.training_record import TrainingRecord, read_record
from refusals import refused

GREETING = ("Hello", "Begin", "Ready", "KeyOffer")
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


def table(folder: Path, rows: int = 400, *, quantities: bool = False, classes: int = 2) -> str:
    """Write a table with missing values, a mostly constant column and a categorical one; return its path."""
    rng = np.random.default_rng(3)
    columns: dict[str, Any] = {f"c{number}": rng.normal(size=rows) for number in range(7)}
    score = columns["c0"] + 2 * columns["c4"] + columns["c5"] + 0.3 * rng.normal(size=rows)
    columns["c1"] = np.where(rng.random(rows) < 0.9, 0.0, columns["c1"])
    columns["c5"] = pa.array(columns["c5"], mask=rng.random(rows) < 0.2)
    columns["c6"] = pa.array([["red", "green", "blue"][each] for each in rng.integers(0, 3, rows)])
    edges = np.quantile(score, np.arange(1, classes) / classes)
    columns["y"] = score if quantities else np.searchsorted(edges, score)
    path = folder / "table.csv"
    pyarrow.csv.write_csv(pa.table(columns), path)
    return str(path)


def job_of(folder: Path, model: dict[str, Any], **more: Any) -> Job:
    made = {name: more.pop(name) for name in ("quantities", "classes", "rows") if name in more}
    data = {"table": table(folder, **made), "label": "y", **more.pop("data", {})}
    if made.get("quantities"):
        data["task"] = "regression"
    parties = {"active": ["c0", "c1", "c2"], "telco": ["c3", "c4"], "shop": ["c5", "c6"]}
    sections = {"data": data, "parties": parties, "model": model, "encryption": PAILLIER, **more}
    return parse_job(sections)


def foreseen(job: Job) -> Prospect:
    job = with_defaults(job)
    prospect = foresee(job, load_dataset(job, 1, load_tables(job)), make_engine(job.encryption), 1)
    assert prospect is not None
    return prospect


def trained(job: Job, out: Path) -> tuple[TrainingRecord, dict[tuple[str, str, str], tuple[int, int]]]:
    """Train; return its record, and messages and bytes by sender, receiver and type."""
    train_variant(job, out, seed=1)
    views = [(party.name, out / party.name / "view") for party in job.parties]
    flows = wire_flows(views, active="active", secure=True)
    return read_record(out), {
        (flow.sender, flow.receiver, flow.type): (flow.messages, flow.bytes)
        for flow in flows
        if flow.type not in GREETING
    }


def check_exactly(job: Job, out: Path) -> None:
    record, flows = trained(job, out)
    expected = record.estimate
    assert expected is not None
    for name in ("encryptions", "additions", "decryptions", "ciphertexts"):
        assert getattr(expected, name) == getattr(record.cost, name), name
    prospect = foreseen(job)
    works = prospect.works(with_monitor(job, load_dataset(with_defaults(job), 1), (), seed=1))
    told = {
        (sender, receiver, kind): (round(flow.messages), round(flow.bytes))
        for sender, work in works.items()
        for (receiver, kind), flow in work.flows.items()
        if kind != "greeting"
    }
    assert told.keys() == flows.keys()
    for key, (messages, size) in flows.items():
        spare = 8 if key[2] == "ChosenSplits" else 0  # the number of a split above 127 takes a byte more than planned
        assert told[key] == (messages, pytest.approx(size, abs=spare)), key
    assert sum(expected.bytes.values()) == pytest.approx(record.cost.bytes, rel=0.05)
    prospect.engine.close()


@pytest.mark.parametrize("shape", SHAPES)
def test_what_the_first_trees_take_is_foreseen_exactly(shape: str, tmp_path: Path) -> None:
    check_exactly(job_of(tmp_path, SHAPES[shape]), tmp_path / "out")


def test_classes_in_one_tree_and_apart_are_foreseen_exactly(tmp_path: Path) -> None:
    for strategy in ("multi_output_tree", "one_output_per_tree"):
        folder = tmp_path / strategy
        folder.mkdir()
        model = {"trees": 1, "depth": 3, "multi_strategy": strategy}
        check_exactly(job_of(folder, model, classes=4), folder / "out")


def test_quantities_with_validation_rows_are_foreseen_exactly(tmp_path: Path) -> None:
    data = {"validation_size": 0.25}
    check_exactly(job_of(tmp_path, {"trees": 2, "depth": 3}, quantities=True, data=data), tmp_path / "out")


def test_later_trees_are_like_the_first(tmp_path: Path) -> None:
    """Twelve trees are foreseen from eight; what a tree takes varies with its shape, so the limits are generous."""
    record, _ = trained(job_of(tmp_path, {"trees": 12, "depth": 4}), tmp_path / "out")
    expected, cost = record.estimate, record.cost
    assert expected is not None
    assert expected.encryptions == cost.encryptions
    for name in ("additions", "decryptions", "ciphertexts", "messages"):
        assert getattr(expected, name) == pytest.approx(getattr(cost, name), rel=0.5)
    assert sum(expected.bytes.values()) == pytest.approx(cost.bytes, rel=0.25)


def test_rows_beyond_those_looked_at_are_scaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelward.evaluate.costs.dry._CELLS", 1)
    monkeypatch.setattr("labelward.evaluate.costs.dry._LEAST_ROWS", 300)
    job = job_of(tmp_path, {"trees": 2, "depth": 3}, rows=1500)
    record, flows = trained(job, tmp_path / "out")
    prospect, expected = foreseen(job), record.estimate
    assert expected is not None
    assert (prospect.dry.rows, prospect.dry.scale) == (300, 4.0)
    assert expected.encryptions == record.cost.encryptions
    assert expected.additions == pytest.approx(record.cost.additions, rel=0.5)
    rows = flows["active", "telco", "TreeRows"]
    told = prospect.works(())["active"].flows["telco", "TreeRows"]
    assert (round(told.messages), round(told.bytes)) == rows
    prospect.engine.close()


def test_rows_in_many_blocks_and_stretches_are_foreseen_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("protocols.secureboost.row_encoding", "evaluate.costs.work"):
        monkeypatch.setattr(f"labelward.{module}.BLOCK_ROWS", 100)
    for module in ("protocols.secureboost.row_blocks", "evaluate.costs.dry"):
        monkeypatch.setattr(f"labelward.{module}.CHUNK_ROWS", 300)
    check_exactly(job_of(tmp_path, {"trees": 2, "depth": 3}, rows=1500), tmp_path / "out")
    forest = {"kind": "forest", "trees": 2, "depth": 2, "row_fraction": 0.3, "replace": True}
    for engine in (PAILLIER, {"engine": "plain", "insecure": True}):
        folder = tmp_path / str(engine["engine"])
        folder.mkdir()
        check_exactly(job_of(folder, forest, rows=600, encryption=engine), folder / "out")


def test_trees_without_a_passive_party_are_not_counted(tmp_path: Path) -> None:
    model = {"trees": 2, "depth": 3}
    for mode, rounds in (("add", 2), ("replace", 1)):
        folder = tmp_path / mode
        folder.mkdir()
        job = job_of(folder, model, defense=[{"kind": "local-trees", "count": 1, "mode": mode}])
        train_variant(
            job, folder / "out", seed=1, variant=variant_without_defaults(with_defaults(job).variants()[1]).slug
        )
        record = read_record(folder / "out")
        assert record.estimate is not None
        assert record.estimate.encryptions == record.cost.encryptions == rounds * record.rows.train


@pytest.mark.parametrize("engine", ["paillier", "plain"])
def test_estimates_stand_beside_measured_phases(engine: str, tmp_path: Path) -> None:
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


def test_a_plan_tells_all_of_it(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"trees": 4, "depth": 3}, run={"seeds": [5, 6]})
    found = plan(job, line=Line(bandwidth=8.0, latency=100.0))
    assert (found.dataset, found.variant, found.generated) == ("table", "none", ())
    assert found.parties == ("active", "telco", "shop")
    assert found.looked_at == (found.rows, 4)
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
    slow = plan(job, line=Line(bandwidth=0.008, latency=100.0)).estimate.between
    assert slow is not None
    assert slow.seconds > max(slow.line, between.seconds)  # a thousand times slower, the line is what takes time
    again = msgspec.json.decode(msgspec.json.encode(found.estimate), type=type(found.estimate))
    assert again == found.estimate


def test_waiting_between_companies_is_for_trees_side_by_side_or_one_after_the_other(tmp_path: Path) -> None:
    """Three trees of equal turns: of a forest at the same time; in the mixed mode the turns of all parties add up."""
    line = Line(bandwidth=100.0, latency=10.0)

    def turns(**model: Any) -> tuple[int, dict[str, float]]:
        job = with_defaults(job_of(tmp_path, {"depth": 2, "trees": 3, **model}))
        prospect = foreseen(job)
        works, found = prospect.works(()), prospect.estimate((), line).between
        prospect.engine.close()
        assert found is not None
        return found.turns, {name: work.turns for name, work in works.items()}

    forest = {"kind": "forest", "row_fraction": 0.7}
    at_once, _ = turns(**forest, trees_at_once=3)
    alone, _ = turns(**forest, trees_at_once=1)
    greeting = 4
    assert at_once - greeting == pytest.approx((alone - greeting) / 3, abs=0.5)
    together, each = turns()
    assert together == max(each["telco"], each["shop"])
    apart, each = turns(mode="mixed")
    assert apart == each["telco"] + each["shop"]


@pytest.mark.parametrize(("mode", "adds"), [("standard", False), ("layered", True), ("mixed", True)])
def test_own_sums_are_made_meanwhile_only_where_all_own_the_splits(mode: str, adds: bool, tmp_path: Path) -> None:
    prospect = foreseen(job_of(tmp_path, {"trees": 3, "depth": 3, "mode": mode}))
    run, works = prospect.run(PolicyChain(())), prospect.works(())
    costs, line = prospect.units(()), Line(bandwidth=1e6, latency=0.0)
    prospect.engine.close()
    found = estimate(works, run, prospect.dry, costs)
    phases = {name: dict.fromkeys(each, 0.0) for name, each in found.phases.items()}
    phases["active"]["own sums"], phases["telco"]["aggregate"] = 5.0, 3.0
    told = between(msgspec.structs.replace(found, phases=phases), works, run, line)
    assert told.seconds == pytest.approx(8.0 if adds else 5.0, abs=0.1)  # what is sent takes next to no time


def test_prepared_rows_beyond_the_limit_are_not_in_memory(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"trees": 1, "depth": 2}, rows=3000)
    limited = job_of(tmp_path, {"trees": 1, "depth": 2}, rows=3000, encryption={**PAILLIER, "memory_limit": 1000})
    whole, less = (plan(each).estimate.memory for each in (job, limited))
    assert whole["active"] == less["active"]
    rows = 2400 * 128  # four fifths of the rows are trained on; a ciphertext of a 512-bit key has 128 bytes
    assert whole["telco"] - less["telco"] == pytest.approx(1.25 * rows, abs=1000)


def test_an_audit_keeps_what_was_expected(job: Callable[..., Job], finished: tuple[Path, list[Any]]) -> None:
    out, rows = finished
    for row in rows:
        run = read_run(out, row.defense, row.seed)
        assert run is not None
        assert run.estimate is not None
        assert set(run.estimate.phases) == set(run.phases)
        if not row.defense:
            assert run.estimate.encryptions == row.cost.encryptions
            assert run.estimate.decryptions == row.cost.decryptions


@pytest.mark.parametrize("rows", [100, 1_000_000])
def test_the_meter_is_expected_to_read_when_it_does(rows: int) -> None:
    """A second for each tree of a reading: all readings of the first trees, and the last."""
    for trees in range(1, 41):
        seen = range(1, min(trees, leakage_meter.MOST_TREES) + 1)
        read = [one for one in seen if one * rows <= leakage_meter._LIGHT or one == trees or leakage_meter._is_due(one)]
        told = meter_seconds((1 / rows, 0.0), [1], rows=(10, rows), takes_part={"telco": trees})
        assert told == pytest.approx(sum(read))


def test_the_training_cost_is_that_of_the_paper() -> None:
    """Equation 5: N_enc · T_enc + N_dec · T_dec + N_add · T_add."""
    costs = UnitCosts(
        engine="paillier",
        kernel="",
        bits=2048,
        workers=1,
        key=9.0,
        owner_tables=9.0,
        public_tables=9.0,
        encrypt=0.25,
        prepare=9.0,
        sum_message=9.0,
        add=0.5,
        seal_message=9.0,
        seal=9.0,
        open_message=9.0,
        decrypt=2.0,
        travel=9.0,
    )
    counts = Counts(encryptions=8, additions=6, decryptions=3, ciphertexts=100, logical_sums=100, bytes=100)
    assert training_cost(counts, costs) == 8 * 0.25 + 3 * 2.0 + 6 * 0.5
    assert training_cost(Counts(), costs) == 0.0


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
    ("here", "elsewhere"),
    [
        (("bank",), Elsewhere(columns={"telco": 3})),
        (("telco",), Elsewhere(columns={"bank": 2})),
        (("telco",), Elsewhere(columns={"bank": 0}, classes=0)),
        ((), Elsewhere(rows=400, columns={"bank": 2, "telco": 3}, classes=5)),
    ],
)
def test_data_elsewhere_are_made_up_in_their_shape(here: tuple[str, ...], elsewhere: Elsewhere, tmp_path: Path) -> None:
    found = plan(apart(tmp_path, here), elsewhere=elsewhere)
    assert found.rows == 320
    assert set(found.generated) == {"bank", "telco"} - set(here)
    assert found.estimate.encryptions == 2 * 320
    assert found.estimate.decryptions > 0
    assert found.parties == ("bank", "telco")


@pytest.mark.parametrize("rows", [401, 403])
def test_sides_of_rows_elsewhere_are_as_large_as_they_will_be(rows: int, tmp_path: Path) -> None:
    """Shares are rounded up."""
    here, nowhere = apart(tmp_path, ("bank",)), apart(tmp_path, ())
    lines = Path(table(tmp_path, rows)).read_text().splitlines()
    text = [f'"id",{lines[0]}', *(f"{number},{line}" for number, line in enumerate(lines[1:]))]
    (tmp_path / "table.csv").write_text("\n".join(text) + "\n")
    sections = [replace(job, data=replace(job.data, test_size=0.2, validation_size=0.15)) for job in (here, nowhere)]
    real = plan(sections[0], elsewhere=Elsewhere(columns={"telco": 3}))
    made_up = plan(sections[1], elsewhere=Elsewhere(rows=rows, columns={"bank": 2, "telco": 3}))
    assert made_up.rows == real.rows


@pytest.mark.parametrize("objective", ["count:poisson", "reg:tweedie"])
def test_quantities_elsewhere_fit_every_objective(objective: str, tmp_path: Path) -> None:
    job = apart(tmp_path, ("telco",), model={"trees": 1, "depth": 2, "objective": objective})
    job = replace(job, data=replace(job.data, task="regression"))
    assert plan(job, elsewhere=Elsewhere(columns={"bank": 2})).estimate.encryptions == 320


def test_attacks_and_budgets_are_looked_at(tmp_path: Path) -> None:
    model = {"trees": 1, "depth": 2}
    with refused(JobError, "unknown", field="[[attack]] 1", value="foo"):
        plan(job_of(tmp_path, model, attack=[{"kind": "id2graph", "foo": 1}]))
    assert not plan(job_of(tmp_path, model, attack=[{"kind": "id2graph"}])).refusing
    assert plan(job_of(tmp_path, model, leakage={"budget": 0.3})).refusing


@pytest.mark.parametrize(("bandwidth", "latency"), [(0.0, 1.0), (1.0, -1.0), (float("nan"), 1.0), (1.0, float("inf"))])
def test_what_is_no_line(bandwidth: float, latency: float) -> None:
    wrong = ("--latency", latency) if bandwidth == 1 else ("--bandwidth", bandwidth)
    with refused(JobError, "range", field=wrong[0], value=wrong[1]):
        Line(bandwidth=bandwidth, latency=latency)


def test_what_cannot_lie_elsewhere(tmp_path: Path) -> None:
    for given, field, value in (
        ({"rows": 9}, "--rows", 9),
        ({"columns": {"a": -1}}, "--columns", -1),
        ({"classes": 1}, "--classes", 1),
    ):
        with refused(JobError, "range", field=field, value=value):
            Elsewhere(**given)
    both = {"bank": 2, "telco": 2}
    cases: list[tuple[tuple[str, ...], Elsewhere, Code, str, int, str]] = [
        (("bank",), Elsewhere(columns={"telco": 1}, classes=3), "conflict", "--classes", 3, "labels are here"),
        (("telco",), Elsewhere(columns={"bank": 1}, classes=5000), "range", "--classes", 5000, "320 training rows"),
        (("telco",), Elsewhere(columns={"bank": 999_999}), "range", "--columns", 999_999 * 400, "of 400 rows"),
        ((), Elsewhere(rows=10**23, columns=both), "range", "--columns", 4 * 10**23, "a plan makes up"),
    ]
    for here, elsewhere, code, field, value, about in cases:
        with refused(JobError, code, field=field, value=value) as caught:
            plan(apart(tmp_path, here), elsewhere=elsewhere)
        assert about in caught.value.reason
    job = apart(tmp_path, ("telco",))
    with refused(JobError, "conflict", field="--classes", value=3):
        plan(
            replace(job, data=replace(job.data, task="regression")), elsewhere=Elsewhere(columns={"bank": 1}, classes=3)
        )
    with refused(JobError, "conflict", field="--classes", value=2):
        plan(job_of(tmp_path, {"trees": 1}), elsewhere=Elsewhere(classes=2))


def test_what_cannot_be_planned_is_refused(tmp_path: Path) -> None:
    with refused(JobError, "missing", field="[parties.telco] table") as caught:
        plan(apart(tmp_path, ("bank",)))
    assert "--columns telco=COUNT" in caught.value.reason
    with refused(JobError, "missing", field="--rows"):
        plan(apart(tmp_path, ()), elsewhere=Elsewhere(columns={"bank": 1, "telco": 1}))
    with refused(JobError, "conflict", field="--columns", value="bank"):
        plan(apart(tmp_path, ("bank",)), elsewhere=Elsewhere(columns={"bank": 1, "telco": 1}))
    with refused(JobError, "unknown", field="--columns", value="teleco") as caught:
        plan(apart(tmp_path, ("bank",)), elsewhere=Elsewhere(columns={"teleco": 1}))
    assert "'telco'?" in caught.value.reason
    with refused(JobError, "conflict", field="--rows", value=70) as caught:
        plan(apart(tmp_path, ("bank",)), elsewhere=Elsewhere(rows=70, columns={"telco": 1}))
    assert "has 400" in caught.value.reason
    with refused(JobError, "conflict", field="--rows", value=70):
        plan(job_of(tmp_path, {"trees": 1}), elsewhere=Elsewhere(rows=70))
    with refused(InputError, "columns", field="table 'table'", value="labl"):
        plan(job_of(tmp_path, {"trees": 1}, data={"label": "labl"}))
    with refused(JobError, "unknown", value="no-such"):
        plan(job_of(tmp_path, {"trees": 1}), variant="no-such")
    with refused(JobError, "unknown", value=""):
        plan(job_of(tmp_path, {"trees": 1}), variant="")
