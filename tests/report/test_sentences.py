"""What the report says on top, word for word, in each situation."""

from __future__ import annotations

from typing import Any

import msgspec
from stored_audit import LOCAL, lmid, make_leakage, make_row

from labelward.report.narrative import (
    UNDEFENDED,
    budget_notice,
    headline,
    insecure_warning,
    missing_details_warning,
    reading_hint,
    unfinished_warning,
)
from labelward.report.summary import summary_table
from labelward.runs.schema import ResultRow

Chain = tuple[dict[str, Any], ...]


def rows(
    values: list[float], own: list[float], *, auc: float = 0.988, defense: Chain = (), **more: Any
) -> list[ResultRow]:
    utility = make_row().utility | {"auc": auc}
    return [
        make_row(seed=seed, defense=defense, leakage=make_leakage(v, o), utility=utility, **more)
        for seed, (v, o) in enumerate(zip(values, own, strict=True), start=1)
    ]


OWN = [0.54, 0.56]
LEAK = rows([0.69, 0.71], OWN)


def said(*parts: list[ResultRow], training_rows: int | None = 455) -> list[str]:
    return headline(summary_table([row for part in parts for row in part]), training_rows)


GROUPED = (
    "From its own columns and what it received during training, telco could group the 455 training rows by their "
    "secret label with a V-measure of 0.70 (0.55 from its own columns alone; chance 0.00)."
)


def test_a_leak_and_a_defense_that_helps() -> None:
    assert said(LEAK, rows([0.57, 0.59], OWN, auc=0.985, defense=lmid(0.5))) == [
        GROUPED,
        "The best defense tried, id-lmid (xi 0.5), brings this down to 0.58 and costs 0.3 points of AUC.",
    ]


def test_a_defense_that_takes_away_all_that_the_training_gave() -> None:
    assert said(LEAK, rows([0.55, 0.55], OWN, defense=lmid(0.1)))[1] == (
        "The best defense tried, id-lmid (xi 0.1), brings this down to 0.55 (no more than telco's own columns give) "
        "and costs no AUC."
    )


def test_a_defense_under_which_the_utility_rises() -> None:
    assert said(LEAK, rows([0.6, 0.6], OWN, auc=0.990, defense=lmid(0.1)))[1] == (
        "The best defense tried, id-lmid (xi 0.1), brings this down to 0.60 and costs no AUC (it rose by 0.2 points)."
    )


def test_a_cost_within_the_spread_is_called_so() -> None:
    first = rows([0.69], [0.54], auc=0.98)
    second = make_row(seed=2, leakage=make_leakage(0.71, 0.56), utility=make_row().utility | {"auc": 0.996})
    assert said(first, [second], rows([0.6, 0.6], OWN, auc=0.985, defense=lmid(0.1)))[1].endswith(
        "and costs 0.3 points of AUC (less than its spread over the seeds)."
    )


def test_the_better_of_two_equal_defenses_is_the_more_useful_one() -> None:
    equal = rows([0.6, 0.6], OWN, auc=0.95, defense=LOCAL), rows([0.6, 0.6], OWN, auc=0.98, defense=lmid(0.1))
    assert "id-lmid (xi 0.1)" in said(LEAK, *equal)[1]


def test_a_hardly_smaller_leakage_does_not_outweigh_the_utility() -> None:
    strict = rows([0.595, 0.595], OWN, auc=0.95, defense=lmid(0.1))
    assert (
        "id-lmid (xi 0.5), brings this down to 0.60"
        in said(LEAK, strict, rows([0.6, 0.6], OWN, auc=0.98, defense=lmid(0.5)))[1]
    )
    assert "id-lmid (xi 0.1)" in said(LEAK, strict, rows([0.61, 0.61], OWN, auc=0.98, defense=lmid(0.5)))[1]


def test_a_reduction_that_the_spread_does_not_bear_out() -> None:
    assert said(rows([0.6, 0.8], OWN), rows([0.5, 0.84], OWN, defense=lmid(1.0)))[-1].endswith(
        "brings this down to 0.67 and costs no AUC. The spread over the seeds is too wide to be sure of that."
    )


