"""Policies: what decides what leaves a party. Below protocols and defenses, so that neither imports the other.

A policy overrides the points that it needs; each point has an identity default. A protocol declares the points that
it visits; :func:`~labelward.policy.chain.check_hooks` refuses, at set-up, a policy whose point it never reaches. A
policy that cannot act raises :class:`~labelward.errors.PolicyError`: nothing unprotected leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from labelward.parameters import Parameters
from labelward.policy.holder_points import HolderSums, LeafRelease
from labelward.policy.net_points import ActiveModel, OutgoingEmbedding, ReturnedGradient, Values
from labelward.rng import SecureRandom

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Rows = NDArray[np.int32]

TREE_POINTS = (
    "schedule",
    "before_targets",
    "split_candidates",
    "before_instance_space",
    "before_rows",
    "before_leaf_weights",
    "after_tree",
    "after_rows",
)
PASSIVE_TREE_POINTS = ("before_histograms",)
NET_POINTS = ("before_embedding", "active_model", "on_returned_gradient")
HOLDER_POINTS = ("on_own_sums", "on_leaf_release")
POINTS = TREE_POINTS + PASSIVE_TREE_POINTS + NET_POINTS + HOLDER_POINTS
READS_CLASSES = frozenset({"split_candidates", "before_instance_space", "before_rows", "before_leaf_weights"})
"""The points at which a policy reads true classes and changes what others see, or what later trees are fitted to."""


@dataclass(frozen=True, kw_only=True)
class PolicyContext:
    """What a policy may check before anything starts.

    Attributes:
        classes: of the labels; 0 for quantities.
        trees: number of rounds; 0 where the model is none of trees, as in all that is said of these below.
        active_columns: how many columns the active party holds.
        active_bottom: whether they enter a split network.
        loss: of a split network.
        row_fraction: share of the rows that a tree grows on.
        replace: whether rows are drawn with replacement.
        sampling: how rows are drawn: ``"uniform"``, or ``"goss"``, by their gradients.
        stops_early: whether validation rows decide how many trees are kept.
        validates: of a split network: whether there are validation rows.
        unaligned: whether the active party learns from rows that no other party holds.
        continues: whether an earlier training goes on.
        epochs: of a split network: how often it goes through the rows, at most.
        batches: of an epoch: how many gradients it returns to each passive party.
        separate: whether a row's gradient follows from no label but its own, given all that was returned before: so it
            is without a top model, a bottom model of the active party, class weights, quantities, and policies that
            replace targets.
        columns: all parties' columns that may split, where labels lie on several parties.
        depth: of a tree.
        holders: parties that hold labels; 0 where one does.
        rows: training rows, of split networks and where labels lie on several parties.
        candidates: how a tree's split candidates are chosen: ``"global"``, ``"node"`` or ``"all"``.
        chain: all policies of the run, in order.
    """

    model: str
    classes: int
    passive: tuple[str, ...]
    trees: int = 0
    active_columns: int = 0
    active_bottom: bool = False
    loss: str = ""
    row_fraction: float = 1.0
    replace: bool = False
    sampling: str = "uniform"
    stops_early: bool = False
    validates: bool = False
    unaligned: bool = False
    continues: bool = False
    epochs: int = 0
    batches: int = 0
    separate: bool = False
    columns: int = 0
    depth: int = 0
    holders: int = 0
    rows: int = 0
    candidates: str = ""
    chain: tuple[Policy, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Which passive parties take part in each round; an empty set: the active party grows its trees alone."""

    participants: tuple[frozenset[str], ...]


class LocalLearner(Protocol):
    """The model of a run, as the active party can train it on its own columns alone."""

    def probabilities(self, values: Floats, rows: NDArray[np.bool_]) -> Floats:
        """Return float64 [n, C]: class probabilities of all training rows, from a model of some of them.

        Args:
            values: float64 [n]: class numbers; those outside of ``rows`` are not read.
            rows: bool [n]: the rows to learn from.
        """
        ...

    def fitted(self, values: Floats, rows: NDArray[np.bool_]) -> LocalModel:
        """Return a model of two classes from some of the rows and the unaligned ones; trees give none."""
        ...

    def out_of_fold(self, values: Floats, folds: int) -> Floats:
        """Return float64 [n]: each row's logit of class 1, from a model that was not shown the row's class.

        All models learn from the unaligned rows, too.
        """
        ...


class LocalModel(Protocol):
    """A model of the active party's own columns, which only the protocol that trained it can read."""

    @property
    def logits(self) -> Floats:
        """Of class 1, float64 [training rows]."""
        ...


