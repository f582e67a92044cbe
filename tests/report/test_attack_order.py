"""The strongest attack is the figure, whatever the order of ``[[attack]]``."""

from __future__ import annotations

import itertools
import re
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stored_audit import JOB, lmid, make_leakage, make_row

from labelward.attacks import fitting_attacks
from labelward.auditing.audit import audit
from labelward.job import parse_job, template
from labelward.report.metrics import metric_of
from labelward.report.narrative import headline, headline_row, ranking_metric, strongest
from labelward.report.page import write_report
from labelward.report.summary import summary_table
from labelward.runs.schema import ResultRow, append_row, defense_label

UNDEFENDED, DEFENDED = defense_label(()), "id-lmid (xi 0.1)"
KINDS = ("id2graph", "instance-clustering", "split-posterior", "clustering", "leaf-smoothing")
# kind: primary metric, V-measure without and with the defense, and without the view
FOUND: dict[str, tuple[str, float, float, float]] = {
    "id2graph": ("v_measure", 0.70, 0.30, 0.40),
    "instance-clustering": ("accuracy", 0.88, 0.20, 0.00),
    "split-posterior": ("auc", 0.10, 0.10, 0.55),
    "clustering": ("v_measure", 0.50, 0.50, 0.50),
    "leaf-smoothing": ("v_measure", 0.80, 0.45, 0.50),
}


def leakage(primary: str, value: float, own: float) -> dict[str, Any]:
    found = make_leakage(value, own)
    for each, scale in ((found, 1.0), (found["chance"], 0.1), (found["without_view"], 0.5)):
        each["matched_accuracy"] = 0.5 + 0.5 * each["v_measure"]
        if primary != "v_measure":
            each[primary] = 0.5 + 0.1 * scale
    return found | {"primary": primary}


def rows(kinds: tuple[str, ...]) -> list[ResultRow]:
    return [
        make_row(
            seed=seed, defense=defense, attack={"kind": kind}, leakage=leakage(primary, values[at] + seed / 1e3, own)
        )
        for seed in (1, 2)
        for at, defense in enumerate(((), lmid(0.1)))
        for kind in kinds
        for primary, *values, own in (FOUND[kind],)
    ]


def test_the_maximum_over_all_attacks_counts_and_own_columns_are_its_floor() -> None:
    table = summary_table(rows(KINDS))
    best = strongest(table)
    bare, defended = best[UNDEFENDED, "telco"], best[DEFENDED, "telco"]
    assert (bare.attack, bare.primary) == ("instance-clustering", "v_measure")
    assert bare.leakage["v_measure"].mean == pytest.approx(0.8815)
    assert bare.leakage["matched_accuracy"].mean == pytest.approx(0.94075)
    assert bare.without_view["v_measure"].mean == 0.55  # of another attack than the strongest
    assert bare.gain["v_measure"].mean == pytest.approx(0.3315)
    # All attacks with the view fall below the best without it: the attacker leaves the view aside.
    assert defended.leakage["v_measure"] == defended.without_view["v_measure"]
    assert defended.leakage["v_measure"].mean == 0.55


def test_known_labels_alone_are_a_floor_but_the_upper_bound_is_not() -> None:
    beside = {"logistic": {"v_measure": 0.65}, "all labels": {"v_measure": 0.95}}
    table = summary_table([make_row(leakage=make_leakage(0.7, 0.5) | {"beside": beside})])
    (row,) = strongest(table).values()
    assert row.without_view["v_measure"].mean == 0.65


def test_results_of_earlier_versions_are_compared_by_a_metric_that_order_does_not_choose() -> None:
    found = [
        make_row(
            attack={"kind": kind},
            leakage={name: 0.8, "chance": {name: 0.5}, "without_view": {name: 0.6}, "primary": name},
        )
        for kind, name in (("direct", "accuracy"), ("split-posterior", "auc"))
    ]
    for order in (found, found[::-1]):
        table = summary_table(order)
        assert ranking_metric(table) == "accuracy"
        assert headline_row(list(strongest(table).values())).attack == "direct"
    assert ranking_metric(summary_table([make_row(attack=None, leakage=None, party=None)])) is None


def test_equal_attacks_are_named_in_any_order() -> None:
    found = [make_row(attack={"kind": kind}) for kind in ("id2graph", "leaf-smoothing", "consensus")]
    assert (
        len({next(iter(strongest(summary_table(order)).values())).attack for order in itertools.permutations(found)})
        == 1
    )


