"""torch is optional: nothing of the tree side imports it, and without it split networks say what to install."""

from __future__ import annotations

import subprocess
import sys

TREE_SIDE = (
    "labelward",
    "labelward.cli.app",
    "labelward.auditing.audit",
    "labelward.estimators",
    "labelward.defenses",
    "labelward.attacks",
    "labelward.messages.codec",
    "labelward.protocols.secureboost.session",
    "labelward.protocols.splitnn.params",
)


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True).stdout


def test_torch_is_not_imported() -> None:
    names = ", ".join(TREE_SIDE)
    assert run(f"import sys, {names}\nprint('torch' in sys.modules)").strip() == "False"


def test_without_torch_the_extra_is_named() -> None:
    code = """
import sys
sys.modules["torch"] = None
from labelward.errors import DependencyError
from labelward.protocols.splitnn.params import SplitNet
SplitNet()
try:
    import labelward.protocols.splitnn.session
except DependencyError as error:
    print(error)
"""
    assert "[nets]" in run(code)
