"""Valid inputs to begin with: a message of every type, and files as the package writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec.inspect as inspect
import numpy as np

from labelward.messages import codec
from labelward.messages.base import Array, Message, Observation, Released, Releaser, RowMask

ASSETS = Path(__file__).parents[1] / "assets" / "v1"
NESTED = b"\x91" * 3000
"""MessagePack that is deeper than any stack."""
_MASK = RowMask.pack(np.array([True, False, True]))
_ARRAY = Array.pack(np.arange(6, dtype=np.float32).reshape(2, 3))


def messages() -> list[Message]:
    """Return a message of every type, with one element in everything that has a length."""
    return [make(kind) for kind in codec._schema().values() if issubclass(kind, Message)]


def observations() -> list[Observation]:
    return [make(kind) for kind in codec._schema().values() if issubclass(kind, Observation)]


def make(kind: type) -> Any:
    """Return an object of a class with the simplest value in each field."""
    hints = get_type_hints(kind)
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return kind(**{field.name: _value(field.type, hints[field.name]) for field in described.fields})


def _value(info: inspect.Type, hint: Any) -> Any:
    if isinstance(info, inspect.CustomType) and info.cls is Released:
        (inner,) = get_args(hint)
        return Releaser()._released(_value(inspect.type_info(inner), inner))
    return _simple(info)


def _simple(info: inspect.Type) -> Any:
    match info:
        case inspect.StructType(cls=cls):
            return {RowMask: _MASK, Array: _ARRAY}.get(cls) or make(cls)
        case inspect.Metadata(type=described):
            return _simple(described)
        case inspect.UnionType(types=types):
            return _simple(types[0])
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return (_simple(item),)
        case inspect.TupleType(item_types=items):
            return tuple(map(_simple, items))
        case inspect.DictType(key_type=key, value_type=value):
            return {_simple(key): _simple(value)}
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.IntType() | inspect.FloatType() | inspect.BoolType():
            return {inspect.IntType: 1, inspect.FloatType: 0.5, inspect.BoolType: True}[type(info)]
        case inspect.BytesType():
            return b"ab"
        case inspect.NamedTupleType(cls=cls):
            return cls()
        case inspect.NoneType():
            return None
        case inspect.AnyType() | inspect.RawType():
            return 1
        case _:
            return "a"


def pieces(data: bytes) -> Iterator[bytes]:
    """Yield the parts of an input that :func:`joined` wrote; whatever is left over is the last one."""
    while len(data) > 2:
        (size,) = struct.unpack_from("<H", data)
        yield data[2 : 2 + size]
        data = data[2 + size :]


def joined(parts: list[bytes]) -> bytes:
    return b"".join(struct.pack("<H", len(part)) + part for part in parts)
