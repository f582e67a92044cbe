"""What ``import labelward`` offers: every name exists, has the type that checkers see, and works in a small example."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_breast_cancer

import labelward
from labelward.errors import Code, DataError, FileFormatError, InputError, JobError
from refusals import refused

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
JOB = {
    "data": {"table": "breast_cancer"},
    "parties": {"active": 0.5, "telco": 0.5},
    "model": {"trees": 1, "depth": 2},
    "encryption": {"engine": "plain", "insecure": True},
    "attack": [{"kind": "id2graph"}],
    "run": {"seeds": [1]},
}


@pytest.fixture(scope="module")
def job() -> labelward.Job:
    return labelward.parse_job(JOB)


@pytest.fixture(scope="module")
def audited(job: labelward.Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("face") / "audit"
    rows = labelward.audit(job, out)
    assert {row.party for row in rows} == {"telco"}
    return out


def declared() -> dict[str, str]:
    """Return name → module of the imports that type checkers and editors see."""
    tree = ast.parse(Path(labelward.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    nodes = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in nodes for alias in node.names}


def test_the_public_names_are_those_listed_and_no_others() -> None:
    assert dir(labelward) == sorted(labelward.__all__)
    assert sorted(declared()) == sorted(labelward.__all__)
    with pytest.raises(AttributeError):
        labelward.no_such_name  # noqa: B018


@pytest.mark.parametrize("name", labelward.__all__)
def test_a_public_name_is_imported_from_where_types_say(name: str) -> None:
    value = getattr(labelward, name)
    module = declared()[name]
    assert value.__module__ == module or value.__module__.startswith(f"{module}.")
    assert value.__doc__


def test_documents_use_public_names_only() -> None:
    """Of internal modules a page imports attacks and their list at most, which ``labelward list`` names."""
    allowed = re.compile(r"labelward(\.estimators|\.testing(\.\w+)*|\.attacks(\.\w+)?)?")
    for page in PAGES:
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("labelward"):
                    assert allowed.fullmatch(str(node.module)), f"{page.name}: {node.module}"
                    if node.module == "labelward":
                        assert {alias.name for alias in node.names} <= set(labelward.__all__), page.name


def test_simulate_gives_views_in_memory(job: labelward.Job) -> None:
    result = labelward.simulate(job)
    assert list(result.views) == list(result.shares) == ["active", "telco"]
    assert result.views["telco"].rows + len(result.margins) == 569
    assert result.cost.messages


def test_simulate_refuses_an_unknown_variant(job: labelward.Job) -> None:
    with refused(JobError, "unknown"):
        labelward.simulate(job, defense="shield")


def test_a_model_is_trained_continued_and_predicts(job: labelward.Job, tmp_path: Path) -> None:
    first = labelward.train(job, tmp_path / "model", seed=3)
    assert (first.seed, first.variant) == (3, "none")
    assert first.estimate is not None
    assert labelward.train(job, tmp_path / "more", earlier=tmp_path / "model").seed == 3
    table = tmp_path / "new.parquet"
    load_breast_cancer(as_frame=True).data.head(40).to_parquet(table)
    assert labelward.predict(tmp_path / "model", table, tmp_path / "out.parquet") == 40
    tables = {"active": table, "telco": table}
    assert labelward.predict(tmp_path / "model", tables, tmp_path / "same.parquet", mode="levels") == 40
    assert pq.read_table(tmp_path / "same.parquet").equals(pq.read_table(tmp_path / "out.parquet"))
    assert labelward.FederatedModel.load(tmp_path / "model").parties == ("active", "telco")


def test_a_stored_view_is_read_and_attacked(audited: Path) -> None:
    folder = audited / "runs/none/1/telco/view"
    view = labelward.View.load(folder)
    ids, guess = labelward.attack(folder, audited / "data/1/telco.parquet", "id2graph", classes=2, seed=1)
    assert len(ids) == len(guess.values) == view.rows
    with pytest.raises(labelward.LabelwardError):
        labelward.attack(folder, audited / "data/1/telco.parquet", "id2grph", classes=2, seed=1)


@pytest.mark.slow
def test_epsilon_is_measured_from_a_guess() -> None:
    rng = np.random.default_rng(0)
    columns, labels = rng.normal(size=(900, 3)), rng.choice(["no", "yes"], size=900)
    columns[:20, 0] = np.nan
    noisy = np.where(rng.random(900) < 0.9, labels == "yes", labels == "no").astype(np.int64)
    guess, nothing = labelward.LabelGuess(values=noisy), labelward.LabelGuess(values=np.zeros(900, np.int64))
    found = labelward.measure_epsilon(guess, labels, columns)
    assert 0.5 < found < np.log(9)
    assert labelward.measure_epsilon(guess, labels, columns, confidence=0.5) > found
    assert labelward.measure_epsilon(guess, labels, columns, without_view=nothing, delta=1e-5) > 0.5
    assert labelward.measure_epsilon(nothing, labels, columns) == 0
    assert labelward.measure_epsilon(guess, labels, columns, known_rows=range(880)) == 0
    with refused(DataError, "rows", value=(900, 899, 900, 899, 900)):
        labelward.measure_epsilon(guess, labels[1:], columns)


@pytest.mark.parametrize(
    ("changed", "code", "field"),
    [
        ({"guess": np.zeros(9, np.int64)}, "type", "guess"),
        ({"view": "a folder"}, "type", "view"),
        ({"labels": [None, *"abababab"]}, "labels", "labels"),
        ({"labels": np.full(9, np.nan)}, "labels", "labels"),
        ({"labels": np.zeros((9, 2))}, "labels", "labels"),
        ({"columns": [["a"]] * 9}, "values", "columns"),
        ({"columns": np.full((9, 2), np.inf)}, "values", "columns"),
        ({"columns": np.zeros(9)}, "columns", "columns"),
        ({"without_view": labelward.LabelGuess(values=np.zeros(3, np.int64))}, "rows", ""),
        ({"known_rows": [9]}, "range", "known_rows"),
        ({"known_rows": [-1]}, "range", "known_rows"),
        ({"known_rows": [0.5]}, "type", "known_rows"),
        ({"delta": -1}, "range", "delta"),
        ({"confidence": 1}, "range", "confidence"),
        ({"seed": "one"}, "type", "seed"),
    ],
)
def test_what_epsilon_cannot_be_measured_from(changed: dict[str, Any], code: Code, field: str) -> None:
    given = {
        "guess": labelward.LabelGuess(values=np.zeros(9, np.int64)),
        "labels": np.arange(9) % 2,
        "columns": np.zeros((9, 2)),
        **changed,
    }
    with refused(InputError, code, field=field):
        labelward.measure_epsilon(given.pop("guess"), **given)


def test_paths_may_be_texts(job: labelward.Job, audited: Path, tmp_path: Path) -> None:
    labelward.train(job, str(tmp_path / "model"))
    assert labelward.FederatedModel.load(str(tmp_path / "model")).parties == ("active", "telco")
    table = str(tmp_path / "new.csv")
    load_breast_cancer(as_frame=True).data.head(40).to_csv(table, index=False)
    assert labelward.predict(str(tmp_path / "model"), table, str(tmp_path / "out.parquet")) == 40
    view = labelward.View.load(str(audited / "runs/none/1/telco/view"))
    ids, _ = labelward.attack(
        str(audited / "runs/none/1/telco/view"), str(audited / "data/1/telco.parquet"), "id2graph", classes=2, seed=1
    )
    assert len(ids) == view.rows


def test_the_folder_of_an_audit_holds_no_model(job: labelward.Job, audited: Path, tmp_path: Path) -> None:
    for call in (
        lambda: labelward.FederatedModel.load(audited),
        lambda: labelward.predict(audited, "new.csv", tmp_path / "out.parquet"),
        lambda: labelward.train(job, tmp_path / "more", earlier=audited),
    ):
        with refused(FileFormatError, "foreign", field=str(audited), value="audit"):
            call()


WRONG: dict[str, tuple[Callable[[labelward.Job], object], Code]] = {
    "path": (lambda job: labelward.load_job(5), "type"),  # type: ignore[arg-type]
    "out": (lambda job: labelward.audit(job, None), "type"),  # type: ignore[arg-type]
    "repeat": (lambda job: labelward.train(job, "out", repeat="earlier"), "type"),
    "folder": (lambda job: labelward.View.load("a\0b"), "type"),
    "job": (lambda job: labelward.simulate("job.toml"), "type"),  # type: ignore[arg-type]
    "attacks": (lambda job: labelward.audit(job, "out", attacks=[labelward.Attack]), "type"),  # type: ignore[list-item]
    "defenses": (lambda job: labelward.audit(job, "out", defenses=["id-lmid"]), "type"),  # type: ignore[list-item]
    "attackers": (lambda job: labelward.audit(job, "out", attackers=["nobody"]), "unknown"),
    "variant": (lambda job: labelward.measure(job, "none"), "type"),  # type: ignore[arg-type]
    "classes": (lambda job: labelward.attack("view", "own.csv", "id2graph", classes=2.5, seed=1), "type"),  # type: ignore[arg-type]
    "seed": (lambda job: labelward.attack("view", "own.csv", "id2graph", classes=2, seed=-1), "range"),
    "parameters": (lambda job: labelward.attack("v", "o.csv", "id2graph", classes=2, seed=1, parameters=5), "type"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("argument", WRONG)
def test_an_argument_of_another_type_is_named(
    argument: str, job: labelward.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call, code = WRONG[argument]
    with refused(InputError, code, field=argument):
        call(job)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", [5, [], {1: 2}])
def test_what_is_no_job(given: Any) -> None:
    with refused(JobError, "unknown" if isinstance(given, dict) else "type"):
        labelward.parse_job(given)


def test_costs_are_estimated(job: labelward.Job, tmp_path: Path) -> None:
    text = """
        data.table = "breast_cancer"
        parties = { active = 0.5, telco = 0.5 }
        model = { trees = 1, depth = 2 }
        encryption = { engine = "plain", insecure = true }
    """
    (tmp_path / "job.toml").write_text(text, encoding="utf-8")
    read = labelward.load_job(tmp_path / "job.toml")
    assert read.model == job.model
    assert labelward.estimate_cost(read, link=labelward.NetworkLink(bandwidth=100, latency=20)).estimate.seconds > 0
