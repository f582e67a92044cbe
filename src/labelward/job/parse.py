"""From TOML to :class:`~labelward.job.model.Job`: unknown keys are refused, never skipped."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from labelward.errors import JobError, unknown_name
from labelward.job.kinds import Kind, Variant, sweep
from labelward.job.model import Job, refuse_common_table
from labelward.job.network import NetworkSection
from labelward.job.sections import DataSection, EncryptionSection, LeakageSection, PartySection, RunSection, is_path

__all__ = ["load_job", "parse_job"]

_SECTIONS = ("data", "parties", "model", "encryption", "defense", "attack", "leakage", "run", "network")
_Section = TypeVar("_Section", DataSection, EncryptionSection, LeakageSection, NetworkSection, PartySection, RunSection)


def load_job(path: str | os.PathLike[str]) -> Job:
    """Return the job of a TOML file; relative paths of tables and certificates count from its folder.

    Raises:
        JobError: the file cannot be read, is no TOML, or asks for what cannot be.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise JobError("no such job file", code="not-found", field=str(file)) from error
    except UnicodeDecodeError as error:
        raise JobError("not a text file in UTF-8", code="unreadable", field=str(file)) from error
    except OSError as error:
        raise JobError(f"cannot be read ({error.strerror})", code="unreadable", field=str(file)) from error
    return parse_job(text, str(file), base=file.resolve().parent)


def parse_job(
    job: str | Mapping[str, Any], source: str = "job.toml", *, base: str | os.PathLike[str] | None = None
) -> Job:
    """Return the job of a TOML text, or of the dictionary that such a text gives.

    Args:
        job: the text or the dictionary.
        source: what error messages call it.
        base: folder from which relative paths of tables and certificates count; None leaves them as they are.

    Raises:
        JobError: names source, section, key and value.
    """
    try:
        tables = tomllib.loads(job) if isinstance(job, str) else job
        return _job(tables, None if base is None else Path(base))
    except tomllib.TOMLDecodeError as error:
        raise JobError(f"not valid TOML: {error}", code="unreadable", field=source) from error
    except JobError as error:
        raise error.within(source) from error


def _job(tables: Mapping[str, Any], base: Path | None) -> Job:
    for name in tables:
        if name not in _SECTIONS:
            raise JobError(unknown_name("section", name, _SECTIONS), code="unknown", value=name)
    given = _table("[data]", tables.get("data", {}))
    parties = _table("[parties]", tables.get("parties", {}))
    if any(isinstance(held, Mapping) for held in parties.values()):
        refuse_common_table(given)
    data = _section(DataSection, "[data]", given, base)
    if not parties:
        raise JobError(
            "required (a name and a share or list of columns for each party)", code="missing", field="[parties]"
        )
    return Job(
        data=data,
        parties=tuple(_party(name, held, data, base) for name, held in parties.items()),
        model=_kind("[model]", tables.get("model", {}), default="secureboost"),
        encryption=_encryption(_table("[encryption]", tables.get("encryption", {}))),
        defenses=tuple(_defenses(_entries("[[defense]]", tables.get("defense", [])))),
        attacks=tuple(_kind(place, one) for place, one in _entries("[[attack]]", tables.get("attack", []))),
        leakage=_section(LeakageSection, "[leakage]", _table("[leakage]", tables.get("leakage", {})), base),
        run=_section(RunSection, "[run]", _table("[run]", tables.get("run", {})), base),
        network=_network(tables.get("network"), base),
    )


def _table(place: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise JobError(f"must be a section with keys but got {value!r}", code="type", field=place, value=value)
    return value


def _entries(place: str, value: Any) -> list[tuple[str, Mapping[str, Any]]]:
    if not isinstance(value, list | tuple):
        raise JobError(
            "must be written with double brackets, once for each entry", code="type", field=place, value=value
        )
    return [(f"{place} {number}", _table(f"{place} {number}", one)) for number, one in enumerate(value, 1)]


def _section(
    section: type[_Section], place: str, values: Mapping[str, Any], base: Path | None, **given: Any
) -> _Section:
    known = {one.name for one in fields(section)} - set(given)
    for key in values:
        if key not in known:
            raise JobError(unknown_name("key", key, known), code="unknown", value=key).under(place)
    values = given | dict(values)
    table = values.get("table")
    if base is not None and isinstance(table, str) and is_path(table):
        values["table"] = os.path.abspath(base / table)
    return section(**values)


def _encryption(given: Mapping[str, Any]) -> EncryptionSection:
    name = given.get("engine", EncryptionSection.engine)
    values = {key: value for key, value in given.items() if key != name or not isinstance(value, Mapping)}
    for key, value in values.items():
        if isinstance(value, Mapping):
            raise JobError(
                f"the engine is {name!r}; remove the parameters of {key!r}",
                code="unknown",
                field=f"[encryption.{key}]",
                value=key,
            )
    own = given[name] if len(values) < len(given) else {}
    return _section(EncryptionSection, "[encryption]", values, None, parameters=own)


def _party(name: str, held: Any, data: DataSection, base: Path | None) -> PartySection:
    if isinstance(held, Mapping):
        own = dict(held)
        if "table" in own and data.id is not None:
            own.setdefault("id", data.id)
        for key in ("columns", "share"):
            if key in own and "table" not in own:
                raise JobError(
                    f"required beside {key} (the path of a .csv or .parquet file)",
                    code="missing",
                    field=f"[parties.{name}] table",
                )
        return _section(PartySection, f"[parties.{name}]", own, base, name=name)
    if isinstance(held, list | tuple):
        return PartySection(name=name, columns=tuple(held))
    return PartySection(name=name, share=held)


def _network(given: Any, base: Path | None) -> NetworkSection | None:
    if given is None:
        return None
    values = dict(_table("[network]", given))
    folder = values.setdefault("certificates", "certs")
    if base is not None and isinstance(folder, str) and folder.strip():
        values["certificates"] = os.path.abspath(base / folder)
    return _section(NetworkSection, "[network]", values, base)


def _kind(place: str, entry: Any, default: str | None = None) -> Kind:
    params = dict(_table(place, entry))
    kind = params.pop("kind", default)
    if kind is None:
        raise JobError("required", code="missing", field=f"{place} kind")
    try:
        return Kind(kind, params)
    except JobError as error:
        raise error.under(place) from error


def _defenses(entries: list[tuple[str, Mapping[str, Any]]]) -> list[Variant]:
    variants: list[Variant] = []
    for number, (place, entry) in enumerate(entries, 1):
        try:
            variants += sweep(entry, number)
        except JobError as error:
            raise error.under(place) from error
    return variants
