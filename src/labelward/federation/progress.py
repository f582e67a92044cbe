"""Progress reports of a long evaluation."""

from __future__ import annotations

from collections.abc import Callable

Watch = Callable[[str, int, int, str], None]
"""Called with (event, done, total, detail).

``"runs"``: trainings of an audit that are finished, with the next one in words; ``"trees"``: trees of the training that
runs; ``"attacks"``: attacks on its views; ``"explanations"``: what its models learned is looked at;
``"leakage PARTY"``: the leakage meter's V-measure of a passive party, in thousandths. ``"trees"`` and
``"leakage PARTY"`` come from the active party's thread, the others from the caller's.
"""


def no_log(event: str, done: int, total: int, detail: str) -> None:
    """Discard log entries."""
