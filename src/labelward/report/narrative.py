"""Summary sentences of a report: the meaning of the figures in plain words, no stronger than the figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from labelward.attacks import ATTACKS, STANDING
from labelward.attacks.base import UPPER_BOUND
from labelward.attacks.monotone_sides import ORDERED_PAIRS, MonotoneSides
from labelward.metrics.registry import MATCHED, RANKING, READ, READ_RIGHT
from labelward.report.formatting import decimals, percentage_points
from labelward.report.metrics import format_metric, metric_name, metric_of
from labelward.report.scored_rows import number_range
from labelward.report.summary import Spread, SummaryRow
from labelward.runs.diverged_runs import DivergedRun
from labelward.runs.schema import budgets, defense_label, hides_labels, kind_label

UNDEFENDED = defense_label(())
_SPLIT_LEAKS_FROM, _SPLIT_ERRORS = 0.02, 4.0
"""Smallest distance of the split attack's AUC from 0.5 that counts, and in standard errors of classes of one size."""
_SPLIT_ROWS = 455
"""Training rows that are taken for granted where their number is not known: a distance of 0.11."""
NOTICEABLE = 0.01
"""Smaller differences are not mentioned: sentences print two decimals."""


def reads_view(row: SummaryRow) -> bool:
    """Return whether the row's attack reads the view.

    False only for a kind that declares so, and whose leakage equals that without the view for every seed.
    """
    attack = ATTACKS.classes().get(_kind(row))
    return attack is None or attack.reads_view or _gain(row).mean != 0 or bool(_gain(row).std)


def ranking_metric(table: Iterable[SummaryRow]) -> str | None:
    """Return the metric on which attacks are compared, whatever their order; None without attacks on labels.

    It is V-measure, which every guess of labels has. Results of versions that scored guessed classes otherwise are
    compared by the first of their metrics in alphabetical order.
    """
    ranked = {row.primary for row in table if row.primary} | {RANKING for row in table if RANKING in row.leakage}
    return RANKING if RANKING in ranked else min(ranked, default=None)


def strongest(table: Sequence[SummaryRow]) -> dict[tuple[str, str], SummaryRow]:
    """Return for each (defense, party) the leakage of its strongest attack, on the scale of :func:`ranking_metric`.

    The row is that of the attack with the largest mean. Its leakage and its leakage without the view are, by metric of
    the common scale, the largest means over all attacks, each without and with the view: an attacker may run any of
    them, and leave the view aside. So the leakage is never below that without the view. Utility and cost are those of
    the honest run under the same defense, if there is one, also where the strongest attack is of a malicious run: what
    a defense costs is what it costs parties that train as agreed.
    """
    ranked_by, groups = ranking_metric(table), dict[tuple[str, str], list[SummaryRow]]()
    for row in table:
        if row.party is not None and ranked_by in row.leakage:
            groups.setdefault((row.defense, row.party), []).append(row)
    honest = {row.defense: row for row in reversed(table) if row.behavior is None}
    return {key: _with_utility_of(honest.get(key[0]), _strongest(rows, str(ranked_by))) for key, rows in groups.items()}


def _with_utility_of(honest: SummaryRow | None, row: SummaryRow) -> SummaryRow:
    """Return the row of a malicious run with utility and cost of the honest one; others as they are."""
    if honest is None or row.behavior is None:
        return row
    own = {name: getattr(honest, name) for name in ("utility", "alone", "joined", "edge", "cost")}
    return msgspec.structs.replace(row, **own)


def _strongest(rows: Sequence[SummaryRow], ranked_by: str) -> SummaryRow:
    best = max(rows, key=lambda row: (row.leakage[ranked_by].mean, row.attack or ""))
    names = [name for name in dict.fromkeys((ranked_by, MATCHED, "r2")) if name in best.leakage]
    blind, leakage, gain = dict[str, Spread](), dict[str, Spread](), dict[str, Spread]()
    for name in names:
        known = [row.without_view[name] for row in rows if name in row.without_view]
        known += [
            each[name] for row in rows for at, each in row.baselines.items() if at != UPPER_BOUND and name in each
        ]
        blind[name] = max(known, key=_size)
        leakage[name] = max([*(row.leakage[name] for row in rows if name in row.leakage), blind[name]], key=_size)
        own = leakage[name] == best.leakage[name] and blind[name] == best.without_view[name]
        gain[name] = best.gain[name] if own else Spread.between(leakage[name], blind[name])
    return msgspec.structs.replace(best, primary=ranked_by, leakage=leakage, without_view=blind, gain=gain)


def _size(spread: Spread) -> tuple[float, float]:
    return spread.mean, spread.std or 0.0


