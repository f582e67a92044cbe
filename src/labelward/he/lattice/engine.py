"""The lattice engine: encrypted grouped sums by ring-LWE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta

from labelward.errors import EncryptionError
from labelward.he._validate import check_material
from labelward.he.base import (
    Additions,
    CiphertextFormat,
    Engine,
    EngineParameters,
    Groups,
    KernelBenchmark,
    Layout,
    LevelWork,
    PrivateKey,
    PublicKey,
    PublicMaterial,
)
from labelward.he.lattice.digits import PACKED, Digits, digits_of
from labelward.he.lattice.kernel import kernel_name
from labelward.he.lattice.key_material import MASKS, draw_keys, material_size, open_keys
from labelward.he.lattice.keys import NAME, LatticePrivateKey, LatticePublicKey, LatticeResources
from labelward.he.lattice.levels import LevelChoice, best_spacing, seal_time, spaced_effort
from labelward.he.lattice.loops import DENSE
from labelward.he.lattice.ring import SECURE_DEGREE, SMALL_DEGREE
from labelward.he.lattice.row_data import seeded_row_bytes, set_count
from labelward.he.lattice.sealing import sum_bytes
from labelward.he.row_store import RowStore
from labelward.rng import SecureRandom


@dataclass(frozen=True, kw_only=True)
class LatticeParameters(EngineParameters):
    """Parameters of the engine."""

    secrets: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="Digits of a row that share a random polynomial. Five are a gradient, a hessian and a count; "
            "each takes 1.8 MB of the public key. Rows of more digits take several polynomials.",
        ),
    ] = 5
    reencrypt: Annotated[
        Literal["auto", "never", "1", "2", "4", "8", "16"],
        Meta(
            description="Whether the rows of the nodes to be summed at a level of a tree are encrypted again, in the "
            "order of the nodes: by the cost, never, or always with that distance between coefficients."
        ),
    ] = "auto"
    bandwidth: Annotated[
        float,
        Meta(
            ge=0.001,
            le=1e9,
            description="Of the line between the parties, in million bits a second, by which `reencrypt` weighs bytes.",
        ),
    ] = 1000.0


@dataclass(frozen=True, kw_only=True)
class LatticeFormat(CiphertextFormat):
    """Sizes of blocks: what the rows of a polynomial and 32 sums share comes in addition to 98 and 49 bits a digit."""

    n: int
    secrets: int
    digits: Digits

    def row_bytes(self, rows: int) -> int:
        """Return the bytes of a block of seeded rows."""
        return seeded_row_bytes(rows, self.n, self.secrets, self.digits)

    def sum_bytes(self, sums: int) -> int:
        """Return the bytes of a block of packed sums."""
        return sum_bytes(sums, self.n, self.secrets, self.digits)


class LatticeEngine(Engine):
    """Ring-LWE of degree 4096: ``docs/explanation-lattice-security.md`` has assumptions and limits."""

    name: ClassVar[str] = NAME
    adds_sealed: ClassVar[bool] = False
    secure: ClassVar[bool] = True
    bits_offered: ClassVar[tuple[int, ...]] = (SECURE_DEGREE,)
    Parameters: ClassVar[type[EngineParameters]] = LatticeParameters
    sums_when_sealing: ClassVar[bool] = True

    def __init__(
        self,
        *,
        parameters: EngineParameters | None = None,
        workers: int = 1,
        background: bool = False,
        memory_limit: int | None = None,
    ) -> None:
        super().__init__(parameters=parameters, workers=workers, background=background, memory_limit=memory_limit)
        choice = LevelChoice(self.parameters.reencrypt, self.parameters.bandwidth)
        self._resources = LatticeResources(RowStore(memory_limit).allocate, workers, choice)

    def generate(self, bits: int, *, protection: SecureRandom, insecure: bool = False) -> PrivateKey:
        """Make a key of ring degree ``bits``: 4096, or 512 if ``insecure``."""
        return self._generated(bits, protection, insecure, rows=True)

    def generate_for_sums(self, bits: int, *, protection: SecureRandom, insecure: bool = False) -> PrivateKey:
        """Make a key of one public element, 0.1 MB, which serves own sums alone."""
        return self._generated(bits, protection, insecure, rows=False)

    def _generated(self, bits: int, protection: SecureRandom, insecure: bool, *, rows: bool) -> PrivateKey:
        self._check_degree(bits, insecure)
        secrets, elements = draw_keys(bits, self.parameters.secrets, protection, rows=rows)
        return LatticePrivateKey(secrets, elements, protection, self._resources)

    def public(self, material: PublicMaterial, *, protection: SecureRandom, insecure: bool = False) -> PublicKey:
        """Open a peer's public elements."""
        return self._opened(material, protection, insecure, rows=True)

    def public_for_sums(
        self, material: PublicMaterial, *, protection: SecureRandom, insecure: bool = False
    ) -> PublicKey:
        """Open a peer's public element that serves own sums alone."""
        return self._opened(material, protection, insecure, rows=False)

    def _opened(self, material: PublicMaterial, protection: SecureRandom, insecure: bool, *, rows: bool) -> PublicKey:
        check_material(material, NAME)
        self._check_degree(material.bits, insecure)
        elements = open_keys(material.bits, self.parameters.secrets, material.data, rows=rows)
        return LatticePublicKey(elements, protection, self._resources)

    def security_level(self, bits: int) -> int:
        """Return 128 at degree 4096 (Homomorphic Encryption Standard, 2018, table 1), else 0."""
        return 128 if bits == SECURE_DEGREE else 0

    def insecure_reason(self, bits: int) -> str:
        """Return which degree protects nothing."""
        return f"ring of degree {bits}" if bits < SECURE_DEGREE else ""

    # -- figures -----------------------------------------------------------------------------------------------------

    def ciphertext_format(self, layout: Layout, bits: int) -> CiphertextFormat:
        """Return a ciphertext for each digit of a row and of a sum."""
        digits = digits_of(layout, bits)
        return LatticeFormat(
            size=13,
            fits=(1,) * digits.total,
            row_effort=float(layout.spacing),
            sum_effort=seal_time(layout.spacing, bits, digits.total) / seal_time(1, bits, digits.total),
            n=bits,
            secrets=self.parameters.secrets,
            digits=digits,
        )

    def key_bytes(self, bits: int) -> int:
        """Return the bytes of seeds, public elements and packing keys."""
        return material_size(bits, self.parameters.secrets)

    def prepared_row_bytes(self, layout: Layout, bits: int) -> int:
        """Return 16 bytes for each digit, and 48 for the polynomial, which is kept as values and doubled.

        Spaced rows have 16 for each coefficient of a digit and of the polynomial.
        """
        digits = digits_of(layout, bits)
        sets = set_count(digits, self.parameters.secrets)
        if layout.spacing > 1:
            return 16 * layout.spacing * (digits.total + sets)
        return 16 * digits.total + 48 * sets

    def table_bytes(self, bits: int) -> int:
        """Return the bytes of the public elements as doubles."""
        return 16 * bits * int(PACKED * (1 + self.parameters.secrets) + MASKS * (1 + 2 * self.parameters.secrets))

    def additions(self, groups: Groups, n_groups: int, *, spacing: int = 1, scale: float = 1.0) -> Additions:
        """Return one addition for each further row; of a cell's rows in one block 13 at most count as effort.

        From there on (:data:`~labelward.he.lattice.loops.DENSE`) they are transformed together. Spaced rows always
        are, those of a window of cells together, and a few words of each are added.
        """
        number = super().additions(groups, n_groups).number
        if not groups.size:
            return Additions(number, 0.0)
        block = (np.arange(len(groups)) * (scale * spacing / SECURE_DEGREE)).astype(np.int64)
        if spacing > 1:
            present = groups >= 0
            cells = groups + np.arange(groups.shape[1], dtype=np.int64) * n_groups
            filled = np.zeros(n_groups * groups.shape[1], dtype=np.int64)
            filled[cells[present]] = 1
            window = ((np.cumsum(filled) - 1) // spacing)[cells[present]]
            rows = np.broadcast_to(block[:, None], groups.shape)[present]
            products = len(np.unique(window * (int(block[-1]) + 1) + rows))
            effort = spaced_effort(products / scale, int(present.sum()), spacing, self.parameters.secrets)
            return Additions(number, effort)
        base, effort = block * (n_groups + 1), 0.0
        for column in range(groups.shape[1]):
            rows = np.bincount(base + groups[:, column] + 1)
            rows[:: n_groups + 1] = 0
            effort += float(np.minimum(rows * scale, DENSE).sum())
        return Additions(number, effort / scale)

    def level_spacing(self, layout: Layout, work: LevelWork, bits: int) -> int:
        """Return the spacing that costs least."""
        choice = LevelChoice(self.parameters.reencrypt, self.parameters.bandwidth)
        return best_spacing(layout, work, bits, self.parameters.secrets, choice)

    def calibration_rows(self, bits: int) -> int:
        """Return as many as fill four polynomials."""
        return 4 * SECURE_DEGREE

    def benchmark(self, bits: int) -> list[KernelBenchmark]:
        """Measure the code that LLVM makes for this processor, at degree 4096."""
        from labelward.he.lattice.benchmark import benchmark_lattice

        return benchmark_lattice(self)

    def describe(self) -> dict[str, Any]:
        """Return name, workers, parameters and kernel."""
        return super().describe() | {"kernel": kernel_name()}

    def _check_degree(self, bits: int, insecure: bool) -> None:
        if bits not in (SECURE_DEGREE, SMALL_DEGREE):
            raise EncryptionError(
                f"the degree of the ring is {SECURE_DEGREE}, or {SMALL_DEGREE} with insecure = true, not {bits}",
                code="range",
                value=bits,
            )
        if bits < SECURE_DEGREE and not insecure:
            reason = f"a ring of degree {bits} is too small; {SECURE_DEGREE}, or insecure = true"
            raise EncryptionError(reason, code="key", value=bits)
