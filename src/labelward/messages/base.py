"""What may pass between parties: frozen, typed messages, and the few values that they are made of.

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

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import CodecError
from labelward.he.base import CipherBlock, Layout


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one message type.

    Attributes:
        size: bytes of the whole message; None: the transport's limit.
        elements: numbers, texts, arrays and maps on all levels.
        text: bytes of one text.
        depth: levels of arrays and maps.
    """

    size: int | None = 1 << 20
    elements: int = 1 << 14
    text: int = 1 << 16
    depth: int = 10


KEYS = Limits(size=1 << 27)
"""Messages with a public key, which takes some MB for the lattice engine."""
ELEMENT = 100
"""Bytes of memory that an element may take."""
SMALL = Limits()
"""Messages of single numbers and texts."""
GROWING = Limits(size=None, elements=1 << 20)
"""Messages with arrays, row masks or ciphertexts, which grow with rows, columns or nodes."""


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The base of all that passes between parties.

    Attributes:
        volatile: fields that differ between equal runs (keys, nonces); left out of the view content.
        masked: volatile fields that are uniform, or nearly, for who receives them, whatever the secrets: shares, and
            sums under masks that serve once. Their size may depend on no secret.
        bulk: fields that hold arrays which grow with rows and epochs; a long run may keep their digests only.
        later: fields that older views do not have; left out of the view content where they have their default, so
            that the content of an old view stays what it was.
        evidence: whether the message is about the run alone: in no exchange, and in no view content.
        limits: of its encoding; None: small where it has single numbers and texts only, else growing.
        ends: whether it ends the sender's part of a tree or epoch, so that a checkpoint may follow.
    """

    volatile: ClassVar[tuple[str, ...]] = ()
    masked: ClassVar[tuple[str, ...]] = ()
    bulk: ClassVar[tuple[str, ...]] = ()
    later: ClassVar[tuple[str, ...]] = ()
    evidence: ClassVar[bool] = False
    limits: ClassVar[Limits | None] = None
    ends: ClassVar[bool] = False


class Observation(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The base of what a party computed from its own secrets and keeps in its own view."""

    volatile: ClassVar[tuple[str, ...]] = ()


class CipherDigest(msgspec.Struct, frozen=True, tag=True):
    """What a view keeps of a ciphertext block: its shape and size, and a digest of its bytes."""

    engine: str
    kind: str
    shape: tuple[int, ...]
    layout: Layout
    count: int
    size: int
    sha256: bytes


ModelId: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z_.-]{0,80}\Z")]
"""Identifier of a model: it stands in files, logs and pages of all parties, so it is short and plain."""


class RowMask(msgspec.Struct, frozen=True):
    """Some of ``total`` rows, as packed bits or as sorted positions, whichever is smaller.

    Attributes:
        total: rows that the mask speaks of.
        form: ``"bits"``, ``"in"`` (positions of the rows in the set) or ``"out"`` (positions of the others).
        data: packed bits (little-endian within a byte), or uint32 positions (little-endian).
    """

    total: int
    form: Literal["bits", "in", "out"]
    data: bytes

    @classmethod
    def pack(cls, mask: NDArray[np.bool_]) -> Self:
        """Pack a boolean array."""
        total, inside = len(mask), int(np.count_nonzero(mask))
        if 4 * min(inside, total - inside) < (total + 7) // 8:
            form: Literal["in", "out"] = "in" if inside <= total - inside else "out"
            positions = np.flatnonzero(mask if form == "in" else ~mask).astype("<u4")
            return cls(total, form, positions.tobytes())
        return cls(total, "bits", np.packbits(mask, bitorder="little").tobytes())

    def unpack(self, total: int) -> NDArray[np.bool_]:
        """Return the boolean array.

        Raises:
            CodecError: the mask speaks of another number of rows, or its data does not fit it.
        """
        if self.total != total:
            raise CodecError(
                f"a row mask speaks of {self.total} rows where {total} are expected", code="malformed", value=self.total
            )
        if self.form == "bits":
            if len(self.data) != (total + 7) // 8:
                raise CodecError(
                    f"a row mask of {total} rows has {len(self.data)} bytes", code="malformed", value=len(self.data)
                )
            bits = np.unpackbits(np.frombuffer(self.data, np.uint8), bitorder="little")
            return bits[:total].astype(np.bool_)
        if len(self.data) % 4:
            raise CodecError(
                f"row positions have {len(self.data)} bytes, not a multiple of 4",
                code="malformed",
                value=len(self.data),
            )
        positions = np.frombuffer(self.data, "<u4")
        if len(positions) and (int(positions[-1]) >= total or not bool(np.all(positions[1:] > positions[:-1]))):
            raise CodecError(f"row positions are not ascending or exceed {total} rows", code="malformed")
        mask = np.full(total, self.form == "out")
        mask[positions] = self.form == "in"
        return mask


