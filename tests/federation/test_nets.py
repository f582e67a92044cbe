"""Split networks within audits and trainings: as trees are, but that nothing is encrypted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch

from labelward.auditing.audit import audit
from labelward.data import VerticalDataset, load_dataset, load_tables
from labelward.errors import Code, DataError, JobError, PolicyError
from labelward.federation.components import check_job, model_family, with_defaults
from labelward.federation.leakage_monitor import with_monitor
from labelward.federation.model import FederatedModel
from labelward.federation.predict import predict_table
from labelward.federation.train import train_variant
from labelward.job import Job
from labelward.party.view import View
from labelward.protocols.splitnn.share import NetShare
from refusals import refused

torch.set_num_threads(1)  # sums of several threads round differently; a rehearsal's parties share the cores

NET: dict[str, Any] = {"kind": "splitnn", "epochs": 2, "batch_size": 64, "width": 8, "dtype": "float64"}
SECTIONS: dict[str, Any] = {"model": NET, "encryption": None, "defense": None, "attack": None, "run": {"seeds": [1]}}


@pytest.fixture
def net(job: Callable[..., Job]) -> Callable[..., Job]:
    """Make the small job with a split network; ``model`` changes some of its parameters."""

    def make(*, model: dict[str, Any] | None = None, **sections: Any) -> Job:
        return job(**{**SECTIONS, "model": {**NET, **(model or {})}, **sections})

    return make


def data_of(job: Job) -> VerticalDataset:
    return load_dataset(job, job.run.seeds[0], load_tables(job))


# -- the job ---------------------------------------------------------------------------------------------------------


def test_a_completed_job_encrypts_nothing_and_says_so(net: Callable[..., Job]) -> None:
    done = with_defaults(net())
    assert done.encryption.engine == "none"
    assert with_defaults(done) == done
    check_job(done)
    assert {key: value for key, value in done.shared().items() if key.startswith("encryption")} == {
        "encryption.engine": "none"
    }
    assert '[encryption]\nengine = "none"\n\n' in done.to_toml()


@pytest.mark.parametrize(
    ("sections", "code", "field", "value", "about"),
    [
        ({"encryption": {"engine": "plain", "insecure": True}}, "unsupported", "[encryption]", "plain", "'splitnn'"),
        ({"encryption": {"bits": 3072}}, "unsupported", "[encryption]", "paillier", "'splitnn'"),
        ({"encryption": {"engine": "none", "workers": 2}}, "conflict", "[encryption] workers", 2, "'none'"),
        ({"model": {"bottom": "mlq"}}, "unknown", "[model] bottom", "mlq", "'mlp'?"),
        ({"model": {"layers": 2}}, "unknown", "[model]", "layers", "'splitnn'"),
        ({"attack": [{"kind": "id2graph"}]}, "unsupported", "[[attack]] 1", "splitnn", "'secureboost'"),
    ],
)
def test_jobs_that_cannot_be(
    net: Callable[..., Job], sections: dict[str, Any], code: Code, field: str, value: object, about: str
) -> None:
    with refused(JobError, code, field=field, value=value) as caught:
        check_job(with_defaults(net(**sections)))
    assert about in caught.value.reason


@pytest.mark.parametrize(
    ("sections", "code", "field", "value", "about"),
    [
        ({"encryption": {"engine": "none"}}, "unsupported", "[encryption] engine", "none", "'secureboost'"),
        ({"run": {"seeds": [1], "record": "digests"}}, "unsupported", "[run] record", "digests", "'secureboost'"),
        ({"attack": [{"kind": "direct"}]}, "unsupported", "[[attack]] 1", "secureboost", "'splitnn'"),
    ],
)
def test_what_is_for_networks_is_refused_for_trees(
    job: Callable[..., Job], sections: dict[str, Any], code: Code, field: str, value: object, about: str
) -> None:
    with refused(JobError, code, field=field, value=value) as caught:
        check_job(with_defaults(job(**sections)))
    assert about in caught.value.reason


@pytest.mark.parametrize(
    ("model", "code", "field", "value", "about"),
    [
        ({"bottom": "resnet-20"}, "missing", "[model] height", None, "'resnet-20'"),
        ({"bottom": "module"}, "choice", "[model] bottom", "module", "'mlp'"),
        ({"top_model": "module"}, "unsupported", "[model] top_model", "module", ""),
        ({"batch_size": 456}, "range", "[model] batch_size", 456, "455 training rows"),
        ({"patience": 2}, "conflict", "[model] patience", 2, "validation_size"),
        ({"loss": "mse"}, "unsupported", "[model] loss", "mse", "classes"),
        ({"device": "cuda:99"}, "unsupported", "[model] device", "cuda:99", "torch finds"),
    ],
)
def test_data_and_parameters_are_compared_before_anything_starts(
    net: Callable[..., Job], model: dict[str, Any], code: Code, field: str, value: object, about: str
) -> None:
    made = with_defaults(net(model=model))
    with refused(JobError, code, field=field, value=value) as caught:
        model_family(made.model).check(data_of(made), {})
    assert about in caught.value.reason


def test_a_defense_of_trees_is_refused(net: Callable[..., Job], tmp_path: Path) -> None:
    with refused(PolicyError, "inapplicable", value=("before_instance_space", "split_candidates")):
        train_variant(net(defense=[{"kind": "id-lmid", "xi": 0.4}]), tmp_path / "out", seed=1, variant="id-lmid-xi-0.4")
    assert not (tmp_path / "out").exists()


def test_there_is_no_meter_and_no_budget(net: Callable[..., Job]) -> None:
    made = with_defaults(net())
    assert with_monitor(made, data_of(made), (), seed=1) == ()
    with refused(JobError, "unsupported", field="[leakage] budget", value=0.2):
        with_monitor(with_defaults(net(leakage={"budget": 0.2})), data_of(made), (), seed=1)


# -- training and prediction -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("top", [True, False])
def test_joined_is_what_the_federated_training_gives(net: Callable[..., Job], tmp_path: Path, top: bool) -> None:
    """The same draws and the same arithmetic: in float64 the figures agree to rounding."""
    made = with_defaults(net(model={"top": top}))
    found = train_variant(made, tmp_path / "out", seed=1)
    data, programs = data_of(made), model_family(made.model)
    from labelward.metrics.utility import utility_scores

    joined = programs.pooled(data, data.parties, seed=1, precision=30)
    assert utility_scores(programs, joined, data) == pytest.approx(found.utility, abs=1e-9)
    assert found.key.engine == "none"
    assert found.key.insecure == ()
    view = View.load(tmp_path / "out" / "telco" / "view")
    assert (view.header.engine, view.header.bits, view.header.insecure) == ("none", 0, ())


def test_a_party_without_columns_knows_the_shares_of_the_classes(net: Callable[..., Job]) -> None:
    made = with_defaults(net(parties={"active": 0.0, "telco": 1.0}))
    data, programs = data_of(made), model_family(made.model)
    margins = programs.pooled(data, data.parties[:1], seed=1, precision=30)
    shares = np.bincount(data.train_labels) / len(data.train_labels)
    np.testing.assert_allclose(programs.predicted(margins, data.classes), np.tile(shares, (len(margins), 1)))


def test_categories_quantities_and_missing_values_are_predicted_in_a_new_table(
    job: Callable[..., Job], tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    rows = 240
    city = rng.choice(["Ulm", "Bern", "Graz"], rows)
    size = rng.normal(50, 10, rows)
    price = 1000 + 20 * size + 300 * (city == "Bern") + rng.normal(0, 5, rows)
    table = pa.table(
        {"size": pa.array(np.where(rng.random(rows) < 0.1, np.nan, size), from_pandas=True), "city": city, "y": price}
    )
    pyarrow.csv.write_csv(table, tmp_path / "homes.csv")
    made = job(
        **{
            **SECTIONS,
            "data": {"table": str(tmp_path / "homes.csv"), "label": "y", "task": "regression", "validation_size": 0.2},
            "parties": {"active": ["size"], "telco": ["city"]},
            "model": {**NET, "epochs": 40, "patience": 15, "batch_size": 32, "learning_rate": 0.02},
        }
    )
    found = train_variant(made, tmp_path / "out", seed=1)
    assert found.utility["r2"] > 0.5
    assert found.watched is not None
    assert found.watched.metric == "loss"
    assert NetShare.load(tmp_path / "out" / "telco" / "model").categories == {"city": ("Bern", "Graz", "Ulm")}
    new = pa.table({"size": [40.0, None, 60.0], "city": ["Bern", "Oslo", "Ulm"]})
    pyarrow.csv.write_csv(new, tmp_path / "new.csv")
    path = tmp_path / "out.parquet"
    assert predict_table(tmp_path / "out", dict.fromkeys(("active", "telco"), tmp_path / "new.csv"), path) == 3
    predicted = pyarrow.parquet.read_table(path)
    assert predicted.column_names == ["id", "prediction"]
    assert (np.abs(predicted["prediction"].to_numpy() - 2000) < 1000).all()  # in the label's own unit


def test_what_is_for_trees_alone(net: Callable[..., Job], tmp_path: Path) -> None:
    train_variant(net(), tmp_path / "out", seed=1)
    with refused(DataError, "unsupported", value="splitnn"):
        FederatedModel.load(tmp_path / "out").importance()
    with refused(JobError, "unsupported", field="[model] kind", value="splitnn"):
        train_variant(net(), tmp_path / "more", seed=1, earlier=tmp_path / "out")
    tables = dict.fromkeys(("active", "telco", "shop"), tmp_path / "no.csv")
    (tmp_path / "no.csv").write_text("x\n1\n")
    with refused(DataError, "columns", field=f"party 'active', table '{tmp_path / 'no.csv'}'", value="mean radius"):
        predict_table(tmp_path / "out", tables, tmp_path / "p.parquet")


def test_views_that_keep_digests_only(net: Callable[..., Job], tmp_path: Path) -> None:
    full = train_variant(net(), tmp_path / "full", seed=1)
    short = train_variant(net(run={"seeds": [1], "record": "digests"}), tmp_path / "short", seed=1)
    assert full.utility == short.utility
    sizes = [(tmp_path / name / "telco" / "view" / "transcript.lwt").stat().st_size for name in ("full", "short")]
    assert sizes[1] < sizes[0] / 2


# -- without torch ---------------------------------------------------------------------------------------------------

_BLOCKED = """
import sys
sys.modules["torch"] = None
sys.argv = ["labelward", *{arguments!r}]
from labelward.cli import main
main()
"""


def without_torch(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = _BLOCKED.format(arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_without_torch_networks_say_what_is_missing_and_trees_work(net: Callable[..., Job], tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(replace(net(), encryption=with_defaults(net()).encryption).to_toml())
    ended = without_torch("train", str(path), "--out", str(tmp_path / "out"))
    assert ended.returncode == 2
    assert "[nets]" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "out").exists()
    listed = without_torch("list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert "splitnn" in json.dumps(listed.stdout)


def test_attacks_on_classes_are_refused_for_quantities_before_anything_is_written(
    net: Callable[..., Job], tmp_path: Path
) -> None:
    data = {"table": "digits", "task": "regression"}
    for attack in ({"kind": "direct"}, {"kind": "split-posterior"}):
        made = net(data=data, model={"top": False}, parties={"active": 0.5, "telco": 0.5}, attack=[attack], defense=[])
        with refused(JobError, "unsupported", field="[[attack]] 1"):
            audit(made, tmp_path / "out")
    assert not (tmp_path / "out").exists()
