"""Bin reconstruction: cells of passive parties' columns from the sums that the active party decrypts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, ColumnGuess
from labelward.errors import DataError, JobError
from labelward.kernels.node_rows import NodeRows, depth_of, parent, sibling
from labelward.kernels.split_search import CATEGORICAL
from labelward.kernels.subset_sums import visit
from labelward.messages.tree import DecryptedSums, InstanceSpaces, LevelHistograms
from labelward.parameters import NonNegativeInt
from labelward.party.view import View

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Keys = NDArray[np.uint64]
_MOST_CATEGORIES = 12  # whose sets are searched for the one that a split sends left


class _Level(NamedTuple):
    """A level of a tree, for one column; arguments of :func:`labelward.kernels.subset_sums.visit`.

    Attributes:
        slot: int32 [rows]: each row's node; -1: none.
        keys: uint64 [rows].
        times: int32 [rows].
        target: uint64 [nodes, bins + 1]: sums of keys, those of rows without a value last.
        counts: int64 [nodes, bins + 1].
        cell_of: int32 [nodes, bins + 1]: the bin at which the sums of a bin stand.
    """

    slot: NDArray[np.int32]
    keys: Keys
    times: NDArray[np.int32]
    target: Keys
    counts: Integers
    cell_of: NDArray[np.int32]


class _Sums(NamedTuple):
    """The sums of a column in a node.

    Attributes:
        values: int64 [bins, k].
        cell_of: int32 [bins]: the bin at which the sums of each bin stand.
        joined: whether those of rows without a value stand at bin 0.
        categorical: whether bins are categories.
    """

    values: Integers
    cell_of: NDArray[np.int32]
    joined: bool
    categorical: bool

    def minus(self, other: _Sums) -> _Sums:
        """Return the sums of the other child of this node."""
        whole = np.zeros_like(self.values)
        np.add.at(whole, other.cell_of, self.values)
        return other._replace(values=whole - other.values)


class _Side(NamedTuple):
    """Rows on one side of a split of a column, and the bins that lead there: bool [bins + 1]."""

    rows: NDArray[np.int32]
    bins: NDArray[np.bool_]


@dataclass
class _Column:
    """What the view tells of a column."""

    levels: list[_Level] = field(default_factory=list)
    sides: list[_Side] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class BinReconstruction(Attack):
    """Bins of passive parties' columns that follow from the decrypted sums of a tree model (by the active party).

    Setting: the curious active party. It knows each row's gradient and hessian, and the rows of each node, and decrypts
        the sums of each bin of each passive column in each node. A bin's rows are a subset with known sum and size; a
        row's bin is the same in all nodes and trees. Answers are those that hold in every assignment of rows to bins
        that gives the sums (:mod:`labelward.kernels.subset_sums`). Auxiliary knowledge: none.

    Rows that have the same labels and nodes in all trees cannot be told apart. Labels that a defense made noisy are not
    in the view: trees whose sums do not fit the true labels are left out, so that nothing is found under label
    differential privacy, though the active party knows its noise. Models that draw columns, and boosted models that
    draw rows, are refused.
    """

    kind: ClassVar[str] = "bin-reconstruction"
    primary: ClassVar[str] = "recovered"
    roles: ClassVar[tuple[str, ...]] = ("active",)
    target: ClassVar[Literal["labels", "columns"]] = "columns"
    models: ClassVar[tuple[str, ...]] = ("secureboost", "forest")

    pairs: Annotated[NonNegativeInt, Meta(description="Candidates up to which pairs of rows are searched.")] = 2000
    triples: Annotated[NonNegativeInt, Meta(description="Candidates up to which triples of rows are searched.")] = 300
    subsets: Annotated[int, Meta(ge=0, le=40, description="Candidates up to which all subsets are searched.")] = 20
    sweeps: Annotated[NonNegativeInt, Meta(description="Most passes over all trees.")] = 30

    def check_model(self, model: Mapping[str, Any]) -> None:
        """Refuse other models, bins that differ between nodes or trees, and gradients that cannot be repeated."""
        super().check_model(model)
        rows = model["kind"] != "forest" and (model.get("sampling") == "goss" or model.get("row_fraction", 1.0) < 1.0)
        for name, refused in (
            ("candidates", model.get("candidates") == "node"),
            ("feature_fraction", model.get("feature_fraction", 1.0) < 1.0),
            ("sampling" if model.get("sampling") == "goss" else "row_fraction", rows),
        ):
            if refused:
                reason = f"attack {self.kind!r} does not support {model[name]!r}"
                raise JobError(reason, code="unsupported", field=f"[model] {name}", value=model[name])

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> ColumnGuess:
        """Return the bins that are certain, and those of them that the splits reveal without the sums.

        Raises:
            DataError: ``own`` does not hold the view's rows.
        """
        if len(own.features) != view.rows:
            reason = f"the columns have {len(own.features)} rows, but the view has {view.rows}"
            raise DataError(reason, code="rows", value=len(own.features))
        rows = [] if own.encrypted_rows is None else list(own.encrypted_rows(view))
        cells, by_splits = {}, {}
        for peer in view.header.peers:
            found = _columns(view, peer, rows, rng)
            if found:
                solved = [self._solve(found[each], view.rows) for each in sorted(found)]
                cells[peer], by_splits[peer] = (np.stack(guesses, axis=1) for guesses in zip(*solved, strict=True))
        return ColumnGuess(cells=cells, by_splits=by_splits)

    def _solve(self, column: _Column, rows: int) -> tuple[Floats, Floats]:
        """Return float64 [rows] twice: the certain bins of a column, and those that its splits make certain."""
        levels = column.levels
        bins = levels[0].target.shape[1]
        filled = [np.take_along_axis(each.counts > 0, each.cell_of.astype(np.int64), axis=1) for each in levels]
        domains = _packed(np.tile(np.concatenate(filled).any(axis=0), (rows, 1)))
        for side in column.sides:
            domains[side.rows] &= _packed(side.bins[None])
        by_splits = _certain(domains, bins)
        searched = [np.zeros(level.target.shape, np.int32) for level in levels]
        limits = np.array([0, rows, self.pairs, self.triples, self.subsets], np.int64)
        for _ in range(self.sweeps):
            if not sum(visit(*level, domains, done, limits) for level, done in zip(levels, searched, strict=True)):
                break
        return _certain(domains, bins), by_splits


def _columns(view: View, peer: str, rows: list[tuple[Integers, int]], rng: np.random.Generator) -> dict[int, _Column]:
    """Return what the view tells of each of a peer's columns."""
    spaces, owners = _spaces(view)
    found: dict[int, _Column] = defaultdict(_Column)
    number = 0
    for sums in _sums(view, peer):
        while number < len(rows) and not _fits(sums, rows[number][0]):
            number += 1
        if number == len(rows):
            break
        own = frozenset(node for node, owner in owners[number].items() if owner == peer)
        _read_tree(found, sums, *rows[number], spaces[number], own, rng)
        number += 1
    return found


