"""A package imports what its layer allows and nothing else, and importing labelward is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import labelward

ROOT = Path(labelward.__file__).parent
BASE = {"errors", "installation", "parameters", "rng", "registry", "job"}
PARTS = {"he", "kernels", "messages", "party", "policy", "privacy", "transport"}
FEATURES = {"attacks", "data", "defenses", "protocols"}
STORED = {"runs", "metrics"}
RUNTIME = STORED | {"federation"}
STUDIED = RUNTIME | {"leakage", "planning", "auditing"}

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "installation": {"errors"},
    "rng": {"errors"},
    "extensions": {"errors"},
    "registry": {"errors", "extensions"},
    "jit": {"errors"},
    "parameters": {"errors"},
    "job": {"errors", "extensions", "parameters"},
    "kernels": {"errors", "jit"},
    "privacy": {"errors", "rng"},
    "he": {"errors", "extensions", "parameters", "rng", "jit"},
    "transport": {"errors"},
    "families": {"extensions"},
    "messages": {"errors", "families", "he"},
    "policy": {"messages", "privacy"} | BASE,
    "party": {"messages", "policy", "transport"} | BASE,
    "data": BASE,
    "protocols": {"attacks", "data", "metrics", "runs", "party", "policy", "messages", "he", "kernels", "privacy"}
    | BASE,
    "defenses": {"party", "policy", "kernels", "privacy"} | BASE,
    "metrics": {"data", "kernels"} | BASE,
    "attacks": {"party", "messages", "metrics", "kernels"} | BASE,
    "runs": {"attacks", "data", "defenses", "party", "policy"} | BASE,
    "federation": {"extensions", "families"} | STORED | PARTS | FEATURES | BASE,
    "leakage": RUNTIME | PARTS | FEATURES | BASE,
    "planning": RUNTIME | PARTS | FEATURES | BASE,
    "auditing": RUNTIME | {"leakage", "planning"} | PARTS | FEATURES | BASE,
    "tuning": STUDIED | PARTS | FEATURES | BASE,
    "studies": {"tuning"} | STUDIED | PARTS | FEATURES | BASE,  # searches compared
    "api": {"federation", "leakage", "planning", "protocols", "runs", "attacks", "data", "party"} | BASE,
    "estimators": {"federation", "he", "protocols", "defenses", "data", "party", "policy"} | BASE,
    "report": {"attacks", "runs", "metrics", "leakage", "studies", "tuning"} | BASE,
    "cli": PARTS | FEATURES | BASE | STUDIED | {"jit", "studies", "estimators", "report", "tuning"},
    "testing": {
        "attacks",
        "leakage",
        "metrics",
        "federation",
        "he",
        "kernels",
        "messages",
        "party",
        "policy",
        "transport",
    }
    | BASE,
    "__main__": {"cli"},
    "": {
        "api",
        "attacks",
        "auditing",
        "errors",
        "federation",
        "he",
        "job",
        "party",
        "planning",
        "policy",
        "tuning",
    },  # lazily
}

MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    """Return the module's name below labelward, such as ``party.view``; empty for the package itself."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Return what a module imports of labelward, below labelward: at the top, inside functions, relative ones too."""
    name = name_of(path).split(".") if name_of(path) else []
    package = name if path.name == "__init__.py" else name[:-1]
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            above = package[: len(package) - node.level + 1]
            base = ".".join(["labelward", *above, *([node.module] if node.module else [])])
            targets = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            targets = []
        found += [each for each in targets if each == "labelward" or each.startswith("labelward.")]
    return tuple(each.removeprefix("labelward").removeprefix(".") for each in found)


def layer(module: str) -> str:
    return module.partition(".")[0]


def test_there_are_modules() -> None:
    assert len(MODULES) > 40


@pytest.mark.parametrize("path", MODULES, ids=lambda path: name_of(path) or "labelward")
def test_imports_follow_the_layers(path: Path) -> None:
    own = layer(name_of(path))
    assert own in ALLOWED, f"{own!r} is no layer"
    for target in imported(path):
        used = layer(target)
        assert used == own or used in ALLOWED[own], f"{name_of(path)} imports labelward.{target}"


def test_nothing_imports_the_contract_suites() -> None:
    for path in MODULES:
        if layer(name_of(path)) != "testing":
            assert not any(layer(target) == "testing" for target in imported(path))


def test_messages_know_the_public_types_of_encryption_only() -> None:
    for path in (ROOT / "messages").glob("*.py"):
        used = [target for target in imported(path) if layer(target) == "he"]
        assert all(target.startswith("he.base.") for target in used)


def test_protocol_families_do_not_know_each_other() -> None:
    for path in (ROOT / "protocols").rglob("*.py"):
        family = name_of(path).split(".")[1:2]
        for target in imported(path):
            assert layer(target) != "protocols" or target.split(".")[1:2] in (family, ["common"], ["family"])


def test_the_reader_of_imports_sees_them_all() -> None:
    """Of the ways to import a module, none is missed."""
    code = (
        "import labelward.rng\nfrom labelward import rng\nfrom labelward.rng import learning\n"
        "def f():\n    from ..a import b"
    )
    path = ROOT / "party" / "_imports_of_a_test.py"
    tree = ast.parse(code)
    assert len([node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]) == 4

    class Fake(type(path)):  # type: ignore[misc]
        def read_text(self, *_: object, **__: object) -> str:
            return code

    assert sorted(imported(Fake(path))) == ["a.b", "rng", "rng", "rng.learning"]


_HEAVY = (
    "gmpy2",
    "igraph",
    "jinja2",
    "matplotlib",
    "msgspec",
    "numba",
    "pandas",
    "pyarrow",
    "rich",
    "scipy",
    "sklearn",
    "typer",
)
_LIGHT = f"""
import sys, time
start = time.perf_counter()
import labelward
print(time.perf_counter() - start)
print([name for name in {_HEAVY!r} if name in sys.modules])
"""


def test_importing_labelward_is_light() -> None:
    """Half a second would be noticed at every command; the best of three, since other processes may disturb one."""
    times = []
    for _ in range(3):
        out = subprocess.run([sys.executable, "-c", _LIGHT], capture_output=True, text=True, timeout=60, check=True)
        seconds, heavy = out.stdout.splitlines()
        assert heavy == "[]"
        times.append(float(seconds))
    assert min(times) < 0.5


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("errors", _HEAVY),
        ("job", ("numba", "sklearn", "pyarrow", "matplotlib", "pandas", "gmpy2")),
        ("party.view", ("numba", "sklearn", "pyarrow", "matplotlib", "pandas", "gmpy2")),
        ("he", ("numba", "sklearn", "pyarrow", "matplotlib", "pandas", "gmpy2")),
        ("defenses", ("numba", "sklearn", "pyarrow", "matplotlib", "pandas", "gmpy2")),
        ("attacks", ("numba", "sklearn", "pyarrow", "matplotlib", "pandas", "gmpy2")),
    ],
)
def test_parts_load_what_they_need_only(module: str, heavy: tuple[str, ...]) -> None:
    """Reading a job or a view needs no compiler, no table reader and no plots."""
    code = f"import sys, labelward.{module}\nprint([name for name in {heavy!r} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout.strip() == "[]"
