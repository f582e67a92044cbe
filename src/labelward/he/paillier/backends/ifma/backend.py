"""The kernel for processors with AVX-512 IFMA: eight products at a time, threads of one process on all cores."""

from __future__ import annotations

import sys
from functools import cached_property, lru_cache, partial
from itertools import product

import gmpy2
import numpy as np
from gmpy2 import mpz
from llvmlite import binding  # type: ignore[import-untyped]
from numba import config
from numba.core.registry import cpu_target
from numpy.typing import NDArray

from labelward.he.paillier.backends.base import Backend
from labelward.he.paillier.backends.gmpy2 import Gmpy2PrivateOps
from labelward.he.paillier.backends.ifma import loops
from labelward.he.paillier.backends.ifma.arithmetic import (
    LaneArithmetic,
    MontgomeryModulus,
    PowerTable,
    aligned,
    broadcast,
    from_rows,
    lane_chunks,
    limb_rows,
    limbs_for,
    row_bytes,
    to_lanes,
    to_limbs,
)
from labelward.he.paillier.backends.ifma.limbs import Limbs, carry_rows, pack_rows
from labelward.he.paillier.backends.ifma.montgomery_ir import LANES, LIMB_BITS
from labelward.he.paillier.backends.ifma.rows import IfmaRows, RowsKey
from labelward.he.paillier.int_bytes import byte_length, read_ints, to_offset, write_ints
from labelward.he.paillier.scheme import PublicEncryptor, plaintexts_of
from labelward.he.threads import fill_in_threads, run_in_threads

_FEATURES = ("avx512f", "avx512ifma")
_FEW = 3  # ciphertexts that gmpy2 decrypts faster than eight lanes do
_PIECE = 2048  # rows encrypted at a time


def unavailable_reason() -> str:
    """Return what is missing for this kernel."""
    features = binding.get_host_cpu_features()
    missing = [name for name in _FEATURES if not features.get(name)]
    if missing or sys.byteorder != "little":
        return f"the processor has no {', '.join(missing) or 'little-endian words'}"
    if getattr(config, "DISABLE_JIT", 0):
        return "NUMBA_DISABLE_JIT is set"
    # what numba compiles for may be less than the host offers, and LLVM would end the process
    target = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
    unused = [name for name in _FEATURES if f"+{name}" not in target]
    return f"numba is told to compile without {', '.join(unused)}" if unused else ""


class _Side:
    """One prime of an owner: p with q the other one, or the reverse."""

    def __init__(self, p: mpz, q: mpz, tau: mpz, whole: MontgomeryModulus, uses: int, threads: int) -> None:
        self.root = LaneArithmetic(p)
        self.square = self.root.square
        self.table = PowerTable(tau, self.root, p.bit_length(), uses=uses, threads=threads)
        self._n, self._whole = p * q, whole
        p2, q2 = p * p, q * q
        self.by_total = broadcast(p * self.root.radix % p2, self.square.limbs)
        # 1 modulo p² and 0 modulo q², for two divisions by the radix
        crt = q2 * gmpy2.invert(q2, p2) * self.square.radix**2 % whole.value
        self.crt = broadcast(crt, whole.limbs)

    def add(self, exponents: NDArray[np.uint8], plaintexts: Limbs, size: int, out: Limbs) -> None:
        """Add this prime's part of the ciphertexts to lanes ``out``; ``plaintexts`` are lanes of m + 2^(8·size-1)."""
        square, rows = self.square, plaintexts.shape[1]
        radix, offset = mpz(1) << (LIMB_BITS * rows), mpz(1) << (8 * size - 1)
        products, totals = self.table.powers(exponents)
        # (1 + N·total) · (1 + n·m), where N² vanishes, and N divides n
        by_plaintext = broadcast(self._n * radix % square.value, square.limbs)
        constant = to_limbs((1 - self._n * offset) % square.value, square.limbs)
        factors = loops.CrtFactors(self.by_total, by_plaintext, constant, self.crt)
        loops.add_prime_share(products, totals, plaintexts, factors, square.odd, self._whole.odd, out)

    def power(self, ciphertexts: list[mpz], rows: Limbs) -> None:
        """Raise ciphertexts to p-1 modulo p² into ``rows``."""
        square, exponent = self.square, self.root.value - 1
        reduced = write_ints([c % square.value for c in ciphertexts], byte_length(square.value))
        bases = limb_rows(reduced, byte_length(square.value), square.limbs)
        digits = np.array([int(exponent >> i & 31) for i in range(0, exponent.bit_length(), 5)][::-1], dtype=np.uint8)
        loops.power_lanes(bases, digits, square.odd, square.one, square.squared, rows)


