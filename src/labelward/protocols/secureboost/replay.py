"""Replay: the integers that the active party encrypted, from its view, its labels and its share of the model.

Whoever attacks the active party's view knows all of these. Exact where the labels themselves were fitted: noise that a
policy adds to labels, and GOSS samples, follow from private randomness, which is in neither view nor share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.node_rows import NodeRows
from labelward.kernels.objectives import margins_of_output
from labelward.messages.tree import DecryptedSums, InstanceSpaces
from labelward.party.view import View
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.row_encoding import GradientEncoder, sample_rows
from labelward.protocols.secureboost.share import ModelShare, TreeShape
from labelward.protocols.secureboost.targets import class_weighted, fitted_objective
from labelward.rng import PrivateSeed

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def replayed_rows(
    view: View, share: ModelShare, params: TreeModel, labels: Floats, weights: Floats
) -> Iterator[tuple[Integers, int]]:
    """Yield for each tree of the model the integers of its rows, int64 [rows, k], and which of the k counts rows.

    Rows count as often as they were drawn.

    Args:
        view: of the active party.
        share: its share of the model.
        params: of the model.
        labels: float64 [rows]: class numbers, or regression targets.
        weights: float64 [rows].
    """
    classes, n = len(share.classes), len(labels)
    objective = fitted_objective(params, classes)
    weights = class_weighted(params, weights, labels, classes)
    weighted = bool((weights != 1.0).any()) or params.scale_pos_weight != 1.0
    precision = int(view.parameter("encryption.precision", 30))
    encoder = GradientEncoder(objective, np.zeros((n, 0), np.int64), precision, weighted=weighted)
    flags = (labels[:, None] == np.arange(1, classes)).astype(np.int64)
    counting = GradientEncoder(objective, flags, precision, weighted=weighted)
    summed = next((each.sums.shape[-1] for each in view.observed(DecryptedSums)), None)
    seed, margins = int(view.parameter("run.seed", 0)), np.tile(np.asarray(share.base), (n, 1))
    spaces: dict[int, dict[int, NDArray[np.bool_]]] = defaultdict(dict)
    for level in view.observed(InstanceSpaces):
        for split in level.splits:
            spaces[level.tree][split.node] = split.left.unpack(split.left.total)
    if params.sampling == "goss":
        return
    for number, tree in enumerate(share.trees):
        into = margins_of_output(tree.output)
        if tree.output < 0 or number % share.outputs == 0:  # a round begins
            pending = objective.gradients(margins, labels)
        g, h = (each[:, into] for each in pending)
        sample = sample_rows(params, np.ones(n), seed=seed, party=view.party, tree=number, private=PrivateSeed.drawn())
        shared = params.kind == "forest"
        rows = np.arange(n) if shared else np.flatnonzero(sample.counts)
        encoded = encoder.encode(g, h, weights, rows, g.shape[1])
        if summed not in (None, encoded.numbers.k):  # a policy needed class counts
            encoder = counting
            encoded = encoder.encode(g, h, weights, rows, g.shape[1])
        yield encoded.values * sample.counts[:, None], encoded.numbers.count
        if not shared:
            leaves = _leaves(tree, spaces[number], sample.counts)
            if leaves is None:
                return
            margins[:, into] += tree.leaf_values()[leaves]


def _leaves(tree: TreeShape, spaces: dict[int, NDArray[np.bool_]], counts: Integers) -> NDArray[np.int32] | None:
    """Return int32 [rows]: the position of each row's leaf; None where the view does not tell."""
    rows = NodeRows(len(counts), np.flatnonzero(counts))
    for node in sorted(tree.nodes):
        if node not in spaces or len(spaces[node]) != rows.size(node):
            return None
        rows.split(node, spaces[node])
    reached = np.zeros(len(counts), np.int32)
    for position, leaf in enumerate(tree.leaves):
        reached[rows.rows(leaf)] = position
    return reached if counts.all() else None
