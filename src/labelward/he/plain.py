"""Engines that hide nothing: ``plain``, with the same arithmetic, checks and counting, for tests and speed; ``none``.

The former needs ``insecure=True``. Each row and each sum counts as one ciphertext of k·8 bytes, as for an engine
without compression.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he._validate import (
    check_block,
    check_block_fits,
    check_capacity,
    check_chosen,
    check_groups,
    check_material,
    check_own_sums,
    check_parties,
    check_positions,
    check_sums,
    check_values,
    refuse_take,
)
from labelward.he.base import (
    CipherBlock,
    CiphertextFormat,
    Counts,
    EncryptedRows,
    EncryptedSums,
    Engine,
    Groups,
    Integers,
    KeyPart,
    Layout,
    LevelWork,
    PrivateKey,
    PublicKey,
    PublicMaterial,
)
from labelward.rng import SecureRandom

_NAME = "plain"


class _Key(PublicKey):
    """A random fingerprint, so that blocks of two runs cannot be mixed up here either."""

    def __init__(self, fingerprint: bytes, engine: PlainEngine) -> None:
        self.engine, self.bits, self.counts = _NAME, 0, Counts()
        self._fingerprint, self._of = fingerprint, engine

    @property
    def fingerprint(self) -> bytes:
        return self._fingerprint

    def material(self) -> PublicMaterial:
        return PublicMaterial(engine=_NAME, bits=0, data=self._fingerprint)

    def encrypt(self, values: Integers, layout: Layout) -> EncryptedRows:
        checked = check_values(values, layout)
        self.counts.encryptions += len(checked)
        self.counts.logical_rows += len(checked) * layout.logical
        self._of.encrypted(layout, len(checked))
        return _Rows(self, checked.copy(), layout, fresh=True)

    def allocate_rows(self, layout: Layout, n: int) -> EncryptedRows:
        check_capacity(n, layout)
        return _Rows(self, np.zeros((n, len(layout.bounds)), dtype=np.int64), layout, fresh=False)

    def encrypt_sums(self, values: Integers, layout: Layout) -> CipherBlock:
        flat = check_own_sums(values, layout)
        self.counts.encryptions += len(flat)
        return self._block(flat, layout, (values.shape[0], values.shape[1]))

    def sums(self, block: CipherBlock) -> EncryptedSums:
        values = self._open(block, ("sums",)).reshape(*block.shape, len(block.layout.bounds))
        return _Sums(self, values, block.layout, np.ones(block.shape, dtype=np.bool_), packed=True)

    def select(self, block: CipherBlock, chosen: NDArray[np.bool_]) -> CipherBlock:
        kept = check_chosen(block, chosen)
        return self._block(np.where(kept[:, None], self._open(block, ("rows",)), 0), block.layout, block.shape)

    def _open(self, block: CipherBlock, kinds: tuple[str, ...]) -> Integers:
        entries = check_block(block, _NAME, self._fingerprint, kinds)
        size = entries * len(block.layout.bounds)
        if block.count != entries or len(block.data) != size * 8:
            reason = f"{len(block.data)} bytes, {block.count} ciphertexts for {entries} entries"
            raise EncryptionError(reason, code="ciphertext", value=block.count)
        values: Integers = np.frombuffer(block.data, dtype="<i8")
        return values.reshape(entries, len(block.layout.bounds))

    def _block(self, values: Integers, layout: Layout, shape: tuple[int, ...]) -> CipherBlock:
        data, count = values.astype("<i8", copy=False).tobytes(), int(np.prod(shape))
        self.counts.ciphertexts += count
        self.counts.bytes += len(data)
        kind: Any = "rows" if len(shape) == 1 else "sums"
        return CipherBlock(_NAME, self._fingerprint, kind, shape, layout, count, data)


class _PrivateKey(PrivateKey):
    def __init__(self, public: _Key) -> None:
        self.public = self._key = public

    def encrypt(self, values: Integers, layout: Layout) -> EncryptedRows:
        return self._key.encrypt(values, layout)

    def level_spacing(self, layout: Layout, work: LevelWork) -> int:
        return self._key._of.level_spacing(layout, work, 0)

    def decrypt(self, block: CipherBlock) -> Integers:
        values = self._key._open(block, ("rows", "sums"))
        check_sums(values, block.layout)
        self._key.counts.decryptions += block.count
        self._key._of.decrypted(block)
        shape = block.shape if block.kind == "sums" else (1, *block.shape)
        return values.reshape(*shape, len(block.layout.bounds)).copy()


class _KeyPart(KeyPart):
    """The parts of a key that hides nothing are empty."""

    def __init__(self, public: _Key) -> None:
        self.public = public
        self._private = _PrivateKey(public)

    def partial_decrypt(self, block: CipherBlock) -> bytes:
        return hashlib.sha256(b"part" + self._private.decrypt(block).tobytes()).digest()

    def combine(self, block: CipherBlock, partials: Sequence[bytes]) -> Integers:
        values = self._private.decrypt(block)
        if len(partials) < 2 or set(partials) != {hashlib.sha256(b"part" + values.tobytes()).digest()}:
            raise EncryptionError("a part is missing or of another block", code="ciphertext", value=len(partials))
        return values


class _Rows(EncryptedRows):
    def __init__(self, key: _Key, values: Integers, layout: Layout, *, fresh: bool) -> None:
        self.n, self.layout = len(values), layout
        self.have = self.n if fresh else 0
        self._key, self._values, self._fresh = key, values, fresh

    def add(self, block: CipherBlock) -> None:
        values = self._key._open(block, ("rows",))
        check_block_fits(block, self.layout, self.n - self.have)
        block.layout.check(values)
        self._values[self.have : self.have + len(values)] = values
        self.have += len(values)

    def block(self) -> CipherBlock:
        if not self._fresh:
            raise EncryptionError("rows that a peer encrypted do not travel again", code="not-sendable")
        return self._key._block(self._values, self.layout, (self.n,))

    def group_sums(self, groups: Groups, n_groups: int, start: int = 0) -> EncryptedSums:
        from labelward.he._loops import group_sums

        since, checked = time.perf_counter(), check_groups(groups, start, self.have, n_groups)
        shape = (checked.shape[1], n_groups)
        sums = np.zeros((*shape, self._values.shape[1]), dtype=np.int64)
        seen: NDArray[np.uint8] = np.zeros(shape, dtype=np.uint8)
        present = group_sums(self._values[start : start + len(checked)], checked, sums, seen)
        if present < 0:
            raise EncryptionError(f"a group lies outside range({n_groups}) and is not -1", code="range")
        self._key.counts.additions += present - int(np.count_nonzero(seen))
        self._key._of.summed(checked, n_groups, self.layout.spacing, since)
        return _Sums(self._key, sums, self.layout, seen > 0)


class _Sums(EncryptedSums):
    """Sums [F, n_groups, k], of which those that hold rows are ``filled``; no ``packed`` ones can be taken out."""

    def __init__(
        self, key: _Key, values: Integers, layout: Layout, filled: NDArray[np.bool_], *, packed: bool = False
    ) -> None:
        self.shape, self.layout = (values.shape[0], values.shape[1]), layout
        self._key, self._values, self._filled, self._packed = key, values, filled, packed

    def __add__(self, other: EncryptedSums) -> EncryptedSums:
        if not isinstance(other, _Sums) or other._key.fingerprint != self._key.fingerprint:
            raise EncryptionError("sums of different keys cannot be added", code="key")
        if (other.shape, other.layout, other._packed) != (self.shape, self.layout, self._packed):
            reason = f"sums of shapes {self.shape} and {other.shape} or of two layouts cannot be added"
            raise EncryptionError(reason, code="ciphertext", value=other.shape)
        since, total = time.perf_counter(), self._values + other._values
        self._key.counts.additions += self._filled.size
        self._key._of.added(self._filled, other._filled, since)
        return _Sums(self._key, total, self.layout, self._filled | other._filled, packed=self._packed)

    def take(self, cells: Integers) -> EncryptedSums:
        refuse_take(self._packed)
        chosen = check_positions(cells, self.shape[0] * self.shape[1])
        values = self._values.reshape(-1, self._values.shape[2])[chosen][None]
        return _Sums(self._key, values, self.layout, self._filled.reshape(-1)[chosen][None])

    def rerandomize(self) -> CipherBlock:
        self._key.counts.logical_sums += self.shape[0] * self.shape[1] * self.layout.logical
        return self._key._block(self._values, self.layout, self.shape)


class PlainEngine(Engine):
    """No encryption at all: for tests and studies; the job must say ``insecure = true``."""

    name: ClassVar[str] = _NAME
    secure: ClassVar[bool] = False
    bits_offered: ClassVar[tuple[int, ...]] = ()
    shares_keys: ClassVar[bool] = True

    def generate(self, bits: int, *, protection: SecureRandom, insecure: bool = False) -> PrivateKey:
        """Make a new fingerprint; ``bits`` means nothing here."""
        self._refuse(insecure)
        return _PrivateKey(_Key(protection.bytes(16), self))

    def public(self, material: PublicMaterial, *, protection: SecureRandom, insecure: bool = False) -> PublicKey:
        """Open a peer's fingerprint."""
        self._refuse(insecure)
        check_material(material, _NAME)
        if len(material.data) != 16:
            reason = f"a fingerprint has 16 bytes but this one has {len(material.data)}"
            raise EncryptionError(reason, code="key", value=len(material.data))
        return _Key(material.data, self)

    def deal_key(
        self, bits: int, parties: int, *, protection: SecureRandom, insecure: bool = False
    ) -> tuple[PublicMaterial, tuple[bytes, ...]]:
        """Make a new fingerprint, and empty parts."""
        self._refuse(insecure)
        check_parties(parties)
        return _Key(protection.bytes(16), self).material(), (b"",) * parties

    def key_part(
        self, material: PublicMaterial, part: bytes, *, protection: SecureRandom, insecure: bool = False
    ) -> KeyPart:
        """Open a fingerprint; a part that is not empty is none."""
        public = self.public(material, protection=protection, insecure=insecure)
        if part or not isinstance(public, _Key):
            raise EncryptionError(f"a part of {len(part)} bytes is none of this engine", code="key", value=len(part))
        return _KeyPart(public)

    def security_level(self, bits: int) -> int:
        """Return 0."""
        return 0

    def ciphertext_format(self, layout: Layout, bits: int) -> CiphertextFormat:
        """Return one ciphertext of k·8 bytes for each row and each sum."""
        return CiphertextFormat(size=8 * len(layout.bounds), fits=(1,))

    def calibration_rows(self, bits: int) -> int:
        """Return 512."""
        return 512

    def describe(self) -> dict[str, Any]:
        """Return name and kernel."""
        return super().describe() | {"kernel": "numba"}

    def summed(self, groups: Groups, n_groups: int, spacing: int, since: float) -> None:
        """Hear of a sum by groups that began at ``since``; a hook for :mod:`labelward.planning.counting_engine`."""

    def added(self, first: NDArray[np.bool_], second: NDArray[np.bool_], since: float) -> None:
        """Hear of an addition of sums, of which these cells hold rows."""

    def encrypted(self, layout: Layout, rows: int) -> None:
        """Hear of rows that the key owner encrypts."""

    def decrypted(self, block: CipherBlock) -> None:
        """Hear of a block of sums that the key owner decrypts."""

    @staticmethod
    def _refuse(insecure: bool) -> None:
        if not insecure:
            raise EncryptionError("engine 'plain' encrypts nothing; it needs insecure = true", code="insecure")


class NullEngine(Engine):
    """Placeholder for an engine where nothing is encrypted: whoever receives a message can read all of it."""

    name: ClassVar[str] = "none"
    secure: ClassVar[bool] = False
    bits_offered: ClassVar[tuple[int, ...]] = ()

    def generate(self, bits: int, *, protection: SecureRandom, insecure: bool = False) -> PrivateKey:
        """Refuse."""
        raise EncryptionError("engine 'none' makes no keys", code="unsupported", value="none")

    def public(self, material: PublicMaterial, *, protection: SecureRandom, insecure: bool = False) -> PublicKey:
        """Refuse."""
        raise EncryptionError("engine 'none' has no keys", code="unsupported", value="none")

    def security_level(self, bits: int) -> int:
        """Return 0."""
        return 0

    def insecure_reason(self, bits: int) -> str:
        """Return nothing: the protocol hides nothing from those who receive its messages."""
        return ""

    def describe(self) -> dict[str, Any]:
        """Return nothing."""
        return {}
