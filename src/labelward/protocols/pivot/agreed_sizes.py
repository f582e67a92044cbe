"""The largest messages of a training and of a prediction: what exceeds them is refused with its first bytes.

They follow from rows and classes, which all parties agreed on when they greeted each other, from the bins of all
columns, which they tell each other first, and from the depth of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labelward.he.base import CiphertextFormat
from labelward.party.context import Context
from labelward.protocols.pivot.arithmetic import HEAD
from labelward.protocols.pivot.dealer import KeyTerms
from labelward.protocols.pivot.params import Pivot
from labelward.protocols.pivot.statistics import statistics_layout

_WORD = 8


@dataclass(frozen=True, kw_only=True)
class TrainingSizes:
    """Bounds of the messages of a training, known where the parties agreed on the number of classes.

    Attributes:
        rows, test: of the training, and of the predictions that follow it.
        classes: of the label.
        depth: of the tree.
        form: of ciphertexts.
    """

    rows: int
    test: int
    classes: int
    depth: int
    form: CiphertextFormat

    @classmethod
    def of(
        cls, ctx: Context, params: Pivot, rows: tuple[int, int], classes: int, key: KeyTerms
    ) -> TrainingSizes | None:
        """Return them for the parties of a context, of which one deals; None for 0 classes, which are not agreed."""
        if not classes:
            return None
        parties = len(ctx.topology.assigned) - 1
        layout = statistics_layout(params, rows[0], classes, parties)
        form = key.engine.ciphertext_format(layout, key.engine.key_bits(key.bits))
        return cls(rows=rows[0], test=rows[1], classes=classes, depth=params.depth, form=form)

    @property
    def labels(self) -> int:
        """Bytes of the encrypted classes of all rows."""
        return self.form.row_bytes(self.rows) + HEAD

    def largest(self, cells: Sequence[int]) -> int:
        """Return the bytes of the largest message between parties with so many bins.

        A comparison exchanges four words for each number (:meth:`.arithmetic.SharedArithmetic.is_negative`), and
        candidates are compared by both of their sides; products of counts, two for each side and class.
        """
        candidates = (1 << (self.depth - 1)) * sum(cells)
        words = max(candidates * 4 * max(2, self.classes), (1 << self.depth) * 4 * max(2, self.classes))
        leaves = prediction_bytes(self.test, 1 << self.depth, self.classes)
        return max(2 * self.labels, 2 * self.form.sum_bytes(max(cells)), words * _WORD + HEAD, leaves)


def prediction_bytes(rows: int, leaves: int, classes: int) -> int:
    """Return the bytes of the largest message in a prediction of so many rows: two bits for each row and leaf."""
    return 2 * _WORD * max(leaves, classes) * -(-rows // 64) + HEAD
