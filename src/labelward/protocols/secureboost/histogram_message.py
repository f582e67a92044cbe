"""Histograms of a level: which nodes are summed, which sums travel, and what the active party makes of them.

A *cell* is one (column, node, bin). Of two siblings the one with fewer rows is summed; the other follows by
subtraction from their parent. Empty cells do not travel. Where no row of a node lacks a column's value, the cells of
that column and node add up to the node's total, which the active party has: then the fullest cell is *implied*, neither
summed nor sent, and the active party derives it as the total minus the others. So a column that mostly has one value
costs its other entries only, and a constant column costs nothing.

This reveals nothing more than sending every cell does. The number of rows in a cell is one of the numbers that its sum
packs (:attr:`~labelward.kernels.row_layout.RowLayout.count`), so the active party decrypts all of these counts. Which
cells are empty, whether they add up to the node's rows, and which is the fullest all follow from them; the node's
total it could always compute. That bitmap and implied bins are the right ones is checked (:meth:`CellMask.fill`), so
the choice cannot carry a message of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from labelward.errors import CodecError, PeerError, wrong_message
from labelward.he.base import CipherBlock, Layout, PrivateKey
from labelward.kernels.histogram import fill_cells, impossible_node, level_sums, node_counts
from labelward.kernels.node_rows import parent, sibling
from labelward.kernels.split_search import CATEGORICAL, is_monotone
from labelward.messages.base import Array
from labelward.messages.tree import DecryptedSums, LevelHistograms
from labelward.party.context import Context
from labelward.protocols.secureboost.column_binner import LevelBins, group_by_width

Integers = NDArray[np.int64]

_NO_BIN = 0xFFFF  # no bin has this number: codes of 16 bits keep it for a missing value
_MAX_SUMS = 1 << 16  # of a message
_MAX_GROUPS = 1 << 24  # rows x columns of a message: group numbers take four bytes each
_MAX_MESSAGES = 1 << 16
_MAX_BINS = (1 << 16) - 1  # codes have 16 bits, one of which is for missing values
_MAX_CATEGORIES = 1000  # no table's column is encoded with more
_MAX_COLUMNS = 1 << 20


@dataclass(frozen=True)
class HistogramBlock:
    """Sums of columns of similar width.

    Attributes:
        columns: int64 [columns]: positions among the columns that the party drew for the tree.
        sums: int64 [columns, nodes, bins, k].
        sizes: int32 [columns]: number of bins of each column.
        kinds: int8 [columns]: 0 ordered, 1 categorical, 2 rising, 3 falling.
        starts: bool [columns, nodes, bins]: where bins were summed together, the lowest of each such cell, at which the
            sums stand; None: each bin is a cell. Not bin 0 where its cell includes the rows without a value.
    """

    columns: Integers
    sums: Integers
    sizes: NDArray[np.int32]
    kinds: NDArray[np.int8]
    starts: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class PartyHistograms:
    """One party's sums of a level, for these nodes."""

    nodes: tuple[int, ...]
    blocks: tuple[HistogramBlock, ...]

    @property
    def monotone(self) -> bool:
        """Whether any column has a monotone constraint."""
        return any(is_monotone(block.kinds) for block in self.blocks)

    def described(self) -> dict[int, tuple[int, int]]:
        """Return the size and kind of each column."""
        return {
            column: (size, kind)
            for block in self.blocks
            for column, size, kind in zip(
                *(each.tolist() for each in (block.columns, block.sizes, block.kinds)), strict=True
            )
        }


