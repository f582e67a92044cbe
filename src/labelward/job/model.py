"""A job as a whole: its sections, what they must satisfy together, and what all parties must agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from labelward.errors import JobError, unknown_name
from labelward.job import _toml
from labelward.job.kinds import Kind, Variant
from labelward.job.network import NetworkSection
from labelward.job.sections import DataSection, EncryptionSection, LeakageSection, PartySection, RunSection

__all__ = ["Job", "refuse_common_table"]

_SUM_TOLERANCE = 1e-9  # shares such as 0.1 + 0.2 + 0.7 exceed 1 by rounding alone


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is trained on whose data, what defends it, and what attacks it.

    Attributes:
        data: the common table, if any, and how it is split.
        parties: the active party, which holds the labels, then the passive ones in the order given.
        model: kind and raw parameters.
        encryption: engine and key.
        defenses: the defended variants; the undefended run is there besides (:meth:`variants`).
        attacks: kinds and raw parameters; may be empty.
        leakage: how their guesses are scored.
        run: the seeds.
        network: where the parties of a real run meet; None for a rehearsal on one machine.

    Raises:
        JobError: where sections contradict each other.
    """

    data: DataSection
    parties: tuple[PartySection, ...]
    model: Kind = field(default_factory=lambda: Kind("secureboost"))
    encryption: EncryptionSection = field(default_factory=EncryptionSection)
    defenses: tuple[Variant, ...] = ()
    attacks: tuple[Kind, ...] = ()
    leakage: LeakageSection = field(default_factory=LeakageSection)
    run: RunSection = field(default_factory=RunSection)
    network: NetworkSection | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parties", _active_first(tuple(self.parties)))
        object.__setattr__(self, "defenses", tuple(self.defenses))
        object.__setattr__(self, "attacks", tuple(self.attacks))
        _check_form(self.data, self.parties)
        _check_columns(self.data, self.parties)
        _check_network(self.network, self.parties)
        for number, variant in enumerate(self.defenses):
            if variant in self.variants()[: number + 1]:  # by value: 1 and 1.0 are the same
                raise JobError(
                    f"{variant.label!r} is given twice", code="duplicate", field="[[defense]]", value=variant.label
                )
        for attack in self.attacks:
            if self.attacks.count(attack) > 1:
                raise JobError(
                    f"{attack.label!r} is given twice", code="duplicate", field="[[attack]]", value=attack.label
                )

    @property
    def active(self) -> PartySection:
        """The party that holds the labels."""
        return self.parties[0]

    @property
    def passive(self) -> tuple[PartySection, ...]:
        """The other parties."""
        return self.parties[1:]

    def variants(self) -> tuple[Variant, ...]:
        """Return the undefended variant, then the defended ones."""
        return (Variant(), *self.defenses)

    @property
    def listener(self) -> str:
        """Who listens in a real run: a party, or a relay."""
        given = None if self.network is None else self.network.listener
        return self.active.name if given is None else given

    def party(self, name: str) -> PartySection:
        """Return a party's section; :class:`JobError` for an unknown name."""
        for party in self.parties:
            if party.name == name:
                return party
        raise JobError(unknown_name("party", name, [party.name for party in self.parties]), code="unknown", value=name)

    def connection(self) -> NetworkSection:
        """Return ``[network]``; :class:`JobError` where a real run is wanted but the section is missing."""
        if self.network is None:
            raise JobError(
                "required for a run over a network; give it the listener's address", code="missing", field="[network]"
            )
        return self.network

    def shared(self) -> dict[str, Any]:
        """Return what all parties must agree on, as JSON values under flat names such as ``model.depth``.

        Tables, paths, columns and addresses are each party's own; defenses and attacks are the active party's business.
        """
        agreed: dict[str, Any] = {f"model.{key}": value for key, value in self.model.as_dict().items()}
        agreed |= self.encryption.shared()
        agreed["parties"] = [party.name for party in self.parties]
        return agreed

    def to_toml(self) -> str:
        """Return the job file; it parses to an equal job but for parameters that are None, which TOML cannot say."""
        blocks = [_toml.block("[data]", _given(self.data))]
        own = [party for party in self.parties if party.table is not None or party.elsewhere]
        if own:
            blocks += [_toml.block(f"[parties.{party.name}]", _given(party, "name")) for party in own]
        else:
            held = {party.name: party.share if party.columns is None else party.columns for party in self.parties}
            blocks.append(_toml.block("[parties]", held))
        blocks.append(_toml.block("[model]", self.model.as_dict()))
        nothing = {"engine": "none"} if self.encryption.engine == "none" else None
        blocks.append(_toml.block("[encryption]", nothing or _given(self.encryption, "parameters")))
        if self.encryption.parameters:
            blocks.append(_toml.block(f"[encryption.{self.encryption.engine}]", self.encryption.parameters))
        for variant in self.defenses:
            chain = variant.as_list()
            blocks.append(_toml.block("[[defense]]", chain[0] if len(chain) == 1 else {"chain": chain}))
        blocks += [_toml.block("[[attack]]", attack.as_dict()) for attack in self.attacks]
        blocks.append(_toml.block("[leakage]", _given(self.leakage)))
        blocks.append(_toml.block("[run]", _given(self.run)))
        if self.network is not None:
            blocks.append(_toml.block("[network]", _given(self.network)))
        return "\n".join(blocks)


