"""Split evidence: labels under which the splits that won beat all that the attacker could offer instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.instance_clustering import InstanceClustering
from labelward.attacks.instance_spaces import Boosted, drawn_columns, observed_leaves, observed_trees
from labelward.attacks.leaf_smoothing import LeafSmoothing
from labelward.kernels.candidate_gains import Blocks, add_gradients, candidate_gains
from labelward.kernels.node_rows import children, depth_of
from labelward.kernels.objectives import softmax
from labelward.parameters import NonNegativeFloat, PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_SHARPNESS, _MOST = 20.0, 50.0  # of the choice of a split: 1 / temperature; largest exponent
_SLACK = 0.02  # gain per row that counts as none
_GAIN, _PRIOR, _TRUST = 0.1, 0.05, 0.9  # weights of gains and of the start; probability of its clusters
_RATE, _HELD, _PARTS = 0.3, 8, 3  # of Adam; steps for which predictions are held; parts of the candidates
_CANDIDATES = 120  # most candidates of a column at a node
_CELLS = 2**24  # most rows × columns × classes over all nodes


@dataclass(frozen=True, kw_only=True)
class SplitEvidence(Attack):
    """Soft labels fitted to the choice of splits: a split that was disclosed gained more than every own candidate.

    1. :class:`~labelward.attacks.leaf_smoothing.LeafSmoothing` and
       :class:`~labelward.attacks.instance_clustering.InstanceClustering` give one start each.
    2. From the attacker's columns drawn for a tree (by the shared seed) follow its candidates at each node whose split
       it knows. Labels q give their gains, and that of the split: by Gini impurity, or by gradients and hessians of the
       margins that boosting with q would have.
    3. Adam minimizes over q: the mean over nodes, by the root of their rows, of the logarithm of 1 + Σ_candidates
       exp(20 (gain - gain of the split) / largest gain), over 20; less 0.1 × the logarithm of the split's gain per
       row; plus the entropy of q in visible leaves, those of the last level by half; plus 0.05 × KL(start ‖ q).
    4. The fit of least objective counts.

    The choice among k candidates and another split tells at most log(1 + k). Where these add up to less than
    ``least_evidence`` per row (few trees for the rows, columns of few values), the fit follows the noise, and the guess
    is that of leaf smoothing. Notes give the evidence per row, the splits and the objective.

    Setting: as :class:`~labelward.attacks.leaf_smoothing.LeafSmoothing`; in addition the attacker knows the seed of the
        run and the model's parameters, as all parties do. Of a coalition the candidates are those of all members.

    Approximations: at most 120 candidates of a column at a node, by quantiles of the rows; categorical columns offer
        none; missing values go right; no weights or repeats of rows; trees of one class each count for all classes, and
        regression is treated as classification of the bins.

    Reference: none.
    """

    kind: ClassVar[str] = "split-evidence"
    models: ClassVar[tuple[str, ...]] = ("secureboost", "forest")

    steps: Annotated[PositiveInt, Meta(description="Steps of the optimizer from each start.")] = 90
    least_evidence: Annotated[
        NonNegativeFloat,
        Meta(description="Nats per row that the choices of splits must tell at least; else leaf smoothing's guess."),
    ] = 0.06

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a cluster for every training row; notes give splits, the evidence per row, and the objective.

        Raises:
            DataError: ``own`` does not hold the view's rows, or has no column, or an infinite value.
            FileFormatError: records of the view contradict each other.
            InputError: fewer classes than one, or more than rows.
        """
        first = LeafSmoothing()(view, own, aux, rng=rng).values
        nodes = _affordable(disclosed_nodes(view, own), aux.classes)
        notes = {"splits": float(len(nodes)), "evidence": sum(node.evidence for node in nodes) / view.rows}
        if not nodes or notes["evidence"] < self.least_evidence:
            return LabelGuess(values=first, notes=notes)
        choices = Choices.of(view, own, aux.classes, nodes)
        notes["evidence"] = choices.evidence / view.rows
        if notes["evidence"] < self.least_evidence:
            return LabelGuess(values=first, notes=notes)
        starts = [first, InstanceClustering()(view, own, aux, rng=rng).values]
        fits = [choices.fitted(np.eye(aux.classes)[start], self.steps) for start in starts]
        objective, q = min(fits, key=lambda fit: fit[0])
        return LabelGuess(values=q.argmax(axis=1), notes=notes | {"objective": objective})


class DisclosedNode(NamedTuple):
    """A node whose split the attacker knows.

    Attributes:
        tree: its tree, among those seen.
        rows: int64, those that go left first.
        left: how many go left.
        columns: positions of the numeric columns that the attacker could offer there.
        most: most candidates of a column.
    """

    tree: int
    rows: Integers
    left: int
    columns: list[int]
    most: int

    @property
    def cells(self) -> int:
        """Number of values to sort."""
        return len(self.rows) * len(self.columns)

    @property
    def evidence(self) -> float:
        """The most that the choice of the split can tell, in nats."""
        return float(np.log1p(min(len(self.rows) - 1, self.most) * len(self.columns)))


