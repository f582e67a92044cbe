"""The page of one party's run says which of its figures are of the last attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from labelward.leakage.view_summary import ViewSummary
from labelward.report import party_page
from labelward.report.party_page import write_party_report
from labelward.runs.party_record import PartyRecord, write_party_record
from labelward.runs.schema import Cost, KeyInfo


@pytest.mark.parametrize(("attempts", "said"), [(1, 0), (3, 7)])
def test_each_figure_of_the_last_attempt_says_so(
    attempts: int, said: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = PartyRecord(
        party="bank",
        parties=("active", "bank"),
        seed=1,
        attempts=attempts,
        own="ab",
        key=KeyInfo(engine="plain", bits=0, security_level=0, fingerprint="", insecure=(), kernel=""),
        cost=Cost(seconds=1.0, bytes=2_480_000, messages=230),
        versions={},
    )
    write_party_record(tmp_path, record)
    seen = ViewSummary(counts={("sent", "Level"): (242, 2_600_000)}, readings={})
    monkeypatch.setattr(party_page, "summarize_view", lambda *_: seen)
    page = write_party_report(tmp_path).read_text(encoding="utf-8")
    assert page.count("of the last attempt</td>") + page.count("of the last attempt</caption>") == said
    assert ("of all 3 attempts" in page) == (attempts == 3)
