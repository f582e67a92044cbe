"""Hyper-parameters of Pivot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from labelward.errors import JobError
from labelward.parameters import Parameters, PositiveInt, Text

_RING = 64


@dataclass(frozen=True, kw_only=True)
class Pivot(Parameters):
    """A classification tree grown on secret-shared statistics of all parties' columns (Pivot, basic protocol)."""

    kind: ClassVar[str] = "pivot"
    section: ClassVar[str] = "[model]"

    dealer: Annotated[
        Text | None,
        Meta(
            description="The party that deals keys and random shares: it holds no columns and no labels, and must not "
            "collude. There is no default."
        ),
    ] = None
    depth: Annotated[int, Meta(ge=1, le=16, description="Maximum depth of the tree.")] = 3
    bins: Annotated[int, Meta(ge=2, le=1024, description="Maximum number of bins of a column.")] = 32
    candidates: Annotated[
        Literal["global", "all"],
        Meta(description="Split candidates: 'global' (quantiles of the column) or 'all' (every distinct value)."),
    ] = "global"
    min_rows: Annotated[PositiveInt, Meta(description="Minimum number of rows in a leaf.")] = 1
    min_node_rows: Annotated[PositiveInt, Meta(description="Nodes with fewer rows are leaves.")] = 10
    statistical_bits: Annotated[
        int,
        Meta(
            ge=40,
            le=60,
            description="Bits by which masks of decrypted sums are longer than the sums: these differ from uniform by "
            "at most 2 to the minus as many.",
        ),
    ] = 40

    @property
    def most_bins(self) -> int | None:
        """Maximum number of bins; None: one for each distinct value."""
        return None if self.candidates == "all" else self.bins

    def mask_bits(self, rows: int) -> int:
        """Return the bits of a mask of a sum over so many rows."""
        return rows.bit_length() + self.statistical_bits

    def check_rows(self, rows: int, parties: int) -> None:
        """Refuse rows whose gains exceed a share, and masks that exceed a slot of a ciphertext.

        Gains are compared as products of a numerator of at most rows³ / 4 and a denominator of at most rows² / 4.

        Args:
            rows: of the training.
            parties: that hold shares.

        Raises:
            JobError: names the key.
        """
        if rows**5 >= 1 << (_RING + 3):
            most = int(2 ** ((_RING + 3) / 5))
            reason = f"is for at most {most} training rows, not {rows}: gains must fit shares of {_RING} bits"
            raise JobError(reason, code="range", field="[model] kind", value=rows)
        if self.mask_bits(rows) + parties.bit_length() + 2 > _RING - 1:
            most = _RING - 3 - parties.bit_length() - rows.bit_length()
            reason = f"must be at most {most} for {rows} training rows and {parties} parties"
            raise JobError(reason, code="range", field="[model] statistical_bits", value=self.statistical_bits)
