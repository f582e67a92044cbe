"""Imported where whole runs must repeat: what parties draw privately is then the same in every process.

``DRAWN`` is the original, which asks the operating system.
"""

from __future__ import annotations

from labelward.rng import PrivateSeed, SecureRandom

__all__ = ["DRAWN", "FIXED"]

FIXED = PrivateSeed(bytes(PrivateSeed.SIZE))
DRAWN = PrivateSeed.drawn


def _fixed(cls: type[PrivateSeed], protection: SecureRandom | None = None) -> PrivateSeed:
    return FIXED


setattr(PrivateSeed, "drawn", classmethod(_fixed))  # noqa: B010
