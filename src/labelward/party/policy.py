"""Policies: what decides what leaves a party. Below protocols and defenses, so that neither imports the other.

A policy overrides the points that it needs; each point has an identity default. A protocol declares the points that
it visits; :func:`require_points` refuses, at set-up, a policy whose point it never reaches. A policy that cannot act
raises :class:`~labelward.errors.PolicyError`: nothing unprotected leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.rng import Protection

__all__ = [
    "POINTS",
    "READS_CLASSES",
    "CandidateSplits",
    "FinishedTree",
    "LeafWeights",
    "Learner",
    "Policy",
    "PolicyChain",
    "Repair",
    "Schedule",
    "Setup",
    "SplitReveal",
    "Targets",
    "require_points",
]

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

POINTS = (
    "schedule",
    "before_targets",
    "split_candidates",
    "before_instance_space",
    "before_leaf_weights",
    "after_tree",
)
READS_CLASSES = frozenset({"split_candidates", "before_instance_space", "before_leaf_weights"})
"""The points at which a policy reads true classes and changes what others see, or what later trees are fitted to."""


TALLIES = ("refused_candidates", "hidden_splits", "given_up_splits", "regrown_nodes")
"""How often a policy acted: candidates that may not be chosen, splits whose children some party may not see, splits
that their owner may not know, and nodes below which a finished tree was grown anew."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a policy may check before anything starts.

    Attributes:
        trees: number of rounds.
        classes: of the labels; 0 for quantities.
        row_fraction: share of the rows that a tree grows on.
        replace: whether rows are drawn with replacement.
        sampling: how rows are drawn: ``"uniform"``, or ``"goss"``, by their gradients.
        stops_early: whether validation rows decide how many trees are kept.
        continues: whether an earlier training goes on.
        chain: all policies of the run, in order.
    """

    model: str
    trees: int
    classes: int
    active_columns: int
    passive: tuple[str, ...]
    row_fraction: float
    replace: bool = False
    sampling: str = "uniform"
    stops_early: bool = False
    continues: bool = False
    chain: tuple[Policy, ...] = ()


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
class CandidateSplits:
    """The candidates of one party for the nodes of one level.

    Attributes:
        owner: whose columns they are.
        left: int64 [nodes, columns, candidates, C]: class counts of the left child of each candidate.
        node: int64 [nodes, C]: class counts of each node.
        totals: int64 [C]: class counts of the whole training set, rows out of the sample included.
    """

    tree: int
    depth: int
    owner: str
    owner_is_active: bool
    nodes: tuple[int, ...]
    left: Counts
    node: Counts
    totals: Counts


@dataclass(frozen=True, kw_only=True)
class SplitReveal:
    """A split that would be told: asked before its owner is told, since an owner learns its split's children.

    Attributes:
        left, right: int64 [C]: class counts of the children.
        totals: as in :class:`CandidateSplits`.
        participants: passive parties that see the node itself.
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


class Policy:
    """The identity at every point; a defense overrides some.

    Attributes:
        kind: the name in a job file.
        purities: whether the points need class counts; they then travel packed beside g and h (Algorithm 6).
        label_private: whether its targets are differentially private in each label; nothing else that leaves may
            then depend on labels.
    """

    kind: ClassVar[str] = "none"
    purities: ClassVar[bool] = False
    label_private: ClassVar[bool] = False

    @property
    def points(self) -> frozenset[str]:
        """The points that this policy overrides."""
        return frozenset(name for name in POINTS if getattr(type(self), name) is not getattr(Policy, name))

    def check(self, setup: Setup) -> None:
        """Raise :class:`PolicyError` where the policy makes no sense in this set-up."""

    def schedule(self, schedule: Schedule) -> Schedule:
        """Decide who takes part in which tree, and how many trees there are."""
        return schedule

    def before_targets(self, targets: Targets) -> Targets:
        """Change the targets before anything derived from them leaves."""
        return targets

    def split_candidates(self, candidates: CandidateSplits) -> NDArray[np.bool_]:
        """Return bool [nodes, columns, candidates]: which candidates may be chosen."""
        return np.ones(candidates.left.shape[:-1], dtype=np.bool_)

    def before_instance_space(self, reveal: SplitReveal) -> frozenset[str]:
        """Return the passive parties that may see the children; without them the active party goes on alone."""
        return reveal.participants

    def before_leaf_weights(self, leaves: LeafWeights) -> Floats:
        """Return the weights that the tree gets."""
        return leaves.weights

    def after_tree(self, tree: FinishedTree) -> Repair:
        """Return what of a finished tree is to be repaired on the active party's side."""
        return Repair()

    def parameters(self) -> dict[str, Any]:
        """Return the parameters as the transcript keeps them."""
        return {}


