"""A party's own splits while trees grow."""

from __future__ import annotations

from labelward.protocols.tree.share import Records

__all__ = ["RecordBook"]


class RecordBook:
    """Splits by record number, in the order in which they were made.

    Args:
        before: splits of an earlier training that goes on.
    """

    def __init__(self, before: Records | None = None) -> None:
        before = before or Records()
        self.columns, self.thresholds = list(before.columns), list(before.thresholds)
        self.missing_left, self.categories = list(before.missing_left), dict(before.categories)

    def __len__(self) -> int:
        return len(self.columns)

    def add(self, column: int, threshold: float, *, missing_left: bool, categories: tuple[int, ...]) -> None:
        """Keep one more split."""
        record = len(self)
        self.columns.append(column)
        self.thresholds.append(threshold)
        if missing_left:
            self.missing_left.append(record)
        if categories:
            self.categories[record] = categories

    def extend(self, more: Records) -> None:
        """Keep more splits, numbered from 0 in ``more``."""
        missing_left = frozenset(more.missing_left)
        for record, (column, threshold) in enumerate(zip(more.columns, more.thresholds, strict=True)):
            categories = more.categories.get(record, ())
            self.add(column, threshold, missing_left=record in missing_left, categories=categories)

    def since(self, first: int) -> Records:
        """Return the splits from a record on, numbered from 0."""
        return Records(
            tuple(self.columns[first:]),
            tuple(self.thresholds[first:]),
            tuple(record - first for record in self.missing_left if record >= first),
            {record - first: codes for record, codes in self.categories.items() if record >= first},
        )

    def records(self) -> Records:
        """Return all splits so far."""
        return Records(tuple(self.columns), tuple(self.thresholds), tuple(self.missing_left), dict(self.categories))
