"""The sections of the job file that have fixed keys: ``[data]``, ``[parties]``, ``[encryption]``, ``[run]``.

Each is checked when it is made, from a file or from Python, and raises
:class:`~labelward.errors.JobError` with a message such as
``[data] test_size: must lie strictly between 0 and 1 but got 1.5``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from labelward.errors import JobError

from . import _check as check

__all__ = ["DataSection", "EncryptionSection", "PartySection", "RunSection", "is_path"]

_PARTY_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_CATALOGUE_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SUFFIXES = (".csv", ".parquet")


def is_path(table: str) -> bool:
    """Return whether ``table`` is the path of a file rather than a name of the catalogue."""
    return PurePath(table).suffix.lower() in _SUFFIXES


def _check_table(place: str, table: Any, *, names: bool) -> None:
    check.string(place, table)
    if is_path(table) or (names and _CATALOGUE_NAME.fullmatch(table)):
        return
    wanted = "a catalogue name or the path of" if names else "the path of"
    raise JobError(f"{place}: must be {wanted} a .csv or .parquet file but got {table!r}")


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """``[data]``: the table of a rehearsal and how its rows and columns are dealt out.

    Attributes:
        table: a catalogue name or the path of a ``.csv`` or ``.parquet`` file; None where parties have their own.
        label: the label column; ``"label"`` for the catalogue, required for a path, None where parties have
            their own tables.
        id: the column of row ids, if any; where parties have own tables, the default of theirs.
        test_size: share of the rows that are tested on, strictly between 0 and 1.
        split: ``"random"``, or ``"reference"``: the splits with which reference figures were measured.
        partition: ``"random"`` columns, or by ``"importance"``: passive parties get the most telling columns.
        overlap: whether one column may be given to two parties.
    """

    table: str | None = None
    label: str | None = None
    id: str | None = None
    test_size: float = 0.2
    split: str = "random"
    partition: str = "random"
    overlap: bool = False

    def __post_init__(self) -> None:
        if self.table is not None:
            _check_table("[data] table", self.table, names=True)
            if self.label is None and is_path(self.table):
                raise JobError(f"[data] label: required, since table is the file {self.table!r}")
        if self.table is not None and self.label is None:
            object.__setattr__(self, "label", "label")
        for key, value in (("label", self.label), ("id", self.id)):
            if value is not None:
                check.string(f"[data] {key}", value)
        if self.id is not None and self.id == self.label:
            raise JobError(f"[data] id: {self.id!r} is the label column")
        if isinstance(self.test_size, bool) or not isinstance(self.test_size, int | float):
            raise JobError(f"[data] test_size: must be a number but got {self.test_size!r}")
        if not 0 < self.test_size < 1:
            raise JobError(f"[data] test_size: must lie strictly between 0 and 1 but got {self.test_size}")
        check.choice("[data] split", self.split, ("random", "reference"))
        check.choice("[data] partition", self.partition, ("random", "importance"))
        check.boolean("[data] overlap", self.overlap)


@dataclass(frozen=True, kw_only=True)
class PartySection:
    """One party: its name and what it holds, in exactly one of three ways.

    Attributes:
        name: a letter, then letters, digits, ``_`` or ``-``; at most 64 characters.
        share: share of the columns of the common table, from 0 to 1.
        columns: names of columns, of the common table or of the own one (None there: all but id and label).
        table: path of the party's own ``.csv`` or ``.parquet`` file.
        id: the own table's column of row ids.
        label: the own table's label column; the one party that has it is the active party.
    """

    name: str
    share: float | None = None
    columns: tuple[str, ...] | None = None
    table: str | None = None
    id: str | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _PARTY_NAME.fullmatch(self.name):
            raise JobError(
                f"[parties] {self.name}: a party's name must be a letter, then letters, digits, '_' or '-', "
                "at most 64 in all"
            )
        if self.columns is not None:
            place = f"[parties] {self.name}" if self.table is None else f"[parties.{self.name}] columns"
            object.__setattr__(self, "columns", check.name_list(place, self.columns))
        if self.table is not None:
            self._check_own_table()
        elif self.id is not None or self.label is not None:
            raise JobError(f"[parties.{self.name}] table: required beside id and label")
        elif (self.share is None) == (self.columns is None):
            raise JobError(f"[parties] {self.name}: needs either a share of the columns or a list of them")
        elif self.share is not None:
            self._check_share(self.share)

    def _check_share(self, share: Any) -> None:
        if isinstance(share, bool) or not isinstance(share, int | float):
            raise JobError(f"[parties] {self.name}: must be a share or a list of column names but got {share!r}")
        if not 0 <= share <= 1:
            raise JobError(f"[parties] {self.name}: a share must lie between 0 and 1 but got {share}")

    def _check_own_table(self) -> None:
        section = f"[parties.{self.name}]"
        if self.share is not None:
            raise JobError(f"{section} share: a party with its own table lists its columns")
        _check_table(f"{section} table", self.table, names=False)
        for key, value in (("id", self.id), ("label", self.label)):
            if value is not None:
                check.string(f"{section} {key}", value)
                if value in (self.columns or ()):
                    raise JobError(f"{section} columns: {value!r} is the {key} column")
        if self.id is None:
            raise JobError(f"{section} id: required, since rows of different tables are matched by it")
        if self.id == self.label:
            raise JobError(f"{section} id: {self.id!r} is the label column")


@dataclass(frozen=True, kw_only=True)
class EncryptionSection:
    """``[encryption]``: the engine of the encrypted sums and its key.

    Attributes:
        engine: ``"paillier"``, or ``"plain"``: no encryption at all, only with ``insecure``.
        bits: length of the modulus; under 2048 only with ``insecure``.
        insecure: whether a run that protects nothing is wanted, for tests and studies.
        workers: processes for heavy arithmetic; 0 takes as many as there are cores.
        precision: binary digits after the point of encrypted values, 16 to 30.
    """

    engine: str = "paillier"
    bits: int = 2048
    insecure: bool = False
    workers: int = 0
    precision: int = 30

    def __post_init__(self) -> None:
        check.string("[encryption] engine", self.engine)
        check.boolean("[encryption] insecure", self.insecure)
        check.whole("[encryption] bits", self.bits, 256, 16384)
        check.whole("[encryption] workers", self.workers, 0, 1024)
        check.whole("[encryption] precision", self.precision, 16, 30)
        if self.engine == "plain" and not self.insecure:
            raise JobError("[encryption] engine: 'plain' encrypts nothing; it needs insecure = true")
        if self.bits < 2048 and not self.insecure:
            raise JobError(
                f"[encryption] bits: must be at least 2048 but got {self.bits} (a shorter key needs insecure = true)"
            )


@dataclass(frozen=True, kw_only=True)
class RunSection:
    """``[run]``: the seeds; every model, defense and attack runs once for each.

    Attributes:
        seeds: distinct whole numbers from 0 to 2³² - 1.
    """

    seeds: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if not isinstance(self.seeds, list | tuple) or not self.seeds:
            raise JobError(f"[run] seeds: must be a list of at least one whole number but got {self.seeds!r}")
        for seed in self.seeds:
            check.whole("[run] seeds", seed, 0, 2**32 - 1)
            if list(self.seeds).count(seed) > 1:
                raise JobError(f"[run] seeds: {seed} is listed twice")
        object.__setattr__(self, "seeds", tuple(self.seeds))
