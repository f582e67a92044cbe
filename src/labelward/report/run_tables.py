"""Tables of run details: traffic, visibility, information, keys, phases, defenses, auxiliary knowledge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from labelward.report.formatting import NOTHING, count, data_size, decimals, duration
from labelward.report.message_purposes import message_purpose
from labelward.report.tables import ReportTable
from labelward.runs.schema import RunDetails, VisibilityCounts, kind_label

Runs = Mapping[str, Sequence[RunDetails]]
Phase = tuple[str, str, float, int]
"""Name, mean time as text, width in percent of the busiest party's total, color number."""

_COLORS = 10


def wire_table(label: str, runs: Sequence[RunDetails]) -> ReportTable:
    """Return the traffic of one training run (mean over seeds) by direction and message type."""
    flows: dict[tuple[str, str, str], list[tuple[int, int, bool | str]]] = {}
    for run in runs:
        for flow in run.wire:
            key = flow.sender, flow.receiver, flow.type
            flows.setdefault(key, []).append((flow.messages, flow.bytes, flow.readable))
    rows = []
    total_messages = total_bytes = 0.0
    for (sender, receiver, kind), found in sorted(flows.items(), key=lambda item: item[0][:2]):
        messages, size = (sum(each[i] for each in found) / len(runs) for i in (0, 1))  # type: ignore[misc]
        total_messages, total_bytes = total_messages + messages, total_bytes + size
        purpose, readable = message_purpose(kind), _readable(found[0][2])
        rows.append((f"{sender} → {receiver}", kind, purpose, readable, count(messages), data_size(size)))
    rows.append(("total", "", "", "", count(total_messages), data_size(total_bytes)))
    return ReportTable(
        caption=f"{label}: messages of one training run, mean over {_seeds(len(runs))}",
        header=("direction", "message", "what it is for", "readable for the receiver", "messages", "size"),
        rows=tuple(rows),
        words=4,
    )


_FACTS: tuple[tuple[str, Callable[[VisibilityCounts], float]], ...] = (
    ("own columns", lambda seen: seen.columns),
    ("training rows", lambda seen: seen.rows),
)
_TREE_FACTS: tuple[tuple[str, Callable[[VisibilityCounts], float]], ...] = (
    ("trees", lambda seen: seen.trees),
    ("nodes with known rows", lambda seen: seen.nodes),
    ("leaves (finest nodes with known rows)", lambda seen: seen.leaves),
    ("own splits", lambda seen: seen.own_splits),
    ("splits of others with known rows", lambda seen: seen.told_splits),
    ("decrypted sums", lambda seen: seen.decrypted_sums),
)
_NET_FACTS: tuple[tuple[str, Callable[[VisibilityCounts], float]], ...] = (
    ("epochs", lambda seen: seen.epochs),
    ("values received about training rows (active party: embeddings; others: gradients)", lambda seen: seen.numbers),
)


def visibility_table(label: str, runs: Sequence[RunDetails]) -> ReportTable:
    """Return what each party could see in one training run, mean over seeds."""
    parties = list(dict.fromkeys(party for run in runs for party in run.seen))
    roles = {party: seen.role for run in runs for party, seen in run.seen.items()}
    net = any(seen.epochs for run in runs for seen in run.seen.values())
    rows = [
        (fact, *(count(_mean(value(run.seen[party]) for run in runs if party in run.seen)) for party in parties))
        for fact, value in (*_FACTS, *(_NET_FACTS if net else _TREE_FACTS))
    ]
    return ReportTable(
        caption=f"{label}: one training run, mean over {_seeds(len(runs))}",
        header=(
            "what",
            *(f"{roles[party]} party" if party == roles[party] else f"{party} ({roles[party]})" for party in parties),
        ),
        rows=tuple(rows),
    )


def information_table(runs: Runs) -> ReportTable:
    """Return the mutual information between each passive party's view and the labels, maximum over the seeds."""
    rows = []
    for label, found in runs.items():
        for party in dict.fromkeys(party for run in found for party in run.seen):
            seen = [run.seen[party] for run in found if party in run.seen]
            if all(each.joint_information is None and each.max_node_information is None for each in seen):
                continue
            rows.append(
                (
                    label,
                    party,
                    _nats(each.max_node_information for each in seen),
                    _nats(each.max_node_bound for each in seen),
                    _nats(each.joint_information for each in seen),
                    _nats(each.joint_bound for each in seen),
                    _nats(each.label_entropy for each in seen),
                    _share(seen),
                )
            )
    return ReportTable(
        caption="Information about the labels in nats, maximum over the seeds",
        header=(
            "defense",
            "party",
            "most informative node",
            "largest bound of a node (Eq. 3)",
            "all nodes together",
            "bound for all nodes together",
            "entropy of the labels (upper limit)",
            "share of the entropy",
        ),
        rows=tuple(rows),
        words=2,
    )


def key_table(runs: Runs) -> ReportTable:
    """Return the engine, key size, security level, kernel and key fingerprint of every run."""
    rows = []
    for label, found in runs.items():
        for run in found:
            key = run.key
            if key.engine == "none":
                continue
            bits = (str(key.bits), str(key.security_level)) if key.bits else (NOTHING, NOTHING)
            rows.append((label, str(run.seed), key.engine, key.kernel, _fingerprint(key.fingerprint), *bits))
    chosen = dict.fromkeys(run.key.chosen for found in runs.values() for run in found if run.key.chosen)
    return ReportTable(
        note=" ".join(f'The job says engine = "auto": {each}.' for each in chosen),
        caption="Keys (a new one for each run)",
        header=("defense", "seed", "engine", "kernel", "key fingerprint", "key bits", "security level (bits)"),
        rows=tuple(rows),
        words=5,
    )


