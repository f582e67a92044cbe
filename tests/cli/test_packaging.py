"""What is installed is whole, and what is pinned is all that is needed."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_file_of_the_package_is_shipped() -> None:
    """What is no Python file needs a pattern, or an installed copy lacks it."""
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["labelward"]
    source = ROOT / "src" / "labelward"
    others = [
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    ]
    assert {"py.typed", "cli/quickstart.toml"} <= set(others)
    assert [name for name in others if not any(fnmatch(name, pattern) for pattern in patterns)] == []


def test_constraints_pin_every_dependency_and_name_no_place() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pins)
    pinned = {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in pins}
    wanted = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    for requirement in (Requirement(text) for group in wanted for text in group):
        if requirement.name != "labelward":
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement.name
