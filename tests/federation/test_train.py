"""Training without attacks, and prediction from the shares on disk."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelward.data import load_dataset
from labelward.errors import DataError, FileFormatError, JobError, OutputError
from labelward.federation.components import model_family, with_defaults
from labelward.federation.predict import predict_table
from labelward.federation.train import TrainedModel, train_variant
from labelward.job import Job
from labelward.metrics.utility import utility_scores
from labelward.party.view import View
from labelward.protocols.secureboost.share import ModelShare
from labelward.runs.private_seeds import PRIVATE_FILE
from refusals import refused

Jobs = Callable[..., Job]
PREDICT = """
import sys
from pathlib import Path
from labelward.federation.predict import predict_table
run, active, telco, out = map(Path, sys.argv[1:])
predict_table(run, {"active": active, "telco": telco}, out)
"""


KILLED = """
import os, signal, sys
from pathlib import Path
from labelward.federation.train import train_variant
from labelward.job import load_job

def watch(event, done, total, detail):
    if done == 2:
        os.kill(os.getpid(), signal.SIGKILL)

train_variant(load_job(sys.argv[1]), Path(sys.argv[2]), seed=1, watch=watch)
"""


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two companies' tables of the same customers in different orders; ids with leading zeros, a category."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    n = 240
    ids = [f"{i:04d}" for i in range(n)]
    age, calls = rng.normal(size=n), rng.normal(size=n)
    plan = rng.choice(["big", "medium", "small"], n)
    churned = np.where(age + calls + (plan == "small") + 0.3 * rng.normal(size=n) > 0.3, "yes", "no")
    bank = pa.table({"id": ids, "churned": churned, "age": age, "income": rng.normal(size=n)})
    telco = pa.table({"id": ids, "calls": calls, "plan": plan}).take(pa.array(rng.permutation(n)))
    pq.write_table(bank, folder / "bank.parquet")
    pq.write_table(telco, folder / "telco.parquet")
    return folder


@pytest.fixture(scope="module")
def own_tables(job: Jobs, tables: Path) -> Job:
    return job(
        data={"id": "id"},
        parties={
            "active": {"table": str(tables / "bank.parquet"), "label": "churned"},
            "telco": {"table": str(tables / "telco.parquet")},
        },
        defense=None,
        attack=None,
        model={"trees": 4, "depth": 3},
    )


@pytest.fixture(scope="module")
def trained(own_tables: Job, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainedModel]:
    out = tmp_path_factory.mktemp("runs") / "model"
    return out, train_variant(own_tables, out, seed=5)


def test_it_leaves_views_shares_and_the_job(trained: tuple[Path, TrainedModel]) -> None:
    out, model = trained
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["active", "job.toml", PRIVATE_FILE, "telco", "training.json"]
    )
    assert View.load(out / "telco" / "view").party == "telco"
    assert model.parties == ("active", "telco")
    assert (model.seed, model.variant) == (5, "none")
    assert model.utility["auc"] > 0.8  # labels that the columns tell but for a little noise
    assert model.cost.encryptions == 4 * 192
    assert model.key.insecure == ("plain engine",)


@pytest.mark.slow
def test_a_new_process_predicts_as_the_joined_model_does(
    trained: tuple[Path, TrainedModel], own_tables: Job, tables: Path, tmp_path: Path
) -> None:
    out, model = trained
    target = tmp_path / "predictions.parquet"
    run = subprocess.run(
        [sys.executable, "-c", PREDICT, out, tables / "bank.parquet", tables / "telco.parquet", target],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = pq.read_table(target)
    assert found.column_names == ["id", "margin", "probability_no", "probability_yes", "prediction"]
    assert found["id"].to_pylist() == [f"{i:04d}" for i in range(240)]
    margin = dict(zip(found["id"].to_pylist(), found["margin"].to_pylist(), strict=True))
    chosen = with_defaults(own_tables)
    data = load_dataset(chosen, 5)
    programs = model_family(chosen.model)
    pooled = programs.pooled(data, data.parties, seed=5, precision=30)
    assert [[margin[name]] for name in data.test_ids.tolist()] == pooled.tolist()
    assert utility_scores(programs, pooled, data) == model.utility
    expected = np.where(np.array(found["margin"]) > 0, "yes", "no")
    assert found["prediction"].to_pylist() == expected.tolist()
    np.testing.assert_allclose(
        found["probability_yes"], 1 / (1 + np.exp(-found["margin"].to_numpy())), rtol=1e-12
    )  # the same formula: a few units in the last place


def test_an_active_party_without_columns_and_rows_without_ids(job: Jobs, tmp_path: Path) -> None:
    from sklearn.datasets import load_breast_cancer

    rows = load_breast_cancer(as_frame=True).frame.rename(columns={"target": "label"})
    table = tmp_path / "rows.csv"
    rows.to_csv(table, index=False)
    chosen = job(parties={"active": 0, "telco": 1.0}, defense=[{"kind": "id-lmid", "xi": 0.5}], run={"seeds": [1, 2]})
    model = train_variant(chosen, tmp_path / "run", seed=1, variant="id-lmid-xi-0.5")
    assert model.variant == "id-lmid-xi-0.5"
    assert predict_table(tmp_path / "run", {"active": table, "telco": table}, tmp_path / "out.parquet") == 569
    found = pq.read_table(tmp_path / "out.parquet")
    assert found["id"].to_pylist()[:3] == ["0", "1", "2"]
    assert (found["prediction"].to_numpy() == rows["label"].astype(str)).mean() > 0.85


class TestBadInput:
    def test_several_variants_need_a_choice(self, job: Jobs, tmp_path: Path) -> None:
        with refused(JobError, "missing") as caught:
            train_variant(job(), tmp_path / "out", seed=1)
        assert "none, id-lmid-xi-0.4, local-trees-count-1" in caught.value.reason
        with refused(JobError, "unknown", value="local-tree") as caught:
            train_variant(job(), tmp_path / "out", seed=1, variant="local-tree")
        assert "'local-trees-count-1'?" in caught.value.reason
        assert not (tmp_path / "out").exists()

    def test_an_existing_training_needs_force(self, own_tables: Job, tmp_path: Path) -> None:
        out = tmp_path / "out"
        train_variant(own_tables, out, seed=1)
        (out / "notes.txt").write_text("mine")
        with refused(OutputError, "exists", field=str(tmp_path / "out")):
            train_variant(own_tables, out, seed=2)
        assert train_variant(own_tables, out, seed=2, force=True).seed == 2
        assert (out / "notes.txt").exists()

    def test_a_training_that_fails_leaves_what_was_there(self, own_tables: Job, tmp_path: Path) -> None:
        out = tmp_path / "out"

        def interrupt(event: str, done: int, total: int, detail: str) -> None:
            if done == 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train_variant(own_tables, out, seed=1, watch=interrupt)
        assert list(tmp_path.iterdir()) == []
        train_variant(own_tables, out, seed=1)  # the same command: nothing is in its way
        before = snapshot(out)
        with pytest.raises(KeyboardInterrupt):
            train_variant(own_tables, out, seed=2, force=True, watch=interrupt)
        assert snapshot(out) == before
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    @pytest.mark.slow
    def test_what_a_killed_training_left_is_cleared(self, own_tables: Job, tmp_path: Path) -> None:
        script, job_file, out = tmp_path / "killed.py", tmp_path / "job.toml", tmp_path / "runs" / "out"
        script.write_text(KILLED)
        job_file.write_text(own_tables.to_toml())
        dead = subprocess.run([sys.executable, script, job_file, out], capture_output=True, check=False)
        assert dead.returncode == -signal.SIGKILL, dead.stderr.decode()
        side = out.with_name(".out.partial")
        assert [path.name for path in out.parent.iterdir()] == [side.name]
        assert stat.S_IMODE(side.stat().st_mode) == 0o700
        train_variant(own_tables, out, seed=1)
        assert sorted(path.name for path in out.iterdir()) == sorted(
            ["active", "job.toml", PRIVATE_FILE, "telco", "training.json"]
        )
        assert [path.name for path in out.parent.iterdir()] == ["out"]
        assert stat.S_IMODE((out / "job.toml").stat().st_mode) == 0o600

    def test_two_trainings_at_once(self, own_tables: Job, tmp_path: Path) -> None:
        out, reported = tmp_path / "out", []

        def again(event: str, done: int, total: int, detail: str) -> None:
            if done == 1:
                with refused(OutputError, "locked", value=str(tmp_path / ".out.partial")) as caught:
                    train_variant(own_tables, out, seed=2)
                assert f"process {os.getpid()}" in caught.value.reason
                reported.append(done)

        assert train_variant(own_tables, out, seed=1, watch=again).seed == 1
        assert reported

    def test_a_folder_of_the_user_s_that_is_called_as_a_party(self, own_tables: Job, tmp_path: Path) -> None:
        out = tmp_path / "out"
        train_variant(own_tables, out, seed=1)
        other = replace(own_tables, parties=(own_tables.active, replace(own_tables.passive[0], name="shop")))
        (out / "shop").mkdir()
        with refused(OutputError, "foreign", field=str(tmp_path / "out"), value="shop"):
            train_variant(other, out, seed=1, force=True)
        (out / "shop").rmdir()
        train_variant(other, out, seed=1, force=True)
        assert sorted(path.name for path in out.iterdir()) == sorted(
            ["active", "job.toml", PRIVATE_FILE, "shop", "training.json"]
        )

    def test_the_folder_of_an_audit_is_not_replaced(self, finished: tuple[Path, object], own_tables: Job) -> None:
        with refused(OutputError, "foreign", field=str(finished[0])):
            train_variant(own_tables, finished[0], seed=1, force=True)

    def test_missing_and_unknown_parties(
        self, trained: tuple[Path, TrainedModel], tables: Path, tmp_path: Path
    ) -> None:
        run, _ = trained
        bank = tables / "bank.parquet"
        with refused(DataError, "missing", field="party 'telco'"):
            predict_table(run, {"active": bank}, tmp_path / "o.parquet")
        with refused(DataError, "unknown", value="telcom") as caught:
            predict_table(run, {"active": bank, "telcom": bank}, tmp_path / "o.parquet")
        assert "'telco'?" in caught.value.reason

    def test_other_rows_or_columns(self, trained: tuple[Path, TrainedModel], tables: Path, tmp_path: Path) -> None:
        run, _ = trained
        few = tmp_path / "few.parquet"
        pq.write_table(pq.read_table(tables / "telco.parquet").slice(0, 200), few)
        with refused(DataError, "rows") as caught:
            predict_table(run, {"active": tables / "bank.parquet", "telco": few}, tmp_path / "o.parquet")
        assert "40 ids" in caught.value.reason
        assert "missing at 'telco'" in caught.value.reason
        with refused(DataError, "columns", field=f"party 'telco', table '{tables / 'bank.parquet'}'", value="calls"):
            predict_table(
                run, {"active": tables / "bank.parquet", "telco": tables / "bank.parquet"}, tmp_path / "o.parquet"
            )

    def test_shares_of_two_models(
        self, trained: tuple[Path, TrainedModel], own_tables: Job, tables: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        train_variant(own_tables, other, seed=5)  # not even the same training twice gives shares that fit together
        share = trained[0] / "telco" / "model" / "share.json"
        (other / "telco" / "model" / "share.json").write_bytes(share.read_bytes())
        both = {"active": tables / "bank.parquet", "telco": tables / "telco.parquet"}
        with refused(FileFormatError, "other-run", field=str(tmp_path / "other" / "telco" / "model"), value="telco"):
            predict_table(other, both, tmp_path / "o.parquet")

    def test_shares_in_each_other_s_folders(
        self, trained: tuple[Path, TrainedModel], tables: Path, tmp_path: Path
    ) -> None:
        """Both would be asked, and answer: wrong predictions and no error."""
        run = tmp_path / "run"
        shutil.copytree(trained[0], run)
        shutil.copy(trained[0] / "active/model/share.json", run / "telco/model/share.json")
        both = {"active": tables / "bank.parquet", "telco": tables / "telco.parquet"}
        with refused(FileFormatError, "other-run", field=str(tmp_path / "run" / "telco" / "model"), value="active"):
            predict_table(run, both, tmp_path / "o.parquet")
        share = ModelShare.load(trained[0] / "telco/model")
        msgspec.structs.replace(share, parties=("active", "telco", "shop")).save(run / "telco/model")
        with refused(
            FileFormatError,
            "other-run",
            field=str(tmp_path / "run" / "telco" / "model"),
            value=("active", "telco", "shop"),
        ):
            predict_table(run, both, tmp_path / "o.parquet")

    def test_no_model_there(self, tables: Path, tmp_path: Path) -> None:
        with refused(FileFormatError, "foreign", field=str(tmp_path)):
            predict_table(tmp_path, {"active": tables / "bank.parquet"}, tmp_path / "o.parquet")

    def test_nowhere_to_write(self, trained: tuple[Path, TrainedModel], tables: Path, tmp_path: Path) -> None:
        both = {"active": tables / "bank.parquet", "telco": tables / "telco.parquet"}
        with refused(OutputError, "unwritable", field=str(tmp_path / "no" / "o.parquet")):
            predict_table(trained[0], both, tmp_path / "no" / "o.parquet")
