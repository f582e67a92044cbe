"""What each command does when all is well."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import typer
from small_jobs import Call, write_job, write_table

from labelward.cli._progress import ProgressDisplay
from labelward.cli.app import app
from labelward.cli.audit import demo_job, demo_text
from labelward.job import load_job, parse_job, template
from labelward.messages.handshake import KeyOffer
from labelward.messages.tree import EncryptedTreeRows
from labelward.party.view import View

ROOT = Path(__file__).parents[2]
COMMANDS: dict[str, Any] = vars(typer.main.get_command(app))["commands"]


def test_the_version_is_the_installed_one(call: Call) -> None:
    assert call("--version").stdout == f"labelward {version('labelward')}\n"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_of_a_command_ends_with_an_example(name: str, call: Call) -> None:
    shown = call(name, "--help")
    assert shown.exit_code == 0
    example = shown.stdout[shown.stdout.rindex("Example: ") :].split()
    assert example[:3] == ["Example:", "labelward", name]
    assert example == str(COMMANDS[name].epilog).split()


def test_help_answers_at_once() -> None:
    """In 0.7 s, which a person hardly notices, or three times what Typer alone takes on a slow machine.

    In processor time, since other tests run beside this one.
    """
    least = _seconds("-c", "import typer.rich_utils, rich.markdown, msgspec")
    assert _seconds("-m", "labelward", "--help") < max(0.7, 3 * least)


def _seconds(*arguments: str) -> float:
    """Return the processor seconds of a Python process."""
    before = os.times()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, labelward.cli.app; print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["numpy", "scipy", "sklearn", "numba", "pyarrow", "matplotlib", "gmpy2"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_init_writes_a_job_that_loads(tmp_path: Path, call: Call) -> None:
    path = tmp_path / "job.toml"
    assert call("init", path).exit_code == 0
    assert load_job(path).model.kind == "secureboost"
    path.write_text("mine")
    assert call("init", path, "--force").exit_code == 0
    assert load_job(path).model.kind == "secureboost"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_job_file_that_does_not_fit_leaves_none(tmp_path: Path, call: Call) -> None:
    path = tmp_path / "job.toml"
    (tmp_path / "job.toml.partial").symlink_to("/dev/full")
    assert call("init", path).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_the_job_to_begin_with_tries_bounds_that_can_act() -> None:
    """Two classes have at most ln 2 = 0.69 nats to tell; a larger xi forbids hardly anything."""
    for text in (template(), demo_text()):
        tried = [kind.params["xi"] for one in parse_job(text).defenses for kind in one.chain if kind.kind == "id-lmid"]
        assert tried == [0.1, 0.3, 0.5]


def test_the_example_is_the_shipped_job() -> None:
    assert (ROOT / "examples" / "quickstart.toml").read_text(encoding="utf-8") == demo_text()
    job = parse_job(demo_text())
    assert demo_job(small=False) == job
    assert demo_job(small=True).encryption == job.encryption
    assert job.encryption.bits == 2048
    assert not job.encryption.insecure


def test_an_audit_prints_figures_and_writes_all_files(tmp_path: Path, call: Call, job: Path) -> None:
    out = tmp_path / "audit"
    result = call("audit", job, "--out", out)
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[0].startswith("warning: ")
    assert "no encryption" in result.stderr.splitlines()[0]
    assert "run 1 of 4: " in result.stderr
    assert "run 3 of 4: " in result.stderr
    for word in ("id2graph", "clustering", "V-measure", "AUC", "telco", f"report: {out / 'report.html'}"):
        assert word in result.stdout
    assert (out / "report.html").stat().st_size > 10_000
    shown = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert shown == {"data", "job.toml", "private-seeds.json", "report.html", "results.jsonl", "runs"}


def test_the_same_audit_again_does_nothing_new(call: Call, audited: Path) -> None:
    before = (audited / "results.jsonl").read_bytes()
    result = call("audit", audited.parent / "job.toml", "--out", audited)
    assert result.exit_code == 0
    assert not re.search(r"run \d", result.stderr)
    assert (audited / "results.jsonl").read_bytes() == before


def test_json_is_one_object_with_the_names_of_the_rows(call: Call, audited: Path) -> None:
    result = call("audit", audited.parent / "job.toml", "--out", audited, "--json")
    summary = json.loads(result.stdout)
    rows = [json.loads(line) for line in (audited / "results.jsonl").read_text().splitlines()]
    assert summary["versions"] == rows[0]["versions"]
    assert len(summary["summary"]) == 6  # two variants, three attacks
    for entry in summary["summary"]:
        mine = [row for row in rows if row["defense"] == entry["defense"] and row["attack"] == entry["attack"]]
        assert entry["seeds"] == len(mine) == 2
        assert entry.keys() - {"seeds"} == mine[0].keys() - {"seed", "format", "versions"}
        for block in ("leakage", "utility", "cost"):
            assert entry[block].keys() == mine[0][block].keys()
        primary = mine[0]["leakage"]["primary"]
        values = [row["leakage"][primary] for row in mine]
        assert entry["leakage"][primary]["mean"] == pytest.approx(sum(values) / 2, abs=1e-15)  # one rounding


def test_the_time_left_is_told_without_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run takes 100 s, since it compiles; each other one 2 s."""
    now = 0.0
    monkeypatch.setattr("labelward.cli._progress.time.monotonic", lambda: now)
    board = ProgressDisplay("starting", quiet=False)
    told = []
    for done in range(5):
        board("runs", done, 5, f"run {done}")
        told.append(board.time_left())
        now += 2.0 if done else 100.0
    assert told == ["", "", "about 6 s left", "about 4 s left", "about 2 s left"]


