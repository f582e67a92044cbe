"""The sections of a job file that have fixed keys: ``[data]``, ``[parties]``, ``[encryption]``, ``[leakage]``,
``[run]`` and ``[network]``.

A section is checked on construction, from a file or from Python, and raises
:class:`~labelward.errors.JobError` with a message such as ``[data] test_size: must be a number > 0 and < 1, not 1.5``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from labelward.errors import JobError, unknown_name
from labelward.job._validators import (
    check_directions,
    check_edges,
    check_label_shares,
    check_name,
    check_roles,
    check_table,
    check_unique,
    is_table_path,
    parse_bytes,
    split_address,
)
from labelward.job.components import FrozenDict, freeze, thaw
from labelward.job.table_formats import WrittenForm
from labelward.parameters import Parameters, PositiveFloat, Seed, Text, as_written

_MIB = 1 << 20
_LEAST_BITS, _LEAST_SECURE_BITS = 256, 2048
_DEFAULT_BITS = {"lattice": 4096}
"""Sizes of keys by engine, where not the least secure one of a modulus."""

Seconds = Annotated[PositiveFloat, Meta(le=30 * 86400)]
SHORTEST_HEARTBEAT = 0.1
"""Seconds; a peer sends ten control records per second then, half of what the transport takes from it."""


@dataclass(frozen=True, kw_only=True)
class TableKeys(Parameters):
    """How the table of ``[data]``, or the own table of a party, is read."""

    format: Annotated[
        Mapping[str, Any],
        Meta(
            description="How the file is written, where that is not recognized: encoding, separator, quote, decimal, "
            "dates ('day-first' or 'month-first'), sheet."
        ),
    ] = FrozenDict[Any]({})
    drop: Annotated[tuple[Text, ...], Meta(description="Columns that nobody uses.")] = ()
    text: Annotated[
        tuple[Text, ...], Meta(description="Columns of digits that are categories, such as postal codes.")
    ] = ()
    hashed: Annotated[
        tuple[Text, ...],
        Meta(description="Text columns of many values, each coded by [data] buckets of a checksum."),
    ] = ()
    positive: Annotated[
        Text | None,
        Meta(description="The class that 'probability' and the scores are about, of two; left out: the last one."),
    ] = None
    edges: Annotated[
        Mapping[str, tuple[float, ...]],
        Meta(description="For 'federboost': where the buckets of columns end, in place of quantiles of their rows."),
    ] = FrozenDict[tuple[float, ...]]({})

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.format
        field = self.field_path("format")
        if not isinstance(given, Mapping):
            raise JobError(f"must be keys with values, not {as_written(given)}", code="type", field=field, value=given)
        known = {each.name for each in fields(WrittenForm)}
        for key in given:
            if key not in known:
                raise JobError(unknown_name("key", key, known), code="unknown", field=field, value=key)
        object.__setattr__(self, "format", FrozenDict(given))
        _ = self.form
        object.__setattr__(self, "edges", check_edges(self.field_path("edges"), self.edges))
        for key in ("drop", "text", "hashed"):
            check_unique(self.field_path(key), getattr(self, key), "column")

    @property
    def form(self) -> WrittenForm:
        """How the file is written, as far as the job says."""
        try:
            return WrittenForm(**self.format)
        except JobError as error:
            raise error.under(self.field_path("format").removesuffix(" format")) from error

    def check_columns_kept(self, roles: Mapping[str, str]) -> None:
        """Refuse a column that has a role and another use, or is dropped and encoded."""
        for key, columns in (("drop", self.drop), ("hashed", self.hashed), ("text", self.text), ("edges", self.edges)):
            for column in columns:
                role = next((role for role, name in roles.items() if name == column), None)
                if role is not None and (key, role) != ("text", "label"):
                    raise JobError(
                        f"{column!r} is the {role} column", code="conflict", field=self.field_path(key), value=column
                    )
        for column in self.drop:
            if column in self.text or column in self.hashed or column in self.edges:
                raise self.error("drop", f"{column!r} is listed under text, hashed or edges", code="conflict")


@dataclass(frozen=True, kw_only=True)
class DataSection(TableKeys):
    """``[data]``: the table of a simulation, and how its rows and columns are divided."""

    section: ClassVar[str] = "[data]"

    table: Annotated[
        Text | None, Meta(description="Catalog name, or path of a table file; left out where parties have tables.")
    ] = None
    label: Annotated[Text | None, Meta(description="Label column; required for a path, 'label' for the catalog.")] = (
        None
    )
    labels: Annotated[
        Mapping[str, float],
        Meta(description="Share of the labels by party, where several hold some; the first one coordinates."),
    ] = FrozenDict[float]({})
    label_skew: Annotated[
        Literal["classes"] | None,
        Meta(description="'classes': each class is dealt out by shares of its own, drawn around [data] labels."),
    ] = None
    classes: Annotated[
        tuple[Text, ...] | None,
        Meta(
            description="The classes in order, where the tables of several parties have labels; over a network nobody "
            "sees all labels, so that they must be named.",
        ),
    ] = None
    label_concentration: Annotated[
        PositiveFloat | None,
        Meta(description="Concentration of the Dirichlet draw; small values give skewed shares. Default: 1."),
    ] = None
    id: Annotated[
        Text | None, Meta(description="Column of row ids, if any; with party tables, the default of their id.")
    ] = None
    task: Annotated[
        Literal["classification", "regression"] | None,
        Meta(description="Learning task; left out: that of the catalog entry, or classification."),
    ] = None
    weight: Annotated[Text | None, Meta(description="Column of row weights, each at least 0.")] = None
    test_size: Annotated[float, Meta(gt=0, lt=1, description="Fraction of the rows held out for testing.")] = 0.2
    validation_size: Annotated[
        float, Meta(ge=0, lt=1, description="Fraction of the other rows used for validation (early stopping) only.")
    ] = 0.0
    split: Annotated[
        Literal["random", "reference"],
        Meta(
            description="'random': drawn by the label holder from its private seed, independently of the labels; "
            "'reference': the split of the published figures, for simulations of one table without ids."
        ),
    ] = "random"
    aligned: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        Meta(
            description="Share of the training rows that all parties hold; the active party alone holds the others, "
            "and 'lpsc' learns from them. Left out: all."
        ),
    ] = None
    partition: Annotated[
        Literal["random", "importance"],
        Meta(
            description="Assignment of columns by shares: 'random', or 'importance' (passive parties get the most "
            "important columns)."
        ),
    ] = "random"
    overlap: Annotated[bool, Meta(description="Whether two parties may have a column of the same name.")] = False
    categories: Annotated[
        Literal["native", "dummies", "hashed"],
        Meta(
            description="Text columns: 'native' (splits on categories), 'dummies' (one-hot encoded without the first "
            "category) or 'hashed' (one column of hash buckets each)."
        ),
    ] = "native"
    buckets: Annotated[
        int, Meta(ge=2, le=1000, description="Hash buckets of each text column, for categories = 'hashed'.")
    ] = 1000
    monotone: Annotated[
        Mapping[str, int], Meta(description="Monotone constraints: 1 (increasing) or -1 (decreasing) by column.")
    ] = FrozenDict[int]({})

    def check_parameters(self) -> None:
        """Refuse columns with two roles; set the label column of a catalog table."""
        if self.table is not None:
            check_table("[data] table", self.table, catalog=True)
            if self.label is None and is_table_path(self.table):
                raise self.error("label", f"required, since table is the file {self.table!r}", code="missing")
            if self.label is None:
                object.__setattr__(self, "label", "label")
        object.__setattr__(self, "labels", check_label_shares(self.labels))
        if self.aligned is not None and self.labels:
            raise self.error("aligned", "is for one label holder", code="conflict")
        if self.label_skew is not None and not self.labels:
            raise self.error("label_skew", "needs [data] labels", code="conflict")
        if self.label_concentration is not None and self.label_skew is None:
            raise self.error("label_concentration", "is for label_skew = 'classes' only", code="conflict")
        if self.positive is not None and self.classes is not None:
            raise self.error("positive", "is the last of [data] classes; order them", code="conflict")
        if self.positive is not None and self.task == "regression":
            raise self.error("positive", "is for classes, and [data] task = 'regression' has none; remove it")
        self.check_columns_kept(self.roles())
        check_unique("[data] classes", self.classes or (), "class")
        if self.classes is not None and len(self.classes) < 2:
            raise self.error("classes", "must be at least two", code="range")
        check_roles("[data]", self.roles())
        object.__setattr__(self, "monotone", check_directions("[data] monotone", self.monotone))
        for role, column in self.roles().items():
            if column in self.monotone:
                raise JobError(
                    f"{column!r} is the {role} column", code="conflict", field="[data] monotone", value=column
                )

    def roles(self) -> dict[str, str]:
        """Return the columns of the common table that are not features, by role."""
        return _roles(self.label, self.id, self.weight)


@dataclass(frozen=True, kw_only=True)
class PartySection(TableKeys):
    """One party: its name, and a share or a list of the columns of a common table, or a table of its own.

    With none of these its data are on its own machine, in a run over a network.
    """

    name: Annotated[str, Meta(description="A letter, then letters, digits, '_' or '-'; at most 64 characters.")]
    share: Annotated[float | None, Meta(description="Fraction of the columns of the common table, from 0 to 1.")] = None
    columns: Annotated[
        tuple[Text, ...] | None,
        Meta(description="Feature columns; left out for a party's own table: all but id, label and weight."),
    ] = None
    table: Annotated[Text | None, Meta(description="Path of the party's own table file.")] = None
    id: Annotated[Text | None, Meta(description="Column of row ids in the party's table.")] = None
    label: Annotated[
        Text | None,
        Meta(
            description="Label column in the party's table; the party that has it is the active party. Where several "
            "have one, a missing label is one that another party holds."
        ),
    ] = None
    weight: Annotated[
        Text | None, Meta(description="Column of row weights in the party's table; for the active party only.")
    ] = None
    unaligned: Annotated[
        Text | None,
        Meta(
            description="Path of a second table of the active party, with labeled rows that no other party holds; "
            "'lpsc' learns from them."
        ),
    ] = None
    monotone: Annotated[
        Mapping[str, int], Meta(description="Monotone constraints on columns of the party's table, as in [data].")
    ] = FrozenDict[int]({})
    role: Annotated[
        Literal["active", "passive", "holder"] | None,
        Meta(
            description="Role of the party; needed where neither a label column nor the name 'active' gives it. "
            "'holder': holds some labels, and another party coordinates."
        ),
    ] = None

    def __post_init__(self) -> None:
        check_name("[parties]", self.name)
        self._check_share()
        super().__post_init__()

    def field_path(self, name: str) -> str:
        """Return ``[parties] NAME`` for what is written there, and ``[parties.NAME] key`` for keys of a section."""
        if name == "share" or (name in ("columns", "drop") and self.table is None):
            return f"[parties] {self.name}"
        return f"[parties.{self.name}] {name}"

    def check_parameters(self) -> None:
        """Refuse keys that belong to another form of the section."""
        self._check_role()
        check_unique(self.field_path("columns"), self.columns or (), "column")
        if self.table is not None:
            self._check_own_table()
        elif self.roles() or self.monotone or self.unaligned is not None or self.positive is not None:
            raise self.error("table", "required with id, label, weight, monotone and unaligned", code="missing")
        elif self.format or self.text or self.hashed or self.edges:
            raise self.error(
                "table", "required with format, text, hashed and edges; else write them in [data]", code="missing"
            )
        elif (self.share is not None) + (self.columns is not None) + bool(self.drop) > 1:
            reason = "needs either a share of the columns or a list of them"
            raise JobError(reason, code="conflict", field=self.field_path("columns"))
        elif any("," in column for column in self.drop):
            raise self.error("drop", "names with a comma cannot be left out; list the party's columns instead")

    @property
    def elsewhere(self) -> bool:
        """Whether the party's data are not here but on its own machine."""
        return self.table is None and self.share is None and self.columns is None and not self.drop

    def roles(self) -> dict[str, str]:
        """Return the columns of the party's table that are not features, by role."""
        return _roles(self.label, self.id, self.weight)

    def _check_share(self) -> None:
        """Refuse what is no fraction: in ``[parties]`` a list of columns may be written in its place."""
        share: Any = self.share
        if share is None or (isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share <= 1):
            return
        number = isinstance(share, int | float) and not isinstance(share, bool)
        raise self.error(
            "share",
            f"must be a fraction from 0 to 1 or a list of column names, not {as_written(share)}",
            code="range" if number else "type",
        )

    def _check_role(self) -> None:
        if self.role is None:
            return
        if self.table is None and not self.elsewhere:
            raise self.error("role", "is for parties with tables of their own; here, name the active party 'active'")
        if self.role == "passive" and self.label is not None:
            raise self.error("role", f"must be 'active' for the party with the label column {self.label!r}")
        if self.role == "holder" and self.table is not None and self.label is None:
            raise self.error("label", "required for a party that holds labels", code="missing")

    def _check_own_table(self) -> None:
        section = f"[parties.{self.name}]"
        if self.share is not None:
            reason = "is for a common table; list the columns of the party's own table"
            raise JobError(reason, code="conflict", field=f"{section} share", value=self.share)
        check_table(f"{section} table", self.table, catalog=False)
        if self.id is None:
            raise self.error("id", "required, since rows of different tables are matched by it", code="missing")
        check_roles(section, self.roles())
        self.check_columns_kept(self.roles())
        for column in self.drop:
            if column in (self.columns or ()):
                raise self.error("drop", f"{column!r} is listed under columns")
        if self.positive is not None and self.label is None:
            raise self.error("positive", "needs a label column")
        if self.weight is not None and self.label is None:
            raise self.error("weight", "needs a label column: only the active party weights the rows")
        if self.unaligned is not None:
            check_table(f"{section} unaligned", self.unaligned, catalog=False)
            if self.label is None:
                raise self.error("unaligned", "needs a label column: only the active party learns from rows of its own")
        object.__setattr__(self, "monotone", check_directions(f"{section} monotone", self.monotone))
        for role, column in self.roles().items():
            for key, columns in (("columns", self.columns or ()), ("monotone", self.monotone)):
                if column in columns:
                    raise JobError(
                        f"{column!r} is the {role} column", code="conflict", field=f"{section} {key}", value=column
                    )


