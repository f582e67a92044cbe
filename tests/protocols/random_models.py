"""Random models without training, spread over parties, and a slow walker that is obviously right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.federation.session import FederationSession, Participant, run_session
from labelward.kernels.binning import EVERYTHING
from labelward.party.context import Context
from labelward.party.handshake import Agreement, RowMasks
from labelward.party.view import View
from labelward.protocols.secureboost.family import TreeFamily
from labelward.protocols.secureboost.share import ModelShare, Records, TreeShape

Floats = NDArray[np.float64]


@dataclass
class Model:
    """Shares by party, the active party's first; ``kinds``: by party for each column its categories, 0 if ordered."""

    shares: dict[str, ModelShare]
    kinds: dict[str, list[int]]

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(self.shares)

    @property
    def active(self) -> ModelShare:
        return self.shares[self.parties[0]]

    def table(self, rng: np.random.Generator, rows: int, *, unknown: bool = True) -> dict[str, Floats]:
        """Draw each party's columns: values of one digit, as half of the thresholds are; some missing or unknown."""
        return {party: _table(rng, rows, kinds, unknown=unknown) for party, kinds in self.kinds.items()}

    def leaf(self, tree: TreeShape, row: Mapping[str, Floats]) -> int:
        """Return the position of the leaf that one row reaches; ``row``: each party's values."""
        node = 0
        while node not in tree.leaves:
            split = tree.nodes.index(node)
            party = self.parties[tree.owners[split]]
            own, record = self.shares[party].own, tree.records[split]
            value = row[party][own.columns[record]]
            if np.isnan(value) or (record in own.categories and value < 0):
                left = record in own.missing_left
            elif record in own.categories:
                left = value in own.categories[record]
            else:
                left = value <= own.thresholds[record]
            node = 2 * node + (1 if left else 2)
        return tree.leaves.index(node)

    def leaves(self, table: Mapping[str, Floats]) -> NDArray[np.int32]:
        rows = len(next(iter(table.values())))
        each = [{party: x[row] for party, x in table.items()} for row in range(rows)]
        found = [self.leaf(tree, row) for row in each for tree in self.active.trees]
        return np.array(found, np.int32).reshape(rows, len(self.active.trees))

    def margins(self, table: Mapping[str, Floats]) -> Floats:
        """Return float64 [rows, outputs]."""
        share, leaves = self.active, self.leaves(table)
        sums = np.zeros((len(leaves), share.outputs))
        for number, tree in enumerate(share.trees):
            weights = np.array(tree.weights).reshape(len(tree.leaves), -1)[leaves[:, number]]
            if tree.output < 0:
                sums += weights
            else:
                sums[:, tree.output] += weights[:, 0]
        return np.asarray(share.base) + (sums / max(1, len(share.trees)) if share.kind == "forest" else sums)


def _table(rng: np.random.Generator, rows: int, kinds: list[int], *, unknown: bool) -> Floats:
    x = np.empty((rows, len(kinds)))
    for column, size in enumerate(kinds):
        drawn = rng.integers(0 - unknown, size, rows) if size else rng.normal(size=rows).round(1)
        x[:, column] = drawn
        x[rng.random(rows) < 0.15, column] = np.nan
    return x


def make_model(
    seed: int,
    *,
    parties: Mapping[str, int] | None = None,
    trees: int = 4,
    depth: int = 4,
    outputs: int = 1,
    each_output: bool = False,
    kind: str = "secureboost",
    objective: str = "binary:logistic",
    categories: bool = True,
    base: tuple[float, ...] | None = None,
    fill: float = 0.8,
) -> Model:
    """Draw a model; ``parties``: number of columns of each; ``fill``: chance that a node above the depth is split."""
    rng = np.random.default_rng(seed)
    widths = {"bank": 3, "telco": 2, "shop": 3} if parties is None else dict(parties)
    kinds = {
        party: [int(rng.choice((0, 0, 3, 7))) if categories else 0 for _ in range(n)] for party, n in widths.items()
    }
    drawn: dict[str, list[tuple[int, float, bool, tuple[int, ...] | None]]] = {party: [] for party in widths}
    shapes = []
    for number in range(trees):
        nodes, owners, records, leaves = [], [], [], []
        waiting = [0]
        while waiting:
            node = waiting.pop(0)
            if (node + 1).bit_length() > depth or rng.random() > fill:
                leaves.append(node)
                continue
            owner = int(rng.choice([i for i, width in enumerate(widths.values()) if width]))
            party = list(widths)[owner]
            nodes.append(node)
            owners.append(owner)
            records.append(len(drawn[party]))
            drawn[party].append(_record(rng, kinds[party]))
            waiting += [2 * node + 1, 2 * node + 2]
        output = number % outputs if each_output else -1
        weights = rng.normal(size=len(leaves) * (1 if each_output else outputs))
        covers = rng.integers(1, 100, len(nodes) + len(leaves)).astype(float)
        shapes.append(
            TreeShape(
                tuple(nodes), tuple(owners), tuple(records), tuple(leaves), tuple(weights.tolist()), output,
                tuple(rng.random(len(nodes)).tolist()), tuple(covers.tolist()),
            )
        )  # fmt: skip
    shares = {}
    for party, width in widths.items():
        here = drawn[party]
        active = party == next(iter(widths))
        own = Records(
            tuple(record[0] for record in here),
            tuple(record[1] for record in here),
            tuple(number for number, record in enumerate(here) if record[2]),
            {number: record[3] for number, record in enumerate(here) if record[3] is not None},
        )
        names = tuple(f"{party}_{column}" for column in range(width))
        shares[party] = ModelShare(
            kind=kind,  # type: ignore[arg-type]
            model="model",
            party=party,
            parties=tuple(widths),
            columns=names,
            own=own,
            trees=tuple(shapes) if active else (),
            classes=tuple(f"class {c}" for c in range(max(2, outputs))) if active else (),
            objective=objective,
            base=(base or (0.0,) * outputs) if active else (0.0,),
            categories={names[c]: tuple(f"v{v}" for v in range(size)) for c, size in enumerate(kinds[party]) if size},
        )
    return Model(shares, kinds)


def _record(rng: np.random.Generator, kinds: list[int]) -> tuple[int, float, bool, tuple[int, ...] | None]:
    column, missing_left = int(rng.integers(len(kinds))), bool(rng.random() < 0.5)
    size = kinds[column]
    if size:
        chosen = np.flatnonzero(rng.random(size) < 0.5).tolist() or [int(rng.integers(size))]
        return column, 0.0, missing_left, tuple(chosen)
    place = rng.random()
    threshold = EVERYTHING if place < 0.08 else float(rng.normal())
    return column, round(threshold, 1) if place < 0.5 else threshold, missing_left, None


def converse(
    model: Model, lead: Callable[[Context], Any], follow: Callable[[Context], Any]
) -> tuple[dict[str, Any], dict[str, View]]:
    """Run the active party's program against the passive parties'; returns what each returned, and the views."""
    topology = TreeFamily().topology(model.parties, model.parties[:1])
    session = FederationSession(topology=topology, masks=RowMasks.in_order(0, 0, 0), engine="plain", compared=False)

    def program(ctx: Context, agreed: Agreement) -> Any:
        return (lead if ctx.party == session.coordinator else follow)(ctx)

    sides = {party: Participant(program=program, timeout=30.0) for party in model.parties}
    out = run_session(session, sides)
    return {party: each.result for party, each in out.items()}, {party: each.view for party, each in out.items()}
