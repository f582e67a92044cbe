"""What a training will take: seconds by party and phase, bytes, memory; and what it takes between companies.

Phases are named as those that a run measures of itself, so that both can stand side by side. Each is what it takes when
its party alone uses the machine. In a rehearsal the parties share it, and phases add up: nothing is won by the one
waiting for the other. Between companies each party has a machine like this one, and works while the others do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labelward.errors import JobError
from labelward.evaluate.costs.dry import Dry
from labelward.evaluate.costs.expected import Between, Estimate
from labelward.evaluate.costs.units import UnitCosts
from labelward.evaluate.costs.work import ROWS, PartyWork, Run
from labelward.protocols.secureboost.row_encoding import BLOCK_ROWS

__all__ = ["Line", "between", "estimate"]

_PROCESS = 180_000_000
"""Bytes of an interpreter with its libraries."""
_TABLES = 50_000_000
"""Bytes of the tables of powers of one base, about."""
_PREPARED = 1.25
"""Bytes of a ciphertext ready for sums, in those that travel."""
_MOST = 1e9
"""Of what is said of a line: beyond that it is no line."""
_GONE_OVER = 2.0
"""How often a passive party goes over rows × columns that it sums: it counts the rows of each cell, and groups them."""
_GROUPED = 16_777_216
"""Entries of groups that a message is summed by, at most."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """What lies between two companies.

    Attributes:
        bandwidth: million bits a second, each way, at least 0.001.
        latency: milliseconds there and back.

    Raises:
        JobError: a number that is none of these.
    """

    bandwidth: float
    latency: float

    def __post_init__(self) -> None:
        for name, value, least in (("bandwidth", self.bandwidth, 0.001), ("latency", self.latency, 0.0)):
            if not least <= value <= _MOST:
                raise JobError(
                    f"must lie between {least:g} and {_MOST:g} but got {value!r}",
                    code="range",
                    field=f"--{name}",
                    value=value,
                )


def estimate(
    works: Mapping[str, PartyWork],
    run: Run,
    dry: Dry,
    costs: UnitCosts,
    *,
    meter: float = 0.0,
    limit: int | None = None,
) -> Estimate:
    """Return what work takes by unit costs.

    Args:
        meter: seconds of the leakage meter.
        limit: bytes of prepared rows that are held in memory; None for no limit.
    """
    phases = {name: _phases(name, works, run, dry, costs) for name in works}
    if meter:
        phases[run.active]["leakage meter"] = meter
    sent = {name: int(each.bytes) for name, each in works.items()}
    rows = sum(each.prepared for each in works.values())
    return Estimate(
        seconds=sum(sum(each.values()) for each in phases.values()),
        phases=phases,
        bytes=sent,
        messages=round(sum(flow.messages for each in works.values() for flow in each.flows.values())),
        encryptions=round(works[run.active].encryptions),
        additions=round(sum(each.additions for each in works.values())),
        decryptions=round(works[run.active].opened),
        ciphertexts=round(rows + works[run.active].opened),
        memory={name: int(_memory(name, run, limit)) for name in works},
        kernel=costs.kernel,
    )


def _phases(name: str, works: Mapping[str, PartyWork], run: Run, dry: Dry, costs: UnitCosts) -> dict[str, float]:
    mine, spent, trees = works[name], dry.seconds, len(dry.trees)
    every = max(1, sum(tree.every for tree in dry.trees))
    histogram = spent.get("own sums", 0.0) / every
    share = run.columns[name] / max(1, sum(run.columns.values()))
    found = {"binning": spent.get("binning", 0.0) * dry.scale * share}
    if name != run.active:
        return found | {
            "prepare rows": mine.prepared * costs.prepare,
            "aggregate": mine.seals * costs.sum_message + mine.effort * costs.add + _GONE_OVER * mine.own * histogram,
            "seal": mine.seals * costs.seal_message + mine.sums * costs.seal + costs.public_tables * bool(mine.seals),
        }
    travelled = sum(each.bytes for each in works.values())
    return {
        "key": costs.key,
        **found,
        "encrypt": mine.encryptions * costs.encrypt + costs.owner_tables * bool(mine.encryptions),
        "own sums": mine.own * histogram,
        "decrypt": mine.openings * costs.open_message + mine.opened * costs.decrypt,
        "choose": spent.get("choose", 0.0) / trees * run.trees,
        "other": spent["rest"] * dry.scale / trees * run.trees + travelled * costs.travel,
    }


def _memory(name: str, run: Run, limit: int | None) -> float:
    """Return bytes of a party at its peak: columns as numbers and as codes, tables, ciphertexts."""
    rows, columns, form = run.rows, run.columns[name], run.form
    held = _PROCESS + 8 * (rows + run.test + run.route) * columns + rows * columns
    whole = rows * form.parts * form.size
    block = min(rows, BLOCK_ROWS) * form.parts * form.size
    tables = _TABLES if form.engine == "paillier" else 0
    if name == run.active:
        return held + 2 * tables + 4 * block + 8 * rows * (2 * len(form.layout.bounds) + 6)
    prepared = whole * (_PREPARED if tables else 1.0)
    kept = prepared if limit is None else min(prepared, limit)
    return held + tables + 2 * block + kept + 12 * min(rows * columns, _GROUPED)


def between(found: Estimate, works: Mapping[str, PartyWork], run: Run, line: Line) -> Between:
    """Return what the same training takes between companies.

    Passive parties work side by side where they take part in the same trees, and one after the other where each tree is
    one party's. The active party sums its own columns meanwhile where all may own the splits of a level.
    """
    together, meanwhile = (sum if run.mode == "mixed" else max), (max if run.mode == "standard" else sum)
    rate = line.bandwidth * 1e6 / 8
    peers = [name for name in works if name != run.active]
    phases = found.phases
    rows = sum(flow.bytes for (_, kind), flow in works[run.active].flows.items() if kind in ROWS)
    others = sum(each.bytes for each in works.values()) - rows
    turns = together([works[name].turns for name in peers] or [0.0])
    active = phases[run.active]
    prepared = together([phases[name]["prepare rows"] for name in peers] or [0.0])
    stream = max(active["encrypt"], prepared, rows / rate)
    summed = together([phases[name]["aggregate"] + phases[name]["seal"] for name in peers] or [0.0])
    levels = meanwhile((summed, active["own sums"]))
    binning = max(each["binning"] for each in phases.values())
    rest = sum(active[phase] for phase in active if phase not in ("encrypt", "own sums", "binning"))
    waiting = turns * line.latency / 1000
    return Between(
        bandwidth=line.bandwidth,
        latency=line.latency,
        seconds=stream + levels + binning + rest + others / rate + waiting,
        own={name: sum(each.values()) for name, each in phases.items()},
        line=(rows + others) / rate,
        waiting=waiting,
        turns=round(turns),
    )
