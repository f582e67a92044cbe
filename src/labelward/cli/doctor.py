"""``labelward doctor``: which encryption kernel runs on this machine, why, and how fast."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from labelward.cli._output import print_json, print_table

__all__ = ["doctor_command"]

_OPERATIONS = ("encrypt", "split", "add", "seal", "decrypt")


def doctor_command(
    bits: Annotated[int, typer.Option(min=2048, max=4096, help="Length of the key to measure with.")] = 2048,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Tell which encryption kernel runs here, why, and how fast: microseconds of one core for one operation."""
    from labelward.he.doctor import examine

    found = examine(bits)
    if json:
        print_json({"bits": bits, "kernels": [asdict(each) for each in found]})
        return
    rows = [
        (
            each.kernel,
            "yes" if each.chosen else "no",
            *(_told(each.microseconds.get(operation)) for operation in _OPERATIONS),
            each.why,
        )
        for each in found
    ]
    print_table(f"Paillier, {bits} bits: µs of one core", ("kernel", "runs", *_OPERATIONS, "why"), rows, words=1)


def _told(microseconds: float | None) -> str:
    if microseconds is None:
        return "–"
    return f"{microseconds:.2f}" if microseconds < 10 else f"{microseconds:,.0f}"
