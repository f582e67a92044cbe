"""Federated trees on the joined table, written from the definition: slow, one candidate after the other.

No histogram, no sibling subtraction, no message. What it shares with the protocol is what defines a run: the cuts of a
column (``kernels.binning``), derivatives and loss (``kernels.objectives``), the documented draws of rows and columns.
Sums are of Python's whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from reference_numbers import Bounds, Floats, Numbers, Sums, encode, first_direction, gain_of

from fixed_seeds import FIXED
from labelward.kernels.binning import EVERYTHING, bin_columns, node_candidates
from labelward.kernels.objectives import Objective, evaluation_metric, objective
from labelward.protocols.secureboost.params import TreeModel
from labelward.rng import learning
from wiring import Setting

OPEN = (-math.inf, math.inf)


@dataclass(frozen=True)
class Split:
    """A node's split: whose column, which one of the party's, and what goes left.

    Attributes:
        threshold: the largest value that goes left; 0 for a categorical column.
        missing_left: where a missing value goes.
        categories: the codes that go left; None for an ordered column.
    """

    party: str
    column: int
    threshold: float
    missing_left: bool = False
    categories: tuple[int, ...] | None = None

    def left(self, value: float) -> bool:
        """Whether a row of this value goes left; NaN is missing."""
        if math.isnan(value):
            return self.missing_left
        if self.categories is not None:
            return self.missing_left if value < 0 else int(value) in self.categories
        return value <= self.threshold


@dataclass(frozen=True)
class Tree:
    """Splits and leaf weights by node number (root 0, children 2i+1 and 2i+2)."""

    splits: dict[int, Split]
    weights: dict[int, tuple[float, ...]]
    output: int = -1


@dataclass(frozen=True)
class Model:
    """Trees, what a margin starts from, whether trees are averaged, and the metric after each round."""

    trees: list[Tree]
    base: list[float]
    mean: bool = False
    history: list[float] = field(default_factory=list)


def train(setting: Setting) -> Model:
    """Return the model that a setting defines."""
    return _Trainer(setting).train()


def leaf_of(tree: Tree, parts: dict[str, Floats], row: int) -> int:
    """Return the leaf that a row reaches."""
    node = 0
    while node in tree.splits:
        split = tree.splits[node]
        node = 2 * node + (1 if split.left(float(parts[split.party][row, split.column])) else 2)
    return node


def predict(model: Model, parts: dict[str, Floats]) -> Floats:
    """Return the margins [rows, outputs]."""
    rows, outputs = len(next(iter(parts.values()))), len(model.base)
    margins = np.empty((rows, outputs))
    for row in range(rows):
        total = [0.0] * outputs if model.mean else list(model.base)
        for tree in model.trees:
            for output, weight in _places(tree, tree.weights[leaf_of(tree, parts, row)]):
                total[output] += weight
        if model.mean:
            total = [base + one / len(model.trees) for base, one in zip(model.base, total, strict=True)]
        margins[row] = total
    return margins


def _places(tree: Tree, weights: tuple[float, ...]) -> Iterator[tuple[int, float]]:
    """Yield output and weight."""
    yield from enumerate(weights) if tree.output < 0 else [(tree.output, weights[0])]


# -- from round to round -----------------------------------------------------------------------------------------------


class _Trainer:
    def __init__(self, setting: Setting) -> None:
        self.setting, self.params = setting, setting.params
        self.parts = {party: np.asarray(x) for party, x in setting.parts.items()}
        self.labels = np.asarray(setting.labels, dtype=np.float64)
        n = len(self.labels)
        self.weights = np.ones(n) if setting.weights is None else np.asarray(setting.weights)
        if len(setting.classes) == 2:
            self.weights = self.weights * np.where(self.labels == 1, self.params.scale_pos_weight, 1.0)
        self.forest = self.params.kind == "forest"
        self.objective = make_objective(setting)
        self.base = [float(v) for v in self.objective.start(self.labels, self.weights, self.params.base_score)]
        self.cuts = Cuts(setting)
        self.taken_part = dict.fromkeys(self.parts, 0)

    def train(self) -> Model:
        """Train all rounds, or until the validation rows say stop."""
        trees: list[Tree] = []
        history: list[float] = []
        margins = np.tile(self.base, (len(self.labels), 1))
        checked = None
        if self.setting.validation is not None:
            checked = np.tile(self.base, (len(self.setting.validation_labels), 1))
        best_round, best = 0, None
        for number in range(self.params.trees):
            new = self._round(number, len(trees), margins)
            trees += new
            if self.forest:
                continue
            self._add(new, margins, self.parts)
            if checked is not None:
                self._add(new, checked, dict(self.setting.validation))
                value, larger = self._metric(checked)
                history.append(value)
                if best is None or (value > best if larger else value < best):
                    best_round, best = number + 1, value
                patience = self.params.early_stopping_rounds
                if patience and number + 1 - best_round >= patience:
                    break
        if self.params.early_stopping_rounds and checked is not None:
            per_round = len(trees) // len(history)
            trees = trees[: best_round * per_round]
        return Model(trees, self.base, self.forest, history)

    def _metric(self, margins: Floats) -> tuple[float, bool]:
        setting = self.setting
        weights = np.ones(len(margins)) if setting.validation_weights is None else setting.validation_weights
        y = np.asarray(setting.validation_labels, dtype=np.float64)
        return evaluation_metric(self.params.eval_metric, self.objective, margins, y, weights)

    def _add(self, trees: list[Tree], margins: Floats, parts: dict[str, Floats]) -> None:
        for tree in trees:
            for row in range(len(margins)):
                for output, weight in _places(tree, tree.weights[leaf_of(tree, parts, row)]):
                    margins[row, output] += weight

    def _round(self, number: int, trees: int, margins: Floats) -> list[Tree]:
        g, h = self.objective.gradients(margins, self.labels)
        outputs = self.objective.outputs
        self.sizes, self.first = np.abs(g).max(axis=1) * self.weights, trees
        if self.params.multi_strategy == "one_output_per_tree" and outputs > 1:
            order = FIXED.learning(self.setting.seed, trees, "outputs").permutation(outputs).tolist()
            grown = enumerate(order, trees)
            return [self._tree(tree, g[:, [c]], h[:, [c]], implied="", output=c) for tree, c in grown]
        return [self._tree(trees, g, h, implied=self.objective.implied, output=-1)]

    def _tree(self, tree: int, g: Floats, h: Floats, *, implied: str, output: int) -> Tree:
        draw = self.first if self.params.sampling == "goss" else tree  # one draw for all trees of a round
        rows, repeats, factors = draw_rows(self.setting, draw, self.sizes)
        weighted = bool((self.weights != 1.0).any()) or self.params.sampling == "goss"
        encoded = list(range(len(repeats))) if self.forest else rows  # a forest encodes all rows, once
        weights = self.weights * factors if weighted else None
        numbers = encode(g, h, weights, encoded, implied, self.objective)
        grower = _Grower(self, tree, numbers, repeats)
        return grower.grow(rows, output)


def make_objective(setting: Setting) -> Objective:
    """Return what the trees are fitted to."""
    params, classes = setting.params, len(setting.classes)
    name = params.objective
    if params.kind == "forest":
        name = "gini" if classes else "variance"
    elif name == "auto":
        name = {0: "reg:squarederror", 2: "binary:logistic"}.get(classes, "multi:softprob")
    power, step = params.tweedie_variance_power, step_of(params, name)
    exact = params.softmax_hessian == "exact"
    return objective(name, classes=classes, variance_power=power, max_delta_step=step, exact_hessian=exact)


def step_of(params: TreeModel, name: str) -> float:
    """Return the largest size of a leaf weight; 0 for no limit."""
    if params.max_delta_step is not None:
        return params.max_delta_step
    return 0.7 if name == "count:poisson" else 0.0


def _from_lowest(keys: dict[int, float]) -> list[int]:
    """Return categories by ascending keys, or by descending ones where the lowest category then comes earlier."""
    first = keys[min(keys)]
    turn = next((keys[code] < first for code in sorted(keys) if keys[code] != first), False)
    return sorted(keys, key=lambda code: (-keys[code] if turn else keys[code], code))


def draw_rows(setting: Setting, tree: int, sizes: Floats) -> tuple[list[int], list[int], Floats]:
    """Return the tree's rows, how often each row was drawn, and by what its numbers are multiplied."""
    params, n = setting.params, len(setting.labels)
    factors = np.ones(n)
    rng = learning(setting.seed, setting.active, tree, "rows")
    if params.sampling == "goss":
        rng = FIXED.learning(setting.seed, tree, "rows")
        order = sorted(rng.permutation(n).tolist(), key=lambda row: -sizes[row])
        top, rest = max(1, int(params.top_rate * n)), max(1, int(params.other_rate * n))
        others = [int(row) for row in rng.choice(order[top:], min(rest, n - top), replace=False)] if top < n else []
        factors[others] = (n - top) / max(1, len(others))
        drawn = order[:top] + others
    elif params.replace or params.row_fraction < 1:
        drawn = [int(row) for row in rng.choice(n, max(1, int(params.row_fraction * n)), replace=params.replace)]
    else:
        drawn = list(range(n))
    repeats = [0] * n
    for row in drawn:
        repeats[row] += 1
    return [row for row in range(n) if repeats[row]], repeats, factors


