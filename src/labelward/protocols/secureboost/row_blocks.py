"""Encrypted rows as they arrive at a passive party, block by block."""

from __future__ import annotations

from collections.abc import Iterator

from labelward.errors import quoted, wrong_message
from labelward.he.base import CipherBlock, EncryptedRows, PublicKey
from labelward.messages.base import wire_name
from labelward.messages.tree import EncryptedForestRows, EncryptedLevelRows, EncryptedTreeRows
from labelward.party.context import Context
from labelward.protocols.secureboost import row_encoding
from labelward.protocols.secureboost.row_encoding import block_count

CHUNK_ROWS = 65_536
"""Rows that are summed at a time while others are still due: enough for joint columns to pay."""


def chunks(rows: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of consecutive chunks of ``step`` rows; the last one may have fewer."""
    for start in range(0, rows, max(1, step)):
        yield start, min(start + step, rows)


class IncomingRows:
    """The encrypted rows of one tree, of all trees of a forest, or of a level's nodes, at a passive party.

    Args:
        kind: the message that carries them.
        step: what it belongs to, such as the tree's number; nothing in a forest.
        n: how many rows are due.
        spacing: of these rows.
    """

    def __init__(
        self,
        ctx: Context,
        public: PublicKey,
        kind: type[EncryptedTreeRows] | type[EncryptedForestRows] | type[EncryptedLevelRows],
        step: tuple[int, ...],
        n: int,
        spacing: int = 1,
    ) -> None:
        self.n = n
        self._ctx, self._public, self._kind, self._step, self._spacing = ctx, public, kind, step, spacing
        self._rows: EncryptedRows | None = None
        self._part = 0

    @property
    def rows(self) -> EncryptedRows:
        """The rows that have arrived, at least one."""
        assert self._rows is not None
        return self._rows

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of chunks of all rows, each once it has arrived; a single chunk if all have.

        Raises:
            PeerError: the active party sent blocks other than those due, or was silent for too long.
        """
        for start, stop in chunks(self.n, self.n if self._arrived() == self.n else CHUNK_ROWS):
            while self._arrived() < stop:
                self._receive_block()
            yield start, stop

    def _arrived(self) -> int:
        return 0 if self._rows is None else self._rows.have

    def _receive_block(self) -> None:
        ctx, part = self._ctx, self._part
        step = (*self._step, part)
        message = ctx.recv(ctx.active, self._kind, step)
        name, block = wire_name(self._kind), message.gradients
        due = min(row_encoding.BLOCK_ROWS // self._spacing, self.n - self._arrived())
        reason, value, parts = "", None, block_count(self.n, self._spacing)
        if (message.part, message.parts) != (part, parts):
            reason = f"sent block {message.part} of {message.parts} where {part} of {parts} is due"
            value = message.part
        elif not isinstance(block, CipherBlock) or block.shape != (due,):
            reason = f"sent no block of {due} encrypted rows"
        elif block.layout.spacing != self._spacing:
            reason = f"sent rows of spacing {quoted(block.layout.spacing)} where {self._spacing} is due"
        elif due * sum(block.layout.widths()) > 8 * len(block.data):
            # Memory for the rows follows from the layout: a layout that the data does not fill is refused first.
            numbers, size = len(block.layout.bounds), len(block.data)
            reason = f"announces {numbers} numbers a row, which {size} bytes cannot hold"
        if reason or not isinstance(block, CipherBlock):
            raise wrong_message(ctx.active, name, reason, step, value=value)
        with ctx.phase("prepare rows"), ctx.blaming(ctx.active, name, step):
            if self._rows is None:
                self._rows = self._public.allocate_rows(block.layout, self.n)
            self._rows.add(block)
        self._part += 1