def budget_notice(budget: float | None) -> list[str]:
    """Return the notice that every run has a leakage budget, if so."""
    if budget is None:
        return []
    return [
        f"Every training run in this audit has a leakage budget of {budget:g}. Runs labeled {UNDEFENDED!r} have this "
        "budget and no other defense. It bounds what the row sets of each passive party alone tell. It does not cover: "
        "the party's own columns; parties that pool their views, unless collude names them; what is withheld."
    ]


def scope_notice(table: Sequence[SummaryRow]) -> list[str]:
    """Return for each budget of a defense what it covers and excludes, and what no epsilon of labels covers."""
    found = {(kind, name, scope.covers): scope.excludes for row in table for kind, name, _, scope in budgets(row.chain)}
    notices = [
        f"The {name} of {kind} is {covers}. It does not cover{':' if ';' in out else ''} {out}."
        for (kind, name, covers), out in found.items()
    ]
    if any(hides_labels(row.chain) for row in table):
        notices.append(
            "These figures are of the true labels, which no epsilon covers: a party that repeats the attacks on its "
            "view learns labels from the exact scores. They stay with the label holder."
        )
    return notices


def constant_notice(table: Sequence[SummaryRow]) -> list[str]:
    """Return which attacks guess one class for all rows, and what ranks the rows all the same.

    The attack on the sides of rows, which is part of every audit, has a notice of its own.
    """
    return [
        f"{row.attack} by {row.party} ({row.defense}) guesses one class for all rows in {row.constant} of {row.seeds} "
        f"{'seed' if row.seeds == 1 else 'seeds'}: its accuracy tells nothing, while its scores rank the rows with "
        f"an AUC of {decimals(row.leakage['auc'].mean, 2)}."
        for row in table
        if row.constant and _kind(row) != STANDING
    ]


def diverged_notice(runs: Sequence[DivergedRun]) -> list[str]:
    """Return which defenses and malicious parties broke the training, so that there is no model and no whole view."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for run in runs:
        cause, lost = run.defense, "attacks have"
        if run.behavior is not None:
            cause, lost = f"{kind_label(run.behavior)} of {run.party} ({run.defense})", "the attack has"
        seeds.setdefault((cause, lost), []).append(run.seed)
    return [
        f"With {cause} the training diverged for {'seed' if len(found) == 1 else 'seeds'} "
        f"{_listed(list(map(str, sorted(found))))}: no party has a model, and {lost} no result."
        for (cause, lost), found in seeds.items()
    ]


def headline(table: Sequence[SummaryRow], training_rows: int | None, partners: Sequence[str] = ()) -> list[str]:
    """Return the summary sentences of one dataset, model and engine.

    Their subject is the attacker whose view adds most to what its own columns reach; if no view adds anything, the
    attacker with the highest leakage. Defenses are judged by that attacker's strongest attack.

    Args:
        table: all rows.
        training_rows: their number; None: not stated.
        partners: the parties other than the active one, whether they attack or not; none: not named.
    """
    best = strongest(table)
    if not best:
        return ["No attack on labels was run, so this report makes no statement about label leakage."]
    undefended = [row for (defense, _), row in best.items() if defense == UNDEFENDED]
    if not undefended:
        return ["The undefended run is not finished, so there is nothing to compare the defenses with yet."]
    row = headline_row(undefended)
    honest = next((each for each in table if each.defense == UNDEFENDED and each.behavior is None), row)
    federation = _federation_sentences(honest, partners)
    if not any(reads_view(each) for each in table if each.attack is not None):
        return [
            "No attack that reads the view was run, so this report makes no statement about leakage through training.",
            *federation,
        ]
    read = _read_sentences(table)
    own_rows = [each for (_, party), each in best.items() if party == row.party]
    defenses = _defense_sentences(row, own_rows, partners, read=bool(read))
    sentences = [_leak_sentence(row, training_rows), *read, *defenses, *_matched_sentence(row), *federation]
    if len(undefended) > 1:
        others = [_other_attacker(each) for each in undefended if each is not row]
        sentences.append(f"Other attackers: {'; '.join(others)}.")
    if row.seeds == 1:
        sentences.append("Based on one seed; variance unknown.")
    return sentences


def headline_row(rows: Sequence[SummaryRow]) -> SummaryRow:
    """Return the row of the attacker in the headline, among the strongest attacks under one defense."""
    return max(rows, key=lambda row: (_adds(row), _gain(row).mean if _adds(row) else _leak(row).mean))


def reading_hint(primary: str, *, regression: bool = False) -> str:
    """Return how to read the metric that ranks attacks.

    Args:
        primary: name of the metric.
        regression: whether labels are regression targets, which are binned for the attacks.
    """
    metric = metric_of(primary)
    if metric.grouping:
        target = "match the bins of the labels" if regression else "match the labels"
        return f"{metric.title}: 0 means that the groups are unrelated to the labels, 1 that they {target}."
    return f"Leakage is given as {metric.title}. Compare it with chance and with the attacker's own columns alone."


def insecure_warning(reasons: Sequence[str], *, ahead: bool = False) -> str | None:
    """Return the warning about an insecure run; None for a secure one.

    Args:
        ahead: whether nothing was run yet.
    """
    if not reasons:
        return None
    words = ", ".join(_insecurity(reason) for reason in reasons)
    return (
        f"{'A run of this job uses' if ahead else 'This run used'} {words}. Do not use this setting between companies: "
        "anyone who sees the messages could read what encryption should hide."
    )


def split_notice(rows: Sequence[SummaryRow], training_rows: int | None) -> tuple[str, ...]:
    """Return whether the split attack, if it was run, finds labels in the split into training and test rows.

    Args:
        rows: of all attacks.
        training_rows: their number decides which distance from an AUC of 0.5 is beyond chance; None: not known.
    """
    areas = [row.leakage["auc"].mean for row in rows if _kind(row) == STANDING and "auc" in row.leakage]
    if not areas:
        return ()
    worst = max(areas, key=lambda area: abs(area - 0.5))
    by_chance = _SPLIT_ERRORS / math.sqrt(3 * (training_rows or _SPLIT_ROWS))
    if abs(worst - 0.5) > max(_SPLIT_LEAKS_FROM, by_chance):
        return (f"The choice of test rows reveals labels: {STANDING} ranks the rows with an AUC of {worst:.2f}.",)
    return (f"{STANDING} finds nothing about the labels in the choice of test rows (AUC {worst:.2f}).",)


def without_standing(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Return the rows without those of the attack that is part of every audit, unless there are no others."""
    return [row for row in rows if _kind(row) != STANDING] or list(rows)


