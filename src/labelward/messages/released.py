"""What may enter a message: only what a policy chain released, or what a field declares to be free of secrets.

A message field that can carry labels, gradients, embeddings or instance spaces has the type ``Released[...]``. Only a
policy chain (:class:`labelward.policy.chain.PolicyChain`) makes such a value, at the point where its policies act, so
that nothing leaves a party that none of them saw. Every other field that can carry more than a single number or text
is declared with :func:`exempt` and the reason why it needs no release. A class that does neither is refused when the
codec first meets it, and a value that a chain did not make when it is encoded.

::

    class BatchGradients(Message, frozen=True):
        values: Released[Array]                                   # only as PolicyChain.on_returned_gradient gives it

    class Hello(Message, frozen=True):
        rows: int                                                 # a single number
        nonce: Annotated[bytes, exempt("drawn at random")]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, get_args

import msgspec
from msgspec import inspect

from labelward.errors import CodecError, ProtocolError
from labelward.he.base import CipherBlock, Layout, PublicMaterial
from labelward.messages.base import CipherDigest, Message, Observation, wire_name

T = TypeVar("T")
U = TypeVar("U")

_EXEMPT = "exempt"
_MADE, _RECEIVED = object(), object()
_SCALARS = (inspect.IntType, inspect.StrType, inspect.BoolType, inspect.NoneType, inspect.LiteralType)
_CIPHERS = (CipherBlock, CipherDigest, Layout, PublicMaterial)
"""Structures that hold ciphertexts, or public keys."""
_fields_of: dict[type[msgspec.Struct], tuple[str, ...]] = {}


class Released(Generic[T]):
    """A value that may leave its party: made by a policy chain, or received from a peer.

    A received one cannot be sent on: the receiver's own chain must release it anew.
    """

    __slots__ = ("_origin", "value")

    def __init__(self, value: T, origin: object) -> None:
        if origin is not _MADE and origin is not _RECEIVED:
            raise TypeError("only a policy chain releases values")
        self.value, self._origin = value, origin

    @property
    def sendable(self) -> bool:
        """Whether this party's policy chain made it."""
        return self._origin is _MADE

    @classmethod
    def received(cls, value: T) -> Released[T]:
        """Return a value as a peer's message brings it; it cannot be sent."""
        return cls(value, _RECEIVED)

    def map(self, change: Callable[[T], U]) -> Released[U]:
        """Return the value in another encoding; ``change`` may use nothing but the value (post-processing)."""
        return Released(change(self.value), self._origin)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Released) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"Released({self.value!r})"


class Releaser:
    """The base of the policy chain: the only one that can release a value."""

    def _released(self, value: T) -> Released[T]:
        return Released(value, _MADE)


def exempt(reason: str) -> msgspec.Meta:
    """Declare that a field travels without a release; ``reason`` says why it holds no secret."""
    return msgspec.Meta(extra={_EXEMPT: reason})


def require_released(message: Message | Observation) -> None:
    """Refuse an object that is no message, or a message with a field that no policy chain released.

    Raises:
        ProtocolError: the message's class has a field that is neither released nor exempt.
        CodecError: a field's value was not released by this party's policy chain.
    """
    kind = type(message)
    if not isinstance(message, Message):
        raise CodecError(f"{wire_name(kind)} may not travel", code="not-sendable", value=wire_name(kind))
    if kind not in _fields_of:
        _fields_of[kind] = tuple(_released_fields(kind))
    for name in _fields_of[kind]:
        value = getattr(message, name)
        if not isinstance(value, Released) or not value.sendable:
            raise CodecError(
                f"{name} of {kind.__name__} was not released by this party's policies", code="not-sendable", value=name
            )


def encode_released(value: Any) -> Any:
    """Return what a released value travels as; :class:`CodecError` for an object without an encoding."""
    if isinstance(value, Released):
        return value.value
    raise CodecError(f"{type(value).__name__} may not travel", code="not-sendable", value=type(value))


def decode_released(kind: Any, value: Any) -> Any:
    """Return a received value of a type ``Released[...]``."""
    (inner,) = get_args(kind)
    return Released.received(msgspec.convert(value, inner))


def _released_fields(kind: type[msgspec.Struct]) -> Iterator[str]:
    """Yield the released fields of a message class; refuse a field that is neither these nor exempt nor a scalar."""
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    for field in described.fields:
        if _is_released(field.type):
            yield field.name
        elif not _is_harmless(field.type):
            raise ProtocolError(
                f"{field.name} of {kind.__name__} can carry what derives from labels; declare it as Released[...], or "
                "as exempt with the reason",
                code="not-sendable",
                value=field.name,
            )


def _is_released(described: inspect.Type) -> bool:
    return isinstance(described, inspect.CustomType) and described.cls is Released


def _is_harmless(described: inspect.Type) -> bool:
    if isinstance(described, inspect.Metadata):
        return _EXEMPT in (described.extra or {}) or _is_harmless(described.type)
    if isinstance(described, inspect.UnionType):
        return all(map(_is_harmless, described.types))
    if isinstance(described, inspect.StructType):
        return described.cls in _CIPHERS
    return isinstance(described, _SCALARS)