# -- one tree ----------------------------------------------------------------------------------------------------------


class Cuts:
    """The candidates of every party's columns, where they are the same in all nodes."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.params = setting, setting.params
        self.edges: dict[str, tuple[Floats, ...]] = {}
        if self.params.candidates != "node":
            bins = None if self.params.candidates == "all" else self.params.bins
            for party, x in setting.parts.items():
                self.edges[party] = bin_columns(x, bins, self._sizes(party)).edges

    def _sizes(self, party: str) -> dict[int, int]:
        return {column: len(names) for column, names in self.setting.categories.get(party, {}).items()}

    def of(self, party: str, column: int, rows: list[int]) -> list[float]:
        """Return the thresholds of an ordered column within a node."""
        if self.edges:
            return [float(edge) for edge in self.edges[party][column]]
        x = np.ascontiguousarray(self.setting.parts[party][rows][:, [column]])
        _, edges = node_candidates(x, np.zeros(len(rows), dtype=np.int32), 1, self.params.bins)
        return [float(edge) for edge in edges[0, 0] if not np.isnan(edge)]


@dataclass(frozen=True)
class Found:
    """A candidate with its gain and the weights of its children, before the learning rate."""

    split: Split
    gain: float
    weights: tuple[float, float]


class _Grower:
    """What one tree's nodes have in common."""

    def __init__(self, trainer: _Trainer, tree: int, numbers: Numbers, repeats: list[int]) -> None:
        self.setting, self.params, self.cuts = trainer.setting, trainer.params, trainer.cuts
        self.classes = bool(trainer.setting.classes)
        self.parts, self.labels = trainer.parts, trainer.labels
        self.numbers, self.repeats = numbers, repeats
        self.forest = trainer.forest
        self.lam = 0.0 if self.forest else self.params.reg_lambda
        self.rate = 1.0 if self.forest else self.params.learning_rate
        self.tree = tree
        self.columns = {party: self._drawn(party, trainer.taken_part) for party in self.parts}
        step = step_of(self.params, trainer.objective.name)
        self.bounds = (-step, step) if step else OPEN

    def _drawn(self, party: str, taken_part: dict[str, int]) -> list[int]:
        """Draw a party's columns for one of the trees in which it takes part, which it counts from 0."""
        total = self.parts[party].shape[1]
        if not any(self._may(party, depth) for depth in range(self.params.depth)):
            return []
        number = taken_part[party]
        taken_part[party] += 1
        if self.params.feature_fraction >= 1 or not total:
            return list(range(total))
        size = max(1, int(self.params.feature_fraction * total))
        rng = learning(self.setting.seed, party, number, "columns")
        return sorted(int(column) for column in rng.choice(total, size, replace=False))

    def grow(self, rows: list[int], output: int) -> Tree:
        """Split level by level; within ``max_leaves`` the splits of the largest gain, of equal ones the lower node."""
        splits: dict[int, Split] = {}
        leaves, bounds = {0: rows}, {0: self.bounds}
        level = [0]
        for depth in range(self.params.depth):
            found = {node: self._best(leaves[node], depth, bounds[node]) for node in level}
            chosen = sorted((-best.gain, node) for node, best in found.items() if best is not None)
            if self.params.max_leaves:
                chosen = chosen[: max(0, self.params.max_leaves - len(leaves))]
            level = []
            for node in sorted(node for _, node in chosen):
                best = found[node]
                splits[node] = best.split
                for child, side in ((2 * node + 1, True), (2 * node + 2, False)):
                    values = self.parts[best.split.party][:, best.split.column]
                    leaves[child] = [row for row in leaves[node] if best.split.left(float(values[row])) == side]
                    bounds[child] = self._child_bounds(best, bounds[node], side)
                    level.append(child)
                del leaves[node]
        weights = {node: self._leaf(mine, bounds[node]) for node, mine in sorted(leaves.items())}
        return Tree(splits, weights, output)

    def _child_bounds(self, best: Found, bounds: Bounds, left: bool) -> Bounds:
        direction = self.setting.monotone.get(best.split.party, {}).get(best.split.column, 0)
        if not direction:
            return bounds
        middle = (best.weights[0] + best.weights[1]) / 2
        below = left == (direction > 0)
        return (bounds[0], middle) if below else (middle, bounds[1])

    def _leaf(self, rows: list[int], bounds: Bounds) -> tuple[float, ...]:
        sums = self.numbers.sums(rows, self.repeats)
        return tuple(self.rate * weight for weight in self._weights(sums, bounds))

    def _weights(self, sums: Sums, bounds: Bounds) -> list[float]:
        weights = []
        for g, h in self._real(sums):
            weight = -g / (h + self.lam) if h + self.lam > 0 else 0.0
            weights.append(min(max(weight, bounds[0]), bounds[1]))
        return weights

    def _hessians(self, sums: Sums) -> list[float]:
        """Return the hessians that a row has; where it has none, the count."""
        return [one / self.numbers.scale_h for one in sums.h] or [float(sums.count)]

    def _real(self, sums: Sums) -> list[tuple[float, float]]:
        """Return gradient and hessian of each output; one hessian may stand for all, and the count for none."""
        h = self._hessians(sums)
        h = h * len(sums.g) if len(h) == 1 else h
        return [(one / self.numbers.scale_g, other) for one, other in zip(sums.g, h, strict=True)]

    # -- the best split of a node --------------------------------------------------------------------------------------

    def _best(self, rows: list[int], depth: int, bounds: Bounds) -> Found | None:
        """Return the candidate of the largest positive gain; the first of equal ones in party and column order."""
        if self.classes and len({float(self.labels[row]) for row in rows}) < 2:
            return None
        best: Found | None = None
        for party, columns in self.columns.items():
            if not self._may(party, depth):
                continue
            for column in columns:
                for split in self._splits(party, column, rows):
                    found = self._judge(split, rows, bounds)
                    if found is not None and found.gain > (0.0 if best is None else best.gain):
                        best = found
        return best

    def _may(self, party: str, depth: int) -> bool:
        """Whether a party may own a split, as the mode has it."""
        active, *_ = self.parts
        if self.params.mode == "mixed":
            able = [each for each, x in self.parts.items() if each != active or x.shape[1]]
            apart = self.params.multi_strategy == "one_output_per_tree" and len(self.setting.classes) > 2
            turn = self.tree // len(self.setting.classes) if apart else self.tree  # a round's trees have one owner
            return able[turn % len(able)] == party
        if self.params.mode == "layered":
            return (party != active) == (depth < self.params.passive_depth)
        return True

    def _splits(self, party: str, column: int, rows: list[int]) -> Iterator[Split]:
        """Yield a column's candidates in order: first with missing values on the right, then with them on the left."""
        values = self.parts[party][:, column]
        missing = any(math.isnan(values[row]) for row in rows)
        if column in self.setting.categories.get(party, {}):
            for chosen in self._category_sets(party, column, rows):
                yield Split(party, column, 0.0, False, chosen)
            for chosen in self._category_sets(party, column, rows) if missing else []:
                yield Split(party, column, 0.0, True, chosen)
            return
        thresholds = self.cuts.of(party, column, rows)
        for threshold in [*thresholds, EVERYTHING] if missing else thresholds:
            yield Split(party, column, threshold)
        for threshold in thresholds if missing else []:
            yield Split(party, column, threshold, True)

    def _category_sets(self, party: str, column: int, rows: list[int]) -> list[tuple[int, ...]]:
        """Return the sets that may go left: single categories, or the first ones in the order of their weights."""
        values = self.parts[party][:, column]
        many = len(self.setting.categories[party][column])
        if many < self.params.max_cat_to_onehot:
            return [(code,) for code in range(many)]
        here = sorted({int(values[row]) for row in rows if not math.isnan(values[row])})
        order = self._gradient_order({code: [row for row in rows if values[row] == code] for code in here})
        most = self.params.max_cat_threshold
        sizes = (size for size in range(1, len(order) + 1) if min(size, len(order) - size) <= most)
        return [tuple(sorted(order[:size])) for size in sizes]

    def _gradient_order(self, rows_of: dict[int, list[int]]) -> list[int]:
        """Order categories by their weights; where these are vectors, by their projection on the first direction.

        Ascending or descending: the lowest category precedes the next one of another weight.
        """
        sums = {code: self.numbers.sums(rows, self.repeats) for code, rows in rows_of.items()}
        weights = {code: self._weights(each, OPEN) for code, each in sums.items()}
        if len(next(iter(weights.values()), [0.0])) == 1:
            return _from_lowest({code: weights[code][0] for code in rows_of}) if rows_of else []
        masses = {code: sum(h for _, h in self._real(each)) for code, each in sums.items()}
        direction = first_direction([weights[code] for code in rows_of], [masses[code] for code in rows_of])
        return _from_lowest({code: float(np.dot(weights[code], direction)) for code in rows_of})

    def _judge(self, split: Split, rows: list[int], bounds: Bounds) -> Found | None:
        """Return a candidate with its gain, or None where it is not valid or gains nothing."""
        params, values = self.params, self.parts[split.party][:, split.column]
        left = [row for row in rows if split.left(float(values[row]))]
        right = [row for row in rows if not split.left(float(values[row]))]
        one, other = self.numbers.sums(left, self.repeats), self.numbers.sums(right, self.repeats)
        if min(one.count, other.count) < max(1, params.min_rows):
            return None
        for hessians in (self._hessians(one), self._hessians(other)):
            if sum(hessians) < params.min_child_weight * len(hessians):
                return None
        gain = gain_of(self._real(one), self._real(other), self.lam, bounds)
        if gain is None:
            return None
        weights = (self._weights(one, bounds)[0], self._weights(other, bounds)[0])
        direction = self.setting.monotone.get(split.party, {}).get(split.column, 0)
        if direction * (weights[1] - weights[0]) < 0:
            return None
        return Found(split, gain - params.gamma, weights)
