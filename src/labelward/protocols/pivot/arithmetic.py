"""Arithmetic on shares modulo 2^64: products, comparisons, and results for the coordinator.

A *share* is uint64 [...]; the value is the sum of the shares of all parties modulo 2^64, read as a signed number. Sums
and products with public numbers need no message. All that travels is a share of a value under a dealt mask that
serves once (:class:`~labelward.messages.pivot.MaskedShares`), or a share of a result plus a dealt share of zero
(:class:`~labelward.messages.pivot.ResultShares`). Both are uniform modulo 2^64, without any distance: no statistical
masking enters here.

The sign of x: with a dealt r, which nobody knows, in arithmetic and in binary shares, c = x + r is opened. x = c - r is
a subtraction of words of which one is public and the other one shared bit by bit; the carry into the highest place
takes log2(64) rounds (Kogge and Stone, 1973), and a dealt bit takes the result back to arithmetic shares.

Reference: Beaver (1991) for products; Damgård et al., Unconditionally secure constant-rounds multi-party computation
for equality, comparison, bits and exponentiation (2006), for shares of bits; as in Escudero et al., Improved primitives
for MPC over mixed arithmetic-binary circuits (2020), Section 3, a dealer gives both forms of r.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.errors import JobError
from labelward.messages.base import Array
from labelward.messages.pivot import DealEnd, DealRequest, DealtCorrections, MaskedShares, ResultShares
from labelward.party.context import Context
from labelward.protocols.pivot.dealt_shares import MOST, Words, added, drawn, mixed

Integers = NDArray[np.int64]

HEAD = 4096
"""Bytes of a message beside what grows, and of a key."""
_ONE = np.uint64(1)
_WIDTHS = (1, 2, 4, 8, 16, 32)


class SharedArithmetic:
    """Operations of one party on its shares; all parties call the same ones in the same order.

    Args:
        ctx: of the party.
        dealer: who deals.
        parties: those that hold shares, the coordinator first.
        seed: of this party's shares.
    """

    def __init__(self, ctx: Context, dealer: str, parties: tuple[str, ...], seed: bytes) -> None:
        self.ctx, self.parties, self._dealer, self._seed = ctx, parties, dealer, seed
        self.peers = tuple(party for party in parties if party != ctx.party)
        self.leads = ctx.party == parties[0]
        self._number = self._requests = 0

    def next_step(self) -> tuple[int]:
        """Return the step of the next message, as all parties count it."""
        self._number += 1
        return (self._number,)

    def end(self) -> None:
        """Tell the dealer that no more is needed."""
        if self.leads:
            self.ctx.send(self._dealer, DealEnd(), (self._requests,))

    def constant(self, values: Integers | int, shape: tuple[int, ...] = ()) -> Words:
        """Return a share of public values; that of all parties but the coordinator is zero."""
        whole = np.broadcast_to(np.asarray(values, dtype=np.int64), np.shape(values) or shape)
        share: Words = np.ascontiguousarray(whole).view(np.uint64)
        return share if self.leads else np.zeros_like(share)

    def multiply(self, x: Words, y: Words) -> Words:
        """Return shares of the products of two arrays of one shape (Beaver)."""
        ((a, b, c),) = self._dealt(("products", x.size))
        d, e = added(self._exchanged(np.stack([x.ravel() - a, y.ravel() - b])))
        product: Words = c + d * b + e * a + (d * e if self.leads else np.zeros_like(d))
        return product.reshape(x.shape)

    def is_negative(self, x: Words) -> Words:
        """Return shares of 1 where the signed value is below zero, else of 0."""
        count, flat = x.size, x.ravel()
        ((binary, arithmetic), (bit, its_number)) = self._dealt(("words", count), ("bits", count))
        opened = added(self._exchanged(flat + arithmetic))
        # opened - r = opened + ~r + 1
        inverted = ~binary if self.leads else binary
        generates, passes = opened & inverted, inverted ^ opened if self.leads else inverted
        highest = passes >> np.uint64(63)
        generates = generates ^ (passes & _ONE)  # the carry into the lowest place is 1
        for width in _WIDTHS:
            shift, last = np.uint64(width), width == _WIDTHS[-1]
            others = (generates << shift,) if last else (generates << shift, passes << shift)
            found = self._both(np.concatenate([passes] * len(others)), np.concatenate(others))
            generates, passes = generates ^ found[:count], passes if last else found[count:]
        sign = (highest ^ (generates >> np.uint64(62))) & _ONE
        masked = mixed(self._exchanged(sign ^ (bit & _ONE)))
        # masked XOR the dealt bit, in arithmetic shares
        result: Words = its_number * (_ONE - masked - masked) + (masked if self.leads else np.zeros_like(masked))
        return result.reshape(x.shape)

    def both(self, x: Words, y: Words) -> Words:
        """Return binary shares of x AND y, bit by bit."""
        return self._both(x.ravel(), y.ravel()).reshape(x.shape)

    def result(self, x: Words) -> Words | None:
        """Return the values of shares at the coordinator; None elsewhere."""
        ((zero,),) = self._dealt(("zeros", x.size))
        parts = self._to_first(x.ravel() + zero)
        return None if parts is None else added(parts).reshape(x.shape)

    def result_bits(self, x: Words) -> Words | None:
        """Return the values of binary shares at the coordinator; None elsewhere."""
        ((blank,),) = self._dealt(("blanks", x.size))
        parts = self._to_first(x.ravel() ^ blank)
        return None if parts is None else mixed(parts).reshape(x.shape)

    def _both(self, x: Words, y: Words) -> Words:
        ((a, b, c),) = self._dealt(("ands", x.size))
        d, e = mixed(self._exchanged(np.stack([x ^ a, y ^ b])))
        found: Words = c ^ (d & b) ^ (e & a)
        return found ^ (d & e) if self.leads else found

    def _exchanged(self, shares: Words) -> list[Words]:
        """Send a share under its mask to all parties, and return those of all."""
        step = self.next_step()
        for peer in self.peers:
            self.ctx.send(peer, MaskedShares(Array.pack(shares.view(np.int64))), step)
        return [shares, *(self._received(peer, MaskedShares, step, shares.shape) for peer in self.peers)]

    def _to_first(self, shares: Words) -> list[Words] | None:
        step = self.next_step()
        if not self.leads:
            self.ctx.send(self.parties[0], ResultShares(Array.pack(shares.view(np.int64))), step)
            return None
        return [shares, *(self._received(peer, ResultShares, step, shares.shape) for peer in self.peers)]

    def _received(
        self, peer: str, kind: type[MaskedShares] | type[ResultShares], step: tuple[int], shape: tuple[int, ...]
    ) -> Words:
        message = self.ctx.recv(peer, kind, step)
        with self.ctx.blaming(peer, kind.__name__, step):
            return message.values.unpack_as("int64", *shape).view(np.uint64)

    def _dealt(self, *needed: tuple[str, int]) -> list[Words]:
        """Return new shares of each kind, uint64 [arrays, count].

        Raises:
            JobError: more than :data:`~labelward.protocols.pivot.dealt_shares.MOST` of a kind, at all parties alike.
        """
        number, self._requests = self._requests, self._requests + 1
        if (most := max(count for _, count in needed)) > MOST:
            reason = f"gives {most} comparisons and products at one level; at most {MOST} fit"
            raise JobError(reason, code="range", field="[model] candidates", value=most)
        parts = [drawn(self._seed, kind, (number << 8) + at, count) for at, (kind, count) in enumerate(needed)]
        if not self.leads:
            return parts
        ctx, step = self.ctx, (number,)
        counts = ctx.policies.release_opened(tuple(count for _, count in needed))
        ctx.expect(self._dealer, 8 * sum(count for _, count in needed) + HEAD)
        ctx.send(self._dealer, DealRequest(tuple(kind for kind, _ in needed), counts), step)
        message = ctx.recv(self._dealer, DealtCorrections, step)
        with ctx.blaming(self._dealer, "DealtCorrections", step):
            rest = message.values.unpack_as("int64", sum(count for _, count in needed)).view(np.uint64)
        corrected = []
        for part, (_, count) in zip(parts, needed, strict=True):
            corrected.append(np.concatenate([part[:-1], rest[None, :count]]))
            rest = rest[count:]
        return corrected
