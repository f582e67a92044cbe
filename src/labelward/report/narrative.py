"""The report's first sentences: what the figures mean, in plain words, no stronger than the figures are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from labelward.report.formatting import decimals, percentage_points
from labelward.report.metrics import figure, metric_name, metric_text
from labelward.report.summary import Spread, SummaryRow
from labelward.runs.schema import defense_label

__all__ = [
    "UNDEFENDED",
    "budget_notice",
    "headline",
    "headline_row",
    "insecure_warning",
    "missing_details_warning",
    "published_split_notice",
    "reading_hint",
    "reads_view",
    "sides_notice",
    "strongest",
    "unfinished_warning",
    "without_standing",
]

UNDEFENDED = defense_label(())
_TOLD_BY_SIDES = 0.1
"""How far from .5 the AUC of the sides is beyond chance; with 455 rows, its standard error is .03."""
_GROUPING = ("v_measure", "ari")
_BLIND = ("clustering",)
"""Kinds of attack that never open the view."""
_NOTICEABLE = 0.01
"""Differences up to this are not spoken of: the sentences show two decimals."""


def reads_view(row: SummaryRow) -> bool:
    """Return whether the row's attack reads the view.

    False only for a kind that never does, where its leakage equals that without the view for every seed.
    """
    kind = (row.attack or "").partition(" ")[0]
    return kind not in _BLIND or _gain(row).mean != 0 or bool(_gain(row).std)


def strongest(table: Iterable[SummaryRow]) -> dict[tuple[str, str], SummaryRow]:
    """Return for each (defense, party) the attack with the largest mean of its primary metric.

    Attacks that rank by another metric than the first are left out: their values cannot be compared.
    """
    best: dict[tuple[str, str], SummaryRow] = {}
    ranked_by = None
    for row in table:
        if row.party is None or row.primary is None:
            continue
        ranked_by = ranked_by or row.primary
        if row.primary != ranked_by:
            continue
        key = row.defense, row.party
        if key not in best or _leak(row).mean > _leak(best[key]).mean:
            best[key] = row
    return best


def budget_notice(budget: float | None) -> list[str]:
    """Return what to say first where a leakage budget holds in every run; nothing without one."""
    if budget is None:
        return []
    return [
        f"Every training here kept the leakage budget of {budget:g}: what is called {UNDEFENDED!r} has it, too, and "
        "nothing besides."
    ]


def headline(table: Sequence[SummaryRow], training_rows: int | None) -> list[str]:
    """Return the sentences on top, for one data set, model and engine.

    The attacker spoken of is the one whose view adds most to what its own columns give; where no view adds
    anything, the one that comes nearest to the labels. A defense is judged by that attacker's strongest attack.
    """
    best = strongest(table)
    if not best:
        return ["No attack was run, so this report says nothing of what the labels give away."]
    undefended = [row for (defense, _), row in best.items() if defense == UNDEFENDED]
    if not undefended:
        return ["The undefended run is not finished: there is nothing yet to compare the defenses with."]
    row = headline_row(undefended)
    agreed = next((each for each in table if each.defense == UNDEFENDED and each.behavior is None), row)
    partners = _listed(list(dict.fromkeys(each.party or "" for each in undefended)))
    joining = _joining_sentences(agreed, partners)
    if not any(reads_view(each) for each in table if each.attack is not None):
        return ["No attack that reads the view was run, so nothing is said about what training leaks.", *joining]
    sentences = [_leak_sentence(row, training_rows)]
    mine = [each for (_, party), each in best.items() if party == row.party]
    sentences += [*_defense_sentences(row, mine, partners), *joining]
    if len(undefended) > 1:
        others = [_other_attacker(each) for each in undefended if each is not row]
        sentences.append(f"Other attackers audited: {'; '.join(others)}.")
    if row.seeds == 1:
        sentences.append("All this rests on a single seed: its spread is unknown, and another draw may differ.")
    return sentences


def headline_row(rows: Sequence[SummaryRow]) -> SummaryRow:
    """Return the row of the attacker whom the headline speaks of, among the strongest attacks under one defense."""
    return max(rows, key=lambda row: (_adds(row), _gain(row).mean if _adds(row) else _leak(row).mean))


def reading_hint(primary: str, *, quantities: bool = False) -> str:
    """Return how to read the metric that ranks; ``quantities``: whether labels are such, and were cut into bins."""
    if primary in _GROUPING:
        name = metric_name(primary)
        if quantities:
            return f"{name} 0 means that the groups say nothing of the labels; 1, that they are the bins of the labels."
        return f"{name} 0 means that the groups say nothing of the labels; 1, that they are the labels."
    return f"Leakage is given as {metric_name(primary)}; compare it with chance and with the party's own columns."


def insecure_warning(reasons: Sequence[str]) -> str | None:
    """Return the warning for a run that protects nothing, None for a secure one."""
    if not reasons:
        return None
    words = ", ".join(_insecurity(reason) for reason in reasons)
    return (
        f"This run was made with {words}; do not use it between companies: it is a rehearsal, and whoever sees "
        "the messages could read what encryption should hide."
    )


def sides_notice(rows: Sequence[SummaryRow]) -> tuple[str, ...]:
    """Return what the sides of the rows tell of the labels, where the standing attack looked."""
    areas = [row.leakage["auc"].mean for row in rows if _is_standing(row) and "auc" in row.leakage]
    if not areas:
        return ()
    worst = max(areas, key=lambda area: abs(area - 0.5))
    if abs(worst - 0.5) > _TOLD_BY_SIDES:
        return (f"Which rows are test rows tells labels: split-posterior ranks them with an AUC of {worst:.2f}.",)
    return (f"Which rows are test rows tells nothing of the labels (split-posterior: AUC {worst:.2f}).",)


def without_standing(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Return the rows but for those of attacks that stand in every audit, unless there are no others."""
    return [row for row in rows if not _is_standing(row)] or list(rows)


