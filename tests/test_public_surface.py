"""What a module offers is what it lists: ``__all__`` names every public class and function, and nothing else."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import labelward

ROOT = Path(labelward.__file__).parent


def public_modules() -> list[Path]:
    """Return all modules whose path has no private part; ``__main__`` is a command, not a module to import."""
    paths = sorted(ROOT.rglob("*.py"))
    return [p for p in paths if not any(part.startswith("_") and part != "__init__" for part in parts(p))]


def parts(path: Path) -> tuple[str, ...]:
    return path.relative_to(ROOT).with_suffix("").parts


def name_of(path: Path) -> str:
    return ".".join(["labelward", *(part for part in parts(path) if part != "__init__")])


def defined(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Return the public classes and functions of a module, and its other public names (constants, aliases)."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    made = {node.name for node in tree.body if isinstance(node, kinds) and not is_command(node)}
    others: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign):
            others |= {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            others.add(node.target.id)
    return {n for n in made if not n.startswith("_")}, {n for n in others if not n.startswith("_")}


def is_command(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is reached as a command of a typer application, and not by its name."""
    calls = [each.func for each in node.decorator_list if isinstance(each, ast.Call)]
    return any(isinstance(call, ast.Attribute) and call.attr in ("command", "callback") for call in calls)


def imported(tree: ast.Module) -> set[str]:
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in nodes for alias in node.names}


@pytest.mark.parametrize("path", public_modules(), ids=name_of)
def test_all_names_what_a_module_offers(path: Path) -> None:
    tree = ast.parse(path.read_text())
    made, others = defined(tree)
    if path.parent == ROOT and path.name == "__init__.py":
        return  # lazy: tests/test_face.py
    if not made and not others and not imported(tree):
        return  # an empty package
    module = importlib.import_module(name_of(path))
    listed = getattr(module, "__all__", None)
    if listed is None and path.name != "__init__.py":
        return  # internal: only packages list what they offer
    assert listed is not None, "no __all__"
    assert len(listed) == len(set(listed))
    assert all(hasattr(module, name) for name in listed)
    passed_on = imported(tree) if path.name == "__init__.py" else set()
    assert made <= set(listed), f"not listed: {sorted(made - set(listed))}"
    assert set(listed) <= made | others | passed_on, (
        f"not defined here: {sorted(set(listed) - made - others - passed_on)}"
    )


@pytest.mark.parametrize("path", public_modules(), ids=name_of)
def test_what_is_public_is_described(path: Path) -> None:
    tree = ast.parse(path.read_text())
    if not tree.body:
        return
    assert ast.get_docstring(tree), "no module docstring"
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"
