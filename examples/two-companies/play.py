"""Play both companies on one machine: certificates, training, and predictions for new customers."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import pyarrow.parquet
from together import Stopped, free_port, fresh, labelward, together

HERE = Path(__file__).parent
ADDRESS = "bank.example:7443"  # in both job files
PRIVATE = shutil.ignore_patterns("certs", "job-*", "*.parquet")  # what a run of one's own may have left beside them


def main() -> None:
    """Copy the two folders, so that nothing is written here, and do in them what the two companies would do."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("runs/two-companies"), help="where the copies go")
    given = options.parse_args()
    try:
        play(fresh(given.out))
    except Stopped as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: both companies have been stopped")
    print(f"\nWhat the bank has now is in {given.out / 'bank'}, what telco has in {given.out / 'telco'}.")


def play(out: Path) -> None:
    """Play in a folder that is empty."""
    bank, telco, port = out / "bank", out / "telco", free_port()
    for company in (bank, telco):
        shutil.copytree(HERE / company.name, company, ignore=PRIVATE)
        job = company / "job.toml"
        here = f'[network]\nlisten = "127.0.0.1:{port}"'
        job.write_text(job.read_text().replace(ADDRESS, f"127.0.0.1:{port}").replace("[network]", here))

    say("The bank makes certificates, and hands telco its folder.")
    parties = ("--party=bank", "--party=telco")
    print(labelward("certs", "new", "certs", *parties, "--address=127.0.0.1", folder=out), end="")
    shutil.move(out / "certs" / "bank", bank / "certs")
    shutil.move(out / "certs" / "telco", telco / "certs")
    print(labelward("certs", "check", "certs", "--as", "telco", folder=telco), end="")

    say("Both train. Each runs one command on its own machine; who is first waits for the other.")
    as_bank, as_telco = ("party", "job.toml", "--as", "bank"), ("party", "job.toml", "--as", "telco")
    together({"bank": (bank, as_bank), "telco": (telco, as_telco)})

    say("New customers come. Each company brings its columns of them; the bank learns the predictions.")
    rows = ("--predict", "new.csv")
    together({"bank": (bank, (*as_bank, *rows, "--to", "predictions.parquet")), "telco": (telco, (*as_telco, *rows))})
    print()
    for row in pyarrow.parquet.read_table(bank / "predictions.parquet").slice(0, 3).to_pylist():
        print(f"customer {row['customer']}: probability {row['probability_1']:.3f}, prediction {row['prediction']}")

    say("What telco has seen, from its own records:")
    shown = labelward("view", "show", "job-telco/telco/view", folder=telco).splitlines()
    print("\n".join(line for line in shown if " = " not in line))  # without the parameters of the model


def say(what: str) -> None:
    """Print a heading."""
    print(f"\n== {what}", flush=True)


if __name__ == "__main__":
    main()
