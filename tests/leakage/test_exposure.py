"""What visible leaves say about the labels, against counting node by node; and the promise of ID-LMID."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelward.attacks.instance_spaces import observed_leaves
from labelward.auditing.audit import audit
from labelward.job import Job
from labelward.kernels.information import node_information
from labelward.metrics.information import leakage_bounds, visible_node_counts
from labelward.party.view import View
from labelward.runs.schema import read_run

Jobs = Callable[..., Job]


def mutual_information(first: list[int], second: list[int]) -> float:
    """From the definition, in nats."""
    n = len(first)
    total = 0.0
    for a in set(first):
        for b in set(second):
            joint = sum(x == a and y == b for x, y in zip(first, second, strict=True)) / n
            if joint:
                total += joint * math.log(joint * n * n / (first.count(a) * second.count(b)))
    return total


@st.composite
def grown(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Leaves of a few trees over a few rows, some rows in no leaf, with labels of both classes."""
    n, trees = draw(st.integers(2, 12)), draw(st.integers(0, 3))
    leaves = np.full((trees, n), -1, dtype=np.int32)
    for tree in range(trees):
        for row in range(n):
            if draw(st.booleans()) or draw(st.booleans()):
                node = 0
                while node < 3 and draw(st.booleans()):
                    node = 2 * node + draw(st.integers(1, 2))
                leaves[tree, row] = node
        inner = {(int(node) - 1) // 2 for node in leaves[tree] if node > 0}
        leaves[tree][np.isin(leaves[tree], sorted(inner | {0} if inner else inner))] = -1  # a leaf is not split
    labels = np.array([0, 1, *draw(st.lists(st.integers(0, 1), min_size=n - 2, max_size=n - 2))])
    return leaves, labels


@given(grown())
def test_against_the_definition(case: tuple[np.ndarray, np.ndarray]) -> None:
    leaves, labels = case
    found = leakage_bounds(leaves, labels)
    nodes, worst = 0, 0.0
    for tree in leaves.tolist():
        known = set()
        for leaf in tree:
            while leaf >= 0:
                known.add(leaf)
                leaf = (leaf - 1) // 2 if leaf else -1
        for node in known:
            inside = [int(under(leaf, node)) for leaf in tree]
            worst = max(worst, mutual_information(inside, labels.tolist()))
        nodes += len(known)
    signatures = [hash(tuple(column)) for column in leaves.T.tolist()]
    assert found.nodes == nodes
    assert found.leaves == sum(len(set(tree) - {-1}) for tree in leaves.tolist())
    assert found.max_node_information == pytest.approx(worst, abs=1e-12)  # sums of at most 48 terms below 1
    assert found.joint_information == pytest.approx(mutual_information(signatures, labels.tolist()), abs=1e-12)
    assert found.max_node_information <= found.max_node_bound + 1e-12
    assert found.joint_information <= found.joint_bound <= found.label_entropy + 1e-12


def under(leaf: int, node: int) -> bool:
    while leaf > node:
        leaf = (leaf - 1) // 2
    return leaf == node


def test_no_tree_says_nothing() -> None:
    found = leakage_bounds(np.empty((0, 4), np.int32), np.array([0, 0, 1, 1]))
    assert (found.nodes, found.leaves, found.joint_information, found.joint_bound) == (0, 0, 0.0, 0.0)
    assert found.label_entropy == pytest.approx(math.log(2))


def test_leaves_that_are_the_classes_say_all() -> None:
    found = leakage_bounds(np.array([[1, 1, 2, 2]], np.int32), np.array([0, 0, 1, 1]))
    assert found.nodes == 3
    for value in (found.max_node_information, found.max_node_bound, found.joint_information, found.joint_bound):
        assert value == pytest.approx(math.log(2))


@pytest.mark.parametrize("candidates", [pytest.param("global", marks=pytest.mark.slow), "node"])
def test_under_id_lmid_no_visible_node_tells_more_than_xi(candidates: str, job: Jobs, tmp_path: Path) -> None:
    limits = [0.02, 0.1, 0.3, 0.5, 0.9]
    chosen = job(
        model={"trees": 3, "depth": 5, "candidates": candidates},
        defense=[{"kind": "id-lmid", "xi": limits}],
        attack=None,
        run={"seeds": [1]},
    )
    audit(chosen, tmp_path)
    truth = labels_of(tmp_path / "data" / "1" / "truth.parquet")
    seen_at_all = 0
    for xi in limits:
        for party in ("telco", "shop"):
            leaves = observed_leaves(View.load(tmp_path / "runs" / f"id-lmid-xi-{xi}" / "1" / party / "view"))
            for tree in leaves:
                told = node_information(visible_node_counts(tree, truth), np.bincount(truth))
                assert told.max() <= xi
                seen_at_all += len(told) - 1
        details = read_run(tmp_path, [{"kind": "id-lmid", "xi": xi}], 1)
        assert details is not None
        for party in ("telco", "shop"):
            bound = details.seen[party].max_node_bound
            assert bound is not None
            assert bound <= xi
    assert seen_at_all > 20  # the promise is not kept by showing nothing


def labels_of(path: Path) -> np.ndarray:
    import pyarrow.parquet as pq

    return pq.read_table(path).column("label").to_numpy().astype(np.int64)
