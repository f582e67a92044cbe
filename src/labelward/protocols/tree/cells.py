"""Which sums of a level travel: those of bins that hold rows, but of a node that a column knows whole, all but one.

A *cell* is one (column, node, bin). Empty cells are not sent. Where no row of a node lacks a column's value, the cells
of that column and node add up to the node's total, which the active party has: the fullest of them is *implied*. It is
neither summed nor sent, and the active party derives it as the total minus the others. So a column that mostly has one
value costs its other entries only, and one that has a single value costs nothing.

Nothing more is told than by sending every cell. How many rows lie in a cell is one of the numbers that its sum packs
(:attr:`~labelward.kernels.row_layout.RowLayout.count`), and after decryption the active party has all of these counts.
Which cells are empty follows from them, and so does whether they add up to the node's rows, and which is the fullest.
The node's total it could always compute: it made the numbers, and knows the node's rows. Both the bitmap and the
implied bins are thus functions of what it learns anyway; that they are the right ones is checked (:meth:`Told.whole`),
so that the choice can carry no other word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from labelward.errors import CodecError
from labelward.kernels.histogram import level_sums

__all__ = ["Told"]

Integers = NDArray[np.int64]

_NONE = 0xFFFF  # no bin has this number: codes of 16 bits keep it for a missing value


@dataclass(frozen=True)
class Told:
    """The cells of a part of a level.

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
        """Return what is told of these rows.

        Args:
            codes: [rows, columns].
            slot: int32 [rows]: each row's node, -1 for none of these.
            counts: uint8 [rows]: how often each row was drawn.
            slots: number of nodes.
            bins: most bins of a column.
        """
        times = counts.astype(np.int64)[:, None]
        held = level_sums(codes, slot, times, slots, bins)[..., 0]
        whole = level_sums(np.zeros((len(codes), 1), np.uint8), slot, times, slots, 1)[0, :, 0, 0]
        known = (held.sum(axis=2) == whole) & (whole > 0)
        return cls(held > 0, np.where(known, held.argmax(axis=2), -1))

    @classmethod
    def unpack(cls, cells: bytes, implied: bytes, sizes: tuple[int, ...], slots: int) -> Self:
        """Return what the bytes of :meth:`packed` say.

        Args:
            sizes: bins of each column.
            slots: number of nodes.

        Raises:
            CodecError: they have another length, or tell of a bin that a column does not have, or that is empty.
        """
        bins = max(sizes, default=1)
        shape = (len(sizes), slots, bins)
        if len(cells) != (len(sizes) * slots * bins + 7) // 8:
            raise CodecError(
                f"{len(cells)} bytes tell which of {len(sizes)}·{slots}·{bins} cells hold rows",
                code="malformed",
                value=len(cells),
            )
        if len(implied) != 2 * len(sizes) * slots:
            raise CodecError(
                f"{len(implied)} bytes tell the bins that {len(sizes)} columns of {slots} nodes leave out",
                code="malformed",
                value=len(implied),
            )
        bits = np.unpackbits(np.frombuffer(cells, np.uint8), bitorder="little")
        held = bits[: len(sizes) * slots * bins].astype(np.bool_).reshape(shape)
        if (held & (np.arange(bins) >= np.array(sizes, dtype=np.int64)[:, None, None])).any():
            raise CodecError("a cell holds rows in a bin that its column does not have", code="peer-message")
        left_out = np.frombuffer(implied, "<u2").astype(np.int64).reshape(shape[:2])
        left_out[left_out == _NONE] = -1
        column, node = np.nonzero(left_out >= 0)
        bin_ = left_out[column, node]
        if (bin_ >= bins).any() or not held[column, node, bin_].all():
            raise CodecError(
                "a bin that is left out holds no rows, or its column does not have it", code="peer-message"
            )
        return cls(held, left_out)

    def packed(self) -> tuple[bytes, bytes]:
        """Return the cells as bits (row-major, little-endian within a byte), and the bins as uint16."""
        bits = np.packbits(self.cells.reshape(-1), bitorder="little").tobytes()
        return bits, np.where(self.implied < 0, _NONE, self.implied).astype("<u2").tobytes()

    @property
    def sent(self) -> Integers:
        """The cells that travel: int64, ascending positions in row-major order."""
        return np.flatnonzero(self._sent()).astype(np.int64)

    def whole(self, values: Integers, totals: Integers, count: int) -> Integers:
        """Return the sums of all cells: int64 [columns, nodes, bins, k].

        Args:
            values: int64 [cells that travel, k].
            totals: int64 [nodes, k] of all rows of the nodes.
            count: which of the k numbers counts rows.

        Raises:
            CodecError: the counts of rows contradict what was told: a cell with less than one row, more rows than the
                node has, rows without a value where a bin is left out or none where none is, or not the fullest left
                out.
        """
        sums = np.zeros((*self.cells.shape, values.shape[1]), dtype=np.int64)
        sums[self._sent()] = values
        column, node = np.nonzero(self.implied >= 0)
        others = sums[column, node].sum(axis=1)
        sums[column, node, self.implied[column, node]] = totals[node] - others
        held = sums[..., count]
        if (held[self.cells] < 1).any():
            raise CodecError(
                f"the sums leave {int(held[self.cells].min())} rows to a cell that holds some", code="peer-message"
            )
        rows, most = held.sum(axis=2), totals[:, count]
        if ((rows == most) & (most > 0) != (self.implied >= 0)).any() or (rows > most).any():
            raise CodecError("the sums of a column hold other rows than its node", code="peer-message")
        if (held[column, node].argmax(axis=1) != self.implied[column, node]).any():
            raise CodecError("the bin that is left out is not the fullest", code="peer-message")
        return sums

    def _sent(self) -> NDArray[np.bool_]:
        sent = self.cells.copy()
        column, node = np.nonzero(self.implied >= 0)
        sent[column, node, self.implied[column, node]] = False
        return sent
