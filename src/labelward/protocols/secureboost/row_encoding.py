"""Rows of a tree, from the sample to the encrypted blocks that leave: which rows, and which integers for each.

The engine sums integers: gradients and hessians in fixed point, a row count, and class flags where a policy needs
them. Encrypted blocks have a fixed number of rows and leave as soon as they are ready, so that the passive parties
prepare the first rows, and sum them at the root, while the active party encrypts the others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.he.base import CipherBlock, Layout, PrivateKey
from labelward.kernels.objectives import Objective
from labelward.kernels.row_layout import FixedPointScales, RowLayout, choose_scales, encode_rows, number_bounds
from labelward.messages.base import Released, RowMask
from labelward.messages.tree import EncryptedForestRows, EncryptedLevelRows, EncryptedTreeRows, TreeStart
from labelward.party.context import HEAD, Context
from labelward.protocols.secureboost.params import TreeModel
from labelward.rng import PrivateSeed, learning

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ReleaseSample = Callable[[str, int, RowMask], Released[RowMask]]
"""Called with peer, tree and rows."""

BLOCK_ROWS = 16_384
"""Rows of an encrypted block; the last block may have fewer."""
_DESCRIBED = 24  # bytes for each sum of a message beside its ciphertexts, at most: cells, sizes, implied bins


@dataclass(frozen=True)
class RowSample:
    """The rows on which a tree grows.

    Attributes:
        counts: int64 [rows]: how often each row was drawn.
        factors: float64 [rows]: how many rows each drawn row represents; None: one each.
    """

    counts: Integers
    factors: Floats | None = None

    def weigh(self, weights: Floats) -> Floats:
        """Return row weights, float64 [rows], times the number of rows that each represents."""
        return weights if self.factors is None else weights * self.factors


def sample_rows(
    params: TreeModel, sizes: Floats, *, seed: int, party: str, tree: int, private: PrivateSeed
) -> RowSample:
    """Draw the rows of one tree.

    Args:
        sizes: float64 [rows]: size of each row's gradient.
        party: the active party, which draws.
        tree: its number.
        private: the active party's own seed, for draws that depend on gradients and so on labels.

    Reference: Ke et al., LightGBM (2017), Algorithm 2, for ``"goss"``: the rows of the largest gradients, and a
    sample of the others, which represents all of these.
    """
    n = len(sizes)
    counts = np.zeros(n, dtype=np.int64)
    if params.sampling == "uniform" and params.row_fraction >= 1.0 and not params.replace:
        return RowSample(np.ones(n, dtype=np.int64))
    if params.sampling == "goss":
        rng = private.learning(seed, tree, "rows")
        mixed = rng.permutation(n)  # ties between rows are broken in an order that no other party can repeat
        order = mixed[np.argsort(-sizes[mixed], kind="stable")]
        top, rest = max(1, int(params.top_rate * n)), max(1, int(params.other_rate * n))
        others = np.sort(rng.choice(order[top:], min(rest, n - top), replace=False))
        factors = np.ones(n)
        factors[others] = (n - top) / max(1, len(others))
        counts[order[:top]] = counts[others] = 1
        return RowSample(counts, factors)
    rng = learning(seed, party, tree, "rows")
    drawn = rng.choice(n, max(1, int(params.row_fraction * n)), replace=params.replace)
    np.add.at(counts, drawn, 1)
    return RowSample(counts)


@dataclass(frozen=True, kw_only=True)
class EncodedGradients:
    """Rows as integers: int64 [rows, k], the meaning of the k numbers, and the layout in which engines encrypt them."""

    values: Integers
    numbers: RowLayout
    scales: FixedPointScales
    layout: Layout


class GradientEncoder:
    """Fixed-point encoding of gradients and hessians.

    Args:
        objective: whose gradients are encoded.
        weighted: whether any row weight may differ from 1, sampling weights included.
        flags: int64 [rows, C - 1]: one-hot classes without the first, where policies need class counts; else no column.
        precision: bits after the binary point.
    """

    def __init__(self, objective: Objective, flags: Integers, precision: int, *, weighted: bool) -> None:
        self.objective, self.flags, self.precision, self.weighted = objective, flags, precision, weighted

    def encode(self, g: Floats, h: Floats, weights: Floats, rows: Integers, outputs: int) -> EncodedGradients:
        """Encode some rows; the others are 0.

        Args:
            g: float64 [rows, outputs], not weighted.
            h: float64 [rows, outputs or 0].
            weights: float64 [rows].
            rows: int64: positions of the rows to encode.
        """
        objective, flags = self.objective, self.flags
        whole = objective.outputs == outputs
        hessians, implied = h.shape[1], objective.implied if whole and outputs > 1 else ""
        if self.weighted:
            g, h = g * weights[:, None], weights[:, None] * (h if hessians else np.ones((len(g), 1)))
            hessians, implied = max(1, hessians), "weight" if implied == "count" else implied
        classes = flags.shape[1] + 1 if flags.shape[1] else 0
        numbers = RowLayout(outputs=outputs, hessians=hessians, implied=implied, classes=classes)
        # The layout travels, so bounds on its numbers may follow from the objective but never from the weights.
        within = objective.bounded and not self.weighted
        scales = choose_scales(g[rows], h[rows], self.precision, bounded=within, implied=implied)
        known = within or implied == "count"
        g_most, h_most = (objective.g_most, objective.h_most) if known else self._precision_bounds(scales)
        values = np.zeros((len(g), numbers.k), dtype=np.int64)
        chosen = flags[rows] if flags.shape[1] else None
        values[rows] = encode_rows(numbers, g[rows], h[rows], chosen, scales)
        layout = Layout(
            bounds=number_bounds(numbers, scales, g_most, h_most), rows=len(rows), logical=self._logical(numbers)
        )
        return EncodedGradients(values=values, numbers=numbers, scales=scales, layout=layout)

    def _precision_bounds(self, scales: FixedPointScales) -> tuple[float, float]:
        """Return bounds that are independent of the gradients: the largest numbers that the precision can hold."""
        return 2.0**self.precision / scales.g, 2.0**self.precision / scales.h

    @staticmethod
    def _logical(numbers: RowLayout) -> int:
        """Return how many numbers a protocol without packing encrypts: g, h and each class, but no row count."""
        return numbers.outputs + max(1, numbers.hessians) + numbers.classes


@dataclass(frozen=True, kw_only=True)
class TreeDraft:
    """A tree that is about to grow.

    Attributes:
        tree: its number.
        output: the output to which the tree adds; -1: all.
        participants: the peers that may take part.
        counts: int64 [training rows]: how often each row was drawn.
        encoded: gradients of the rows as integers.
        repairs: the same on true labels, where a policy may repair the tree; else None.
        shared: whether all trees share one encryption of all rows; ``encoded`` is then that of all rows.
        route: whether owners are asked for the sides of the rows on which the tree does not grow.
        prepare: whether rows are encrypted for another tree, so that work for it may begin.
    """

    tree: int
    output: int
    participants: frozenset[str]
    counts: Integers
    encoded: EncodedGradients
    repairs: EncodedGradients | None
    shared: bool
    route: bool = False
    prepare: bool = False

    def summed(self, encoded: EncodedGradients) -> Integers:
        """Return int64 [training rows, k]: each row as often as it was drawn."""
        return encoded.values * self.counts[:, None] if self.shared else encoded.values

    def encrypted_rows(self) -> int:
        """Return how many rows travel."""
        return len(self.counts) if self.shared else int(np.count_nonzero(self.counts))

    def encrypt(self, ctx: Context, private: PrivateKey) -> Generator[CipherBlock, None, None]:
        """Encrypt the rows that travel, block by block."""
        values = self.encoded.values
        if self.encrypted_rows() < len(values):
            values = values[np.flatnonzero(self.counts)]
        return encrypt_blocks(ctx, private, values, self.encoded.layout)


class LevelRows(NamedTuple):
    """Rows of a level's nodes, to be encrypted again: int64 [rows, k], node by node."""

    depth: int
    values: Integers
    layout: Layout


