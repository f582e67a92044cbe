"""Extensions: components of other packages are found by entry points, and objects are taken as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from labelward import extensions
from labelward.attacks import ATTACKS
from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, ColumnGuess, LabelGuess
from labelward.auditing.audit import audit
from labelward.data import read_table
from labelward.defenses.local_trees import LocalTrees
from labelward.errors import Code, DataError, DependencyError, InputError, JobError
from labelward.families import FamilyEntry, families
from labelward.federation.components import list_components
from labelward.he import engine, engine_names
from labelward.he.plain import PlainEngine
from labelward.job import parse_job
from labelward.party.view import View
from refusals import refused

JOB = """
[data]
table = "breast_cancer"
[parties]
active = 0.5
telco = 0.5
[model]
trees = 1
depth = 2
[encryption]
engine = "plain"
insecure = true
"""


@dataclass(frozen=True, kw_only=True)
class Parity(Attack):
    """Rows of even and of odd number."""

    kind: ClassVar[str] = "parity"
    reads_view: ClassVar[bool] = False

    turned: bool = False

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return two clusters."""
        return LabelGuess(values=(np.arange(view.rows) + self.turned) % 2)


class TheirEngine(PlainEngine):
    """An engine of another package."""


THEIRS = FamilyEntry(family="family:Family", models={}, messages=(), package="theirs")


def read_nothing(file: Path, text: Any, form: Any) -> None:
    return None


def read_fives(file: Path, text: Any, form: Any) -> pa.Table:
    return pa.table({"five": [5]})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[EntryPoint]]]:
    """Entry points by group, as if packages with them were installed."""
    found: dict[str, list[EntryPoint]] = {}
    monkeypatch.setattr(extensions, "entry_points", lambda group: found.get(group, []))
    extensions.extensions.cache_clear()
    yield found
    extensions.extensions.cache_clear()


def point(group: str, name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, f"labelward.{group}")


def test_components_of_other_packages(installed: dict[str, list[EntryPoint]], tmp_path: Path) -> None:
    installed["labelward.attacks"] = [point("attacks", "parity", f"{__name__}:Parity")]
    installed["labelward.engines"] = [point("engines", "theirs", f"{__name__}:TheirEngine")]
    installed["labelward.tables"] = [point("tables", "fives", f"{__name__}:read_fives")]
    assert ATTACKS.make("parity", {"turned": True}) == Parity(turned=True)
    assert engine_names()[-1] == "theirs"
    assert isinstance(engine("theirs"), TheirEngine)
    (tmp_path / "a.fives").touch()
    assert read_table(tmp_path / "a.fives").to_pydict() == {"five": [5]}
    listed = list_components()
    assert listed["attacks"][-1].kind == "parity"
    assert [each.kind for each in listed["engines"]][-1] == "theirs"
    job = parse_job(JOB + '[[attack]]\nkind = "parity"\n')
    assert {row.attack["kind"] for row in audit(job, tmp_path / "out") if row.attack} == {"parity", "split-posterior"}


def test_a_family_of_another_package(installed: dict[str, list[EntryPoint]]) -> None:
    installed["labelward.families"] = [point("families", "any", f"{__name__}:THEIRS")]
    assert families()[-1] == THEIRS


def test_extensions_that_cannot_be_used(installed: dict[str, list[EntryPoint]]) -> None:
    broken = point("attacks", "broken", "no_such_package:Attack")
    installed["labelward.attacks"] = [broken]
    with pytest.warns(extensions.ExtensionWarning, match="no_such_package"):
        assert "broken" not in ATTACKS.classes()
    with refused(JobError, "unknown", value="broken"), pytest.warns(extensions.ExtensionWarning):
        ATTACKS.make("broken", {})
    extensions.extensions.cache_clear()
    installed["labelward.attacks"] = [broken, point("attacks", "broken", "other:Attack")]
    with refused(DependencyError, "duplicate", value="broken"):
        ATTACKS.classes()
    for name in ("union", "another-name"):
        extensions.extensions.cache_clear()
        installed["labelward.attacks"] = [point("attacks", name, f"{__name__}:Parity")]
        with refused(DependencyError, "duplicate", value=name):
            ATTACKS.classes()


@pytest.mark.parametrize("group", ["attacks", "defenses", "engines", "families", "tables"])
def test_an_entry_point_of_something_else_harms_nobody(
    group: extensions.Group, installed: dict[str, list[EntryPoint]]
) -> None:
    installed[f"labelward.{group}"] = [point(group, "wrong", f"{__name__}:JOB")]
    with refused(DependencyError, "dependency", value="wrong"):
        extensions.load(group, "wrong")
    with pytest.warns(extensions.ExtensionWarning, match="wrong"):
        assert extensions.loaded(group) == {}
    if group in ("attacks", "defenses", "engines"):
        with pytest.warns(extensions.ExtensionWarning, match="wrong"):
            assert "wrong" not in [each.kind for each in list_components()[group]]


