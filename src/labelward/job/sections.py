"""The sections of the job file that have fixed keys: ``[data]``, ``[parties]``, ``[encryption]``,
``[leakage]``, ``[run]``. The keys of ``[network]`` stand in :mod:`labelward.job.network`.

Each is checked when it is made, from a file or from Python, and raises
:class:`~labelward.errors.JobError` with a message such as
``[data] test_size: must lie strictly between 0 and 1 but got 1.5``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import PurePath
from typing import Any

from labelward.errors import JobError
from labelward.job import _check as check
from labelward.job._frozen import Frozen, freeze, thaw

__all__ = ["DataSection", "EncryptionSection", "LeakageSection", "PartySection", "RunSection", "is_path"]

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
    raise JobError(
        f"must be {wanted} a .csv or .parquet file but got {table!r}", code="choice", field=place, value=table
    )


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """``[data]``: the table of a rehearsal and how its rows and columns are dealt out.

    Attributes:
        table: a catalogue name or the path of a ``.csv`` or ``.parquet`` file; None where parties have their own.
        label: the label column; ``"label"`` for the catalogue, required for a path, None where parties have
            their own tables.
        id: the column of row ids, if any; where parties have own tables, the default of theirs.
        task: ``"classification"`` or ``"regression"``; None: that of the catalogue's entry, else classification.
        weight: the column of row weights, if any; None where parties have their own tables.
        test_size: share of the rows that are tested on, strictly between 0 and 1.
        validation_size: share of the other rows that training watches but does not learn from, from 0 to below 1.
        split: ``"random"``: drawn by the label holder from randomness that it keeps, whatever the labels are; or, in
            rehearsals of a common table without ids, ``"reference"``: the splits of the published figures, by which
            the table is cut before the parties get it.
        partition: ``"random"`` columns, or by ``"importance"``: passive parties get the most telling columns.
        overlap: whether one column may be given to two parties.
        categories: ``"native"``: texts are categories, which a split sends left or right in sets; ``"dummies"``: a
            column of 0 and 1 for each category but the first.
        monotone: 1 or -1 by column: predictions may only rise, or fall, with it; empty where parties have own tables.
    """

    table: str | None = None
    label: str | None = None
    id: str | None = None
    task: str | None = None
    weight: str | None = None
    test_size: float = 0.2
    validation_size: float = 0.0
    split: str = "random"
    partition: str = "random"
    overlap: bool = False
    categories: str = "native"
    monotone: Mapping[str, int] = Frozen[int]({})

    def __post_init__(self) -> None:
        if self.table is not None:
            _check_table("[data] table", self.table, names=True)
            if self.label is None and is_path(self.table):
                raise JobError(
                    f"required, since table is the file {self.table!r}", code="missing", field="[data] label"
                )
        if self.table is not None and self.label is None:
            object.__setattr__(self, "label", "label")
        _check_roles("[data]", self.roles())
        check.number("[data] test_size", self.test_size)
        if not 0 < self.test_size < 1:
            raise JobError(
                f"must lie strictly between 0 and 1 but got {self.test_size}",
                code="range",
                field="[data] test_size",
                value=self.test_size,
            )
        check.number("[data] validation_size", self.validation_size)
        if not 0 <= self.validation_size < 1:
            raise JobError(
                f"must be at least 0 and below 1 but got {self.validation_size}",
                code="range",
                field="[data] validation_size",
                value=self.validation_size,
            )
        if self.task is not None:
            check.choice("[data] task", self.task, ("classification", "regression"))
        check.choice("[data] split", self.split, ("random", "reference"))
        check.choice("[data] partition", self.partition, ("random", "importance"))
        check.boolean("[data] overlap", self.overlap)
        check.choice("[data] categories", self.categories, ("native", "dummies"))
        object.__setattr__(self, "monotone", check.directions("[data] monotone", self.monotone))
        for role, column in self.roles().items():
            if column in self.monotone:
                raise JobError(
                    f"{column!r} is the {role} column", code="conflict", field="[data] monotone", value=column
                )

    def roles(self) -> dict[str, str]:
        """Return the columns of the common table that are no party's features, by what they are."""
        return _roles(self.label, self.id, self.weight)