def _sums(view: View, peer: str) -> Iterator[dict[int, dict[int, _Sums]]]:
    """Yield for each tree in which a peer took part the sums of each node by column."""
    described: dict[tuple[int, int, tuple[int, ...]], LevelHistograms] = {}
    for received in view.received(LevelHistograms):
        if received.peer == peer:
            described[received.message.tree, received.message.depth, received.message.columns] = received.message
    trees: dict[int, dict[int, dict[int, _Sums]]] = defaultdict(lambda: defaultdict(dict))
    for part in view.observed(DecryptedSums):
        if part.party != peer:
            continue
        message = described[part.tree, part.depth, part.columns]
        values = part.sums.unpack().astype(np.int64).reshape(len(part.columns), len(part.nodes), part.bins, -1)
        starts = message.starts(len(part.nodes))
        starts = np.ones(values.shape[:3], np.bool_) if starts is None else starts
        cells = np.maximum.accumulate(np.where(starts, np.arange(part.bins, dtype=np.int32), 0), axis=2)
        for at, (column, size) in enumerate(zip(part.columns, message.sizes, strict=True)):
            categorical = bool(message.kinds) and message.kinds[at] == CATEGORICAL
            for position, node in enumerate(part.nodes):
                cell_of, joined = cells[at, position, :size].astype(np.int32), not starts[at, position, 0]
                own = _Sums(values[at, position, :size], cell_of, joined, categorical)
                trees[part.tree][node][column] = own
    for tree in sorted(trees):
        nodes = dict(trees[tree])
        for node in sorted(trees[tree], key=depth_of):
            above, other = parent(node), sibling(node)
            if node and other not in nodes and above in nodes:
                nodes[other] = {column: nodes[above][column].minus(sums) for column, sums in nodes[node].items()}
        yield nodes


def _spaces(view: View) -> tuple[dict[int, dict[int, NDArray[np.bool_]]], dict[int, dict[int, str]]]:
    """Return by tree and node which rows of the node go left, and who owns its split."""
    found: dict[int, dict[int, NDArray[np.bool_]]] = defaultdict(dict)
    owners: dict[int, dict[int, str]] = defaultdict(dict)
    for level in view.observed(InstanceSpaces):
        for split, owner in zip(level.splits, level.owners, strict=True):
            found[level.tree][split.node], owners[level.tree][split.node] = split.left.unpack(split.left.total), owner
    return found, owners


def _fits(sums: dict[int, dict[int, _Sums]], values: Integers) -> bool:
    """Return whether the sums at the root are of these rows: those of some column where no value is missing."""
    total = values.sum(axis=0)
    roots = [each.values for each in sums.get(0, {}).values()]
    return any(each.shape[1] == len(total) and not (total - each.sum(axis=0)).any() for each in roots)


