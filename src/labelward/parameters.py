"""Parameters: frozen dataclasses whose fields state their type, their bounds and their meaning, once.

::

    @dataclass(frozen=True, kw_only=True)
    class Shallow(Policy):
        levels: Annotated[int, Meta(ge=0, description="Number of levels of splits that passive parties see.")]

The annotation is what is checked when an object is made, from a job file or from Python, and the description is what
``labelward list`` prints. Models, attacks, defenses, behaviors and the sections of a job are declared in this way.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from labelward.errors import Code, InputError, JobError, number_code, suggestion

PositiveInt: TypeAlias = Annotated[int, Meta(ge=1)]
NonNegativeInt: TypeAlias = Annotated[int, Meta(ge=0)]
PositiveFloat: TypeAlias = Annotated[float, Meta(gt=0)]
NonNegativeFloat: TypeAlias = Annotated[float, Meta(ge=0)]
Fraction: TypeAlias = Annotated[float, Meta(gt=0, le=1)]
Text: TypeAlias = Annotated[str, Meta(pattern=r"\S")]
Seed: TypeAlias = Annotated[int, Meta(ge=0, le=2**32 - 1)]
StrPath: TypeAlias = str | os.PathLike[str]


class Parameters:
    """The base of frozen keyword-only dataclasses of parameters.

    On construction every field is checked against its annotation and converted to it: an integer to a float, a list to
    a tuple. Booleans are not taken for integers nor floats for integers, and every float must be finite. A field that
    is a ``Mapping`` is left to :meth:`check_parameters`.

    Attributes:
        section: put before a parameter's name in errors, such as ``"[model]"``.
    """

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        checked = _checked_fields(type(self))  # type: ignore[arg-type]  # mypy takes the hash of the instances
        for name, annotation in checked.items():
            value = check_value(self.field_path(name), getattr(self, name), annotation)
            object.__setattr__(self, name, value)
        self.check_parameters()

    def check_parameters(self) -> None:
        """Refuse values that are right alone but not together; raises :class:`JobError` (see :meth:`error`)."""

    def field_path(self, name: str) -> str:
        """Return how errors call a parameter, such as ``"[model] depth"``."""
        return f"{self.section} {name}".lstrip()

    def error(self, name: str, reason: str, *, code: Code = "conflict") -> JobError:
        """Return the error for the value of one parameter."""
        return JobError(reason, code=code, field=self.field_path(name), value=getattr(self, name))

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name, as results and transcripts store them."""
        return {each.name: getattr(self, each.name) for each in _parameter_fields(type(self))}


def documented_fields(cls: type[Any]) -> Iterator[tuple[Field[Any], str]]:
    """Yield each parameter of a class with its description; the description is empty where none was written."""
    hints = get_type_hints(cls, include_extras=True)
    for each in _parameter_fields(cls):
        metas = (meta for meta in getattr(hints[each.name], "__metadata__", ()) if isinstance(meta, Meta))
        yield each, next((meta.description for meta in metas if meta.description), "")


def parameter_annotation(cls: type[Any], name: str) -> tuple[Any, type[Any]]:
    """Return the annotation of a parameter, and the type inside it; :class:`KeyError` for an unknown name."""
    annotation = _checked_fields(cls)[name]  # type: ignore[arg-type]  # mypy takes the hash of the instances
    return annotation, _unwrap(annotation)[0]


def check_value(field: str, value: Any, annotation: Any) -> Any:
    """Return a value converted to an annotation.

    Args:
        field: how errors call it.
        value: what was given.
        annotation: a number, text, boolean, literal, ``tuple[X, ...]`` or union of these, with constraints.

    Raises:
        JobError: the value does not fit; in a list, the first element that does not.
    """
    try:
        converted = msgspec.convert(_builtin(value), annotation)
    except msgspec.ValidationError as error:
        raise _error(field, value, annotation) from error
    if not all(map(_is_finite, converted if isinstance(converted, tuple) else (converted,))):
        raise _error(field, value, annotation)
    return converted


@cache
def _checked_fields(cls: type[Any]) -> Mapping[str, Any]:
    """Return the annotations by name, without those that are left to ``check_parameters``."""
    hints = get_type_hints(cls, include_extras=True)
    annotations = {each.name: hints[each.name] for each in _parameter_fields(cls)}
    return {name: each for name, each in annotations.items() if get_origin(_unwrap(each)[0]) is not Mapping}


def _parameter_fields(cls: type[Any]) -> list[Field[Any]]:
    return [each for each in fields(cls) if each.init] if is_dataclass(cls) else []