def _given(section: Any, *without: str) -> dict[str, Any]:
    values = {one.name: getattr(section, one.name) for one in fields(section) if one.name not in without}
    return {key: value for key, value in values.items() if value is not None}


def refuse_common_table(data: Mapping[str, Any]) -> None:
    """Refuse what ``[data]`` says of a common table beside parties with own tables."""
    for key in ("table", "label", "weight", "monotone"):
        if data.get(key):
            told = f"; write it in [parties.NAME] {key}" if key in ("weight", "monotone") else ""
            raise JobError(
                f"not beside parties that have their own tables{told}",
                code="conflict",
                field=f"[data] {key}",
                value=data[key],
            )


def _active_first(parties: tuple[PartySection, ...]) -> tuple[PartySection, ...]:
    names = [party.name.lower() for party in parties]  # names are folders, and some file systems fold case
    for number, party in enumerate(parties):
        if party.name.lower() in names[:number]:
            same = parties[names.index(party.name.lower())].name
            told = "the name is given twice" if same == party.name else f"it and {same!r} differ only in case"
            raise JobError(told, code="duplicate", field=f"[parties] {party.name}", value=party.name)
    active = _active(parties)
    if len(parties) < 2:
        raise JobError("at least one passive party is needed beside the active one", code="missing", field="[parties]")
    return (active, *(party for party in parties if party is not active))


def _active(parties: tuple[PartySection, ...]) -> PartySection:
    """Return the party that has the label column, the role or the name; they must not be different ones."""
    holders = [party for party in parties if party.label is not None]
    if len(holders) > 1:
        raise JobError(
            f"{holders[0].name!r} holds the labels already",
            code="conflict",
            field=f"[parties.{holders[1].name}] label",
            value=holders[1].label,
        )
    called = [party for party in parties if party.role == "active"]
    if len(called) > 1:
        raise JobError(
            f"{called[0].name!r} is the active party already",
            code="conflict",
            field=f"[parties.{called[1].name}] role",
            value="active",
        )
    named = [party for party in parties if party.name == "active"]
    if holders and called and holders != called:
        raise JobError(
            f"only the active party has the labels, and the active party is {called[0].name!r}",
            code="conflict",
            field=f"[parties.{holders[0].name}] label",
            value=holders[0].label,
        )
    if holders and named and holders != named:
        raise JobError(
            "the labels are held by another party than 'active'",
            code="conflict",
            field=f"[parties.{holders[0].name}] label",
            value=holders[0].label,
        )
    if named and (named[0].role == "passive" or (called and called != named)):
        raise JobError(
            "a party called 'active' is the active party",
            code="conflict",
            field="[parties.active] role",
            value=named[0].role,
        )
    found = holders or called or named
    if not found:
        raise JobError(
            "none of them is the active party; call the one that holds the labels 'active', "
            'or give its section the label column, or role = "active" where its table is elsewhere',
            code="missing",
            field="[parties]",
        )
    return found[0]