def phase_table(runs: Sequence[RunDetails]) -> tuple[tuple[str, tuple[Phase, ...]], ...]:
    """Return the phases of each party; a phase has the same color for all parties."""
    parties = list(dict.fromkeys(party for run in runs for party in run.phases))
    names = list(dict.fromkeys(phase for run in runs for phases in run.phases.values() for phase in phases))
    means = {
        party: {
            name: _mean(run.phases.get(party, {}).get(name, 0.0) for run in runs)
            for name in names
            if any(name in run.phases.get(party, {}) for run in runs)
        }
        for party in parties
    }
    longest = max((sum(phases.values()) for phases in means.values()), default=0.0) or 1.0
    return tuple(
        (
            party,
            tuple(
                (name, duration(seconds), round(100 * seconds / longest, 2), names.index(name) % _COLORS + 1)
                for name, seconds in phases.items()
            ),
        )
        for party, phases in means.items()
    )


_TALLIES = {
    "refused_candidates": "Refused candidates: splits that the defense excluded before the best one was chosen.",
    "hidden_splits": "Hidden splits: splits whose row sets the defense hid from some party.",
    "given_up_splits": "Given up splits: splits whose row sets the defense hid even from their owner.",
    "skipped_trees": "Skipped trees: trees from which the defense excluded some party.",
    "regrown_nodes": "Regrown nodes: nodes below which finished trees were grown again on true labels.",
    "changed_values": "Changed values: values of embeddings or gradients that were altered before they were sent.",
    "dropped_values": "Dropped values: changed values that were sent as 0.",
}


_UNCOUNTED = "single actions are not counted"


def defense_table(runs: Runs) -> ReportTable:
    """Return the parameters of each defense and its tallies, as means over the seeds.

    Tallies that are zero in all runs of a defense are left out, as they do not apply to it. A defense that keeps no
    account of its actions has its parameters.
    """
    entries = [entry for found in runs.values() for run in found for entry in run.applied]
    acted = {(str(entry.get("kind")), name) for entry in entries for name in _TALLIES if entry.get(name)}
    rows, shown = [], set()
    for label, found in runs.items():
        for number, first in enumerate(found[0].applied):
            kind = str(first.get("kind", NOTHING))
            names = [n for n in first if n != "kind" and (n not in _TALLIES or (kind, n) in acted)]
            shown.update(names)
            accounts = [run.applied[number] for run in found if len(run.applied) > number]
            facts = [f"{name.replace('_', ' ')} {_account(accounts, name)}" for name in names]
            rows.append((label, kind, ", ".join(facts)))
        told = {entry.get("kind") for entry in found[0].applied}
        for defense in (each for each in found[0].defense if each["kind"] not in told):
            facts = [f"{name.replace('_', ' ')} {_text(value)}" for name, value in defense.items() if name != "kind"]
            rows.append((label, str(defense["kind"]), ", ".join([*facts, _UNCOUNTED])))
    return ReportTable(
        caption="Actions of each defense, from the sender's transcript; tallies are means over the seeds",
        header=("run", "defense", "parameters and tallies"),
        rows=tuple(rows),
        words=3,
        note=" ".join(meaning for name, meaning in _TALLIES.items() if name in shown),
    )


def auxiliary_table(runs: Runs) -> ReportTable:
    """Return the auxiliary knowledge of each attack: its input beyond the view and the party's own columns."""
    accounts: dict[tuple[str, str, str], list[float]] = {}
    for found in runs.values():
        for run in found:
            for each in run.attacks:
                known = ", ".join(f"{name} = {_text(value)}" for name, value in each.auxiliary.items())
                key = kind_label(each.attack), each.party, known or "nothing"
                accounts.setdefault(key, []).append(each.seconds)
    return ReportTable(
        caption="Auxiliary knowledge of each attack, in addition to the party's view and own columns",
        header=("attack", "attacker", "auxiliary knowledge", "mean time"),
        rows=tuple((*key, duration(_mean(seconds))) for key, seconds in accounts.items()),
        words=3,
    )


def _readable(readable: bool | str) -> str:
    if isinstance(readable, str):
        return readable
    return "all" if readable else "nothing (ciphertexts)"


def _seeds(number: int) -> str:
    return f"{number} seed" if number == 1 else f"{number} seeds"


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _nats(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return decimals(max(known), 3) if known else NOTHING


def _share(seen: Sequence[VisibilityCounts]) -> str:
    shares = [
        each.joint_information / each.label_entropy
        for each in seen
        if each.joint_information is not None and each.label_entropy
    ]
    return f"{100 * max(shares):.0f} %" if shares else NOTHING


def _fingerprint(text: str) -> str:
    return " ".join(text[start : start + 4] for start in range(0, min(len(text), 16), 4)) or NOTHING


def _account(accounts: Sequence[Mapping[str, Any]], name: str) -> str:
    values = [account.get(name) for account in accounts]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(values) and len(set(numbers)) > 1:
        return count(_mean(numbers))
    return _text(values[0])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
