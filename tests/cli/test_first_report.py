"""A data scientist's own file, as messy as can be read, to a first report: ``init`` and three edits of its template."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from small_jobs import Call

ROWS = 300
EDITS = {
    r"^table = .*$": 'table = "kunden.csv"',
    r"^label = .*$": 'label = "gekündigt"',
    r"^# drop = .*$": 'drop = ["Kunde №", "Straße", "Bemerkung"]',
}
SHORT = {  # of the test alone: what takes time, and nothing that a person has to decide
    r"^trees = \d+": "trees = 1",
    r"^depth = \d+": "depth = 2",
    r'^engine = "paillier"': 'engine = "plain"',
    r"^insecure = false": "insecure = true",
    r"^seeds = \[.*?\]": "seeds = [1]",
    r"^xi = \[.*?\]": "xi = [0.3]",
}


def write_customers(path: Path) -> None:
    """Write UTF-16 without a mark, semicolons, decimal commas, day-first dates, durations, line breaks and gaps."""
    draw = np.random.default_rng(3)
    text = io.StringIO()
    writer = csv.writer(text, delimiter=";", lineterminator="\r\n")
    names = ["Kunde №", "Alter", "Einkommen €", "Kunde seit", "Ort", "PLZ", "Straße", "Vertrag?", "Dauer", "Bemerkung"]
    writer.writerow([*names, "gekündigt"])
    for row in range(ROWS):
        income, age, day = draw.lognormal(7.5, 0.6), int(draw.integers(18, 90)), int(draw.integers(0, 2000))
        town, bound = str(draw.choice(["Köln", "a; b", "Genève", ""])), str(draw.choice(["ja", "nein"]))
        gone = age / 30 + 2 * (town == "Köln") - 2 * (bound == "ja") + draw.normal(0, 0.7) > 1.5
        cells = [
            f"K-{row:05d}",
            "" if row % 17 == 0 else age,
            f"{income:,.2f}".translate(str.maketrans(",.", ".,")),
            f"{1 + day % 28}.{1 + day // 28 % 12}.{2018 + day // 400}",
            town,
            f"0{draw.integers(1000, 1040)}",
            f"Straße {row}",
            bound,
            f"{draw.integers(0, 40)}:{draw.integers(0, 60):02d}:00",
            f'Anruf {row}\n"Rückruf" bitte',
            "ja" if gone else "nein",
        ]
        writer.writerow(cells)
    path.write_bytes(text.getvalue().encode("utf-16-le"))


def _edit(job: Path, edits: dict[str, str]) -> None:
    text = job.read_text(encoding="utf-8")
    for pattern, line in edits.items():
        text, changed = re.subn(pattern, line, text, flags=re.MULTILINE)
        assert changed == 1, pattern
    job.write_text(text, encoding="utf-8")


@pytest.mark.filterwarnings("default::labelward.errors.DataNote")
@pytest.mark.slow
def test_three_edits_lead_to_a_report(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_customers(tmp_path / "kunden.csv")
    assert call("init", "job.toml").exit_code == 0
    job, (table, label, drop) = tmp_path / "job.toml", EDITS
    _edit(job, SHORT | {each: EDITS[each] for each in (table, label)})
    refused_once = call("audit", "job.toml", "--out", "audit", "--quiet")
    lines = [line for line in refused_once.stderr.splitlines() if not line.startswith("note: ")]
    assert (refused_once.exit_code, len(lines)) == (2, 2)  # one warns of the engine of this test
    assert all(name in lines[1] for name in ("'Kunde №'", "'Straße'", "'Bemerkung'"))  # the third edit, in one message
    _edit(job, {drop: EDITS[drop]})
    done = call("audit", "job.toml", "--out", "audit", "--quiet")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "audit" / "report.html").read_text(encoding="utf-8")
    assert all(name in page for name in ("Einkommen €", "Kunde seit", "Vertrag?", "Dauer"))
