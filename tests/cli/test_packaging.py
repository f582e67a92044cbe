"""What is installed is whole, and what is pinned is all that is needed."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from importlib import metadata
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


def pinned() -> dict[str, str]:
    """Return the versions of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pins)
    return {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in pins}


def test_constraints_pin_every_dependency_and_name_no_place() -> None:
    versions = pinned()
    wanted = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    for requirement in (Requirement(text) for group in wanted for text in group):
        if requirement.name != "labelward":
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement.name


def hashed() -> dict[str, tuple[Requirement, list[str]]]:
    """Return the requirements of hashes.txt, with the hashes of each."""
    text = (ROOT / "hashes.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            named, *hashes = line.split(" --hash=")
            requirement = Requirement(named.strip())
            found[canonicalize_name(requirement.name)] = (requirement, [each.strip() for each in hashes])
    return found


def test_hashes_are_of_the_pinned_versions() -> None:
    """pip installs nothing but files with these hashes, and refuses the list where one is missing."""
    versions = pinned()
    for name, (requirement, hashes) in hashed().items():
        assert str(requirement.specifier) == f"=={versions[name]}", name
        assert hashes, name
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes), name


def test_hashes_cover_all_that_a_company_installs() -> None:
    """All that labelward needs with its report, on this system, and what builds it."""
    listed, due, seen = hashed(), [("labelward", {"report"})], set[str]()
    while due:
        name, extras = due.pop()
        for text in metadata.requires(name) or []:
            requirement = Requirement(text)
            wanted = [{"extra": extra} for extra in ("", *extras)]
            if requirement.marker is None or any(map(requirement.marker.evaluate, wanted)):
                needed = canonicalize_name(requirement.name)
                assert needed in listed, f"{needed}, which {name} needs"
                if needed not in seen:
                    seen.add(needed)
                    due.append((needed, set(requirement.extras)))
    assert len(seen) > 20
    assert "setuptools" in listed