def test_a_run_that_goes_on_measures_its_own_runs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("labelward.cli._progress.time.monotonic", lambda: now)
    board = ProgressDisplay("starting", quiet=False)
    told = []
    for done in range(7, 10):
        board("runs", done, 10, f"run {done}")
        told.append(board.time_left())
        now += 3.0
    assert told == ["", "", "about 3 s left"]


def test_the_leakage_meter_is_shown_until_the_next_run_begins() -> None:
    board = ProgressDisplay("starting", quiet=False)
    told = [board.leakage()]
    for party, thousandths in (("telco", 312), ("shop", 90), ("telco", 408)):
        board(f"leakage {party}", thousandths, 1000, "")
        told.append(board.leakage())
    board("runs", 1, 2, "id-lmid")
    assert [*told, board.leakage()] == [
        "",
        " · V-measure telco 0.31",
        " · V-measure telco 0.31, shop 0.09",
        " · V-measure telco 0.41, shop 0.09",
        "",
    ]


def test_quiet_says_no_progress(tmp_path: Path, call: Call, job: Path) -> None:
    result = call("audit", job, "--out", tmp_path / "audit", "--quiet")
    assert [line for line in result.stderr.splitlines() if not line.startswith("warning: ")] == []


def test_report_writes_the_page_again(call: Call, audited: Path) -> None:
    page = audited / "report.html"
    before = page.read_bytes()
    page.unlink()
    assert call("report", audited).stdout == f"{page}\n"
    assert page.read_bytes() == before


def test_report_tells_what_is_missing(tmp_path: Path, call: Call, audited: Path) -> None:
    folder = tmp_path / "audit"
    shutil.copytree(audited, folder)
    shutil.rmtree(folder / "runs")
    result = call("report", folder)
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: ")


@pytest.mark.slow
def test_train_then_predict_in_a_new_process(tmp_path: Path, call: Call, job: Path) -> None:
    run = tmp_path / "run"
    result = call("train", job, "--out", run, "--defense", "id-lmid-xi-0.1", "--seed", 1)
    assert result.exit_code == 0, result.output
    assert "auc  " in result.stdout
    assert {path.name for path in run.iterdir()} == {
        "job.toml",
        "private-seeds.json",
        "training.json",
        "active",
        "telco",
    }
    files = []
    for number, tables in enumerate(
        (
            ["--table", tmp_path / "table.csv"],
            [f"--party={name}={tmp_path / 'table.csv'}" for name in ("active", "telco")],
        )
    ):
        files.append(tmp_path / f"{number}.parquet")
        command = [sys.executable, "-m", "labelward", "predict", run, "--out", files[-1], *tables]
        subprocess.run([str(each) for each in command], check=True, capture_output=True)
    one, other = (pyarrow.parquet.read_table(file) for file in files)
    assert one.equals(other)
    assert one.column_names == ["id", "margin", "probability_0", "probability_1", "prediction"]
    assert one.num_rows == 120
    truth = [int(line.split(",")[-1]) for line in (tmp_path / "table.csv").read_text().splitlines()[1:]]
    right = sum(int(guess) == label for guess, label in zip(one["prediction"].to_pylist(), truth, strict=True))
    assert right > 72  # by chance 60 ± 5.5 of 120


