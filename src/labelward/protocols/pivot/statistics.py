"""From encrypted rows to shares of their sums: every source sums by bin, all others mask, all decrypt.

A source sums the encrypted classes of a node's rows by the bins of its columns. Every other party sends it encrypted
masks; the source adds them, and with the parts of all parties' decryption it opens masked sums. These are its shares,
and minus its masks are those of each other party. A mask is ``statistical_bits`` longer than a sum, so that a masked
sum is within 2^-``statistical_bits`` of independent of the sum, for a source that colludes with all but one of the
others as well.

Reference: Wu et al., Pivot (2020), Algorithm 2. Differences: the source opens, where in the paper one party does for
all; sums share ciphertexts; shares are modulo 2^64, where the paper's are modulo a prime.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.errors import PeerError, wrong_message
from labelward.he.base import CipherBlock, KeyPart, Layout
from labelward.messages.base import CipherDigest
from labelward.messages.pivodl import MISSING
from labelward.messages.pivot import MaskedStatistics, PartialDecryptions, SumMasks
from labelward.protocols.common.columns import OwnColumns
from labelward.protocols.pivot.arithmetic import SharedArithmetic
from labelward.protocols.pivot.dealt_shares import Words
from labelward.protocols.pivot.params import Pivot


class Offers(NamedTuple):
    """The columns of one party as all know them.

    Attributes:
        sizes: int64 [columns], bins of each.
        categorical: bool [columns].
    """

    sizes: NDArray[np.int64]
    categorical: NDArray[np.bool_]

    @property
    def cells(self) -> int:
        """Bins of all columns."""
        return int(self.sizes.sum())


def statistics_layout(params: Pivot, rows: int, classes: int, parties: int) -> Layout:
    """Return the layout of a row's classes, of which sums with the masks of all other parties have room."""
    most = rows + (parties - 1) * (1 << params.mask_bits(rows))
    return Layout(bounds=(-(-most // rows),) * classes, rows=rows, logical=classes)


class Statistics:
    """One party's part of the conversion.

    Args:
        mpc: numbers the steps.
        part: of the private key.
        layout: of rows and sums.
        offers: the columns of each party that has any.
        own: this party's columns.
        mask_bits: of a mask.
    """

    def __init__(
        self,
        mpc: SharedArithmetic,
        part: KeyPart,
        layout: Layout,
        offers: dict[str, Offers],
        own: OwnColumns,
        mask_bits: int,
    ) -> None:
        self._mpc, self._ctx, self._part, self._layout = mpc, mpc.ctx, part, layout
        self._offers, self._mask_bits = offers, mask_bits
        self._groups = np.where(own.codes == MISSING, -1, own.codes.astype(np.int32)).astype(np.int32)
        widest = int(own.sizes.max(initial=0))
        self._widest, self._cells = widest, np.flatnonzero(np.arange(widest) < own.sizes[:, None])

    def shares(self, rows: CipherBlock) -> Words:
        """Return shares of the sums of a node's rows by cell and class, of all parties' columns one after the other.

        Returns:
            uint64 [cells of all parties, classes].

        Raises:
            PeerError: a peer sent sums of another shape, or parts that do not decrypt.
        """
        step, ctx = self._mpc.next_step(), self._ctx
        masks = {source: self._send_masks(source, step) for source in self._offers if source != ctx.party}
        totals: dict[str, CipherBlock] = {}
        if ctx.party in self._offers:
            totals[ctx.party] = self._masked(rows, step)
        for source in masks:
            block = checked_block(
                source, ctx.recv(source, MaskedStatistics, step).sums, self._shape(source), self._layout
            )
            with ctx.phase("decrypt"), ctx.blaming(source, "MaskedStatistics", step):
                partial = self._part.partial_decrypt(block)
            ctx.send(source, PartialDecryptions(partial), step)
        own = {source: np.negative(mask) for source, mask in masks.items()}
        if ctx.party in totals:
            own[ctx.party] = self._open(totals[ctx.party], step)
        return np.concatenate([own[source] for source in self._offers])

    def _shape(self, source: str) -> tuple[int, int]:
        return 1, self._offers[source].cells

    def _send_masks(self, source: str, step: tuple[int]) -> Words:
        """Draw and send the masks of a source's sums; return them, uint64 [cells, classes]."""
        ctx, shape = self._ctx, (self._offers[source].cells, len(self._layout.bounds))
        drawn = np.frombuffer(ctx.protection.bytes(8 * shape[0] * shape[1]), dtype="<u8").astype(np.uint64)
        mask = (drawn & np.uint64((1 << self._mask_bits) - 1)).reshape(shape)
        with ctx.phase("encrypt"):
            block = self._part.public.encrypt_sums(mask.view(np.int64)[None], self._layout)
        ctx.send(source, SumMasks(block), step)
        return mask

    def _masked(self, rows: CipherBlock, step: tuple[int]) -> CipherBlock:
        """Sum the rows by bin, add the masks of all others, and send the total to them."""
        ctx, public = self._ctx, self._part.public
        with ctx.phase("add"):
            sums = public.rows(rows).group_sums(self._groups, self._widest).take(self._cells)
            total = public.sums(sums.rerandomize())
        for peer in self._mpc.peers:
            block = checked_block(peer, ctx.recv(peer, SumMasks, step).masks, self._shape(ctx.party), self._layout)
            with ctx.blaming(peer, "SumMasks", step):
                total = total + public.sums(block)
        with ctx.phase("add"):
            masked = total.rerandomize()
        for peer in self._mpc.peers:
            ctx.send(peer, MaskedStatistics(masked), step)
        return masked

    def _open(self, masked: CipherBlock, step: tuple[int]) -> Words:
        ctx = self._ctx
        with ctx.phase("decrypt"):
            partials = [self._part.partial_decrypt(masked)]
        for peer in self._mpc.peers:
            parts = ctx.recv(peer, PartialDecryptions, step).parts
            if len(parts) != len(partials[0]):  # of other faults nobody can tell whose they are
                reason = f"sent {len(parts)} bytes of its part where {len(partials[0])} are due"
                raise wrong_message(peer, "PartialDecryptions", reason, step)
            partials.append(parts)
        with ctx.phase("decrypt"), ctx.blaming(self._mpc.peers[0], "PartialDecryptions", step):
            opened: Words = self._part.combine(masked, partials)[0].view(np.uint64)
        return opened


def checked_block(
    peer: str,
    block: CipherBlock | CipherDigest | None,
    shape: tuple[int, ...],
    layout: Layout,
) -> CipherBlock:
    """Return a peer's ciphertexts; PeerError where they are of another shape or layout."""
    if not isinstance(block, CipherBlock) or (block.shape, block.layout) != (shape, layout):
        raise PeerError(peer, "sent ciphertexts of another shape or layout", code="peer-message")
    return block