@dataclass(frozen=True, kw_only=True)
class LocalTerm:
    """What a model of the active party's own columns adds to what the parties learn together.

    Attributes:
        form: ``"logit"``: its logit is added to theirs; ``"probability"``: its probability, to theirs; ``"vote"``: the
            sign of its logit, times ``weight``, to their logit; ``"regression"``: a logistic regression of both logits,
            fitted to the validation rows.
        weight: of a vote.
    """

    model: LocalModel
    form: Literal["logit", "probability", "vote", "regression"]
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class TrainingTargets:
    """What the model is fitted to, before anything derived from it leaves.

    Attributes:
        values: float64 [n], class numbers (or real values). A split network can also be fitted to other numbers, with
            the loss ``"residuals"``, or to shares of classes, float64 [n, outputs].
        labels: float64 [n]: class numbers (or real values) as any later policy may read them: the true ones, until a
            policy puts noise on them.
        weights: float64 [n], without the weights of classes: these follow the labels in the end. A policy multiplies
            those that it is given; what they add up to scales the gradients.
        offset: float64 [n], added to the margin in training.
        loss: name of the loss.
        classes: how many there are; 0 for quantities.
        local: what the active party's own columns add at prediction; None: nothing. Split networks only.
        decoder: weights and biases of a perceptron with one hidden layer (ReLU), which turns shares of classes that a
            split network predicts into logits of classes; empty: none.
        scale: factor of what the parties learn together, where ``local`` is added; None: the best for the validation
            rows.
        learner: trains the same model on the active party's own columns alone.
        draw: returns the generator of learning draws for a purpose.
        protection: source of the draws that protect something, such as noise.
        account: what the policy that answers wants to stand in its account.
        validation: float64 [validation rows]: class numbers (or real values) by which the training decides when to
            stop, which passive parties see; empty where it does not.
    """

    values: Floats
    labels: Floats
    weights: Floats
    offset: Floats
    loss: str
    classes: int
    learner: LocalLearner
    draw: Callable[[str], np.random.Generator]
    protection: SecureRandom
    local: LocalTerm | None = None
    scale: float | None = 1.0
    decoder: tuple[Floats, ...] = ()
    account: Mapping[str, Any] = field(default_factory=dict)
    validation: Floats = field(default_factory=lambda: np.zeros(0))


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
class KnownInstanceSpaces:
    """The instance spaces that one passive party knows, or would know.

    Attributes:
        tree: of the model: the one that grows, or was finished last.
        at: the same tree's position among those that the party has seen.
        node: whose children would become known; -1: the tree begins, or nothing changes.
        leaves: int32 [trees seen, rows], not to be written to: the finest node that the party knows of each training
            row, -1 out of the tree's sample. It is what an attack reads from the party's view, but for what its own
            columns tell of rows out of a sample. Valid until the next tree begins.
        pending: own splits that the party knows besides, while the active party waits for their rows.
        others: what every other passive party knows at the same time, for a coalition.
    """

    party: str
    tree: int
    at: int
    node: int
    leaves: Rows
    pending: tuple[PendingSplit, ...] = ()
    others: tuple[KnownInstanceSpaces, ...] = ()


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
    known: KnownInstanceSpaces | None = None


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
    known: KnownInstanceSpaces | None = None


@dataclass(frozen=True, kw_only=True)
class BinCounts:
    """The rows of a passive party's bins in the nodes of a level that it is about to sum.

    All arrays end in an entry for rows without a value. Bins of narrower columns do not exist, and have no rows.

    Attributes:
        rows: int64 [nodes, columns, bins + 1].
        sibling: the same of each node's sibling, whose sums the active party derives; of the root, ``rows``.
        cells: int32 [nodes, columns, bins + 1]: the bins that were summed together in the node's parent, each named by
            the lowest of them; ``bins`` for rows without a value that are a cell of their own.
    """

    rows: Counts
    sibling: Counts
    cells: NDArray[np.int32]


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
class TreeRepair:
    """What becomes of a finished tree.

    Attributes:
        regrow: nodes below which all is erased and grown anew, on true labels and the active party's columns alone.
        refit: whether all leaf weights are worked out again from true labels.
    """

    regrow: frozenset[int] = frozenset()
    refit: bool = False


@dataclass(frozen=True, kw_only=True)
class BudgetScope:
    """What the number of a parameter bounds, and what it does not; in words that stand beside the number.

    Attributes:
        covers: of what one the bound is: ``"per training label"``.
        excludes: what is not within it; semicolons between several things.
        labeled: whether a label of the defense says what is covered.
        private: of what the number is the epsilon of label differential privacy: of ``labels`` that are replaced once,
            so that it holds whatever other parties do; of the ``run``, against a party that follows the protocol; of
            one ``gradient``. Empty: of nothing.
    """

    covers: str
    excludes: str
    labeled: bool = True
    private: Literal["", "labels", "run", "gradient"] = ""


