"""View of a coalition: what several passive parties of one run saw, read as the view of a single party.

Setting: the parties follow the protocol, and put together afterwards what each received and observed. Rows are those of
the run, in the order that all parties share. Columns are named ``party.column``.

Trees: a member's trees are numbered by itself. Where all members took part in the same trees, a tree's splits are those
that any of them knows: the joined leaf of a row is the finest that any member knows, and rows out of the sample pass
the splits of all. Elsewhere (a leakage budget kept a member out of some trees) the members' trees stand side by side,
which tells the same of the rows within the samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, Literal

import msgspec

from labelward.errors import DataError
from labelward.messages.base import wire_name
from labelward.messages.codec import decode_fields, encode_fields
from labelward.messages.handshake import RowSplit
from labelward.messages.tree import LevelRequest, OwnSplit, TreeStart
from labelward.party.transcript import Header, TranscriptEntry
from labelward.party.view import View

SEPARATOR = "+"
"""Between the names of members; no name of a party contains it."""

Known = dict[int, tuple[Any, dict[int, Any]]]
"""By tree: the rows of its sample, and by node the rows that its split sends left."""


class JoinedView(View):
    """The views of several passive parties of one run as one.

    Args:
        members: at least two, complete or not; in party order.

    Raises:
        DataError: a view of the active party, two of the same party, or views of different runs or rows.
    """

    def __init__(self, members: Sequence[View]) -> None:
        _check(members)
        self._members = tuple(members)
        super().__init__(_joined_header(members), _joined_entries(members))

    @property
    def members(self) -> tuple[View, ...]:
        """See :attr:`View.members`."""
        return self._members

    @property
    def ended(self) -> Literal["complete", "failed", "cut off"]:
        """End of the recording; the least complete of the members'."""
        ends = {member.ended for member in self._members}
        return "cut off" if "cut off" in ends else "failed" if "failed" in ends else "complete"

    def without_records(self) -> JoinedView:
        """See :meth:`View.without_records`."""
        return JoinedView([member.without_records() for member in self._members])


def coalition_name(parties: Sequence[str]) -> str:
    """Return the name under which a coalition stands in results: ``telco+shop``."""
    return SEPARATOR.join(parties)


def joined_column(party: str, column: str) -> str:
    """Return the name of a member's column in a joined view."""
    return f"{party}.{column}"


def _check(members: Sequence[View]) -> None:
    first, names = members[0] if members else None, [member.party for member in members]
    if first is None or len(set(names)) < 2 or len(set(names)) < len(names):
        raise DataError(
            f"a coalition has at least two different parties, not {names}", code="duplicate", value=tuple(names)
        )
    begun = next(first.received(RowSplit), None)
    for member in members:
        header = member.header
        if header.role != "passive":
            raise DataError(
                f"{header.party!r} is the active party, which holds the labels; a coalition is of passive parties",
                code="unsupported",
                value=header.party,
            )
        sides = next(member.received(RowSplit), None)
        same = sides is None or begun is None or _sides(sides.message) == _sides(begun.message)
        about = (header.rows, header.ids, header.job, header.version)
        if not same or about != (first.header.rows, first.header.ids, first.header.job, first.header.version):
            raise DataError(
                f"the views of {first.party!r} and {header.party!r} are of different runs or rows",
                code="other-run",
                value=(first.party, header.party),
            )


def _sides(begun: RowSplit) -> tuple[Any, Any]:
    return begun.validation, begun.test


def _joined_header(members: Sequence[View]) -> Header:
    headers = [member.header for member in members]
    parties = tuple(header.party for header in headers)
    return msgspec.structs.replace(
        headers[0],
        party=coalition_name(parties),
        peers=tuple(peer for peer in headers[0].peers if peer not in parties),
        insecure=tuple(dict.fromkeys(reason for header in headers for reason in header.insecure)),
        columns=tuple(joined_column(header.party, name) for header in headers for name in header.columns),
        categories={
            joined_column(header.party, name): found for header in headers for name, found in header.categories.items()
        },
        monotone={
            joined_column(header.party, name): way for header in headers for name, way in header.monotone.items()
        },
    )


def _joined_entries(members: Sequence[View]) -> Iterator[TranscriptEntry]:
    known = [_known(member) for member in members]
    aligned = all(_agree(one, other) for one, other in combinations(known, 2))
    for position, (member, trees) in enumerate(zip(members, known, strict=True)):
        number = {
            tree: place if aligned else place * len(members) + position for place, tree in enumerate(sorted(trees))
        }
        for entry in member.entries():
            if entry.type not in _RENUMBERED:
                yield entry
                continue
            record = decode_fields(entry.type, entry.payload)
            if record.tree not in number:  # as in a view that was cut off
                continue
            changes: dict[str, Any] = {"tree": number[record.tree]}
            if isinstance(record, OwnSplit):
                changes["column"] = joined_column(member.party, record.column)
            yield msgspec.structs.replace(entry, payload=encode_fields(msgspec.structs.replace(record, **changes)))


_RENUMBERED = frozenset({wire_name(TreeStart), wire_name(LevelRequest), wire_name(OwnSplit)})


def _known(view: View) -> Known:
    """Return what a view says of each tree."""
    known: Known = {each.message.tree: (each.message.rows.value, {}) for each in view.received(TreeStart)}
    told = ((each.message.tree, each.message.splits.value) for each in view.received(LevelRequest))
    for tree, splits in told:
        if tree in known:
            known[tree][1].update({split.node: split.left for split in splits})
    for observed in view.observed(OwnSplit):
        if observed.tree in known:
            known[observed.tree][1][observed.node] = observed.left
    return known


def _agree(one: Known, other: Known) -> bool:
    """Return whether two members took part in the same trees: equal samples, and equal rows of every common split."""
    if len(one) != len(other):
        return False
    for mine, theirs in zip(sorted(one), sorted(other), strict=True):
        (sample, splits), (their_sample, their_splits) = one[mine], other[theirs]
        if sample != their_sample or any(splits[node] != their_splits[node] for node in splits.keys() & their_splits):
            return False
    return True
