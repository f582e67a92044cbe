"""Tables of estimated and measured costs."""

from __future__ import annotations

from pathlib import Path

from stored_audit import make_row, make_run, write_audit

from labelward.report.estimate_tables import estimate_tables
from labelward.report.page import write_report
from labelward.runs.estimate import Estimate
from labelward.runs.schema import write_run

PHASES = {"active": {"encrypt": 2.0, "other": 0.5}, "telco": {"seal": 0.0, "aggregate": 1.0}, "bank": {"seal": 0.2}}


def make_estimate(seconds: float = 10.0) -> Estimate:
    return Estimate(
        seconds=seconds,
        phases=PHASES,
        bytes={"active": 1_607_278, "telco": 0, "bank": 0},
        messages=130,
        encryptions=2275,
        additions=824_680,
        decryptions=0,
        ciphertexts=4585,
        memory={"active": 1, "telco": 1, "bank": 1},
    )


def test_each_figure_stands_beside_its_estimate() -> None:
    runs = {"no defense": (make_run(estimate=make_estimate(), phases={"active": {"encrypt": 3.0, "wait": 9.0}}),)}
    (table,) = estimate_tables(runs, [make_row()])
    rows = {what: figures for what, *figures in table.rows}
    assert rows["whole training"] == ["10.0 s", "11.8 s", "1.18"]
    assert rows["active: encrypt"] == ["2.00 s", "3.00 s", "1.50"]
    assert rows["active: other"] == ["500 ms", "–", "–"]  # no run measures it
    assert rows["telco: seal"] == ["0 ms", "–", "–"]
    assert rows["bytes on the wire"] == ["1.61 MB", "3.21 MB", "2.00"]
    assert rows["additions"] == ["824,680", "412,340", "0.50"]
    assert rows["decryptions"] == ["0", "2,310", "–"]  # nothing to divide by
    assert not any("wait" in what for what in rows)


def test_means_are_over_the_seeds_that_were_estimated() -> None:
    runs = {
        "no defense": (
            make_run(seed=1, duration=8.0, estimate=make_estimate(4.0)),
            make_run(seed=2, duration=10.0, estimate=make_estimate(8.0)),
            make_run(seed=3, duration=99.0),
        ),
        "id-lmid": (make_run(seed=1),),
    }
    (table,) = estimate_tables(runs, [make_row(seed=seed) for seed in (1, 2, 3)])
    assert table.rows[0] == ("whole training", "6.00 s", "9.00 s", "1.50")


def test_a_report_made_later_shows_both(tmp_path: Path) -> None:
    folder = write_audit(tmp_path / "audit", seeds=1)
    assert "Estimated and measured" not in write_report(folder).read_text()
    write_run(folder, make_run(estimate=make_estimate()))
    page = write_report(folder).read_text()
    assert "Estimated and measured" in page
    assert "no defense: estimated and measured" in page
