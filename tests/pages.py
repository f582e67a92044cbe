"""Golden pages: stored text output, compared as a whole; figures that differ from run to run are masked."""

from __future__ import annotations

import difflib
import os
import re
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path

RECORD = "LABELWARD_RECORD_PAGES"
"""Environment variable: pages are written instead of compared."""

_MASKS = (
    (re.compile(r"about \d+ (s|min) left"), "about TIME left"),
    (re.compile(r"\b\d[\d,]*(\.\d+)?( ± [\d.]+)? (ms|s|min|h)\b( \d+ (min|s)\b)?"), "TIME"),
    (re.compile(r"\b[0-9a-f]{16,}\b|(?<=authority )[0-9a-f]{6}\b"), "HEX"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b( \d\d:\d\d(:\d\d)?)?( UTC)?"), "DATE"),
    (re.compile(rf"\b{re.escape(version('labelward'))}\b"), "VERSION"),
)


def masked(text: str, *, numbers: bool = False) -> str:
    """Return output without durations, dates, digests and versions, or without any number.

    Columns of a table are as wide as their largest figure, so runs of spaces and rules become short ones.
    """
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    if numbers:
        text = re.sub(r"(?<![\w-])\d[\d,]*(\.\d+)?(e[+-]?\d+)?( [kMG]?B\b)?", "N", text)
    text = re.sub(r"N worker *\n", "N workers\n", text)  # of one core
    text = re.sub(r"(?<=\S) {2,}", "  ", text)
    return re.sub(r"─+", "───", "\n".join(line.rstrip() for line in text.splitlines()))


class _Text(HTMLParser):
    """Collects the text of a page: one line for each block, table cells divided by bars."""

    _BLOCKS = frozenset(  # each begins a line
        [
            "p",
            "h1",
            "h2",
            "h3",
            "h4",
            "li",
            "tr",
            "dt",
            "dd",
            "caption",
            "summary",
            "figcaption",
            "pre",
            "title",
            "footer",
        ]
    )

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skipped += tag in ("style", "svg", "script")
        if tag in self._BLOCKS:
            self.parts.append("\n\n## " if tag in ("h1", "h2", "h3") else "\n")
        if tag in ("td", "th"):
            self.parts.append(" | ")
        if tag == "img":
            self.parts.append(f"[{dict(attrs).get('alt')}]")

    def handle_endtag(self, tag: str) -> None:
        self._skipped -= tag in ("style", "svg", "script")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.parts.append(re.sub(r"\s+", " ", data))


def page_text(html: str) -> str:
    """Return the text of an HTML page."""
    reader = _Text()
    reader.feed(html)
    lines = (re.sub(r"\s+", " ", line).strip(" |") for line in "".join(reader.parts).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def check_page(path: Path, text: str) -> None:
    """Compare a page with the stored one, or store it; see :data:`RECORD`."""
    text = f"{text.strip()}\n"
    if os.environ.get(RECORD):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    stored = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = difflib.unified_diff(stored.splitlines(), text.splitlines(), "stored", "found", lineterm="", n=1)
    difference = "\n".join(lines)
    assert not difference, f"{path.name}; record anew with tests/record_pages.py if this is meant:\n{difference}"
