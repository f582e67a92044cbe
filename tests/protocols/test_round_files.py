"""What a reader of one round meets: few files, and one door to the policies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import labelward
from labelward.protocols.secureboost import active
from labelward.protocols.secureboost.params import SecureBoost
from wiring import Setting, make_labels, make_parts

ROOT = str(Path(labelward.__file__).parent)


def traced(function: Callable[..., Any], files: set[str]) -> Callable[..., Any]:
    """Return the function with a trace: the files of the package in which anything is called, in this thread."""

    def note(frame: FrameType, *_: Any) -> None:
        name = frame.f_code.co_filename
        if name.startswith(ROOT):
            files.add(name[len(ROOT) + 1 :])

    def run(*args: Any, **keywords: Any) -> Any:
        sys.settrace(note)
        try:
            return function(*args, **keywords)
        finally:
            sys.settrace(None)

    return run


def room(file: str) -> str:
    """Return the file, or the package where a reader need not know which of its files is passed."""
    package = "kernels" if file == "jit.py" else file.partition("/")[0]  # which compiles a kernel at its first call
    return package if package in ("he", "kernels") else file


def test_a_round_passes_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tree of depth 3 with one passive party, from sampling to leaves: parties, messages and transport included."""
    files: set[str] = set()
    monkeypatch.setattr(active._Training, "_round", traced(active._Training._round, files))
    parts = make_parts(1, 300, {"active": 2, "left": 3})
    Setting(parts, make_labels(1, parts), SecureBoost(trees=1, depth=3)).run()
    rooms = {room(file) for file in files}
    assert "protocols/secureboost/active.py" in rooms
    assert {"he", "kernels", "party/context.py"} <= rooms
    assert len(files) <= 30, sorted(files)
    assert len(rooms) <= 14, " ".join(sorted(rooms))


def test_policies_are_asked_through_one_module() -> None:
    modules = (Path(ROOT) / "protocols" / "secureboost").glob("*.py")
    assert [path.name for path in modules if "ctx.policies" in path.read_text()] == ["policy_hooks.py"]
