"""Messages for using a trained model: prediction level by level, explanations, and export by consent.

::

    active  → PathRequest(records, rows)          step (number,)   prediction level by level
    passive → PathAnswers(bits)                   step (number,)

    active  → ColumnsRequest(model)               step ()          explanations
    passive → RecordColumns(numbers, names)       step ()

    active  → ExportRequest(model, purpose)       step ()          export
    passive → ExportConsent(consent)              step ()
    active  → ExportDecision(refused)             step ()          nothing follows where a party refused
    passive → ExportRecords(...)                  step ()
"""

from __future__ import annotations

from typing import ClassVar

from labelward.messages.base import Message, RowMask


class PathRequest(Message, frozen=True):
    """Of rows ``start`` to ``stop`` of the prediction table those that reach some of the owner's splits.

    Attributes:
        records: the splits, ascending.
        rows: for each of them which of the ``stop - start`` rows reach it.
    """

    model: str
    start: int
    stop: int
    records: tuple[int, ...]
    rows: tuple[RowMask, ...]
    volatile: ClassVar[tuple[str, ...]] = ("model",)


class PathAnswers(Message, frozen=True):
    """For each record of the request and each of its rows, ascending, whether the row goes left: packed bits."""

    count: int
    bits: bytes


class ColumnsRequest(Message, frozen=True):
    """Which of the owner's splits are on the same column?"""

    model: str
    volatile: ClassVar[tuple[str, ...]] = ("model",)


class RecordColumns(Message, frozen=True):
    """For each record the number of its column.

    Attributes:
        numbers: columns are numbered as the records first meet them, so that the numbers tell which records share a
            column and nothing else.
        names: of the columns so numbered, where the owner consents; else empty.
    """

    numbers: tuple[int, ...]
    names: tuple[str, ...] = ()


class ExportRequest(Message, frozen=True):
    """Every party's splits are to be joined in one model outside of labelward, for this purpose."""

    model: str
    purpose: str
    volatile: ClassVar[tuple[str, ...]] = ("model",)


class ExportConsent(Message, frozen=True):
    """Whether the party agrees to the request, which it repeats, so that both views hold what was agreed to."""

    model: str
    purpose: str
    consent: bool
    volatile: ClassVar[tuple[str, ...]] = ("model",)


class ExportDecision(Message, frozen=True):
    """Which parties refused; where none did, all send their splits."""

    refused: tuple[str, ...]


class ExportRecords(Message, frozen=True):
    """A party's splits by record number, in plain, as it has consented to.

    Attributes:
        names: of all its columns; empty where it keeps them to itself.
        width: number of its columns.
        categorical: positions of its categorical columns.
        columns: of each record the position of its column.
        thresholds: left is x ≤ threshold.
        missing_left: records where missing values go left.
        categories: of records on categorical columns the codes that go left.
    """

    names: tuple[str, ...]
    width: int
    categorical: tuple[int, ...]
    columns: tuple[int, ...]
    thresholds: tuple[float, ...]
    missing_left: tuple[int, ...]
    categories: dict[int, tuple[int, ...]]
