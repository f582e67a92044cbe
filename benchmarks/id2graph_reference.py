"""Trees and views of Table 2 of the ID2Graph paper beside a slow reference, and its figures under other readings.

Usage: LABELWARD_DATA=DIR python benchmarks/id2graph_reference.py --work DIR [--data fars phishing] [--json FILE]

The reference grows the trees of a training again, on the joined table, one column of a node after the other, by plain
sums, and works out which nodes the passive party knows. It shares no code with the protocol, its kernels and the
attacks: Louvain's method is igraph's, k-means scikit-learn's. With the choices of the study its splits and nodes are
compared with the stored view, tree by tree. Then one choice at a time is another one:

- ``percentiles``: candidates of boosted trees are plain percentiles of a node, so that a value of fewer than 1/32 of
  its rows may have none; the study closes bins at runs of equal values, and takes all values of 32 at most.
- ``below``: plain percentiles, and a row goes left where its value is below the threshold, as in Algorithm 1.
- ``doubled``: hessians 2p(1 - p) of several classes.
- ``draws N``: rows and columns of each tree are drawn anew, five times; the parties' rows and columns stay the seed's.
- ``percentiles, draws N``: plain percentiles, and the columns of each boosted tree drawn anew, twenty times.
- ``sample only``: rows out of a tree's sample lie in no leaf of it.
- ``no subtraction``: a pure leaf beside a node that was shared is unknown.
- ``no subtraction, draws N``: the same, with rows and columns of a forest drawn anew, five times.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import igraph
import numpy as np
import pandas as pd
from _rows import StoredRows
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import KMeans
from sklearn.metrics import v_measure_score
from tree_leakage import job_of

from labelward.attacks.instance_spaces import drawn_columns, observed_trees
from labelward.auditing.audit import audit
from labelward.messages.tree import TreeStart
from labelward.party.view import View
from labelward.rng import column_sample
from labelward.runs.schema import read_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DEPTH, TREES, BINS, RATE, LAMBDA, SHARE = 6, 5, 32, 0.3, 1.0, 0.8
TIED = 1e-9  # gains of one partition by two columns differ by rounding only
PARTIES = ("active", "telco")
ROWS = 20_000  # the graph is a matrix here, which larger tables do without


@dataclass(frozen=True)
class Choices:
    """What the paper leaves open."""

    candidates: str = "runs"
    doubled: bool = False
    draws: int | None = None
    subtracts: bool = True
    routes: bool = True


@dataclass
class Grown:
    """A tree: splits by node, as party, column and threshold; rows of every node."""

    splits: dict[int, tuple[str, str, float]] = field(default_factory=dict)
    rows: dict[int, Ints] = field(default_factory=dict)


class Table:
    """The joined training rows: the columns of each party, their values by rank, and classes from 0."""

    def __init__(self, folder: Path, seed: int) -> None:
        tables = {each: pd.read_parquet(folder / "data" / str(seed) / f"{each}.parquet") for each in PARTIES}
        labels = pd.read_parquet(folder / "data" / str(seed) / "truth.parquet")["label"]
        self.y: Ints = np.unique(labels, return_inverse=True)[1].astype(np.int64)
        self.classes = int(self.y.max()) + 1
        self.names = {each: [name for name in table.columns if name != "id"] for each, table in tables.items()}
        self.values: dict[str, dict[str, Floats]] = {}
        self.ranks: dict[str, dict[str, Ints]] = {}
        for party, names in self.names.items():
            columns = {name: tables[party][name].to_numpy(np.float64) for name in names}
            pairs = {name: np.unique(column, return_inverse=True) for name, column in columns.items()}
            self.values[party] = {name: pair[0] for name, pair in pairs.items()}
            self.ranks[party] = {name: pair[1].astype(np.int64) for name, pair in pairs.items()}


# -- growing -----------------------------------------------------------------------------------------------------------


def candidates(counts: Ints, form: str) -> Ints:
    """Return the ranks r whose candidate sends ranks up to r to the left; ``counts`` are rows by rank."""
    below = np.cumsum(counts)
    total, there = int(below[-1]), np.flatnonzero(counts)
    if form == "all" or total <= BINS or (form == "runs" and len(there) <= BINS):
        return there[:-1]
    if form == "runs":
        return np.array(list(_ends_of_runs(below, there)), dtype=np.int64)
    wanted = np.ceil(np.arange(1, BINS) * total / BINS)
    at = np.unique(np.searchsorted(below, wanted))
    if form == "below":
        at = np.array([there[there < one][-1] for one in at if (there < one).any()], dtype=np.int64)
    return np.unique(at[at < there[-1]])


def _ends_of_runs(below: Ints, there: Ints) -> Iterator[int]:
    """Yield ends of bins: each the end of the run of equal values nearest to an even share of the rows still left."""
    total, start = int(below[-1]), 0
    for closed in range(BINS - 1):
        target = start + max(1, int((total - start) / (BINS - closed) + 0.5))
        rank = int(np.searchsorted(below, min(target, total)))
        end, begin = int(below[rank]), int(below[rank - 1]) if rank else 0
        if begin > start and target - begin < end - target:
            rank = int(there[there < rank][-1])
            end = begin
        if end >= total:
            return
        yield rank
        start = end


def best_split(
    table: Table, rows: Ints, drawn: dict[str, list[str]], g: Floats, h: Floats, lam: float, form: str
) -> tuple[float, str, str, int] | None:
    """Return gain, party, column and rank of the best candidate of a node; of equal ones the first."""
    best: tuple[float, str, str, int] | None = None
    both = [np.ascontiguousarray(each[rows].T) for each in (g, h)]
    parent = _score(both[0].sum(axis=1), both[1].sum(axis=1), lam)
    for party in PARTIES:
        for name in drawn[party]:
            ranks = table.ranks[party][name][rows]
            at = candidates(np.bincount(ranks), form)
            if not len(at):
                continue
            sums = [np.cumsum([np.bincount(ranks, one) for one in own], axis=1).T for own in both]
            (g_left, h_left), (g_all, h_all) = (each[at] for each in sums), (each[-1] for each in sums)
            gains = _score(g_left, h_left, lam) + _score(g_all - g_left, h_all - h_left, lam) - parent
            first = int(np.flatnonzero(gains >= gains.max() - TIED * abs(parent))[0])
            gain = float(gains[first])
            if gain > TIED * abs(parent) and (best is None or gain > best[0] + TIED * abs(parent)):
                best = (gain, party, name, int(at[first]))
    return best


def _score(g: Floats, h: Floats, lam: float) -> Any:
    return (g**2 / (h + lam)).sum(axis=-1)


def grow(table: Table, rows: Ints, drawn: dict[str, list[str]], g: Floats, h: Floats, lam: float, form: str) -> Grown:
    """Return a tree, grown until its nodes are pure or as deep as may be."""
    tree = Grown(rows={0: rows})
    for node in range(2**DEPTH - 1):
        mine = tree.rows.get(node)
        if mine is None or len(np.unique(table.y[mine])) < 2:
            continue
        best = best_split(table, mine, drawn, g, h, lam, form)
        if best is not None:
            _, party, name, rank = best
            tree.splits[node] = (party, name, float(table.values[party][name][rank]))
            left = table.ranks[party][name][mine] <= rank
            tree.rows[2 * node + 1], tree.rows[2 * node + 2] = mine[left], mine[~left]
    return tree


def forest(table: Table, sampled: Callable[[int], Ints], drawn: list[dict[str, list[str]]]) -> list[Grown]:
    """Return trees by the Gini index, of every value."""
    counts = np.eye(table.classes)[table.y]
    ones = np.ones((len(table.y), 1))
    return [grow(table, sampled(tree), drawn[tree], counts, ones, 0.0, "all") for tree in range(TREES)]


def boosted(table: Table, drawn: list[dict[str, list[str]]], choices: Choices) -> list[Grown]:
    """Return boosted trees; of two classes with one output, of several with one for each."""
    rows, binary = np.arange(len(table.y)), table.classes == 2
    margins = np.zeros((len(rows), 1 if binary else table.classes))
    truth = table.y[:, None].astype(float) if binary else np.eye(table.classes)[table.y]
    trees = []
    for tree in range(TREES):
        powers = np.exp(margins - margins.max(axis=1, keepdims=True))
        p = 1 / (1 + np.exp(-margins)) if binary else powers / powers.sum(axis=1, keepdims=True)
        g, h = p - truth, p * (1 - p) * (2 if choices.doubled and not binary else 1)
        grown = grow(table, rows, drawn[tree], g, h, LAMBDA, choices.candidates)
        for node in grown.rows.keys() - grown.splits.keys():
            mine = grown.rows[node]
            margins[mine] -= RATE * g[mine].sum(axis=0) / (h[mine].sum(axis=0) + LAMBDA)
        trees.append(grown)
    return trees


# -- what the passive party knows --------------------------------------------------------------------------------------


def known(table: Table, tree: Grown) -> dict[int, Ints]:
    """Return the rows of the nodes that the passive party knows: its own splits', and those that it may split.

    It is told both children of another's split where one of them is neither pure nor as deep as may be.
    """
    found = {0: tree.rows[0]}
    for node, (party, *_) in sorted(tree.splits.items()):
        pair = (2 * node + 1, 2 * node + 2)
        told = node < 2 ** (DEPTH - 1) - 1 and any(len(np.unique(table.y[tree.rows[each]])) > 1 for each in pair)
        if node in found and (party == PARTIES[1] or told):
            found |= {each: tree.rows[each] for each in pair}
    return found


def leaves_of(table: Table, trees: list[Grown], choices: Choices) -> Ints:
    """Return the finest known node of each row [trees, rows]; rows out of a sample follow the party's own splits."""
    found = np.full((len(trees), len(table.y)), -1, dtype=np.int64)
    for leaf, tree in zip(found, trees, strict=True):
        nodes = known(table, tree)
        for node in sorted(nodes):
            leaf[nodes[node]] = node
        if choices.routes:
            _route(table, tree, nodes, np.flatnonzero(leaf < 0), leaf)
        if not choices.subtracts:
            others = [node for node, (party, *_) in tree.splits.items() if party == PARTIES[0]]
            beside = [each for node in others for each in (2 * node + 1, 2 * node + 2) if each in nodes]
            leaf[np.isin(leaf, [each for each in beside if len(np.unique(table.y[tree.rows[each]])) < 2])] = -1
    return found


