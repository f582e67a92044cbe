"""What CONTRIBUTING says works as written: each example is one new file and one line in a list, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import labelward

GUIDE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"New file `src/([^`]+)`:\n\n```python\n(.*?)```", GUIDE, re.DOTALL))
LINES = re.findall(r"One line in the list of `src/([^`]+)`:\n\n```text\n([^\n]+\n)```", GUIDE, re.DOTALL)
CONTRACT_TEST = re.search(r"suite that every engine passes:\n\n```python\n(.*?)```", GUIDE, re.DOTALL)

JOB = """
[data]
table = "breast_cancer"
[parties]
active = 0.5
telco = 0.5
[model]
trees = 2
depth = 3
[encryption]
insecure = true
{encryption}
{rest}
[run]
seeds = [1]
"""

ARROW_TABLES = """
import sys
from pathlib import Path
import numpy as np, pyarrow as pa
rows = np.random.default_rng(1).standard_normal((60, 4))
columns = {"id": np.arange(60), "y": (rows.sum(axis=1) > 0).astype(int), **{f"x{i}": rows[:, i] for i in range(4)}}
for name, wanted in {"all": list(columns), "bank": ["id", "y", "x0", "x1"], "telco": ["id", "x2", "x3"]}.items():
    table = pa.table({column: columns[column] for column in wanted})
    with pa.ipc.new_file(str(Path(sys.argv[1]) / f"{name}.arrow"), table.schema) as file:
        file.write_table(table)
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with all examples added as the guide says."""
    root = tmp_path_factory.mktemp("extended")
    shutil.copytree(Path(labelward.__file__).parent, root / "labelward")
    for name, code in FILES.items():
        assert not (root / name).exists(), f"{name} is no new file"
        (root / name).write_text(code, encoding="utf-8")
    for name, line in LINES:
        _insert_after_the_last_entry(root / name, line)
    return root


def _insert_after_the_last_entry(path: Path, line: str) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    entry = r'( +"[\w-]+:\w+",\n)' if ":" in line.split()[0] and "labelward" not in line else r'( +"[\w.-]+": ".*",\n)'
    positions = [number for number, each in enumerate(lines) if re.fullmatch(entry, each)]
    lines.insert(positions[-1] + 1, line)
    path.write_text("".join(lines), encoding="utf-8")


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=300)


def _rows(
    root: Path, folder: Path, *, encryption: str, rest: str, repeat: Sequence[Path] = ()
) -> list[dict[str, object]]:
    job = folder / "job.toml"
    job.write_text(JOB.format(encryption=encryption, rest=rest), encoding="utf-8")
    more = [f"--repeat={each}" for each in repeat]
    done = _run(root, "-m", "labelward", "audit", str(job), "--out", str(folder / "audit"), "--quiet", *more)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "audit" / "results.jsonl").read_text().splitlines()]


def test_each_example_is_one_file_and_one_line() -> None:
    assert sorted(Path(name).parent.name for name in FILES) == [
        "attacks",
        "attacks",
        "data",
        "defenses",
        "he",
        "studies",
    ]
    lists = ["attacks", "attacks", "defenses", "he", "job", "studies"]
    assert sorted(Path(name).parent.name for name, _ in LINES) == lists
    assert all(line.count("\n") == 1 for _, line in LINES)


def test_list_shows_the_examples(extended: Path) -> None:
    where = _run(extended, "-c", "import labelward; print(labelward.__file__)")
    assert where.stdout.startswith(str(extended))
    done = _run(extended, "-m", "labelward", "list", "--json")
    assert done.returncode == 0, done.stderr
    found = {family: {one["kind"]: one for one in kinds} for family, kinds in json.loads(done.stdout).items()}
    assert found["attacks"]["one-tree"]["parameters"][0]["name"] == "tree"
    assert found["defenses"]["shallow"]["parameters"][0]["default"] == "required"
    assert found["engines"]["textbook"]["summary"].startswith("Paillier as in a textbook")


@pytest.mark.slow
def test_a_table_format_is_read_by_jobs_and_commands(extended: Path, tmp_path: Path) -> None:
    """As the common table of a job, as each party's own, and by a command; help texts and the template name it."""
    done = _run(extended, "-c", ARROW_TABLES, str(tmp_path))
    assert done.returncode == 0, done.stderr
    parties = {
        "common": '[data]\ntable = "all.arrow"\nlabel = "y"\nid = "id"\n[parties]\nactive = 0.5\ntelco = 0.5\n',
        "own": '[parties.bank]\ntable = "bank.arrow"\nid = "id"\nlabel = "y"\n'
        '[parties.telco]\ntable = "telco.arrow"\nid = "id"\n',
    }
    for name, tables in parties.items():
        job = tmp_path / f"{name}.toml"
        job.write_text(
            tables
            + JOB.partition("[model]")[1]
            + JOB.partition("[model]")[2].format(encryption='engine = "plain"', rest="")
        )
        done = _run(extended, "-m", "labelward", "train", str(job), "--out", str(tmp_path / name), "--quiet")
        assert done.returncode == 0, done.stderr
    new = [f"--party={party}={tmp_path / party}.arrow" for party in ("bank", "telco")]
    out = tmp_path / "predicted.parquet"
    done = _run(extended, "-m", "labelward", "predict", str(tmp_path / "own"), *new, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert out.is_file()
    assert ".arrow" in _run(extended, "-m", "labelward", "attack", "--help").stdout
    assert _run(extended, "-m", "labelward", "init", str(tmp_path / "new.toml")).returncode == 0
    assert ".arrow" in (tmp_path / "new.toml").read_text(encoding="utf-8")


@pytest.mark.slow
def test_an_audit_runs_with_the_attack_and_the_defense(extended: Path, tmp_path: Path) -> None:
    rest = '[[defense]]\nkind = "shallow"\nlevels = [0, 1]\n[[attack]]\nkind = "one-tree"'
    rows = _rows(extended, tmp_path, encryption='engine = "plain"', rest=rest)
    leakage = {
        json.dumps(row["defense"]): row["leakage"]["v_measure"]  # type: ignore[index]
        for row in rows
        if row["attack"]["kind"] == "one-tree"  # type: ignore[index]
    }
    # without a level to see there is one cluster, which tells nothing; a level tells something
    assert leakage['[{"kind": "shallow", "levels": 0}]'] == 0
    assert leakage['[{"kind": "shallow", "levels": 1}]'] > 0
    assert leakage["[]"] > 0


@pytest.mark.slow
def test_the_engine_gives_the_trees_of_the_plain_one(extended: Path, tmp_path: Path) -> None:
    """And it passes the contract suite that the guide names."""
    utilities = []
    for encryption in ('engine = "plain"', 'engine = "textbook"\nbits = 512\n[encryption.textbook]\nrounds = 5'):
        folder = tmp_path / str(len(utilities))
        folder.mkdir()
        first = [tmp_path / "0" / "audit"] if utilities else []
        utilities.append(_rows(extended, folder, encryption=encryption, rest="", repeat=first)[0]["utility"])
    assert utilities[0] == utilities[1]
    assert CONTRACT_TEST is not None
    (tmp_path / "test_textbook.py").write_text(CONTRACT_TEST[1], encoding="utf-8")
    done = _run(extended, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_textbook.py"))
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_study_is_listed_run_and_shown(extended: Path, tmp_path: Path) -> None:
    """Its command, parts, model titles and page come from its module."""
    listed = _run(extended, "-m", "labelward", "study")
    assert "tree-depth" in listed.stdout
    done = _run(extended, "-m", "labelward", "study", "tree-depth", "--out", str(tmp_path / "study"), "--quiet")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "study" / "study.html").read_text(encoding="utf-8")
    stored = [
        (tmp_path / "study" / f"depth-{depth}" / "breast_cancer" / "secureboost" / "1" / "results.jsonl").read_text()
        for depth in (2, 4)
    ]
    for row in (json.loads(line) for lines in stored for line in lines.splitlines()):
        if row["attack"]["kind"] == "id2graph":
            assert f"{row['leakage']['v_measure']:.3f}" in page
    assert "breast_cancer, boosted trees" in page
    assert "paper 0.700" in page


@pytest.mark.slow
def test_the_engine_with_its_own_parameters_is_planned_and_benchmarked(extended: Path, tmp_path: Path) -> None:
    """A plan is priced by the engine's own ciphertexts: three of a row and of a sum, of 128 bytes at 512 bits."""
    job = tmp_path / "job.toml"
    section = 'engine = "textbook"\nbits = 512\nworkers = 1\n[encryption.textbook]\nrounds = {rounds}'
    job.write_text(JOB.format(encryption=section.format(rounds=3), rest=""), encoding="utf-8")
    done = _run(extended, "-m", "labelward", "plan", str(job), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["unit_costs"]["engine"] == "textbook"
    encrypted = found["estimate"]["encryptions"]
    assert encrypted % 3 == 0
    assert found["estimate"]["bytes"]["active"] > 128 * encrypted
    measured = _run(extended, "-m", "labelward", "doctor", "--engine", "textbook", "--parameter", "rounds=3", "--json")
    assert measured.returncode == 0, measured.stderr
    (kernel,) = json.loads(measured.stdout)["kernels"]
    assert (kernel["engine"], kernel["kernel"], list(kernel["microseconds"])) == ("textbook", "gmpy2", ["encrypt"])
    job.write_text(JOB.format(encryption=section.format(rounds=0), rest=""), encoding="utf-8")
    refused = _run(extended, "-m", "labelward", "plan", str(job))
    assert refused.returncode == 2
    assert "[encryption.textbook] rounds" in refused.stderr


ESTIMATOR = """
import json
import numpy as np
from labelward.estimators import SecureBoostClassifier
rng = np.random.default_rng(1)
X = rng.normal(size=(60, 4))
y = (X[:, 0] + X[:, 2] > 0).astype(int)
engine = {"kind": "textbook", "rounds": 3}
scores = []
for each in (engine, "plain"):
    model = SecureBoostClassifier(
        n_estimators=1, max_depth=2, engine=each, key_bits=512, insecure=True, random_state=1,
        parties={"active": [0, 1], "telco": [2, 3]},
    )
    scores.append(model.fit(X, y).decision_function(X).tolist())
header = model.set_params(engine=engine).fit(X, y).views_["telco"].header
rounds = header.job.get("encryption.textbook.rounds")
print(json.dumps([scores[0] == scores[1], header.engine, rounds, header.insecure]))
"""


@pytest.mark.slow
def test_an_estimator_takes_the_engine_with_its_parameters(extended: Path) -> None:
    done = _run(extended, "-c", ESTIMATOR)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, "textbook", "3", ["512-bit key"]]


@pytest.mark.slow
def test_the_metric_and_the_baseline_of_an_attack_reach_results_score_and_report(
    extended: Path, tmp_path: Path
) -> None:
    rows = _rows(extended, tmp_path, encryption='engine = "plain"', rest='[[attack]]\nkind = "deepest-leaf"')
    (leakage,) = (row["leakage"] for row in rows if row["attack"]["kind"] == "deepest-leaf")  # type: ignore[index]
    assert leakage["primary"] == "purity"  # type: ignore[index]
    for figures in (leakage, leakage["chance"], leakage["beside"]["coin"]):  # type: ignore[index]
        assert 0.5 < figures["purity"] < 1
    audit, guess = tmp_path / "audit", tmp_path / "guess.parquet"
    data = audit / "data" / "1"
    attack = ["attack", audit / "runs/none/1/telco/view", "--features", data / "telco.parquet", "--classes", "2"]
    attack += ["--attack", "deepest-leaf", "--seed", "1", "--out", guess]
    score = ["score", guess, "--truth", data / "truth.parquet", "--json"]
    for arguments in (attack, score):
        done = _run(extended, "-m", "labelward", *map(str, arguments))
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["purity"] == leakage["purity"]  # type: ignore[index]
    assert json.loads(done.stdout)["chance"]["purity"] == leakage["chance"]["purity"]  # type: ignore[index]
    page = (audit / "report.html").read_text(encoding="utf-8")
    assert ">purity</th>" in page
    assert ">coin</td>" in page
