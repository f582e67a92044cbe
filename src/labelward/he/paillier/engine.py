"""Paillier as an engine."""

from __future__ import annotations

from typing import Any, ClassVar

import gmpy2
from gmpy2 import mpz

from labelward.errors import EncryptionError
from labelward.he._checks import check_material
from labelward.he.contract import (
    Additions,
    CiphertextFormat,
    Engine,
    Groups,
    Layout,
    PrivateKey,
    PublicKey,
    PublicMaterial,
)
from labelward.he.paillier.joint import plan, present
from labelward.he.paillier.kernel import choose
from labelward.he.paillier.keys import NAME, PaillierPrivateKey, PaillierPublicKey
from labelward.he.paillier.packing import Packing
from labelward.he.paillier.pool import Executors
from labelward.he.paillier.primes import draw_pair
from labelward.rng import SecureRandom

__all__ = ["PaillierEngine"]

_LEAST, _MOST = 256, 7680  # the most that sums of table entries have room for
_SMALL = 1 << 16
_CALIBRATION_ROWS = {"ifma": 16_384, "libgmp": 4_096}


class PaillierEngine(Engine):
    """Paillier: packing, fixed-base tables, compression, work shared by threads or processes.

    Args:
        workers: threads or processes, as the kernel needs them, that share heavy work.
        background, memory_limit: as in :class:`~labelward.he.contract.Engine`.
        inline_below: work that is done in this process even so, in products modulo n² (about 5 µs at 2048 bits).
        kernel: a name of :data:`~labelward.he.paillier.kernel.KERNELS`; without it the environment variable
            ``LABELWARD_KERNEL`` decides, or else the fastest that runs here does.
    """

    name: ClassVar[str] = NAME
    secure: ClassVar[bool] = True
    bits_offered: ClassVar[tuple[int, ...]] = (2048, 3072, 4096)
    skips_empty_sums: ClassVar[bool] = True

    def __init__(
        self,
        *,
        workers: int = 1,
        background: bool = False,
        memory_limit: int | None = None,
        inline_below: int = 20_000,
        kernel: str | None = None,
    ) -> None:
        super().__init__(workers=workers, background=background, memory_limit=memory_limit)
        chosen = choose(kernel, threads=workers)
        self._kernel, self._executors = chosen.name, Executors(workers, inline_below, chosen, memory_limit)

    def generate(self, bits: int, *, protection: SecureRandom, insecure: bool = False) -> PrivateKey:
        """Make a new key of ``bits`` bits, a multiple of 16 from 256 to 7680; under 2048 only if ``insecure``."""
        self._check_bits(bits, insecure)
        first, second = draw_pair(bits, protection)
        return PaillierPrivateKey(first, second, protection, self._executors, background=self.background)

    def public(self, material: PublicMaterial, *, protection: SecureRandom, insecure: bool = False) -> PublicKey:
        """Open a peer's n; the same sizes as in :meth:`generate`."""
        check_material(material, NAME)
        self._check_bits(material.bits, insecure)
        n = int.from_bytes(material.data, "big")
        if n.bit_length() != material.bits or len(material.data) != material.bits // 8:
            raise EncryptionError(
                f"a public key that claims {material.bits} bits has {n.bit_length()}", code="key", value=n.bit_length()
            )
        if n % 2 == 0 or gmpy2.is_square(mpz(n)) or gmpy2.is_prime(mpz(n)):
            raise EncryptionError("a public key is no product of two odd primes", code="key")
        if gmpy2.gcd(mpz(n), gmpy2.primorial(_SMALL)) != 1:
            raise EncryptionError(f"a public key has a factor below {_SMALL}", code="key")
        return PaillierPublicKey(n, protection, self._executors)

    def security_level(self, bits: int) -> int:
        """Return the largest level of NIST SP 800-57 part 1, table 2, that the modulus reaches; 0 below 1024 bits."""
        levels = {1024: 80, 2048: 112, 3072: 128, 7680: 192}
        return max((level for least, level in levels.items() if bits >= least), default=0)

    def ciphertext_format(self, layout: Layout, bits: int) -> CiphertextFormat:
        """Return the packing: ciphertexts modulo n², as many sums side by side as fit below n."""
        return CiphertextFormat(size=bits // 4, fits=tuple(part.fit for part in Packing.of(layout, bits).parts))

    def prepared_row_bytes(self, layout: Layout, bits: int) -> int:
        """Return the bytes of a row as kernels keep it: a fourth more than its ciphertexts, about."""
        return super().prepared_row_bytes(layout, bits) * 5 // 4

    def table_bytes(self, bits: int) -> int:
        """Return the bytes of the tables of powers of one base, about, at 2048 bits."""
        return 50_000_000

    def calibration_rows(self, bits: int) -> int:
        """Return as many rows as give tables of the width of a long run."""
        return int(_CALIBRATION_ROWS.get(self._kernel, 2_048) * min(1.0, (2048 / bits) ** 2))

    def additions(self, groups: Groups, n_groups: int) -> Additions:
        """Return the products of rows, and those of joint cells, each of which costs as much as the kernel says."""
        merge = self._executors.merge
        chosen = plan(present(groups, n_groups).groups, n_groups, merge, self._executors.threads)
        return Additions(chosen.products, chosen.rows + merge * chosen.merges)

    def close(self) -> None:
        """Stop worker processes, and threads that prepare encryptions."""
        self._executors.close()

    def describe(self) -> dict[str, Any]:
        """Return name, workers, kernel and its versions."""
        versions = {"kernel": self._kernel, "version": gmpy2.version(), "library": gmpy2.mp_version()}
        return super().describe() | versions

    def _check_bits(self, bits: int, insecure: bool) -> None:
        if not _LEAST <= bits <= _MOST or bits % 16:
            raise EncryptionError(
                f"bits must be a multiple of 16 from {_LEAST} to {_MOST} but got {bits}", code="range", value=bits
            )
        if bits < min(self.bits_offered) and not insecure:
            raise EncryptionError(
                f"a key of {bits} bits is too short; at least {min(self.bits_offered)}, or insecure = true",
                code="key",
                value=bits,
            )
