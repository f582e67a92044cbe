"""Write the golden pages anew: ``python tests/record_pages.py [NAME ...]``, all pages if none is named.

Sentences that people read are tested here and nowhere else. After a change of wording, record the pages and read the
difference: it is what users will see. A difference in figures is an error unless figures were meant to change.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from pages import RECORD  # noqa: E402

if __name__ == "__main__":
    files = [str(HERE / "cli" / "test_golden_pages.py"), str(HERE / "report" / "test_report_pages.py")]
    chosen = ["-k", " or ".join(sys.argv[1:])] if sys.argv[1:] else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, *chosen]
    sys.exit(subprocess.run(command, env={**os.environ, RECORD: "1"}).returncode)
