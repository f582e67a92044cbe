"""Least rows and bins of a sum: a passive party merges bins of a node until each sum that it sends covers enough.

Setting: the active party is curious. It decrypts the sums of each bin in each node, knows every row's gradient and the
rows of each node, and so finds which rows lie in small bins. A passive party with this policy merges adjacent bins of a
node (of a categorical column, adjacent codes) until each cell has ``rows`` rows, in the node and in its sibling, whose
sums follow by subtraction, and ``values`` bins that have rows in the tree; the cells of a node are unions of its
parent's. Rows without a value count as one bin, and join the first cell where there are fewer. Columns by whose own
split a node came to be keep their cells, which lie in one of both whole.

The rows that go left at a split are known, so that a split of a column of two values tells each row's. Splits lie
between cells: with two bins in each, no split and no sum tells a row's bin, and columns of fewer than four bins are not
split at all.

Which bins were merged depends on the numbers of rows only, and travels. It shows that a cell without its last bin had
fewer rows than required.

Outside the guarantee: what many exact sums over large cells determine jointly, which grows with the number of trees;
cells of another tree where trees draw rows, since bins without rows in one tree have some in another; with ``values``
= 1 which rows go left at the party's own splits, which reveals columns of few values by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.kernels.bin_merging import merge_bins
from labelward.policy.base import BinCounts, Policy, PolicyContext


@dataclass(frozen=True, kw_only=True)
class MinBinRows(Policy):
    """Merge bins of a passive party until each sum covers enough rows and bins (the party's own defense)."""

    kind: ClassVar[str] = "min-bin-rows"

    rows: Annotated[int, Meta(ge=2, description="Minimum number of rows that a sum of a passive party covers.")] = 20
    values: Annotated[
        int,
        Meta(
            ge=1,
            description="Minimum number of bins that it covers; columns of fewer than twice as many are not split.",
        ),
    ] = 2

    @property
    def begins_alike(self) -> bool:
        """Each tree is treated alike."""
        return True

    def check(self, setup: PolicyContext) -> None:
        """Refuse candidates of their own in each node, whose sums do not follow by subtraction."""
        if setup.candidates == "node":
            raise PolicyError(
                "defense 'min-bin-rows' does not support candidates 'node', which are other bins in each node",
                code="inapplicable",
                value=setup.candidates,
            )

    def before_histograms(self, counts: BinCounts) -> NDArray[np.int32]:
        """Merge bins until each has enough rows in the node and its sibling, and enough bins."""
        return merge_bins(counts.rows, counts.sibling, counts.cells, self.rows, self.values)
