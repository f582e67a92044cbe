"""Inputs that fuzzing kept: those that reached new code, and those that broke a reader. One line of base64 each."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"
MOST = 2000
"""Bytes of an input that is kept."""


def kept(name: str, folder: Path = CORPUS) -> list[bytes]:
    """Return the inputs of a target."""
    path = folder / f"{name}.txt"
    return [base64.b64decode(line) for line in path.read_text().split()] if path.exists() else []


def keep(name: str, inputs: Iterable[bytes], folder: Path = CORPUS) -> None:
    """Write the inputs of a target that are short enough, with those that are there."""
    folder.mkdir(exist_ok=True)
    lines = {base64.b64encode(data).decode() for data in (*kept(name, folder), *inputs) if 0 < len(data) <= MOST}
    (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in sorted(lines)))
