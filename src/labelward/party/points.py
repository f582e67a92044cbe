"""What the points of policies are asked with, and what they may answer beside a value of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from labelward.rng import Protection

__all__ = [
    "CandidateSplits",
    "FinishedTree",
    "LeafWeights",
    "Learner",
    "PendingSplit",
    "Repair",
    "Schedule",
    "SplitReveal",
    "Targets",
    "VisibleRows",
]

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Rows = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Which passive parties take part in each round; an empty set: the active party grows its trees alone."""

    participants: tuple[frozenset[str], ...]


class Learner(Protocol):
    """The model of a run, as the active party can train it on its own columns alone."""

    def probabilities(self, values: Floats, rows: NDArray[np.bool_]) -> Floats:
        """Return float64 [n, C]: class probabilities of all training rows, from a model of some of them.

        Args:
            values: float64 [n]: class numbers; those outside of ``rows`` are not read.
            rows: bool [n]: the rows to learn from.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What the model is fitted to, before anything derived from it leaves.

    Attributes:
        values: float64 [n], class numbers (or real values).
        weights: float64 [n], without the weights of classes: these follow the values that are fitted in the end.
        offset: float64 [n], added to the margin in training and at prediction.
        loss: name of the loss.
        classes: how many there are; 0 for quantities.
        learner: trains the same model on the active party's own columns alone.
        draw: returns the generator of learning draws for a purpose.
        protection: source of the draws that protect something, such as noise.
        account: what the policy that answers wants to stand in its account.
    """

    values: Floats
    weights: Floats
    offset: Floats
    loss: str
    classes: int
    learner: Learner
    draw: Callable[[str], np.random.Generator]
    protection: Protection
    account: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PendingSplit:
    """A split of which its owner has been told; the active party does not know yet which rows go left.

    Attributes:
        rows: int32 [m], those of the node.
        left, right: int64 [C]: class counts of the children.
    """

    rows: Rows
    left: Counts
    right: Counts


@dataclass(frozen=True, kw_only=True)
class VisibleRows:
    """The instance spaces that one passive party knows, or would know.

    Attributes:
        tree: of the model: the one that grows, or was finished last.
        at: the same tree's position among those that the party has seen.
        node: whose children would become known; -1: the tree begins, or nothing changes.
        leaves: int32 [trees seen, rows], not to be written to: the finest node that the party knows of each training
            row, -1 out of the tree's sample. It is what an attack reads from the party's view, but for what its own
            columns tell of rows out of a sample. Valid until the next tree begins.
        pending: own splits that the party knows besides, while the active party waits for their rows.
    """

    party: str
    tree: int
    at: int
    node: int
    leaves: Rows
    pending: tuple[PendingSplit, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CandidateSplits:
    """The candidates of one party for the nodes of one level.

    Attributes:
        owner: whose columns they are.
        left: int64 [nodes, columns, candidates, C]: class counts of the left child of each candidate.
        node: int64 [nodes, C]: class counts of each node.
        totals: int64 [C]: class counts of the whole training set, rows out of the sample included.
        known: what the owner knows, where it is a passive party and a policy asks for rows.
    """

    tree: int
    depth: int
    owner: str
    owner_is_active: bool
    nodes: tuple[int, ...]
    left: Counts
    node: Counts
    totals: Counts
    known: VisibleRows | None = None


@dataclass(frozen=True, kw_only=True)
class SplitReveal:
    """A split that would be told: asked before its owner is told, since an owner learns its split's children.

    Attributes:
        left, right: int64 [C]: class counts of the children.
        totals: as in :class:`CandidateSplits`.
        participants: passive parties that see the node itself.
        known: as in :class:`CandidateSplits`.
    """

    tree: int
    depth: int
    node: int
    owner: str
    owner_is_active: bool
    left: Counts
    right: Counts
    totals: Counts
    participants: frozenset[str]
    known: VisibleRows | None = None


@dataclass(frozen=True, kw_only=True)
class LeafWeights:
    """Leaf weights of a finished tree, with the class counts of each leaf.

    Attributes:
        weights: float64 [leaves, outputs of the tree].
        counts: int64 [leaves, C]; no column for quantities.
    """

    tree: int
    weights: Floats
    counts: Counts


@dataclass(frozen=True, kw_only=True)
class FinishedTree:
    """A tree of which nothing will leave any more; what is changed now stays with the active party.

    Attributes:
        nodes: numbers of the split nodes, ascending; the children of node i are 2i + 1 and 2i + 2.
        leaves: numbers of the leaves, ascending.
        clean: int64 [leaves, C]: true classes of the rows that the tree grew on.
        fitted: int64 [leaves, C]: the classes that it was fitted to.
        alone: whether no other tree was fitted to what this one left over, so that parts can be grown anew.
    """

    tree: int
    nodes: tuple[int, ...]
    leaves: tuple[int, ...]
    clean: Counts
    fitted: Counts
    alone: bool


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What becomes of a finished tree.

    Attributes:
        regrow: nodes below which all is erased and grown anew, on true labels and the active party's columns alone.
        refit: whether all leaf weights are worked out again from true labels.
    """

    regrow: frozenset[int] = frozenset()
    refit: bool = False