@dataclass(frozen=True, kw_only=True)
class PartySection:
    """One party: its name and what it holds: a share or a list of a common table's columns, or a table of its own.

    A party of which neither is given has its data elsewhere: on its own machine, in a run over a network.

    Attributes:
        name: a letter, then letters, digits, ``_`` or ``-``; at most 64 characters.
        share: share of the columns of the common table, from 0 to 1.
        columns: names of columns, of the common table or of the own one (None there: all but id, label and weight).
        table: path of the party's own ``.csv`` or ``.parquet`` file.
        id: the own table's column of row ids.
        label: the own table's label column; the one party that has it is the active party.
        weight: the own table's column of row weights; the active party's only.
        monotone: 1 or -1 by column of the own table: predictions may only rise, or fall, with it.
        role: ``"active"`` or ``"passive"``; needed where no label column here says who is active.
    """

    name: str
    share: float | None = None
    columns: tuple[str, ...] | None = None
    table: str | None = None
    id: str | None = None
    label: str | None = None
    weight: str | None = None
    monotone: Mapping[str, int] = Frozen[int]({})
    role: str | None = None

    def __post_init__(self) -> None:
        check.name("[parties]", self.name)
        self._check_role()
        if self.columns is not None:
            place = f"[parties] {self.name}" if self.table is None else f"[parties.{self.name}] columns"
            object.__setattr__(self, "columns", check.name_list(place, self.columns))
        if self.table is not None:
            self._check_own_table()
        elif self.roles() or self.monotone:
            raise JobError(
                "required beside id, label, weight and monotone", code="missing", field=f"[parties.{self.name}] table"
            )
        elif self.share is not None and self.columns is not None:
            raise JobError(
                "needs either a share of the columns or a list of them", code="conflict", field=f"[parties] {self.name}"
            )
        elif self.share is not None:
            self._check_share(self.share)

    @property
    def elsewhere(self) -> bool:
        """Whether the party's data are not here but on its own machine."""
        return self.table is None and self.share is None and self.columns is None

    def _check_role(self) -> None:
        if self.role is None:
            return
        place = f"[parties.{self.name}] role"
        check.choice(place, self.role, ("active", "passive"))
        if self.table is None and not self.elsewhere:
            raise JobError(
                "only where parties have their own tables; the active party is called 'active'",
                code="conflict",
                field=place,
                value=self.role,
            )
        if self.role == "passive" and self.label is not None:
            raise JobError(
                f"'passive', but the party has the label column {self.label!r}",
                code="conflict",
                field=place,
                value=self.role,
            )

    def _check_share(self, share: Any) -> None:
        if isinstance(share, bool) or not isinstance(share, int | float):
            raise JobError(
                f"must be a share or a list of column names but got {share!r}",
                code="type",
                field=f"[parties] {self.name}",
                value=share,
            )
        if not 0 <= share <= 1:
            raise JobError(
                f"a share must lie between 0 and 1 but got {share}",
                code="range",
                field=f"[parties] {self.name}",
                value=share,
            )

    def _check_own_table(self) -> None:
        section = f"[parties.{self.name}]"
        if self.share is not None:
            raise JobError(
                "a party with its own table lists its columns",
                code="conflict",
                field=f"{section} share",
                value=self.share,
            )
        _check_table(f"{section} table", self.table, names=False)
        if self.id is None:
            raise JobError(
                "required, since rows of different tables are matched by it", code="missing", field=f"{section} id"
            )
        _check_roles(section, self.roles())
        if self.weight is not None and self.label is None:
            raise JobError(
                "only beside label, since the active party weighs the rows",
                code="conflict",
                field=f"{section} weight",
                value=self.weight,
            )
        object.__setattr__(self, "monotone", check.directions(f"{section} monotone", self.monotone))
        for role, column in self.roles().items():
            for key, columns in (("columns", self.columns or ()), ("monotone", self.monotone)):
                if column in columns:
                    raise JobError(
                        f"{column!r} is the {role} column", code="conflict", field=f"{section} {key}", value=column
                    )

    def roles(self) -> dict[str, str]:
        """Return the columns of the own table that are no features, by what they are."""
        return _roles(self.label, self.id, self.weight)


def _roles(label: str | None, ids: str | None, weight: str | None) -> dict[str, str]:
    named = {"label": label, "id": ids, "weight": weight}
    return {role: column for role, column in named.items() if column is not None}


def _check_roles(section: str, roles: Mapping[str, str]) -> None:
    taken: dict[str, str] = {}
    for role, column in roles.items():
        check.string(f"{section} {role}", column)
        if column in taken:
            raise JobError(
                f"{column!r} is the {taken[column]} column", code="conflict", field=f"{section} {role}", value=column
            )
        taken[column] = role


