"""Paillier as an engine."""

from __future__ import annotations

import weakref
from typing import Any, ClassVar

import gmpy2
from gmpy2 import mpz

from labelward.errors import EncryptionError
from labelward.he._validate import check_material, check_parties
from labelward.he.base import (
    Additions,
    CiphertextFormat,
    Engine,
    Groups,
    KernelBenchmark,
    KeyPart,
    Layout,
    PrivateKey,
    PublicKey,
    PublicMaterial,
)
from labelward.he.paillier.backends.base import Backend, select_backend
from labelward.he.paillier.column_merging import plan_merging, present_rows
from labelward.he.paillier.key_parts import PaillierKeyPart, divide_exponent
from labelward.he.paillier.keys import NAME, PaillierPrivateKey, PaillierPublicKey, Resources
from labelward.he.paillier.packing import Packing
from labelward.he.paillier.primes import generate_primes
from labelward.he.row_store import RowStore
from labelward.rng import SecureRandom

_LEAST, _MOST = 256, 7680  # the most that sums of table entries have room for
_SMALL = 1 << 16
_CALIBRATION_ROWS = {"ifma": 16_384, "libgmp": 4_096, "gmpy2": 2_048}


class PaillierEngine(Engine):
    """Paillier: packing, fixed-base tables, compression, work shared by threads or processes.

    Args:
        workers: threads, or processes where the backend has no threads, that share heavy work.
        kernel: a backend, or its name (:data:`~labelward.he.paillier.backends.base.BACKENDS`); without it the
            environment variable ``LABELWARD_KERNEL`` decides, or else the fastest that runs here does.
    """

    name: ClassVar[str] = NAME
    secure: ClassVar[bool] = True
    bits_offered: ClassVar[tuple[int, ...]] = (2048, 3072, 4096)
    skips_empty_sums: ClassVar[bool] = True
    shares_keys: ClassVar[bool] = True

    def __init__(
        self,
        *,
        workers: int = 1,
        background: bool = False,
        memory_limit: int | None = None,
        kernel: str | Backend | None = None,
    ) -> None:
        super().__init__(workers=workers, background=background, memory_limit=memory_limit)
        if kernel is None or isinstance(kernel, str):
            kernel = select_backend(kernel, threads=workers)
        self.backend: Backend = kernel
        self._resources = Resources(self.backend, workers, RowStore(memory_limit).allocate, weakref.WeakSet())

    def generate(self, bits: int, *, protection: SecureRandom, insecure: bool = False) -> PrivateKey:
        """Make a new key of ``bits`` bits, a multiple of 16 from 256 to 7680; under 2048 only if ``insecure``."""
        self._check_bits(bits, insecure)
        first, second = generate_primes(bits, protection)
        return PaillierPrivateKey(first, second, protection, self._resources, background=self.background)

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
            raise EncryptionError("the modulus is not a product of two odd primes", code="key")
        if gmpy2.gcd(mpz(n), gmpy2.primorial(_SMALL)) != 1:
            raise EncryptionError(f"the modulus has a factor below {_SMALL}", code="key")
        return PaillierPublicKey(n, protection, self._resources)

    def deal_key(
        self, bits: int, parties: int, *, protection: SecureRandom, insecure: bool = False
    ) -> tuple[PublicMaterial, tuple[bytes, ...]]:
        """Divide the exponent of a new key."""
        self._check_bits(bits, insecure)
        check_parties(parties)
        primes = generate_primes(bits, protection)
        public = PaillierPublicKey(int(primes[0].p * primes[1].p), protection, self._resources)
        return public.material(), divide_exponent(*primes, parties, protection)

    def key_part(
        self, material: PublicMaterial, part: bytes, *, protection: SecureRandom, insecure: bool = False
    ) -> KeyPart:
        """Open a part; whether it is one of this key shows when all are combined."""
        public = self.public(material, protection=protection, insecure=insecure)
        assert isinstance(public, PaillierPublicKey)
        return PaillierKeyPart(public, part)

    def security_level(self, bits: int) -> int:
        """Return the largest level of NIST SP 800-57 part 1, table 2, that the modulus reaches; 0 below 1024 bits."""
        levels = {1024: 80, 2048: 112, 3072: 128, 7680: 192}
        return max((level for least, level in levels.items() if bits >= least), default=0)

    def ciphertext_format(self, layout: Layout, bits: int) -> CiphertextFormat:
        """Return the packing of a row, in ciphertexts of the size of n²."""
        return CiphertextFormat(size=bits // 4, fits=tuple(part.fit for part in Packing.of(layout, bits).parts))

    def prepared_row_bytes(self, layout: Layout, bits: int) -> int:
        """Return the bytes of a row as the compiled backends keep it: a fourth more than its ciphertexts, about."""
        return super().prepared_row_bytes(layout, bits) * 5 // 4

    def table_bytes(self, bits: int) -> int:
        """Return the bytes of the tables of powers of one base, about, at 2048 bits."""
        return 50_000_000

    def additions(self, groups: Groups, n_groups: int, *, spacing: int = 1, scale: float = 1.0) -> Additions:
        """Return the work of the sets of columns that are summed together."""
        cost = self.backend.merge_cost
        plan = plan_merging(present_rows(groups, n_groups).groups, n_groups, cost)
        return Additions(plan.products, plan.rows + cost * plan.merges)

    def calibration_rows(self, bits: int) -> int:
        """Return as many rows as give tables of the width of a long run."""
        return int(_CALIBRATION_ROWS[self.backend.name] * min(1.0, (2048 / bits) ** 2))

    def benchmark(self, bits: int) -> list[KernelBenchmark]:
        """Measure the backends."""
        from labelward.he.paillier.benchmark import benchmark_backends

        return benchmark_backends(bits, self.backend.name)

    def close(self) -> None:
        """Stop worker processes, and the threads that precompute encryptions."""
        for pool in list(self._resources.zero_pools):
            pool.stop()
        self.backend.close()
        for pool in list(self._resources.zero_pools):
            pool.join()

    def describe(self) -> dict[str, Any]:
        """Return name, workers, kernel and its versions."""
        versions = {"kernel": self.backend.name, "version": gmpy2.version(), "library": gmpy2.mp_version()}
        return super().describe() | versions

    def _check_bits(self, bits: int, insecure: bool) -> None:
        if not _LEAST <= bits <= _MOST or bits % 16:
            raise EncryptionError(
                f"a key has a multiple of 16 bits from {_LEAST} to {_MOST}, not {bits}",
                code="range",
                value=bits,
            )
        if bits < min(self.bits_offered) and not insecure:
            reason = f"a key of {bits} bits is too short; at least {min(self.bits_offered)}, or insecure = true"
            raise EncryptionError(reason, code="key", value=bits)
