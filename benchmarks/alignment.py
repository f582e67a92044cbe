"""Alignment of two tables with different ids: seconds and bytes, and growth with the rows.

Usage: python benchmarks/alignment.py [--rows 50000] [--json FILE]

Half of the ids of each party are at the other one. Both parties are threads of this process, which take turns, so
that its processor seconds are those of both together; between companies each has half of them. Four points are
multiplied for each row, two at each party. Half as many rows are aligned, too: cost grows linearly.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from _wiring import report

from labelward.party.alignment import align_active, align_passive, alignment_topology
from labelward.party.context import Context
from labelward.party.in_process import run_parties
from labelward.party.transcript import FORMAT, Header, Transcript
from labelward.transport.base import Transport

PARTIES = ("bank", "telco")
LIMIT = 1.15
"""Of the growth of seconds where rows double, beside 2."""


def context(end: Transport) -> Context:
    transcript = Transcript(Header(FORMAT, "", end.party, "", (), (0, 0), "none", 0, (), {}))
    return Context(end, topology=alignment_topology(*PARTIES), transcript=transcript, seed=1)


def measure(rows: int) -> dict[str, Any]:
    """Return processor seconds and bytes of both parties with so many rows each."""
    tables = {party: [f"customer-{row + at * rows // 2}" for row in range(rows)] for at, party in enumerate(PARTIES)}
    contexts = []

    def make(end: Transport) -> Context:
        contexts.append(context(end))
        return contexts[-1]

    spent = time.process_time()
    found = run_parties(
        {
            "bank": (make, lambda ctx: align_active(ctx, tables["bank"], rows)),
            "telco": (make, lambda ctx: align_passive(ctx, tables["telco"], rows)),
        }
    )
    spent = time.process_time() - spent
    assert {tables["bank"][at] for at in found["bank"].tolist()} == {*tables["bank"]} & {*tables["telco"]}
    sent = sum(sum(each.meter.bytes.values()) for each in contexts)
    return {"rows": rows, "processor_s": round(spent, 2), "us_a_point": round(spent / rows / 4e-6, 1), "bytes": sent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    half, whole = (measure(rows) for rows in (chosen.rows // 2, chosen.rows))
    growth = whole["processor_s"] / half["processor_s"] / 2
    result = {"runs": [half, whole], "growth": round(growth, 3)}
    report("alignment", result, chosen.json)
    if growth > LIMIT:
        raise SystemExit(f"seconds grow by {growth:.2f} times more than the rows where at most {LIMIT} are asked for")


if __name__ == "__main__":
    main()