class IfmaPrivateOps:
    """Encrypts by tables modulo p² and q², and joins both by Chinese remainders, all in lanes."""

    def __init__(self, p: mpz, q: mpz, tau_p: mpz, tau_q: mpz, uses: int, *, threads: int) -> None:
        self._p, self._q, self._taus, self._threads = p, q, (tau_p, tau_q), threads
        self._n, self._uses, self._few = p * q, uses, Gmpy2PrivateOps(p, q, tau_p, tau_q, uses)
        self._whole = MontgomeryModulus(self._n**2)

    def encrypt(self, plaintexts: bytes, size: int, x: bytes, y: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PrivateOps`."""
        signed = to_offset(plaintexts, size)
        exponents = [np.frombuffer(part, dtype=np.uint8).reshape(len(signed), -1) for part in (x, y)]
        width, sides, whole = limbs_for(8 * size), self._sides, self._whole

        def encrypt(part: slice, into: NDArray[np.uint8]) -> None:
            lanes = to_lanes(limb_rows(signed[part], size, width))
            joined = aligned(len(lanes), whole.limbs, LANES)
            joined[:] = 0
            for side, digits in zip(sides, exponents, strict=True):
                side.add(digits[part], lanes, size, joined)
            rows = np.empty((len(into), whole.limbs), dtype=np.uint64)
            loops.to_rows(joined, whole.odd, rows)
            pack_rows(rows, into)

        parts = lane_chunks(len(signed), self._threads, _PIECE)
        return fill_in_threads(self._threads, encrypt, parts, byte_length(whole.value)).tobytes()

    def complete(self, zeros: bytes, plaintexts: bytes, size: int) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PrivateOps`."""
        whole, signed, width, n = self._whole, to_offset(plaintexts, size), limbs_for(8 * size), self._n
        radix, offset = mpz(1) << (LIMB_BITS * width), mpz(1) << (8 * size - 1)
        by_plaintext = broadcast(n * radix * whole.radix % whole.value, whole.limbs)
        constant = to_limbs((1 - n * offset) * whole.radix % whole.value, whole.limbs)
        array = np.frombuffer(zeros, dtype=np.uint8).reshape(len(signed), -1)

        def complete(part: slice, into: NDArray[np.uint8]) -> None:
            rows = limb_rows(array[part], array.shape[1], whole.limbs)
            lanes = to_lanes(limb_rows(signed[part], size, width))
            loops.complete_lanes(rows, lanes, by_plaintext, constant, whole.odd)
            pack_rows(rows, into)

        parts = lane_chunks(len(signed), self._threads, _PIECE)
        return fill_in_threads(self._threads, complete, parts, array.shape[1]).tobytes()

    def decrypt(self, ciphertexts: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PrivateOps`."""
        p, q, n = self._p, self._q, self._n
        numbers = read_ints(ciphertexts, byte_length(n * n))
        if len(numbers) < _FEW:
            return self._few.decrypt(ciphertexts)
        powers = [np.empty((len(numbers), side.square.limbs), dtype=np.uint64) for side in self._sides]

        def power(piece: tuple[int, slice]) -> None:
            side, part = piece
            self._sides[side].power(numbers[part], powers[side][part])

        run_in_threads(self._threads, power, product(range(2), lane_chunks(len(numbers), self._threads, LANES)))
        found = plaintexts_of(p, q, zip(*map(from_rows, powers), strict=True))
        return write_ints(found, byte_length(n) + 1, signed=True)

    @cached_property
    def _sides(self) -> list[_Side]:
        primes = ((self._p, self._q), (self._q, self._p))
        return [
            _Side(p, q, tau, self._whole, self._uses, self._threads)
            for (p, q), tau in zip(primes, self._taus, strict=True)
        ]


class IfmaPublicOps:
    """Obfuscators by tables modulo n², and Horner's scheme, in lanes."""

    def __init__(self, n: mpz, h: mpz, w: mpz, uses: int, *, threads: int) -> None:
        self._n, self._h, self._uses, self._threads = n, h, uses, threads
        self._root = LaneArithmetic(n)
        n2 = self._root.square.value
        self._signs = (mpz(1), w % n2, n2 - 1, (n2 - w) % n2)
        self._table: PowerTable | None = None

    def encrypt(self, plaintexts: bytes, size: int, random: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PublicOps`."""
        n2 = self._root.square.value
        return write_ints(self._encrypt(read_ints(plaintexts, size, signed=True), random), byte_length(n2))

    def rerandomize(self, cells: bytes, fit: int, shift: int, random: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PublicOps`."""
        square = self._root.square
        size, threads = byte_length(square.value), self._threads
        numbers = limb_rows(cells, size, square.limbs)
        zeros = self._encrypt([mpz(0)] * -(-len(numbers) // fit), random)
        last = limb_rows(write_ints(zeros, size), size, square.limbs)
        rows = np.empty((len(zeros), square.limbs), np.uint64)

        def combine(part: slice) -> None:
            mine = numbers[part.start * fit : part.stop * fit]
            loops.horner(mine, fit, shift, last[part], square.odd, square.one, square.squared, rows[part])

        run_in_threads(threads, combine, lane_chunks(len(zeros), threads, LANES))
        return row_bytes(rows, size)

    def _encrypt(self, plaintexts: list[mpz], random: bytes) -> list[mpz]:
        n, n2 = self._n, self._root.square.value
        size, step = PublicEncryptor.random_size(n)
        if self._table is None:
            self._table = PowerTable(self._h, self._root, 8 * size, uses=self._uses, threads=self._threads)
        table, drawn = self._table, np.frombuffer(random, dtype=np.uint8).reshape(-1, step)
        parts = lane_chunks(len(drawn), self._threads, _PIECE)
        found: list[list[mpz]] = [[] for _ in parts]

        def power(piece: tuple[int, slice]) -> None:
            index, part = piece
            products, totals = table.powers(drawn[part, :size])
            bases = from_rows(np.ascontiguousarray(products.transpose(0, 2, 1)).reshape(-1, products.shape[1]))
            for base, total in zip(bases, _sums_of(totals.reshape(-1, totals.shape[2])), strict=True):
                found[index].append(base * (1 + n * total))

        run_in_threads(self._threads, power, enumerate(parts))
        powers = [power for index, part in enumerate(parts) for power in found[index][: part.stop - part.start]]
        return [
            power * self._signs[sign & 3] % n2 * (1 + n * m) % n2
            for power, sign, m in zip(powers, drawn[:, size].tolist(), plaintexts, strict=True)
        ]


def _sums_of(totals: Limbs) -> list[mpz]:
    """Return rows whose words are sums of limbs as integers."""
    settled = np.zeros((len(totals), totals.shape[1] + 1), np.uint64)
    settled[:, :-1] = totals
    carry_rows(settled)
    return from_rows(settled)


def backend(threads: int) -> Backend:
    """Return the backend with so many threads."""
    key = lru_cache(maxsize=1)(RowsKey)  # whoever sums does so under one key
    return Backend(
        name="ifma",
        merge_cost=2.0,
        private_ops=partial(IfmaPrivateOps, threads=threads),
        public_ops=partial(IfmaPublicOps, threads=threads),
        prepared_rows=lambda n, count, allocate: IfmaRows(key(n), count, allocate, threads=threads),
    )