def test_a_reader_that_returns_no_table(installed: dict[str, list[EntryPoint]], tmp_path: Path) -> None:
    installed["labelward.tables"] = [point("tables", "fives", f"{__name__}:read_nothing")]
    (tmp_path / "a.fives").touch()
    with refused(DataError, "type", field=f"table {str(tmp_path / 'a.fives')!r}"):
        read_table(tmp_path / "a.fives")


def test_objects_given_to_an_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ATTACKS, "_added", [])
    rows = audit(parse_job(JOB), tmp_path / "out", attacks=[Parity()], defenses=[LocalTrees(count=1)])
    found = {(row.defense[0]["kind"] if row.defense else "", row.attack["kind"]) for row in rows if row.attack}
    assert ("", "parity") in found
    assert ("local-trees", "parity") in found

    class Other(Parity):
        """Another class of the same kind."""

    with refused(InputError, "duplicate", value="parity"):
        audit(parse_job(JOB), tmp_path / "other", attacks=[Other()])


@dataclass(frozen=True, kw_only=True)
class Wrong(Attack):
    """Returns what it was told to."""

    kind: ClassVar[str] = "wrong"
    returned: ClassVar[Any] = None

    def __call__(self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator) -> Any:
        """Return it."""
        return self.returned


ROWS = 455  # of the training part


@pytest.mark.parametrize(
    ("returned", "code"),
    [
        (None, "type"),
        (np.zeros(ROWS, np.int64), "type"),
        (ColumnGuess(), "type"),
        (LabelGuess(values=[0] * ROWS), "type"),  # type: ignore[arg-type]
        (LabelGuess(values=np.zeros(ROWS)), "type"),  # type: ignore[arg-type]
        (LabelGuess(values=np.zeros(3, np.int64)), "rows"),
        (LabelGuess(values=np.zeros((ROWS, 2), np.int64)), "rows"),
        (LabelGuess(values=np.zeros(ROWS, np.int64), kind="classes"), "choice"),  # type: ignore[arg-type]
        (LabelGuess(values=np.zeros(ROWS, np.int64), kind="labels", scores=np.zeros(ROWS)), "rows"),
        (LabelGuess(values=np.zeros(ROWS, np.int64), kind="labels", scores=np.full((ROWS, 2), np.nan)), "values"),
    ],
)
def test_what_an_attack_may_not_return(
    returned: Any, code: Code, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ATTACKS, "_added", [])
    monkeypatch.setattr(Wrong, "returned", returned)
    with refused(InputError, code, field="attack 'wrong'"):
        audit(parse_job(JOB), tmp_path / "out", attacks=[Wrong()])


@pytest.mark.parametrize("kind", ["Last Tree", "../up", "none", "", None])
def test_a_class_without_a_name_for_jobs(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wrong, "kind", kind)
    with refused(InputError, "type", field=f"attack {kind!r}", value=kind):
        ATTACKS.add(Wrong)


def test_a_class_that_is_no_dataclass() -> None:
    with refused(InputError, "type", field="attack 'bare'", value="Bare"):
        ATTACKS.add(type("Bare", (Attack,), {"kind": "bare"}))


@pytest.mark.slow
def test_a_package_with_an_attack(tmp_path: Path) -> None:
    """It is made, passes the tests that it has, and is found where it is installed."""
    package = tmp_path / "labelward-last-tree"
    run = [sys.executable, "-m"]
    made = subprocess.run([*run, "labelward", "new", "attack", "last-tree"], cwd=tmp_path, check=False)
    assert made.returncode == 0
    tested = subprocess.run(
        [*run, "pytest", "-q", "-p", "no:cacheprovider"], cwd=package, check=False, capture_output=True, text=True
    )
    assert tested.returncode == 0, tested.stdout
    information = package / "src" / "labelward_last_tree-0.1.0.dist-info"  # what an installer writes
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: labelward-last-tree\nVersion: 0.1.0\n")
    entry = (package / "pyproject.toml").read_text().split('"labelward.attacks"]\n')[1].splitlines()[0]
    name, value = (part.strip(' "') for part in entry.split(" = "))
    (information / "entry_points.txt").write_text(f"[labelward.attacks]\n{name} = {value}\n")
    path = os.pathsep.join(filter(None, [str(package / "src"), os.environ.get("PYTHONPATH")]))
    asked = [*run, "labelward", "list", "attacks"]
    listed = subprocess.run(asked, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": path})
    assert b"last-tree" in listed.stdout
    for wrong, code in (("Last Tree", 2), ("union", 2), ("last-tree", 2)):
        again = subprocess.run([*run, "labelward", "new", "attack", wrong], cwd=tmp_path, check=False)
        assert again.returncode == code
