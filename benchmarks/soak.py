"""Trainings and predictions over a network in a row, each party in one process: does anything grow?

Usage: python benchmarks/soak.py [--trainings N] [--predictions N] [--batch ROWS] [--json FILE]

The bank and telco train anew each time (5 trees of depth 3 on 2,000 rows, plain engine: memory and sockets do not
depend on the key), then predict with the last model, ``--batch`` rows at a time: a connection, a greeting and an
answer each.
After every training and every batch a process says its memory (RSS after a garbage collection), threads, open files and
sockets. The growth is that from the third training, or batch, to the last: what is loaded once is loaded by then. By
default as long as the figures of the documentation took: 24 trainings, 1,000,000 predictions.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _wiring import report

PARTIES = ("bank", "telco")
ROWS = 2000
COLUMNS = {"bank": 4, "telco": 5}
JOB = """
[data]
id = "id"
[parties.bank]
role = "active"
{bank}
[parties.telco]
{telco}
[model]
trees = 5
depth = 3
[encryption]
engine = "plain"
insecure = true
[network]
address = "127.0.0.1:{port}"
certificates = "certs"
row_queries = 1000000
"""
WARM = 2
"""Trainings, and batches, before the first figure that counts."""


def write(folder: Path, batch: int) -> None:
    """Write job files, certificates, and tables to learn from and to predict."""
    import pyarrow as pa
    import pyarrow.csv

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "network"))
    from companies import authority, free_port  # type: ignore[import-not-found]

    from labelward.transport.certificates import new_party

    port, rng, certs = free_port(), np.random.default_rng(1), folder / "certs"
    certs.mkdir(mode=0o700)
    for party, width in COLUMNS.items():
        for name, rows in (("train", ROWS), ("new", batch)):
            table = {"id": np.arange(rows)} | {f"{party}{at}": rng.normal(size=rows) for at in range(width)}
            if party == "bank" and name == "train":
                table["label"] = (table["bank0"] > 0).astype(np.int64)
            pyarrow.csv.write_csv(pa.table(table), folder / f"{party}-{name}.csv")
        own = f'table = "{party}-train.csv"' + ('\nlabel = "label"' if party == "bank" else "")
        sections = {each: own if each == party else "" for each in PARTIES}
        (folder / f"{party}.toml").write_text(JOB.format(**sections, port=port))
        issued = new_party(authority(), party, addresses=["127.0.0.1"])
        (certs / f"{party}.crt").write_bytes(issued.certificate)
        (certs / f"{party}.key").touch(mode=0o600)
        (certs / f"{party}.key").write_bytes(issued.key)
    (certs / "authority.crt").write_bytes(authority().certificate)


def sample(what: str, began: float) -> dict[str, Any]:
    """Return what this process has now."""
    gc.collect()
    opened = []
    for name in os.listdir("/proc/self/fd"):
        try:
            opened.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    sockets = sum(each.startswith("socket:") for each in opened)
    return {
        "after": what,
        "seconds": round(time.monotonic() - began, 1),
        "memory_kb": int(Path("/proc/self/statm").read_text().split()[1]) * 4,
        "threads": len(os.listdir("/proc/self/task")),
        "python_threads": threading.active_count(),
        "files": len(opened) - sockets,
        "sockets": sockets,
    }


def live(party: str, folder: Path, trainings: int, batches: int) -> None:
    """Take part as one party; print a line of JSON after each training and batch."""
    from labelward.federation.connect import connect
    from labelward.federation.party_prediction import predict_as_party
    from labelward.federation.party_training import train_as_party
    from labelward.job import load_job

    def silent(event: str, fields: Any) -> None:
        return None

    os.chdir(folder)
    job, began = load_job(folder / f"{party}.toml"), time.monotonic()
    for number in range(trainings):
        out = folder / f"{party}-run{number}"
        train_as_party(job, party, out, seed=1, join=partial(connect, folder=out), log=silent)
        print(json.dumps(sample("training", began)), flush=True)
    run, table = folder / f"{party}-run{trainings - 1}", folder / f"{party}-new.csv"
    for _ in range(batches):
        to = folder / "predictions.parquet" if party == "bank" else None
        predict_as_party(job, party, run, table, to, join=partial(connect, folder=run), log=silent)
        print(json.dumps(sample("batch", began)), flush=True)


def growth(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what was had at the start, in the middle and at the end, and the growth since what is loaded once."""
    told: dict[str, Any] = {}
    for kind in ("training", "batch"):
        of_kind = [each for each in samples if each["after"] == kind]
        counted = of_kind[WARM:] or of_kind
        if not counted:
            continue
        figures = ("memory_kb", "threads", "files", "sockets")
        told[kind] = {name: [counted[0][name], counted[len(counted) // 2][name], counted[-1][name]] for name in figures}
        steps = np.arange(len(counted))
        memory = [each["memory_kb"] for each in counted]
        slope = float(np.polyfit(steps, memory, 1)[0]) if len(counted) > 2 else 0.0
        told[kind] |= {"times": len(of_kind), "kb_each": round(slope, 1), "seconds": of_kind[-1]["seconds"]}
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=24)
    parser.add_argument("--predictions", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--json")
    parser.add_argument("--live", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    batches = -(-chosen.predictions // chosen.batch)
    if chosen.live:
        live(chosen.live[0], Path(chosen.live[1]), chosen.trainings, batches)
        return
    with tempfile.TemporaryDirectory(prefix="labelward-soak-") as name:
        write(Path(name), chosen.batch)
        command = [sys.executable, __file__, *sys.argv[1:], "--live"]
        running = {
            party: subprocess.Popen([*command, party, name], stdout=subprocess.PIPE, text=True) for party in PARTIES
        }
        samples = {
            party: [json.loads(line) for line in process.communicate()[0].splitlines()]
            for party, process in running.items()
        }
        assert all(process.returncode == 0 for process in running.values())
    told = {"batch": chosen.batch, **{party: growth(each) for party, each in samples.items()}}
    report("soak", told, Path(chosen.json) if chosen.json else None)


if __name__ == "__main__":
    main()
