"""Leakage meter: label information in each passive party's instance spaces, measured during training.

Setting: the passive parties are curious. The active party knows which rows it discloses to whom, and, after each level,
which rows a party's own splits send left; so it can find the communities that ID2Graph would find in that party's
view, and compare them with the true labels, which stay with it. :class:`LeakageMeter` does so after the trees and
changes nothing. :class:`LeakageBudget` withholds, before disclosure, splits that could exceed a V-measure.

Guarantee of the budget: at every moment no clustering that is made of a party's instance spaces has a larger
V-measure with the labels, whatever it is; so neither have the communities of any draws of Louvain's method, nor those
that the meter finds in the stored view (:func:`measure_leakage`). It follows from a limit of what the merged groups
say of the labels (:func:`~labelward.kernels.information.v_measure_bound`). Of rows that are told that is known
exactly. A party knows the rows of its own split as soon as it is told that the split was chosen, while the active
party does not know them yet; so such a split is chosen only where the most that it could add is within the limit
(:func:`information_gain_bound`).

The limit is that of the splits, not of the V-measure as it is found, for rows that are told, too: once the groups say
more, no split of the party could be chosen any more, so that more rows would tell it more and help nobody.

Outside the guarantee: the party's own columns also have information about the labels, and place rows out of a tree's
sample at its own splits; neither is counted. What is kept back depends on true labels, and says something by its
absence.

Reference: steps 1 and 2 of ID2Graph (:mod:`labelward.attacks.id2graph`); the meter has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.kernels.communities import communities, tree_weight_decay, trees_per_round, weighted_trees
from labelward.kernels.information import entropy, joint_information, v_measure, v_measure_bound
from labelward.kernels.leaf_signatures import merge_identical_rows
from labelward.parameters import check_value
from labelward.party.context import Progress, no_progress
from labelward.policy.base import (
    CandidateSplits,
    KnownInstanceSpaces,
    PendingSplit,
    Policy,
    PolicyContext,
    SplitReveal,
)
from labelward.rng import learning

Rows = NDArray[np.int32]
Labels = NDArray[np.int64]
Floats = NDArray[np.float64]

_STARTS = 5
MOST_TREES = 16
"""So many trees are counted, the first that a party sees: in a boosted model the others weigh next to nothing."""
_LIGHT = 200_000
"""Rows times trees up to which every tree is measured, with all starts of Louvain's method."""
_ROUNDING = 1e-9
"""By so much a bound must stay below the budget, since it is a sum of rounded numbers."""


@dataclass(frozen=True, kw_only=True)
class MonitorConfig:
    """Configuration of the measurement.

    Attributes:
        eta: discount from tree to tree.
        together: trees of a round, which have one rank.
        seed: of the run; the draws are those of ``learning(seed, party, 0, "leakage meter")``, anew for each reading.
    """

    eta: float
    together: int
    seed: int

    @classmethod
    def of(cls, model: Mapping[str, Any], classes: int, seed: int) -> MonitorConfig:
        """Return the ID2Graph configuration for a model (kind and parameters) and a number of classes or bins."""
        return cls(
            eta=tree_weight_decay(str(model.get("kind", ""))),
            together=trees_per_round(model.get("multi_strategy"), classes),
            seed=seed,
        )


@dataclass(frozen=True, kw_only=True)
class LeakageReading:
    """Label information in instance spaces.

    Attributes:
        v_measure: of the communities with the labels.
        communities: the mutual information of the communities with the labels, in nats.
        groups: that of the merged groups: rows that no tree separates.
    """

    v_measure: float
    communities: float
    groups: float


@dataclass(frozen=True, kw_only=True)
class LeakageGuess:
    """What guessing by instance spaces gets right, in a training that has ended.

    Attributes:
        trees: that the party has seen.
        v_measure: of the communities with the labels.
        bound: no clustering made of the instance spaces has a larger V-measure.
        right: share of the rows whose label is the most frequent one of their community: what is right if each
            community is given that label.
        blind: share of the most frequent label of all rows.
    """

    trees: int
    v_measure: float
    bound: float
    right: float
    blind: float