def _kind(row: SummaryRow) -> str:
    return (row.attack or "").partition(" ")[0]


def published_split_notice(split: str) -> tuple[str, ...]:
    """Return the notice about a split as in published experiments, if the audit has one."""
    if split != "reference":
        return ()
    return (
        "Rows were split as in published experiments, stratified by label, before the parties received their tables. "
        "This works in a simulation only: a run between companies cannot be split this way.",
    )


def constraint_notice(constrained: bool, table: Sequence[SummaryRow]) -> tuple[str, ...]:
    """Return the notice about monotone constraints, if any column has one: what they tell, and the figure at its worst.

    Args:
        constrained: whether any column has one.
        table: all rows.
    """
    if not constrained:
        return ()
    tells = (
        "A monotone constraint tells a passive party whose column has it on which side of its splits the labels are "
        "larger, and so may name the classes to it."
    )
    measured = [row for row in table if _kind(row) == MonotoneSides.kind and ORDERED_PAIRS.name in row.leakage]
    if not measured:
        return (f"{tells} No attack here measures this.",)
    worst = max(measured, key=lambda row: row.leakage[ORDERED_PAIRS.name].mean)
    reached, blind = (decimals(found[ORDERED_PAIRS.name].mean, 2) for found in (worst.leakage, worst.without_view))
    return (
        f"{tells} {MonotoneSides.kind} measures this: {worst.party} ranks {reached} of the pairs of rows with "
        f"different labels right ({worst.defense}), {blind} without its view, 0.50 by chance.",
    )


def unfinished_warning(finished: int, expected: int | None, cut_off: bool) -> str | None:
    """Return the warning about an interrupted audit; None for a complete one."""
    if expected is not None and finished < expected:
        stored = f"{finished} of {expected} runs are stored"
    elif cut_off:
        stored = "the last stored result is truncated"
    else:
        return None
    return f"This audit is incomplete: {stored}. Run the same command again to finish it."


def missing_details_warning(missing: int, finished: int) -> str | None:
    """Return the warning about runs with results but no stored details; None if all have them."""
    if not missing:
        return None
    which = f"all {finished} runs" if missing == finished else f"{missing} of {finished} runs"
    return (
        f"Details of {which} are missing (run.json under runs/). Traffic, what each party saw, keys and times are not "
        "reported for them."
    )


def _insecurity(reason: str) -> str:
    if reason == "plain engine":
        return "no encryption (plain engine)"
    if reason.endswith("-bit key"):
        return f"an insecure key ({reason.removesuffix('-bit key')} bits)"
    if reason == "seeded protection":
        return "predictable keys (seeded protection)"
    return reason


