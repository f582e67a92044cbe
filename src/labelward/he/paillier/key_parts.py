"""Keys of parts: Paillier with a private exponent that is the sum of the exponents of all parties.

The dealer chooses d = 0 modulo the exponent of Z*_n² and d = 1 modulo n, so that c^d = 1 + m·n for a ciphertext c of m.
It draws all parts but the last uniformly, :data:`SLACK` bits longer than d, and the last one makes the sum d. All
parts but one are hence within 2^-:data:`SLACK` of independent of d, whichever is left out. A partial decryption is
c^part; the product of all of them is c^d. What a party sees of the others' parts beyond the plaintext are powers c^part
of secret exponents, one for each ciphertext.

Setting: semi-honest parties and an honest dealer. A party that sends another power makes the result no plaintext, which
is noticed unless it divides by a known ciphertext: nothing proves that a part was used as dealt (Damgård and Jurik,
Section 4.1, would, at three times the cost).

Reference: Damgård and Jurik, A generalisation of Paillier's public-key system (2001), Section 4.1, with s = 1 and all
parties as the threshold, so that an additive division takes the place of Shamir's; Wu et al., Pivot (2020), Section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import gmpy2
from gmpy2 import mpz

from labelward.errors import EncryptionError
from labelward.he._validate import check_sums
from labelward.he.base import CipherBlock, Integers, KeyPart
from labelward.he.paillier.int_bytes import read_ints, write_ints
from labelward.he.paillier.keys import PaillierPublicKey, unpacked
from labelward.he.paillier.primes import Prime
from labelward.rng import SecureRandom

SLACK = 128
"""Bits by which a part is longer than the exponent that it hides."""


def part_size(bits: int) -> int:
    """Return the bytes of a part of a key of ``bits`` bits, sign included."""
    return (2 * bits + SLACK) // 8 + 8


def divide_exponent(first: Prime, second: Prime, parties: int, protection: SecureRandom) -> tuple[bytes, ...]:
    """Return a part for each party, signed and big-endian; their sum decrypts."""
    n, order = first.p * second.p, gmpy2.lcm(first.p - 1, second.p - 1)
    exponent = int(order * gmpy2.invert(order, n))
    bits = int(n).bit_length()
    parts = [protection.below(1 << (2 * bits + SLACK)) for _ in range(parties - 1)]
    parts.append(exponent - sum(parts))
    return tuple(part.to_bytes(part_size(bits), "big", signed=True) for part in parts)


class PaillierKeyPart(KeyPart):
    """An exponent that raises every ciphertext to this party's share of 1 + m·n."""

    def __init__(self, public: PaillierPublicKey, part: bytes) -> None:
        if len(part) != part_size(public.bits):
            raise EncryptionError(f"a part of {len(part)} bytes is none of this key", code="key", value=len(part))
        self.public = self._key = public
        self._exponent = mpz(int.from_bytes(part, "big", signed=True))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a part of a private key never leaves its process")

    def partial_decrypt(self, block: CipherBlock) -> bytes:
        """Return the power of each ciphertext, big-endian; a part of the decryption."""
        key, data = self._key, b"".join(self._key.open(block, ("rows", "sums")))
        try:
            powers = gmpy2.powmod_base_list(list(read_ints(data, key.ciphertext_size)), self._exponent, key.n2)
        except ZeroDivisionError as error:
            raise EncryptionError("a ciphertext has a factor in common with n", code="ciphertext") from error
        return write_ints(powers, key.ciphertext_size)

    def combine(self, block: CipherBlock, partials: Sequence[bytes]) -> Integers:
        """Return int64 [F, n_groups, k], or [1, n, k] of rows."""
        key, size = self._key, self._key.ciphertext_size
        parts = key.open(block, ("rows", "sums"))
        if any(len(partial) != block.count * size for partial in partials):
            lengths = tuple(map(len, partials))
            raise EncryptionError("a part is of another block", code="ciphertext", value=lengths)
        product = [mpz(1)] * block.count
        for partial in partials:
            product = [one * other % key.n2 for one, other in zip(product, read_ints(partial, size), strict=True)]
        if any(each % key.n != 1 for each in product):
            raise EncryptionError("a part is missing or of another key", code="ciphertext", value=len(partials))
        plain = [(each - 1) // key.n for each in product]
        signed = [each - key.n if each > key.n >> 1 else each for each in plain]
        counts = [len(part) // size for part in parts]
        of_parts = [signed[sum(counts[:at]) : sum(counts[: at + 1])] for at in range(len(counts))]
        sums = unpacked(block, key.bits, of_parts)
        check_sums(sums, block.layout)
        key.counts.decryptions += block.count
        return sums
