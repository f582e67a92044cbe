"""Sums over the label holders of which one party learns the total and nobody a single party's part.

``"paillier"``: each holder encrypts its sums for the party that opens the total, and sends them to another, which adds
them up (PIVODL, Section IV-A, steps 2, 4, 5). If both collude, they learn each holder's sums.

``"masks"``: every two holders derive a common mask from X25519 keys, which one adds and the other subtracts, modulo
2^64; each holder sends its masked sums to the party that opens the total. What this party receives is uniform but for
the total (Bonawitz et al. 2017, Section 4, without dropouts). To learn one holder's sums, it must collude with all
other holders.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from labelward.errors import wrong_message
from labelward.he.base import Counts, Engine, Layout, PrivateKey, PublicKey
from labelward.messages.base import Array
from labelward.messages.pivodl import MaskedSums, OfferedColumns, OwnSums, PartyKeys, TotalSums
from labelward.party.context import Context, Step
from labelward.party.handshake import Agreement
from labelward.protocols.common.pairwise_masks import PairwiseMasks

Integers = NDArray[np.int64]


class Collection(NamedTuple):
    """Where a sum goes.

    Attributes:
        adder: adds up encrypted sums; unused with masks.
        opener: learns the total.
        step: of its messages.
    """

    adder: str
    opener: str
    step: Step


class SecureSums:
    """Sums over all label holders, at one party.

    Args:
        ctx: of the party.
        agreed: key size, and whether insecure engines are allowed.
        holders: the label holders, in party order.
        engine: makes the party's key; None: sums are masked.
        offered: what this party states of its columns.
        model: identifier of the model in an interrupted training; empty: the coordinator draws one.

    Attributes:
        offers: what each party states of its columns.
    """

    def __init__(
        self,
        ctx: Context,
        agreed: Agreement,
        holders: tuple[str, ...],
        engine: Engine | None,
        offered: OfferedColumns,
        *,
        model: str = "",
    ) -> None:
        self.ctx, self.holders = ctx, holders
        self._private: PrivateKey | None = None
        if engine is not None:
            with ctx.phase("key"):
                self._private = engine.generate_for_sums(
                    agreed.bits, protection=ctx.protection, insecure=agreed.insecure
                )
        exchange = X25519PrivateKey.from_private_bytes(ctx.protection.bytes(32))
        material = None if self._private is None else self._private.public.material()
        coordinates = ctx.party == ctx.topology.coordinator
        drawn = (model or ctx.protection.bytes(8).hex()) if coordinates else ""
        mine = PartyKeys(drawn, material, exchange.public_key().public_bytes_raw(), offered)
        for peer in ctx.peers:
            ctx.send(peer, mine, ())
        keys = {peer: ctx.recv(peer, PartyKeys, ()) for peer in ctx.peers}
        self.offers = {peer: each.offered for peer, each in keys.items()} | {ctx.party: offered}
        self.model = drawn or keys[ctx.topology.coordinator].model
        self.masks = PairwiseMasks(exchange, ctx.party, {peer: each.masks for peer, each in keys.items()})
        self._publics: dict[str, PublicKey] = {}
        for peer, each in keys.items():
            if (each.sums is None) != (engine is None):
                raise wrong_message(peer, "PartyKeys", "sent another kind of key")
            if engine is not None and each.sums is not None:
                with ctx.blaming(peer, "PartyKeys", ()):
                    self._publics[peer] = engine.public_for_sums(
                        each.sums, protection=ctx.protection, insecure=agreed.insecure
                    )
        if self._private is not None:
            self._publics[ctx.party] = self._private.public

    @property
    def fingerprint(self) -> bytes:
        """Of this party's key."""
        return b"" if self._private is None else self._private.public.fingerprint

    def counts(self) -> Counts:
        """Return what this party did under all keys."""
        total = Counts()
        for public in self._publics.values():
            total.add(public.counts.as_dict())
        return total

    def contribute(self, own: Integers, to: Collection, layout: Layout) -> None:
        """Send a holder's own sums, int64 [1, n, k], toward the opener."""
        ctx, receiver = self.ctx, to.adder if self._private is not None else to.opener
        if receiver == ctx.party:
            return
        with ctx.phase("encrypt"):
            if self._private is None:
                purpose = f"sums {to.step} {to.opener}"
                message: OwnSums | MaskedSums = MaskedSums(Array.pack(self.masks.masked(own, self.holders, purpose)))
            else:
                message = OwnSums(self._publics[to.opener].encrypt_sums(own, layout))
        ctx.send(receiver, message, to.step)

    def add_up(self, own: Integers | None, to: Collection, layout: Layout) -> None:
        """Add up the encrypted sums of all holders, at the adder, and send the total to the opener."""
        ctx = self.ctx
        if self._private is None or ctx.party != to.adder:
            return
        public, total = self._publics[to.opener], None
        for holder in self.holders:
            if holder == ctx.party:
                assert own is not None
                block = public.encrypt_sums(own, layout)
            else:
                block = self._checked(holder, ctx.recv(holder, OwnSums, to.step).sums, layout, None)
            with ctx.phase("add"), ctx.blaming(holder, "OwnSums", to.step):
                sums = public.sums(block)
                total = sums if total is None else total + sums
        assert total is not None
        if to.opener != ctx.party:
            ctx.send(to.opener, TotalSums(total.rerandomize()), to.step)

    def open(self, own: Integers | None, shape: tuple[int, int, int], to: Collection, layout: Layout) -> Integers:
        """Return the total over all holders, int64 of ``shape``, at the opener."""
        ctx = self.ctx
        if self._private is not None:
            block = self._checked(to.adder, ctx.recv(to.adder, TotalSums, to.step).sums, layout, shape)
            with ctx.phase("decrypt"), ctx.blaming(to.adder, "TotalSums", to.step):
                return self._private.decrypt(block)
        total = np.zeros(shape, dtype=np.int64)
        for holder in self.holders:
            if holder == ctx.party:
                assert own is not None
                total += self.masks.masked(own, self.holders, f"sums {to.step} {to.opener}")
                continue
            message = ctx.recv(holder, MaskedSums, to.step)
            with ctx.blaming(holder, "MaskedSums", to.step):
                total += message.sums.unpack_as("int64", *shape)
        return total

    def _checked(self, peer: str, block: Any, layout: Layout, shape: tuple[int, int, int] | None) -> Any:
        if getattr(block, "layout", None) != layout or (shape is not None and block.shape != shape[:2]):
            raise wrong_message(peer, "OwnSums", "sent sums of another layout or shape")
        return block
