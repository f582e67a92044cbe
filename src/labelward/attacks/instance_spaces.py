"""Instance spaces known to a passive party: the leaves of each tree, reconstructed from its view."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData
from labelward.attacks.shared_trees import known_trees
from labelward.errors import CodecError, DataError, FileFormatError
from labelward.kernels.communities import trees_per_round
from labelward.kernels.objectives import hessian_factor
from labelward.messages.base import RowMask
from labelward.messages.federboost import OwnSides
from labelward.messages.tree import LevelRequest, OwnSplit, TreeStart
from labelward.party.joined_view import joined_column
from labelward.party.view import View
from labelward.rng import column_sample


def observed_leaves(view: View, own: AttackerData | None = None) -> NDArray[np.int32]:
    """Return int32 [trees, rows]: the finest node that the party knows for each row, -1 if unknown.

    A node counts as a leaf for the party when it knows no split of it: its own splits, and those whose rows
    disclosed to it. When the active party's split yields two leaves, they are not disclosed and the party knows only
    their parent; the sibling of a disclosed leaf follows by subtraction. Trees in which it takes no part are absent.
    If a tree was restarted, the last attempt counts for nodes whose rows both attempts disclose.

    Rows out of a tree's sample pass the party's own splits only: they lie in a leaf that these alone lead to. How
    often a row was drawn into a sample does not matter here: it lies in one leaf.

    Of PIVODL the finest node is the one all of whose rows the party knows: of leaves of others' splits it knows none
    but those that it labels.

    Of FederBoost each split of the party counts as a tree of two leaves: it knows none of others, and no nodes.

    Of a coalition it is what the splits of all members say together (:mod:`labelward.party.joined_view`); a row out of
    a sample that these do not lead to a leaf lies where the best informed member alone places it.

    Args:
        view: of a passive party, or of several.
        own: its columns; without them rows out of a tree's sample stay unknown.

    Raises:
        DataError: ``own`` lacks a column that the view names.
        FileFormatError: a mask of rows does not fit its node.

    Reference: Section 3 of the ID2Graph paper, "from the viewpoint of the attacker".
    """
    if view.parameter("model.kind") == "pivodl":
        return np.array([tree.deepest(view.rows, tree.rows) for tree in known_trees(view)], np.int32).reshape(
            -1, view.rows
        )
    if view.parameter("model.kind") == "federboost":
        sides = [mask.unpack(view.rows) for each in view.observed(OwnSides) for mask in each.left]
        return 2 - np.array(sides, dtype=np.int32).reshape(-1, view.rows)
    trees = len({received.message.tree for received in view.received(TreeStart)})
    leaves = np.full((trees, view.rows), -1, dtype=np.int32)
    for leaf, tree in zip(leaves, observed_trees(view), strict=True):
        for node in sorted(tree.nodes):  # a child's number is larger than its parent's
            leaf[tree.nodes[node]] = node
        if own is not None:
            _route_others(leaf, tree.mine, tree.split, own)
    if own is not None and len(view.members) > 1:
        alone = member_leaves(view, own)
        if all(each.shape == leaves.shape for each in alone):
            leaves = np.where(leaves < 0, np.max(alone, axis=0), leaves)  # of nodes on a path the deepest has most
    return leaves


def member_leaves(view: View, own: AttackerData) -> list[NDArray[np.int32]]:
    """Return what each member of a coalition knows alone; arguments as for :func:`observed_leaves`."""
    found = []
    for member in view.members:
        names = [joined_column(member.party, name) for name in member.header.columns]
        places = [list(own.columns).index(name) for name in names if name in own.columns]
        columns = [own.columns[at].removeprefix(joined_column(member.party, "")) for at in places]
        found.append(observed_leaves(member, AttackerData(features=own.features[:, places], columns=columns)))
    return found


@dataclass(frozen=True)
class ObservedTree:
    """A tree as a passive party knows it.

    Attributes:
        nodes: int64: the rows of each node that it knows, ascending.
        split: those of them whose children it knows.
        summed: those of which it was asked for sums.
        mine: its own splits.
    """

    nodes: dict[int, NDArray[np.int64]]
    split: frozenset[int]
    summed: frozenset[int]
    mine: dict[int, OwnSplit]


def observed_trees(view: View) -> Iterator[ObservedTree]:
    """Yield the trees in which a passive party takes part, in their order.

    Raises:
        FileFormatError: a mask of rows does not fit its node.
    """
    starts = {received.message.tree: received.message for received in view.received(TreeStart)}
    splits: dict[int, dict[int, RowMask]] = defaultdict(dict)
    summed: dict[int, set[int]] = defaultdict(set)
    for received in view.received(LevelRequest):
        summed[received.message.tree].update(received.message.build)
        for split in received.message.splits.value:
            splits[received.message.tree][split.node] = split.left
    mine: dict[int, dict[int, OwnSplit]] = defaultdict(dict)
    for observed in view.observed(OwnSplit):
        splits[observed.tree][observed.node] = observed.left
        mine[observed.tree][observed.node] = observed
    for tree in sorted(starts):
        try:
            nodes = _grow(view.rows, starts[tree].rows.value, splits[tree])
        except CodecError as error:
            raise FileFormatError(
                f"the view of party {view.party!r} contradicts itself in tree {tree}: {error}",
                code="damaged",
                value=view.party,
            ) from error
        yield ObservedTree(nodes, frozenset(splits[tree]), frozenset(summed[tree]), mine[tree])


class Boosted(NamedTuple):
    """How trees were boosted."""

    rate: float  # learning rate of each tree
    reg_lambda: float
    factor: float  # hessians as a multiple of p(1 - p)
    together: int  # trees that are grown on the same margins

    @classmethod
    def of(cls, view: View, classes: int) -> Boosted | None:
        """Return how those of a view were; None: a forest."""
        if view.parameter("model.kind") == "forest":
            return None
        together = trees_per_round(view.parameter("model.multi_strategy"), classes)
        rate, reg_lambda = view.parameter("model.learning_rate", 0.3), view.parameter("model.reg_lambda", 1.0)
        factor = hessian_factor(classes, exact=view.parameter("model.softmax_hessian") == "exact")
        return cls(rate / together, reg_lambda, factor, together)


def drawn_columns(view: View) -> list[list[str]]:
    """Return for each tree of :func:`observed_trees` the names of the columns that took part in it.

    A party's columns are drawn from the seed that all parties share. Of a coalition they are those of all members;
    where its members took part in different trees, those of the one whose tree it is. The party's first tree must be in
    the view: a model that is trained further has drawn before.
    """
    members = view.members
    joined, *grown = (len({each.message.tree for each in one.received(TreeStart)}) for one in (view, *members))
    turns = [[(at, tree) for at in range(len(members))] for tree in range(joined)]
    if any(count != joined for count in grown):
        turns = [[(at, tree)] for tree, at in sorted((tree, at) for at, n in enumerate(grown) for tree in range(n))]
    return [[name for at, tree in turn for name in _drawn(members[at], tree, len(members) > 1)] for turn in turns]


def _drawn(view: View, tree: int, joined: bool) -> list[str]:
    names, seed, fraction = view.header.columns, view.parameter("run.seed", 0), view.parameter("model.feature_fraction")
    drawn = list(names)
    if names and (fraction or 1.0) < 1.0:
        drawn = [names[at] for at in column_sample(seed, view.party, tree, len(names), fraction)]
    return [joined_column(view.party, name) for name in drawn] if joined else drawn


def _grow(total: int, sample: RowMask, splits: dict[int, RowMask]) -> dict[int, NDArray[np.int64]]:
    """Return the rows of each node that follows from the known splits of one tree."""
    rows_of = {0: np.flatnonzero(sample.unpack(total))}
    for node in sorted(splits):
        rows = rows_of.get(node)
        if rows is not None:
            left = splits[node].unpack(len(rows))
            rows_of[2 * node + 1], rows_of[2 * node + 2] = rows[left], rows[~left]
    return rows_of


def _route_others(leaf: NDArray[np.int32], mine: dict[int, OwnSplit], known: frozenset[int], own: AttackerData) -> None:
    """Route the rows out of the sample through the party's own splits, in place, as far as these lead to a leaf."""
    rows_of = {0: np.flatnonzero(leaf < 0)}
    for node in sorted(mine):
        rows = rows_of.pop(node, None)
        if rows is None or not len(rows):
            continue
        if mine[node].column not in own.columns:
            raise DataError(
                f"the features lack column {mine[node].column!r}, which the view names",
                code="columns",
                value=mine[node].column,
            )
        left = _goes_left(mine[node], own.features[rows, list(own.columns).index(mine[node].column)])
        rows_of[2 * node + 1], rows_of[2 * node + 2] = rows[left], rows[~left]
    for node, rows in rows_of.items():
        if node and node not in known:
            leaf[rows] = node


def _goes_left(split: OwnSplit, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which values go left: at most the threshold, or in the set; missing and unknown ones as the split says."""
    if split.categories:
        left, unknown = np.isin(values, split.categories), ~(values >= 0)
    else:
        left, unknown = values <= split.threshold, np.isnan(values)
    return left | unknown if split.missing_left else left
