"""Split replay: labels under which the trees, grown again, would have been split as they were."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import cluster_points, kmeans_seed, validate_features
from labelward.attacks.instance_spaces import Boosted, ObservedTree, drawn_columns, observed_leaves, observed_trees
from labelward.attacks.leaf_smoothing import LeafSmoothing, cluster_groups, smoothed
from labelward.kernels.binning import bin_columns
from labelward.kernels.leaf_graph import leaf_graph
from labelward.kernels.node_rows import children, depth_of, parent
from labelward.kernels.objectives import softmax
from labelward.kernels.split_choices import (
    MUTE,
    OTHERS,
    OWN,
    STOPPED,
    Grown,
    Sums,
    choice_gradients,
    node_sums,
    push_down,
    relabel_rows,
    row_gradients,
    violations,
)
from labelward.parameters import NonNegativeInt, PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Weights = tuple[Floats, Floats, Floats]

_BINS = 32  # most bins of a column
_CELLS = 2**21  # most rows × trees × columns × outputs; above, a sample of rows
_TABLE = 2**22  # most nodes × columns × bins × outputs; above, the first trees
_MOVES = 2**30  # most rows × nodes above × columns × bins × outputs × sweeps of the search for single labels

_SHARPNESS = ((0.3, 0.02), (4.0, 1.0))  # τ: share of the largest gain and gain, from the first step to the last
_HEAT = (1.0, 0.3)  # of the labels, from the first step to the last
_RATE, _HELD, _HIDDEN = 0.1, 5, 0.05  # of a step; steps for which margins are held; probability of a split out of sight
_FLOOR = -10.0  # least logarithm of a label's share
_UNIT = 4.0  # of Gini gains beside those of boosting
_ENOUGH = 0.5  # bits of choices per bit of labels from which single labels are annealed
_AGREED, _ANNEALED = (5, 3), 4  # best fits whose mean is a start; that are annealed
_COOLING, _PRIOR = (
    (4.0, 0.1),
    0.5,
)  # temperatures, from the first sweep to the last; Dirichlet prior of labels in a leaf


@dataclass(frozen=True, kw_only=True)
class SplitReplay(Attack):
    """Labels of greatest likelihood, given all that was split and all that was not.

    1. Starts are k-means clusters of own columns, averaged 1, 2 and 4 times over shared leaves, and of the leading
       eigenvectors of the graph of shared leaves.
    2. Under soft labels each own candidate of each node has a gain (of boosting: with the margins that boosting with
       these labels would have). The likelihood of a split seen is its share under exp(gain / τ), beside all own
       candidates and to stop, which gains 0; a node not seen to split above the last level has stopped, or was split
       out of sight (5%). Mirror descent, with a weak prior of the labels' shares in leaves; τ and the heat of labels
       fall.
    3. The means of all fits and of the best three are starts, too. The fit of the least sum of -log likelihood and
       cross-entropy in leaves counts.
    4. Where the choices have at least half as many bits as the labels, single labels of the best four fits are annealed
       by exact violations: what the best own candidate gains more than the split, or any candidate where a mixed node
       stopped; with a Dirichlet distribution of labels in leaves.

    Notes give the splits, the bits of their choices per row, and the final objective.

    Setting: as :class:`~labelward.attacks.split_evidence.SplitEvidence`. Without a known split the guess is that of
        :class:`~labelward.attacks.leaf_smoothing.LeafSmoothing`.

    Approximations: at most 32 bins of a column, over all rows also where candidates are chosen in nodes; a missing
        value goes right, a categorical column offers each category against all others; no weights or repeats of rows, γ
        or least sizes; trees of one class each count for all classes, and regression is treated as classification of
        the bins. With many rows the fit is of a random sample, and the others follow from their leaves and bins; with
        many nodes it is of the first trees.

    Reference: none.
    """

    kind: ClassVar[str] = "split-replay"
    models: ClassVar[tuple[str, ...]] = ("secureboost", "forest")

    steps: Annotated[PositiveInt, Meta(description="Steps of the descent from each start.")] = 80
    sweeps: Annotated[
        NonNegativeInt, Meta(description="Sweeps over single labels, where the splits tell enough for that; 0: none.")
    ] = 30

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a cluster for every training row; notes give splits, bits per row, and the objective.

        Raises:
            DataError: ``own`` does not hold the view's rows, or has no column, or an infinite value.
            FileFormatError: records of the view contradict each other.
            InputError: fewer classes than one, or more than rows.
        """
        validate_features(view, own, aux)
        evidence = _Evidence.of(view, own, aux.classes)
        if evidence is None:
            return LabelGuess(values=LeafSmoothing()(view, own, aux, rng=rng).values, notes={"splits": 0.0})
        whole, evidence, rows = evidence, *evidence.sampled(rng)
        fits = [evidence.fitted(start, self.steps) for start in _starts(view, own, aux.classes, rows, rng)]
        fits += [evidence.fitted(_agreed(fits, count), self.steps) for count in _AGREED]
        fits.sort(key=_objective)
        best, labels = fits[0].objective, fits[0].q.argmax(axis=1)
        if evidence.rich and self.sweeps and self.sweeps * evidence.moves <= _MOVES:
            found = [evidence.annealed(fit.q.argmax(axis=1), self.sweeps, rng) for fit in fits[:_ANNEALED]]
            best, labels = min(found, key=lambda each: each[0])
        values = whole.likeliest(evidence, fits[0].q) if len(rows) < view.rows else labels
        notes = {"splits": evidence.splits, "bits": evidence.bits / len(rows), "objective": best}
        return LabelGuess(values=values, notes=notes)


