"""Sentences of reports, word for word: the headline in each situation, and the whole text of some pages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stored_audit import JOB, LOCAL, lmid, make_leakage, make_row, make_run, regression_rows, write_audit

from labelward.report.column_leakage import column_sentences
from labelward.report.narrative import (
    budget_notice,
    constant_notice,
    constraint_notice,
    diverged_notice,
    headline,
    insecure_warning,
    missing_details_warning,
    published_split_notice,
    reading_hint,
    split_notice,
    unfinished_warning,
)
from labelward.report.page import write_report
from labelward.report.summary import summary_table
from labelward.runs.diverged_runs import DivergedRun
from labelward.runs.schema import RESULTS_FILE, EngineInfo, ResultRow, append_row, write_run
from pages import check_page, page_text

PAGES = Path(__file__).parent / "pages"
Chain = tuple[dict[str, Any], ...]


def written(folder: Path) -> str:
    """Return the text of an audit's report, as of a day that is always the same."""
    os.utime(folder / RESULTS_FILE, (1_700_000_000, 1_700_000_000))
    return page_text(write_report(folder).read_text(encoding="utf-8"))


def rows(
    values: list[float], own: list[float], *, auc: float = 0.988, defense: Chain = (), **more: Any
) -> list[ResultRow]:
    utility = make_row().utility | {"auc": auc}
    return [
        make_row(seed=seed, defense=defense, leakage=make_leakage(v, o), utility=utility, **more)
        for seed, (v, o) in enumerate(zip(values, own, strict=True), start=1)
    ]


def useful(utility: dict[str, float], *seeds: ResultRow) -> list[ResultRow]:
    """Return the rows with another utility."""
    return [msgspec.structs.replace(row, utility=row.utility | utility) for row in seeds]


def defended(values: list[float], defense: Chain, **more: Any) -> list[ResultRow]:
    return rows(values, OWN, defense=defense, **more)


def other_metric(name: str, value: float, own: float, chance: float, **more: Any) -> list[ResultRow]:
    leakage = {name: value, "chance": {name: chance}, "without_view": {name: own}, "primary": name}
    return [make_row(leakage=leakage, **more)]


def matched(value: float, own: float, accuracy: float, alone: float, **more: Any) -> list[ResultRow]:
    """Return rows of an attack that ranks itself by accuracy, with figures on the common scale."""
    leakage = make_leakage(value, own)
    for each, found in ((leakage, accuracy), (leakage["without_view"], alone), (leakage["chance"], 0.52)):
        each |= {"accuracy": found - 0.05, "matched_accuracy": found}
    return [make_row(seed=seed, leakage=leakage | {"primary": "accuracy"}, **more) for seed in (1, 2)]


def reads(share: float, right: float, **more: Any) -> list[ResultRow]:
    """Return rows of an attack that reads single labels, of which figures over all rows say nearly nothing."""
    leakage = make_leakage(0.1, 0.0) | {"read": share, "read_right": right, "primary": "read"}
    leakage["chance"] |= {"read": 0.0, "read_right": 0.86}
    behavior, attack = {"kind": "lying-sums", "about": "columns"}, {"kind": "lying-sums"}
    return [make_row(seed=seed, leakage=leakage, attack=attack, behavior=behavior, **more) for seed in (1, 2)]


def on_columns(
    found: dict[str, float], chance: dict[str, float], own: dict[str, float], **changes: Any
) -> list[ResultRow]:
    leakage = found | {"chance": chance, "without_view": own, "primary": next(iter(found)), "target": "columns"}
    return [make_row(attack={"kind": "peek"}, leakage=leakage, **changes)]


def sides(pairs: float, **more: Any) -> list[ResultRow]:
    """Return rows of the attack on splits of columns with a monotone constraint."""
    return other_metric("ordered_pairs", pairs, 0.58, 0.5, attack={"kind": "monotone-sides", "eta": 0.9}, **more)


