"""Runs that nobody disturbs, each made once."""

from __future__ import annotations

import pytest
from undisturbed import Undisturbed


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(tmp_path_factory.mktemp("undisturbed"))