def _roles(label: str | None, ids: str | None, weight: str | None) -> dict[str, str]:
    named = {"label": label, "id": ids, "weight": weight}
    return {role: column for role, column in named.items() if column is not None}


@dataclass(frozen=True, kw_only=True)
class EncryptionSection(Parameters):
    """``[encryption]``: the engine of the encrypted sums, and its key."""

    section: ClassVar[str] = "[encryption]"

    engine: Annotated[
        Text,
        Meta(
            description="'paillier', 'lattice' (an option: less work, more assumptions), or 'plain' (no encryption; "
            "needs insecure = true). 'none', which takes no other key, is the default of models whose protocol "
            "encrypts nothing. 'auto': 'paillier' or 'lattice', today always the former."
        ),
    ] = "paillier"
    bits: Annotated[
        int,
        Meta(
            ge=0,
            le=16384,
            description="Length of the modulus in bits, or degree of the lattice engine's ring; below 2048 "
            "needs insecure = true. 0: the engine's default.",
        ),
    ] = 0
    insecure: Annotated[bool, Meta(description="Allow a run that protects nothing, for tests and studies.")] = False
    workers: Annotated[
        int, Meta(ge=0, le=1024, description="Processes for heavy arithmetic; 0: one for each core.")
    ] = 0
    precision: Annotated[int, Meta(ge=16, le=30, description="Fractional bits of encrypted values.")] = 30
    memory_limit: Annotated[
        int | str | None,
        Meta(
            description="Bytes of a peer's encrypted rows kept in memory, or a text such as '4 GB'; the rest goes to a "
            "temporary file. Each party has its own limit; left out: none."
        ),
    ] = None
    engine_parameters: Mapping[str, Any] = field(default_factory=dict)
    """The engine's own, from the table ``[encryption.ENGINE]``; the engine checks them."""
    automatic: bool = field(default=False, compare=False)
    """Whether the job says ``auto`` and :func:`labelward.federation.components.with_defaults` chose the engine."""

    @property
    def processes(self) -> int:
        """Number of processes for heavy arithmetic."""
        return self.workers or len(os.sched_getaffinity(0))

    def check_parameters(self) -> None:
        """Refuse an engine or a key that protects nothing, unless that was asked for."""
        if self.memory_limit is not None:
            limit = parse_bytes("[encryption] memory_limit", self.memory_limit)
            object.__setattr__(self, "memory_limit", limit)
        own = {key: freeze(f"[encryption.{self.engine}] {key}", value) for key, value in self.engine_parameters.items()}
        object.__setattr__(self, "engine_parameters", FrozenDict(own))
        if self.engine == "auto" and (self.bits or self.engine_parameters):
            name = "bits" if self.bits else "engine_parameters"
            raise self.error(name, "is not supported with engine 'auto', of which each engine has its own; remove it")
        if not self.bits and self.engine != "auto":
            object.__setattr__(self, "bits", _DEFAULT_BITS.get(self.engine, _LEAST_SECURE_BITS))
        if self.engine == "none":
            defaults = {each.name: each.default for each in fields(self)} | {"bits": _LEAST_SECURE_BITS}
            for each in fields(self):
                if each.name not in ("engine", "engine_parameters") and getattr(self, each.name) != defaults[each.name]:
                    raise self.error(each.name, "is not supported with engine 'none'; remove it")
        if self.engine == "auto":
            return
        if self.bits < _LEAST_BITS:
            raise self.error("bits", f"must be at least {_LEAST_BITS}, or 0, not {self.bits}", code="range")
        if self.bits < _LEAST_SECURE_BITS and not self.insecure:
            reason = f"must be at least {_LEAST_SECURE_BITS}, not {self.bits}; a shorter key needs insecure = true"
            raise self.error("bits", reason, code="insecure")

    def shared(self) -> dict[str, Any]:
        """Return what all parties must agree on, under names such as ``encryption.bits``."""
        keys = ("engine",) if self.engine == "none" else ("engine", "bits", "insecure", "precision")
        agreed: dict[str, Any] = {f"encryption.{key}": getattr(self, key) for key in keys}
        return agreed | {
            f"encryption.{self.engine}.{key}": thaw(value) for key, value in self.engine_parameters.items()
        }