def _read_tree(
    found: dict[int, _Column],
    sums: dict[int, dict[int, _Sums]],
    values: Integers,
    counted: int,
    spaces: dict[int, NDArray[np.bool_]],
    own: frozenset[int],
    rng: np.random.Generator,
) -> None:
    """Add the levels of a tree to each column, and the sides of its splits."""
    n, k = values.shape
    factors = rng.integers(1 << 63, size=(k,), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    keys, times = _hashed(values, factors), values[:, counted].astype(np.int32)
    nodes = NodeRows(n, np.flatnonzero(times))
    for depth in range(1 + max(map(depth_of, sums))):
        level = [node for node in sorted(sums) if depth_of(node) == depth and node in nodes]
        slot = np.full(n, -1, np.int32)
        for position, node in enumerate(level):
            slot[nodes.rows(node)] = position
        totals = {node: values[nodes.rows(node)].sum(axis=0) for node in level}
        for column in sums[level[0]] if level else ():
            every = np.stack([_with_missing(sums[node][column], totals[node]) for node in level])
            count, last = np.ascontiguousarray(every[..., counted]), every.shape[1] - 1
            own_cells = [sums[node][column] for node in level]
            cells = np.array([[*each.cell_of, 0 if each.joined else last] for each in own_cells], np.int32)
            found[column].levels.append(_Level(slot, keys, times, _hashed(every, factors), count, cells))
        for node in [node for node in spaces if depth_of(node) == depth and node in nodes]:
            rows = nodes.rows(node)
            left = spaces[node]
            if node in own and node in level:
                hashed = {
                    column: (each, _hashed(_with_missing(each, totals[node]), factors))
                    for column, each in sums[node].items()
                }
                chosen = _chosen(hashed, keys[rows[left]].sum(dtype=np.uint64))
                if chosen is not None:
                    column, bins = chosen
                    found[column].sides += [_Side(rows[left], bins), _Side(rows[~left], ~bins)]
            nodes.split(node, left)


def _chosen(sums: dict[int, tuple[_Sums, Keys]], left: np.uint64) -> tuple[int, NDArray[np.bool_]] | None:
    """Return the column of a split and the bins that it sends left, bool [bins + 1], by their sum; None: ambiguous."""
    found = []
    for column, (own, hashed) in sums.items():
        cells = np.append(own.cell_of, 0 if own.joined else len(own.cell_of))
        filled = np.flatnonzero(hashed[:-1])
        sets: list[NDArray[np.intp]] = []
        if own.categorical:
            if len(filled) > _MOST_CATEGORIES:
                return None
            for subset in range(1 << len(filled)):
                sets.append(filled[[bool(subset >> bit & 1) for bit in range(len(filled))]])
        else:
            sets = [filled[:cut] for cut in range(len(filled) + 1)]
        for each in sets:
            inside = np.isin(cells, each)
            if not own.categorical and len(each):
                inside[:-1] = cells[:-1] <= each[-1]  # empty bins below a filled one, too
            total = hashed[each].sum(dtype=np.uint64)
            if total == left:
                found.append((column, inside))
            elif hashed[-1] and total + hashed[-1] == left:
                inside[-1] = True
                found.append((column, inside))
    return found[0] if len(found) == 1 else None


def _with_missing(sums: _Sums, total: Integers) -> Integers:
    """Return int64 [bins + 1, k]: the sums of bins, and those of rows without a value where these stand apart."""
    found = np.concatenate([sums.values, (total - sums.values.sum(axis=0))[None]])
    if sums.joined:
        found[0] += found[-1]
        found[-1] = 0
    return found


def _packed(bins: NDArray[np.bool_]) -> Keys:
    """Return uint64 [rows, words] of bool [rows, bins]."""
    words = (bins.shape[1] + 63) // 64
    wide = np.zeros((len(bins), 64 * words), np.bool_)
    wide[:, : bins.shape[1]] = bins
    packed: Keys = np.packbits(wide, axis=1, bitorder="little").view(np.uint64)
    return packed


def _certain(domains: Keys, bins: int) -> Floats:
    """Return float64 [rows]: the bin of a row whose domain has one only, -1 for the last (no value); NaN: several."""
    bits = np.unpackbits(domains.view(np.uint8), axis=1, bitorder="little")
    certain: Floats = bits.argmax(axis=1).astype(np.float64)
    certain[certain == bins - 1] = -1.0
    certain[bits.sum(axis=1) != 1] = np.nan
    return certain


def _hashed(values: Integers, factors: Keys) -> Keys:
    hashed: Keys = (values.astype(np.uint64) * factors).sum(axis=-1, dtype=np.uint64)
    return hashed
