"""Parsing of job files: from TOML to :class:`~labelward.job.Job`. Unknown keys are refused, never ignored."""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from labelward.errors import JobError, unknown_name
from labelward.job._validators import is_table_path
from labelward.job.components import ComponentSpec, Variant, sweep
from labelward.job.job import Job, check_no_common_table
from labelward.job.sections import (
    DataSection,
    EncryptionSection,
    LeakageSection,
    NetworkSection,
    PartySection,
    RunSection,
)
from labelward.job.table_formats import listed_suffixes
from labelward.job.tuning import TuneSection, TuneVariable
from labelward.parameters import StrPath, as_path, as_written

_SECTIONS = ("data", "parties", "model", "encryption", "defense", "attack", "leakage", "run", "network", "tune")
_ALL_BUT = "all but "
_MOST_LINES = 1000  # of a file that is read line by line
_Section = TypeVar(
    "_Section",
    DataSection,
    EncryptionSection,
    LeakageSection,
    NetworkSection,
    PartySection,
    RunSection,
    TuneSection,
    TuneVariable,
)


def load_job(path: StrPath) -> Job:
    """Return the job of a TOML file; relative paths of tables and certificates count from its folder.

    Raises:
        JobError: the file cannot be read or is not TOML, or a value is invalid.
    """
    file = as_path("path", path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise JobError("no such job file", code="not-found", field=str(file)) from error
    except UnicodeDecodeError as error:
        raise JobError("is not a UTF-8 text file", code="unreadable", field=str(file)) from error
    except OSError as error:
        raise JobError(f"cannot be read: {error.strerror}", code="unreadable", field=str(file)) from error
    return parse_job(text, str(file), base=file.resolve().parent)


def network_job(path: StrPath) -> Job | None:
    """Return what a job file says of its parties and their network, whatever else is wrong in it; None: not even that.

    It is enough to meet the other parties, and to tell them that this one cannot begin.
    """
    file = Path(path)
    try:
        tables = _legible(file.read_text(encoding="utf-8-sig"))
        parties = dict(tables["parties"])
        active = _leading(parties)
        roles = {name: {"role": "active" if name == active else "passive"} for name in parties}
        return _job({"parties": roles, "network": _valid(tables["network"])}, file.resolve().parent)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, JobError):
        return None


