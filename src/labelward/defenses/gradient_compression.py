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

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from labelward.defenses._keyed_noise import number
from labelward.kernels.gradient_compression import keep_largest, top_k_count
from labelward.policy.base import Policy
from labelward.policy.net_points import ReturnedGradient, Values

__all__ = ["GradientCompression"]


@dataclass(frozen=True, kw_only=True)
class GradientCompression(Policy):
    """Keep the largest numbers of a gradient.

    Attributes:
        keep: their share, above 0 and below 1; rounded down to whole numbers of the batch, so that at least one is
            dropped. No default: it is the choice that only the user can make.
    """

    kind: ClassVar[str] = "gradient-compression"

    keep: float

    def __post_init__(self) -> None:
        number("keep", self.keep, below=1)

    def on_returned_gradient(self, returned: ReturnedGradient) -> Values:
        """Return the gradient with its small numbers dropped."""
        values = returned.values
        kept: Values = (values * keep_largest(values, top_k_count(self.keep, values.size))).astype(values.dtype)
        return kept

    def parameters(self) -> dict[str, Any]:
        """Return the share."""
        return asdict(self)