def _route(table: Table, tree: Grown, nodes: dict[int, Ints], others: Ints, leaf: Ints) -> None:
    waiting = {0: others}
    while waiting:
        node, rows = waiting.popitem()
        if node in tree.splits and tree.splits[node][0] == PARTIES[1] and len(rows):
            _, name, threshold = tree.splits[node]
            left = table.values[PARTIES[1]][name][table.ranks[PARTIES[1]][name][rows]] <= threshold
            waiting |= {2 * node + 1: rows[left], 2 * node + 2: rows[~left]}
        elif node and 2 * node + 1 not in nodes:
            leaf[rows] = node


def union(leaves: Ints) -> Ints:
    """Return the connected parts of rows that share a leaf."""
    rows = leaves.shape[1]
    places, links = [], []
    for tree, leaf in enumerate(leaves):
        inside = np.flatnonzero(leaf >= 0)
        places.append(inside)
        links.append(rows + tree * 2 ** (DEPTH + 1) + leaf[inside])
    left, right = np.concatenate(places), np.concatenate(links)
    size = rows + len(leaves) * 2 ** (DEPTH + 1)
    graph = coo_matrix((np.ones(len(left)), (left, right)), shape=(size, size))
    found: Ints = connected_components(graph, directed=False)[1][:rows].astype(np.int64)
    return found