def _legible(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text; where it is none, those of the lines that can be read one after the other."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        kept, tables = "", dict[str, Any]()
        for line in text.splitlines()[:_MOST_LINES]:
            with contextlib.suppress(tomllib.TOMLDecodeError):
                tables = tomllib.loads(f"{kept}{line}\n")
                kept += f"{line}\n"
        return tables


def _valid(network: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of ``[network]`` that could stand there without the others."""
    valid = {"address": network["address"]}
    for key, value in network.items():
        with contextlib.suppress(JobError, TypeError):
            NetworkSection(**{**valid, key: value})
            valid[key] = value
    return valid


def _leading(parties: Mapping[str, Any]) -> str:
    """Return the active party of sections that were not checked."""
    sections = {name: value for name, value in parties.items() if isinstance(value, Mapping)}
    leading = [name for name, value in sections.items() if value.get("role") == "active"]
    labeled = [name for name, value in sections.items() if value.get("label") and value.get("role") != "holder"]
    return [*leading, *labeled, "active"][0]


def parse_job(job: str | Mapping[str, Any], source: str = "job.toml", *, base: StrPath | None = None) -> Job:
    """Return the job of a TOML text, or of the dictionary that such a text gives.

    Args:
        source: name of the job in error messages.
        base: folder from which relative paths of tables and certificates count; None leaves them as they are.

    Raises:
        JobError: names source, section, key and value.
    """
    try:
        tables = tomllib.loads(job) if isinstance(job, str) else job
        return _job(_table("job", tables), None if base is None else as_path("base", base))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise JobError(f"is not valid TOML: {error}", code="unreadable", field=source) from error
    except JobError as error:
        raise error.within(source) from error


def _job(tables: Mapping[str, Any], base: Path | None) -> Job:
    for name in tables:
        if name not in _SECTIONS:
            raise JobError(unknown_name("section", name, _SECTIONS), code="unknown", value=name)
    data_table = _table("[data]", tables.get("data", {}))
    parties = _table("[parties]", tables.get("parties", {}))
    if any(isinstance(party, Mapping) for party in parties.values()):
        check_no_common_table(data_table)
    data = _section(DataSection, "[data]", data_table, base)
    if not parties:
        reason = "required: a name, and a share or list of columns, for each party"
        raise JobError(reason, code="missing", field="[parties]")
    return Job(
        data=data,
        parties=tuple(_party(name, party, data, base) for name, party in parties.items()),
        model=_component("[model]", tables.get("model", {}), default="secureboost"),
        encryption=_encryption(tables.get("encryption", {})),
        defenses=tuple(_defenses(_entries("[[defense]]", tables.get("defense", [])))),
        attacks=tuple(_component(place, entry) for place, entry in _entries("[[attack]]", tables.get("attack", []))),
        leakage=_section(LeakageSection, "[leakage]", tables.get("leakage", {}), base),
        run=_section(RunSection, "[run]", tables.get("run", {}), base),
        network=_network(tables.get("network"), base),
        tune=_tune(tables.get("tune")),
    )


def _table(place: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise JobError(f"must be a section with keys, not {as_written(value)}", code="type", field=place, value=value)
    return value


def _entries(place: str, value: Any) -> list[tuple[str, Mapping[str, Any]]]:
    if not isinstance(value, list | tuple):
        reason = "must be written in double brackets, once for each entry"
        raise JobError(reason, code="type", field=place, value=value)
    return [(f"{place} {number}", _table(f"{place} {number}", entry)) for number, entry in enumerate(value, 1)]


def _section(section: type[_Section], place: str, table: Any, base: Path | None, **given: Any) -> _Section:
    """Return a section of its keys in the file, ``table``, and of values known already, ``given``."""
    values = dict(_table(place, table))
    known = {each.name for each in fields(section)} - set(given)
    for key in values:
        if key not in known:
            raise JobError(unknown_name("key", key, known), code="unknown", value=key).under(place)
    for key in ("table", "unaligned"):
        path = values.get(key)
        if base is not None and isinstance(path, str) and is_table_path(path):
            values[key] = os.path.abspath(base / path)
    return section(**given, **values)


def _encryption(table: Any) -> EncryptionSection:
    given = _table("[encryption]", table)
    name = given.get("engine", EncryptionSection.engine)
    values = {key: value for key, value in given.items() if key != name or not isinstance(value, Mapping)}
    for key, value in values.items():
        if isinstance(value, Mapping):
            reason = f"the engine is {name!r}; remove the parameters of {key!r}"
            raise JobError(reason, code="unknown", field=f"[encryption.{key}]", value=key)
    parameters = given[name] if len(values) < len(given) else {}
    return _section(EncryptionSection, "[encryption]", values, None, engine_parameters=parameters, automatic=False)


def _party(name: str, value: Any, data: DataSection, base: Path | None) -> PartySection:
    if isinstance(value, list | tuple):
        return PartySection(name=name, columns=tuple(value))
    if isinstance(value, str) and value.startswith(_ALL_BUT):
        return PartySection(name=name, drop=_listed(value))
    if not isinstance(value, Mapping):
        return PartySection(name=name, share=value)
    table = dict(value)
    columns = table.get("columns")
    if isinstance(columns, str) and columns.startswith(_ALL_BUT):
        if "drop" in table:
            raise JobError("needs either drop or 'all but'", code="conflict", field=f"[parties.{name}] columns")
        table["drop"] = _listed(table.pop("columns"))
    if "table" in table and data.id is not None:
        table.setdefault("id", data.id)
    for key in ("columns", "share"):
        if key in table and "table" not in table:
            reason = f"required with {key}: the path of a {listed_suffixes()} file"
            raise JobError(reason, code="missing", field=f"[parties.{name}] table")
    return _section(PartySection, f"[parties.{name}]", table, base, name=name)


def _listed(text: str) -> tuple[str, ...]:
    """Return the columns after ``all but``."""
    return tuple(name.strip() for name in text.removeprefix(_ALL_BUT).split(","))


def _network(table: Any, base: Path | None) -> NetworkSection | None:
    if table is None:
        return None
    values = dict(_table("[network]", table))
    folder = values.setdefault("certificates", "certs")
    if base is not None and isinstance(folder, str) and folder.strip():
        values["certificates"] = os.path.abspath(base / folder)
    return _section(NetworkSection, "[network]", values, base)


def _tune(table: Any) -> TuneSection | None:
    if table is None:
        return None
    values = dict(_table("[tune]", table))
    entries = _entries("[[tune.variable]]", values.pop("variable", []))
    for place, entry in entries:
        if "name" not in entry:
            raise JobError("required", code="missing", field=f"{place} name")
    variables = tuple(_section(TuneVariable, place, entry, None) for place, entry in entries)
    return _section(TuneSection, "[tune]", values, None, variables=variables)


def _component(place: str, entry: Any, default: str | None = None) -> ComponentSpec:
    params = dict(_table(place, entry))
    kind = params.pop("kind", default)
    if kind is None:
        raise JobError("required", code="missing", field=f"{place} kind")
    try:
        return ComponentSpec(kind, params)
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
