"""Rows as they travel: one seed or polynomial for each block of n rows and set of secrets, and the scalars."""

from __future__ import annotations

from dataclasses import dataclass

from labelward.errors import EncryptionError
from labelward.he.lattice.digits import Digits
from labelward.he.lattice.draws import SEED_BYTES, Stream
from labelward.he.lattice.key_material import balanced_residues, unsigned
from labelward.he.lattice.ring import Int64s, Reals, vectors
from labelward.he.lattice.words import pack, packed_size, unpack
from labelward.he.threads import run_in_threads

#: Version of the blocks' format, and the forms of what follows.
FORMAT = 1
SEEDED, EXPLICIT, PACKED_SUMS, OWN_SUMS, OWN_SEALED, SPACED = range(1, 7)
HEAD_BYTES = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class RowData:
    """Encrypted rows.

    Attributes:
        words: int64 [rows, K, 2].
        sets: how many sets of secrets K digits take.
        seeds: 16 bytes for each block and set; empty where ``explicit`` [blocks, sets, 2, n] has the polynomials, as
            values.
    """

    words: Int64s
    sets: int
    seeds: bytes = b""
    explicit: Reals | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.words)

    def polynomials(self, n: int, workers: int) -> Reals:
        """Return [blocks, sets, 2, n], as values."""
        if self.explicit is not None:
            return self.explicit
        return expand(self.seeds, n, workers).reshape(-1, self.sets, 2, n)

    def encode(self) -> bytes:
        """Return the data of a block."""
        head = bytes([FORMAT, SEEDED if self.explicit is None else EXPLICIT])
        shared = self.seeds if self.explicit is None else pack(unsigned(self.explicit))
        return head + shared + pack(self.words)


def expand(seeds: bytes, n: int, workers: int) -> Reals:
    """Return the uniform polynomials [seeds, 2, n] of seeds of 16 bytes, as values."""
    out = vectors(len(seeds) // SEED_BYTES, 2, n)

    def draw(i: int) -> None:
        out[i] = Stream.public(seeds[i * SEED_BYTES : (i + 1) * SEED_BYTES], b"rows").uniform(1, n)[0]

    run_in_threads(workers, draw, range(len(out)))
    return out


def set_count(digits: Digits, secrets: int) -> int:
    """Return how many sets of secrets the digits of a row take."""
    return -(-digits.total // secrets)


def seeded_row_bytes(rows: int, n: int, secrets: int, digits: Digits) -> int:
    """Return the bytes of seeded rows."""
    blocks = -(-rows * digits.spacing // n)
    words = rows * digits.total * 2 if digits.spacing == 1 else spaced_words(rows, n, digits)
    return HEAD_BYTES + blocks * set_count(digits, secrets) * SEED_BYTES + packed_size(words)


def coefficient_count(rows: int, spacing: int, n: int) -> int:
    """Return how many coefficients of a polynomial of so many spaced rows any sum needs."""
    return min(n, spacing * (rows + 1) - 1)


def spaced_words(rows: int, n: int, digits: Digits) -> int:
    """Return how many words so many spaced rows take."""
    full, rest = divmod(rows, n // digits.spacing)
    count = full * n + (coefficient_count(rest, digits.spacing, n) if rest else 0)
    return count * digits.total * 2


def read_head(data: bytes, forms: tuple[int, ...]) -> int:
    """Return the form of a block's data, one of ``forms``.

    Raises:
        EncryptionError: no such form, or another version of the format.
    """
    if len(data) < HEAD_BYTES or data[0] != FORMAT or data[1] not in forms:
        raise EncryptionError("a block of another format or form", code="ciphertext", value=data[:HEAD_BYTES])
    return data[1]


def parse_row_data(data: bytes, rows: int, n: int, secrets: int, digits: Digits) -> RowData:
    """Return the rows of a block's data.

    Raises:
        EncryptionError: another format, a wrong length, or a word that is not below its prime.
    """
    form = read_head(data, (SEEDED, EXPLICIT))
    sets, blocks = set_count(digits, secrets), -(-rows // n)
    shared = SEED_BYTES * blocks * sets if form == SEEDED else packed_size(blocks * sets * n * 2)
    view = memoryview(data)[HEAD_BYTES:]
    words = unpack(view[shared:], (rows, digits.total, 2))
    if form == SEEDED:
        return RowData(words=words, sets=sets, seeds=bytes(view[:shared]))
    explicit = unpack(view[:shared], (blocks, sets, n, 2))
    return RowData(words=words, sets=sets, explicit=balanced_residues(explicit))
