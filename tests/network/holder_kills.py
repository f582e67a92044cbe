"""Fifty kills of each party, at random moments, where several hold labels: runs must end as if undisturbed.

``python holder_kills.py [FOLDER [RUNS]]`` plays the runs of :data:`RUNS` that are missing, or the next so many. Which
were played stands in ``kills.jsonl`` of the folder: the same command goes on where it was stopped, and repeats what
failed. Undisturbed is a run whose shares and views are, at every party and to the last bit, those of one process.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import chaos
from chaos import ALL, CASES, Fault, Plan, Result, play
from companies import Case
from troubled import Weather
from undisturbed import Undisturbed

MOMENTS = ("attempt", "agreed", "trees")
PAILLIER = CASES["several holders"].model.replace('aggregation = "masks"', 'aggregation = "paillier"')
LONG: Mapping[str, Case] = {
    **{name: CASES[name] for name in ("several holders", "several holders, noise", "several holders, noisy leaves")},
    "several holders, paillier": replace(
        CASES["several holders"], model=PAILLIER, encryption="bits = 512\ninsecure = true\nworkers = 1"
    ),
}
"""Cases of which more trees are grown, so that there are moments enough."""
RUNS = (
    *(("several holders", 0), ("several holders, noise", 1), ("several holders, noise", 2)),
    *(("several holders, noisy leaves", 3), ("several holders, paillier", 4)),
)
"""Case and seed of each run."""
KILLS, TREES = 10, 150
"""Of each party in a run, and the trees meanwhile."""


def planned(case: Case, seed: int, kills: int) -> tuple[Fault, ...]:
    """Return kills of every party in an order and at moments that follow from the seed."""
    draw, parties = random.Random(seed), list(case.parties) * kills
    draw.shuffle(parties)
    return tuple(Fault("kill", party, "", draw.choice(MOMENTS), 1, draw.uniform(0.0, 0.3), 0.1) for party in parties)


def killed(name: str, seed: int, folder: Path, *, kills: int = KILLS, trees: int = TREES) -> Result:
    """Play a run whose parties are killed; :class:`AssertionError` where it hangs, fails or ends otherwise."""
    case = replace(LONG[name], model=LONG[name].model.replace("trees = 4", f"trees = {trees}"))
    plan = Plan(seed, f"{name}, long", False, False, Weather(), planned(case, seed, kills))
    with patch.object(chaos, "PATIENCE", 1200.0), patch.dict(ALL, {plan.case: case}):
        result = play(plan, folder / "run", Undisturbed(folder / "whole"), surely=True)
    assert len(result.happened) == len(plan.faults), f"{len(result.happened)} of {len(plan.faults)} kills came"
    return result


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="labelward-kills-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    stored = folder / "kills.jsonl"
    lines = map(json.loads, stored.read_text().splitlines()) if stored.exists() else ()
    known: dict[tuple[str, int], dict[str, Any]] = {(each["case"], each["seed"]): each for each in lines}
    missing = [each for each in RUNS if not known.get(each, {}).get("ok")]
    for name, seed in missing[: int(sys.argv[2])] if len(sys.argv) > 2 else missing:
        place, began = folder / str(seed), time.monotonic()
        shutil.rmtree(place, ignore_errors=True)
        told: dict[str, Any] = {"case": name, "seed": seed}
        try:
            result = killed(name, seed, place)
            of_party = Counter(fault.party for fault in result.plan.faults)
            told |= {"ok": True, "kills": dict(of_party), "attempts": result.attempts, "resumed": result.resumed}
            shutil.rmtree(place)
        except AssertionError as error:
            told |= {"ok": False, "error": str(error)[:2000]}
        known[name, seed] = told = told | {"seconds": round(time.monotonic() - began, 1)}
        print(json.dumps(told), flush=True)
        with stored.open("a") as file:
            file.write(json.dumps(told) + "\n")
    total: Counter[str] = Counter()
    for each in known.values():
        total.update(each.get("kills", {}))
    print(f"kills of each party after which runs ended as if undisturbed: {dict(total)}")
    sys.exit(not all(each["ok"] for each in known.values()))


if __name__ == "__main__":
    main()