def test_train_with_validation_rows_and_go_on(tmp_path: Path, call: Call, job: Path) -> None:
    text = job.read_text()
    for old, new in (
        ("[parties]", "validation_size = 0.25\n[parties]"),
        ("depth = 3", 'depth = 3\neval_metric = "auc"'),
    ):
        text = text.replace(old, new)
    job.write_text(text)
    first, second = tmp_path / "first", tmp_path / "second"
    result = call("train", job, "--out", first, "--defense", "none", "--seed", 7)
    assert re.match(r"best round  [12] of 2 \(auc 0\.\d{4} on the validation rows\)\nauc  ", result.stdout), (
        result.output
    )
    result = call("train", job, "--out", second, "--defense", "none", "--continue", first)  # with the seed of the first
    assert result.exit_code == 0, result.output
    files = []
    for mode in ("one-round", "levels"):
        files.append(tmp_path / f"{mode}.parquet")
        done = call("predict", second, "--table", tmp_path / "table.csv", "--mode", mode, "--out", files[-1])
        assert done.exit_code == 0, done.output
    one, other = (pyarrow.parquet.read_table(file) for file in files)
    assert one.equals(other)


def test_predictions_say_what_the_model_does_not_know(tmp_path: Path, call: Call, job: Path) -> None:
    table, run, out = tmp_path / "table.csv", tmp_path / "run", tmp_path / "out.parquet"
    write_table(table, t2=["north", "south"] * 60)
    assert call("train", job, "--out", run, "--defense", "none").exit_code == 0
    write_table(table, rows=1, t2=["North"])
    result = call("predict", run, "--table", table, "--out", out)
    assert result.stdout == f"wrote {out}: 1 row\n"
    assert result.stderr.startswith("warning: party 'telco', table ")
    assert "column 't2'" in result.stderr
    result = call("explain", "rows", run, "--table", table, "--out", tmp_path / "shap.parquet")
    assert result.stderr.count("column 't2'") == 1
    assert {path.stat().st_mode & 0o777 for path in (out, tmp_path / "shap.parquet")} == {0o600}


@pytest.mark.parametrize(("scale", "told"), [(1e-7, r"rmse  \d\.\d{3}e-0\d"), (1e140, r"rmse  \d\.\d{3}e\+1[34]\d")])
def test_figures_of_any_size(tmp_path: Path, call: Call, job: Path, scale: float, told: str) -> None:
    write_table(tmp_path / "table.csv", label=scale * np.random.default_rng(1).normal(size=120))
    job.write_text(job.read_text().replace("[parties]", 'task = "regression"\n[parties]'))
    result = call("train", job, "--out", tmp_path / "run", "--defense", "none")
    assert re.match(told, result.stdout), result.output
    assert max(map(len, result.stdout.splitlines()[:-1])) < 24