def _is_standing(row: SummaryRow) -> bool:
    return row.attack is not None and row.attack.partition(" ")[0] == "split-posterior"


def published_split_notice(split: str) -> tuple[str, ...]:
    """Return what an audit says that split its rows as published figures were; nothing for any other."""
    if split != "reference":
        return ()
    return (
        "The rows were split as in published experiments, stratified by label, before the parties got their tables: "
        "this is a rehearsal, and a run between companies cannot be split so.",
    )


def unfinished_warning(finished: int, expected: int | None, cut_off: bool) -> str | None:
    """Return the warning for an audit that was interrupted, None for a complete one."""
    if expected is not None and finished < expected:
        stored = f"{finished} of {expected} runs are stored"
    elif cut_off:
        stored = "its last result was cut off"
    else:
        return None
    return f"This audit is unfinished: {stored}. The same command goes on with the rest."


def missing_details_warning(missing: int, finished: int) -> str | None:
    """Return the warning where runs have figures but no stored details, None where all have them."""
    if not missing:
        return None
    which = f"all {finished} runs" if missing == finished else f"{missing} of {finished} runs"
    return (
        f"The details of {which} are missing (run.json below runs/): what crossed the wire, what each party saw, keys "
        "and times are left out for them."
    )


def _insecurity(reason: str) -> str:
    if reason == "plain engine":
        return "no encryption (plain engine)"
    if reason.endswith("-bit key"):
        return f"a key that is too short ({reason})"
    if reason == "seeded protection":
        return "predictable keys (seeded protection)"
    return reason


def _leak(row: SummaryRow) -> Spread:
    return row.leakage[row.primary or ""]


def _gain(row: SummaryRow) -> Spread:
    return row.gain[row.primary or ""]


def _adds(row: SummaryRow) -> bool:
    return _gain(row).mean > _NOTICEABLE


def _leak_sentence(row: SummaryRow, training_rows: int | None) -> str:
    primary = row.primary or ""
    rows = "training rows" if training_rows is None else f"{training_rows:,} training rows"
    label = "secret value, cut into bins of like size," if "r2" in row.leakage else "secret label"
    deed = f"group the {rows} by their {label}" if primary in _GROUPING else f"guess the {label} of the {rows}"
    own, chance = decimals(row.without_view[primary].mean, 2), decimals(row.chance[primary].mean, 2)
    name, reached = metric_name(primary), decimals(_leak(row).mean, 2)
    article = "an" if name[0] in "aAF" else "a"
    if not _adds(row):
        return (
            f"What {row.party} received during training did not help it to {deed}: it reaches {article} {name} of "
            f"{reached} with it and {own} from its own columns alone (chance {chance})."
        )
    text = (
        f"From its own columns and what it received during training, {row.party} could {deed} with {article} {name} "
        f"of {reached} ({own} from its own columns alone; chance {chance})."
    )
    if _gain(row).mean < 2 * _gain(row).error:
        text += f" With the spread over the {row.seeds} seeds, this difference is not certain."
    if primary in _GROUPING and "r2" in row.leakage:
        seen, own, chance = (_percent(each["r2"].mean) for each in (row.leakage, row.without_view, row.chance))
        text += (
            f" These groups explain {seen} of the variance of the values ({own} from its own columns alone; chance "
            f"{chance})."
        )
    return text


def _percent(share: float) -> str:
    return f"{decimals(100 * share, 1)}\N{NO-BREAK SPACE}%"