def communities(leaves: Ints, eta: float, seed: int, starts: int = 5) -> Ints:
    """Return Louvain's communities on rows merged by their leaves: the best modularity of several starts."""
    kinds, of_row, sizes = np.unique(leaves, axis=1, return_inverse=True, return_counts=True)
    strength = np.zeros((len(sizes), len(sizes)))
    for tree, leaf in enumerate(kinds):
        strength += eta**tree * ((leaf[:, None] == leaf[None]) & (leaf >= 0)[:, None])
    strength *= np.outer(sizes, sizes)
    np.fill_diagonal(strength, np.diag(strength) * (sizes - 1) / sizes / 2)
    left, right = np.nonzero(np.triu(strength))
    rng = np.random.default_rng(seed)
    best: tuple[float, Ints] | None = None
    for _ in range(starts):
        order = rng.permutation(len(sizes))
        edges = list(zip(order[left].tolist(), order[right].tolist(), strict=True))
        graph = igraph.Graph(n=len(sizes), edges=edges)
        parts = graph.community_multilevel(weights=strength[left, right].tolist())
        if best is None or parts.modularity > best[0]:
            best = (parts.modularity, np.array(parts.membership)[order])
    assert best is not None
    return best[1][of_row.reshape(-1)]


def clustered(table: Table, community: Ints, seed: int, alpha: float = 3.0) -> Ints:
    """Return k-means of the party's own columns, scaled to [0, 1], and of its communities."""
    own = np.stack([table.values[PARTIES[1]][n][table.ranks[PARTIES[1]][n]] for n in table.names[PARTIES[1]]], axis=1)
    reach = own.max(axis=0) - own.min(axis=0)
    own = (own - own.min(axis=0)) / np.where(reach > 0, reach, 1)
    block = np.hstack([own, alpha * np.eye(community.max() + 1)[community]])
    found: Ints = KMeans(table.classes, n_init=10, random_state=seed).fit_predict(block).astype(np.int64)
    return found