PARTNERS = ("telco", "bank")
OWN = [0.54, 0.56]
NOTHING = {"recovered": 0.0, "wrong": 0.0}
NOISY = ({"kind": "randomized-response", "epsilon": 1.0},)
LEAK = rows([0.69, 0.71], OWN)
CLUSTERING: dict[str, Any] = {"attack": {"kind": "clustering"}}
LYING: dict[str, Any] = {"attack": {"kind": "active-completion"}, "behavior": {"kind": "malicious-optimizer"}}
ALONE = {"auc": 0.974, "accuracy": 0.925, "f1": 0.94}
ONE_APART = rows([0.55, 0.55], OWN, defense=lmid(0.1))
REGRESSION = regression_rows([0.31, 0.33])

SITUATIONS: dict[str, list[list[ResultRow]]] = {
    "a defense helps": [LEAK, defended([0.57, 0.59], lmid(0.5), auc=0.985)],
    "a defense removes all that training added": [LEAK, defended([0.55, 0.55], lmid(0.1))],
    "utility rises under a defense": [LEAK, defended([0.6, 0.6], lmid(0.1), auc=0.990)],
    "a cost within the standard deviation": [
        rows([0.69], [0.54], auc=0.98),
        [make_row(seed=2, leakage=make_leakage(0.71, 0.56), utility=make_row().utility | {"auc": 0.996})],
        defended([0.6, 0.6], lmid(0.1), auc=0.985),
    ],
    "of two equal defenses the more useful one": [
        LEAK,
        defended([0.6, 0.6], LOCAL, auc=0.95),
        defended([0.6, 0.6], lmid(0.1), auc=0.98),
    ],
    "slightly lower leakage does not outweigh utility": [
        LEAK,
        defended([0.595, 0.595], lmid(0.1), auc=0.95),
        defended([0.6, 0.6], lmid(0.5), auc=0.98),
    ],
    "clearly lower leakage outweighs utility": [
        LEAK,
        defended([0.595, 0.595], lmid(0.1), auc=0.95),
        defended([0.61, 0.61], lmid(0.5), auc=0.98),
    ],
    "a reduction within the deviation": [rows([0.6, 0.8], OWN), defended([0.5, 0.84], lmid(1.0))],
    "a defense increases the leakage": [LEAK, defended([0.71, 0.73], LOCAL)],
    "some defenses increase the leakage": [
        LEAK,
        defended([0.71, 0.73], LOCAL),
        defended([0.70, 0.70], lmid(2.0)),
    ],
    "no defense": [LEAK],
    "no leak above the own columns": [rows([0.55, 0.55], OWN), defended([0.55, 0.55], lmid(0.5))],
    "a leak within the deviation": [rows([0.5, 0.8], OWN)],
    "a single seed": [rows([0.7], [0.55])],
    "the attacker whose view adds most comes first": [rows([0.9, 0.9], [0.9, 0.9], party="bank"), LEAK],
    "the strongest attack counts under each defense": [
        LEAK,
        rows(OWN, OWN, **CLUSTERING),
        defended([0.3, 0.3], lmid(0.1)),
        defended(OWN, lmid(0.1), **CLUSTERING),
    ],
    "the strongest attack ranks itself by another metric and stands last": [
        LEAK,
        matched(0.88, 0.1, 0.97, 0.6, attack={"kind": "instance-clustering"}),
        defended([0.3, 0.3], lmid(0.1)),
    ],
    "no figure below that of own columns is protection": [
        matched(0.7, 0.0, 0.93, 0.5, attack={"kind": "instance-clustering"}),
        matched(0.1, 0.0, 0.60, 0.5, attack={"kind": "instance-clustering"}, defense=lmid(0.1)),
        rows(OWN, OWN, **CLUSTERING),
        defended(OWN, lmid(0.1), **CLUSTERING),
    ],
    "attacks that do not read the view": [rows(OWN, OWN, **CLUSTERING), defended(OWN, lmid(0.1), **CLUSTERING)],
    "an attack that found an empty view": [rows(OWN, OWN), rows(OWN, OWN, **CLUSTERING)],
    "a defense leaves the active party alone": [LEAK, useful(ALONE, *defended([0.55, 0.55], lmid(0.1)))],
    "another defense does not leave the active party alone": [
        LEAK,
        useful(ALONE, *defended([0.55, 0.55], lmid(0.1))),
        defended([0.6, 0.6], lmid(0.5), auc=0.985),
    ],
    "one seed that differs is enough to contribute": [
        LEAK,
        useful(ALONE, ONE_APART[0]) + useful(ALONE | {"f1": 0.941}, ONE_APART[1]),
    ],
    "several passive parties contribute nothing": [
        rows([0.6, 0.6], [0.6, 0.6], party="bank"),
        LEAK,
        useful(ALONE, *defended([0.55, 0.55], lmid(0.1))),
    ],
    "federation without a gain": [useful(ALONE, *LEAK)],
    "federation with a gain within the deviation": [
        useful({"auc": 0.974}, LEAK[0]) + useful({"auc": 0.978}, LEAK[1])  # 0.002 ± 0.003 above
    ],
    "federation with a small gain in every one of 30 seeds": [
        [
            each
            for seed in range(1, 31)
            for each in useful(
                {"auc": 0.974 + 0.010 + 0.012 * (-1) ** seed}, make_row(seed=seed, leakage=make_leakage(0.7, 0.55))
            )
        ]
    ],
    "the strongest attack deviates from the protocol": [
        rows([0.6, 0.6], OWN, auc=0.99, attack={"kind": "passive-completion"}),
        rows([0.7, 0.7], OWN, auc=0.89, **LYING),
        defended([0.57, 0.57], lmid(0.5), auc=0.94, attack={"kind": "passive-completion"}),
        defended([0.56, 0.56], lmid(0.5), auc=0.80, **LYING),
    ],
    "an attack that reads single labels": [
        rows(OWN, OWN, **CLUSTERING),
        reads(0.064, 1.0),
        defended(OWN, lmid(0.1), **CLUSTERING),
        reads(0.02, 0.9, defense=lmid(0.1)),
    ],
    "no attack": [[make_row(attack=None, leakage=None, party=None)]],
    "no undefended run": [defended([0.6, 0.6], LOCAL)],
    "another ranking metric": [other_metric("auc", 0.8, 0.6, 0.5)],
    "regression": [REGRESSION],
    "regression, a defense costs 5 %": [REGRESSION, regression_rows([0.1, 0.1], rmse=84.0, defense=lmid(0.5))],
    "regression, a cost within the deviation": [
        REGRESSION,
        regression_rows([0.1, 0.1], rmse=80.3, defense=lmid(0.5)),
    ],
    "regression, no cost": [REGRESSION, regression_rows([0.1, 0.1], rmse=80.01, defense=lmid(0.5))],
    "regression, a lower error": [REGRESSION, regression_rows([0.1, 0.1], rmse=76.0, defense=lmid(0.5))],
    "regression, of equal defenses the one with the lower error": [
        REGRESSION,
        regression_rows([0.1, 0.1], rmse=95.0, defense=lmid(0.1)),
        regression_rows([0.1, 0.1], rmse=81.0, defense=lmid(0.5)),
    ],
    "regression, federation without a gain": [regression_rows([0.31, 0.33], alone=79.0)],
    "regression, an undefended model without any error": [
        regression_rows([0.31], rmse=-0.5),
        regression_rows([0.1], rmse=3.5, defense=lmid(0.5)),
    ],
}


