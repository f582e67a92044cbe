"""A job as a whole: its sections, what they must satisfy together, and what all parties must agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from labelward.errors import JobError

from . import _toml
from .kinds import Kind, Variant
from .sections import DataSection, EncryptionSection, LeakageSection, PartySection, RunSection

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "parties", _active_first(tuple(self.parties)))
        object.__setattr__(self, "defenses", tuple(self.defenses))
        object.__setattr__(self, "attacks", tuple(self.attacks))
        _check_form(self.data, self.parties)
        _check_columns(self.data, self.parties)
        for number, variant in enumerate(self.defenses):
            if variant in self.variants()[: number + 1]:  # by value: 1 and 1.0 are the same
                raise JobError(f"[[defense]]: {variant.label!r} is given twice")
        for attack in self.attacks:
            if self.attacks.count(attack) > 1:
                raise JobError(f"[[attack]]: {attack.label!r} is given twice")

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

    def shared(self) -> dict[str, Any]:
        """Return what all parties must agree on, as JSON values under flat names such as ``model.depth``.

        Tables, paths and columns are each party's own; defenses and attacks are the active party's business.
        """
        agreed: dict[str, Any] = {f"model.{key}": value for key, value in self.model.as_dict().items()}
        for key in ("engine", "bits", "insecure", "precision"):
            agreed[f"encryption.{key}"] = getattr(self.encryption, key)
        agreed["parties"] = [party.name for party in self.parties]
        return agreed

    def to_toml(self) -> str:
        """Return the job file; it parses to an equal job but for parameters that are None, which TOML cannot say."""
        blocks = [_toml.block("[data]", _given(self.data))]
        own = [party for party in self.parties if party.table is not None]
        if own:
            blocks += [_toml.block(f"[parties.{party.name}]", _given(party, "name")) for party in own]
        else:
            held = {party.name: party.share if party.columns is None else party.columns for party in self.parties}
            blocks.append(_toml.block("[parties]", held))
        blocks.append(_toml.block("[model]", self.model.as_dict()))
        blocks.append(_toml.block("[encryption]", _given(self.encryption)))
        for variant in self.defenses:
            chain = variant.as_list()
            blocks.append(_toml.block("[[defense]]", chain[0] if len(chain) == 1 else {"chain": chain}))
        blocks += [_toml.block("[[attack]]", attack.as_dict()) for attack in self.attacks]
        blocks.append(_toml.block("[leakage]", _given(self.leakage)))
        blocks.append(_toml.block("[run]", _given(self.run)))
        return "\n".join(blocks)


def _given(section: Any, *without: str) -> dict[str, Any]:
    values = {one.name: getattr(section, one.name) for one in fields(section) if one.name not in without}
    return {key: value for key, value in values.items() if value is not None}


def refuse_common_table(data: Mapping[str, Any]) -> None:
    """Refuse what ``[data]`` says of a common table beside parties with own tables."""
    for key in ("table", "label", "weight", "monotone"):
        if data.get(key):
            told = f"; write it in [parties.NAME] {key}" if key in ("weight", "monotone") else ""
            raise JobError(f"[data] {key}: not beside parties that have their own tables{told}")


def _active_first(parties: tuple[PartySection, ...]) -> tuple[PartySection, ...]:
    names = [party.name.lower() for party in parties]  # names are folders, and some file systems fold case
    for number, party in enumerate(parties):
        if party.name.lower() in names[:number]:
            same = parties[names.index(party.name.lower())].name
            told = "the name is given twice" if same == party.name else f"it and {same!r} differ only in case"
            raise JobError(f"[parties] {party.name}: {told}")
    holders = [party for party in parties if party.label is not None]
    if len(holders) > 1:
        raise JobError(f"[parties.{holders[1].name}] label: {holders[0].name!r} holds the labels already")
    named = [party for party in parties if party.name == "active"]
    if holders and named and holders != named:
        raise JobError(f"[parties.{holders[0].name}] label: the labels are held by another party than 'active'")
    if not holders and not named:
        raise JobError(
            "[parties]: none of them is the active party; call the one that holds the labels 'active', "
            "or give its section the label column"
        )
    active = (holders or named)[0]
    if len(parties) < 2:
        raise JobError("[parties]: at least one passive party is needed beside the active one")
    return (active, *(party for party in parties if party is not active))


def _check_form(data: DataSection, parties: tuple[PartySection, ...]) -> None:
    own = [party for party in parties if party.table is not None]
    if own:
        strangers = [party.name for party in parties if party.table is None]
        if strangers:
            raise JobError(f"[parties.{strangers[0]}] table: required, since {own[0].name!r} has its own table")
        refuse_common_table(_given(data))
        if parties[0].label is None:
            raise JobError(f"[parties.{parties[0].name}] label: required for the active party's own table")
    elif data.table is None:
        raise JobError("[data] table: required (a catalogue name, or the path of a .csv or .parquet file)")
    elif len({party.share is None for party in parties}) > 1:
        raise JobError("[parties]: give every party a share or every party a list of columns, not a mixture")
    if data.partition == "importance" and any(party.share is None for party in parties):
        raise JobError("[data] partition: 'importance' needs parties with shares")


def _check_columns(data: DataSection, parties: tuple[PartySection, ...]) -> None:
    for party in parties[1:]:
        if party.columns == () or party.share == 0:
            raise JobError(f"[parties] {party.name}: a passive party must hold at least one column")
    total = sum(party.share or 0 for party in parties)
    if total > 1 + _SUM_TOLERANCE:
        raise JobError(f"[parties]: the shares must not exceed 1 in sum but give {total:g}")
    if data.table is None:
        return
    holder: dict[str, str] = {}
    roles = {column: role for role, column in data.roles().items()}
    for party in parties:
        for column in party.columns or ():
            if column in roles:
                raise JobError(f"[parties] {party.name}: column {column!r} is the {roles[column]} column")
            if column in holder and not data.overlap:
                raise JobError(
                    f"[parties] {party.name}: column {column!r} is given to {holder[column]!r} already "
                    "(set overlap = true in [data] to allow it)"
                )
            holder.setdefault(column, party.name)
