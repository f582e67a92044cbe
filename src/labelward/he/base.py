"""Interface of the encryption: sums of groups of rows under an additively homomorphic key.

::

    private = engine.generate(bits, protection=Protection())      the key owner
    blocks  = private.encrypt_blocks(values, layout, 16_384)      k numbers a row; each block travels
    rows    = public.allocate_rows(layout, len(values))           a party that sums
    rows.add(block)                                               each block as it arrives
    sums    = rows.group_sums(groups, n_groups)                   for each column of groups: each group's sum
    block   = sums.rerandomize()                                  re-randomized and compressed; travels
    values  = private.decrypt(block)                              int64 [F, n_groups, k]

    block   = public.encrypt_sums(values, layout)                 sums of a party's own rows, to be added to others'
    sums    = public.sums(block) + public.sums(other)             a third party adds them; rerandomize() as above

Optional, where :meth:`PrivateKey.level_spacing` asks for it: rows of some nodes encrypted again, in their order, with a
:attr:`Layout.spacing` at which they are summed faster. All else is as above.

Optional, where :attr:`Engine.shares_keys` says so: a key of which every party has a part and nobody the whole::

    material, parts = engine.deal_key(bits, 3, protection=Protection())   a dealer, which must forget both
    part    = engine.key_part(material, parts[0], protection=Protection())
    block   = part.public.select(rows_block, chosen)              all rows re-randomized, those not chosen now zero
    partial = part.partial_decrypt(block)                         each party's travels
    values  = part.combine(block, partials)                       of all parties, as PrivateKey.decrypt gives them

Setting: the key owner is curious about which rows a group holds, the other side about the values. All of this
protects against semi-honest parties: a malicious owner can encode row numbers in plaintexts.

Only a :class:`CipherBlock` can travel. Fresh rows give one, and sums only by :meth:`EncryptedSums.rerandomize`. A sum
that was not re-randomized would reveal its group's rows to the key owner, and has no encoding at all.

An engine may sum in any order and merge intermediate results of several columns. These never leave the party that
sums, so the owner sees the same re-randomized sums whatever the order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.parameters import Parameters
from labelward.rng import SecureRandom

Integers = NDArray[np.int64]
Groups = NDArray[np.int32]
SPACINGS = (1, 2, 4, 8, 16)
_MOST_MEASURED = 1024  # sums in one ciphertext that counting can tell


class Layout(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bounds of the k numbers of a row, and the number of rows in a sum.

    Attributes:
        bounds: for each number the largest absolute value in one row (integers, fixed-point values included).
        rows: the most rows that any sum holds (for sums of sums: all of them together).
        logical: how many of the k numbers an unpacked protocol would encrypt one by one; counted, never used.
        spacing: of an engine that encrypts rows as coefficients of polynomials: every how many one is a row
            (:meth:`PrivateKey.level_spacing`), one of :data:`SPACINGS`; of no meaning to others.
    """

    bounds: tuple[int, ...]
    rows: int
    logical: int
    spacing: int = 1

    def widths(self) -> tuple[int, ...]:
        """Bits of each number's slot: enough for the largest sum and its sign."""
        return _widths(self.bounds, self.rows)

    def check(self, values: Integers) -> None:
        """Raise :class:`EncryptionError` unless ``values[n, k]`` fits; called before encrypting."""
        if values.ndim != 2 or values.shape[1] != len(self.bounds):
            reason = f"values of shape {values.shape} for a layout of {len(self.bounds)} columns"
            raise EncryptionError(reason, code="type", value=values.shape)
        if len(values) > self.rows:
            raise EncryptionError(
                f"{len(values)} rows exceed the layout's {self.rows}", code="capacity", value=len(values)
            )
        if max(self.widths()) > 63:
            reason = f"sums of {self.rows} rows with bounds {self.bounds} do not fit 63 bits"
            raise EncryptionError(reason, code="capacity", value=max(self.widths()))
        from labelward.he._loops import first_beyond

        column = first_beyond(np.ascontiguousarray(values), np.array(self.bounds, dtype=np.int64))
        if column >= 0:
            bound = self.bounds[column]
            reason = f"column {column} holds a value outside the bound {bound}"
            raise EncryptionError(reason, code="capacity", value=bound)


@lru_cache(maxsize=256)
def _widths(bounds: tuple[int, ...], rows: int) -> tuple[int, ...]:
    return tuple((bound * rows).bit_length() + 1 for bound in bounds)


class LevelWork(NamedTuple):
    """What is to be summed at a level of a tree.

    Attributes:
        rows: of the tree, which the summing party has.
        nodes: rows of each node to be summed.
        bins: of each of the party's columns.
    """

    rows: int
    nodes: tuple[int, ...]
    bins: tuple[int, ...]