def _other_attacker(row: SummaryRow) -> str:
    reached, own = decimals(_leak(row).mean, 2), decimals(row.without_view[row.primary or ""].mean, 2)
    return f"{row.party}, {reached} ({own} from its own columns alone)"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _joining_sentences(undefended: SummaryRow, partners: str) -> list[str]:
    """Say where the undefended model is not better than the active party's own, beyond the spread over the seeds."""
    name, reached = undefended.worth, _utility(undefended)
    edge = undefended.edge.get(name)
    if edge is None or metric_text(name).better(edge.mean) > (edge.std or 0.0):
        return []
    alone = figure(name, undefended.alone[name].mean)
    return [
        f"Joining brings no measurable gain on this data: {metric_name(name)} {figure(name, reached.mean)} with "
        f"{partners}, {alone} without."
    ]


def _is_alone(row: SummaryRow) -> bool:
    """Return whether every metric of every seed equals that of the active party alone."""
    return bool(row.edge) and all(edge.mean == 0 and not edge.std for edge in row.edge.values())


def _best(rows: Sequence[SummaryRow]) -> SummaryRow:
    """Return the most useful of the rows that leak least, or hardly more than the least."""
    least = min(_leak(row).mean for row in rows)
    near = [row for row in rows if _leak(row).mean <= least + _NOTICEABLE]
    return max(near, key=lambda row: metric_text(row.worth).better(_utility(row).mean))


def _lowers(row: SummaryRow, undefended: SummaryRow) -> bool:
    return _leak(row).mean < _leak(undefended).mean - _NOTICEABLE


def _achieved(undefended: SummaryRow, defended: SummaryRow) -> str:
    bare, left = _leak(undefended), _leak(defended)
    floor = undefended.without_view[undefended.primary or ""].mean
    aside = f" (no more than {defended.party}'s own columns give)" if left.mean <= floor + _NOTICEABLE else ""
    text = f"brings this down to {decimals(left.mean, 2)}{aside} and {_price(undefended, defended)}."
    if bare.mean - left.mean < 2 * math.hypot(bare.error, left.error):
        text += " The spread over the seeds is too wide to be sure of that."
    return text


def _defense_sentences(undefended: SummaryRow, rows: Sequence[SummaryRow], partners: str) -> list[str]:
    defended = [row for row in rows if row.defense != UNDEFENDED]
    if not defended:
        return ["No defense was tried."]
    bare, best = _leak(undefended), _best(defended)
    reached = decimals(_leak(best).mean, 2)
    if _lowers(best, undefended):
        text = f"The best defense tried, {best.defense}, {_achieved(undefended, best)}"
        if _is_alone(best) and not _is_alone(undefended):
            verb = "contribute" if " " in partners else "contributes"
            text += (
                f" With this defense {partners} {verb} nothing: the model is the one that the active party trains "
                "alone."
            )
            others = [row for row in defended if _lowers(row, undefended) and not _is_alone(row)]
            if others:
                other = _best(others)
                text += f" Of the others, {other.defense} {_achieved(undefended, other)}"
    elif not _adds(undefended):
        text = "So there was nothing that a defense could have taken back."
    else:
        verb = "it is" if _leak(best).mean <= bare.mean + _NOTICEABLE else "it rises to"
        text = f"No defense tried lowers it: with the best of them, {best.defense}, {verb} {reached}."
    worse = [row for row in defended if row is not best and _leak(row).mean > bare.mean + _NOTICEABLE]
    if not worse:
        return [text]
    named = ", ".join(f"{row.defense} (to {decimals(_leak(row).mean, 2)})" for row in worse)
    return [text, f"Not every defense protects: measured here, the leakage rose under {named}."]


def _utility(row: SummaryRow) -> Spread:
    return row.utility[row.worth]


def _price(undefended: SummaryRow, defended: SummaryRow) -> str:
    """Say what a defense costs: in points of a share of 1, in percent of an error, which has no such scale."""
    kind, before, after = metric_text(undefended.worth), _utility(undefended), defended.utility[undefended.worth]
    lost, scale = kind.better(before.mean) - kind.better(after.mean), 1.0 if kind.share else abs(before.mean)
    none = f"costs no {kind.name}" if kind.larger else f"does not raise the {kind.name}"
    if abs(lost) <= 0.0005 * scale:
        return none
    if kind.share:
        told = percentage_points(abs(lost))
    else:
        told = _percent(abs(lost) / scale) if scale else figure(undefended.worth, abs(lost))
    within = "less than its spread over the seeds" if abs(lost) < max(before.std or 0.0, after.std or 0.0) else ""
    if lost > 0:
        cost = f"costs {told} of {kind.name}" if kind.larger else f"raises the {kind.name} by {told}"
        return cost + (f" ({within})" if within else "")
    return f"{none} (it {'rose' if kind.larger else 'fell'} by {told}{', ' if within else ''}{within})"