# -- comparisons -------------------------------------------------------------------------------------------------------


def same_trees(view: View, table: Table, trees: list[Grown]) -> dict[str, int]:
    """Return how many nodes known from the view and own splits are those of the reference, and how many there are."""
    counts = dict.fromkeys(("nodes", "same_nodes", "splits", "same_splits"), 0)
    for observed, tree in zip(observed_trees(view), trees, strict=True):
        nodes = known(table, tree)
        counts["nodes"] += len(nodes.keys() | observed.nodes.keys())
        counts["same_nodes"] += sum(
            np.array_equal(rows, observed.nodes[node]) for node, rows in nodes.items() if node in observed.nodes
        )
        mine = {node: split[1:] for node, split in tree.splits.items() if split[0] == PARTIES[1]}
        stored = {node: (split.column, split.threshold) for node, split in observed.mine.items()}
        counts["splits"] += len(mine.keys() | stored.keys())
        counts["same_splits"] += sum(mine[node] == stored[node] for node in mine.keys() & stored.keys())
    return counts


def samples(view: View) -> Callable[[int], Ints]:
    """Return the rows drawn for a tree, as the view tells them."""
    starts = {each.message.tree: each.message.rows.value for each in view.received(TreeStart)}
    return lambda tree: np.flatnonzero(starts[tree].unpack(view.rows))


def own_draws(table: Table, rng: np.random.Generator) -> tuple[Callable[[int], Ints], list[dict[str, list[str]]]]:
    """Return rows and columns of each tree, drawn anew."""
    rows = [
        np.sort(rng.choice(len(table.y), int(SHARE * len(table.y)), replace=False)).astype(np.int64)
        for _ in range(TREES)
    ]
    columns = [
        {
            party: [names[at] for at in np.sort(rng.choice(len(names), int(SHARE * len(names)), replace=False))]
            for party, names in table.names.items()
        }
        for _ in range(TREES)
    ]
    return rows.__getitem__, columns


def figures(table: Table, trees: list[Grown], choices: Choices, eta: float, seed: int) -> dict[str, float]:
    """Return V-measures of both attacks, and how many parts the union has."""
    leaves = leaves_of(table, trees, choices)
    parts = union(leaves)
    found = {"union": float(v_measure_score(table.y, parts)), "parts": float(len(np.unique(parts)))}
    if len(table.y) <= ROWS:
        guess = clustered(table, communities(leaves, eta, seed), seed)
        found["id2graph"] = float(v_measure_score(table.y, guess))
    return {name: round(value, 3) for name, value in found.items()}


