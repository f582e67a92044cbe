"""Every message is explained: what passes between parties stands on a page about who learns what."""

from __future__ import annotations

from pathlib import Path

import pytest
from strategies import MESSAGES

from labelward.messages.base import Message, wire_name

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("explanation-what-each-party-sees.md", "explanation-tree-models.md")
TEXT = "".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_page_says_who_sends_it_to_whom(kind: type[Message]) -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith(f"| `{wire_name(kind)}` | ")]
    assert rows
    assert all(any(arrow in row for arrow in ("→", "↔")) for row in rows)
