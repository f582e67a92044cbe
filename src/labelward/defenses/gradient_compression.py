"""Gradient compression: only the largest numbers of a returned gradient leave; all others become 0.

Setting: the passive parties are curious. Of each batch's gradient, for each party, the share ``keep`` of the numbers
with the largest absolute values stays; what stays is exact. It hides the small numbers alone: a row's largest number is
often that of its label, and kept (the paper finds that the direct attack hardly suffers).

``keep`` is relative to all numbers of the batch together, not to a row's: rows of which the model is sure may lose all
of theirs, others none.

Reference: Section 6.1 of the label inference paper. "Compression rate" is the kept share in its Table 6 and the dropped
one in its Section 6.2; here it is called ``keep``. Published code drops the k-th largest too, and all that equal it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from labelward.kernels.gradient_compression import keep_largest, top_k_count
from labelward.policy.base import Policy
from labelward.policy.net_points import ReturnedGradient, Values


@dataclass(frozen=True, kw_only=True)
class GradientCompression(Policy):
    """Send only the largest values of a returned gradient; the others become 0."""

    kind: ClassVar[str] = "gradient-compression"

    keep: Annotated[
        float,
        Meta(gt=0, lt=1, description="Fraction of the batch's values to keep, the largest ones; rounded down."),
    ]

    @property
    def begins_alike(self) -> bool:
        """Each batch is treated alike."""
        return True

    def on_returned_gradient(self, returned: ReturnedGradient) -> Values:
        """Return the gradient with its small values set to 0."""
        values = returned.values
        compressed: Values = (values * keep_largest(values, top_k_count(self.keep, values.size))).astype(values.dtype)
        return compressed
