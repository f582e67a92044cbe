"""Sentences name what their figures are about: parties, rows, baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stored_audit import JOB, make_leakage, make_row, make_run, regression_rows

from labelward.cli._summary import print_summary
from labelward.report.column_leakage import column_sentences, column_table
from labelward.report.comparison import compare_audits
from labelward.report.load import StoredAudit, read_audit
from labelward.report.narrative import headline, scope_notice
from labelward.report.summary import SummaryRow, summary_table
from labelward.report.tables import leakage_tables
from labelward.runs.schema import AttackAccount, ResultRow, VisibilityCounts, append_row, write_run

ALONE = {"auc": 0.974, "accuracy": 0.925, "f1": 0.94}
"""What the active party reaches without others, in the rows of :func:`make_row`."""


@pytest.mark.parametrize("attackers", [("telco+bank",), ("telco", "bank", "telco+bank"), ("active", "telco")])
def test_partners_are_the_parties_of_the_job_whoever_attacks(tmp_path: Path, attackers: tuple[str, ...]) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    for chain, value in (((), 0.7), (({"kind": "id-lmid", "xi": 0.5},), 0.56)):
        for party in attackers:
            worth: dict[str, Any] = make_row().utility | ALONE
            append_row(tmp_path, make_row(party=party, defense=chain, leakage=make_leakage(value, 0.55), utility=worth))
    audit = read_audit(tmp_path)
    assert audit.partners == ("telco", "bank")
    text = " ".join(headline(summary_table(audit.rows), None, audit.partners))
    assert "with telco and bank, 0.974" in text


def test_partners_that_nobody_named_are_the_other_parties() -> None:
    text = " ".join(headline(summary_table([make_row(party="telco+bank", utility=make_row().utility | ALONE)]), None))
    assert "with the other parties" in text


def stored(folder: Path, known: tuple[int, ...], role: str = "holder", **leakage: float) -> StoredAudit:
    """Return an audit of the active party's attack, which knows some labels of 400 rows in each seed."""
    (folder / "job.toml").write_text(JOB)
    attack = {"kind": "bin-bounds"}
    for seed, number in enumerate(known, start=1):
        found = make_leakage(1.0, 0.0) | leakage
        found |= {name: found[name] | leakage for name in ("chance", "without_view")}
        append_row(folder, make_row(seed=seed, party="active", attack=attack, leakage=found))
        account = AttackAccount(party="active", attack=attack, auxiliary={"classes": 2, "known labels": number})
        seen = {"active": VisibilityCounts(role=role, rows=400)}
        write_run(folder, make_run(seed=seed, seen=seen, attacks=(account,)))
    return read_audit(folder)


@pytest.mark.parametrize(("known", "scored"), [((397,), "3"), ((397, 395), "3 to 5")])
def test_a_figure_that_covers_few_rows_says_how_many(tmp_path: Path, known: tuple[int, ...], scored: str) -> None:
    audit = stored(tmp_path, known, read=1.0, read_right=1.0)
    table = audit.summary(audit.rows)
    leak, read, *_ = headline(table, 400, audit.partners)
    assert f"the {scored} training rows whose" in leak
    assert f"of the {scored} rows whose" in read
    assert f"active, {scored}." in leakage_tables(table)[0].note


def test_groups_of_a_party_without_labels_are_scored_on_all_rows(tmp_path: Path) -> None:
    audit = stored(tmp_path, (40,), role="passive")
    (row,) = audit.summary(audit.rows)
    assert row.scored == ()


def test_the_best_without_messages_is_not_called_as_the_attack_without_the_view(tmp_path: Path) -> None:
    beside = {"majority": {"v_measure": 0.4}}
    table = summary_table([make_row(leakage=make_leakage(0.7, 0.0) | {"beside": beside})])
    assert "(0.40 at best without" in headline(table, 400)[0]
    assert "without the view" not in headline(table, 400)[0]


def test_bins_of_values_are_counted_and_not_said_to_be_equal(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    (row,) = regression_rows([0.3])
    append_row(tmp_path, row)
    account = AttackAccount(party="telco", attack=row.attack or {}, auxiliary={"bins of the labels": 2})
    write_run(tmp_path, make_run(attacks=(account,)))
    audit = read_audit(tmp_path)
    assert "in 2 bins" in headline(audit.summary(audit.rows), 400)[0]
    assert "in bins" in headline(summary_table(audit.rows), 400)[0]


def cells(recovered: float, by_splits: float = 0.0, **changes: Any) -> ResultRow:
    found = {"recovered": recovered, "wrong": 0.0, "recovered_by_splits": by_splits}
    leakage = found | {"chance": found, "without_view": found, "primary": "recovered", "target": "columns"}
    return make_row(party="active", attack={"kind": "bin-reconstruction"}, leakage=leakage, **changes)


def on_cells(*figures: float, **changes: Any) -> list[SummaryRow]:
    return summary_table([cells(*figures, **changes)])


def test_columns_that_were_not_measured_have_no_figures() -> None:
    (header, *_), (row,) = column_table(on_cells(0.0)).header, column_table(on_cells(0.0)).rows
    assert header == "defense"
    assert row[4:7] == ("0.000", "0.000", "0.000")
    (row,) = column_table(on_cells(0.0, defense=({"kind": "randomized-response", "epsilon": 1.0},))).rows
    assert set(row[4:]) == {"–"}
    (row,) = column_table(on_cells(0.2, defense=({"kind": "randomized-response", "epsilon": 1.0},))).rows
    assert row[4] == "0.200"


def test_the_console_has_dashes_for_what_was_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    noisy = ({"kind": "randomized-response", "epsilon": 1.0},)
    print_summary([make_row(defense=noisy), cells(0.0, defense=noisy)])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "bin-reconstruction  " in line]
    assert line.count("–") == 3


def test_comparisons_leave_out_what_was_not_measured(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.toml").write_text(JOB)
        for chain in ((), ({"kind": "randomized-response", "epsilon": 1.0},)):
            append_row(tmp_path / name, cells(0.0, defense=chain))
    tables = compare_audits([tmp_path / "one", tmp_path / "other"]).tables
    leakage = next(table for table in tables if "Leakage" in table.caption)
    assert [row[0] for row in leakage.rows] == ["no defense"]


@pytest.mark.parametrize(
    ("figures", "said"),
    [((0.019, 0.0), "can hide all of these"), ((0.019, 0.01), "1.0% follow from"), ((0.0, 0.0), "infer no cell")],
)
def test_cells_that_follow_from_splits_are_told_from_the_others(figures: tuple[float, float], said: str) -> None:
    (sentence,) = column_sentences(on_cells(*figures))
    assert said in sentence


def test_what_a_bound_does_not_cover_is_a_list() -> None:
    (sentence,) = scope_notice(summary_table([make_row(defense=({"kind": "id-lmid", "xi": 0.5},))]))
    assert "not cover: several nodes" in sentence
    sentence, who_keeps_it = scope_notice(summary_table([make_row(defense=({"kind": "lp-mst", "epsilon": 0.5},))]))
    assert "the true labels" in who_keeps_it
    assert sentence.count(";") == 6
