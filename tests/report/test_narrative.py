"""Sentences name what their figures are about: parties, rows, baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stored_audit import JOB, make_leakage, make_row

from labelward.report.load import read_audit
from labelward.report.narrative import headline
from labelward.report.summary import summary_table
from labelward.runs.schema import append_row

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
