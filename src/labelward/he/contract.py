"""The narrow waist of the encryption: grouped sums under an additively homomorphic key.

::

    private = engine.generate(bits, protection=Protection())      the active party
    blocks  = private.encrypt_blocks(values, layout, 16_384)      k numbers a row; each block travels
    rows    = public.collect(layout, len(values))                 a passive party
    rows.add(block)                                               as each of them comes
    sums    = rows.group_sums(groups, n_groups)                   for each column of groups: each group's sum
    block   = sums.seal()                                         re-randomized, compressed; travels
    values  = private.decrypt(block)                              int64 [F, n_groups, k]

Setting: the key owner is curious about which rows a group holds, the other side about the values. All of this
protects against semi-honest parties: a malicious owner can encode row numbers in plaintexts.

Only a :class:`CipherBlock` can travel. Fresh rows give one, and sums only by :meth:`EncryptedSums.seal`; so an
unsealed sum, which would tell the key owner its group's rows, has no encoding at all.

How an engine comes to its sums is its own: it may add up the cells of several columns first and merge those. Such
cells never leave the party that sums, so the owner sees the same sealed sums whatever the way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.rng import SecureRandom

__all__ = [
    "Additions",
    "CipherBlock",
    "CiphertextFormat",
    "Counts",
    "EncryptedRows",
    "EncryptedSums",
    "Engine",
    "Groups",
    "Integers",
    "Layout",
    "PrivateKey",
    "PublicKey",
    "PublicMaterial",
]

Integers = NDArray[np.int64]
Groups = NDArray[np.int32]


class Layout(msgspec.Struct, frozen=True):
    """What the k numbers of a row may be, and how many rows a sum may hold.

    Attributes:
        bounds: for each number the largest absolute value in one row (integers, fixed-point values included).
        rows: the most rows that any sum holds (for sums of sums: all of them together).
        logical: how many of the k numbers an unpacked protocol would encrypt one by one; counted, never used.
    """

    bounds: tuple[int, ...]
    rows: int
    logical: int

    def widths(self) -> tuple[int, ...]:
        """Bits of each number's slot: enough for the largest sum and its sign."""
        return tuple((bound * self.rows).bit_length() + 1 for bound in self.bounds)

    def check(self, values: Integers) -> None:
        """Raise :class:`EncryptionError` unless ``values[n, k]`` fits; called before encrypting."""
        if values.ndim != 2 or values.shape[1] != len(self.bounds):
            raise EncryptionError(
                f"values of shape {values.shape} for a layout of {len(self.bounds)} columns",
                code="type",
                value=values.shape,
            )
        if len(values) > self.rows:
            raise EncryptionError(
                f"{len(values)} rows exceed the layout's {self.rows}", code="capacity", value=len(values)
            )
        if max(self.widths()) > 63:
            raise EncryptionError(
                f"sums of {self.rows} rows with bounds {self.bounds} do not fit 63 bits",
                code="capacity",
                value=max(self.widths()),
            )
        if len(values) == 0:
            return
        for column, bound in enumerate(self.bounds):
            low, high = int(values[:, column].min()), int(values[:, column].max())
            if low < -bound or high > bound:
                raise EncryptionError(
                    f"column {column} holds a value outside the bound {bound}", code="capacity", value=bound
                )


