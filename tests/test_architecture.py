"""The architecture page is true: its graph is that of the code, its tables are in import order, its files exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import labelward
from import_graph import direct_edges, import_graph, mermaid, reached

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/explanation-architecture.md"


def listed(page: Path) -> list[str]:
    """Return the packages of a page's table of packages, in its order."""
    table = re.search(r"^\| package \|.*\n\|[-|]+\n((?:\|.*\n)+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert table, page.name
    return [name for row in table[1].splitlines() for name in re.findall(r"`(\w+)`", row.split(" | ")[0])]


def test_there_is_no_circle() -> None:
    graph = import_graph()
    assert [name for name in graph if name in reached(graph, name)] == []


def test_the_reduction_keeps_what_is_reached() -> None:
    assert direct_edges({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}
    graph = import_graph()
    reduced = direct_edges(graph)
    assert all(reached(graph, name) == reached(reduced, name) for name in graph)


def test_the_graph_is_drawn_as_it_is() -> None:
    drawn = re.search(r"^```mermaid\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert drawn, "no graph; python tests/import_graph.py prints it"
    assert drawn[1] == mermaid(import_graph())


@pytest.mark.parametrize("page", [PAGE, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_packages_are_listed_in_import_order(page: Path) -> None:
    graph, names = import_graph(), listed(page)
    assert sorted(names) == sorted(graph)
    for place, name in enumerate(names):
        assert graph[name] <= set(names[:place]), name


def test_files_of_the_architecture_page_exist() -> None:
    """Paths count from the package; a bare file name is in some folder of it."""
    source = Path(labelward.__file__).parent
    names = set(re.findall(r"`([\w/]+\.(?:py|toml))`", PAGE.read_text(encoding="utf-8")))
    assert names
    for name in names:
        assert (source / name).exists() or ("/" not in name and any(source.rglob(name))), name


@pytest.mark.slow
def test_names_of_the_architecture_page_exist() -> None:
    defined = set(import_graph())
    for path in Path(labelward.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                defined.add(node.name)
            elif isinstance(node, ast.Name):
                defined.add(node.id)
    for name in re.findall(r"`([A-Za-z_]+(?:\.[A-Za-z_]+)?)`", PAGE.read_text(encoding="utf-8")):
        if not name.endswith((".py", ".toml")):
            assert set(name.split(".")) - {"labelward"} <= defined, name