class PolicyChain:
    """Several policies in order: values pass through each; candidates and viewers must please all."""

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self.policies = tuple(policies)
        self._tallies = [dict.fromkeys(TALLIES, 0) for _ in self.policies]
        self._told: list[Mapping[str, Any]] = [{} for _ in self.policies]

    @property
    def purities(self) -> bool:
        """Whether any policy needs class counts."""
        return any(policy.purities for policy in self.policies)

    def at(self, point: str) -> tuple[Policy, ...]:
        """Return the policies that act at a point."""
        return tuple(policy for policy in self.policies if point in policy.points)

    def accounts(self) -> list[dict[str, Any]]:
        """Return what each policy did: kind, parameters, points, how often it acted, and what it tells itself."""
        return [
            {"kind": policy.kind, "parameters": policy.parameters(), "points": sorted(policy.points), **tally, **told}
            for policy, tally, told in zip(self.policies, self._tallies, self._told, strict=True)
        ]

    def tally(self) -> dict[str, int]:
        """Return how often policies acted, all together."""
        return {name: sum(tally[name] for tally in self._tallies) for name in TALLIES}

    def schedule(self, schedule: Schedule) -> Schedule:
        """See :meth:`Policy.schedule`."""
        peers = frozenset[str]().union(*schedule.participants)
        for policy in self.at("schedule"):
            schedule = policy.schedule(schedule)
            if not schedule.participants or not all(each <= peers for each in schedule.participants):
                raise PolicyError(f"defense {policy.kind!r} left no tree, or named parties that do not exist")
        return schedule

    def before_targets(self, targets: Targets) -> Targets:
        """See :meth:`Policy.before_targets`."""
        for position, policy in enumerate(self.policies):
            if "before_targets" not in policy.points:
                continue
            rows = targets.values.shape
            targets = policy.before_targets(targets)
            self._told[position], targets = dict(targets.account), replace(targets, account={})
            for name in ("values", "weights", "offset"):
                given = getattr(targets, name)
                if given.shape != rows or not np.isfinite(given).all():
                    raise PolicyError(f"defense {policy.kind!r} gave {name} that are not one finite number a row")
        return targets

    def split_candidates(self, candidates: CandidateSplits) -> NDArray[np.bool_]:
        """See :meth:`Policy.split_candidates`."""
        allowed = np.ones(candidates.left.shape[:-1], dtype=np.bool_)
        for policy, tally in zip(self.policies, self._tallies, strict=True):
            answer = np.asarray(policy.split_candidates(candidates))
            if answer.shape != allowed.shape or answer.dtype != np.bool_:
                raise PolicyError(f"defense {policy.kind!r} did not answer for every candidate")
            tally["refused_candidates"] += int(answer.size - np.count_nonzero(answer))
            allowed &= answer
        return allowed

    def before_instance_space(self, reveal: SplitReveal) -> frozenset[str]:
        """See :meth:`Policy.before_instance_space`."""
        viewers = reveal.participants
        for policy, tally in zip(self.policies, self._tallies, strict=True):
            answer = frozenset(policy.before_instance_space(reveal))
            if reveal.owner in reveal.participants - answer:
                tally["given_up_splits"] += 1
            elif reveal.participants - answer:
                tally["hidden_splits"] += 1
            viewers &= answer
        return viewers

    def before_leaf_weights(self, leaves: LeafWeights) -> Floats:
        """See :meth:`Policy.before_leaf_weights`."""
        for policy in self.at("before_leaf_weights"):
            weights = np.asarray(policy.before_leaf_weights(leaves), dtype=np.float64)
            if weights.shape != leaves.weights.shape or not np.isfinite(weights).all():
                raise PolicyError(f"defense {policy.kind!r} did not answer for every leaf")
            leaves = LeafWeights(tree=leaves.tree, weights=weights, counts=leaves.counts)
        return leaves.weights

    def after_tree(self, tree: FinishedTree) -> Repair:
        """See :meth:`Policy.after_tree`; what any policy wants is done, and nothing below a node that is regrown."""
        regrow, refit = frozenset[int](), False
        for policy, tally in zip(self.policies, self._tallies, strict=True):
            answer = policy.after_tree(tree)
            if not answer.regrow <= {*tree.nodes, *tree.leaves}:
                raise PolicyError(f"defense {policy.kind!r} repairs nodes that the tree does not have")
            if answer.regrow and not tree.alone:
                raise PolicyError(f"defense {policy.kind!r} regrows a tree that later ones were fitted to")
            tally["regrown_nodes"] += len(answer.regrow)
            regrow, refit = regrow | answer.regrow, refit or answer.refit
        return Repair(regrow=frozenset(node for node in regrow if not _above(node) & regrow), refit=refit)


def require_points(policies: Iterable[Policy], visited: frozenset[str], setup: Setup) -> None:
    """Raise :class:`PolicyError` unless every policy's points are visited and its own check passes."""
    setup = replace(setup, chain=tuple(policies))
    for policy in setup.chain:
        missing = policy.points - visited
        if missing:
            raise PolicyError(
                f"defense {policy.kind!r} acts at {', '.join(sorted(missing))}, which {setup.model} never reaches"
            )
        counted = policy.points & {"split_candidates", "before_instance_space"}
        if counted and not policy.purities:
            raise PolicyError(f"defense {policy.kind!r} acts at {min(counted)} and must declare purities")
        policy.check(setup)


def _above(node: int) -> set[int]:
    """Return all nodes on the way from a node's parent to the root."""
    found = set()
    while node > 0:
        node = (node - 1) // 2
        found.add(node)
    return found
