"""Each bad input ends with exit code 2 and one line that names value and place; nothing half-written stays."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from small_jobs import JOB, Call, refused, write_job, write_table

from labelward.leakage.stored_guesses import read_guess


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trees = 2": "tress = 2"}, ["[model]", "'tress'", "'trees'"]),
        ({"[run]": "[run]\nthreads = 2"}, ["[run]", "'threads'"]),
        (
            {"depth = 3": 'depth = 3\nobjective = "count:poisson"'},
            ["[model] objective", "'count:poisson'", "2 classes"],
        ),
        ({"depth = 3": 'depth = 3\nobjective = "binary"'}, ["[model] objective", "'binary'", "'binary:logistic'"]),
        ({"depth = 3": "depth = 3\nearly_stopping_rounds = 2"}, ["[model] early_stopping_rounds", "validation"]),
        ({"trees = 2": 'kind = "forest"\nreg_lambda = 2.0'}, ["[model] reg_lambda", "'forest'"]),
        ({'label = "label"': 'label = "label"\ntask = "regression"'}, ["job.toml: ", "'id-lmid'", "regression"]),
        ({"[run]": "[runs]"}, ["'runs'", "'run'"]),
        (
            {'label = "label"': 'label = "label"\ntask = "regression"\npositive = "1"'},
            ["[data] positive", "regression"],
        ),
        ({"depth = 3": "depth = 0"}, ["[model] depth", "0"]),
        ({'kind = "id-lmid"': 'kind = "id-lmdi"'}, ["[[defense]]", "'id-lmdi'", "'id-lmid'"]),
        ({"xi = 0.1": "psi = 0.1"}, ["[[defense]]", "'psi'", "xi"]),
        ({"xi = 0.1": "xi = -0.1"}, ["id-lmid", "xi", "-0.1"]),
        ({"xi = 0.1": ""}, ["id-lmid", "xi"]),
        ({'kind = "id2graph"': 'kind = "id3graph"'}, ["[[attack]]", "'id3graph'", "'id2graph'"]),
        ({"trees = 2": 'kind = "secureboots"'}, ["[model]", "'secureboots'", "'secureboost'"]),
        ({'engine = "plain"': 'engine = "plane"'}, ["[encryption]", "'plane'", "'plain'"]),
        ({'"t2"]': '"t3"]'}, ["'telco'", "'t3'"]),
        ({'label = "label"': 'label = "labels"'}, ["'labels'", "'label'"]),
        ({'["t0", "t1", "t2"]': "[]"}, ["telco", "at least one column"]),
        ({'["a0", "a1"]': "0.5", '["t0", "t1", "t2"]': "0"}, ["telco", "at least one column"]),
        ({'"t2"]': '"a0"]'}, ["telco", "'a0'", "'active'", "overlap"]),
        ({"insecure = true": ""}, ["[encryption] engine", "'plain'", "insecure = true"]),
        ({'engine = "plain"\ninsecure = true': "bits = 1024"}, ["[encryption] bits", "2048", "1024"]),
        ({"seeds = [1, 2]": "seeds = []"}, ["[run] seeds"]),
        ({"seeds = [1, 2]": "seeds = [1, 1]"}, ["[run] seeds", "1"]),
        ({"telco = [": "telco [= "}, ["job.toml", "TOML", "line"]),
        ({'"table.csv"': '"tabel.csv"'}, ["tabel.csv", "no such file"]),
        ({'"table.csv"': '"breast_canser"'}, ["'breast_canser'", "'breast_cancer'"]),
    ],
    ids=lambda value: next(iter(value.values())).replace("\n", " ") or "left out" if isinstance(value, dict) else "",
)
def test_a_job_that_cannot_be(tmp_path: Path, call: Call, changes: dict[str, str], words: list[str]) -> None:
    write_table(tmp_path / "table.csv")
    job, out = write_job(tmp_path, changes=changes), tmp_path / "audit"
    refused(call("audit", job, "--out", out), *words)
    assert not out.exists()


def test_overlap_is_allowed_where_the_job_says_so(tmp_path: Path, call: Call) -> None:
    write_table(tmp_path / "table.csv")
    changes = {'"t2"]': '"a0"]', 'label = "label"': 'label = "label"\noverlap = true', "seeds = [1, 2]": "seeds = [1]"}
    job = write_job(tmp_path, changes=changes)
    assert call("audit", job, "--out", tmp_path / "audit").exit_code == 0


_LABELS = np.arange(120) % 2


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"label": np.zeros(120, dtype=np.int64)}, ["'label'", "'0'", "two classes"]),
        ({"label": [None, *_LABELS[1:].tolist()]}, ["'label'", "1 label is missing", "row 0"]),
        ({"label": [*_LABELS[:-1].astype(float), np.inf]}, ["'label'", "row 119", "inf"]),
        ({"label": _LABELS + 0.5}, ["'label'", "row 0", "0.5"]),
        ({"t1": [np.inf, *[0.0] * 119]}, ["'telco'", "'t1'", "row 0", "inf"]),
    ],
    ids=["one class", "missing", "infinite", "fractions", "infinite feature"],
)
def test_values_that_cannot_be(tmp_path: Path, call: Call, columns: dict[str, object], words: list[str]) -> None:
    write_table(tmp_path / "table.csv", **columns)  # type: ignore[arg-type]
    out = tmp_path / "audit"
    refused(call("audit", write_job(tmp_path), "--out", out), *words)
    assert not out.exists()


@pytest.mark.parametrize("text", ["a0,a1,t0,t1,t2,label\n", ""], ids=["a header alone", "no byte"])
def test_an_empty_table(tmp_path: Path, call: Call, text: str) -> None:
    (tmp_path / "table.csv").write_text(text)
    out = tmp_path / "audit"
    refused(call("audit", write_job(tmp_path), "--out", out), "table.csv")
    assert not out.exists()


def test_too_few_rows_for_a_test(tmp_path: Path, call: Call) -> None:
    write_table(tmp_path / "table.csv", rows=4, label=[0, 0, 1, 1])
    job = write_job(tmp_path)
    job.write_text(job.read_text().replace("[data]", "[data]\ntest_size = 0.9"))
    refused(call("audit", job, "--out", tmp_path / "audit"), "test_size", "4 rows")


def test_parties_with_different_rows(tmp_path: Path, call: Call) -> None:
    write_table(tmp_path / "bank.csv", id=np.arange(120))
    write_table(tmp_path / "telco.csv", id=np.arange(1, 121))
    own = """
