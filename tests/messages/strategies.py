"""Hypothesis strategies for every message class, built from the schema, so that a new message is tested too."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec.inspect as inspect
from hypothesis import strategies as st

from labelward.messages import explain, handshake, splitnn, tree
from labelward.messages.base import Message, Observation, Released, Releaser

_NUMBERS = st.integers(-(2**63), 2**64 - 1)  # what MessagePack holds
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


def classes(base: type) -> list[type]:
    """Return the message (or observation) classes of all families, by name."""
    found = {
        kind
        for family in (handshake, tree, explain, splitnn)
        for kind in vars(family).values()
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base
    }
    return sorted(found, key=lambda kind: kind.__name__)


MESSAGES = classes(Message)
OBSERVATIONS = classes(Observation)


def of(kind: type) -> st.SearchStrategy[Any]:
    """Return a strategy for a struct class."""
    return _strategy(inspect.type_info(kind))


def _field(info: inspect.Type, hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a field; a released one comes as a policy chain releases it."""
    if isinstance(info, inspect.CustomType) and info.cls is Released:
        (inner,) = get_args(hint)
        return _strategy(inspect.type_info(inner)).map(Releaser()._released)
    return _strategy(info)


def _strategy(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            hints = get_type_hints(cls)
            return st.builds(cls, **{field.name: _field(field.type, hints[field.name]) for field in fields})
        case inspect.Metadata(type=described):
            return _strategy(described)
        case inspect.UnionType(types=types):
            return st.one_of([_strategy(each) for each in types])
        case inspect.VarTupleType(item_type=item):
            return st.lists(_strategy(item), max_size=3).map(tuple)
        case inspect.TupleType(item_types=items):
            return st.tuples(*[_strategy(item) for item in items])
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_strategy(key), _strategy(value), max_size=3)
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.StrType(pattern=str() as pattern):
            return st.from_regex(pattern)
    simple = {
        inspect.IntType: _NUMBERS,
        inspect.StrType: _TEXT,
        inspect.BytesType: st.binary(max_size=20),
        inspect.FloatType: st.floats(allow_nan=False),
        inspect.BoolType: st.booleans(),
        inspect.NoneType: st.none(),
    }
    return simple[type(info)]
