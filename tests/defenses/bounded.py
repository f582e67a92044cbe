"""What a passive party can tell of nodes, from its view alone; the bound that ID-LMID keeps, from its definition."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np

from labelward.kernels.information import joint_information
from labelward.messages.tree import LevelRequest, OwnSplit, TreeStart, WinningSplits
from labelward.party.view import View
from labelward.protocols.secureboost.params import TreeModel
from wiring import Run, Setting, make_labels, make_parts, make_targets, with_missing

ROUNDING = 1e-12  # nats: the bound is a sum of a few logarithms, each exact to about 1e-16


def setting(seed: int, parties: int, params: TreeModel, rows: int = 150, active_columns: int = 2) -> Setting:
    names = ["active", "left", "right"][:parties]
    parts = make_parts(seed, rows, {name: active_columns if name == "active" else 2 for name in names})
    return Setting(parts, make_labels(seed, parts), params)


def rich(given_setting: Setting, seed: int, classes: int, missing: float) -> Setting:
    """Return the setting with several classes, gaps, and a categorical column at the last party."""
    rng, rows = np.random.default_rng(seed), len(given_setting.labels)
    parts = with_missing(seed, given_setting.parts, missing)
    last = list(parts)[-1]
    parts[last] = np.column_stack([parts[last], rng.integers(0, 6, rows)])
    return replace(
        given_setting,
        parts=parts,
        labels=make_targets(seed, given_setting.parts, "classes", classes),
        classes=tuple(map(str, range(classes))),
        categories={last: {2: tuple("abcdef")}},
    )


def known_splits(view: View, tree: int) -> dict[int, np.ndarray]:
    """Return which of a node's rows go left, for each split of a tree that the party was told or owns."""
    splits = {
        split.node: split.left
        for received in view.received(LevelRequest)
        if received.message.tree == tree
        for split in received.message.splits.value
    }
    splits |= {own.node: own.left for own in view.observed(OwnSplit) if own.tree == tree}
    return {node: mask.unpack(mask.total) for node, mask in splits.items()}


def known_nodes(view: View) -> list[dict[int, np.ndarray]]:
    """Return for each tree the rows (bool) of every node but the root that the party can tell."""
    trees = []
    for received in view.received(TreeStart):
        tree = received.message.tree
        rows_of = {0: np.flatnonzero(received.message.rows.value.unpack(view.rows))}
        for node, left in sorted(known_splits(view, tree).items()):
            rows_of[2 * node + 1], rows_of[2 * node + 2] = rows_of[node][left], rows_of[node][~left]
        rows = {}
        for node, positions in rows_of.items():
            if node:
                rows[node] = np.zeros(view.rows, dtype=np.bool_)
                rows[node][positions] = True
        trees.append(rows)
    return trees


def bound(inside: np.ndarray, labels: np.ndarray) -> float:
    """Eq. 3 of the ID2Graph paper, from the definition: the larger divergence of a side's classes from all rows'."""
    largest = 0.0
    for side in (labels[inside], labels[~inside]):
        divergence = 0.0
        for label, count in Counter(side.tolist()).items():
            share = count / len(side)
            divergence += share * math.log(share / float(np.mean(labels == label)))
        largest = max(largest, divergence)
    return largest


def assert_bounded(run: Run, labels: np.ndarray, xi: float) -> int:
    """Every node that any passive party can tell keeps the bound; return how many there are."""
    seen = 0
    for party in run.passive:
        for nodes in known_nodes(run.views[party]):
            for inside in nodes.values():
                assert bound(inside, labels) <= xi + ROUNDING
                assert joint_information(inside.astype(int), labels) <= xi + ROUNDING
                seen += 1
    return seen


def assert_nothing_else_is_named(view: View) -> None:
    """A node that a message or observation names is the root, or a child of a split that the party knows."""
    for tree in (received.message.tree for received in view.received(TreeStart)):
        splits = known_splits(view, tree)
        named = set(splits)
        for received in view.received(LevelRequest):
            if received.message.tree == tree:
                named |= set(received.message.build)
        for chosen in view.received(WinningSplits):
            if chosen.message.tree == tree:
                named |= {split.node for split in chosen.message.splits.value}
        assert all(node == 0 or (node - 1) // 2 in splits for node in named)
