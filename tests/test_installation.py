"""The command that adds a missing library installs from where labelward came, for each recorded origin."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest

from labelward import installation
from labelward.errors import DependencyError
from labelward.installation import install_command, missing_library
from refusals import refused

FOLDER = {"url": "file:///src/my%20code", "dir_info": {}}
ARCHIVE = {"url": "https://host.example/labelward-0.2.0.whl", "archive_info": {}}
REPOSITORY = {"url": "https://host.example/labelward.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}}

FORMS: dict[str, tuple[Any, list[str]]] = {
    "index": (None, ["labelward[nets,tune]"]),
    "folder": (FOLDER, ["/src/my code[nets,tune]"]),
    "editable": (FOLDER | {"dir_info": {"editable": True}}, ["-e", "/src/my code[nets,tune]"]),
    "archive": (ARCHIVE, ["labelward[nets,tune] @ https://host.example/labelward-0.2.0.whl"]),
    "repository": (REPOSITORY, ["labelward[nets,tune] @ git+https://host.example/labelward.git@ab12"]),
    "subdirectory": (
        REPOSITORY | {"subdirectory": "python"},
        ["labelward[nets,tune] @ git+https://host.example/labelward.git@ab12#subdirectory=python"],
    ),
    "unreadable": ("no JSON", ["labelward[nets,tune]"]),
}


class _Installed(Distribution):
    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def read_text(self, filename: str) -> str | None:
        return self._files.get(filename)

    def locate_file(self, path: Any) -> Any:
        return Path(path)


def _install(patch: pytest.MonkeyPatch, origin: Any, installer: str = "pip\n") -> None:
    files = {"INSTALLER": installer}
    if origin is not None:
        files["direct_url.json"] = origin if isinstance(origin, str) else json.dumps(origin)
    patch.setattr(installation, "distribution", lambda _: _Installed(files))


@pytest.mark.parametrize("form", FORMS)
def test_the_form_follows_the_origin(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    origin, wanted = FORMS[form]
    _install(monkeypatch, origin)
    assert shlex.split(install_command("nets", "tune")) == [sys.executable, "-m", "pip", "install", *wanted]


def test_an_environment_of_uv_has_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, None, "uv\n")
    wanted = ["uv", "pip", "install", "--python", sys.executable, "labelward[report]"]
    assert shlex.split(install_command("report")) == wanted


def test_this_installation_has_an_origin_that_exists() -> None:
    """Here labelward is installed from a folder, whose path the command names: it could be installed again."""
    target = shlex.split(install_command("report"))[-1]
    assert target.endswith("[report]")
    folder = Path(target.removesuffix("[report]"))
    assert target == "labelward[report]" or (folder / "pyproject.toml").is_file()


def test_a_missing_library_is_data() -> None:
    with refused(DependencyError, "dependency", field="[tune] search", value="torch") as caught:
        raise missing_library("a search", "torch", "tune", "nets", field="[tune] search")
    assert caught.value.reason.endswith(install_command("tune", "nets"))
