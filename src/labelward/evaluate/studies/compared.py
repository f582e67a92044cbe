"""What figures are compared with: those of a paper or of an independent implementation, and orders that must hold."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Claim", "Expected", "Place", "Printed"]

Place = tuple[str, str, str, str]
"""Where a figure stands: data set, model, defense (:attr:`Defended.name`), and column (or utility, or sums)."""


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A figure that a paper prints, and its spread where it does."""

    mean: float
    std: float | None = None


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A figure of an implementation that shares no code with this one.

    Attributes:
        mean: over the study's seeds.
        std: its spread, where it is known.
        within: how far a mean over as many seeds may be off; None where no mean can be expected.
    """

    mean: float
    std: float | None = None
    within: float | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """An order of figures that must come out, judged on as many seeds as the study has.

    Attributes:
        part: where it stands.
        words: what is claimed.
        groups: of places. All figures of a group are above all of the next; a single group's are above 0.
        least: by how much, at least; above 0 in any case.
        every: whether it must hold for each seed; else for the means.
    """

    part: str
    words: str
    groups: tuple[tuple[Place, ...], ...]
    least: float = 0.0
    every: bool = False
