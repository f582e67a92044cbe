"""Bytes ↔ messages, by schema and never by pickle.

A frame is ``magic · version · envelope``; the envelope is MessagePack ``[type, step, fields]``. Only classes listed
here can be decoded; an object without an encoding (unsealed sums, a private key) raises :class:`CodecError`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import inspect

from labelward.errors import CodecError, ProtocolError
from labelward.families import FAMILIES
from labelward.he.base import CipherBlock, Layout, PublicMaterial
from labelward.messages.base import EXEMPT, Array, CipherDigest, Message, Observation, Released, wire_name

WIRE_VERSION = 1
_MAGIC = b"LW"
_SCALARS = (inspect.IntType, inspect.StrType, inspect.BoolType, inspect.NoneType, inspect.LiteralType)
_CIPHERS = (CipherBlock, CipherDigest, Layout, PublicMaterial)
"""Structures that hold ciphertexts, or public keys."""
_fields_of: dict[type[msgspec.Struct], tuple[str, ...]] = {}


class _Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    type: str
    step: tuple[int, ...]
    body: msgspec.Raw


def _encode_released(value: Any) -> Any:
    """Return what a released value travels as; :class:`CodecError` for an object without an encoding."""
    if isinstance(value, Released):
        return value.value
    raise CodecError(f"{type(value).__name__} may not travel", code="not-sendable", value=type(value))


def _decode_released(kind: Any, value: Any) -> Any:
    """Return a received value of a type ``Released[...]``."""
    (inner,) = get_args(kind)
    return Released.received(msgspec.convert(value, inner))


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_released)
_envelopes = msgspec.msgpack.Decoder(_Envelope)
_decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {}


def schema(name: str) -> type[Message] | type[Observation]:
    """Return the class of a message type's name; :class:`CodecError` for an unknown one."""
    try:
        return _schema()[name]
    except KeyError:
        raise CodecError(f"unknown message type {name[:80]!r}", code="unknown", value=name[:80]) from None


@cache
def _schema() -> dict[str, type[Message] | type[Observation]]:
    """Return the classes of the handshake and of all families by name."""
    named = ("messages.handshake", *(module for entry in FAMILIES for module in entry.messages))
    return {
        wire_name(kind): kind
        for module in named
        for kind in vars(import_module(f"labelward.{module}")).values()
        if isinstance(kind, type) and issubclass(kind, Message | Observation) and kind not in (Message, Observation)
    }


def encode_fields(message: Message | Observation) -> bytes:
    """Return the message's own bytes, without a frame."""
    return _encoder.encode(message)


def decode_fields(name: str, body: bytes | msgspec.Raw) -> Any:
    """Return the message of a type from its own bytes; :class:`CodecError` for anything else."""
    kind = schema(name)
    if name not in _decoders:
        _decoders[name] = msgspec.msgpack.Decoder(kind, dec_hook=_decode_released)
    try:
        return _decoders[name].decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CodecError(f"a damaged {name}: {error}", code="malformed", value=name) from error


def encode(message: Message, step: tuple[int, ...]) -> bytes:
    """Return the frame that travels.

    Raises:
        CodecError: a field that no policy released, or an object without an encoding.
        ProtocolError: the message's class has a field that is neither released nor exempt.
    """
    require_released(message)
    envelope = _Envelope(wire_name(type(message)), step, msgspec.Raw(encode_fields(message)))
    return _MAGIC + bytes([WIRE_VERSION]) + _encoder.encode(envelope)


def decode(frame: bytes) -> tuple[Message, tuple[int, ...]]:
    """Return message and step of a frame.

    Raises:
        CodecError: another magic or version, an unknown type, or fields that do not fit the schema.
    """
    if frame[:2] != _MAGIC:
        raise CodecError("a frame does not begin as labelward's do", code="malformed")
    if frame[2:3] != bytes([WIRE_VERSION]):
        raise CodecError(
            f"a frame of wire version {frame[2:3].hex() or 'none'}; this is version {WIRE_VERSION:02x}",
            code="format-version",
            value=frame[2:3],
        )
    try:
        envelope = _envelopes.decode(memoryview(frame)[3:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CodecError(f"a damaged frame: {error}", code="malformed") from error
    message = decode_fields(envelope.type, envelope.body)
    if not isinstance(message, Message):
        raise CodecError(
            f"{envelope.type} is an observation and may not travel", code="not-sendable", value=envelope.type
        )
    return message, envelope.step


Record = TypeVar("Record", bound="Message | Observation")


def redacted(message: Record, *, bulk: bool = False) -> Record:
    """Return the message as a view keeps it: each ciphertext block replaced by its digest.

    Args:
        bulk: whether the arrays that the message declares as ``bulk`` are replaced by theirs too.
    """
    changes: dict[str, CipherDigest | Released[Array]] = {}
    if bulk and isinstance(message, Message):
        changes = {name: getattr(message, name).map(Array.digested) for name in message.bulk}
    for name in message.__struct_fields__:
        block = getattr(message, name)
        if isinstance(block, CipherBlock):
            digest = hashlib.sha256(block.data).digest()
            size = len(block.data)
            changes[name] = CipherDigest(block.engine, block.kind, block.shape, block.layout, block.count, size, digest)
    return msgspec.structs.replace(message, **changes) if changes else message


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


def _released_fields(kind: type[msgspec.Struct]) -> Iterator[str]:
    """Yield the released fields of a message class; refuse one that is neither these nor exempt nor a scalar."""
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    for field in described.fields:
        types = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
        structs = {each.cls for each in types if isinstance(each, inspect.StructType)}
        if CipherBlock in structs and CipherDigest not in structs:
            raise ProtocolError(
                f"{field.name} of {kind.__name__} has no room for a view's digest; declare CipherBlock | CipherDigest",
                code="not-sendable",
                value=field.name,
            )
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
        return EXEMPT in (described.extra or {}) or _is_harmless(described.type)
    if isinstance(described, inspect.UnionType):
        return all(map(_is_harmless, described.types))
    if isinstance(described, inspect.StructType):
        return described.cls in _CIPHERS
    return isinstance(described, _SCALARS)