@dataclass(frozen=True, kw_only=True)
class LeakageSection(Parameters):
    """``[leakage]``: how leakage is measured and limited."""

    section: ClassVar[str] = "[leakage]"

    label_bins: Annotated[
        int,
        Meta(
            ge=2,
            le=100,
            description="Regression: number of bins of the label to be inferred, of about equally many training rows; "
            "fewer where one value fills several.",
        ),
    ] = 4
    meter: Annotated[
        bool, Meta(description="Whether the active party measures during training what passive parties could infer.")
    ] = True
    budget: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Meta(description="Upper limit of the V-measure of any passive party's communities; left out: none."),
    ] = None
    collude: Annotated[
        tuple[Text, ...] | None,
        Meta(
            description="Passive parties that put their views and columns together: they attack as one, beside each "
            "alone; left out: none."
        ),
    ] = None
    upper_bound: Annotated[
        bool, Meta(description="Compare model completion attacks with training on all labels; takes longer than they.")
    ] = True
    privacy: Annotated[
        bool,
        Meta(
            description="Measure a lower bound of epsilon and the reconstruction advantage of each attack; fits a "
            "model of the labels to all columns."
        ),
    ] = True

    def check_parameters(self) -> None:
        """Refuse a budget without the meter."""
        if self.budget is not None and not self.meter:
            raise self.error("budget", "needs the meter; remove meter = false")