def test_a_defense_that_raises_the_leakage() -> None:
    assert said(LEAK, rows([0.71, 0.73], OWN, defense=LOCAL)) == [
        GROUPED,
        "No defense tried lowers it: with the best of them, local-trees (count 2, mode add), it rises to 0.72.",
    ]


def test_some_defenses_raise_the_leakage() -> None:
    parts = [rows([0.71, 0.73], OWN, defense=LOCAL), rows([0.70, 0.70], OWN, defense=lmid(2.0))]
    assert said(LEAK, *parts)[1:] == [
        "No defense tried lowers it: with the best of them, id-lmid (xi 2.0), it is 0.70.",
        "Not every defense protects: measured here, the leakage rose under local-trees (count 2, mode add) (to 0.72).",
    ]


def test_no_defense_tried() -> None:
    assert said(LEAK) == [GROUPED, "No defense was tried."]


def test_no_leak_above_what_the_own_columns_give() -> None:
    assert said(rows([0.55, 0.55], OWN), rows([0.55, 0.55], OWN, defense=lmid(0.5))) == [
        "What telco received during training did not help it to group the 455 training rows by their secret label: it "
        "reaches a V-measure of 0.55 with it and 0.55 from its own columns alone (chance 0.00).",
        "So there was nothing that a defense could have taken back.",
    ]


def test_a_leak_that_the_spread_does_not_bear_out() -> None:
    assert said(rows([0.5, 0.8], OWN))[0].endswith(
        "with a V-measure of 0.65 (0.55 from its own columns alone; chance 0.00). With the spread over the 2 seeds, "
        "this difference is not certain."
    )


def test_a_single_seed() -> None:
    assert said(rows([0.7], [0.55])) == [
        GROUPED,
        "No defense was tried.",
        "All this rests on a single seed: its spread is unknown, and another draw may differ.",
    ]


def test_the_attacker_whose_view_adds_most_is_spoken_of_and_others_are_named() -> None:
    bank = rows([0.9, 0.9], [0.9, 0.9], party="bank")
    sentences = said(bank, LEAK)
    assert sentences[0] == GROUPED
    assert sentences[-1] == "Other attackers audited: bank, 0.90 (0.90 from its own columns alone)."


def test_the_strongest_attack_counts_under_each_defense() -> None:
    clustering = {"attack": {"kind": "clustering"}}
    parts = [LEAK, rows(OWN, OWN, **clustering)]
    parts += [rows([0.3, 0.3], OWN, defense=lmid(0.1)), rows(OWN, OWN, defense=lmid(0.1), **clustering)]
    assert "brings this down to 0.55 (no more" in said(*parts)[1]


CLUSTERING: dict[str, Any] = {"attack": {"kind": "clustering"}}
ALONE = {"auc": 0.974, "accuracy": 0.925, "f1": 0.94}


def useful(utility: dict[str, float], *seeds: ResultRow) -> list[ResultRow]:
    """Return the rows with another utility."""
    return [msgspec.structs.replace(row, utility=row.utility | utility) for row in seeds]


def test_attacks_that_never_open_the_view_say_nothing_of_the_training() -> None:
    blind = "No attack that reads the view was run, so nothing is said about what training leaks."
    assert said(rows(OWN, OWN, **CLUSTERING)) == [blind]
    assert said(rows(OWN, OWN, **CLUSTERING), rows(OWN, OWN, defense=lmid(0.1), **CLUSTERING)) == [blind]


def test_an_attack_that_read_an_empty_view_did_not_help() -> None:
    """Its leakage equals that without the view, too; but it did look."""
    assert "did not help it" in said(rows(OWN, OWN), rows(OWN, OWN, **CLUSTERING))[0]


def test_a_defense_that_leaves_the_active_party_alone() -> None:
    own = useful(ALONE, *rows([0.55, 0.55], OWN, defense=lmid(0.1)))
    nothing = (
        "The best defense tried, id-lmid (xi 0.1), brings this down to 0.55 (no more than telco's own columns give) "
        "and costs 1.4 points of AUC. With this defense telco contributes nothing: the model is the one that the "
        "active party trains alone."
    )
    assert said(LEAK, own)[1] == nothing
    other = rows([0.6, 0.6], OWN, auc=0.985, defense=lmid(0.5))
    assert said(LEAK, own, other)[1] == (
        f"{nothing} Of the others, id-lmid (xi 0.5) brings this down to 0.60 and costs 0.3 points of AUC."
    )