def _check_form(data: DataSection, parties: tuple[PartySection, ...]) -> None:
    own = [party for party in parties if party.table is not None or party.elsewhere]
    if own:
        strangers = [party.name for party in parties if party not in own]
        if strangers:
            raise JobError(
                f"required, since {own[0].name!r} does not share the table of [data]",
                code="missing",
                field=f"[parties.{strangers[0]}] table",
            )
        refuse_common_table(_given(data))
        if parties[0].table is not None and parties[0].label is None:
            raise JobError(
                "required for the active party's own table", code="missing", field=f"[parties.{parties[0].name}] label"
            )
    elif data.table is None:
        raise JobError(
            "required (a catalogue name, or the path of a .csv or .parquet file)", code="missing", field="[data] table"
        )
    elif len({party.share is None for party in parties}) > 1:
        raise JobError(
            "give every party a share or every party a list of columns, not a mixture",
            code="conflict",
            field="[parties]",
        )
    if data.partition == "importance" and any(party.share is None for party in parties):
        raise JobError(
            "'importance' needs parties with shares", code="conflict", field="[data] partition", value=data.partition
        )


def _check_columns(data: DataSection, parties: tuple[PartySection, ...]) -> None:
    for party in parties[1:]:
        if party.columns == () or party.share == 0:
            raise JobError(
                "a passive party must hold at least one column",
                code="range",
                field=f"[parties] {party.name}",
                value=party.share if party.columns is None else party.columns,
            )
    total = sum(party.share or 0 for party in parties)
    if total > 1 + _SUM_TOLERANCE:
        raise JobError(
            f"the shares must not exceed 1 in sum but give {total:g}", code="range", field="[parties]", value=total
        )
    if data.table is None:
        return
    holder: dict[str, str] = {}
    roles = {column: role for role, column in data.roles().items()}
    for party in parties:
        for column in party.columns or ():
            if column in roles:
                raise JobError(
                    f"column {column!r} is the {roles[column]} column",
                    code="conflict",
                    field=f"[parties] {party.name}",
                    value=column,
                )
            if column in holder and not data.overlap:
                raise JobError(
                    f"column {column!r} is given to {holder[column]!r} already "
                    "(set overlap = true in [data] to allow it)",
                    code="duplicate",
                    field=f"[parties] {party.name}",
                    value=column,
                )
            holder.setdefault(column, party.name)


def _check_network(network: NetworkSection | None, parties: tuple[PartySection, ...]) -> None:
    elsewhere = [party.name for party in parties if party.elsewhere]
    if network is None:
        if elsewhere:
            raise JobError(
                f"required; without it the data of {elsewhere[0]!r} are elsewhere, and that needs a section [network]",
                code="missing",
                field=f"[parties.{elsewhere[0]}] table",
            )
        return
    if any(party.share is not None or (party.table is None and party.columns is not None) for party in parties):
        raise JobError(
            "only where each party has its own table ([parties.NAME]); here all share the table of [data]",
            code="conflict",
            field="[network]",
        )
    names = {party.name.lower(): party.name for party in parties}
    same = names.get((network.listener or "").lower())
    if same is not None and same != network.listener:
        raise JobError(
            f"{network.listener!r} and the party {same!r} differ only in case",
            code="conflict",
            field="[network] listener",
            value=network.listener,
        )
