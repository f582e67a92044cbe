"""Bins of passive parties' columns, inferred by the active party; and the defense that merges bins."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fixed_seeds  # noqa: F401  (so that every run splits the rows alike)
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.bin_reconstruction import BinReconstruction, _spaces, _sums
from labelward.data import VerticalDataset, load_dataset, load_tables
from labelward.defenses.min_bin_rows import MinBinRows
from labelward.errors import DataError, JobError, PolicyError
from labelward.federation.components import check_job, make_engine, model_family, with_defaults
from labelward.federation.simulation import SimulationResult, simulate_job
from labelward.job import Job, parse_job
from labelward.kernels.node_rows import NodeRows
from labelward.leakage.column_scores import score_columns, true_cells
from labelward.party.view import View
from labelward.protocols.family import attacker_data
from labelward.protocols.secureboost.row_encoding import GradientEncoder

JOB: dict[str, Any] = {
    "data": {"table": "breast_cancer"},
    "parties": {"active": 0.4, "telco": 0.3, "shop": 0.3},
    "model": {"trees": 8, "depth": 3},
    "encryption": {"engine": "plain", "insecure": True},
}


@dataclasses.dataclass
class _Run:
    job: Job
    data: VerticalDataset
    ended: SimulationResult
    folder: Path

    def view(self) -> View:
        return View.load(self.folder / "active" / "view")

    def own(self) -> AttackerData:
        found = attacker_data(self.data.parties[0])
        found = dataclasses.replace(found, labels=self.data.train_values, weights=self.data.train_weights)
        return self.read(found)

    def read(self, own: AttackerData) -> AttackerData:
        family = model_family(self.job.model)
        return family.own(self.view(), own, family.load(self.folder / "active" / "model"))

    def score(self, **params: Any) -> dict[str, Any]:
        attack, rng = BinReconstruction(**params), np.random.default_rng(1)
        guess = attack(self.view(), self.own(), AuxiliaryKnowledge(classes=2), rng=rng)
        return score_columns(guess, self.data.parties[1:], self.job.model.as_dict())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., _Run]:
    """Train a small job with some sections changed."""

    def make(*, least: int | None = None, values: int = 1, **sections: Any) -> _Run:
        passive = [party for party in sections.get("parties", JOB["parties"]) if party != "active"]
        defense = [
            {"chain": [{"kind": "min-bin-rows", "party": party, "rows": least, "values": values} for party in passive]}
        ]
        job = with_defaults(parse_job({**JOB, "defense": defense if least else [], **sections}))
        data = load_dataset(job, 1, load_tables(job))
        engine = make_engine(job.encryption)
        folder = tmp_path_factory.mktemp("runs") / "run"
        variant = job.variants()[-1]
        ended = simulate_job(job, data, variant, engine, folder, seed=1, progress=lambda *each: None)
        engine.close()
        return _Run(job, data, ended, folder)

    return make


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "least_share"),
    [
        ({"trees": 8, "depth": 3}, 0.05),
        ({"trees": 4, "depth": 4, "candidates": "all"}, 0.0),
        ({"trees": 4, "depth": 3, "bins": 90}, 0.0),
        ({"kind": "forest", "trees": 4, "depth": 4, "row_fraction": 0.7, "replace": True}, 0.0),
        ({"trees": 4, "depth": 3, "scale_pos_weight": 2.0}, 0.0),
    ],
)
def test_all_answers_are_right(run: Callable[..., _Run], model: dict[str, Any], least_share: float) -> None:
    """Certain answers are the true bins, whatever the model; with eight trees there are many."""
    found = run(model=model).score()
    assert found["wrong"] == 0
    assert found["recovered"] > least_share


@pytest.mark.slow
def test_what_is_not_recovered_is_hardly_ever_determined(run: Callable[..., _Run]) -> None:
    """Rows of one label that no tree tells apart can be exchanged: their bins follow only if they are equal."""
    ran = run(parties={"active": 0.5, "telco": 0.5}, model={"trees": 20, "depth": 3})
    labels = ran.data.train_labels
    told = [labels]
    for splits in _spaces(ran.view())[0].values():
        nodes, leaf = NodeRows(len(labels), np.arange(len(labels))), np.zeros_like(labels)
        for node in sorted(splits):
            leaf[nodes.rows(node)] = 2 * node + 2 - splits[node]
            nodes.split(node, splits[node])
        told.append(leaf)
    group = np.unique(np.stack(told), axis=1, return_inverse=True)[1].ravel()
    cells = true_cells(ran.data.parties[1], "bins", ran.job.model.as_dict())
    most = np.mean([[len(np.unique(column[group == own])) == 1 for own in group] for column in cells.T])
    found = ran.score()
    assert most - 0.06 < found["recovered"] <= most


@pytest.mark.slow
def test_rows_of_a_tree_for_each_class_are_known_again(
    run: Callable[..., _Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trees of a round grow in an order of their own, on the same margins."""
    encode, encoded = GradientEncoder.encode, []
    monkeypatch.setattr(GradientEncoder, "encode", lambda *given: encoded.append(encode(*given)) or encoded[-1])
    ran = run(data={"table": "digits"}, model={"trees": 2, "depth": 2, "multi_strategy": "one_output_per_tree"})
    encrypted, replay = [each.values for each in encoded], ran.own().encrypted_rows
    assert replay is not None
    again = [values for values, _ in replay(ran.view())]
    assert len(again) == 20
    assert all(np.array_equal(*both) for both in zip(again, encrypted, strict=True))