def _leak(row: SummaryRow) -> Spread:
    return row.leakage[row.primary or ""]


def _gain(row: SummaryRow) -> Spread:
    return row.gain[row.primary or ""]


def _adds(row: SummaryRow) -> bool:
    return _gain(row).mean > NOTICEABLE


def _leak_sentence(row: SummaryRow, training_rows: int | None) -> str:
    primary = row.primary or ""
    metric = metric_of(primary)
    rows = "training rows" if training_rows is None else f"{training_rows:,} training rows"
    if row.scored:
        rows = f"{number_range(row.scored)} training rows whose labels it does not know"
    label = f"secret value ({_bins(row)})" if "r2" in row.leakage else "secret label"
    action = f"group the {rows} by their {label}" if metric.grouping else f"infer the {label} of the {rows}"
    reached = decimals(_leak(row).mean, 2)
    own, chance = decimals(row.without_view[primary].mean, 2), decimals(row.chance[primary].mean, 2)
    if not _adds(row):
        return (
            f"The messages that {row.party} received during training did not help it to {action}: {metric.title} "
            f"{reached} with them, {own} at best without (chance {chance})."
        )
    text = (
        f"From its own columns and the messages it received during training, {row.party} could {action} with "
        f"{metric.article} {metric.title} of {reached} ({own} at best without them; chance {chance})."
    )
    if _gain(row).mean < 2 * _gain(row).error:
        text += f" This difference is below two standard errors over the {row.seeds} seeds, so it is not certain."
    if metric.grouping and "r2" in row.leakage:
        explained, own, chance = (_percent(each["r2"].mean) for each in (row.leakage, row.without_view, row.chance))
        text += (
            f" These groups explain {explained} of the variance of the values ({own} at best without the "
            f"messages; chance {chance})."
        )
    return text


def _bins(row: SummaryRow) -> str:
    number = f"{number_range(row.bins)} bins" if row.bins else "bins"
    return f"in {number}, as equal in size as its values allow"


def _matched_sentence(row: SummaryRow) -> list[str]:
    """Return the strongest attack, and the how many labels are right where each class is matched with one group."""
    if MATCHED not in row.leakage or "r2" in row.leakage or not _adds(row):
        return []
    reached, own, chance = (f"{100 * each[MATCHED].mean:.0f}" for each in (row.leakage, row.without_view, row.chance))
    return [
        f"Without a defense, the strongest attack is {row.attack}. Of 100 rows, as many of each class, {row.party} "
        f"guesses up to {reached} right with its view, {own} without it, and {chance} if it ignores all data."
    ]


def _read_sentences(table: Iterable[SummaryRow]) -> list[str]:
    """Return what attacks read of single labels, which figures over all rows do not show."""
    found = []
    for row in table:
        if READ not in row.leakage or not row.leakage[READ].mean:
            continue
        share, right = (_percent(row.leakage[name].mean) for name in (READ, READ_RIGHT))
        by_chance = f" ({_percent(row.chance[READ_RIGHT].mean)} by chance)" if READ_RIGHT in row.chance else ""
        how = "" if row.behavior is None else ", for which it deviates from the protocol"
        under = "" if row.defense == UNDEFENDED else f"Under {row.defense}, "
        rows = f"the {number_range(row.scored)} rows whose labels it does not know" if row.scored else "the rows"
        found.append(
            f"{under}{row.party} could read, one by one, the labels of {share} of {rows} ({row.attack}{how}); {right} "
            f"of these are right{by_chance}."
        )
    return found


def _percent(share: float) -> str:
    return f"{decimals(100 * share, 1)}\N{NO-BREAK SPACE}%"


def _other_attacker(row: SummaryRow) -> str:
    reached, own = decimals(_leak(row).mean, 2), decimals(row.without_view[row.primary or ""].mean, 2)
    rows = f"; on the {number_range(row.scored)} rows whose labels it does not know" if row.scored else ""
    return f"{row.party}, {reached} ({own} at best without its messages{rows})"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _named(partners: Sequence[str]) -> str:
    return _listed(partners) if partners else "the other parties"


def _federation_sentences(undefended: SummaryRow, partners: Sequence[str]) -> list[str]:
    """Return the notice that the undefended model does not beat the active party's own beyond two standard errors."""
    name = undefended.worth
    edge = undefended.edge.get(name)
    if edge is None or metric_of(name).better(edge.mean) > 2 * edge.error:
        return []
    joint, alone = (format_metric(name, each.mean) for each in (_utility(undefended), undefended.alone[name]))
    return [
        f"Federation brings no measurable gain on this data: {metric_name(name)} {joint} with {_named(partners)}, "
        f"{alone} without."
    ]