@dataclass(frozen=True, kw_only=True)
class HistogramRequest:
    """The active party's request to a peer, kept until the answer comes.

    Attributes:
        tree: the peer's number of the tree.
        wanted: the nodes of the level that the peer's columns may split.
        nodes: the nodes that are to be summed, from which those of all wanted nodes follow.
        max_bins: of an ordered column.
        parents: the peer's histograms of the level above; None at its first level of the tree.
        totals: by node, int64 [k], of all rows of each node that is wanted or to be summed.
        range_of: by node, the least and the largest that each number is in one of its rows: int64 [k] both.
        count: which of the k numbers counts rows.
        columns: the most that the peer has, as agreed; None: not agreed.
    """

    peer: str
    tree: int
    depth: int
    wanted: tuple[int, ...]
    nodes: tuple[int, ...]
    layout: Layout
    max_bins: int
    parents: PartyHistograms | None
    totals: Mapping[int, Integers]
    range_of: Mapping[int, tuple[Integers, Integers]]
    count: int
    columns: int | None = None

    @property
    def most_sums(self) -> int:
        """The most sums of a message of the answer: those of several columns, or of one."""
        return max(_MAX_SUMS, len(self.nodes) * max(min(self.max_bins, _MAX_BINS), _MAX_CATEGORIES))

    @cached_property
    def described(self) -> dict[int, tuple[int, int]] | None:
        """Size and kind of each column, as the level above had them."""
        return None if self.parents is None else self.parents.described()

    def error(self, reason: str, part: int, value: int | None = None) -> PeerError:
        """Return the error of an answer that does not match the request."""
        step = (self.tree, self.depth, part)
        return wrong_message(self.peer, "LevelSums", reason, step, value=value)


def nodes_to_sum(wanted: Sequence[int], size: Mapping[int, int], *, subtract: bool) -> tuple[int, ...]:
    """Return the nodes whose sums give those of all wanted nodes: the smaller one of each two siblings.

    Args:
        size: rows of each wanted node and of its sibling.
        subtract: whether subtraction is exact: siblings share their candidates, and their parent's sums are known.
    """
    if not subtract or list(wanted) == [0]:
        return tuple(wanted)
    smaller = {min((size[node], node), (size[sibling(node)], sibling(node)))[1] for node in wanted}
    return tuple(sorted(smaller))


def own_histograms(
    bins: LevelBins, slot: NDArray[np.int32], values: Integers, nodes: tuple[int, ...]
) -> PartyHistograms:
    """Return the histograms of a party's own columns, from unencrypted numbers.

    Args:
        slot: int32 [rows]: the position in ``nodes`` of each row's node, -1 for none.
        values: int64 [rows, k].
    """
    blocks = []
    for columns, codes in bins.blocks:
        sizes = bins.sizes[columns]
        sums = level_sums(codes, slot, values, len(nodes), int(sizes.max()))
        blocks.append(HistogramBlock(columns, sums, sizes, bins.kinds[columns]))
    return PartyHistograms(nodes, tuple(blocks))


def add_siblings(
    wanted: Sequence[int],
    summed: PartyHistograms,
    parents: PartyHistograms | None,
    totals: Mapping[int, Integers] = MappingProxyType({}),
) -> PartyHistograms:
    """Return the histograms of all wanted nodes: those that were summed, and their siblings by subtraction.

    Args:
        wanted: nodes.
        summed: histograms of some of them, or of their siblings.
        parents: histograms of the level above.
        totals: of all rows of each wanted node, where bins may have been merged.
    """
    if summed.nodes == tuple(wanted):
        return summed
    if parents is None:
        raise ValueError("the histograms of the parents are missing")
    at = {node: position for position, node in enumerate(summed.nodes)}
    above = {node: position for position, node in enumerate(parents.nodes)}
    blocks = []
    for block, whole in zip(summed.blocks, parents.blocks, strict=True):
        columns, _, bins, k = block.sums.shape
        sums = np.empty((columns, len(wanted), bins, k), dtype=np.int64)
        for position, node in enumerate(wanted):
            if node in at:
                sums[:, position] = block.sums[:, at[node]]
            else:
                of_parent, other = whole.sums[:, above[parent(node)]], at[sibling(node)]
                if block.starts is not None:
                    of_parent = _merged(of_parent, block.starts[:, other])
                np.subtract(of_parent, block.sums[:, other], out=sums[:, position])
                if block.starts is not None:  # the parent may have had rows without a value apart
                    joined = ~block.starts[:, other, 0]
                    sums[joined, position, 0] += totals[node] - sums[joined, position].sum(axis=1)
        blocks.append(replace(block, sums=sums))
    return PartyHistograms(tuple(wanted), tuple(blocks))


def _merged(sums: Integers, starts: NDArray[np.bool_]) -> Integers:
    """Return int64 [columns, bins, k]: sums of bins added up at the start of their cell."""
    found, bins = np.zeros_like(sums), np.arange(sums.shape[1])
    cell = np.maximum.accumulate(np.where(starts, bins, 0), axis=1)
    np.add.at(found, (np.arange(len(sums))[:, None], cell), sums)
    return found


