"""From operations to seconds, bytes and memory, in one process and between companies.

Phases are named as those that a run measures of itself, so that both can be compared. Each is the time of a party that
has the machine to itself. In a simulation the parties share it, and phases add up: nobody gains while another waits.
Between companies each party has a machine like this one and works while the others do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labelward.errors import JobError
from labelward.planning.dry_run import DryRun
from labelward.planning.operation_counts import ROW_MESSAGES, OperationCounts, RunShape
from labelward.planning.unit_costs import UnitCosts
from labelward.protocols.secureboost.row_encoding import BLOCK_ROWS
from labelward.runs.estimate import DeploymentEstimate, Estimate

_PROCESS = 180_000_000
"""Bytes of an interpreter with its libraries."""
_MAX_LINK = 1e9
"""Largest bandwidth and latency."""
_GROUPED = 16_777_216
"""Group numbers of a message of sums, at most."""


@dataclass(frozen=True, kw_only=True)
class NetworkLink:
    """The network between two companies.

    Raises:
        JobError: a value out of range.
    """

    bandwidth: float  # million bits per second, each way, at least 0.001
    latency: float  # round-trip time in milliseconds

    def __post_init__(self) -> None:
        for name, value, least in (("bandwidth", self.bandwidth, 0.001), ("latency", self.latency, 0.0)):
            if not least <= value <= _MAX_LINK:
                reason = f"must be between {least:g} and {_MAX_LINK:g} but got {value!r}"
                raise JobError(reason, code="range", field=f"--{name}", value=value)


def estimate(
    works: Mapping[str, OperationCounts],
    shape: RunShape,
    dry: DryRun,
    costs: UnitCosts,
    *,
    monitor: float = 0.0,
    limit: int | None = None,
) -> Estimate:
    """Return the costs of a training.

    Args:
        dry: its dry run, for the time of what is not encrypted.
        limit: bytes of prepared rows that are held in memory; None for no limit.
    """
    phases = {name: _phases(name, works, shape, dry, costs) for name in works}
    if monitor:
        phases[shape.active]["leakage meter"] = monitor
    active = works[shape.active]
    return Estimate(
        seconds=sum(sum(each.values()) for each in phases.values()),
        phases=phases,
        bytes={name: int(each.bytes) for name, each in works.items()},
        messages=round(sum(flow.messages for each in works.values() for flow in each.flows.values())),
        encryptions=round(active.encryptions),
        additions=round(sum(each.additions for each in works.values())),
        decryptions=round(active.opened),
        ciphertexts=round(sum(each.prepared for each in works.values()) + active.opened),
        memory={name: int(_memory(name, shape, limit)) for name in works},
        kernel=costs.kernel,
    )


def _phases(
    name: str, works: Mapping[str, OperationCounts], shape: RunShape, dry: DryRun, costs: UnitCosts
) -> dict[str, float]:
    """Return a party's seconds by phase: of the engine by unit costs, of all else as the dry run took."""
    own, spent, scale = works[name], dry.parties[name].seconds, dry.scale
    active = name == shape.active
    trees = shape.rounds if active else shape.takes_part[name]
    found = {"binning": spent.get("binning", 0.0) * scale}
    other = (spent["other"] + spent.get("predict", 0.0)) * scale * trees + spent.get("handshake", 0.0) * scale
    if not active:
        grouping = max(0.0, spent.get("aggregate", 0.0) - dry.parties[name].engine.seconds)
        return found | {
            "prepare rows": own.preparing * costs.prepare,
            "aggregate": own.seals * costs.sum_message + own.effort * costs.add + grouping * scale * trees,
            "seal": own.seals * costs.seal_message + own.sealing * costs.seal + costs.public_tables * bool(own.seals),
            "other": other,
        }
    return {
        "key": costs.key,
        **found,
        "encrypt": own.encrypting * costs.encrypt + costs.owner_tables * bool(own.encryptions),
        "own sums": spent.get("own sums", 0.0) * scale * trees,
        "decrypt": own.openings * costs.open_message + own.opening * costs.decrypt,
        "choose": spent.get("choose", 0.0) * trees,
        "other": other + sum(each.bytes for each in works.values()) * costs.travel,
    }


def _memory(name: str, shape: RunShape, limit: int | None) -> float:
    """Return a party's peak in bytes: columns as numbers and as codes, tables, ciphertexts."""
    data, form = shape.data, shape.format
    rows, columns = data.rows, len(data.columns[name].names)
    total = _PROCESS + 8 * (rows + data.validation + data.test) * columns + rows * columns
    block = form.row_bytes(min(rows, BLOCK_ROWS))
    if name == shape.active:
        return total + 2 * shape.table_bytes + 4 * block + 8 * rows * (2 * len(shape.layout.bounds) + 6)
    prepared = rows * shape.row_bytes + shape.level_bytes[name]
    kept = prepared if limit is None else min(prepared, limit)
    return total + shape.table_bytes + 2 * block + kept + 12 * min(rows * columns, _GROUPED)


def deployment_time(
    found: Estimate, works: Mapping[str, OperationCounts], shape: RunShape, link: NetworkLink
) -> DeploymentEstimate:
    """Return the costs of the same training between companies.

    Passive parties work side by side where they take part in the same trees, and one after the other where each tree
    belongs to one party. The active party sums its own columns meanwhile where all may own the splits of a level.
    """
    mode = shape.params.mode
    together, meanwhile = (sum if mode == "mixed" else max), (max if mode == "standard" else sum)
    rate, phases = link.bandwidth * 1e6 / 8, found.phases
    active, passive = phases[shape.active], [phases[name] for name in shape.passive]
    rows = sum(flow.bytes for (_, kind), flow in works[shape.active].flows.items() if kind in ROW_MESSAGES)
    others = sum(each.bytes for each in works.values()) - rows
    # rows are encrypted, sent and prepared block by block, at the same time
    stream = max(active["encrypt"], together([each["prepare rows"] for each in passive] or [0.0]), rows / rate)
    summed = together([each["aggregate"] + each["seal"] + each["other"] for each in passive] or [0.0])
    levels = meanwhile((summed, active["own sums"]))
    binning = max(each["binning"] for each in phases.values())
    rest = sum(seconds for phase, seconds in active.items() if phase not in ("encrypt", "own sums", "binning"))
    turns = together([works[name].turns for name in shape.passive] or [0.0])
    waiting = turns * link.latency / 1000
    return DeploymentEstimate(
        bandwidth=link.bandwidth,
        latency=link.latency,
        seconds=stream + levels + binning + rest + others / rate + waiting,
        own={name: sum(each.values()) for name, each in phases.items()},
        line=(rows + others) / rate,
        waiting=waiting,
        turns=round(turns),
    )
