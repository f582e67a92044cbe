"""The kernel for processors with AVX-512 IFMA: eight products at a time, threads of one process on all cores."""

from __future__ import annotations

import sys
from collections.abc import Callable

import gmpy2
import numpy as np
from gmpy2 import mpz
from llvmlite import binding  # type: ignore[import-untyped]
from numba import config
from numba.core.registry import cpu_target
from numpy.typing import NDArray

from labelward.he.paillier.backends.base import Allocator, Backend
from labelward.he.paillier.backends.gmpy2 import Gmpy2PrivateOps
from labelward.he.paillier.backends.ifma import loops
from labelward.he.paillier.backends.ifma.arithmetic import (
    LaneArithmetic,
    MontgomeryModulus,
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
from labelward.he.paillier.backends.ifma.power_table import PowerTable
from labelward.he.paillier.backends.ifma.rows import IfmaRows, RowsKey
from labelward.he.paillier.int_bytes import byte_length, read_ints, to_offset, write_ints
from labelward.he.paillier.scheme import PublicEncryptor, plaintexts_of
from labelward.he.paillier.threads import run_in_threads

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

    def decrypt(self, ciphertexts: list[mpz], rows: Limbs, part: slice) -> Callable[[], None]:
        """Return the work of raising ``ciphertexts[part]`` to p-1 modulo p² into ``rows[part]``."""
        square, exponent = self.square, self.root.value - 1
        reduced = write_ints([c % square.value for c in ciphertexts[part]], byte_length(square.value))
        bases = limb_rows(reduced, byte_length(square.value), square.limbs)
        digits = np.array([int(exponent >> i & 31) for i in range(0, exponent.bit_length(), 5)][::-1], dtype=np.uint8)
        return lambda: loops.power_lanes(bases, digits, square.odd, square.one, square.squared, rows[part])


class IfmaPrivateOps:
    """Encrypts by tables modulo p² and q², and joins both by Chinese remainders, all in lanes."""

    def __init__(self, p: mpz, q: mpz, tau_p: mpz, tau_q: mpz, uses: int, *, threads: int) -> None:
        self._p, self._q, self._taus, self._threads = p, q, (tau_p, tau_q), threads
        self._n, self._uses, self._few = p * q, uses, Gmpy2PrivateOps(p, q, tau_p, tau_q, uses)
        self._whole = MontgomeryModulus(self._n**2)
        self._made: tuple[_Side, _Side] | None = None

    def encrypt(self, plaintexts: bytes, size: int, x: bytes, y: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PrivateOps`."""
        signed = to_offset(plaintexts, size)
        exponents = [np.frombuffer(part, dtype=np.uint8).reshape(len(signed), -1) for part in (x, y)]
        made, width = np.empty((len(signed), byte_length(self._whole.value)), dtype=np.uint8), limbs_for(8 * size)
        sides, whole = self._sides(), self._whole

        def piece(part: slice) -> Callable[[], None]:
            def work() -> None:
                lanes = to_lanes(limb_rows(signed[part], size, width))
                joined = aligned(len(lanes), whole.limbs, LANES)
                joined[:] = 0
                for side, digits in zip(sides, exponents, strict=True):
                    side.add(digits[part], lanes, size, joined)
                rows = np.empty((len(signed[part]), whole.limbs), dtype=np.uint64)
                loops.to_rows(joined, whole.odd, rows)
                pack_rows(rows, made[part])

            return work

        run_in_threads(self._threads, map(piece, lane_chunks(len(signed), self._threads, _PIECE)))
        return made.tobytes()

    def complete(self, zeros: bytes, plaintexts: bytes, size: int) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PrivateOps`."""
        whole, signed, width, n = self._whole, to_offset(plaintexts, size), limbs_for(8 * size), self._n
        radix, offset = mpz(1) << (LIMB_BITS * width), mpz(1) << (8 * size - 1)
        by_plaintext = broadcast(n * radix * whole.radix % whole.value, whole.limbs)
        constant = to_limbs((1 - n * offset) * whole.radix % whole.value, whole.limbs)
        array = np.frombuffer(zeros, dtype=np.uint8).reshape(len(signed), -1)
        made = np.empty_like(array)

        def piece(part: slice) -> Callable[[], None]:
            def work() -> None:
                rows = limb_rows(array[part], array.shape[1], whole.limbs)
                lanes = to_lanes(limb_rows(signed[part], size, width))
                loops.complete_lanes(rows, lanes, by_plaintext, constant, whole.odd)
                pack_rows(rows, made[part])

            return work

        run_in_threads(self._threads, map(piece, lane_chunks(len(signed), self._threads, _PIECE)))
        return made.tobytes()

    def decrypt(self, ciphertexts: bytes) -> bytes:
        """See :class:`~labelward.he.paillier.backends.base.PrivateOps`."""
        p, q, n = self._p, self._q, self._n
        numbers = read_ints(ciphertexts, byte_length(n * n))
        if len(numbers) < _FEW:
            return self._few.decrypt(ciphertexts)
        powers, work = [], []
        for side in self._sides():
            rows = np.empty((len(numbers), side.square.limbs), dtype=np.uint64)
            work += [side.decrypt(numbers, rows, part) for part in lane_chunks(len(numbers), self._threads, LANES)]
            powers.append(rows)
        run_in_threads(self._threads, work)
        found = plaintexts_of(p, q, zip(*map(from_rows, powers), strict=True))
        return write_ints(found, byte_length(n) + 1, signed=True)

    def _sides(self) -> tuple[_Side, _Side]:
        if self._made is None:
            p, q, (tau_p, tau_q) = self._p, self._q, self._taus
            first = _Side(p, q, tau_p, self._whole, self._uses, self._threads)
            self._made = first, _Side(q, p, tau_q, self._whole, self._uses, self._threads)
        return self._made


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
        last, rows = (
            limb_rows(write_ints(zeros, size), size, square.limbs),
            np.empty((len(zeros), square.limbs), np.uint64),
        )

        def piece(part: slice) -> Callable[[], None]:
            mine = numbers[part.start * fit : part.stop * fit]
            return lambda: loops.horner(
                mine, fit, shift, last[part], square.odd, square.one, square.squared, rows[part]
            )

        run_in_threads(threads, map(piece, lane_chunks(len(zeros), threads, LANES)))
        return row_bytes(rows, size)

    def _encrypt(self, plaintexts: list[mpz], random: bytes) -> list[mpz]:
        n, n2 = self._n, self._root.square.value
        size, step = PublicEncryptor.random_size(n)
        if self._table is None:
            self._table = PowerTable(self._h, self._root, 8 * size, uses=self._uses, threads=self._threads)
        table, drawn = self._table, np.frombuffer(random, dtype=np.uint8).reshape(-1, step)
        parts = lane_chunks(len(drawn), self._threads, _PIECE)
        found: list[list[mpz]] = [[] for _ in parts]

        def piece(index: int, part: slice) -> Callable[[], None]:
            def work() -> None:
                products, totals = table.powers(drawn[part, :size])
                bases = from_rows(np.ascontiguousarray(products.transpose(0, 2, 1)).reshape(-1, products.shape[1]))
                for base, total in zip(bases, _sums_of(totals.reshape(-1, totals.shape[2])), strict=True):
                    found[index].append(base * (1 + n * total))

            return work

        run_in_threads(self._threads, (piece(index, part) for index, part in enumerate(parts)))
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


class IfmaBackend:
    """The IFMA backend with so many threads."""

    name, merge_cost = "ifma", 2.0

    def __init__(self, threads: int = 1) -> None:
        self._threads, self._keys = threads, dict[mpz, RowsKey]()

    def private_ops(self, p: mpz, q: mpz, tau_p: mpz, tau_q: mpz, uses: int) -> IfmaPrivateOps:
        """See :class:`~labelward.he.paillier.backends.base.Backend`."""
        return IfmaPrivateOps(p, q, tau_p, tau_q, uses, threads=self._threads)

    def public_ops(self, n: mpz, h: mpz, w: mpz, uses: int) -> IfmaPublicOps:
        """See :class:`~labelward.he.paillier.backends.base.Backend`."""
        return IfmaPublicOps(n, h, w, uses, threads=self._threads)

    def prepared_rows(self, n: mpz, count: int, allocate: Allocator) -> IfmaRows:
        """See :class:`~labelward.he.paillier.backends.base.Backend`."""
        key = self._keys.get(n) or RowsKey(n)
        self._keys = {n: key}  # whoever sums does so under one key
        return IfmaRows(key, count, allocate, threads=self._threads)

    def close(self) -> None:
        """There is nothing to stop."""


def backend(threads: int) -> Backend:
    """Return the backend with so many threads."""
    return IfmaBackend(threads)