class PublicMaterial(msgspec.Struct, frozen=True):
    """A public key as it travels."""

    engine: str
    bits: int
    data: bytes


class CipherBlock(msgspec.Struct, frozen=True, tag=True):
    """Ciphertexts as they travel: fresh encrypted rows, or re-randomized sums.

    Attributes:
        key: fingerprint of the public key.
        kind: ``"rows"`` (shape ``(n,)``) or ``"sums"`` (shape ``(F, n_groups)``).
        shape: see ``kind``; each entry holds k numbers.
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
    """Operations of one party with one key, in ciphertexts of the engine.

    ``additions`` are products of rows and of merged cells. ``logical_sums`` is what a protocol without packing would
    have sent: groups × columns × ``layout.logical``; ``logical_rows`` is what it would have encrypted for rows: rows ×
    ``layout.logical``. ``bytes`` counts the ciphertext bytes of this side's blocks.
    Re-randomizing is not counted as an encryption, and shifts while compressing are not additions.
    """

    encryptions: int = 0
    additions: int = 0
    decryptions: int = 0
    ciphertexts: int = 0
    logical_sums: int = 0
    logical_rows: int = 0
    bytes: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def add(self, other: Mapping[str, int]) -> None:
        """Add the counters of another party or key."""
        for name, value in other.items():
            setattr(self, name, getattr(self, name) + value)


class EncryptedSums(ABC):
    """Sums of encrypted rows, one for each (column of groups, group), not yet re-randomized."""

    shape: tuple[int, int]
    layout: Layout

    @abstractmethod
    def __add__(self, other: EncryptedSums) -> EncryptedSums:
        """Add sums of the same key, layout and shape; :class:`EncryptionError` otherwise."""

    @abstractmethod
    def take(self, cells: Integers) -> EncryptedSums:
        """Return the sums at int64 positions (row-major over columns and groups) as sums of shape (1, len(cells)).

        Raises:
            EncryptionError: a position outside the sums, or sums that :meth:`PublicKey.sums` opened.
        """

    @abstractmethod
    def rerandomize(self) -> CipherBlock:
        """Re-randomize every sum, compress, and return what may travel."""


class EncryptedRows(ABC):
    """Encrypted rows of k numbers.

    Attributes:
        have: how many of them have arrived.
    """

    n: int
    have: int
    layout: Layout

    @abstractmethod
    def add(self, block: CipherBlock) -> None:
        """Append rows and prepare them for sums.

        Raises:
            EncryptionError: a block of another key, kind or layout, with a ciphertext out of range, or with more rows
                than are due; the rows are then unchanged. After a ciphertext that cannot be summed, all sums fail.
        """

    @abstractmethod
    def block(self) -> CipherBlock:
        """Return fresh rows as they travel; :class:`EncryptionError` for rows that came from a peer."""

    @abstractmethod
    def group_sums(self, groups: Groups, n_groups: int, start: int = 0) -> EncryptedSums:
        """Sum rows by group, for each column of groups.

        Args:
            groups: int32 [m, F] of the rows start..start+m, which must have arrived; entry (i, f) is the group of row
                start+i in column f, or -1 where the row is absent.
            n_groups: groups are ``range(n_groups)``; a group without rows sums to zero.
        """


class PublicKey(ABC):
    """Operations without the secret; :attr:`counts` are those of this party.

    Attributes:
        sum_excess: bytes by which a ciphertext of a re-randomized sum may be longer than one of a row.
    """

    engine: str
    bits: int
    counts: Counts
    sum_excess: int = 0

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
    def allocate_rows(self, layout: Layout, n: int) -> EncryptedRows:
        """Return room for ``n`` rows to come; the layout must allow so many."""

    @abstractmethod
    def encrypt_sums(self, values: Integers, layout: Layout) -> CipherBlock:
        """Encrypt sums that this party computed itself, int64 [F, n_groups, k], as many in a ciphertext as fit.

        The block travels. Sums of other parties are added to it (:meth:`sums`), so the layout counts the rows of all.

        Raises:
            EncryptionError: a sum beyond what the layout's rows can give.
        """

    @abstractmethod
    def sums(self, block: CipherBlock) -> EncryptedSums:
        """Open a block of sums to add it to others of its key, shape and layout.

        They are packed: :meth:`EncryptedSums.take` refuses them.
        """

    def select(self, block: CipherBlock, chosen: NDArray[np.bool_]) -> CipherBlock:
        """Return a block of rows re-randomized, in which those that are not chosen are encrypted zeros.

        Nobody without the private key can tell which these are. Of engines with :attr:`Engine.shares_keys` only.

        Args:
            block: of rows.
            chosen: bool [rows].

        Raises:
            EncryptionError: not such a block, another number of rows, or an engine without keys of parts.
        """
        raise EncryptionError(f"engine {self.engine!r} selects no rows", code="unsupported", value=self.engine)

    def rows(self, block: CipherBlock) -> EncryptedRows:
        """Open a block that holds all rows; checks key, kind, count, size, range of each ciphertext."""
        n = block.shape[0] if block.shape else -1
        if n > len(block.data):
            raise EncryptionError(
                f"a block of {n} rows has {len(block.data)} bytes", code="ciphertext", value=len(block.data)
            )
        rows = self.allocate_rows(block.layout, n)
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

        The layout is checked at once. A slow engine encrypts the next block while one is in use, and no more than one.
        """
        if rows < 1:
            raise EncryptionError(f"blocks of {rows} rows", code="range", value=rows)
        self.encrypt(values[:0], layout)  # refuses what no encryption takes
        layout.check(values)
        return (self.encrypt(values[start : start + rows], layout).block() for start in range(0, len(values), rows))

    def level_spacing(self, layout: Layout, work: LevelWork) -> int:
        """Return the spacing at which the rows of a level's nodes are best encrypted again; 0: not at all.

        They are then encrypted in the order of the nodes, with that :attr:`Layout.spacing`, and summed in place of
        those that the other party has. An engine with dear encryptions never asks for it. The answer depends on the
        arguments alone, all of which the summing party knows.
        """
        return 0

    def prepare(self, count: int) -> None:  # noqa: B027
        """Precompute in the background for up to ``count`` later ciphertexts; only with :attr:`Engine.background`."""

    @abstractmethod
    def decrypt(self, block: CipherBlock) -> Integers:
        """Decrypt sums to int64 [F, n_groups, k] (rows: [1, n, k]); checks the block as ``rows`` does."""


