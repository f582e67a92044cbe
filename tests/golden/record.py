"""Write the golden record anew: ``python tests/golden/record.py [NAME ...]``, all jobs where none is named.

The stored values say what the product computes today. A change that is to compute the same must leave them as they are;
``tests/golden/test_golden.py`` compares. Record anew only where figures are meant to change (rows are split in another
way, an algorithm is corrected, a job is added). Then read the difference of the files under ``values/`` and say in the
message of the commit which values changed and why each had to; a difference that nobody can explain is an error. Never
record anew in the same commit as a change of names or of places.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


def main(names: list[str]) -> None:
    """Run the jobs, and write what they give."""
    import torch
    from cases import CASES, found_values
    from compare import differences, read_values, write_values

    torch.set_num_threads(1)
    for name in names or CASES:
        case, path, start = CASES[name], HERE / "values" / f"{name.replace(' ', '-')}.json", time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            values = found_values(name, Path(folder))
        stored = read_values(path)[0] if path.exists() else None
        changed = "new" if stored is None else f"{sum(1 for _ in differences(stored, values))} values differ"
        write_values(path, case.about, values, case.tolerances)
        print(f"{name}: {changed}, {time.perf_counter() - start:.1f} s, {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
