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

from typing import Annotated, ClassVar

from labelward.messages.base import Message, ModelId, Released, RowMask, exempt

_CONSENT = "sent by the consent of the party that owns it"


class PathRequest(Message, frozen=True):
    """Of rows ``start`` to ``stop`` of the prediction table those that reach some of the owner's splits.

    Attributes:
        records: the splits, ascending.
        rows: for each of them which of the ``stop - start`` rows reach it.
    """

    model: ModelId
    start: int
    stop: int
    records: Annotated[tuple[int, ...], exempt("numbers of the receiver's own splits")]
    rows: Released[tuple[RowMask, ...]]
    volatile: ClassVar[tuple[str, ...]] = ("model",)


class PathAnswers(Message, frozen=True):
    """For each record of the request and each of its rows, ascending, whether the row goes left: packed bits."""

    count: int
    bits: Annotated[bytes, exempt("sides of the sender's own splits, which it holds itself")]


class ColumnsRequest(Message, frozen=True):
    """Which of the owner's splits are on the same column?"""

    model: ModelId
    volatile: ClassVar[tuple[str, ...]] = ("model",)


class RecordColumns(Message, frozen=True):
    """For each record the number of its column.

    Attributes:
        numbers: columns are numbered as the records first meet them, so that the numbers tell which records share a
            column and nothing else.
        names: of the columns so numbered, where the owner consents; else empty.
    """

    numbers: Annotated[tuple[int, ...], exempt("which of the sender's own splits share a column")]
    names: Annotated[tuple[str, ...], exempt(_CONSENT)] = ()


class ExportRequest(Message, frozen=True):
    """Every party's splits are to be joined in one model outside of labelward, for this purpose."""

    model: ModelId
    purpose: str
    volatile: ClassVar[tuple[str, ...]] = ("model",)


class ExportConsent(Message, frozen=True):
    """Whether the party agrees to the request, which it repeats, so that both views hold what was agreed to."""

    model: ModelId
    purpose: str
    consent: bool
    volatile: ClassVar[tuple[str, ...]] = ("model",)


class ExportDecision(Message, frozen=True):
    """Which parties refused; where none did, all send their splits."""

    refused: Annotated[tuple[str, ...], exempt("names of parties")]


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
        values: of categorical columns, by position, the texts that the codes stand for; empty where names are kept.
    """

    names: Annotated[tuple[str, ...], exempt(_CONSENT)]
    width: int
    categorical: Annotated[tuple[int, ...], exempt(_CONSENT)]
    columns: Annotated[tuple[int, ...], exempt(_CONSENT)]
    thresholds: Annotated[tuple[float, ...], exempt(_CONSENT)]
    missing_left: Annotated[tuple[int, ...], exempt(_CONSENT)]
    categories: Annotated[dict[int, tuple[int, ...]], exempt(_CONSENT)]
    values: Annotated[dict[int, tuple[str, ...]], exempt(_CONSENT)]
