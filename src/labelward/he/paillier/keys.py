"""The contract's keys over executors."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Literal, NoReturn

import numpy as np
from gmpy2 import mpz

from labelward.errors import EncryptionError
from labelward.he._checks import check_block, check_number, check_sums, check_values
from labelward.he.contract import (
    CipherBlock,
    Counts,
    EncryptedRows,
    Integers,
    Layout,
    PrivateKey,
    PublicKey,
    PublicMaterial,
)
from labelward.he.paillier.kernels import PublicKernel, exponents_below, public_bases
from labelward.he.paillier.numbers import in_range, read, write
from labelward.he.paillier.packing import Packing
from labelward.he.paillier.pool import Executor, Executors, Kept
from labelward.he.paillier.prepared import Prepared
from labelward.he.paillier.primes import Prime, generator
from labelward.he.paillier.sums import PaillierRows, spread
from labelward.he.paillier.tasks import Complete, Decrypt, EncryptOwner, EncryptPublic, LoadOwner, LoadPublic, Task
from labelward.rng import SecureRandom

__all__ = ["NAME", "PaillierPrivateKey", "PaillierPublicKey"]

NAME = "paillier"
Encrypt = Callable[[bytes, int, int], bytes]
#: How often as much work as the first time is expected of a key's tables: an owner encrypts for each tree, a peer
#: seals for each level.
_OWNER_ROUNDS, _PUBLIC_ROUNDS = 5, 64
_USES_UNKNOWN = 1000  # where a process decrypts before it ever encrypts


class PaillierPublicKey(PublicKey):
    """n, with what this party needs to hide its sums under it."""

    def __init__(self, n: int, protection: SecureRandom, executors: Executors) -> None:
        self.engine, self.bits, self.counts = NAME, n.bit_length(), Counts()
        self.n, self.n2, self.executors = mpz(n), mpz(n) ** 2, executors
        self.ciphertext_size = self.bits // 4
        self._protection, self._kept = protection, Kept()
        self._bases: tuple[mpz, mpz] | None = None
        self._material = PublicMaterial(engine=NAME, bits=self.bits, data=n.to_bytes(self.bits // 8, "big"))

    @property
    def fingerprint(self) -> bytes:
        """The first 16 bytes of SHA-256 of n."""
        return hashlib.sha256(b"labelward paillier " + self._material.data).digest()[:16]

    @property
    def obfuscator_cost(self) -> int:
        """About how many products an obfuscator costs (digits of seven bits)."""
        return self.bits // 7

    def material(self) -> PublicMaterial:
        """Return n, big-endian."""
        return self._material

    def encrypt(self, values: Integers, layout: Layout) -> EncryptedRows:
        """Encrypt int64 [n, k]; each ciphertext costs an obfuscator modulo n²."""
        return self.encrypt_with(self._encrypt, values, layout)

    def collect(self, layout: Layout, n: int) -> EncryptedRows:
        """Return rows to come; each is split as it comes, and its bytes are not kept (but for worker processes)."""
        check_number(n, layout)
        return PaillierRows(self, layout, n)

    # -- for the modules beside this one ---------------------------------------------------------------------------

    def encrypt_with(self, encrypt: Encrypt, values: Integers, layout: Layout) -> PaillierRows:
        """Check and pack values, and encrypt each part by ``encrypt(plaintexts, their size, their number)``."""
        checked = check_values(values, layout)
        return PaillierRows(self, layout, len(checked), self._parts_with(encrypt, checked, layout))

    def blocks_with(self, encrypt: Encrypt, values: Integers, layout: Layout, rows: int) -> Iterator[CipherBlock]:
        """Yield blocks of checked values, one of them made ahead."""
        pieces = (values[start : start + rows] for start in range(0, len(values), rows))
        ahead = ThreadPoolExecutor(1, thread_name_prefix="labelward-encrypt")
        try:
            waiting: deque[tuple[int, Future[list[bytes]]]] = deque()
            for piece in [*pieces, None]:
                if piece is not None:
                    waiting.append((len(piece), ahead.submit(self._parts_with, encrypt, piece, layout)))
                if waiting and (piece is None or len(waiting) > 1):
                    n, future = waiting.popleft()
                    parts = future.result()
                    yield self.block("rows", (n,), layout, n * len(parts), parts)
        finally:
            ahead.shutdown(wait=True, cancel_futures=True)

    def load(self, executor: Executor, count: int) -> int:
        """Give an executor what obfuscators are made of, expecting calls like this one for ``count`` of them."""
        if self._bases is None:
            self._bases = public_bases(self.n, self._protection)
        n, h, w = (write([number], self.ciphertext_size) for number in (self.n, *self._bases))
        uses = _PUBLIC_ROUNDS * count // executor.size
        executor.load(self._kept, lambda _: LoadPublic(self._kept.handle, n, h, w, uses))
        return self._kept.handle

    def random(self, count: int) -> bytes:
        """Draw what ``count`` obfuscators need."""
        return self._protection.bytes(count * PublicKernel.random_size(self.n)[1])

    def block(
        self, kind: Literal["rows", "sums"], shape: tuple[int, ...], layout: Layout, count: int, parts: list[bytes]
    ) -> CipherBlock:
        """Make and count a block that travels."""
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
            raise EncryptionError(
                f"{block.count} ciphertexts in {len(block.data)} bytes; "
                f"{entries} entries need {sum(counts)} of {size} bytes each",
                code="ciphertext",
                value=block.count,
            )
        if not in_range(block.data, size, write([self.n2], size)):
            raise EncryptionError("a ciphertext is zero or not below n²", code="ciphertext")
        ends = np.cumsum(counts).tolist()
        return [block.data[(end - n) * size : end * size] for n, end in zip(counts, ends, strict=True)]

    def _parts_with(self, encrypt: Encrypt, values: Integers, layout: Layout) -> list[bytes]:
        parts = []
        for part in Packing.of(layout, self.bits).parts:
            size = (part.width + 8) // 8  # with a bit for the sign
            parts.append(encrypt(part.encode(values, size), size, len(values)) if len(values) else b"")
        self.counts.encryptions += len(values) * len(parts)
        return parts

    def _encrypt(self, plaintexts: bytes, size: int, count: int) -> bytes:
        executor = self.executors.pick(count * self.obfuscator_cost)
        handle, random = self.load(executor, count), self.random(count)
        step = len(random) // count
        tasks: list[Task] = [
            EncryptPublic(handle, size, plaintexts[a * size : b * size], random[a * step : b * step])
            for a, b in spread(count, executor.size)
        ]
        return b"".join(executor.run(tasks))


class PaillierPrivateKey(PrivateKey):
    """p and q, with a base of full order modulo each square. Nothing here can be encoded or copied."""

    def __init__(
        self, first: Prime, second: Prime, protection: SecureRandom, executors: Executors, *, background: bool = False
    ) -> None:
        self._p, self._q, self._protection, self._kept = first.p, second.p, protection, Kept()
        self._bases = generator(first, protection), generator(second, protection)
        self._key = PaillierPublicKey(int(first.p * second.p), protection, executors)
        self.public = self._key
        self._prepared = (
            Prepared(self._key.ciphertext_size, partial(self._zeros, SecureRandom())) if background else None
        )
        if self._prepared is not None:
            executors.prepared.add(self._prepared)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key never leaves its process")

    def encrypt(self, values: Integers, layout: Layout) -> EncryptedRows:
        """Encrypt int64 [n, k] modulo p² and q²."""
        return self._key.encrypt_with(self._encrypt, values, layout)

    def encrypt_blocks(self, values: Integers, layout: Layout, rows: int) -> Iterator[CipherBlock]:
        """Encrypt int64 [n, k] in blocks; a thread makes the next one."""
        if rows < 1:
            raise EncryptionError(f"blocks of {rows} rows", code="range", value=rows)
        return self._key.blocks_with(self._encrypt, check_values(values, layout), layout, rows)

    def prepare(self, count: int) -> None:
        """Prepare up to ``count`` encryptions of zero; later ciphertexts, each a part of a row, use them first."""
        if self._prepared is not None:
            self._prepared.start(count)

    def decrypt(self, block: CipherBlock) -> Integers:
        """Decrypt a block to int64 [F, n_groups, k], or [1, n, k] of rows."""
        parts = self._key.open(block, ("rows", "sums"))
        shape = block.shape if block.kind == "sums" else (1, *block.shape)
        entries, columns = shape[0] * shape[1], []
        for part, data in zip(Packing.of(block.layout, self._key.bits).parts, parts, strict=True):
            fit = part.fit if block.kind == "sums" else 1
            columns.append(part.decode(self._decrypt(data), entries, fit))
        sums: Integers = np.concatenate(columns, axis=1).reshape(*shape, len(block.layout.bounds))
        check_sums(sums, block.layout)
        self._key.counts.decryptions += block.count
        return sums

    def _encrypt(self, plaintexts: bytes, size: int, count: int) -> bytes:
        zeros = self._prepared.take(count) if self._prepared is not None else b""
        ready = len(zeros) // self._key.ciphertext_size
        begun = self._complete(zeros, plaintexts[: ready * size], size, ready) if ready else b""
        if ready == count:
            return begun
        return begun + self._encrypt_now(self._protection, plaintexts[ready * size :], size, count - ready)

    def _zeros(self, protection: SecureRandom, count: int) -> bytes:
        return self._encrypt_now(protection, bytes(count), 1, count)

    def _complete(self, zeros: bytes, plaintexts: bytes, size: int, count: int) -> bytes:
        executor, whole = self._key.executors.pick(count), self._key.ciphertext_size
        handle = self._load(executor, _OWNER_ROUNDS * count)
        tasks: list[Task] = [
            Complete(handle, size, zeros[a * whole : b * whole], plaintexts[a * size : b * size])
            for a, b in spread(count, executor.size)
        ]
        return b"".join(executor.run(tasks))

    def _encrypt_now(self, protection: SecureRandom, plaintexts: bytes, size: int, count: int) -> bytes:
        half = self._key.bits // 16  # bytes of p, of q, and of an exponent below either
        executor = self._key.executors.pick(count * self._key.bits // 20)
        handle = self._load(executor, _OWNER_ROUNDS * count)
        x, y = (exponents_below(int(prime) - 1, count, protection) for prime in (self._p, self._q))
        tasks: list[Task] = [
            EncryptOwner(handle, size, plaintexts[a * size : b * size], x[a * half : b * half], y[a * half : b * half])
            for a, b in spread(count, executor.size)
        ]
        return b"".join(executor.run(tasks))

    def _decrypt(self, data: bytes) -> list[mpz]:
        size, plaintext = self._key.ciphertext_size, self._key.bits // 8 + 1
        count = len(data) // size
        executor = self._key.executors.pick(count * self._key.bits // 4)
        handle = self._load(executor, _USES_UNKNOWN)
        tasks: list[Task] = [Decrypt(handle, data[a * size : b * size]) for a, b in spread(count, executor.size)]
        return read(b"".join(executor.run(tasks)), plaintext, signed=True)

    def _load(self, executor: Executor, uses: int) -> int:
        size = self._key.ciphertext_size
        p, q, tau_p, tau_q = (write([number], size) for number in (self._p, self._q, *self._bases))
        each = uses // executor.size
        executor.load(self._kept, lambda _: LoadOwner(self._kept.handle, p, q, tau_p, tau_q, each))
        return self._kept.handle
