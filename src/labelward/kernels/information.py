"""Mutual information of tree nodes or groupings of rows with the labels, in nats, with 0 log 0 = 0.

Reference: "ID2Graph", Theorem 2 and Eq. 3 to 6 (the bound on which the defense ID-LMID rests). A node ``w``
with class counts ``n_w`` divides the N training rows in two, itself and its complement. With KL the
divergence of a side's class shares from those of all rows::

    node_bound       = max(KL(node), KL(complement))                     Eq. 3
    node_information = n_w/N KL(node) + (1 - n_w/N) KL(complement)       I(Y; S_w), at most the bound

N counts the whole training set, rows left out of a tree's sample included. The bound holds for each node;
several nodes seen together can say more (the paper's Corollary 1 is silent on that):
:func:`joint_information` measures what a whole grouping says.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelward.jit import jit

Floats = NDArray[np.float64]


def node_bound(counts: ArrayLike, totals: ArrayLike) -> Floats:
    """Return float64 [...]: Eq. 3 for each node; a side without rows contributes 0.

    Args:
        counts: [..., C] rows of each class in each node.
        totals: [C] rows of each class in the training set.

    Raises:
        ValueError: shapes do not fit, or a count is negative or more than its total.
    """
    return _each(counts, totals)[0]


def node_information(counts: ArrayLike, totals: ArrayLike) -> Floats:
    """Return float64 [...]: the realized mutual information of the label and the node's indicator.

    Arguments and errors as :func:`node_bound`. Never more than :func:`node_bound` of the same counts, in
    floating point too.
    """
    return _each(counts, totals)[1]


def entropy(counts: ArrayLike) -> Floats:
    """Return float64 [...]: the entropy of the shares of counts [..., C]; 0 where there is no row.

    Raises:
        ValueError: a count is negative or not finite.
    """
    counts = np.asarray(counts, dtype=np.float64)
    if not (np.isfinite(counts).all() and (counts >= 0).all()):
        raise ValueError("counts must be finite and at least 0")
    total = counts.sum(axis=-1, keepdims=True)
    shares = np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    result: Floats = np.maximum(-(shares * logs).sum(axis=-1), 0.0)
    return result


def joint_information(groups: ArrayLike, labels: ArrayLike) -> float:
    """Return the mutual information of two labelings of the same rows, from their observed frequencies.

    Args:
        groups: int [n], any integers.
        labels: int [n], any integers.

    Raises:
        ValueError: the lengths differ, or there is no row.
    """
    groups, labels = np.asarray(groups), np.asarray(labels)
    if groups.ndim != 1 or groups.shape != labels.shape or groups.size == 0:
        raise ValueError(
            f"groups {groups.shape} and labels {labels.shape} must be of one length, with at least one row"
        )
    group_names, group = np.unique(groups, return_inverse=True)
    label_names, label = np.unique(labels, return_inverse=True)
    cells, together = np.unique(group * len(label_names) + label, return_counts=True)
    rows, columns = np.divmod(cells, len(label_names))
    in_group = np.bincount(group, minlength=len(group_names))[rows]
    in_label = np.bincount(label, minlength=len(label_names))[columns]
    shares = together / groups.size
    ratios = shares * groups.size / in_group * groups.size / in_label
    return max(0.0, float((shares * np.log(ratios)).sum()))


def v_measure(clusters: ArrayLike, labels: ArrayLike) -> float:
    """Return the V-measure of clusters and labels of the same rows: 2 I / (H(clusters) + H(labels)).

    That is the harmonic mean of I / H(labels) and I / H(clusters) (Rosenberg and Hirschberg 2007). It is 0 exactly for
    one cluster, and 1 where there is one cluster and one label.

    Raises:
        ValueError: as :func:`joint_information`.
    """
    information = joint_information(clusters, labels)
    sizes = [np.unique(np.asarray(each), return_counts=True)[1] for each in (clusters, labels)]
    if min(len(each) for each in sizes) == 1:
        return float(len(sizes[0]) == len(sizes[1]))
    return min(1.0, 2 * information / float(entropy(sizes[0]) + entropy(sizes[1])))


def v_measure_bound(information: ArrayLike, label_entropy: float) -> Floats:
    """Return float64 [...]: upper bound of the V-measure of any clustering with ``information`` about labels.

    Proof. Let C be a clustering that is a function of what is known, G, and I(G; Y) at most ``information``. Then
    I(C; Y) <= I(G; Y), since C adds nothing (data processing). The V-measure is 2 I(C; Y) / (H(C) + H(Y)), and
    H(C) >= I(C; Y), so that it is at most 2 I(C; Y) / (I(C; Y) + H(Y)). This grows with I(C; Y), whatever H(Y) > 0 is,
    so that I(G; Y), or a bound of it, may take the place of I(C; Y).

    Args:
        information: nats, at least 0.
        label_entropy: nats; where it is 0 there is nothing to know, and the bound is 0.
    """
    known = np.asarray(information, dtype=np.float64)
    if label_entropy <= 0:
        return np.zeros_like(known)
    bound: Floats = 2 * known / (known + label_entropy)
    return bound


def _each(counts: ArrayLike, totals: ArrayLike) -> tuple[Floats, Floats]:
    """Return bound and information of each node."""
    counts = np.ascontiguousarray(counts, dtype=np.float64)
    totals = np.ascontiguousarray(totals, dtype=np.float64)
    if totals.ndim != 1 or counts.ndim < 1 or counts.shape[-1] != totals.size:
        raise ValueError(f"counts of shape {counts.shape} do not fit totals of shape {totals.shape}")
    if not (np.isfinite(totals).all() and (totals >= 0).all()):
        raise ValueError("totals must be finite and at least 0")
    shape = counts.shape[:-1]
    bound, information = np.zeros(shape), np.zeros(shape)
    if not _node_terms(counts.reshape(-1, totals.size), totals, bound.reshape(-1), information.reshape(-1)):
        raise ValueError("each count must be at least 0 and at most its class's total")
    return bound, information


@jit
def _node_terms(counts: Floats, totals: Floats, bound: Floats, information: Floats) -> bool:
    n = totals.sum()
    for i in range(counts.shape[0]):
        inside = 0.0
        for c in range(totals.size):
            if not 0.0 <= counts[i, c] <= totals[c]:
                return False
            inside += counts[i, c]
        outside = n - inside
        node, rest = 0.0, 0.0
        for c in range(totals.size):
            own, other = counts[i, c], totals[c] - counts[i, c]
            if own > 0:
                node += own / inside * math.log(own * n / (inside * totals[c]))
            if other > 0 and outside > 0:
                rest += other / outside * math.log(other * n / (outside * totals[c]))
        node, rest = max(node, 0.0), max(rest, 0.0)
        bound[i] = max(node, rest)
        if n > 0:
            information[i] = min(bound[i], inside / n * node + outside / n * rest)
    return True
