"""The command that adds an optional part of labelward to this installation, from where labelward itself came.

``pip install labelward[report]`` is right for an installation from a package index only: one from a folder, a
repository or an archive would not be found there, or be replaced by another package of this name. Installers record the
origin in ``direct_url.json`` (`PEP 610 <https://peps.python.org/pep-0610/>`_), which decides the form:

| origin | requirement |
|---|---|
| folder, editable | ``-e '/folder[report]'`` |
| folder | ``'/folder[report]'`` |
| repository | ``'labelward[report] @ git+https://host/repository@commit'`` |
| archive | ``'labelward[report] @ https://host/archive.whl'`` |
| package index | ``'labelward[report]'`` |
"""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlsplit

from labelward.errors import DependencyError

_PACKAGE = "labelward"


@cache
def version(package: str) -> str:
    """Return the version of an installed package; its files are read once, though every header of a view states it."""
    return importlib.metadata.version(package)


def missing_library(purpose: str, library: str, *extras: str, field: str = "") -> DependencyError:
    """Return the error for a library that is not installed.

    Args:
        purpose: what needs it, as the subject of a sentence, such as ``"the report"``.
        library: its name, the error's ``value``.
        extras: those of labelward that bring it.
        field: where it was asked for, if at one place.
    """
    reason = f"{purpose} needs {library}, which is not installed; install it with: {install_command(*extras)}"
    return DependencyError(reason, code="dependency", field=field, value=library)


def install_command(*extras: str) -> str:
    """Return a command line that adds extras to this installation of labelward, for this interpreter."""
    try:
        found: Distribution | None = distribution(_PACKAGE)
    except PackageNotFoundError:
        found = None
    installer = ((found.read_text("INSTALLER") if found else None) or "pip").strip()
    executable = shlex.quote(sys.executable)
    parts = f"[{','.join(extras)}]"
    start = f"uv pip install --python {executable}" if installer == "uv" else f"{executable} -m pip install"
    return f"{start} {_requirement(_origin(found), parts)}"


def _origin(found: Distribution | None) -> dict[str, Any]:
    """Return the recorded origin; empty for an installation from an index, and where the record cannot be read."""
    try:
        read = json.loads((found and found.read_text("direct_url.json")) or "{}")
    except ValueError:
        return {}
    return read if isinstance(read, dict) and isinstance(read.get("url"), str) else {}


def _requirement(origin: dict[str, Any], extras: str) -> str:
    if not origin:
        return shlex.quote(f"{_PACKAGE}{extras}")
    url, place = origin["url"], urlsplit(origin["url"])
    if place.scheme == "file" and "dir_info" in origin:
        folder = shlex.quote(f"{unquote(place.path)}{extras}")
        return f"-e {folder}" if origin["dir_info"].get("editable") else folder
    if repository := origin.get("vcs_info"):
        version = repository.get("commit_id") or repository.get("requested_revision")
        url = f"{repository['vcs']}+{url}{f'@{version}' if version else ''}"
    if within := origin.get("subdirectory"):
        url += f"#subdirectory={within}"
    return shlex.quote(f"{_PACKAGE}{extras} @ {url}")