def guess_labels(leaves: Rows, labels: Labels, party: str, measure: MonitorConfig) -> LeakageGuess:
    """Guess labels by the communities of a party's instance spaces; arguments as for :func:`measure_leakage`."""
    community, groups = _clusters(leaves, party, measure)
    counts = np.zeros((int(community.max(initial=0)) + 1, int(labels.max()) + 1), dtype=np.int64)
    np.add.at(counts, (community, labels), 1)
    totals = counts.sum(axis=0)
    known = joint_information(groups, labels) if totals.max() < len(labels) else 0.0
    return LeakageGuess(
        trees=len(leaves),
        v_measure=v_measure(community, labels) if totals.max() < len(labels) else 0.0,
        bound=float(v_measure_bound(known, float(entropy(totals)))),
        right=float(counts.max(axis=1).sum() / len(labels)),
        blind=float(totals.max() / len(labels)),
    )


def measure_leakage(leaves: Rows, labels: Labels, party: str, measure: MonitorConfig) -> LeakageReading:
    """Measure a party's instance spaces: a pure function of its arguments.

    So that a long training is not slowed down, communities are those of the first 16 trees at most; where rows times
    these trees exceed 200,000, they are those of one start of Louvain's method instead of five.

    Args:
        leaves: int32 [trees seen, rows], as :func:`labelward.attacks.instance_spaces.observed_leaves` gives them
            without the party's columns.
        labels: int64 [rows]: classes, or bins of regression targets.
    """
    community, groups = _clusters(leaves, party, measure)
    if labels.min() == labels.max():  # there is nothing to know
        return LeakageReading(v_measure=0.0, communities=0.0, groups=0.0)
    return LeakageReading(
        v_measure=v_measure(community, labels),
        communities=joint_information(community, labels),
        groups=joint_information(groups, labels),
    )


def _clusters(leaves: Rows, party: str, measure: MonitorConfig) -> tuple[Rows, Rows]:
    """Return the community of each row, and the group of rows that no tree separates: int32 [rows] each."""
    counted, weights = weighted_trees(leaves[:MOST_TREES], measure.eta, measure.together)
    rng = learning(measure.seed, party, 0, "leakage meter")
    signatures, found = communities(counted, weights, rng=rng, starts=louvain_restarts(counted.size))
    groups = signatures.group if len(counted) == len(leaves) else merge_identical_rows(leaves).group
    return found.community[signatures.group], groups


class _Readings(msgspec.Struct, frozen=True):
    """State of the meter: its readings by party and number of trees, and that of the first 16 trees by party."""

    readings: dict[str, dict[int, LeakageReading]]
    full: dict[str, LeakageReading]


class LeakageMeter(Policy):
    """Measure each passive party's knowledge after the trees; change nothing.

    After every tree while rows times trees are at most 200,000; then after 1, 2, 3, 4, 6, 8, 12, 16, 24, … trees, so
    that a long training is not slowed down; and after the last.

    Args:
        labels: int64 [training rows]: true classes, or bins of regression targets.
        measure: how.
        progress: hears of each reading: ``"leakage PARTY"``, thousandths of the V-measure, 1000.
    """

    kind: ClassVar[str] = "leakage-meter"

    def __init__(self, labels: Labels, measure: MonitorConfig, progress: Progress = no_progress) -> None:
        self._labels, self.measure, self._progress = labels, measure, progress
        self.readings: dict[str, dict[int, LeakageReading]] = {}
        self._unread: dict[str, KnownInstanceSpaces] = {}
        self._full: dict[str, LeakageReading] = {}
        self._last: dict[str, KnownInstanceSpaces] = {}

    def guesses(self) -> dict[str, LeakageGuess]:
        """Return by party what guessing gets right; for those that took part in a tree of this attempt.

        To be called after the last tree.
        """
        return {
            party: guess_labels(rows.leaves, self._labels, party, self.measure)
            for party, rows in self._last.items()
            if len(rows.leaves)
        }

    def after_rows(self, rows: KnownInstanceSpaces) -> None:
        """Measure, or remember what there is to measure should no further tree follow."""
        self._last[rows.party] = rows
        if is_measured_at(rows.leaves.size, rows.tree + 1):
            self._read(rows)
        else:
            self._unread[rows.party] = rows

    def account(self) -> dict[str, Any]:
        """Return the readings by party and number of trees."""
        for rows in list(self._unread.values()):
            self._read(rows)
        return {
            "readings": {
                party: {str(trees): asdict(each) for trees, each in of_trees.items()}
                for party, of_trees in self.readings.items()
            }
        }

    def state(self) -> bytes:
        """Return all readings; what is yet unread comes again."""
        return msgspec.msgpack.encode(_Readings(self.readings, self._full))

    def resume(self, state: bytes) -> None:
        """See :meth:`Policy.resume`."""
        stored = msgspec.msgpack.decode(state, type=_Readings)
        self.readings, self._full = stored.readings, stored.full

    def parameters(self) -> dict[str, Any]:
        """Return the configuration of the meter."""
        return asdict(self.measure)

    def _read(self, rows: KnownInstanceSpaces) -> None:
        self._unread.pop(rows.party, None)
        found = self._reading(rows)
        if len(rows.leaves) >= MOST_TREES:
            self._full[rows.party] = found
        self.readings.setdefault(rows.party, {})[rows.tree + 1] = found
        self._progress(f"leakage {rows.party}", round(1000 * found.v_measure), 1000)

    def _reading(self, rows: KnownInstanceSpaces) -> LeakageReading:
        known = self._full.get(rows.party)
        if known is None:
            return measure_leakage(rows.leaves, self._labels, rows.party, self.measure)
        return replace(known, groups=joint_information(merge_identical_rows(rows.leaves).group, self._labels))