class KeyPart(ABC):
    """One party's part of a private key: all parts together decrypt, and fewer tell nothing. It has no encoder.

    A partial decryption tells, with those of all others, the plaintext and nothing else. Who combines must hence be
    meant to learn the plaintext.
    """

    public: PublicKey

    @abstractmethod
    def partial_decrypt(self, block: CipherBlock) -> bytes:
        """Return this party's part of the decryption of a block of sums or rows; checks the block as ``rows`` does."""

    @abstractmethod
    def combine(self, block: CipherBlock, partials: Sequence[bytes]) -> Integers:
        """Return what :meth:`PrivateKey.decrypt` would, from the partial decryptions of all parties.

        Raises:
            EncryptionError: a part is missing, damaged, of another key or of another block.
        """


@dataclass(frozen=True, kw_only=True)
class EngineParameters(Parameters):
    """Parameters of one engine, from a table ``[encryption.NAME]`` of the job file; the base class has none.

    Fields are declared as in :mod:`labelward.parameters`. All parties must use the same values.
    """


@dataclass(frozen=True, kw_only=True)
class CiphertextFormat:
    """Size and number of the ciphertexts for one layout.

    An engine whose ciphertexts share something in a block overrides :meth:`row_bytes` and :meth:`sum_bytes`.

    Attributes:
        size: bytes of a ciphertext.
        fits: for each ciphertext of a row, how many sums one ciphertext like it holds.
        row_effort, sum_effort: work of encrypting and preparing a row, and of sealing and opening a sum, relative to
            the same numbers without :attr:`Layout.spacing`.
    """

    size: int
    fits: tuple[int, ...]
    row_effort: float = 1.0
    sum_effort: float = 1.0

    @property
    def parts(self) -> int:
        """Ciphertexts of a row."""
        return len(self.fits)

    def sealed(self, sums: int) -> int:
        """Return the ciphertexts of a block of so many re-randomized sums."""
        return sum(-(-sums // fit) for fit in self.fits)

    def row_bytes(self, rows: int) -> int:
        """Return the bytes of a block of so many fresh rows."""
        return rows * self.parts * self.size

    def sum_bytes(self, sums: int) -> int:
        """Return the bytes of a block of so many re-randomized sums."""
        return self.sealed(sums) * self.size


class Additions(NamedTuple):
    """Work of summing rows by groups.

    Attributes:
        number: additions, as :class:`Counts` has them.
        effort: the same work in additions of one row to one cell.
    """

    number: int
    effort: float

    def plus(self, other: Additions) -> Additions:
        """Return both together."""
        return Additions(self.number + other.number, self.effort + other.effort)


@dataclass(frozen=True, kw_only=True)
class KernelBenchmark:
    """Availability and speed of one implementation of an engine, for ``labelward doctor``.

    Attributes:
        chosen: whether an engine that is created now uses it.
        why: why it cannot run, or why it is or is not chosen.
        microseconds: processor time of one core for one operation, by the operation's name; empty where the
            implementation does not run.
        bits: size of the key, where it is not the one that was asked for; else 0.
    """

    kernel: str
    available: bool = True
    chosen: bool = True
    why: str = ""
    microseconds: Mapping[str, float] = field(default_factory=dict)
    bits: int = 0


class Engine(ABC):
    """An additively homomorphic scheme.

    What must be written: the class attributes, :meth:`generate`, :meth:`public` and :meth:`security_level`. The other
    methods have defaults; an engine overrides those that do not hold for it.

    Attributes:
        name: as in the job file.
        secure: whether it hides anything; other engines need ``insecure=True``.
        bits_offered: key sizes that need no ``insecure=True``; empty where the engine has no key sizes.
        Parameters: class of the engine's own parameters.
        skips_empty_sums: whether adding a sum without rows to another one is free.
        shares_keys: whether it makes keys of parts: :meth:`deal_key`, :meth:`key_part` and :meth:`PublicKey.select`.
        adds_sealed: whether :meth:`PublicKey.sums` opens re-randomized sums of rows, too, so that they can be added to
            a party's own.
        sums_when_sealing: whether :meth:`EncryptedRows.group_sums` leaves most of its work to
            :meth:`EncryptedSums.rerandomize`.

    Args:
        parameters: an instance of :attr:`Parameters`; None for the defaults.
        workers: threads or processes that share heavy work; 1 for none beside this one.
        background: whether :meth:`PrivateKey.prepare` does anything; off for parties that share cores.
        memory_limit: bytes of prepared rows in memory; the rest is in a temporary file. None for no limit.
    """

    name: ClassVar[str]
    secure: ClassVar[bool]
    bits_offered: ClassVar[tuple[int, ...]]
    Parameters: ClassVar[type[EngineParameters]] = EngineParameters
    skips_empty_sums: ClassVar[bool] = False
    shares_keys: ClassVar[bool] = False
    adds_sealed: ClassVar[bool] = True
    sums_when_sealing: ClassVar[bool] = False

    def __init__(
        self,
        *,
        parameters: EngineParameters | None = None,
        workers: int = 1,
        background: bool = False,
        memory_limit: int | None = None,
    ) -> None:
        self.parameters: Any = self.Parameters() if parameters is None else parameters
        self.workers, self.background, self.memory_limit = workers, background, memory_limit
        self._formats: dict[tuple[Layout, int], CiphertextFormat] = {}

    @abstractmethod
    def generate(self, bits: int, *, protection: SecureRandom, insecure: bool = False) -> PrivateKey:
        """Create a key.

        Raises:
            EncryptionError: without ``insecure``, an engine that hides nothing or fewer bits than it offers.
        """

    @abstractmethod
    def public(self, material: PublicMaterial, *, protection: SecureRandom, insecure: bool = False) -> PublicKey:
        """Open a public key that a peer sent; the same refusals as :meth:`generate`."""

    def generate_for_sums(self, bits: int, *, protection: SecureRandom, insecure: bool = False) -> PrivateKey:
        """Create a key under which nothing but sums is encrypted (:meth:`PublicKey.encrypt_sums`).

        An engine may leave out what only rows need, as :meth:`public_for_sums` expects; by default nothing is.
        """
        return self.generate(bits, protection=protection, insecure=insecure)

    def public_for_sums(
        self, material: PublicMaterial, *, protection: SecureRandom, insecure: bool = False
    ) -> PublicKey:
        """Open a peer's public key of :meth:`generate_for_sums`, and refuse any other; as :meth:`public`."""
        return self.public(material, protection=protection, insecure=insecure)

    def deal_key(
        self, bits: int, parties: int, *, protection: SecureRandom, insecure: bool = False
    ) -> tuple[PublicMaterial, tuple[bytes, ...]]:
        """Create a key and divide it; who calls this could decrypt everything, and must keep nothing.

        Returns:
            The public key, and for each party its part, secret from all others.

        Raises:
            EncryptionError: as :meth:`generate`; fewer than two parties; an engine without :attr:`shares_keys`.
        """
        raise EncryptionError(f"engine {self.name!r} makes no keys of parts", code="unsupported", value=self.name)

    def key_part(
        self, material: PublicMaterial, part: bytes, *, protection: SecureRandom, insecure: bool = False
    ) -> KeyPart:
        """Open a part that :meth:`deal_key` made; :class:`EncryptionError` where it is none."""
        raise EncryptionError(f"engine {self.name!r} makes no keys of parts", code="unsupported", value=self.name)

    @abstractmethod
    def security_level(self, bits: int) -> int:
        """Classical bits (NIST SP 800-57 part 1, table 2): 112 at 2048, 128 at 3072; 0 for none."""

    # -- security and figures of the engine, for runs, plans and reports ---------------------------------------------

    def key_bits(self, bits: int) -> int:
        """Return the size of a key where ``bits`` were asked for; 0 for an engine without key sizes."""
        return bits if self.bits_offered else 0

    def insecure_reason(self, bits: int) -> str:
        """Return why a run with keys of ``bits`` bits is insecure, as its views and reports say it; empty if secure."""
        if not self.secure:
            return f"{self.name} engine"
        return f"{bits}-bit key" if self.bits_offered and bits < min(self.bits_offered) else ""

    def ciphertext_format(self, layout: Layout, bits: int) -> CiphertextFormat:
        """Return number and size of the ciphertexts under keys of ``bits`` bits.

        By default a row is encrypted and summed under a new key, and the ciphertexts are counted. An engine whose key
        takes long to generate, or that packs many sums into a ciphertext, had better return a formula.
        """
        if (layout, bits) not in self._formats:
            self._formats[layout, bits] = self._measured_format(layout, bits)
        return self._formats[layout, bits]

    def key_bytes(self, bits: int) -> int:
        """Return the bytes of a public key as it travels."""
        return max(16, bits // 8)

    def prepared_row_bytes(self, layout: Layout, bits: int) -> int:
        """Return the bytes of a row in memory where rows are summed; by default those of its ciphertexts."""
        form = self.ciphertext_format(layout, bits)
        return form.parts * form.size

    def table_bytes(self, bits: int) -> int:
        """Return the bytes of a key's precomputed tables for one base; by default there are none."""
        return 0

    def additions(self, groups: Groups, n_groups: int, *, spacing: int = 1, scale: float = 1.0) -> Additions:
        """Return the work of :meth:`EncryptedRows.group_sums`; by default one addition for each further row of a cell.

        Args:
            groups: int32 [m, F], -1 for absent rows, as :meth:`EncryptedRows.group_sums` takes it.
            spacing: of their layout.
            scale: how many rows each of these stands for; the answer is for one of them.
        """
        present = int(np.count_nonzero(groups >= 0))
        filled = (np.bincount(groups[:, column] + 1, minlength=1)[1:] for column in range(groups.shape[1]))
        count = present - sum(int(np.count_nonzero(rows)) for rows in filled)
        return Additions(count, float(count))

    def level_spacing(self, layout: Layout, work: LevelWork, bits: int) -> int:
        """Return what :meth:`PrivateKey.level_spacing` does for keys of ``bits`` bits; by default 0."""
        return 0

    def calibration_rows(self, bits: int) -> int:
        """Return how many rows a plan encrypts to measure the engine's operations."""
        return 256

    def benchmark(self, bits: int) -> list[KernelBenchmark]:
        """Measure the implementations of the engine with keys of ``bits`` bits, the fastest first; by default none."""
        return []

    def close(self) -> None:  # noqa: B027
        """Stop worker processes and background work, if any."""

    def describe(self) -> dict[str, Any]:
        """Return what a report prints: name, kernel, workers, and the engine's own parameters if it has any."""
        own = self.parameters.parameters()
        return {"engine": self.name, "workers": self.workers} | ({"parameters": own} if own else {})

    def _measured_format(self, layout: Layout, bits: int) -> CiphertextFormat:
        private = self.generate(bits, protection=SecureRandom(), insecure=True)
        block = private.encrypt(np.zeros((1, len(layout.bounds)), np.int64), layout).block()
        one = private.public.rows(block).group_sums(np.zeros((1, 1), np.int32), 1)
        fits: list[int] = []
        before, sums = block.count, 1
        # from s to s + 1 sums those parts begin another ciphertext whose ciphertexts hold a divisor of s sums
        while len(fits) < block.count and sums < _MOST_MEASURED:
            count = one.take(np.zeros(sums + 1, np.int64)).rerandomize().count
            fits += [sums] * (count - before - sum(sums % fit == 0 for fit in fits))
            before, sums = count, sums + 1
        fits += [_MOST_MEASURED] * (block.count - len(fits))
        return CiphertextFormat(size=len(block.data) // block.count, fits=tuple(fits))
