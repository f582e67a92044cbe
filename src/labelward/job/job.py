"""The job as a whole: its sections, their consistency, and the part that all parties must agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from labelward.errors import JobError, unknown_name
from labelward.job import _toml
from labelward.job._validators import SUM_TOLERANCE
from labelward.job.components import ComponentSpec, Variant
from labelward.job.sections import (
    DataSection,
    EncryptionSection,
    LeakageSection,
    NetworkSection,
    PartySection,
    RunSection,
    TableKeys,
)
from labelward.job.table_formats import listed_suffixes
from labelward.job.tuning import TuneSection
from labelward.parameters import check_instance


@dataclass(frozen=True, kw_only=True)
class Job:
    """A model to train on the data of several parties, with defenses and attacks.

    Attributes:
        data: the common table, if any, and its split.
        parties: the active party, which holds the labels, then the passive parties in the order given.
        model: kind and raw parameters.
        encryption: engine and key.
        defenses: the defended variants; :meth:`variants` adds the undefended one.
        attacks: kinds and raw parameters; may be empty.
        leakage: scoring and limits of leakage.
        run: the seeds.
        network: connection of the parties of a real run; None for a simulation on one machine.
        tune: the search that ``labelward tune`` makes; nothing else reads it.

    Raises:
        JobError: sections contradict each other.
    """

    data: DataSection
    parties: tuple[PartySection, ...]
    model: ComponentSpec = field(default_factory=lambda: ComponentSpec("secureboost"))
    encryption: EncryptionSection = field(default_factory=EncryptionSection)
    defenses: tuple[Variant, ...] = ()
    attacks: tuple[ComponentSpec, ...] = ()
    leakage: LeakageSection = field(default_factory=LeakageSection)
    run: RunSection = field(default_factory=RunSection)
    network: NetworkSection | None = None
    tune: TuneSection | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parties", _active_first(tuple(self.parties), tuple(self.data.labels)))
        object.__setattr__(self, "defenses", tuple(self.defenses))
        object.__setattr__(self, "attacks", tuple(self.attacks))
        _check_form(self.data, self.parties)
        _check_columns(self.data, self.parties, self.dealer)
        _check_network(self.network, self.parties)
        for number, variant in enumerate(self.defenses):
            if variant in self.variants()[: number + 1]:  # by value: 1 and 1.0 are the same
                raise _duplicate("[[defense]]", variant.label)
        for attack in self.attacks:
            if self.attacks.count(attack) > 1:
                raise _duplicate("[[attack]]", attack.label)

    @property
    def dealer(self) -> str | None:
        """The party that the model names as its dealer; the only passive one that may hold no column."""
        name = self.model.params.get("dealer")
        return name if isinstance(name, str) else None

    @property
    def active(self) -> PartySection:
        """The party that holds the labels; of several holders the first one, which coordinates."""
        return self.parties[0]

    @property
    def holders(self) -> tuple[str, ...]:
        """Names of the parties that hold labels, in party order."""
        others = [
            party.name
            for party in self.passive
            if party.label is not None or party.role == "holder" or party.name in self.data.labels
        ]
        return (self.active.name, *others)

    @property
    def constrained(self) -> bool:
        """Whether any column has a monotone constraint."""
        return any((self.data.monotone, *(party.monotone for party in self.parties)))

    @property
    def passive(self) -> tuple[PartySection, ...]:
        """The other parties."""
        return self.parties[1:]

    def variants(self) -> tuple[Variant, ...]:
        """Return the undefended variant, then the defended ones."""
        return (Variant(), *self.defenses)

    @property
    def listener(self) -> str:
        """Name of the listener in a real run: a party or a relay."""
        given = None if self.network is None else self.network.listener
        return self.active.name if given is None else given

    def party(self, name: str) -> PartySection:
        """Return a party's section; :class:`JobError` for an unknown name."""
        for party in self.parties:
            if party.name == name:
                return party
        raise JobError(unknown_name("party", name, [party.name for party in self.parties]), code="unknown", value=name)

    def connection(self) -> NetworkSection:
        """Return ``[network]``; :class:`JobError` where the section is missing."""
        if self.network is None:
            reason = "required for a run over a network; give it the listener's address"
            raise JobError(reason, code="missing", field="[network]")
        return self.network

    def shared(self) -> dict[str, Any]:
        """Return what all parties must agree on, as JSON values by flat name, such as ``model.depth``.

        Tables, columns, paths and addresses differ between parties; defenses and attacks concern the active party only.
        """
        shared: dict[str, Any] = {f"model.{key}": value for key, value in self.model.as_dict().items()}
        shared |= self.encryption.shared()
        shared["parties"] = [party.name for party in self.parties]
        if len(self.holders) > 1:
            shared["holders"] = list(self.holders)
            shared |= {"data.task": self.data.task, "data.classes": list(self.data.classes or ())}
        return shared

    def to_toml(self) -> str:
        """Return the job file; it parses to an equal job, except for parameters that are None, which TOML lacks."""
        blocks = [_toml.block("[data]", _set_values(self.data))]
        own = [party for party in self.parties if party.table is not None or party.elsewhere]
        if own:
            blocks += [_toml.block(f"[parties.{party.name}]", _set_values(party, "name")) for party in own]
        else:
            columns = {party.name: _assigned(party) for party in self.parties}
            blocks.append(_toml.block("[parties]", columns))
        blocks.append(_toml.block("[model]", self.model.as_dict()))
        encryption = (
            {"engine": "none"}
            if self.encryption.engine == "none"
            else _set_values(self.encryption, "engine_parameters", "automatic")
        )
        blocks.append(_toml.block("[encryption]", encryption))
        if self.encryption.engine_parameters:
            blocks.append(_toml.block(f"[encryption.{self.encryption.engine}]", self.encryption.engine_parameters))
        for variant in self.defenses:
            chain = variant.as_list()
            blocks.append(_toml.block("[[defense]]", chain[0] if len(chain) == 1 else {"chain": chain}))
        blocks += [_toml.block("[[attack]]", attack.as_dict()) for attack in self.attacks]
        blocks.append(_toml.block("[leakage]", _set_values(self.leakage)))
        blocks.append(_toml.block("[run]", _set_values(self.run)))
        if self.network is not None:
            blocks.append(_toml.block("[network]", _set_values(self.network)))
        if self.tune is not None:
            blocks.append(_toml.block("[tune]", self.tune.as_dict()))
            blocks += [_toml.block("[[tune.variable]]", each.as_dict()) for each in self.tune.variables]
        return "\n".join(blocks)


