"""``labelward init`` and ``labelward list``: what one needs before the first audit."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labelward.cli._errors import check_output_file
from labelward.errors import JobError, unknown_name

if TYPE_CHECKING:
    from labelward.federation.components import ComponentInfo

__all__ = ["init", "list_kinds"]

_WIDEST = 120
_NAMES = {"None": "none", "True": "true", "False": "false"}


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("job.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented job file, ready to run and to change."""
    from labelward.job import template

    check_output_file(path, force=force)
    with path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(template())
    typer.echo(f"wrote {path}; run it with: labelward audit {path} --out audit")


def list_kinds(
    family: Annotated[
        str | None, typer.Argument(help="Only one family: models, defenses, attacks, engines or tables.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List what a job file may name: models, defenses, attacks, engines, tables, with their parameters."""
    from labelward.federation.components import list_components

    found = list_components()
    if family is not None:
        if family not in found:
            raise JobError(unknown_name("family", family, found), code="unknown", value=family)
        found = {family: found[family]}
    typer.echo(_as_json(found) if json else _as_text(found))


def _as_json(found: Mapping[str, Sequence[ComponentInfo]]) -> str:
    import json

    families = {
        family: [
            {
                "kind": info.kind,
                "summary": info.summary,
                "parameters": [dict(zip(("name", "default", "doc"), one, strict=True)) for one in info.parameters],
            }
            for info in infos
        ]
        for family, infos in found.items()
    }
    return json.dumps(families, indent=2, ensure_ascii=False)


def _as_text(found: Mapping[str, Sequence[ComponentInfo]]) -> str:
    width = min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)
    lines: list[str] = []
    for family, infos in found.items():
        lines += ["", family] if lines else [family]
        for info in infos:
            lines += _wrapped(f"  {info.kind}: ", info.summary.replace("``", ""), width)
            for name, default, doc in info.parameters:
                given = "required" if default == "required" else f"default {_NAMES.get(default, default)}"
                lines += _wrapped(f"      {name} ({given}): ", doc, width)
    return "\n".join(lines)


def _wrapped(lead: str, text: str, width: int) -> list[str]:
    indent = " " * (len(lead) - len(lead.lstrip()) + 4)
    return textwrap.wrap(text or "–", width, initial_indent=lead, subsequent_indent=indent, break_long_words=False)