def _is_alone(row: SummaryRow) -> bool:
    """Return whether every metric of every seed equals that of the active party alone, so that others add nothing."""
    return bool(row.edge) and all(edge.mean == 0 and not edge.std for edge in row.edge.values())


def _best(rows: Sequence[SummaryRow]) -> SummaryRow:
    """Return the row with the highest utility among those with the least leakage, up to a small difference."""
    least = min(_leak(row).mean for row in rows)
    near = [row for row in rows if _leak(row).mean <= least + NOTICEABLE]
    return max(near, key=lambda row: metric_of(row.worth).better(_utility(row).mean))


def _reduces(row: SummaryRow, undefended: SummaryRow) -> bool:
    return _leak(row).mean < _leak(undefended).mean - NOTICEABLE


def _achieved(undefended: SummaryRow, defended: SummaryRow) -> str:
    bare, left = _leak(undefended), _leak(defended)
    floor = undefended.without_view[undefended.primary or ""].mean
    aside = f" (no more than {defended.party}'s own columns reach)" if left.mean <= floor + NOTICEABLE else ""
    text = f"reduces this to {decimals(left.mean, 2)}{aside} and {_price(undefended, defended)}."
    if bare.mean - left.mean < 2 * math.hypot(bare.error, left.error):
        text += " The reduction is below two standard errors over the seeds, so it is not certain."
    return text


def _defense_sentences(
    undefended: SummaryRow, rows: Sequence[SummaryRow], partners: Sequence[str], *, read: bool = False
) -> list[str]:
    """Return what the defenses change; ``read``: whether single labels were read, which the ranking does not show."""
    defended = [row for row in rows if row.defense != UNDEFENDED]
    if not defended:
        return ["No defense was tested."]
    bare, best = _leak(undefended), _best(defended)
    reached = decimals(_leak(best).mean, 2)
    if _reduces(best, undefended):
        text = f"The best defense tested, {best.defense}, {_achieved(undefended, best)}"
        if _is_alone(best) and not _is_alone(undefended):
            verb = "contributes" if len(partners) == 1 else "contribute"
            text += (
                f" With this defense {_named(partners)} {verb} nothing: the model equals the one that the active "
                "party trains alone."
            )
            others = [row for row in defended if _reduces(row, undefended) and not _is_alone(row)]
            if others:
                other = _best(others)
                text += f" Among the other defenses, {other.defense} {_achieved(undefended, other)}"
    elif not _adds(undefended):
        text = (
            "What it tells of all rows together leaves no leakage for a defense to reduce."
            if read
            else "There was therefore no leakage for a defense to reduce."
        )
    else:
        verb = "it is" if _leak(best).mean <= bare.mean + NOTICEABLE else "it rises to"
        text = f"No defense tested reduces the leakage: with the best one, {best.defense}, {verb} {reached}."
    worse = [row for row in defended if row is not best and _leak(row).mean > bare.mean + NOTICEABLE]
    if not worse:
        return [text]
    named = ", ".join(f"{row.defense} (to {decimals(_leak(row).mean, 2)})" for row in worse)
    return [text, f"Some defenses increased the leakage in this audit: {named}."]


def _utility(row: SummaryRow) -> Spread:
    return row.utility[row.worth]


def _price(undefended: SummaryRow, defended: SummaryRow) -> str:
    """Return the cost of a defense in utility: points on a unit scale, percent of any other metric."""
    kind, before, after = metric_of(undefended.worth), _utility(undefended), defended.utility[undefended.worth]
    lost, scale = kind.better(before.mean) - kind.better(after.mean), 1.0 if kind.unit_scale else abs(before.mean)
    none = f"costs no {kind.title}" if kind.higher_is_better else f"does not increase the {kind.title}"
    if abs(lost) <= 0.0005 * scale:
        return none
    if kind.unit_scale:
        amount = percentage_points(abs(lost))
    else:
        amount = _percent(abs(lost) / scale) if scale else format_metric(undefended.worth, abs(lost))
    within = (
        "less than its standard deviation over the seeds"
        if abs(lost) < max(before.std or 0.0, after.std or 0.0)
        else ""
    )
    if lost > 0:
        cost = f"costs {amount} of {kind.title}" if kind.higher_is_better else f"increases the {kind.title} by {amount}"
        return cost + (f" ({within})" if within else "")
    return f"{none} (it {'rose' if kind.higher_is_better else 'fell'} by {amount}{', ' if within else ''}{within})"