@dataclass(frozen=True, kw_only=True)
class CiphertextFormat:
    """How an engine lays out the numbers of a row in ciphertexts.

    Attributes:
        size: bytes of a ciphertext.
        fits: for each ciphertext of a row, how many sums its like holds.
    """

    size: int
    fits: tuple[int, ...]

    @property
    def parts(self) -> int:
        """Ciphertexts per row."""
        return len(self.fits)

    def sealed(self, sums: int) -> int:
        """Return the number of ciphertexts in a message of ``sums`` sums."""
        return sum(-(-sums // fit) for fit in self.fits)


class Additions(NamedTuple):
    """Additions as :class:`Counts` has them, and their effort: the same in additions of a row to a cell."""

    number: int
    effort: float


class PublicMaterial(msgspec.Struct, frozen=True):
    """A public key as it travels."""

    engine: str
    bits: int
    data: bytes


class CipherBlock(msgspec.Struct, frozen=True, tag=True):
    """Ciphertexts as they travel: fresh encrypted rows, or sealed sums.

    Attributes:
        engine: the engine's name.
        key: fingerprint of the public key.
        kind: ``"rows"`` (shape ``(n,)``) or ``"sums"`` (shape ``(F, n_groups)``).
        shape: see ``kind``; each entry stands for k numbers.
        layout: bounds of the numbers.
        count: number of ciphertexts in ``data``.
        data: the ciphertexts, in the engine's own encoding.
    """

    engine: str
    key: bytes
    kind: Literal["rows", "sums"]
    shape: tuple[int, ...]
    layout: Layout
    count: int
    data: bytes


@dataclass
class Counts:
    """Operations of one party with one key: what an engine did, in its own ciphertexts.

    ``additions`` are the products that were done: of rows, and of cells that were merged. ``logical_sums`` is what a
    protocol without packing would have sent: groups × columns × ``layout.logical``. ``bytes`` counts ciphertext bytes
    that this side made to travel. Re-randomizing is part of sealing and is not counted as an encryption; shifts while
    compressing are not additions.
    """

    encryptions: int = 0
    additions: int = 0
    decryptions: int = 0
    ciphertexts: int = 0
    logical_sums: int = 0
    bytes: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def add(self, other: Mapping[str, int]) -> None:
        """Add counters that a worker process or another party reports."""
        for name, value in other.items():
            setattr(self, name, getattr(self, name) + value)


class EncryptedSums(ABC):
    """Sums of encrypted rows, one for each (column of groups, group), not yet fit to travel."""

    shape: tuple[int, int]
    layout: Layout

    @abstractmethod
    def __add__(self, other: EncryptedSums) -> EncryptedSums:
        """Add sums of the same key, layout and shape; :class:`EncryptionError` otherwise."""

    @abstractmethod
    def pick(self, cells: Integers) -> EncryptedSums:
        """Return the sums at int64 positions (row-major over columns and groups) as sums of shape (1, len(cells)).

        Raises:
            EncryptionError: a position that is none.
        """

    @abstractmethod
    def seal(self) -> CipherBlock:
        """Re-randomize every sum, compress, and return what may travel."""


class EncryptedRows(ABC):
    """Encrypted rows of k numbers.

    Attributes:
        n: how many rows there are in the end.
        have: how many of them have come.
    """

    n: int
    have: int
    layout: Layout

    @abstractmethod
    def add(self, block: CipherBlock) -> None:
        """Take the next rows in and prepare them for sums.

        Raises:
            EncryptionError: a block of another key, kind or layout, with a ciphertext out of range, or with more rows
                than are due; the rows are then as they were. After a ciphertext that no sum can hold, none can be made.
        """

    @abstractmethod
    def block(self) -> CipherBlock:
        """Return fresh rows as they travel; :class:`EncryptionError` for rows that came from a peer."""

    @abstractmethod
    def group_sums(self, groups: Groups, n_groups: int, start: int = 0) -> EncryptedSums:
        """Sum rows by group, for each column of groups.

        Args:
            groups: int32 [m, F] of the rows start..start+m, all of which must have come; entry (i, f) is the group of
                row start+i in column f, or -1 where the row is absent.
            n_groups: groups are ``range(n_groups)``; a group without rows sums to zero.
        """


class PublicKey(ABC):
    """What a party without the secret can do; owns :attr:`counts` of this party's operations."""

    engine: str
    bits: int
    counts: Counts

    @property
    @abstractmethod
    def fingerprint(self) -> bytes:
        """16 bytes that identify the key."""

    @abstractmethod
    def material(self) -> PublicMaterial:
        """Return the key as it travels."""

    @abstractmethod
    def encrypt(self, values: Integers, layout: Layout) -> EncryptedRows:
        """Encrypt int64 [n, k]; the layout is checked first."""

    @abstractmethod
    def collect(self, layout: Layout, n: int) -> EncryptedRows:
        """Return rows of which none has come yet and ``n`` will; the layout must have room for them."""

    def rows(self, block: CipherBlock) -> EncryptedRows:
        """Open a block that holds all rows; checks key, kind, count, size, range of each ciphertext."""
        n = block.shape[0] if block.shape else -1
        if n > len(block.data):
            raise EncryptionError(
                f"a block of {n} rows has {len(block.data)} bytes", code="ciphertext", value=len(block.data)
            )
        rows = self.collect(block.layout, n)
        rows.add(block)
        return rows


class PrivateKey(ABC):
    """The owner's side. A private key has no encoder: it never leaves the process."""

    public: PublicKey

    @abstractmethod
    def encrypt(self, values: Integers, layout: Layout) -> EncryptedRows:
        """As :meth:`PublicKey.encrypt`, faster with the secret."""

    def encrypt_blocks(self, values: Integers, layout: Layout, rows: int) -> Iterator[CipherBlock]:
        """Encrypt int64 [n, k] in blocks of at most ``rows`` rows, in order; ``layout`` is that of all of them.

        The layout is checked at once. An engine that takes long makes the next block while one is in use, and no more
        than one.
        """
        if rows < 1:
            raise EncryptionError(f"blocks of {rows} rows", code="range", value=rows)
        self.encrypt(values[:0], layout)  # refuses what no encryption takes
        layout.check(values)
        return (self.encrypt(values[start : start + rows], layout).block() for start in range(0, len(values), rows))

    def prepare(self, count: int) -> None:  # noqa: B027
        """Make what later encryptions of up to ``count`` ciphertexts need, beside other work.

        Without :attr:`Engine.background` nothing happens.
        """

    @abstractmethod
    def decrypt(self, block: CipherBlock) -> Integers:
        """Decrypt sealed sums to int64 [F, n_groups, k] (rows: [1, n, k]); checks the block as ``rows`` does."""


class Engine(ABC):
    """An additively homomorphic scheme.

    Attributes:
        name: as in the job file.
        secure: whether it hides anything; the others need ``insecure=True``.
        bits_offered: key sizes that need no ``insecure=True``; empty where the engine has none.
        skips_empty_sums: whether adding sums to sums costs nothing for cells without rows.

    Args:
        workers: threads or processes that share heavy work; 1 means none beside this one.
        background: whether :meth:`PrivateKey.prepare` does anything; parties that share cores are better off without.
        memory_limit: bytes of rows, prepared for sums, that are held in memory; what is beyond lies in a temporary
            file. None for no limit.
    """

    name: ClassVar[str]
    secure: ClassVar[bool]
    bits_offered: ClassVar[tuple[int, ...]]
    skips_empty_sums: ClassVar[bool] = False

    def __init__(self, *, workers: int = 1, background: bool = False, memory_limit: int | None = None) -> None:
        self.workers, self.background, self.memory_limit = workers, background, memory_limit

    @abstractmethod
    def generate(self, bits: int, *, protection: SecureRandom, insecure: bool = False) -> PrivateKey:
        """Make a new key.

        Raises:
            EncryptionError: without ``insecure``, an engine that hides nothing or fewer bits than it offers.
        """

    @abstractmethod
    def public(self, material: PublicMaterial, *, protection: SecureRandom, insecure: bool = False) -> PublicKey:
        """Open a public key that a peer sent; the same refusals as :meth:`generate`."""

    @abstractmethod
    def security_level(self, bits: int) -> int:
        """Classical bits (NIST SP 800-57 part 1, table 2): 112 at 2048, 128 at 3072; 0 for none."""

    def ciphertext_format(self, layout: Layout, bits: int) -> CiphertextFormat:
        """Return how rows and sums of a layout lie in ciphertexts, for keys of ``bits`` bits.

        By default each row and each sum is one ciphertext of 8 bytes a number.
        """
        return CiphertextFormat(size=8 * len(layout.bounds), fits=(1,))

    def prepared_row_bytes(self, layout: Layout, bits: int) -> int:
        """Return the bytes of a row in memory where rows are summed; by default those of its ciphertexts."""
        form = self.ciphertext_format(layout, bits)
        return form.parts * form.size

    def table_bytes(self, bits: int) -> int:
        """Return the bytes of a key's precomputed tables for one base; by default there are none."""
        return 0

    def calibration_rows(self, bits: int) -> int:
        """Return how many rows a plan encrypts to measure the engine's operations."""
        return 512

    def additions(self, groups: Groups, n_groups: int) -> Additions:
        """Return the additions of :meth:`EncryptedRows.group_sums`, for one ciphertext a row.

        By default rows are added one by one in each column: one addition less than rows in each group that has any.
        """
        present = int(np.count_nonzero(groups >= 0))
        filled = sum(int(np.count_nonzero(np.bincount(column + 1, minlength=1)[1:])) for column in groups.T)
        return Additions(present - filled, present - filled)

    def close(self) -> None:  # noqa: B027
        """Stop worker processes and what :meth:`PrivateKey.prepare` began, if any."""

    def describe(self) -> dict[str, Any]:
        """Return what a report prints: name, kernel, workers."""
        return {"engine": self.name, "workers": self.workers}
