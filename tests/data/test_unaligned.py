"""Rows that only the active party holds: which they are, and that no byte of any message depends on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from labelward.data import VerticalDataset, load_dataset
from labelward.errors import Code, DataError, JobError, PolicyError
from labelward.federation.components import make_engine, model_family, with_defaults
from labelward.federation.simulation import SimulationResult, party_inputs, run_simulation
from labelward.federation.simulation import job_session as session_of
from labelward.job import Job, parse_job
from labelward.messages.codec import decode
from labelward.messages.splitnn import BatchEmbeddings, BatchGradients, EmbeddingAnswer, ValidationEmbeddings
from labelward.party.handshake import RowMasks
from labelward.policy.base import Policy
from labelward.protocols.family import label_vector
from labelward.rng import PrivateSeed, SecureRandom
from labelward.transport import in_process
from refusals import refused

SECRET = PrivateSeed(bytes(PrivateSeed.SIZE))
ROWS = 120
NET = {
    "kind": "splitnn",
    "top": False,
    "bottom": "linear",
    "loss": "logistic",
    "active_bottom": False,
    "epochs": 2,
    "batch_size": 32,
    "patience": 0,
}
Frames = dict[tuple[str, str], list[bytes]]


def table(rows: int, seed: int = 0) -> pa.Table:
    draw = np.random.default_rng(seed)
    label = np.arange(rows) % 2
    own, other = draw.normal(size=(2, rows, 2)) + label[:, None]
    names = draw.choice(["north", "south"], rows).tolist()
    columns = {"a": own[:, 0], "b": own[:, 1], "branch": names, "c": other[:, 0], "d": other[:, 1], "label": label}
    return pa.table({"id": np.arange(rows) + 1000 * seed, **columns})


def common(folder: Path, rows: pa.Table | None = None, **data: Any) -> Job:
    pq.write_table(table(ROWS) if rows is None else rows, folder / "all.parquet")
    given = {"table": str(folder / "all.parquet"), "label": "label", "id": "id", "test_size": 0.25, **data}
    return parse_job(
        {"data": given, "parties": {"active": ["a", "b", "branch"], "telco": ["c"], "shop": ["d"]}, "model": NET}
    )


def own_tables(folder: Path, more: pa.Table | None, **bank: Any) -> Job:
    whole = table(ROWS)
    pq.write_table(whole.select(["id", "a", "b", "branch", "label"]), folder / "bank.parquet")
    pq.write_table(whole.select(["id", "c"]), folder / "telco.parquet")
    pq.write_table(whole.select(["id", "d"]), folder / "shop.parquet")
    own = {"table": str(folder / "bank.parquet"), "label": "label", "columns": ["a", "b", "branch"]}
    if more is not None:
        pq.write_table(more, folder / "more.parquet")
        own["unaligned"] = str(folder / "more.parquet")
    parties = {
        "bank": own | bank,
        "telco": {"table": str(folder / "telco.parquet")},
        "shop": {"table": str(folder / "shop.parquet")},
    }
    return parse_job({"data": {"id": "id", "validation_size": 0.2}, "parties": parties, "model": NET})


def held(job: Job) -> VerticalDataset:
    return load_dataset(job, 1, private={party.name: SECRET for party in job.parties})


def trained(job: Job, data: VerticalDataset, *policies: Policy) -> SimulationResult:
    """Train with every private draw known, so that messages repeat."""
    completed = with_defaults(job)
    family, engine = model_family(completed.model), make_engine(completed.encryption)
    validation, test = data.split.masks()
    masks = RowMasks(validation=validation, test=test)
    chains = {data.parties[0].name: policies}
    family.check(data, chains)

    def protection() -> SecureRandom:
        return SecureRandom(1)

    session = session_of(completed, data.ids.tolist(), engine, seed=1, masks=masks, protections=protection)
    inputs = party_inputs(data.parties, {data.parties[0].name: label_vector(data)})
    return run_simulation(session, family, inputs, engine, policies=chains, protections=protection)


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Frames:
    """Everything that travels, by sender and receiver."""
    seen: Frames = {}
    send = in_process._End.send

    def recorded(end: Any, peer: str, frame: bytes) -> None:
        seen.setdefault((end.party, peer), []).append(frame)
        send(end, peer, frame)

    monkeypatch.setattr(in_process._End, "send", recorded)
    return seen


def test_a_share_of_the_training_rows_is_the_active_partys_alone(tmp_path: Path) -> None:
    whole, some = held(common(tmp_path)), held(common(tmp_path, aligned=0.3))
    own = some.parties[0].unaligned
    assert own is not None
    assert (len(some.train_values), len(own.values), len(some.test_values)) == (27, 63, 30)
    assert np.array_equal(whole.parties[1].test, some.parties[1].test)
    assert some.split.total == len(some.ids) == 57

    def rows(*parts: NDArray[np.float64]) -> list[list[float]]:
        return sorted(np.concatenate(parts).tolist())

    assert rows(some.parties[0].train, own.features) == rows(whole.parties[0].train)
    labels = dict(zip(whole.parties[0].train[:, 0].tolist(), whole.train_values.tolist(), strict=True))
    assert [labels[value] for value in own.features[:, 0].tolist()] == own.values.tolist()
    assert [party.unaligned for party in some.parties[1:]] == [None, None]
    again = load_dataset(
        common(tmp_path, aligned=0.3), 1, private={"active": PrivateSeed(bytes([1] * PrivateSeed.SIZE))}
    )
    assert set(again.train_ids) != set(some.train_ids)


def test_a_table_of_its_own_has_the_columns_and_classes_of_the_first(tmp_path: Path) -> None:
    more = table(10, seed=1)
    data = held(own_tables(tmp_path, more))
    own = data.parties[0].unaligned
    assert own is not None
    assert own.features[:, 0].tolist() == more["a"].to_pylist()
    assert own.values.tolist() == more["label"].to_pylist()
    assert data.parties[0].columns == ("a", "b", "branch")


def test_unaligned_rows_are_in_no_message(tmp_path: Path, frames: Frames) -> None:
    """Undefended every byte is the same; with ``lpsc`` sizes, steps, and all before the first gradient."""
    from labelward.defenses.lpsc import Lpsc

    without, more = own_tables(tmp_path, None), table(50, seed=1)
    found = []
    for job in (without, own_tables(tmp_path, more)):
        for policies in ((), (Lpsc(coding="offset", folds=2),)):
            frames.clear()
            ended = trained(job, held(job), *policies)
            found.append(({pair: list(sent) for pair, sent in frames.items()}, ended))
    (plain, _), (coded, one), (plain_more, _), (coded_more, other) = found
    assert plain == plain_more
    assert sum(map(len, plain.values())) > 20
    assert {pair: [len(frame) for frame in sent] for pair, sent in coded.items()} == {
        pair: [len(frame) for frame in sent] for pair, sent in coded_more.items()
    }
    local = [each.shares["bank"].local.model.state for each in (one, other)]
    assert any((local[0][name].unpack() != local[1][name].unpack()).any() for name in local[0])
    follows, differ = (BatchGradients, BatchEmbeddings, ValidationEmbeddings, EmbeddingAnswer), 0
    for pair, sent in coded.items():
        for frame, again in zip(sent, coded_more[pair], strict=True):
            if frame == again:
                continue
            (message, step), (_, same) = decode(frame), decode(again)
            differ += 1
            assert step == same
            assert isinstance(message, follows)
            assert not (isinstance(message, BatchEmbeddings) and step == (0, 0))
    assert differ
    views = [each.views["telco"] for each in (one, other)]
    assert views[0].rows == views[1].rows


@pytest.mark.parametrize(
    ("data", "code", "field", "value"),
    [
        ({"aligned": 0.0}, "range", "[data] aligned", 0.0),
        ({"aligned": 1.5}, "range", "[data] aligned", 1.5),
        ({"aligned": "half"}, "type", "[data] aligned", "half"),
        ({"aligned": 0.5, "labels": {"active": 0.5, "telco": 0.5}}, "conflict", "[data] aligned", 0.5),
    ],
)
def test_shares_that_mean_nothing(tmp_path: Path, data: dict[str, Any], code: Code, field: str, value: Any) -> None:
    with refused(JobError, code, field=field, value=value):
        common(tmp_path, **data)


def test_too_few_aligned_rows(tmp_path: Path) -> None:
    with refused(DataError, "rows", field="[data] aligned", value=0.001):
        held(common(tmp_path, aligned=0.001))
    job = common(tmp_path, aligned=0.3)
    with refused(JobError, "range", field="[model] batch_size", value=32):
        trained(job, held(job))


@pytest.mark.parametrize("column", ["a", "c"])
def test_errors_count_the_rows_of_the_common_table(tmp_path: Path, column: str) -> None:
    """Only the rows from 100 on are infinite; some of those before are held by the active party alone."""
    rows, values = table(ROWS), np.zeros(ROWS)
    values[100:] = np.inf
    rows = rows.set_column(rows.column_names.index(column), column, pa.array(values))
    with refused(DataError, "values") as caught:
        held(common(tmp_path, rows, aligned=0.3, test_size=0.25))
    told = int(caught.value.reason.split(",")[0].removeprefix("row "))
    assert told >= 100


def test_what_has_no_use_for_such_rows(tmp_path: Path) -> None:
    from labelward.defenses.label_dp import RandomizedLabels
    from labelward.defenses.lpsc import Lpsc

    job = common(tmp_path, aligned=0.5)
    data = held(job)
    trees = parse_job({**common_trees(tmp_path)})
    with refused(JobError, "unsupported", field="[data] aligned", value=len(data.parties[0].unaligned.values)):  # type: ignore[union-attr]
        model_family(with_defaults(trees).model).check(data, {})
    chain = (RandomizedLabels(epsilon=1.0), Lpsc())
    with refused(PolicyError, "inapplicable", field="defense 'lpsc'", value="randomized-response"):
        model_family(with_defaults(job).model).check(data, {"active": chain})


def common_trees(folder: Path) -> dict[str, Any]:
    return {"data": {"table": str(folder / "all.parquet"), "label": "label"}, "parties": {"active": 0.5, "telco": 0.5}}


@pytest.mark.parametrize(
    ("change", "code", "value"),
    [
        (lambda more: more.slice(0, 0), "rows", None),
        (lambda more: more.set_column(0, "id", pa.array([3, *range(5000, 5009)])), "duplicate", "3"),
        (lambda more: more.set_column(6, "label", pa.array([2, *[1] * 9])), "labels", "2"),
        (lambda more: more.set_column(6, "label", pa.array([None, *[1] * 9])), "labels", 1),
        (lambda more: more.drop_columns(["a"]), "columns", "a"),
        (lambda more: more.drop_columns(["label"]), "columns", "label"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path: Path, change: Any, code: Code, value: Any) -> None:
    job = own_tables(tmp_path, change(table(10, seed=1)))
    with pytest.raises(DataError) as caught:
        held(job)
    assert caught.value.code == code
    assert value is None or caught.value.value == value


def test_only_the_active_party_has_such_a_table(tmp_path: Path) -> None:
    parties = {"bank": {"table": "bank.csv", "label": "y"}, "telco": {"table": "telco.csv", "unaligned": "more.csv"}}
    with refused(JobError, "conflict", field="[parties.telco] unaligned"):
        parse_job({"data": {"id": "id"}, "parties": parties})
    with refused(JobError, "conflict", field="[data] aligned", value=0.5):
        parse_job({"data": {"id": "id", "aligned": 0.5}, "parties": {"bank": parties["bank"], "telco": {}}})