class _Fit(NamedTuple):
    """Soft labels, float64 [rows, classes], and how badly they explain the trees."""

    objective: float
    q: Floats


def _objective(fit: _Fit) -> float:
    return fit.objective


def _agreed(fits: list[_Fit], count: int) -> Floats:
    """Return the mean of the best fits, their classes matched to those of the best."""
    from scipy.optimize import linear_sum_assignment

    best, *others = (fit.q for fit in sorted(fits, key=_objective)[:count])
    matched: Floats = np.mean([best, *(q[:, linear_sum_assignment(-best.T @ q)[1]] for q in others)], axis=0)
    return matched


def _starts(view: View, own: AttackerData, classes: int, rows: Integers, rng: np.random.Generator) -> list[Floats]:
    """Return soft labels of clusters of the rows."""
    leaves = observed_leaves(view, own)[:, rows]
    graph = leaf_graph(leaves, np.ones(len(leaves))).discounted(1.0)
    columns = cluster_points(own.numbers()[rows])
    vectors = graph.eigenvectors(classes + 6, rng=rng)[1]
    points = [smoothed(graph, columns, rounds) for rounds in (1, 2, 4)] + [vectors[:, : classes + 2], vectors]
    clusters = [cluster_groups(graph, each, classes, kmeans_seed(rng)) for each in points]
    return [0.4 * np.eye(classes)[each] + 0.6 / classes for each in clusters]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Evidence:
    """All that the likelihood reads.

    Attributes:
        grown: trees and own candidates.
        bins: of a column, the last one of missing values.
        classes: number of classes.
        boosted: None: a forest.
    """

    grown: Grown
    bins: int
    classes: int
    boosted: Boosted | None

    @classmethod
    def of(cls, view: View, own: AttackerData, classes: int) -> _Evidence | None:
        """Return the evidence of a view; None: no split is known, no column took part, or one tree is too large."""
        place = {name: at for at, name in enumerate(own.columns)}
        drawn = [[place[name] for name in names if name in place] for names in drawn_columns(view)]
        trees = list(observed_trees(view))
        width = max(map(len, drawn), default=0)
        bins = min(_BINS, view.parameter("model.bins", _BINS) or _BINS)
        outputs = 1 if classes == 2 else classes
        fitting = np.cumsum([len(tree.nodes) for tree in trees]) * width * (bins + 1) * outputs <= _TABLE
        trees = trees[: np.count_nonzero(fitting)]
        if not width or not any(tree.split & tree.nodes.keys() for tree in trees):
            return None
        columns = np.full((len(trees), width), -1)
        for at, names in enumerate(drawn[: len(trees)]):
            columns[at, : len(names)] = names
        grown = _grown(trees, columns, _codes(own, bins), view.parameter("model.depth", 6) or 64)
        ordered = np.array([name not in own.categories for name in own.columns])
        return cls(
            grown=grown._replace(ordered=ordered),
            bins=bins + 1,
            classes=classes,
            boosted=Boosted.of(view, classes),
        )

    def sampled(self, rng: np.random.Generator) -> tuple[_Evidence, Integers]:
        """Return the evidence of all rows or of a sample, with its candidates, and the rows, ascending."""
        trees, total = self.grown.leaf.shape
        most = max(1, _CELLS // (trees * self.grown.columns.shape[1] * self.outputs))
        rows = np.arange(total) if total <= most else np.sort(rng.choice(total, most, replace=False))
        grown = self.grown._replace(leaf=self.grown.leaf[:, rows], codes=self.grown.codes[rows])
        ones, zeros = np.ones((1, len(rows), 1)), np.zeros((len(rows), 1))
        counts, size = (sums[..., 0] for sums in node_sums(grown, self.bins, ones, zeros))
        rising = np.diff(counts, axis=2, prepend=0.0) != 0  # else it is the candidate before it
        apart = rising | ~grown.ordered[grown.columns[grown.tree]][:, :, None]
        valid = (counts > 0) & (counts < size[:, None, None]) & apart
        choice = np.where(size > 1, grown.choice, np.int8(MUTE))
        return replace(self, grown=grown._replace(valid=valid, choice=choice)), rows

    @property
    def outputs(self) -> int:
        """Number of gradients of a row."""
        return 1 if self.classes == 2 else self.classes

    @property
    def splits(self) -> float:
        """How many splits are known."""
        return float(np.count_nonzero(self.grown.choice > STOPPED))

    @property
    def bits(self) -> float:
        """The most that the choices of splits can tell."""
        offered = self.grown.valid.sum(axis=(1, 2))[self.grown.choice > STOPPED]
        return float(np.log2(np.maximum(offered, 1)).sum())

    @property
    def rich(self) -> bool:
        """Whether the choices tell enough to decide single labels."""
        return bool(self.bits > _ENOUGH * self.grown.leaf.shape[1] * np.log2(self.classes))

    @property
    def moves(self) -> float:
        """How many gains a sweep over single labels computes at most."""
        inside = self._counts(np.ones((self.grown.leaf.shape[1], 1)))
        return float(inside.sum() * self.grown.valid[0].size * self.outputs)

    def fitted(self, q: Floats, steps: int) -> _Fit:
        """Return where the descent from soft labels ends."""
        logits = np.log(np.maximum(q, 1e-6))
        by_left, by_total = self.tables()
        weight, prior = self._weight
        value = 0.0
        for step in range(steps):
            at = step / max(1, steps - 1)
            sharpness = tuple(first * (last / first) ** at for first, last in _SHARPNESS)
            if step == 0 or (self.boosted and step % _HELD == 0):
                p, weights = self.held(q)
            sums = self.sums(q, p, weights)
            value = choice_gradients(self.grown, sums, sharpness, _HIDDEN, by_left, by_total)
            push_down(self.grown, by_left, by_total)
            goal = self.pull(by_left, by_total) + weight * self.leaf_shares(q, prior)
            goal /= _HEAT[0] * (_HEAT[1] / _HEAT[0]) ** at
            goal = np.maximum(goal - goal.max(axis=1, keepdims=True), _FLOOR)
            logits = (1 - _RATE) * (logits - logits.max(axis=1, keepdims=True)) + _RATE * goal
            q = softmax(logits)
        value -= (0.02 if self.rich else 0.1) * float((q * self.leaf_shares(q, _PRIOR)).sum())
        return _Fit(value, q)

    @property
    def _weight(self) -> tuple[float, float]:
        """The weight of the labels' shares in leaves, and their prior."""
        return (0.1 if self.classes == 2 else 0.2), 10 / self.classes

    def tables(self) -> tuple[Floats, Floats]:
        """Return room for the derivatives by sums of candidates and of nodes."""
        nodes, columns = self.grown.tree.shape[0], self.grown.columns.shape[1]
        return np.empty((nodes, columns, self.bins, self.outputs)), np.empty((nodes, self.outputs))

    def pull(self, by_left: Floats, by_total: Floats) -> Floats:
        """Return float64 [n, classes]: what a row's label adds to the log likelihood, to first order."""
        gradient = row_gradients(self.grown.leaf, self.grown.codes, self.grown.columns, by_left, by_total)
        return gradient if self.outputs > 1 else np.hstack([np.zeros_like(gradient), gradient])

    def coded(self, q: Floats) -> Floats:
        """Return the columns of labels that gradients are of."""
        return np.ascontiguousarray(q[:, 1:] if self.outputs == 1 else q)

    def sums(self, q: Floats, p: Floats, weights: Weights) -> Sums:
        """Return the sums under soft labels, with what :meth:`held` gave."""
        left, total = node_sums(self.grown, self.bins, p, self.coded(q))
        return Sums(left, total, *weights)

    def held(self, q: Floats) -> tuple[Floats, Weights]:
        """Return the predictions before each tree under labels q, and the weights that follow from hessians."""
        p, h = self.predictions(q)
        left, total = node_sums(self.grown, self.bins, h, np.zeros(h.shape[1:]))
        unit, reg_lambda = (1.0, self.boosted.reg_lambda) if self.boosted else (_UNIT, 0.0)
        parts = (left, total[:, None, None] - left, total)
        of_left, of_right, of_all = (unit / np.maximum(part + reg_lambda, 1e-9) for part in parts)
        return p, (of_left, of_right, of_all)

    def predictions(self, q: Floats) -> tuple[Floats, Floats]:
        """Return predictions and hessians before each tree, float64 [trees or 1, n, outputs]; of a forest 0 and 1."""
        shape = (len(q), self.outputs)
        if self.boosted is None:
            return np.zeros((1, *shape)), np.ones((1, *shape))
        rate, reg_lambda, factor, together = self.boosted
        p, h = np.empty((2, len(self.grown.leaf), *shape))
        margins, labels = np.zeros(shape), self.coded(q)
        for tree, leaf in enumerate(self.grown.leaf):
            if tree % together == 0:
                before = _probabilities(margins)
            p[tree], h[tree] = before, factor * before * (1 - before)
            weight = self.by_leaf(leaf, labels - before) / (self.by_leaf(leaf, h[tree]) + reg_lambda + 1e-9)
            margins += rate * np.where(leaf[:, None] >= 0, weight[leaf], 0.0)
        return p, h

    def leaf_shares(self, q: Floats, prior: float) -> Floats:
        """Return float64 [n, classes]: the logarithms of classes' shares of the other rows of a leaf, over trees."""
        total = np.zeros_like(q)
        for leaf in self.grown.leaf:
            inside = leaf >= 0
            others = self.by_leaf(leaf, q)[leaf[inside]] - q[inside] + prior
            total[inside] += np.log(others / others.sum(axis=1, keepdims=True))
        return total

    def by_leaf(self, leaf: Integers, values: Floats) -> Floats:
        """Return float64 [nodes, K]: the sums of float64 [n, K] over the rows of each leaf of a tree."""
        inside, count = leaf >= 0, len(self.grown.tree)
        return np.column_stack([np.bincount(leaf[inside], column[inside], count) for column in values.T])

    def annealed(self, labels: Integers, sweeps: int, rng: np.random.Generator) -> tuple[float, Integers]:
        """Return violations and what labels cost in leaves, and the labels after annealing."""
        labels = labels.copy()
        for sweep in range(sweeps):
            heat = _COOLING[0] * (_COOLING[1] / _COOLING[0]) ** (sweep / max(1, sweeps - 1))
            state, n = self.state(labels, *self.held(np.eye(self.classes)[labels])), len(labels)
            proposals = rng.permutation(n), rng.integers(1, self.classes, n), heat * rng.exponential(size=n)
            relabel_rows(self.grown, *state, labels, proposals, _PRIOR)
        _, found, counts = self.state(labels, *self.held(np.eye(self.classes)[labels]))
        return float(found.sum()) + self._cost_in_leaves(counts), labels

    def state(self, labels: Integers, p: Floats, weights: Weights) -> tuple[Sums, Floats, Floats]:
        """Return sums, violations of nodes, and rows of each class in nodes; arguments as of :meth:`sums`."""
        q = np.eye(self.classes)[labels]
        sums = self.sums(q, p, weights)
        counts = self._counts(q)
        return sums, violations(self.grown, sums, counts), counts

    def _counts(self, values: Floats) -> Floats:
        """Return float64 [nodes, K]: the sums of float64 [n, K] over the rows of each node."""
        bare = self.grown._replace(columns=self.grown.columns[:, :0])
        return node_sums(bare, 1, np.zeros((1, *values.shape)), -values)[1]

    def _cost_in_leaves(self, counts: Floats) -> float:
        from scipy.special import gammaln

        inside = counts[self.grown.left < 0]
        every = gammaln(inside.sum(axis=1) + self.classes * _PRIOR) - gammaln(self.classes * _PRIOR)
        return float(every.sum() - (gammaln(inside + _PRIOR) - gammaln(_PRIOR)).sum())

    def likeliest(self, sample: _Evidence, q: Floats) -> Integers:
        """Return the labels of all rows that soft labels of the sampled rows make the likeliest."""
        p, weights = sample.held(q)
        by_left, by_total = sample.tables()
        sharpness = (_SHARPNESS[0][1], _SHARPNESS[1][1])
        choice_gradients(sample.grown, sample.sums(q, p, weights), sharpness, _HIDDEN, by_left, by_total)
        push_down(sample.grown, by_left, by_total)
        goal = self.pull(by_left, by_total)
        for leaf, known in zip(self.grown.leaf, sample.grown.leaf, strict=True):
            shares = sample.by_leaf(known, q) + _PRIOR
            shares = np.log(shares / shares.sum(axis=1, keepdims=True))
            goal += self._weight[0] * np.where(leaf[:, None] >= 0, shares[leaf], 0.0)
        values: Integers = goal.argmax(axis=1)
        return values


def _probabilities(margins: Floats) -> Floats:
    p: Floats = 1 / (1 + np.exp(-margins)) if margins.shape[1] == 1 else softmax(margins)
    return p


def _codes(own: AttackerData, bins: int) -> NDArray[np.int32]:
    """Return int32 [rows, columns]: bins of own columns; ``bins``: missing, or a category beyond that."""
    place = {name: at for at, name in enumerate(own.columns)}
    categories = {place[name]: count for name, count in own.categories.items()}
    return np.minimum(bin_columns(own.features, bins, categories).codes, bins).astype(np.int32)


def _grown(trees: list[ObservedTree], columns: Integers, codes: NDArray[np.int32], depth: int) -> Grown:
    """Return trees with nodes numbered throughout, and without what depends on candidates."""
    leaf = np.full((len(trees), len(codes)), -1)
    tree, above, left, choice = list[int](), list[int](), list[int](), list[int]()
    for at, each in enumerate(trees):
        number = {node: len(tree) + k for k, node in enumerate(sorted(each.nodes))}
        for node, own in number.items():
            split = node in each.split
            tree.append(at)
            above.append(number[parent(node)] if node else -1)
            left.append(number[children(node)[0]] if split else -1)
            seen = (OWN if node in each.mine else OTHERS) if split else STOPPED
            choice.append(seen if depth_of(node) < depth else MUTE)
            leaf[at, each.nodes[node]] = own
    none = np.zeros((len(tree), 0, 0), np.bool_)
    arrays = (np.array(tree), np.array(above), np.array(left), np.array(choice, np.int8))
    return Grown(leaf, *arrays, codes, columns, np.ones(codes.shape[1], np.bool_), none)
