from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_audit import write_audit


@pytest.fixture
def audit(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes an audit into a new folder."""

    def make(**options: Any) -> Path:
        return write_audit(tmp_path / "audit", **options)

    return make