def disclosed_nodes(view: View, own: AttackerData) -> Iterator[DisclosedNode]:
    """Yield the nodes whose split the attacker knows, tree by tree."""
    place = {name: at for at, name in enumerate(own.columns) if name not in own.categories}
    in_node = view.parameter("model.candidates") == "node"
    most = min(_CANDIDATES, view.parameter("model.bins", 32) - 1) if in_node else _CANDIDATES
    for number, (tree, drawn) in enumerate(zip(observed_trees(view), drawn_columns(view), strict=True)):
        columns = [place[name] for name in drawn if name in place]
        for node in sorted(tree.split & tree.nodes.keys()):
            left, right = (tree.nodes[child] for child in children(node))
            yield DisclosedNode(number, np.concatenate([left, right]), len(left), columns, most)


def _affordable(nodes: Iterable[DisclosedNode], classes: int) -> list[DisclosedNode]:
    """Return the smallest nodes, which tell most per value, as many as can be searched in a minute."""
    ascending = sorted(nodes, key=lambda node: node.cells)
    within = classes * np.cumsum([node.cells for node in ascending]) <= _CELLS
    return ascending[: np.count_nonzero(within)]


class Held(NamedTuple):
    """What counts as constant for some steps; for a forest all of ``p`` is 0 and all of ``h`` 1.

    Attributes:
        p: float64 [planes, n, classes]: predictions before each tree.
        h: hessians, of the same shape.
        scale: float64 [N]: the unit of gains at each node, about the largest.
    """

    p: Floats
    h: Floats
    scale: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Choices:
    """All that the objective of :class:`SplitEvidence` reads.

    Attributes:
        rows: number of rows.
        size: float64 [N]: rows of each node whose split is known.
        seen: the splits, one block a node.
        parts: own candidates.
        leaf: int64 [trees, n]: visible leaves, numbered throughout; the last number is that of rows in none.
        entropy_weight: float64 [leaves + 1].
        boosted: None: a forest.
    """

    rows: int
    size: Floats
    seen: Blocks
    parts: tuple[Blocks, ...]
    leaf: Integers
    entropy_weight: Floats
    boosted: Boosted | None

    @classmethod
    def of(cls, view: View, own: AttackerData, classes: int, nodes: list[DisclosedNode]) -> Choices:
        """Return the choices at nodes; arguments as of :class:`SplitEvidence`."""
        boosted = Boosted.of(view, classes)
        blocks, seen = [], []
        for number, node in enumerate(nodes):
            plane = node.tree if boosted else 0
            seen.append((number, plane, node.rows, np.arange(len(node.rows)) == node.left - 1))
            for column in node.columns:
                order, cut = _candidates(own.features[node.rows, column], node.most)
                blocks.append((number, plane, node.rows[order], cut))
        leaf, weight = _leaves(observed_leaves(view, own), view.parameter("model.depth", 6))
        return cls(
            rows=view.rows,
            size=np.array([len(node.rows) for node in nodes], np.float64),
            seen=_packed(seen),
            parts=tuple(_packed(blocks[part::_PARTS]) for part in range(_PARTS)),
            leaf=leaf,
            entropy_weight=weight,
            boosted=boosted,
        )

    @property
    def evidence(self) -> float:
        """Nats that the choices tell at most."""
        counts = sum(np.bincount(part.node, minlength=len(self.size)) for part in self.parts)
        return float(np.log1p(counts).sum())

    def fitted(self, start: Floats, steps: int) -> tuple[float, Floats]:
        """Return the objective without its last term, and q as float64 [n, classes].

        Args:
            start: float64 [n, classes], indicators of clusters.
            steps: of Adam (Kingma and Ba 2015, with its defaults but for the rate).
        """
        prior = _TRUST * start + (1 - _TRUST) / start.shape[1]
        logits, mean, square = np.log(prior), np.zeros_like(prior), np.zeros_like(prior)
        for step in range(steps):
            q = softmax(logits)
            if step % _HELD == 0:
                held = self.held(q)
            _, gradient = self.objective(q, held, (self.parts[step % _PARTS],))
            gradient = q * (gradient - np.sum(q * gradient, axis=1, keepdims=True)) + _PRIOR / self.rows * (q - prior)
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient**2
            scale = np.sqrt(square / (1 - 0.999 ** (step + 1))) + 1e-8
            logits -= _RATE * mean / (1 - 0.9 ** (step + 1)) / scale
        q = softmax(logits)
        return self.objective(q, self.held(q), self.parts)[0], q

    def held(self, q: Floats) -> Held:
        """Return what labels q give to hold."""
        p, h = self._predictions(q)
        largest = np.maximum(candidate_gains(self.seen, q, p, h, self._reg_lambda), 0.0)
        for part in self.parts:
            np.maximum.at(largest, part.node, candidate_gains(part, q, p, h, self._reg_lambda))
        return Held(p, h, largest + _SLACK * self.size)

    def objective(self, q: Floats, held: Held, parts: tuple[Blocks, ...]) -> tuple[float, Floats]:
        """Return the objective without its last term, and its derivative by q but for a constant in each row.

        Args:
            q: float64 [n, classes], whose rows add up to 1.
            held: from the same labels or similar ones.
            parts: the candidates that count.
        """
        p, h, scale = held
        blocks = (self.seen, *parts)
        seen, *offered = (candidate_gains(each, q, p, h, self._reg_lambda) for each in blocks)
        node, gains = np.concatenate([part.node for part in parts]), np.concatenate(offered)
        weight = np.sqrt(self.size) / np.sqrt(self.size).sum()
        odds = np.exp(np.minimum(_SHARPNESS * (gains - seen[node]) / scale[node], _MOST))
        total = 1.0 + np.bincount(node, odds, len(seen))
        factor = weight[node] * odds / (total * scale)[node]
        per_row = np.maximum(seen / self.size, 0.0) + 0.01
        value = weight @ (np.log(total) / _SHARPNESS - _GAIN * np.log(per_row))
        by_seen = -np.bincount(node, factor, len(seen)) - _GAIN * weight / self.size / per_row * (seen > 0)
        impurity, gradient = self._impurity(q)
        factors = np.split(factor, np.cumsum([len(part.node) for part in parts])[:-1])
        for each, by_gain in zip(blocks, (by_seen, *factors), strict=True):
            add_gradients(each, by_gain, q, p, h, self._reg_lambda, gradient)
        return float(value) + impurity, gradient

    @property
    def _reg_lambda(self) -> float:
        return self.boosted.reg_lambda if self.boosted else 1e-9  # no side of a candidate is empty

    def _predictions(self, q: Floats) -> tuple[Floats, Floats]:
        """Return the predictions before each tree, if boosting with labels q gave the visible leaves."""
        if self.boosted is None:
            return np.zeros((1, *q.shape)), np.ones((1, *q.shape))
        rate, reg_lambda, factor, together = self.boosted
        p, h = np.empty((2, len(self.leaf), *q.shape))
        two = q.shape[1] == 2
        margins = np.zeros_like(q)
        for tree, leaf in enumerate(self.leaf):
            if tree % together == 0:
                before = softmax(margins / 2 if two else margins)
            p[tree], h[tree] = before, factor * before * (1 - before)
            value = self._by_leaf(leaf, q - before) / (self._by_leaf(leaf, h[tree]) + reg_lambda)
            value[-1] = 0.0
            margins += rate * value[leaf]
        return p, h

    def _impurity(self, q: Floats) -> tuple[float, Floats]:
        """Return the weighted entropy of q in leaves, and its derivative but for a constant in each row."""
        value, gradient = 0.0, np.zeros_like(q)
        for leaf in self.leaf:
            sums = self._by_leaf(leaf, q)
            share = np.log(np.maximum(sums, 1e-12) / np.maximum(sums.sum(axis=1, keepdims=True), 1e-12) + 1e-9)
            value -= float(self.entropy_weight @ (sums * share).sum(axis=1))
            gradient -= (self.entropy_weight[:, None] * share)[leaf]
        return value, gradient

    def _by_leaf(self, leaf: Integers, values: Floats) -> Floats:
        return np.column_stack([np.bincount(leaf, column, len(self.entropy_weight)) for column in values.T])


