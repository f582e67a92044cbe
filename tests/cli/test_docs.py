"""What the documents say is so: their commands run, and their tables equal the code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path

import pytest
from small_jobs import Call

from labelward.federation.components import list_components
from labelward.job import (
    DataSection,
    EncryptionSection,
    LeakageSection,
    NetworkSection,
    PartySection,
    RunSection,
    TableKeys,
    TuneSection,
    TuneVariable,
)
from labelward.runs.schema import Cost, ResultRow

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _commands(page: Path) -> list[str]:
    lines = "".join(CONSOLE.findall(page.read_text(encoding="utf-8"))).splitlines()
    return [line[2:] for line in lines if line.startswith("$ labelward ")]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if _commands(page)], ids=lambda page: page.name)
def test_every_command_runs(page: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in an empty folder; the job that ``init`` writes is made small, and is not encrypted."""
    monkeypatch.chdir(tmp_path)
    for command in _commands(page):
        arguments = shlex.split(command)[1:]
        result = call(*arguments)
        assert result.exit_code == 0, f"{command}\n{result.output}"
        if arguments[0] == "init":
            _shrink(tmp_path / arguments[1])
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()


def _shrink(job: Path) -> None:
    text = job.read_text(encoding="utf-8")
    for pattern, small in (
        (r"^trees = \d+", "trees = 2"),
        (r"^depth = \d+", "depth = 3"),
        (r'^engine = "paillier"', 'engine = "plain"'),
        (r"^insecure = false", "insecure = true"),
        (r"^seeds = \[.*?\]", "seeds = [1]"),
    ):
        text, changed = re.subn(pattern, small, text, flags=re.MULTILINE)
        assert changed == 1, pattern
    job.write_text(text, encoding="utf-8")


def _tables(page: str) -> dict[str, list[list[str]]]:
    """Return the cells of the first table under each heading."""
    found: dict[str, list[list[str]]] = {}
    for heading, body in re.findall(r"^##+ (.+?)\n(.*?)(?=^##+ |\Z)", page, re.MULTILINE | re.DOTALL):
        lines = [line for line in body.splitlines() if line.startswith("| ")]
        found[heading.strip("`")] = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]
    return found


def _default(text: str) -> object:
    text = text.strip("`")
    return None if text in ("none", "required") else tomllib.loads(f"v = {text}")["v"]


@pytest.mark.parametrize(
    ("heading", "section"),
    [
        ("[data]", DataSection),
        ("[parties.NAME]", PartySection),
        ("[encryption]", EncryptionSection),
        ("[leakage]", LeakageSection),
        ("[run]", RunSection),
        ("[network]", NetworkSection),
        ("[tune]", TuneSection),
        ("[[tune.variable]]", TuneVariable),
    ],
)
def test_the_page_of_the_job_file_has_every_key_and_default(heading: str, section: type) -> None:
    table = _tables((ROOT / "docs" / "ref-job-file.md").read_text(encoding="utf-8"))[heading]
    written = {cells[0].strip("`"): _default(cells[1]) for cells in table}
    known = {
        field.name: None
        if field.default is MISSING  # required
        else list(field.default)
        if isinstance(field.default, tuple)
        else field.default
        for field in fields(section)
        if not (section is PartySection and field.name in ("name", "share"))
        and not (section is EncryptionSection and field.name in ("engine_parameters", "automatic"))  # no keys of it
        and not (section is TuneSection and field.name == "variables")  # tables of their own
    }
    assert written == known
    own = [name for name in known if not issubclass(section, TableKeys) or name not in TableKeys.__dataclass_fields__]
    assert [name for name in written if name in own] == own or section is PartySection


def test_the_page_of_the_job_file_has_every_kind_and_parameter() -> None:
    tables = _tables((ROOT / "docs" / "ref-job-file.md").read_text(encoding="utf-8"))
    for family in ("models", "defenses", "attacks"):
        for info in list_components()[family]:
            trees = info.kind in ("secureboost", "forest")
            table = tables["[model]" if trees else info.kind]
            if trees:
                table = [cells for cells in table if cells[2] in ("all", info.kind)]
            written = {cells[0].strip("`"): cells[1].strip('`"') for cells in table}
            known = {
                name: {"None": "none", "False": "false", "True": "true"}.get(default, default)
                for name, default, _ in info.parameters
            }
            assert written == known, info.kind
            meanings = {cells[0].strip("`"): cells[-1] for cells in table}
            for name, _, description in info.parameters:
                meaning, forest = _markdown(description), info.kind == "forest"
                same = meaning in meanings[name] or (
                    forest and f"Forest: {meaning[0].lower()}{meaning[1:]}" in meanings[name]
                )
                assert same, f"{info.kind} {name}: {meaning}"


def _markdown(description: str) -> str:
    """Return the help of a parameter as the pages write it: values in code."""
    return re.sub(r"(?<!\w)'([\w:.-]+)'(?!\w)", r'`"\1"`', description)


def test_the_page_of_results_has_every_name() -> None:
    tables = _tables((ROOT / "docs" / "ref-results.md").read_text(encoding="utf-8"))
    row = next(table for heading, table in tables.items() if heading.startswith("A row of"))
    names = [cells[0].strip("`") for cells in row if cells[0] != "name"]  # two tables: the row, then its cost
    assert names == [*ResultRow.__struct_fields__, *Cost.__struct_fields__]


def test_the_readme_names_every_kind() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for family in ("models", "defenses", "attacks", "engines"):
        for info in list_components()[family]:
            assert f"`{info.kind}`" in text


def test_the_packages_are_all_listed() -> None:
    source = ROOT / "src" / "labelward"
    packages = {path.name for path in source.iterdir() if path.is_dir() and not path.name.startswith("_")}
    packages |= {path.stem for path in source.glob("*.py") if not path.name.startswith("_")}
    for page in ("README.md", "CONTRIBUTING.md"):
        table = re.findall(r"^\| (`.+?) \| ", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        listed = {name for cell in table for name in re.findall(r"`(\w+)`", cell)}
        assert packages <= listed, page


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_defaults_are_read_from_the_code() -> None:
    assert all(field.default is not MISSING for field in fields(DataSection))


@pytest.mark.parametrize(
    ("module", "stored", "page"),
    [
        ("_holder_study_page", "holder-study.json", "ref-pivodl.md"),
        ("_paper_figures_page", "paper-figures.json", "ref-paper-figures.md"),
        ("_source_coding_page", "source-coding.json", "ref-source-coding.md"),
    ],
)
def test_a_page_of_figures_is_that_of_those_stored(
    module: str, stored: str, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No figure on it is written by hand."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    figures = json.loads((ROOT / "benchmarks" / "results" / stored).read_text(encoding="utf-8"))
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == import_module(module).page_of(figures)