_LEFT_OUT = frozenset(each.name for each in fields(TableKeys))
"""Keys that are not written where they are empty: jobs stored before they existed are the same jobs."""


def as_job(job: Job) -> Job:
    """Return an argument that must be a job; :class:`~labelward.errors.InputError` where it is not."""
    check_instance("job", job, Job, "of labelward.load_job")
    return job


def _assigned(party: PartySection) -> Any:
    """Return what a job with a common table says of a party's columns."""
    if party.drop:
        return f"all but {', '.join(party.drop)}"
    return party.share if party.columns is None else party.columns


def _set_values(section: Any, *without: str) -> dict[str, Any]:
    values = {each.name: getattr(section, each.name) for each in fields(section) if each.name not in without}
    return {key: value for key, value in values.items() if value is not None and (value or key not in _LEFT_OUT)}


def check_no_common_table(data: Mapping[str, Any]) -> None:
    """Refuse keys of a common table in ``[data]`` where the parties have tables of their own."""
    hints = {key: key for key in ("weight", "monotone", "format", "drop", "text", "hashed", "positive", "edges")}
    hints["aligned"] = "unaligned"
    for key in ("table", "label", "labels", *hints):
        if data.get(key):
            hint = f"; write it in [parties.NAME] {hints[key]}" if key in hints else ""
            if key == "table":
                hint = "; to divide this one, write its columns in [parties], as in NAME = [...]"
            raise _conflict(f"[data] {key}", f"is not allowed where parties have their own tables{hint}", data[key])


def _conflict(field: str, reason: str, value: Any = None) -> JobError:
    return JobError(reason, code="conflict", field=field, value=value)


def _duplicate(field: str, label: str) -> JobError:
    return JobError(f"{label!r} is given twice", code="duplicate", field=field, value=label)


def _missing(field: str, reason: str) -> JobError:
    return JobError(reason, code="missing", field=field)


def _active_first(parties: tuple[PartySection, ...], holders: tuple[str, ...]) -> tuple[PartySection, ...]:
    names = [party.name.lower() for party in parties]  # names become folders, and some file systems fold case
    for number, party in enumerate(parties):
        if party.name.lower() in names[:number]:
            same = parties[names.index(party.name.lower())].name
            reason = "the name is given twice" if same == party.name else f"it and {same!r} differ only in case"
            raise JobError(reason, code="duplicate", field=f"[parties] {party.name}", value=party.name)
    active = _first_holder(parties, holders) if holders else _active(parties)
    if len(parties) < 2:
        raise _missing("[parties]", "at least one passive party is needed in addition to the active one")
    return (active, *(party for party in parties if party is not active))


def _first_holder(parties: tuple[PartySection, ...], holders: tuple[str, ...]) -> PartySection:
    """Return the first party of ``[data] labels``; all of them must be parties."""
    names = {party.name: party for party in parties}
    for holder in holders:
        if holder not in names:
            reason = unknown_name("party", holder, names)
            raise JobError(reason, code="unknown", field=f"[data] labels {holder}", value=holder)
    return names[holders[0]]


