"""What a hostile peer costs the honest ones: peak memory and seconds, beyond a party that leaves honestly.

Usage: python benchmarks/hostile.py [--model MODEL] [--times N] [--limit BYTES] [--json FILE] [KIND ...]
       python benchmarks/hostile.py --strangers N [--rows N] [--trees N] [--times N] [--json FILE]

Three parties train 60 trees (plain engine), or one of the other models. From its 40th message on (FederBoost: its
third) telco does what ``tests/network/changed.py`` lists: garbage, deep or long messages, floods of greetings, control
records and messages that nobody awaits, short ones or as long as any that is always taken, a message of 300 MB. Told
are, for bank and shop, the largest peak of memory (``VmHWM``) above that of the same run in which telco's user
interrupts it, and the seconds from the act to the end. Allowed are 64 MB and 10 s. ``--limit``: the ``message_limit``
of all parties; without it the default of 1 GiB.

With ``--strangers``: two parties train on loopback, in turn alone, beside so many connections that say nothing and come
back when they are closed, and beside as many that begin a TLS handshake and never read the answer. Told are ratios to
the run alone of the same turn, of processor seconds (processes started included) and of seconds of the training.
Allowed are 1.05.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _machine import load
from _wiring import report

import network as loopback

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "network"))
import changed  # type: ignore[import-not-found]
from companies import Case, companies  # type: ignore[import-not-found]

CASES = {
    "trees": Case(model="trees = 60\ndepth = 3"),
    "network": Case(model='kind = "splitnn"\nepochs = 40\nbatch_size = 16\nwidth = 4', encryption=""),
    "regression": Case(model='kind = "logistic"\nepochs = 40\nbatch_size = 32\nrows_per_column = 0'),
    "holders": Case(
        model='kind = "pivodl"\nopened_sums = "allow"\ntrees = 40\ndepth = 3\naggregation = "masks"\nmin_node_rows = 2',
        holders=("bank", "telco"),
        data='classes = ["0", "1"]',
    ),
    "buckets": Case(model='kind = "federboost"\ntrees = 4\ndepth = 3', encryption=""),
    "pivot": Case(
        model='kind = "pivot"\ndealer = "dealer"\ndepth = 3\nbins = 8', parties=("bank", "telco", "shop", "dealer")
    ),
}
HONEST = ("bank", "shop")
LEAVES = "leaves"
FROM = 40
FIRST = {"buckets": 3}
"""From which message on it is hostile in models of few messages."""
ALLOWED_MB, ALLOWED_SECONDS = 64, 10


def peak(pid: int) -> int:
    """Return the largest memory that a process had, in bytes; 0 where it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def play(case: Case, kind: str, number: int, network: str) -> dict[str, Any]:
    """Return the peak memory of the honest parties, and the seconds until both have ended."""
    with tempfile.TemporaryDirectory(prefix="labelward-hostile-") as name:
        changes = {"telco": (f"hostile={kind},{number}",)}
        with companies(Path(name) / "run", case, network=network, changes=changes) as made:
            running = made.start_all()
            peaks, ended = dict.fromkeys(HONEST, 0), dict[str, float]()
            until = time.monotonic() + 120
            while len(ended) < len(HONEST) and time.monotonic() < until:
                for party in HONEST:
                    peaks[party] = max(peaks[party], peak(running[party].popen.pid))
                    if party not in ended and running[party].popen.poll() is not None:
                        ended[party] = time.time()
                time.sleep(0.002)
            acted = (made.folder / "telco.hostile").stat().st_mtime
            last = {party: (running[party].errors.splitlines() or [""])[-1] for party in HONEST}
            seconds = max(ended.values()) - acted if len(ended) == len(HONEST) else float("inf")
            return {"peaks": peaks, "seconds": seconds, "named": all("'telco'" in each for each in last.values())}


def beside_strangers(count: int, rows: int, trees: int, times: int) -> dict[str, Any]:
    """Train with and without strangers, in turn, after a run that compiles."""
    found: dict[str, list[dict[str, Any]]] = {"alone": [], "idle": [], "half-open": []}
    engine = 'engine = "plain"\ninsecure = true'
    with tempfile.TemporaryDirectory(prefix="labelward-hostile-") as name:
        folder = Path(name)
        loopback.write(folder, rows)
        loopback.run(folder, "first", engine, None)
        for turn in range(times):
            for kind, runs in found.items():
                crowd = (kind, 0 if kind == "alone" else count)
                runs.append(loopback.run(folder, f"{kind}-{turn}", engine, None, crowd, trees))
    told: dict[str, Any] = {"strangers": count, "rows": rows, "trees": trees, "allowed": 1.05, **found}
    for kind in ("idle", "half-open"):
        for what in ("processor seconds", "seconds"):
            pairs = zip(found["alone"], found[kind], strict=True)
            ratios = sorted(round(there[what] / here[what], 3) for here, there in pairs)
            told[f"{kind}: {what}"] = {"median": statistics.median(ratios), "ratios": ratios}
    return told | {"load": load()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--model", choices=CASES, default="trees")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--limit", type=int, default=1 << 30)
    parser.add_argument("--strangers", type=int, default=0)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if chosen.strangers:
        report(
            "hostile",
            beside_strangers(chosen.strangers, chosen.rows, chosen.trees, chosen.times),
            chosen.json,
        )
        return
    kinds = chosen.kinds or [kind for kind in changed.HOSTILE if kind != LEAVES]
    case, number = CASES[chosen.model], FIRST.get(chosen.model, FROM)
    network = f"timeout = 120.0\nheartbeat = 0.5\nmessage_limit = {chosen.limit}"
    base = [play(case, LEAVES, number, network) for _ in range(chosen.times)]
    usual = {party: statistics.median(each["peaks"][party] for each in base) for party in HONEST}
    told: dict[str, Any] = {
        "model": chosen.model,
        "message_limit": chosen.limit,
        "seconds of an honest end": round(max(each["seconds"] for each in base), 2),
    }
    for kind in kinds:
        found = [play(case, kind, number, network) for _ in range(chosen.times)]
        more = max(each["peaks"][party] - usual[party] for each in found for party in HONEST) / 2**20
        seconds = max(each["seconds"] for each in found)
        told[kind] = {
            "MB more": round(more, 1),
            "seconds": round(seconds, 2),
            "named by all": all(each["named"] for each in found),
            "within": more <= ALLOWED_MB and seconds <= ALLOWED_SECONDS,
        }
    report("hostile", told, chosen.json)


if __name__ == "__main__":
    main()
