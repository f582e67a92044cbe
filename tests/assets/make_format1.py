"""Write ``format1/``: a tiny view and model share of format 1, as they were first released.

    python tests/assets/make_format1.py

Run it again only before the first release of a format: afterwards the files prove that old runs can still be read.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))


def main() -> None:
    from labelward.protocols.secureboost.params import SecureBoost
    from wiring import Setting, make_labels, make_parts

    target = HERE / "format1"
    shutil.rmtree(target, ignore_errors=True)
    parts = make_parts(41, 24, {"active": 1, "left": 2})
    setting = Setting(
        parts,
        make_labels(41, parts),
        SecureBoost(trees=1, depth=2, bins=4),
        engine="paillier",
        bits=512,
        job={"model.kind": '"secureboost"', "model.trees": "1"},
        folder=target,
    )
    run = setting.run()
    run.active.share.save(target / "active")
    for party, out in run.passive.items():
        out.share.save(target / party)
    expected = {
        "digests": {party: view.digest() for party, view in run.views.items()},
        "margins": run.active.margins.tobytes().hex(),
    }
    (target / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")


if __name__ == "__main__":
    main()
