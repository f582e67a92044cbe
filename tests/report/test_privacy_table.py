"""Defenses on one scale of privacy: which figures a line takes from its attacks and seeds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from stored_audit import JOB, lmid, make_leakage, make_row

from labelward.report.page import write_report
from labelward.report.privacy_table import Interval, attacker_privacy, privacy_images, privacy_table
from labelward.report.summary import summary_table
from labelward.runs.schema import ResultRow, append_row

RESPONSE = ({"kind": "randomized-response", "epsilon": 2.0},)


def row(right: int, additive: float, *, attack: str = "id2graph", contradicted: int = 0, **more: Any) -> ResultRow:
    """Return a row of 1,000 guesses."""
    trials = [{"guesses": 1000, "right": right, "blind": 500}]
    evidence = {"rows": 3000, "pairs": 1000, "trials": trials, "changed": 20, "contradicted": contradicted}
    advantage = {
        "accuracy": 0.6 + additive,
        "without_view": 0.6,
        "additive": additive,
        "additive_error": 0.01,
        "multiplicative": 5 * additive,
        "multiplicative_error": 0.05,
    }
    figures = {"epsilon": {"bound": 0.0, "delta": 0.0, **evidence}, "advantage": advantage}
    return make_row(attack={"kind": attack}, leakage=make_leakage(0.7, 0.5) | figures, **more)


def page_of(rows: list[ResultRow], folder: Path) -> str:
    (folder / "job.toml").write_text(JOB)
    for each in rows:
        append_row(folder, each)
    return write_report(folder).read_text()


def test_the_strongest_attack_counts_whatever_the_order() -> None:
    rows = [row(800, 0.1, attack="union", seed=1), row(700, 0.3, seed=1), row(600, 0.05, seed=1, defense=RESPONSE)]
    for given in (rows, rows[::-1]):
        undefended, private = attacker_privacy(summary_table(given))
        assert (undefended.claimed, private.claimed) == (None, 2.0)
        assert undefended.attack == "id2graph"
        assert undefended.additive is not None
        assert undefended.additive.mean == pytest.approx(0.3)
        assert undefended.bound is not None
        assert private.bound is not None
        assert undefended.bound > 1 > private.bound > 0


def test_more_attacks_and_seeds_share_one_confidence() -> None:
    (alone,) = attacker_privacy(summary_table([row(800, 0.1)]))
    (three,) = attacker_privacy(summary_table([row(800, 0.1), row(500, 0.0, attack="union"), row(500, 0.1, seed=2)]))
    assert alone.bound is not None
    assert three.bound is not None
    assert 0.5 < three.bound < alone.bound
    assert alone.additive is not None
    assert alone.additive.low == pytest.approx(0.1 - 1.96 * 0.01, abs=1e-4)


def test_intervals_have_both_sources_of_variance() -> None:
    assert Interval.of([0.2], [0.1]).high == pytest.approx(0.2 + 1.96 * 0.1, abs=1e-4)
    found = Interval.of([0.1, 0.3], [0.1, 0.1])
    assert found.mean == pytest.approx(0.2)
    assert found.high == pytest.approx(0.2 + 1.96 * math.hypot(0.1, 0.1), abs=1e-4)
    assert Interval.of([0.2], [0.1], shared_by=10).high > Interval.of([0.2], [0.1]).high


def test_a_view_that_excludes_labels_has_no_finite_epsilon() -> None:
    (found,) = attacker_privacy(summary_table([row(500, 0.0, contradicted=20), row(500, 0.0, attack="union")]))
    assert found.bound == math.inf
    assert "no finite ε" in privacy_table(summary_table([row(500, 0.0, contradicted=20)])).rows[0]


def test_rows_of_earlier_versions_have_no_table(tmp_path: Path) -> None:
    assert privacy_table(summary_table([make_row()])).rows == ()
    assert "ε at least" not in page_of([make_row()], tmp_path)


def test_the_page_has_the_table(tmp_path: Path) -> None:
    page = page_of([row(800, 0.1), row(700, 0.1, defense=lmid(0.1))], tmp_path)
    assert "Defenses on one scale of privacy" in page
    assert page.count('data-label="ε at least"') == 2


def test_a_guarantee_has_its_delta_and_excludes_runs_that_it_does_not_cover() -> None:
    noisy = ({"kind": "noisy-gradients", "epsilon": 1.0, "delta": 1e-5, "clip": 1.0},)
    lies = {"behavior": {"kind": "malicious-optimizer"}, "attack": "active-completion"}
    rows = [row(700, 0.1, defense=noisy), row(800, 0.2, defense=noisy, **lies)]
    rows += [row(700, 0.1, defense=RESPONSE), row(800, 0.2, defense=RESPONSE, **lies)]
    found = attacker_privacy(summary_table(rows))
    # noise on labels is drawn before a party can deviate
    assert [(each.claimed, each.delta) for each in found] == [(1.0, 1e-5), (None, 0.0), (2.0, 0.0), (2.0, 0.0)]
    assert [each.behavior is None for each in found] == [True, False, True, False]
    assert [each.additive and each.additive.mean for each in found] == pytest.approx([0.1, 0.2, 0.1, 0.2])
    table = privacy_table(summary_table(rows)).rows
    assert [each[3] for each in table] == ["1 (δ 1e-05)", "none", "2", "2"]
    assert len({each[0] for each in table}) == 4


def test_noise_on_the_sums_of_label_holders_is_a_guarantee_and_that_on_leaf_weights_is_none() -> None:
    chains = [({"kind": kind, "epsilon": 8.0, "delta": 1e-5},) for kind in ("label-dp-sums", "partial-dp")]
    found = attacker_privacy(summary_table([row(700, 0.1, defense=chain) for chain in chains]))
    assert [(each.claimed, each.delta) for each in found] == [(8.0, 1e-5), (None, 0.0)]


def test_noise_of_one_label_holder_alone_is_no_guarantee() -> None:
    """As a version before allowed it."""
    chain = ({"kind": "label-dp-sums", "party": "shop", "epsilon": 0.5, "delta": 1e-5},)
    found = attacker_privacy(summary_table([row(700, 0.1, defense=chain)]))
    assert [(each.claimed, each.delta) for each in found] == [(None, 0.0)]


@pytest.mark.parametrize(("form", "expected"), [("correct", 0.5), ("published", None)])
def test_a_guarantee_of_each_gradient_is_none_of_the_run(form: str, expected: float | None) -> None:
    chain = ({"kind": "ppdl", "theta": 0.1, "epsilon": 0.5, "form": form},)
    (found,) = attacker_privacy(summary_table([row(700, 0.1, defense=chain)]))
    assert (found.claimed, found.per_gradient) == (None, expected)


def test_each_attacker_has_a_plot_with_all_defenses() -> None:
    rows = [row(800, 0.1, contradicted=1), row(700, 0.2, defense=RESPONSE), row(700, 0.2, party="bank")]
    telco, bank = privacy_images(summary_table(rows))
    assert ("telco" in telco.title, "bank" in bank.title) == (True, True)
    assert "ε at least ∞" in telco.words
    assert "ε guaranteed 2" in telco.words
    assert "multiplicative advantage 1.00" in bank.words