DType = Literal["int32", "int64", "float16", "float32", "float64"]
_DTYPES: dict[str, DType] = {name: name for name in get_args(DType)}


class Array(msgspec.Struct, frozen=True, omit_defaults=True):
    """A numeric array as it travels: one of a few dtypes, C order, little-endian.

    Attributes:
        sha256: of the data, where a view keeps this digest in its place; an array that travels has none.
    """

    dtype: DType
    shape: tuple[int, ...]
    data: bytes
    sha256: bytes = b""

    @classmethod
    def pack(cls, values: NDArray[np.generic]) -> Self:
        """Pack an array; :class:`CodecError` for a dtype that may not travel."""
        name = _DTYPES.get(values.dtype.name)
        if name is None:
            raise CodecError(
                f"arrays of {values.dtype.name} may not travel", code="not-sendable", value=values.dtype.name
            )
        return cls(name, values.shape, values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())

    def digested(self) -> Self:
        """Return the array as a view keeps it that records digests only."""
        return msgspec.structs.replace(self, data=b"", sha256=hashlib.sha256(self.data).digest())

    def unpack(self) -> NDArray[np.generic]:
        """Return a read-only array; :class:`CodecError` where the data does not fit the shape, or is not there."""
        if self.sha256:
            raise CodecError(
                f"of an array of {self.dtype} and shape {self.shape} a digest only was recorded",
                code="incomplete",
                value=self.shape,
            )
        dtype = np.dtype(self.dtype).newbyteorder("<")
        size = dtype.itemsize * math.prod(self.shape)
        try:
            if len(self.data) != size or any(length < 0 for length in self.shape):
                raise ValueError
            return np.frombuffer(self.data, dtype).reshape(self.shape)
        except (ValueError, OverflowError):
            told = f"an array of {self.dtype} and shape {self.shape} has {len(self.data)} bytes"
            raise CodecError(told, code="malformed", value=self.shape) from None

    def unpack_as(self, dtype: DType, *shape: int) -> NDArray[Any]:
        """Return an array that can be written to; :class:`CodecError` as of :meth:`unpack`, or for another one."""
        if (self.dtype, self.shape) != (dtype, shape):
            reason = f"sent {self.dtype} {list(self.shape)} where {dtype} {list(shape)} is due"
            raise CodecError(reason, code="peer-message", value=self.shape)
        return self.unpack().astype(dtype)


def ciphertexts(message: Message) -> int:
    """Return how many ciphertexts a message carries."""
    values = (getattr(message, name) for name in message.__struct_fields__)
    return sum(value.count for value in values if isinstance(value, CipherBlock))


def wire_name(kind: type[Message] | type[Observation]) -> str:
    """Return the name under which a message type travels and is stored: its tag, which outlives a class's name."""
    return str(kind.__struct_config__.tag)


T = TypeVar("T")
U = TypeVar("U")

EXEMPT = "exempt"
"""The key under which a field declares why it needs no release."""
_MADE, _RECEIVED = object(), object()


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

    policies: tuple[Any, ...] = ()
    """Those that act, in order."""

    def release_unguarded(self, value: T) -> Released[T]:
        """Release a value where no policy acts at all; a chain with a policy refuses."""
        if self.policies:
            raise TypeError("a chain with policies releases values at its points only")
        return self._released(value)


def exempt(reason: str) -> msgspec.Meta:
    """Declare that a field travels without a release; ``reason`` says why it holds no secret."""
    return msgspec.Meta(extra={EXEMPT: reason})