class Policy(Parameters):
    """The identity at every point; a defense overrides some.

    Attributes:
        kind: the name in a job file.
        purities: whether the points need class counts; they then travel packed beside g and h (Algorithm 6).
        label_private: whether its targets are differentially private in each label; nothing else that leaves may
            then depend on labels.
        repeatable: whether what it does to targets follows from labels, columns and learning draws alone, so that a
            second attempt tells nothing new.
    """

    kind: ClassVar[str] = "none"
    purities: ClassVar[bool] = False
    label_private: ClassVar[bool] = False
    repeatable: ClassVar[bool] = False

    @property
    def begins_alike(self) -> bool:
        """Whether a shorter training under it begins alike: its trees or epochs are the first of a longer one."""
        return False

    @property
    def row_local(self) -> bool:
        """Whether a row's (a leaf's) part of each answer follows from that row's part of the question alone.

        That is: from no other row of the batch and from nothing that was asked before, fresh noise apart. False unless
        a policy declares it, so that an undeclared policy is refused before one whose account counts on it.
        """
        return False

    def counts_rows(self, setup: PolicyContext) -> frozenset[str]:
        """Return the points at which the policy's account assumes that one label moves one row of what it is asked.

        What comes before it at these points must be :attr:`row_local`; at points that the policy itself does not
        override, everything in the chain.
        """
        return frozenset()

    @classmethod
    def scopes(cls, parameters: Mapping[str, Any]) -> dict[str, BudgetScope]:
        """Return for each parameter that is a budget what it covers; none here."""
        return {}

    @property
    def promise(self) -> float | None:
        """The epsilon that the whole run costs at most; None where the policy gives no differential privacy."""
        return None

    @property
    def bins(self) -> NDArray[np.int64] | None:
        """The classes whose counts the policy needs where labels are quantities, int64 [training rows]."""
        return None

    @property
    def points(self) -> frozenset[str]:
        """The points that this policy overrides."""
        return frozenset(name for name in POINTS if getattr(type(self), name) is not getattr(Policy, name))

    def check(self, setup: PolicyContext) -> None:
        """Raise :class:`PolicyError` where the policy makes no sense in this set-up."""

    def begin(self, setup: PolicyContext, protection: SecureRandom) -> None:
        """Hear that a run of a split network, or of several label holders, begins, before anything leaves.

        What a policy draws here and tells in :meth:`state` is the same in every attempt of the run.
        """

    def schedule(self, schedule: Schedule) -> Schedule:
        """Decide who takes part in which tree, and how many trees there are."""
        return schedule

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        """Change the targets before anything derived from them leaves."""
        return targets

    def split_candidates(self, candidates: CandidateSplits) -> NDArray[np.bool_]:
        """Return bool [nodes, columns, candidates]: which candidates may be chosen."""
        return np.ones(candidates.left.shape[:-1], dtype=np.bool_)

    def before_instance_space(self, reveal: SplitReveal) -> frozenset[str]:
        """Return the passive parties that may see the children; without them the active party goes on alone."""
        return reveal.participants

    def before_rows(self, rows: KnownInstanceSpaces) -> bool:
        """Return whether a passive party may come to know these instance spaces.

        Asked before a tree begins for the party, and before it is told the children of a split that is not its own.
        """
        return True

    def before_leaf_weights(self, leaves: LeafWeights) -> Floats:
        """Return the weights that the tree gets."""
        return leaves.weights

    def after_tree(self, tree: FinishedTree) -> TreeRepair:
        """Return what of a finished tree is to be repaired on the active party's side."""
        return TreeRepair()

    def after_rows(self, rows: KnownInstanceSpaces) -> None:
        """Hear what a passive party knows after a tree; nothing that leaves depends on it.

        Where a run goes on from a checkpoint, what it was told last is told again.
        """

    def before_histograms(self, counts: BinCounts) -> NDArray[np.int32]:
        """Return which bins are summed together, as ``counts.cells``: unions of these, of adjacent bins.

        Asked at a passive party, but for columns by whose own split a node came to be: these keep the parent's cells.
        """
        return counts.cells

    def before_embedding(self, outgoing: OutgoingEmbedding) -> Values:
        """Return what leaves in place of ``values``: the same shape and dtype."""
        return outgoing.values

    def active_model(self, model: ActiveModel) -> ActiveModel:
        """Return what stands between received embeddings and top model; asked once in each attempt of a run."""
        return model

    def on_returned_gradient(self, returned: ReturnedGradient) -> Values:
        """Return what leaves in place of ``values``: the same shape and dtype.

        Where a run goes on from a checkpoint, gradients may be asked for again; the answer must then be the same.
        """
        return returned.values

    def on_own_sums(self, sums: HolderSums) -> NDArray[np.int64]:
        """Return what a label holder adds to the sums of the others in place of ``values``."""
        return sums.values

    def sum_noise(self, setup: PolicyContext) -> float:
        """Return the deviation of what all holders' :meth:`on_own_sums` add to a sum, as all know; of a gradient of 1.

        Sums then have room for it, and trees are grown by what it leaves to be expected
        (:mod:`labelward.kernels.noisy_gain`).
        """
        return 0.0

    def on_leaf_release(self, release: LeafRelease) -> Floats:
        """Return the leaf weights that a party is told in place of ``weights``."""
        return release.weights

    def account(self) -> dict[str, Any]:
        """Return what else the policy wants to stand in its account."""
        return {}

    def state(self) -> bytes:
        """Return what the policy must remember where a run is cut off and goes on; asked between trees or epochs.

        What :meth:`before_targets` decided is kept without it, and it is not asked again; nor is :meth:`schedule`.
        """
        return b""

    def resume(self, state: bytes) -> None:
        """Take in what :meth:`state` returned, in a new object of the same parameters; before anything is asked."""