# -- which cells travel ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellMask:
    """The cells of one message.

    Attributes:
        cells: bool [columns, nodes, bins]: which hold rows.
        implied: int64 [columns, nodes]: the bin that is left out, -1 for none.
    """

    cells: NDArray[np.bool_]
    implied: Integers

    @classmethod
    def of(
        cls,
        codes: NDArray[np.uint8] | NDArray[np.uint16],
        slot: NDArray[np.int32],
        counts: NDArray[np.uint8],
        slots: int,
        bins: int,
    ) -> Self:
        """Return the mask for some rows.

        Args:
            codes: [rows, columns].
            slot: int32 [rows]: each row's node, -1 for none of these.
            counts: uint8 [rows]: how often each row was drawn.
            slots: number of nodes.
            bins: of the widest column.
        """
        rows = level_sums(codes, slot, counts[:, None], slots, bins)[..., 0]
        total = node_counts(slot, counts, slots)
        complete = (rows.sum(axis=2) == total) & (total > 0)
        return cls(rows > 0, np.where(complete, rows.argmax(axis=2), -1))

    @classmethod
    def unpack(cls, cells: bytes, implied: bytes, sizes: tuple[int, ...], slots: int) -> Self:
        """Return the mask that :meth:`packed` wrote.

        Args:
            sizes: number of bins of each column.
            slots: number of nodes.

        Raises:
            CodecError: wrong length, or a bin that its column does not have, or an implied bin that is empty.
        """
        bins = max(sizes, default=1)
        shape = (len(sizes), slots, bins)
        if len(cells) != (len(sizes) * slots * bins + 7) // 8:
            reason = f"{len(cells)} bytes for the bitmap of {len(sizes)}·{slots}·{bins} cells"
            raise CodecError(reason, code="malformed", value=len(cells))
        if len(implied) != 2 * len(sizes) * slots:
            reason = f"{len(implied)} bytes for the implied bins of {len(sizes)} columns and {slots} nodes"
            raise CodecError(reason, code="malformed", value=len(implied))
        bits = np.unpackbits(np.frombuffer(cells, np.uint8), bitorder="little")
        filled = bits[: len(sizes) * slots * bins].astype(np.bool_).reshape(shape)
        if (filled & (np.arange(bins) >= np.array(sizes, dtype=np.int64)[:, None, None])).any():
            raise CodecError("a cell has rows in a bin that its column does not have", code="peer-message")
        left_out = np.frombuffer(implied, "<u2").astype(np.int64).reshape(shape[:2])
        left_out[left_out == _NO_BIN] = -1
        column, node = np.nonzero(left_out >= 0)
        bin_ = left_out[column, node]
        if (bin_ >= bins).any() or not filled[column, node, bin_].all():
            raise CodecError("an implied bin is empty, or its column does not have it", code="peer-message")
        return cls(filled, left_out)

    def packed(self) -> tuple[bytes, bytes]:
        """Return the cells as bits (row-major, little-endian within a byte), and the implied bins as uint16."""
        bits = np.packbits(self.cells.reshape(-1), bitorder="little").tobytes()
        return bits, np.where(self.implied < 0, _NO_BIN, self.implied).astype("<u2").tobytes()

    @property
    def sent(self) -> Integers:
        """The cells that travel: int64, ascending positions in row-major order."""
        return np.flatnonzero(self._sent()).astype(np.int64)

    def fill(self, values: Integers, totals: Integers, count: int) -> Integers:
        """Return the sums of all cells: int64 [columns, nodes, bins, k].

        Args:
            values: int64 [cells that travel, k].
            totals: int64 [nodes, k] of all rows of the nodes.
            count: which of the k numbers counts rows.

        Raises:
            CodecError: the row counts contradict the mask: less than one row in a filled cell, more rows than the
                node has, an implied bin although values are missing or none although none is missing, or an implied
                bin that is not the fullest.
        """
        sums = np.zeros((*self.cells.shape, values.shape[1]), dtype=np.int64)
        used, rows = fill_cells(self.cells, self.implied, values, totals, count, sums)
        if used == -1:
            raise CodecError(f"the sums leave {rows} rows to a filled cell", code="peer-message", value=rows)
        if used == -2:
            raise CodecError("the row counts of a column do not match its node", code="peer-message")
        if used == -3:
            raise CodecError("the implied bin is not the fullest", code="peer-message")
        if used != len(values):
            raise ValueError(f"{len(values)} sums do not fit the cells that travel")
        return sums

    def _sent(self) -> NDArray[np.bool_]:
        sent = self.cells.copy()
        column, node = np.nonzero(self.implied >= 0)
        sent[column, node, self.implied[column, node]] = False
        return sent


