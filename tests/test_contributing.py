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
    entry = r'( +"[\w-]+:\w+",\n)' if ":" in line.split()[0] and "labelward" not in line else r'( +"[\w-]+": ".*",\n)'
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
    families = ["attacks", "attacks", "defenses", "he"]
    assert sorted(Path(name).parent.name for name in FILES) == families
    assert sorted(Path(name).parent.name for name, _ in LINES) == families
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
    for encryption in ('engine = "plain"', 'engine = "textbook"\nbits = 512'):
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
def test_the_metric_and_the_baseline_of_an_attack_reach_results_score_and_report(
    extended: Path, tmp_path: Path
) -> None:
    rows = _rows(extended, tmp_path, encryption='engine = "plain"', rest='[[attack]]\nkind = "deepest-leaf"')
    (leakage,) = (row["leakage"] for row in rows if row["attack"]["kind"] == "deepest-leaf")  # type: ignore[index]
    assert leakage["primary"] == "purity"  # type: ignore[index]
    assert 0.5 < leakage["chance"]["purity"] < leakage["purity"] < 1  # type: ignore[index]
    assert leakage["beside"]["coin"]["purity"] < leakage["purity"]  # type: ignore[index]
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