def test_one_seed_that_differs_is_enough_to_contribute() -> None:
    first, second = rows([0.55, 0.55], OWN, defense=lmid(0.1))
    apart = useful(ALONE, first) + useful(ALONE | {"f1": 0.941}, second)
    assert "contributes nothing" not in said(LEAK, apart)[1]


def test_several_passive_parties_contribute_nothing() -> None:
    bank = rows([0.6, 0.6], [0.6, 0.6], party="bank")
    own = useful(ALONE, *rows([0.55, 0.55], OWN, defense=lmid(0.1)))
    assert "telco and bank contribute nothing" in said(LEAK, bank, own)[1]


def test_joining_that_gains_nothing() -> None:
    assert not any("Joining" in each for each in said(LEAK))
    last = "Joining brings no measurable gain on this data: AUC 0.974 with telco, 0.974 without."
    assert said(useful(ALONE, *LEAK))[-1] == last
    spread = useful({"auc": 0.974}, LEAK[0]) + useful({"auc": 0.978}, LEAK[1])  # 0.002 ± 0.003 above
    assert said(spread)[-1] == last.replace("0.974 with telco", "0.976 with telco")


def test_details_that_are_missing() -> None:
    assert missing_details_warning(0, 4) is None
    assert missing_details_warning(4, 4) == (
        "The details of all 4 runs are missing (run.json below runs/): what crossed the wire, what each party saw, "
        "keys and times are left out for them."
    )
    assert "of 1 of 4 runs" in (missing_details_warning(1, 4) or "")


def test_no_attack_or_no_undefended_run() -> None:
    assert said([make_row(attack=None, leakage=None, party=None)]) == [
        "No attack was run, so this report says nothing of what the labels give away."
    ]
    assert said(rows([0.6], [0.5], defense=LOCAL)) == [
        "The undefended run is not finished: there is nothing yet to compare the defenses with."
    ]


def test_another_ranking_metric_and_an_unknown_number_of_rows() -> None:
    leakage = {"auc": 0.8, "chance": {"auc": 0.5}, "without_view": {"auc": 0.6}, "primary": "auc"}
    assert said([make_row(leakage=leakage)], training_rows=None)[0] == (
        "From its own columns and what it received during training, telco could guess the secret label of the training "
        "rows with an AUC of 0.80 (0.60 from its own columns alone; chance 0.50)."
    )
    assert reading_hint("auc") == "Leakage is given as AUC; compare it with chance and with the party's own columns."
    assert reading_hint("v_measure") == (
        "V-measure 0 means that the groups say nothing of the labels; 1, that they are the labels."
    )


def test_insecure_runs() -> None:
    rehearsal = (
        "; do not use it between companies: it is a rehearsal, and whoever sees the messages could read what "
        "encryption should hide."
    )
    assert insecure_warning([]) is None
    assert insecure_warning(["plain engine"]) == f"This run was made with no encryption (plain engine){rehearsal}"
    assert insecure_warning(["512-bit key", "seeded protection"]) == (
        "This run was made with a key that is too short (512-bit key), predictable keys (seeded protection)" + rehearsal
    )


def test_unfinished_audits() -> None:
    assert unfinished_warning(10, 10, cut_off=False) is None
    assert unfinished_warning(7, 10, cut_off=True) == (
        "This audit is unfinished: 7 of 10 runs are stored. The same command goes on with the rest."
    )
    assert unfinished_warning(10, 10, cut_off=True) == (
        "This audit is unfinished: its last result was cut off. The same command goes on with the rest."
    )


def test_a_budget_is_named_since_no_run_is_without_it() -> None:
    assert budget_notice(None) == []
    (notice,) = budget_notice(0.3)
    assert "budget of 0.3" in notice
    assert UNDEFENDED in notice