[parties.bank]
table = "bank.csv"
id = "id"
label = "label"
columns = ["a0", "a1"]
[parties.telco]
table = "telco.csv"
id = "id"
columns = ["t0", "t1"]
[encryption]
engine = "plain"
insecure = true
"""
    job = write_job(tmp_path, own)
    refused(call("audit", job, "--out", tmp_path / "audit"), "'bank'", "'telco'", "1 id (")


@pytest.mark.parametrize("command", ["audit", "train"])
def test_a_folder_of_something_else_is_never_touched(tmp_path: Path, call: Call, job: Path, command: str) -> None:
    out = tmp_path / "precious"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    variant = ["--defense", "none"] if command == "train" else []
    for force in ([], ["--force"]):
        refused(call(command, job, "--out", out, *variant, *force), str(out))
        assert [path.name for path in out.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_the_audit_of_another_job_needs_force(tmp_path: Path, call: Call, job: Path, audited: Path) -> None:
    out = tmp_path / "audit"
    shutil.copytree(audited, out)
    before = (out / "results.jsonl").read_bytes()
    other = write_job(tmp_path, changes={"depth = 3": "depth = 2", "seeds = [1, 2]": "seeds = [3]"})
    refused(call("audit", other, "--out", out), str(out), "model.depth", "--force")
    assert (out / "results.jsonl").read_bytes() == before
    result = call("audit", other, "--out", out, "--force", "--quiet")
    assert result.exit_code == 0, result.output
    assert '"seed":3' in (out / "results.jsonl").read_text()
    assert '"seed":1' not in (out / "results.jsonl").read_text()


@pytest.mark.parametrize("command", ["audit", "train", "demo"])
def test_a_folder_that_cannot_be_made(tmp_path: Path, call: Call, job: Path, command: str) -> None:
    """A file in the way: root may write wherever modes forbid it, so modes would prove nothing."""
    (tmp_path / "file").write_text("in the way")
    for out in (tmp_path / "file" / "audit", tmp_path / "file"):
        arguments = {"audit": [job], "train": [job, "--defense", "none"], "demo": ["--small"]}[command]
        refused(call(command, *arguments, "--out", out), "file")
    assert (tmp_path / "file").read_text() == "in the way"


def test_files_that_exist_or_cannot_be_written(tmp_path: Path, call: Call, audited: Path) -> None:
    view, features = audited / "runs/none/1/telco/view", audited / "data/1/telco.parquet"
    kept = tmp_path / "guess.parquet"
    kept.write_text("mine")
    common = ["--features", features, "--attack", "clustering", "--classes", 2, "--seed", 1]
    refused(call("attack", view, *common, "--out", kept), "guess.parquet", "--force")
    assert kept.read_text() == "mine"
    refused(call("attack", view, *common, "--out", tmp_path / "no" / "guess.parquet"), "does not exist")
    refused(call("attack", view, *common, "--out", tmp_path, "--force"), "is a folder")
    refused(call("predict", audited, "--out", kept, "--table", features), "guess.parquet")
    refused(call("attack", view, *common, "--out", tmp_path / "guess.csv"), "guess.csv", ".parquet")
    refused(call("predict", audited, "--out", tmp_path / "p.txt", "--table", features), "p.txt", ".parquet")
    refused(call("init", kept), "guess.parquet", "--force")


def test_an_output_that_is_read(tmp_path: Path, call: Call, audited: Path, trained: Path) -> None:
    view, mine = audited / "runs/none/1/telco/view", tmp_path / "mine.parquet"
    shutil.copy(audited / "data/1/telco.parquet", mine)
    before = mine.read_bytes()
    own = ["--features", mine, "--attack", "clustering", "--classes", 2, "--seed", 1]
    refused(call("attack", view, *own, "--out", tmp_path / "." / "mine.parquet", "--force"), "mine.parquet")
    refused(call("predict", trained, "--table", mine, "--out", mine, "--force"), "mine.parquet")
    refused(call("explain", "rows", trained, "--table", mine, "--out", mine, "--force"), "mine.parquet")
    assert mine.read_bytes() == before


def test_knowledge_that_an_attack_does_not_read(tmp_path: Path, call: Call, audited: Path) -> None:
    view, out = audited / "runs/none/1/telco/view", tmp_path / "guess.parquet"
    truth = audited / "data/1/truth.parquet"
    common = ["--features", audited / "data/1/telco.parquet", "--attack", "clustering", "--classes", 2, "--seed", 1]
    for options, field in (
        (["--labels", truth], "labels"),
        (["--attribute", truth], "attribute"),
        (["--other-view", audited / "runs/none/2/telco/view"], "other_runs"),
        (["--label", "y"], "--label"),
    ):
        refused(call("attack", view, *common, *options, "--out", out), f"{field}: ")
    assert not out.exists()
    assert call("attack", view, *common, "--out", out).exit_code == 0
    refused(call("score", out, "--truth", truth, "--party", "telco", "--label", "y"), "--label: ")
    refused(call("score", out, "--truth", truth, "--party", "telco", "--bins", 5), "--bins: ")
    other = audited / "runs/none/1/active/view"
    columns = ["--columns", audited / "data/1/telco.parquet", "--view", other]
    refused(call("score", out, "--truth", truth, *columns), f"{other}: ", "'active'", "'telco'")


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (["study", "--seeds", "2"], "--seeds"),
        (["study", "--budget", "small"], "--budget"),
        (["doctor", "--warm", "--json"], "--json"),
        (["doctor", "--warm", "--bits", "4096"], "--bits"),
    ],
)
def test_options_that_nothing_reads(call: Call, command: list[str], field: str) -> None:
    refused(call(*command), f"{field}: ")


def test_a_damaged_view(tmp_path: Path, call: Call, audited: Path) -> None:
    view = tmp_path / "view"
    shutil.copytree(audited / "runs/none/1/telco/view", view)
    path = next(view.iterdir())
    whole = path.read_bytes()
    altered = bytearray(whole)
    altered[len(whole) // 2] ^= 1
    attack = ["attack", view, "--features", audited / "data/1/telco.parquet", "--attack", "id2graph"]
    attack += ["--classes", 2, "--seed", 1, "--out", tmp_path / "guess.parquet"]
    for damaged in (bytes(altered), whole[:-5], b"", b"nothing of the kind"):
        path.write_bytes(damaged)
        for command in (["view", "show", view], ["view", "digest", view], ["view", "verify", view], attack):
            refused(call(*command), path.name)
    assert not (tmp_path / "guess.parquet").exists()
    refused(call("view", "verify", tmp_path / "nowhere"), "nowhere")


def test_a_damaged_model(tmp_path: Path, call: Call, job: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "predictions.parquet"
    assert call("train", job, "--out", run, "--defense", "none").exit_code == 0
    share = run / "telco/model/share.json"
    whole = share.read_text()
    for damaged in (whole[:-9], whole.replace("0.", "1.", 1), "", "{}"):
        share.write_text(damaged)
        refused(call("predict", run, "--table", tmp_path / "table.csv", "--out", out), "share.json")
    share.unlink()
    refused(call("predict", run, "--table", tmp_path / "table.csv", "--out", out), "telco")
    assert not out.exists()


def test_shares_of_two_models(tmp_path: Path, call: Call, job: Path) -> None:
    """A share that was taken from another folder: both folders are named, since either may be the foreign one."""
    one, other = tmp_path / "one", tmp_path / "other"
    assert call("train", job, "--out", one, "--defense", "none", "--seed", 1).exit_code == 0
    assert call("train", job, "--out", other, "--defense", "none", "--seed", 2).exit_code == 0
    shutil.copy(other / "telco/model/share.json", one / "telco/model/share.json")
    out = tmp_path / "predictions.parquet"
    refused(
        call("predict", one, "--table", tmp_path / "table.csv", "--out", out),
        f"{one}/telco/model: ",
        f" {one}/active/model",
    )
    assert not out.exists()


def test_a_party_that_was_taken_away(tmp_path: Path, call: Call, trained: Path) -> None:
    run, out, table = tmp_path / "run", tmp_path / "out.parquet", trained.parent / "table.csv"
    shutil.copytree(trained, run)
    shutil.rmtree(run / "telco")
    told = (f"{run}: ", "'telco'", f"{run}/telco/model")
    for own in (["--table", table], ["--party", f"active={table}", "--party", f"telco={table}"]):
        refused(call("predict", run, "--out", out, *own), *told)
    refused(call("explain", "importance", run, "--names", "telco"), *told)
    (run / "training.json").write_text('{"format": 9}')
    shutil.copytree(trained / "telco", run / "telco")
    refused(call("predict", run, "--table", table, "--out", out), "training.json", "format 9")
    (run / "training.json").write_text('{"format": 1}')
    refused(call("predict", run, "--table", table, "--out", out), "training.json", "damaged")
    (run / "training.json").unlink()
    refused(call("predict", run, "--table", table, "--out", out), "training.json", "cannot be read")
    assert not out.exists()


@pytest.mark.parametrize("command", ["audit", "train"])
def test_what_the_model_refuses_is_told_with_the_job_file(tmp_path: Path, call: Call, job: Path, command: str) -> None:
    write_job(tmp_path, changes={"trees = 2": "trees = 2\nreg_lambda = -1"})
    refused(call(command, job, "--out", tmp_path / "out"), f"{job}: [model] reg_lambda")


def test_a_damaged_result(tmp_path: Path, call: Call, audited: Path) -> None:
    out = tmp_path / "audit"
    shutil.copytree(audited, out)
    lines = (out / "results.jsonl").read_text().splitlines(keepends=True)
    (out / "results.jsonl").write_text("".join([lines[0], "{}\n", *lines[2:]]))
    refused(call("report", out), "results.jsonl", "line 2")
    refused(call("report", tmp_path), str(tmp_path))


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ([], ["--table", "--party"]),
        (["--party", "telco"], ["'telco'", "NAME=TABLE"]),
        (["--party", "telko=t.csv"], ["'telko'", "'telco'"]),
        (["--party", "telco=t.csv"], ["'active'"]),
        (["--party", "telco=t.csv", "--party", "telco=t.csv"], ["'telco'", "twice"]),
        (["--table", "nowhere.csv"], ["nowhere.csv"]),
    ],
)
def test_tables_to_predict(tmp_path: Path, call: Call, trained: Path, tables: list[str], words: list[str]) -> None:
    refused(call("predict", trained, "--out", tmp_path / "predictions.parquet", *tables), *words)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, call: Call) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    write_table(folder / "table.csv")
    assert call("train", write_job(folder), "--out", folder / "run", "--defense", "none").exit_code == 0
    return folder / "run"


def test_predicting_columns_that_are_missing(tmp_path: Path, call: Call, trained: Path) -> None:
    (tmp_path / "few.csv").write_text("a0,a1,t0\n1,2,3\n")
    out = tmp_path / "predictions.parquet"
    refused(call("predict", trained, "--table", tmp_path / "few.csv", "--out", out), "'telco'", "t1")
    refused(call("predict", tmp_path, "--table", tmp_path / "few.csv", "--out", out), "no model")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--attack", "id3graph"], ["--attack", "'id3graph'", "'id2graph'"]),
        (["--attack", "id2graph", "--param", "etta=1"], ["'etta'", "'eta'"]),
        (["--attack", "id2graph", "--param", "eta"], ["--param", "'eta'"]),
        (["--attack", "id2graph", "--param", "eta=much"], ["eta", "'much'"]),
        (["--attack", "id2graph", "--param", "eta=1", "--param", "eta=2"], ["'eta'", "twice"]),
    ],
)
def test_attacks_that_cannot_be(
    tmp_path: Path, call: Call, audited: Path, options: list[str], words: list[str]
) -> None:
    common = ["--features", audited / "data/1/telco.parquet", "--classes", 2, "--seed", 1]
    view, out = audited / "runs/none/1/telco/view", tmp_path / "guess.parquet"
    refused(call("attack", view, *common, *options, "--out", out), *words)
    assert not out.exists()


def test_numbers_of_an_attack_that_cannot_be(tmp_path: Path, call: Call, audited: Path) -> None:
    view, out = audited / "runs/none/1/telco/view", tmp_path / "guess.parquet"
    common = ["attack", view, "--features", audited / "data/1/telco.parquet", "--attack", "clustering", "--out", out]
    refused(call(*common, "--classes", 97, "--seed", 1), "--classes", "97", "96 rows")
    for classes, seed, name in ((1, 1, "--classes"), (2, 2**32, "--seed"), (2, -1, "--seed")):
        result = call(*common, "--classes", classes, "--seed", seed)
        assert result.exit_code == 2
        assert name in result.stderr
    assert not out.exists()


def test_an_attack_on_passive_views_refuses_that_of_the_active_party(audited: Path, tmp_path: Path, call: Call) -> None:
    """It would find whole trees there, and the labels beside them."""
    view, features = audited / "runs/none/1/active/view", audited / "data/1/active.parquet"
    common = [
        "attack",
        view,
        "--features",
        features,
        "--classes",
        "2",
        "--seed",
        1,
        "--out",
        tmp_path / "guess.parquet",
    ]
    for kind in ("id2graph", "union", "split-replay"):
        refused(call(*common, "--attack", kind), f"attack '{kind}'", "passive")
    assert not (tmp_path / "guess.parquet").exists()


def test_a_view_that_was_cut_off(tmp_path: Path, call: Call, audited: Path) -> None:
    """Its last record says how the recording ended; attacking without it must be asked for."""
    view, out = tmp_path / "view", tmp_path / "guess.parquet"
    shutil.copytree(audited / "runs/none/1/telco/view", view)
    path = next(view.iterdir())
    path.write_bytes(_without_last_record(path))
    common = ["attack", view, "--features", audited / "data/1/telco.parquet", "--attack", "id2graph"]
    common += ["--classes", 2, "--seed", 1, "--out", out]
    refused(call(*common), "closing record")
    assert not out.exists()
    assert call(*common, "--incomplete").exit_code == 0
    assert read_guess(out).about["view"] == "cut off"


def _without_last_record(path: Path) -> bytes:
    """Walk the records: a first line, then for each a length of four bytes, a body and a hash of 32 bytes."""
    data = path.read_bytes()
    last = position = data.index(b"\n") + 1
    while position < len(data):
        last, position = position, position + 4 + int.from_bytes(data[position : position + 4], "little") + 32
    return data[:last]


def test_features_with_ids_of_another_name(tmp_path: Path, call: Call) -> None:
    write_table(tmp_path / "table.csv", customer=[f"c{row:03}" for row in range(120)])
    changes = {'label = "label"': 'label = "label"\nid = "customer"', "seeds = [1, 2]": "seeds = [1]"}
    job = write_job(tmp_path, changes=changes)
    assert call("audit", job, "--out", tmp_path / "audit").exit_code == 0
    stored = pyarrow.parquet.read_table(tmp_path / "audit/data/1/telco.parquet")
    mine, out = tmp_path / "mine.parquet", tmp_path / "guess.parquet"
    pyarrow.parquet.write_table(
        stored.rename_columns(["customer" if name == "id" else name for name in stored.column_names]), mine
    )
    common = ["attack", tmp_path / "audit/runs/none/1/telco/view", "--features", mine, "--attack", "clustering"]
    common += ["--classes", 2, "--seed", 1, "--out", out]
    refused(call(*common), "customer")
    assert call(*common, "--id", "customer").exit_code == 0
    assert list(read_guess(out).ids) == stored["id"].to_pylist()


def test_features_and_truth_of_other_rows(tmp_path: Path, call: Call, audited: Path) -> None:
    view, out = audited / "runs/none/1/telco/view", tmp_path / "guess.parquet"
    common = ["--attack", "clustering", "--classes", 2, "--seed", 1, "--out", out]
    other = write_table(tmp_path / "other.csv", rows=7, label=[0, 1] * 3 + [1])
    refused(call("attack", view, "--features", other, *common), "other.csv", "7 rows", "'telco'")
    assert call("attack", view, "--features", audited / "data/1/telco.parquet", *common).exit_code == 0
    refused(call("score", out, "--truth", other), "other.csv", "no row")
    refused(call("score", out, "--truth", audited / "data/1/truth.parquet", "--label", "lable"), "'lable'", "'label'")
    refused(call("score", other, "--truth", other), "other.csv")


def test_unknown_families_options_and_commands(call: Call) -> None:
    refused(call("list", "atacks"), "'atacks'", "'attacks'")
    for arguments in (["audit"], ["audit", "job.toml"], ["list", "--yaml"], ["adit"], ["view", "look", "."]):
        result = call(*arguments)
        assert result.exit_code == 2
        assert "Traceback" not in result.output


def test_a_variant_must_be_chosen(tmp_path: Path, call: Call, job: Path) -> None:
    refused(call("train", job, "--out", tmp_path / "run"), "several variants", "none", "id-lmid-xi-0.1")
    refused(call("train", job, "--out", tmp_path / "run", "--defense", "id-lmid"), "'id-lmid'", "id-lmid-xi-0.1")
    assert not (tmp_path / "run").exists()


def test_going_on_with_what_does_not_fit(tmp_path: Path, call: Call, trained: Path) -> None:
    write_table(tmp_path / "table.csv")
    job, out = write_job(tmp_path), tmp_path / "run"
    common = ["--out", out, "--defense", "none", "--continue"]
    refused(call("train", job, *common, trained, "--seed", 9), "trained with seed 1", "seed 9")
    refused(call("train", job, *common, tmp_path / "nowhere"), str(tmp_path / "nowhere"), "labelward train")
    other = write_job(tmp_path, changes={"trees = 2": 'kind = "forest"\ntrees = 2'})
    refused(call("train", other, *common, trained), "[model] kind", "'secureboost'", "'forest'")
    fewer = write_job(tmp_path, changes={', "t2"]': "]"})
    refused(call("train", fewer, *common, trained), "'telco'", "'t2'")
    larger = write_job(tmp_path, changes={"[parties]": "test_size = 0.5\n[parties]"})
    refused(call("train", larger, *common, trained), "[data] test_size", "0.2, not 0.5")
    assert not out.exists()


def test_the_job_of_these_tests_is_a_job(tmp_path: Path, call: Call) -> None:
    """Else every refusal above might be for another reason."""
    write_table(tmp_path / "table.csv")
    assert "secureboost" not in JOB  # the default kind: changes above put one in its place
    assert call("audit", write_job(tmp_path), "--out", tmp_path / "audit").exit_code == 0


def test_an_alignment_never_replaces_its_table(tmp_path: Path, call: Call) -> None:
    write_table(tmp_path / "table.csv")
    table = tmp_path / "rows.parquet"
    table.write_bytes(b"as it was")
    options = ["--align", table, "--to", tmp_path / "." / "rows.parquet", "--force"]
    result = call("party", write_job(tmp_path), "--as", "telco", *options)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("error: --to: ")
    assert table.read_bytes() == b"as it was"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--to", "out.csv"], ["--to", "--align", "--predict", "--explain", "--export"]),
        (["--align", "rows.csv"], ["--to", "--align"]),
        (["--align", "rows.csv", "--predict", "rows.csv", "--to", "out.csv"], ["--align", "--predict"]),
        (["--background", "rows.csv"], ["--background", "--explain"]),
        (["--predict", "rows.csv", "--background", "rows.csv"], ["--background", "--explain"]),
        (["--export", "--background", "rows.csv"], ["--background", "--explain"]),
        (["--predict", "rows.csv", "--restart"], ["--restart", "training"]),
        (["--align", "rows.csv", "--to", "rows.parquet", "--seed", "1"], ["--seed", "training"]),
        (["--export", "--defense", "none"], ["--defense", "training"]),
        (["--most-ids", "9"], ["--most-ids", "--align"]),
        (["--predict", "rows.csv", "--force"], ["--force", "--to"]),
        (["--mode", "levels"], ["--mode", "--predict"]),
        (["--predict", "rows.csv", "--background-rows", "9"], ["--background-rows", "--explain"]),
    ],
)
def test_options_of_a_party_that_need_another_one(
    tmp_path: Path, call: Call, options: list[str], words: list[str]
) -> None:
    refused(call("party", tmp_path / "job.toml", "--as", "telco", *options), *words)
    assert not list(tmp_path.iterdir())