def _active(parties: tuple[PartySection, ...]) -> PartySection:
    """Return the party with the label column, the active role or the name ``active``; these must not differ."""
    with_label = [party for party in parties if party.label is not None and party.role != "holder"]
    with_role = [party for party in parties if party.role == "active"]
    named = [party for party in parties if party.name == "active"]
    if len(with_role) > 1:
        first, second = with_role[:2]
        raise _conflict(f"[parties.{second.name}] role", f"{first.name!r} is the active party already", "active")
    if len(with_label) > 1:  # several holders, of which one coordinates
        leading = [party for party in with_label if party in with_role or party in named]
        return (leading or with_label)[0]
    if with_label and with_role and with_label != with_role:
        reason = f"only the active party holds the labels, and the active party is {with_role[0].name!r}"
        raise _conflict(f"[parties.{with_label[0].name}] label", reason, with_label[0].label)
    if with_label and named and with_label != named:
        reason = "the labels must be held by the party called 'active'"
        raise _conflict(f"[parties.{with_label[0].name}] label", reason, with_label[0].label)
    if named and (named[0].role == "passive" or (with_role and with_role != named)):
        raise _conflict("[parties.active] role", "a party called 'active' is the active party", named[0].role)
    candidates = with_label or with_role or named
    if not candidates:
        raise _missing(
            "[parties]",
            "none of them is the active party; call the party with the labels 'active', "
            'or give its section the label column, or role = "active" where its table is elsewhere',
        )
    return candidates[0]


def _check_form(data: DataSection, parties: tuple[PartySection, ...]) -> None:
    """Refuse a mixture of the forms of a job: a common table with shares, one with lists, a table for each party."""
    own = [party for party in parties if party.table is not None or party.elsewhere]
    if own:
        others = [party.name for party in parties if party not in own]
        if others:
            reason = f"required, since {own[0].name!r} does not share the table of [data]"
            raise _missing(f"[parties.{others[0]}] table", reason)
        check_no_common_table(_set_values(data))
        if parties[0].table is not None and parties[0].label is None:
            raise _missing(f"[parties.{parties[0].name}] label", "required for the active party's own table")
        if data.classes and not any(party.label or party.role == "holder" for party in parties[1:]):
            raise _conflict("[data] classes", "is for labels in the tables of several parties", data.classes)
    elif data.classes:
        raise _conflict("[data] classes", "is for labels in the tables of several parties", data.classes)
    elif data.table is None:
        raise _missing("[data] table", f"required: a catalog name, or the path of a {listed_suffixes()} file")
    elif len({party.share is None for party in parties}) > 1:
        raise _conflict("[parties]", "give every party a share, or every party a list of columns, but not a mixture")
    if data.buckets != 1000 and data.categories != "hashed" and not any(each.hashed for each in (data, *parties)):
        raise _conflict("[data] buckets", "is for hashed columns only", data.buckets)
    if data.partition == "importance" and any(party.share is None for party in parties):
        raise _conflict("[data] partition", "'importance' needs parties with shares", data.partition)


def _check_columns(data: DataSection, parties: tuple[PartySection, ...], dealer: str | None) -> None:
    """Refuse columns of two parties or roles, and passive parties without any, but for the one named as dealer."""
    for party in parties[1:]:
        if party.name != dealer and (party.columns == () or party.share == 0):
            reason = "a passive party must hold at least one column"
            value = party.share if party.columns is None else party.columns
            raise JobError(reason, code="range", field=f"[parties] {party.name}", value=value)
    total = sum(party.share or 0 for party in parties)
    if total > 1 + SUM_TOLERANCE:
        raise JobError(f"the shares must sum to at most 1, not {total:g}", code="range", field="[parties]", value=total)
    if data.table is None:
        return
    holder: dict[str, str] = {}
    roles = {column: role for role, column in data.roles().items()}
    for party in parties:
        for column in (*(party.columns or ()), *party.drop):
            if column in roles:
                raise _conflict(f"[parties] {party.name}", f"{column!r} is the {roles[column]} column", column)
        for column in party.columns or ():
            if column in holder and not data.overlap:
                reason = f"{column!r} is given to {holder[column]!r} already; set overlap = true in [data] to allow it"
                raise JobError(reason, code="duplicate", field=f"[parties] {party.name}", value=column)
            holder.setdefault(column, party.name)


def _check_network(network: NetworkSection | None, parties: tuple[PartySection, ...]) -> None:
    elsewhere = [party.name for party in parties if party.elsewhere]
    if network is None:
        if elsewhere:
            reason = f"required; if the data of {elsewhere[0]!r} are on another machine, add a section [network]"
            raise _missing(f"[parties.{elsewhere[0]}] table", reason)
        return
    if any(party.share is not None or (party.table is None and party.columns is not None) for party in parties):
        raise _conflict("[network]", "needs a table for each party ([parties.NAME]), not the common table of [data]")
    names = {party.name.lower(): party.name for party in parties}
    same = names.get((network.listener or "").lower())
    if same is not None and same != network.listener:
        reason = f"{network.listener!r} and the party {same!r} differ only in case"
        raise _conflict("[network] listener", reason, network.listener)