def test_without_sums_or_with_other_labels_nothing_is_known(run: Callable[..., _Run]) -> None:
    """An empty view gives no answer; so do sums that are not of the rows' gradients; other rows are refused."""
    ran = run()
    attack, aux, rng = BinReconstruction(), AuxiliaryKnowledge(classes=2), np.random.default_rng(1)
    assert attack(ran.view().without_records(), ran.own(), aux, rng=rng).cells == {}
    flipped = ran.read(dataclasses.replace(ran.own(), labels=1 - ran.data.train_values))
    assert attack(ran.view(), flipped, aux, rng=rng).cells == {}
    own = dataclasses.replace(ran.own(), features=np.zeros((3, 1)))
    with pytest.raises(DataError) as caught:
        attack(ran.view(), own, aux, rng=rng)
    assert (caught.value.code, caught.value.value) == ("rows", 3)


@pytest.mark.parametrize(
    "defense",
    [
        pytest.param({"kind": "id-lmid", "xi": 100.0}, marks=pytest.mark.slow),
        {"kind": "purity-threshold", "threshold": 1.0},
    ],
)
def test_class_counts_beside_the_gradients_hide_nothing(run: Callable[..., _Run], defense: dict[str, Any]) -> None:
    """Under defenses that need them nothing was found, as if they protected columns; here they withhold nothing."""
    plain = run().score()
    assert plain["recovered"] > 0.05
    found = run(defense=[defense]).score()
    assert found["recovered"] >= plain["recovered"]
    assert found["wrong"] == 0


def test_merged_bins_leave_little(run: Callable[..., _Run]) -> None:
    """With cells of 20 rows at most .02 of the cells, and no wrong answer of an attack that reads it."""
    for values in (1, 2):
        found = run(least=20, values=values).score()
        assert found["wrong"] == found["recovered_by_splits"] == 0
        assert found["recovered"] <= 0.02
    assert run().score()["recovered"] > 0.05