def split_into_messages(sizes: NDArray[np.int32], slots: int, rows: int) -> list[list[int]]:
    """Return the columns of each message of a level: columns of similar width together, so that few bins are empty.

    Args:
        sizes: number of bins of each column.
        slots: nodes to sum.
        rows: that are summed. No message has more than some 65,000 sums or takes more than 64 MiB of group numbers,
            unless it has a single column.
    """
    messages: list[list[int]] = []
    for columns in group_by_width(sizes):
        widest = int(sizes[columns].max())
        most = max(1, min(_MAX_SUMS // (slots * widest), _MAX_GROUPS // max(1, rows)))
        messages += [columns[start : start + most].tolist() for start in range(0, len(columns), most)]
    return messages


# -- the active party's side -------------------------------------------------------------------------------------------


def receive_histograms(ctx: Context, request: HistogramRequest, private: PrivateKey) -> PartyHistograms:
    """Receive, decrypt and observe all messages of a peer's level; return the histograms of all wanted nodes.

    Raises:
        PeerError: a message does not match the request, or the messages do not fit together. Columns, bins and cells
            are checked before anything is unpacked, so that a few bytes never become many.
    """
    received = list(_receive(ctx, request, private))
    columns = [column for message, *_ in received for column in message.columns]
    if sorted(columns) != list(range(len(columns if request.described is None else request.described))):
        raise request.error("sent sums that leave out columns or repeat them", 0)
    sizes, kinds = np.ones(len(columns), dtype=np.int32), np.zeros(len(columns), dtype=np.int8)
    sums_of: dict[int, Integers] = {}
    starts_of: dict[int, NDArray[np.bool_]] = {}
    for message, part, starts in received:
        at = list(message.columns)
        if starts is not None:
            starts_of.update(zip(at, starts, strict=True))
        sizes[at] = message.sizes
        if message.kinds:
            kinds[at] = np.frombuffer(message.kinds, dtype=np.int8)
        sums_of.update(zip(at, part, strict=True))
    if starts_of and len(starts_of) != len(columns):
        raise request.error("merged bins of some columns only", 0)
    blocks = tuple(_block(each, sums_of, sizes, kinds, starts_of) for each in group_by_width(sizes))
    found = add_siblings(request.wanted, PartyHistograms(request.nodes, blocks), request.parents, request.totals)
    _check_range(request, found)
    return found


def _check_range(request: HistogramRequest, found: PartyHistograms) -> None:
    """Refuse sums that no rows of their node have."""
    if not found.nodes:
        return
    whole = np.stack([request.totals[node] for node in found.nodes])
    least, most = (np.stack(each) for each in zip(*map(request.range_of.__getitem__, found.nodes), strict=True))
    for block in found.blocks:
        position = impossible_node(block.sums, whole, least, most, request.count)
        if position >= 0:
            node = found.nodes[position]
            raise request.error(f"sent sums that no rows of node {node} have", 0, node)


def _block(
    columns: Integers,
    sums_of: dict[int, Integers],
    sizes: NDArray[np.int32],
    kinds: NDArray[np.int8],
    starts_of: dict[int, NDArray[np.bool_]],
) -> HistogramBlock:
    """Return the sums of some columns in one array; bins that a column does not have are empty."""
    own, first = sizes[columns], sums_of[int(columns[0])]
    sums = np.zeros((len(columns), first.shape[0], int(own.max()), first.shape[2]), dtype=np.int64)
    for position, column in enumerate(columns.tolist()):
        given = sums_of[column][:, : own[position]]
        sums[position, :, : given.shape[1]] = given
    starts = np.zeros(sums.shape[:3], dtype=np.bool_) if starts_of else None
    if starts is not None:
        for position, column in enumerate(columns.tolist()):
            marked = starts_of[column][:, : own[position]]
            starts[position, :, : marked.shape[1]] = marked
    return HistogramBlock(columns, sums, own, kinds[columns], starts)


def pack_starts(cells: NDArray[np.int32], sizes: tuple[int, ...]) -> bytes:
    """Return the lowest bins of cells, int32 [nodes, columns, bins + 1], as bits by column, node and bin."""
    joined, bins = cells[..., -1] == 0, np.arange(max(sizes))
    starts = (cells[..., : len(bins)] == bins) & (bins < np.array(sizes)[:, None])
    starts[joined, 0] = False
    return np.packbits(starts.transpose(1, 0, 2).reshape(-1), bitorder="little").tobytes()


def _receive(
    ctx: Context, request: HistogramRequest, private: PrivateKey
) -> Iterator[tuple[LevelHistograms, Integers, NDArray[np.bool_] | None]]:
    part, total, columns_so_far = 0, 1, 0
    agreed, totals = request.columns or _MAX_COLUMNS, np.stack([request.totals[node] for node in request.nodes])
    while part < total:
        step = (request.tree, request.depth, part)
        message = ctx.recv(request.peer, LevelHistograms, step)
        total = message.parts if part == 0 else total
        _check(request, message, part, total)
        columns_so_far += len(message.columns)
        if columns_so_far > (agreed if request.described is None else len(request.described)):
            reason = f"sent sums of {columns_so_far} columns, which are more than it can have"
            raise request.error(reason, part, columns_so_far)
        with ctx.blaming(request.peer, "LevelSums", step):
            half = (len(message.sizes) * len(request.nodes) * max(message.sizes, default=1) + 7) // 8
            merged = len(message.cells) == 2 * half > 0
            starts, cells = (
                (message.starts(len(request.nodes)), message.cells[:half]) if merged else (None, message.cells)
            )
            mask = CellMask.unpack(cells, message.implied, message.sizes, len(request.nodes))
            if starts is not None and (mask.cells & ~starts)[..., 1:].any():
                raise CodecError("sums stand at a bin that starts no cell", code="peer-message")
            sealed = _sealed(request, message, part, len(mask.sent))
            with ctx.phase("decrypt"):
                values = private.decrypt(sealed)[0]
            sums = mask.fill(values, totals, request.count)
        columns, nodes, bins, k = sums.shape
        flat = Array.pack(sums.reshape(columns, nodes * bins, k))
        ctx.observe(
            DecryptedSums(request.tree, request.depth, request.peer, request.nodes, message.columns, bins, flat)
        )
        yield message, sums, starts
        part += 1


def _check(request: HistogramRequest, message: LevelHistograms, part: int, total: int) -> None:
    sizes, kinds = message.sizes, message.kinds
    if message.part != part or message.parts != total or not 1 <= total <= _MAX_MESSAGES:
        reason = f"sent part {message.part} of {message.parts} where {part} of {total} is due"
        raise request.error(reason, part, message.part)
    if len(sizes) != len(message.columns) or len(kinds) not in (0, len(sizes)) or any(kind > 3 for kind in kinds):
        raise request.error("sent sums without a size and kind of each column", part)
    described = list(zip(sizes, kinds or bytes(len(sizes)), strict=True))
    bins = min(request.max_bins, _MAX_BINS)
    for size, kind in described:
        if not 1 <= size <= (_MAX_CATEGORIES if kind == CATEGORICAL else bins):
            raise request.error(f"sent {size} bins of a column", part, size)
    above = request.described
    if above is not None and [above.get(column) for column in message.columns] != described:
        raise request.error("sent sums of other columns than before", part)
    if len(sizes) > 1 and len(sizes) * len(request.nodes) * max(sizes) > _MAX_SUMS:
        raise request.error(f"sent {len(sizes)} columns of {max(sizes)} bins in one message", part, len(sizes))


def _sealed(request: HistogramRequest, message: LevelHistograms, part: int, cells: int) -> CipherBlock:
    """Return the sums, ready to be decrypted."""
    sealed = message.sums
    if not isinstance(sealed, CipherBlock):
        raise request.error("sent no sums", part)
    if sealed.shape != (1, cells) or sealed.layout != request.layout:
        raise request.error("sent sums of other cells than its bitmap announces", part)
    return sealed