def _builtin(value: Any) -> Any:
    """Return instances of subclasses, such as numpy's float64 and str_, as the classes that msgspec accepts."""
    if isinstance(value, list | tuple):
        return [_builtin(each) for each in value]
    return float(value) if isinstance(value, float) else str(value) if isinstance(value, str) else value


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _unwrap(annotation: Any) -> tuple[Any, dict[str, Any]]:
    """Return the type inside ``Annotated`` and ``Optional``, and its constraints by name."""
    constraints: dict[str, Any] = {}
    while True:
        origin = get_origin(annotation)
        members = [each for each in get_args(annotation) if each is not NoneType]
        if origin is Annotated:
            annotation = members[0]
            for meta in members[1:]:
                names = ("gt", "ge", "lt", "le", "min_length", "pattern")
                constraints |= {name: getattr(meta, name) for name in names if getattr(meta, name, None) is not None}
        elif origin in (Union, UnionType) and len(members) == 1:
            annotation = members[0]
        else:
            return annotation, constraints


def _error(field: str, value: Any, annotation: Any) -> JobError:
    """Return the error for a value that does not fit; in a list, for the first element that does not."""
    kind, _ = _unwrap(annotation)
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        for element in value:
            try:
                check_value(field, element, get_args(kind)[0])
            except JobError as error:
                return error
    code: Code = "type"
    hint = ""
    if get_origin(kind) is Literal:
        code, hint = "choice", suggestion(value, get_args(kind)) if isinstance(value, str) else ""
    elif kind in (int, float):
        code = number_code(value, whole=kind is int)
    wanted = _describe(annotation)
    if not _is_finite(value):
        wanted = wanted.replace("a number", "a finite number")
    return JobError(f"must be {wanted}, not {as_written(value)}{hint}", code=code, field=field, value=value)


def as_written(value: Any) -> str:
    """Return a value as a job file writes it, but for a text in single quotes: ``true``, ``[2, 3]``, ``{a = 1}``."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inside, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {_inside(each)}' for key, each in value.items())}}}"
    return repr(value)


def _inside(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else as_written(value)


_NOUNS = {int: ("an integer", "integers"), float: ("a number", "numbers"), str: ("a text", "texts")}


def _describe(annotation: Any, *, plural: bool = False) -> str:
    """Return what a value must be: ``"an integer ≥ 1"``, ``"a list of numbers > 0"``, ``"'sgd' or 'adam'"``."""
    kind, constraints = _unwrap(annotation)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        *others, last = map(repr, arguments)
        return f"{', '.join(others)} or {last}" if others else last
    if origin in (Union, UnionType):
        return " or ".join(_describe(each) for each in arguments if each is not NoneType)
    if origin is tuple:
        least = "a non-empty list" if constraints.get("min_length") else "a list"
        return f"{least} of {_describe(arguments[0], plural=True)}"
    if kind is bool:
        return "true or false"
    noun = _NOUNS.get(kind, (f"a {kind.__name__}",) * 2)[plural]
    if "pattern" in constraints:
        return f"non-empty {noun}" if plural else "a non-empty text"
    return f"{noun} {_bounds(constraints)}".rstrip()


def _bounds(constraints: Mapping[str, Any]) -> str:
    if "ge" in constraints and "le" in constraints:
        return f"from {constraints['ge']} to {constraints['le']}"
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    return " and ".join(f"{sign} {constraints[name]}" for name, sign in signs.items() if name in constraints)


def as_path(name: str, value: StrPath) -> Path:
    """Return an argument that names a file or folder; :class:`InputError` where it is no path."""
    try:
        path = Path(value)
    except TypeError as error:
        reason = f"must be a path, as a text or a pathlib.Path, not {value!r}"
        raise InputError(reason, code="type", field=name, value=value) from error
    if "\0" in str(path):
        raise InputError(f"must be a path, not {value!r}", code="type", field=name, value=value)
    return path


def as_paths(name: str, values: Iterable[StrPath]) -> tuple[Path, ...]:
    """Return an argument that names several files or folders; :class:`InputError` where it is no list of paths."""
    if isinstance(values, str | os.PathLike) or not isinstance(values, Iterable):
        raise InputError(f"must be a list of paths, not {values!r}", code="type", field=name, value=values)
    return tuple(as_path(name, each) for each in values)


def check_instance(name: str, value: Any, kind: type[Any], such: str) -> None:
    """Refuse an argument that is no object of a class, with an :class:`InputError`.

    Args:
        such: what such an object is or comes from, for the error.
    """
    if not isinstance(value, kind):
        given = value.__name__ if isinstance(value, type) else type(value).__name__
        what = f"the class {given}" if isinstance(value, type) else f"an object of {given}"
        reason = f"must be of the class {kind.__name__} ({such}), not {what}"
        raise InputError(reason, code="type", field=name, value=value)