@dataclass(frozen=True, kw_only=True)
class EncryptionSection:
    """``[encryption]``: the engine of the encrypted sums and its key.

    Attributes:
        engine: ``"paillier"``; ``"plain"``: no encryption at all, only with ``insecure``; ``"none"``: of models whose
            protocol encrypts nothing, where it is the default. Beside it stands no other key.
        bits: length of the modulus; under 2048 only with ``insecure``.
        insecure: whether a run that protects nothing is wanted, for tests and studies.
        workers: processes for heavy arithmetic; 0 takes as many as there are cores.
        precision: binary digits after the point of encrypted values, 16 to 30.
        parameters: the engine's own, from the table ``[encryption.ENGINE]``; the engine checks them.
        memory_limit: bytes of a peer's encrypted rows that this party holds in memory, or a text such as ``"4 GB"``;
            what is beyond lies in a temporary file. None for no limit. Each party has its own.
    """

    engine: str = "paillier"
    bits: int = 2048
    insecure: bool = False
    workers: int = 0
    precision: int = 30
    memory_limit: int | str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check.string("[encryption] engine", self.engine)
        if self.memory_limit is not None:
            limit = check.byte_number("[encryption] memory_limit", self.memory_limit)
            object.__setattr__(self, "memory_limit", limit)
        own = {key: freeze(f"[encryption.{self.engine}] {key}", value) for key, value in self.parameters.items()}
        object.__setattr__(self, "parameters", Frozen(own))
        check.boolean("[encryption] insecure", self.insecure)
        check.whole("[encryption] bits", self.bits, 256, 16384)
        check.whole("[encryption] workers", self.workers, 0, 1024)
        check.whole("[encryption] precision", self.precision, 16, 30)
        if self.engine == "none":
            for one in fields(self):
                if one.name not in ("engine", "parameters") and getattr(self, one.name) != one.default:
                    raise JobError(
                        "means nothing with engine 'none', so it must be left out",
                        code="conflict",
                        field=f"[encryption] {one.name}",
                        value=getattr(self, one.name),
                    )
        if self.bits < 2048 and not self.insecure:
            raise JobError(
                f"must be at least 2048 but got {self.bits} (a shorter key needs insecure = true)",
                code="insecure",
                field="[encryption] bits",
                value=self.bits,
            )

    def shared(self) -> dict[str, Any]:
        """Return what all parties must agree on, under names such as ``encryption.bits``."""
        keys = ("engine",) if self.engine == "none" else ("engine", "bits", "insecure", "precision")
        agreed: dict[str, Any] = {f"encryption.{key}": getattr(self, key) for key in keys}
        return agreed | {f"encryption.{self.engine}.{key}": thaw(value) for key, value in self.parameters.items()}


@dataclass(frozen=True, kw_only=True)
class LeakageSection:
    """``[leakage]``: how it is scored what an attack found out, and what may be shown at all.

    Attributes:
        label_bins: in regression labels are guessed by bins of equal numbers of rows; how many, 2 to 100.
        meter: whether the active party measures while it trains what each passive party could know.
        budget: the V-measure that no passive party's communities may exceed, 0 to 1; none: no limit.
        upper_bound: whether attacks that complete a network stand beside what all labels would give with the
            attacker's columns, which takes longer than such an attack.
    """

    label_bins: int = 4
    meter: bool = True
    budget: float | None = None
    upper_bound: bool = True

    def __post_init__(self) -> None:
        check.whole("[leakage] label_bins", self.label_bins, 2, 100)
        check.boolean("[leakage] upper_bound", self.upper_bound)
        check.boolean("[leakage] meter", self.meter)
        budget = self.budget
        if budget is not None and (
            isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 <= budget <= 1
        ):
            raise JobError(
                f"must be a V-measure from 0 to 1 but got {budget!r}",
                code="range",
                field="[leakage] budget",
                value=budget,
            )
        if budget is not None and not self.meter:
            raise JobError(
                "needs the meter; leave meter = false out", code="conflict", field="[leakage] budget", value=budget
            )


@dataclass(frozen=True, kw_only=True)
class RunSection:
    """``[run]``: the seeds; every model, defense and attack runs once for each.

    Attributes:
        seeds: distinct whole numbers from 0 to 2³² - 1.
        record: of a split network, what views keep of embeddings and gradients: ``"full"``, or ``"digests"``, for long
            runs. The direct attack needs all of them.
    """

    seeds: tuple[int, ...] = (1,)
    record: str = "full"

    def __post_init__(self) -> None:
        if not isinstance(self.seeds, list | tuple) or not self.seeds:
            raise JobError(
                f"must be a list of at least one whole number but got {self.seeds!r}",
                code="type",
                field="[run] seeds",
                value=self.seeds,
            )
        for seed in self.seeds:
            check.whole("[run] seeds", seed, 0, 2**32 - 1)
            if list(self.seeds).count(seed) > 1:
                raise JobError(f"{seed} is listed twice", code="duplicate", field="[run] seeds", value=seed)
        object.__setattr__(self, "seeds", tuple(self.seeds))
        check.choice("[run] record", self.record, ("full", "digests"))
