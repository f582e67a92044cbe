"""How sums of a level travel: the passive party's parts, and what the active party makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.errors import PeerError
from labelward.he.base import CipherBlock, Layout, PrivateKey
from labelward.kernels.split_search import CATEGORICAL
from labelward.messages.base import Array
from labelward.messages.tree import DecryptedSums
from labelward.messages.tree import LevelHistograms as LevelSumsMessage
from labelward.party.context import Context
from labelward.protocols.tree.cells import Told
from labelward.protocols.tree.columns import like_sizes
from labelward.protocols.tree.level import Block, LevelSums

__all__ = ["Asked", "parts", "receive_sums"]

Integers = NDArray[np.int64]

_SUMS_AT_ONCE = 1 << 16
_CELLS_AT_ONCE = 1 << 24
_MOST_PARTS = 1 << 16
_MOST_BINS = (1 << 16) - 1  # codes have 16 bits, one of which is for missing values
_MOST_CATEGORIES = 1000  # no table's column is encoded with more
_MOST_COLUMNS = 1 << 20


def parts(sizes: NDArray[np.int32], slots: int, rows: int) -> list[list[int]]:
    """Return the columns of each part of a level: columns of like size together, so that few bins are empty.

    Args:
        sizes: bins of each column.
        slots: nodes to sum.
        rows: that are summed. No part asks for more than some 65,000 sums or 64 MiB of group numbers, but for one
            column's.
    """
    found: list[list[int]] = []
    for columns in like_sizes(sizes):
        largest = int(sizes[columns].max())
        most = max(1, min(_SUMS_AT_ONCE // (slots * largest), _CELLS_AT_ONCE // max(1, rows)))
        found += [columns[start : start + most].tolist() for start in range(0, len(columns), most)]
    return found


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the active party asked of a peer.

    Attributes:
        tree: the peer's number of the tree.
        nodes: that were to be summed.
        most_bins: that any ordered column may have.
        above: the size and kind of each of the peer's columns, as it told them with the level above; None where this is
            its first level of the tree.
        totals: int64 [nodes, k] of all rows of the nodes.
        count: which of the k numbers counts rows.
    """

    peer: str
    tree: int
    depth: int
    nodes: tuple[int, ...]
    layout: Layout
    most_bins: int
    above: Mapping[int, tuple[int, int]] | None
    totals: Integers
    count: int


def receive_sums(ctx: Context, asked: Asked, private: PrivateKey) -> LevelSums:
    """Receive, decrypt and observe all parts of a peer's level.

    Raises:
        PeerError: a part does not fit what was asked, or the parts do not fit together. Nothing of a part is unpacked
            before its columns, their bins and its cells are known to be what may come.
    """
    received = list(_receive(ctx, asked, private))
    columns = [column for message, _ in received for column in message.columns]
    if sorted(columns) != list(range(len(columns if asked.above is None else asked.above))):
        raise _wrong(asked, "sent sums that leave out columns or repeat them", 0)
    sizes, kinds = np.ones(len(columns), dtype=np.int32), np.zeros(len(columns), dtype=np.int8)
    sums_of: dict[int, Integers] = {}
    for message, part in received:
        at = list(message.columns)
        sizes[at] = message.sizes
        if message.kinds:
            kinds[at] = np.frombuffer(message.kinds, dtype=np.int8)
        sums_of.update(zip(at, part, strict=True))
    return LevelSums(asked.nodes, tuple(_block(each, sums_of, sizes, kinds) for each in like_sizes(sizes)))


def _block(columns: Integers, sums_of: dict[int, Integers], sizes: NDArray[np.int32], kinds: NDArray[np.int8]) -> Block:
    """Return the sums of some columns in one array; bins that a column does not have are empty."""
    own, first = sizes[columns], sums_of[int(columns[0])]
    sums = np.zeros((len(columns), first.shape[0], int(own.max()), first.shape[2]), dtype=np.int64)
    for position, column in enumerate(columns.tolist()):
        given = sums_of[column][:, : own[position]]
        sums[position, :, : given.shape[1]] = given
    return Block(columns, sums, own, kinds[columns])


def _receive(ctx: Context, asked: Asked, private: PrivateKey) -> Iterator[tuple[LevelSumsMessage, Integers]]:
    part, total, told_of = 0, 1, 0
    while part < total:
        step = (asked.tree, asked.depth, part)
        message = ctx.recv(asked.peer, LevelSumsMessage, step)
        total = message.parts if part == 0 else total
        _check(asked, message, part, total)
        told_of += len(message.columns)
        if told_of > (_MOST_COLUMNS if asked.above is None else len(asked.above)):
            raise _wrong(asked, f"sent sums of {told_of} columns, which are more than it can have", part, told_of)
        with ctx.blaming(asked.peer, "LevelSums", step):
            told = Told.unpack(message.cells, message.implied, message.sizes, len(asked.nodes))
            sealed = _sealed(asked, message, part, len(told.sent))
            with ctx.phase("decrypt"):
                values = private.decrypt(sealed)[0]
            sums = told.whole(values, asked.totals, asked.count)
        columns, nodes, bins, k = sums.shape
        flat = Array.pack(sums.reshape(columns, nodes * bins, k))
        observed = DecryptedSums(asked.tree, asked.depth, asked.peer, asked.nodes, message.columns, bins, flat)
        ctx.observe(observed)
        yield message, sums
        part += 1


def _check(asked: Asked, message: LevelSumsMessage, part: int, total: int) -> None:
    sizes, kinds = message.sizes, message.kinds
    if message.part != part or message.parts != total or not 1 <= total <= _MOST_PARTS:
        raise _wrong(
            asked, f"sent part {message.part} of {message.parts} where {part} of {total} is due", part, message.part
        )
    if len(sizes) != len(message.columns) or len(kinds) not in (0, len(sizes)) or any(kind > 3 for kind in kinds):
        raise _wrong(asked, "sent sums whose columns are not described", part)
    described = list(zip(sizes, kinds or bytes(len(sizes)), strict=True))
    bins = min(asked.most_bins, _MOST_BINS)
    for size, kind in described:
        if not 1 <= size <= (_MOST_CATEGORIES if kind == CATEGORICAL else bins):
            raise _wrong(asked, f"sent {size} bins of a column", part, size)
    if asked.above is not None and [asked.above.get(column) for column in message.columns] != described:
        raise _wrong(asked, "sent sums of other columns than before", part)
    if len(sizes) > 1 and len(sizes) * len(asked.nodes) * max(sizes) > _SUMS_AT_ONCE:
        raise _wrong(asked, f"sent {len(sizes)} columns of {max(sizes)} bins in one message", part, len(sizes))


def _sealed(asked: Asked, message: LevelSumsMessage, part: int, cells: int) -> CipherBlock:
    """Return the sums as they may be decrypted."""
    sealed = message.sums
    if not isinstance(sealed, CipherBlock):
        raise _wrong(asked, "sent no sums", part)
    if sealed.shape != (1, cells) or sealed.layout != asked.layout:
        raise _wrong(asked, "sent sums of other cells than it tells of", part)
    return sealed


def _wrong(asked: Asked, reason: str, part: int, value: int | None = None) -> PeerError:
    return PeerError(
        asked.peer, reason, message="LevelSums", step=(asked.tree, asked.depth, part), code="peer-message", value=value
    )
