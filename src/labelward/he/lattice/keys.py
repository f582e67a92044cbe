"""Public and private keys of the lattice engine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he._validate import check_block, check_capacity, check_own_sums, check_sums, check_values, refuse_take
from labelward.he.base import (
    CipherBlock,
    Counts,
    EncryptedRows,
    EncryptedSums,
    Integers,
    Layout,
    LevelWork,
    PrivateKey,
    PublicKey,
    PublicMaterial,
)
from labelward.he.lattice import loops, own_sums
from labelward.he.lattice.ciphertexts import LatticeRows
from labelward.he.lattice.digits import Digits, digits_of, places, sums_together
from labelward.he.lattice.draws import SEED_BYTES, Stream
from labelward.he.lattice.key_material import PublicElements, Secrets
from labelward.he.lattice.levels import LevelChoice, best_spacing
from labelward.he.lattice.ring import PRIMES, Q0, Q1, Int64s, Reals, vectors
from labelward.he.lattice.row_data import (
    HEAD_BYTES,
    OWN_SEALED,
    OWN_SUMS,
    PACKED_SUMS,
    RowData,
    expand,
    parse_row_data,
    read_head,
    set_count,
)
from labelward.he.lattice.sealing import sum_bytes
from labelward.he.lattice.spaced import SpacedData, SpacedRows, encrypt_spaced, parse_spaced, row_words
from labelward.he.lattice.words import packed_size, unpack
from labelward.he.threads import run_in_threads
from labelward.rng import SecureRandom

NAME = "lattice"
_SUM_FORMS = (PACKED_SUMS, OWN_SUMS, OWN_SEALED)


class LatticeResources(NamedTuple):
    """What the keys of an engine share."""

    allocate: Callable[[tuple[int, ...]], NDArray[np.uint64]]
    workers: int
    choice: LevelChoice


class LatticePublicKey(PublicKey):
    """Public elements, with which this party masks its sums."""

    def __init__(self, elements: PublicElements, protection: SecureRandom, resources: LatticeResources) -> None:
        self.engine, self.bits, self.counts = NAME, elements.ring.n, Counts()
        self.elements, self.protection = elements, protection
        self.allocate, self.workers, self.choice = resources
        self.sum_excess = packed_size(elements.ring.n)  # the polynomial of a sum that is sealed alone
        self._fingerprint = hashlib.sha256(b"labelward lattice " + elements.data).digest()[:16]

    @property
    def fingerprint(self) -> bytes:
        """The first 16 bytes of SHA-256 of all public elements."""
        return self._fingerprint

    def material(self) -> PublicMaterial:
        """Return seeds and public elements."""
        return PublicMaterial(engine=NAME, bits=self.bits, data=self.elements.data)

    def encrypt(self, values: Integers, layout: Layout) -> EncryptedRows:
        """Encrypt int64 [n, k] without the secret: rows of which every block has a polynomial of its own, 100 KB.

        Their noise is larger than that of the owner's rows, so that flooding hides it 2^6 times less. The noise is this
        party's own and tells nothing of other rows.
        """
        if layout.spacing > 1:
            raise EncryptionError("spaced rows need the private key", code="unsupported", value=layout.spacing)
        return self.encrypt_with(self._hidden, values, layout)

    def allocate_rows(self, layout: Layout, n: int) -> EncryptedRows:
        """Return rows to come."""
        self.elements.require_rows()
        check_capacity(n, layout)
        return LatticeRows(self, layout, n) if layout.spacing == 1 else SpacedRows(self, layout, n)

    def encrypt_sums(self, values: Integers, layout: Layout) -> CipherBlock:
        """Encrypt sums, as many in a ciphertext as it has coefficients."""
        flat = check_own_sums(values, layout)
        digits = own_sums.own_digits(layout, self.bits)
        data = own_sums.encrypt_own(self.elements, digits, flat, Stream.secret(self.protection))
        count = len(flat) * digits_of(layout, self.bits).total
        self.counts.encryptions += count
        return self.block("sums", (values.shape[0], values.shape[1]), layout, count, data)

    def sums(self, block: CipherBlock) -> EncryptedSums:
        """Open sums that a party computed itself; sealed sums of rows are for the key owner alone."""
        if self.check(block, ("sums",)) != OWN_SUMS:
            raise EncryptionError("sealed sums cannot be added to others", code="unsupported")
        digits = own_sums.own_digits(block.layout, self.bits)
        polynomials = own_sums.open_own(block.data, block.shape[0] * block.shape[1], digits, self.bits)
        return AddedSums(self, block.layout, (block.shape[0], block.shape[1]), polynomials)

    # -- for the other modules of this package -----------------------------------------------------------------------

    def encrypt_with(
        self, hide: Callable[[int, Digits], tuple[Reals, dict[str, Any]]], values: Integers, layout: Layout
    ) -> EncryptedRows:
        """Check and split values; ``hide(rows, digits)`` returns what hides them.

        That is for each block the a·s_k [K, 2, n] as values, and how the polynomials a travel.
        """
        self.elements.require_rows()
        checked, digits = check_values(values, layout), digits_of(layout, self.bits)
        rows, split = len(checked), digits.split(checked)
        products, shared = hide(rows, digits)
        step, each = float(digits.step * Q1 % Q0), self.bits // digits.spacing
        blocks = [(i, slice(i * each, (i + 1) * each), Stream.secret(self.protection)) for i in range(len(products))]
        self.counts.encryptions += rows * digits.total
        self.counts.logical_rows += rows * layout.logical
        words = np.empty((0 if digits.spacing > 1 else rows, digits.total, 2), dtype=np.int64)
        spaced: dict[int, Int64s] = {}

        def encrypt(block: tuple[int, slice, Stream]) -> None:
            i, own, stream = block
            errors = stream.errors((digits.total, self.bits))
            if digits.spacing > 1:
                spaced[i] = encrypt_spaced(self.elements, digits, products[i], errors, split[own], step)
            else:
                loops.encrypt_rows(self.elements.ring, products[i], errors, split[own], step, words[own])

        run_in_threads(self.workers, encrypt, blocks)
        if digits.spacing > 1:
            travels = SpacedData(rows, shared["seeds"], tuple(spaced[i] for i in range(len(blocks))))
            return SpacedRows(self, layout, rows, travels)
        data = RowData(words=words, sets=set_count(digits, self.elements.secrets), **shared)
        return LatticeRows(self, layout, rows, data)

    def count_additions(self, order: NDArray[np.int32], lists: Int64s, digits: Digits) -> None:
        """Count the additions that the sums of these rows by cell take."""
        filled = int(np.count_nonzero(lists[:, 1] > lists[:, 0]))
        self.counts.additions += (len(order) - filled) * digits.total

    def block(
        self, kind: Literal["rows", "sums"], shape: tuple[int, ...], layout: Layout, count: int, data: bytes
    ) -> CipherBlock:
        """Return and count a block that travels."""
        self.counts.ciphertexts += count
        self.counts.bytes += len(data)
        return CipherBlock(NAME, self.fingerprint, kind, shape, layout, count, data)

    def check(self, block: CipherBlock, kinds: tuple[str, ...]) -> int:
        """Return the form of a block, after all checks that need no arithmetic."""
        entries = check_block(block, NAME, self.fingerprint, kinds)
        digits, n = digits_of(block.layout, self.bits), self.bits
        if block.count != entries * digits.total:
            reason = f"{block.count} ciphertexts where {entries} entries need {entries * digits.total}"
            raise EncryptionError(reason, code="ciphertext", value=block.count)
        if block.kind == "rows":
            self.elements.require_rows()
            return 0
        form = read_head(block.data, _SUM_FORMS)
        if form == PACKED_SUMS:
            self.elements.require_rows()
        own = own_sums.own_digits(block.layout, n)
        size = (
            sum_bytes(entries, n, self.elements.secrets, digits)
            if form == PACKED_SUMS
            else own_sums.own_bytes(entries, own, n, sealed=form == OWN_SEALED)
        )
        if len(block.data) != size:
            reason = f"{entries} sums need {size} bytes, not {len(block.data)}"
            raise EncryptionError(reason, code="ciphertext", value=len(block.data))
        return form

    def check_sum(self, mine: EncryptedSums, other: EncryptedSums) -> None:
        """Refuse to add sums of another key, kind, shape or layout."""
        if getattr(getattr(other, "_key", None), "fingerprint", None) != self.fingerprint:
            raise EncryptionError("sums of different keys cannot be added", code="key")
        if (type(other), other.shape, other.layout) != (type(mine), mine.shape, mine.layout):
            reason = f"sums of shapes {mine.shape} and {other.shape} or of two layouts cannot be added"
            raise EncryptionError(reason, code="ciphertext", value=other.shape)

    def _hidden(self, rows: int, digits: Digits) -> tuple[Reals, dict[str, Any]]:
        """Return a·s_k + error of new polynomials a = p1·u + e1, made with the public elements alone."""
        elements, n, stream = self.elements, self.bits, Stream.secret(self.protection)
        blocks, sets = -(-rows // n), set_count(digits, elements.secrets)
        products, a = vectors(blocks, digits.total, 2, n), vectors(blocks, sets, 2, n)
        bits = stream.ternary(blocks * sets, n)
        masks = vectors(blocks * sets, 2, n)
        loops.mask_values(elements.ring, bits, masks)
        small = np.repeat(stream.errors((blocks, sets, n))[:, :, None].astype(np.float64), 2, axis=2)
        loops.to_values(elements.ring, small)
        for block in range(blocks):
            for k in range(digits.total):
                each = k // elements.secrets
                mask, body = masks[block * sets + each], elements.bodies[0, k % elements.secrets]
                loops.multiply_all(elements.ring, mask, body, products[block, k])
            for each in range(sets):
                a[block, each] = small[block, each]
                loops.add_products(elements.ring, masks[block * sets + each], elements.masks[0], a[block, each])
        loops.reduce_all(a)
        return products, {"explicit": a}


class AddedSums(EncryptedSums):
    """Opened sums that parties computed themselves.

    Args:
        polynomials: int64 [count, (c1, c0), n, 2].
        blocks: how many were added.
    """

    def __init__(
        self, key: LatticePublicKey, layout: Layout, shape: tuple[int, int], polynomials: Int64s, blocks: int = 1
    ) -> None:
        self.shape, self.layout, self.blocks = shape, layout, blocks
        self._key, self._polynomials = key, polynomials

    def __add__(self, other: EncryptedSums) -> EncryptedSums:
        self._key.check_sum(self, other)
        assert isinstance(other, AddedSums)
        blocks = self.blocks + other.blocks
        if blocks > own_sums.MOST:
            raise EncryptionError(f"more than {own_sums.MOST} blocks were added", code="capacity", value=blocks)
        total = (self._polynomials + other._polynomials) % np.array(PRIMES, dtype=np.int64)
        self._key.counts.additions += self.shape[0] * self.shape[1] * self._digits
        return AddedSums(self._key, self.layout, self.shape, total, blocks)

    def take(self, cells: Integers) -> EncryptedSums:
        """Refuse: they share ciphertexts."""
        refuse_take(packed=True)
        raise AssertionError

    def rerandomize(self) -> CipherBlock:
        """Mask and flood every coefficient, and divide by q1."""
        key, cells = self._key, self.shape[0] * self.shape[1]
        digits = own_sums.own_digits(self.layout, key.bits)
        data = own_sums.seal_own(key.elements, digits, self._polynomials, Stream.secret(key.protection))
        key.counts.logical_sums += cells * self.layout.logical
        return key.block("sums", self.shape, self.layout, cells * self._digits, data)

    @property
    def _digits(self) -> int:
        return digits_of(self.layout, self._key.bits).total


class LatticePrivateKey(PrivateKey):
    """The secrets. Nothing here can be encoded or copied."""

    def __init__(
        self, secrets: Secrets, elements: PublicElements, protection: SecureRandom, resources: LatticeResources
    ) -> None:
        self.public = self._key = LatticePublicKey(elements, protection, resources)
        self._secrets = secrets

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key never leaves its process")

    def encrypt(self, values: Integers, layout: Layout) -> EncryptedRows:
        """Encrypt int64 [n, k] with seeded polynomials."""
        return self._key.encrypt_with(self._hidden, values, layout)

    def level_spacing(self, layout: Layout, work: LevelWork) -> int:
        """Return the spacing that costs least; 0 where rows that the peer has do."""
        return best_spacing(layout, work, self._key.bits, self._key.elements.secrets, self._key.choice)

    def decrypt(self, block: CipherBlock) -> Integers:
        """Decrypt a block to int64 [F, n_groups, k], or [1, n, k] of rows."""
        form = self._key.check(block, ("rows", "sums"))
        shape = block.shape if block.kind == "sums" else (1, *block.shape)
        entries, n = shape[0] * shape[1], self._key.bits
        if block.kind == "rows":
            flat = self._decrypt_rows(block)
        elif form == PACKED_SUMS:
            flat = self._decrypt_sums(block, entries)
        else:
            digits = own_sums.own_digits(block.layout, n)
            sealed = form == OWN_SEALED
            flat = own_sums.decrypt_own(
                self._key.elements.ring, self._secrets, digits, block.data, entries, sealed=sealed
            )
        sums: Integers = flat.reshape(*shape, len(block.layout.bounds))
        check_sums(sums, block.layout)
        self._key.counts.decryptions += block.count
        return sums

    def _hidden(self, rows: int, digits: Digits) -> tuple[Reals, dict[str, Any]]:
        """Return a·s_k of new seeded polynomials."""
        n, sets = self._key.bits, set_count(digits, self._key.elements.secrets)
        blocks = -(-rows * digits.spacing // n)
        seeds = self._key.protection.bytes(blocks * sets * SEED_BYTES)
        a = expand(seeds, n, self._key.workers).reshape(blocks, sets, 2, n)
        return self._times_secrets(a, digits.total), {"seeds": seeds}

    def _times_secrets(self, a: Reals, total: int) -> Reals:
        """Return a·s_k [blocks, K, 2, n] of the polynomials [blocks, sets, 2, n]; all are values."""
        secrets = self._key.elements.secrets
        out = vectors(len(a), total, 2, a.shape[-1])

        def multiply(block: int) -> None:
            for k in range(total):
                secret = self._secrets.rows[k % secrets]
                loops.multiply_all(self._key.elements.ring, a[block, k // secrets], secret, out[block, k])

        run_in_threads(self._key.workers, multiply, range(len(a)))
        return out

    def _decrypt_rows(self, block: CipherBlock) -> Int64s:
        n, digits = self._key.bits, digits_of(block.layout, self._key.bits)
        if not block.shape[0]:
            return np.empty((0, len(block.layout.bounds)), dtype=np.int64)
        given = block.data, block.shape[0], n, self._key.elements.secrets, digits
        if digits.spacing > 1:
            data = parse_spaced(*given)
            words, a = row_words(data, digits, n), expand(data.seeds, n, self._key.workers)
            a = a.reshape(len(data.blocks), -1, 2, n)
        else:
            dense = parse_row_data(*given)
            words, a = dense.words, dense.polynomials(n, self._key.workers)
        products = self._times_secrets(a, digits.total)
        plain = np.empty_like(products)
        loops.to_coefficients(self._key.elements.ring, products, plain)
        out = np.empty((block.shape[0], digits.total), dtype=np.int64)
        loops.decrypt_rows(plain, words, digits.spacing, float(digits.step), out)
        return digits.join(out)

    def _decrypt_sums(self, block: CipherBlock, entries: int) -> Int64s:
        n, digits, secrets = self._key.bits, digits_of(block.layout, self._key.bits), self._key.elements.secrets
        together, at = sums_together(n, digits.spacing), places(n, digits.spacing)
        sets, batches = set_count(digits, secrets), -(-entries // together)
        view, size = memoryview(block.data)[HEAD_BYTES:], packed_size(batches * sets * n)
        packed = unpack(view[:size], (batches * sets * n,)).reshape(batches, sets, n)
        words = unpack(view[size:], (entries * digits.total,)).reshape(entries, digits.total)
        out = np.empty((entries, digits.total), dtype=np.int64)
        for i in range(batches):
            part = slice(i * together, min((i + 1) * together, entries))
            for each in range(sets):
                own = slice(each * secrets, min((each + 1) * secrets, digits.total))
                loops.open_packed(
                    self._key.elements.ring, packed[i, each], words[part, own], self._secrets.packing, at,
                    float(digits.step), out[part, own],
                )  # fmt: skip
        return digits.join(out)
