"""Imported where whole runs must repeat: what parties draw privately is then the same in every process.

``DRAWN`` is the original, which asks the operating system. What *protects* is drawn from the operating system still,
but for CI (:func:`protection_of`): a bound on what noise leaves is then judged on the same draws in every run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from labelward.rng import PrivateSeed, SecureRandom, learning

__all__ = ["DRAWN", "FIXED", "protection_of"]

FIXED = PrivateSeed(bytes(PrivateSeed.SIZE))
DRAWN = PrivateSeed.drawn

_SEED = int(os.environ.get("LABELWARD_TEST_SEED", "0"))
_sources: list[Iterator[tuple[str, int]]] = []


def _fixed(cls: type[PrivateSeed], protection: SecureRandom | None = None) -> PrivateSeed:
    return FIXED


setattr(PrivateSeed, "drawn", classmethod(_fixed))  # noqa: B010


@contextmanager
def protection_of(name: str) -> Iterator[None]:
    """Number the sources of protection that are made meanwhile, and let test, number and seed fix what each draws.

    Only those that the test's own thread makes, as threads come in any order. None of them is ``seeded``.
    """
    _sources.append((name, number) for number in count())
    try:
        yield
    finally:
        _sources.pop()


def _made(self: SecureRandom, seed: int | None = None) -> None:
    _DRAWS_FROM_SYSTEM(self, seed)
    if (
        type(self) is SecureRandom
        and seed is None
        and _sources
        and threading.current_thread() is threading.main_thread()
    ):
        name, number = next(_sources[-1])
        stream = learning(_SEED, name, number, "protection (test)")
        self.bytes = stream.bytes  # type: ignore[method-assign]


_DRAWS_FROM_SYSTEM = SecureRandom.__init__
if os.environ.get("CI"):
    setattr(SecureRandom, "__init__", _made)  # noqa: B010
