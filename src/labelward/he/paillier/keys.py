"""Public and private keys of Paillier, over a backend."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Literal, NamedTuple, NoReturn

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he._validate import (
    check_block,
    check_capacity,
    check_chosen,
    check_own_sums,
    check_sums,
    check_values,
)
from labelward.he.base import (
    CipherBlock,
    Counts,
    EncryptedRows,
    EncryptedSums,
    Integers,
    Layout,
    PrivateKey,
    PublicKey,
    PublicMaterial,
)
from labelward.he.paillier.backends.base import Allocator, Backend, PreparedRows, PrivateOps, PublicOps
from labelward.he.paillier.ciphertexts import PaillierRows, PaillierSums
from labelward.he.paillier.int_bytes import in_range, read_ints, write_ints
from labelward.he.paillier.packing import Packing
from labelward.he.paillier.precomputed_zeros import ZeroPool
from labelward.he.paillier.primes import Prime, subgroup_generator
from labelward.he.paillier.scheme import PublicEncryptor, public_bases, random_exponents
from labelward.rng import SecureRandom

NAME = "paillier"
Encrypt = Callable[[bytes, int, int], bytes]
#: How often as much work as the first time is expected of a key's tables: an owner encrypts for each tree, a peer
#: re-randomizes for each level.
_OWNER_ROUNDS, _PUBLIC_ROUNDS = 5, 64
_USES_UNKNOWN = 1000  # where a process decrypts before it ever encrypts


class Resources(NamedTuple):
    """What the keys of an engine share."""

    backend: Backend
    threads: int
    allocate: Allocator  # memory for prepared rows
    zero_pools: weakref.WeakSet[ZeroPool]  # those that the engine stops when it is closed


def unpacked(block: CipherBlock, bits: int, plaintexts: Sequence[Sequence[mpz]]) -> Integers:
    """Return int64 [F, n_groups, k], or [1, n, k] of rows, of the signed plaintexts of each part of a block.

    Raises:
        EncryptionError: a plaintext holds more than its entries.
    """
    shape = block.shape if block.kind == "sums" else (1, *block.shape)
    pairs = zip(Packing.of(block.layout, bits).parts, plaintexts, strict=True)
    fits = ((part, numbers, part.fit if block.kind == "sums" else 1) for part, numbers in pairs)
    columns = [part.decode(numbers, shape[0] * shape[1], fit) for part, numbers, fit in fits]
    values: Integers = np.concatenate(columns, axis=1).reshape(*shape, len(block.layout.bounds))
    return values


class PaillierPublicKey(PublicKey):
    """n, with what this party needs to hide its sums under it."""

    def __init__(self, n: int, protection: SecureRandom, resources: Resources) -> None:
        self.engine, self.bits, self.counts = NAME, n.bit_length(), Counts()
        self.n, self.n2, self._resources = mpz(n), mpz(n) ** 2, resources
        self.ciphertext_size = self.bits // 4
        self._protection, self._lock = protection, threading.Lock()
        self._ops: PublicOps | None = None
        self._material = PublicMaterial(engine=NAME, bits=self.bits, data=n.to_bytes(self.bits // 8, "big"))

    @property
    def fingerprint(self) -> bytes:
        """The first 16 bytes of SHA-256 of n."""
        return hashlib.sha256(b"labelward paillier " + self._material.data).digest()[:16]

    @property
    def backend(self) -> Backend:
        """Of the engine."""
        return self._resources.backend

    @property
    def threads(self) -> int:
        """Threads that share heavy work."""
        return self._resources.threads

    def material(self) -> PublicMaterial:
        """Return n, big-endian."""
        return self._material

    def encrypt(self, values: Integers, layout: Layout) -> EncryptedRows:
        """Encrypt int64 [n, k]; each ciphertext costs an obfuscator modulo n²."""
        return self.encrypt_with(self._encrypt, values, layout)

    def allocate_rows(self, layout: Layout, n: int) -> EncryptedRows:
        """Return rows to come; each block is prepared for sums as it comes, and its bytes are not kept."""
        check_capacity(n, layout)
        return PaillierRows(self, layout, n)

    def encrypt_sums(self, values: Integers, layout: Layout) -> CipherBlock:
        """Encrypt sums; each ciphertext costs an obfuscator modulo n²."""
        flat, parts = check_own_sums(values, layout), []
        for part in Packing.of(layout, self.bits).parts:
            size, count = (part.width * part.fit + 8) // 8, -(-len(flat) // part.fit)
            parts.append(self._encrypt(part.encode_sums(flat, size), size, count) if count else b"")
        count = sum(map(len, parts)) // self.ciphertext_size
        self.counts.encryptions += count
        return self.block("sums", (values.shape[0], values.shape[1]), layout, count, parts)

    def sums(self, block: CipherBlock) -> EncryptedSums:
        """Open packed sums."""
        return PaillierSums.opened(self, block)

    def select(self, block: CipherBlock, chosen: NDArray[np.bool_]) -> CipherBlock:
        """Multiply each chosen ciphertext, or 1 in the place of each other, by a fresh encryption of zero."""
        kept, data = check_chosen(block, chosen), []
        for part in self.open(block, ("rows",)):
            cells = np.frombuffer(part, dtype=np.uint8).reshape(len(kept), self.ciphertext_size).copy()
            cells[~kept] = 0
            cells[~kept, -1] = 1
            if len(kept):
                ops, random = self.public_ops(len(kept)), self.random(len(kept))
                data.append(ops.rerandomize(cells.tobytes(), 1, 0, random))
        return self.block("rows", block.shape, block.layout, block.count, data)

    # -- for the other modules of this package -----------------------------------------------------------------------

    def encrypt_with(self, encrypt: Encrypt, values: Integers, layout: Layout) -> PaillierRows:
        """Check and pack values, and encrypt each part by ``encrypt(plaintexts, their size, their number)``."""
        checked = check_values(values, layout)
        return PaillierRows(self, layout, len(checked), self._encrypted_parts(encrypt, checked, layout))

    def blocks_with(self, encrypt: Encrypt, values: Integers, layout: Layout, rows: int) -> Iterator[CipherBlock]:
        """Yield blocks of checked values; the next one is encrypted meanwhile."""
        pieces = (values[start : start + rows] for start in range(0, len(values), rows))
        ahead = ThreadPoolExecutor(1, thread_name_prefix="labelward-encrypt")
        try:
            waiting: deque[tuple[int, Future[list[bytes]]]] = deque()
            for piece in [*pieces, None]:
                if piece is not None:
                    waiting.append((len(piece), ahead.submit(self._encrypted_parts, encrypt, piece, layout)))
                if waiting and (piece is None or len(waiting) > 1):
                    n, future = waiting.popleft()
                    parts = future.result()
                    yield self.block("rows", (n,), layout, n * len(parts), parts)
        finally:
            ahead.shutdown(wait=True, cancel_futures=True)

    def public_ops(self, count: int) -> PublicOps:
        """Return the operations without the secret; the first ``count`` obfuscators decide the size of the tables."""
        with self._lock:
            if self._ops is None:
                bases = public_bases(self.n, self._protection)
                self._ops = self.backend.public_ops(self.n, *bases, _PUBLIC_ROUNDS * count)
            return self._ops

    def prepared_rows(self, count: int) -> PreparedRows:
        """Return room for ``count`` ciphertexts of one part."""
        return self.backend.prepared_rows(self.n, count, self._resources.allocate)

    def random(self, count: int) -> bytes:
        """Draw what ``count`` obfuscators need."""
        return self._protection.bytes(count * PublicEncryptor.random_size(self.n)[1])

    def block(
        self, kind: Literal["rows", "sums"], shape: tuple[int, ...], layout: Layout, count: int, parts: list[bytes]
    ) -> CipherBlock:
        """Return and count a block that travels."""
        data = b"".join(parts)
        self.counts.ciphertexts += count
        self.counts.bytes += len(data)
        return CipherBlock(NAME, self.fingerprint, kind, shape, layout, count, data)

    def open(self, block: CipherBlock, kinds: tuple[str, ...]) -> list[bytes]:
        """Check a block down to each ciphertext, and return the data of each part."""
        entries, size = check_block(block, NAME, self.fingerprint, kinds), self.ciphertext_size
        packing = Packing.of(block.layout, self.bits)
        counts = [-(-entries // (part.fit if block.kind == "sums" else 1)) for part in packing.parts]
        if block.count != sum(counts) or len(block.data) != block.count * size:
            reason = (
                f"{block.count} ciphertexts in {len(block.data)} bytes; "
                f"{entries} entries need {sum(counts)} of {size} bytes each"
            )
            raise EncryptionError(reason, code="ciphertext", value=block.count)
        if not in_range(block.data, size, write_ints([self.n2], size)):
            raise EncryptionError("a ciphertext is zero or not below n²", code="ciphertext")
        ends = np.cumsum(counts).tolist()
        return [block.data[(end - n) * size : end * size] for n, end in zip(counts, ends, strict=True)]

    def _encrypted_parts(self, encrypt: Encrypt, values: Integers, layout: Layout) -> list[bytes]:
        parts = []
        for part in Packing.of(layout, self.bits).parts:
            size = (part.width + 8) // 8  # with a bit for the sign
            parts.append(encrypt(part.encode(values, size), size, len(values)) if len(values) else b"")
        self.counts.encryptions += len(values) * len(parts)
        self.counts.logical_rows += len(values) * layout.logical
        return parts

    def _encrypt(self, plaintexts: bytes, size: int, count: int) -> bytes:
        ops = self.public_ops(count)
        return ops.encrypt(plaintexts, size, self.random(count))


class PaillierPrivateKey(PrivateKey):
    """p and q, with a base of full order modulo each square. Nothing here can be encoded or copied."""

    def __init__(
        self, first: Prime, second: Prime, protection: SecureRandom, resources: Resources, *, background: bool = False
    ) -> None:
        self._p, self._q, self._protection = first.p, second.p, protection
        self._bases = subgroup_generator(first, protection), subgroup_generator(second, protection)
        self._key = PaillierPublicKey(int(first.p * second.p), protection, resources)
        self.public, self._lock = self._key, threading.Lock()
        self._ops: PrivateOps | None = None
        self._pool: ZeroPool | None = None
        if background:
            self._pool = ZeroPool(self._key.ciphertext_size, partial(self._zeros, SecureRandom()))
            resources.zero_pools.add(self._pool)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key never leaves its process")

    def encrypt(self, values: Integers, layout: Layout) -> EncryptedRows:
        """Encrypt int64 [n, k] modulo p² and q²."""
        return self._key.encrypt_with(self._encrypt, values, layout)

    def encrypt_blocks(self, values: Integers, layout: Layout, rows: int) -> Iterator[CipherBlock]:
        """Encrypt int64 [n, k] in blocks; a thread encrypts the next one."""
        if rows < 1:
            raise EncryptionError(f"blocks of {rows} rows", code="range", value=rows)
        return self._key.blocks_with(self._encrypt, check_values(values, layout), layout, rows)

    def prepare(self, count: int) -> None:
        """Precompute up to ``count`` encryptions of zero; later ciphertexts, each a part of a row, use them first."""
        if self._pool is not None:
            self._pool.start(count)

    def decrypt(self, block: CipherBlock) -> Integers:
        """Decrypt a block to int64 [F, n_groups, k], or [1, n, k] of rows."""
        size, ops = self._key.bits // 8 + 1, self._private_ops(_USES_UNKNOWN)
        parts = self._key.open(block, ("rows", "sums"))
        sums = unpacked(block, self._key.bits, [read_ints(ops.decrypt(data), size, signed=True) for data in parts])
        check_sums(sums, block.layout)
        self._key.counts.decryptions += block.count
        return sums

    def _encrypt(self, plaintexts: bytes, size: int, count: int) -> bytes:
        zeros = self._pool.take(count) if self._pool is not None else b""
        ready = len(zeros) // self._key.ciphertext_size
        ops = self._private_ops(_OWNER_ROUNDS * count)
        completed = ops.complete(zeros, plaintexts[: ready * size], size) if ready else b""
        if ready == count:
            return completed
        return completed + self._encrypt_now(self._protection, plaintexts[ready * size :], size, count - ready)

    def _zeros(self, protection: SecureRandom, count: int) -> bytes:
        return self._encrypt_now(protection, bytes(count), 1, count)

    def _encrypt_now(self, protection: SecureRandom, plaintexts: bytes, size: int, count: int) -> bytes:
        ops = self._private_ops(_OWNER_ROUNDS * count)
        x, y = (random_exponents(int(prime) - 1, count, protection) for prime in (self._p, self._q))
        return ops.encrypt(plaintexts, size, x, y)

    def _private_ops(self, uses: int) -> PrivateOps:
        """Return the operations with the secret; the first ``uses`` decide the size of the tables."""
        with self._lock:
            if self._ops is None:
                self._ops = self._key.backend.private_ops(self._p, self._q, *self._bases, uses)
            return self._ops
