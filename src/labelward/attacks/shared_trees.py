"""What a party of PIVODL knows of each tree, reconstructed from its view, and the base of attacks that read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import Attack, LabelGuess
from labelward.errors import CodecError, FileFormatError, JobError
from labelward.messages.pivodl import ColumnCodes, LevelOutcome, RootSums
from labelward.metrics.registry import Metric
from labelward.party.view import View


class SharedTreeAttack(Attack):
    """Base of attacks of one party of PIVODL on the labels of the others."""

    primary: ClassVar[str] = "auc"
    models: ClassVar[tuple[str, ...]] = ("pivodl",)
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            name="flipped_accuracy",
            title="accuracy, flipped if better",
            article="an",
            note="Flipped if better: a guess that is mostly wrong tells as much as its opposite.",
        ),
    )

    def check_labels(self, rows: int, classes: int) -> None:
        """Refuse quantities, whose sums rank no classes."""
        if not classes:
            raise JobError(
                f"attack {self.kind!r} is for classes, not for quantities", code="unsupported", value="regression"
            )

    def score(self, guess: LabelGuess, truth: NDArray[np.int64]) -> dict[str, float]:
        """Return max(a, 1 - a) of accuracy a."""
        right = float(np.mean(guess.values == truth))
        return {"flipped_accuracy": max(right, 1 - right)}

    @property
    def alone(self) -> str:
        """See :attr:`Attack.alone`."""
        return "a coalition of parties with labels of their own is not supported"


@dataclass(eq=False)
class KnownTree:
    """One tree as a party knows it.

    Attributes:
        rows: of each node whose rows it knows, ascending.
        sums: int64 [k] of each node whose sums it knows: gradients, hessians, count.
        weights: of each leaf of which it was told the weight, and some of whose rows it knows.
        leaf_rows: the rows of these leaves that it knows.
        split: the nodes that are no leaves.
        gains: of the splits of nodes, of which everybody is told.
        own: the nodes that the party's own columns split.
    """

    rows: dict[int, NDArray[np.int64]]
    sums: dict[int, NDArray[np.int64]]
    weights: dict[int, float] = field(default_factory=dict)
    leaf_rows: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    split: set[int] = field(default_factory=set)
    gains: dict[int, float] = field(default_factory=dict)
    own: set[int] = field(default_factory=set)

    def public_leaves(self) -> list[int]:
        """Return the leaves whose rows and sums the party knows."""
        return sorted((self.rows.keys() & self.sums.keys()) - self.split)

    def deepest(self, rows: int, nodes: Iterable[int]) -> NDArray[np.int32]:
        """Return int32 [rows]: the deepest node of each row among nodes whose rows the party knows."""
        found = np.zeros(rows, dtype=np.int32)
        for node in sorted(nodes):
            found[self.rows[node]] = node
        return found


def told_codes(told: ColumnCodes, held: NDArray[np.bool_]) -> NDArray[np.uint16] | None:
    """Return the bins of the rows that the party labels, uint16 [held rows, columns]; None: it was told none."""
    codes, columns = np.frombuffer(told.codes, "<u2"), len(told.sizes)
    return codes.reshape(-1, columns) if codes.size == held.sum() * columns > 0 else None


def known_trees(view: View, held: NDArray[np.bool_] | None = None) -> Iterator[KnownTree]:
    """Yield the trees of a view in order.

    Args:
        view: of any party of PIVODL.
        held: bool [rows]: which rows the party labels; without them leaves of others' splits stay unknown.

    Raises:
        FileFormatError: a mask of rows does not fit its node.
    """
    labeled = np.zeros(view.rows, dtype=np.bool_) if held is None else held
    trees = {
        each.tree: KnownTree({0: np.arange(view.rows)}, {0: each.totals.unpack().astype(np.int64)})
        for each in view.observed(RootSums)
    }
    for outcome in view.observed(LevelOutcome):
        try:
            _add(trees[outcome.tree], outcome, labeled, view.party)
        except CodecError as error:
            reason = f"the view of party {view.party!r} contradicts itself in tree {outcome.tree}: {error}"
            raise FileFormatError(reason, code="damaged", value=view.party) from error
    for tree in sorted(trees):
        yield trees[tree]


def _add(tree: KnownTree, outcome: LevelOutcome, held: NDArray[np.bool_], party: str) -> None:
    totals, weights = outcome.totals.unpack().astype(np.int64), outcome.weights.unpack()
    if outcome.gains is not None:
        tree.gains |= zip(outcome.nodes, outcome.gains.unpack().tolist(), strict=True)
    tree.own |= {node for node, owner in zip(outcome.nodes, outcome.owners, strict=True) if owner == party}
    each = zip(outcome.nodes, outcome.left, outcome.whole, outcome.told, totals, weights, strict=True)
    for node, packed, whole, told, left_sums, pair in each:
        tree.split.add(node)
        rows = tree.rows[node]
        rows = rows if whole else rows[held[rows]]
        if not whole and packed.total != len(rows):
            continue  # of rows that the attacker labels, which it does not say
        left = packed.unpack(len(rows))
        for child, mine, weight in zip((2 * node + 1, 2 * node + 2), (left, ~left), pair.tolist(), strict=True):
            if whole:
                tree.rows[child] = rows[mine]
            if not np.isnan(weight):
                tree.weights[child], tree.leaf_rows[child] = weight, rows[mine]
        if told:
            tree.sums[2 * node + 1], tree.sums[2 * node + 2] = left_sums, tree.sums[node] - left_sums