@dataclass(frozen=True, kw_only=True)
class RunSection(Parameters):
    """``[run]``: the seeds; every model, defense and attack runs once for each."""

    section: ClassVar[str] = "[run]"

    seeds: Annotated[
        tuple[Seed, ...],
        Meta(min_length=1, description="Distinct seeds of rows, columns and training."),
    ] = (1,)
    record: Annotated[
        Literal["full", "digests", "epochs"],
        Meta(
            description="Split networks: what views store of embeddings and gradients; 'digests' saves space in long "
            "runs, but attacks that read gradients need 'full'. 'epochs': in full, and what each passive party's model "
            "gives for all training rows after each epoch, for attacks with 'epoch'."
        ),
    ] = "full"

    def check_parameters(self) -> None:
        """Refuse a seed that is listed twice."""
        check_unique("[run] seeds", self.seeds, "seed")


@dataclass(frozen=True, kw_only=True)
class NetworkSection(Parameters):
    """``[network]``: connection of the parties of a real run; one party, or a relay, listens, the others connect."""

    section: ClassVar[str] = "[network]"

    address: Annotated[
        str, Meta(description="Address of the listener, 'HOST:PORT'; an IPv6 address in brackets. Required.")
    ] = ""
    listen: Annotated[
        str | None, Meta(description="Address to bind; left out: all interfaces, at the port of address.")
    ] = None
    listener: Annotated[
        str | None, Meta(description="Name of the listener; left out: the active party. A name of no party is a relay.")
    ] = None
    certificates: Annotated[Text, Meta(description="Folder with NAME.crt, NAME.key and authority.crt.")] = "certs"
    timeout: Annotated[
        Seconds, Meta(description="Seconds for which a peer may be disconnected before the run ends.")
    ] = 600.0
    silence: Annotated[
        Seconds, Meta(description="Seconds for which a connected peer may owe a message before the run ends.")
    ] = 21600.0
    message_limit: Annotated[
        int, Meta(ge=_MIB, le=1 << 40, description="Largest size of a message in bytes, from 1 MiB to 1 TiB.")
    ] = 1 << 30
    heartbeat: Annotated[Seconds, Meta(description="Seconds between heartbeats; from 0.1, less than timeout.")] = 5.0
    row_queries: Annotated[
        int,
        Meta(
            ge=1,
            le=1 << 40,
            description="In how many predictions with one model a peer may ask this party about one row.",
        ),
    ] = 100
    consent: Annotated[
        tuple[Literal["rows", "columns", "names", "export"], ...],
        Meta(
            description="What this party agrees to after a training: that the active party explains rows ('rows'), "
            "learns which of this party's splits share a column ('columns') and the columns' names ('names'), and gets "
            "the splits themselves for the joined model ('export')."
        ),
    ] = ()
    pinned: Annotated[
        tuple[Annotated[str, Meta(pattern="^[0-9a-f]{64}$")], ...],
        Meta(description="Fingerprints (SHA-256) of the certificates that are believed; empty: all of the authority."),
    ] = ()
    run: Annotated[
        str | None,
        Meta(description="Name of the run, equal at all parties; separates runs of the same parties over one relay."),
    ] = None

    def check_parameters(self) -> None:
        """Refuse addresses and names that are malformed, and heartbeats that are too rare or too frequent."""
        if self.address == "":
            reason = 'required: the listener\'s address, such as "bank.example:7443"'
            raise JobError(reason, code="missing", field="[network] address")
        split_address("[network] address", self.address)
        if self.listen is not None:
            split_address("[network] listen", self.listen)
        for name in ("listener", "run"):
            if getattr(self, name) is not None:
                check_name(f"[network] {name}", getattr(self, name))
        check_unique("[network] consent", self.consent, "consent")
        if self.heartbeat < SHORTEST_HEARTBEAT:
            reason = f"must be {SHORTEST_HEARTBEAT:g} s or more, not {self.heartbeat:g}: peers take more for a flood"
            raise self.error("heartbeat", reason, code="range")
        if self.heartbeat >= self.timeout:
            reason = f"must be less than the timeout of {self.timeout:g} s, not {self.heartbeat:g}"
            raise self.error("heartbeat", reason, code="range")

    @property
    def listens_at(self) -> str:
        """Address to bind, ``"HOST:PORT"``."""
        return self.listen or f"0.0.0.0:{split_address('[network] address', self.address)[1]}"
