"""Values as a policy chain releases them, for messages that tests write by hand."""

from __future__ import annotations

from typing import TypeVar

from labelward.messages.released import Released, Releaser

T = TypeVar("T")


def released(value: T) -> Released[T]:
    """Return a value that may be sent."""
    return Releaser()._released(value)
