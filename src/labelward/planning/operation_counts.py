"""Operations, messages and bytes of a training, party by party, scaled up from a dry run.

For the trees of the dry run itself, where it had all rows, they are exact. Further trees are taken to be like those,
and further rows like the sample's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from labelward.he import Engine, Layout
from labelward.he.base import CiphertextFormat
from labelward.planning.dry_run import DryRun, TrainingData
from labelward.protocols.secureboost.params import TreeModel

ROW_MESSAGES = ("TreeRows", "ForestRows", "LevelRows")
"""The messages that carry encrypted rows."""


@dataclass(frozen=True, kw_only=True)
class RunShape:
    """A run, by what its costs depend on besides the operations."""

    params: TreeModel
    data: TrainingData
    layout: Layout  # of the encrypted numbers of a row
    format: CiphertextFormat  # of their ciphertexts
    row_bytes: int  # of a row that is prepared for sums, in memory
    level_bytes: Mapping[str, float]  # by passive party, of the rows that are encrypted again for a level, at most
    table_bytes: int  # of the tables of one base
    rounds: float  # of the run, per round of the dry run
    federated: float  # rounds in which any passive party takes part, per such round of the dry run
    takes_part: Mapping[str, float]  # by passive party, likewise
    waves: Mapping[str, float]  # by passive party, groups of trees that grow side by side, likewise
    trees: Mapping[str, int]  # by passive party, the trees in which it takes part

    @property
    def active(self) -> str:
        """The party that has the labels."""
        return self.data.parties[0]

    @property
    def passive(self) -> tuple[str, ...]:
        """The other parties."""
        return self.data.parties[1:]


@dataclass(kw_only=True)
class MessageFlow:
    """Messages of one type from one party to another."""

    messages: float = 0.0
    bytes: float = 0.0


@dataclass(kw_only=True)
class OperationCounts:
    """Operations of one party in a run; ciphertexts in all cases.

    Attributes:
        turns: of a passive party: how often the active party waits for it; at trees that grow side by side once for all
            of them.
        flows: what it sends, by receiver and type.
    """

    encryptions: float = 0.0  # made from numbers; ``encrypting``: their work in those of rows without spacing
    encrypting: float = 0.0
    prepared: float = 0.0  # received rows that were made ready for sums; ``preparing``: likewise
    preparing: float = 0.0
    additions: float = 0.0  # as the engine counts them; ``effort``: in sums of a row and a cell
    effort: float = 0.0
    seals: float = 0.0  # messages of sums; ``sums`` sums and ``sealed`` ciphertexts in all of them
    sums: float = 0.0
    sealing: float = 0.0  # the work of the former, in sums of rows without spacing
    sealed: float = 0.0
    opened: float = 0.0  # ciphertexts decrypted, in ``openings`` messages; ``opening``: likewise
    opening: float = 0.0
    openings: float = 0.0
    turns: float = 0.0
    flows: dict[tuple[str, str], MessageFlow] = field(default_factory=lambda: defaultdict(MessageFlow))

    @property
    def bytes(self) -> float:
        """All that it sends."""
        return sum(flow.bytes for flow in self.flows.values())


def run_shape(params: TreeModel, data: TrainingData, dry: DryRun, engine: Engine, bits: int) -> RunShape:
    """Return the shape of a run, relative to its dry run."""
    passive = data.parties[1:]
    whole, few = (_rounds(params, data, each) for each in (dry.whole, dry.schedule))
    parts, waves = (
        {name: len(every[name]) / max(1, len(some[name])) for name in passive}
        for every, some in ((whole, few), (_waves(params, whole), _waves(params, few)))
    )
    layouts = [trace.layout for trace in dry.parties.values() if trace.layout]
    layout = layouts[0] if layouts else Layout(bounds=(1, 1), rows=data.rows, logical=2)  # nothing is encrypted
    levels = dry.parties[data.parties[0]].levels.items()
    begun = [each.receiver for each in dry.parties[data.parties[0]].sent if each.type == "TreeStart"]
    return RunShape(
        params=params,
        data=data,
        layout=layout,
        format=engine.ciphertext_format(layout, bits),
        row_bytes=engine.prepared_row_bytes(layout, bits),
        level_bytes={
            name: dry.scale * max((size for (peer, *_), size in levels if peer == name), default=0) for name in passive
        },
        table_bytes=engine.table_bytes(bits),
        rounds=len(dry.whole) / len(dry.schedule),
        federated=len(set().union(*whole.values())) / max(1, len(set().union(*few.values()))),
        takes_part=parts,
        waves=waves,
        trees={name: round(begun.count(name) * parts[name]) for name in passive},
    )


def _rounds(params: TreeModel, data: TrainingData, schedule: Sequence[frozenset[str]]) -> dict[str, set[int]]:
    """Return the rounds of a schedule in which each passive party takes part; in the mixed mode they take turns."""
    active, *passive = data.parties
    able = [name for name, own in data.columns.items() if own.names or name != active]
    turns = {name: able.index(name) for name in passive} if params.mode == "mixed" else {}
    return {
        name: {
            number
            for number, participants in enumerate(schedule)
            if name in participants and number % len(able) == turns.get(name, number % len(able))
        }
        for name in passive
    }


def _waves(params: TreeModel, rounds: Mapping[str, set[int]]) -> dict[str, set[int]]:
    """Return the numbers of the waves of a party's rounds: of the trees of a forest that grow side by side."""
    at_once = params.trees_at_once if params.kind == "forest" else 1
    return {name: {number // at_once for number in each} for name, each in rounds.items()}


def count_operations(dry: DryRun, shape: RunShape) -> dict[str, OperationCounts]:
    """Return the operations of each party of a run, the active one first.

    Those on rows grow with the rows and trees, those on cells with the trees alone. Of a forest the rows are encrypted
    once.
    """
    forest, parts, scale = shape.params.kind == "forest", shape.format.parts, dry.scale
    again, work = dry.parties[shape.active].again
    once, rounds = dry.encrypted - again, 1.0 if forest else shape.federated
    active = OperationCounts(
        encryptions=(once * rounds + again * shape.federated) * parts * scale,
        encrypting=(once * rounds + work * shape.federated) * parts * scale,
    )
    found = {shape.active: active}
    for name in shape.passive:
        trace, trees = dry.parties[name], shape.takes_part[name]
        rows = [each for each in dry.parties[shape.active].sent if each.rows and each.receiver == name]
        times = [scale * (1.0 if each.type == "ForestRows" else trees) for each in rows]
        sums = [each for each in trace.sent if each.ciphertexts]
        turns_once = sum(each for each, *_ in trace.turns)
        found[name] = OperationCounts(
            prepared=sum(each.ciphertexts * many for each, many in zip(rows, times, strict=True)),
            preparing=sum(each.effort * many for each, many in zip(rows, times, strict=True)),
            additions=trace.engine.total.number * parts * scale * trees,
            effort=trace.engine.total.effort * parts * scale * trees,
            seals=len(sums) * trees,
            sums=sum(each.entries for each in sums) * trees,
            sealing=sum(each.entries * each.effort / each.ciphertexts for each in sums) * trees,
            sealed=sum(each.ciphertexts for each in sums) * trees,
            turns=turns_once + (len(trace.turns) - turns_once) * shape.waves[name],
        )
        active.opened += found[name].sealed
        active.opening += sum(each.effort for each in sums) * trees
        active.openings += found[name].seals
    for name, own in found.items():
        for message in dry.parties[name].sent:
            peer = message.receiver if name == shape.active else name
            messages, size = message.scaled(dry.scale, shape.takes_part[peer])
            flow = own.flows[message.receiver, message.type]
            flow.messages += messages
            flow.bytes += size
    return found
