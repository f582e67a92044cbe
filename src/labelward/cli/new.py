"""``labelward new``: a package with an attack of one's own, which labelward finds where it is installed."""

from __future__ import annotations

import re
import shlex
import sys
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from labelward.cli._options import example
from labelward.errors import InputError, OutputError

new = typer.Typer(help="Make a package with a component of one's own.", no_args_is_help=True)

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_FILES = {
    "pyproject.toml": "pyproject.toml",
    "attack.py": "src/{package}/__init__.py",
    "test_attack.py": "tests/test_{module}.py",
}


@new.callback()
def _root() -> None:
    pass


@new.command("attack", epilog=example("labelward new attack last-tree"))
def new_attack(
    name: Annotated[str, typer.Argument(help="Kind of the attack in job files, such as last-tree.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the package; left out: labelward-NAME.")] = None,
) -> None:
    """Make a package with an attack, its entry point, and the tests that every attack passes."""
    from labelward.attacks import ATTACKS

    if not _NAME.fullmatch(name) or len(name) > 64:
        reason = f"must be lower-case words with hyphens, at most 64 characters, not {name!r}"
        raise InputError(reason, code="type", field="NAME", value=name)
    if name in ATTACKS.classes() or name == "none":
        raise InputError(
            "an attack of this name exists; choose another one", code="duplicate", field="NAME", value=name
        )
    folder = Path(f"labelward-{name}") if out is None else out
    if folder.exists():
        raise OutputError("already exists; choose another folder", code="exists", field=str(folder))
    module = name.replace("-", "_")
    words = {
        "kind": name,
        "module": module,
        "package": f"labelward_{module}",
        "cls": "".join(part.capitalize() for part in name.split("-")),
    }
    for template, place in _FILES.items():
        text = resources.files("labelward.cli").joinpath("new_attack", f"{template}.txt").read_text(encoding="utf-8")
        for word, value in words.items():
            text = text.replace(f"@{word}@", value)
        path = folder / place.format(**words)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    python = shlex.quote(sys.executable)
    typer.echo(f"wrote {folder}; install it with: {python} -m pip install -e {folder}")
    typer.echo(f"test it with: {python} -m pytest {folder}")