def test_train_needs_force_a_second_time(tmp_path: Path, call: Call, job: Path) -> None:
    arguments = ["train", job, "--out", tmp_path / "run", "--defense", "none", "--quiet"]
    assert call(*arguments).exit_code == 0
    assert call(*arguments).exit_code == 2
    assert call(*arguments, "--force").exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "seed", "kind"),
    [("none", 1, "id2graph"), ("id-lmid-xi-0.1", 2, "id2graph"), ("none", 2, "clustering")],
)
def test_a_stored_attack_gives_the_inline_figure(
    tmp_path: Path, audited: Path, variant: str, seed: int, kind: str
) -> None:
    """In new processes, one with view and features alone, one with guess and truth: equal to the last digit."""
    guess, data = tmp_path / "guess.parquet", audited / "data" / str(seed)
    attack = ["attack", audited / "runs" / variant / str(seed) / "telco/view", "--features", data / "telco.parquet"]
    attack += ["--attack", kind, "--classes", 2, "--seed", seed, "--out", guess]
    score = ["score", guess, "--truth", data / "truth.parquet", "--json"]
    for arguments in (attack, score):
        command = [sys.executable, "-m", "labelward", *map(str, arguments)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    rows = [json.loads(line) for line in (audited / "results.jsonl").read_text().splitlines()]
    defense = [] if variant == "none" else ["id-lmid"]
    inline = next(
        row["leakage"]
        for row in rows
        if row["seed"] == seed and row["attack"]["kind"] == kind and [one["kind"] for one in row["defense"]] == defense
    )
    assert found == {name: inline[name] for name in found}
    assert {"v_measure", "ari", "chance"} <= found.keys()
    assert guess.stat().st_mode & 0o777 == 0o600


def test_score_for_people(tmp_path: Path, call: Call, audited: Path) -> None:
    guess = tmp_path / "guess.parquet"
    view = audited / "runs/none/1/telco/view"
    common = ["--features", audited / "data/1/telco.parquet", "--classes", 2, "--seed", 1, "--out", guess]
    result = call("attack", view, *common, "--attack", "id2graph", "--param", "eta=1.0")
    assert result.exit_code == 0, result.output
    assert "warning" in result.stderr
    result = call("score", guess, "--truth", audited / "data/1/truth.parquet")
    assert result.stdout.startswith("v_measure  ")
    assert "(chance " in result.stdout


def test_a_forest_of_copies_gets_a_warning(tmp_path: Path, call: Call) -> None:
    write_table(tmp_path / "table.csv")
    changes = {"trees = 2": 'kind = "forest"\ntrees = 2'}
    options = ["--out", tmp_path / "run", "--defense", "none", "--seed", 1]
    assert "draw neither rows" in call("train", write_job(tmp_path, changes=changes), *options).stderr
    changes = {"trees = 2": 'kind = "forest"\ntrees = 2\nrow_fraction = 0.8'}
    assert "draw neither rows" not in call("train", write_job(tmp_path, changes=changes), *options, "--force").stderr


@pytest.mark.parametrize("limit", ["min_rows = 1000", "gamma = 1e9"])
def test_a_model_without_splits_gets_a_warning(limit: str, tmp_path: Path, call: Call) -> None:
    write_table(tmp_path / "table.csv")
    options = ["--out", tmp_path / "run", "--defense", "none", "--seed", 1]
    told = call("train", write_job(tmp_path, changes={"trees = 2": f"trees = 2\n{limit}"}), *options)
    assert told.exit_code == 0, told.output
    assert "has a split" in told.stderr
    assert "has a split" not in call("train", write_job(tmp_path), *options, "--force").stderr


def test_an_audit_of_quantities_and_its_stored_attack(tmp_path: Path, call: Call) -> None:
    rng = np.random.default_rng(3)
    write_table(tmp_path / "table.csv", label=rng.gamma(2.0, size=120))
    changes = {
        'label = "label"': 'label = "label"\ntask = "regression"',
        "trees = 2": 'kind = "forest"\ntrees = 2',
        '[[defense]]\nkind = "id-lmid"\nxi = 0.1\n': "",
        "seeds = [1, 2]": "seeds = [1]",
    }
    out, guess = tmp_path / "audit", tmp_path / "guess.parquet"
    result = call("audit", write_job(tmp_path, changes=changes), "--out", out, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)["summary"][0]
    assert list(figures["utility"]) == ["rmse", "mae", "r2", "alone", "joined", "primary"]
    data = out / "data/1"
    attack = ["--features", data / "telco.parquet", "--attack", "id2graph", "--classes", 4, "--seed", 1, "--out", guess]
    assert call("attack", out / "runs/none/1/telco/view", *attack).exit_code == 0
    found = json.loads(call("score", guess, "--truth", data / "truth.parquet", "--bins", 4, "--json").stdout)
    for name in ("v_measure", "ari", "r2"):
        assert found[name] == figures["leakage"][name]["mean"]
    shown = call("report", out)
    assert shown.exit_code == 0, shown.output


def test_list(call: Call) -> None:
    text = call("list").stdout
    for word in (
        "models",
        "secureboost",
        "forest",
        "defenses",
        "id-lmid",
        "xi (required)",
        "attacks",
        "id2graph",
        "paillier",
    ):
        assert word in text
    attacks = call("list", "attacks")
    assert attacks.exit_code == 0
    assert "id2graph" in attacks.stdout
    assert "secureboost" not in attacks.stdout
    families = json.loads(call("list", "--json").stdout)
    assert list(families) == ["models", "defenses", "attacks", "engines", "tables"]
    parameters = families["defenses"][[one["kind"] for one in families["defenses"]].index("id-lmid")]["parameters"]
    assert [(one["name"], one["default"]) for one in parameters] == [("xi", "required"), ("sampled", "False")]


def test_list_says_what_each_name_means(call: Call) -> None:
    families = json.loads(call("list", "--json").stdout)
    for model in families["models"]:
        docs = {one["name"]: one["doc"] for one in model["parameters"]}
        assert len(set(docs.values())) == len(docs)  # none has the words of another
    names = {model["kind"]: {one["name"] for one in model["parameters"]} for model in families["models"]}
    boosted, forest = names["secureboost"], names["forest"]
    assert {"learning_rate", "objective"} <= boosted - forest
    assert forest - boosted == {"replace", "trees_at_once"}
    engines = call("list", "engines")
    assert engines.exit_code == 0
    assert "paillier" in engines.stdout
    assert "insecure=True" not in engines.stdout
    tables = {one["kind"]: one["summary"] for one in families["tables"]}
    assert tables["breast_cancer"].endswith("569 rows, 30 columns, 2 classes")
    assert tables["digits"].endswith("10 classes")
    assert tables["appliances_energy"].endswith("regression")


def test_view_commands(call: Call, audited: Path) -> None:
    view = audited / "runs/none/1/telco/view"
    shown = call("view", "show", view, "--messages", 3).stdout
    assert shown.startswith("INSECURE: plain engine")
    for word in (
        "'telco' (passive)",
        "96 training rows, 24 prediction rows",
        "TreeStart",
        "OwnSplit",
        "model.depth = 3",
    ):
        assert word in shown
    assert shown.count("received from active: ") == 3
    assert "bytes sent" in shown
    assert "bytes stored" in shown
    opened = View.load(view)
    key = next(opened.received(KeyOffer)).message
    assert f"key=PublicMaterial(engine='plain', bits=0, data=<{len(key.key.data)} bytes>)" in shown
    digest = next(opened.received(EncryptedTreeRows)).message.gradients.sha256
    assert f"sha256={digest.hex()}" in call("view", "show", view, "--messages", 10**21).stdout
    for line in shown.splitlines():
        cells = line.split()
        if cells[:1] in (["sent"], ["received"]) and "from" not in cells:
            assert len(cells) == 4  # one of the two columns is empty
    assert "intact: " in call("view", "verify", view).stdout
    digest = call("view", "digest", view).stdout
    assert len(digest.strip()) == 64
    assert digest == call("view", "digest", view).stdout
    assert digest != call("view", "digest", audited / "runs/none/2/telco/view").stdout


def test_equal_runs_have_equal_views(tmp_path: Path, call: Call) -> None:
    """The digest of the view content does not depend on the key."""
    write_table(tmp_path / "table.csv")
    job, digests = write_job(tmp_path), set()
    for number in range(2):
        run = tmp_path / str(number)
        assert call("train", job, "--out", run, "--defense", "none").exit_code == 0
        digests.add(call("view", "digest", run / "telco/view").stdout)
    assert len(digests) == 1


def test_the_stored_job_is_complete(audited: Path) -> None:
    stored = tomllib.loads((audited / "job.toml").read_text())
    assert stored["model"]["learning_rate"] == 0.3
    assert stored["encryption"]["precision"] == 30