def test_splits_reveal_columns_of_two_values_whatever_the_sums(run: Callable[..., _Run], tmp_path: Path) -> None:
    """The active party chose them, and learns the rows of their sides; the merged sums tell hardly more.

    Where a sum covers two bins, as by default, no split tells them apart.
    """
    rng = np.random.default_rng(2)
    flags = rng.integers(2, size=(800, 4))
    label = (flags.sum(axis=1) + 2 * rng.normal(size=800) > 2).astype(int)
    table = {"own": rng.normal(size=800), "x": rng.normal(size=800), "label": label}
    table |= {f"flag {at}": column for at, column in enumerate(flags.T)}
    pq.write_table(pa.table(table), tmp_path / "flags.parquet")
    data = {"table": str(tmp_path / "flags.parquet"), "label": "label"}
    parties = {"active": ["own"], "telco": ["x", *(f"flag {at}" for at in range(4))]}
    table_run = partial(run, data=data, parties=parties, least=20, model={"trees": 5, "depth": 4})
    found = table_run().score()
    assert found["wrong"] == 0
    assert 0.3 < found["recovered_by_splits"] <= found["recovered"] <= found["recovered_by_splits"] + 0.02
    assert table_run(values=MinBinRows().values).score()["recovered"] == 0


@pytest.mark.parametrize("model", [{"trees": 3, "depth": 4}, {"kind": "forest", "trees": 3, "depth": 5}])
def test_every_sum_that_is_sent_or_follows_covers_enough_rows(run: Callable[..., _Run], model: dict[str, Any]) -> None:
    """Of each node and its sibling, each cell has no row, which the splits above say, or enough, or all of them."""
    ran = run(least=15, model=model)
    counted = 1 if model.get("kind") == "forest" else 2
    for peer in ("telco", "shop"):
        for nodes in _sums(ran.view(), peer):
            for columns in nodes.values():
                for sums in columns.values():
                    rows = sums.values[:, counted]
                    assert rows.min() >= 0
                    assert rows[rows > 0].min() >= 15 or np.count_nonzero(rows) == 1


def test_categories_and_missing_values_are_merged(run: Callable[..., _Run], tmp_path: Path) -> None:
    """Sums and sides of merged bins agree, or the active party would end the run; and no answer is wrong."""
    rng = np.random.default_rng(3)
    n = 600
    x = rng.normal(size=(n, 3))
    place = rng.integers(7, size=n)
    label = (x[:, 0] + 0.8 * (place % 3) + rng.normal(size=n) > 0.8).astype(int)
    x[rng.random(n) < 0.02, 1], x[rng.random(n) < 0.2, 2] = np.nan, np.nan
    names = np.array([f"place {each}" for each in place], dtype=object)
    names[rng.random(n) < 0.05] = None
    table = {"own": rng.normal(size=n), "a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "place": names, "label": label}
    path = tmp_path / "mixed.parquet"
    pq.write_table(pa.table({name: pa.array(values, from_pandas=True) for name, values in table.items()}), path)
    parties = {"active": ["own"], "telco": ["a", "b"], "shop": ["c", "place"]}
    ran = run(data={"table": str(path), "label": "label"}, parties=parties, least=12)
    found = ran.score()
    assert found["wrong"] == 0
    codes = true_cells(ran.data.parties[2], "bins", ran.job.model.as_dict())
    assert (codes == -1).any()


@pytest.mark.parametrize(
    "model", [{"candidates": "node"}, {"feature_fraction": 0.5}, {"sampling": "goss"}, {"row_fraction": 0.5}]
)
def test_models_whose_bins_or_gradients_do_not_repeat_are_refused(model: dict[str, Any]) -> None:
    """Before anything is trained."""
    job = with_defaults(parse_job({**JOB, "model": model, "attack": [{"kind": "bin-reconstruction"}]}))
    with pytest.raises(JobError) as caught:
        check_job(job)
    assert (caught.value.code, caught.value.value) == ("unsupported", next(iter(model.values())))


def test_candidates_of_each_node_are_refused(run: Callable[..., _Run]) -> None:
    """Their sums do not follow by subtraction."""
    with pytest.raises(PolicyError) as caught:
        run(least=10, model={"trees": 1, "depth": 2, "candidates": "node"})
    assert caught.value.code == "inapplicable"
