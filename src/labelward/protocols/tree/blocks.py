"""Encrypted rows on their way: a block leaves as soon as it is made, and is taken in as soon as it comes.

So the active party encrypts the rows of a tree while its peers make the first of them ready for sums, and, where there
are many, sum them at the root. Blocks have a fixed number of rows, so that they tell no more than that number does.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from labelward.errors import PeerError
from labelward.he.base import CipherBlock, EncryptedRows, Integers, Layout, PrivateKey, PublicKey
from labelward.messages.base import wire_name
from labelward.messages.tree import EncryptedForestRows, EncryptedTreeRows
from labelward.party.context import Context

__all__ = ["BLOCK_ROWS", "STRETCH_ROWS", "Arriving", "blocks_of", "encrypted", "stretches_of"]

BLOCK_ROWS = 16_384
"""Rows of a block; the last one may have fewer."""

STRETCH_ROWS = 65_536
"""Rows that are summed at once while others are still to come: columns are then still worth joining."""


def blocks_of(rows: int) -> int:
    """Return in how many blocks so many rows travel."""
    return -(-rows // BLOCK_ROWS)


def stretches_of(rows: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield stretches (start, stop) of so many rows, of ``step`` rows each; the last one may have fewer."""
    for start in range(0, rows, max(1, step)):
        yield start, min(start + step, rows)


def encrypted(
    ctx: Context, private: PrivateKey, values: Integers, layout: Layout
) -> Generator[CipherBlock, None, None]:
    """Encrypt int64 [rows, k] block by block; time is counted that nothing else was done in."""
    with ctx.phase("encrypt"):
        blocks = private.encrypt_blocks(values, layout, BLOCK_ROWS)
    while True:
        with ctx.phase("encrypt"):
            block = next(blocks, None)
        if block is None:
            return
        yield block


class Arriving:
    """The encrypted rows of one tree, or of all trees of a forest, at a passive party.

    Args:
        kind: the message that carries them.
        tree: the tree's number; None in a forest.
        n: how many rows are due.
    """

    def __init__(
        self,
        ctx: Context,
        public: PublicKey,
        kind: type[EncryptedTreeRows] | type[EncryptedForestRows],
        tree: int | None,
        n: int,
    ) -> None:
        self.n = n
        self._ctx, self._public, self._kind, self._tree = ctx, public, kind, tree
        self._rows: EncryptedRows | None = None
        self._part = 0

    @property
    def rows(self) -> EncryptedRows:
        """Those that have come, which is at least one."""
        assert self._rows is not None
        return self._rows

    def stretches(self) -> Iterator[tuple[int, int]]:
        """Yield stretches (start, stop) of all rows, each once it has come; if all are there, one stretch.

        Raises:
            PeerError: the active party sent other blocks than are due, or was silent for too long.
        """
        for start, stop in stretches_of(self.n, self.n if self._have() == self.n else STRETCH_ROWS):
            while self._have() < stop:
                self._take()
            yield start, stop

    def _have(self) -> int:
        return 0 if self._rows is None else self._rows.have

    def _take(self) -> None:
        ctx, part = self._ctx, self._part
        step = (part,) if self._tree is None else (self._tree, part)
        message = ctx.recv(ctx.active, self._kind, step)
        name, block, due = wire_name(self._kind), message.gradients, min(BLOCK_ROWS, self.n - self._have())
        if (message.part, message.parts) != (part, blocks_of(self.n)):
            reason = f"sent block {message.part} of {message.parts} where {part} of {blocks_of(self.n)} is due"
            raise PeerError(ctx.active, reason, message=name, step=step, code="peer-message", value=message.part)
        if not isinstance(block, CipherBlock) or block.shape != (due,):
            raise PeerError(
                ctx.active, f"sent no block of {due} encrypted rows", message=name, step=step, code="peer-message"
            )
        if due * sum(block.layout.widths()) > 8 * len(block.data):
            reason = (
                f"tells of {len(block.layout.bounds)} numbers a row, for which {len(block.data)} bytes have no room"
            )
            raise PeerError(ctx.active, reason, message=name, step=step, code="peer-message")
        with ctx.phase("prepare rows"), ctx.blaming(ctx.active, name, step):
            if self._rows is None:
                self._rows = self._public.allocate_rows(block.layout, self.n)
            self._rows.add(block)
        self._part += 1
