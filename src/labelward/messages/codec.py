"""Bytes ↔ messages, by schema and never by pickle.

A frame is ``magic · version · envelope``; the envelope is MessagePack ``[type, step, fields]``. Only classes listed
here can be decoded; an object without an encoding (unsealed sums, a private key) raises :class:`CodecError`. What a
peer may send is limited by type (:class:`~labelward.messages.base.Limits`), and checked on the encoded bytes before
anything is decoded, recorded or allocated.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import inspect

from labelward.errors import CodecError, ProtocolError, quoted
from labelward.families import families
from labelward.he.base import CipherBlock, Layout, PublicMaterial
from labelward.messages.base import (
    ELEMENT,
    EXEMPT,
    GROWING,
    SMALL,
    Array,
    CipherDigest,
    Limits,
    Message,
    Observation,
    Released,
    wire_name,
)

WIRE_VERSION = 1
_HEAD = 3  # bytes before the envelope
_MAGIC = b"LW"
_SCALARS = (inspect.IntType, inspect.StrType, inspect.BoolType, inspect.NoneType, inspect.LiteralType)
_CIPHERS = (CipherBlock, CipherDigest, Layout, PublicMaterial)
"""Structures that hold ciphertexts, or public keys."""
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_FIXED |= {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
_TEXTS, _BYTES = {0xD9: 1, 0xDA: 2, 0xDB: 4}, {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4}
_ARRAYS, _MAPS = {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}
_LENGTHS = _TEXTS | _BYTES | _ARRAYS | _MAPS
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
_describing = threading.RLock()
"""Held while msgspec looks into a type for the first time: in two threads at once it can end the process."""


def schema(name: str) -> type[Message] | type[Observation]:
    """Return the class of a message type's name; :class:`CodecError` for an unknown one."""
    try:
        return _schema()[name]
    except KeyError:
        raise CodecError(f"unknown message type {quoted(name)!r}", code="unknown", value=quoted(name)) from None


@cache
def _schema() -> dict[str, type[Message] | type[Observation]]:
    """Return the classes of the handshake, of alignments and of all families by name."""
    named = ["labelward.messages.handshake", "labelward.messages.alignment"]
    named += [f"{entry.package}.{module}" for entry in families() for module in entry.messages]
    found: dict[str, type[Message] | type[Observation]] = {}
    for module in named:
        for kind in vars(import_module(module)).values():
            if not isinstance(kind, type) or not issubclass(kind, Message | Observation):
                continue
            if kind not in (Message, Observation) and found.setdefault(wire_name(kind), kind) is not kind:
                raise ValueError(f"{module} has a second message type {wire_name(kind)!r}")
    return found


@cache
def limits_of(name: str) -> Limits:
    """Return the limits of a message type's name; :class:`CodecError` for an unknown one."""
    kind = schema(name)
    stated = kind.limits if issubclass(kind, Message) else None
    if stated is not None:
        return stated
    with _describing:
        described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return SMALL if all(isinstance(field.type, _SCALARS) for field in described.fields) else GROWING


def frame_limit(head: bytes | memoryview) -> int | None:
    """Return the largest size of a frame of which the first bytes are given; None: the transport's own limit."""
    try:
        return limits_of(first_text(memoryview(head)[_HEAD:])).size
    except CodecError:
        return SMALL.size


def encode_fields(message: Message | Observation) -> bytes:
    """Return the message's own bytes, without a frame."""
    return _encoder.encode(message)


def decode_fields(name: str, body: bytes | msgspec.Raw) -> Any:
    """Return the message of a type from its own bytes; :class:`CodecError` for anything else."""
    kind = schema(name)
    if name not in _decoders:
        with _describing:
            _decoders[name] = msgspec.msgpack.Decoder(kind, dec_hook=_decode_released)
    try:
        return _decoders[name].decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"a damaged {name}: {quoted(error, 200)}", code="malformed", value=name) from error


def encode(message: Message, step: tuple[int, ...]) -> bytes:
    """Return the frame that travels.

    Raises:
        CodecError: a field that no policy released, an object without an encoding, or a message over its limits.
        ProtocolError: the message's class has a field that is neither released nor exempt.
    """
    require_released(message)
    name = wire_name(type(message))
    envelope = _Envelope(name, step, msgspec.Raw(encode_fields(message)))
    frame = _MAGIC + bytes([WIRE_VERSION]) + _encoder.encode(envelope)
    _check_size(name, frame)
    return frame