def sentences(folder: Path) -> list[str]:
    """Return headline, notices, hint, cards but for times, and the plots as text."""
    page = write_report(folder).read_text(encoding="utf-8")
    found = re.findall(r'<p class="(?:headline|hint|banner[^"]*)"[^>]*>(.*?)</p>', page)
    found += [card for card in re.findall(r'<div class="card">(.*?)</div>', page) if "Cost of" not in card]
    found += re.findall(r'role="img" aria-label="([^"]*)"', page)
    return [unescape(re.sub("<[^>]*>", " ", each)) for each in found]


def test_no_sentence_depends_on_the_order_of_stored_attacks(tmp_path: Path) -> None:
    """Every permutation of five attacks that rank themselves by three metrics."""
    seen = set()
    for number, order in enumerate(itertools.permutations(KINDS)):
        stored = rows(order)
        seen.add(tuple(headline(summary_table(stored), 455)))
        if number % 24 == 0:
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / "job.toml").write_text(JOB)
            for row in stored:
                append_row(folder, row)
            seen.add((headline(summary_table(stored), 455)[0], *sentences(folder)))
    assert len(seen) == 2  # one headline, one page
    assert all("instance-clustering" in " ".join(each) for each in seen)


@pytest.mark.slow
def test_no_sentence_of_an_audit_depends_on_the_order_of_its_attacks(tmp_path: Path) -> None:
    kinds = ("instance-clustering", "leaf-smoothing", "clustering", "id2graph", "consensus")
    job = """
[data]
table = "breast_cancer"
[parties]
active = 0.5
telco = 0.5
[model]
kind = "secureboost"
trees = 2
depth = 3
[encryption]
engine = "plain"
insecure = true
[[defense]]
kind = "id-lmid"
xi = [0.1]
[run]
seeds = [1]
"""
    pages = []
    for number, order in enumerate((kinds, kinds[::-1])):
        text = job + "".join(f'[[attack]]\nkind = "{kind}"\n' for kind in order)
        audit(parse_job(text), tmp_path / str(number), repeat=[tmp_path / "0"] if number else [])
        pages.append(sentences(tmp_path / str(number)))
    assert pages[0] == pages[1]
    assert len(pages[0]) > 5


def test_the_template_and_the_example_run_all_attacks_that_fit() -> None:
    example = (Path(__file__).parents[2] / "examples" / "quickstart.toml").read_text(encoding="utf-8")
    for text in (template(), example):
        assert sorted(attack.kind for attack in parse_job(text).attacks) == sorted(fitting_attacks("secureboost"))


def test_every_metric_of_the_common_scale_is_on_unit_scale() -> None:
    assert all(
        metric_of(name).unit_scale and metric_of(name).higher_is_better for name in ("v_measure", "matched_accuracy")
    )


def test_rows_of_the_table_are_left_as_they_are() -> None:
    table = summary_table(rows(KINDS))
    before = [msgspec.json.encode(row) for row in table]
    strongest(table)
    assert [msgspec.json.encode(row) for row in table] == before


def test_what_a_defense_costs_is_read_from_honest_runs() -> None:
    """The strongest attack may be of a malicious run, whose model is worse; the defense is not to blame for that."""

    def row(auc: float, value: float, **more: Any) -> ResultRow:
        utility = make_row().utility | {"auc": auc, "primary": "auc"}
        return make_row(leakage=leakage("v_measure", value, 0.1), utility=utility, **more)

    lying = {"attack": {"kind": "active-completion"}, "behavior": {"kind": "malicious-optimizer"}}
    honest = {"attack": {"kind": "passive-completion"}}
    table = summary_table(
        [
            *(row(0.90, 0.5, **honest), row(0.80, 0.7, **lying)),
            *(row(0.85, 0.4, **honest, defense=lmid(0.1)), row(0.70, 0.3, **lying, defense=lmid(0.1))),
        ]
    )
    best = strongest(table)
    bare, defended = best[UNDEFENDED, "telco"], best[DEFENDED, "telco"]
    assert (bare.behavior is None, bare.leakage["v_measure"].mean) == (False, 0.7)
    assert (bare.utility["auc"].mean, defended.utility["auc"].mean) == (0.90, 0.85)
    assert bare.edge["auc"].mean == pytest.approx(0.90 - 0.974)
    (alone,) = strongest(summary_table([row(0.80, 0.7, **lying)])).values()
    assert alone.utility["auc"].mean == 0.80  # no honest run to take it from