def test_headlines() -> None:
    parts = []
    for situation, groups in SITUATIONS.items():
        sentences = headline(summary_table([row for group in groups for row in group]), 455, PARTNERS)
        parts.append("\n".join([f"# {situation}", *sentences]))
    check_page(PAGES / "headlines.txt", "\n\n".join(parts).replace("\N{NO-BREAK SPACE}", " "))


def test_notices() -> None:
    split = {"attack": {"kind": "split-posterior"}}
    notices = {
        "leakage budget": budget_notice(0.3),
        "reading hints": [reading_hint("v_measure"), reading_hint("v_measure", regression=True), reading_hint("auc")],
        "insecure": [
            insecure_warning(["plain engine"]),
            insecure_warning(["plain engine"], ahead=True),
            insecure_warning(["512-bit key", "seeded protection"]),
        ],
        "constant guesses": constant_notice(
            summary_table(
                make_row(
                    seed=seed,
                    attack={"kind": "passive-completion"},
                    leakage=make_leakage(found, 0.0) | {"f1": 0.3, "auc": 0.81},
                )
                for seed, found in ((1, 0.0), (2, 0.4), (3, 0.0))
            )
        ),
        "diverged": diverged_notice(
            [
                DivergedRun(
                    party="telco",
                    behavior={"kind": "malicious-optimizer", "reading": "published"},
                    defense="none",
                    seed=seed,
                    reason="not finite",
                )
                for seed in (2, 1)
            ]
            + [DivergedRun(defense="noisy-gradients (scale 0.1)", seed=2, reason="not finite")]
        ),
        "incomplete": [unfinished_warning(7, 10, cut_off=True), unfinished_warning(10, 10, cut_off=True)],
        "missing details": [missing_details_warning(4, 4), missing_details_warning(1, 4)],
        "published split": published_split_notice("reference"),
        "monotone constraints": [
            *constraint_notice(True, summary_table(LEAK)),
            *constraint_notice(True, summary_table([*LEAK, *sides(0.93), *sides(0.71, defense=lmid(0.1))])),
        ],
        "row split": [
            *split_notice(summary_table(other_metric("auc", 0.8, 0.5, 0.5, **split)), 455),
            *split_notice(summary_table(other_metric("auc", 0.47, 0.5, 0.5, **split)), 455),
            *split_notice(summary_table(other_metric("auc", 0.47, 0.5, 0.5, **split)), 100_000),
            *split_notice(summary_table(other_metric("auc", 0.42, 0.5, 0.5, **split)), None),
        ],
        "columns of other parties": [
            *column_sentences(summary_table(on_columns({"auc": 0.5}, {"auc": 0.5}, {"auc": 0.63}))),
            *column_sentences(summary_table(on_columns({"auc": 0.5}, {"auc": 0.5}, {}))),
            *column_sentences(summary_table(on_columns({"auc": 0.8}, {"auc": 0.5}, {"auc": 0.63}))),
            *column_sentences(summary_table(on_columns({"correlation": 0.4}, {"correlation": 0.11}, {}))),
            *column_sentences(summary_table(on_columns({"recovered": 0.2, "wrong": 0.0}, {"recovered": 0.02}, {}))),
            *column_sentences(summary_table(on_columns(NOTHING, NOTHING, {}, defense=NOISY))),
            *column_sentences(summary_table(on_columns(NOTHING, NOTHING, {}, defense=lmid(0.1)))),
        ],
    }
    check_page(
        PAGES / "notices.txt",
        "\n\n".join("\n".join([f"# {name}", *map(str, found)]) for name, found in notices.items()),
    )


@pytest.mark.parametrize(
    "nothing",
    [
        budget_notice(None),
        insecure_warning([]),
        missing_details_warning(0, 4),
        unfinished_warning(10, 10, cut_off=False),
        published_split_notice("random"),
        constraint_notice(False, summary_table(sides(0.93))),
        split_notice(summary_table(LEAK), 455),
    ],
)
def test_no_notice_without_a_reason(nothing: object) -> None:
    assert not nothing


def test_report_of_classes(tmp_path: Path) -> None:
    folder = write_audit(tmp_path, seeds=2)
    check_page(PAGES / "report.txt", written(folder))


def test_report_of_regression(tmp_path: Path) -> None:
    """Insecure and unfinished, so that it has both banners."""
    (tmp_path / "job.toml").write_text(JOB)
    engine = EngineInfo(name="plain", bits=0, insecure=True, security_level=0)
    for row in [*REGRESSION, *regression_rows([0.1, 0.1], rmse=84.0, defense=lmid(0.5))]:
        append_row(tmp_path, msgspec.structs.replace(row, engine=engine))
        write_run(tmp_path, make_run(seed=row.seed, defense=row.defense))
    check_page(PAGES / "report-regression.txt", written(tmp_path))
