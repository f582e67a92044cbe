"""``labelward list``: components that a job file may name."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from labelward.cli._options import Json
from labelward.errors import JobError, unknown_name

if TYPE_CHECKING:
    from labelward.federation.components import ComponentInfo

_MAX_WIDTH = 120
_NAMES = {"None": "none", "True": "true", "False": "false"}


def list_command(
    family: Annotated[
        str | None, typer.Argument(help="One family only: models, defenses, attacks, engines or tables.")
    ] = None,
    json: Json = False,
) -> None:
    """List the models, defenses, attacks, engines and tables that a job file may name, with their parameters."""
    from labelward.federation import components

    found = components.list_components()
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
                "parameters": [dict(zip(("name", "default", "doc"), each, strict=True)) for each in info.parameters],
            }
            for info in infos
        ]
        for family, infos in found.items()
    }
    return json.dumps(families, indent=2, ensure_ascii=False)


def _as_text(found: Mapping[str, Sequence[ComponentInfo]]) -> str:
    width = min(shutil.get_terminal_size((_MAX_WIDTH, 24)).columns, _MAX_WIDTH)
    lines: list[str] = []
    for family, infos in found.items():
        lines += ["", family] if lines else [family]
        for info in infos:
            lines += _wrapped(f"  {info.kind}: ", info.summary.replace("``", ""), width)
            for name, default, doc in info.parameters:
                status = "required" if default == "required" else f"default {_NAMES.get(default, default)}"
                lines += _wrapped(f"      {name} ({status}): ", doc, width)
    return "\n".join(lines)


def _wrapped(lead: str, text: str, width: int) -> list[str]:
    indent = " " * (len(lead) - len(lead.lstrip()) + 4)
    return textwrap.wrap(text or "–", width, initial_indent=lead, subsequent_indent=indent, break_long_words=False)
