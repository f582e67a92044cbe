"""Values as a policy chain releases them, for messages that tests write or change by hand."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from labelward.messages.base import Message, Released, Releaser
from labelward.messages.codec import _released_fields

T = TypeVar("T")


def released(value: T) -> Released[T]:
    """Return a value that may be sent."""
    return Releaser()._released(value)


def unwrapped(message: Message) -> Any:
    """Return a message with its released values as they are, to be changed."""
    values = {name: getattr(message, name) for name in _released_fields(type(message))}
    plain = {name: value.value if isinstance(value, Released) else value for name, value in values.items()}
    return msgspec.structs.replace(message, **plain)


def rewrapped(message: Message) -> Any:
    """Return a message whose values are released, whatever they are: what a malicious party would send."""
    values = {name: getattr(message, name) for name in _released_fields(type(message))}
    wrapped = {name: released(value.value if isinstance(value, Released) else value) for name, value in values.items()}
    return msgspec.structs.replace(message, **wrapped)
