"""The largest messages of a training and of a prediction: what exceeds them is refused with its first bytes.

Every party states with its keys how many columns and bins it has (:class:`~labelward.messages.pivodl.PartyKeys`). All
that follows is bounded by these numbers, by the rows, and by the trees' depth. A party lets a peer send the first large
message, its columns, only after it has heard what the peer states: a peer waits for this party's
:class:`~labelward.messages.pivodl.HeldRows`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labelward.errors import wrong_message
from labelward.he.base import CiphertextFormat
from labelward.messages.pivodl import MISSING, ColumnCodes, OfferedColumns
from labelward.party.context import HEAD, Context
from labelward.protocols.common.columns import OwnColumns
from labelward.protocols.pivodl.fixed import Fixed
from labelward.protocols.pivodl.params import GrownTrees
from labelward.protocols.pivodl.share import PivodlShare

MOST_COLUMNS = 1 << 20
_NODE, _CANDIDATE, _CATEGORY, _GAIN = 128, 64, 5, 9
"""Bytes of what is said of a node, of a candidate beside its categories, of each of these, and of a gain, at most."""


def offered_columns(own: OwnColumns) -> OfferedColumns:
    """Return what a party states of its columns."""
    return OfferedColumns(len(own.sizes), int(own.sizes.sum()), int(own.sizes.max(initial=0)))


def checked_offer(peer: str, offered: OfferedColumns, bins: int | None) -> OfferedColumns:
    """Return what a peer states; PeerError where no columns can be so."""
    columns, widest = offered.columns, offered.widest
    possible = 0 <= columns <= MOST_COLUMNS and 0 <= widest <= max(bins or MISSING, 1000)
    if not possible or not columns <= offered.bins <= columns * widest or (not columns and widest):
        reason = f"states {columns} columns with {offered.bins} bins, {widest} at most"
        raise wrong_message(peer, "PartyKeys", reason, (), value=columns)
    return offered


def matches(message: ColumnCodes, offered: OfferedColumns) -> bool:
    """Return whether columns are as many, with as many bins, as their party stated."""
    return offered == OfferedColumns(len(message.sizes), sum(message.sizes), max(message.sizes, default=0))


def split_nodes(params: GrownTrees, rows: int) -> int:
    """Return how many nodes of a level can be split, at most."""
    return max(1, min(1 << (params.depth - 1), rows // max(params.min_node_rows, 2 * params.min_rows, 1)))


def codes_bytes(columns: int, rows: int) -> int:
    """Return the bytes of the bins of rows in columns, with what describes these, at most."""
    return columns * (2 * rows + 16) + HEAD


def largest_message(
    fixed: Fixed, offers: Mapping[str, OfferedColumns], peer: str, me: str, form: CiphertextFormat | None
) -> int:
    """Return the bytes of the largest message of a peer in a training, after the keys.

    Args:
        offers: what each party states.
        form: of encrypted sums; None where they are masked.
    """
    nodes, rows, theirs, mine = split_nodes(fixed.params, fixed.rows), fixed.rows, offers[peer], offers[me]
    sums = nodes * max(1, *(each.bins for each in offers.values()))
    told = [
        sums * 8 * fixed.numbers.k if form is None else form.sum_bytes(sums),
        codes_bytes(theirs.columns, rows),
        theirs.bins * (rows // 8 + _NODE * nodes) if getattr(fixed.params, "exchange", "") == "published" else 0,
        nodes * theirs.columns * 2 * theirs.widest // 8,
        nodes * mine.columns * _CANDIDATE + nodes * mine.bins * _CATEGORY,
        nodes * len(offers) * _GAIN,
        rows // 8 + nodes * (_NODE + 8 * fixed.numbers.k),
    ]
    return max(told) + HEAD


def sides_bytes(splits: int, rows: int) -> int:
    """Return the bytes of the sides of rows at so many splits, at most."""
    return -(-splits * rows // 8) + HEAD


def expect_predictions(ctx: Context, share: PivodlShare, rows: int) -> None:
    """Take no longer messages of any peer than predicting so many rows at once gives."""
    trees = max(1, len(share.trees))
    for peer in ctx.peers:
        splits = share.record_count(share.parties.index(peer)) if share.trees else 0
        ctx.expect(peer, max(sides_bytes(splits, rows), 4 * trees * rows + HEAD, 8 * rows + HEAD))


def chosen_bytes(params: GrownTrees, sizes: Sequence[int], rows: int) -> int:
    """Return the most bytes of the splits that a party is told it must answer for."""
    splits = params.trees * min((1 << params.depth) - 1, max(rows, 1))
    return splits * (_CANDIDATE + _CATEGORY * max(sizes, default=0)) + HEAD
