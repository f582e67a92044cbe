"""Three parties over a network, and the same job in one process: is all the same? ``make demo-network`` runs this."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from together import Stopped, free_port, fresh, labelward, together

from labelward.data.catalog import load_catalog_table
from labelward.errors import DataError

ACTIVE, PASSIVE = "bank", ("telco", "shop")
PARTIES = (ACTIVE, *PASSIVE)
SEED = 1
JOB = """\
[data]
id = "id"

{parties}
[model]
kind = "secureboost"
trees = {trees}
depth = {depth}
bins = 16

[encryption]
engine = "paillier"
bits = 2048

[run]
seeds = [{seed}]
"""
NETWORK = """
[network]
address = "127.0.0.1:{port}"
listen = "127.0.0.1:{port}"
certificates = "certs"
timeout = 120.0
"""


def main() -> None:
    """Make tables, train twice, compare; exit code 1 where anything differs."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("runs/demo-network"), help="where everything goes")
    options.add_argument("--small", action="store_true", help="600 rows and 2 trees")
    given = options.parse_args()
    try:
        out = fresh(given.out)
        made = make_parties(out, small=given.small)
        same = compare(out, *all_twice(out), rows=made)
    except Stopped as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: all processes have been stopped")
    print(f"\nEverything is in {given.out}: a folder for each party, and in-process/.")
    if not same:
        sys.exit("error: the network changed something")
    print("The network changed nothing.")


def make_parties(out: Path, *, small: bool) -> int:
    """Write each party's folder: its table, its certificates, its job file. Return the number of rows."""
    table, name = read_table()
    table = table.slice(0, 600) if small else table
    columns = [column for column in table.column_names if column != "label"]
    shares = dict(zip(PARTIES, np.array_split(columns, len(PARTIES)), strict=True))
    ids = pa.array([f"customer-{row:05d}" for row in range(table.num_rows)])
    port, rng = free_port(), np.random.default_rng(SEED)
    model = {"trees": 2, "depth": 3} if small else {"trees": 5, "depth": 4}
    labelward("certs", "new", "certs", *(f"--party={party}" for party in PARTIES), "--address=127.0.0.1", folder=out)
    for party in PARTIES:
        own = {"id": ids} | {column: table[column] for column in shares[party]}
        own |= {"label": table["label"]} if party == ACTIVE else {}
        (out / party).mkdir()
        shuffled = pa.table(own).take(rng.permutation(table.num_rows))  # every company has its own order of rows
        pa.csv.write_csv(shuffled, out / party / "table.csv")
        shutil.move(out / "certs" / party, out / party / "certs")
        sections = {each: section(each, "table.csv" if each == party else "") for each in PARTIES}
        job = JOB.format(parties="\n".join(sections.values()), seed=SEED, **model) + NETWORK.format(port=port)
        (out / party / "job.toml").write_text(job)
    joint = "\n".join(section(party, f"{party}/table.csv") for party in PARTIES)
    (out / "in-process.toml").write_text(JOB.format(parties=joint, seed=SEED, **model))
    held = ", ".join(f"{party} {len(shares[party])} columns" for party in PARTIES)
    print(f"{name}, {table.num_rows:,} rows: {held}; {ACTIVE} has the labels.")
    print(f"{model['trees']} trees of depth {model['depth']}, Paillier 2048 bits, mutual TLS on 127.0.0.1:{port}.\n")
    return table.num_rows


def read_table() -> tuple[pa.Table, str]:
    """Return credit default where it is to be had, else a table that scikit-learn ships."""
    try:
        return load_catalog_table("credit_default"), "Default of credit card clients"
    except DataError as error:
        print(f"Credit default is not here ({error}).")
        print("Put credit_default.parquet into a folder and set LABELWARD_DATA to it, or allow a download from OpenML.")
        print("Until then, this runs on the breast cancer table that scikit-learn ships, which is smaller.\n")
        return load_catalog_table("breast_cancer"), "Breast cancer"


def section(party: str, table: str) -> str:
    """Return a party's section of a job file; one without a table belongs to somebody else."""
    lines = [f"[parties.{party}]"]
    lines += ['role = "active"'] if party == ACTIVE else []
    lines += [f'table = "{table}"'] if table else []
    lines += ['label = "label"'] if party == ACTIVE and table else []
    return "\n".join(lines) + "\n"


def all_twice(out: Path) -> tuple[float, float]:
    """Train and predict over the network, then in one process; return the seconds of each training."""
    print("Three processes that share nothing but a port:")
    began = time.monotonic()
    together({party: (out / party, ("party", "job.toml", "--as", party, "--out", "run")) for party in PARTIES})
    between = time.monotonic()
    print("\nThe same job in one process ...", flush=True)
    again = (f"--repeat={out / party / 'run'}" for party in PARTIES)  # what each party drew privately
    labelward("train", "in-process.toml", "--out", "in-process", "--quiet", *again, folder=out)
    ended = time.monotonic()
    print("\nPredictions of all rows, over the network and in one process:", flush=True)
    asked = ("--out", "run", "--predict", "table.csv", "--quiet")
    told = {ACTIVE: ("--to", "predictions.parquet")}
    together(
        {party: (out / party, ("party", "job.toml", "--as", party, *asked, *told.get(party, ()))) for party in PARTIES}
    )
    tables = (f"--party={party}={out / party / 'table.csv'}" for party in PARTIES)
    labelward("predict", "in-process", "--out", "predictions.parquet", *tables, folder=out)
    return between - began, ended - between


def compare(out: Path, seconds: float, in_process_seconds: float, *, rows: int) -> bool:
    """Print what came out of both, side by side; return whether all of it is the same."""
    networked = {party: out / party / "run" / party for party in PARTIES}
    rehearsed = {party: out / "in-process" / party for party in PARTIES}
    lines = [(f"model share of {party}", share(networked[party]), share(rehearsed[party])) for party in PARTIES]
    lines += [(f"view of {party}", view(networked[party]), view(rehearsed[party])) for party in PARTIES]
    lines.append((f"predictions of {rows:,} rows", predictions(out / ACTIVE), predictions(out)))
    record = json.loads((out / ACTIVE / "run" / "party.json").read_text())["utility"]
    training = json.loads((out / "in-process" / "training.json").read_text())["utility"]
    lines += [(f"{metric} on test rows", repr(record[metric]), repr(training[metric])) for metric in record]
    print(f"\n{'':28}{'over the network':20}{'in one process':20}")
    for what, one, other in lines:
        print(f"{what:28}{one[:16]:20}{other[:16]:20}{'same' if one == other else 'DIFFERENT'}")
    print(f"{'seconds, with start-up':28}{seconds:<20.1f}{in_process_seconds:<20.1f}")
    return all(one == other for _, one, other in lines)


def share(folder: Path) -> str:
    """Return a digest of a share, but for the model's identifier and the evidence, which belong to one run."""
    content = json.loads((folder / "model" / "share.json").read_text())["share"]
    del content["model"], content["evidence"]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def view(folder: Path) -> str:
    """Return the digest of what a party saw, which neither keys nor machines change."""
    return labelward("view", "digest", "view", folder=folder).strip()


def predictions(folder: Path) -> str:
    """Return a digest of the predictions in a folder: ids, margins, probabilities and classes."""
    table = pyarrow.parquet.read_table(folder / "predictions.parquet")
    return hashlib.sha256(repr(table.to_pydict()).encode()).hexdigest()


if __name__ == "__main__":
    main()
