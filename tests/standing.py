"""The rows of an audit that its job asked for, without those of the attack that is part of every audit."""

from __future__ import annotations

from collections.abc import Iterable

from labelward.attacks import STANDING
from labelward.runs.schema import ResultRow


def listed(rows: Iterable[ResultRow]) -> list[ResultRow]:
    return [row for row in rows if row.attack is not None and row.attack["kind"] != STANDING]