def louvain_restarts(size: int) -> int:
    """Return the number of starts of Louvain's method, for so many rows times trees."""
    return _STARTS if size <= _LIGHT else 1


def is_measured_at(size: int, trees: int) -> bool:
    """Return whether the meter reads after so many trees, whatever follows; ``size`` is rows times those it counts."""
    return size <= _LIGHT or _is_due(trees)


def _is_due(trees: int) -> bool:
    """Return whether a number is a power of two, or one and a half of one."""
    return any(part & (part - 1) == 0 for part in (trees, trees // 3 if trees % 3 == 0 else trees))


class LeakageBudget(LeakageMeter):
    """Keep the V-measure of whatever a passive party could make of its instance spaces within a budget.

    1. A tree begins for a party only where knowing its rows leaves the bound of the V-measure within the budget.
    2. Before the rows of a level's splits are told, they are tried node by node; where the bound would exceed the
       budget, the rows are withheld from the party, and the active party continues below without it.
    3. A candidate of a passive party may win only where the bound of what its owner then knows is within the budget;
       what splits add is summed up over those of a level, and of trees that grow side by side.

    Args:
        budget: a V-measure from 0 (nothing that says anything is shown) to 1.
        quantities: whether the labels are bins of regression targets.
        collude: passive parties whose instance spaces together stay within the budget; each of them then does, too.
    """

    kind: ClassVar[str] = "leakage-budget"
    purities: ClassVar[bool] = True

    def __init__(
        self,
        labels: Labels,
        measure: MonitorConfig,
        progress: Progress = no_progress,
        *,
        budget: float,
        quantities: bool = False,
        collude: Sequence[str] = (),
    ) -> None:
        super().__init__(labels, measure, progress)
        self.budget: float = check_value("budget", budget, Annotated[float, Meta(ge=0, le=1)])
        self._quantities, self.collude = quantities, tuple(collude)
        self._entropy = float(entropy(np.bincount(labels)))

    @property
    def bins(self) -> Labels | None:
        """See :attr:`Policy.bins`."""
        return self._labels if self._quantities else None

    def check(self, setup: PolicyContext) -> None:
        """Refuse what the budget does not cover; label DP itself refuses what decides by true classes."""
        if setup.continues:
            raise PolicyError(
                "does not go with an earlier training, whose views are not counted",
                code="inapplicable",
                field="[leakage] budget",
            )
        if setup.sampling != "uniform":
            raise PolicyError(
                f"cannot be kept with sampling {setup.sampling!r}: rows are drawn by their "
                "gradients, so the sample itself reveals label information",
                code="inapplicable",
                field="[leakage] budget",
                value=setup.sampling,
            )
        if setup.replace:
            raise PolicyError(
                "cannot be kept with replace: rows would count several times",
                code="inapplicable",
                field="[leakage] budget",
            )

    def before_rows(self, rows: KnownInstanceSpaces) -> bool:
        """Work out what the party would know; a tree that begins tells which rows it grows on."""
        return bool(self._within(self._before(rows)[1]))

    def split_candidates(self, candidates: CandidateSplits) -> NDArray[np.bool_]:
        """Refuse a passive party's candidates whose bound exceeds the budget."""
        allowed = np.ones(candidates.left.shape[:-1], dtype=np.bool_)
        known = candidates.known
        if candidates.owner_is_active or known is None:
            return allowed
        groups, before, pending = self._before(known)
        order = np.argsort(known.leaves[known.at], kind="stable").astype(np.int32)
        leaf = known.leaves[known.at][order]
        for position, node in enumerate(candidates.nodes):
            rows = order[np.searchsorted(leaf, node) : np.searchsorted(leaf, node, side="right")]
            left, right = candidates.left[position], candidates.node[position] - candidates.left[position]
            if (right < 0).any():
                raise PolicyError(
                    "decrypted class counts exceed those of their node", code="cannot-act", field="[leakage] budget"
                )
            more = self._added(groups, rows, left, right, pending)
            allowed[position] = self._within(before + more)
        return allowed

    def before_instance_space(self, reveal: SplitReveal) -> frozenset[str]:
        """Refuse a passive party's split whose bound, with those chosen before, exceeds the budget."""
        known = reveal.known
        if known is None or reveal.owner not in reveal.participants:
            return reveal.participants
        groups, before, pending = self._before(known)
        rows = np.flatnonzero(known.leaves[known.at] == reveal.node).astype(np.int32)
        more = self._added(groups, rows, reveal.left, reveal.right, pending)
        return reveal.participants if self._within(before + more) else reveal.participants - {reveal.owner}

    def parameters(self) -> dict[str, Any]:
        """Return the budget, and how the meter measures."""
        together = {"collude": list(self.collude)} if self.collude else {}
        return {"budget": self.budget, **together, **super().parameters()}

    def _before(self, known: KnownInstanceSpaces) -> tuple[Rows, float, tuple[PendingSplit, ...]]:
        """Return the merged groups, int32 [rows], a bound of what they and the splits in flight say, and these.

        Of a member of the coalition: of all members together.
        """
        members = [known]
        if known.party in self.collude:
            members += [other for other in known.others if other.party in self.collude]
        groups = merge_identical_rows(np.vstack([member.leaves for member in members])).group
        pending = tuple(split for member in members for split in member.pending)
        total = joint_information(groups, self._labels)
        for number, split in enumerate(pending):
            total += float(self._added(groups, split.rows, split.left, split.right, pending[:number]))
        return groups, total, pending

    def _added(
        self, groups: Rows, rows: Rows, left: Labels, right: Labels, pending: tuple[PendingSplit, ...]
    ) -> Floats:
        touched = any(len(np.intersect1d(rows, split.rows, assume_unique=True)) for split in pending)
        return information_gain_bound(groups[rows], self._labels[rows], left, right, len(groups), exact=not touched)

    def _within(self, information: Floats | float) -> NDArray[np.bool_]:
        bound = np.minimum(v_measure_bound(information, self._entropy) + _ROUNDING, 1.0)
        within: NDArray[np.bool_] = bound <= self.budget
        return within


def information_gain_bound(
    groups: Rows, labels: Labels, left: Labels, right: Labels, total: int, *, exact: bool = True
) -> Floats:
    """Return float64 [...]: what splits of a node add at most to the information of groups about labels, in nats.

    Let G be the groups that a party knows, w the node, n of N rows, and S the side of the split. Since a group lies
    within the node or out of it, I(G, S; Y) - I(G; Y) = I(S; Y | G) comes from the node's rows alone, with the weight
    n/N. Within the node it is at most

    * H(Y | G);
    * H(S | G), and so H(S), since conditioning does not raise an entropy;
    * I(S; Y) + H(G | Y), since I(S; Y | G) <= I(S; G, Y) = I(S; Y) + I(S; G | Y). Where the node is one group this is
      what the split adds. I(S; Y) follows from class counts.

    The first two hold whatever else is known besides G, for the same reasons; the third does not (``exact``). The
    bounds of several splits add up by the chain rule.

    Args:
        groups, labels: of the node's rows.
        left, right: int64 [..., C]: class counts of the children of each split.
        total: N, the training rows.
        exact: whether nothing besides the groups is known of the node's rows.
    """
    rows, classes = len(labels), left.shape[-1]
    names, position = np.unique(groups, return_inverse=True)
    counts = np.bincount(position * classes + labels, minlength=len(names) * classes).reshape(-1, classes)
    together = float(entropy(counts.ravel()))  # H(G, Y)
    sizes = np.stack([left.sum(axis=-1), right.sum(axis=-1)], axis=-1)
    most = np.minimum(entropy(sizes), together - float(entropy(counts.sum(axis=1))))
    if exact:
        inner = (entropy(left) * sizes[..., 0] + entropy(right) * sizes[..., 1]) / rows
        most = np.minimum(most, together - inner)  # (H(Y) - inner) + (H(G, Y) - H(Y))
    added: Floats = np.maximum(most, 0.0) * rows / total
    return added