def decode(frame: bytes) -> tuple[Message, tuple[int, ...]]:
    """Return message and step of a frame.

    Raises:
        CodecError: another magic or version, an unknown type, a limit of the type that is exceeded, or fields that do
            not fit the schema.
    """
    if frame[:2] != _MAGIC:
        raise CodecError("a frame does not begin as labelward's do", code="malformed")
    if frame[2:3] != bytes([WIRE_VERSION]):
        raise CodecError(
            f"a frame of wire version {frame[2:3].hex() or 'none'}; this is version {WIRE_VERSION:02x}",
            code="format-version",
            value=frame[2:3],
        )
    content = memoryview(frame)[_HEAD:]
    name = first_text(content)
    if not name:
        raise CodecError("a damaged frame", code="malformed")
    _check_size(name, frame)
    check_structure(content, limits_of(name), name)
    try:
        envelope = _envelopes.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"a damaged frame: {quoted(error, 200)}", code="malformed") from error
    message = decode_fields(envelope.type, envelope.body)
    if not isinstance(message, Message):
        raise CodecError(
            f"{envelope.type} is an observation and may not travel", code="not-sendable", value=envelope.type
        )
    return message, envelope.step


def decoded_size(frame: bytes) -> int:
    """Return the bytes of memory that a decoded message takes at most."""
    content = memoryview(frame)[_HEAD:]
    name = first_text(content)
    return len(frame) + ELEMENT * check_structure(content, limits_of(name), name)


def _check_size(name: str, frame: bytes) -> None:
    limit = limits_of(name).size
    if limit is not None and len(frame) > limit:
        reason = f"a {name} of {len(frame)} bytes where {limit} are allowed"
        raise CodecError(reason, code="range", value=len(frame))


_LONG_KEY = 1 << 12  # bytes of a public key that a view does not keep
Record = TypeVar("Record", bound="Message | Observation")


def redacted(message: Record, *, bulk: bool = False) -> Record:
    """Return the message as a view keeps it: each ciphertext block replaced by its digest, and so a long public key.

    Args:
        bulk: whether the arrays that the message declares as ``bulk`` are replaced by theirs too.
    """
    changes: dict[str, CipherDigest | PublicMaterial | Released[Array]] = {}
    if bulk and isinstance(message, Message):
        changes = {name: getattr(message, name).map(Array.digested) for name in message.bulk}
    for name in message.__struct_fields__:
        block = getattr(message, name)
        if isinstance(block, CipherBlock):
            digest = hashlib.sha256(block.data).digest()
            size = len(block.data)
            changes[name] = CipherDigest(block.engine, block.kind, block.shape, block.layout, block.count, size, digest)
        elif isinstance(block, PublicMaterial) and len(block.data) > _LONG_KEY:
            changes[name] = msgspec.structs.replace(block, data=hashlib.sha256(block.data).digest())
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
    with _describing:
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


def check_structure(data: bytes | memoryview, limits: Limits, name: str) -> int:
    """Refuse a MessagePack value that is deeper, longer or of more elements than the limits allow; return these.

    Takes time and memory for as many elements as are allowed at most; texts and bytes are skipped.

    Raises:
        CodecError: a limit is exceeded, or the value is truncated.
    """
    position, elements, open_levels = 0, 1, [1]
    while open_levels:
        if not open_levels[-1]:
            open_levels.pop()
            continue
        open_levels[-1] -= 1
        try:
            position, text, children = _next_value(data, position)
        except IndexError:
            raise CodecError(f"a truncated {name}", code="malformed", value=name) from None
        elements += children
        if text > limits.text:
            raise _exceeded(name, "a text", text, limits.text, "bytes")
        if elements > limits.elements:
            raise _exceeded(name, "it", elements, limits.elements, "elements")
        if children:
            open_levels.append(children)
            if len(open_levels) > limits.depth + 1:
                raise _exceeded(name, "it", len(open_levels) - 1, limits.depth, "levels")
    if position > len(data):
        raise CodecError(f"a truncated {name}", code="malformed", value=name)
    return elements


def first_text(data: bytes | memoryview) -> str:
    """Return the text with which a MessagePack array begins; "" where it begins otherwise."""
    try:
        end, size, _ = _next_value(data, 1)
        return bytes(data[end - size : end]).decode() if 0x90 < data[0] < 0xA0 and end <= len(data) else ""
    except (IndexError, UnicodeDecodeError):
        return ""


def _next_value(data: bytes | memoryview, position: int) -> tuple[int, int, int]:
    """Return the end of the value at a position without its children, the bytes of its text, and its children."""
    head = data[position]
    position += 1
    if head < 0x80 or head >= 0xE0:
        return position, 0, 0
    if head < 0x90:
        return position, 0, 2 * (head & 15)
    if head < 0xA0:
        return position, 0, head & 15
    if head < 0xC0:
        return position + (head & 31), head & 31, 0
    width = _LENGTHS.get(head)
    if width is None:
        return position + _FIXED.get(head, 0), 0, 0
    data[position + width - 1]  # IndexError where it is truncated
    length = int.from_bytes(data[position : position + width], "big")
    position += width
    if head in _ARRAYS:
        return position, 0, length
    if head in _MAPS:
        return position, 0, 2 * length
    return position + length + (0xC7 <= head <= 0xC9), length if head in _TEXTS else 0, 0


def _exceeded(name: str, what: str, found: int, limit: int, unit: str) -> CodecError:
    reason = f"a {name} over a limit: {what} has {found} {unit} where {limit} are allowed"
    return CodecError(reason, code="range", value=found)
