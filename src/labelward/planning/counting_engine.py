"""Counting engine: the additions of another engine, counted on integers that nobody encrypts.

The role programs of a protocol run on it unchanged. All else that the *priced* engine would do follows from the
messages and :meth:`~labelward.he.base.Engine.ciphertext_format`. It protects nothing and never leaves the planner.
"""

from __future__ import annotations

import math
import time

import numpy as np
from numpy.typing import NDArray

from labelward.he import CipherBlock, Engine, Layout, PublicKey
from labelward.he.base import Additions, EncryptedRows, EncryptedSums, Groups, Integers, PublicMaterial
from labelward.he.plain import PlainEngine
from labelward.rng import SecureRandom


class CountingEngine(PlainEngine):
    """The plain engine of one party, which counts the additions of ``priced``.

    Attributes:
        total: additions so far, for one ciphertext a row.
        seconds: time spent in sums by group, which the priced engine spends in another way.
    """

    def __init__(self, priced: Engine) -> None:
        super().__init__()
        self.priced, self.total, self.seconds = priced, Additions(0, 0.0), 0.0

    def public(self, material: PublicMaterial, *, protection: SecureRandom, insecure: bool = False) -> PublicKey:
        """Open a peer's key; its rows are counted."""
        return _Key(self, super().public(material, protection=protection, insecure=insecure))

    def count(self, added: Additions, since: float) -> None:
        """Count additions, and the time since they began."""
        self.total = Additions(self.total.number + added.number, self.total.effort + added.effort)
        self.seconds += time.perf_counter() - since


class _Key(PublicKey):
    def __init__(self, engine: CountingEngine, plain: PublicKey) -> None:
        self.engine, self.bits, self.counts = plain.engine, plain.bits, plain.counts
        self._counting, self._plain = engine, plain

    @property
    def fingerprint(self) -> bytes:
        return self._plain.fingerprint

    def material(self) -> PublicMaterial:
        return self._plain.material()

    def encrypt(self, values: Integers, layout: Layout) -> EncryptedRows:
        return self._plain.encrypt(values, layout)

    def encrypt_sums(self, values: Integers, layout: Layout) -> CipherBlock:
        return self._plain.encrypt_sums(values, layout)

    def sums(self, block: CipherBlock) -> EncryptedSums:
        return self._plain.sums(block)

    def allocate_rows(self, layout: Layout, n: int) -> EncryptedRows:
        return _Rows(self._counting, self._plain.allocate_rows(layout, n))


class _Rows(EncryptedRows):
    def __init__(self, engine: CountingEngine, plain: EncryptedRows) -> None:
        self.n, self.have, self.layout = plain.n, plain.have, plain.layout
        self._engine, self._plain = engine, plain

    def add(self, block: CipherBlock) -> None:
        self._plain.add(block)
        self.have = self._plain.have

    def block(self) -> CipherBlock:
        return self._plain.block()

    def group_sums(self, groups: Groups, n_groups: int, start: int = 0) -> EncryptedSums:
        since = time.perf_counter()
        sums = _Sums(self._engine, self._plain.group_sums(groups, n_groups, start), ((groups, n_groups),))
        self._engine.count(self._engine.priced.additions(groups, n_groups), since)
        return sums


class _Sums(EncryptedSums):
    """Plain sums, with the groups that they were made from: these tell which cells hold rows."""

    def __init__(self, engine: CountingEngine, plain: EncryptedSums, groups: tuple[tuple[Groups, int], ...]) -> None:
        self.shape, self.layout = plain.shape, plain.layout
        self._engine, self._plain, self._groups = engine, plain, groups

    def __add__(self, other: EncryptedSums) -> EncryptedSums:
        assert isinstance(other, _Sums)
        since, cells = time.perf_counter(), math.prod(self.shape)
        if self._engine.priced.skips_empty_sums:
            cells = int(np.count_nonzero(self._filled() & other._filled()))
        total = _Sums(self._engine, self._plain + other._plain, self._groups + other._groups)
        self._engine.count(Additions(cells, cells), since)
        return total

    def take(self, cells: Integers) -> EncryptedSums:
        return self._plain.take(cells)

    def rerandomize(self) -> CipherBlock:
        return self._plain.rerandomize()

    def _filled(self) -> NDArray[np.bool_]:
        """Return bool [columns × groups]: which cells hold rows."""
        found = np.zeros(math.prod(self.shape), dtype=np.bool_)
        for groups, n_groups in self._groups:
            cells = groups + np.arange(groups.shape[1], dtype=np.int64) * n_groups
            found[cells[groups >= 0]] = True
        return found