def _leaves(leaves: NDArray[np.int32], depth: int) -> tuple[Integers, Floats]:
    """Return leaves numbered throughout, and the weight of each one's entropy per row: a half at the last level."""
    trees, rows = leaves.shape
    numbered = np.empty(leaves.shape, np.int64)
    weights: list[float] = []
    for tree, leaf in enumerate(leaves):
        nodes, numbered[tree] = np.unique(leaf, return_inverse=True)
        numbered[tree] += len(weights)
        weights += [0.0 if node < 0 else 1.0 if depth_of(int(node)) < depth - 1 else 0.5 for node in nodes]
    numbered[leaves < 0] = len(weights)
    return numbered, np.array([*weights, 0.0]) / (rows * trees)


def _candidates(values: Floats, most: int) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the order of a column's values, missing ones last, and after which of them a candidate cuts."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    places = np.flatnonzero((ordered[1:] != ordered[:-1]) & ~np.isnan(ordered[:-1]))
    if len(places) > most:
        wanted = np.arange(1, most + 1) * len(values) // (most + 1)
        places = places[np.minimum(np.searchsorted(places, wanted), len(places) - 1)]
    cut = np.zeros(len(values), np.bool_)
    cut[places] = True
    return order, cut


def _packed(blocks: list[tuple[int, int, Integers, NDArray[np.bool_]]]) -> Blocks:
    """Return blocks of (node, plane, rows in order, cuts) as one."""
    sizes = [len(rows) for _, _, rows, _ in blocks]
    cuts = [int(np.count_nonzero(cut)) for _, _, _, cut in blocks]
    return Blocks(
        rows=np.concatenate([np.empty(0, np.int32), *(rows for _, _, rows, _ in blocks)]).astype(np.int32),
        start=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64),
        plane=np.array([plane for _, plane, _, _ in blocks], np.int64),
        cut=np.concatenate([np.empty(0, np.bool_), *(cut for _, _, _, cut in blocks)]),
        node=np.repeat(np.array([node for node, _, _, _ in blocks], np.int64), cuts),
    )
