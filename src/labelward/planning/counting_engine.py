"""Counting engines: the operations of another engine, counted on integers that nobody encrypts.

The role programs of a protocol run on it unchanged. All else that the *priced* engine would do follows from the
messages and :meth:`~labelward.he.base.Engine.ciphertext_format`. It protects nothing and never leaves the planner.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.he import CipherBlock, Counts, Engine, Layout
from labelward.he.base import Additions, CiphertextFormat, Groups, LevelWork
from labelward.he.plain import PlainEngine


class CountingEngine(PlainEngine):
    """The plain engine of one party, which counts the additions of ``priced``.

    Attributes:
        total: additions so far, for one ciphertext a row.
        seconds: time spent in sums by group, which the priced engine spends in another way.

    Args:
        bits: of the keys of ``priced``.
        scale: how many rows of the training each row stands for.
    """

    def __init__(self, priced: Engine, bits: int = 0, scale: float = 1.0) -> None:
        super().__init__()
        self.priced, self.total, self.seconds = priced, Additions(0, 0.0), 0.0
        self._bits, self._scale = bits, scale

    def level_spacing(self, layout: Layout, work: LevelWork, bits: int) -> int:
        """Return what the priced engine would say."""
        whole = msgspec.structs.replace(layout, rows=round(layout.rows * self._scale))
        nodes = tuple(round(rows * self._scale) for rows in work.nodes)
        return self.priced.level_spacing(whole, LevelWork(round(work.rows * self._scale), nodes, work.bins), self._bits)

    def summed(self, groups: Groups, n_groups: int, spacing: int, since: float) -> None:
        """Count a sum by groups as the priced engine would do it."""
        self._count(self.priced.additions(groups, n_groups, spacing=spacing, scale=self._scale), since)

    def added(self, first: NDArray[np.bool_], second: NDArray[np.bool_], since: float) -> None:
        """Count an addition of sums."""
        cells = int(np.count_nonzero(first & second)) if self.priced.skips_empty_sums else first.size
        self._count(Additions(cells, cells), since)

    def _count(self, added: Additions, since: float) -> None:
        self.total = self.total.plus(added)
        self.seconds += time.perf_counter() - since


class PricingEngine(CountingEngine):
    """The plain engine of all parties of a training, which counts every operation of ``priced``.

    Counts are those that a training with ``priced`` would have (:class:`~labelward.he.base.Counts`, its encryptions,
    additions and decryptions), since no split depends on the engine.

    Attributes:
        counts: so far, of all parties together.
        unpacked: the same where each number of a row and of a sum is a ciphertext of its own.
        layout: of the rows last encrypted; None before.
    """

    def __init__(self, priced: Engine, bits: int) -> None:
        super().__init__(priced, priced.key_bits(bits))
        self._lock = threading.Lock()
        self.counts, self.unpacked, self._sum_bytes = Counts(), Counts(), 0
        self._rows, self._row_bytes = 0, 0
        self.layout: Layout | None = None

    def snapshot(self) -> tuple[Counts, Counts]:
        """Return what is counted so far: ciphertexts of the engine, and single numbers."""
        with self._lock:
            return replace(self.counts), replace(self.unpacked)

    def encrypted(self, layout: Layout, rows: int) -> None:
        """Count rows that are encrypted; blocks of no rows only check what an engine takes."""
        if rows:
            self.layout, form = layout, self._format(layout)
            self._rows, self._row_bytes = self._rows + rows, self._row_bytes + form.row_bytes(rows)
            self.counts.encryptions += rows * form.parts
            self.unpacked.encryptions += rows * layout.logical

    def decrypted(self, block: CipherBlock) -> None:
        """Count a block of sums that is decrypted."""
        form = self._format(block.layout)
        self.counts.decryptions += form.sealed(block.count)
        self._sum_bytes += form.sum_bytes(block.count)
        self.unpacked.decryptions += block.count * block.layout.logical

    def wire_bytes(self, plain: int, ciphertexts: int) -> int:
        """Return the bytes of a training with ``priced``.

        Args:
            plain: bytes of the training with this engine.
            ciphertexts: rows and sums in its messages.
        """
        if self.layout is None:
            return plain
        sums = self.unpacked.decryptions // max(1, self.layout.logical)
        own = ciphertexts * 8 * len(self.layout.bounds)
        return plain - own + round((ciphertexts - sums) * self._row_bytes / self._rows) + self._sum_bytes

    def _count(self, added: Additions, since: float) -> None:
        if self.layout is not None:  # parties that sum do so at the same time
            with self._lock:
                self.counts.additions += added.number * self._format(self.layout).parts
                self.unpacked.additions += added.number * self.layout.logical

    def _format(self, layout: Layout) -> CiphertextFormat:
        return self.priced.ciphertext_format(layout, self._bits)