class Training:
    """One seed of one model: what is stored, and the reference of it."""

    def __init__(self, work: Path, data: str, model: str, seed: int) -> None:
        self.model, self.seed = model, seed
        folder = work / f"{data}-{model}-{seed}"
        job = job_of(data, model, seed, ("union", "id2graph"))
        audit(replace(job, defenses=()), folder, explained=False)
        self.stored: dict[str, Any] = {}
        for row in read_rows(folder):
            if row.attack and row.leakage:
                self.stored[row.attack["kind"]] = row.leakage["v_measure"]
        self.view = View.load(folder / "runs" / "none" / str(seed) / PARTIES[1] / "view")
        active = View.load(folder / "runs" / "none" / str(seed) / PARTIES[0] / "view")
        self.table = Table(folder, seed)
        pairs = zip(drawn_columns_of(active, self.table, seed), drawn_columns(self.view), strict=True)
        self.drawn = [dict(zip(PARTIES, pair, strict=True)) for pair in pairs]

    def trees(self, choices: Choices) -> list[Grown]:
        """Return the trees under some choices."""
        sampled, drawn = samples(self.view), self.drawn
        if choices.draws is not None:
            sampled, drawn = own_draws(self.table, np.random.default_rng((self.seed, choices.draws)))
        if self.model == "forest":
            return forest(self.table, sampled, drawn)
        return boosted(self.table, drawn, choices)

    def rows(self, choices: dict[str, Choices]) -> Iterator[dict[str, Any]]:
        """Yield what is stored and each reference's figures."""
        if "as stored" in choices:
            yield {"choice": "stored"} | {
                name.replace("-", "_"): round(value, 3) for name, value in self.stored.items()
            }
        eta = 1.0 if self.model == "forest" else 0.6
        for name, choice in choices.items():
            trees = self.trees(choice)
            found: dict[str, Any] = {"choice": name} | figures(self.table, trees, choice, eta, self.seed)
            yield found | (same_trees(self.view, self.table, trees) if name == "as stored" else {})


def drawn_columns_of(active: View, table: Table, seed: int) -> list[list[str]]:
    """Return the active party's columns of each tree."""
    names = table.names[PARTIES[0]]
    return [[names[at] for at in column_sample(seed, PARTIES[0], tree, len(names), SHARE)] for tree in range(TREES)]


def chosen(model: str) -> dict[str, Choices]:
    """Return the choices that a model is measured with."""
    draws = {f"draws {number}": Choices(draws=number) for number in range(1, 6)}
    draws["no subtraction"] = Choices(subtracts=False)
    if model == "forest":
        both = {f"no subtraction, draws {each}": Choices(subtracts=False, draws=each) for each in range(1, 6)}
        return {"as stored": Choices(), "sample only": Choices(routes=False)} | draws | both
    single = {"percentiles": Choices("percentiles"), "below": Choices("below"), "doubled": Choices(doubled=True)}
    both = {f"percentiles, draws {number}": Choices("percentiles", draws=number) for number in range(1, 21)}
    return {"as stored": Choices()} | single | draws | both


def main() -> None:
    """Run what is missing, and store and print a row for each choice and seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--data", nargs="*", default=["phishing", "fars"])
    parser.add_argument("--model", nargs="*", default=["secureboost", "forest"])
    parser.add_argument("--choice", nargs="*", help="only these; all unless given")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = StoredRows(given.json)
    done = {(row["data"], row["model"], row["seed"], row["choice"]) for row in found}
    for data, model, seed in product(given.data, given.model, range(1, given.seeds + 1)):
        missing = {name: each for name, each in chosen(model).items() if (data, model, seed, name) not in done}
        if given.choice:
            missing = {name: each for name, each in missing.items() if name in given.choice}
        if not missing:
            continue
        for row in Training(given.work, data, model, seed).rows(missing):
            found.add({"data": data, "model": model, "seed": seed} | row)


if __name__ == "__main__":
    main()
