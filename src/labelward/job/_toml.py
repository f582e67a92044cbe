"""Writer of the TOML in a job file: flat sections of scalars, lists and inline tables."""

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def block(header: str, values: Mapping[str, Any]) -> str:
    """Return one section with a line for each value but None, which TOML lacks."""
    return (
        "\n".join([header, *(f"{_key(key)} = {_value(value)}" for key, value in values.items() if value is not None)])
        + "\n"
    )


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    # JSON escapes what TOML's basic strings must escape, except DEL
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items() if one is not None) + "}"
    return "[" + ", ".join(map(_value, value)) + "]"
