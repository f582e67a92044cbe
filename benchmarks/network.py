"""A run between two companies: on loopback, and through a proxy with the round trip and the rate of a long line.

Usage: python benchmarks/network.py [--rows N] [--delay MS] [--rate MBITS] [--plain] [--json FILE]
       python benchmarks/network.py --beside [--rows N] [--times N] [--workers N] [--plain] [--json FILE]

Job A as in ``training.py`` (30,000 × (12 + 11), 5 trees of depth 3, Paillier 2048), each party a process with its own
table. Both runs are timed from the attempt's begin to the end of training, as their logs have it. What is allowed on
the line: 1.5 times the seconds on loopback, plus the seconds that the bytes need at the rate.

With ``--beside``: on loopback, each party with ``--workers``, in turn with the same job in one process with two,
``--times`` times. Allowed are 1.15 times its seconds.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from _machine import children_seconds, load
from _wiring import report
from sklearn.datasets import make_classification

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "network"))
from companies import authority, free_port  # type: ignore[import-not-found]
from troubled import Proxy, Weather  # type: ignore[import-not-found]

from labelward.transport.certificates import new_party

PARTIES = ("bank", "telco")
JOB = """
[data]
id = "id"
test_size = 0.25
[parties.bank]
role = "active"
{bank}
[parties.telco]
{telco}
[model]
trees = {trees}
depth = 3
[encryption]
{encryption}
[leakage]
meter = false
[network]
address = "127.0.0.1:{connect}"
listen = "127.0.0.1:{listen}"
certificates = "certs"
"""


def write(folder: Path, rows: int) -> None:
    """Write the tables and certificates of both parties."""
    x, y = make_classification(rows, 23, n_informative=10, n_redundant=4, class_sep=0.8, flip_y=0.05, random_state=0)
    ids = pa.array([f"c{i:06d}" for i in range(rows)])
    for party, columns in (("bank", range(12)), ("telco", range(12, 23))):
        table = {"id": ids, **{f"{party}{i}": pa.array(x[:, i]) for i in columns}}
        if party == "bank":
            table["label"] = pa.array(y.astype(np.int64))
        pyarrow.csv.write_csv(pa.table(table), folder / f"{party}.csv")
        issued = new_party(authority(), party, addresses=["127.0.0.1"])
        certs = folder / "certs"
        certs.mkdir(exist_ok=True)
        (certs / f"{party}.crt").write_bytes(issued.certificate)
        (certs / f"{party}.key").touch(mode=0o600)
        (certs / f"{party}.key").write_bytes(issued.key)
        (certs / "authority.crt").write_bytes(authority().certificate)


CROWD = """
import select, socket, ssl, sys, time
port, count, hello = int(sys.argv[1]), int(sys.argv[2]), b""
if sys.argv[3] == "half-open":  # a TLS handshake that begins, and whose answer is never read
    context, outgoing = ssl.create_default_context(), ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        hello = outgoing.read()
ended, known = select.epoll(), {}
while True:
    while len(known) < count:
        one = socket.socket()
        if one.connect_ex(("127.0.0.1", port)):
            one.close()
            time.sleep(0.05)
            break
        if hello:
            one.sendall(hello)
        ended.register(one, select.EPOLLRDHUP)
        known[one.fileno()] = one
    for number, _ in ended.poll(0.05):
        known.pop(number).close()
