"""Means and spreads: the figures that the command line and the page share."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stored_audit import LOCAL, lmid, make_leakage, make_row, write_audit

from labelward.report.formatting import count, data_size, decimals, duration, percentage_points
from labelward.report.summary import Spread, summary_table
from labelward.runs.schema import Cost, read_rows

# clustering on the reference splits of breast cancer: .554 ± .084 in the reference table
REFERENCE = (0.634, 0.614, 0.577, 0.521, 0.424)


def test_the_spread_is_the_one_of_the_reference_figures() -> None:
    spread = Spread.of(REFERENCE)
    assert spread.mean == pytest.approx(0.554, abs=5e-4)  # three printed decimals
    assert spread.std == pytest.approx(0.084, abs=5e-4)
    assert spread.std == pytest.approx(statistics.stdev(REFERENCE))
    assert spread.error == pytest.approx(statistics.stdev(REFERENCE) / 5**0.5)


def test_a_single_seed_has_no_spread() -> None:
    assert Spread.of([0.5]) == Spread(mean=0.5, std=None, seeds=1)
    assert Spread.of([0.5]).error == 0.0


def test_rows_are_grouped_over_seeds_only() -> None:
    rows = [
        make_row(seed=1, leakage=make_leakage(0.6, 0.5)),
        make_row(seed=2, leakage=make_leakage(0.8, 0.4)),
        make_row(seed=1, defense=LOCAL),
        make_row(seed=1, party="bank"),
        make_row(seed=1, attack={"kind": "clustering"}),
    ]
    table = summary_table(rows)
    assert [(row.defense, row.party, row.attack, row.seeds) for row in table] == [
        ("no defense", "telco", "id2graph (alpha 2.0)", 2),
        ("no defense", "bank", "id2graph (alpha 2.0)", 1),
        ("no defense", "telco", "clustering", 1),
        ("local-trees (count 2, mode add)", "telco", "id2graph (alpha 2.0)", 1),
    ]
    first = table[0]
    assert first.leakage["v_measure"].mean == pytest.approx(0.7)
    assert first.gain["v_measure"].mean == pytest.approx(0.25)
    assert first.gain["v_measure"].std == pytest.approx(statistics.stdev([0.1, 0.4]))
    assert first.leakage.keys() == first.chance.keys() == first.without_view.keys() == {"v_measure", "ari"}
    assert first.utility.keys() == first.alone.keys() == first.joined.keys() == {"auc", "accuracy", "f1"}
    assert first.edge["auc"].mean == pytest.approx(0.988 - 0.974)
    assert first.edge.keys() == first.utility.keys()
    assert first.cost.keys() == set(Cost.__struct_fields__)


def test_the_undefended_run_comes_first_whatever_was_written_first() -> None:
    table = summary_table([make_row(defense=lmid(0.5)), make_row(defense=lmid(0.1)), make_row()])
    assert [row.defense for row in table] == ["no defense", "id-lmid (xi 0.5)", "id-lmid (xi 0.1)"]


def test_a_whole_audit_can_be_printed_as_json(tmp_path: Path) -> None:
    table = summary_table(read_rows(write_audit(tmp_path)))
    assert len(table) == 6 * 2 * 2  # variants, parties, attacks
    decoded = msgspec.json.decode(msgspec.json.encode(table))
    assert decoded[0]["defense"] == "no defense"
    assert decoded[0]["leakage"]["v_measure"].keys() == {"mean", "std", "seeds"}


def test_without_attacks_utility_and_cost_remain() -> None:
    (row,) = summary_table([make_row(attack=None, leakage=None, party=None)])
    assert row.attack is row.party is row.primary is None
    assert row.leakage == row.gain == {}
    assert row.utility["auc"].mean == 0.988


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (decimals(-0.0004, 2), "0.00"),
        (decimals(-0.016, 2), "−0.02"),
        (decimals(12345.678, 1), "12,345.7"),
        (count(23040), "23,040"),
        (count(2.5), "2.5"),
        (count(254, 0.0), "254"),
        (count(254, 3.2), "254 ± 3"),
        (data_size(0), "0 B"),
        (data_size(999), "999 B"),
        (data_size(999.6), "1.00 kB"),
        (data_size(3_214_556), "3.21 MB"),
        (data_size(3_214_556, 120_000), "3.21 ± 0.12 MB"),
        (data_size(2.5e9), "2.50 GB"),
        (duration(0), "0 ms"),
        (duration(0.0123), "12.3 ms"),
        (duration(0.9996), "1.00 s"),
        (duration(11.84), "11.8 s"),
        (duration(11.84, 0.216), "11.8 ± 0.2 s"),
        (duration(125), "2 min 5 s"),
        (duration(3725), "1 h 2 min"),
        (percentage_points(0.003), "0.3 points"),
        (percentage_points(0.01), "1.0 point"),
    ],
)
def test_numbers_as_people_read_them(text: Any, expected: str) -> None:
    assert text == expected
