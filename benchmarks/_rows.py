"""Rows of a benchmark that is run piece by piece: stored as they come, and not measured again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class StoredRows(list[dict[str, Any]]):
    """The rows of a JSON file, one a line; without a path they are printed alone."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(json.loads(path.read_text()) if path is not None and path.exists() else ())
        self.path = path

    def add(self, row: dict[str, Any]) -> None:
        """Print a row and store it."""
        self.append(row)
        print(json.dumps(row), flush=True)
        if self.path is not None:
            self.path.write_text("[\n" + ",\n".join(map(json.dumps, self)) + "\n]\n")
