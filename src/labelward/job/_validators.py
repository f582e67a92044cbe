"""Checks of texts in a job file: names, addresses, tables, byte counts and lists of columns."""

from __future__ import annotations

import ipaddress
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from labelward.errors import JobError, number_code
from labelward.job.components import FrozenDict
from labelward.job.table_formats import has_table_suffix, listed_suffixes
from labelward.parameters import Text, as_written, check_value

SUM_TOLERANCE = 1e-9  # shares such as 0.1 + 0.2 + 0.7 exceed 1 by rounding alone

_UNITS = ("", "K", "M", "G", "T")
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:([KMGT])(i?))?B", re.IGNORECASE)
_MOST_BYTES = 1 << 62
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_CATALOG_NAME = re.compile(r"[A-Za-z0-9_-]+")
_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)*"
)


def check_name(field: str, value: Any) -> None:
    """Refuse what is no name of a party or relay: such names become folders, files and parts of certificates."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        reason = f"must be a letter, then letters, digits, '_' or '-', at most 64 characters, not {value!r}"
        raise JobError(reason, code="type", field=field, value=value)


def check_unique(field: str, values: Sequence[Any], noun: str) -> None:
    """Refuse a list with a value that occurs twice."""
    for value in values:
        if values.count(value) > 1:
            raise JobError(f"{noun} {value!r} is listed twice", code="duplicate", field=field, value=value)


def is_table_path(table: str) -> bool:
    """Return whether ``table`` is the path of a file rather than a name of the catalog."""
    return has_table_suffix(table)


def check_table(field: str, table: Any, *, catalog: bool) -> None:
    """Refuse what is no path of a table, nor a name of the catalog where one is allowed."""
    if is_table_path(table) or (catalog and _CATALOG_NAME.fullmatch(table)):
        return
    wanted = "a catalog name or the path of" if catalog else "the path of"
    reason = f"must be {wanted} a {listed_suffixes()} file, not {table!r}"
    raise JobError(reason, code="choice", field=field, value=table)


def check_label_shares(shares: Any) -> FrozenDict[float]:
    """Return the shares of the labels by party; :class:`JobError` unless they are positive and sum to 1."""
    place = "[data] labels"
    if not isinstance(shares, Mapping):
        reason = f"must be a table such as {{bank = 0.4, clinic = 0.6}}, not {as_written(shares)}"
        raise JobError(reason, code="type", field=place, value=shares)
    for party, share in shares.items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            reason = f"must be above 0 and at most 1, not {as_written(share)}"
            raise JobError(reason, code=number_code(share), field=f"{place} {party}", value=share)
    if len(shares) == 1:
        raise JobError("are for two label holders or more", code="range", field=place, value=dict(shares))
    if shares and abs(sum(shares.values()) - 1) > SUM_TOLERANCE:
        total = sum(shares.values())
        raise JobError(f"the shares must sum to 1, not {total:g}", code="range", field=place, value=total)
    return FrozenDict({party: float(share) for party, share in shares.items()})


def check_roles(section: str, roles: Mapping[str, str]) -> None:
    """Refuse a column with two roles, such as label and row id."""
    taken: dict[str, str] = {}
    for role, column in roles.items():
        if column in taken:
            reason = f"{column!r} is the {taken[column]} column"
            raise JobError(reason, code="conflict", field=f"{section} {role}", value=column)
        taken[column] = role


def check_directions(field: str, value: Any) -> FrozenDict[int]:
    """Return monotone constraints, 1 or -1 by column, as an immutable mapping."""
    if not isinstance(value, Mapping):
        reason = f"must be a table such as {{income = 1}}, not {as_written(value)}"
        raise JobError(reason, code="type", field=field, value=value)
    for column, direction in value.items():
        check_value(field, column, Text)
        if isinstance(direction, bool) or not isinstance(direction, int) or direction not in (1, -1):
            reason = f"must be 1 or -1 for column {column!r}, not {as_written(direction)}"
            raise JobError(reason, code="choice", field=field, value=direction)
    return FrozenDict(value)


def check_edges(field: str, value: Any) -> FrozenDict[tuple[float, ...]]:
    """Return edges of buckets, increasing numbers by column, as an immutable mapping."""
    if not isinstance(value, Mapping):
        reason = f"must be a table such as {{income = [20000, 50000]}}, not {as_written(value)}"
        raise JobError(reason, code="type", field=field, value=value)
    for column, edges in value.items():
        check_value(field, column, Text)
        listed = edges if isinstance(edges, list | tuple) else ()
        numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in listed)
        small = numbers and all(abs(each) <= sys.float_info.max for each in listed)
        if not small or not listed or any(float(one) >= float(two) for one, two in itertools.pairwise(listed)):
            reason = f"must be increasing numbers for column {column!r}, not {as_written(edges)}"
            raise JobError(reason, code="range" if numbers else "type", field=field, value=edges)
    return FrozenDict({column: tuple(map(float, edges)) for column, edges in value.items()})


def parse_bytes(field: str, value: int | str) -> int:
    """Return a number of bytes, given as such or as a text such as ``"4 GB"`` or ``"512 MiB"``."""
    if isinstance(value, str):
        written = _BYTES.fullmatch(value.strip())
        if not written:
            reason = f"must be a number of bytes, or a text such as '4 GB', not {as_written(value)}"
            raise JobError(reason, code="type", field=field, value=value)
        power, base = _UNITS.index((written[2] or "").upper()), 1024 if written[3] else 1000
        number: int = round(float(written[1]) * base**power)
    else:
        number = value
    if not 0 <= number <= _MOST_BYTES:
        reason = f"must be from 0 to {_MOST_BYTES} bytes, not {number}"
        raise JobError(reason, code="range", field=field, value=number)
    return number


def split_address(field: str, value: object) -> tuple[str, int]:
    """Return host, without brackets, and port of ``"HOST:PORT"``.

    Raises:
        JobError: the address is malformed; ``field`` is what the error calls it.
    """
    address: str = check_value(field, value, Text)
    host, colon, port = address.rpartition(":")
    if not colon or not host:
        reason = f'must be a host and a port, such as "bank.example:7443", not {value!r}'
        raise JobError(reason, code="type", field=field, value=value)
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        reason = f"the port must be an integer from 1 to 65535, not {port!r} (in {value!r})"
        raise JobError(reason, code="range", field=field, value=value)
    reason = ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_address(host, ipaddress.IPv6Address):
            reason = f"must be an IPv6 address in brackets, not {host!r} (in {value!r})"
    elif ":" in host and _is_address(host, ipaddress.IPv6Address):
        reason = f'an IPv6 address needs brackets: write "[{host}]:{port}", not {value!r}'
    elif not _HOST.fullmatch(host) or (
        host.replace(".", "").isdigit() and not _is_address(host, ipaddress.IPv4Address)
    ):
        reason = f"must be a host name or an IP address, not {host!r} (in {value!r})"
    if reason:
        raise JobError(reason, code="type", field=field, value=value)
    return host, int(port)


def _is_address(host: str, kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address]) -> bool:
    try:
        kind(host)
    except ValueError:
        return False
    return True