class RowDistributor:
    """Sends each peer the rows of its trees, and their encrypted numbers.

    Args:
        ctx: the active party's.
        private: its key; None where there is no peer.
        release: returns the rows of a tree as they may travel to a peer, through the policies.
    """

    def __init__(self, ctx: Context, private: PrivateKey | None, release: ReleaseSample) -> None:
        self._ctx, self._private, self._release = ctx, private, release
        self._sum_size, self._sums, self._bits = 0, dict[str, int](), dict[str, int]()
        self._served: set[str] = set()  # the peers that have the rows of a forest
        self._forest_blocks: list[CipherBlock] = []  # for the others

    def start(self, trees: Sequence[tuple[Mapping[str, int], TreeDraft]]) -> None:
        """Announce trees that grow side by side; with each, its number at every peer that takes part."""
        for peer in self._ctx.peers:
            mine = [(seen_as[peer], draft) for seen_as, draft in trees if peer in seen_as]
            for position, (number, draft) in enumerate(mine):
                sample = draft.counts > 0
                start = TreeStart(
                    tree=number,
                    rows=self._release(peer, draft.tree, RowMask.pack(sample)),
                    together=0 if position else len(mine),
                    route=draft.route,
                    repeats=draft.counts[sample].astype(np.uint8).tobytes() if draft.counts.max() > 1 else b"",
                )
                self._ctx.send(peer, start, (number,))

    def send(self, draft: TreeDraft, listening: Mapping[str, int]) -> None:
        """Encrypt rows and send them to the peers that are to sum them; of a forest to each peer once.

        Args:
            listening: the tree's number at each peer that is to sum.
        """
        ctx = self._ctx
        due = [peer for peer in ctx.peers if peer in listening and peer not in self._served]
        if not due:
            return
        parts, ciphertexts = block_count(draft.encrypted_rows()), 0
        keep = draft.shared and len(self._served) + len(due) < len(ctx.peers)  # others will need the same blocks
        with closing(self._blocks(draft)) as blocks:
            for part, block in enumerate(blocks):
                self._measure(block)
                for peer in due:
                    if draft.shared:
                        ctx.send(peer, EncryptedForestRows(block, part, parts), (part,))
                    else:
                        ctx.send(peer, EncryptedTreeRows(listening[peer], part, parts, block), (listening[peer], part))
                if keep and len(self._forest_blocks) < parts:
                    self._forest_blocks.append(block)
                ciphertexts += block.count
        if draft.prepare and self._private is not None:
            self._private.prepare(ciphertexts)
        if draft.shared:
            self._served.update(due)
            self._forest_blocks = self._forest_blocks if keep else []

    def send_level(self, tree: LevelRows, peers: Mapping[str, int]) -> None:
        """Encrypt the rows of a level's nodes again, and send them; with each peer, the tree's number there."""
        assert self._private is not None
        parts = block_count(len(tree.values), tree.layout.spacing)
        for part, block in enumerate(encrypt_blocks(self._ctx, self._private, tree.values, tree.layout)):
            self._measure(block)
            for peer, number in peers.items():
                message = EncryptedLevelRows(number, tree.depth, part, parts, block)
                self._ctx.send(peer, message, (number, tree.depth, part))
        # Logical rows count each row once: a protocol without packing encrypts none again.
        self._private.public.counts.add({"logical_rows": -len(tree.values) * tree.layout.logical})

    def expect(self, peer: str, sums: int, bits: int = 0) -> None:
        """Let a peer send messages of so many sums, or of so many rows' sides, at most.

        A sum has no more ciphertexts than a row.
        """
        self._sums[peer] = max(sums, self._sums.get(peer, 0))
        self._bits[peer] = max(bits, self._bits.get(peer, 0))
        self._ctx.expect(peer, max(self._sums[peer] * (self._sum_size + _DESCRIBED), self._bits[peer] // 8) + HEAD)

    def _measure(self, block: CipherBlock) -> None:
        excess = 0 if self._private is None else self._private.public.sum_excess
        size = -(-(len(block.data) + block.count * excess) // max(1, block.shape[0]))
        if size > self._sum_size:
            self._sum_size = size
            for peer in self._sums:
                self.expect(peer, 0)

    def _blocks(self, draft: TreeDraft) -> Generator[CipherBlock, None, None]:
        """Yield the encrypted rows; of a forest those that another peer already has."""
        if self._forest_blocks:
            yield from self._forest_blocks[:]
            return
        assert self._private is not None
        yield from draft.encrypt(self._ctx, self._private)


def block_count(rows: int, spacing: int = 1) -> int:
    """Return the number of blocks in which so many rows travel; blocks of spaced rows have as many coefficients."""
    return -(-rows // (BLOCK_ROWS // spacing))


def encrypt_blocks(
    ctx: Context, private: PrivateKey, values: Integers, layout: Layout
) -> Generator[CipherBlock, None, None]:
    """Encrypt int64 [rows, k] block by block; phase "encrypt" counts time in which nothing else was done."""
    with ctx.phase("encrypt"):
        blocks = private.encrypt_blocks(values, layout, BLOCK_ROWS // layout.spacing)
    while True:
        with ctx.phase("encrypt"):
            block = next(blocks, None)
        if block is None:
            return
        yield block