"""
"""Connections that come back when they are closed."""


def run(
    folder: Path,
    name: str,
    encryption: str,
    weather: Weather | None,
    strangers: tuple[str, int] = ("", 0),
    trees: int = 5,
) -> dict[str, Any]:
    """Train once; ``weather`` None: no proxy; ``strangers``: kind and number, see ``CROWD``."""
    port = free_port()
    before = children_seconds()
    kind, count = strangers
    crowd = subprocess.Popen([sys.executable, "-c", CROWD, str(port), str(count), kind]) if count else None
    proxy = None if weather is None else Proxy(("127.0.0.1", port), weather)
    try:
        processes = []
        for party in PARTIES:
            own = {"bank": 'table = "bank.csv"\nlabel = "label"', "telco": 'table = "telco.csv"'}
            tables = {each: own[each] if each == party else "" for each in PARTIES}
            connect = proxy.port if proxy and party == "telco" else port
            (folder / f"{party}.toml").write_text(
                JOB.format(**tables, encryption=encryption, connect=connect, listen=port, trees=trees)
            )
            command = [sys.executable, "-m", "labelward", "party", f"{party}.toml", "--as", party]
            out = folder / f"{name}-{party}"
            with out.with_suffix(".err").open("wb") as err:
                processes.append(
                    subprocess.Popen([*command, "--out", out.name], cwd=folder, stdout=subprocess.DEVNULL, stderr=err)
                )
        for party, process in zip(PARTIES, processes, strict=True):
            assert process.wait(3600) == 0, (folder / f"{name}-{party}.err").read_text()
        spent = children_seconds() - before  # without the crowd, which has not ended yet
        told = figures(folder, name) | {"processor seconds": round(spent, 2)}
        return told | ({"carried": sum(proxy.carried)} if proxy else {})
    finally:
        if crowd is not None:
            crowd.kill()
            crowd.wait()
        if proxy:
            proxy.close()


def figures(folder: Path, name: str) -> dict[str, Any]:
    """Return seconds and bytes of a run that has ended."""
    log = [json.loads(line) for line in (folder / f"{name}-bank" / "log.jsonl").read_text().splitlines()]
    times = {event: [datetime.fromisoformat(each["time"]) for each in log if each["event"] == event] for event in SEEN}
    begun, saved, done = times["attempt"][0], times["saved"][-1], times["done"][-1]
    costs = [json.loads((folder / f"{name}-{party}" / "party.json").read_text())["cost"] for party in PARTIES]
    return {
        "seconds": round((saved - begun).total_seconds(), 2),
        "to the end": round((done - begun).total_seconds(), 2),
        "bytes": sum(cost["bytes"] for cost in costs),
        "messages": sum(cost["messages"] for cost in costs),
    }


SEEN = ("attempt", "saved", "done")


def measure(rows: int, delay: float, rate: float, encryption: str) -> dict[str, Any]:
    """Run on loopback, on the line, on loopback again."""
    loads = [load()]
    with tempfile.TemporaryDirectory(prefix="labelward-network-") as name:
        folder = Path(name)
        write(folder, rows)
        first = run(folder, "first", encryption, None)
        line = run(folder, "line", encryption, Weather(delay=delay / 2, rate=rate))
        loads.append(load())
        second = run(folder, "second", encryption, None)
    loads.append(load())
    here = (first["seconds"] + second["seconds"]) / 2
    sending = line["bytes"] / rate
    return {
        "rows": rows,
        "round trip ms": 1000 * delay,
        "Mbit/s": rate * 8 / 1e6,
        "loopback": [first, second],
        "line": line,
        "seconds of the bytes": round(sending, 2),
        "allowed seconds": round(1.5 * here + sending, 2),
        "ratio without the bytes": round((line["seconds"] - sending) / here, 2),
        "within": line["seconds"] <= 1.5 * here + sending,
        "load": loads,
    }


def here(folder: Path, name: str, encryption: str) -> dict[str, Any]:
    """Train once with all parties in one process."""
    tables = {"bank": 'table = "bank.csv"\nlabel = "label"', "telco": 'table = "telco.csv"'}
    (folder / "all.toml").write_text(JOB.format(**tables, encryption=encryption, connect=1, listen=1, trees=5))
    before = children_seconds()
    command = [sys.executable, "-m", "labelward", "train", "all.toml", "--out", name, "--quiet"]
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    spent = children_seconds() - before
    cost = json.loads((folder / name / "training.json").read_text())["cost"]
    return {"seconds": round(cost["seconds"], 2), "processor seconds": round(spent, 2)}


def measure_beside(rows: int, encryption: str, times: int) -> dict[str, Any]:
    """Run in one process and on loopback, in turn, after a run that compiles."""
    found: dict[str, list[dict[str, Any]]] = {"one process": [], "loopback": []}
    with tempfile.TemporaryDirectory(prefix="labelward-network-") as name:
        folder = Path(name)
        write(folder, rows)
        run(folder, "first", encryption, None)
        for number in range(times):
            found["one process"].append(
                here(folder, f"here-{number}", re.sub("workers = .*", "workers = 2", encryption))
            )
            found["loopback"].append(run(folder, f"loopback-{number}", encryption, None))
    ratios = {
        what: sorted(round(b[what] / a[what], 3) for a, b in zip(*found.values(), strict=True))
        for what in ("seconds", "processor seconds")
    }
    middle = {what: statistics.median(each) for what, each in ratios.items()}
    return {"rows": rows, **found, "ratios": ratios, "median of ratios": middle, "allowed": 1.15, "load": load()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_000, help="a quarter of them are test rows")
    parser.add_argument("--delay", type=float, default=50.0, help="milliseconds of a round trip")
    parser.add_argument("--rate", type=float, default=100.0, help="Mbit/s in each direction")
    parser.add_argument("--plain", action="store_true", help="without encryption, where only waiting is of interest")
    parser.add_argument("--times", type=int, default=3, help="pairs of --beside")
    parser.add_argument("--workers", type=int, default=1, help="of each party; its job in one process has 2")
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    encryption = 'engine = "plain"\ninsecure = true' if chosen.plain else f"bits = 2048\nworkers = {chosen.workers}"
    if chosen.beside:
        found = measure_beside(chosen.rows, encryption, chosen.times)
    else:
        found = measure(chosen.rows, chosen.delay / 1000, chosen.rate * 1e6 / 8, encryption)
    report("network", found, chosen.json)
