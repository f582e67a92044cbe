"""Sealing: what makes sums fit to travel, in the one order that hides them.

1. Add up the polynomials of the rows: A. With the sums of the scalars, beta_k, it is a ciphertext under s_k that tells
   which rows it holds.
2. Mask: A += p1·u + e1, beta_k += [p0_k·u]_0 + f_k, with a fresh ternary u and a uniform f_k, drawn for each number,
   whose range is 2^40 times the bound of all noise that the key owner may know. M sums share one u, each with its own
   public element p1.
3. Divide by q1 and round.
4. Pack: public arithmetic on what is masked already, so that its noise, which depends on A, needs no flooding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from labelward.he.lattice import loops
from labelward.he.lattice.digits import PACKED, Digits, places, sums_together
from labelward.he.lattice.draws import Stream
from labelward.he.lattice.key_material import MASKS, PublicElements
from labelward.he.lattice.ring import Bytes, Int8s, Int64s, Reals, vectors
from labelward.he.lattice.row_data import FORMAT, HEAD_BYTES, PACKED_SUMS, set_count
from labelward.he.lattice.words import pack, packed_size
from labelward.he.threads import even_chunks, run_in_threads, threads_each
from labelward.rng import SecureRandom

if TYPE_CHECKING:
    from labelward.he.lattice.ciphertexts import RowTerm

_AT_ONCE = 32  # polynomials of sums for which a block is read once; more would leave the caches, as blocks do
_LEAST = 8  # sums for which it is read once, however many polynomials each has
_WINDOWS = 3  # polynomials that are packed together: keys are read once for them


def sum_bytes(sums: int, n: int, secrets: int, digits: Digits) -> int:
    """Return the bytes of so many sealed sums."""
    polynomials = -(-sums // sums_together(n, digits.spacing)) * set_count(digits, secrets)
    return HEAD_BYTES + packed_size(polynomials * n) + packed_size(sums * digits.total)


def seal(
    elements: PublicElements,
    digits: Digits,
    words: Int64s,
    terms: Sequence[RowTerm],
    protection: SecureRandom,
    workers: int,
) -> bytes:
    """Return the data of sealed sums, whose scalars are ``words`` [cells, K, 2]."""
    cells, n = len(words), elements.ring.n
    sets = set_count(digits, elements.secrets)
    packed = np.empty((-(-cells // PACKED), sets, n), dtype=np.int64)
    sealed = np.empty((cells, digits.total), dtype=np.int64)
    streams = [Stream.secret(protection) for _ in packed]  # the same however polynomials are divided among threads
    batches = even_chunks(len(packed), workers, _WINDOWS)
    rooms, threads = _Rooms([], []), threads_each(workers, len(batches))

    def work(those: slice) -> None:
        part = slice(those.start * PACKED, min(those.stop * PACKED, cells))
        lists = [term.lists[part] for term in terms]
        draws = _Draws.of(streams[those], digits, part.stop - part.start, sets, n)
        _seal_batch(elements, digits, words[part], terms, lists, draws, rooms, threads, packed[those], sealed[part])

    run_in_threads(workers, work, batches)
    return bytes([FORMAT, PACKED_SUMS]) + pack(packed) + pack(sealed)


class _Draws(NamedTuple):
    """Secret draws of a batch: u as bits [.., 2, n/8], one for M polynomials; e1 [sums, sets, n]; f [sums, K]."""

    masks: Bytes
    errors: Int8s
    flood: Int64s

    @classmethod
    def of(cls, streams: Sequence[Stream], digits: Digits, sums: int, sets: int, n: int) -> _Draws:
        """Draw for consecutive polynomials, each from a stream of its own; all but the last one have 32 sums."""
        counts = [min(PACKED, sums - i * PACKED) for i in range(len(streams))]
        drawn = [
            (
                stream.ternary(-(-count * sets // MASKS), n),
                stream.small_errors((count, sets, n)),
                stream.flood(digits.flood, count * digits.total).reshape(count, digits.total),
            )
            for stream, count in zip(streams, counts, strict=True)
        ]
        return cls(*(np.concatenate(each) for each in zip(*drawn, strict=True)))


R = TypeVar("R")


@contextlib.contextmanager
def borrowed(free: list[R], make: Callable[[], R]) -> Iterator[R]:
    """Lend memory that pieces of work use one after the other: that of new pages takes longer than a product."""
    try:
        room = free.pop()
    except IndexError:
        room = make()
    yield room
    free.append(room)


class _Polynomials(NamedTuple):
    """Polynomials of a few sums in two parts: ``values`` and ``coefficients`` [sums, sets, 2, n].

    The second is undefined where ``added`` [sums] is 0.
    """

    values: Reals
    coefficients: Int64s
    added: Int64s

    @classmethod
    def undefined(cls, sums: int, sets: int, n: int) -> _Polynomials:
        """Return memory for so many."""
        shape = (sums, sets, 2, n)
        return cls(vectors(*shape), vectors(*shape).view(np.int64), np.empty(sums, dtype=np.int64))

    def first(self, count: int) -> _Polynomials:
        """Return the first of them."""
        return _Polynomials(self.values[:count], self.coefficients[:count], self.added[:count])


class _Rooms(NamedTuple):
    """Memory that is free: for sealed polynomials [sets, sums of a batch, n], and for those of a few sums."""

    sealed: list[Reals]
    sums: list[_Polynomials]


def _seal_batch(
    elements: PublicElements,
    digits: Digits,
    words: Int64s,
    terms: Sequence[RowTerm],
    lists: Sequence[Int64s],
    draws: _Draws,
    rooms: _Rooms,
    threads: int,
    packed: Int64s,
    sealed: Int64s,
) -> None:
    """Seal sums into the polynomials ``packed`` [windows, sets, n], 32 each, and ``sealed`` [sums, K]."""
    ring, count, sets = elements.ring, len(words), packed.shape[1]
    n = ring.n
    masked = vectors(len(draws.masks), 2, n)
    loops.mask_values(ring, draws.masks, masked)
    pairs = np.stack(np.divmod(np.arange(count * sets), MASKS), axis=1).reshape(count, sets, 2)
    most = max(_AT_ONCE // sets, _LEAST)
    together = min(most, -(-count // threads))
    with borrowed(rooms.sealed, lambda: vectors(sets, _WINDOWS * PACKED, n)) as polynomials:

        def work(start: int) -> None:
            chosen = [each[start : start + together] for each in lists]
            with borrowed(rooms.sums, lambda: _Polynomials.undefined(most, sets, n)) as room:
                sums = room.first(min(together, count - start))
                _sum_polynomials(elements, terms, chosen, sums)
                loops.seal_sums(
                    ring, start, *sums, words, pairs, draws.masks, masked, elements.masks, elements.rotated,
                    draws.errors, draws.flood, polynomials, sealed,
                )  # fmt: skip

        run_in_threads(threads, work, range(0, count, together))
        pack_sets(elements, digits, polynomials[:, :count], packed, sealed)


def pack_sets(elements: PublicElements, digits: Digits, polynomials: Reals, packed: Int64s, sealed: Int64s) -> None:
    """Pack sealed polynomials [sets, windows, n] into ``packed``, and take their share off the words ``sealed``."""
    ring, secrets, at = elements.ring, elements.secrets, places(elements.ring.n, digits.spacing)
    for each, members in enumerate(polynomials):
        own = slice(each * secrets, min((each + 1) * secrets, digits.total))
        shared = np.empty((len(packed), ring.n), dtype=np.int64)
        taken = np.empty((len(sealed), own.stop - own.start), dtype=np.int64)
        loops.pack_polynomials(ring, members, digits.spacing, elements.packing, at, shared, taken)
        packed[:, each] = shared
        sealed[:, own] -= taken
    loops.settle_first(sealed)


def _sum_polynomials(
    elements: PublicElements, terms: Sequence[RowTerm], lists: Sequence[Int64s], sums: _Polynomials
) -> None:
    """Write the polynomials of a few sums."""
    sums.values[:], sums.added[:] = 0.0, 0
    for term, own in zip(terms, lists, strict=True):
        progress = own[:, 0].copy()
        for segment in term.segments:
            loops.sum_blocks(
                elements.ring, term.order, own, progress, segment.bounds, segment.a, segment.shifted, loops.DENSE, *sums
            )
